"""Our server as an operator runs it: ``xds serve``, with pushes through its admin API."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import httpx

from bench.peers.child import LOOPBACK, Child, PeerError, free_port
from bench.peers.resources import Change, Content, name_of
from xds.codec import schema
from xds.model.resource_type import CLUSTER, ENDPOINT

GROUP = "/api/v1/groups/default"
ALIASES = {CLUSTER: "clusters", ENDPOINT: "endpoints"}
JSON, PROTOBUF = "application/json", "application/x-protobuf"
PUSH_TIMEOUT_S = 120.0
READY_POLL_S = 0.02

Pushed = tuple[str, float, float]  # version, and monotonic seconds when it was asked for and accepted


class Ours:
    """The process and its admin API. ``binary``: bodies are protobuf instead of JSON."""

    def __init__(self, grpc_port: int, environment: Mapping[str, str], binary: bool = False) -> None:
        http_port = free_port()
        addresses = ["--grpc", f"{LOOPBACK}:{grpc_port}", "--http", f"{LOOPBACK}:{http_port}"]
        argv = [sys.executable, "-m", "xds.cli.main", "serve", *addresses, "--store", "memory"]
        self.child = Child(argv, environment, piped=False)
        self.url = f"http://{LOOPBACK}:{http_port}"
        self._admin = httpx.AsyncClient(base_url=self.url, timeout=PUSH_TIMEOUT_S, trust_env=False)
        self._binary = binary
        self._content = Content()

    async def ready(self) -> None:
        """Wait until it serves. Raises ``PeerError`` when it ends instead."""
        while self.child.exit_code is None:
            try:
                if (await self._admin.get("/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(READY_POLL_S)
        raise PeerError(f"xds serve ended with {self.child.exit_code}\n{self.child.log_tail()}")

    async def push(self, change: Change) -> Pushed:
        """Push through the admin API; the version is that of the type which a change of one would change.

        Raises ``PeerError`` when the push is refused.
        """
        whole = self._content.apply(change)
        # In a thread: the bodies of 10,000 resources take longer than others on this loop should wait.
        path, body = await asyncio.to_thread(self._whole if whole else self._one, change)
        headers = {"Content-Type": PROTOBUF if self._binary else JSON}
        asked_at = time.monotonic()
        answer = await self._admin.put(GROUP + path, content=body, headers=headers)
        accepted_at = time.monotonic()
        if not answer.is_success:
            raise PeerError(f"PUT {path}: {answer.status_code} {answer.text[:1000]}")
        return answer.json()["versions"][ALIASES[self._content.one]], asked_at, accepted_at

    async def stop(self) -> int:
        """SIGTERM, and wait for the drain; the exit code."""
        await self._admin.aclose()
        return await asyncio.to_thread(self.child.terminate)

    def _whole(self, change: Change) -> tuple[str, bytes]:
        return "/snapshot", (self._response if self._binary else self._document)(change.edition)

    def _one(self, change: Change) -> tuple[str, bytes]:
        type_url = self._content.one
        path = f"/resources/{ALIASES[type_url]}/{name_of(0)}"
        if self._binary:
            return path, self._content.body(type_url, 0)
        return path, json.dumps(self._content.value(type_url, 0)).encode()

    def _document(self, edition: int) -> bytes:
        values = [{"@type": url, **self._content.value(url, index)} for url, index in self._content.every()]
        return json.dumps({"version": str(edition), "resources": values}).encode()

    def _response(self, edition: int) -> bytes:
        response: Any = schema.require(schema.RESPONSE_TYPE)(version_info=str(edition))
        for url, index in self._content.every():
            response.resources.add(type_url=url, value=self._content.body(url, index))
        return bytes(response.SerializeToString())


def tls_environment(certificate: str, key: str) -> dict[str, str]:
    """The settings that make the gRPC port speak TLS."""
    door = "XDS_SERVER__GRPC__TLS__"
    return {f"{door}CERTIFICATE": certificate, f"{door}PRIVATE_KEY": key}

"""The two servers, which get the same changes: ours through its admin API, go-control-plane by setting its snapshot."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import httpx

from bench.envoys.kinds import Push
from bench.fanout import Server, running_server
from bench.peers import go_program
from bench.peers.child import Child, free_port
from bench.suite.goals import OURS, SNAPSHOT
from xds.codec.resources import decode_resource

GROUP = "default"
JSON_TYPE = "application/json"
TIMEOUT_S = 120.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that is ready to be sent. ``bodies`` are type URL and bytes of the resources as they will be served."""

    bodies: tuple[tuple[str, bytes], ...]
    request: bytes = b""


class Side(Protocol):
    """A server under test."""

    name: str
    pid: int
    port: int

    def prepare(self, change: Push) -> Prepared:
        """All that is not the server's work."""

    def push(self, prepared: Prepared) -> float:
        """Push it; monotonic seconds when that was asked for. It must be accepted."""


class Ours:
    """``xds serve``: a push is a transaction that puts and deletes, in JSON."""

    name = OURS

    def __init__(self, server: Server) -> None:
        self.pid = server.pid
        self.port = int(server.grpc.rpartition(":")[2])
        self.asked_wall_s = 0.0
        self._client = httpx.Client(base_url=f"{server.http}/api/v1", timeout=TIMEOUT_S, trust_env=False)

    def prepare(self, change: Push) -> Prepared:
        bodies = [(one["@type"], decode_resource(one).body) for one in change.put]
        deleted = [{"type": url, "name": name} for url, name in change.delete]
        body: Json = {"changes": [{"group": GROUP, "put": list(change.put), "delete": deleted}]}
        return Prepared(tuple(bodies), json.dumps(body).encode())

    def push(self, prepared: Prepared) -> float:
        self.asked_wall_s, asked = time.time(), time.monotonic()
        answer = self._client.post("/transactions", content=prepared.request, headers={"content-type": JSON_TYPE})
        assert answer.is_success, f"{answer.status_code} {answer.text[:1000]}"
        return asked

    def told_ms(self) -> list[float]:
        """How long after the last push each node had ACKed what it subscribes to, by the server's own account.

        The state of a type says since when it is so; what the push did not touch was so before.
        """
        items = self._client.get("/nodes").raise_for_status().json()["items"]
        since = [[_seconds(state["since"]) for state in item["types"].values()] for item in items]
        return [max(0.0, max(own) - self.asked_wall_s) * 1e3 for own in since if own]

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


class GoControlPlane:
    """The snapshot cache in ADS mode with ordered answers: resources are handed to it parsed, a push sets them."""

    name = SNAPSHOT

    def __init__(self, child: Child, port: int) -> None:
        self.pid = child.pid
        self.port = port
        self._child = child

    def prepare(self, change: Push) -> Prepared:
        decoded = [decode_resource(one) for one in change.put]
        put = [{"type": one.type_url, "name": one.name, "body": _base64(one.body)} for one in decoded]
        deleted = [{"type": url, "name": name} for url, name in change.delete]
        answer = self._child.ask({"prepare": {"put": put, "delete": deleted}})
        served = [base64.b64decode(body) for body in answer["bodies"]]
        return Prepared(tuple(zip((one.type_url for one in decoded), served, strict=True)))

    def push(self, prepared: Prepared) -> float:
        asked = time.monotonic()
        self._child.ask({"set": True})
        return asked


@contextmanager
def ours() -> Iterator[Ours]:
    """Our server with its memory store, as a process of its own."""
    with running_server() as server:
        side = Ours(server)
        try:
            yield side
        finally:
            side.close()


@contextmanager
def go_control_plane() -> Iterator[GoControlPlane]:
    """The Go program. Raises ``PeerError`` without a Go toolchain."""
    port = free_port()
    child = Child([go_program.build(), "--cache", "snapshot", "--ordered", "--port", str(port)])
    try:
        child.read()
        yield GoControlPlane(child, port)
    finally:
        child.kill()
        child.close()


def expected(prepared: Prepared, gone: Sequence[tuple[str, str]] = ()) -> Json:
    """What the tap is to look for."""
    return {"present": [[url, _base64(body)] for url, body in prepared.bodies], "absent": [list(one) for one in gone]}


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

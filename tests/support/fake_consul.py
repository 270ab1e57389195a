"""A Consul catalog in memory, with its index, blocking queries and faults, for the tests of the source.

It answers as Consul 1.12.9 does (`tests/services/sources/recorded/consul-health-1.12.9.json`). In `make soak` the
source reads a real agent.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

import uvicorn

from tests.support.process import LOOPBACK

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]
Receive = Callable[[], Awaitable[Json]]

_WAIT_S = 300.0  # Consul's default


class FakeConsul:
    """One agent. ``asked`` counts requests by path; ``most_open_n`` is the most that were in progress at once."""

    def __init__(self, **tls: Any) -> None:
        """``tls`` are settings of uvicorn."""
        self._tls = tls
        self.asked: dict[str, int] = {}
        self.tokens: list[str] = []
        self.open_n = self.most_open_n = 0
        self.status = 200  # another one: every request is answered with it
        self.filtered = False
        self.known_leader = True
        self.index_header = True
        self.body: bytes | None = None  # the answer to every query of a service
        self.delay_s = 0.0
        self.old_body: bytes | None = None  # the answer to queries that are not "consistent", as of a log half applied
        self._index = 10
        self._services: dict[str, dict[tuple[str, str], Json]] = {}
        self._indexes: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    # The catalog

    async def register(self, service: str, identifier: str, address: str, port: int, **more: Any) -> None:
        """Put an instance. ``status`` is that of its check; ``meta``, ``tags``, ``weights``, ``node`` as registered."""
        node = more.pop("node", "one")
        status = more.pop("status", "passing")
        entry = _entry(node, service, identifier, address, port, status, more)
        async with self._changed:
            self._services.setdefault(service, {})[node, identifier] = entry
            self._bump(service)

    async def deregister(self, service: str, identifier: str, node: str = "one") -> None:
        """Remove an instance."""
        async with self._changed:
            self._services.get(service, {}).pop((node, identifier), None)
            self._bump(service)

    async def touch(self, service: str) -> None:
        """Raise the index of a service without a change, as Consul does at times."""
        async with self._changed:
            self._bump(service)

    async def forget(self) -> None:
        """Lose everything, the index too, as an agent in development mode does at a restart."""
        async with self._changed:
            self._services.clear()
            self._indexes.clear()
            self._index = 1
            self._changed.notify_all()

    def _bump(self, service: str) -> None:
        self._index += 1
        self._indexes[service] = self._index
        self._changed.notify_all()

    # The process

    async def start(self, port: int = 0) -> None:
        """Listen, on the same port as before if there was one."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port or self.port))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(self, lifespan="off", log_config=None, ws="none", **self._tls)
        self._server = _QuietServer(config)
        self._task = asyncio.create_task(self._server.serve([listening]))
        while not self._server.started:
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Cut all connections and stop listening."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            with suppress(asyncio.CancelledError):
                await self._task
            self._server = None

    @property
    def address(self) -> str:
        """The URL."""
        return f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    # Requests

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI application."""
        path = scope["path"]
        self.asked[path] = self.asked.get(path, 0) + 1
        self.tokens.append(dict(scope["headers"]).get(b"x-consul-token", b"").decode())
        self.open_n += 1
        self.most_open_n = max(self.most_open_n, self.open_n)
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            status, headers, body = await self._answer(
                path, parse_qs(scope["query_string"].decode(), keep_blank_values=True)
            )
        finally:
            self.open_n -= 1
        told = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        if self.status != 200:
            return self.status, {}, b"No cluster leader" if self.status == 500 else b"ACL not found"
        if path == "/v1/status/leader":
            return 200, {}, b'"127.0.0.1:8300"' if self.known_leader else b'""'
        service = path.removeprefix("/v1/health/service/")
        await self._wait(service, int(query.get("index", ["0"])[0]), query.get("wait", [""])[0])
        headers = {"X-Consul-KnownLeader": str(self.known_leader).lower(), "X-Consul-LastContact": "0"}
        if self.index_header:
            headers["X-Consul-Index"] = str(self._index_of(service))
        if self.filtered:
            headers["X-Consul-Results-Filtered-By-ACLs"] = "true"
        if self.body is not None:
            return 200, headers, self.body
        if self.old_body is not None and "consistent" not in query:
            return 200, headers, self.old_body
        return 200, headers, json.dumps(list(self._services.get(service, {}).values())).encode()

    async def _wait(self, service: str, index: int, wait: str) -> None:
        wait_s = float(wait.removesuffix("s") or _WAIT_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self._index_of(service) > index)

    def _index_of(self, service: str) -> int:
        return self._indexes.get(service, self._index)  # an unknown service has the index of the catalog


def _entry(
    node: str, service: str, identifier: str, address: str, port: int, status: str, more: Mapping[str, Any]
) -> Json:
    return {
        "Node": {
            "ID": "",
            "Node": node,
            "Address": more.get("node_address", "127.0.0.1"),
            "Datacenter": more.get("datacenter", "dc1"),
            "TaggedAddresses": more.get("node_tagged"),
            "Meta": more.get("node_meta"),
        },
        "Service": {
            "ID": identifier,
            "Service": service,
            "Tags": more.get("tags", []),
            "Address": address,
            "TaggedAddresses": more.get("tagged"),
            "Meta": more.get("meta"),
            "Port": port,
            "Weights": more.get("weights", {"Passing": 1, "Warning": 1}),
        },
        "Checks": [
            {"Node": node, "CheckID": f"service:{identifier}", "Name": "up", "Status": status, "Output": "", "Type": ""}
        ],
    }


class _QuietServer(uvicorn.Server):
    """A server that does not handle the signals of the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

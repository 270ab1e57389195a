"""Loopback HTTP upstreams whose answers name the upstream."""

from __future__ import annotations

import asyncio
import random
import ssl
from dataclasses import dataclass
from typing import Literal, cast

from tests.support.background import Background
from tests.support.process import LOOPBACK

HEADER_END = b"\r\n\r\n"
HEALTH_PATH = b"/health"
RETRIED_PATH = b"/retried"
PAUSED_PATH = b"/paused"
FIRST_ATTEMPT = b"\r\nx-envoy-attempt-count: 1\r\n"


class Upstream:
    """An HTTP/1.1 server on a free port, of the loopback by default; each answer's body is its name.

    ``/health`` answers 200, or 503 while ``healthy`` is false, ``health_delay_s`` seconds late. ``requests`` and
    ``health_requests`` count requests. Everything else is answered with ``status``, ``delay_s`` seconds late;
    ``failures`` counts answers without success.

    With ``rate_rps`` it serves at most this many a second, one after the other; others wait.

    ``head`` is further lines of each answer's head, each with its line ending.

    With ``ending`` the connection is reset: ``reset`` in place of an answer, ``cut`` in the middle of its body.

    ``/retried`` answers 503 to what Envoy calls a first attempt (``include_request_attempt_count``), and ``/paused`` is
    answered after a random time up to ``pause_s``, in seconds.
    """

    def __init__(
        self, background: Background, name: str, tls: ssl.SSLContext | None = None, address: str = LOOPBACK
    ) -> None:
        self.name = name
        self.address = address
        self.healthy = True
        self.health_delay_s = 0.0
        self.status = 200
        self.delay_s = 0.0
        self.pause_s = (0.0, 0.0)
        self.rate_rps = 0.0
        self.head = ""
        self.ending: Literal["answer", "reset", "cut"] = "answer"
        self._free_at = 0.0
        self.requests = 0
        self.failures = 0
        self.health_requests = 0
        self._background = background
        self._connections: set[_Connection] = set()
        self._server = background.run(self._listen(tls))
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self, tls: ssl.SSLContext | None) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: _Connection(self), self.address, 0, ssl=tls)

    def close(self) -> None:
        """Stop listening and drop all connections."""
        self._background.run(self._close())

    async def _close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.abort()

    def connected(self, connection: _Connection) -> None:
        """Note a connection, so that close() can drop it."""
        self._connections.add(connection)

    def disconnected(self, connection: _Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def answer(self, path: bytes, head: bytes) -> tuple[_Answer, float]:
        """Count a request; its answer and how late that is, in seconds."""
        if path == HEALTH_PATH:
            self.health_requests += 1
            return _Answer(200 if self.healthy else 503, b"health"), self.health_delay_s
        self.requests += 1
        status = 503 if path == RETRIED_PATH and FIRST_ATTEMPT in head else self.status
        self.failures += status >= 400
        pause_s = random.uniform(*self.pause_s) if path == PAUSED_PATH else self.delay_s
        return _Answer(status, self.name.encode(), self.head), pause_s + self._waits_s()

    def _waits_s(self) -> float:
        if not self.rate_rps:
            return 0.0
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + 1 / self.rate_rps
        return self._free_at - now


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    head: str = ""

    def encode(self) -> bytes:
        head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(self.body)}\r\n{self.head}\r\n"
        return head.encode() + self.body


class _Connection(asyncio.Protocol):
    """One keep-alive connection. Header and body are sent together; sent apart, Nagle adds 40 ms to each request."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._upstream.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.disconnected(self)

    def abort(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while HEADER_END in self._received:
            head, _, self._received = self._received.partition(HEADER_END)
            self._answer(head + b"\r\n")

    def _answer(self, head: bytes) -> None:
        answer, delay_s = self._upstream.answer(head.split(b" ", 2)[1], head)
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._write, answer.encode())
        else:
            self._write(answer.encode())

    def _write(self, answer: bytes) -> None:
        ending = self._upstream.ending
        if self._transport.is_closing():
            return
        if ending != "reset":
            self._transport.write(answer if ending == "answer" else answer[:-1])
        if ending == "cut":  # what is written leaves first
            self._transport.close()
        elif ending == "reset":
            self._transport.abort()

"""Connections of the HTTP port: uvicorn's, within bounds that hold before anybody has said who they are.

httptools has no limit on the bytes of a head, and uvicorn none on the time of a head or a body: one client could fill
the memory, some hundred could take every file descriptor for as long as they like.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from xds.server.https import CertificateProtocol

PIECE_BYTES = 16 << 10  # that the parser is handed at once: so exactly the bytes of a head are known


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """What a client may take before its request is read.

    A body has ``body_s``, and as much longer as what came of it takes at ``body_bytes_per_s``.
    """

    head_bytes: int = 64 << 10
    head_s: float = 10.0
    body_s: float = 30.0
    body_bytes_per_s: int = 64 << 10


class HttpDoor(CertificateProtocol):
    """One connection. ``left`` is called when it is gone; what hits a bound is counted in ``limit_hits``."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        bounds: HttpBounds,
        limit_hits: Counter[str],
        left: Callable[[], None],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._bounds = bounds
        self._limit_hits = limit_hits
        self._left = left
        self._in_head = True
        self._in_body = False
        self._heads = 0  # that have begun
        self._head_bytes = 0
        self._body_bytes = 0
        self._body_began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm(self._bounds.head_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)
        self._left()

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            if self.parser is None or self.transport.is_closing():
                return
            self._feed(data[at : at + PIECE_BYTES])

    def _feed(self, piece: bytes) -> None:
        heads, was_in_body = self._heads, self._in_body
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._count_head(len(piece), began=heads != self._heads)
        elif heads == self._heads and not (was_in_body or self._in_body):
            # Empty lines between two requests: the parser drops them, and uvicorn waits no longer for the end.
            self._in_head = self.cycle.response_complete
            self._count_head(len(piece), began=True)

    def _count_head(self, size: int, *, began: bool) -> None:
        """``began``: within these bytes, which are all counted."""
        self._head_bytes = size + (0 if began else self._head_bytes)
        if self._head_bytes > self._bounds.head_bytes:
            self._turn_away(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "http_head_bytes")
        elif self._timer is None and self._in_head:
            self._arm(self._bounds.head_s, self._head_is_late)

    # As the parser calls it

    def on_message_begin(self) -> None:
        self._in_head = True
        self._heads += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._disarm()
        self._body_bytes = 0
        self._body_began = self.loop.time()
        super().on_headers_complete()
        self._arm(self._bounds.body_s, self._body_is_late)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._disarm()
        super().on_message_complete()

    # Time

    def _arm(self, delay_s: float, late: Callable[[], None]) -> None:
        self._timer = self.loop.call_later(delay_s, late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._head_bytes:
            self._turn_away(HTTPStatus.REQUEST_TIMEOUT, "http_head_seconds")
        else:
            self.transport.abort()  # it has asked for nothing

    def _body_is_late(self) -> None:
        """The time is over that what came so far is given; what came meanwhile makes it longer."""
        self._timer = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self._body_began = self.loop.time() - self._body_bytes / self._bounds.body_bytes_per_s
        ends = self._body_began + self._bounds.body_s + self._body_bytes / self._bounds.body_bytes_per_s
        if self.loop.time() < ends:
            self._timer = self.loop.call_at(ends, self._body_is_late)
        else:
            self._turn_away(HTTPStatus.REQUEST_TIMEOUT, "http_body_seconds")

    def _turn_away(self, status: HTTPStatus, limit: str) -> None:
        """Say why, unless an answer has begun, and close."""
        self._limit_hits[limit] += 1
        self._disarm()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode())
        self.transport.close()

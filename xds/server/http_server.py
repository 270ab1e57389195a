"""The HTTP port: uvicorn, with limits that hold before a client has authenticated.

httptools does not limit the size of a request head, and uvicorn does not limit the time of a head or a body. Without
limits of our own, one client could fill the memory, and a few hundred could take every file descriptor. Connections are
counted from the moment they are accepted, TLS handshakes included, and have their own share of the file descriptors, so
that HTTP clients cannot keep xDS clients out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from xds.fleet.refused_streams import RecordRefusal, RefusalReason, record_nothing
from xds.server.identity import peer_certificate, peer_name
from xds.server.logs import get_logger
from xds.server.process import NONE_LEFT, OpenFiles, file_limit
from xds.server.tls import PLAINTEXT, failure_text, is_plaintext, plaintext_answer
from xds.wire.http2.frames import SPEAKS_TLS, TLS_HANDSHAKE

HANDSHAKE_S = 10.0
ACCEPTED_AT_ONCE = 64  # connections accepted in an iteration of the loop
PAUSE_S = 0.2  # before accepting again after a failure
REPORT_EVERY_S = 60.0
DESCRIPTORS_PER_CONNECTION = 4  # of the limit of the process: one in four may be an HTTP connection
LEAST_CONNECTIONS, MOST_CONNECTIONS = 16, 20_000

PIECE_BYTES = 16 << 10  # given to the parser at once, so that the bytes of a head are counted exactly

HTTP_LABEL = "HTTP"  # the service of refused connections
_FIRST_BYTES = 16 << 10
_ANSWER_TO_TLS = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_log = get_logger("xds.http")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of a request until all of it is read.

    A body must arrive within ``body_s``, plus the time that its received bytes take at ``body_bytes_per_s``.
    """

    head_bytes: int = 64 << 10
    head_s: float = 10.0
    body_s: float = 30.0
    body_bytes_per_s: int = 64 << 10


class HttpConnection(HttpToolsProtocol):
    """One connection. It calls ``on_close`` when it is closed, and counts exceeded limits in ``limit_hits``.

    Requests find the verified certificate of their client in ``request.state.certificate``.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: HttpLimits,
        limit_hits: Counter[str],
        refuse: RecordRefusal,
        on_close: Callable[[], None],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._refuse = refuse
        self._limits = limits
        self._limit_hits = limit_hits
        self._on_close = on_close
        self._in_head = True
        self._in_body = False
        self._heads_n = 0  # request heads that have begun
        self._head_bytes = 0
        self._body_bytes = 0
        self._body_began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first head."""
        super().connection_made(transport)
        certificate = peer_certificate(transport.get_extra_info("ssl_object"))
        if certificate is not None:
            self.app_state = {**self.app_state, "certificate": certificate}
        self._arm(self._limits.head_s, self._head_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._disarm()
        super().connection_lost(exc)
        self._on_close()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes in pieces, and close the connection at the first limit that is hit."""
        if not self._heads_n and data[:1] == TLS_HANDSHAKE:
            self._refuse(RefusalReason.PROTOCOL, SPEAKS_TLS, peer_name(self.client), service=HTTP_LABEL)
            self.transport.write(_ANSWER_TO_TLS)  # from it a client of TLS knows that the port speaks plain HTTP
            self.transport.close()
            return
        for at in range(0, len(data), PIECE_BYTES):
            if self.parser is None or self.transport.is_closing():
                return
            self._feed(data[at : at + PIECE_BYTES])

    def _feed(self, piece: bytes) -> None:
        heads_n, was_in_body = self._heads_n, self._in_body
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._count_head(len(piece), began=heads_n != self._heads_n)
        elif heads_n == self._heads_n and not (was_in_body or self._in_body):
            # Empty lines between two requests: the parser drops them, and they end uvicorn's keep-alive timeout.
            self._in_head = self.cycle.response_complete
            self._count_head(len(piece), began=True)

    def _count_head(self, size: int, *, began: bool) -> None:
        """``began``: the head began within these bytes, all of which are counted."""
        self._head_bytes = size + (0 if began else self._head_bytes)
        if self._head_bytes > self._limits.head_bytes:
            self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "http_head_bytes")
        elif self._timer is None and self._in_head:
            self._arm(self._limits.head_s, self._head_timed_out)

    # Called by the parser

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        self._heads_n += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: start the timeout of the body."""
        self._in_head, self._in_body = False, True
        self._disarm()
        self._body_bytes = 0
        self._body_began = self.loop.time()
        super().on_headers_complete()
        self._arm(self._limits.body_s, self._body_timed_out)

    def on_body(self, body: bytes) -> None:
        """A part of the body has arrived."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is complete."""
        self._in_body = False
        self._disarm()
        super().on_message_complete()

    # Timeouts

    def _arm(self, delay_s: float, on_timeout: Callable[[], None]) -> None:
        self._timer = self.loop.call_later(delay_s, on_timeout)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_timed_out(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._head_bytes:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, "http_head_seconds")
        else:
            self.transport.abort()  # no request has begun

    def _body_timed_out(self) -> None:
        """The deadline has passed as it was when the timer was set. Bytes received since then extend it."""
        self._timer = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self._body_began = self.loop.time() - self._body_bytes / self._limits.body_bytes_per_s
        ends_at = self._body_began + self._limits.body_s + self._body_bytes / self._limits.body_bytes_per_s
        if self.loop.time() < ends_at:
            self._timer = self.loop.call_at(ends_at, self._body_timed_out)
        else:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, "http_body_seconds")

    def _reject(self, status: HTTPStatus, limit: str) -> None:
        """Close the connection, and send the status before unless a response has begun."""
        self._limit_hits[limit] += 1
        self._disarm()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode())
        self.transport.close()


class HttpServer(uvicorn.Server):
    """uvicorn on our event loop, with our signal handlers and our listening socket.

    ``connections``: how many there may be at once; None: a quarter of the files that the process may open.
    ``refuse`` records connections without TLS on a port with TLS, and handshakes that fail.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: HttpLimits,
        limit_hits: Counter[str],
        files: OpenFiles,
        connections: int | None = None,
        refuse: RecordRefusal = record_nothing,
    ) -> None:
        super().__init__(config)
        self._refuse = refuse
        self._limits = limits
        self._limit_hits = limit_hits
        self._files = files
        self._limit = connections
        self._open_connections: set[int] = set()
        self._last_number = 0
        self._opening: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._reported_at: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: the process has its own signal handlers."""
        yield

    @property
    def connections(self) -> int:
        """How many connections are open, those in their TLS handshake included."""
        return len(self._open_connections)

    @property
    def max_connections(self) -> int:
        """How many connections there may be at once."""
        if self._limit is not None:
            return self._limit
        return min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, file_limit() // DESCRIPTORS_PER_CONNECTION))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on ``sockets``, which listen already."""
        await super().startup(sockets=[])
        for each in sockets or []:
            each.setblocking(False)
            self._listening.append(each)
            self._listen(each)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and close as uvicorn does."""
        loop = asyncio.get_running_loop()
        for each in self._listening:
            loop.remove_reader(each)
        self._listening.clear()
        for task in self._opening:
            task.cancel()
        await super().shutdown(sockets)

    # Accepting

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept the connections that are queued."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection = self._next(listening)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # New connections wait in the queue of the operating system.
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(PAUSE_S, self._listen, listening)
                if error.errno not in NONE_LEFT:
                    _log.warning("http.accept_failed", error_message=str(error))
                return
            if len(self._open_connections) >= self.max_connections:
                connection.close()
                self._report_full()
            else:
                self._start(connection)

    def _next(self, listening: socket.socket) -> socket.socket:
        """The connection that was queued first. Raises ``OSError``."""
        try:
            return listening.accept()[0]
        except OSError as error:
            if error.errno not in NONE_LEFT or not self._files.release():
                raise
        return listening.accept()[0]

    def _report_full(self) -> None:
        self._limit_hits["http_connections"] += 1
        now = asyncio.get_running_loop().time()
        if self._reported_at is None or now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            _log.warning("http.full", connections_n=len(self._open_connections))

    def _start(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._last_number += 1
        self._open_connections.add(self._last_number)
        task = asyncio.get_running_loop().create_task(self._open(connection, self._last_number))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, number: int) -> None:
        """Do the TLS handshake, if there is TLS. Afterwards the connection needs no task."""
        on_close = partial(self._open_connections.discard, number)
        context = self.config.ssl
        try:
            peer = peer_name(connection.getpeername())
            if context is not None and not await self._speaks_tls(connection, peer):
                on_close()
                return
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._connection, on_close),
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S if context is not None else None,
            )
        except ssl.SSLError as error:
            on_close()
            self._refuse(RefusalReason.TLS, failure_text(error), peer, service=HTTP_LABEL)
        except OSError:  # the client has left, or has taken too long
            on_close()
        except BaseException:
            on_close()
            raise

    async def _speaks_tls(self, connection: socket.socket, peer: str) -> bool:
        """Whether the client begins a TLS handshake; else the connection is answered and closed. Raises ``OSError``."""
        with contextlib.ExitStack() as closing:
            closing.enter_context(connection)
            async with asyncio.timeout(HANDSHAKE_S):
                await _readable(connection)
            data = connection.recv(_FIRST_BYTES, socket.MSG_PEEK)
            if data and not is_plaintext(data):
                closing.pop_all()
                return True
            if data:
                self._refuse(RefusalReason.TLS, PLAINTEXT, peer, service=HTTP_LABEL)
                connection.recv(_FIRST_BYTES)  # unread bytes would reset the connection, and the answer with it
                connection.send(plaintext_answer(data))
        return False

    def _connection(self, on_close: partial[None]) -> HttpConnection:
        shared = (self.config, self.server_state, self.lifespan.state, self._limits, self._limit_hits, self._refuse)
        return HttpConnection(*shared, on_close)


async def _readable(connection: socket.socket) -> None:
    """Wait until there are bytes, or the client has left."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)

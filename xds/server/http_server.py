"""The HTTP port: uvicorn, but for how connections are taken in.

They are counted from the moment that they are accepted, TLS handshakes included, and have their share of the file
descriptors: this door cannot starve the other one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial

import uvicorn

from xds.server.http_door import HttpBounds, HttpDoor
from xds.server.logs import get_logger
from xds.server.open_files import NONE_LEFT, OpenFiles, file_limit

HANDSHAKE_S = 10.0
AT_ONCE = 64  # connections accepted in an iteration of the loop
PAUSE_S = 0.2  # when none can be accepted
TELL_EVERY_S = 60.0
SHARE = 4  # one in so many file descriptors
LEAST_CONNECTIONS, MOST_CONNECTIONS = 16, 20_000

_log = get_logger("xds.http")


class HttpServer(uvicorn.Server):
    """uvicorn on our loop; signals are ours, and so is the listening socket.

    ``connections``: how many there may be; None: a quarter of the files that the process may open.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        bounds: HttpBounds,
        limit_hits: Counter[str],
        files: OpenFiles,
        connections: int | None = None,
    ) -> None:
        super().__init__(config)
        self._bounds = bounds
        self._limit_hits = limit_hits
        self._files = files
        self._most = connections
        self._inside: set[int] = set()
        self._numbers = 0
        self._opening: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._told_at: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def connections(self) -> int:
        """How many there are, those that still shake hands included."""
        return len(self._inside)

    @property
    def most_connections(self) -> int:
        """How many there may be."""
        if self._most is not None:
            return self._most
        return min(MOST_CONNECTIONS, max(LEAST_CONNECTIONS, file_limit() // SHARE))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on ``sockets``, which listen already."""
        await super().startup(sockets=[])
        for each in sockets or []:
            each.setblocking(False)
            self._listening.append(each)
            self._listen(each)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
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
        """Connections have come."""
        for _ in range(AT_ONCE):
            try:
                connection = self._next(listening)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # They wait in the system's queue.
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(PAUSE_S, self._listen, listening)
                if error.errno not in NONE_LEFT:
                    _log.warning("http.accept_failed", error_message=str(error))
                return
            if len(self._inside) >= self.most_connections:
                connection.close()
                self._full()
            else:
                self._take_in(connection)

    def _next(self, listening: socket.socket) -> socket.socket:
        """The connection that has waited longest. Raises ``OSError``."""
        try:
            return listening.accept()[0]
        except OSError as error:
            if error.errno not in NONE_LEFT or not self._files.release():
                raise
        return listening.accept()[0]

    def _full(self) -> None:
        self._limit_hits["http_connections"] += 1
        now = asyncio.get_running_loop().time()
        if self._told_at is None or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            _log.warning("http.full", connections_n=len(self._inside))

    def _take_in(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._numbers += 1
        self._inside.add(self._numbers)
        task = asyncio.get_running_loop().create_task(self._open(connection, self._numbers))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, number: int) -> None:
        """Shake hands if need be; the connection goes on by itself."""
        left = partial(self._inside.discard, number)
        context = self.config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._door, left),
                connection,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S if context is not None else None,
            )
        except OSError as error:  # of which ssl.SSLError is one
            left()
            _log.info("tls.failed", error_message=str(error))
        except BaseException:
            left()
            raise

    def _door(self, left: partial[None]) -> HttpDoor:
        return HttpDoor(self.config, self.server_state, self.lifespan.state, self._bounds, self._limit_hits, left)

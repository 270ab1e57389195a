"""Our own gRPC server: listens, runs the handler of each call, and keeps its connections alive."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import grpc
from grpc_channelz.v1.channelz_pb2_grpc import add_ChannelzServicer_to_server

from xds.fleet.refused_streams import RecordRefusal, record_nothing
from xds.server.flow.admission import ConnectionThrottle
from xds.server.flow.anonymous import DEFAULT_ANONYMOUS, AnonymousConnections, AnonymousLimits
from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.server.grpc.call import Call
from xds.server.grpc.connection import Connection
from xds.server.grpc.tls_protocol import TlsProtocol
from xds.server.introspection import ChannelzServicer
from xds.server.logs import get_logger
from xds.server.tls import PemFiles, TlsContexts
from xds.wire.http2.headers import ShareTable, keep_table
from xds.wire.http2.stream import DEFAULT_LIMITS, Http2Limits

BACKLOG = 4096  # a fleet connects at once; the limit of the system (somaxconn) may be lower
LAST_WRITES_S = 0.5  # for writes in progress when the last call has ended
EXPIRE_EVERY_S = 1.0
SHARED_TABLES = 256  # different header tables; those of a fleet differ by path and token. Each has 4 kB at most
CHECKS = 3  # keepalive checks during the time in which a client must answer a ping
_log = get_logger("xds.server.grpc")


class CallDetails(NamedTuple):
    """A call before it has a handler, as gRPC's ``HandlerCallDetails``."""

    method: str
    invocation_metadata: Any


class Keepalive(NamedTuple):
    """A client that sends nothing for ``every_s`` is pinged, and must answer within ``timeout_s``."""

    every_s: float = 30.0
    timeout_s: float = 10.0


DEFAULT_KEEPALIVE = Keepalive()


class GrpcServer:
    """A `xds.server.transport.Transport`. It runs on the event loop that calls ``listen``.

    ``interceptors`` as those of ``grpc.aio.server``. ``refuse`` records connections and requests that are no calls.
    ``admits`` says whether a call has a credential that it needs: before a connection has such a call, it is anonymous.
    ``limit_hits`` counts exceeded limits. ``reuse_port``: other servers may listen on the same port.
    """

    def __init__(
        self,
        address: tuple[str, int],
        limits: Http2Limits = DEFAULT_LIMITS,
        keepalive: Keepalive = DEFAULT_KEEPALIVE,
        interceptors: Iterable[Any] = (),
        flow: FlowLimits = DEFAULT_FLOW,
        refuse: RecordRefusal = record_nothing,
        anonymous: AnonymousLimits = DEFAULT_ANONYMOUS,
        admits: Callable[[Call], bool] = lambda call: True,
        limit_hits: Counter[str] | None = None,
        *,
        reuse_port: bool = False,
    ) -> None:
        self.flow = flow
        self.refuse = refuse
        self.limits = limits
        self.admits = admits
        self.share_table: ShareTable = lru_cache(SHARED_TABLES)(keep_table)
        self.anonymous = AnonymousConnections(anonymous, limit_hits if limit_hits is not None else Counter())
        self._address = address
        self._reuse_port = reuse_port
        self._keepalive = keepalive
        self._interceptors = tuple(interceptors)
        self._generic: list[Any] = []
        self._registered: dict[str, Any] = {}
        self.calls_started = self.calls_failed = self.calls_succeeded = 0
        self.throttle = ConnectionThrottle(flow)
        self._lost: deque[Connection] = deque()  # connections whose calls are not ended yet
        self._ids = count(1)
        self._connections: dict[Connection, int] = {}  # with the number of checks since they were active
        self._listening: asyncio.Server | None = None
        self._tls: TlsContexts | None = None
        self._checking: list[asyncio.Task[None]] = []
        self._calls: dict[Call, None] = {}  # those with a handler
        self._is_stopping = False
        self._all_ended = asyncio.Event()  # the last call has ended
        self._all_closed = asyncio.Event()  # the last connection is closed
        add_ChannelzServicer_to_server(ChannelzServicer(self), self)

    # For grpc's ``add_..._to_server`` functions

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Add handlers that look up methods themselves, in this order."""
        self._generic += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the handlers of a service by method name."""
        self._registered.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    # Lifecycle

    async def listen(self, files: PemFiles | None = None) -> int:
        """Bind and serve, over TLS if ``files`` are given; returns the bound port. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        host, port = self._address
        self._tls = TlsContexts(files) if files is not None else None
        try:
            # Two servers on one port share a fleet at random: only where several servers are meant to.
            self._listening = await loop.create_server(
                self._connection, host.strip("[]"), port, backlog=BACKLOG, reuse_port=self._reuse_port or None
            )
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error}") from error
        self._checking = [loop.create_task(each) for each in (self._check(), self._expire())]
        return int(self._listening.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, and end open ones after ``grace_s``. Harmless when repeated."""
        self._is_stopping = True
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.go_away()
        await self._until(self._all_ended, self._calls, grace_s)
        for call in list(self._calls):
            call.stop(grpc.StatusCode.UNAVAILABLE, "the server is going away")
        await self._until(self._all_ended, self._calls, None)
        # Each connection closes itself when its last call has ended, behind the writes in progress.
        await self._until(self._all_closed, self._connections, LAST_WRITES_S)
        for connection in list(self._connections):
            connection.abort()
        self.anonymous.close()  # those in their TLS handshake
        for task in self._checking:
            task.cancel()

    async def _until(self, event: asyncio.Event, remaining: Collection[Any], timeout_s: float | None) -> None:
        """Wait for the event that nothing is ``remaining``."""
        if remaining:
            event.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), timeout_s)

    def go_away(self, peer: str) -> None:
        """Accept no more calls on the connection of this peer, and close it when its last call has ended."""
        for connection in self._connections:
            if connection.peer == peer:
                connection.go_away()
                return

    async def disconnect(self, peers: Collection[str]) -> None:
        """Close the connections of these peers at once."""
        for connection in list(self._connections):
            if connection.peer in peers:
                connection.abort()

    # For its connections

    @property
    def sockets(self) -> Mapping[int, Connection]:
        """The connections by their numbers."""
        return {connection.number: connection for connection in self._connections}

    def _connection(self) -> asyncio.Protocol:
        connection = Connection(self)
        return connection if self._tls is None else TlsProtocol(connection, self._tls.current(), self.refuse)

    def opened(self, connection: Connection) -> None:
        """Add a connection that was made."""
        connection.number = next(self._ids)
        self._connections[connection] = 0
        if self._is_stopping:
            connection.go_away()

    def lost(self, connection: Connection) -> None:
        """Remove a closed connection, and end its calls in a later iteration."""
        self._connections.pop(connection, None)
        self._lost.append(connection)
        if len(self._lost) == 1:
            asyncio.get_running_loop().call_soon(self._end_lost_calls)
        if not self._connections:
            self._all_closed.set()

    def _end_lost_calls(self) -> None:
        """End the calls of some lost connections in each iteration of the loop: a network failure loses thousands."""
        batch = [self._lost.popleft() for _ in range(min(len(self._lost), self.flow.closed_at_once))]
        if self._lost:
            asyncio.get_running_loop().call_soon(self._end_lost_calls)
        for connection in batch:
            connection.end_calls()

    def open(self, call: Call) -> Coroutine[Any, Any, None]:
        """Add a call; returns the coroutine that handles it."""
        self.calls_started += 1
        self._calls[call] = None
        return self._serve(call)

    def ended(self, call: Call) -> None:
        """Remove a call that has ended, with all its tasks. Harmless when repeated."""
        if call not in self._calls:
            return
        del self._calls[call]
        if call.code() is grpc.StatusCode.OK:
            self.calls_succeeded += 1
        else:
            self.calls_failed += 1
        if not self._calls:
            self._all_ended.set()

    # Calls

    async def _serve(self, call: Call) -> None:
        try:
            await self._handle(call)
        except grpc.aio.AbortError:
            pass  # the status is sent
        except asyncio.CancelledError:
            call.finish(grpc.StatusCode.CANCELLED, "the call was cancelled")
        except Exception as error:
            _log.exception("rpc.failed", method=call.method)
            call.finish(grpc.StatusCode.UNKNOWN, f"unexpected {type(error).__name__}")

    async def _handle(self, call: Call) -> None:
        handler = await self._intercepted(call)
        if handler is None:
            await call.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        call.set_codecs(handler.request_deserializer, handler.response_serializer)
        await _run(handler, call)
        if not call.is_served:
            call.finish()

    async def _intercepted(self, call: Call) -> Any:
        details = CallDetails(call.method, call.invocation_metadata())
        return await self._intercept(self._interceptors, details)

    async def _intercept(self, interceptors: tuple[Any, ...], details: CallDetails) -> Any:
        if not interceptors:
            return self._handler(details)

        async def continuation(details: CallDetails) -> Any:
            return await self._intercept(interceptors[1:], details)

        return await interceptors[0].intercept_service(continuation, details)

    def _handler(self, details: CallDetails) -> Any:
        if details.method in self._registered:
            return self._registered[details.method]
        handlers = (generic.service(details) for generic in self._generic)
        return next((handler for handler in handlers if handler is not None), None)

    # Keepalive

    async def _check(self) -> None:
        """Ping idle connections, and close those that do not answer. Runs until cancelled."""
        every_s = self._keepalive.timeout_s / CHECKS
        ping_after = max(1, round(self._keepalive.every_s / every_s))
        while True:
            await asyncio.sleep(every_s)
            now = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                self._check_connection(connection, ping_after)
                connection.end_slow_messages(now)

    async def _expire(self) -> None:
        """End the connections that have been anonymous for too long. Runs until cancelled."""
        every_s = min(EXPIRE_EVERY_S, self.anonymous.limits.seconds / CHECKS)
        while True:
            await asyncio.sleep(every_s)
            self.anonymous.expire(asyncio.get_running_loop().time())

    def _check_connection(self, connection: Connection, ping_after: int) -> None:
        """``ping_after``: the number of idle checks before a ping."""
        idle = 0 if connection.is_active else self._connections[connection] + 1
        connection.is_active = False
        self._connections[connection] = idle
        if idle == ping_after:
            connection.ping()
        elif idle > ping_after + CHECKS:
            connection.abort()


async def _run(handler: Any, call: Call) -> None:
    """Run a handler of one of gRPC's four kinds: a coroutine function, or an asynchronous generator of responses."""
    if handler.request_streaming:
        request: Any = call.requests()
    else:
        request = await call.read()
        if request is grpc.aio.EOF:
            await call.abort(grpc.StatusCode.UNIMPLEMENTED, "the request is missing")
    kind = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    answer = getattr(handler, kind)(request, call)
    if not handler.response_streaming:
        await call.write(await answer)
    elif hasattr(answer, "__aiter__"):
        async for message in answer:
            await call.write(message)
    else:
        await answer

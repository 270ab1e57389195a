"""grpcio's C core under grpc.aio as the transport, the alternative to `xds.server.grpc`, and the event loop for it.

All that is particular to grpcio is in this module. Handlers, interceptors and calls look as they do on our own
transport: `GrpcioCall` gives grpcio's context the interface of `xds.server.stream.CallContext`, and the first
interceptor puts it in front of every handler.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import grpc
import uvloop
from grpc_channelz.v1.channelz import add_channelz_servicer

from xds.access.certificate import Certificate, read_pem
from xds.server.aging import GOAWAY_AT
from xds.server.flow.limits import FlowLimits
from xds.server.identity import peer_name
from xds.server.logs import get_logger
from xds.server.options import ServerOptions
from xds.server.stream import CALL_ERRORS, CallHandler
from xds.server.tls import PemFiles

COPY_S_PER_BYTE = 1e-9  # grpcio copies each body that it is given, on the loop
_CERTIFICATES_KEPT = 10_000  # grpcio hands over the PEM text again with each call
_OPEN_FILES = Path("/dev/fd")
_PEEK_BYTES = 1 << 10  # a socket pair holds some 280 wake-up bytes
_PEEK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # a plain int: combining flags takes 1 us

# Draining the wake-up bytes at each call costs a fifth to a third of the CPU of a push: grpcio's thread never blocks
# then, and thread and loop wake each other for each event. So the bytes accumulate over this many calls.
SKIPPED = 31
ARRIVING_S = 0.5  # no call is skipped for this long after a new stream: each stream causes some four events

_log = get_logger("xds.server.tls")


class GrpcioTransport:
    """A `xds.server.transport.Transport`."""

    def __init__(self, options: ServerOptions, interceptors: Iterable[Any]) -> None:
        self._options = options
        adapter = CallAdapter(options.flow)
        arguments = channel_arguments(options)
        self._server = grpc.aio.server(options=arguments, interceptors=(adapter, *interceptors))
        add_channelz_servicer(self._server)

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """As `Transport.add_generic_rpc_handlers`."""
        self._server.add_generic_rpc_handlers(tuple(handlers))

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """As `Transport.add_registered_method_handlers`."""
        self._server.add_registered_method_handlers(service, handlers)

    async def listen(self, files: PemFiles | None) -> int:
        """As `Transport.listen`."""
        try:
            if files is None:
                port = int(self._server.add_insecure_port(self._options.address))
            else:
                port = int(self._server.add_secure_port(self._options.address, Credentials(files).server()))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._options.address}: {error}") from error
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        """As `Transport.stop`."""
        await self._server.stop(grace_s)

    def go_away(self, peer: str) -> None:
        """As `Transport.go_away`, but grpcio's core has done so by the age of the connection (`channel_arguments`)."""

    async def disconnect(self, peers: Collection[str]) -> None:
        """As `Transport.disconnect`."""
        await asyncio.to_thread(shut_down, peers)


def channel_arguments(options: ServerOptions) -> list[tuple[str, int]]:
    """Settings of grpcio's core. Without them it rejects or loses streams: see docs/internals/design.md#push-path."""
    aging = [("grpc.max_connection_age_ms", round(GOAWAY_AT * options.max_stream_age_s * 1000))]
    return [
        *(aging if options.max_stream_age_s > 0 else ()),
        # With the defaults, 785 of 5,000 streams that were opened at once were rejected.
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
        # grpcio drops calls that were not requested within 30 s, though they can still be served.
        ("grpc.server_max_unrequested_time_in_server", 300),
        ("grpc.http2.bdp_probe", 0),
        # Thousands of split EDS streams share one connection (docs/internals/clients.md#envoy).
        ("grpc.max_concurrent_streams", options.max_streams_per_connection),
        # grpcio ends a call beyond its own limit without notice; requests that we count must reach us first.
        ("grpc.max_receive_message_length", 2 * options.max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        # Without calls a connection is closed, and a handshake ends, as long as a connection may be anonymous on our
        # own transport. grpcio knows nothing of credentials, and a call keeps a connection open.
        ("grpc.max_connection_idle_ms", round(options.anonymous.seconds * 1000)),
        ("grpc.server_handshake_timeout_ms", round(options.anonymous.seconds * 1000)),
        ("grpc.keepalive_time_ms", round(options.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(options.keepalive_timeout_s * 1000)),
        # Clients may ping as often as they like, with or without calls: a GOAWAY for it would disconnect the fleet.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        # With SO_REUSEPORT two servers on one port share a fleet at random: only where several servers are meant to.
        ("grpc.so_reuseport", int(options.reuse_port)),
    ]


# Calls


class GrpcioCall:
    """grpcio's context of a call, as a `CallContext`. Everything else is the context's own."""

    def __init__(self, context: Any, copies: CopyBudget) -> None:
        self._context = context
        self._copies = copies
        self._end: asyncio.Future[tuple[grpc.StatusCode, str]] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the client; None without one."""
        pem = self._context.auth_context().get("x509_pem_cert") or ()
        return _read_certificate(pem[0]) if pem else None

    def write_now(self, message: bytes) -> bool:
        """grpcio writes nothing without waiting."""
        return False

    async def write(self, message: Any) -> None:
        """Send a message; a large one waits until it may be copied."""
        if isinstance(message, bytes):
            await self._copies.spend(len(message))
        await self._context.write(message)

    async def serve(self, handler: CallHandler) -> None:
        """As `CallContext.serve`. grpcio ends a call when its handler returns, so this returns when the call ends."""
        reading = asyncio.create_task(self._pass_messages(handler))
        try:
            code, details = await self._end
        except asyncio.CancelledError:
            handler.cancel()
            raise
        finally:
            reading.cancel()
        if code is not grpc.StatusCode.OK:
            await self._context.abort(code, details)

    async def _pass_messages(self, handler: CallHandler) -> None:
        try:
            while (data := await self._context.read()) is not grpc.aio.EOF:
                await handler.receive(data)
                del data  # it would live until the next message
            await handler.end_requests()
        except CALL_ERRORS:
            handler.cancel()

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """As `CallContext.end`."""
        if code is grpc.StatusCode.CANCELLED:
            self._end.cancel()  # there is no client to send a status to
        elif not self._end.done():
            self._end.set_result((code, details))


class CopyBudget:
    """Bounds how much of an iteration of the loop grpcio may use for copying large bodies.

    A push of 1 MB to 1,000 streams would otherwise hold the loop for a second.
    """

    def __init__(self, flow: FlowLimits) -> None:
        self._flow = flow
        self._left_s = flow.share_s
        self._lock = asyncio.Lock()

    async def spend(self, size: int) -> None:
        """Return when a body of ``size`` bytes may be copied."""
        if size <= self._flow.small_write_bytes:
            return
        async with self._lock:
            if self._left_s <= 0:
                await asyncio.sleep(0)
                self._left_s = self._flow.share_s
            self._left_s -= size * COPY_S_PER_BYTE


class CallAdapter:
    """An interceptor that hands each handler a `GrpcioCall`. It must come first, so that the others get it too."""

    def __init__(self, flow: FlowLimits) -> None:
        self._copies = CopyBudget(flow)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """As `grpc.aio.ServerInterceptor.intercept_service`."""
        if isinstance(loop := asyncio.get_running_loop(), Loop):
            loop.drain_always()  # a call has arrived, and others may follow
        handler = await continuation(details)
        return self._adapted(handler) if handler is not None else None

    def _adapted(self, handler: Any) -> Any:
        """The same handler for a `GrpcioCall`. grpc.aio treats coroutines and generators differently."""
        kind = "_".join(
            "stream" if each else "unary" for each in (handler.request_streaming, handler.response_streaming)
        )
        behaviour, copies = getattr(handler, kind), self._copies

        async def respond(request: Any, context: Any) -> Any:
            return await behaviour(request, GrpcioCall(context, copies))

        async def respond_many(request: Any, context: Any) -> Any:
            async for response in behaviour(request, GrpcioCall(context, copies)):
                yield response

        adapted = respond_many if inspect.isasyncgenfunction(behaviour) else respond
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(adapted, handler.request_deserializer, handler.response_serializer)


# A virtual base class: grpc asks for an instance of its own, and ships no types to derive from.
grpc.aio.ServerInterceptor.register(CallAdapter)


@lru_cache(_CERTIFICATES_KEPT)
def _read_certificate(pem: bytes) -> Certificate:
    try:
        return read_pem(pem.decode("ascii"))
    except ValueError:
        return Certificate()


# Connections and their credentials


class Credentials:
    """The PEM files of the port for grpcio, read again when one of them has changed.

    While a rotation is incomplete (the key does not match yet), the last valid pair stays in use.
    """

    def __init__(self, files: PemFiles) -> None:
        self._files = files
        self._stamp = files.stamp()

    def server(self) -> Any:
        """Server credentials that follow the files. Raises ``OSError`` when one cannot be read."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._changed, require_client_authentication=self._files.client_ca is not None
        )

    def _configuration(self) -> Any:
        pair = (self._files.key.read_bytes(), self._files.certificate.read_bytes())
        roots = self._files.client_ca.read_bytes() if self._files.client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

    def _changed(self) -> Any:
        """grpcio calls this before each handshake, in a thread of its own; None keeps the configuration in use."""
        try:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return None
            configuration = self._configuration()
        except OSError as error:
            _log.warning("tls.reload_failed", error_message=str(error))
            return None
        self._stamp = stamp
        _log.info("tls.reloaded", certificate=str(self._files.certificate))
        return configuration


def shut_down(peers: Collection[str]) -> int:
    """Shut down the connections to these peers (as gRPC names them: ``ipv4:10.0.0.1:4711``); returns their number.

    grpcio cannot end a call whose write is stuck: once a message waits for the client's flow control, cancelling the
    handler leaves it there, and a status waits behind it. Only the end of the connection ends the call.

    Looks at every open file of the process: call it in a thread.
    """
    return sum(_shut_down(int(file.name), peers) for file in _OPEN_FILES.iterdir())


def _shut_down(descriptor: int, peers: Collection[str]) -> bool:
    try:
        # Not a duplicate of the descriptor: closing one would release the locks that the store holds on its files.
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        if peer_name(connection.getpeername()) not in peers:
            return False
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        connection.detach()
    return True


class Loop(uvloop.Loop):
    """Drains grpcio's wake-up bytes before they fill their socket pair.

    grpc.aio writes one byte to a socket pair for every event, and its reader takes one byte for all events that are
    queued. Once some 280 bytes fill the pair, grpcio's thread blocks and hands over one event in an iteration of the
    loop: a new stream then waits behind thousands of ACKs.
    """

    drains_until = 0.0

    def drain_always(self) -> None:
        """Skip no call for ``ARRIVING_S``: a stream has arrived, and others may follow."""
        self.drains_until = self.time() + ARRIVING_S

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """As `asyncio.loop.add_reader`; grpcio's own reader is replaced."""
        if isinstance(fd, socket.socket) and _is_grpc(callback):
            return self._add_waking_reader(fd, callback, *args)
        return super().add_reader(fd, callback, *args)

    def _add_waking_reader(self, pair: Any, *args: Any) -> None:
        super().add_reader(pair, _DrainingReader(self, pair), *args)


def _is_grpc(callback: Callable[..., Any]) -> bool:
    method = callback.func if isinstance(callback, partial) else callback
    return getattr(method, "__name__", "") == "_handle_events"


class _DrainingReader:
    """Lets ``handle`` read one wake-up byte and handle all events, and removes the bytes of events that it has handled.

    grpcio handles the events of all loops, and raises at one of a loop that is closed. The bytes of those behind it
    must stay: without a byte nobody would handle them before the next event.
    """

    __slots__ = ("_loop", "_pair", "_skip")

    def __init__(self, loop: Loop, pair: socket.socket) -> None:
        self._loop = loop
        self._pair = pair
        self._skip = 0

    def __call__(self, handle: Callable[..., Any], *args: Any) -> None:
        if self._skip and self._loop.time() > self._loop.drains_until:
            self._skip -= 1
            handle(*args)
            return
        waiting = len(self._pair.recv(_PEEK_BYTES, _PEEK))  # their events are in the queue already
        handle(*args)
        if waiting > 1:
            self._pair.recv(waiting - 1, socket.MSG_DONTWAIT)
        self._skip = SKIPPED

"""The transport that carries gRPC: our own on asyncio, or grpcio's. This module alone knows that there are two."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import uvloop

from xds.fleet.refused_streams import RecordRefusal
from xds.server.auth import HEALTH, AuthInterceptor
from xds.server.grpc.server import GrpcServer, Keepalive
from xds.server.grpcio import GrpcioTransport, Loop
from xds.server.options import GRPCIO, ServerOptions
from xds.server.process import file_limit
from xds.server.tls import PemFiles
from xds.wire.http2.stream import Http2Limits


class Transport(Protocol):
    """A gRPC server as `XdsServer` uses it. grpc's own functions make the handlers.

    Handlers and interceptors get an `xds.server.stream.CallContext` as their context.
    """

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Add handlers that look methods up themselves."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the handlers of a service by method name."""

    async def listen(self, files: PemFiles | None) -> int:
        """Bind and serve, over TLS with ``files``; returns the bound port. Raises ``OSError``."""

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, and end open ones after ``grace_s``. Harmless when repeated after its end.

        Never called twice at once: of two, grpcio's core lets one end the calls of a server that the other has freed,
        and the process crashes.
        """

    def go_away(self, peer: str) -> None:
        """Accept no more calls on the connection of this peer, and close it when its last call has ended."""

    async def disconnect(self, peers: Collection[str]) -> None:
        """Close the connections of these peers by force. ``peers`` are addresses as ``peer()`` returns, unquoted."""


def open_transport(
    options: ServerOptions, auth: AuthInterceptor, refuse: RecordRefusal, limit_hits: Counter[str]
) -> Transport:
    """The transport that the options name. ``limit_hits`` counts exceeded limits.

    ``refuse`` records connections that do not get as far as a call. grpcio does not show those.
    """
    if options.transport == GRPCIO:
        return GrpcioTransport(options, (auth,))
    # Twice the limit: a request that is too large must reach the stream, which counts it and gives the reason.
    flow = options.flow
    total = min(options.anonymous.total, file_limit() // 2)
    anonymous = options.anonymous._replace(
        total=total, per_source=min(options.anonymous.per_source, max(1, total // 2))
    )
    limits = Http2Limits(
        options.max_streams_per_connection,
        2 * options.max_receive_bytes,
        flow.frames_at_once,
        flow.streams_at_once,
        small_paths=(HEALTH,),
        small_message_bytes=anonymous.message_bytes,
    )
    keepalive = Keepalive(options.keepalive_s, options.keepalive_timeout_s)
    return GrpcServer(
        (options.host, options.port),
        limits,
        keepalive,
        (auth,),
        flow,
        refuse,
        anonymous,
        auth.admits,
        limit_hits,
        reuse_port=options.reuse_port,
    )


def loop_factory(transport: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The factory of the event loop that a transport needs."""
    return Loop if transport == GRPCIO else uvloop.new_event_loop

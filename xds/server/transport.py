"""What carries gRPC: our own transport on asyncio, or grpcio's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from xds.http2.connection import Limits
from xds.server.grpcio import GrpcioTransport
from xds.server.options import GRPCIO, ServerOptions
from xds.server.rpc.server import Keepalive, RpcServer
from xds.server.tls import PemFiles
from xds.server.turns import Turns


class Transport(Protocol):
    """A gRPC server as `XdsServer` uses it. Handlers are those that grpc's own functions make.

    ``pieces``: how much stream work an iteration of the loop may take (`Turns`).
    """

    @property
    def pieces(self) -> int: ...

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None: ...

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None: ...

    async def listen(self, files: PemFiles | None) -> int:
        """Bind and serve, over TLS with ``files``; the bound port. Raises ``OSError``."""

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; those that are open have so much time to end. Harmless when repeated."""

    async def cut(self, peers: Collection[str]) -> None:
        """Close connections by force. ``peers`` as calls name them, but not percent-encoded."""

    def make_way(self, turns: Turns) -> None:
        """A stream has arrived, and others may be behind it."""


def open_transport(options: ServerOptions, interceptors: Iterable[Any]) -> Transport:
    """The transport that the options name."""
    if options.transport == GRPCIO:
        return GrpcioTransport(options, interceptors)
    # What is counted as too large must be let in first.
    limits = Limits(options.max_streams_per_connection, 2 * options.max_receive_bytes)
    keepalive = Keepalive(options.keepalive_s, options.keepalive_timeout_s)
    return RpcServer((options.host, options.port), limits, keepalive, interceptors)

"""The transport of grpcio: its own C core under grpc.aio, for those who would rather have it than `xds.server.rpc`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import grpc
from grpc_channelz.v1.channelz import add_channelz_servicer

from xds.server.connections import cut
from xds.server.loop import Loop
from xds.server.options import ServerOptions, channel_arguments
from xds.server.tls import GrpcTls, PemFiles
from xds.server.turns import PIECES_OF_TASKS, Turns


class GrpcioTransport:
    """A `xds.server.transport.Transport`."""

    pieces = PIECES_OF_TASKS

    def __init__(self, options: ServerOptions, interceptors: Iterable[Any]) -> None:
        self._options = options
        self._server = grpc.aio.server(options=channel_arguments(options), interceptors=tuple(interceptors))
        add_channelz_servicer(self._server)

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._server.add_generic_rpc_handlers(tuple(handlers))

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self._server.add_registered_method_handlers(service, handlers)

    async def listen(self, files: PemFiles | None) -> int:
        try:
            if files is None:
                port = int(self._server.add_insecure_port(self._options.address))
            else:
                port = int(self._server.add_secure_port(self._options.address, GrpcTls(files).credentials()))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._options.address}: {error}") from error
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)

    async def cut(self, peers: Collection[str]) -> None:
        await asyncio.to_thread(cut, peers)

    def make_way(self, turns: Turns) -> None:
        """gRPC's core hands over one call at a time, and each in several iterations of the loop."""
        turns.make_way()
        if isinstance(loop := asyncio.get_running_loop(), Loop):
            loop.hear_all()

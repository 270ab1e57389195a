"""The standard gRPC services: health, reflection, and channelz of our own transport (grpcio's brings its own)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Protocol

import grpc
from google.protobuf.descriptor_pool import Default, DescriptorPool
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

SERVER_ID = 1
PAGE_LIMIT = 100  # sockets in a response
_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class Introspection:
    """Health and reflection of one server. Health is SERVING between ``set_serving`` and ``set_draining``."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = ("", *services)
        self._health = health.aio.HealthServicer()

    def add(self, services: Iterable[str]) -> None:
        """Announce more services. Call it before ``register``."""
        self._services = (*self._services, *services)

    def register(self, transport: Any, pool: DescriptorPool) -> None:
        """Add the services. ``pool`` describes Envoy's services and messages to reflection clients."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, transport)
        names = [*self._services[1:], health.SERVICE_NAME, reflection.SERVICE_NAME, _REFLECTION_V1, _CHANNELZ]
        servicer = reflection.aio.ReflectionServicer(names, pool=DescriptorPools(pool))
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, transport)
        transport.add_generic_rpc_handlers((_reflection_v1(servicer),))

    async def set_starting(self) -> None:
        """Report NOT_SERVING until ``set_serving``."""
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def set_serving(self) -> None:
        """Report SERVING."""
        await self._set(health_pb2.HealthCheckResponse.SERVING)

    async def set_draining(self) -> None:
        """Report NOT_SERVING from now on, and ignore later changes."""
        await self._health.enter_graceful_shutdown()

    async def _set(self, status: Any) -> None:
        for service in self._services:
            await self._health.set(service, status)


_CHANNELZ = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name


class DescriptorPools:
    """The private descriptor pool with Envoy's API, then the default one with gRPC's own services."""

    def __init__(self, private: DescriptorPool) -> None:
        self._pools = (private, Default())

    def FindFileByName(self, name: str) -> Any:  # noqa: N802 - the name that the servicer calls
        """As `DescriptorPool.FindFileByName`. Raises ``KeyError``."""
        return self._first("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        """As `DescriptorPool.FindFileContainingSymbol`. Raises ``KeyError``."""
        return self._first("FindFileContainingSymbol", symbol)

    def FindMessageTypeByName(self, name: str) -> Any:  # noqa: N802
        """As `DescriptorPool.FindMessageTypeByName`. Raises ``KeyError``."""
        return self._first("FindMessageTypeByName", name)

    def FindExtensionByNumber(self, message: Any, number: int) -> Any:  # noqa: N802
        """As `DescriptorPool.FindExtensionByNumber`. Raises ``KeyError``."""
        return self._first("FindExtensionByNumber", message, number)

    def FindAllExtensions(self, message: Any) -> Any:  # noqa: N802
        """As `DescriptorPool.FindAllExtensions`. Raises ``KeyError``."""
        return self._first("FindAllExtensions", message)

    def _first(self, method: str, *arguments: Any) -> Any:
        for pool in self._pools:
            with suppress(KeyError):
                return getattr(pool, method)(*arguments)
        raise KeyError(arguments[-1])


def _reflection_v1(servicer: Any) -> Any:
    """The service under its v1 name; the messages of v1 and v1alpha are the same on the wire."""
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(_REFLECTION_V1, {"ServerReflectionInfo": method})


class ChannelzSocket(Protocol):
    """A connection, as channelz describes it."""

    @property
    def peer(self) -> str:
        """The client's address, as gRPC writes it."""

    @property
    def calls_started(self) -> int:
        """How many calls began on the connection."""

    @property
    def calls_open(self) -> int:
        """How many of its calls are open."""


class ChannelzSource(Protocol):
    """The server, as channelz describes it."""

    @property
    def calls_started(self) -> int:
        """How many calls began."""

    @property
    def calls_failed(self) -> int:
        """How many calls ended with another status than OK."""

    @property
    def calls_succeeded(self) -> int:
        """How many calls ended with OK."""

    @property
    def sockets(self) -> Mapping[int, ChannelzSocket]:
        """The connections by number."""


class ChannelzServicer(channelz_pb2_grpc.ChannelzServicer):  # type: ignore[misc]
    """Describes the server and its connections. A server has no channels."""

    def __init__(self, source: ChannelzSource) -> None:
        self._source = source

    async def GetTopChannels(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names
        """None: a server has no channels."""
        return channelz_pb2.GetTopChannelsResponse(end=True)

    async def GetServers(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The one server."""
        servers = [self._server()] if request.start_server_id <= SERVER_ID else []
        return channelz_pb2.GetServersResponse(server=servers, end=True)

    async def GetServer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The server, or NOT_FOUND."""
        await _check_server(request.server_id, context)
        return channelz_pb2.GetServerResponse(server=self._server())

    async def GetServerSockets(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A page of the server's connections."""
        await _check_server(request.server_id, context)
        limit = min(request.max_results or PAGE_LIMIT, PAGE_LIMIT)
        ids = sorted(each for each in self._source.sockets if each >= request.start_socket_id)
        references = [channelz_pb2.SocketRef(socket_id=each) for each in ids[:limit]]
        return channelz_pb2.GetServerSocketsResponse(socket_ref=references, end=len(ids) <= limit)

    async def GetSocket(self, request: Any, context: Any) -> Any:  # noqa: N802
        """A connection, or NOT_FOUND."""
        connection = self._source.sockets.get(request.socket_id)
        if connection is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no socket {request.socket_id}")
            raise AssertionError("abort returned")
        return channelz_pb2.GetSocketResponse(socket=_socket(request.socket_id, connection))

    async def GetChannel(self, request: Any, context: Any) -> Any:  # noqa: N802
        """NOT_FOUND: a server has no channels."""
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no channel {request.channel_id}")

    async def GetSubchannel(self, request: Any, context: Any) -> Any:  # noqa: N802
        """NOT_FOUND: a server has no subchannels."""
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no subchannel {request.subchannel_id}")

    def _server(self) -> Any:
        source = self._source
        return channelz_pb2.Server(
            ref=channelz_pb2.ServerRef(server_id=SERVER_ID, name="xds"),
            data=channelz_pb2.ServerData(
                calls_started=source.calls_started,
                calls_succeeded=source.calls_succeeded,
                calls_failed=source.calls_failed,
            ),
        )


async def _check_server(server_id: int, context: Any) -> None:
    if server_id != SERVER_ID:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no server {server_id}")


def _socket(number: int, connection: ChannelzSocket) -> Any:
    data = channelz_pb2.SocketData(
        streams_started=connection.calls_started,
        streams_succeeded=connection.calls_started - connection.calls_open,
    )
    return channelz_pb2.Socket(
        ref=channelz_pb2.SocketRef(socket_id=number, name=connection.peer), data=data, remote=_address(connection.peer)
    )


def _address(peer: str) -> Any:
    family, _, rest = peer.partition(":")
    host, _, port = rest.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdigit():
        return channelz_pb2.Address(other_address=channelz_pb2.Address.OtherAddress(name=peer))
    return channelz_pb2.Address(
        tcpip_address=channelz_pb2.Address.TcpIpAddress(ip_address=_packed(host.strip("[]")), port=int(port))
    )


def _packed(host: str) -> bytes:
    return ip_address(host.partition("%")[0]).packed

"""What the transport tells of itself: the standard channelz service, of one server and its connections."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Protocol

import grpc
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc

SERVER_ID = 1
PAGE = 100


class Told(Protocol):
    """A connection, as channelz tells of it."""

    @property
    def peer(self) -> str: ...
    @property
    def calls_started(self) -> int: ...
    @property
    def calls_open(self) -> int: ...


class Counted(Protocol):
    """The server, as channelz tells of it; connections by the numbers they were given."""

    @property
    def calls_started(self) -> int: ...
    @property
    def calls_failed(self) -> int: ...
    @property
    def calls_succeeded(self) -> int: ...
    @property
    def sockets(self) -> Mapping[int, Told]: ...


class ChannelzServicer(channelz_pb2_grpc.ChannelzServicer):  # type: ignore[misc]
    """Servers and their sockets; a server has no channels."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    async def GetTopChannels(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names
        return channelz_pb2.GetTopChannelsResponse(end=True)

    async def GetServers(self, request: Any, context: Any) -> Any:  # noqa: N802
        servers = [self._server()] if request.start_server_id <= SERVER_ID else []
        return channelz_pb2.GetServersResponse(server=servers, end=True)

    async def GetServer(self, request: Any, context: Any) -> Any:  # noqa: N802
        await _check_server(request.server_id, context)
        return channelz_pb2.GetServerResponse(server=self._server())

    async def GetServerSockets(self, request: Any, context: Any) -> Any:  # noqa: N802
        await _check_server(request.server_id, context)
        wanted = min(request.max_results or PAGE, PAGE)
        ids = sorted(each for each in self._counted.sockets if each >= request.start_socket_id)
        references = [channelz_pb2.SocketRef(socket_id=each) for each in ids[:wanted]]
        return channelz_pb2.GetServerSocketsResponse(socket_ref=references, end=len(ids) <= wanted)

    async def GetSocket(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = self._counted.sockets.get(request.socket_id)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no socket {request.socket_id}")
            raise AssertionError("abort returned")
        return channelz_pb2.GetSocketResponse(socket=_socket(request.socket_id, found))

    async def GetChannel(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no channel {request.channel_id}")

    async def GetSubchannel(self, request: Any, context: Any) -> Any:  # noqa: N802
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no subchannel {request.subchannel_id}")

    def _server(self) -> Any:
        counted = self._counted
        return channelz_pb2.Server(
            ref=channelz_pb2.ServerRef(server_id=SERVER_ID, name="xds"),
            data=channelz_pb2.ServerData(
                calls_started=counted.calls_started,
                calls_succeeded=counted.calls_succeeded,
                calls_failed=counted.calls_failed,
            ),
        )


async def _check_server(server_id: int, context: Any) -> None:
    if server_id != SERVER_ID:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no server {server_id}")


def _socket(number: int, connection: Told) -> Any:
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

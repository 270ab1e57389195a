"""Servers that stop, connections that are cut or silent, certificates that are renewed, and channelz."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2

from tests.server.conftest import until, within
from tests.server.grpc.service import (
    LOOPBACK,
    RawClient,
    Serve,
    Served,
    path,
)
from tests.support.pki import Certificate, CertificateAuthority, served_serial
from tests.wire.http2.talk import HELLO
from xds.server.grpc.server import Keepalive
from xds.server.tls import PemFiles
from xds.wire.http2 import frames as f
from xds.wire.http2.stream import DEFAULT_LIMITS, Http2Limits

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


async def talking(served: Served, channel: Any = None) -> Any:
    """A call in progress."""
    call = (channel if channel is not None else await served.channel()).stream_stream(path("Talk"))()
    await within(call.write(b"begun"))
    assert await within(call.read()) == b"begun"
    return call


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(call)
    code: grpc.StatusCode = caught.value.code()
    return code


async def test_stop_lets_calls_finish(served: Served) -> None:
    call = await talking(served)
    stopping = asyncio.create_task(served.server.stop(20))
    await until(lambda: next(iter(served.server.sockets.values())).calls_open == 1)
    await within(call.write(b"still here"))
    assert await within(call.read()) == b"still here"
    with pytest.raises((ConnectionError, OSError)):
        await asyncio.open_connection(LOOPBACK, served.port)
    await within(call.done_writing())
    assert await within(call.read()) is grpc.aio.EOF
    assert await within(call.code()) is grpc.StatusCode.OK
    await within(stopping)
    await within(served.server.stop(20))


async def test_stop_cancels_calls_that_are_late(served: Served) -> None:
    calls = [await talking(served) for _ in range(5)]
    await within(served.server.stop(0.05))
    assert {await code_of(call.read()) for call in calls} == {UNAVAILABLE}
    assert served.handlers.left == ["talk"] * 5
    assert not served.server.sockets


async def test_stop_sends_goaway_to_connections(served: Served) -> None:
    idle, busy = await RawClient.connect(served), await RawClient.connect(served)
    await busy.open(1, "Wait")
    await idle.until({f.SETTINGS})
    await until(lambda: served.handlers.entered)
    stopping = asyncio.create_task(served.server.stop(0.3))
    assert f.LAST_AND_CODE.unpack_from((await idle.until({f.GOAWAY})).payload) == (0, 0)
    assert f.LAST_AND_CODE.unpack_from((await busy.until({f.GOAWAY})).payload) == (1, 0)
    assert await idle.closed() == []
    await busy.open(3, "Wait")
    kinds = [(frame.kind, frame.stream_id) for frame in await busy.closed()]
    assert kinds == [(f.HEADERS, 1), (f.RST_STREAM, 1)]
    await within(stopping)
    assert served.handlers.entered == ["wait"]


async def test_stop_without_anybody(served: Served) -> None:
    await within(asyncio.gather(served.server.stop(20), served.server.stop(20)))


async def test_connections_are_cut(served: Served) -> None:
    call, other = await talking(served), await talking(served)
    peers = {each.peer for each in served.server.sockets.values()}
    mine = {each.peer for each in served.server.sockets.values() if each.number == 1}
    assert len(peers) == 2
    await served.server.disconnect({*mine, "ipv4:127.0.0.1:1"})
    assert await code_of(call.read()) is UNAVAILABLE
    await until(lambda: len(served.server.sockets) == 1)
    assert served.handlers.left == ["talk"]
    await within(other.write(b"on"))
    assert await within(other.read()) == b"on"


# Keepalive


async def test_a_client_that_answers_no_ping_is_closed(serve: Serve) -> None:
    served = await serve(keepalive=Keepalive(0.2, 0.2))
    deaf = await RawClient.connect(served)
    await deaf.open(1, "Wait")
    await deaf.until({f.PING})
    await deaf.closed()
    await until(lambda: served.handlers.left == ["wait"])


@pytest.mark.parametrize("greeting", [b"", f.PREFACE[:10], HELLO, HELLO + f.HEADER.pack(100 << 8, 0, 1)])
async def test_a_client_that_says_no_more_is_closed(serve: Serve, greeting: bytes) -> None:
    served = await serve(keepalive=Keepalive(0.1, 0.1))
    silent = await RawClient.connect(served, greeting)
    await until(lambda: served.server.sockets)
    await silent.closed()


async def test_a_client_that_answers_pings_stays(serve: Serve) -> None:
    served = await serve(keepalive=Keepalive(0.2, 0.4))
    client = await RawClient.connect(served)
    for _ in range(3):
        ping = await client.until({f.PING})
        await client.say(f.frame(f.PING, f.ACK, 0, ping.payload))
    call = await talking(served)
    await asyncio.sleep(1)  # gRPC answers by itself; there is nothing to wait for
    await within(call.write(b"on"))
    assert await within(call.read()) == b"on"


async def test_a_client_that_takes_nothing_is_closed(serve: Serve) -> None:
    """It is not read any more, because the answers to its pings would queue up."""
    served = await serve(keepalive=Keepalive(0.3, 0.3))
    reader, writer = await asyncio.open_connection(LOOPBACK, served.port, limit=1)
    client = RawClient(reader, writer)
    await client.say(HELLO, f.frame(f.SETTINGS, 0, 0, f.SETTING.pack(f.INITIAL_WINDOW_SIZE, 2**30)))
    await client.say(f.frame(f.WINDOW_UPDATE, 0, 0, f.NUMBER.pack(2**30)))
    await client.open(1, "Flood")
    await client.say(f.frame(f.DATA, f.END_STREAM, 1, b"\0\0\0\0\x01x"))
    await until(lambda: served.handlers.left == ["x"])
    await until(lambda: not served.server.sockets)
    assert served.handlers.flooded["x"] < 1_000
    writer.close()


# TLS


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


def files(own: Certificate, clients: CertificateAuthority | None = None) -> PemFiles:
    return PemFiles(own.path, own.key_path, clients.path if clients is not None else None)


def credentials(authority: CertificateAuthority, own: Certificate | None = None) -> Any:
    root = authority.pem.encode()
    if own is None:
        return grpc.ssl_channel_credentials(root)
    return grpc.ssl_channel_credentials(root, own.key_pem.encode(), own.pem.encode())


@pytest.mark.parametrize("frames", [DEFAULT_LIMITS.frames_at_once, 3])
async def test_tls(serve: Serve, authority: CertificateAuthority, frames: int) -> None:
    """However few frames are read in a turn."""
    limits = Http2Limits(message_bytes=32 << 20, frames_at_once=frames)
    served = await serve(files(authority.issue("server")), limits=limits)
    channel = await served.channel(credentials(authority))
    body = bytes(5_000_000)
    assert await served.call("Echo", body, channel) == body
    call = await talking(served, channel)
    await within(served.server.stop(0))
    assert await code_of(call.read()) is UNAVAILABLE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_tls_offers_h2_and_no_old_version(serve: Serve, authority: CertificateAuthority) -> None:
    served = await serve(files(authority.issue("server")))
    context = authority.client_context()
    context.set_alpn_protocols(["http/1.1", "h2"])
    _, writer = await asyncio.open_connection(LOOPBACK, served.port, ssl=context)
    connection = writer.get_extra_info("ssl_object")
    assert (connection.selected_alpn_protocol(), connection.version()) == ("h2", "TLSv1.3")
    writer.close()
    old = authority.client_context()
    old.options |= ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await within(asyncio.open_connection(LOOPBACK, served.port, ssl=old))


async def test_plaintext_to_tls_and_tls_to_plaintext(serve: Serve, authority: CertificateAuthority) -> None:
    secure, plain = await serve(files(authority.issue("server"))), await serve()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await within(asyncio.open_connection(LOOPBACK, plain.port, ssl=authority.client_context()))
    client = await RawClient.connect(secure)
    await client.closed()
    client.close()
    assert await secure.call("Echo", b"on", await secure.channel(credentials(authority))) == b"on"
    assert await plain.call("Echo", b"on") == b"on"


async def test_client_certificates(serve: Serve, authority: CertificateAuthority, tmp_path: Path) -> None:
    served = await serve(files(authority.issue("server"), authority))
    other = CertificateAuthority(tmp_path, "other-ca")
    for refused in (credentials(authority), credentials(authority, other.issue("stranger"))):
        assert await code_of(served.call("Echo", b"x", await served.channel(refused))) is UNAVAILABLE
    assert served.server.calls_started == 0
    known = await served.channel(credentials(authority, authority.issue("client")))
    assert await served.call("Echo", b"x", known) == b"x"


async def test_a_renewed_certificate_is_served(serve: Serve, authority: CertificateAuthority) -> None:
    first = authority.issue("server")
    served = await serve(files(first))
    call = await talking(served, await served.channel(credentials(authority)))

    async def serial() -> int:
        return await asyncio.to_thread(served_serial, served.port, authority)

    assert await serial() == first.serial
    renewed = authority.issue("server")
    assert await serial() == renewed.serial
    renewed.key_path.write_text("half written")
    assert await serial() == renewed.serial
    last = authority.issue("server")
    assert await serial() == last.serial
    await within(call.write(b"on"))
    assert await within(call.read()) == b"on"


def connect(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
    """A handshake that may resume a session: the new session, and whether it was resumed. Raises ``OSError``."""
    with (
        socket.create_connection((LOOPBACK, port), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname="localhost", session=session) as secure,
    ):
        secure.sendall(HELLO)
        if not secure.recv(9):
            raise ConnectionError("closed")
        return secure.session, bool(secure.session_reused)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_clients_of_an_authority_that_is_trusted_no_more(
    serve: Serve, authority: CertificateAuthority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Not even with a session of the time when it was."""
    old, young = CertificateAuthority(tmp_path, "old-ca"), CertificateAuthority(tmp_path, "young-ca")
    clients = tmp_path / "clients.pem"
    clients.write_text(old.pem)
    own = authority.issue("server")
    served = await serve(PemFiles(own.path, own.key_path, clients))

    def context(of: CertificateAuthority) -> ssl.SSLContext:
        made, issued = authority.client_context(), of.issue("client")
        made.load_cert_chain(issued.path, issued.key_path)
        made.maximum_version = made.minimum_version = version
        return made

    mine, theirs = context(old), context(young)
    session, _ = await asyncio.to_thread(connect, served.port, mine, None)
    with pytest.raises(OSError):
        await asyncio.to_thread(connect, served.port, theirs, None)
    clients.write_text(young.pem)
    await asyncio.to_thread(connect, served.port, theirs, None)
    for _ in range(2):
        with pytest.raises(OSError):
            await asyncio.to_thread(connect, served.port, mine, session)
    clients.write_text(young.pem + old.pem)
    assert (await asyncio.to_thread(connect, served.port, mine, session))[1] is False


# Channelz


async def test_channelz(served: Served) -> None:
    call, channel = await talking(served), await served.channel()

    async def ask(method: str, request: Any, kind: Any) -> Any:
        answer = channel.unary_unary(f"/grpc.channelz.v1.Channelz/{method}")(request.SerializeToString())
        return kind.FromString(await within(answer))

    c = channelz_pb2
    (server,) = (await ask("GetServers", c.GetServersRequest(), c.GetServersResponse)).server
    number = server.ref.server_id
    assert server.data.calls_started == 2
    found = (await ask("GetServer", c.GetServerRequest(server_id=number), c.GetServerResponse)).server
    assert (found.ref, found.data.calls_succeeded) == (server.ref, 1)
    listed = await ask("GetServerSockets", c.GetServerSocketsRequest(server_id=number), c.GetServerSocketsResponse)
    assert listed.end
    first = await ask(
        "GetServerSockets", c.GetServerSocketsRequest(server_id=number, max_results=1), c.GetServerSocketsResponse
    )
    assert not first.end
    rest = c.GetServerSocketsRequest(server_id=number, start_socket_id=first.socket_ref[0].socket_id + 1)
    rest = await ask("GetServerSockets", rest, c.GetServerSocketsResponse)
    assert [*first.socket_ref, *rest.socket_ref] == list(listed.socket_ref)
    sockets = [
        (await ask("GetSocket", c.GetSocketRequest(socket_id=each.socket_id), c.GetSocketResponse)).socket
        for each in listed.socket_ref
    ]
    assert [each.remote.tcpip_address.ip_address for each in sockets] == [bytes((127, 0, 0, 1))] * 2
    talk, own = sockets
    assert (talk.data.streams_started, talk.data.streams_succeeded) == (1, 0)
    assert own.data.streams_started > own.data.streams_succeeded > 0
    assert not (await ask("GetTopChannels", c.GetTopChannelsRequest(), c.GetTopChannelsResponse)).channel
    for method, request in {
        "GetServer": c.GetServerRequest(server_id=99),
        "GetServerSockets": c.GetServerSocketsRequest(server_id=99),
        "GetSocket": c.GetSocketRequest(socket_id=99),
        "GetChannel": c.GetChannelRequest(channel_id=1),
        "GetSubchannel": c.GetSubchannelRequest(subchannel_id=1),
    }.items():
        assert await code_of(ask(method, request, c.GetServersResponse)) is grpc.StatusCode.NOT_FOUND, method
    call.cancel()

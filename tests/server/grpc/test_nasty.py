"""Hostile clients, and clients of other protocols: they harm only themselves, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import count

import grpc
import hpack
import pytest

from tests.server.conftest import until, within
from tests.server.grpc.conftest import MIB
from tests.server.grpc.service import (
    CHUNK,
    LOOPBACK,
    RawClient,
    Serve,
    Served,
    head,
    path,
)
from tests.wire.http2.talk import HELLO, Frame, data, in_frames, message, number, opening, settings
from xds.fleet.refused_streams import RefusalReason
from xds.server.flow.limits import FlowLimits, RateLimit
from xds.server.grpc import connection
from xds.server.grpc.call import Call
from xds.server.grpc.server import Keepalive
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.frames import ErrorCode
from xds.wire.http2.headers import encode
from xds.wire.http2.receive_window import PRECREDIT_MESSAGES
from xds.wire.http2.stream import Http2Event, Http2Limits

BURST = 2_000


@pytest.fixture(autouse=True)
async def bystander(served: Served) -> AsyncIterator[None]:
    """Another client, which is served before and after."""
    call = (await served.channel()).stream_stream(path("Talk"))()
    await within(call.write(b"before"))
    assert await within(call.read()) == b"before"
    yield
    await within(call.write(b"after"))
    assert await within(call.read()) == b"after"
    assert await served.call("Echo", b"new") == b"new"
    await within(call.done_writing())
    assert await within(call.read()) is grpc.aio.EOF
    await served.idle()


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch, served: Served) -> list[str]:
    """Ends of connections by the server, as they are recorded.

    The bound of abuse is lower here, so that it is reached soon on a slow machine.
    """
    found: list[str] = []

    def record(reason: RefusalReason, message: str, peer: str, **_more: str) -> None:
        assert peer.startswith("ipv4:127.0.0.1:")
        found.append(f"{reason.name}: {message}")

    monkeypatch.setattr(connection, "RateLimit", lambda per_s, burst: RateLimit(1.0, BURST))
    monkeypatch.setattr(served.server, "refuse", record)
    return found


def last_words(frames: list[Frame]) -> tuple[int, ErrorCode]:
    """The last stream and the code of the GOAWAY that ended it."""
    (frame,) = [frame for frame in frames if frame.kind == f.GOAWAY]
    last, code = f.LAST_AND_CODE.unpack_from(frame.payload)
    return last, ErrorCode(code)


async def flooded(client: RawClient, flood: Iterator[bytes]) -> None:
    """Send until the server ends the connection.

    Its last frames may be lost, because the system drops them with the flood.
    """
    reading = asyncio.create_task(client.closed())
    try:
        for each in flood:
            await client.say(each)
            if reading.done():
                break
    except ConnectionError:
        pass
    await within(reading)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r" + bytes(100),
        HELLO + b"\xff" * 100,
        HELLO + data(1, b"x"),
        HELLO + f.frame(f.HEADERS, 0, 1, b"") + f.frame(f.CONTINUATION, 0, 1, bytes(1_000)) * 100,
        HELLO + f.frame(f.HEADERS, f.END_HEADERS, 1, b"\xff" * 10),
    ],
)
async def test_bytes_that_are_not_http2_end_the_connection(served: Served, said: bytes) -> None:
    client = await RawClient.connect(served, said)
    _, code = last_words(await client.closed())
    assert code is not ErrorCode.NO_ERROR


async def test_random_bytes(served: Served) -> None:
    for _ in range(20):
        client = await RawClient.connect(served, HELLO + os.urandom(5_000))
        client.writer.write_eof()
        await client.closed()


async def test_bytes_that_end_anywhere(served: Served) -> None:
    whole = HELLO + opening(1, head=head("Talk")) + data(1, message(b"x" * 100))
    for size in range(0, len(whole), 7):
        client = await RawClient.connect(served, whole[:size])
        client.close()


async def test_connections_that_break_amid_calls(served: Served) -> None:
    for index in range(100):
        client = await RawClient.connect(served)
        await client.open(1, "Wait")
        await client.open(3, "Talk")
        await client.say(data(3, message(b"x")))
        if index % 2:
            raw = client.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    await until(lambda: len(served.server.sockets) == 1)
    await until(lambda: len(served.handlers.left) == len(served.handlers.entered) - 1)


async def test_a_reset_along_with_garbage_ends_the_handler(served: Served) -> None:
    client = await RawClient.connect(served)
    await client.open(1, "Wait")
    await until(lambda: "wait" in served.handlers.entered)
    await client.say(number(f.RST_STREAM, 1, 8) + data(0, b"garbage"))
    await until(lambda: served.handlers.left == ["wait"])
    assert last_words(await client.closed()) == (1, ErrorCode.PROTOCOL_ERROR)


def streams() -> Iterator[int]:
    return count(1, 2)


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "pings": lambda: (f.frame(f.PING, 0, 0, bytes(8)) * 50 for _ in streams()),
    "answers to pings": lambda: (f.frame(f.PING, f.ACK, 0, bytes(8)) * 50 for _ in streams()),
    "settings": lambda: (settings((f.INITIAL_WINDOW_SIZE, size)) * 50 for size in streams()),
    "priorities": lambda: (f.frame(f.PRIORITY, 0, 7, bytes(5)) * 50 for _ in streams()),
    "unknown frames": lambda: (f.frame(0xF0, 0, 0, bytes(5)) * 50 for _ in streams()),
    "empty data": lambda: (
        (opening(1, head=head("Wait")) if stream_id == 1 else b"") + data(1, b"") * 50 for stream_id in streams()
    ),
    "empty data of streams that have ended": lambda: (
        opening(1, head=head("Nothing"), ends=True) if stream_id == 1 else data(1, b"") * 50 for stream_id in streams()
    ),
    "windows that grow by one": lambda: (
        opening(1, head=head("Flood")) + data(1, message(b"flood"), ends=True) + number(f.WINDOW_UPDATE, 0, 1 << 30)
        if stream_id == 1
        else number(f.WINDOW_UPDATE, 1, 1) * 50
        for stream_id in streams()
    ),
    "headers byte by byte": lambda: (
        f.frame(f.HEADERS, 0, 1, b"") if stream_id == 1 else f.frame(f.CONTINUATION, 0, 1, b"x") * 50
        for stream_id in streams()
    ),
    "streams that are reset": lambda: (
        opening(stream_id, head=head("Wait")) + number(f.RST_STREAM, stream_id, 8) for stream_id in streams()
    ),
    "streams that make us reset them": lambda: (
        opening(stream_id, head=head("Wait")) + number(f.WINDOW_UPDATE, stream_id, 0) for stream_id in streams()
    ),
    "streams that are malformed": lambda: (opening(stream_id, head=encode([(":x", "y")])) for stream_id in streams()),
    "headers of streams that have ended": lambda: (
        opening(stream_id, head=head("Nothing"), ends=True) if stream_id == 1 else opening(1, head=head("Nothing")) * 50
        for stream_id in streams()
    ),
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_floods_end(served: Served, endings: list[str], flood: Callable[[], Iterator[bytes]]) -> None:
    await flooded(await RawClient.connect(served), flood())
    await until(lambda: len(served.server.sockets) == 1)
    assert [ending.partition(":")[0] for ending in endings] == ["LIMIT"]
    assert served.server.calls_started < 3 * BURST


async def test_frames_that_come_at_once_are_read_in_turns(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is lower shows it with fewer frames; and whatever the bound, all is read."""
    served = await serve(limits=Http2Limits(message_bytes=32 << 20, frames_at_once=10))
    iteration, reads, receive = 0, [], ServerConnection.receive

    async def tick() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    def noting(http2: ServerConnection, said: bytes) -> list[Http2Event]:
        reads.append(iteration)
        return receive(http2, said)

    monkeypatch.setattr(ServerConnection, "receive", noting)
    ticking = asyncio.create_task(tick())
    client = await RawClient.connect(served)
    echo = opening(1, head=head("Echo")) + data(1, message(b"behind"), ends=True)
    await client.say(f.frame(f.PING, 0, 0, bytes(8)) * 1_000 + echo)
    for _ in range(1_000):
        assert (await client.until({f.PING})).flags == f.ACK
    assert (await client.until({f.DATA}, 1)).payload == message(b"behind")
    assert len(set(reads)) >= 100
    ticking.cancel()
    channel = await served.channel()
    requests = [b"%d" % index for index in range(200)]
    assert await asyncio.gather(*(served.call("Echo", each, channel) for each in requests)) == requests
    client.close()


def has_entered(served: Served, calls: int) -> bool:
    return len(served.handlers.entered) == calls


async def test_a_thousand_streams_that_come_and_go_at_once_are_no_flood(served: Served) -> None:
    """As an Envoy with separate streams does when its clusters are replaced several times."""
    client = await RawClient.connect(served)
    reading = asyncio.create_task(client.until({f.GOAWAY}))
    for round_ in range(6):
        ids = range(2_000 * round_ + 1, 2_000 * (round_ + 1), 2)
        await client.say(*(opening(stream_id, head=head("Wait")) for stream_id in ids))
        await until(partial(has_entered, served, 1 + 1_000 * (round_ + 1)))
        await client.say(*(number(f.RST_STREAM, stream_id, 8) for stream_id in ids))
    await until(lambda: len(served.handlers.left) == 6_000)
    assert not reading.done()
    reading.cancel()
    client.close()


async def test_calls_that_are_reset_at_once_leave_no_cycles(served: Served) -> None:
    """Their memory is freed at once: collecting a million objects would block the event loop for seconds."""
    client = await RawClient.connect(served)
    ended = served.server.calls_failed
    gc.collect()
    gc.disable()
    try:
        for stream_id in range(1, 2_000, 2):
            await client.say(opening(stream_id, head=head("Wait")) + number(f.RST_STREAM, stream_id, 8))
        await until(lambda: served.server.calls_failed == ended + 1_000)
        assert sum(isinstance(each, Call) for each in gc.get_objects()) < 10  # that of the bystander, and the last
    finally:
        gc.enable()
    client.close()


async def test_a_client_that_pings_and_never_reads(serve: Serve) -> None:
    """Its pings wait once it does not read the answers."""
    served = await serve(keepalive=Keepalive(0.6, 0.6), flow=FlowLimits(abuse_burst=1e9))
    raw = socket.create_connection((LOOPBACK, served.port))
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(raw, HELLO)
    (ours,) = await until(lambda: list(served.server.sockets.values()))

    async def flood() -> None:
        while True:
            await loop.sock_sendall(raw, f.frame(f.PING, 0, 0, bytes(8)) * 5_000)

    flooding = asyncio.create_task(flood())
    await until(lambda: ours.is_paused)
    await until(lambda: not served.server.sockets)
    with pytest.raises(OSError):
        await within(flooding)
    raw.close()


async def test_a_slow_reader_holds_up_nobody(served: Served) -> None:
    slow = await RawClient.connect(served)
    # With probes the window grows with what the client measures, to 64 MB on a busy machine.
    channel = await served.channel(**{"http2.bdp_probe": 0})
    lazy = channel.unary_stream(path("Flood"))(b"lazy")
    await slow.open(1, "Flood")
    await slow.say(data(1, message(b"slow"), ends=True))
    assert await within(lazy.read()) == CHUNK
    for number_ in range(50):
        assert await served.call("Echo", b"%d" % number_, channel) == b"%d" % number_
    # One message is longer than the window that the slow one gives.
    assert served.handlers.flooded.get("slow", 0) == 0
    assert served.handlers.flooded["lazy"] < 10
    await slow.say(number(f.WINDOW_UPDATE, 1, 10 * len(CHUNK)), number(f.WINDOW_UPDATE, 0, 10 * len(CHUNK)))
    await until(lambda: served.handlers.flooded.get("slow", 0) >= 10)
    assert served.handlers.flooded["slow"] == 10
    lazy.cancel()
    slow.close()
    await until(lambda: {"lazy", "slow"} <= set(served.handlers.left))


async def test_messages_that_nobody_takes_have_a_bound(serve: Serve) -> None:
    served = await serve(limits=Http2Limits(message_bytes=MIB))
    client = await RawClient.connect(served)
    reset = set()

    async def watch() -> None:
        while True:
            frame = await client.until({f.RST_STREAM})
            assert frame.number == ErrorCode.ENHANCE_YOUR_CALM
            reset.add(frame.stream_id)

    watching = asyncio.create_task(watch())
    for stream_id in range(1, 2 * PRECREDIT_MESSAGES + 9, 2):
        await client.open(stream_id, "Wait")
        for frame in in_frames(stream_id, message(bytes(MIB - 10))):
            if stream_id not in reset:
                await client.say(frame)
                await asyncio.sleep(0)
    await until(lambda: len(reset) >= 3)
    watching.cancel()
    client.close()


MESSAGES = {
    "too large": (b"\0\xff\xff\xff\xff", 8),
    "with an unknown flag": (b"\x02\0\0\0\x01x", 13),
    "compressed, and nobody said how": (b"\x01\0\0\0\x01x", 13),
    "that ends too early": (b"\0\0\0\0\x05x", 13),
}


@pytest.mark.parametrize(("said", "status"), MESSAGES.values(), ids=MESSAGES)
async def test_malformed_grpc_messages(served: Served, said: bytes, status: int) -> None:
    client = await RawClient.connect(served)
    await client.open(1, "Talk")
    await client.say(data(1, said, ends=True))
    assert await ending(client, 1) == str(status)
    client.close()


@pytest.mark.parametrize(
    ("encoding", "said", "status"), [("gzip", b"nonsense", 13), ("snappy", gzip.compress(b"", mtime=0), 12)]
)
async def test_unknown_compression(served: Served, encoding: str, said: bytes, status: int) -> None:
    client = await RawClient.connect(served)
    await client.say(opening(1, head=head("Talk") + encode([("grpc-encoding", encoding)])))
    await client.say(data(1, b"\x01" + message(said)[1:]))
    assert await ending(client, 1) == str(status)
    client.close()


async def ending(client: RawClient, stream_id: int) -> str:
    """The status with which a call ends."""
    while True:
        frame = await client.until({f.HEADERS}, stream_id)
        fields = {str(name): str(value) for name, value in hpack.Decoder().decode(frame.payload)}
        if frame.flags & f.END_STREAM:
            return fields.get("grpc-status", fields.get(":status", ""))


@pytest.mark.parametrize(
    ("method", "content_type", "status"),
    [
        ("GET", "application/grpc", "405"),
        ("POST", "application/json", "415"),
        ("POST", "", "415"),
        ("POST", "application/grpc-web", "415"),
        ("POST", "application/grpc+proto", "12"),
        ("POST", "application/grpc;charset=x", "12"),
    ],
)
async def test_requests_that_are_no_calls(served: Served, method: str, content_type: str, status: str) -> None:
    client = await RawClient.connect(served)
    fields = [(":method", method), (":scheme", "http"), (":path", "/no"), ("content-type", content_type)]
    for stream_id in (1, 3):
        await client.say(opening(stream_id, head=encode(fields)), data(stream_id, message(b"x"), ends=True))
        assert await ending(client, stream_id) == status
    client.close()


async def test_a_malformed_timeout_ends_one_stream(served: Served) -> None:
    client = await RawClient.connect(served)
    await client.open(1, "Talk")
    await client.say(opening(3, head=head("Talk") + encode([("grpc-timeout", "soon")])))
    assert (await client.until({f.RST_STREAM})).stream_id == 3
    await client.say(data(1, message(b"on")))
    assert (await client.until({f.DATA})).payload == message(b"on")
    client.close()


async def test_more_streams_than_are_allowed(serve: Serve) -> None:
    served = await serve(limits=Http2Limits(streams=3))
    client = await RawClient.connect(served)
    for stream_id in (1, 3, 5, 7):
        await client.open(stream_id, "Wait")
    refused = await client.until({f.RST_STREAM})
    assert (refused.stream_id, refused.number) == (7, ErrorCode.REFUSED_STREAM)
    await client.say(number(f.RST_STREAM, 1, 8), opening(9, head=head("Echo")), data(9, message(b"on"), ends=True))
    assert (await client.until({f.DATA})).payload == message(b"on")
    client.close()

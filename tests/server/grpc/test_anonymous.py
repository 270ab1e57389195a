"""Connections without an authenticated call, and messages that take their time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.server.conftest import until, within
from tests.server.grpc.conftest import MIB
from tests.server.grpc.service import RawClient, Serve, head, path
from tests.wire.http2.talk import data, in_frames, message, number, opening
from xds.server.flow.anonymous import AnonymousLimits
from xds.server.flow.limits import FlowLimits
from xds.server.grpc.call import Call
from xds.server.grpc.server import Keepalive
from xds.wire.http2 import frames as f
from xds.wire.http2.headers import encode
from xds.wire.http2.receive_window import CONNECTION_WINDOW
from xds.wire.http2.stream import Http2Limits

SHOWN = ("authorization", "secret")
SOON = AnonymousLimits(seconds=0.3, grace_s=0.2)


def admits(call: Call) -> bool:
    return SHOWN in call.invocation_metadata()


async def test_a_long_message_arrives_whole_behind_a_credential(serve: Serve) -> None:
    """Its window is widened by the head of the call, before a handler has read anything."""
    served = await serve(admits=admits)
    channel = await served.channel()
    sent = bytes(range(256)) * 40_000
    assert await served.call("Echo", sent, channel, metadata=(SHOWN,)) == sent


async def test_a_later_call_frees_the_long_message_of_an_earlier_one(serve: Serve) -> None:
    served = await serve(admits=admits)
    channel = await served.channel()
    sent = bytes(MIB)
    waiting = asyncio.create_task(served.call("Echo", sent, channel))
    await until(lambda: served.server.calls_started == 1)
    assert not (await asyncio.wait((waiting,), timeout=0.2))[0], "64 kB of it have arrived"
    assert await served.call("Echo", b"x", channel, metadata=(SHOWN,)) == b"x"
    assert await within(waiting) == sent


async def test_windows_are_small_before_a_credential(serve: Serve) -> None:
    served = await serve(admits=admits)
    client = await RawClient.connect(served)
    await client.open(1, "Join")
    for frame in in_frames(1, message(bytes(MIB))[: f.DEFAULT_WINDOW]):
        await client.say(frame)
    await client.say(opening(3, head=head("Echo") + encode((SHOWN,))))
    widened = await client.until({f.WINDOW_UPDATE})
    assert (widened.stream_id, widened.number) == (0, CONNECTION_WINDOW - f.DEFAULT_WINDOW)
    assert (await client.until({f.WINDOW_UPDATE})).stream_id == 1
    client.close()


async def test_a_small_message_of_a_method_without_credentials(serve: Serve) -> None:
    """Compressed, too: a small message may stand for a large one."""
    served = await serve(limits=Http2Limits(small_paths=("/",), small_message_bytes=100))
    channel = await served.channel()
    assert await served.call("Echo", bytes(100), channel) == bytes(100)
    for options in ({}, {"compression": grpc.Compression.Gzip}):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.call("Echo", bytes(101), channel, **options)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("needs_none", [False, True], ids=["a credential is missing", "none is needed"])
async def test_calls_without_a_credential_are_few_also_later(serve: Serve, needs_none: bool) -> None:
    limits = {0: AnonymousLimits(refused_calls=3), 1: AnonymousLimits(calls=3)}[needs_none]
    paths = ("/",) if needs_none else ()
    served = await serve(admits=admits, anonymous=limits, limits=Http2Limits(small_paths=paths))
    client = await RawClient.connect(served)
    await client.say(opening(1, head=head("Talk") + encode((SHOWN,))))
    for stream_id in (3, 5, 7, 9):
        await client.open(stream_id, "Talk")
    refused = await client.until({f.HEADERS})
    assert refused.stream_id == 9 and b"grpc-status\x018" in refused.payload
    await client.say(number(f.RST_STREAM, 5, 8), opening(11, head=head("Talk")), data(11, message(b"on")))
    assert (await client.until({f.DATA})).stream_id == 11
    client.close()


@pytest.mark.parametrize("said", ["nothing", "a call without a credential"])
async def test_time_is_short(serve: Serve, said: str) -> None:
    hits: Counter[str] = Counter()
    served = await serve(admits=admits, anonymous=SOON, limit_hits=hits)
    client = await RawClient.connect(served)
    if said != "nothing":
        await client.open(1, "Talk")
    assert f.GOAWAY in [frame.kind for frame in await client.closed()]
    assert hits["anonymous_seconds"] == (said != "nothing")
    client.close()


async def test_a_connection_with_a_credential_stays_without_a_call(serve: Serve) -> None:
    served = await serve(admits=admits, anonymous=SOON)
    channel = await served.channel()
    await served.call("Echo", b"x", channel, metadata=(SHOWN,))
    (connection,) = served.server.sockets
    await asyncio.sleep(3 * SOON.seconds)
    assert [*served.server.sockets] == [connection]


@pytest.mark.parametrize("pause_s", [0.0, 0.02], ids=["never", "a byte now and then"])
async def test_a_long_message_must_arrive_in_time(serve: Serve, pause_s: float) -> None:
    flow = FlowLimits(message_s=0.3, message_bytes_per_s=MIB)
    served = await serve(keepalive=Keepalive(30.0, 0.3), flow=flow)
    client = await RawClient.connect(served)
    await client.open(1, "Join")
    body = message(bytes(200_000))
    for frame in in_frames(1, body[:-1_000]):
        await client.say(frame)
        await asyncio.sleep(0)
    began = time.monotonic()
    ended = asyncio.create_task(client.until({f.HEADERS}))
    while not ended.done() and pause_s:
        await client.say(data(1, b"\0"))
        await asyncio.sleep(pause_s)
    assert b"grpc-status\x014" in (await within(ended)).payload
    assert time.monotonic() - began < 20, "half a second is enough, and a keep-alive would take 30"
    client.close()


async def test_one_long_message_behind_the_other(serve: Serve) -> None:
    """Each has its own time, though one of them is always incomplete."""
    flow = FlowLimits(message_s=0.5, message_bytes_per_s=10 * MIB)
    served = await serve(keepalive=Keepalive(30.0, 0.1), flow=flow)
    channel = await served.channel()
    ends = time.monotonic() + 2 * flow.message_s

    async def long_ones() -> AsyncIterator[bytes]:
        while time.monotonic() < ends:
            yield bytes(MIB)

    assert len(await within(channel.stream_unary(path("Join"))(long_ones()))) % MIB == 0


async def test_a_long_message_that_comes_fast_enough(serve: Serve) -> None:
    flow = FlowLimits(message_s=0.3, message_bytes_per_s=50_000)
    served = await serve(keepalive=Keepalive(30.0, 0.3), flow=flow)
    client = await RawClient.connect(served)
    await client.open(1, "Echo")
    frames = list(in_frames(1, message(bytes(120_000))))
    for frame in frames[:-1]:
        await client.say(frame)
        await asyncio.sleep(0.15)
    last = frames[-1][f.FRAME_HEADER_BYTES :]
    await client.say(data(1, last, ends=True))
    answered: Any = await client.until({f.DATA})
    assert answered.stream_id == 1
    client.close()

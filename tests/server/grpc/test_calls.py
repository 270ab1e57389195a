"""Calls of real gRPC clients over our own transport."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import grpc
import pytest
import uvloop

from tests.server.conftest import until, within
from tests.server.grpc.conftest import MIB
from tests.server.grpc.service import (
    CHUNK,
    Serve,
    Served,
    path,
    special,
)
from xds.server.grpc.call import Call
from xds.wire.http2.stream import Http2Limits


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(call)
    return caught.value.code(), caught.value.details()


async def test_one_request_and_one_response(served: Served) -> None:
    assert await served.call("Echo", b"hello") == b"hello"
    assert await served.call("Echo", b"") == b""


@pytest.mark.parametrize("method", ["Count", "CountByWriting"])
async def test_one_request_and_a_stream_of_responses(served: Served, method: str) -> None:
    call = (await served.channel()).unary_stream(path(method))(b"100")
    assert [message async for message in call] == [b"%d" % number for number in range(100)]
    assert await within(call.code()) is grpc.StatusCode.OK


async def test_a_stream_of_requests_and_one_response(served: Served) -> None:
    call = (await served.channel()).stream_unary(path("Join"))(iter([b"a", b"", b"b" * 100_000, b"c"]))
    assert await within(call) == b"a" + b"b" * 100_000 + b"c"


@pytest.mark.parametrize("method", ["Talk", "TalkByGenerating"])
async def test_streams_both_ways(served: Served, method: str) -> None:
    call = (await served.channel()).stream_stream(path(method))()
    for size in (0, 1, 16_379, 16_380, 65_530, 65_531, 300_000):
        await within(call.write(b"m" * size))
        assert await within(call.read()) == b"m" * size
    await within(call.done_writing())
    assert await within(call.read()) is grpc.aio.EOF
    assert await within(call.code()) is grpc.StatusCode.OK


def test_a_client_with_threads() -> None:
    async def serve(ready: asyncio.Event, over: asyncio.Event, ports: list[int]) -> None:
        served = await Served().start()
        ports.append(served.port)
        ready.set()
        await over.wait()
        await served.stop()
        await served.quiet()

    def ask(port: int) -> list[Any]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            talk = channel.stream_stream(path("Talk"))(iter([b"1", b"2"]), timeout=20)
            count = channel.unary_stream(path("Count"))(b"3", timeout=20)
            return [channel.unary_unary(path("Echo"))(b"hello", timeout=20), *talk, *count]

    async def run() -> list[Any]:
        ready, over, ports = asyncio.Event(), asyncio.Event(), list[int]()
        serving = asyncio.create_task(serve(ready, over, ports))
        await within(ready.wait())
        found: list[Any] = await within(asyncio.to_thread(ask, ports[0]))
        over.set()
        await within(serving)
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == [b"hello", b"1", b"2", b"0", b"1", b"2"]


METADATA = (
    ("x-text", "plain; with, commas"),
    ("x-twice", "1"),
    ("x-twice", "2"),
    ("x-long", "v" * 3_000),
    ("x-empty", ""),
    ("x-bytes-bin", bytes(range(256))),
    ("x-none-bin", b""),
    ("x-two-bin", b"a"),
    ("x-two-bin", b"bc"),
)


async def test_metadata_both_ways(served: Served) -> None:
    channel = await served.channel()
    call = channel.unary_unary(path("Echo"))(b"", metadata=METADATA)
    await within(call)
    assert tuple(await within(call.initial_metadata())) == METADATA
    trailing = tuple(await within(call.trailing_metadata()))
    assert trailing[:-1] == METADATA
    assert trailing[-1][1].startswith("ipv4:127.0.0.1:")


async def test_an_abort_has_code_details_and_metadata(served: Served) -> None:
    for first in ([], [b"request"]):
        call = (await served.channel()).stream_stream(path("Refuse"))(iter(first))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await within(call.read())
        error = caught.value
        assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "no: \u00e4 100%\n")
        assert tuple(error.trailing_metadata()) == (("x-t", "1"), ("x-t-bin", b"\0\xff,"))


async def test_a_bug_in_a_handler_shows_no_details_to_the_client(served: Served) -> None:
    code, details = await refusal(served.call("Fail", b""))
    assert code is grpc.StatusCode.UNKNOWN
    assert "secret" not in details
    assert await served.call("Echo", b"on") == b"on"


async def test_a_code_that_is_set(served: Served) -> None:
    assert await refusal(served.call("SpeakOfCode", b"")) == (grpc.StatusCode.DATA_LOSS, "some of it")


@pytest.mark.parametrize("wanted", ["/t.T/Nothing", "/no.Service/Echo", "/"])
async def test_a_method_that_does_not_exist(served: Served, wanted: str) -> None:
    call = (await served.channel()).unary_unary(wanted)(b"")
    assert (await refusal(call))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_messages_of_other_kinds_than_bytes(served: Served) -> None:
    assert await served.call("Number", b"12") == b"144"
    assert (await refusal(served.call("Number", b"twelve")))[0] is grpc.StatusCode.INTERNAL


async def test_a_deadline_ends_the_handler(served: Served) -> None:
    call = (await served.channel()).stream_stream(path("Wait"))(timeout=0.3)
    await until(lambda: served.handlers.entered)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(call.read())
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: served.handlers.left == ["wait"])


async def test_a_call_that_is_cancelled_ends_its_handler(served: Served) -> None:
    channel = await served.channel()
    calls = [channel.stream_stream(path(method))() for method in ("Wait", "Talk")]
    await within(calls[1].write(b"x"))
    await until(lambda: len(served.handlers.entered) == 2)
    for call in calls:
        call.cancel()
    await until(lambda: sorted(served.handlers.left) == ["talk", "wait"])
    assert await served.call("Echo", b"on", channel) == b"on"


async def test_a_connection_that_is_lost_ends_its_handlers(served: Served) -> None:
    channel = await served.channel()
    calls = [channel.stream_stream(path("Wait"))() for _ in range(10)]
    await until(lambda: len(served.handlers.entered) == len(calls))
    await channel.close()
    await until(lambda: served.handlers.left == ["wait"] * 10)
    await served.idle()


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests(served: Served, compression: grpc.Compression) -> None:
    channel = await served.channel()
    for body in (b"z" * 200, b"z" * 2_000_000):
        assert await served.call("Echo", body, channel, compression=compression) == body
    talk = channel.stream_stream(path("Talk"))(compression=compression)
    await within(talk.write(b"y" * 10_000))
    assert await within(talk.read()) == b"y" * 10_000


async def test_a_bomb_is_refused(serve: Serve) -> None:
    served = await serve(limits=Http2Limits(message_bytes=MIB))
    for size in (2 * MIB, 60 * MIB):
        code, _ = await refusal(served.call("Echo", bytes(size), compression=grpc.Compression.Gzip))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await refusal(served.call("Echo", bytes(MIB + 1))))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await served.call("Echo", bytes(MIB)) == bytes(MIB)


async def test_large_messages_both_ways(served: Served) -> None:
    body = bytes(range(256)) * (20 * MIB // 256)
    assert await served.call("Echo", body) == body
    call = (await served.channel()).stream_stream(path("Talk"))()
    for _ in range(2):
        await within(call.write(body))
        assert await within(call.read()) == body


async def test_many_streams_on_one_connection(served: Served) -> None:
    channel = await served.channel()

    async def converse(number: int) -> bytes:
        call = channel.stream_stream(path("Talk"))()
        await call.write(b"%d" % number)
        found: bytes = await call.read()
        await call.write(found * 2)
        found = await call.read()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return found

    found = await within(asyncio.gather(*map(converse, range(500))))
    assert found == [b"%d%d" % (number, number) for number in range(500)]
    assert len(served.server.sockets) == 1
    await served.idle()


async def test_many_connections(served: Served) -> None:
    async def converse(number: int) -> bytes:
        return await served.call("Echo", b"%d" % number)

    found = await within(asyncio.gather(*map(converse, range(300))))
    assert found == [b"%d" % number for number in range(300)]
    assert len(served.server.sockets) == 300


async def test_calls_that_are_refused_unread_do_not_use_up_the_connection(served: Served) -> None:
    """What was sent along with them, 10 MB here, goes back to the connection's window of 1 MB."""
    channel = await served.channel()
    for _ in range(200):
        code, _ = await refusal(channel.unary_unary(path("Nothing"))(bytes(50_000)))
        assert code is grpc.StatusCode.UNIMPLEMENTED
    assert await served.call("Echo", CHUNK * 4, channel) == CHUNK * 4


async def test_a_call_that_has_ended_leaves_nothing_to_the_collector(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls end by the thousand, and the collector looks at old objects rarely."""
    calls: list[weakref.ref[Any]] = []

    class Watched(Call):
        __slots__ = ("__weakref__",)

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            calls.append(weakref.ref(self))

    monkeypatch.setattr("xds.server.grpc.connection.Call", Watched)
    channel = await served.channel()
    gc.collect()
    gc.disable()
    try:
        await served.call("Echo", b"x", channel)
        assert (await refusal(served.call("Nothing", b"x", channel)))[0] is grpc.StatusCode.UNIMPLEMENTED
        talk = channel.stream_stream(path("Talk"))()
        await within(talk.write(b"x"))
        await within(talk.read())
        talk.cancel()
        await served.idle()
        await until(lambda: not [call for call in calls if call() is not None])
    finally:
        gc.enable()
    assert len(calls) == 3


async def test_metadata_that_grpc_forbids(served: Served) -> None:
    async def speak(request: bytes, context: Any) -> bytes:
        with pytest.raises(ValueError, match="printable"):
            context.set_trailing_metadata((("x-a", "line\nline"),))
        with pytest.raises(ValueError, match="key"):
            await context.send_initial_metadata((("X-A", "capital"),))
        return request

    handler = grpc.unary_unary_rpc_method_handler(speak)
    served.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("o.O", {"Speak": handler}),))
    assert await within((await served.channel()).unary_unary("/o.O/Speak")(b"x")) == b"x"


# What our transport offers beyond gRPC's contexts


async def test_a_write_without_waiting_does_not_overtake_others(served: Served) -> None:
    sent: list[bool] = []

    async def speak(_requests: Any, context: Any) -> None:
        sent.append(context.write_now(b"first"))
        long = asyncio.create_task(context.write(CHUNK * 200))
        await asyncio.sleep(0)
        sent.append(context.write_now(b"too early"))
        await long
        while not context.write_now(b"last"):
            await asyncio.sleep(0.01)
        sent.append(context.write_now(CHUNK * 1_000))

    call = await special(served, speak)
    found = [message async for message in call]
    assert [len(message) for message in found] == [5, 200 * len(CHUNK), 4]
    assert sent == [True, False, False]


async def test_writes_of_many_frames_as_long_as_windows_and_socket_take_them(served: Served) -> None:
    body = bytes(range(256)) * 200
    sent: list[bytes] = []

    async def speak(_requests: Any, context: Any) -> None:
        while context.write_now(body):
            sent.append(body)
        assert sent
        while not context.write_now(body):  # until the client has read
            await asyncio.sleep(0.01)
        sent.append(body)

    call = await special(served, speak)
    assert [message async for message in call] == sent

"""Calls that are handled without a task: their messages and their end are passed to an object."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import grpc
import pytest

from tests.server.conftest import until, within
from tests.server.grpc.service import RawClient, Served, serve_special, special, tasks_of_calls
from tests.wire.http2.talk import opening
from xds.wire.http2 import frames as f
from xds.wire.http2.headers import encode


class Listener:
    """Handles a call without a task: it takes messages, or receives those that begin with ``wait`` one by one."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.went: list[str] = []
        self.may_go_on = asyncio.Event()

    def take(self, data: bytes) -> bool:
        if data.startswith(b"wait"):
            self.went.append("refused")
            return False
        self.went.append(f"took {data[:6].decode()}")
        return True

    async def receive(self, data: bytes) -> None:
        await self.may_go_on.wait()
        self.went.append(f"received {data[:6].decode()}")
        await self.context.write(data)

    async def end_requests(self) -> None:
        self.went.append("ended")
        self.context.end(grpc.StatusCode.OK, "")

    def cancel(self) -> None:
        self.went.append("cancelled")


async def listening(served: Served) -> tuple[Listener, Any]:
    """A call that is handled by a listener."""
    listeners: list[Listener] = []

    async def handle(_requests: Any, context: Any) -> None:
        listeners.append(Listener(context))
        await context.serve(listeners[0])

    call = await special(served, handle)
    await within(call.write(b"take 0"))
    await until(lambda: listeners and listeners[0].went == ["took take 0"])
    return listeners[0], call


async def test_a_call_that_is_served_has_a_task_only_while_messages_wait(served: Served) -> None:
    listener, call = await listening(served)
    await until(lambda: not tasks_of_calls())
    for message in (b"take 1", b"wait 1", b"take 2", b"wait 2"):
        await within(call.write(message))
    await until(lambda: listener.went[-1] == "refused")
    assert tasks_of_calls() == 1
    listener.may_go_on.set()
    assert [len(await within(call.read())) for _ in range(3)] == [6, 6, 6]
    await until(lambda: not tasks_of_calls())
    await within(call.write(b"take 3" * (64 << 10)))
    await within(call.done_writing())
    assert await within(call.code()) is grpc.StatusCode.OK
    # Those that come while another waits stay behind it.
    assert listener.went == [
        "took take 0", "took take 1", "refused", "received wait 1", "received take 2", "received wait 2",
        "took take 3", "ended",
    ]  # fmt: skip
    await served.idle()


async def test_a_served_call_that_the_client_cancels(served: Served) -> None:
    listener, call = await listening(served)
    call.cancel()
    await until(lambda: listener.went[-1] == "cancelled")
    listener.context.end(grpc.StatusCode.OK, "")
    assert not listener.context.write_now(b"too late")
    await served.idle()
    assert (served.server.calls_succeeded, served.server.calls_failed) == (0, 1)


async def test_a_served_call_that_the_client_cancels_while_messages_wait(served: Served) -> None:
    listener, call = await listening(served)
    await within(call.write(b"wait 1"))
    await until(lambda: listener.went[-1] == "refused")
    call.cancel()
    await served.idle()
    assert listener.went == ["took take 0", "refused", "cancelled"]


async def test_a_served_call_is_ended_while_messages_wait(served: Served) -> None:
    listener, call = await listening(served)
    await within(call.write(b"wait 1"))
    await until(lambda: listener.went[-1] == "refused")
    listener.context.end(grpc.StatusCode.NOT_FOUND, "no more")
    assert await within(call.code()) is grpc.StatusCode.NOT_FOUND
    await served.idle()
    assert listener.went == ["took take 0", "refused"]


async def test_a_served_call_of_a_server_that_stops(served: Served) -> None:
    listener, call = await listening(served)
    await within(served.server.stop(0.05))
    assert await within(call.code()) is grpc.StatusCode.UNAVAILABLE
    assert listener.went == ["took take 0", "cancelled"]


async def test_a_server_that_stops_waits_for_served_calls(served: Served) -> None:
    listener, call = await listening(served)
    stopping = asyncio.create_task(served.server.stop(20))
    await until(lambda: all(each.is_going_away for each in served.server.sockets.values()))
    listener.context.end(grpc.StatusCode.OK, "")
    assert await within(call.code()) is grpc.StatusCode.OK
    await within(stopping)


async def test_a_served_call_has_the_time_that_the_client_gives_it(served: Served) -> None:
    listeners: list[Listener] = []

    async def handle(_requests: Any, context: Any) -> None:
        listeners.append(Listener(context))
        await context.serve(listeners[0])

    call = await special(served, handle, timeout=0.3)
    await within(call.write(b"take 0"))
    assert await within(call.code()) is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: listeners[0].went == ["took take 0", "cancelled"])
    await served.idle()


async def test_a_served_call_that_is_refused_before_its_first_message(served: Served) -> None:
    """A moment later, because grpc.aio's client would report an internal error."""

    async def handle(_requests: Any, context: Any) -> None:
        await context.serve(Listener(context))
        context.end(grpc.StatusCode.NOT_FOUND, "not you")

    call = await special(served, handle)
    assert await within(call.code()) is grpc.StatusCode.NOT_FOUND
    await served.idle()


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_served_call_with_compressed_messages(served: Served, encoding: str) -> None:
    """They are received in a task, and those that cannot be read end the call."""
    client, listeners = await RawClient.connect(served), []

    async def handle(_requests: Any, context: Any) -> None:
        listeners.append(Listener(context))
        listeners[0].may_go_on.set()
        await context.serve(listeners[0])

    serve_special(served, handle)
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/o.O/Special"), ("content-type", "application/grpc")]
    packed = gzip.compress(b"packed")
    body = b"\1" + len(packed).to_bytes(4, "big") + packed
    await client.say(opening(1, head=encode([*fields, ("grpc-encoding", encoding)])), f.frame(f.DATA, 0, 1, body))
    if encoding == "gzip":
        await client.until({f.DATA})
        assert listeners[0].went == ["received packed"]
    else:
        await client.until({f.RST_STREAM})
        assert listeners[0].went == ["cancelled"]
    client.close()
    await served.idle()

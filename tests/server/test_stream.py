"""The life of a stream of any service: how it ends, what it frees, and the status that its client receives."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import count

import grpc
import pytest

from tests.server.conftest import until, within
from xds.access.authorisation import Access
from xds.fleet.fleet import Fleet
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Node
from xds.server.counters import Metrics
from xds.server.flow.admission import Admission, AdmissionSlot
from xds.server.flow.limits import FlowLimits
from xds.server.flow.work_queue import WorkQueue
from xds.server.flow.write_limiter import WriteLimiter
from xds.server.identity import NodeAuthorizer
from xds.server.options import ServerOptions
from xds.server.refusals import RefusalRecorder
from xds.server.stream import CLIENT_LEFT, OK_STATUS, CallHandler, Status, StreamDependencies, StreamHandler

TOO_MUCH: Status = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
INTERNAL: Status = (grpc.StatusCode.INTERNAL, "internal error")


class Caller:
    """The call of a client that takes nothing. It goes on when ``serve`` returns, as over our own transport."""

    certificate = None

    def __init__(self) -> None:
        self.told: list[Status] = []
        self.may_write = asyncio.Event()
        self.wrote: list[bytes] = []

    async def write(self, message: bytes) -> None:
        await self.may_write.wait()
        self.wrote.append(message)

    def write_now(self, message: bytes) -> bool:
        return False

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise AssertionError

    async def serve(self, handler: CallHandler) -> None:
        pass

    def end(self, code: grpc.StatusCode, details: str) -> None:
        self.told.append((code, details))

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:4711"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


class Deserter(Caller):
    """A client that is gone when it is written to."""

    async def write(self, message: bytes) -> None:
        raise grpc.aio.UsageError("the call is over")


class Faulty(Caller):
    """A fault of ours where it writes."""

    async def write(self, message: bytes) -> None:
        raise ZeroDivisionError


class Simple(StreamHandler):
    """A stream that answers each request with the same; ``life`` is what it went through."""

    def __init__(self, deps: StreamDependencies, caller: Caller, slot: AdmissionSlot) -> None:
        super().__init__(deps, caller, slot, "ADS")
        self.life: list[str] = []
        self.due: list[bytes] = []

    @property
    def node(self) -> Node | None:
        return None

    @property
    def address(self) -> str:
        return self._peer

    @property
    def group(self) -> str:
        return ""

    def offer_soon(self, body: bytes) -> None:
        self.due.append(body)
        self._submit_work()

    def _on_open(self) -> None:
        self.life.append("opened")

    async def _receive(self, data: bytes) -> None:
        if data == b"fault":
            raise ZeroDivisionError
        if data == b"wrong":
            raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "wrong")
        self._write_body(data)
        while self._outbox:
            await self._until_progress()
        self.life.append(f"received {data[:9].decode()}")

    def _on_close(self, lasted_s: float) -> None:
        self.life.append(f"closed {self._status[0].name}")

    def _has_work(self) -> bool:
        return bool(self.due)

    def _offer(self) -> None:
        self._write_body(self.due.pop())

    def _log_failure(self) -> None:
        self.life.append("failed")


async def nobody(peers: Collection[str]) -> None:
    assert not peers


class Line:
    """Where streams live: one has a slot at a time."""

    def __init__(self) -> None:
        metrics, options = Metrics(), ServerOptions()
        self.admission = Admission(metrics, FlowLimits(admission_slots=1))
        self.work_queue = WorkQueue()
        self.streams: dict[StreamHandler, None] = {}
        events = Fleet().events
        refusals = RefusalRecorder(events, metrics)
        authorizer = NodeAuthorizer(Access(), events, metrics, refusals)
        self.deps = StreamDependencies(
            self.work_queue,
            WriteLimiter(1 << 20, nobody),
            authorizer,
            refusals,
            metrics,
            options,
            count(1),
            self.streams,
        )

    async def begin(self, caller: Caller) -> Simple:
        """A stream that has begun."""
        stream = Simple(self.deps, caller, await within(self.admission.acquire("peer")))
        await stream.run()
        assert list(self.streams) == [stream]
        return stream

    async def left(self) -> None:
        """Wait until the stream has ended and its place is free."""
        (await within(self.admission.acquire("peer"))).release()
        await within(self.work_queue.barrier_low())
        assert not self.streams
        assert "_write" not in [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]


@pytest.fixture
async def line() -> Line:
    return Line()


async def test_the_first_status_counts_and_the_end_is_a_turn(line: Line) -> None:
    caller = Caller()
    stream = await line.begin(caller)
    stream.finish(TOO_MUCH)
    stream.finish()
    await asyncio.sleep(0)
    line.work_queue.submit(lambda: stream.life.append("others"))
    await line.left()
    assert stream.life == ["opened", "others", "closed RESOURCE_EXHAUSTED"]
    assert caller.told == [TOO_MUCH]


async def test_a_stream_ends_when_all_that_it_has_to_say_is_written(line: Line) -> None:
    caller = Caller()
    stream = await line.begin(caller)
    stream.finish()
    stream.offer_soon(b"nothing is offered any more")
    stream._write_body(b"x")
    stream._write_body(b"y")
    await asyncio.sleep(0.01)
    assert caller.told == []
    caller.may_write.set()
    await line.left()
    assert (stream.life, caller.told, caller.wrote) == (["opened", "closed OK"], [OK_STATUS], [b"x", b"y"])


async def test_a_stream_offers_again_when_the_outbox_is_written(line: Line) -> None:
    caller = Caller()
    stream = await line.begin(caller)
    stream.offer_soon(b"1")
    stream.offer_soon(b"2")
    stream.offer_soon(b"3")
    await asyncio.sleep(0.01)
    assert (caller.wrote, len(stream.due)) == ([], 2)
    caller.may_write.set()
    await until(lambda: len(caller.wrote) == 3)
    stream.finish()
    await line.left()


async def test_a_bug_where_it_writes_ends_one_stream(line: Line) -> None:
    caller = Faulty()
    stream = await line.begin(caller)
    stream._write_body(b"x")
    stream._write_body(b"y")
    await line.left()
    assert stream.life == ["opened", "failed", "closed INTERNAL"]
    assert caller.told == [INTERNAL]


@pytest.mark.parametrize(
    ("data", "status", "life"),
    [
        (b"fault", INTERNAL, ["failed", "closed INTERNAL"]),
        (b"wrong", (grpc.StatusCode.INVALID_ARGUMENT, "wrong"), ["closed INVALID_ARGUMENT"]),
    ],
)
async def test_a_fault_where_it_reads_ends_one_stream(line: Line, data: bytes, status: Status, life: list[str]) -> None:
    caller = Caller()
    stream = await line.begin(caller)
    await stream.receive(data)
    await stream.receive(b"ignored")
    await line.left()
    assert (stream.life, caller.told) == (["opened", *life], [status])


async def test_a_client_that_left_is_found_where_it_is_written_to(line: Line) -> None:
    caller = Deserter()
    stream = await line.begin(caller)
    stream._write_body(b"x")
    await line.left()
    assert stream.life == ["opened", "closed CANCELLED"]
    assert caller.told == [CLIENT_LEFT]


async def test_a_stream_is_cancelled_while_a_write_is_blocked(line: Line) -> None:
    caller = Caller()
    stream = await line.begin(caller)
    receiving = asyncio.create_task(stream.receive(b"x" * 100_000))
    await asyncio.sleep(0.01)
    assert line.deps.write_limiter.lanes.used_bytes == 100_000
    stream.finish(TOO_MUCH)
    stream.cancel()
    stream.cancel()
    receiving.cancel()
    await line.left()
    assert stream.life == ["opened", "closed CANCELLED"]
    assert (caller.told, caller.wrote) == ([CLIENT_LEFT], [])
    assert line.deps.write_limiter.lanes.used_bytes == 0


async def test_a_request_waits_for_a_response_that_is_not_written(line: Line) -> None:
    caller = Caller()
    stream = await line.begin(caller)
    receiving = asyncio.create_task(stream.receive(b"x"))
    await asyncio.sleep(0.01)
    assert stream.life == ["opened"]
    caller.may_write.set()
    await within(receiving)
    assert stream.life == ["opened", "received x"]
    assert stream.address == "ipv6:[::1]:4711"
    await stream.end_requests()
    await line.left()
    assert caller.told == [OK_STATUS]

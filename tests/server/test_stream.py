"""The life of a stream of any service: how it ends, what it frees, and the status that its client receives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from itertools import count

import grpc
import pytest

from tests.server.conftest import until, within
from xds.access.authorisation import Access
from xds.fleet.fleet import Fleet
from xds.model.node import Node
from xds.server.flow.admission import Admission, AdmissionSlot
from xds.server.flow.limits import FlowLimits
from xds.server.flow.work_queue import WorkQueue
from xds.server.flow.write_limiter import WriteLimiter
from xds.server.identity import NodeAuthorizer
from xds.server.metrics.counters import Metrics
from xds.server.options import ServerOptions
from xds.server.refusals import RefusalRecorder
from xds.server.stream import Status, StreamDependencies, StreamHandler

TOO_MUCH: Status = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
INTERNAL: Status = (grpc.StatusCode.INTERNAL, "internal error")


class Caller:
    """The call of a client that says nothing and takes nothing."""

    on_message: Callable[[bytes], bool]
    certificate = None

    def __init__(self) -> None:
        self.told: list[Status] = []

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    async def write(self, message: bytes) -> None:
        raise grpc.aio.UsageError("the call is over")

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.told.append((code, details))

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:4711"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def listen(self, on_message: Callable[[bytes], bool]) -> None:
        self.on_message = on_message

    def write_now(self, message: bytes) -> bool:
        return True


class Silent(StreamHandler):
    """A stream that waits for its end; ``life`` is what it went through."""

    def __init__(self, deps: StreamDependencies, caller: Caller, slot: AdmissionSlot) -> None:
        super().__init__(deps, caller, slot, "ADS", on_message=self.hear)
        self.life: list[str] = []

    @property
    def node(self) -> Node | None:
        return None

    @property
    def address(self) -> str:
        return self._peer

    @property
    def group(self) -> str:
        return ""

    def hear(self, data: bytes) -> bool:
        self.life.append(f"heard {data.decode()}")
        return True

    def write_now(self) -> bool:
        return self._write_now(b"x")

    def _on_open(self) -> None:
        self.life.append("entered")

    async def _read(self) -> None:
        await self._context.read()

    async def _write(self) -> None:
        while not self._ending:
            await self._wake.wait()
            self._wake.clear()

    def _on_close(self, lasted_s: float) -> None:
        self.life.append(f"closed {self._status[0].name}")

    def _has_work(self) -> bool:
        return False

    def _offer(self) -> None:
        raise AssertionError

    def _log_failure(self) -> None:
        self.life.append("failed")


class Miswritten(Silent):
    """A fault of ours where it writes."""

    async def _write(self) -> None:
        raise ZeroDivisionError


class Misread(Silent):
    """A fault of ours where it reads."""

    async def _read(self) -> None:
        self._fail()


class Deserted(Silent):
    """Its client is gone when it writes."""

    async def _write(self) -> None:
        await self._context.write(b"x")


async def nobody(peers: Collection[str]) -> None:
    assert not peers


class Line:
    """Where streams live: one has a slot at a time."""

    def __init__(self) -> None:
        metrics, options = Metrics(), ServerOptions()
        self.admission = Admission(metrics, FlowLimits(admission_slots=1))
        self.work_queue = WorkQueue()
        events = Fleet().events
        refusals = RefusalRecorder(events, metrics)
        authorizer = NodeAuthorizer(Access(), events, metrics, refusals)
        self.deps = StreamDependencies(
            self.work_queue, WriteLimiter(1 << 20, nobody), authorizer, refusals, metrics, options, count(1)
        )

    async def begin(self, kind: type[Silent], caller: Caller) -> tuple[Silent, asyncio.Task[None]]:
        """A stream that has begun."""
        stream = kind(self.deps, caller, await within(self.admission.acquire("peer")))
        running = asyncio.create_task(stream.run())
        await until(lambda: stream.life)
        return stream, running

    async def left(self, running: asyncio.Task[None]) -> None:
        """Wait until the stream has ended and its place is free."""
        await within(asyncio.wait((running,)))
        (await within(self.admission.acquire("peer"))).release()
        await within(self.work_queue.barrier())


@pytest.fixture
async def line() -> Line:
    return Line()


async def test_the_first_status_counts_and_the_end_is_a_turn(line: Line) -> None:
    caller = Caller()
    stream, running = await line.begin(Silent, caller)
    stream.finish(TOO_MUCH)
    stream.finish()
    line.work_queue.submit(lambda: stream.life.append("others"))
    await line.left(running)
    assert stream.life == ["entered", "others", "closed RESOURCE_EXHAUSTED"]
    assert caller.told == [TOO_MUCH]


async def test_a_stream_that_ends_well_is_not_aborted(line: Line) -> None:
    caller = Caller()
    stream, running = await line.begin(Silent, caller)
    stream.finish()
    await line.left(running)
    assert (stream.life, caller.told) == (["entered", "closed OK"], [])
    assert not running.cancelled()


@pytest.mark.parametrize("kind", [Miswritten, Misread])
async def test_a_bug_in_the_engine_ends_one_stream(line: Line, kind: type[Silent]) -> None:
    caller = Caller()
    stream, running = await line.begin(kind, caller)
    await line.left(running)
    assert stream.life == ["entered", "failed", "closed INTERNAL"]
    assert caller.told == [INTERNAL]


async def test_nothing_is_sent_to_a_client_that_left(line: Line) -> None:
    caller = Caller()
    stream, running = await line.begin(Deserted, caller)
    await line.left(running)
    assert (stream.life, caller.told) == (["entered", "closed CANCELLED"], [])
    assert running.cancelled()


async def test_a_call_that_is_cancelled_ends_its_stream(line: Line) -> None:
    caller = Caller()
    stream, running = await line.begin(Silent, caller)
    running.cancel()
    await line.left(running)
    assert (stream.life, caller.told) == (["entered", "closed CANCELLED"], [])


async def test_messages_are_offered_to_the_stream_as_they_come(line: Line) -> None:
    caller = Caller()
    stream, running = await line.begin(Silent, caller)
    assert stream.write_now()
    assert stream.address == "ipv6:[::1]:4711"
    assert caller.on_message(b"x")
    assert stream.life[-1] == "heard x"
    stream.finish()
    await line.left(running)

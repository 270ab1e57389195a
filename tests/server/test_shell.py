"""The life of a stream, whatever it carries: how it ends, what it leaves, and what its client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest

from tests.server.conftest import until, within
from xds.model.node import Node
from xds.server.admission import Admission, Place
from xds.server.metrics import Metrics
from xds.server.shell import Shell, Status
from xds.server.turns import Turns

TOO_MUCH: Status = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
INTERNAL: Status = (grpc.StatusCode.INTERNAL, "internal error")


class Caller:
    """The context of a client that says nothing and takes nothing, as grpcio's transport has it."""

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


class PromptCaller(Caller):
    """As our own transport has it."""

    take: Callable[[bytes], bool]

    def listen(self, take: Callable[[bytes], bool]) -> None:
        self.take = take

    def write_now(self, message: bytes) -> bool:
        return True


class Silent(Shell):
    """A stream that waits for its end; ``life`` is what it went through."""

    def __init__(self, caller: Caller, place: Place, turns: Turns) -> None:
        super().__init__(caller, place, turns, self.hear)
        self.life: list[str] = []

    @property
    def node(self) -> Node | None:
        return None

    @property
    def address(self) -> str:
        return self._peer

    def recheck(self) -> None:
        self.life.append("rechecked")

    def hear(self, data: bytes) -> bool:
        self.life.append(f"heard {data.decode()}")
        return True

    def write_now(self) -> bool:
        return self._write_now(b"x")

    def _enter(self) -> None:
        self.life.append("entered")

    async def _read(self) -> None:
        await self._context.read()

    async def _write(self) -> None:
        while not self._ending:
            await self._wake.wait()
            self._wake.clear()

    def _close(self, lasted_s: float) -> None:
        self.life.append(f"closed {self._status[0].name}")

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


class Line:
    """Where streams live: one has a place at a time."""

    def __init__(self) -> None:
        self.admission = Admission(Metrics(), places=1)
        self.turns = Turns()

    async def begin(self, kind: type[Silent], caller: Caller) -> tuple[Silent, asyncio.Task[None]]:
        """A stream that has begun."""
        shell = kind(caller, await within(self.admission.enter()), self.turns)
        running = asyncio.create_task(shell.run())
        await until(lambda: shell.life)
        return shell, running

    async def left(self, running: asyncio.Task[None]) -> None:
        """Wait until the stream has ended and its place is free."""
        await within(asyncio.wait((running,)))
        (await within(self.admission.enter())).leave()
        await within(self.turns.come())


@pytest.fixture
async def line() -> Line:
    return Line()


async def test_the_first_status_counts_and_the_end_is_a_turn(line: Line) -> None:
    caller = Caller()
    shell, running = await line.begin(Silent, caller)
    shell.finish(TOO_MUCH)
    shell.finish()
    line.turns.take(lambda: shell.life.append("others"))
    await line.left(running)
    assert shell.life == ["entered", "others", "closed RESOURCE_EXHAUSTED"]
    assert caller.told == [TOO_MUCH]


async def test_what_ends_well_is_not_aborted(line: Line) -> None:
    caller = Caller()
    shell, running = await line.begin(Silent, caller)
    shell.finish()
    await line.left(running)
    assert (shell.life, caller.told) == (["entered", "closed OK"], [])
    assert not running.cancelled()


@pytest.mark.parametrize("kind", [Miswritten, Misread])
async def test_a_fault_of_ours_costs_one_stream(line: Line, kind: type[Silent]) -> None:
    caller = Caller()
    shell, running = await line.begin(kind, caller)
    await line.left(running)
    assert shell.life == ["entered", "failed", "closed INTERNAL"]
    assert caller.told == [INTERNAL]


async def test_a_client_that_is_gone_is_told_nothing(line: Line) -> None:
    caller = Caller()
    shell, running = await line.begin(Deserted, caller)
    await line.left(running)
    assert (shell.life, caller.told) == (["entered", "closed CANCELLED"], [])
    assert running.cancelled()


async def test_a_call_that_is_cancelled_ends_its_stream(line: Line) -> None:
    caller = Caller()
    shell, running = await line.begin(Silent, caller)
    running.cancel()
    await line.left(running)
    assert (shell.life, caller.told) == (["entered", "closed CANCELLED"], [])


async def test_only_our_own_transport_does_anything_at_once(line: Line) -> None:
    plain, prompt = Caller(), PromptCaller()
    for caller, at_once in ((plain, False), (prompt, True)):
        shell, running = await line.begin(Silent, caller)
        assert shell.write_now() is at_once
        assert shell.address == "ipv6:[::1]:4711"
        if isinstance(caller, PromptCaller):
            assert caller.take(b"x")
            assert shell.life[-1] == "heard x"
        shell.finish()
        await line.left(running)

"""Where work runs: that of a caller in turns of its own, and only as long as somebody waits for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import ref

import pytest

from xds.codec.effort import REGEX_EFFORT, AbandonedError, check_effort, leave_loop, present_effort
from xds.tasks.threads import INPUT_BYTES, WAITER, Turns, Waiter, run_detached, run_for_caller

WITHIN_S = 20.0


async def _never() -> None:
    await asyncio.Event().wait()


class Endless:
    """Work that only its effort ends."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        try:
            while True:
                check_effort()
                time.sleep(0.001)
        finally:
            self.ended.set()


async def test_work_for_a_caller_runs_on_the_loop_only_if_its_input_is_small() -> None:
    """Without a size it never does: the size of no input bounds the work then."""
    loop = threading.get_ident()
    assert await run_for_caller(threading.get_ident) != loop
    assert await run_for_caller(threading.get_ident, bytes=INPUT_BYTES + 1) != loop
    assert await run_for_caller(threading.get_ident, bytes=INPUT_BYTES) == loop


async def test_work_leaves_the_loop_before_a_step_that_its_size_does_not_bound() -> None:
    """It begins again in a thread, with a budget of its own."""
    begun: list[int] = []

    def work() -> bool:
        begun.append(threading.get_ident())
        leave_loop()
        effort = present_effort()
        return effort is not None and effort.take(REGEX_EFFORT)

    assert await run_for_caller(work, bytes=1)
    assert len(begun) == 2
    assert begun[0] == threading.get_ident() != begun[1]


async def test_an_error_of_work_on_the_loop_is_raised_at_once() -> None:
    begun: list[int] = []

    def fail() -> None:
        begun.append(threading.get_ident())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_for_caller(fail, bytes=1)
    assert begun == [threading.get_ident()]


async def test_work_ends_when_its_caller_has_left() -> None:
    """Also work that waits for its turn, which does not begin."""
    endless, left = Endless(), asyncio.Event()

    async def is_left() -> None:
        await left.wait()

    WAITER.set(Waiter("a", is_left))
    running, waiting = asyncio.create_task(run_for_caller(endless)), asyncio.create_task(run_for_caller(print))
    assert await asyncio.to_thread(endless.began.wait, WITHIN_S)
    left.set()
    for task in (running, waiting):
        with pytest.raises(AbandonedError):
            await task
    assert await asyncio.to_thread(endless.ended.wait, WITHIN_S)


async def test_cancelled_work_ends() -> None:
    endless = Endless()
    running = asyncio.create_task(run_for_caller(endless))
    assert await asyncio.to_thread(endless.began.wait, WITHIN_S)
    running.cancel()
    assert await asyncio.to_thread(endless.ended.wait, WITHIN_S)


def test_names_have_their_turns() -> None:
    """A name with much work has one thread at most, so that another one begins at once."""
    turns, release = Turns(2), threading.Event()
    done: list[int] = []

    def work(number: int) -> None:
        release.wait(WITHIN_S)
        done.append(number)

    first = [turns.submit("a", partial(work, number)) for number in range(5)]
    assert turns.submit("b", lambda: "b").result(WITHIN_S) == "b"
    release.set()
    for one in first:
        one.result(WITHIN_S)
    assert done == list(range(5))


def test_names_take_turns() -> None:
    """With one thread, the second name comes behind the first task of the first one."""
    turns, release = Turns(1), threading.Event()
    done: list[str] = []
    blocked = turns.submit("a", lambda: release.wait(WITHIN_S))
    tasks = [turns.submit(name, partial(done.append, name)) for name in ("a", "a", "a", "b")]
    release.set()
    assert blocked.result(WITHIN_S)
    for task in tasks:
        task.result(WITHIN_S)
    assert done == ["b", "a", "a", "a"]


async def test_an_error_of_the_work_is_that_of_the_call() -> None:
    WAITER.set(Waiter("a", _never))
    with pytest.raises(ZeroDivisionError):
        await run_for_caller(lambda: 1 // 0)


class Body:
    """What work is given."""


def refuse(body: Body) -> None:
    raise ValueError(body)


@pytest.mark.parametrize("run", [run_for_caller, run_detached])
@pytest.mark.parametrize("waiter", [None, Waiter("a", _never)])
async def test_arguments_of_refused_work_are_freed_without_a_collection(
    run: Callable[..., Awaitable[None]], waiter: Waiter | None
) -> None:
    """A refused body of 64 MB stayed in a cycle of error, frames and future until a full collection, which is rare."""
    WAITER.set(waiter)
    gc.collect()
    gc.disable()
    try:
        body = Body()
        freed = ref(body)
        with pytest.raises(ValueError, match="Body") as refused:
            await run(refuse, body)
        del body, refused
        for _ in range(3):
            await asyncio.sleep(0)  # the thread and the task of the waiter end
        deadline_s = time.monotonic() + WITHIN_S
        while freed() is not None and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        assert freed() is None
    finally:
        gc.enable()

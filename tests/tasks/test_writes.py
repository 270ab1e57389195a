"""Writes in progress end, whatever becomes of their callers."""

from __future__ import annotations

import asyncio

import pytest

from xds.tasks.writes import RunningWrites


async def test_a_write_continues_when_its_caller_is_cancelled() -> None:
    running, may_end, ended = RunningWrites(), asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await may_end.wait()
        ended.set()

    caller = asyncio.create_task(running.finish(write()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    may_end.set()
    await running.wait()
    assert ended.is_set()


async def test_a_caller_gets_the_result_or_the_error() -> None:
    running = RunningWrites()

    async def write(value: int) -> int:
        return 12 // value

    assert await running.finish(write(3)) == 4
    with pytest.raises(ZeroDivisionError):
        await running.finish(write(0))


async def test_waiting_includes_writes_that_start_meanwhile() -> None:
    running, ended = RunningWrites(), list[str]()

    async def second() -> None:
        await asyncio.sleep(0)
        ended.append("second")

    async def first() -> None:
        running.start(second())
        ended.append("first")

    running.start(first())
    await running.wait()
    assert ended == ["first", "second"]


async def test_waiting_raises_no_error_of_a_write() -> None:
    running = RunningWrites()

    async def write() -> None:
        raise OSError

    task = running.start(write())
    await running.wait()
    assert isinstance(task.exception(), OSError)

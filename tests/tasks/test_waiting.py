"""Callers that wait for a change of a subject."""

from __future__ import annotations

import asyncio

import pytest

from xds.tasks.waiting import TooManyWaitersError, Waiters

LONG_S = 60.0


class Subject:
    """A subject with a revision, and how often it was asked for."""

    def __init__(self) -> None:
        self.revision = 1
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return self.revision


async def test_a_wake_reaches_only_waiters_of_its_subject() -> None:
    waiters, web, api = Waiters(100, "services"), Subject(), Subject()
    waiting = [asyncio.create_task(waiters.wait("web", 1, web, LONG_S)) for _ in range(10)]
    others = [asyncio.create_task(waiters.wait("api", 1, api, LONG_S)) for _ in range(10)]
    await asyncio.sleep(0.01)
    before = api.asked
    for _ in range(5):
        waiters.wake(["web"])  # nothing has changed: they go on
        await asyncio.sleep(0.01)
    assert (web.asked, api.asked) == (before + 50, before)
    web.revision = 2
    waiters.wake(["web", "absent"])
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert (len(waiters), api.asked) == (10, before)
    waiters.end()
    await asyncio.wait_for(asyncio.gather(*others), 10)
    assert len(waiters) == 0
    await asyncio.wait_for(waiters.wait("web", 2, web, LONG_S), 10)  # nobody waits any more


async def test_waiters_are_bounded_and_leave_nothing_behind() -> None:
    waiters, web = Waiters(2, "services"), Subject()
    waiting = [asyncio.create_task(waiters.wait("web", 1, web, LONG_S)) for _ in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(TooManyWaitersError, match="2 requests wait for services"):
        await waiters.wait("api", 1, web, LONG_S)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    await waiters.wait("api", 1, web, 0.01)  # its time is over
    await waiters.wait("web", 0, web, LONG_S)  # it has changed already
    await waiters.wait("web", 1, web, 0)  # who asks for no time does not wait
    assert len(waiters) == 1
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    assert (len(waiters), waiters._changed) == (0, {})

"""An event with one waiter."""

from __future__ import annotations

import asyncio

import pytest

from xds.server.wakeup import Wakeup


async def test_who_waits_is_woken() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    wakeup.set()
    wakeup.set()
    await asyncio.wait_for(waiting, 20)


async def test_what_was_set_before_is_not_missed_and_not_heeded_twice() -> None:
    wakeup = Wakeup()
    wakeup.set()
    await asyncio.wait_for(wakeup.wait(), 20)
    wakeup.clear()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_cancelled_waiter_leaves_it_usable() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    wakeup.set()
    await asyncio.wait_for(wakeup.wait(), 20)

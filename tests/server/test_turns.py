"""Stream work leaves the loop to others once it has had its share of an iteration."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from time import monotonic

from xds.server.turns import Turns

PIECE_S = 0.002
SHARE_S = 0.004


async def work(turns: Turns, done: list[int], number: int) -> None:
    if turns.over():
        await turns.wait()
    end = monotonic() + PIECE_S
    while monotonic() < end:
        pass
    done.append(number)


async def test_others_run_between_the_pieces_of_a_burst() -> None:
    turns, done = Turns(SHARE_S), list[int]()
    burst = [asyncio.create_task(work(turns, done, number)) for number in range(50)]
    seen = [0]
    while len(done) < len(burst):
        await asyncio.sleep(0)
        seen.append(len(done))
    # Without turns the whole burst is one iteration. A share lets in the piece that overruns it, and no more.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= SHARE_S / PIECE_S + 1
    assert sorted(done) == list(range(len(burst)))


async def test_a_cancelled_waiter_holds_up_nobody() -> None:
    turns, done = Turns(SHARE_S), list[int]()
    burst = [asyncio.create_task(work(turns, done, number)) for number in range(100)]
    await asyncio.sleep(0)
    for task in burst[::2]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*burst, return_exceptions=True), 20)
    assert set(range(1, 100, 2)) <= set(done)
    await asyncio.wait_for(turns.wait(), 20)

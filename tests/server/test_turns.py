"""Stream work leaves the loop to others once it has had its share of an iteration."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from time import monotonic

from xds.server.turns import SHARE_S, Turns

PIECE_S = 0.002
LEAST = 4  # turns are given in every iteration, however long it is


async def work(turns: Turns, done: list[int], number: int) -> None:
    if turns.over():
        await turns.wait()
    end = monotonic() + PIECE_S
    while monotonic() < end:
        pass
    done.append(number)


async def test_others_run_between_the_pieces_of_a_burst() -> None:
    turns, done = Turns(), list[int]()
    burst = [asyncio.create_task(work(turns, done, number)) for number in range(50)]
    seen = [0]
    while len(done) < len(burst):
        await asyncio.sleep(0)
        seen.append(len(done))
    # Without turns the whole burst is one iteration. A share lets in the piece that overruns it, and no more.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= SHARE_S / PIECE_S + 1 + LEAST
    assert done == list(range(len(burst)))  # first come, first served


async def test_who_comes_while_others_wait_does_not_pass_them() -> None:
    turns, done = Turns(), list[int]()
    burst = [asyncio.create_task(work(turns, done, number)) for number in range(20)]
    await asyncio.sleep(0)
    assert turns.crowded
    await work(turns, done, 20)
    await asyncio.gather(*burst)
    assert done == list(range(21))


async def test_short_pieces_get_more_turns_in_an_iteration() -> None:
    turns, done = Turns(), list[int]()

    async def count(number: int) -> None:
        await turns.wait()
        done.append(number)

    burst = [asyncio.create_task(count(number)) for number in range(500)]
    iterations = 0
    while len(done) < len(burst):
        await asyncio.sleep(0)
        iterations += 1
    assert iterations < len(burst) / LEAST / 2


async def test_a_cancelled_waiter_holds_up_nobody() -> None:
    turns, done = Turns(), list[int]()
    burst = [asyncio.create_task(work(turns, done, number)) for number in range(100)]
    await asyncio.sleep(0)
    for task in burst[::2]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*burst, return_exceptions=True), 20)
    assert set(range(1, 100, 2)) <= set(done)
    await asyncio.wait_for(turns.wait(), 20)

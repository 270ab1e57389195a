"""Stream work leaves the loop to others once it has had its share of an iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import monotonic

from xds.server.turns import BARE_ITERATIONS, LONG_S, SHARE_S, Turns

PIECE_S = SHARE_S / 2


def piece(done: list[int], number: int, takes_s: float = PIECE_S) -> Callable[[], None]:
    def work() -> None:
        end = monotonic() + takes_s
        while monotonic() < end:
            pass
        done.append(number)

    return work


async def test_others_run_between_the_pieces_of_a_burst() -> None:
    turns, done = Turns(), list[int]()
    for number in range(50):
        turns.take(piece(done, number))
    seen = [0]
    while len(done) < 50:
        await asyncio.sleep(0)
        seen.append(len(done))
    # Without turns the whole burst is one iteration. A share lets in the piece that overruns it, and no more.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= SHARE_S / PIECE_S + 1


async def test_first_come_first_served() -> None:
    turns, done = Turns(), list[int]()
    for number in range(20):
        turns.take(piece(done, number))
    assert turns.crowded
    await asyncio.wait_for(turns.come(), 20)
    assert done == list(range(20))
    assert not turns.crowded


async def test_what_can_wait_has_every_fourth_piece_of_a_crowded_loop() -> None:
    turns, done = Turns(), list[int]()
    for number in range(1, 10):
        turns.take_late(piece(done, -number, 0.0))
    assert not turns.crowded
    for number in range(1, 7):
        turns.take(piece(done, number, 0.0))
    await asyncio.wait_for(turns.come_last(), 20)
    assert done == [1, 2, 3, -1, 4, 5, 6, -2, -3, -4, -5, -6, -7, -8, -9]


async def test_coming_last_waits_for_what_comes_of_work_that_can_wait() -> None:
    turns, done = Turns(), list[int]()
    turns.take_late(lambda: turns.take(piece(done, 1)))
    await asyncio.wait_for(turns.come_last(), 20)
    assert done == [1]


async def test_work_that_is_taken_by_work_comes_behind() -> None:
    turns, done = Turns(), list[int]()
    turns.take(lambda: turns.take(piece(done, 2)))
    turns.take(piece(done, 1))
    await turns.come()
    await turns.come()
    assert done == [1, 2]


async def test_who_does_not_wait_any_more_holds_up_nobody() -> None:
    turns, done = Turns(), list[int]()
    turns.take(piece(done, 0))
    waiting = asyncio.create_task(turns.come())
    await asyncio.sleep(0)
    waiting.cancel()
    turns.take(piece(done, 1))
    await asyncio.wait_for(turns.come(), 20)
    assert done == [0, 1]


async def test_a_failure_costs_no_other_work() -> None:
    turns, done, told = Turns(), list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    turns.take(lambda: done.remove(0))
    turns.take(piece(done, 1))
    await asyncio.wait_for(turns.come(), 20)
    assert done == [1]
    assert [type(error) for error in told] == [ValueError]


async def test_while_calls_arrive_shares_leave_iterations_bare() -> None:
    turns, done = Turns(), list[int]()

    def work(number: int) -> None:
        turns.make_way()
        piece(done, number)()

    for number in range(6):
        turns.take(partial(work, number))
    iterations = 0
    while len(done) < 6:
        await asyncio.sleep(0)
        iterations += 1
    assert done == list(range(6))
    assert iterations > BARE_ITERATIONS


async def test_a_long_piece_leaves_an_iteration_to_others() -> None:
    turns, done, loop = Turns(), list[int](), asyncio.get_running_loop()

    def work(number: int) -> None:
        piece(done, number, SHARE_S + 2 * LONG_S)()
        # What comes of it, a timer that is overdue say, stands behind the next share in the queue of the loop.
        loop.call_soon(loop.call_soon, done.append, -number)

    for number in (1, 2):
        turns.take(partial(work, number))
    await turns.come()
    assert done[:3] == [1, -1, 2]

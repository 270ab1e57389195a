"""Stream work yields to other work once it has had its share of an iteration.

Also the event with a single waiter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import monotonic

from xds.server.flow.limits import DEFAULT_FLOW
from xds.server.flow.work_queue import WorkQueue, wake

PIECE_S = DEFAULT_FLOW.share_s / 2


def piece(done: list[int], number: int, takes_s: float = PIECE_S) -> Callable[[], None]:
    def work() -> None:
        end = monotonic() + takes_s
        while monotonic() < end:
            pass
        done.append(number)

    return work


async def test_others_run_between_the_pieces_of_a_burst() -> None:
    queue, done = WorkQueue(), list[int]()
    for number in range(50):
        queue.submit(piece(done, number))
    seen = [0]
    while len(done) < 50:
        await asyncio.sleep(0)
        seen.append(len(done))
    # Without a queue the whole burst runs in one iteration. A share also runs the item that exceeds it, and no more.
    assert max(later - earlier for earlier, later in pairwise(seen)) <= DEFAULT_FLOW.share_s / PIECE_S + 1


async def test_first_come_first_served() -> None:
    queue, done = WorkQueue(), list[int]()
    for number in range(20):
        queue.submit(piece(done, number))
    assert queue.is_busy
    await asyncio.wait_for(queue.barrier(), 20)
    assert done == list(range(20))
    assert not queue.is_busy


async def test_the_first_item_of_an_iteration_runs_at_once() -> None:
    queue, done = WorkQueue(), list[int]()
    for number in range(3):
        queue.run_first(piece(done, number, 0.0))
    assert done == [0]
    await queue.barrier()
    assert done == [0, 1, 2]


async def test_a_long_first_item_leaves_an_iteration_to_others() -> None:
    queue, done = WorkQueue(), list[int]()
    queue.run_first(piece(done, 0, 2 * DEFAULT_FLOW.long_item_s))
    queue.run_first(piece(done, 1, 0.0))
    await asyncio.sleep(0)
    assert done == [0]
    await queue.barrier()
    assert done == [0, 1]


async def test_low_priority_items_get_every_fourth_place() -> None:
    queue, done = WorkQueue(), list[int]()
    for number in range(1, 10):
        queue.submit_low(piece(done, -number, 0.0))
    assert not queue.is_busy
    for number in range(1, 7):
        queue.submit(piece(done, number, 0.0))
    await asyncio.wait_for(queue.barrier_low(), 20)
    assert done == [1, 2, 3, -1, 4, 5, 6, -2, -3, -4, -5, -6, -7, -8, -9]


async def test_the_barrier_waits_for_items_that_low_priority_items_submit() -> None:
    queue, done = WorkQueue(), list[int]()
    queue.submit_low(lambda: queue.submit(piece(done, 1)))
    await asyncio.wait_for(queue.barrier_low(), 20)
    assert done == [1]


async def test_work_that_is_taken_by_work_comes_behind() -> None:
    queue, done = WorkQueue(), list[int]()
    queue.submit(lambda: queue.submit(piece(done, 2)))
    queue.submit(piece(done, 1))
    await queue.barrier()
    await queue.barrier()
    assert done == [1, 2]


async def test_a_cancelled_waiter_does_not_delay_others() -> None:
    queue, done = WorkQueue(), list[int]()
    queue.submit(piece(done, 0))
    waiting = asyncio.create_task(queue.barrier())
    await asyncio.sleep(0)
    waiting.cancel()
    queue.submit(piece(done, 1))
    await asyncio.wait_for(queue.barrier(), 20)
    assert done == [0, 1]


async def test_a_failing_item_does_not_stop_other_items() -> None:
    queue, done, told = WorkQueue(), list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    queue.submit(lambda: done.remove(0))
    queue.submit(piece(done, 1))
    await asyncio.wait_for(queue.barrier(), 20)
    assert done == [1]
    assert [type(error) for error in told] == [ValueError]


async def test_a_long_piece_leaves_an_iteration_to_others() -> None:
    queue, done, loop = WorkQueue(), list[int](), asyncio.get_running_loop()

    def work(number: int) -> None:
        piece(done, number, DEFAULT_FLOW.share_s + 2 * DEFAULT_FLOW.long_item_s)()
        # Its effects, such as an overdue timer, run after the next share.
        loop.call_soon(loop.call_soon, done.append, -number)

    for number in (1, 2):
        queue.submit(partial(work, number))
    await queue.barrier()
    assert done[:3] == [1, -1, 2]


async def test_a_waiter_is_woken_once_and_not_after_it_was_cancelled() -> None:
    waiters = [asyncio.get_running_loop().create_future() for _ in range(2)]
    waiters[1].cancel()
    for waiter in (*waiters, *waiters, None):
        wake(waiter)
    await asyncio.wait_for(waiters[0], 20)
    assert waiters[1].cancelled()

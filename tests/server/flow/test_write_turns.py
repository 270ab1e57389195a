"""Large bodies that may start together are handed to the transport some at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection

from tests.server.conftest import until, within
from xds.server.flow.limits import FlowLimits
from xds.server.flow.write_limiter import WriteLimiter

AT_ONCE = 1_000


async def nobody(peers: Collection[str]) -> None:
    raise AssertionError(peers)


class Writes:
    """Bodies that are written, by the iteration of the loop in which they are."""

    def __init__(self) -> None:
        self.limiter = WriteLimiter(1 << 20, nobody, FlowLimits(write_bytes_at_once=AT_ONCE))
        self.written: list[bytes] = []
        self.iterations: Counter[int] = Counter()
        self._iteration = 0
        self._tick()

    def _tick(self) -> None:
        self._iteration += 1
        asyncio.get_running_loop().call_soon(self._tick)

    async def _transport(self, body: bytes) -> None:
        self.written.append(body)
        self.iterations[self._iteration] += len(body)

    def begin(self, body: bytes) -> asyncio.Task[None]:
        return asyncio.create_task(self.limiter.write(body, self._transport, "", ""))


async def test_large_bodies_start_some_at_a_time_in_order() -> None:
    writes = Writes()
    bodies = [bytes((number,)) * 600 for number in range(50)]
    await within(asyncio.gather(*map(writes.begin, bodies)))
    assert writes.written == bodies
    # The bodies that were granted in one iteration are written in the next, beside those of its own.
    assert max(writes.iterations.values()) <= 2 * AT_ONCE + 600


async def test_a_body_that_is_larger_than_the_share_is_written_alone() -> None:
    writes = Writes()
    bodies = [bytes((number,)) * 5 * AT_ONCE for number in range(5)]
    await within(asyncio.gather(*map(writes.begin, bodies)))
    assert writes.written == bodies
    assert max(writes.iterations.values()) == 5 * AT_ONCE


async def test_a_cancelled_write_takes_no_turn() -> None:
    writes = Writes()
    tasks = [writes.begin(bytes((number,)) * AT_ONCE) for number in range(10)]
    await until(lambda: bool(writes.written))
    for task in tasks[3:9]:
        task.cancel()
    await within(asyncio.wait(tasks))
    assert [body[0] for body in writes.written] == [0, 1, 2, 9]
    await within(writes.begin(b"later"))
    assert writes.limiter.lanes.used_bytes == 0

"""The work queue: a cooperative scheduler that bounds how long stream work holds the event loop.

A push makes work for every stream of a group, and the ACKs arrive together. Run at once, these hundreds of short work
items would delay HTTP requests and pushes to other groups. So each iteration of the loop runs a bounded share of them,
and the rest waits for later iterations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic

from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits

WorkItem = Callable[[], None]


class WorkQueue:
    """The stream work of one event loop: two FIFO queues.

    The urgent queue has work that a client waits for. Low-priority work, such as closing streams, gets every fourth
    item while both queues have work.
    """

    __slots__ = ("_ends_at", "_limits", "_low", "_pause", "_running", "_since_low", "_urgent")

    def __init__(self, limits: FlowLimits = DEFAULT_FLOW) -> None:
        self._limits = limits
        self._ends_at = 0.0
        self._low: deque[WorkItem] = deque()
        self._pause = False  # True: the next iteration runs no stream work
        self._running = False
        self._since_low = 0  # urgent items since the last low-priority one
        self._urgent: deque[WorkItem] = deque()

    @property
    def is_busy(self) -> bool:
        """True while work is queued that a client waits for."""
        return bool(self._urgent)

    def submit(self, item: WorkItem) -> None:
        """Run ``item`` behind all that was submitted before. It must be short, and must not raise."""
        self._urgent.append(item)
        if not self._running:
            self._start()

    def run_first(self, item: WorkItem) -> None:
        """As ``submit``, but the first item of an iteration runs at once. Others in its state take the outcome then."""
        if self._running:
            self._urgent.append(item)
            return
        self._start()
        began = monotonic()
        item()
        self._pause = monotonic() - began > self._limits.long_item_s

    def submit_low(self, item: WorkItem) -> None:
        """As ``submit``, with low priority."""
        self._low.append(item)
        if not self._running:
            self._start()

    def _start(self) -> None:
        self._running = True
        asyncio.get_running_loop().call_soon(self._run)

    async def barrier(self, charge_s: float = 0.0) -> None:
        """Return when the urgent work submitted before has run.

        The caller's next step, of about ``charge_s``, is charged to the share of this iteration.
        """
        reached = asyncio.get_running_loop().create_future()
        self.submit(partial(self._reach, reached, charge_s))
        await reached

    async def barrier_low(self) -> None:
        """Return when all work submitted before has run, of both priorities."""
        reached = asyncio.get_running_loop().create_future()
        self.submit_low(partial(self._reach, reached, 0.0))
        await reached
        await self.barrier()

    def _reach(self, reached: asyncio.Future[None], charge_s: float) -> None:
        if not reached.done():
            self._ends_at -= charge_s
            reached.set_result(None)

    def _run(self) -> None:
        """Run one iteration's share."""
        if self._pause:
            self._pause = False
            asyncio.get_running_loop().call_soon(self._run)
            return
        limits, urgent, low = self._limits, self._urgent, self._low
        self._ends_at = ends_at = monotonic() + limits.share_s
        try:
            for _ in range(min(len(urgent) + len(low), limits.share_items)):
                (self._next_queue() if low else urgent).popleft()()
                if monotonic() > self._ends_at:
                    break
        finally:
            self._running = bool(urgent or low)
            if self._running:
                self._pause = monotonic() - ends_at > limits.long_item_s
                asyncio.get_running_loop().call_soon(self._run)

    def _next_queue(self) -> deque[WorkItem]:
        """The queue of the next item, while low-priority work is queued."""
        if self._urgent and self._since_low < self._limits.urgent_per_low:
            self._since_low += 1
            return self._urgent
        self._since_low = 0
        return self._low


Waiter = asyncio.Future[None] | None
"""What one task waits for: a future while it waits, because an ``asyncio.Event`` for each takes 0.9 kB of a stream."""


def wake(waiter: Waiter) -> None:
    """Wake the task that waits, if any."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)

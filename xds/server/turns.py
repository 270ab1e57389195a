"""Fair shares of the event loop: the work of many streams never keeps everybody else waiting.

A push gives all streams of a group something to do, and their ACKs come back together: hundreds of short pieces of
work, at whose end a request of the admin API or another group's push would still wait. So stream work takes turns: an
iteration of the loop does a share of it, and what is left waits for the next ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic

SHARE_S = 0.0015
PIECES = 32  # of an iteration
PIECES_OF_TASKS = 8  # ... where each leads to work of its stream's tasks, a write or the next read

# gRPC takes in one call at a time, in some four iterations of the loop: fifty a second, were all of them full of work.
# While calls arrive, so many iterations without stream work come behind each share.
BARE_ITERATIONS = 24
ARRIVING_S = 0.1

HURRY_PIECES = 3  # in a row, while there are pieces that can wait

LONG_S = 0.003  # a piece can take longer than a share: then others have an iteration before the next

Work = Callable[[], None]


class Turns:
    """The queues of one loop's stream work, each first come, first served.

    Most work is awaited by a client. Some can wait, such as leaving: of a crowded loop it has every fourth piece.
    """

    __slots__ = ("_arriving_until", "_bare", "_ends_at", "_hurried", "_queue", "_running", "_waiting", "pieces")

    def __init__(self, pieces: int = PIECES) -> None:
        self.pieces = pieces
        self._arriving_until = 0.0
        self._bare = 0
        self._ends_at = 0.0
        self._hurried = 0  # pieces since the last one that could wait
        self._queue: deque[Work] = deque()
        self._running = False
        self._waiting: deque[Work] = deque()

    @property
    def crowded(self) -> bool:
        """True while some client waits for a turn."""
        return bool(self._queue)

    def take(self, work: Work) -> None:
        """Do ``work`` when it is its turn. It must be short, and must not raise."""
        self._queue.append(work)
        self._start()

    def take_late(self, work: Work) -> None:
        """As ``take``, for what can wait."""
        self._waiting.append(work)
        self._start()

    def _start(self) -> None:
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)

    def make_way(self) -> None:
        """A call has arrived, and others may be behind it."""
        self._arriving_until = monotonic() + ARRIVING_S

    async def come(self, takes_s: float = 0.0) -> None:
        """Return when all that was taken before is done. What the caller does then takes ``takes_s`` of the share."""
        turn = asyncio.get_running_loop().create_future()
        self.take(partial(self._call, turn, takes_s))
        await turn

    async def come_last(self) -> None:
        """Return when all that was taken before is done, what can wait as well."""
        turn = asyncio.get_running_loop().create_future()
        self.take_late(partial(self._call, turn, 0.0))
        await turn
        await self.come()

    def _call(self, turn: asyncio.Future[None], takes_s: float) -> None:
        if not turn.done():
            self._ends_at -= takes_s
            turn.set_result(None)

    def _run(self) -> None:
        """One iteration's share."""
        if self._bare:
            self._bare -= 1
            asyncio.get_running_loop().call_soon(self._run)
            return
        queue, waiting = self._queue, self._waiting
        self._ends_at = ends_at = monotonic() + SHARE_S
        try:
            for _ in range(min(len(queue) + len(waiting), self.pieces)):
                (self._next() if waiting else queue).popleft()()
                if monotonic() > self._ends_at:
                    break
        finally:
            self._running = bool(queue or waiting)
            if self._running:
                self._bare = self._bare_iterations(ends_at)
                asyncio.get_running_loop().call_soon(self._run)

    def _next(self) -> deque[Work]:
        """The queue whose turn it is, while there is work that can wait."""
        if self._queue and self._hurried < HURRY_PIECES:
            self._hurried += 1
            return self._queue
        self._hurried = 0
        return self._waiting

    def _bare_iterations(self, ends_at: float) -> int:
        """How many iterations without stream work come behind a share that was to end then."""
        if ends_at < self._arriving_until:
            return BARE_ITERATIONS
        return 1 if monotonic() - ends_at > LONG_S else 0

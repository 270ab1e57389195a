"""Admission of streams: a fleet that comes at once is taken up in order, some at a time.

A stream that waits costs next to nothing: its first request, with a node of 60 kB perhaps, is not read but left to the
transport's flow control. One that is admitted holds a place until its first request was taken up: the places bound how
much work on newcomers stands between the streams that are there already and their turns (`xds.server.turns`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

from xds.server.metrics import Metrics

PLACES = 128
# Real clients send their first message along with the connection, and the stream. One that does not gives up its place
# and is heard whenever it speaks, so that those who say nothing hold up nobody.
FIRST_MESSAGE_S = 0.1
ANSWER_S = 1.0  # for who did speak; the loop is overloaded then, or the client sends slowly


class Place:
    """The place of one admitted stream."""

    __slots__ = ("_admission", "_heard", "_timer")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(FIRST_MESSAGE_S, self._expire)
        self._heard = False

    def hear(self) -> None:
        """The stream's first request is there."""
        self._heard = True

    def leave(self) -> None:
        """The stream's first request is taken up, or it has ended. Harmless when repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._admission._left()

    def _expire(self) -> None:
        if self._heard and self._timer is not None:
            self._heard = False
            self._timer = asyncio.get_running_loop().call_later(ANSWER_S, self._expire)
        else:
            self.leave()


class Admission:
    """The line of one server."""

    def __init__(self, metrics: Metrics, places: int = PLACES) -> None:
        self._metrics = metrics
        self._free = places
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> Place:
        """Wait for a place; first come, first served."""
        began_at = monotonic()
        if self._free and not self._line:
            self._free -= 1
        else:
            await self._wait()
        self._metrics.admission_seconds.observe(monotonic() - began_at)
        return Place(self)

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self._metrics.awaiting_admission += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._left()  # it was given a place just now
            raise
        finally:
            self._metrics.awaiting_admission -= 1

    def _left(self) -> None:
        """A place is free: the next one takes it."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

"""Fair shares of the event loop: the work of many streams never keeps everybody else waiting.

A push wakes all streams of a group, and their ACKs come back together: hundreds of short pieces of work in one
iteration of the loop, at whose end a request of the admin API or another group's push still waits. So stream work takes
turns: once an iteration has had its share of it, what is left waits for the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

SHARE_S = 0.004
_WOKEN_AT_ONCE = 64  # those that find the share used up wait again


class Turns:
    """One loop's share of stream work. ``if turns.over(): await turns.wait()`` before each piece of it."""

    __slots__ = ("_ends_at", "_renewing", "_share_s", "_waiting")

    def __init__(self, share_s: float = SHARE_S) -> None:
        self._share_s = share_s
        self._ends_at = 0.0
        self._renewing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def crowded(self) -> bool:
        """True while somebody waits for a turn."""
        return bool(self._waiting)

    def over(self) -> bool:
        """True when this iteration of the loop has done its share."""
        now = monotonic()
        if not self._ends_at:
            self._ends_at = now + self._share_s
            self._renew_soon()
            return False
        return now > self._ends_at

    async def wait(self) -> None:
        """Return in an iteration that has some of its share left; first come, first served by and large."""
        while self.over():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            self._renew_soon()
            await turn

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """A new iteration has begun."""
        self._renewing = False
        self._ends_at = 0.0
        for _ in range(min(len(self._waiting), _WOKEN_AT_ONCE)):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._waiting:
            self._renew_soon()

"""Fair shares of the event loop: the work of many streams never keeps everybody else waiting.

A push wakes all streams of a group, and their ACKs come back together: hundreds of short pieces of work in one
iteration of the loop, at whose end a request of the admin API or another group's push still waits. So stream work takes
turns: once an iteration has had its share of it, what is left waits for the next ones, as much in each as keeps it
short.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

SHARE_S = 0.002  # without waiting
ITERATION_S = 0.004  # of the loop, while somebody waits
_AT_LEAST = 4
_AT_MOST = 32


class Turns:
    """One loop's share of stream work. ``if turns.over(): await turns.wait()`` before each piece of it."""

    __slots__ = ("_began_at", "_ends_at", "_renewing", "_turns", "_waiting")

    def __init__(self) -> None:
        self._began_at = 0.0
        self._ends_at = 0.0
        self._renewing = False
        self._turns = _AT_LEAST  # given in an iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def crowded(self) -> bool:
        """True while somebody waits for a turn."""
        return bool(self._waiting)

    def over(self) -> bool:
        """True when this iteration of the loop has done its share, or others came first."""
        if self._waiting:
            return True
        now = monotonic()
        if not self._ends_at:
            self._ends_at = now + SHARE_S
            self._renew_soon()
        return now > self._ends_at

    async def wait(self) -> None:
        """Return when it is the caller's turn; first come, first served."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._renew_soon()
        await turn

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """A new iteration has begun: give turns. This is called again behind those that got one."""
        now = monotonic()
        if self._began_at:
            self._adapt(now - self._began_at)
        self._renewing = False
        self._ends_at = 0.0
        given = 0
        while self._waiting and given < self._turns:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                given += 1
        self._began_at = now if given else 0.0
        if given:
            self._renew_soon()

    def _adapt(self, took_s: float) -> None:
        """Give more turns after a short iteration, fewer after a long one, whatever made it long."""
        wanted = self._turns * min(2.0, ITERATION_S / max(took_s, 1e-6))
        self._turns = min(max(int(wanted), _AT_LEAST), _AT_MOST)

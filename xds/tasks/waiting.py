"""Callers that wait for a change. Their number is bounded, and only a change of their subject wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from xds.model.errors import XdsError


class TooManyWaitersError(XdsError):
    """Too many callers wait for a change already."""


class Waiters:
    """Callers that wait for subjects to change; ``what`` names the subjects in errors."""

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self._what = what
        self._count = 0
        self._is_ending = False
        self._changed: dict[str, tuple[asyncio.Event, int]] = {}  # by subject, with the number of waiting callers

    def __len__(self) -> int:
        return self._count

    def wake(self, subjects: Iterable[str]) -> None:
        """Wake the callers that wait for these subjects."""
        for subject in subjects:
            if subject in self._changed:
                event, count = self._changed[subject]
                self._changed[subject] = (asyncio.Event(), count)
                event.set()

    def end(self) -> None:
        """Let all waiting callers return, now and from now on."""
        self._is_ending = True
        self.wake(list(self._changed))

    async def wait(self, subject: str, after: int, current: Callable[[], int], wait_s: float) -> None:
        """Return when ``current()`` is above ``after``, or after ``wait_s`` seconds. Each wake calls ``current``.

        Raises ``TooManyWaitersError``, and what ``current`` raises.
        """
        if current() > after or wait_s <= 0:
            return
        if self._count >= self.limit:
            raise TooManyWaitersError(f"{self.limit} requests wait for {self._what} already")
        self._enter(subject)
        try:
            async with asyncio.timeout(wait_s):
                while not self._is_ending and current() <= after:
                    await self._changed[subject][0].wait()
        except TimeoutError:
            return
        finally:
            self._leave(subject)

    def _enter(self, subject: str) -> None:
        event, count = self._changed.get(subject, (asyncio.Event(), 0))
        self._changed[subject] = (event, count + 1)
        self._count += 1

    def _leave(self, subject: str) -> None:
        event, count = self._changed[subject]
        if count == 1:
            del self._changed[subject]
        else:
            self._changed[subject] = (event, count - 1)
        self._count -= 1

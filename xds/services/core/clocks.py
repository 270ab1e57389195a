"""Clocks of TTL checks. Time in which the server does not run does not count. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SPARE = 100  # stale entries that the heap may have besides one for each deadline


class Deadlines(Generic[K]):
    """Deadlines by key, in epoch seconds. The cost of resetting one does not depend on their number."""

    __slots__ = ("_due", "_heap", "_number", "_shift")

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        # Each key has an entry with a time at or before its deadline. Times here are without ``_shift``.
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0  # orders equal times
        self._shift = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, at: float) -> None:
        """Set the deadline of a key."""
        due = at - self._shift
        previous = self._due.get(key)
        self._due[key] = due
        if previous is None or due < previous:
            self._push(due, key)

    def drop(self, key: K) -> None:
        """Forget a key."""
        self._due.pop(key, None)

    def at(self, key: K) -> float | None:
        """The deadline of a key; None if it has none."""
        due = self._due.get(key)
        return due + self._shift if due is not None else None

    def take_due(self, now: float, limit: int) -> list[K]:
        """Take the keys with an expired deadline, the earliest first; at most ``limit``."""
        expired: list[K] = []
        while self._heap and self._heap[0][0] + self._shift <= now and len(expired) < limit:
            _, _, key = heappop(self._heap)
            due = self._due.get(key)
            if due is None:
                continue
            if due + self._shift <= now:
                del self._due[key]
                expired.append(key)
            else:
                self._push(due, key)
        return expired

    def shift(self, seconds: float) -> None:
        """Move all deadlines."""
        self._shift += seconds

    def _push(self, due: float, key: K) -> None:
        self._number += 1
        heappush(self._heap, (due, self._number, key))
        if len(self._heap) > 2 * len(self._due) + SPARE:
            self._heap = [(at, number, key) for number, (key, at) in enumerate(self._due.items())]
            self._number = len(self._heap)
            heapify(self._heap)


class Clocks(Generic[K]):
    """Clocks by key that end. ``take_ended`` must be called at least every ``longest_tick_s`` seconds.

    After a longer time without a call, the process is taken not to have run: it was stopped, its machine slept, or its
    clock was set. No heartbeat could arrive meanwhile, so all clocks are extended by that time. ``lost_s`` is the sum
    of these times.
    """

    __slots__ = ("_called_at", "_deadlines", "_longest_tick_s", "lost_s")

    def __init__(self, longest_tick_s: float, now: float) -> None:
        self.lost_s = 0.0
        self._deadlines: Deadlines[K] = Deadlines()
        self._longest_tick_s = longest_tick_s
        self._called_at = now

    def __len__(self) -> int:
        return len(self._deadlines)

    def begin(self, key: K, span_s: float, now: float) -> None:
        """Start a clock, or restart it."""
        self._extend_after_pause(now)
        self._deadlines.set(key, now + span_s)

    def stop(self, key: K) -> None:
        """Stop a clock, if it runs."""
        self._deadlines.drop(key)

    def ends_at(self, key: K) -> float | None:
        """When a clock ends (epoch seconds); None if it does not run."""
        return self._deadlines.at(key)

    def take_ended(self, now: float, limit: int) -> list[K]:
        """Take the clocks that have ended, at most ``limit``."""
        self._extend_after_pause(now)
        return self._deadlines.take_due(now, limit)

    def _extend_after_pause(self, now: float) -> None:
        passed, self._called_at = now - self._called_at, now
        if not 0 <= passed <= self._longest_tick_s:
            self._deadlines.shift(passed)
            self.lost_s += max(0.0, passed)

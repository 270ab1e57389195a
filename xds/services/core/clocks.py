"""Clocks of TTL checks. Time in which the server does not run does not count. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SPARE = 100  # stale entries that the heap may have besides one for each clock


class Clocks(Generic[K]):
    """Clocks by key that end. ``take_ended`` must be called at least every ``longest_tick_s`` seconds.

    After a longer time without a call, the process is taken not to have run: it was stopped, its machine slept, or its
    clock was set. No heartbeat could arrive meanwhile, so all clocks are extended by that time. ``lost_s`` is the sum
    of these times. The cost of restarting a clock does not depend on their number.
    """

    __slots__ = ("_called_at", "_ends", "_heap", "_longest_tick_s", "_number", "_shift", "lost_s")

    def __init__(self, longest_tick_s: float, now: float) -> None:
        self.lost_s = 0.0
        self._longest_tick_s = longest_tick_s
        self._called_at = now
        self._ends: dict[K, float] = {}
        # Each key has an entry with a time at or before its end. Times here and in ``_ends`` are without ``_shift``.
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0  # orders equal times
        self._shift = 0.0

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, key: K, span_s: float, now: float) -> None:
        """Start a clock, or restart it."""
        self._extend_after_pause(now)
        end, previous = now + span_s - self._shift, self._ends.get(key)
        self._ends[key] = end
        if previous is None or end < previous:
            self._push(end, key)

    def stop(self, key: K) -> None:
        """Stop a clock, if it runs."""
        self._ends.pop(key, None)

    def ends_at(self, key: K) -> float | None:
        """When a clock ends (epoch seconds); None if it does not run."""
        end = self._ends.get(key)
        return end + self._shift if end is not None else None

    def take_ended(self, now: float, limit: int) -> list[K]:
        """Take the clocks that have ended, the earliest first; at most ``limit``."""
        self._extend_after_pause(now)
        ended: list[K] = []
        while self._heap and self._heap[0][0] + self._shift <= now and len(ended) < limit:
            _, _, key = heappop(self._heap)
            end = self._ends.get(key)
            if end is None:
                continue
            if end + self._shift <= now:
                del self._ends[key]
                ended.append(key)
            else:
                self._push(end, key)
        return ended

    def _push(self, end: float, key: K) -> None:
        self._number += 1
        heappush(self._heap, (end, self._number, key))
        if len(self._heap) > 2 * len(self._ends) + SPARE:
            self._heap = [(at, number, key) for number, (key, at) in enumerate(self._ends.items())]
            self._number = len(self._heap)
            heapify(self._heap)

    def _extend_after_pause(self, now: float) -> None:
        passed, self._called_at = now - self._called_at, now
        if not 0 <= passed <= self._longest_tick_s:
            self._shift += passed
            self.lost_s += max(0.0, passed)

"""What was counted when: buckets of a second for two minutes, of a minute for an hour.

Edges are whole epoch seconds. A report is spread evenly over the seconds that it measured, so a window that cuts
through it gets its part.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from xds.load.bounds import MINUTES, SECONDS

_SECONDS_ROOM, _MINUTES_ROOM = bytes(8 * SECONDS), bytes(8 * MINUTES)


def edge_of(now: float) -> int:
    """The edge between two seconds that is nearest."""
    return int(now + 0.5)


class History:
    """Some counters side by side. ``head`` is the edge up to which there is room: what is later is zero."""

    __slots__ = ("_lanes", "_minutes", "_seconds", "head")

    def __init__(self, lanes: int) -> None:
        self.head = 0
        self._lanes = range(lanes)
        self._seconds = [array("d", _SECONDS_ROOM) for _ in self._lanes]
        self._minutes = [array("d", _MINUTES_ROOM) for _ in self._lanes]

    def add(self, end: int, length: int, counts: Sequence[float]) -> None:
        """Count what came in the ``length`` seconds before ``end``. What is too old for the buckets is not counted."""
        if end > self.head:
            self._advance(end)
        begin = end - length
        places = [second % SECONDS for second in range(max(begin, self.head - SECONDS), end)]
        parts = self._parts(begin, end)
        for lane in self._lanes:
            if counts[lane]:
                each = counts[lane] / length
                seconds, minutes = self._seconds[lane], self._minutes[lane]
                for place in places:
                    seconds[place] += each
                for place, overlap_s in parts:
                    minutes[place] += each * overlap_s

    def sum(self, begin: int, end: int) -> list[float]:
        """The counters between two edges. Minutes that are cut, and no longer known by seconds, give their part."""
        oldest = self.head - SECONDS
        if begin >= oldest:
            return [self._sum_seconds(seconds, begin, end) for seconds in self._seconds]
        seam = min(end, -(-oldest // 60) * 60)
        parts = self._parts(begin, seam)
        return [
            self._sum_seconds(seconds, seam, end) + sum(minutes[place] * overlap_s for place, overlap_s in parts) / 60
            for seconds, minutes in zip(self._seconds, self._minutes, strict=True)
        ]

    def _advance(self, end: int) -> None:
        for second in range(max(self.head, end - SECONDS), end):
            for seconds in self._seconds:
                seconds[second % SECONDS] = 0.0
        last = _minute_after(end)
        for minute in range(max(_minute_after(self.head), last - MINUTES), last):
            for minutes in self._minutes:
                minutes[minute % MINUTES] = 0.0
        self.head = end

    def _parts(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The minutes between two edges, those there is room for: place, and how many seconds of it."""
        last = _minute_after(self.head)
        return [
            (minute % MINUTES, min(end, 60 * minute + 60) - max(begin, 60 * minute))
            for minute in range(max(begin // 60, last - MINUTES), min(_minute_after(end), last))
        ]

    def _sum_seconds(self, seconds: array[float], begin: int, end: int) -> float:
        end = min(end, self.head)
        if begin >= end:
            return 0.0
        first, last = begin % SECONDS, (end - 1) % SECONDS + 1
        if first < last:
            return sum(seconds[first:last])
        return sum(seconds[first:]) + sum(seconds[:last])


def _minute_after(edge: int) -> int:
    return -(-edge // 60)

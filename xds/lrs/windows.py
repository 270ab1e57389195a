"""What was counted when: in reports for two minutes, then in minutes for an hour.

Edges are whole epoch seconds. A report is kept by the second at which it ended, with its length: it is spread evenly
over the seconds that it measured when somebody asks, so a window that cuts through it gets its part.

The windows of one row of load: traffic, drops of a category, a metric.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from operator import add

SECONDS = 120  # for which reports are kept by the second
MINUTES = 62  # an hour, wherever in a minute it begins, and what comes late
ODD_REPORTS = 16  # kept apart in a window

_SECONDS_ROOM, _MINUTES_ROOM = bytes(8 * SECONDS), bytes(8 * MINUTES)
_LENGTHS_ROOM = bytes(4 * SECONDS)


def edge_of(now: float) -> int:
    """The edge between two seconds that is nearest."""
    return int(now + 0.5)


class History:
    """Some counters side by side. ``head`` is the latest edge at which a report ended.

    Reports that ended at one edge have one length as a rule, and are one sum. Those of another length are kept apart
    (``_odd``), so many of them; beyond that they are taken for as long as the others.
    """

    __slots__ = ("_counts", "_first", "_lengths", "_minutes", "_odd", "head")

    def __init__(self, lanes: int) -> None:
        self.head = 0
        self._first = 0  # where the earliest report began
        self._lengths = array("i", _LENGTHS_ROOM)  # by end; 0 where none ended
        self._counts = [array("d", _SECONDS_ROOM) for _ in range(lanes)]  # likewise
        self._minutes = [array("d", _MINUTES_ROOM) for _ in range(lanes)]
        self._odd: list[tuple[int, int, Sequence[float]]] = []

    def add(self, end: int, length: int, counts: Sequence[float]) -> None:
        """Count what came in the ``length`` seconds before ``end``."""
        if end - length < self._first or not self.head:
            self._first = end - length
        if end > self.head:
            self._advance(end)
        elif end <= self.head - SECONDS:
            self._fold(end, length, counts)
            return
        place = end % SECONDS
        known = self._lengths[place]
        if not known:
            self._lengths[place] = length
        elif known != length and len(self._odd) < ODD_REPORTS:
            self._odd.append((end, length, counts))
            return
        for lane, count in zip(self._counts, counts, strict=True):
            if count:
                lane[place] += count

    def sum(self, begin: int, end: int) -> list[float]:
        """The counters between two edges. Of minutes that are cut, their part."""
        found = self._sum_minutes(begin, end)
        # Reports that are all within are summed at once; those at the edges one by one.
        longest = max(self._lengths)
        first, last = max(begin + longest, self.head - SECONDS + 1), min(end, self.head)
        for lane, counts in enumerate(self._counts):
            found[lane] += _sum_ring(counts, first, last + 1)
        edges = [
            *range(max(begin, self.head - SECONDS) + 1, min(first, last + 1)),
            *range(last + 1, min(end + longest, self.head + 1)),
        ]
        for at in edges:
            if at <= self.head and self._lengths[at % SECONDS]:
                place = at % SECONDS
                self._add_part(found, begin, end, at, self._lengths[place], [lane[place] for lane in self._counts])
        for odd in list(self._odd):
            self._add_part(found, begin, end, *odd)
        return found

    @staticmethod
    def _add_part(found: list[float], begin: int, end: int, ended: int, length: int, counts: Sequence[float]) -> None:
        overlap_s = min(end, ended) - max(begin, ended - length)
        if overlap_s > 0:
            for lane, count in enumerate(counts):
                found[lane] += count * overlap_s / length

    def _advance(self, end: int) -> None:
        """Make room up to an edge: what leaves it goes to the minutes."""
        head, self.head = self.head, end
        last, oldest = _minute_after(end), end - SECONDS
        for minute in range(max(_minute_after(head), last - MINUTES), last):
            for minutes in self._minutes:
                minutes[minute % MINUTES] = 0.0
        for edge in range(max(head, oldest) + 1, end + 1):
            place = edge % SECONDS
            length = self._lengths[place]
            if length:
                ended = head - (head - place) % SECONDS
                counts = [lane[place] for lane in self._counts]
                self._lengths[place] = 0
                for lane in self._counts:
                    lane[place] = 0.0
                self._fold(ended, length, counts)
        if self._odd:
            odd, self._odd = self._odd, []
            for each in odd:
                if each[0] > oldest:
                    self._odd.append(each)
                else:
                    self._fold(*each)

    def _fold(self, end: int, length: int, counts: Sequence[float]) -> None:
        """Spread a report over the minutes that there is room for."""
        minute, last = (end - length) // 60, _minute_after(self.head)
        if end <= 60 * minute + 60 and last - MINUTES <= minute < last:
            for minutes, count in zip(self._minutes, counts, strict=True):  # as most do, within one minute
                minutes[minute % MINUTES] += count
            return
        for minute, overlap_s in self._overlaps(end - length, end):
            for minutes, count in zip(self._minutes, counts, strict=True):
                minutes[minute % MINUTES] += count * overlap_s / length

    def _overlaps(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        if begin >= end:
            return
        last = _minute_after(self.head)
        for minute in range(max(begin // 60, last - MINUTES), min(_minute_after(end), last)):
            yield minute, min(end, 60 * minute + 60) - max(begin, 60 * minute)

    def _sum_minutes(self, begin: int, end: int) -> list[float]:
        found = [0.0] * len(self._minutes)
        known = self.head - SECONDS  # where the minutes end, and reports begin
        for minute, overlap_s in self._overlaps(max(begin, self._first), min(end, known)):
            # A minute that is told in part is spread over that part, or a window that begins with us would lose of it.
            part = overlap_s / (min(60 * minute + 60, known) - max(60 * minute, self._first))
            for lane, minutes in enumerate(self._minutes):
                found[lane] += minutes[minute % MINUTES] * part
        return found


def _sum_ring(ring: array[float], begin: int, end: int) -> float:
    """Of the places of the edges from ``begin`` on, before ``end``; no more than once around."""
    if begin >= end:
        return 0.0
    first, last = begin % SECONDS, (end - 1) % SECONDS + 1
    return sum(ring[first:last]) if first < last else sum(ring[first:]) + sum(ring[:last])


def _minute_after(edge: int) -> int:
    return -(-edge // 60)


# When a report ended, and over how many seconds, in one number.
_LENGTH_BITS = 17
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1

Counts = tuple[int, int, int]  # successes, errors, issued
NOTHING: Counts = (0, 0, 0)


def span_of(end: int, interval_s: float) -> int:
    """The span of a report: its end, an edge, and its interval in whole seconds, one at least."""
    return end << _LENGTH_BITS | max(1, min(round(interval_s), _LENGTH_MASK))


class Window:
    """Traffic from one locality to another, or to one endpoint there.

    ``totals`` are successes, errors, issued since it is; ``last`` is the edge at which the latest report ended.
    """

    __slots__ = ("_history", "last", "totals")

    def __init__(self) -> None:
        self.last = 0
        self.totals = (0, 0, 0)
        self._history = History(3)

    def add(self, span: int, counts: Counts) -> None:
        self.last = span >> _LENGTH_BITS
        if any(counts):
            (successes, errors, issued), more = self.totals, counts
            self.totals = successes + more[0], errors + more[1], issued + more[2]
            self._history.add(self.last, span & _LENGTH_MASK, counts)

    def sum(self, begin: int, end: int) -> list[float]:
        """Successes, errors, issued between two edges."""
        return self._history.sum(begin, end)


class Reading:
    """A window with what is not in it: the counters of the latest second, which go to it later, and the gauge."""

    __slots__ = ("_counts", "_span", "_window", "in_progress")

    def __init__(self, window: Window, span: int, counts: Counts = NOTHING, in_progress: int = 0) -> None:
        self._window = window
        self._span = span
        self._counts = counts
        self.in_progress = in_progress

    @property
    def totals(self) -> list[int]:
        """Successes, errors, issued since the window is."""
        return list(map(add, self._window.totals, self._counts))

    def sum(self, begin: int, end: int) -> list[float]:
        """Successes, errors, issued between two edges."""
        found = self._window.sum(begin, end)
        last, length = self._span >> _LENGTH_BITS, self._span & _LENGTH_MASK
        overlap_s = min(end, last) - max(begin, last - length)
        if overlap_s <= 0:
            return found
        return [sum + count * overlap_s / length for sum, count in zip(found, self._counts, strict=True)]


class Counter:
    """What comes more seldom than traffic: drops of one category (one lane), a metric (requests, sum)."""

    __slots__ = ("_history", "last", "total")

    def __init__(self, lanes: int) -> None:
        self.last = 0
        self.total: float = 0
        self._history = History(lanes)

    def add(self, span: int, counts: Sequence[float]) -> None:
        end, length = span >> _LENGTH_BITS, span & _LENGTH_MASK
        self.last = end
        self.total += counts[0]
        self._history.add(end, length, counts)

    def sum(self, begin: int, end: int) -> list[float]:
        return self._history.sum(begin, end)

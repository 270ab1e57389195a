"""The windows of one row of load: traffic, drops of a category, a metric."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add

from xds.load.history import History

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

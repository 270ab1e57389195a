"""The windows of one row of load: traffic, drops of a category, a metric."""

from __future__ import annotations

from collections.abc import Sequence

from xds.load.history import History

# When a report ended, and over how many seconds, in one number.
_LENGTH_BITS = 17
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1


def span_of(end: int, interval_s: float) -> int:
    """The span of a report: its end, an edge, and its interval in whole seconds, one at least."""
    return end << _LENGTH_BITS | max(1, min(round(interval_s), _LENGTH_MASK))


class Window:
    """Traffic from one locality to another, or to one endpoint there.

    Reports of one span are summed before they go to the history: a fleet's reports of a second differ in nothing else.
    Whoever counts calls ``turn`` where ``span`` differs, then adds to the open counters. ``in_progress`` is a gauge.
    """

    __slots__ = ("_history", "_totals", "errors", "in_progress", "issued", "span", "successes")

    def __init__(self) -> None:
        self.span = 0
        self.successes = self.errors = self.issued = self.in_progress = 0
        self._totals = (0, 0, 0)
        self._history = History(3)

    def turn(self, span: int) -> None:
        """Close the open counters and open those of another span."""
        counts = self.successes, self.errors, self.issued
        self.successes = self.errors = self.issued = 0
        before, self.span = self.span, span
        if any(counts):
            successes, errors, issued = self._totals
            self._totals = successes + counts[0], errors + counts[1], issued + counts[2]
            self._history.add(before >> _LENGTH_BITS, before & _LENGTH_MASK, counts)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Successes, errors, issued since the window is."""
        successes, errors, issued = self._totals
        return successes + self.successes, errors + self.errors, issued + self.issued

    @property
    def last(self) -> int:
        """The edge at which the latest report ended."""
        return self.span >> _LENGTH_BITS

    def sum(self, begin: int, end: int) -> list[float]:
        """Successes, errors, issued between two edges."""
        found = self._history.sum(begin, end)
        last, length = self.span >> _LENGTH_BITS, self.span & _LENGTH_MASK
        overlap_s = min(end, last) - max(begin, last - length)
        if overlap_s > 0:
            part = overlap_s / length
            found[0] += self.successes * part
            found[1] += self.errors * part
            found[2] += self.issued * part
        return found


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

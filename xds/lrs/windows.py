"""Counts over time: by report for two minutes, then by minute for an hour.

Time is cut at *edges*, whole epoch seconds. A report is stored under the edge at which it ended, with its length in
seconds. Queries spread the counts of a report evenly over its length: a window that cuts through a report gets a part
of its counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from xds.lrs.packed_counters import TRAFFIC_LANES, unpack_traffic

SECONDS = 120  # reports that ended within this time are stored by the edge at which they ended
MINUTES = 62  # an hour that begins anywhere within a minute, and room for late reports
ODD_REPORTS = 16  # per window: reports whose length differs from that of others that ended at the same edge

_SECONDS_ROOM, _MINUTES_ROOM = bytes(8 * SECONDS), bytes(8 * MINUTES)
_LENGTHS_ROOM = bytes(4 * SECONDS)


def edge_of(now: float) -> int:
    """The nearest edge."""
    return int(now + 0.5)


class CountHistory:
    """The history of several counters (``lanes``). ``head`` is the latest edge at which a report ended.

    Reports that ended at one edge usually have the same length, and are stored as one sum. Reports of another length
    are stored separately (``_odd``), up to ``ODD_REPORTS``. Further ones count as if they had the common length.
    """

    __slots__ = ("_counts", "_first", "_lengths", "_minutes", "_odd", "head")

    def __init__(self, lanes: int) -> None:
        self.head = 0
        self._first = 0  # the edge at which the earliest report began
        self._lengths = array("i", _LENGTHS_ROOM)  # by edge, in a ring; 0 if no report ended there
        self._counts = [array("d", _SECONDS_ROOM) for _ in range(lanes)]  # per lane, by edge, in a ring
        self._minutes = [array("d", _MINUTES_ROOM) for _ in range(lanes)]
        self._odd: list[tuple[int, int, Sequence[float]]] = []

    def add(self, end: int, length: int, counts: Sequence[float]) -> None:
        """Add the counts of the ``length`` seconds before ``end``."""
        if end - length < self._first or not self.head:
            self._first = end - length
        if end > self.head:
            self._advance(end)
        elif end <= self.head - SECONDS:
            self._fold(end, length, counts)
            return
        slot = end % SECONDS
        common_length = self._lengths[slot]
        if not common_length:
            self._lengths[slot] = length
        elif common_length != length and len(self._odd) < ODD_REPORTS:
            self._odd.append((end, length, counts))
            return
        for lane, count in zip(self._counts, counts, strict=True):
            if count:
                lane[slot] += count

    def sum(self, begin: int, end: int) -> list[float]:
        """The counts between two edges. A minute that an edge cuts counts in part."""
        sums = self._sum_minutes(begin, end)
        # Reports that lie within the window are summed together. Reports that an edge cuts are added one by one.
        longest = max(self._lengths)
        first, last = max(begin + longest, self.head - SECONDS + 1), min(end, self.head)
        for lane, counts in enumerate(self._counts):
            sums[lane] += _sum_ring(counts, first, last + 1)
        edges = [
            *range(max(begin, self.head - SECONDS) + 1, min(first, last + 1)),
            *range(last + 1, min(end + longest, self.head + 1)),
        ]
        for at in edges:
            if at <= self.head and self._lengths[at % SECONDS]:
                slot = at % SECONDS
                self._add_part(sums, begin, end, at, self._lengths[slot], [lane[slot] for lane in self._counts])
        for odd in list(self._odd):
            self._add_part(sums, begin, end, *odd)
        return sums

    @staticmethod
    def _add_part(sums: list[float], begin: int, end: int, ended: int, length: int, counts: Sequence[float]) -> None:
        overlap_s = min(end, ended) - max(begin, ended - length)
        if overlap_s > 0:
            for lane, count in enumerate(counts):
                sums[lane] += count * overlap_s / length

    def _advance(self, end: int) -> None:
        """Advance to a later edge. Reports that are now too old for the ring move to the minutes."""
        head, self.head = self.head, end
        last, before, oldest = _minute_after(end), _minute_after(head), end - SECONDS
        if before < last:
            for minute in range(max(before, last - MINUTES), last):
                for minutes in self._minutes:
                    minutes[minute % MINUTES] = 0.0
        lengths, lanes = self._lengths, self._counts
        for edge in range(max(head, oldest) + 1, end + 1):
            slot = edge % SECONDS
            length = lengths[slot]
            if length:
                ended = head - (head - slot) % SECONDS
                counts = [lane[slot] for lane in lanes]
                lengths[slot] = 0
                for lane in lanes:
                    lane[slot] = 0.0
                self._fold(ended, length, counts)
        if self._odd:
            odd, self._odd = self._odd, []
            for each in odd:
                if each[0] > oldest:
                    self._odd.append(each)
                else:
                    self._fold(*each)

    def _fold(self, end: int, length: int, counts: Sequence[float]) -> None:
        """Add a report to the minutes."""
        minute, last = (end - length) // 60, _minute_after(self.head)
        if end <= 60 * minute + 60 and last - MINUTES <= minute < last:
            slot = minute % MINUTES
            for minutes, count in zip(self._minutes, counts, strict=True):  # most reports lie within one minute
                if count:
                    minutes[slot] += count
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
        sums = [0.0] * len(self._minutes)
        folded_until = self.head - SECONDS  # minutes are stored up to this edge, reports after it
        for minute, overlap_s in self._overlaps(max(begin, self._first), min(end, folded_until)):
            # The counts of a minute that was measured in part belong to that part. Otherwise a window that begins with
            # the first report would lose some counts.
            part = overlap_s / (min(60 * minute + 60, folded_until) - max(60 * minute, self._first))
            for lane, minutes in enumerate(self._minutes):
                sums[lane] += minutes[minute % MINUTES] * part
        return sums


def _sum_ring(ring: array[float], begin: int, end: int) -> float:
    """The sum of a ring from the edge ``begin`` to the one before ``end``; at most one round."""
    if begin >= end:
        return 0.0
    first, last = begin % SECONDS, (end - 1) % SECONDS + 1
    return sum(ring[first:last]) if first < last else sum(ring[first:]) + sum(ring[:last])


def _minute_after(edge: int) -> int:
    return -(-edge // 60)


# A span in one integer: the edge at which a report ended, and its length in seconds.
_LENGTH_BITS = 17
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1


def length_of(interval_s: float) -> int:
    """The length of an interval in whole seconds, at least 1."""
    return max(1, min(round(interval_s), _LENGTH_MASK))


def span_of(end: int, length: int) -> int:
    """The span of a report that ended at the edge ``end``."""
    return end << _LENGTH_BITS | length


class TrafficWindow:
    """The traffic from one locality to another at one priority, or to one endpoint there.

    Counters are packed (`xds.lrs.packed_counters`). ``pending``: the sum of the reports with the span ``span``, not yet
    in the history. Reports of a fleet that arrive within a second usually have the same span, so the history is updated
    once for all of them. ``in_progress`` is a gauge.
    """

    __slots__ = ("_history", "_total", "in_progress", "pending", "span")

    def __init__(self) -> None:
        self.span = 0
        self.pending = 0
        self.in_progress = 0
        self._total = 0
        self._history = CountHistory(TRAFFIC_LANES)

    @property
    def last(self) -> int:
        """The edge at which the latest report ended."""
        return self.span >> _LENGTH_BITS

    @property
    def totals(self) -> tuple[int, int, int]:
        """Successes, errors and issued requests since the window was created."""
        return unpack_traffic(self._total + self.pending)

    def add(self, span: int, counters: int) -> None:
        """Add packed counters of a report with this span."""
        if self.span != span:
            self.begin(span)
        self.pending += counters

    def begin(self, span: int) -> None:
        """Move pending counters to the history, and begin another span."""
        pending, self.pending = self.pending, 0
        if pending:
            self._total += pending
            self._history.add(self.span >> _LENGTH_BITS, self.span & _LENGTH_MASK, unpack_traffic(pending))
        self.span = span

    def sum(self, begin: int, end: int) -> list[float]:
        """Successes, errors and issued requests between two edges. Safe while another thread counts."""
        span, pending = self.span, self.pending
        sums = self._history.sum(begin, end)
        last, length = span >> _LENGTH_BITS, span & _LENGTH_MASK
        overlap_s = min(end, last) - max(begin, last - length)
        if not pending or overlap_s <= 0:
            return sums
        counts = unpack_traffic(pending)
        return [total + count * overlap_s / length for total, count in zip(sums, counts, strict=True)]


class ValueWindow:
    """The drops of one category (one lane), or a metric (two lanes: requests, sum of values)."""

    __slots__ = ("_history", "last", "total")

    def __init__(self, lanes: int) -> None:
        self.last = 0
        self.total: float = 0
        self._history = CountHistory(lanes)

    def add(self, span: int, counts: Sequence[float]) -> None:
        """Add the counts of a report with this span, one per lane."""
        end, length = span >> _LENGTH_BITS, span & _LENGTH_MASK
        self.last = end
        self.total += counts[0]
        self._history.add(end, length, counts)

    def sum(self, begin: int, end: int) -> list[float]:
        """The counts between two edges, one per lane. Safe while another thread counts."""
        return self._history.sum(begin, end)

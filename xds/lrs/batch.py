"""Clusters that clients name in the same order again and again, counted together.

All nodes with the same snapshot report the same clusters in the same order, and most of these reports have only
counters. A *batch* is up to 128 such clusters. Their names are known, so the positions of their counters are known as
well, and each step (compare names, cut, look up, add) is one call for all clusters: a fifth of the time of one by one.

    report of a node:   [web ▪▪▪][api ▪▪▪][db ▪▪▪] ...        one ClusterStats each
    BatchSlices.read:   same names? cut out the counters ──► one packed integer per cluster
    ClusterBatch.count: counters[i] += packed[i]              pending, until the interval ends
    flush_series:       pending counters ──► CounterGroup ──► windows of the series

A batch is made after its clusters were counted one by one. Where a report does not fit the batch, nothing is counted
here, and its clusters are counted one by one again (`xds.lrs.ingest`). What this buys: counting takes 23 to 36 % less
time with 40 nodes, and 43 to 62 % less with 600.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, getitem
from typing import TYPE_CHECKING, NamedTuple, cast

from xds.lrs.packed_counters import (
    ClusterCounters,
    ClusterParts,
    CounterDecoder,
    LocalityLayout,
    NotOnlyCountersError,
    head_of,
    interval_bytes,
)

if TYPE_CHECKING:
    from xds.lrs.series import CounterGroup, LoadSeries

BATCHES_LIMIT = 4  # of one series: different orders in which clients name it among others
BATCH_MINIMUM = 4  # clusters; fewer are counted one by one

_cut = cast(Callable[[bytes, slice], bytes], getitem)


class _Positions(NamedTuple):
    """Where counters and intervals are in each cluster's report."""

    counters: list[slice]
    intervals: list[slice]


class BatchSlices:
    """BatchSlices the reports of known clusters, in their order."""

    __slots__ = ("_by_interval", "_counters_of", "_heads", "_names_bytes", "_tails")

    def __init__(self, clusters: Sequence[ClusterParts], decoder: CounterDecoder) -> None:
        """``clusters`` as ``decoder.read`` returned them."""
        # The name comes first in a report, the service name last, if there is one.
        self._heads = [head_of(stats) for stats, *_ in clusters]
        self._tails = [names.removeprefix(head) for (_, names, *_), head in zip(clusters, self._heads, strict=True)]
        self._names_bytes = sum(len(names) for _, names, *_ in clusters)
        self._counters_of = decoder.counters_of
        self._by_interval: dict[int, _Positions] = {}

    def read(self, reports: Sequence[bytes]) -> tuple[set[bytes], list[ClusterCounters]] | None:
        """The serialized intervals (for `interval_of`), and the counters of each cluster.

        None where these are other clusters, or not all reports are serialized alike.
        """
        if len(reports) != len(self._heads):
            return None
        size = interval_bytes(reports[0])
        positions = self._by_interval.get(size) or self._positions(size)
        if not all(map(bytes.startswith, reports, self._heads)):
            return None
        if not all(map(bytes.endswith, reports, self._tails)):
            return None
        parts = list(map(_cut, reports, positions.counters))
        # In a report that is too short, parts overlap, and are longer together than the report.
        if self._names_bytes + size * len(reports) + sum(map(len, parts)) != sum(map(len, reports)):
            return None
        try:
            counters = list(map(self._counters_of, parts))
        except NotOnlyCountersError:
            return None
        return set(map(_cut, reports, positions.intervals)), counters

    def _positions(self, size: int) -> _Positions:
        """The positions for serialized intervals of ``size`` bytes. There are few sizes."""
        ends = [(len(head), len(tail)) for head, tail in zip(self._heads, self._tails, strict=True)]
        positions = self._by_interval[size] = _Positions(
            [slice(head, -size - tail) for head, tail in ends],
            [slice(-size - tail, -tail or None) for _, tail in ends],
        )
        return positions


class ClusterBatch:
    """Series that clients name one after the other, each with one layout.

    ``members``, ``groups``, ``layouts`` have an item for each cluster, likewise ``counters`` (packed, of ``span``, not
    yet flushed to the groups) and ``in_progress`` (packed, over all streams that reported this batch last).
    """

    __slots__ = ("counters", "groups", "in_progress", "layouts", "localities", "members", "reported", "slices", "span")

    def __init__(
        self,
        slices: BatchSlices,
        members: Sequence[LoadSeries],
        groups: Sequence[CounterGroup],
        layouts: Sequence[LocalityLayout],
        now: float,
    ) -> None:
        self.slices = slices
        self.members = tuple(members)
        self.groups = tuple(groups)
        self.layouts = tuple(layouts)
        self.localities = sum(map(len, layouts))
        self.counters = [0] * len(members)
        self.in_progress = [0] * len(members)
        self.reported = now
        self.span = 0
        for position, series in enumerate(members):
            series.batches.append((self, position))

    def count(self, span: int, counters: Sequence[int], now: float) -> None:
        """Add the packed counters of one report, an integer for each cluster."""
        if self.span != span:
            for series in self.members:
                if series.span != span:
                    series.flush(span)
            self.span = span
        self.counters = list(map(add, self.counters, counters))
        self.reported = now

    def add_in_progress(self, packed: Sequence[int]) -> None:
        """Add to the requests in progress of each cluster; the numbers may be negative."""
        self.in_progress = list(map(add, self.in_progress, packed))

    def flush_series(self, position: int) -> None:
        """Move the pending counters of one series to its group. The series starts another span."""
        counters, self.counters[position] = self.counters[position], 0
        self.groups[position].counters += counters
        self.span = 0

"""Streams and nodes that report: the latest report of each stream, totals, requests in progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import add, neg, sub

from xds.lrs.batch import ClusterBatch
from xds.lrs.figures import Totals
from xds.lrs.load_stats import decode_cluster_stats_at
from xds.lrs.packed_counters import unpack
from xds.lrs.series import CounterGroup, LoadSeries, SourceSeries
from xds.model.load_report import ClusterLoad
from xds.model.node import Node

_NOT_REPORTED = 0.0, CounterGroup(), 0


class InProgressGauges:
    """The requests in progress that one stream last reported, by series or for a whole batch, each with its time.

    A series never counts twice: it is reported by itself, or in one batch that has requests in progress for it.
    """

    __slots__ = ("_batches", "_single")

    def __init__(self) -> None:
        self._single: dict[LoadSeries, tuple[float, CounterGroup, int]] = {}
        self._batches: dict[ClusterBatch, tuple[float, Sequence[int]]] = {}

    def __contains__(self, series: LoadSeries) -> bool:
        return series in self._single or any(batch in self._batches for batch, _ in series.batches)

    def set(self, series: LoadSeries, group: CounterGroup, packed: int, now: float) -> None:
        """Replace the requests in progress of a series."""
        for batch, position in series.batches:
            if batch in self._batches and self._batches[batch][1][position]:
                self._split(batch)
        _, group_before, before = self._single.get(series, _NOT_REPORTED)
        if group_before is group:
            if packed != before:
                series.add_in_progress(group, packed - before)
        else:
            if before:
                series.add_in_progress(group_before, -before)
            series.add_in_progress(group, packed)
        if packed:
            self._single[series] = now, group, packed
        else:
            self._single.pop(series, None)

    def set_all(self, batch: ClusterBatch, packed: Sequence[int], now: float) -> None:
        """Replace the requests in progress of all series of a batch."""
        before = self._batches.get(batch)
        if before is None:
            self._split_overlapping(batch)
        if self._single:
            for series in self._single.keys() & batch.members:
                self._drop(series)
        if before is None:
            batch.add_in_progress(packed)
        elif before[1] != packed:
            batch.add_in_progress(list(map(sub, packed, before[1])))
        self._batches[batch] = now, packed

    def drop(self, before: float = inf) -> None:
        """Drop what was last reported before a time: clients do not report clusters without requests."""
        for batch in [batch for batch, (reported, _) in self._batches.items() if reported < before]:
            self._remove(batch)
        for series in [series for series, (reported, *_) in self._single.items() if reported < before]:
            self._drop(series)

    def _drop(self, series: LoadSeries) -> None:
        _, group, packed = self._single.pop(series)
        series.add_in_progress(group, -packed)

    def _split_overlapping(self, batch: ClusterBatch) -> None:
        """Split the batches that share a series with this one: the client names its clusters in a new order."""
        for series in batch.members:
            for other, _ in series.batches:
                if other in self._batches:
                    self._split(other)

    def _split(self, batch: ClusterBatch) -> None:
        """Keep the requests in progress of a batch by series from now on."""
        reported, packed = self._remove(batch)
        for series, group, count in zip(batch.members, batch.groups, packed, strict=True):
            if count:
                self.set(series, group, count, reported)

    def _remove(self, batch: ClusterBatch) -> tuple[float, Sequence[int]]:
        reported, packed = self._batches.pop(batch)
        batch.add_in_progress(list(map(neg, packed)))
        return reported, packed


class LastReport:
    """The latest LoadStatsRequest of a stream that begins with a certain cluster, and what such ones counted in all.

    ``order``: the series of its clusters, None for one that is not counted. Clients name their clusters in the same
    order again and again, so totals are a list in that order (packed: there are a million). ``data``: the request as
    it came; empty where it is not kept. ``reported``: when it came.
    """

    __slots__ = ("_totals", "data", "order", "reported")

    def __init__(self) -> None:
        self.order: list[LoadSeries | None] = []
        self.data = b""
        self.reported = 0.0
        self._totals: list[int] = []

    def add(self, order: list[LoadSeries | None], sums: list[int]) -> dict[LoadSeries, int]:
        """Add the packed sums of a report. Returns the totals of series that it no longer names."""
        gone = self._reorder(order) if order != self.order else {}
        self._totals = list(map(add, self._totals, sums))
        return gone

    def totals(self) -> Iterator[tuple[LoadSeries, int]]:
        for series, total in zip(self.order, self._totals, strict=True):
            if series is not None:
                yield series, total

    def total(self, series: LoadSeries) -> int:
        position = self._position(series)
        return 0 if position is None else self._totals[position]

    def load(self, series: LoadSeries) -> ClusterLoad | None:
        """The latest report of a series; None where the request does not name it, or is not kept."""
        position = self._position(series)
        return None if position is None or not self.data else decode_cluster_stats_at(self.data, position)

    def _position(self, series: LoadSeries) -> int | None:
        try:
            return self.order.index(series)
        except ValueError:
            return None

    def _reorder(self, order: list[LoadSeries | None]) -> dict[LoadSeries, int]:
        before: dict[LoadSeries, int] = {}
        for series, total in self.totals():
            before[series] = before.get(series, 0) + total  # a report may name a series twice
        totals = [0 if series is None else before.pop(series, 0) for series in order]
        self._set_order(order)
        self._totals = totals
        return before

    def _set_order(self, order: list[LoadSeries | None]) -> None:
        """Change the order; every series counts the streams that name it."""
        before, after = set(self.order), set(order)
        for series in before - after:
            if series is not None:
                series.last_reports -= 1
        for series in after - before:
            if series is not None:
                series.last_reports += 1
        self.order = order

    def end(self) -> None:
        """The stream ended. The totals are kept."""
        order = self.order
        self._set_order([])
        self.order, self.data = order, b""

    def resume(self) -> None:
        """The client reconnected and names the same clusters."""
        order, self.order = self.order, []
        self._set_order(order)


class NodeTotals:
    """What a node counted in all, while its streams come and go.

    ``ended``: reports of streams that ended, for the next stream to continue. ``unnamed``: totals of series that no
    report names any more. ``since``: when the node connected or, without a stream, left.
    """

    __slots__ = ("ended", "node", "since", "streams", "unnamed")

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.since = now
        self.streams: set[int] = set()
        self.ended: list[LastReport] = []
        self.unnamed: dict[LoadSeries, int] = {}

    def add_unnamed(self, totals: Iterable[tuple[LoadSeries, int]]) -> None:
        for series, total in totals:
            self.unnamed[series] = self.unnamed.get(series, 0) + total

    def end(self, report: LastReport, limit: int) -> None:
        """Keep the report of a stream that ended; ``limit`` of them at most, the rest as totals."""
        report.end()
        self.ended.append(report)
        if len(self.ended) > limit:
            self.add_unnamed(self.ended.pop(0).totals())

    def resume(self, first: LoadSeries | None) -> LastReport:
        """The report of an ended stream that began with this series, or a new one."""
        for at, report in enumerate(self.ended):
            if report.order[0] is first:
                del self.ended[at]
                report.resume()
                return report
        return LastReport()

    def total(self, series: LoadSeries) -> int:
        """The total of a series, without the reports of open streams."""
        return self.unnamed.get(series, 0) + sum(report.total(series) for report in list(self.ended))


class ReportingStream:
    """One open stream.

    ``source`` and ``source_series`` are those of its group and locality, shared with other streams. ``reached``: the
    time up to which its reports go; ``interval_s``: the longest interval of the latest one. ``created``: series and
    windows that it created since ``created_since``.
    """

    __slots__ = (
        "created", "created_since", "gauges", "group", "id", "interval_s", "last_reports", "left_out", "node", "opened",
        "reached", "refused", "reported", "reports", "source", "source_series", "totals",
    )  # fmt: skip

    def __init__(self, stream: int, totals: NodeTotals, now: float, group: str) -> None:
        self.id = stream
        self.group = group
        self.totals = totals
        self.node = totals.node
        self.source = totals.node.locality
        self.source_series = SourceSeries()
        self.opened = self.reached = now
        self.reported = self.interval_s = 0.0
        self.reports = self.refused = self.left_out = 0
        self.created, self.created_since = 0, now
        self.last_reports: dict[LoadSeries | None, LastReport] = {}  # by the first series, the latest last
        self.gauges = InProgressGauges()

    def last_report_for(self, order: list[LoadSeries | None]) -> LastReport:
        """The report that began with the same series, or a new one. A long report comes in several requests."""
        first = order[0]
        report = self.last_reports.pop(first, None) or self.totals.resume(first)
        self.last_reports[first] = report
        return report

    def drop_report(self, first: LoadSeries | None) -> LastReport:
        """Forget a report that is not repeated; its totals stay with the node."""
        report = self.last_reports.pop(first)
        report.end()
        self.totals.add_unnamed(report.totals())
        return report

    def total(self, series: LoadSeries) -> int:
        return sum(report.total(series) for report in list(self.last_reports.values()))

    def load(self, series: LoadSeries) -> ClusterLoad | None:
        """The latest report of a series; None where the stream did not name it."""
        for report in reversed(list(self.last_reports.values())):
            if series in report.order:
                return report.load(series)
        return None


def totals_of(packed: int) -> Totals:
    """Packed sums (`xds.lrs.packed_counters.ClusterCounters.sums`) as values."""
    return Totals(*unpack(packed, 4))

"""Adds one report to the windows of its series, the gauges of its stream and the totals of its node.

Nearly all reports of clusters have only counters: `xds.lrs.cluster_counters` reads them. The others, such as reports
with drops, endpoints or metrics, are decoded whole by `xds.lrs.load_stats`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from xds.lrs.cluster_counters import (
    CounterReader,
    NotOnlyCountersError,
    names_of,
    target_bytes,
)
from xds.lrs.figures import UNCATEGORISED, IngestResult
from xds.lrs.load_stats import LoadStatsRequest, decode_cluster_stats
from xds.lrs.packed_counters import TRAFFIC_LANES, pack, shift_lanes
from xds.lrs.reporting import Gauge, ReportingStream
from xds.lrs.series import LoadSeries
from xds.lrs.series_index import SeriesIndex
from xds.lrs.windows import TrafficWindow, edge_of, length_of, span_of
from xds.model.load_report import LocalityLoad, Metric, Traffic

# Clusters between two pauses: they take a millisecond or less.
CLUSTERS_AT_ONCE = 512
WHOLE_CLUSTERS_AT_ONCE = 32
METRIC_LIMIT = 1e100  # the sum of many such values stays finite


class ReportIngestion:
    """One report of an open stream while it is counted.

    ``named_series``: the series that the report names. ``gauges``: requests in progress by series and window.
    ``longest``: the longest interval of the report, in whole seconds.
    """

    __slots__ = (
        "_edge", "_index", "_localities", "_now", "_reader", "_stream", "gauges", "left_out", "longest", "named_series",
        "refused",
    )  # fmt: skip

    def __init__(self, index: SeriesIndex, reader: CounterReader, stream: ReportingStream, now: float) -> None:
        self._edge = edge_of(now)
        self._index = index
        self._now = now
        self._reader = reader
        self._stream = stream
        self.named_series: list[LoadSeries] = []
        self.gauges: dict[LoadSeries, Gauge] = {}
        self.longest = 0
        self._localities = self.left_out = self.refused = 0

    def steps(self, report: LoadStatsRequest) -> Generator[None]:
        """Count the report, with pauses. Clusters that have only counters come first."""
        clusters = report.clusters
        counted = min(len(clusters), self._index.bounds.clusters)
        others: list[bytes] = []
        for begin in range(0, counted, CLUSTERS_AT_ONCE):
            others += self._count_counters(clusters[begin : min(begin + CLUSTERS_AT_ONCE, counted)])
            yield
        for number, stats in enumerate(others, 1):
            self._count_whole(stats)
            if number % WHOLE_CLUSTERS_AT_ONCE == 0:
                yield
        if counted < len(clusters):
            self._count_left_out("clusters", len(clusters) - counted)

    def result(self) -> IngestResult:
        """The result so far."""
        return IngestResult(
            clusters=len(self.named_series), localities=self._localities, refused=self.refused, left_out=self.left_out
        )

    def _count_counters(self, reports: Sequence[bytes]) -> list[bytes]:
        """Count the reports that have only counters. Returns the others.

        The hot path: a large fleet reports a hundred thousand clusters a second.
        """
        by_names, totals = self._stream.source_series.by_names, self._stream.totals.totals
        named_series = self.named_series
        others: list[bytes] = []
        length = span = localities = 0
        for stats, read in zip(reports, self._reader.read(reports), strict=True):
            if read is None:
                others.append(stats)
                continue
            names, report_length, rows = read
            series = by_names.get(names)
            if series is None:
                try:
                    series = self._resolve_series(names)
                except NotOnlyCountersError:
                    others.append(stats)
                if series is None:
                    continue
            if length != report_length:
                length, span = report_length, self._span(report_length)
            named_series.append(series)
            sums = 0
            for target, counters, in_progress in rows:
                window = series.targets.get(target) or self._new_target(series, target)
                if window is None:
                    continue
                if window.span != span:
                    window.begin(span)
                window.pending += counters
                sums += counters
                if in_progress:
                    self._add_in_progress(series, window, in_progress)
            localities += len(rows)
            if sums:
                totals[series] = totals.get(series, 0) + sums
        self._localities += localities
        return others

    def _new_target(self, series: LoadSeries, target: bytes) -> TrafficWindow | None:
        window = self._index.target(self._stream, series, target, self._now)
        if window is None:
            self.left_out += 1
        return window

    def _count_whole(self, stats: bytes) -> None:
        """Count a cluster's report that has more than counters."""
        load = decode_cluster_stats(stats)
        if load is None:
            self.refused += 1
            return
        series = self._find_or_create_series(load.cluster, load.service_name)
        if series is None:
            return
        self.named_series.append(series)
        span = self._span(length_of(load.interval_s))
        for each in load.localities:
            self._count_locality(series, span, each)
        self._localities += len(load.localities)
        self._count_drops(series, span, load.drops, load.uncategorised)
        counted = shift_lanes(load.dropped, TRAFFIC_LANES) + sum(pack(*each.traffic[:3]) for each in load.localities)
        if counted:
            totals = self._stream.totals.totals
            totals[series] = totals.get(series, 0) + counted

    def _count_locality(self, series: LoadSeries, span: int, load: LocalityLoad) -> None:
        target = target_bytes(load.locality, load.priority)
        window = self._index.target(self._stream, series, target, self._now)
        if not self._add(series, window, span, load.traffic):
            return
        self._count_metrics(series, span, target, "", load.metrics)
        for endpoint in load.endpoints:
            window = self._index.endpoint(self._stream, series, (target, endpoint.address), self._now)
            if self._add(series, window, span, endpoint.traffic):
                self._count_metrics(series, span, target, endpoint.address, endpoint.metrics)

    def _add(self, series: LoadSeries, window: TrafficWindow | None, span: int, traffic: Traffic) -> bool:
        if window is None:
            self.left_out += 1
            return False
        *counts, in_progress = traffic
        window.add(span, pack(*counts))
        if in_progress:
            self._add_in_progress(series, window, in_progress)
        return True

    def _add_in_progress(self, series: LoadSeries, window: TrafficWindow, in_progress: int) -> None:
        gauge = self.gauges.setdefault(series, {})
        gauge[window] = gauge.get(window, 0) + in_progress

    def _count_metrics(
        self, series: LoadSeries, span: int, target: bytes, address: str, metrics: Mapping[str, Metric]
    ) -> None:
        for name, metric in metrics.items():
            if abs(metric.total) > METRIC_LIMIT:
                self._count_left_out("metric_value", 1)
                continue
            counter = self._index.metric(self._stream, series, (target, address, name), self._now)
            if counter is None:
                self.left_out += 1
            else:
                counter.add(span, metric)

    def _count_drops(self, series: LoadSeries, span: int, drops: Mapping[str, int], uncategorised: int) -> None:
        for category, dropped in (*drops.items(), (UNCATEGORISED, uncategorised)):
            if dropped:
                counter = self._index.drop(self._stream, series, category, self._now)
                if counter is None:
                    self.left_out += 1
                else:
                    counter.add(span, (dropped,))

    def _resolve_series(self, names: bytes) -> LoadSeries | None:
        """Find or create the series of serialized names, and cache it. Raises ``NotOnlyCountersError``."""
        series = self._find_or_create_series(*names_of(names))
        if series is not None:
            self._stream.source_series.by_names[names] = series
        return series

    def _find_or_create_series(self, cluster: str, service_name: str) -> LoadSeries | None:
        series = self._index.series(self._stream, cluster, service_name, self._now)
        if series is None:
            self.left_out += 1
        return series

    def _span(self, length: int) -> int:
        self.longest = max(self.longest, length)
        return span_of(self._edge, length)

    def _count_left_out(self, bound: str, count: int) -> None:
        self.left_out += count
        self._index.left_out[bound] += count

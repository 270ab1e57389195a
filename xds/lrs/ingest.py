"""Counts one report: into the windows of its series, the gauges of its stream and the totals of its node.

A report is read in one of three ways. Clusters that the stream's group names in the same order again and again are
counted together (`xds.lrs.batch`). Other clusters whose reports have only counters are counted one by one, by packed
counters (`xds.lrs.packed_counters`). The rest, such as clusters with endpoints or metrics, are parsed whole.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from operator import is_not

from xds.lrs.batch import BATCH_MINIMUM, BATCHES_LIMIT, BatchSlices, ClusterBatch
from xds.lrs.figures import UNCATEGORISED, IngestResult
from xds.lrs.load_stats import LoadStatsRequest, decode_cluster_stats, decode_locality
from xds.lrs.packed_counters import (
    ClusterCounters,
    ClusterParts,
    CounterDecoder,
    LocalityLayout,
    NotOnlyCountersError,
    head_of,
    interval_of,
    names_of,
    pack,
)
from xds.lrs.reporting import ReportingStream
from xds.lrs.series import CounterGroup, LoadSeries, counts_of
from xds.lrs.series_index import SeriesIndex
from xds.lrs.windows import TrafficWindow, edge_of, span_of
from xds.model.load_report import ClusterLoad, LocalityLoad, Metric, Traffic
from xds.model.node import Locality

Gauge = list[tuple[TrafficWindow, int]]  # requests in progress by window

CLUSTERS_AT_ONCE = 128  # between two pauses: a millisecond, when they are counted one by one
BATCH_IDLE_S = 60.0  # an unused batch may then be replaced by another one with the same first cluster
METRIC_LIMIT = 1e100  # so that a sum of many stays finite


class ReportIngestion:
    """One report of an open stream while it is counted.

    ``order``: the series of each cluster's report, None for one that was not counted. ``sums``: its packed sums.
    ``longest_s``: the longest interval of the report.
    """

    __slots__ = (
        "_decoder", "_index", "_localities", "_now", "_spans", "_stream", "left_out", "longest_s", "order", "refused",
        "sums",
    )  # fmt: skip

    def __init__(self, index: SeriesIndex, decoder: CounterDecoder, stream: ReportingStream, now: float) -> None:
        stream.source, stream.source_series = index.source_of(stream.group, stream.node.locality)
        self._decoder = decoder
        self._index = index
        self._stream = stream
        self._now = now
        self.order: list[LoadSeries | None] = []
        self.sums: list[int] = []
        self._spans: dict[bytes, int] = {}
        self.longest_s = 0.0
        self._localities = self.left_out = self.refused = 0

    def steps(self, report: LoadStatsRequest) -> Generator[None]:
        """Count the report, with a pause after every ``CLUSTERS_AT_ONCE`` clusters."""
        clusters = report.clusters
        counted = min(len(clusters), self._index.bounds.clusters)
        for begin in range(0, counted, CLUSTERS_AT_ONCE):
            reports = clusters[begin : min(begin + CLUSTERS_AT_ONCE, counted)]
            self._count(reports)
            if len(reports) == CLUSTERS_AT_ONCE:
                yield
        if counted < len(clusters):
            self._leave_out("clusters", len(clusters) - counted)

    def result(self) -> IngestResult:
        return IngestResult(
            clusters=len(self.order) - self.order.count(None),
            localities=self._localities,
            refused=self.refused,
            left_out=self.left_out,
        )

    def _count(self, reports: Sequence[bytes]) -> None:
        """The hot path: a large fleet reports some hundred thousand localities a second."""
        batches = self._stream.source_series.batches
        first = head_of(reports[0])
        batch = batches.get(first)
        if batch is not None and self._count_batch(batch, reports):
            return
        read = list(self._decoder.read(reports))
        begun = len(self.order)
        self._count_singly(read)
        if batch is None or batch.reported < self._now - BATCH_IDLE_S:
            made = self._new_batch(read, self.order[begun:])
            if made is not None:
                batches[first] = made

    def _count_batch(self, batch: ClusterBatch, reports: Sequence[bytes]) -> bool:
        """Count all clusters of a batch at once. False, with nothing counted, where the reports do not fit."""
        read = batch.slices.read(reports)
        if read is None:
            return False
        intervals, clusters = read
        try:
            spans = set(map(self._span_of, intervals))
        except NotOnlyCountersError:
            return False
        if len(spans) > 1:
            return False
        (span,) = spans
        layouts, counters, in_progress, sums, dropped = zip(*clusters, strict=True)
        changed = _changed_layouts(layouts, batch.layouts)
        if changed:
            self._localities += sum(map(len, layouts))
            counters, in_progress = _zeroed(changed, counters), _zeroed(changed, in_progress)
        else:
            self._localities += batch.localities
        batch.count(span, counters, self._now)
        self._stream.gauges.set_all(batch, in_progress, self._now)
        self.order += batch.members
        self.sums += sums
        for position in changed:
            self._count_cluster(batch.members[position], span, clusters[position])
        if any(dropped):
            for series, count in zip(batch.members, dropped, strict=True):
                self._count_drops(series, span, {}, count)
        return True

    def _new_batch(
        self, read: Sequence[ClusterParts | bytes], members: Sequence[LoadSeries | None]
    ) -> ClusterBatch | None:
        """A batch for the next reports of these clusters; None where they cannot be counted at once."""
        if len(read) < BATCH_MINIMUM:
            return None
        clusters = [each for each in read if not isinstance(each, bytes)]
        found = [series for series in members if series is not None and len(series.batches) < BATCHES_LIMIT]
        if not len(set(found)) == len(clusters) == len(read):
            return None
        layouts = [counts.layout for *_, counts in clusters]
        groups = [series.groups.get(layout) for series, layout in zip(found, layouts, strict=True)]
        remembered = [group for group in groups if group is not None]
        if len(remembered) < len(found):
            return None
        return ClusterBatch(BatchSlices(clusters, self._decoder), found, remembered, layouts, self._now)

    def _count_singly(self, read: Sequence[ClusterParts | bytes]) -> None:
        by_names = self._stream.source_series.by_names
        for cluster in read:
            if isinstance(cluster, bytes):
                self._count_full(cluster)
                continue
            stats, names, interval, counts = cluster
            try:
                span, series = self._span_of(interval), by_names.get(names) or self._series_of(names)
            except NotOnlyCountersError:
                self._count_full(stats)
                continue
            if series is None:
                self._skip()
                continue
            series.named_at = self._now
            self.order.append(series)
            self.sums.append(counts.sums)
            self._localities += len(counts.layout)
            self._count_cluster(series, span, counts)
            if counts.dropped:
                self._count_drops(series, span, {}, counts.dropped)

    def _count_cluster(self, series: LoadSeries, span: int, counts: ClusterCounters) -> None:
        """Count the counters and gauges of one cluster."""
        if series.span != span:
            series.flush(span)
        group = series.latest
        if group.layout is counts.layout:
            group.counters += counts.counters
        else:
            group = self._count_layout(series, counts.layout, counts.counters)
        if counts.in_progress or series in self._stream.gauges:
            self._stream.gauges.set(series, group, counts.in_progress, self._now)

    def _count_full(self, stats: bytes) -> None:
        """Count a cluster's report that has more than counters."""
        load = decode_cluster_stats(stats)
        if load is None:
            self.refused += 1
            self._skip()
        else:
            self._count_load(load)

    def _count_layout(self, series: LoadSeries, layout: LocalityLayout, counters: int) -> CounterGroup:
        """Count a layout other than that of the report before."""
        group = series.groups.get(layout)
        if group is None:
            return self._count_new_layout(series, layout, counters)
        group.counters += counters
        series.latest = group
        return group

    def _count_new_layout(self, series: LoadSeries, layout: LocalityLayout, counters: int) -> CounterGroup:
        """Count a layout that is new to the series.

        Where a bound allows no window for a locality, its counters are left out and the layout is not remembered.
        """
        found = [self._index.target(self._stream, series, decode_locality(where), self._now) for where in layout]
        group = CounterGroup(tuple(window or TrafficWindow() for window in found), layout)
        for window, counts in zip(group.windows, counts_of(layout, counters), strict=True):
            window.add(series.span, counts)
        if None in found:
            self.left_out += found.count(None)
        else:
            series.remember(group)
        return group

    def _count_load(self, load: ClusterLoad) -> None:
        series = self._find_series(load.cluster, load.service_name)
        if series is None:
            self._skip()
            return
        traffic = [each.traffic for each in load.localities]
        successes, errors, issued, _ = map(sum, zip(*traffic, strict=True)) if traffic else (0, 0, 0, 0)
        self.order.append(series)
        self.sums.append(pack((successes, errors, issued, load.dropped)))
        series.named_at = self._now
        span = self._span(load.interval_s)
        gauge: Gauge = []
        for each in load.localities:
            self._count_locality(series, span, each, gauge)
        self._localities += len(load.localities)
        windows, in_progress = zip(*gauge, strict=True) if gauge else ((), ())
        if gauge or series in self._stream.gauges:
            self._stream.gauges.set(series, CounterGroup(windows), pack(in_progress), self._now)
        self._count_drops(series, span, load.drops, load.uncategorised)

    def _count_locality(self, series: LoadSeries, span: int, load: LocalityLoad, gauge: Gauge) -> None:
        stream, target = self._stream, load.locality
        window = self._index.target(stream, series, target, self._now)
        if not self._add(window, span, load.traffic, gauge):
            return
        self._count_metrics(series, span, target, "", load.metrics)
        for endpoint in load.endpoints:
            window = self._index.endpoint(stream, series, (target, endpoint.address), self._now)
            if self._add(window, span, endpoint.traffic, gauge):
                self._count_metrics(series, span, target, endpoint.address, endpoint.metrics)

    def _add(self, window: TrafficWindow | None, span: int, traffic: Traffic, gauge: Gauge) -> bool:
        if window is None:
            self.left_out += 1
            return False
        window.add(span, traffic[:3])
        if traffic.in_progress:
            gauge.append((window, traffic.in_progress))
        return True

    def _count_metrics(
        self, series: LoadSeries, span: int, target: Locality, address: str, metrics: Mapping[str, Metric]
    ) -> None:
        for name, metric in metrics.items():
            if abs(metric.total) > METRIC_LIMIT:
                self._leave_out("metric_value", 1)
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

    def _skip(self) -> None:
        """Note a cluster's report that is not counted."""
        self.order.append(None)
        self.sums.append(0)

    def _series_of(self, names: bytes) -> LoadSeries | None:
        """The series by the bytes of its names, which are remembered. Raises ``NotOnlyCountersError``."""
        series = self._find_series(*names_of(names))
        if series is not None:
            self._stream.source_series.by_names[names] = series
        return series

    def _find_series(self, cluster: str, service_name: str) -> LoadSeries | None:
        series = self._index.series(self._stream, cluster, service_name, self._now)
        if series is None:
            self.left_out += 1
        return series

    def _span(self, interval_s: float) -> int:
        self.longest_s = max(self.longest_s, interval_s)
        return span_of(edge_of(self._now), interval_s)

    def _span_of(self, interval: bytes) -> int:
        """The span by the bytes of an interval. Most clusters of one report have the same interval.

        Raises ``NotOnlyCountersError``.
        """
        span = self._spans.get(interval)
        if span is None:
            span = self._spans[interval] = self._span(interval_of(interval))
        return span

    def _leave_out(self, bound: str, count: int) -> None:
        self.left_out += count
        self._index.left_out[bound] += count


def _changed_layouts(layouts: Sequence[LocalityLayout], usual: Sequence[LocalityLayout]) -> list[int]:
    """The positions of clusters with other localities than usual. Equal layouts are one object."""
    if layouts == usual:
        return []
    return [position for position, differs in enumerate(map(is_not, layouts, usual)) if differs]


def _zeroed(positions: Sequence[int], packed: Sequence[int]) -> tuple[int, ...]:
    kept = list(packed)
    for position in positions:
        kept[position] = 0
    return tuple(kept)

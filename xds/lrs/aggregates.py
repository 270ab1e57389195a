"""The load of a fleet: reports in, figures out. Pure; ``now`` is epoch seconds of one clock.

A report goes through these files: `load_stats` parses it, `cluster_counters` reads the counters of each cluster,
`ingest` counts them into `series` and their `windows`, `reporting` keeps the latest one. `queries` turns windows into
`figures`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from math import ceil, inf

from xds.lrs.cluster_counters import CounterReader
from xds.lrs.figures import (
    AggregatesSize,
    Breakdown,
    ChartLine,
    ClusterDemand,
    ClusterFigures,
    DropTotals,
    IngestResult,
    LoadStreamStatus,
    TargetTotals,
)
from xds.lrs.ingest import ReportIngestion
from xds.lrs.load_stats import LoadStatsRequest
from xds.lrs.queries import WINDOW_LIMIT_S, LoadQueries, TimeSpan
from xds.lrs.report_stream import INTERVAL_S
from xds.lrs.reporting import NodeTotals, ReportingStream
from xds.lrs.series import Bounds, SeriesIndex
from xds.lrs.windows import edge_of
from xds.model.node import Node

# A stream whose report is late by an interval is overdue: windows do not wait for it, and what it does not repeat is
# no longer in progress.
_OVERDUE_INTERVALS = 2.0
_OVERDUE_MINIMUM_S, _OVERDUE_MAXIMUM_S = 3.0, 600.0
LEFT_KEPT_S = 600.0
# A clock that is set back by less stands still for so long.
_STANDS_STILL_S = 5.0
DEFAULT_BOUNDS = Bounds()


class LoadAggregates:
    """The load reports of all clients of this process, added up.

    One thread adds reports. Other threads may ask meanwhile, and may see a report that is half counted. ``interval_s``
    is the interval that clients are asked for. Windows end at the time that the reports of all streams have reached,
    without overdue streams.
    """

    def __init__(self, interval_s: float = INTERVAL_S, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.interval_s = interval_s
        self._bounds = bounds
        self._index = SeriesIndex(bounds)
        self._reader = CounterReader()
        self._streams: dict[int, ReportingStream] = {}
        self._nodes: dict[str, NodeTotals] = {}
        self._gone: dict[str, None] = {}  # ids of nodes without a stream, the one that left first comes first
        self._left: dict[str, float] = {}  # when they left, for `LEFT_KEPT_S`, likewise
        self._latest = 0.0
        self._ahead_s = 0  # of the clock, since it was set back
        self._began: int | None = None  # the edge before which nothing was measured
        self._latest_bytes = 0
        self._reports = self._refused = 0
        self._queries = LoadQueries(self._index, self._nodes)

    # Reports

    def open_stream(self, stream: int, node: Node, now: float, group: str = "") -> None:
        """A client identified itself. ``group`` is that of its node; empty without a group."""
        now = self._clock(now)
        totals = self._nodes.get(node.id)
        if totals is None:
            totals = self._nodes[node.id] = NodeTotals(node, now)
        self._gone.pop(node.id, None)
        self._left.pop(node.id, None)
        totals.node = node
        source = self._index.source_of(group, node.locality)
        totals.streams[stream] = source.streams[stream] = self._streams[stream] = ReportingStream(
            stream, totals, source, now
        )

    def move_stream(self, stream: int, group: str, now: float) -> None:
        """The client's node moved to another group: later reports count there, as those of a new stream."""
        reporting = self._streams.get(stream)
        if reporting is not None:
            self.close_stream(stream, now)
            self.open_stream(stream, reporting.node, now, group)

    def close_stream(self, stream: int, now: float) -> None:
        """The stream ended. Its requests in progress are dropped, its counts stay. An unknown stream is ignored."""
        reporting = self._streams.pop(stream, None)
        if reporting is None:
            return
        reporting.forget(inf)
        self._latest_bytes -= reporting.data_bytes
        del reporting.source_series.streams[stream]
        totals = reporting.totals
        del totals.streams[stream]
        if not totals.streams:
            totals.since = self._left[totals.node.id] = self._clock(now)
            self._forget_left(totals.since - LEFT_KEPT_S)
            self._gone[totals.node.id] = None
            if len(self._gone) > self._bounds.nodes_gone:
                oldest = next(iter(self._gone))
                del self._gone[oldest], self._nodes[oldest]

    def add(self, stream: int, report: LoadStatsRequest, now: float) -> IngestResult:
        """Count a whole report that came at ``now``."""
        steps = self.add_in_steps(stream, report, now)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                result: IngestResult = ended.value
                return result

    def add_in_steps(self, stream: int, report: LoadStatsRequest, now: float) -> Generator[None, None, IngestResult]:
        """As ``add``, with a pause about every millisecond, for long reports.

        A report may also come in several pieces, one after the other, each with some of the clusters.
        """
        now = self._clock(now)
        reporting = self._streams.get(stream)
        if reporting is None:
            return IngestResult(ignored=1)
        self._index.sweep(now)
        ingestion = ReportIngestion(self._index, self._reader, reporting, now)
        for _ in ingestion.steps(report):
            yield
            if stream not in self._streams:  # it ended meanwhile
                break
        else:
            self._keep(reporting, ingestion, report, now)
        return ingestion.result()

    def _keep(
        self, reporting: ReportingStream, ingestion: ReportIngestion, report: LoadStatsRequest, now: float
    ) -> None:
        """Keep the latest report of the stream, and drop what it did not repeat in time."""
        for series in ingestion.named:
            series.reported = now
        reporting.name(ingestion.named, ingestion.gauges, now)
        if len(reporting.named) > len(ingestion.named):
            reporting.forget(now - self._overdue_s)
        self._keep_data(reporting, report)
        reporting.reported = reporting.reached = now
        longest_s = float(ingestion.longest)
        reporting.interval_s = max(reporting.interval_s, longest_s) if report.continues else longest_s
        reporting.refused += ingestion.refused
        reporting.left_out += ingestion.left_out
        if not report.continues:
            reporting.reports += 1
            self._reports += 1
        self._refused += ingestion.refused
        if ingestion.named:
            began = edge_of(now) - ingestion.longest
            self._began = began if self._began is None else min(self._began, began)

    def _keep_data(self, reporting: ReportingStream, report: LoadStatsRequest) -> None:
        """Keep the report as it came, if there is room."""
        self._latest_bytes -= reporting.data_bytes
        kept = (*reporting.data, report.data) if report.continues else (report.data,)
        if self._latest_bytes + sum(map(len, kept)) > self._bounds.latest_bytes:
            kept = ()
            self._index.left_out["latest_bytes"] += 1
        reporting.data = kept
        self._latest_bytes += reporting.data_bytes

    # Questions

    def clusters(self, now: float, window_s: float) -> list[ClusterFigures]:
        """The load of each (cluster, service name), by name, without rows."""
        return list(map(self._by_clock, self._queries.clusters(self._span(now, window_s))))

    def cluster(
        self, cluster: str, now: float, window_s: float, by: Breakdown = "locality", service_name: str | None = None
    ) -> ClusterFigures | None:
        """The load of one cluster, with rows; over all service names if none is given.

        None for a cluster that no client reported.
        """
        found = self._queries.cluster(cluster, self._span(now, window_s), by, service_name)
        return self._by_clock(found) if found is not None else None

    def series(
        self, cluster: str, now: float, window_s: float, step_s: float, by: Breakdown | None = None
    ) -> list[ChartLine]:
        """The window in steps: 720 at most, and of a minute at least where counts by the second are gone.

        One line for the cluster, or one for each pair of localities, or for each endpoint. There is no line for nodes:
        their counts over time are not kept.
        """
        lines = self._queries.series(cluster, self._span(now, window_s), step_s, by)
        return lines if not self._ahead_s else list(map(self._line_by_clock, lines))

    def demand(self, group: str, cluster: str, now: float, window_s: float) -> ClusterDemand:
        """The demand of a group's nodes, for traffic assignment. Without sources where none of them reported."""
        found = self._queries.demand(group, cluster, self._span(now, window_s))
        sources = tuple(replace(source, reported=self._shown(source.reported)) for source in found.sources)
        return replace(found, until=self._shown(found.until), sources=sources)

    def streams(self) -> Iterator[LoadStreamStatus]:
        """The state of all open streams."""
        return map(self._status, list(self._streams.values()))

    def left(self) -> Mapping[str, float]:
        """When the nodes that ended their last stream in the last ``LEFT_KEPT_S`` did so, by node id.

        The latest ``nodes_left`` of them (`Bounds`).
        """
        return {node: self._shown(at) for node, at in self._left.items()}

    def _forget_left(self, before: float) -> None:
        while self._left:
            node, at = next(iter(self._left.items()))
            if at >= before and len(self._left) <= self._bounds.nodes_left:
                return
            del self._left[node]

    def target_totals(self) -> Iterator[TargetTotals]:
        """For metrics: totals by (cluster, target locality), over all sources. Their number is bounded."""
        return self._queries.target_totals()

    def drop_totals(self) -> Iterator[DropTotals]:
        """For metrics: totals by (cluster, category). Their number is bounded."""
        return self._queries.drop_totals()

    def size(self) -> AggregatesSize:
        """How much is kept."""
        return AggregatesSize(
            streams=len(self._streams),
            nodes=len(self._nodes),
            services=self._index.services,
            windows=self._index.windows,
            reports=self._reports,
            refused=self._refused,
            left_out=dict(self._index.left_out),
        )

    # Time

    def _clock(self, now: float) -> float:
        """The time that reports are counted at. It only goes forward, as windows do.

        A clock that is set back a little stands still. When it is set back by more, this time goes on, and is ahead of
        the clock from then on: all reports would end in one and the same second else. `_shown` is the reverse.
        """
        back_s = self._latest - (now + self._ahead_s)
        if back_s > _STANDS_STILL_S:
            self._ahead_s += ceil(back_s)
        self._latest = max(self._latest, now + self._ahead_s)
        return self._latest

    def _shown(self, at: float) -> float:
        """A time of `_clock` by the clock of now; 0, for never, stays."""
        return at - self._ahead_s if at else at

    def _by_clock(self, figures: ClusterFigures) -> ClusterFigures:
        if not self._ahead_s:
            return figures
        rows = tuple(replace(row, reported=self._shown(row.reported)) for row in figures.rows)
        return replace(figures, until=self._shown(figures.until), reported=self._shown(figures.reported), rows=rows)

    def _line_by_clock(self, line: ChartLine) -> ChartLine:
        return replace(line, points=tuple(replace(point, at=self._shown(point.at)) for point in line.points))

    @property
    def _overdue_s(self) -> float:
        return min(_OVERDUE_MAXIMUM_S, max(_OVERDUE_MINIMUM_S, _OVERDUE_INTERVALS * self.interval_s))

    def _span(self, now: float, window_s: float) -> TimeSpan:
        """The window up to the edge that all streams have reached. It does not begin before the first report."""
        now = max(now + self._ahead_s, self._latest)
        reached = (stream.reached for stream in list(self._streams.values()))
        end = edge_of(min((at for at in reached if now - at <= self._overdue_s), default=now))
        begin = end - max(1, round(min(window_s, WINDOW_LIMIT_S)))
        if self._began is not None:
            begin = min(max(begin, self._began), end - 1)
        return TimeSpan(begin, end)

    def _status(self, reporting: ReportingStream) -> LoadStreamStatus:
        return LoadStreamStatus(
            stream=reporting.id,
            node=reporting.node.id,
            locality=reporting.node.locality,
            opened=self._shown(reporting.opened),
            reported=self._shown(reporting.reported),
            interval_s=reporting.interval_s,
            reports=reporting.reports,
            refused=reporting.refused,
            left_out=reporting.left_out,
        )

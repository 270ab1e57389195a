"""Counts the load reports of a fleet and answers queries about its load. Pure; ``now`` is epoch seconds of one clock.

Files on the path of a report: `load_stats` parses the report, `cluster_counters` reads the counters of each cluster,
`ingest` adds the counters to `series` and their `windows`, `reporting` stores the latest report of each stream.
`queries` computes `figures` from windows.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping
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
    Totals,
)
from xds.lrs.ingest import ReportIngestion
from xds.lrs.load_stats import LoadStatsRequest
from xds.lrs.packed_counters import unpack
from xds.lrs.queries import WINDOW_LIMIT_S, LoadQueries, TimeSpan
from xds.lrs.report_stream import INTERVAL_S
from xds.lrs.reporting import NodeTotals, ReportingStream
from xds.lrs.series_index import Bounds, SeriesIndex
from xds.lrs.windows import edge_of
from xds.model.node import Node

# A stream whose report is late by an interval is overdue: windows do not wait for an overdue stream. Series that its
# latest reports do not name have no requests in progress any more.
_OVERDUE_INTERVALS = 2.0
_OVERDUE_MINIMUM_S, _OVERDUE_MAXIMUM_S = 3.0, 600.0
DEPARTED_KEPT_S = 600.0
# A clock that is set back by at most this counts as stopped until it has caught up.
_SMALL_SETBACK_S = 5.0
DEFAULT_BOUNDS = Bounds()


class LoadAggregates:
    """The load reports of all clients of this process, added up.

    One thread adds reports. Other threads may query at the same time, and may see a report that is half counted.
    ``interval_s`` is the reporting interval that the server requests of clients. A window ends at the latest time that
    the reports of all streams cover; overdue streams are ignored.
    """

    def __init__(self, interval_s: float = INTERVAL_S, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.interval_s = interval_s
        self._bounds = bounds
        self._index = SeriesIndex(bounds)
        self._reader = CounterReader()
        self._streams: dict[int, ReportingStream] = {}
        self._nodes: dict[str, NodeTotals] = {}
        self._streamless: dict[str, None] = {}  # ids of nodes without a stream, by the end of their last stream
        self._departed_nodes: dict[str, float] = {}  # the end of their last stream, for `DEPARTED_KEPT_S`, in order
        self._latest = 0.0
        self._ahead_s = 0  # how far counted time is ahead of the clock, since the clock was set back
        self._measured_from: int | None = None  # no report covers a time before this edge
        self._latest_bytes = 0
        self._reports = self._refused = 0
        self._queries = LoadQueries(self._index, self._nodes)

    # Reports

    def open_stream(self, stream: int, node: Node, now: float, group: str = "") -> None:
        """Begin to count a stream whose client identified itself. ``group``: the group of its node, or empty."""
        now = self._counted_time(now)
        totals = self._nodes.get(node.id)
        if totals is None:
            totals = self._nodes[node.id] = NodeTotals(node, now)
        self._streamless.pop(node.id, None)
        self._departed_nodes.pop(node.id, None)
        totals.node = node
        source = self._index.source_of(group, node.locality)
        totals.streams[stream] = self._streams[stream] = ReportingStream(stream, totals, source, now)
        source.streams.add(stream)

    def move_stream(self, stream: int, group: str, now: float) -> None:
        """Count later reports of a stream in another group, as those of a new stream: its node moved there."""
        reporting = self._streams.get(stream)
        if reporting is not None:
            self.close_stream(stream, now)
            self.open_stream(stream, reporting.node, now, group)

    def close_stream(self, stream: int, now: float) -> None:
        """Drop the requests in progress of a stream that ended. Its counts stay. An unknown stream is ignored."""
        reporting = self._streams.pop(stream, None)
        if reporting is None:
            return
        reporting.forget(inf)
        self._latest_bytes -= reporting.data_bytes
        reporting.source_series.streams.remove(stream)
        totals = reporting.totals
        del totals.streams[stream]
        if not totals.streams:
            totals.since = self._departed_nodes[totals.node.id] = self._counted_time(now)
            self._forget_departed(totals.since - DEPARTED_KEPT_S)
            self._streamless[totals.node.id] = None
            if len(self._streamless) > self._bounds.nodes_gone:
                oldest = next(iter(self._streamless))
                del self._streamless[oldest], self._nodes[oldest]

    def add(self, stream: int, report: LoadStatsRequest, now: float) -> IngestResult:
        """Count a whole report that arrived at ``now``."""
        steps = self.add_in_steps(stream, report, now)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                result: IngestResult = ended.value
                return result

    def add_in_steps(self, stream: int, report: LoadStatsRequest, now: float) -> Generator[None, None, IngestResult]:
        """As `add`, with a pause about every millisecond, for long reports.

        A report may also arrive in several pieces, one after the other, each with some of the clusters.
        """
        now = self._counted_time(now)
        reporting = self._streams.get(stream)
        if reporting is None:
            return IngestResult(ignored=1)
        self._index.sweep(now)
        ingestion = ReportIngestion(self._index, self._reader, reporting, now)
        for _ in ingestion.steps(report):
            yield
            if stream not in self._streams:  # the stream ended during the pause
                break
        else:
            self._finish_report(reporting, ingestion, report, now)
        return ingestion.result()

    def _finish_report(
        self, reporting: ReportingStream, ingestion: ReportIngestion, report: LoadStatsRequest, now: float
    ) -> None:
        """Store the latest report of the stream, and drop the series that it has not named for too long."""
        for series in ingestion.named_series:
            series.reported = now
        reporting.name(ingestion.named_series, ingestion.gauges, now)
        if len(reporting.named_series) > len(ingestion.named_series):
            reporting.forget(now - self._overdue_s)
        self._store_data(reporting, report)
        reporting.reported = reporting.reported_until = now
        longest_s = float(ingestion.longest)
        reporting.interval_s = max(reporting.interval_s, longest_s) if report.continues else longest_s
        reporting.refused += ingestion.refused
        reporting.left_out += ingestion.left_out
        if not report.continues:
            reporting.reports += 1
            self._reports += 1
        self._refused += ingestion.refused
        if ingestion.named_series:
            first = edge_of(now) - ingestion.longest
            self._measured_from = first if self._measured_from is None else min(self._measured_from, first)

    def _store_data(self, reporting: ReportingStream, report: LoadStatsRequest) -> None:
        """Store the report as received, if the bound on stored bytes allows that."""
        self._latest_bytes -= reporting.data_bytes
        pieces = (*reporting.data, report.data) if report.continues else (report.data,)
        if self._latest_bytes + sum(map(len, pieces)) > self._bounds.latest_bytes:
            pieces = ()
            self._index.left_out["latest_bytes"] += 1
        reporting.data = pieces
        self._latest_bytes += reporting.data_bytes

    # Queries

    def clusters(self, now: float, window_s: float) -> list[ClusterFigures]:
        """The load of each (cluster, service name), by name, without rows."""
        return list(map(self._in_wall_time, self._queries.clusters(self._window(now, window_s))))

    def cluster(
        self, cluster: str, now: float, window_s: float, by: Breakdown = "locality", service_name: str | None = None
    ) -> ClusterFigures | None:
        """The load of one cluster, with rows; over all service names if none is given.

        None for a cluster that no client reported.
        """
        figures = self._queries.cluster(cluster, self._window(now, window_s), by, service_name)
        return self._in_wall_time(figures) if figures is not None else None

    def series(
        self, cluster: str, now: float, window_s: float, step_s: float, by: Breakdown | None = None
    ) -> list[ChartLine]:
        """The load in a window, step by step: at most 720 steps, of at least a minute where only minutes are stored.

        One line for the cluster, or one for each pair of localities, or for each endpoint. There is no line for nodes:
        their counts over time are not stored.
        """
        lines = self._queries.series(cluster, self._window(now, window_s), step_s, by)
        return lines if not self._ahead_s else list(map(self._line_in_wall_time, lines))

    def demand(self, group: str, cluster: str, now: float, window_s: float) -> ClusterDemand:
        """The demand of a group's nodes, for traffic assignment. Without sources if none of them has reported."""
        demand = self._queries.demand(group, cluster, self._window(now, window_s))
        sources = tuple(replace(source, reported=self._wall_time(source.reported)) for source in demand.sources)
        return replace(demand, until=self._wall_time(demand.until), sources=sources)

    def streams(self) -> Iterator[LoadStreamStatus]:
        """The state of all open streams."""
        return map(self._status, list(self._streams.values()))

    def departed_nodes(self) -> Mapping[str, float]:
        """The nodes whose last stream ended in the last ``DEPARTED_KEPT_S``: by node id, the end (epoch seconds).

        At most the latest ``nodes_left`` of them (`Bounds`).
        """
        return {node: self._wall_time(at) for node, at in self._departed_nodes.items()}

    def _forget_departed(self, before: float) -> None:
        while self._departed_nodes:
            node, at = next(iter(self._departed_nodes.items()))
            if at >= before and len(self._departed_nodes) <= self._bounds.nodes_left:
                return
            del self._departed_nodes[node]

    def requests_of(self, node_id: str, clusters: Container[str]) -> Totals | None:
        """The totals of a node, of all these clusters together; None for a node that reports none of them."""
        node = self._nodes.get(node_id)
        if node is None or not node.streams:
            return None
        found = [packed for series, packed in node.totals.items() if series.cluster in clusters]
        return Totals(*unpack(sum(found), 4)) if found else None

    def recent_requests(self, group: str, clusters: Container[str], now: float, window_s: float) -> Totals:
        """The requests of a group's nodes to these clusters in a window, without drops; safe in another thread."""
        return self._queries.requests(group, clusters, self._window(now, window_s))

    def target_totals(self) -> Iterator[TargetTotals]:
        """For metrics: totals by (cluster, target locality), over all sources. Their number is bounded."""
        return self._queries.target_totals()

    def drop_totals(self) -> Iterator[DropTotals]:
        """For metrics: totals by (cluster, category). Their number is bounded."""
        return self._queries.drop_totals()

    def size(self) -> AggregatesSize:
        """How much is stored."""
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

    def _counted_time(self, now: float) -> float:
        """The time at which a report is counted. Counted time never decreases, because windows only advance.

        After a small setback of the clock, counted time stops until the clock has caught up. After a larger one,
        counted time continues and stays ahead of the clock; otherwise all reports would end in the same second.
        `_wall_time` is the reverse.
        """
        back_s = self._latest - (now + self._ahead_s)
        if back_s > _SMALL_SETBACK_S:
            self._ahead_s += ceil(back_s)
        self._latest = max(self._latest, now + self._ahead_s)
        return self._latest

    def _wall_time(self, at: float) -> float:
        """A time of `_counted_time` by the current clock; 0 means never and stays 0."""
        return at - self._ahead_s if at else at

    def _in_wall_time(self, figures: ClusterFigures) -> ClusterFigures:
        if not self._ahead_s:
            return figures
        rows = tuple(replace(row, reported=self._wall_time(row.reported)) for row in figures.rows)
        return replace(
            figures, until=self._wall_time(figures.until), reported=self._wall_time(figures.reported), rows=rows
        )

    def _line_in_wall_time(self, line: ChartLine) -> ChartLine:
        return replace(line, points=tuple(replace(point, at=self._wall_time(point.at)) for point in line.points))

    @property
    def _overdue_s(self) -> float:
        return min(_OVERDUE_MAXIMUM_S, max(_OVERDUE_MINIMUM_S, _OVERDUE_INTERVALS * self.interval_s))

    def _window(self, now: float, window_s: float) -> TimeSpan:
        """The window up to the latest edge that all streams have reported, without time before the first report."""
        now = max(now + self._ahead_s, self._latest)
        covered = (stream.reported_until for stream in list(self._streams.values()))
        end = edge_of(min((at for at in covered if now - at <= self._overdue_s), default=now))
        begin = end - max(1, round(min(window_s, WINDOW_LIMIT_S)))
        if self._measured_from is not None:
            begin = min(max(begin, self._measured_from), end - 1)
        return TimeSpan(begin, end)

    def _status(self, reporting: ReportingStream) -> LoadStreamStatus:
        return LoadStreamStatus(
            stream=reporting.id,
            node=reporting.node.id,
            locality=reporting.node.locality,
            opened=self._wall_time(reporting.opened),
            reported=self._wall_time(reporting.reported),
            interval_s=reporting.interval_s,
            reports=reporting.reports,
            refused=reporting.refused,
            left_out=reporting.left_out,
        )

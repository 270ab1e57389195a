"""Streams and nodes that report: the latest report of each stream, totals, requests in progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xds.lrs.figures import Totals
from xds.lrs.load_stats import find_cluster_stats
from xds.lrs.packed_counters import unpack
from xds.lrs.series import LoadSeries, SourceSeries
from xds.lrs.windows import TrafficWindow
from xds.model.load_report import ClusterLoad
from xds.model.node import Node

# Requests in progress of one series, by window.
Gauge = dict[TrafficWindow, int]
_NOTHING: Mapping[TrafficWindow, int] = {}


class NodeTotals:
    """What a node counted in all, while its streams come and go.

    ``totals``: by series, packed: successes, errors, issued, dropped. ``since``: when the node connected or, without a
    stream, left.
    """

    __slots__ = ("node", "since", "streams", "totals")

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.since = now
        self.streams: dict[int, ReportingStream] = {}
        self.totals: dict[LoadSeries, int] = {}

    def total(self, series: LoadSeries) -> Totals:
        """The totals of the node for a series."""
        return Totals(*unpack(self.totals.get(series, 0), 4))


class ReportingStream:
    """One open stream.

    ``source_series`` are those of its group and locality, shared with other streams. ``named``: when a report last
    named a series. ``data``: the latest report as it came, in pieces, without its node; empty where it is not kept.
    ``reached``: the time up to which its reports go; ``interval_s``: the longest interval of the latest one.
    ``created``: series and windows that it created since ``created_since``.
    """

    __slots__ = (
        "_gauges", "created", "created_since", "data", "id", "interval_s", "left_out", "named", "node",
        "opened", "reached", "refused", "reported", "reports", "source_series", "totals",
    )  # fmt: skip

    def __init__(self, stream: int, totals: NodeTotals, source_series: SourceSeries, now: float) -> None:
        self.id = stream
        self.totals = totals
        self.node = totals.node
        self.source_series = source_series
        self.opened = self.reached = now
        self.reported = self.interval_s = 0.0
        self.reports = self.refused = self.left_out = 0
        self.created, self.created_since = 0, now
        self.named: dict[LoadSeries, float] = {}
        self.data: tuple[bytes, ...] = ()
        self._gauges: dict[LoadSeries, Mapping[TrafficWindow, int]] = {}

    @property
    def data_bytes(self) -> int:
        """The size of the latest report in bytes."""
        return sum(map(len, self.data))

    def load(self, cluster: str, service_name: str) -> ClusterLoad | None:
        """The latest report of a cluster; None where the stream did not name it, or where it is not kept."""
        for piece in self.data:
            load = find_cluster_stats(piece, cluster, service_name)
            if load is not None:
                return load
        return None

    # Who names a series, and requests in progress

    def name(self, series: Iterable[LoadSeries], gauges: Mapping[LoadSeries, Gauge], now: float) -> None:
        """A report named these series. ``gauges``: the requests in progress of those that have any."""
        found = dict.fromkeys(series, now)
        for each in self._gauges.keys() - gauges.keys():
            if each in found:
                self._set_gauge(each, _NOTHING)
        for each, gauge in gauges.items():
            self._set_gauge(each, gauge)
        if found.keys() == self.named.keys():  # as a rule: Envoy names all clusters in each report
            self.named = found
            return
        for each in found.keys() - self.named.keys():
            self._count_node(each, 1)
        self.named.update(found)

    def forget(self, before: float) -> None:
        """Drop what was last named before a time; clients need not report clusters without requests."""
        for series in [series for series, at in self.named.items() if at < before]:
            del self.named[series]
            self._count_node(series, -1)
            self._set_gauge(series, _NOTHING)

    def _count_node(self, series: LoadSeries, change: int) -> None:
        """Count the node once, however many of its streams name the series."""
        others = (stream for stream in self.totals.streams.values() if stream is not self)
        if not any(series in stream.named for stream in others):
            series.nodes += change

    def _set_gauge(self, series: LoadSeries, gauge: Mapping[TrafficWindow, int]) -> None:
        for window, count in self._gauges.pop(series, _NOTHING).items():
            window.in_progress -= count
        for window, count in gauge.items():
            window.in_progress += count
        if gauge:
            self._gauges[series] = gauge

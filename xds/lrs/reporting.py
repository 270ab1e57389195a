"""Reporting streams and nodes: the latest report of each stream, totals, requests in progress."""

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
_NO_GAUGE: Mapping[TrafficWindow, int] = {}


class NodeTotals:
    """The totals of a node over all its streams.

    ``totals``: by series, packed: successes, errors, issued, dropped. ``since``: when the node connected or, while it
    has no stream, when its last stream ended.
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

    ``source_series``: the series of its group and locality, shared with other streams. ``named_series``: by series,
    when a report last named it. ``data``: the latest report as received, in pieces, without its node; empty if not
    stored. ``reported_until``: the end of the time that its reports cover. ``interval_s``: the longest interval of the
    latest report. ``created``: how many series and windows the stream created since ``created_since``.
    """

    __slots__ = (
        "_gauges", "created", "created_since", "data", "id", "interval_s", "left_out", "named_series", "node",
        "opened", "refused", "reported", "reported_until", "reports", "source_series", "totals",
    )  # fmt: skip

    def __init__(self, stream: int, totals: NodeTotals, source_series: SourceSeries, now: float) -> None:
        self.id = stream
        self.totals = totals
        self.node = totals.node
        self.source_series = source_series
        self.opened = self.reported_until = now
        self.reported = self.interval_s = 0.0
        self.reports = self.refused = self.left_out = 0
        self.created, self.created_since = 0, now
        self.named_series: dict[LoadSeries, float] = {}
        self.data: tuple[bytes, ...] = ()
        self._gauges: dict[LoadSeries, Mapping[TrafficWindow, int]] = {}

    @property
    def data_bytes(self) -> int:
        """The size of the latest report in bytes."""
        return sum(map(len, self.data))

    def load(self, cluster: str, service_name: str) -> ClusterLoad | None:
        """The latest report of a cluster; None if the latest report does not name the cluster or is not stored."""
        for piece in self.data:
            load = find_cluster_stats(piece, cluster, service_name)
            if load is not None:
                return load
        return None

    # Named series, and requests in progress

    def name(self, series: Iterable[LoadSeries], gauges: Mapping[LoadSeries, Gauge], now: float) -> None:
        """Record that a report named these series. ``gauges``: the requests in progress of those that have any."""
        named = dict.fromkeys(series, now)
        for each in self._gauges.keys() - gauges.keys():
            if each in named:
                self._set_gauge(each, _NO_GAUGE)
        for each, gauge in gauges.items():
            self._set_gauge(each, gauge)
        if named.keys() == self.named_series.keys():  # the usual case: Envoy names all clusters in each report
            self.named_series = named
            return
        for each in named.keys() - self.named_series.keys():
            self._count_node(each, 1)
        self.named_series.update(named)

    def forget(self, before: float) -> None:
        """Drop the series last named before a time. Clients need not report clusters without requests."""
        for series in [series for series, at in self.named_series.items() if at < before]:
            del self.named_series[series]
            self._count_node(series, -1)
            self._set_gauge(series, _NO_GAUGE)

    def _count_node(self, series: LoadSeries, change: int) -> None:
        """Add ``change`` to the nodes of a series, unless another stream of the node names the series."""
        others = (stream for stream in self.totals.streams.values() if stream is not self)
        if not any(series in stream.named_series for stream in others):
            series.nodes += change

    def _set_gauge(self, series: LoadSeries, gauge: Mapping[TrafficWindow, int]) -> None:
        for window, count in self._gauges.pop(series, _NO_GAUGE).items():
            window.in_progress -= count
        for window, count in gauge.items():
            window.in_progress += count
        if gauge:
            self._gauges[series] = gauge

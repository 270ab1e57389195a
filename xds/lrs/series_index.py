"""The index of all load series, and the bounds on their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sized
from typing import NamedTuple

from xds.lrs.figures import UNCATEGORISED
from xds.lrs.reporting import ReportingStream
from xds.lrs.series import LoadSeries, SourceSeries
from xds.lrs.windows import TrafficWindow, ValueWindow, edge_of
from xds.model.node import Locality

IDLE_S = 3_600.0  # series and windows that no report named for this long are dropped
IDLE_WHEN_FULL_S = 120.0  # the same, when a bound is reached
SWEEP_S = 600.0  # between two sweeps for idle series and windows
SWEEP_WHEN_FULL_S = 10.0
_CREATED_WITHIN_S = 3_600.0


class Bounds(NamedTuple):
    """Limits of memory. Values beyond a bound are left out, and counted under the bound's name.

    ``sources``: localities by group. ``services``: series. ``windows``: of traffic, drops and metrics. ``targets``,
    ``endpoints``, ``metrics``, ``categories``: of one series; drops beyond the categories have none.
    ``made_by_stream``: series and windows that one stream may create in an hour, so that one client cannot exhaust
    the bounds. ``clusters``: of one report, or one piece of a long one.
    ``latest_bytes``: of the latest reports of all streams, as received. ``nodes_gone``: nodes without a stream whose
    totals are stored. ``nodes_left``: nodes whose end of the last stream is stored.
    """

    sources: int = 256
    services: int = 30_000
    windows: int = 65_536
    targets: int = 128
    endpoints: int = 1_024
    metrics: int = 256
    categories: int = 32
    made_by_stream: int = 25_000
    clusters: int = 20_000
    latest_bytes: int = 256 << 20
    nodes_gone: int = 1_000
    nodes_left: int = 20_000


class SeriesIndex:
    """Finds series and windows, creates them within the bounds, and drops idle ones.

    ``left_out`` counts the values that a bound kept out, by the bound's name.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.left_out: Counter[str] = Counter()
        self.services = 0  # series
        self.windows = 0
        self._sources: dict[tuple[str, Locality], SourceSeries] = {}
        self._by_cluster: dict[str, list[LoadSeries]] = {}
        self._swept = 0.0

    def source_of(self, group: str, locality: Locality) -> SourceSeries:
        """The source to which reports from a locality in a group are added.

        Beyond the bound on sources this is the group's source without a locality.
        """
        if (group, locality) not in self._sources and len(self._sources) >= self.bounds.sources:
            self.left_out["sources"] += 1
            locality = Locality()
        source = self._sources.get((group, locality))
        if source is None:
            source = self._sources[group, locality] = SourceSeries(group, locality)
        return source

    def of_cluster(self, cluster: str) -> list[LoadSeries]:
        """The series of a cluster, over all sources and service names. Safe while another thread counts."""
        return list(self._by_cluster.get(cluster, ()))

    def __iter__(self) -> Iterator[LoadSeries]:
        """All series. Safe while another thread counts."""
        for source in list(self._sources.values()):
            yield from list(source.by_key.values())

    # Find or create. ``stream`` is the reporting one. The result is None if a bound allows no further series or window.

    def series(self, stream: ReportingStream, cluster: str, service_name: str, now: float) -> LoadSeries | None:
        """The series of a cluster in the stream's source."""
        series = stream.source_series.by_key.get((cluster, service_name))
        if series is None and self._has_room("services", self.services, stream, now):
            source = stream.source_series
            series = LoadSeries(cluster, service_name, source.locality, source.group)
            source.by_key[cluster, service_name] = series
            self._by_cluster.setdefault(cluster, []).append(series)
            self.services += 1
        return series

    def target(self, stream: ReportingStream, series: LoadSeries, target: bytes, now: float) -> TrafficWindow | None:
        """The window of the traffic to ``target``, a key of `target_bytes`."""
        window = series.targets.get(target)
        if window is None and self._has_room_for_window(stream, "targets", series.targets, now):
            window = series.targets[target] = TrafficWindow()
        return window

    def endpoint(
        self, stream: ReportingStream, series: LoadSeries, key: tuple[bytes, str], now: float
    ) -> TrafficWindow | None:
        """The window of an endpoint. ``key``: target and address."""
        window = series.endpoints.get(key)
        if window is None and self._has_room_for_window(stream, "endpoints", series.endpoints, now):
            window = series.endpoints[key] = TrafficWindow()
        return window

    def metric(
        self, stream: ReportingStream, series: LoadSeries, key: tuple[bytes, str, str], now: float
    ) -> ValueWindow | None:
        """The window of a metric. ``key``: target, address (or empty) and name."""
        window = series.metrics.get(key)
        if window is None and self._has_room_for_window(stream, "metrics", series.metrics, now):
            window = series.metrics[key] = ValueWindow(2)
        return window

    def drop(self, stream: ReportingStream, series: LoadSeries, category: str, now: float) -> ValueWindow | None:
        """The window of a drop category; beyond the bound on categories, the window of drops without a category."""
        window = series.drops.get(category)
        if window is None and category and len(series.drops) >= self.bounds.categories:
            self.left_out["categories"] += 1
            return self.drop(stream, series, UNCATEGORISED, now)
        if window is None and self._has_room("windows", self.windows, stream, now):
            window = series.drops[category] = ValueWindow(1)
            self.windows += 1
        return window

    # Bounds

    def sweep(self, now: float) -> None:
        """Drop idle series and windows, at most once in ``SWEEP_S``."""
        if now - self._swept >= SWEEP_S:
            self._drop_idle(now, IDLE_S)

    def _has_room_for_window(self, stream: ReportingStream, bound: str, windows: Sized, now: float) -> bool:
        """Whether a series may have one more of these windows. Adds one to the number of windows if so."""
        if len(windows) >= getattr(self.bounds, bound):
            self.left_out[bound] += 1
            return False
        if not self._has_room("windows", self.windows, stream, now):
            return False
        self.windows += 1
        return True

    def _has_room(self, bound: str, count: int, stream: ReportingStream, now: float) -> bool:
        """Whether this stream may create one more series or window. Drops idle ones if the bound is reached."""
        if now - stream.created_since >= _CREATED_WITHIN_S:
            stream.created, stream.created_since = 0, now
        if stream.created >= self.bounds.made_by_stream:
            self.left_out["made_by_stream"] += 1
            return False
        limit: int = getattr(self.bounds, bound)
        if count >= limit and now - self._swept >= SWEEP_WHEN_FULL_S:
            count -= self._drop_idle(now, IDLE_WHEN_FULL_S)[bound]
        if count >= limit:
            self.left_out[bound] += 1
            return False
        stream.created += 1
        return True

    def _drop_idle(self, now: float, idle_s: float) -> Counter[str]:
        """Drop series and windows that were idle for ``idle_s``. Returns how many were dropped, by bound."""
        self._swept = now
        before = Counter(services=self.services, windows=self.windows)
        for source in self._sources.values():
            source.forget(lambda series: series.nodes == 0 and series.reported < now - idle_s)
            for series in source.by_key.values():
                series.forget_before(edge_of(now - max(idle_s, IDLE_S)))
        self._sources = {key: source for key, source in self._sources.items() if source.by_key or source.streams}
        by_cluster: dict[str, list[LoadSeries]] = {}
        for series in self:
            by_cluster.setdefault(series.cluster, []).append(series)
        self._by_cluster = by_cluster
        self.services = sum(map(len, by_cluster.values()))
        self.windows = sum(series.windows for series in self)
        return before - Counter(services=self.services, windows=self.windows)

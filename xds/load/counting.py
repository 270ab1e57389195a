"""One report, counted: into the windows of its clusters, the gauges of its stream and the totals of its node."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from xds.load.figures import UNCATEGORISED, Taken
from xds.load.history import edge_of
from xds.load.reporter import Counts, Gauge, Reporter
from xds.load.service import Service
from xds.load.shelf import Shelf
from xds.load.window import Window, span_of
from xds.model.load_report import ClusterLoad, LocalityLoad, Metric, Traffic
from xds.model.node import Locality
from xds.protocol.load_wire import ClusterTally, LoadRequest

CLUSTERS_AT_ONCE = 64  # a millisecond, when each is counted into windows that nobody has touched for long
METRIC_LIMIT = 1e100  # sums of thousands of these are still numbers


class Counting:
    """The state of counting one report of an open stream."""

    __slots__ = (
        "_by",
        "_counts",
        "_gauges",
        "_localities",
        "_now",
        "_order",
        "_services",
        "_shelf",
        "_spans",
        "left_out",
        "refused",
    )

    def __init__(self, shelf: Shelf, by: Reporter, now: float) -> None:
        shelf.place(by)
        self._shelf = shelf
        self._by = by
        self._now = now
        self._services, self._gauges = by.services, by.gauges
        self._order: list[Service | None] = []
        self._counts: list[Counts] = []
        self._spans: dict[float, int] = {}
        self._localities = self.left_out = self.refused = 0

    def steps(self, report: LoadRequest) -> Generator[None]:
        """Count; pauses between some clusters."""
        for at, cluster in enumerate(report.tallies(), 1):
            if at > self._shelf.bounds.clusters:
                self._leave_out("clusters", report.reports - at + 1)
                return
            if isinstance(cluster, tuple):
                self._count_tally(cluster)
            elif cluster is None:
                self.refused += 1
                self._pass()
            else:
                self._count_load(cluster)
            if not at % CLUSTERS_AT_ONCE:
                yield

    @property
    def order(self) -> list[Service | None]:
        """What each cluster's report was counted for; None for one that was not."""
        return self._order

    @property
    def counts(self) -> list[Counts]:
        """Of each cluster: successes, errors, issued, dropped."""
        return self._counts

    @property
    def longest_s(self) -> float:
        """The longest interval."""
        return max(self._spans, default=0.0)

    def taken(self) -> Taken:
        return Taken(
            clusters=len(self._order) - self._order.count(None),
            localities=self._localities,
            refused=self.refused,
            left_out=self.left_out,
        )

    def _count_tally(self, tally: ClusterTally) -> None:
        """The hot path: a fleet has hundreds of thousands of localities to tell of each second."""
        cluster, service_name, interval_s, dropped, localities = tally
        service = self._services.get((cluster, service_name)) or self._make(cluster, service_name)
        if service is None:
            self._pass()
            return
        service.reported = self._now
        span = self._spans.get(interval_s) or self._span(interval_s)
        known = service.known
        gauge: Gauge | None = None
        successes = errors = issued = 0
        for where, succeeded, failed, begun, underway in localities:
            try:
                window = known[where]
            except KeyError:
                window = self._named(service, where)
            if window.span != span:
                window.turn(span)
            window.successes += succeeded
            successes += succeeded
            window.issued += begun
            issued += begun
            if failed:
                window.errors += failed
                errors += failed
            if underway:
                if gauge is None:
                    gauge = []
                gauge.append((window, underway))
        self._order.append(service)
        self._counts.append((successes, errors, issued, dropped))
        self._localities += len(localities)
        if gauge is not None or service in self._gauges:
            self._by.set_gauge(service, gauge or [], self._now)
        if dropped:
            self._count_drops(service, span, {}, dropped)

    def _count_load(self, load: ClusterLoad) -> None:
        key = load.cluster, load.service_name
        service = self._services.get(key) or self._make(*key)
        traffic = [each.traffic for each in load.localities]
        successes, errors, issued, _ = map(sum, zip(*traffic, strict=True)) if traffic else (0, 0, 0, 0)
        if service is None:
            self._pass()
            return
        self._order.append(service)
        self._counts.append((successes, errors, issued, load.dropped))
        service.reported = self._now
        span = self._spans.get(load.interval_s) or self._span(load.interval_s)
        gauge: Gauge = []
        for each in load.localities:
            self._count_locality(service, span, each, gauge)
        self._localities += len(load.localities)
        self._by.set_gauge(service, gauge, self._now)
        self._count_drops(service, span, load.drops, load.uncategorised)

    def _count_locality(self, service: Service, span: int, load: LocalityLoad, gauge: Gauge) -> None:
        by, target = self._by, load.locality
        window = self._shelf.target(by, service, target, self._now)
        if not self._add(window, span, load.traffic, gauge):
            return
        self._count_metrics(service, span, target, "", load.metrics)
        for endpoint in load.endpoints:
            window = self._shelf.endpoint(by, service, (target, endpoint.address), self._now)
            if self._add(window, span, endpoint.traffic, gauge):
                self._count_metrics(service, span, target, endpoint.address, endpoint.metrics)

    def _add(self, window: Window | None, span: int, traffic: Traffic, gauge: Gauge) -> bool:
        if window is None:
            self.left_out += 1
            return False
        if window.span != span:
            window.turn(span)
        window.successes += traffic.successes
        window.errors += traffic.errors
        window.issued += traffic.issued
        if traffic.in_progress:
            gauge.append((window, traffic.in_progress))
        return True

    def _count_metrics(
        self, service: Service, span: int, target: Locality, address: str, metrics: Mapping[str, Metric]
    ) -> None:
        for name, metric in metrics.items():
            if abs(metric.total) > METRIC_LIMIT:
                self._leave_out("metric_value", 1)
                continue
            counter = self._shelf.metric(self._by, service, (target, address, name), self._now)
            if counter is None:
                self.left_out += 1
            else:
                counter.add(span, metric)

    def _count_drops(self, service: Service, span: int, drops: Mapping[str, int], uncategorised: int) -> None:
        for category, dropped in (*drops.items(), (UNCATEGORISED, uncategorised)):
            if dropped:
                counter = self._shelf.drop(self._by, service, category, self._now)
                if counter is None:
                    self.left_out += 1
                else:
                    counter.add(span, (dropped,))

    def _pass(self) -> None:
        """A cluster's report is not counted."""
        self._order.append(None)
        self._counts.append((0, 0, 0, 0))

    def _named(self, service: Service, where: bytes) -> Window:
        """A window that is none of the service's where a bound does not allow another."""
        window = self._shelf.named(self._by, service, where, self._now)
        if window is None:
            self.left_out += 1
        return window or Window()

    def _make(self, cluster: str, service_name: str) -> Service | None:
        service = self._shelf.service(self._by, cluster, service_name, self._now)
        if service is None:
            self.left_out += 1
        return service

    def _span(self, interval_s: float) -> int:
        """Clusters of one report differ by microseconds, if at all."""
        span = self._spans[interval_s] = span_of(edge_of(self._now), interval_s)
        return span

    def _leave_out(self, bound: str, count: int) -> None:
        self.left_out += count
        self._shelf.left_out[bound] += count

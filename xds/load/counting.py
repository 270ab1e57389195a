"""One report, counted: into the windows of its clusters, the gauges of its stream and the totals of its node."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from xds.load.figures import UNCATEGORISED, Taken
from xds.load.history import edge_of
from xds.load.reporter import Columns, Gauge, Reporter
from xds.load.service import Service
from xds.load.shelf import Shelf
from xds.load.window import Window, span_of
from xds.model.load_report import ClusterLoad, LocalityLoad, Metric, Traffic
from xds.model.node import Locality
from xds.protocol.load_wire import ClusterTally, LoadRequest

CLUSTERS_AT_ONCE = 256  # a millisecond or so
METRIC_LIMIT = 1e100  # sums of thousands of these are still numbers


class Counting:
    """The state of counting one report of an open stream."""

    __slots__ = (
        "_by",
        "_columns",
        "_end",
        "_left_out",
        "_localities",
        "_now",
        "_order",
        "_refused",
        "_shelf",
        "longest_s",
    )

    def __init__(self, shelf: Shelf, by: Reporter, now: float) -> None:
        self._shelf = shelf
        self._by = by
        self._now = now
        self._end = edge_of(now)
        self._order: list[Service | None] = []
        self._columns: Columns = ([], [], [], [])
        self._localities = self._left_out = self._refused = 0
        self.longest_s = 0.0

    def steps(self, report: LoadRequest) -> Generator[None]:
        """Count; pauses between some clusters."""
        self._shelf.place(self._by)
        for at, cluster in enumerate(report.tallies(), 1):
            if at > self._shelf.bounds.clusters:
                self._leave_out("clusters", report.reports - at + 1)
                return
            if isinstance(cluster, tuple):
                self._count_tally(cluster)
            elif cluster is None:
                self._refused += 1
                self._note(None)
            else:
                self._count_load(cluster)
            if not at % CLUSTERS_AT_ONCE:
                yield

    def finish(self) -> Taken:
        return Taken(
            clusters=sum(service is not None for service in self._order),
            localities=self._localities,
            refused=self._refused,
            left_out=self._left_out,
        )

    @property
    def order(self) -> list[Service | None]:
        return self._order

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def refused(self) -> int:
        return self._refused

    @property
    def left_out(self) -> int:
        return self._left_out

    def _count_tally(self, tally: ClusterTally) -> None:
        cluster, service_name, interval_s, dropped, successes, errors, issued, localities = tally
        service = self._service(cluster, service_name, interval_s)
        self._note(service, successes, errors, issued, dropped)
        if service is None:
            return
        span = span_of(self._end, interval_s)
        known, gauge = service.known, []
        for where, succeeded, failed, begun, underway in localities:
            window = known.get(where) or self._shelf.named(self._by, service, where, self._now)
            if window is None:
                self._left_out += 1
                continue
            if window.span != span:
                window.turn(span)
            window.successes += succeeded
            window.issued += begun
            if failed:
                window.errors += failed
            if underway:
                gauge.append((window, underway))
        self._localities += len(localities)
        if gauge or service in self._by.gauges:
            self._by.set_gauge(service, gauge, self._now)
        if dropped:
            self._count_drops(service, span, {}, dropped)

    def _count_load(self, load: ClusterLoad) -> None:
        service = self._service(load.cluster, load.service_name, load.interval_s)
        traffic = [each.traffic for each in load.localities]
        self._note(
            service,
            sum(each.successes for each in traffic),
            sum(each.errors for each in traffic),
            sum(each.issued for each in traffic),
            load.dropped,
        )
        if service is None:
            return
        span = span_of(self._end, load.interval_s)
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
            self._left_out += 1
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
                self._left_out += 1
            else:
                counter.add(span, metric)

    def _count_drops(self, service: Service, span: int, drops: Mapping[str, int], uncategorised: int) -> None:
        for category, dropped in (*drops.items(), (UNCATEGORISED, uncategorised)):
            if dropped:
                counter = self._shelf.drop(self._by, service, category, self._now)
                if counter is None:
                    self._left_out += 1
                else:
                    counter.add(span, (dropped,))

    def _service(self, cluster: str, service_name: str, interval_s: float) -> Service | None:
        self.longest_s = max(self.longest_s, interval_s)
        service = self._by.services.get((cluster, service_name))
        if service is None:
            service = self._shelf.service(self._by, cluster, service_name, self._now)
        if service is None:
            self._left_out += 1
        else:
            service.reported = self._now
        return service

    def _note(
        self, service: Service | None, successes: int = 0, errors: int = 0, issued: int = 0, dropped: int = 0
    ) -> None:
        self._order.append(service)
        for column, count in zip(self._columns, (successes, errors, issued, dropped), strict=True):
            column.append(count)

    def _leave_out(self, bound: str, count: int) -> None:
        self._left_out += count
        self._shelf.left_out[bound] += count

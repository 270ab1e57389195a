"""One report, counted: into the windows of its clusters, the gauges of its stream and the totals of its node."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from itertools import islice

from xds.load.figures import UNCATEGORISED, Taken
from xds.load.history import edge_of
from xds.load.reporter import Reporter
from xds.load.service import Known, Service, counts_of
from xds.load.shelf import Shelf
from xds.load.window import Window, span_of
from xds.model.load_report import ClusterLoad, LocalityLoad, Metric, Traffic
from xds.model.node import Locality
from xds.protocol.lanes import pack
from xds.protocol.load_tally import ClusterTally, Layout, NotTalliedError, interval_of, names_of
from xds.protocol.load_wire import LoadRequest, load_of, locality_of

Gauge = list[tuple[Window, int]]  # what is in progress

CLUSTERS_AT_ONCE = 64  # a millisecond, when each is counted into windows that nobody has touched for long
METRIC_LIMIT = 1e100  # sums of thousands of these are still numbers


class Counting:
    """The state of counting one report of an open stream.

    ``order`` is what each cluster's report was counted for, None for one that was not; ``sums`` are those of its tally.
    ``longest_s`` is the longest interval.
    """

    __slots__ = (
        "_by",
        "_localities",
        "_now",
        "_shelf",
        "_spans",
        "left_out",
        "longest_s",
        "order",
        "refused",
        "sums",
    )

    def __init__(self, shelf: Shelf, by: Reporter, now: float) -> None:
        shelf.place(by)
        self._shelf = shelf
        self._by = by
        self._now = now
        self.order: list[Service | None] = []
        self.sums: list[int] = []
        self._spans: dict[bytes, int] = {}
        self.longest_s = 0.0
        self._localities = self.left_out = self.refused = 0

    def steps(self, report: LoadRequest) -> Generator[None]:
        """Count; pauses between some clusters."""
        tallies, room = report.tallies(), self._shelf.bounds.clusters
        while batch := list(islice(tallies, min(room, CLUSTERS_AT_ONCE))):
            self._count(batch)
            room -= len(batch)
            if len(batch) == CLUSTERS_AT_ONCE:
                yield
        if len(self.order) < report.reports:
            self._leave_out("clusters", report.reports - len(self.order))

    def taken(self) -> Taken:
        return Taken(
            clusters=len(self.order) - self.order.count(None),
            localities=self._localities,
            refused=self.refused,
            left_out=self.left_out,
        )

    def _count(self, batch: Iterable[ClusterTally | bytes]) -> None:
        """The hot path: a fleet has hundreds of thousands of localities to tell of each second."""
        services, spans, gauges = self._by.services.named, self._spans, self._by.gauges
        for cluster in batch:
            if isinstance(cluster, bytes):
                self._count_whole(cluster)
                continue
            stats, names, interval, (layout, counters, in_progress, sums, dropped) = cluster
            service, span = services.get(names), spans.get(interval)
            if service is None or span is None:
                try:
                    span, service = self._span(interval_of(interval), interval), self._named(names)
                except NotTalliedError:
                    self._count_whole(stats)
                    continue
                if service is None:
                    self._pass()
                    continue
            service.reported = self._now
            if service.span != span:
                service.turn(span)
            known = service.latest
            if known.layout is layout:
                known.counters += counters
            else:
                known = self._count_other(service, layout, counters)
            self.order.append(service)
            self.sums.append(sums)
            self._localities += len(layout)
            if in_progress or service in gauges:
                self._by.set_gauge(service, known, in_progress, self._now)
            if dropped:
                self._count_drops(service, span, {}, dropped)

    def _count_whole(self, stats: bytes) -> None:
        """A report that is not for tallies."""
        load = load_of(stats)
        if load is None:
            self.refused += 1
            self._pass()
        else:
            self._count_load(load)

    def _count_other(self, service: Service, layout: Layout, counters: int) -> Known:
        """A layout other than that of the report before."""
        known = service.known.get(layout)
        if known is None:
            return self._count_apart(service, layout, counters)
        known.counters += counters
        service.latest = known
        return known

    def _count_apart(self, service: Service, layout: Layout, counters: int) -> Known:
        """A layout that the service does not know yet, or that a bound keeps out.

        Windows that a bound does not allow are none of the service's.
        """
        found = [self._shelf.target(self._by, service, locality_of(where), self._now) for where in layout]
        known = Known(tuple(window or Window() for window in found), layout)
        for window, counts in zip(known.windows, counts_of(layout, counters), strict=True):
            window.add(service.span, counts)
        if None in found:
            self.left_out += found.count(None)
        else:
            service.learn(known)
        return known

    def _count_load(self, load: ClusterLoad) -> None:
        service = self._service(load.cluster, load.service_name)
        if service is None:
            self._pass()
            return
        traffic = [each.traffic for each in load.localities]
        successes, errors, issued, _ = map(sum, zip(*traffic, strict=True)) if traffic else (0, 0, 0, 0)
        self.order.append(service)
        self.sums.append(pack((successes, errors, issued, load.dropped)))
        service.reported = self._now
        span = self._span(load.interval_s)
        gauge: Gauge = []
        for each in load.localities:
            self._count_locality(service, span, each, gauge)
        self._localities += len(load.localities)
        windows, in_progress = zip(*gauge, strict=True) if gauge else ((), ())
        if gauge or service in self._by.gauges:
            self._by.set_gauge(service, Known(windows), pack(in_progress), self._now)
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
        window.add(span, traffic[:3])
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
        self.order.append(None)
        self.sums.append(0)

    def _named(self, names: bytes) -> Service | None:
        """Known by these bytes from now on. Raises ``NotTalliedError``."""
        service = self._service(*names_of(names))
        if service is not None:
            self._by.services.named[names] = service
        return service

    def _service(self, cluster: str, service_name: str) -> Service | None:
        service = self._shelf.service(self._by, cluster, service_name, self._now)
        if service is None:
            self.left_out += 1
        return service

    def _span(self, interval_s: float, interval: bytes | None = None) -> int:
        """Known by the bytes of the interval from now on: clusters of one report differ by microseconds, if at all."""
        self.longest_s = max(self.longest_s, interval_s)
        span = span_of(edge_of(self._now), interval_s)
        if interval is not None:
            self._spans[interval] = span
        return span

    def _leave_out(self, bound: str, count: int) -> None:
        self.left_out += count
        self._shelf.left_out[bound] += count

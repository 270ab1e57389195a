"""One report, counted: into the windows of its clusters, the gauges of its stream and the totals of its node."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from operator import is_not

from xds.lrs.batch import STRIP_LEAST, STRIPS_LIMIT, Cuts, Strip
from xds.lrs.figures import UNCATEGORISED, Taken
from xds.lrs.load_stats import LoadRequest, load_of, locality_of
from xds.lrs.packed_counters import (
    ClusterTally,
    Layout,
    NotTalliedError,
    Tally,
    head_of,
    interval_of,
    names_of,
    pack,
    read_tallies,
)
from xds.lrs.reporting import Reporter
from xds.lrs.series import Known, Service, counts_of
from xds.lrs.series_index import Shelf
from xds.lrs.windows import Window, edge_of, span_of
from xds.model.load_report import ClusterLoad, LocalityLoad, Metric, Traffic
from xds.model.node import Locality

Gauge = list[tuple[Window, int]]  # what is in progress

CLUSTERS_AT_ONCE = 128  # a millisecond, when each is counted one by one
STRIP_IDLE_S = 60.0  # after which another one with the same first cluster may take its place
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
        reports = report.clusters
        counted = min(len(reports), self._shelf.bounds.clusters)
        for begin in range(0, counted, CLUSTERS_AT_ONCE):
            batch = reports[begin : min(begin + CLUSTERS_AT_ONCE, counted)]
            self._count(batch)
            if len(batch) == CLUSTERS_AT_ONCE:
                yield
        if counted < len(reports):
            self._leave_out("clusters", len(reports) - counted)

    def taken(self) -> Taken:
        return Taken(
            clusters=len(self.order) - self.order.count(None),
            localities=self._localities,
            refused=self.refused,
            left_out=self.left_out,
        )

    def _count(self, batch: Sequence[bytes]) -> None:
        """The hot path: a fleet has hundreds of thousands of localities to tell of each second."""
        strips = self._by.services.strips
        first = head_of(batch[0])
        strip = strips.get(first)
        if strip is not None and self._count_strip(strip, batch):
            return
        read = list(read_tallies(batch))
        begun = len(self.order)
        self._count_singly(read)
        if strip is None or strip.reported < self._now - STRIP_IDLE_S:
            made = self._strip(read, self.order[begun:])
            if made is not None:
                strips[first] = made

    def _count_strip(self, strip: Strip, batch: Sequence[bytes]) -> bool:
        """All at once; False where they are not those of the strip, or not to be read so, and none is counted."""
        read = strip.cuts.read(batch)
        if read is None:
            return False
        intervals, tallies = read
        try:
            spans = set(map(self._span_of, intervals))
        except NotTalliedError:
            return False
        if len(spans) > 1:
            return False
        (span,) = spans
        layouts, counters, in_progress, sums, dropped = zip(*tallies, strict=True)
        others = _others(layouts, strip.layouts)
        if others:
            self._localities += sum(map(len, layouts))
            counters, in_progress = _without(others, counters), _without(others, in_progress)
        else:
            self._localities += strip.localities
        strip.count(span, counters, self._now)
        self._by.gauges.set_all(strip, in_progress, self._now)
        self.order += strip.services
        self.sums += sums
        for place in others:
            self._count_tally(strip.services[place], span, tallies[place])
        if any(dropped):
            for service, count in zip(strip.services, dropped, strict=True):
                self._count_drops(service, span, {}, count)
        return True

    def _strip(self, read: Sequence[ClusterTally | bytes], services: Sequence[Service | None]) -> Strip | None:
        """For the next reports of these clusters, if they are of the kind that can be counted at once."""
        if len(read) < STRIP_LEAST:
            return None
        clusters = [each for each in read if not isinstance(each, bytes)]
        found = [service for service in services if service is not None and len(service.strips) < STRIPS_LIMIT]
        if not len(set(found)) == len(clusters) == len(read):
            return None
        layouts = [tally.layout for *_, tally in clusters]
        knowns = [service.known.get(layout) for service, layout in zip(found, layouts, strict=True)]
        learnt = [known for known in knowns if known is not None]
        return Strip(Cuts(clusters), found, learnt, layouts, self._now) if len(learnt) == len(found) else None

    def _count_singly(self, read: Sequence[ClusterTally | bytes]) -> None:
        services = self._by.services.named
        for cluster in read:
            if isinstance(cluster, bytes):
                self._count_whole(cluster)
                continue
            stats, names, interval, tally = cluster
            try:
                span, service = self._span_of(interval), services.get(names) or self._named(names)
            except NotTalliedError:
                self._count_whole(stats)
                continue
            if service is None:
                self._pass()
                continue
            service.named = self._now
            self.order.append(service)
            self.sums.append(tally.sums)
            self._localities += len(tally.layout)
            self._count_tally(service, span, tally)
            if tally.dropped:
                self._count_drops(service, span, {}, tally.dropped)

    def _count_tally(self, service: Service, span: int, tally: Tally) -> None:
        """The counters and gauges of one cluster."""
        if service.span != span:
            service.turn(span)
        known = service.latest
        if known.layout is tally.layout:
            known.counters += tally.counters
        else:
            known = self._count_other(service, tally.layout, tally.counters)
        if tally.in_progress or service in self._by.gauges:
            self._by.gauges.set(service, known, tally.in_progress, self._now)

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
        service.named = self._now
        span = self._span(load.interval_s)
        gauge: Gauge = []
        for each in load.localities:
            self._count_locality(service, span, each, gauge)
        self._localities += len(load.localities)
        windows, in_progress = zip(*gauge, strict=True) if gauge else ((), ())
        if gauge or service in self._by.gauges:
            self._by.gauges.set(service, Known(windows), pack(in_progress), self._now)
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

    def _span(self, interval_s: float) -> int:
        self.longest_s = max(self.longest_s, interval_s)
        return span_of(edge_of(self._now), interval_s)

    def _span_of(self, interval: bytes) -> int:
        """Known by its bytes: clusters of one report differ by microseconds, if at all. Raises ``NotTalliedError``."""
        span = self._spans.get(interval)
        if span is None:
            span = self._spans[interval] = self._span(interval_of(interval))
        return span

    def _leave_out(self, bound: str, count: int) -> None:
        self.left_out += count
        self._shelf.left_out[bound] += count


def _others(layouts: Sequence[Layout], usual: Sequence[Layout]) -> list[int]:
    """The places in which a cluster's localities are others than usual; there is one object for all that are alike."""
    if layouts == usual:
        return []
    return [place for place, differs in enumerate(map(is_not, layouts, usual)) if differs]


def _without(places: Sequence[int], lanes: Sequence[int]) -> tuple[int, ...]:
    kept = list(lanes)
    for place in places:
        kept[place] = 0
    return tuple(kept)

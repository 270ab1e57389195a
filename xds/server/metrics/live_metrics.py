"""Metrics of live assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.live.by_hand import HandAssignments
from xds.live.owners import HAND, LiveEndpoints
from xds.server.counters import PREFIX, Labels, Metrics, family


class LiveMetrics(Collector):
    """The live assignments of all groups, and the clusters in use of ``groups`` that they leave without an endpoint."""

    def __init__(
        self, metrics: Metrics, live: LiveEndpoints, by_hand: HandAssignments, groups: Callable[[], Iterable[str]]
    ) -> None:
        self._metrics = metrics
        self._live = live
        self._by_hand = by_hand
        self._groups = groups

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        owned: Counter[Labels] = Counter()
        for (group, kind), number in self._live.counts().items():
            owned[self._metrics.group(group), kind] += number
        text = "Live assignments, which replace pushed ones or are added to them"
        yield family(GaugeMetricFamily, "live_assignments", text, owned, ("group", "owner"))
        changes: dict[Labels, float] = {(kind,): number for kind, number in {HAND: 0, **self._live.changes}.items()}
        text = "Changes of live assignments"
        yield family(CounterMetricFamily, "live_changes", text, changes, ("owner",))
        draining = self._by_hand.draining_n()
        text = "Draining endpoints that were set by hand"
        yield GaugeMetricFamily(f"{PREFIX}draining_endpoints", text, value=draining)
        unserved: Counter[Labels] = Counter()
        for group, clusters in self._live.unserved.of(self._groups()).items():
            unserved[(self._metrics.group(group),)] += len(clusters)
        text = "Clusters that connected nodes use and whose assignment has no endpoint that serves"
        yield family(GaugeMetricFamily, "unserved_clusters", text, unserved, ("group",))

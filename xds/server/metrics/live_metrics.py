"""Metrics of live assignments, and of groups with upstreams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.control.hand_assignments import HandAssignments
from xds.control.live_endpoints import LiveEndpoints, OwnerKind
from xds.control.lowered_groups import LoweredGroups
from xds.server.metrics.counters import PREFIX, Labels, Metrics, family


class LiveMetrics(Collector):
    """The live assignments of all groups."""

    def __init__(self, metrics: Metrics, live: LiveEndpoints, by_hand: HandAssignments) -> None:
        self._metrics = metrics
        self._live = live
        self._by_hand = by_hand

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        owned: Counter[Labels] = Counter()
        for (group, kind), number in self._live.counts().items():
            owned[self._metrics.group(group), str(kind)] += number
        text = "Live assignments, which replace pushed ones or are added to them"
        yield family(GaugeMetricFamily, "live_assignments", text, owned, ("group", "owner"))
        changes: dict[Labels, float] = {
            (str(kind),): self._live.changes[kind] for kind in (OwnerKind.HAND, OwnerKind.BINDING)
        }
        text = "Changes of live assignments"
        yield family(CounterMetricFamily, "live_changes", text, changes, ("owner",))
        draining = self._by_hand.draining_n()
        text = "Draining endpoints that were set by hand"
        yield GaugeMetricFamily(f"{PREFIX}draining_endpoints", text, value=draining)


class LoweredMetrics(Collector):
    """Groups with upstreams, and their assignments that follow services."""

    def __init__(self, lowered: LoweredGroups) -> None:
        self._lowered = lowered

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        lowered = self._lowered.endpoints
        total, live_n = (len(lowered), lowered.live_n) if lowered is not None else (0, 0)
        states: dict[Labels, float] = {("live",): live_n, ("waiting",): total - live_n}
        text = "Assignments of lowered clusters: served, or waiting for a source to show the service"
        yield family(GaugeMetricFamily, "lowered_assignments", text, states, ("state",))
        text = "Groups with an upstreams document"
        yield family(GaugeMetricFamily, "upstream_groups", text, {(): len(self._lowered)})

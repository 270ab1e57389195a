"""Metrics of live endpoints: who owns how many assignments, how often they change, and what drains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.control.hand_assignments import HandAssignments
from xds.control.live_endpoints import LiveEndpoints, OwnerKind
from xds.server.metrics.counters import PREFIX, Labels, Metrics, family


class LiveMetrics(Collector):
    """The live assignments of all groups."""

    def __init__(self, metrics: Metrics, live: LiveEndpoints, by_hand: HandAssignments) -> None:
        self._metrics = metrics
        self._live = live
        self._by_hand = by_hand

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        owned: Counter[Labels] = Counter()
        for (group, kind), number in self._live.counts().items():
            owned[self._metrics.group(group), str(kind)] += number
        text = "Assignments that are laid over pushed ones, or beside them"
        yield family(GaugeMetricFamily, "live_assignments", text, owned, ("group", "owner"))
        changes: dict[Labels, float] = {
            (str(kind),): self._live.changes[kind] for kind in (OwnerKind.HAND, OwnerKind.BINDING)
        }
        text = "Changes of what groups are served by live assignments"
        yield family(CounterMetricFamily, "live_changes", text, changes, ("owner",))
        draining = self._by_hand.draining_n()
        yield GaugeMetricFamily(f"{PREFIX}draining_endpoints", "Endpoints set by hand that drain", value=draining)

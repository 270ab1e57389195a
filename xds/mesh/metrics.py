"""Metrics of groups with upstreams."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.mesh.lowered_groups import LoweredGroups
from xds.server.counters import Labels, family


class LoweredMetrics(Collector):
    """Groups with upstreams, and their assignments that follow services."""

    def __init__(self, lowered: LoweredGroups) -> None:
        self._lowered = lowered

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        lowered = self._lowered.endpoints
        total, live_n = (len(lowered), lowered.followed.live_n) if lowered is not None else (0, 0)
        states: dict[Labels, float] = {("live",): live_n, ("waiting",): total - live_n}
        text = "Assignments of lowered clusters: served, or waiting for a source to show the service"
        yield family(GaugeMetricFamily, "lowered_assignments", text, states, ("state",))
        text = "Groups with an upstreams document"
        yield family(GaugeMetricFamily, "upstream_groups", text, {(): len(self._lowered)})

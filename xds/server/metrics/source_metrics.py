"""Metrics of the sources that run here: how often they ended, and what waits for the bound on changes."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.control.sources import Sources
from xds.server.metrics.counters import Labels, family

_SOURCE: Labels = ("source", "kind")


class SourceMetrics(Collector):
    """The running of sources. What they have shown is told by `CatalogMetrics`."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        now = time()
        runs = [((run.name, run.kind), run) for run in self._sources.runs().values()]
        restarts = {labels: run.restarts_n for labels, run in runs}
        yield family(CounterMetricFamily, "source_restarts", "Sources that ended and were run again", restarts, _SOURCE)
        waiting = {labels: run.waiting_n for labels, run in runs}
        text = "Services whose latest state waits for changes_per_s"
        yield family(GaugeMetricFamily, "source_waiting_services", text, waiting, _SOURCE)
        lag = {labels: max(now - run.waiting_since, 0.0) if run.waiting_since else 0.0 for labels, run in runs}
        text = "How long states of services have been waiting for changes_per_s"
        yield family(GaugeMetricFamily, "source_waiting_seconds", text, lag, _SOURCE)

"""Metrics of the Linkerd API: messages by method, and streams by how they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.control.destinations import Destinations
from xds.server.metrics.counters import Metrics, family
from xds.server.services import LINKERD_METHODS

STATES = ("told", "empty", "unknown", "awaited")


class LinkerdMetrics(Collector):
    """The Linkerd API. Runs in a thread, over copies. The number of series is fixed."""

    def __init__(self, metrics: Metrics, destinations: Destinations) -> None:
        self._metrics = metrics
        self._destinations = destinations

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        sent = self._metrics.linkerd_messages.copy()
        text = "Messages to Linkerd proxies"
        values = {(each.service, each.method): float(sent[each.service, each.method]) for each in LINKERD_METHODS}
        yield family(CounterMetricFamily, "linkerd_messages", text, values, ("service", "method"))
        states: Counter[str] = Counter()
        skipped = 0
        for stream in self._destinations.states():
            told = stream.told
            is_empty = told.endpoints_n == 0
            state = "awaited" if not told.is_settled else "unknown" if not told.exists else "told"
            states["empty" if state == "told" and is_empty else state] += 1
            skipped += bool(told.skipped)
        text = (
            "Streams of Linkerd proxies: told of endpoints, profiles or policies; of a service without endpoints; of an"
        )
        text += " unknown service; or still without an answer"
        yield family(
            GaugeMetricFamily, "linkerd_streams", text, {(each,): float(states[each]) for each in STATES}, ("state",)
        )
        text = "Streams of Linkerd proxies whose configuration has what cannot be told to them"
        yield GaugeMetricFamily("xds_server_linkerd_skipped_streams", text, value=skipped)

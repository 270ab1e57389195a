"""Metrics of the Linkerd API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.linkerd.destinations import Destinations
from xds.linkerd.methods import METHODS
from xds.server.counters import PREFIX, family

_STATES = ("told", "empty", "unknown", "awaited")


class LinkerdMetrics(Collector):
    """The Linkerd API. ``collect`` runs in a thread, over copies. The number of series is fixed."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        sent = self._destinations.messages.copy()
        text = "Messages to Linkerd proxies"
        values = {(each.service, each.method): float(sent[each.service, each.method]) for each in METHODS}
        yield family(CounterMetricFamily, "linkerd_messages", text, values, ("service", "method"))
        states: Counter[str] = Counter()
        skipped = 0
        for stream in self._destinations.states():
            state = "awaited" if not stream.is_known else "unknown" if not stream.exists else "told"
            states["empty" if state == "told" and stream.endpoints == 0 else state] += 1
            skipped += bool(stream.skipped)
        text = "Streams of Linkerd proxies by their last answer: told (endpoints, a profile or policies), empty (no"
        text += " endpoints), unknown (no such service), awaited (no answer yet)"
        yield family(
            GaugeMetricFamily,
            "linkerd_streams",
            text,
            {(each,): float(states[each]) for each in _STATES},
            ("state",),
        )
        text = "Streams of Linkerd proxies with configuration that Linkerd's API cannot express"
        yield GaugeMetricFamily(f"{PREFIX}linkerd_skipped_streams", text, value=skipped)

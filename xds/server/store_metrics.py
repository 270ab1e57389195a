"""Metrics of the store: its size when it was last looked at, and what was collected since the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as MetricCollector

from xds.control.retention import Collector
from xds.server.metrics import PREFIX
from xds.store.retention import Condition, Stats


class StoreMetrics(MetricCollector):
    """Shows what the chore knows; nothing is read from the store when the text is asked for."""

    def __init__(self, collector: Collector, condition: Callable[[], Condition]) -> None:
        self._collector = collector
        self._condition = condition

    def collect(self) -> Iterator[Metric]:
        found, done = self._collector.stats, self._collector.collected
        state = self._condition()
        yield _gauge("store_lost", "1: the files of the store are gone or others, pushes are refused", bool(state.lost))
        yield _gauge("store_read_only", "1: the store can only be read, pushes are refused", bool(state.read_only))
        yield _gauge("store_behind", "1: the store lacks commits that were acknowledged", bool(state.behind))
        if found is not None:
            yield from _sizes(found)
        yield _counter("store_collected_revisions", "Revisions whose content was let go", done.revisions)
        yield _counter("store_collected_blobs", "Blobs deleted", done.blobs)
        yield _counter("store_collected_bytes", "Bytes of deleted blobs", done.blob_bytes)
        yield _counter("store_collection_failures", "Collections that failed", self._collector.failures)


def _sizes(found: Stats) -> Iterator[Metric]:
    yield _gauge("store_bytes", "Space the store takes on disk", found.bytes)
    yield _gauge("store_free_bytes", "Space within it that the next pushes can use", found.free_bytes)
    yield _gauge("store_revisions", "Revisions whose content is kept", found.revisions)
    yield _gauge("store_blobs", "Distinct resource bodies kept", found.blobs)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)

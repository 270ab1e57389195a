"""Metrics of the store: its size when it was last looked at, what was collected since the start, and backups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as MetricCollector

from xds.control.audit import APART, TOGETHER
from xds.control.backups import Backups
from xds.control.collector import Collector
from xds.server.metrics import PREFIX
from xds.store.retention import StoreCondition, StoreStats


class StoreMetrics(MetricCollector):
    """Shows what the chore knows; nothing is read from the store when the text is asked for."""

    def __init__(self, collector: Collector, condition: Callable[[], StoreCondition]) -> None:
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


class AuditMetrics(MetricCollector):
    """The writes that were refused since the start, by how the audit list tells them."""

    def __init__(self, refusals: Mapping[str, int]) -> None:
        self._refusals = refusals

    def collect(self) -> Iterator[Metric]:
        text = "Refused writes: told apart in the audit list, or together with others since there are too many kinds"
        yield _counters(
            "audit_refusals", text, "told", {told: self._refusals.get(told, 0) for told in (APART, TOGETHER)}
        )


class BackupMetrics(MetricCollector):
    """Backups and restores since the start; the last backup only when there was one."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    def collect(self) -> Iterator[Metric]:
        kept = self._backups
        yield _counters("backups", "Backups by result", "result", {"made": kept.made, "failed": kept.failed})
        yield _counter("restores", "Backups that were restored", kept.restored)
        for name, text, value in (
            ("backup_last_success_timestamp_seconds", "When the last backup was made", kept.last_s),
            ("backup_last_bytes", "The size of the last backup", kept.last_bytes),
        ):
            family = GaugeMetricFamily(PREFIX + name, text, labels=())
            if kept.made:
                family.add_metric((), value)
            yield family


def _sizes(found: StoreStats) -> Iterator[Metric]:
    yield _gauge("store_bytes", "Space the store takes on disk", found.bytes)
    yield _gauge("store_free_bytes", "Space within it that the next pushes can use", found.free_bytes)
    yield _gauge("store_revisions", "Revisions whose content is kept", found.revisions)
    yield _gauge("store_blobs", "Distinct resource bodies kept", found.blobs)
    entries = GaugeMetricFamily(f"{PREFIX}audit_entries", "Entries of the audit list by kind", labels=["lane"])
    for lane, count in found.audit.items():
        entries.add_metric([lane.name.lower()], count)
    yield entries
    yield _gauge("audit_bytes", "What the entries of changes in the audit list take", found.audit_bytes)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)

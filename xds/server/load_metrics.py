"""Metrics of load reports, from the book and the streams. Nothing is counted for them alone.

Names are those of spec/operator_surface.md 2.5. Clusters, localities and categories come from clients: the first
``PAIRS`` of (cluster, locality) and of (cluster, category) have series of their own, the rest is summed as ``other``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.server.load_streams import LoadStreams
from xds.server.metrics import OTHER, PREFIX

LOAD_PREFIX = "xds_lrs_"
PAIRS = 2_000
NO_CATEGORY = "uncategorised"

Pair = tuple[str, str]


class Admitted:
    """Which label pairs have series of their own: those that came first and still are, so that no counter jumps."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pairs: dict[Pair, None] = {}

    def take(self, present: Collection[Pair]) -> None:
        """Let those go that are no more, and as many others in."""
        self._pairs = {pair: None for pair in self._pairs if pair in present}
        for pair in present:
            if len(self._pairs) >= self._limit:
                return
            self._pairs[pair] = None

    def label(self, pair: Pair) -> Pair:
        return pair if pair in self._pairs else (OTHER, OTHER)


class LoadMetrics(Collector):
    """What was reported, and how the streams that bring it are."""

    def __init__(self, streams: LoadStreams, pairs: int = PAIRS) -> None:
        self._streams = streams
        self._localities = Admitted(pairs)
        self._categories = Admitted(pairs)

    def collect(self) -> Iterator[Metric]:
        yield from self._own()
        yield from self._requests()
        yield from self._drops()

    def _own(self) -> Iterator[Metric]:
        counts, size = self._streams.counts, self._streams.book.size()
        yield _gauge("lrs_streams", "Open load report streams", len(self._streams))
        yield _counter("lrs_reports", "Load reports taken up", counts.reports)
        yield _counter("lrs_report_bytes", "Bytes of load reports", counts.bytes)
        yield _counter("lrs_responses", "Demands for reports sent", counts.asked)
        yield _counter("lrs_restarts", "Streams ended so that the client reads a changed demand", counts.restarts)
        yield _counter("lrs_refused", "Reports of a cluster that cannot be", counts.refused)
        left_out = CounterMetricFamily(
            f"{PREFIX}lrs_left_out", "What a bound kept out of the windows", labels=["bound"]
        )
        for bound, number in size.left_out.items():
            left_out.add_metric([bound], number)
        yield left_out
        yield _gauge("lrs_windows", "Windows that are kept", size.windows)

    def _requests(self) -> Iterator[Metric]:
        totals = {(found.cluster, str(found.target)): found for found in self._streams.book.target_totals()}
        self._localities.take(totals)
        outcomes: Counter[tuple[str, ...]] = Counter()
        issued: Counter[tuple[str, ...]] = Counter()
        in_progress: Counter[tuple[str, ...]] = Counter()
        for pair, found in totals.items():
            labels = self._localities.label(pair)
            outcomes[(*labels, "success")] += found.successes
            outcomes[(*labels, "error")] += found.errors
            issued[labels] += found.issued
            in_progress[labels] += found.in_progress
        pair_labels = ("cluster", "locality")
        yield _family(CounterMetricFamily, "requests", "Requests that ended", outcomes, (*pair_labels, "outcome"))
        yield _family(CounterMetricFamily, "requests_issued", "Requests that began", issued, pair_labels)
        yield _family(GaugeMetricFamily, "requests_in_progress", "Requests under way", in_progress, pair_labels)

    def _drops(self) -> Iterator[Metric]:
        found = self._streams.book.drop_totals()
        totals = {(each.cluster, each.category or NO_CATEGORY): each.dropped for each in found}
        self._categories.take(totals)
        drops: Counter[tuple[str, ...]] = Counter()
        for pair, dropped in totals.items():
            drops[self._categories.label(pair)] += dropped
        yield _family(CounterMetricFamily, "dropped", "Requests dropped by clients", drops, ("cluster", "category"))


def _family(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    values: Counter[tuple[str, ...]],
    labels: tuple[str, ...],
) -> Metric:
    family = kind(LOAD_PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)

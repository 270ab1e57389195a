"""The load that the nodes of one locality and group send to one cluster, under one service name.

Counters of reports are added up, packed, in `CounterGroup`s (and `xds.lrs.batch`) for the length of a *span*: the
second at which reports ended and the interval that they measured (`xds.lrs.windows.span_of`). The reports of a fleet
that come within a second have the same span, as a rule, so the windows are touched once for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xds.lrs.packed_counters import LocalityLayout, unpack
from xds.lrs.windows import NOTHING, Counts, TrafficWindow, ValueWindow, WindowReading
from xds.model.node import Locality

if TYPE_CHECKING:
    from xds.lrs.batch import ClusterBatch

LAYOUTS_LIMIT = 64  # layouts that a series remembers; reports with further ones take longer to count

Windows = tuple[TrafficWindow, ...]


class CounterGroup:
    """The windows of one layout, with packed counters: those not yet added to the windows, and requests in progress.

    ``layout`` is None where only requests in progress are known.
    """

    __slots__ = ("counters", "in_progress", "layout", "windows")

    def __init__(self, windows: Windows = (), layout: LocalityLayout | None = None) -> None:
        self.counters = self.in_progress = 0
        self.layout = layout
        self.windows = windows


class LoadSeries:
    """The windows of one (group, source locality, cluster, service name).

    ``targets``: windows by target locality; ``endpoints``: by locality and address; ``metrics``: by locality, address
    (or empty) and name; ``drops``: by category. ``groups`` and ``batches`` (each with the position in it) hold counters
    of ``span`` that are not yet in the windows. ``last_reports``: how many streams named the series in their latest
    report. ``named_at``: when a stream last named it outside of a batch.
    """

    __slots__ = (
        "_in_progress_groups", "batches", "cluster", "drops", "endpoints", "group", "groups", "last_reports", "latest",
        "metrics", "named_at", "service_name", "source", "span", "targets",
    )  # fmt: skip

    def __init__(self, cluster: str, service_name: str, source: Locality, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self.service_name = service_name
        self.source = source
        self.targets: dict[Locality, TrafficWindow] = {}
        self.endpoints: dict[tuple[Locality, str], TrafficWindow] = {}
        self.metrics: dict[tuple[Locality, str, str], ValueWindow] = {}
        self.drops: dict[str, ValueWindow] = {}
        self.last_reports = 0
        self.named_at = 0.0
        self.span = 0
        self.batches: list[tuple[ClusterBatch, int]] = []
        self.groups: dict[LocalityLayout, CounterGroup] = {}
        self.latest = CounterGroup()  # the group of the report before
        self._in_progress_groups: dict[CounterGroup, None] = {}  # groups with requests in progress

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.targets) + len(self.endpoints) + len(self.metrics) + len(self.drops)

    @property
    def reported(self) -> float:
        """When a stream last named the series, in epoch seconds."""
        return max([self.named_at, *(batch.reported for batch, _ in self.batches)])

    def flush(self, span: int) -> None:
        """Add pending counters to the windows, and start the span ``span``."""
        for batch, position in self.batches:
            batch.flush_series(position)
        for layout, group in self.groups.items():
            if group.counters:
                for window, counts in zip(group.windows, counts_of(layout, group.counters), strict=True):
                    window.add(self.span, counts)
                group.counters = 0
        self.span = span

    def remember(self, group: CounterGroup) -> None:
        """Add up the reports of a layout from now on, unless too many layouts are remembered."""
        if group.layout is not None and len(self.groups) < LAYOUTS_LIMIT:
            self.groups[group.layout] = group

    def add_in_progress(self, group: CounterGroup, packed: int) -> None:
        """Add to the requests in progress of each window of a group; the numbers may be negative."""
        group.in_progress += packed
        if group.in_progress:
            self._in_progress_groups[group] = None
        else:
            self._in_progress_groups.pop(group, None)

    def traffic(self) -> Iterator[tuple[Locality, str, WindowReading]]:
        """Target, address (empty for a whole locality) and its window. Safe while another thread counts."""
        span, counts, in_progress = self.span, self._pending_counts(), self._in_progress()
        for target, window in list(self.targets.items()):
            yield target, "", WindowReading(window, span, counts.get(window, NOTHING), in_progress.get(window, 0))
        for (target, address), window in list(self.endpoints.items()):
            yield target, address, WindowReading(window, span, in_progress=in_progress.get(window, 0))

    def forget_before(self, edge: int) -> None:
        """Drop the windows that no report named since the second ``edge``, unless requests are in progress there."""
        self.flush(self.span)
        busy = self._in_progress().keys()
        self.targets = {key: window for key, window in self.targets.items() if window.last >= edge or window in busy}
        self.endpoints = {
            key: window for key, window in self.endpoints.items() if window.last >= edge or window in busy
        }
        self.metrics = {key: window for key, window in self.metrics.items() if window.last >= edge}
        self.drops = {key: window for key, window in self.drops.items() if window.last >= edge}
        kept = set(self.targets.values())
        self.groups = {layout: group for layout, group in self.groups.items() if kept.issuperset(group.windows)}
        self.latest = CounterGroup()
        self.named_at = self.reported
        self.batches = [(batch, position) for batch, position in self.batches if batch.in_progress[position]]

    def _pending_counts(self) -> dict[TrafficWindow, Counts]:
        """The counters that are not yet in the windows."""
        sums: dict[TrafficWindow, Counts] = {}
        pending = [(layout, group, group.counters) for layout, group in list(self.groups.items())]
        pending += [
            (batch.layouts[position], batch.groups[position], batch.counters[position])
            for batch, position in self.batches
        ]
        for layout, group, counters in pending:
            for window, counts in zip(group.windows, counts_of(layout, counters), strict=True):
                successes, errors, issued = sums.get(window, NOTHING)
                sums[window] = successes + counts[0], errors + counts[1], issued + counts[2]
        return sums

    def _in_progress(self) -> dict[TrafficWindow, int]:
        """Requests in progress of the windows that have any."""
        sums: dict[TrafficWindow, int] = defaultdict(int)
        gauges = [(group, group.in_progress) for group in list(self._in_progress_groups)]
        gauges += [(batch.groups[position], batch.in_progress[position]) for batch, position in self.batches]
        for group, packed in gauges:
            if packed:
                for window, count in zip(group.windows, unpack(packed, len(group.windows)), strict=True):
                    sums[window] += count
        return {window: count for window, count in sums.items() if count}


class SourceSeries:
    """The series of one source: a locality in a group.

    ``by_key``: by cluster and service name; ``by_names``: by both as they are serialized in reports. ``batches``: by
    the report of the first cluster, up to the end of its name.
    """

    __slots__ = ("batches", "by_key", "by_names")

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], LoadSeries] = {}
        self.by_names: dict[bytes, LoadSeries] = {}
        self.batches: dict[bytes, ClusterBatch] = {}

    def forget(self, is_idle: Callable[[LoadSeries], bool]) -> None:
        """Drop idle series."""
        self.by_key = {key: series for key, series in self.by_key.items() if not is_idle(series)}
        kept = set(self.by_key.values())
        self.by_names = {names: series for names, series in self.by_names.items() if series in kept}
        self.batches.clear()  # their windows may be dropped next; the following reports make new batches


def counts_of(layout: LocalityLayout, counters: int) -> Iterator[Counts]:
    """The packed counters of one or several `ClusterCounters`, by position in their layout."""
    _, *counts = unpack(counters, 1 + 3 * len(layout))
    return zip(counts[::3], counts[1::3], counts[2::3], strict=True)

"""What the nodes of one locality and group send to one cluster, under one service name: its windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from xds.lrs.batch import Strip
from xds.lrs.packed_counters import Layout, unpack
from xds.lrs.windows import (
    NOTHING,
    Counter,
    Counts,
    Reading,
    Window,
)
from xds.model.node import Locality

Windows = tuple[Window, ...]
Lanes = Sequence[int]


class Known:
    """The windows of a layout, and what is to be added to each, as lanes: counters of now, and the gauges.

    ``layout`` is None of one that only has a gauge.
    """

    __slots__ = ("counters", "in_progress", "layout", "windows")

    def __init__(self, windows: Windows = (), layout: Layout | None = None) -> None:
        self.counters = self.in_progress = 0
        self.layout = layout
        self.windows = windows


class Service:
    """What is counted: in windows of ``targets`` and of endpoints (by locality and address), metrics (by locality,
    address or empty, and name) and drops (by category).

    Reports are added as lanes (packed counters) to the layouts that are ``known``, all of one ``span``, as the
    reports of a second are in a fleet, so that windows are touched once for all of them. Those of ``strips`` (with the
    place in them) are of this span, too. ``pages`` counts the streams whose latest report names this (see
    `xds.lrs.reporting`), ``named`` is when one did last, by itself.
    """

    __slots__ = (
        "_busy", "cluster", "drops", "endpoints", "group", "known", "latest", "metrics", "named", "pages",
        "service_name", "source", "span", "strips", "targets",
    )  # fmt: skip

    def __init__(self, cluster: str, service_name: str, source: Locality, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self.service_name = service_name
        self.source = source
        self.targets: dict[Locality, Window] = {}
        self.endpoints: dict[tuple[Locality, str], Window] = {}
        self.metrics: dict[tuple[Locality, str, str], Counter] = {}
        self.drops: dict[str, Counter] = {}
        self.pages = 0
        self.named = 0.0
        self.span = 0
        self.strips: list[tuple[Strip, int]] = []
        self.known: dict[Layout, Known] = {}
        self.latest = Known()  # of these, or another
        self._busy: dict[Known, None] = {}  # known or not, those towards which anything is in progress

    @property
    def windows(self) -> int:
        return len(self.targets) + len(self.endpoints) + len(self.metrics) + len(self.drops)

    @property
    def reported(self) -> float:
        """When a stream named it last."""
        return max([self.named, *(strip.reported for strip, _ in self.strips)])

    def turn(self, span: int) -> None:
        """What is open goes to the windows; what comes now is of another span."""
        for strip, place in self.strips:
            strip.hand_over(place)
        for layout, known in self.known.items():
            if known.counters:
                for window, counts in zip(known.windows, counts_of(layout, known.counters), strict=True):
                    window.add(self.span, counts)
                known.counters = 0
        self.span = span

    def learn(self, known: Known) -> None:
        """Sum the reports of a layout from now on; there may be so many."""
        if known.layout is not None and len(self.known) < LAYOUTS_LIMIT:
            self.known[known.layout] = known

    def change_gauge(self, known: Known, lanes: int) -> None:
        """By how much more, or less, is in progress towards each of the windows of a layout."""
        known.in_progress += lanes
        if known.in_progress:
            self._busy[known] = None
        else:
            self._busy.pop(known, None)

    def traffic(self) -> Iterator[tuple[Locality, str, Reading]]:
        """Target, address (empty for all of a locality), what was counted; a copy, as reports may come meanwhile."""
        span, counts, in_progress = self.span, self._open_counts(), self._gauges()
        for target, window in list(self.targets.items()):
            yield target, "", Reading(window, span, counts.get(window, NOTHING), in_progress.get(window, 0))
        for (target, address), window in list(self.endpoints.items()):
            yield target, address, Reading(window, span, in_progress=in_progress.get(window, 0))

    def forget_before(self, edge: int) -> None:
        """Drop the windows that nobody reported since."""
        self.turn(self.span)
        busy = self._gauges().keys()
        self.targets = {key: window for key, window in self.targets.items() if window.last >= edge or window in busy}
        self.endpoints = {
            key: window for key, window in self.endpoints.items() if window.last >= edge or window in busy
        }
        self.metrics = {key: counter for key, counter in self.metrics.items() if counter.last >= edge}
        self.drops = {key: counter for key, counter in self.drops.items() if counter.last >= edge}
        kept = set(self.targets.values())
        self.known = {layout: known for layout, known in self.known.items() if kept.issuperset(known.windows)}
        self.latest = Known()
        self.named = self.reported
        self.strips = [(strip, place) for strip, place in self.strips if strip.in_progress[place]]

    def _open_counts(self) -> dict[Window, Counts]:
        found: dict[Window, Counts] = {}
        opened = [(layout, known, known.counters) for layout, known in list(self.known.items())]
        opened += [(strip.layouts[place], strip.knowns[place], strip.counters[place]) for strip, place in self.strips]
        for layout, known, counters in opened:
            for window, counts in zip(known.windows, counts_of(layout, counters), strict=True):
                successes, errors, issued = found.get(window, NOTHING)
                found[window] = successes + counts[0], errors + counts[1], issued + counts[2]
        return found

    def _gauges(self) -> dict[Window, int]:
        """Of the windows towards which anything is in progress."""
        found: dict[Window, int] = defaultdict(int)
        gauges = [(known, known.in_progress) for known in list(self._busy)]
        gauges += [(strip.knowns[place], strip.in_progress[place]) for strip, place in self.strips]
        for known, lanes in gauges:
            if lanes:
                for window, count in zip(known.windows, unpack(lanes, len(known.windows)), strict=True):
                    found[window] += count
        return {window: count for window, count in found.items() if count}


class SourceServices:
    """Those of one source by (cluster, service name), and by both as reports have them; strips by the report of their
    first service, up to the end of its cluster's name.
    """

    __slots__ = ("by_key", "named", "strips")

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], Service] = {}
        self.named: dict[bytes, Service] = {}
        self.strips: dict[bytes, Strip] = {}

    def forget(self, is_idle: Callable[[Service], bool]) -> None:
        self.by_key = {key: service for key, service in self.by_key.items() if not is_idle(service)}
        kept = set(self.by_key.values())
        self.named = {names: service for names, service in self.named.items() if service in kept}
        self.strips.clear()  # their windows may be forgotten now; others are soon made


def counts_of(layout: Layout, counters: int) -> Iterator[Counts]:
    """Those of a tally, or of several, by place in their layout."""
    _, *counts = unpack(counters, 1 + 3 * len(layout))
    return zip(counts[::3], counts[1::3], counts[2::3], strict=True)


LAYOUTS_LIMIT = 64  # in which localities come, known to a service; others take longer to count

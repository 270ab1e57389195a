"""The load of one group and source locality to one cluster, under one service name.

A traffic window takes some 5.5 kB: three counters, each with 120 seconds and 62 minutes of eight bytes. All windows
together take at most 360 MB; a thousand clusters between three source and three target localities take 50 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xds.lrs.cluster_counters import target_of
from xds.lrs.windows import TrafficWindow, ValueWindow
from xds.model.node import Locality


class LoadSeries:
    """The windows of one (group, source locality, cluster, service name).

    Targets are localities at a priority, as bytes (`xds.lrs.cluster_counters.target_bytes`). ``targets``: windows by
    target; ``endpoints``: by target and address; ``metrics``: by target, address (or empty) and name; ``drops``: by
    category. ``nodes``: how many nodes have an open stream that named the series recently; ``reported``: when a
    stream last named it.
    """

    __slots__ = (
        "cluster", "drops", "endpoints", "group", "metrics", "nodes", "reported", "service_name", "source", "targets",
    )  # fmt: skip

    def __init__(self, cluster: str, service_name: str, source: Locality, group: str) -> None:
        self.cluster = cluster
        self.group = group
        self.service_name = service_name
        self.source = source
        self.targets: dict[bytes, TrafficWindow] = {}
        self.endpoints: dict[tuple[bytes, str], TrafficWindow] = {}
        self.metrics: dict[tuple[bytes, str, str], ValueWindow] = {}
        self.drops: dict[str, ValueWindow] = {}
        self.nodes = 0
        self.reported = 0.0

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.targets) + len(self.endpoints) + len(self.metrics) + len(self.drops)

    def traffic(self) -> Iterator[tuple[Locality, int, str, TrafficWindow]]:
        """Target locality, priority, address (empty for a whole locality) and window.

        Safe while another thread counts.
        """
        for target, window in list(self.targets.items()):
            yield *target_of(target), "", window
        for (target, address), window in list(self.endpoints.items()):
            yield *target_of(target), address, window

    def clear(self) -> None:
        """Drop all windows."""
        for windows in (self.targets, self.endpoints, self.metrics, self.drops):
            windows.clear()

    def forget_before(self, edge: int) -> None:
        """Drop the windows without a report since ``edge``, unless they have requests in progress."""

        def is_recent(window: TrafficWindow) -> bool:
            return window.last >= edge or window.in_progress > 0

        self.targets = {key: window for key, window in self.targets.items() if is_recent(window)}
        self.endpoints = {key: window for key, window in self.endpoints.items() if is_recent(window)}
        self.metrics = {key: window for key, window in self.metrics.items() if window.last >= edge}
        self.drops = {key: window for key, window in self.drops.items() if window.last >= edge}


class SourceSeries:
    """The series of one source: the nodes of a ``group`` in a ``locality``.

    ``by_key``: series by cluster and service name. ``by_names``: series by both names as serialized in reports.
    ``streams``: the ids of the open streams of its nodes.
    """

    __slots__ = ("by_key", "by_names", "group", "locality", "streams")

    def __init__(self, group: str, locality: Locality) -> None:
        self.group = group
        self.locality = locality
        self.by_key: dict[tuple[str, str], LoadSeries] = {}
        self.by_names: dict[bytes, LoadSeries] = {}
        self.streams: set[int] = set()

    def forget(self, is_idle: Callable[[LoadSeries], bool]) -> None:
        """Drop idle series. Their windows are cleared too, because the totals of nodes still refer to the series."""
        idle = [key for key, series in self.by_key.items() if is_idle(series)]
        for key in idle:
            self.by_key.pop(key).clear()
        remaining = set(self.by_key.values())
        self.by_names = {names: series for names, series in self.by_names.items() if series in remaining}

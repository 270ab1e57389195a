"""The load that the nodes of one locality and group send to one cluster, under one service name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from xds.lrs.cluster_counters import target_of
from xds.lrs.windows import TrafficWindow, ValueWindow
from xds.model.node import Locality

if TYPE_CHECKING:
    from xds.lrs.reporting import ReportingStream


class LoadSeries:
    """The windows of one (group, source locality, cluster, service name).

    Targets are localities at a priority, as bytes (`xds.lrs.cluster_counters.target_bytes`). ``targets``: windows by
    target; ``endpoints``: by target and address; ``metrics``: by target, address (or empty) and name; ``drops``: by
    category. ``nodes``: how many nodes have an open stream that named the series recently; ``reported``: when a stream
    last did.
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
        """Drop the windows that no report named since the second ``edge``, unless requests are in progress there."""

        def is_kept(window: TrafficWindow) -> bool:
            return window.last >= edge or window.in_progress > 0

        self.targets = {key: window for key, window in self.targets.items() if is_kept(window)}
        self.endpoints = {key: window for key, window in self.endpoints.items() if is_kept(window)}
        self.metrics = {key: window for key, window in self.metrics.items() if window.last >= edge}
        self.drops = {key: window for key, window in self.drops.items() if window.last >= edge}


class SourceSeries:
    """The series of one source: the nodes of a ``group`` in a ``locality``.

    ``by_key``: by cluster and service name; ``by_names``: by both as they are serialized in reports. ``streams``: the
    open streams of its nodes, by id. ``left``: when a stream last ended that had reported.
    """

    __slots__ = ("by_key", "by_names", "group", "left", "locality", "streams")

    def __init__(self, group: str, locality: Locality) -> None:
        self.group = group
        self.locality = locality
        self.left = 0.0
        self.by_key: dict[tuple[str, str], LoadSeries] = {}
        self.by_names: dict[bytes, LoadSeries] = {}
        self.streams: dict[int, ReportingStream] = {}

    def named(self, cluster: str) -> float:
        """When a report last named a cluster, over all service names; 0 for never."""
        return max((series.reported for (name, _), series in list(self.by_key.items()) if name == cluster), default=0.0)

    def forget(self, is_idle: Callable[[LoadSeries], bool]) -> None:
        """Drop idle series, and their windows: the totals of nodes still refer to them."""
        idle = [key for key, series in self.by_key.items() if is_idle(series)]
        for key in idle:
            self.by_key.pop(key).clear()
        kept = set(self.by_key.values())
        self.by_names = {names: series for names, series in self.by_names.items() if series in kept}

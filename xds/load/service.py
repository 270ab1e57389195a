"""What the nodes of one locality send to one cluster, under one service name: its windows."""

from __future__ import annotations

from collections.abc import Iterator

from xds.load.window import Counter, Window
from xds.model.node import Locality


class Service:
    """``known`` has the windows of ``targets`` once more, by serialized localities: how reports name them.

    Endpoints are by (locality, address), metrics by (locality, address or empty, name), drops by category. ``pages``
    counts the streams whose latest report names this (see `xds.load.reporter`), ``reported`` is when one did last.
    """

    __slots__ = (
        "cluster", "drops", "endpoints", "known", "metrics", "pages", "reported", "service_name", "source", "targets",
    )  # fmt: skip

    def __init__(self, cluster: str, service_name: str, source: Locality) -> None:
        self.cluster = cluster
        self.service_name = service_name
        self.source = source
        self.known: dict[bytes, Window] = {}
        self.targets: dict[Locality, Window] = {}
        self.endpoints: dict[tuple[Locality, str], Window] = {}
        self.metrics: dict[tuple[Locality, str, str], Counter] = {}
        self.drops: dict[str, Counter] = {}
        self.pages = 0
        self.reported = 0.0

    @property
    def windows(self) -> int:
        return len(self.targets) + len(self.endpoints) + len(self.metrics) + len(self.drops)

    def traffic(self) -> Iterator[tuple[Locality, str, Window]]:
        """Target, address (empty for all of a locality), window; a copy, as reports may come meanwhile."""
        for target, window in list(self.targets.items()):
            yield target, "", window
        for (target, address), window in list(self.endpoints.items()):
            yield target, address, window

    def forget_before(self, edge: int) -> None:
        """Drop the windows that nobody reported since."""
        self.targets = {key: window for key, window in self.targets.items() if _is_alive(window, edge)}
        self.endpoints = {key: window for key, window in self.endpoints.items() if _is_alive(window, edge)}
        self.metrics = {key: counter for key, counter in self.metrics.items() if counter.last >= edge}
        self.drops = {key: counter for key, counter in self.drops.items() if counter.last >= edge}
        kept = {id(window) for window in self.targets.values()}
        self.known = {key: window for key, window in self.known.items() if id(window) in kept}


def _is_alive(window: Window, edge: int) -> bool:
    return window.last >= edge or window.in_progress > 0

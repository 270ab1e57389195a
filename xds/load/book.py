"""The load of a fleet: reports in, figures out. Pure; ``now`` is epoch seconds of one clock."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from xds.load.figures import (
    BookSize,
    By,
    ClusterFigures,
    Demand,
    DropTotals,
    PairTotals,
    Series,
    StreamLife,
    Taken,
)
from xds.model.node import Node
from xds.protocol.load_wire import LoadRequest


class LoadBook:
    """All load reports of this process. Not for several threads, but for reading from another one.

    ``interval_s`` is what clients are asked for: a node that is late by more than twice that is not waited for.
    """

    def __init__(self, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s

    def opened(self, stream: int, node: Node, now: float) -> None:
        """A client named itself."""
        raise NotImplementedError

    def closed(self, stream: int, now: float) -> None:
        """What the stream said to be in progress is no longer; what it counted stays. An unknown one is ignored."""
        raise NotImplementedError

    def add(self, stream: int, report: LoadRequest, now: float) -> Taken:
        """Count a whole report that came at ``now``."""
        raise NotImplementedError

    def adding(self, stream: int, report: LoadRequest, now: float) -> Generator[None, None, Taken]:
        """As ``add``, with a pause every few hundred clusters (a millisecond or so), for long reports."""
        raise NotImplementedError

    def clusters(self, now: float, window_s: float) -> list[ClusterFigures]:
        """One for each (cluster, service name), by name, without rows."""
        raise NotImplementedError

    def cluster(
        self, cluster: str, now: float, window_s: float, by: By = "locality", service_name: str | None = None
    ) -> ClusterFigures | None:
        """With rows; over all service names where none is given. None for a cluster that nobody reported."""
        raise NotImplementedError

    def series(self, cluster: str, now: float, window_s: float, step_s: float, by: By | None = None) -> list[Series]:
        """The window in steps; ``step_s`` is a second at least, a minute where the window is longer than two."""
        raise NotImplementedError

    def demand(self, cluster: str, now: float, window_s: float) -> Demand:
        """For the assignment of traffic. Without sources for a cluster that nobody reported."""
        raise NotImplementedError

    def streams(self) -> Iterator[StreamLife]:
        raise NotImplementedError

    def pair_totals(self) -> Iterator[PairTotals]:
        """For metrics, over (cluster, target locality); bounded."""
        raise NotImplementedError

    def drop_totals(self) -> Iterator[DropTotals]:
        """For metrics, over (cluster, category); bounded."""
        raise NotImplementedError

    def size(self) -> BookSize:
        raise NotImplementedError

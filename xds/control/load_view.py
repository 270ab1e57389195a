"""Live load as the doors show it: what `api` asks, and the answer from a book of reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import Protocol

from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import Breakdown, ChartLine, ClusterFigures


@dataclass(frozen=True, slots=True)
class ReportStream:
    """A load report stream of a node. Times are epoch seconds; ``reported`` is 0 before the first report.

    ``refused`` counts cluster reports that cannot be, ``left_out`` values that a bound kept out. ``api`` is ``v2`` on
    the old transport, else empty. ``principal`` is who its connection has proved to be.
    """

    id: int
    peer: str
    api: str
    opened: float
    reported: float
    reports: int
    refused: int
    left_out: int
    principal: str = ""


@dataclass(frozen=True, slots=True)
class Reporting:
    """How often clients are asked to report. ``set_s`` is what the operator set; ``interval_s`` is longer under load.

    ``share``: of a core, that reading the reports took when it was last measured.
    """

    interval_s: float
    set_s: float
    share: float = 0.0


class LoadView(Protocol):
    """What is shown of load. All windows end as `ClusterFigures` says. May be called from any thread."""

    def clusters(self, window_s: float) -> list[ClusterFigures]:
        """One for each (cluster, service name), by name, without rows."""
        ...

    def cluster(self, cluster: str, window_s: float, by: Breakdown, service_name: str | None) -> ClusterFigures | None:
        """With rows; None for a cluster that nobody reported."""
        ...

    def series(self, cluster: str, window_s: float, step_s: float, by: Breakdown | None) -> list[ChartLine]:
        """The window in steps; no line for a cluster that nobody reported."""
        ...

    def streams(self, node_id: str) -> Sequence[ReportStream]:
        """The open load report streams of a node. On the loop only."""
        ...

    def reporting(self) -> Reporting:
        """How often clients are asked to report."""
        ...


class BookView:
    """The load of a book. ``streams`` knows those of a node."""

    def __init__(
        self,
        book: LoadAggregates,
        streams: Callable[[str], Sequence[ReportStream]] = lambda node_id: (),
        clock: Callable[[], float] = time,
        reporting: Callable[[], Reporting] | None = None,
    ) -> None:
        self._book = book
        self._reporting = reporting
        self._streams = streams
        self._clock = clock

    def clusters(self, window_s: float) -> list[ClusterFigures]:
        return self._book.clusters(self._clock(), window_s)

    def cluster(self, cluster: str, window_s: float, by: Breakdown, service_name: str | None) -> ClusterFigures | None:
        return self._book.cluster(cluster, self._clock(), window_s, by, service_name)

    def series(self, cluster: str, window_s: float, step_s: float, by: Breakdown | None) -> list[ChartLine]:
        return self._book.series(cluster, self._clock(), window_s, step_s, by)

    def streams(self, node_id: str) -> Sequence[ReportStream]:
        return self._streams(node_id)

    def reporting(self) -> Reporting:
        if self._reporting is None:
            return Reporting(self._book.interval_s, self._book.interval_s)
        return self._reporting()

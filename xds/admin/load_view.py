"""Load as the admin API shows it. Each query is made for the present time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time

from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import Breakdown, ChartLine, ClusterFigures
from xds.lrs.stream_states import ReportingState, ReportStream


class LoadView:
    """Load for the admin API. The windows end as `ClusterFigures` says.

    All methods but ``streams`` may be called from any thread.
    """

    def __init__(
        self,
        aggregates: LoadAggregates,
        streams: Callable[[str], Sequence[ReportStream]] = lambda node_id: (),
        clock: Callable[[], float] = time,
        reporting: Callable[[], ReportingState] | None = None,
    ) -> None:
        self._aggregates = aggregates
        self._reporting = reporting
        self._streams = streams
        self._clock = clock

    def clusters(self, window_s: float) -> list[ClusterFigures]:
        """The figures of each (cluster, service name), ordered by name, without rows."""
        return self._aggregates.clusters(self._clock(), window_s)

    def cluster(self, cluster: str, window_s: float, by: Breakdown, service_name: str | None) -> ClusterFigures | None:
        """The figures of one cluster with rows; None for a cluster that no client reported."""
        return self._aggregates.cluster(cluster, self._clock(), window_s, by, service_name)

    def series(self, cluster: str, window_s: float, step_s: float, by: Breakdown | None) -> list[ChartLine]:
        """The window in steps; empty for a cluster that no client reported."""
        return self._aggregates.series(cluster, self._clock(), window_s, step_s, by)

    def streams(self, node_id: str) -> Sequence[ReportStream]:
        """The open load report streams of a node. Call it on the event loop only."""
        return self._streams(node_id)

    def reporting(self) -> ReportingState:
        """How often clients report."""
        if self._reporting is None:
            return ReportingState(self._aggregates.interval_s, self._aggregates.interval_s)
        return self._reporting()

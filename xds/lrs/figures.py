"""The figures of load reports: frozen values, computed for each query.

Times are epoch seconds. Counts of a report are spread evenly over its interval, so the counts of a window that cuts
through an interval are not whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from xds.model.load_report import NO_METRICS, Metric
from xds.model.node import Locality

Breakdown = Literal["locality", "node", "endpoint"]
_NO_DROPS: Mapping[str, float] = {}
UNCATEGORISED = ""  # the key of drops without a category


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests over ``window_s``. ``in_progress`` is a gauge: the sum of the latest reports of the open streams.

    A request counts as ``issued`` when it begins, and as success or error when it ends. One that gets no connection is
    an error that was never issued; ``unconnected`` counts these where they can be told from drops (`attempted`).
    """

    window_s: float
    successes: float = 0.0
    errors: float = 0.0
    issued: float = 0.0
    in_progress: int = 0
    metrics: Mapping[str, Metric] = field(default_factory=lambda: NO_METRICS)
    unconnected: float = 0.0

    @property
    def finished(self) -> float:
        """Requests that ended, with success or error."""
        return self.successes + self.errors

    @property
    def requests(self) -> float:
        """Requests that were issued or got no connection; finished ones where clients do not report issued ones."""
        return self.issued + self.unconnected if self.issued else self.finished

    @property
    def rps(self) -> float:
        """Requests per second."""
        return self.requests / self.window_s if self.window_s else 0.0

    @property
    def error_ratio(self) -> float:
        """The fraction of finished requests that ended in an error; 0 without any."""
        return self.errors / self.finished if self.finished else 0.0


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A part of a cluster's load. ``share``: its fraction of the cluster's requests.

    ``source`` is the locality of the reporting nodes, ``target`` the locality of the endpoints. ``priority`` is above 0
    only while the endpoints of lower priorities fail. Rows are by locality (one for each pair and priority), by
    endpoint (one for each source, target, priority and endpoint) or by node. The row of a node covers the interval of
    its latest report (``figures.window_s``); ``totals`` are the totals of the node.
    """

    figures: Figures
    share: float
    source: Locality
    target: Locality | None = None
    priority: int = 0
    endpoint: str = ""
    node: str = ""
    totals: Totals | None = None
    reported: float = 0.0


class Totals(NamedTuple):
    """Counters of a node since the server first saw it. They never decrease while the server stores them."""

    successes: int = 0
    errors: int = 0
    issued: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The load of one cluster, or of one of its service names.

    ``until``: the end of the window. All nodes that are not overdue have reported up to this time, so a rate does not
    sink between two reports. ``drops``: by category, drops without a category under ``UNCATEGORISED``; ``dropped``:
    their sum. ``nodes``: how many nodes named the cluster in their latest report; ``reported``: the time of the latest
    of these reports. ``groups``: the groups of the nodes that report the cluster, by name.
    """

    cluster: str
    service_name: str
    until: float
    figures: Figures
    dropped: float = 0.0
    drops: Mapping[str, float] = field(default_factory=lambda: _NO_DROPS)
    nodes: int = 0
    reported: float = 0.0
    rows: tuple[LoadRow, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def window_s(self) -> float:
        """The length of the window in seconds."""
        return self.figures.window_s

    @property
    def attempts(self) -> float:
        """All tries in the window, including those that clients dropped (`attempted`)."""
        return attempted(*self._counts)

    @property
    def dropped_rps(self) -> float:
        """Dropped requests a second."""
        return self.dropped / self.window_s if self.window_s else 0.0

    @property
    def drop_ratio(self) -> float:
        """The part of all tries that clients dropped, 0 to 1."""
        return self.dropped / self.attempts if self.attempts else 0.0

    @property
    def failed_ratio(self) -> float:
        """The part of all tries that failed or were dropped, 0 to 1."""
        return min(failed(*self._counts) / self.attempts, 1.0) if self.attempts else 0.0

    @property
    def _counts(self) -> tuple[float, float, float, float]:
        figures = self.figures
        return figures.issued, figures.successes, figures.errors, self.dropped


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """Counts in ``[at, at + step_s)``. Requests in progress are not stored over time.

    ``dropped`` is only set in the line of a whole cluster: clients report drops by cluster.
    """

    at: float
    successes: float
    errors: float
    issued: float
    dropped: float = 0.0

    @property
    def attempts(self) -> float:
        """All tries in the step, including those that clients dropped (`attempted`)."""
        return attempted(self.issued, self.successes, self.errors, self.dropped)

    @property
    def failed_ratio(self) -> float:
        """The part of all tries that failed or were dropped, 0 to 1."""
        lost = failed(self.issued, self.successes, self.errors, self.dropped)
        return min(lost / self.attempts, 1.0) if self.attempts else 0.0


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart. All lines of an answer have the same steps. ``target`` is None for a whole cluster."""

    source: Locality | None
    target: Locality | None
    endpoint: str
    step_s: float
    points: tuple[ChartPoint, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """The requests a second from the nodes of ``source`` to the endpoints of ``target``."""

    source: Locality
    target: Locality
    rps: float
    errors_ps: float
    in_progress: int
    metrics: Mapping[str, Metric] = field(default_factory=lambda: NO_METRICS)
    unissued_ps: float = 0.0  # errors of requests that were not issued: drops counted once more, failed connections


@dataclass(frozen=True, slots=True)
class SourceDemand:
    """The demand of one source locality for a cluster, per second. ``rps`` excludes requests that clients dropped.

    ``attempted_ps`` includes them (`attempted`); at most ``repeats_ps`` of these may be retries or hedges, and
    ``failed_ps`` of them failed or were dropped (`failed`). ``nodes``:
    nodes with an open stream whose latest report names the cluster. ``reported``: the time of the latest of these
    reports; 0 without any.
    """

    source: Locality
    rps: float
    errors_ps: float
    dropped_ps: float
    in_progress: int
    nodes: int
    reported: float
    attempted_ps: float = 0.0
    repeats_ps: float = 0.0
    failed_ps: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterDemand:
    """The demand for a cluster by source, and the flows to its targets; over all service names."""

    cluster: str
    window_s: float
    until: float
    sources: tuple[SourceDemand, ...] = ()
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of counting a report.

    ``clusters``, ``localities``: how many were counted. ``refused``: invalid clusters' reports. ``left_out``: values
    that a bound kept out (`xds.lrs.series.Bounds`). ``ignored``: 1 for the report of a stream that is not open.
    """

    clusters: int = 0
    localities: int = 0
    refused: int = 0
    left_out: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class LoadStreamStatus:
    """An open load report stream. ``interval_s``: the longest interval that its latest report measured."""

    stream: int
    node: str
    locality: Locality
    opened: float
    reported: float
    interval_s: float
    reports: int
    refused: int
    left_out: int


@dataclass(frozen=True, slots=True)
class TargetTotals:
    """For metrics: the counters of a cluster and target locality, over all sources and service names."""

    cluster: str
    target: Locality
    successes: int
    errors: int
    issued: int
    in_progress: int


@dataclass(frozen=True, slots=True)
class DropTotals:
    """For metrics: the drops of a cluster in one category."""

    cluster: str
    category: str
    dropped: int


@dataclass(frozen=True, slots=True)
class AggregatesSize:
    """How much is stored, and how many values were left out since the start, by bound. ``services`` are series."""

    streams: int
    nodes: int
    services: int
    windows: int
    reports: int
    refused: int
    left_out: Mapping[str, int]


def attempted(issued: float, successes: float, errors: float, dropped: float) -> float:
    """The tries that clients made, including tries that reached no endpoint. Nothing is counted twice.

    What Envoy 1.40 reports, measured with 100 requests (``tests/e2e/test_demand.py``):

    ====================================== ====== ========= ====== ======= ==============================
    what keeps requests from an endpoint   issued successes errors dropped tries
    ====================================== ====== ========= ====== ======= ==============================
    ``max_connections`` (requests wait)       100       100      0       0 issued
    ``max_pending_requests``                    3         3      0      97 issued + dropped
    ``max_requests``                            3         3     97      97 issued + dropped: the errors
                                                                           are the drops once more
    ``max_retries``                           106         0    106       0 issued: a retry that is not
                                                                           made is counted nowhere
    ``drop_overload`` of 50 %                  50        50      0      50 issued + dropped
    no connection                               0         0    100       0 errors: they were not issued
    retries, two each                         300         0    300       0 issued: each try is one
    ====================================== ====== ========= ====== ======= ==============================

    So errors that were not issued are either drops or failed connections. Reports do not tell which, so the larger of
    both counts: with ``max_requests`` and failed connections at once the result is too small, never too large.

    For a client that does not report issued requests, finished requests count. A request that was issued before the
    window and failed within the window may count as not issued: the result of that window is then one too large.
    """
    unissued = min(max(successes + errors - issued, 0.0), errors)
    return (issued or successes) + max(dropped, unissued)


def failed(issued: float, successes: float, errors: float, dropped: float) -> float:
    """The tries that ended in an error or were dropped by the client. Nothing is counted twice, as in `attempted`."""
    unissued = min(max(successes + errors - issued, 0.0), errors)
    return errors - unissued + max(dropped, unissued)


def repeats_at_most(
    issued: float, successes: float, errors: float, in_progress: float = 0.0, dropped: float = 0.0
) -> float:
    """How many of the issued tries may be retries or hedges. Reports do not tell them from first tries.

    A retry follows a try that failed, but no drop: Envoy never retries what a circuit breaker refused, and errors that
    are drops once more (`attempted`) are no tries. Of hedged tries all but one are cancelled: they are issued and never
    end. So first tries are at least the issued ones without the failed and the unfinished ones. What is in progress is
    unfinished too, but no hedge yet.
    """
    unfinished = max(issued - successes - errors - in_progress, 0.0)
    unissued = min(max(successes + errors - issued, 0.0), errors)
    return min(issued, errors - min(unissued, dropped) + unfinished)

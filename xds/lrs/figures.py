"""The figures of load reports: frozen values, built when they are asked for.

Times are epoch seconds. What a client measured over an interval is spread evenly over it, so counts of a window that
cuts through an interval are not whole numbers.
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
    """Requests over ``window_s``. ``in_progress`` is a gauge: the sum of what the open streams last reported.

    A request counts as ``issued`` when it begins, and as success or error when it ends.
    """

    window_s: float
    successes: float = 0.0
    errors: float = 0.0
    issued: float = 0.0
    in_progress: int = 0
    metrics: Mapping[str, Metric] = field(default_factory=lambda: NO_METRICS)

    @property
    def finished(self) -> float:
        """Requests that ended, with success or error."""
        return self.successes + self.errors

    @property
    def requests(self) -> float:
        """Issued requests; finished ones where clients do not report issued ones."""
        return self.issued or self.finished

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

    ``source`` is the locality of the reporting nodes, ``target`` that of the endpoints, at a ``priority``: 0 unless
    the endpoints of lower numbers fail. Rows are by locality (one for each pair and priority), by endpoint (one for
    each source, target, priority and endpoint) or by node. The row of a node covers the interval
    of its latest report (``figures.window_s``), and ``totals`` are those of the node.
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
    """Counters of a node since it is known. They never decrease while it is."""

    successes: int = 0
    errors: int = 0
    issued: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The load of one cluster, or of one of its service names.

    ``until``: the end of the window, up to which all nodes have reported that are not overdue; so a rate does not sink
    between two reports. ``drops``: by category, those without one under ``UNCATEGORISED``; ``dropped``: their sum.
    ``nodes``: how many named the cluster in their latest report; ``reported``: when the latest of them did.
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

    @property
    def window_s(self) -> float:
        """The length of the window in seconds."""
        return self.figures.window_s


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """Counts in ``[at, at + step_s)``. Requests in progress are not kept over time."""

    at: float
    successes: float
    errors: float
    issued: float


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart. All lines of an answer have the same steps. Without ``target`` it is the whole cluster's."""

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
    """The demand of one source locality for a cluster, a second. ``rps`` is without requests that clients dropped.

    ``attempted_ps`` is with them (`xds.lrs.attempts`); of these ``repeats_ps`` at most may be retries or hedges.
    ``nodes``: nodes with an open stream whose latest report names the cluster. ``reported``: when the latest of them
    did; 0 without any.
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


@dataclass(frozen=True, slots=True)
class SourceReporting:
    """The nodes of a source locality that report, and the times of their reports.

    A node with an open load report stream reports, and says by silence that it has no requests: gRPC sends nothing
    about idle clusters, and nothing at all when all are idle. The server's keepalive ends the streams of nodes that are
    gone. ``nodes``: the ids of these nodes. ``heard``: ``now`` if there is one, else when the last of them reported or
    left. ``reported``: when one of the open streams last sent a report. ``named``: when any report last named the
    cluster. Times are 0 for never.
    """

    source: Locality
    nodes: frozenset[str]
    heard: float
    reported: float
    named: float


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

    ``clusters``, ``localities``: what was counted. ``refused``: invalid clusters' reports. ``left_out``: values that a
    bound kept out (`xds.lrs.series_index.Bounds`). ``ignored``: 1 for the report of a stream that is not open.
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
    """How much is kept, and what was left out since the start, by bound. ``services`` are series."""

    streams: int
    nodes: int
    services: int
    windows: int
    reports: int
    refused: int
    left_out: Mapping[str, int]

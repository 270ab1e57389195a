"""What load reports come to: frozen values, built on demand.

Times are epoch seconds. Counts over a window are not whole numbers where the window cuts through the interval of a
report: what was measured over an interval is spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from xds.model.load_report import NO_METRICS, Metric
from xds.model.node import Locality

By = Literal["locality", "node", "endpoint"]
NO_SHARE: Mapping[str, float] = {}
UNCATEGORISED = ""  # the category of drops that have none


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests over ``window_s``; ``in_progress`` is a gauge: what the streams that are open said last.

    ``issued`` counts requests when they begin, ``successes`` and ``errors`` when they end.
    """

    window_s: float
    successes: float = 0.0
    errors: float = 0.0
    issued: float = 0.0
    in_progress: int = 0
    metrics: Mapping[str, Metric] = field(default_factory=lambda: NO_METRICS)

    @property
    def finished(self) -> float:
        return self.successes + self.errors

    @property
    def requests(self) -> float:
        """Those issued; the finished ones for clients that do not tell."""
        return self.issued or self.finished

    @property
    def rps(self) -> float:
        return self.requests / self.window_s if self.window_s else 0.0

    @property
    def error_ratio(self) -> float:
        return self.errors / self.finished if self.finished else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A part of a cluster's load. ``share`` is its part of the cluster's requests, 0 to 1.

    ``source`` is the locality of the nodes that report, ``target`` that of the endpoints. By locality there is a row
    for each pair, by endpoint one for each (source, target, endpoint). By node there is one for each node, over the
    interval of its latest report (``figures.window_s``), and ``totals`` are what it reported since it is known.
    """

    figures: Figures
    share: float
    source: Locality
    target: Locality | None = None
    endpoint: str = ""
    node: str = ""
    totals: Totals | None = None
    reported: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters since a node or a pair of localities is known. They never fall while it is."""

    successes: int = 0
    errors: int = 0
    issued: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The load of one cluster, or of one service name of it.

    The window ends at ``until``: as far as all nodes have reported that are not overdue, so that a rate does not sink
    from one report to the next. ``drops`` are by category, those that have none under ``UNCATEGORISED``; ``dropped``
    is their sum. ``nodes`` counts those that reported the cluster of late, ``reported`` is when the latest one did.
    """

    cluster: str
    service_name: str
    until: float
    figures: Figures
    dropped: float = 0.0
    drops: Mapping[str, float] = field(default_factory=lambda: NO_SHARE)
    nodes: int = 0
    reported: float = 0.0
    rows: tuple[Row, ...] = ()

    @property
    def window_s(self) -> float:
        return self.figures.window_s


@dataclass(frozen=True, slots=True)
class Point:
    """What happened in ``[at, at + step_s)``. Gauges have no past: a point has none."""

    at: float
    successes: float
    errors: float
    issued: float


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart; all lines of an answer have the same steps. Without ``target``: the whole cluster."""

    source: Locality | None
    target: Locality | None
    endpoint: str
    step_s: float
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """What the nodes of ``source`` sent to the endpoints of ``target``, a second."""

    source: Locality
    target: Locality
    rps: float
    errors_ps: float
    in_progress: int
    metrics: Mapping[str, Metric] = field(default_factory=lambda: NO_METRICS)


@dataclass(frozen=True, slots=True)
class SourceDemand:
    """What the nodes of one locality want of a cluster, a second. ``rps`` is without what they dropped themselves.

    ``nodes`` counts those whose streams are open and that reported this cluster of late; ``reported`` is when the
    latest of them did, 0 when none is left.
    """

    source: Locality
    rps: float
    errors_ps: float
    dropped_ps: float
    in_progress: int
    nodes: int
    reported: float


@dataclass(frozen=True, slots=True)
class Demand:
    """A cluster's demand by who asks, and where it went; over all service names."""

    cluster: str
    window_s: float
    until: float
    sources: tuple[SourceDemand, ...] = ()
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a report: cluster reports and localities counted; clusters ``refused`` as they cannot be.

    ``left_out`` counts values that a bound kept out (`xds.lrs.series_index`), ``ignored`` is 1 for a report of a stream
    that is not open.
    """

    clusters: int = 0
    localities: int = 0
    refused: int = 0
    left_out: int = 0
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class StreamLife:
    """One stream of load reports: that it lives. ``interval_s`` is the longest of its latest report, as measured."""

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
class PairTotals:
    """For metrics: counters of a cluster towards one locality over all sources and services."""

    cluster: str
    target: Locality
    successes: int
    errors: int
    issued: int
    in_progress: int


@dataclass(frozen=True, slots=True)
class DropTotals:
    """For metrics: drops of a cluster in one category."""

    cluster: str
    category: str
    dropped: int


@dataclass(frozen=True, slots=True)
class BookSize:
    """How much is held, and what the bounds left out since the start."""

    streams: int
    nodes: int
    services: int
    windows: int
    reports: int
    refused: int
    left_out: Mapping[str, int]

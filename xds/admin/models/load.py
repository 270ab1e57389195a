"""Load. Counts are not integers if a window contains part of a report's interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.values import NodeLocality, time_of
from xds.admin.models.writing import present_if

if TYPE_CHECKING:
    from xds.lrs.figures import ChartLine, ChartPoint, ClusterFigures, Figures, LoadRow
    from xds.lrs.stream_states import ReportingState

PLACES = 3  # of counts: thousandths
RATIO_PLACES = 6
NO_CATEGORY = "uncategorised"


@dataclass(frozen=True, slots=True)
class ReportedMetric:
    """A metric that backends reported (ORCA).

    * ``requests``: the number of requests that it was reported for;
    * ``average``: its average over these requests.
    """

    schema_name: ClassVar[str] = "MetricItem"

    requests: float
    average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFigures:
    """Requests in the window. Numbers are fractions where the window contains a part of the interval of a report.

    * ``successes``: requests that ended well;
    * ``errors``: requests that ended in an error;
    * ``issued``: requests that began;
    * ``in_progress``: requests in progress: the sum of the latest reports of open streams;
    * ``rps``: requests per second: those that began or got no connection, or those that ended where clients do not
      report the former;
    * ``error_ratio``: ``errors`` as a part of the requests that ended, 0 to 1; 0 if none ended;
    * ``metrics``: metrics that backends reported, by name.
    """

    successes: float
    errors: float
    issued: float
    in_progress: int
    rps: float
    error_ratio: float
    metrics: Mapping[str, ReportedMetric]


@dataclass(frozen=True, slots=True)
class RequestTotals:
    """Counters of a node since its first report.

    * ``successes``: requests that ended well;
    * ``errors``: requests that ended in an error;
    * ``issued``: requests that began;
    * ``dropped``: requests that the node dropped.
    """

    schema_name: ClassVar[str] = "TotalsItem"

    successes: int
    errors: int
    issued: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPart(RequestFigures):
    """A part of the load of a cluster.

    * ``source``: the locality of the nodes that report;
    * ``locality``: present in rows by locality and endpoint: the locality of the endpoints;
    * ``priority``: present in these rows: the priority of the locality; above 0 is failover;
    * ``endpoint``: present in rows by endpoint: its address;
    * ``node``: present in rows by node: its id. The figures are those of its latest report;
    * ``share``: its part of the requests of the cluster, 0 to 1;
    * ``window_s``: present in rows by node: the interval of the latest report;
    * ``reported``: present in rows by node: the time of the latest report;
    * ``totals``: present in rows by node.
    """

    schema_name: ClassVar[str] = "LoadRowItem"

    source: NodeLocality
    locality: NodeLocality | None = None
    priority: int = field(default=0, metadata=present_if(lambda part: part.locality is not None))
    endpoint: str = ""
    node: str = ""
    share: float
    window_s: float = field(default=0.0, metadata=present_if(lambda part: part.node))
    reported: datetime | None = None
    totals: RequestTotals | None = None

    @classmethod
    def from_domain(cls, row: LoadRow) -> LoadPart:
        """A row of a cluster's load."""
        return copied(
            cls,
            row,
            **_figures(row.figures),
            locality=NodeLocality.from_domain(row.target) if row.target is not None else None,
            share=round(row.share, RATIO_PLACES),
            window_s=round(row.figures.window_s, PLACES) if row.node else 0.0,
            reported=time_of(row.reported) if row.node else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary(RequestFigures):
    """The load of a cluster in a window, as far as nodes have reported it.

    * ``service_name``: the EDS service name of the cluster; empty without one;
    * ``groups``: the groups of the nodes that report it;
    * ``window_s``: the length of the window;
    * ``until``: the end of the window;
    * ``attempts``: all tries, those that clients dropped included;
    * ``dropped``: tries that clients dropped;
    * ``dropped_rps``: dropped tries per second;
    * ``drop_ratio``: ``dropped`` as a part of ``attempts``, 0 to 1;
    * ``failed_ratio``: errors and dropped tries as a part of ``attempts``, 0 to 1;
    * ``drops``: dropped tries by category; ``uncategorised`` for those without one;
    * ``nodes``: the number of nodes that reported the cluster in the last two intervals;
    * ``reported``: the time of the latest report; null if its node disconnected during it.
    """

    schema_name: ClassVar[str] = "LoadItem"

    cluster: str
    service_name: str
    groups: tuple[str, ...]
    window_s: float
    until: datetime
    attempts: float
    dropped: float
    dropped_rps: float
    drop_ratio: float
    failed_ratio: float
    drops: Mapping[str, float]
    nodes: int
    reported: datetime | None

    @classmethod
    def from_domain(cls, domain: ClusterFigures) -> LoadSummary:
        """The load of a cluster."""
        return copied(cls, domain, **_cluster(domain))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDetail(LoadSummary):
    """The load of a cluster in a window, with rows.

    * ``by``: what each row is about: ``locality``, ``node`` or ``endpoint``;
    * ``localities``: present with ``by=locality``: the rows;
    * ``endpoints``: present with ``by=endpoint``: the rows;
    * ``reporters``: present with ``by=node``: the rows;
    * ``partial``: present if servers did not answer: their names. What clients report to them is missing.
    """

    schema_name: ClassVar[str] = "LoadDetailItem"

    by: str
    localities: tuple[LoadPart, ...] | None = None
    endpoints: tuple[LoadPart, ...] | None = None
    reporters: tuple[LoadPart, ...] | None = None
    next_page_token: str = ""
    partial: tuple[str, ...] = ()

    @classmethod
    def of_page(cls, figures: ClusterFigures, by: str, rows: tuple[LoadPart, ...], next_page: str) -> LoadDetail:
        """The load of a cluster with a page of rows."""
        parts: dict[str, Any] = {ROWS[by]: rows}
        return copied(cls, figures, **_cluster(figures), **parts, by=by, next_page_token=next_page)


@dataclass(frozen=True, slots=True)
class ReportingInterval:
    """How often clients are asked to report.

    * ``interval_s``: the interval between reports;
    * ``set_interval_s``: the interval of the settings; ``interval_s`` is longer while the server has much load;
    * ``core``: the share of a CPU core that reading the reports took at the last measurement.
    """

    schema_name: ClassVar[str] = "ReportingItem"

    interval_s: float
    set_interval_s: float
    core: float

    @classmethod
    def from_domain(cls, domain: ReportingState) -> ReportingInterval:
        """The present interval."""
        return cls(domain.interval_s, domain.set_s, round(domain.share, PLACES))


@dataclass(frozen=True, slots=True)
class LoadPage:
    """A page of clusters with their load, by name.

    * ``reporting``: how often clients are asked to report;
    * ``partial``: present if servers did not answer: their names. What clients report to them is missing.
    """

    items: tuple[LoadSummary, ...]
    reporting: ReportingInterval
    next_page_token: str = ""
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """The requests in one step.

    * ``time``: when the step begins;
    * ``successes``: requests that ended well;
    * ``errors``: requests that ended in an error;
    * ``issued``: requests that began;
    * ``rps``: requests per second: those that began or (in the line of a whole cluster) got no connection, or those
      that ended where clients do not report the former;
    * ``dropped``: present for a whole cluster: tries that clients dropped;
    * ``failed_ratio``: present for a whole cluster: errors and dropped tries as a part of all tries, 0 to 1.
    """

    schema_name: ClassVar[str] = "PointItem"

    time: datetime
    successes: float
    errors: float
    issued: float
    rps: float
    dropped: float | None = None
    failed_ratio: float | None = None

    @classmethod
    def from_domain(cls, point: ChartPoint, step_s: float, is_whole: bool) -> LoadPoint:
        """A step in the line of a whole cluster, or of a part of its load."""
        ended = point.issued or point.successes + point.errors
        return cls(
            time=time_of(point.at),
            rps=round((point.attempts - point.dropped if is_whole else ended) / step_s, PLACES),
            **_rounded(point, "successes", "errors", "issued"),
            **(_rounded(point, "dropped", "failed_ratio") if is_whole else {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLine:
    """One line of a chart. The line of the whole cluster has no ``source`` and no ``locality``.

    * ``source``: present with ``by``: the locality of the nodes;
    * ``locality``: present with ``by``: the locality of the endpoints;
    * ``endpoint``: present with ``by=endpoint``: its address;
    * ``points``: the steps, oldest first.
    """

    schema_name: ClassVar[str] = "SeriesItem"

    source: NodeLocality | None = None
    locality: NodeLocality | None = None
    endpoint: str = ""
    points: tuple[LoadPoint, ...]

    @classmethod
    def from_domain(cls, line: ChartLine) -> LoadLine:
        """One line; source and target are missing where they are summed up."""
        is_whole = line.source is None and line.target is None
        return cls(
            source=NodeLocality.from_domain(line.source) if line.source is not None else None,
            locality=NodeLocality.from_domain(line.target) if line.target is not None else None,
            endpoint=line.endpoint,
            points=tuple(LoadPoint.from_domain(point, line.step_s, is_whole) for point in line.points),
        )


@dataclass(frozen=True, slots=True)
class LoadLines:
    """A page of the load of a cluster over time. All lines have the same steps.

    * ``window_s``: the length of the window;
    * ``step_s``: the length of a step;
    * ``partial``: present if servers did not answer: their names. What clients report to them is missing.
    """

    schema_name: ClassVar[str] = "SeriesPage"

    cluster: str
    window_s: float
    step_s: float
    items: tuple[LoadLine, ...]
    next_page_token: str = ""
    partial: tuple[str, ...] = ()


ROWS = {"locality": "localities", "node": "reporters", "endpoint": "endpoints"}
"""The field of a cluster's rows, by the value of ``by``."""


def _figures(figures: Figures) -> dict[str, Any]:
    metrics = {
        name: ReportedMetric(round(metric.requests, PLACES), round(metric.average, RATIO_PLACES))
        for name, metric in figures.metrics.items()
    }
    names = ("successes", "errors", "issued", "in_progress", "rps", "error_ratio")
    return {**_rounded(figures, *names), "metrics": metrics}


def _cluster(figures: ClusterFigures) -> dict[str, Any]:
    """The fields of a cluster's load that have other values than those of ``figures``."""
    names = ("window_s", "attempts", "dropped", "dropped_rps", "drop_ratio", "failed_ratio")
    return {
        **_figures(figures.figures),
        **_rounded(figures, *names),
        "drops": {category or NO_CATEGORY: round(number, PLACES) for category, number in figures.drops.items()},
        "reported": time_of(figures.reported) if figures.reported else None,
    }


def _rounded(source: object, *names: str) -> dict[str, Any]:
    """Some numbers. Parts of intervals are not integers, and their sums have rounding errors."""
    return {name: round(getattr(source, name), RATIO_PLACES if name.endswith("ratio") else PLACES) for name in names}

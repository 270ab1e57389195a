"""The JSON of load. Counts are not integers if a window contains part of a report's interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, cast

from typing_extensions import TypedDict

from xds.admin.shapes.values import LocalityItem, locality_item, timestamp
from xds.lrs.figures import (
    ChartLine,
    ChartPoint,
    ClusterFigures,
    Figures,
    LoadRow,
)
from xds.lrs.stream_states import ReportingState
from xds.model.load_report import Metric

PLACES = 3
NO_CATEGORY = "uncategorised"


class MetricItem(TypedDict):
    """A metric that backends reported (ORCA).

    * ``requests``: the number of requests that it was reported for;
    * ``average``: its average over these requests.
    """

    requests: float
    average: float


class FiguresItem(TypedDict):
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
    metrics: dict[str, MetricItem]


class TotalsItem(TypedDict):
    """Counters of a node since its first report.

    * ``successes``: requests that ended well;
    * ``errors``: requests that ended in an error;
    * ``issued``: requests that began;
    * ``dropped``: requests that the node dropped.
    """

    successes: int
    errors: int
    issued: int
    dropped: int


class LoadRowItem(FiguresItem):
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

    source: LocalityItem
    locality: NotRequired[LocalityItem]
    priority: NotRequired[int]
    endpoint: NotRequired[str]
    node: NotRequired[str]
    share: float
    window_s: NotRequired[float]
    reported: NotRequired[str]
    totals: NotRequired[TotalsItem]


class LoadItem(FiguresItem):
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

    cluster: str
    service_name: str
    groups: list[str]
    window_s: float
    until: str
    attempts: float
    dropped: float
    dropped_rps: float
    drop_ratio: float
    failed_ratio: float
    drops: dict[str, float]
    nodes: int
    reported: str | None


class LoadDetailItem(LoadItem):
    """The load of a cluster in a window, with rows.

    * ``by``: what each row is about: ``locality``, ``node`` or ``endpoint``;
    * ``localities``: present with ``by=locality``: the rows;
    * ``endpoints``: present with ``by=endpoint``: the rows;
    * ``reporters``: present with ``by=node``: the rows.
    """

    by: str
    localities: NotRequired[list[LoadRowItem]]
    endpoints: NotRequired[list[LoadRowItem]]
    reporters: NotRequired[list[LoadRowItem]]
    next_page_token: NotRequired[str]


class ReportingItem(TypedDict):
    """How often clients are asked to report.

    * ``interval_s``: the interval between reports;
    * ``set_interval_s``: the interval of the settings; ``interval_s`` is longer while the server has much load;
    * ``core``: the share of a CPU core that reading the reports took at the last measurement.
    """

    interval_s: float
    set_interval_s: float
    core: float


class LoadPage(TypedDict):
    """A page of clusters with their load, by name.

    * ``reporting``: how often clients are asked to report.
    """

    items: list[LoadItem]
    reporting: ReportingItem
    next_page_token: NotRequired[str]


class PointItem(TypedDict):
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

    time: str
    successes: float
    errors: float
    issued: float
    rps: float
    dropped: NotRequired[float]
    failed_ratio: NotRequired[float]


class SeriesItem(TypedDict):
    """One line of a chart. The line of the whole cluster has no ``source`` and no ``locality``.

    * ``source``: present with ``by``: the locality of the nodes;
    * ``locality``: present with ``by``: the locality of the endpoints;
    * ``endpoint``: present with ``by=endpoint``: its address;
    * ``points``: the steps, oldest first.
    """

    source: NotRequired[LocalityItem]
    locality: NotRequired[LocalityItem]
    endpoint: NotRequired[str]
    points: list[PointItem]


class SeriesPage(TypedDict):
    """A page of the load of a cluster over time. All lines have the same steps.

    * ``window_s``: the length of the window;
    * ``step_s``: the length of a step.
    """

    cluster: str
    window_s: float
    step_s: float
    items: list[SeriesItem]
    next_page_token: NotRequired[str]


ROWS = {"locality": "localities", "node": "reporters", "endpoint": "endpoints"}
"""The key of a cluster's rows, by the value of ``by``."""


def reporting_item(found: ReportingState) -> ReportingItem:
    """The reporting interval as JSON."""
    return {"interval_s": found.interval_s, "set_interval_s": found.set_s, "core": _rounded(found.share)}


def load_item(found: ClusterFigures) -> LoadItem:
    """The load of a cluster as JSON."""
    return {
        "cluster": found.cluster,
        "service_name": found.service_name,
        "groups": list(found.groups),
        "window_s": _rounded(found.window_s),
        "until": timestamp(found.until),
        **_figures(found.figures),
        "attempts": _rounded(found.attempts),
        "dropped": _rounded(found.dropped),
        "dropped_rps": _rounded(found.dropped_rps),
        "drop_ratio": _ratio(found.drop_ratio),
        "failed_ratio": _ratio(found.failed_ratio),
        "drops": {category or NO_CATEGORY: _rounded(number) for category, number in found.drops.items()},
        "nodes": found.nodes,
        "reported": timestamp(found.reported) if found.reported else None,
    }


def row_item(row: LoadRow) -> LoadRowItem:
    """A row of a cluster's load as JSON."""
    figures = _figures(row.figures)
    item = cast(LoadRowItem, {"source": locality_item(row.source), "share": _ratio(row.share), **figures})
    if row.target is not None:
        item["locality"] = locality_item(row.target)
        item["priority"] = row.priority
    if row.endpoint:
        item["endpoint"] = row.endpoint
    if row.node:
        item["node"] = row.node
        item["window_s"] = _rounded(row.figures.window_s)
        item["reported"] = timestamp(row.reported)
    if row.totals is not None:
        totals = row.totals
        item["totals"] = {
            "successes": totals.successes,
            "errors": totals.errors,
            "issued": totals.issued,
            "dropped": totals.dropped,
        }
    return item


def series_item(line: ChartLine) -> SeriesItem:
    """One line of a chart as a JSON value; source and target are missing where they are summed up."""
    is_whole = line.source is None and line.target is None
    item: SeriesItem = {"points": [_point(point, line.step_s, is_whole) for point in line.points]}
    if line.source is not None:
        item["source"] = locality_item(line.source)
    if line.target is not None:
        item["locality"] = locality_item(line.target)
    if line.endpoint:
        item["endpoint"] = line.endpoint
    return item


def _figures(figures: Figures) -> FiguresItem:
    return {
        "successes": _rounded(figures.successes),
        "errors": _rounded(figures.errors),
        "issued": _rounded(figures.issued),
        "in_progress": figures.in_progress,
        "rps": _rounded(figures.rps),
        "error_ratio": _ratio(figures.error_ratio),
        "metrics": _metrics(figures.metrics),
    }


def _metrics(metrics: Mapping[str, Metric]) -> dict[str, MetricItem]:
    return {
        name: {"requests": _rounded(metric.requests), "average": _ratio(metric.average)}
        for name, metric in metrics.items()
    }


def _point(point: ChartPoint, step_s: float, is_whole: bool) -> PointItem:
    item: PointItem = {
        "time": timestamp(point.at),
        "successes": _rounded(point.successes),
        "errors": _rounded(point.errors),
        "issued": _rounded(point.issued),
        "rps": _rounded((point.issued or point.successes + point.errors) / step_s),
    }
    if is_whole:
        item["rps"] = _rounded((point.attempts - point.dropped) / step_s)
        item["dropped"], item["failed_ratio"] = _rounded(point.dropped), _ratio(point.failed_ratio)
    return item


def _rounded(number: float) -> float:
    """Rounded to thousandths. Parts of intervals are not integers, and their sums have rounding errors."""
    return round(number, PLACES)


def _ratio(number: float) -> float:
    return round(number, 2 * PLACES)

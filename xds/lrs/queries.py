"""Queries of a fleet's load: computes figures from windows. Read-only, and safe while another thread counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from operator import add, attrgetter
from typing import NamedTuple

from xds.lrs.cluster_counters import target_of
from xds.lrs.figures import (
    Breakdown,
    ChartLine,
    ChartPoint,
    ClusterDemand,
    ClusterFigures,
    DropTotals,
    Figures,
    Flow,
    LoadRow,
    SourceDemand,
    TargetTotals,
    Totals,
    attempted,
    failed,
    repeats_at_most,
)
from xds.lrs.reporting import NodeTotals
from xds.lrs.series import LoadSeries
from xds.lrs.series_index import SeriesIndex
from xds.lrs.windows import SECONDS, TrafficWindow, ValueWindow
from xds.model.load_report import ClusterLoad, Metric
from xds.model.node import Locality

WINDOW_LIMIT_S = 3_600.0
POINTS_LIMIT = 720  # of one line of a chart
_DIGITS = 6  # decimals of sums: rounding makes sums of whole reports whole numbers again
_Key = tuple[Locality, Locality, int, str]  # source, target, its priority, address or empty
_Sums = dict[_Key, list[float]]  # successes, errors, issued, in progress
_MINUTE_S = 60


class TimeSpan(NamedTuple):
    """The time between two edges, whole epoch seconds."""

    begin: int
    end: int

    @property
    def seconds(self) -> int:
        """The length of the span."""
        return self.end - self.begin


class LoadQueries:
    """Answers the queries of `LoadAggregates`. ``nodes``: its nodes by id."""

    def __init__(self, index: SeriesIndex, nodes: Mapping[str, NodeTotals]) -> None:
        self._index = index
        self._nodes = nodes

    def clusters(self, span: TimeSpan) -> list[ClusterFigures]:
        """All clusters by name and service name, without rows."""
        names_of = attrgetter("cluster", "service_name")
        return [
            _figures_of(list(all_series), span, service_name)
            for (_, service_name), all_series in groupby(sorted(self._index, key=names_of), names_of)
        ]

    def cluster(self, cluster: str, span: TimeSpan, by: Breakdown, service_name: str | None) -> ClusterFigures | None:
        """One cluster with its rows; None if no client reported the cluster."""
        all_series = [
            series
            for series in self._index.of_cluster(cluster)
            if service_name is None or series.service_name == service_name
        ]
        if not all_series:
            return None
        rows = self._node_rows(all_series) if by == "node" else _rows(all_series, span, by)
        return _figures_of(all_series, span, _name_of(all_series), tuple(rows))

    def series(self, cluster: str, span: TimeSpan, step_s: float, by: Breakdown | None) -> list[ChartLine]:
        """The load of a cluster in steps; empty by node, because the counts of nodes over time are not stored."""
        if by == "node":
            return []
        step = _step(span, step_s)
        begins = range(span.begin, span.end, step)
        lines: dict[tuple[Locality | None, Locality | None, str], list[TrafficWindow]] = defaultdict(list)
        drops: list[ValueWindow] = []
        for series in self._index.of_cluster(cluster):
            if by is None:
                drops += list(series.drops.values())
                lines[None, None, ""] += []
            for target, _, address, window in series.traffic():
                if bool(address) == (by == "endpoint"):
                    key = (series.source, target, address) if by else (None, None, "")
                    lines[key].append(window)
        return [
            ChartLine(*key, float(step), tuple(_point(windows, drops, at, min(at + step, span.end)) for at in begins))
            for key, windows in sorted(lines.items(), key=lambda line: str(line[0]))
        ]

    def demand(self, group: str, cluster: str, span: TimeSpan) -> ClusterDemand:
        """The demand of a group's nodes for a cluster, and the flows to its targets."""
        all_series = [series for series in self._index.of_cluster(cluster) if series.group == group]
        sums, metrics = _sums(all_series, span, "locality"), _metrics(all_series, span)
        flows = _flows(sums, metrics, span.seconds)
        by_source: dict[Locality, list[LoadSeries]] = defaultdict(list)
        for series in all_series:
            by_source[series.source].append(series)
        sources = tuple(
            _source_demand(source, members, [flow for flow in flows if flow.source == source], sums, span)
            for source, members in sorted(by_source.items(), key=lambda item: str(item[0]))
        )
        return ClusterDemand(cluster, float(span.seconds), float(span.end), sources, flows)

    def requests(self, group: str, clusters: Container[str], span: TimeSpan) -> Totals:
        """The requests of a group's nodes to these clusters."""
        all_series = (series for series in self._index if series.group == group and series.cluster in clusters)
        counts = zip(*_sums(all_series, span, "locality").values(), strict=True)
        return Totals(*map(round, map(sum, counts)))

    def target_totals(self) -> Iterator[TargetTotals]:
        """Totals by cluster and target locality."""
        sums: dict[tuple[str, Locality], list[int]] = {}
        for series in self._index:
            for target, _, address, window in series.traffic():
                if address:
                    continue
                counts = sums.setdefault((series.cluster, target), [0, 0, 0, 0])
                sums[series.cluster, target] = list(map(add, counts, (*window.totals, window.in_progress)))
        for (cluster, target), counts in sums.items():
            yield TargetTotals(cluster, target, *counts)

    def drop_totals(self) -> Iterator[DropTotals]:
        """Totals by cluster and drop category."""
        sums: Counter[tuple[str, str]] = Counter()
        for series in self._index:
            for category, counter in list(series.drops.items()):
                sums[series.cluster, category] += int(counter.total)
        for (cluster, category), dropped in sums.items():
            yield DropTotals(cluster, category, dropped)

    def _node_rows(self, all_series: list[LoadSeries]) -> list[LoadRow]:
        nodes = [self._node_row(node, all_series) for node in list(self._nodes.values())]
        rows = [row for row in nodes if row is not None]
        total_rps = sum(row.figures.rps for row in rows)
        return [_with_share(row, row.figures.rps, total_rps) for row in rows]

    def _node_row(self, node: NodeTotals, all_series: list[LoadSeries]) -> LoadRow | None:
        """The row of a node; None if the node is not connected or never reported the cluster."""
        totals = [node.total(series) for series in all_series]
        streams = list(node.streams.values())
        # Nodes of other groups and localities have series of their own for the same cluster.
        names = {(series.cluster, series.service_name) for series in all_series}
        reports = [(stream, stream.load(*name)) for name in sorted(names) for stream in streams]
        loads = [load for _, load in reports if load is not None]
        if not streams or not (loads or any(map(any, totals))):
            return None
        reported = max((stream.reported for stream, load in reports if load is not None), default=0.0)
        figures, total = _latest(loads), Totals(*map(sum, zip(*totals, strict=True)))
        return LoadRow(figures, 0.0, node.node.locality, node=node.node.id, totals=total, reported=reported)


def _sorted(sums: _Sums) -> list[tuple[_Key, list[float]]]:
    return sorted(sums.items(), key=lambda item: tuple(map(str, item[0])))


def _figures_of(
    all_series: list[LoadSeries], span: TimeSpan, service_name: str, rows: tuple[LoadRow, ...] = ()
) -> ClusterFigures:
    counts = [0.0] * 4
    for sums in _sums(all_series, span, "locality").values():
        counts = list(map(add, counts, sums))
    metrics = _merged(_unique_metrics(_metrics(all_series, span)).values())
    drops: dict[str, float] = defaultdict(float)
    for series in all_series:
        for category, counter in list(series.drops.items()):
            drops[category] += counter.sum(*span)[0]
    dropped = {category: round(count, _DIGITS) for category, count in drops.items() if count > 0}
    all_dropped = round(sum(dropped.values()), _DIGITS)
    figures = _figures(counts, span.seconds, metrics)
    connected = replace(figures, unconnected=max(_unissued(figures) - all_dropped, 0.0))
    return ClusterFigures(
        cluster=all_series[0].cluster,
        service_name=service_name,
        until=float(span.end),
        figures=connected,
        dropped=all_dropped,
        drops=dropped,
        nodes=sum(series.nodes for series in all_series),
        reported=max(series.reported for series in all_series),
        # Where nothing was dropped, the errors of a row that were not issued got no connection.
        rows=rows if all_dropped else tuple(map(_with_unconnected, rows)),
        groups=tuple(sorted({series.group for series in all_series if series.group})),
    )


def _rows(all_series: list[LoadSeries], span: TimeSpan, by: Breakdown) -> list[LoadRow]:
    sums, metrics = _sums(all_series, span, by), _metrics(all_series, span)
    reported = {series.source: series.reported for series in sorted(all_series, key=attrgetter("reported"))}
    rows = [
        LoadRow(
            _figures(counts, span.seconds, metrics.get(key, {})),
            share=0.0,
            source=source,
            target=target,
            priority=priority,
            endpoint=address,
            reported=reported[source],
        )
        for key, counts in _sorted(sums)
        for source, target, priority, address in (key,)
    ]
    requests = sum(row.figures.requests for row in rows)
    return [_with_share(row, row.figures.requests, requests) for row in rows]


def _sums(all_series: Iterable[LoadSeries], span: TimeSpan, by: Breakdown) -> _Sums:
    sums: _Sums = {}
    for series in all_series:
        for target, priority, address, window in series.traffic():
            if bool(address) == (by == "endpoint"):
                key = series.source, target, priority, address
                counts = [*window.sum(*span), float(window.in_progress)]
                sums[key] = list(map(add, sums[key], counts)) if key in sums else counts
    return sums


def _metrics(all_series: Iterable[LoadSeries], span: TimeSpan) -> dict[_Key, dict[str, Metric]]:
    sums: dict[_Key, dict[str, Metric]] = defaultdict(dict)
    for series in all_series:
        for (target, address, name), counter in list(series.metrics.items()):
            requests, total = counter.sum(*span)
            if not (requests or total):
                continue
            of_key = sums[series.source, *target_of(target), address]
            of_key[name] = _sum(of_key.get(name), Metric(round(requests, _DIGITS), total))
    return sums


def _unique_metrics(metrics: Mapping[_Key, Mapping[str, Metric]]) -> dict[_Key, Mapping[str, Metric]]:
    """Each metric once: the metric of a locality if there is one, else the metrics of its endpoints."""
    unique: dict[_Key, Mapping[str, Metric]] = {}
    for key, by_name in metrics.items():
        of_locality = metrics.get((*key[:3], ""), {}) if key[3] else {}
        unique[key] = {name: metric for name, metric in by_name.items() if name not in of_locality}
    return unique


def _merged(metrics: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    sums: dict[str, Metric] = {}
    for each in metrics:
        for name, metric in each.items():
            sums[name] = _sum(sums.get(name), metric)
    return sums


def _sum(one: Metric | None, other: Metric) -> Metric:
    return other if one is None else Metric(one.requests + other.requests, one.total + other.total)


def _figures(counts: list[float], window_s: float, metrics: Mapping[str, Metric]) -> Figures:
    successes, errors, issued = (round(count, _DIGITS) for count in counts[:3])
    return Figures(float(window_s), successes, errors, issued, int(counts[3]), metrics)


def _latest(loads: list[ClusterLoad]) -> Figures:
    """The latest reports of a node as one, scaled to the longest of their intervals."""
    window_s = max((load.interval_s for load in loads), default=0.0)
    counts = [0.0] * 4
    metrics: list[Mapping[str, Metric]] = []
    for load in loads:
        part = window_s / load.interval_s
        for each in load.localities:
            successes, errors, issued, in_progress = each.traffic
            counts = list(map(add, counts, (successes * part, errors * part, issued * part, in_progress)))
            metrics.append(each.metrics)
    return _figures(counts, window_s, _merged(metrics))


def _unissued(figures: Figures) -> float:
    """Errors of requests that were not issued."""
    return min(max(figures.finished - figures.issued, 0.0), figures.errors)


def _with_unconnected(row: LoadRow) -> LoadRow:
    return replace(row, figures=replace(row.figures, unconnected=_unissued(row.figures)))


def _with_share(row: LoadRow, part: float, whole: float) -> LoadRow:
    return replace(row, share=part / whole if whole else 0.0)


def _flows(sums: _Sums, metrics: Mapping[_Key, Mapping[str, Metric]], window_s: float) -> tuple[Flow, ...]:
    """The flows between localities, over all priorities."""
    by_pair: dict[tuple[Locality, Locality], list[_Key]] = defaultdict(list)
    for key, _ in _sorted(sums):
        by_pair[key[:2]].append(key)
    return tuple(_flow(pair, keys, sums, metrics, window_s) for pair, keys in by_pair.items())


def _flow(
    pair: tuple[Locality, Locality],
    keys: list[_Key],
    sums: _Sums,
    metrics: Mapping[_Key, Mapping[str, Metric]],
    window_s: float,
) -> Flow:
    counts = [sum(lane) for lane in zip(*(sums[key] for key in keys), strict=True)]
    merged = _merged(metrics[key] for key in keys if key in metrics)
    figures = _figures(counts, window_s, merged)
    unissued = _unissued(figures)
    errors_ps = figures.errors / window_s
    return Flow(*pair, figures.rps, errors_ps, figures.in_progress, merged, unissued / window_s)


def _source_demand(
    source: Locality, all_series: list[LoadSeries], flows: list[Flow], sums: _Sums, span: TimeSpan
) -> SourceDemand:
    dropped = sum(counter.sum(*span)[0] for series in all_series for counter in list(series.drops.values()))
    counts = [0.0] * 4
    for key, key_counts in sums.items():
        if key[0] == source:
            counts = list(map(add, counts, key_counts))
    successes, errors, issued, in_progress = counts
    nodes = sum(series.nodes for series in all_series)
    return SourceDemand(
        source=source,
        rps=sum(flow.rps for flow in flows),
        errors_ps=sum(flow.errors_ps for flow in flows),
        dropped_ps=round(dropped, _DIGITS) / span.seconds,
        in_progress=sum(flow.in_progress for flow in flows),
        nodes=nodes,
        reported=max(series.reported for series in all_series) if nodes else 0.0,
        attempted_ps=round(attempted(issued, successes, errors, dropped), _DIGITS) / span.seconds,
        repeats_ps=round(repeats_at_most(issued, successes, errors, in_progress, dropped), _DIGITS) / span.seconds,
        failed_ps=round(failed(issued, successes, errors, dropped), _DIGITS) / span.seconds,
    )


def _step(span: TimeSpan, step_s: float) -> int:
    """The step in whole seconds; in whole minutes if the window reaches back to where only minutes are stored."""
    step = max(1, round(step_s), -(-span.seconds // POINTS_LIMIT))
    return step if span.seconds <= SECONDS else -(-step // _MINUTE_S) * _MINUTE_S


def _point(windows: list[TrafficWindow], drops: list[ValueWindow], begin: int, end: int) -> ChartPoint:
    counts = [0.0] * 3
    for window in windows:
        counts = list(map(add, counts, window.sum(begin, end)))
    dropped = sum(window.sum(begin, end)[0] for window in drops)
    return ChartPoint(float(begin), *(round(count, _DIGITS) for count in (*counts, dropped)))


def _name_of(all_series: list[LoadSeries]) -> str:
    """The service name of the series; empty if there are several."""
    names = {series.service_name for series in all_series}
    return names.pop() if len(names) == 1 else ""

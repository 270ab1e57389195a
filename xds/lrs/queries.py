"""What is asked of a book: its windows as figures. Reads only; may be called while another thread counts."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from operator import add, attrgetter
from typing import NamedTuple

from xds.lrs.figures import (
    By,
    ClusterFigures,
    Demand,
    DropTotals,
    Figures,
    Flow,
    PairTotals,
    Point,
    Row,
    Series,
    SourceDemand,
)
from xds.lrs.reporting import Account, Reporter, totals_of
from xds.lrs.series import Service
from xds.lrs.series_index import Shelf
from xds.lrs.windows import SECONDS, Reading
from xds.model.load_report import ClusterLoad, Metric
from xds.model.node import Locality

_DIGITS = 6  # sums of parts are as good as this; counts of whole reports are whole again
Key = tuple[Locality, Locality, str]  # source, target, address or empty
Sums = dict[Key, list[float]]  # successes, errors, issued, in progress
_MINUTE_S = 60


class Span(NamedTuple):
    """A window between two edges, whole epoch seconds."""

    begin: int
    end: int

    @property
    def seconds(self) -> int:
        return self.end - self.begin


class Answers:
    """``streams`` and ``accounts`` are the book's."""

    def __init__(self, shelf: Shelf, streams: Mapping[int, Reporter], accounts: Mapping[str, Account]) -> None:
        self._shelf = shelf
        self._streams = streams
        self._accounts = accounts

    def clusters(self, span: Span) -> list[ClusterFigures]:
        named = attrgetter("cluster", "service_name")
        return [
            _figures_of(list(services), span, service_name)
            for (_, service_name), services in groupby(sorted(self._shelf, key=named), named)
        ]

    def cluster(self, cluster: str, span: Span, by: By, service_name: str | None) -> ClusterFigures | None:
        services = [
            service
            for service in self._shelf.of_cluster(cluster)
            if service_name is None or service.service_name == service_name
        ]
        if not services:
            return None
        rows = self._node_rows(services) if by == "node" else _rows(services, span, by)
        return _figures_of(services, span, _name_of(services), tuple(rows))

    def series(self, cluster: str, span: Span, step_s: float, by: By | None) -> list[Series]:
        if by == "node":
            return []
        step = _step(span, step_s)
        begins = range(span.begin, span.end, step)
        lines: dict[tuple[Locality | None, Locality | None, str], list[Reading]] = defaultdict(list)
        for service in self._shelf.of_cluster(cluster):
            for target, address, window in service.traffic():
                if bool(address) == (by == "endpoint"):
                    key = (service.source, target, address) if by else (None, None, "")
                    lines[key].append(window)
        return [
            Series(*key, float(step), tuple(_point(windows, begin, min(begin + step, span.end)) for begin in begins))
            for key, windows in sorted(lines.items(), key=lambda line: str(line[0]))
        ]

    def demand(self, group: str, cluster: str, span: Span) -> Demand:
        services = [service for service in self._shelf.of_cluster(cluster) if service.group == group]
        sums, metrics = _sums(services, span, "locality"), _metrics(services, span)
        flows = tuple(_flow(key, counts, metrics.get(key, {}), span.seconds) for key, counts in _sorted(sums))
        by_source: dict[Locality, list[Service]] = defaultdict(list)
        for service in services:
            by_source[service.source].append(service)
        sources = tuple(
            _source_demand(source, found, [flow for flow in flows if flow.source == source], span)
            for source, found in sorted(by_source.items(), key=lambda item: str(item[0]))
        )
        return Demand(cluster, float(span.seconds), float(span.end), sources, flows)

    def pair_totals(self) -> Iterator[PairTotals]:
        found: dict[tuple[str, Locality], list[int]] = {}
        for service in self._shelf:
            for target, address, window in service.traffic():
                if address:
                    continue
                counts = found.setdefault((service.cluster, target), [0, 0, 0, 0])
                found[service.cluster, target] = list(map(add, counts, (*window.totals, window.in_progress)))
        for (cluster, target), counts in found.items():
            yield PairTotals(cluster, target, *counts)

    def drop_totals(self) -> Iterator[DropTotals]:
        found: Counts[tuple[str, str]] = Counts()
        for service in self._shelf:
            for category, counter in list(service.drops.items()):
                found[service.cluster, category] += int(counter.total)
        for (cluster, category), dropped in found.items():
            yield DropTotals(cluster, category, dropped)

    def _node_rows(self, services: list[Service]) -> list[Row]:
        nodes = [self._node_row(account, services) for account in list(self._accounts.values())]
        rows = [row for row in nodes if row is not None]
        total_rps = sum(row.figures.rps for row in rows)
        return [_with_share(row, row.figures.rps, total_rps) for row in rows]

    def _node_row(self, account: Account, services: list[Service]) -> Row | None:
        """None for a node that is gone, or never named the cluster."""
        streams = [self._streams[stream] for stream in list(account.streams) if stream in self._streams]
        total = 0
        loads: list[ClusterLoad] = []
        reported = 0.0
        for service in services:
            total += account.total(service)
            for stream in streams:
                total += stream.total(service)
                load = stream.load(service)
                if load is not None:
                    loads.append(load)
                    reported = max(reported, stream.reported)
        if not streams or not (loads or total):
            return None
        figures, totals = _latest(loads), totals_of(total)
        return Row(figures, 0.0, account.node.locality, node=account.node.id, totals=totals, reported=reported)


def _sorted(sums: Sums) -> list[tuple[Key, list[float]]]:
    return sorted(sums.items(), key=lambda item: tuple(map(str, item[0])))


def _figures_of(services: list[Service], span: Span, service_name: str, rows: tuple[Row, ...] = ()) -> ClusterFigures:
    counts = [0.0] * 4
    for found in _sums(services, span, "locality").values():
        counts = list(map(add, counts, found))
    metrics = _merged(_metrics(services, span).values())
    drops: dict[str, float] = defaultdict(float)
    for service in services:
        for category, counter in list(service.drops.items()):
            drops[category] += counter.sum(*span)[0]
    told = {category: round(dropped, _DIGITS) for category, dropped in drops.items() if dropped > 0}
    return ClusterFigures(
        cluster=services[0].cluster,
        service_name=service_name,
        until=float(span.end),
        figures=_figures(counts, span.seconds, metrics),
        dropped=round(sum(told.values()), _DIGITS),
        drops=told,
        nodes=sum(service.pages for service in services),
        reported=max(service.reported for service in services),
        rows=rows,
    )


def _rows(services: list[Service], span: Span, by: By) -> list[Row]:
    sums, metrics = _sums(services, span, by), _metrics(services, span)
    reported = {service.source: service.reported for service in sorted(services, key=attrgetter("reported"))}
    rows = [
        Row(_figures(counts, span.seconds, metrics.get(key, {})), 0.0, *key, reported=reported[key[0]])
        for key, counts in _sorted(sums)
    ]
    requests = sum(row.figures.requests for row in rows)
    return [_with_share(row, row.figures.requests, requests) for row in rows]


def _sums(services: Iterable[Service], span: Span, by: By) -> Sums:
    found: Sums = {}
    for service in services:
        for target, address, window in service.traffic():
            if bool(address) == (by == "endpoint"):
                key = service.source, target, address
                counts = [*window.sum(*span), float(window.in_progress)]
                found[key] = list(map(add, found[key], counts)) if key in found else counts
    return found


def _metrics(services: Iterable[Service], span: Span) -> dict[Key, dict[str, Metric]]:
    found: dict[Key, dict[str, Metric]] = defaultdict(dict)
    for service in services:
        for (target, address, name), counter in list(service.metrics.items()):
            requests, total = counter.sum(*span)
            if not (requests or total):
                continue
            of_key = found[service.source, target, address]
            of_key[name] = _sum(of_key.get(name), Metric(round(requests, _DIGITS), total))
    return found


def _merged(metrics: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for each in metrics:
        for name, metric in each.items():
            found[name] = _sum(found.get(name), metric)
    return found


def _sum(one: Metric | None, other: Metric) -> Metric:
    return other if one is None else Metric(one.requests + other.requests, one.total + other.total)


def _figures(counts: list[float], window_s: float, metrics: Mapping[str, Metric]) -> Figures:
    successes, errors, issued = (round(count, _DIGITS) for count in counts[:3])
    return Figures(float(window_s), successes, errors, issued, int(counts[3]), metrics)


def _latest(loads: list[ClusterLoad]) -> Figures:
    """The latest reports of a node as one, over the longest of their intervals."""
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


def _with_share(row: Row, part: float, whole: float) -> Row:
    return replace(row, share=part / whole if whole else 0.0)


def _flow(key: Key, counts: list[float], metrics: Mapping[str, Metric], window_s: float) -> Flow:
    figures = _figures(counts, window_s, metrics)
    return Flow(key[0], key[1], figures.rps, figures.errors / window_s, figures.in_progress, metrics)


def _source_demand(source: Locality, services: list[Service], flows: list[Flow], span: Span) -> SourceDemand:
    dropped = sum(counter.sum(*span)[0] for service in services for counter in list(service.drops.values()))
    nodes = sum(service.pages for service in services)
    return SourceDemand(
        source=source,
        rps=sum(flow.rps for flow in flows),
        errors_ps=sum(flow.errors_ps for flow in flows),
        dropped_ps=round(dropped, _DIGITS) / span.seconds,
        in_progress=sum(flow.in_progress for flow in flows),
        nodes=nodes,
        reported=max(service.reported for service in services) if nodes else 0.0,
    )


def _step(span: Span, step_s: float) -> int:
    """Whole seconds; whole minutes where the window reaches back to where only minutes are known."""
    step = max(1, round(step_s), -(-span.seconds // POINTS_LIMIT))
    return step if span.seconds <= SECONDS else -(-step // _MINUTE_S) * _MINUTE_S


def _point(windows: list[Reading], begin: int, end: int) -> Point:
    counts = [0.0] * 3
    for window in windows:
        counts = list(map(add, counts, window.sum(begin, end)))
    return Point(float(begin), *(round(count, _DIGITS) for count in counts))


def _name_of(services: list[Service]) -> str:
    """The service name, where there is but one."""
    names = {service.service_name for service in services}
    return names.pop() if len(names) == 1 else ""


POINTS_LIMIT = 720  # of a series


WINDOW_LIMIT_S = 3_600.0

"""Metrics of traffic assignment: demand, capacity, load, shares and decisions by cluster and locality.

Groups, clusters and localities come from users and clients, so the number of series is bounded. A cluster has all of
its rows or none. The clusters admitted first have at most ``ROWS`` rows together. The others are summed in rows with
the label ``other``; these have no shares, because shares of several clusters cannot be summed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.model.node import Locality
from xds.server.counters import OTHER, PREFIX, Labels, family
from xds.steering.active_policy import PolicyDecision
from xds.steering.assignments import Assignments
from xds.steering.core.assignment import Demand, Path, Standing
from xds.steering.core.decision_history import ACTIONS
from xds.steering.core.utilisation import PathFigures, TargetFigures, path_figures, target_figures
from xds.store.document_keys import Key

ASSIGNMENT_PREFIX = "xds_assignment_"
ROWS = 5_000  # sources, targets, pairs of both, and reasons of all clusters with series of their own

_CLUSTER = ("group", "cluster")


class ClusterBudget:
    """Decides which clusters have series of their own: the first that still exist and whose rows fit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: dict[Key, None] = {}

    def admit(self, rows: Mapping[Key, int]) -> frozenset[Key]:
        """The clusters among ``rows`` (rows by cluster) that have series of their own now."""
        admitted: dict[Key, None] = {}
        remaining = self._limit
        for key in (*(key for key in self._admitted if key in rows), *rows):
            if key not in admitted and rows[key] <= remaining:
                admitted[key] = None
                remaining -= rows[key]
        self._admitted = admitted
        return frozenset(admitted)


@dataclass(frozen=True, slots=True)
class _ClusterRows:
    """The rows of one cluster."""

    demand: Mapping[Locality, Demand]
    targets: Mapping[Locality, TargetFigures]
    paths: Mapping[Path, PathFigures]
    reasons: Mapping[str, int]

    @property
    def count(self) -> int:
        return len(self.demand) + len(self.targets) + len(self.paths) + len(self.reasons)


def _rows_of(outcome: PolicyDecision) -> _ClusterRows:
    observed, decision = outcome.observed, outcome.decision
    paths = path_figures(observed, decision.assignment)
    used_paths = {path: flow for path, flow in paths.items() if flow.decided_share or flow.real_rps}
    reasons: Counter[str] = Counter({str(reason.code) for reason in decision.reasons})
    for source in decision.sources:
        reasons.update({str(reason.code) for reason in source.reasons})
    return _ClusterRows(observed.demand, target_figures(observed, decision), used_paths, reasons)


def _zeros() -> defaultdict[Labels, float]:
    return defaultdict(float)


@dataclass(slots=True)
class _Sums:
    """The samples of all families, by label values."""

    demand: defaultdict[Labels, float] = field(default_factory=_zeros)
    dropped: defaultdict[Labels, float] = field(default_factory=_zeros)
    nodes: defaultdict[Labels, float] = field(default_factory=_zeros)
    capacity: defaultdict[Labels, float] = field(default_factory=_zeros)
    load: defaultdict[Labels, float] = field(default_factory=_zeros)
    decided_share: dict[Labels, float] = field(default_factory=dict)
    real_share: dict[Labels, float] = field(default_factory=dict)
    decided: defaultdict[Labels, float] = field(default_factory=_zeros)
    real: defaultdict[Labels, float] = field(default_factory=_zeros)
    reasons: defaultdict[Labels, float] = field(default_factory=_zeros)

    def add(self, key: Key, rows: _ClusterRows, has_own: bool) -> None:
        """Add the rows of a cluster, under its own labels or under ``other``."""

        def labels(*parts: Locality) -> Labels:
            return (*key, *map(str, parts)) if has_own else (OTHER,) * (2 + len(parts))

        for source, demand in rows.demand.items():
            at = labels(source)
            self.demand[at] += demand.rps
            self.dropped[at] += demand.dropped_rps
            self.nodes[(*at, "reporting")] += demand.nodes
            self.nodes[(*at, "silent")] += demand.silent
        for target, figures in rows.targets.items():
            at = labels(target)
            self.capacity[at] += figures.capacity_rps
            self.load[at] += figures.load_rps
            if has_own and figures.decided_share is not None:
                self.decided_share[at] = figures.decided_share
            if has_own and figures.real_share is not None:
                self.real_share[at] = figures.real_share
        for path, flow in rows.paths.items():
            at = labels(*path)
            self.decided[at] += flow.decided_rps
            if flow.real_rps is not None:
                self.real[at] += flow.real_rps
        for reason, count in rows.reasons.items():
            self.reasons[(*labels(), reason)] += count


class AssignmentMetrics(Collector):
    """Traffic assignment: demand, capacity and shares of clusters; policies, sources, and decisions since the start.

    ``collect`` runs in a thread, over copies. ``rows`` bounds the rows of clusters with series of their own.
    """

    def __init__(self, assignments: Assignments, rows: int = ROWS) -> None:
        self._assignments = assignments
        self._budget = ClusterBudget(rows)

    def collect(self) -> Iterator[Metric]:
        """The metrics of all active assignments; called at each scrape."""
        yield from self._counts()
        rows_by_key = {
            active.key: _rows_of(outcome)
            for active in self._assignments.active()
            for outcome in (active.outcome,)
            if outcome is not None and not active.waits_for
        }
        admitted = self._budget.admit({key: rows.count for key, rows in rows_by_key.items()})
        sums = _Sums()
        for key, rows in rows_by_key.items():
            sums.add(key, rows, key in admitted)
        yield from _families(sums)
        left_out: dict[Labels, float] = {(): len(rows_by_key) - len(admitted)}
        yield _gauge("clusters_left_out", "Clusters without series of their own, summed as other", left_out)

    def _counts(self) -> Iterator[Metric]:
        assignments = self._assignments
        waiting, standings = assignments.census()
        text = "Policies of traffic assignment, deciding or waiting for input"
        policies = GaugeMetricFamily(f"{PREFIX}assignment_policies", text, labels=["state"])
        policies.add_metric(["deciding"], assignments.policies_n - waiting)
        policies.add_metric(["waiting"], waiting)
        yield policies
        text = "Source localities of all policies, by the origin of their weights"
        sources = GaugeMetricFamily(f"{PREFIX}assignment_sources", text, labels=["standing"])
        for standing in Standing:
            sources.add_metric([str(standing)], standings[standing])
        yield sources
        events = CounterMetricFamily(
            f"{PREFIX}assignment_events", "Changes of the weights that sources are served", labels=["action"]
        )
        for action in ACTIONS:
            events.add_metric([action], assignments.counts[action])
        yield events
        text = "Rounds of decisions that failed in the server"
        yield CounterMetricFamily(f"{PREFIX}assignment_failures", text, value=assignments.failures)
        text = "Decisions that were not stored, because another server had decided since"
        yield CounterMetricFamily(f"{PREFIX}assignment_stale", text, value=assignments.stale_n)


def _families(sums: _Sums) -> Iterator[Metric]:
    source, target, path = (*_CLUSTER, "source"), (*_CLUSTER, "target"), (*_CLUSTER, "source", "target")
    yield _gauge("demand_rps", "Requests per second that the nodes of a source issue", sums.demand, source)
    yield _gauge(
        "dropped_rps", "Requests per second of the demand that the nodes of a source dropped", sums.dropped, source
    )
    yield _gauge("nodes", "Nodes of a source, by whether they report load", sums.nodes, (*source, "state"))
    yield _gauge("capacity_rps", "Requests per second that a target can serve", sums.capacity, target)
    yield _gauge("load_rps", "Requests per second that arrive at a target", sums.load, target)
    text = "Decided share of a target in the demand of the cluster, 0 to 1"
    yield _gauge("decided_share", text, sums.decided_share, target)
    text = "Real share of a target in the requests of the cluster, 0 to 1"
    yield _gauge("real_share", text, sums.real_share, target)
    yield _gauge("decided_rps", "Requests per second from a source to a target, as decided", sums.decided, path)
    yield _gauge("real_rps", "Requests per second from a source to a target, as reported", sums.real, path)
    text = "Sources by the reasons of their latest decision; a reason of the whole cluster counts as one source"
    yield _gauge("reasons", text, sums.reasons, (*_CLUSTER, "reason"))


def _gauge(name: str, text: str, values: Mapping[Labels, float], labels: Labels = ()) -> Metric:
    return family(GaugeMetricFamily, name, text, values, labels, ASSIGNMENT_PREFIX)

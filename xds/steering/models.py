"""The JSON of traffic assignment: policies and their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from xds.admin.models.findings import Finding
from xds.admin.models.writing import document_of
from xds.admin.shapes.values import FindingItem, LocalityItem, locality_item, timestamp
from xds.model.errors import Violation
from xds.model.node import Locality
from xds.steering.active_policy import ActivePolicy, PolicyDecision
from xds.steering.core.assignment import Allotment, Assignment, Path, Reason, SourceDecision, Target
from xds.steering.core.decision_history import DecisionChange
from xds.steering.core.policy_document import policy_document
from xds.steering.core.utilisation import PathFigures, TargetFigures, path_figures, target_figures
from xds.steering.policies import etag_of

Json = dict[str, Any]
_PLACES = 4


class ReasonItem(TypedDict):
    """A reason of a decision.

    * ``code``: the kind of reason, for programs;
    * ``target``: present if the reason is about one target: its locality.
    """

    code: str
    detail: str
    target: NotRequired[LocalityItem]


class AllotmentItem(TypedDict):
    """A target as the nodes of a source are served it.

    * ``locality``: the locality of the target;
    * ``priority``: 0 for the split, higher for failover;
    * ``weight``: its weight, relative to the others of its priority;
    * ``share``: the part of the requests that it is to get while all endpoints are healthy, 0 to 1;
    * ``real_share``: the part of the requests that the source sent there just before the decision, 0 to 1; null if it
      is not known or the source sent none;
    * ``real_rps``: the requests per second that the source sent there; null if they were not measured by source.
    """

    locality: LocalityItem
    priority: int
    weight: int
    share: float
    real_share: float | None
    real_rps: float | None


class WantedItem(TypedDict):
    """The share of a target.

    * ``locality``: the locality of the target;
    * ``share``: its part of the requests of the source, 0 to 1.
    """

    locality: LocalityItem
    share: float


class SourceItem(TypedDict):
    """What the nodes of one locality (the source) are served, and the demand behind it.

    * ``source``: the locality of the nodes;
    * ``standing``: ``pushed`` (the pushed weights apply), ``held`` (reports are late, so the last decision stays),
      ``moving`` (step by step to ``wanted``), ``failing`` (no further step is planned, although many requests fail), or
      ``settled``;
    * ``changed_at``: when ``allotments`` changed last;
    * ``demand_rps``: the requests per second that the nodes want to send, to any target;
    * ``nodes``: the number of nodes that report;
    * ``silent``: the number of nodes that do not report; ``demand_rps`` includes an estimate for them;
    * ``dropped_rps``: the part of ``demand_rps`` that the nodes dropped;
    * ``repeats_rps``: the part of ``demand_rps`` that may be retries or hedges, at most;
    * ``failed_rps``: the part of ``demand_rps`` that failed or was dropped;
    * ``shed``: the fraction of requests that the nodes are to drop, 0 to 1;
    * ``reported``: the time of the latest report; empty if there was none;
    * ``allotments``: the served targets, by priority, then by name;
    * ``wanted``: the shares that the decision aims at, largest first;
    * ``reasons``: the reasons of the decision about this source.
    """

    source: LocalityItem
    standing: str
    changed_at: str
    demand_rps: float
    nodes: int
    silent: int
    dropped_rps: float
    repeats_rps: float
    failed_rps: float
    shed: float
    reported: str
    allotments: list[AllotmentItem]
    wanted: list[WantedItem]
    reasons: list[ReasonItem]


class TargetItem(TypedDict):
    """One locality of the pushed assignment: what it can serve, and what it gets.

    * ``endpoints``: the number of endpoints;
    * ``healthy``: how many of them are healthy;
    * ``capacity_rps``: its capacity in requests per second;
    * ``load_rps``: the requests per second from all sources;
    * ``utilisation``: load by capacity; null if the capacity is 0 or not known yet;
    * ``decided_rps``: the requests per second that it was decided to get;
    * ``decided_share``: the part of the demand of all sources that it was decided to get, 0 to 1; null without demand;
    * ``real_share``: the part of the requests of all sources that arrived there, 0 to 1; null without requests;
    * ``pushed_priority``: its priority in the pushed assignment;
    * ``pushed_weight``: its weight in the pushed assignment; null if none was pushed;
    * ``metrics``: averages of metrics that backends reported, by name.
    """

    locality: LocalityItem
    endpoints: int
    healthy: int
    capacity_rps: float
    load_rps: float
    utilisation: float | None
    decided_rps: float
    decided_share: float | None
    real_share: float | None
    pushed_priority: int
    pushed_weight: int | None
    metrics: dict[str, float]


class AssignmentItem(TypedDict):
    """A policy and its latest decision; in a dry run, the decision that it would make.

    * ``cluster``: the name of the cluster that the policy is about;
    * ``etag``: the etag of the policy, without quotes;
    * ``policy``: the policy with all defaults, as PUT accepts it;
    * ``endpoints``: the name of the ClusterLoadAssignment that it replaces; empty before it is known;
    * ``waits_for``: what is missing for the next decision; empty if nothing is. The other fields are of the decision
      before;
    * ``decided``: when it was decided; empty before the first decision;
    * ``sources``: what the nodes are served, by source;
    * ``targets``: the localities of the pushed assignment; empty before the first decision;
    * ``reasons``: the reasons that are about no single source.
    """

    group: str
    cluster: str
    etag: str
    policy: Json
    endpoints: str
    waits_for: str
    decided: str
    sources: list[SourceItem]
    targets: list[TargetItem]
    reasons: list[ReasonItem]
    warnings: list[FindingItem]
    dry_run: NotRequired[bool]


class AssignmentPage(TypedDict):
    """A page of policies, by cluster."""

    items: list[AssignmentItem]
    next_page_token: NotRequired[str]


class PolicyDeleted(TypedDict):
    """The policy that was deleted; in a dry run, that would be."""

    group: str
    cluster: str
    dry_run: NotRequired[bool]


def assignment_item(steering: ActivePolicy, warnings: Iterable[Violation]) -> AssignmentItem:
    """The item of a policy in force, or of a dry run."""
    outcome = steering.outcome
    return {
        "group": steering.key[0],
        "cluster": steering.key[1],
        "etag": etag_of(steering.policy),
        "policy": policy_document(steering.policy),
        "endpoints": steering.endpoints,
        "waits_for": steering.waits_for,
        "decided": timestamp(outcome.decided_at) if outcome is not None else "",
        "sources": _source_items(outcome, steering.assignment),
        "targets": _target_items(outcome),
        "reasons": reason_items(outcome.decision.reasons) if outcome is not None else [],
        "warnings": [document_of(Finding.from_domain(warning)) for warning in warnings],
    }


def _source_items(outcome: PolicyDecision | None, assignment: Assignment | None) -> list[SourceItem]:
    if assignment is None:
        return []
    decided = {one.source: one for one in outcome.decision.sources} if outcome is not None else {}
    paths = path_figures(outcome.observed, assignment) if outcome is not None else {}
    return [
        _source_item(outcome, assignment, source, decided.get(source), paths)
        for source in sorted(assignment.sources, key=str)
    ]


def _source_item(
    outcome: PolicyDecision | None,
    assignment: Assignment,
    source: Locality,
    decided: SourceDecision | None,
    paths: Mapping[Path, PathFigures],
) -> SourceItem:
    own, shares = assignment.sources[source], assignment.sources[source].shares()
    demand = outcome.observed.demand.get(source) if outcome is not None else None
    sends_nothing = outcome is not None and outcome.observed.flows is not None
    unknown = PathFigures(0.0, 0.0, 0.0 if sends_nothing else None)
    return {
        "source": locality_item(source),
        "standing": str(own.standing),
        "changed_at": timestamp(own.changed_at),
        "demand_rps": round(demand.rps, _PLACES) if demand is not None else 0.0,
        "nodes": demand.nodes if demand is not None else 0,
        "silent": demand.silent if demand is not None else 0,
        "dropped_rps": round(demand.dropped_rps, _PLACES) if demand is not None else 0.0,
        "repeats_rps": round(demand.repeats_rps, _PLACES) if demand is not None else 0.0,
        "failed_rps": round(demand.failed_rps, _PLACES) if demand is not None else 0.0,
        "shed": own.shed,
        "reported": timestamp(demand.reported_at) if demand is not None and demand.reported_at else "",
        "allotments": [
            _allotment_item(one, shares.get(one.locality, 0.0), paths.get((source, one.locality), unknown))
            for one in own.allotments
        ],
        "wanted": _wanted_items(decided.wanted if decided is not None else {}),
        "reasons": reason_items(decided.reasons) if decided is not None else [],
    }


def _allotment_item(one: Allotment, share: float, path: PathFigures) -> AllotmentItem:
    return {
        "locality": locality_item(one.locality),
        "priority": one.priority,
        "weight": one.weight,
        "share": round(share, _PLACES) if not one.priority else 0.0,
        "real_share": _rounded(path.real_share),
        "real_rps": _rounded(path.real_rps),
    }


def _rounded(value: float | None) -> float | None:
    return round(value, _PLACES) if value is not None else None


def _wanted_items(wanted: Mapping[Locality, float]) -> list[WantedItem]:
    shares = ((locality, share) for locality, share in wanted.items() if share > 0)
    ordered = sorted(shares, key=lambda one: (-one[1], str(one[0])))
    return [{"locality": locality_item(locality), "share": round(share, _PLACES)} for locality, share in ordered]


def _target_items(outcome: PolicyDecision | None) -> list[TargetItem]:
    if outcome is None:
        return []
    figures, targets = target_figures(outcome.observed, outcome.decision), outcome.observed.targets
    return [_target_item(name, targets[name], figures[name]) for name in sorted(targets, key=str)]


def _target_item(name: Locality, target: Target, figures: TargetFigures) -> TargetItem:
    return {
        "locality": locality_item(name),
        "endpoints": target.endpoints,
        "healthy": target.healthy,
        "capacity_rps": round(figures.capacity_rps, _PLACES),
        "load_rps": round(target.load_rps, _PLACES),
        "utilisation": _rounded(figures.utilisation),
        "decided_rps": round(figures.decided_rps, _PLACES),
        "decided_share": _rounded(figures.decided_share),
        "real_share": _rounded(figures.real_share),
        "pushed_priority": target.pushed_priority,
        "pushed_weight": target.pushed_weight,
        "metrics": {metric: round(value, _PLACES) for metric, value in target.metrics.items()},
    }


def reason_items(reasons: Iterable[Reason]) -> list[ReasonItem]:
    """The reasons of a decision as JSON values, in their order."""
    return [_reason_item(reason) for reason in reasons]


def _reason_item(reason: Reason) -> ReasonItem:
    item = {"code": str(reason.code), "detail": reason.detail}
    target = {"target": locality_item(reason.target)} if reason.target is not None else {}
    return cast(ReasonItem, {**item, **target})


class DecisionChangeItem(TypedDict):
    """The change of what one source is served, by one decision.

    * ``number``: grows by one with each change of the cluster;
    * ``time``: when it was decided;
    * ``source``: the locality of the nodes;
    * ``actions``: some of ``changed``, ``held`` (the reports of the source are late), ``fallback`` (the pushed weights
      apply again);
    * ``standing``: ``pushed``, ``held``, ``moving``, ``failing`` or ``settled`` after the change;
    * ``demand_rps``: the requests per second that the nodes wanted to send;
    * ``shed``: the fraction of requests that the nodes are to drop, 0 to 1;
    * ``before``: the largest shares before the change, largest first;
    * ``after``: the largest shares after it, largest first;
    * ``reasons``: the reasons of the change.
    """

    number: int
    time: str
    source: LocalityItem
    actions: list[str]
    standing: str
    demand_rps: float
    shed: float
    before: list[WantedItem]
    after: list[WantedItem]
    reasons: list[ReasonItem]


class DecisionChangePage(TypedDict):
    """A page of the decision history of a cluster, newest first."""

    items: list[DecisionChangeItem]
    next_page_token: NotRequired[str]


def decision_change_item(change: DecisionChange) -> DecisionChangeItem:
    """One change of a decision as a JSON value; times are in RFC 3339."""
    return {
        "number": change.number,
        "time": timestamp(change.decided_at),
        "source": locality_item(change.source),
        "actions": list(change.actions),
        "standing": str(change.standing),
        "demand_rps": round(change.demand_rps, 4),
        "shed": change.shed,
        "before": _share_items(change.before),
        "after": _share_items(change.after),
        "reasons": reason_items(change.reasons),
    }


def _share_items(shares: Mapping[Locality, float]) -> list[WantedItem]:
    return [{"locality": locality_item(name), "share": share} for name, share in shares.items()]

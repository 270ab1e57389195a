"""The JSON of traffic assignment: policies, their decisions, and the JSON schema of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from xds.api.problem import finding_item
from xds.api.shapes.values import FindingItem, LocalityItem, timestamp
from xds.assignment.assignment import Allotment, Assignment, Path, Reason, SourceDecision, Target
from xds.assignment.decision_history import DecisionChange
from xds.assignment.policy import DrainLimits, Policy, Reach, SpillLimits, Strategy
from xds.assignment.policy_document import NAME_LIMIT, RATE_LIMIT_RPS, TIME_LIMIT_S
from xds.assignment.utilisation import PathFigures, TargetFigures, path_figures, target_figures
from xds.control.active_policy import ActivePolicy, PolicyDecision
from xds.control.policies import etag_of
from xds.model.errors import Violation
from xds.model.node import Locality

Json = dict[str, Any]
_PLACES = 4


class ReasonItem(TypedDict):
    """``code`` is for programs; ``target`` is the locality that the reason refers to, if any."""

    code: str
    detail: str
    target: NotRequired[LocalityItem]


class AllotmentItem(TypedDict):
    """A locality as the nodes of a source are served it; ``share`` is its part of the requests while all is healthy.

    ``real_share`` is the part that really went there, as measured just before the decision; null where it is not known.
    ``real_rps`` is a second.
    """

    locality: LocalityItem
    priority: int
    weight: int
    share: float
    real_share: float | None
    real_rps: float | None


class WantedItem(TypedDict):
    """The share of a locality that a source moves to."""

    locality: LocalityItem
    share: float


class SourceItem(TypedDict):
    """What the nodes of one locality are served.

    ``standing``: ``pushed`` (nothing replaces the pushed resource), ``held``, ``moving`` or ``settled``. ``wanted`` are
    the shares that it moves to. ``silent`` nodes do not report. Of ``demand_rps`` the nodes dropped ``dropped_rps``,
    and at most ``repeats_rps`` are retries or hedges. ``shed`` is the fraction of requests that they are to drop.
    """

    source: LocalityItem
    standing: str
    changed_at: str
    demand_rps: float
    nodes: int
    silent: int
    dropped_rps: float
    repeats_rps: float
    shed: float
    reported: str
    allotments: list[AllotmentItem]
    wanted: list[WantedItem]
    reasons: list[ReasonItem]


class TargetItem(TypedDict):
    """A locality of the pushed assignment, with what it was taken to be able to serve.

    ``utilisation`` is load by capacity; null where the capacity is 0 or not known yet. ``decided_share`` and
    ``real_share`` are its parts of the cluster's requests, as decided and as they arrived; null while there are none.
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
    """A policy and its latest decision. ``waits_for`` says what the next decision lacks; the rest is the previous one.

    ``endpoints`` names the ClusterLoadAssignment that it replaces.
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
    """A page of policies."""

    items: list[AssignmentItem]
    next_page_token: NotRequired[str]


class PolicyDeleted(TypedDict):
    """The policy that was, or would be, deleted."""

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
        "policy": steering.policy.document(),
        "endpoints": steering.endpoints,
        "waits_for": steering.waits_for,
        "decided": timestamp(outcome.decided_at) if outcome is not None else "",
        "sources": _source_items(outcome, steering.assignment),
        "targets": _target_items(outcome),
        "reasons": reason_items(outcome.decision.reasons) if outcome is not None else [],
        "warnings": [finding_item(warning) for warning in warnings],
    }


def locality_item(locality: Locality) -> LocalityItem:
    """A locality as JSON."""
    return {"region": locality.region, "zone": locality.zone, "sub_zone": locality.sub_zone}


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


Document = dict[str, Any]


def _object(required: tuple[str, ...] = (), **properties: Document) -> Document:
    found: Document = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _number(least: float, most: float, default: object) -> Document:
    return {"type": "number", "minimum": least, "maximum": most, "default": default}


_DEFAULTS = {field.name: field.default for field in fields(Policy)}


_NAME: Document = {"type": "string", "maxLength": NAME_LIMIT}
_LOCALITY: Document = {
    **_object(region=_NAME, zone=_NAME, sub_zone=_NAME),
    "description": "A part that is left out matches any value",
}
_LOCALITIES: Document = {"type": "array", "items": _LOCALITY}
_RPS: Document = {"type": "number", "minimum": 0, "maximum": RATE_LIMIT_RPS}
_RATE: Document = {
    "oneOf": [
        _object(("per_endpoint_rps",), per_endpoint_rps=_RPS, localities=_LOCALITY),
        _object(("per_locality_rps",), per_locality_rps=_RPS, localities=_LOCALITY),
    ]
}
_METRIC: Document = _object(
    ("name", "target"),
    name={**_NAME, "minLength": 1},
    target={"type": "number", "exclusiveMinimum": 0, "maximum": RATE_LIMIT_RPS},
)
_METRICS: Document = {"type": "array", "items": _METRIC, "minItems": 1}
_RATES: Document = {"type": "array", "items": _RATE}
_CAPACITY: Document = {
    "description": "Capacity of a locality: the first rate that matches, or learnt from metrics",
    "anyOf": [
        _object(("rates",), rates={**_RATES, "minItems": 1}, metric=_METRIC),
        _object(("metric",), rates=_RATES, metric=_METRIC),
        _object(("metrics",), rates=_RATES, metrics=_METRICS),
    ],
}
_ORDER: Document = _object(("targets",), source=_LOCALITY, targets={**_LOCALITIES, "minItems": 1})
_NUMBERS = {
    "minimum_change": (0.0, 0.5),
    "maximum_step": (0.001, 1.0),
    "hysteresis": (0.0, 0.9),
    "target_utilisation": (0.01, 1.0),
    "interval_s": (1.0, TIME_LIMIT_S),
    "dwell_s": (0.0, TIME_LIMIT_S),
    "stale_after_s": (1.0, TIME_LIMIT_S),
    "fallback_after_s": (1.0, TIME_LIMIT_S),
}

_SPILL = {
    **_object(
        within={"enum": [str(one) for one in Reach], "default": str(Reach.WORLD)},
        at_most=_number(0.0, 1.0, SpillLimits().at_most),
        shed={"type": "boolean", "default": False},
    ),
    "description": "How far and how many of a source's requests leave its zone; the rest stays or is dropped",
}
_SCALER = _object(("factor",), factor={"type": "number", "minimum": 0, "maximum": 1}, localities=_LOCALITY)
_ERRORS: Document = {
    "type": ["number", "null"],
    "minimum": 0.01,
    "maximum": 1.0,
    "default": None,
    "description": "A locality that fails more of a source's requests has no capacity for it for a while",
}

POLICY_SCHEMA: Document = _object(
    ("capacity",),
    cluster={**_NAME, "description": "The cluster of the path"},
    strategy={"enum": [str(one) for one in Strategy], "default": str(Strategy.WATERFALL_BY_ZONE)},
    capacity=_CAPACITY,
    preferred=_LOCALITIES,
    order={"type": "array", "items": _ORDER},
    drain=_object(below=_number(0.0, 1.0, DrainLimits().below), restore=_number(0.0, 1.0, DrainLimits().restore)),
    spill=_SPILL,
    standby={**_LOCALITIES, "description": "They get requests only when all others have no capacity"},
    capacity_scaler={"type": "array", "items": _SCALER},
    errors_above=_ERRORS,
    **{name: _number(*bounds, _DEFAULTS[name]) for name, bounds in _NUMBERS.items()},
)


class DecisionChangeItem(TypedDict):
    """The change of one source by one decision.

    ``number`` grows by one with each change of the cluster. ``actions``: ``changed``, ``held`` (its reports are late),
    ``fallback`` (the pushed weights apply again). ``before`` and ``after`` are shares of its requests, largest first.
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
    """A page of the decision history; ``next_page_token`` is missing on the last one."""

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

"""The JSON of traffic assignment: policies and their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.findings import Finding
from xds.admin.models.values import NodeLocality, time_of
from xds.admin.models.writing import EMPTY_FOR_NONE

if TYPE_CHECKING:
    from xds.model.errors import Violation
    from xds.model.node import Locality
    from xds.steering.active_policy import ActivePolicy, PolicyDecision
    from xds.steering.core.assignment import Allotment, Path, Reason, SourceAssignment, Target
    from xds.steering.core.decision_history import DecisionChange
    from xds.steering.core.utilisation import PathFigures, TargetFigures

Json = dict[str, Any]
_PLACES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionReason:
    """A reason of a decision.

    * ``code``: the kind of reason, for programs;
    * ``target``: present if the reason is about one target: its locality.
    """

    schema_name: ClassVar[str] = "ReasonItem"

    code: str
    detail: str
    target: NodeLocality | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAllotment:
    """A target as the nodes of a source are served it.

    * ``locality``: the locality of the target;
    * ``priority``: 0 for the split, higher for failover;
    * ``weight``: its weight, relative to the others of its priority;
    * ``share``: the part of the requests that it is to get while all endpoints are healthy, 0 to 1;
    * ``real_share``: the part of the requests that the source sent there just before the decision, 0 to 1; null if it
      is not known or the source sent none;
    * ``real_rps``: the requests per second that the source sent there; null if they were not measured by source.
    """

    schema_name: ClassVar[str] = "AllotmentItem"

    locality: NodeLocality
    priority: int
    weight: int
    share: float
    real_share: float | None
    real_rps: float | None

    @classmethod
    def from_domain(cls, one: Allotment, share: float, path: PathFigures | None) -> ServedAllotment:
        """A target as it is served, with the figures of its path if there is a decision."""
        return copied(
            cls,
            one,
            share=round(share, _PLACES) if not one.priority else 0.0,
            real_share=_rounded(path.real_share) if path is not None else None,
            real_rps=_rounded(path.real_rps) if path is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedShare:
    """The share of a target.

    * ``locality``: the locality of the target;
    * ``share``: its part of the requests of the source, 0 to 1.
    """

    schema_name: ClassVar[str] = "WantedItem"

    locality: NodeLocality
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAllotments:
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

    schema_name: ClassVar[str] = "SourceItem"

    source: NodeLocality
    standing: str
    changed_at: datetime
    demand_rps: float
    nodes: int
    silent: int
    dropped_rps: float
    repeats_rps: float
    failed_rps: float
    shed: float
    reported: datetime | None = field(metadata=EMPTY_FOR_NONE)
    allotments: tuple[ServedAllotment, ...]
    wanted: tuple[WantedShare, ...]
    reasons: tuple[DecisionReason, ...]

    @classmethod
    def from_domain(
        cls, source: Locality, own: SourceAssignment, outcome: PolicyDecision | None, paths: Mapping[Path, PathFigures]
    ) -> SourceAllotments:
        """What the nodes of a source are served; ``outcome`` is the latest decision."""
        decided = outcome.of_source(source) if outcome is not None else None
        demand = outcome.observed.demand.get(source) if outcome is not None else None
        shares = own.shares()
        return cls(
            source=NodeLocality.from_domain(source),
            standing=str(own.standing),
            changed_at=time_of(own.changed_at),
            demand_rps=round(demand.rps, _PLACES) if demand is not None else 0.0,
            nodes=demand.nodes if demand is not None else 0,
            silent=demand.silent if demand is not None else 0,
            dropped_rps=round(demand.dropped_rps, _PLACES) if demand is not None else 0.0,
            repeats_rps=round(demand.repeats_rps, _PLACES) if demand is not None else 0.0,
            failed_rps=round(demand.failed_rps, _PLACES) if demand is not None else 0.0,
            shed=own.shed,
            reported=time_of(demand.reported_at) if demand is not None and demand.reported_at else None,
            allotments=tuple(
                ServedAllotment.from_domain(one, shares.get(one.locality, 0.0), paths.get((source, one.locality)))
                for one in own.allotments
            ),
            wanted=_wanted(decided.wanted if decided is not None else {}),
            reasons=_reasons(decided.reasons) if decided is not None else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLoad:
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

    schema_name: ClassVar[str] = "TargetItem"

    locality: NodeLocality
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
    metrics: Mapping[str, float]

    @classmethod
    def from_domain(cls, name: Locality, target: Target, figures: TargetFigures) -> TargetLoad:
        """A target with its figures."""
        return copied(
            cls,
            target,
            locality=NodeLocality.from_domain(name),
            capacity_rps=round(figures.capacity_rps, _PLACES),
            load_rps=round(target.load_rps, _PLACES),
            utilisation=_rounded(figures.utilisation),
            decided_rps=round(figures.decided_rps, _PLACES),
            decided_share=_rounded(figures.decided_share),
            real_share=_rounded(figures.real_share),
            metrics={metric: round(value, _PLACES) for metric, value in target.metrics.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
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

    schema_name: ClassVar[str] = "AssignmentItem"

    group: str
    cluster: str
    etag: str
    policy: Json
    endpoints: str
    waits_for: str
    decided: datetime | None = field(metadata=EMPTY_FOR_NONE)
    sources: tuple[SourceAllotments, ...]
    targets: tuple[TargetLoad, ...]
    reasons: tuple[DecisionReason, ...]
    warnings: tuple[Finding, ...]
    dry_run: bool = False

    @classmethod
    def from_domain(cls, active: ActivePolicy, etag: str, warnings: Iterable[Violation]) -> PolicyState:
        """A policy in force, or of a dry run."""
        outcome, assignment = active.outcome, active.assignment
        sources = assignment.sources if assignment is not None else {}
        paths = outcome.paths(assignment) if outcome is not None and assignment is not None else {}
        targets = outcome.targets() if outcome is not None else []
        return cls(
            group=active.key[0],
            cluster=active.key[1],
            etag=etag,
            policy=active.document(),
            endpoints=active.endpoints,
            waits_for=active.waits_for,
            decided=time_of(outcome.decided_at) if outcome is not None else None,
            sources=tuple(
                SourceAllotments.from_domain(source, sources[source], outcome, paths)
                for source in sorted(sources, key=str)
            ),
            targets=tuple(TargetLoad.from_domain(*each) for each in targets),
            reasons=_reasons(outcome.decision.reasons) if outcome is not None else (),
            warnings=tuple(map(Finding.from_domain, warnings)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPage:
    """A page of policies, by cluster."""

    items: tuple[PolicyState, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDeleted:
    """The policy that was deleted; in a dry run, that would be."""

    group: str
    cluster: str
    dry_run: bool = False


def _reasons(reasons: Iterable[Reason]) -> tuple[DecisionReason, ...]:
    return tuple(copied(DecisionReason, each) for each in reasons)


def _rounded(value: float | None) -> float | None:
    return round(value, _PLACES) if value is not None else None


def _wanted(wanted: Mapping[Locality, float]) -> tuple[WantedShare, ...]:
    shares = ((locality, share) for locality, share in wanted.items() if share > 0)
    ordered = sorted(shares, key=lambda one: (-one[1], str(one[0])))
    return _shares((locality, round(share, _PLACES)) for locality, share in ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedShares:
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

    schema_name: ClassVar[str] = "DecisionChangeItem"

    number: int
    time: datetime
    source: NodeLocality
    actions: tuple[str, ...]
    standing: str
    demand_rps: float
    shed: float
    before: tuple[WantedShare, ...]
    after: tuple[WantedShare, ...]
    reasons: tuple[DecisionReason, ...]

    @classmethod
    def from_domain(cls, change: DecisionChange) -> ChangedShares:
        """One change of a decision."""
        return copied(
            cls,
            change,
            time=time_of(change.decided_at),
            demand_rps=round(change.demand_rps, _PLACES),
            before=_shares(change.before.items()),
            after=_shares(change.after.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionChangePage:
    """A page of the decision history of a cluster, newest first."""

    items: tuple[ChangedShares, ...]
    next_page_token: str = ""


def _shares(shares: Iterable[tuple[Locality, float]]) -> tuple[WantedShare, ...]:
    return tuple(WantedShare(locality=NodeLocality.from_domain(name), share=share) for name, share in shares)

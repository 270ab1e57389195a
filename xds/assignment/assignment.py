"""Assignments as values: what a decision rests on, the decision, and its reasons.

`xds.assignment.decide` computes a `Decision` from an `Observation`. Times are seconds since the epoch, so that the age
of a stored assignment is known after a restart. Assignments are stored as JSON documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple

from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality

# Weights are ten-thousandths of a source's requests. That is fine enough for a proxy of some thousand requests a
# second, and far below 2^32 - 1, the largest sum of the weights of one priority.
WEIGHT_TOTAL = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests a second that the nodes of one source locality issued, to any target.

    ``reported_at``: the time of their latest report; None where they follow the cluster and never reported. ``nodes``:
    how many of them report.
    """

    rps: float = 0.0
    reported_at: float | None = None
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A locality of the pushed ClusterLoadAssignment: endpoints, health and load.

    ``pushed_weight`` is None where no weight was pushed. ``load_rps`` is the load from all sources in requests a
    second, ``metrics`` are averages by name; only a policy with a metric uses them.
    """

    endpoints: int
    healthy: int
    pushed_priority: int = 0
    pushed_weight: int | None = None
    load_rps: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a decision rests on: demand by source locality, and the pushed target localities."""

    demand: Mapping[Locality, Demand]
    targets: Mapping[Locality, Target]


class Allotment(NamedTuple):
    """One target in the assignment of a source. ``weight`` is relative to the other weights of its priority."""

    locality: Locality
    priority: int
    weight: int


class Standing(StrEnum):
    """The state of a source's assignment.

    ``PUSHED``: the demand is not known, the pushed weights apply. ``HELD``: the reports are stale, the last decision
    stays. ``MOVING``: on the way to the wanted shares, step by step. ``SETTLED``: no further step is planned.
    """

    PUSHED = "pushed"
    HELD = "held"
    MOVING = "moving"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class SourceAssignment:
    """What the nodes of one source locality are served: allotments by priority, then by name.

    Valid for Envoy and gRPC: priorities are 0, 1, 2 ... without a gap, weights are at least 1. The weights of priority
    0, the split, sum up to ``WEIGHT_TOTAL``. The priorities below are failover, for proxies that find the endpoints
    above unhealthy. With ``Standing.PUSHED`` the pushed resource is served unchanged; the allotments describe it.
    """

    allotments: tuple[Allotment, ...]
    standing: Standing
    changed_at: float

    @property
    def is_overlay(self) -> bool:
        """Whether the nodes are served other weights than the pushed ones."""
        return self.standing is not Standing.PUSHED

    def shares(self) -> dict[Locality, float]:
        """The fraction of requests that each target of priority 0 gets while all endpoints are healthy."""
        split = {allotment.locality: allotment.weight for allotment in self.allotments if not allotment.priority}
        total = sum(split.values())
        return {locality: weight / total for locality, weight in split.items()} if total else {}


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """Smoothed demand of a source, and the time of its latest report."""

    demand_rps: float
    heard_at: float


@dataclass(frozen=True, slots=True)
class HealthLapse:
    """A target had too few healthy endpoints: when it last had, and how many times.

    ``is_well``: it has enough again. It may still be drained for a while (`xds.assignment.capacity`).
    """

    ill_at: float
    times: int
    is_drained: bool
    is_well: bool = False


@dataclass(frozen=True, slots=True)
class AssignmentMemory:
    """What the next decision needs of this one: smoothed demand, learnt capacity, drained targets.

    ``endpoint_rps`` is what one healthy endpoint of each target can serve, as learnt from the metric.
    """

    observed_at: float
    sources: Mapping[Locality, SourceMemory] = field(default_factory=dict)
    endpoint_rps: Mapping[Locality, float] = field(default_factory=dict)
    lapses: Mapping[Locality, HealthLapse] = field(default_factory=dict)

    @property
    def drained(self) -> frozenset[Locality]:
        """The targets that get no share because too few of their endpoints are healthy."""
        return frozenset(name for name, lapse in self.lapses.items() if lapse.is_drained)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every source locality is assigned, and the memory for the next decision."""

    sources: Mapping[Locality, SourceAssignment]
    memory: AssignmentMemory

    def document(self) -> dict[str, Any]:
        """The assignment as JSON for the store. ``from_document`` reads it back as an equal assignment."""
        pass

        return assignment_document(self)

    @staticmethod
    def from_document(document: object) -> Assignment:
        """The assignment in a stored document. Raises ``ValidationError`` for any other document."""
        pass

        return read_assignment(document)


class ReasonCode(StrEnum):
    """Why a decision is as it is. The values are part of the API: events and `xds assignment show` have them."""

    SPILL = "spill"  # a target would be above its capacity: requests leave it
    RETURN = "return"  # nearer targets have free capacity again
    REBALANCE = "rebalance"  # the same distance, load spread more evenly
    DRAINED = "drained"  # too few healthy endpoints: its capacity counts as 0
    RESTORED = "restored"
    NO_HEALTHY_ENDPOINTS = "no_healthy_endpoints"
    REMOVED = "removed"  # no longer among the pushed localities
    OVERLOAD = "overload"  # demand exceeds all capacity: spread in proportion to capacity
    STEP_LIMITED = "step_limited"
    DWELLING = "dwelling"
    WITHIN_BAND = "within_band"  # not worth a change
    STALE = "stale"  # no recent report: the last decision is held
    FALLBACK = "fallback"  # no report for too long: the pushed weights apply
    NEVER_REPORTED = "never_reported"
    NO_CAPACITY = "no_capacity"  # no target has capacity: the pushed weights apply
    CAPACITY_UNKNOWN = "capacity_unknown"  # no rate matches, or the metric was not measured
    DRAIN_IGNORED = "drain_ignored"  # all targets have too few healthy endpoints
    FIGURE_REFUSED = "figure_refused"  # not a number, infinite, or negative
    FAILOVER = "failover"  # only priorities below 0 changed


@dataclass(frozen=True, slots=True)
class Reason:
    """A code for programs, a sentence for people, and the target that the reason is about, if any."""

    code: ReasonCode
    detail: str
    target: Locality | None = None


@dataclass(frozen=True, slots=True)
class SourceDecision:
    """The decision for one source. ``wanted``: the shares it moves to; empty where its demand is not known."""

    source: Locality
    standing: Standing
    is_changed: bool
    reasons: tuple[Reason, ...] = ()
    wanted: Mapping[Locality, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """An assignment with its reasons: those of each source, and those of the whole cluster.

    ``capacity_rps`` is the capacity of each target in requests a second that the decision assumed.
    """

    assignment: Assignment
    sources: tuple[SourceDecision, ...]
    reasons: tuple[Reason, ...]
    capacity_rps: Mapping[Locality, float]

    @property
    def is_changed(self) -> bool:
        """Whether any source is served other allotments than before."""
        return any(source.is_changed for source in self.sources)

    @property
    def held(self) -> tuple[Locality, ...]:
        """The sources whose reports are stale, so that their last decision stays."""
        return tuple(one.source for one in self.sources if one.standing is Standing.HELD)


def assignment_document(assignment: Assignment) -> dict[str, Any]:
    """An assignment with its memory as JSON."""
    memory = assignment.memory
    return {
        "sources": [
            {
                "source": asdict(locality),
                "standing": str(source.standing),
                "changed_at": source.changed_at,
                "allotments": [{**one._asdict(), "locality": asdict(one.locality)} for one in source.allotments],
            }
            for locality, source in assignment.sources.items()
        ],
        "memory": {
            "observed_at": memory.observed_at,
            "sources": [{"source": asdict(source), **asdict(own)} for source, own in memory.sources.items()],
            "endpoint_rps": [{"target": asdict(target), "rps": rps} for target, rps in memory.endpoint_rps.items()],
            "lapses": [{"target": asdict(target), **asdict(lapse)} for target, lapse in memory.lapses.items()],
        },
    }


def read_assignment(document: Any) -> Assignment:
    """The assignment in a JSON document. Raises ``ValidationError`` for any other document."""
    try:
        sources = {_locality(item["source"]): _source(item) for item in document["sources"]}
        return Assignment(sources, _memory(document["memory"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"not a stored assignment: {type(error).__name__}: {error!s:.80}"
        raise ValidationError([Violation("malformed", detail)]) from error


def _source(item: Any) -> SourceAssignment:
    allotments = tuple(
        Allotment(_locality(one["locality"]), _weight(one["priority"], 0), _weight(one["weight"], 1))
        for one in item["allotments"]
    )
    return SourceAssignment(allotments, Standing(item["standing"]), _finite(item["changed_at"]))


def _memory(item: Any) -> AssignmentMemory:
    sources = {
        _locality(own["source"]): SourceMemory(_finite(own["demand_rps"]), _finite(own["heard_at"]))
        for own in item["sources"]
    }
    learnt = {_locality(one["target"]): _finite(one["rps"]) for one in item["endpoint_rps"]}
    lapses = {_locality(one["target"]): _lapse(one) for one in item["lapses"]}
    return AssignmentMemory(_finite(item["observed_at"]), sources, learnt, lapses)


def _lapse(item: Any) -> HealthLapse:
    return HealthLapse(
        _finite(item["ill_at"]), _weight(item["times"], 1), bool(item["is_drained"]), bool(item["is_well"])
    )


def _locality(item: Any) -> Locality:
    parts = {name: item[name] for name in ("region", "zone", "sub_zone")}
    if not all(isinstance(part, str) for part in parts.values()):
        raise TypeError("the parts of a locality must be strings")
    return Locality(**parts)


def _weight(value: Any, least: int) -> int:
    if not isinstance(value, int) or not least <= value < 2**32:
        raise ValueError(f"{value!r:.20} is not a weight or priority")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.20} is not a figure")
    return float(value)

"""Assignments as values: what is observed, what was decided, and why.

``xds.assignment.decide`` computes one from the other. Times are seconds since the epoch, so that an assignment that was
stored before a restart still says how old it is.

Assignments as JSON documents, so that what was decided outlives a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple

from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality

# Shares are told in ten-thousandths: far below the 2^32-1 that the weights of one priority may sum up to, fine enough
# for a fleet that no proxy of which sends more than some thousand requests a second.
WEIGHT_TOTAL = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """What the nodes of one source locality issued, to wherever, in requests a second.

    ``reported_at`` is when the latest of their reports came; None: never. ``nodes`` is how many of them report. A
    locality of nodes that follow the cluster and have not reported belongs here too, with None.
    """

    rps: float = 0.0
    reported_at: float | None = None
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A locality of the pushed assignment: its endpoints, how many are healthy, and what was measured there.

    ``pushed_weight`` None: none was pushed. ``load_rps`` is what all sources sent there, ``metrics`` are averages by
    name; both matter only to policies with a metric.
    """

    endpoints: int
    healthy: int
    pushed_priority: int = 0
    pushed_weight: int | None = None
    load_rps: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a decision rests on: demand by source locality, and the pushed localities by name."""

    demand: Mapping[Locality, Demand]
    targets: Mapping[Locality, Target]


class Allotment(NamedTuple):
    """One locality in the assignment of a source; ``weight`` is among those of its priority."""

    locality: Locality
    priority: int
    weight: int


class Standing(StrEnum):
    """How a source's assignment came about.

    ``PUSHED``: nothing is known yet or any more, the pushed weights hold. ``HELD``: its reports are stale, what was
    decided last stays. ``MOVING``: on the way to what was decided, step by step. ``SETTLED``: there.
    """

    PUSHED = "pushed"
    HELD = "held"
    MOVING = "moving"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class SourceAssignment:
    """What the nodes of one source locality are served: allotments by priority, then by name.

    Priorities are 0, 1, 2 ... without a gap, weights are at least 1 and those of priority 0 sum up to ``WEIGHT_TOTAL``:
    valid for Envoy and gRPC. Priority 0 is the split; what stands below takes over when the proxies themselves find
    the endpoints above unhealthy. With ``Standing.PUSHED`` the pushed assignment is served untouched, and the
    allotments only tell of it.
    """

    allotments: tuple[Allotment, ...]
    standing: Standing
    changed_at: float

    @property
    def is_overlay(self) -> bool:
        """Whether the nodes get something else than what was pushed."""
        return self.standing is not Standing.PUSHED

    def shares(self) -> dict[Locality, float]:
        """The fractions of requests that go to each locality of priority 0 while all is healthy."""
        split = {allotment.locality: allotment.weight for allotment in self.allotments if not allotment.priority}
        total = sum(split.values())
        return {locality: weight / total for locality, weight in split.items()} if total else {}


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """Of a source: demand, smoothed; when its figures were last fresh."""

    demand_rps: float
    heard_at: float


@dataclass(frozen=True, slots=True)
class Lapse:
    """That a locality had too few healthy endpoints: when last, and for the how manyeth time.

    ``is_well``: it has enough again; it may still be drained for a while then.
    """

    ill_at: float
    times: int
    is_drained: bool
    is_well: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What the next decision must know of this one: smoothed figures, and who is or was draining.

    ``endpoint_rps`` is what a healthy endpoint of each target can take, as learnt from the metric.
    """

    observed_at: float
    sources: Mapping[Locality, SourceMemory] = field(default_factory=dict)
    endpoint_rps: Mapping[Locality, float] = field(default_factory=dict)
    lapses: Mapping[Locality, Lapse] = field(default_factory=dict)

    @property
    def drained(self) -> frozenset[Locality]:
        """The localities that take no share for lack of healthy endpoints."""
        return frozenset(name for name, lapse in self.lapses.items() if lapse.is_drained)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every source locality is assigned, and the memory behind it."""

    sources: Mapping[Locality, SourceAssignment]
    memory: Memory

    def document(self) -> dict[str, Any]:
        """JSON that ``from_document`` reads back as an equal assignment: for the store, to survive a restart."""
        pass

        return assignment_document(self)

    @staticmethod
    def from_document(document: object) -> Assignment:
        """Raises ``ValidationError`` where the document is not one of ours."""
        pass

        return read_assignment(document)


class Code(StrEnum):
    """Why a decision is as it is; these words are a contract with whoever reads the events."""

    SPILL = "spill"  # a target would be above its capacity: requests leave it
    RETURN = "return"  # nearer targets have room again
    REBALANCE = "rebalance"  # as near, but loaded more alike
    DRAINED = "drained"  # too few healthy endpoints: its capacity is taken out
    RESTORED = "restored"
    NO_HEALTHY_ENDPOINTS = "no_healthy_endpoints"
    REMOVED = "removed"  # no longer among the pushed localities
    OVERLOAD = "overload"  # more demand than capacity: spread in proportion to capacity
    STEP_LIMITED = "step_limited"
    DWELLING = "dwelling"
    WITHIN_BAND = "within_band"  # not worth a change
    STALE = "stale"  # held
    FALLBACK = "fallback"  # reports missing for too long
    NEVER_REPORTED = "never_reported"
    NO_CAPACITY = "no_capacity"  # nothing has capacity: the pushed weights hold
    CAPACITY_UNKNOWN = "capacity_unknown"  # no rate matches, no metric was measured
    DRAIN_IGNORED = "drain_ignored"  # all are below the healthy fraction
    FIGURE_REFUSED = "figure_refused"  # not a number, infinite, negative
    FAILOVER = "failover"  # only what stands below priority 0 changed


@dataclass(frozen=True, slots=True)
class Reason:
    """A code for machines, a sentence for people, and the locality it is about, where it is about one."""

    code: Code
    detail: str
    target: Locality | None = None


@dataclass(frozen=True, slots=True)
class SourceDecision:
    """What was decided for one source. ``wanted`` are the shares it is on its way to; without figures, none."""

    source: Locality
    standing: Standing
    is_changed: bool
    reasons: tuple[Reason, ...] = ()
    wanted: Mapping[Locality, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """An assignment and its reasons: those of each source, and those of the cluster as a whole.

    ``capacity_rps`` is what each target was taken to be able to serve now.
    """

    assignment: Assignment
    sources: tuple[SourceDecision, ...]
    reasons: tuple[Reason, ...]
    capacity_rps: Mapping[Locality, float]

    @property
    def is_changed(self) -> bool:
        """Whether any source is to be served something else than before."""
        return any(source.is_changed for source in self.sources)

    @property
    def held(self) -> tuple[Locality, ...]:
        """The sources whose reports are stale."""
        return tuple(one.source for one in self.sources if one.standing is Standing.HELD)

    @property
    def fallen_back(self) -> tuple[Locality, ...]:
        """The sources that are served the pushed weights."""
        return tuple(one.source for one in self.sources if one.standing is Standing.PUSHED)


def assignment_document(assignment: Assignment) -> dict[str, Any]:
    """The JSON of an assignment with its memory."""
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
    """An assignment from its JSON. Raises ``ValidationError``."""
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


def _memory(item: Any) -> Memory:
    sources = {
        _locality(own["source"]): SourceMemory(_finite(own["demand_rps"]), _finite(own["heard_at"]))
        for own in item["sources"]
    }
    learnt = {_locality(one["target"]): _finite(one["rps"]) for one in item["endpoint_rps"]}
    lapses = {_locality(one["target"]): _lapse(one) for one in item["lapses"]}
    return Memory(_finite(item["observed_at"]), sources, learnt, lapses)


def _lapse(item: Any) -> Lapse:
    return Lapse(_finite(item["ill_at"]), _weight(item["times"], 1), bool(item["is_drained"]), bool(item["is_well"]))


def _locality(item: Any) -> Locality:
    parts = {name: item[name] for name in ("region", "zone", "sub_zone")}
    if not all(isinstance(part, str) for part in parts.values()):
        raise TypeError("a locality is made of texts")
    return Locality(**parts)


def _weight(value: Any, least: int) -> int:
    if not isinstance(value, int) or not least <= value < 2**32:
        raise ValueError(f"{value!r:.20} is no weight or priority")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.20} is no figure")
    return float(value)

"""Assignments as values: what a decision rests on, the decision, and its reasons.

`xds.assignment.decide` computes a `Decision` from an `Observation`. Times are seconds since the epoch, so that the age
of a stored assignment is known after a restart. Assignments are stored as JSON documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from xds.model.node import Locality

# Weights are ten-thousandths of a source's requests. That is fine enough for a proxy of some thousand requests a
# second, and far below 2^32 - 1, the largest sum of the weights of one priority.
WEIGHT_TOTAL = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests a second that the nodes of one source locality want to send, to any target.

    ``reported_at``: the time of their latest report; None where they follow the cluster and never reported. ``nodes``:
    how many of them report; ``silent``: how many could send to the cluster and have no load stream, as counted for some
    time. ``rps`` is of all of them: what was reported, times `scale_of_silence`. ``dropped_rps`` is the part of it that
    the nodes dropped, ``repeats_rps`` the part that may be retries or hedges, at most.
    """

    rps: float = 0.0
    reported_at: float | None = None
    nodes: int = 0
    silent: int = 0
    dropped_rps: float = 0.0
    repeats_rps: float = 0.0


# Of demand that was not measured for long: as much as leaves all of the band free.
UNKNOWN_VARIATION = 0.05

# The most that demand is scaled by for nodes that do not report. With fewer than half of them nobody knows.
SILENCE_SCALE_LIMIT = 2.0


def scale_of_silence(nodes: int, silent: int) -> float:
    """The factor from what ``nodes`` report to the demand of them and of ``silent`` others like them."""
    return min((nodes + silent) / nodes, SILENCE_SCALE_LIMIT) if nodes > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """A locality of the pushed ClusterLoadAssignment: endpoints, health and load.

    ``pushed_weight`` is None where no weight was pushed. ``load_rps`` is the load from all sources in requests a
    second, ``metrics`` are averages by name; only a policy with a metric uses them. ``weighed``: how many endpoints of
    the greatest weight can serve what the healthy ones can, where the proxies share it by their weights (two of the
    weights 8 and 1 are 1.125); None where they have equal weights.
    """

    endpoints: int
    healthy: int
    pushed_priority: int = 0
    pushed_weight: int | None = None
    load_rps: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    weighed: float | None = None


@dataclass(frozen=True, slots=True)
class FlowRate:
    """What the nodes of a source really sent to a target, a second. ``errors_ps`` is without drops."""

    rps: float
    errors_ps: float = 0.0


@dataclass(frozen=True, slots=True)
class ObservedFlows:
    """The flows by source and target, measured over ``window_s`` from ``since`` on, in epoch seconds."""

    since: float
    window_s: float
    rates: Mapping[Locality, Mapping[Locality, FlowRate]]


@dataclass(frozen=True, slots=True)
class Observation:
    """What a decision rests on: demand by source locality, and the pushed target localities.

    Without ``flows``, what the nodes really do is not compared with what was decided.
    """

    demand: Mapping[Locality, Demand]
    targets: Mapping[Locality, Target]
    flows: ObservedFlows | None = None


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
    ``shed`` is the fraction of requests that the nodes drop (``drop_overload``).
    """

    allotments: tuple[Allotment, ...]
    standing: Standing
    changed_at: float
    shed: float = 0.0

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
    """Smoothed demand of a source, and the time of its latest report.

    ``measured_rps`` is the latest figure, ``variation`` the mean change from one figure to the next, as a fraction,
    without their trend. ``recent_rps``: the figures of the latest intervals, the newest last, as many as tell a trend.
    """

    demand_rps: float
    heard_at: float
    measured_rps: float = 0.0
    variation: float = UNKNOWN_VARIATION
    recent_rps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthLapse:
    """A target had too few healthy endpoints: when it last had, and how many times.

    ``is_well``: it has enough again. It may still be drained for a while (`xds.assignment.capacity`).
    """

    ill_at: float
    times: int
    is_drained: bool
    is_well: bool = False


class Departure(StrEnum):
    """Why a target has no capacity for a source: its nodes send nothing there, or it answers them with errors."""

    LEFT = "left"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class PathMemory:
    """What is known of the way from a source to a target (`xds.assignment.following`).

    The decided ``share`` has been nearly the same since ``since``. ``risen_from`` is the least that it was shortly
    before, while the nodes may not have followed yet. ``is_seen``: the nodes followed it. ``misses``: how many times in
    turn they did not; ``judged_at``: when that was looked at. ``departure``: why the target has no capacity for the
    source, since ``left_at``, None where it has; ``times``: how often that was. ``probed_at``: since when a few
    requests are sent there again, 0 while none are; ``expected``, ``counted``, ``failed``: requests of it.
    """

    share: float
    since: float
    is_seen: bool = False
    misses: int = 0
    judged_at: float = 0.0
    departure: Departure | None = None
    left_at: float = 0.0
    times: int = 0
    probed_at: float = 0.0
    expected: float = 0.0
    counted: float = 0.0
    failed: float = 0.0
    risen_from: float = 0.0

    def moved_by(self, seconds: float) -> PathMemory:
        """With all times so much later; 0, for never, stays."""
        times = {name: getattr(self, name) for name in ("since", "judged_at", "left_at", "probed_at")}
        return replace(self, **{name: at + seconds for name, at in times.items() if at})


Path = tuple[Locality, Locality]  # source and target


@dataclass(frozen=True, slots=True)
class AssignmentMemory:
    """What the next decision needs of this one: smoothed demand, learnt capacity, drained targets, ways left.

    ``endpoint_rps`` is what one healthy endpoint of each target can serve, as learnt from the metric.
    """

    observed_at: float
    sources: Mapping[Locality, SourceMemory] = field(default_factory=dict)
    endpoint_rps: Mapping[Locality, float] = field(default_factory=dict)
    lapses: Mapping[Locality, HealthLapse] = field(default_factory=dict)
    paths: Mapping[Path, PathMemory] = field(default_factory=dict)

    @property
    def drained(self) -> frozenset[Locality]:
        """The targets that get no share because too few of their endpoints are healthy."""
        return frozenset(name for name, lapse in self.lapses.items() if lapse.is_drained)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every source locality is assigned, and the memory for the next decision."""

    sources: Mapping[Locality, SourceAssignment]
    memory: AssignmentMemory

    def moved_by(self, seconds: float) -> Assignment:
        """The assignment as if it had been decided so much later: for a clock that was set anew."""
        memory = self.memory
        return Assignment(
            {name: replace(own, changed_at=own.changed_at + seconds) for name, own in self.sources.items()},
            replace(
                memory,
                observed_at=memory.observed_at + seconds,
                sources={name: replace(own, heard_at=own.heard_at + seconds) for name, own in memory.sources.items()},
                lapses={name: replace(own, ill_at=own.ill_at + seconds) for name, own in memory.lapses.items()},
                paths={name: own.moved_by(seconds) for name, own in memory.paths.items()},
            ),
        )

    def document(self) -> dict[str, Any]:
        """The assignment as JSON for the store. ``from_document`` reads it back as an equal assignment."""
        from xds.assignment.assignment_document import assignment_document

        return assignment_document(self)

    @staticmethod
    def from_document(document: object) -> Assignment:
        """The assignment in a stored document. Raises ``ValidationError`` for any other document."""
        from xds.assignment.assignment_document import read_assignment

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
    DROPPING = "dropping"  # proxies drop requests: circuit breakers or drop_overload
    PARTIAL_REPORTS = "partial_reports"  # some nodes do not report: demand is scaled
    NOT_FOLLOWED = "not_followed"  # proxies do not send where it was decided, or get errors there
    PROBING = "probing"  # a few requests, to see whether a target is back
    FOLLOWED = "followed"  # a target that was left is used again
    SPILL_LIMITED = "spill_limited"  # the policy keeps requests from spilling
    SHEDDING = "shedding"  # the surplus is dropped at the source


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

"""Assignments as values: the observation behind a decision, the decision, and its reasons.

`xds.steering.core.decide` computes a `Decision` from an `Observation`. Times are epoch seconds, so that the age of a
stored assignment is known after a restart. Assignments are stored as JSON documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from xds.model.node import Locality

# Weights are ten-thousandths of a source's requests. That is precise enough for a proxy of some thousand requests
# a second, and far below 2^32 - 1, the largest sum of the weights of one priority.
WEIGHT_TOTAL = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests a second that the nodes of one source locality want to send, to any target.

    ``reported_at``: the time of their latest report; None if they follow the cluster and never reported. ``nodes``: how
    many nodes report. ``silent``: how many nodes could send to the cluster and have no load stream, as counted for some
    time. ``rps`` is the demand of all of them: the reported demand, times `scale_of_silence`. ``dropped_rps`` is the
    part of ``rps`` that the nodes dropped, ``repeats_rps`` the largest part that may be retries or hedges, and
    ``failed_rps`` the part that failed or was dropped.
    """

    rps: float = 0.0
    reported_at: float | None = None
    nodes: int = 0
    silent: int = 0
    dropped_rps: float = 0.0
    repeats_rps: float = 0.0
    failed_rps: float = 0.0


# The variation of demand that was not measured for long enough. It leaves all of the band free.
UNKNOWN_VARIATION = 0.05

# The largest factor for nodes that do not report. If fewer than half of the nodes report, their demand is not known.
SILENCE_SCALE_LIMIT = 2.0


def scale_of_silence(nodes: int, silent: int) -> float:
    """The factor from the reported demand of ``nodes`` to the demand including ``silent`` nodes like them."""
    return min((nodes + silent) / nodes, SILENCE_SCALE_LIMIT) if nodes > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """A locality of the pushed ClusterLoadAssignment: endpoints, health and load.

    ``pushed_weight`` is None if no weight was pushed. ``load_rps`` is the load from all sources in requests a second,
    ``metrics`` are averages by name; only a policy with a metric uses both. ``weighed``: the healthy endpoints as a
    number of endpoints of the greatest weight, because proxies share requests by weight (two endpoints of weights 8 and
    1 are 1.125); None if all have equal weights.
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
    """The requests that the nodes of a source really sent to a target, per second. ``errors_ps`` excludes drops."""

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
    """The input of a decision: demand by source locality, and the pushed target localities.

    Without ``flows``, the decision does not compare real flows with the previous decision.
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
    stays. ``MOVING``: the shares move to the wanted ones, step by step. ``FAILING``: no further step is planned,
    although many requests fail. ``SETTLED``: no further step is planned.
    """

    PUSHED = "pushed"
    HELD = "held"
    MOVING = "moving"
    FAILING = "failing"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class SourceAssignment:
    """The assignment that the nodes of one source locality are served: allotments by priority, then by name.

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
        """Whether the nodes are served weights of a decision instead of the pushed ones."""
        return self.standing is not Standing.PUSHED

    def shares(self) -> dict[Locality, float]:
        """The fraction of requests that each target of priority 0 gets while all endpoints are healthy."""
        split = {allotment.locality: allotment.weight for allotment in self.allotments if not allotment.priority}
        total = sum(split.values())
        return {locality: weight / total for locality, weight in split.items()} if total else {}


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """Smoothed demand of a source, and the time of its latest report.

    ``measured_rps`` is the latest figure. ``variation`` is the mean change from one figure to the next, as a fraction,
    without the trend. ``recent_rps``: the figures of the latest intervals, newest last, as many as a trend needs.
    """

    demand_rps: float
    heard_at: float
    measured_rps: float = 0.0
    variation: float = UNKNOWN_VARIATION
    recent_rps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class HealthLapse:
    """A target had too few healthy endpoints: the last time (``ill_at``), and how many ``times``.

    ``is_well``: the target has enough again. It may still be drained for a while (`xds.steering.core.capacity`).
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
    """What is known of the path from a source to a target (`xds.steering.core.following`).

    The decided ``share`` has been nearly the same since ``since``. ``risen_from``: the least share shortly before,
    while the nodes may not have followed the rise yet. ``is_seen``: the nodes followed the share. ``misses``: how many
    times in a row they did not; ``judged_at``: the time of the last comparison. ``departure``: why the target has no
    capacity for the source since ``left_at``; None if it has. ``times``: the number of departures. ``probed_at``: the
    start of the current probe, 0 without one; ``expected``, ``counted``, ``failed``: requests of the probe.
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
        """The path with all times moved by ``seconds``; 0 means never and stays 0."""
        times = {name: getattr(self, name) for name in ("since", "judged_at", "left_at", "probed_at")}
        return replace(self, **{name: at + seconds for name, at in times.items() if at})


Path = tuple[Locality, Locality]  # source and target


@dataclass(frozen=True, slots=True)
class AssignmentMemory:
    """What the next decision needs from this one: smoothed demand, learnt capacity, drained targets, paths.

    ``endpoint_rps`` is the capacity of one healthy endpoint of each target, as learnt from the metric.
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
    """The assignments of all source localities, and the memory for the next decision."""

    sources: Mapping[Locality, SourceAssignment]
    memory: AssignmentMemory

    def moved_by(self, seconds: float) -> Assignment:
        """The assignment with all times moved by ``seconds``, for a clock that was adjusted."""
        memory = self.memory
        return Assignment(
            {name: replace(one, changed_at=one.changed_at + seconds) for name, one in self.sources.items()},
            replace(
                memory,
                observed_at=memory.observed_at + seconds,
                sources={name: replace(one, heard_at=one.heard_at + seconds) for name, one in memory.sources.items()},
                lapses={name: replace(one, ill_at=one.ill_at + seconds) for name, one in memory.lapses.items()},
                paths={key: path.moved_by(seconds) for key, path in memory.paths.items()},
            ),
        )


class ReasonCode(StrEnum):
    """The cause of a part of a decision. The values are part of the API: events and `xds assignment show` have them."""

    SPILL = "spill"  # a target would be above its capacity: requests leave it
    RETURN = "return"  # nearer targets have free capacity again
    REBALANCE = "rebalance"  # the load spreads more evenly at the same distance
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
    FAILING = "failing"  # many requests fail or are dropped, and no further step is planned
    DROPPING = "dropping"  # proxies drop requests: circuit breakers or drop_overload
    PARTIAL_REPORTS = "partial_reports"  # some nodes do not report: demand is scaled
    NOT_FOLLOWED = "not_followed"  # proxies do not send where it was decided, or get errors there
    PROBING = "probing"  # a few requests test whether a target is back
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
    """The decision for one source. ``wanted``: the shares it moves to; empty if its demand is not known."""

    source: Locality
    standing: Standing
    is_changed: bool
    reasons: tuple[Reason, ...] = ()
    wanted: Mapping[Locality, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """An assignment with its reasons: by source, and for the whole cluster.

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
        """The sources that keep their last decision because their reports are stale."""
        return tuple(one.source for one in self.sources if one.standing is Standing.HELD)

"""The decision: from what is observed to what every source locality is assigned.

Called once an interval; a call in between (something was pushed, a dry run) moves only what may not wait: shares of
localities that are gone or dead. Equal input gives equal output. The time it takes grows with sources times targets: a
millisecond for three localities, ten for eighteen, two hundred for a hundred. More than a few belong in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xds.assignment.assignment import (
    Assignment,
    Code,
    Decision,
    Memory,
    Observed,
    Reason,
    SourceAssignment,
    SourceDecision,
    Standing,
)
from xds.assignment.capacity import capacities
from xds.assignment.freshness import Hearing, hear
from xds.assignment.pacing import (
    Band,
    Shares,
    band,
    evacuated,
    gap,
    has_passed,
    is_pressed,
    loads,
    moved,
    overloaded,
    part_of_way,
)
from xds.assignment.placement import place
from xds.assignment.policy import Policy
from xds.assignment.reasons import direction, losses, overload, spills, split
from xds.assignment.weights import (
    allotments,
    locality_key,
    pushed_allotments,
    pushed_shares,
)
from xds.model.node import Locality

# The demand of a source without any, as a part of all capacity: it is placed and weighs nothing, yet is far more than
# what rounding leaves of the room of a full target.
_NOTHING = 1e-8
_EQUAL = 1e-4


def assign(policy: Policy, observed: Observed, previous: Assignment | None, now: float) -> Decision:
    """What to assign now. ``previous`` is the assignment of the decision before, None at first.

    A source that ``observed`` does not name is forgotten. Figures that are no figures are refused, with a reason, and
    count as missing.
    """
    return _Deciding(policy, observed, previous or Assignment({}, Memory(now)), now).decide()


@dataclass(slots=True)
class _Plan:
    """How far a source gets: from ``start`` towards ``wanted``."""

    start: Shares
    wanted: Shares
    is_moving: bool
    reasons: list[Reason]


class _Deciding:
    """One decision in the making."""

    def __init__(self, policy: Policy, observed: Observed, previous: Assignment, now: float) -> None:
        self.policy = policy
        self.observed = _in_order(observed)
        self.previous = previous
        self.now = now
        intervals = max(now - previous.memory.observed_at, 0.0) / policy.interval_s
        remembered = previous.memory.sources
        self.heard = {
            source: hear(policy, demand, remembered.get(source), intervals, now)
            for source, demand in self.observed.demand.items()
        }
        self.capacities = capacities(policy, self.observed.targets, previous.memory, now)
        self.capacity = self.capacities.rps
        self.alive = frozenset(name for name, rps in self.capacity.items() if rps > 0)

    def decide(self) -> Decision:
        """All sources, and what is to be remembered."""
        reasons = list(self.capacities.reasons)
        if not self.alive:
            detail = "no locality has capacity and healthy endpoints: the pushed weights hold"
            reasons.append(Reason(Code.NO_CAPACITY, detail))
            decided = {source: self._pushed(source) for source in self.heard}
        else:
            held = {source: self._held(source) for source in self.heard if self._is_held(source)}
            fresh = [source for source, heard in self.heard.items() if heard.hearing is Hearing.FRESH]
            lost = {source: self._lost(source) for source in self.heard.keys() - held.keys() - set(fresh)}
            decided = {**held, **lost, **self._fresh(fresh, held, reasons)}
        sources = {source: decided[source] for source in self.heard}
        assignment = Assignment({source: own for source, (own, _) in sources.items()}, self._memory())
        return Decision(assignment, tuple(told for _, told in sources.values()), tuple(reasons), self.capacity)

    def _memory(self) -> Memory:
        sources = {source: heard.memory for source, heard in self.heard.items() if heard.memory}
        return Memory(self.now, sources, self.capacities.endpoint_rps, self.capacities.lapses)

    def _is_held(self, source: Locality) -> bool:
        before = self.previous.sources.get(source)
        return self.heard[source].hearing is Hearing.STALE and before is not None and before.is_overlay

    def _pushed(self, source: Locality) -> tuple[SourceAssignment, SourceDecision]:
        """The source is served what was pushed."""
        before = self.previous.sources.get(source)
        is_same = before is not None and not before.is_overlay
        own = SourceAssignment(
            pushed_allotments(self.observed.targets),
            Standing.PUSHED,
            before.changed_at if before and is_same else self.now,
        )
        is_changed = before is not None and not is_same
        return own, SourceDecision(source, Standing.PUSHED, is_changed, self.heard[source].reasons)

    def _lost(self, source: Locality) -> tuple[SourceAssignment, SourceDecision]:
        """The source goes back to what was pushed, step by step."""
        own = self.previous.sources.get(source)
        if own is None or not own.is_overlay:
            return self._pushed(source)
        start, wanted = self._without_dead(source), pushed_shares(self.observed.targets)
        part = part_of_way(self.policy, [gap(start, wanted)])
        is_time = has_passed(own.changed_at, self.policy.interval_s, self.now)
        if part >= 1.0 and is_time:
            return self._pushed(source)
        shares = moved(start, wanted, part) if is_time else start
        step = Reason(Code.STEP_LIMITED, f"at most {self.policy.maximum_step:.0%} an interval, on the way back")
        return self._decided(source, shares, Standing.MOVING, [*self.heard[source].reasons, step], wanted)

    def _held(self, source: Locality) -> tuple[SourceAssignment, SourceDecision]:
        """The source keeps what it has, apart from shares of the dead."""
        lost = losses(self.observed, self._before(source), self.alive)
        reasons = [*self.heard[source].reasons, *lost]
        return self._decided(source, self._without_dead(source), Standing.HELD, reasons, {})

    def _without_dead(self, source: Locality) -> Shares:
        """The shares of a source of which nothing is known: those of the dead go to the nearest."""
        nearest = place(self.policy, {source: self._least()}, self.capacity)[source]
        total = sum(nearest.values())
        return evacuated(self._before(source), self.alive, {name: rps / total for name, rps in nearest.items()})

    def _fresh(
        self,
        sources: list[Locality],
        held: Mapping[Locality, tuple[SourceAssignment, SourceDecision]],
        reasons: list[Reason],
    ) -> dict[Locality, tuple[SourceAssignment, SourceDecision]]:
        """The sources whose reports are fresh: towards what is wanted of them, all at the same pace."""
        if not sources:
            return {}
        demand = {source: max(self.heard[source].demand_rps, self._least()) for source in sources}
        taken = loads(
            {source: self.heard[source].demand_rps for source in held},
            {source: own.shares() for source, (own, _) in held.items()},
        )
        aim = band(self.policy, demand, self.capacity, taken)
        if aim.overload > 1.0:
            wanted_rps = sum(demand.values()) + sum(taken.values())
            reasons.append(overload(aim.overload, wanted_rps, sum(self.capacity.values())))
        plans = self._plans(sources, demand, taken, aim)
        part = part_of_way(self.policy, [gap(plan.start, plan.wanted) for plan in plans.values() if plan.is_moving])
        return {source: self._moved(source, plan, part) for source, plan in plans.items()}

    def _plans(
        self, sources: list[Locality], demand: Mapping[Locality, float], taken: Mapping[Locality, float], aim: Band
    ) -> dict[Locality, _Plan]:
        start = {source: evacuated(self._before(source), self.alive, aim.wanted[source]) for source in sources}
        current = loads(demand, start, taken)
        pressing = overloaded(aim, current, loads(demand, aim.wanted, taken))
        plans = {}
        for source in sources:
            plan = _Plan(start[source], aim.wanted[source], False, [])
            if is_pressed(plan.start, plan.wanted, pressing):
                plan.is_moving = True
                plan.reasons += spills(plan.start, plan.wanted, pressing, current, self.capacity)
            else:
                self._wish(source, plan, aim)
            plans[source] = self._paced(source, plan)
        return plans

    def _before(self, source: Locality) -> Shares:
        """The shares the source is served now."""
        own = self.previous.sources.get(source)
        return own.shares() if own and own.is_overlay else pushed_shares(self.observed.targets)

    def _wish(self, source: Locality, plan: _Plan, aim: Band) -> None:
        """Whether the source moves though nothing presses: it is outside of the band, for long enough."""
        own = self.previous.sources.get(source)
        away = gap(plan.start, plan.wanted)
        is_new = own is None or not own.is_overlay
        if away <= _EQUAL:
            return
        if is_new or (own and own.standing is Standing.MOVING and away >= self.policy.minimum_change):
            plan.is_moving = True
        elif aim.holds(source, plan.start, self.policy.minimum_change):
            plan.reasons.append(Reason(Code.WITHIN_BAND, f"{split(plan.wanted)} is not worth a change yet"))
        elif own and not has_passed(own.changed_at, self.policy.dwell_s, self.now):
            left_s = own.changed_at + self.policy.dwell_s - self.now
            plan.reasons.append(Reason(Code.DWELLING, f"{split(plan.wanted)} has to wait {left_s:.0f} s more"))
        else:
            plan.is_moving = True

    def _paced(self, source: Locality, plan: _Plan) -> _Plan:
        """One step an interval."""
        own = self.previous.sources.get(source)
        if (
            plan.is_moving
            and own
            and own.is_overlay
            and not has_passed(own.changed_at, self.policy.interval_s, self.now)
        ):
            plan.is_moving = False
            plan.reasons.append(Reason(Code.STEP_LIMITED, "the next step comes with the next interval"))
        return plan

    def _moved(self, source: Locality, plan: _Plan, part: float) -> tuple[SourceAssignment, SourceDecision]:
        shares = moved(plan.start, plan.wanted, part) if plan.is_moving else plan.start
        before = self._before(source)
        reasons = losses(self.observed, before, self.alive) + plan.reasons
        if plan.is_moving and not any(reason.code is Code.SPILL for reason in plan.reasons):
            reasons.append(direction(self.policy, source, plan.start, shares))
        if plan.is_moving and part < 1.0:
            detail = f"at most {self.policy.maximum_step:.0%} an interval, on the way to {split(plan.wanted)}"
            reasons.append(Reason(Code.STEP_LIMITED, detail))
        is_waiting = any(reason.code is Code.STEP_LIMITED for reason in reasons)
        standing = Standing.MOVING if is_waiting else Standing.SETTLED
        return self._decided(source, shares, standing, reasons, plan.wanted)

    def _decided(
        self, source: Locality, shares: Shares, standing: Standing, reasons: list[Reason], wanted: Shares
    ) -> tuple[SourceAssignment, SourceDecision]:
        before = self.previous.sources.get(source)
        served = () if before is None else before.allotments
        now = allotments(self.policy, source, shares, self.observed.targets, self.capacity, served)
        own = SourceAssignment(now, standing, self.now)
        is_split_same = before is not None and before.is_overlay and before.shares() == own.shares()
        if before and is_split_same:
            own = replace(own, changed_at=before.changed_at)
        is_changed = before is None or not before.is_overlay or before.allotments != now
        if is_changed and is_split_same:
            reasons.append(Reason(Code.FAILOVER, "only what takes over when localities fail is changed"))
        return own, SourceDecision(source, standing, is_changed, tuple(reasons), wanted)

    def _least(self) -> float:
        return sum(self.capacity.values()) * _NOTHING


def _in_order(observed: Observed) -> Observed:
    """By name: sums of floats differ with their order, and so, at an edge, might decisions."""
    demand = {name: observed.demand[name] for name in sorted(observed.demand, key=locality_key)}
    targets = {name: observed.targets[name] for name in sorted(observed.targets, key=locality_key)}
    return Observed(demand, targets)

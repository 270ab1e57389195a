"""Draining: who takes no share because too few of its endpoints are healthy, and for how long.

A locality that recovers must stay well for a while before it takes its share again, and each relapse doubles that
while: health that goes up and down moves traffic a few times, then no more.

What every target can take now: the policy's rates by health, what a metric taught, and who is draining.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log

from xds.assignment.assignment import (
    Code,
    Lapse,
    Memory,
    Reason,
    Target,
)
from xds.assignment.policy import MetricTarget, Policy, Rate
from xds.assignment.reasons import named
from xds.model.node import Locality

# A locality that relapses again and again waits at most this many times the policy's dwell.
LONGEST_WAIT = 16
# After being well for so many times its wait, or the dwell where that is longer, its relapses are forgotten.
_FORGOTTEN = 10


def healthy_fraction(target: Target) -> float:
    """The part of the endpoints that is healthy; 0 without endpoints."""
    return min(max(target.healthy, 0), target.endpoints) / target.endpoints if target.endpoints > 0 else 0.0


def lapses(policy: Policy, targets: Mapping[Locality, Target], memory: Memory, now: float) -> dict[Locality, Lapse]:
    """Who was below the healthy fraction lately, and whether it is drained for that."""
    found = {}
    for name, target in targets.items():
        if target.endpoints > 0 and policy.drain.below > 0:
            lapse = _lapse(policy, healthy_fraction(target), memory.lapses.get(name), now)
            if lapse is not None:
                found[name] = lapse
    return found


def _lapse(policy: Policy, fraction: float, before: Lapse | None, now: float) -> Lapse | None:
    if before is None or not before.is_drained:
        if fraction < policy.drain.below:
            return Lapse(now, (before.times if before else 0) + 1, is_drained=True)
        is_forgotten = before is None or now - before.ill_at >= _FORGOTTEN * max(
            policy.dwell_s, _wait_s(policy, before)
        )
        return None if is_forgotten else before
    if fraction < policy.drain.restore:
        # A relapse while it waits: it was ill, well and is ill again.
        is_relapse = fraction < policy.drain.below and before.is_well
        return Lapse(now, before.times + is_relapse, is_drained=True)
    is_waiting = now - before.ill_at < _wait_s(policy, before)
    return Lapse(before.ill_at, before.times, is_drained=is_waiting, is_well=True)


def _wait_s(policy: Policy, lapse: Lapse) -> float:
    """How long a locality must be well; the first time it is back at once."""
    relapses = min(lapse.times - 1, LONGEST_WAIT)
    return policy.dwell_s * min(LONGEST_WAIT, (1 << relapses) - 1)


def told(
    policy: Policy, targets: Mapping[Locality, Target], before: Mapping[Locality, Lapse], now: Mapping[Locality, Lapse]
) -> list[Reason]:
    """Who began to drain, and who is restored."""
    reasons = []
    drained = {name for name, lapse in now.items() if lapse.is_drained}
    were = {name for name, lapse in before.items() if lapse.is_drained and name in targets}
    for name in sorted(drained ^ were, key=str):
        target = targets[name]
        counts = f"{target.healthy} of {target.endpoints} endpoints of {named(name)} are healthy"
        if name in drained:
            detail = f"{counts}, less than {policy.drain.below:.0%}: it takes no share"
            reasons.append(Reason(Code.DRAINED, detail, name))
        else:
            reasons.append(Reason(Code.RESTORED, f"{counts} again", name))
    return reasons


# How much of a new measurement of capacity counts after one interval. Less capacity is believed soon: it means
# overload. More is believed slowly: capacity grows with a release or a machine, not between two reports.
LESS, MORE = 0.7, 0.2
# A metric below this part of its target says little of what would be at the target: the backend hardly works.
_TELLING = 0.01
# More than any endpoint takes.
_PLENTY_RPS = 1e9


@dataclass(frozen=True, slots=True)
class Capacities:
    """``rps`` of every target, 0 where it takes no share; what is to be remembered; and what there is to say."""

    rps: Mapping[Locality, float]
    endpoint_rps: Mapping[Locality, float]
    lapses: Mapping[Locality, Lapse]
    reasons: tuple[Reason, ...]


def capacities(policy: Policy, targets: Mapping[Locality, Target], memory: Memory, now: float) -> Capacities:
    """What targets can take now, after ``memory``."""
    intervals = max(now - memory.observed_at, 0.0) / policy.interval_s
    reasons: list[Reason] = []
    learnt = _learnt(policy, targets, memory, intervals, reasons)
    rps = {name: _capacity(policy, name, target, learnt) for name, target in targets.items()}
    known = {name: value for name, value in rps.items() if value is not None}
    for name in rps.keys() - known.keys():
        detail = f"{named(name)} takes no share: no rate of the policy matches it"
        reasons.append(Reason(Code.CAPACITY_UNKNOWN, detail, name))
    if policy.capacity.metric and not known:
        known = _unmeasured(targets, reasons)
    lapsed = lapses(policy, targets, memory, now)
    reasons += told(policy, targets, memory.lapses, lapsed)
    left = {name: rps for name, rps in known.items() if name not in lapsed or not lapsed[name].is_drained}
    if any(known.values()) and not any(left.values()):
        reasons.append(Reason(Code.DRAIN_IGNORED, "too few endpoints are healthy anywhere: nothing is drained"))
        left = known
    return Capacities({name: left.get(name, 0.0) for name in targets}, learnt, lapsed, tuple(reasons))


def smoothed(before: float, measured: float, weight: float, intervals: float) -> float:
    """An exponential average: after one interval the measurement counts for ``weight``, at once for nothing."""
    return before + (measured - before) * (1.0 - float((1.0 - weight) ** intervals))


def _capacity(policy: Policy, name: Locality, target: Target, learnt: Mapping[Locality, float]) -> float | None:
    """What a target can take; None where nothing says it."""
    healthy = healthy_fraction(target) * target.endpoints
    if policy.capacity.metric and name in learnt:
        return learnt[name] * healthy
    rate = policy.rate(name)
    if rate is not None:
        return _rated(rate, target)
    if policy.capacity.metric and learnt:
        # Not measured yet: taken to be like the others.
        return healthy * sum(learnt.values()) / len(learnt)
    return None


def _rated(rate: Rate, target: Target) -> float:
    fraction = healthy_fraction(target)
    if rate.per_endpoint_rps is not None:
        return rate.per_endpoint_rps * fraction * target.endpoints
    return (rate.per_locality_rps or 0.0) * fraction


def _learnt(
    policy: Policy, targets: Mapping[Locality, Target], memory: Memory, intervals: float, reasons: list[Reason]
) -> dict[Locality, float]:
    """What a healthy endpoint of each target can take by the metric; remembered while there is no measurement."""
    metric = policy.capacity.metric
    if metric is None:
        return {}
    learnt = {name: rps for name, rps in memory.endpoint_rps.items() if name in targets}
    for name, target in targets.items():
        measured = _measured(metric, name, target, reasons)
        if measured is not None:
            before = learnt.get(name, measured)
            # Of ratios: twice as much and half as much are equally far.
            weight = LESS if measured < before else MORE
            learnt[name] = exp(smoothed(log(before), log(measured), weight, intervals))
    return learnt


def _measured(metric: MetricTarget, name: Locality, target: Target, reasons: list[Reason]) -> float | None:
    """Requests a second and endpoint at which the metric would be at its target, if it grows with load.

    A backend's idle load makes this too small while it is hardly used, but never smaller than what it serves now as
    long as the metric is below its target: it grows as it is needed.
    """
    average, load = target.metrics.get(metric.name), target.load_rps
    if average is None:
        return None
    if not (isfinite(average) and isfinite(load) and average >= 0 and load >= 0):
        detail = f"{metric.name} {average:g} at {load:g} requests/s of {named(name)} is no measurement"
        reasons.append(Reason(Code.FIGURE_REFUSED, detail, name))
        return None
    healthy = healthy_fraction(target) * target.endpoints
    if load == 0 or healthy == 0 or average < metric.target * _TELLING:
        return None
    return min(max(load * metric.target / average / healthy, 1 / _PLENTY_RPS), _PLENTY_RPS)


def _unmeasured(targets: Mapping[Locality, Target], reasons: list[Reason]) -> dict[Locality, float]:
    """Before anything was measured nothing is full, so that traffic stays near; shares are by healthy endpoints."""
    reasons.append(Reason(Code.CAPACITY_UNKNOWN, "the metric was not measured yet: no locality counts as full"))
    return {name: healthy_fraction(target) * target.endpoints * _PLENTY_RPS for name, target in targets.items()}

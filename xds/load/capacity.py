"""What every target can take now: the policy's rates by health, what a metric taught, and who is draining."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log

from xds.load.assignment import Code, Memory, Reason, Target
from xds.load.policy import MetricTarget, Policy, Rate
from xds.model.node import Locality

# How much of a new measurement of capacity counts after one interval. Capacity changes when a release does, not
# between two reports: the rest is noise, and following it would move traffic.
LEARNING = 0.3
# A metric below this part of its target says little of what would be at the target: the backend hardly works.
_TELLING = 0.01
# More than any endpoint takes.
_PLENTY_RPS = 1e9


@dataclass(frozen=True, slots=True)
class Capacities:
    """``rps`` of every target, 0 where it takes no share; what is to be remembered; and what there is to say."""

    rps: Mapping[Locality, float]
    endpoint_rps: Mapping[Locality, float]
    drained: frozenset[Locality]
    reasons: tuple[Reason, ...]


def capacities(policy: Policy, targets: Mapping[Locality, Target], memory: Memory, intervals: float) -> Capacities:
    """What targets can take, ``intervals`` after ``memory``."""
    reasons: list[Reason] = []
    learnt = _learnt(policy, targets, memory, intervals, reasons)
    rps = {name: _capacity(policy, name, target, learnt) for name, target in targets.items()}
    known = {name: value for name, value in rps.items() if value is not None}
    for name in rps.keys() - known.keys():
        detail = f"{_named(name)} takes no share: no rate of the policy matches it"
        reasons.append(Reason(Code.CAPACITY_UNKNOWN, detail, name))
    if policy.capacity.metric and not known:
        known = _unmeasured(targets, reasons)
    drained = _drained(policy, targets, memory, reasons)
    if not any(known.get(name, 0.0) for name in targets.keys() - drained) and any(known.values()):
        reasons.append(Reason(Code.DRAIN_IGNORED, "too few endpoints are healthy anywhere: nothing is drained"))
        return Capacities(_complete(targets, known), learnt, drained, tuple(reasons))
    left = {name: 0.0 if name in drained else value for name, value in known.items()}
    return Capacities(_complete(targets, left), learnt, drained, tuple(reasons))


def healthy_fraction(target: Target) -> float:
    """The part of the endpoints that is healthy; 0 without endpoints."""
    return min(max(target.healthy, 0), target.endpoints) / target.endpoints if target.endpoints > 0 else 0.0


def smoothed(before: float, measured: float, weight: float, intervals: float) -> float:
    """An exponential average: after one interval the measurement counts for ``weight``, at once for nothing."""
    return before + (measured - before) * (1.0 - float((1.0 - weight) ** intervals))


def _complete(targets: Mapping[Locality, Target], known: Mapping[Locality, float]) -> dict[Locality, float]:
    return {name: known.get(name, 0.0) for name in targets}


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
            learnt[name] = exp(smoothed(log(before), log(measured), LEARNING, intervals))
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
        detail = f"{metric.name} {average:g} at {load:g} requests/s of {_named(name)} is no measurement"
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


def _drained(
    policy: Policy, targets: Mapping[Locality, Target], memory: Memory, reasons: list[Reason]
) -> frozenset[Locality]:
    """Who is below the healthy fraction, or was and is not restored yet."""
    drain = policy.drain
    drained = frozenset(
        name
        for name, target in targets.items()
        if target.endpoints > 0
        and drain.below > 0
        and healthy_fraction(target) < (drain.restore if name in memory.drained else drain.below)
    )
    for name in sorted(drained ^ (memory.drained & targets.keys()), key=str):
        target = targets[name]
        counts = f"{target.healthy} of {target.endpoints} endpoints of {_named(name)} are healthy"
        if name in drained:
            reasons.append(Reason(Code.DRAINED, f"{counts}, less than {drain.below:.0%}: it takes no share", name))
        else:
            reasons.append(Reason(Code.RESTORED, f"{counts} again, {drain.restore:.0%} or more", name))
    return drained


def _named(name: Locality) -> str:
    return str(name) or "the locality without a name"

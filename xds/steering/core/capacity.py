"""Estimates the capacity of every target: a rate or a learnt metric, times healthy endpoints; 0 while drained.

A locality drains when too few of its endpoints are healthy. After a relapse a locality must stay healthy for a while
before it gets a share again, and each further relapse lengthens that time. Flapping health moves traffic only a few
times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log

from xds.model.node import Locality
from xds.steering.core.assignment import AssignmentMemory, HealthLapse, Reason, ReasonCode, Target
from xds.steering.core.policy import MetricTarget, Policy, Rate
from xds.steering.core.reasons import locality_label
from xds.steering.core.weights import locality_key

# Weights of a new measurement of capacity after one interval. A decrease counts quickly, because it means overload.
# An increase counts slowly: capacity grows with a release or a new machine, not between two reports.
LESS_WEIGHT, MORE_WEIGHT = 0.7, 0.2
# A metric below this part of its target is ignored: a nearly idle backend does not predict the metric under load.
_LEAST_OF_TARGET = 0.01
UNLIMITED_RPS = 1e9  # more than any endpoint can serve
# The longest wait of a locality that relapses again and again, as a multiple of the policy's dwell.
LONGEST_WAIT = 16
# Relapses are forgotten after this many times the locality's wait, or the policy's dwell where that is longer.
_FORGOTTEN_AFTER = 10


@dataclass(frozen=True, slots=True)
class CapacityEstimate:
    """The capacity of all targets.

    ``rps``: requests a second of every target, 0 for one that gets no share. ``endpoint_rps``: what one healthy
    endpoint can serve, as learnt from the metric. ``endpoint_rps`` and ``lapses`` are stored for the next decision.
    """

    rps: Mapping[Locality, float]
    endpoint_rps: Mapping[Locality, float]
    lapses: Mapping[Locality, HealthLapse]
    reasons: tuple[Reason, ...]


def estimate_capacities(
    policy: Policy, targets: Mapping[Locality, Target], memory: AssignmentMemory, now: float
) -> CapacityEstimate:
    """The capacity of all targets at ``now``. ``memory`` is the memory of the previous decision."""
    intervals = max(now - memory.observed_at, 0.0) / policy.interval_s
    reasons: list[Reason] = []
    learnt = _learn(policy, targets, memory, intervals, reasons)
    rps = {name: _capacity(policy, name, target, learnt) for name, target in targets.items()}
    known = {name: value for name, value in rps.items() if value is not None}
    for name in rps.keys() - known.keys():
        detail = f"{locality_label(name)} gets no share: no rate of the policy matches it"
        reasons.append(Reason(ReasonCode.CAPACITY_UNKNOWN, detail, name))
    if policy.capacity.metric and not known:
        known = _unlimited(targets, reasons)
    lapses = _update_lapses(policy, targets, memory, now)
    reasons += _drain_reasons(policy, targets, memory.lapses, lapses)
    undrained = {name: value for name, value in known.items() if name not in lapses or not lapses[name].is_drained}
    undrained = _without_standby(policy, undrained)
    if any(known.values()) and not any(undrained.values()):
        detail = "every locality has too few healthy endpoints: none is drained"
        reasons.append(Reason(ReasonCode.DRAIN_IGNORED, detail))
        undrained = _without_standby(policy, known)
    return CapacityEstimate({name: undrained.get(name, 0.0) for name in targets}, learnt, lapses, tuple(reasons))


def healthy_fraction(target: Target) -> float:
    """The fraction of endpoints that are healthy; 0 without endpoints."""
    return min(max(target.healthy, 0), target.endpoints) / target.endpoints if target.endpoints > 0 else 0.0


def smooth(before: float, measured: float, weight: float, intervals: float) -> float:
    """The exponential moving average after ``intervals`` (a fraction, too): ``weight`` is that of one interval."""
    return before + (measured - before) * (1.0 - float((1.0 - weight) ** intervals))


def _without_standby(policy: Policy, rps: Mapping[Locality, float]) -> dict[Locality, float]:
    """The capacities without standby localities, while another locality has capacity."""
    active = {name: value for name, value in rps.items() if not policy.is_standby(name)}
    return active if any(active.values()) else dict(rps)


# Rates and the metric


def _capacity(policy: Policy, name: Locality, target: Target, learnt: Mapping[Locality, float]) -> float | None:
    """The capacity of a target in requests a second; None if neither a metric nor a rate gives one."""
    rps = _full_capacity(policy, name, target, learnt)
    return rps if rps is None else rps * policy.scale(name)


def _full_capacity(policy: Policy, name: Locality, target: Target, learnt: Mapping[Locality, float]) -> float | None:
    healthy = healthy_fraction(target) * target.endpoints
    if policy.capacity.metric and name in learnt:
        return learnt[name] * healthy
    rate = policy.rate(name)
    if rate is not None:
        return _rated_rps(rate, target) * policy.target_utilisation
    if policy.capacity.metric and learnt:
        # This target is not measured yet: assume the mean of the others.
        return healthy * sum(learnt.values()) / len(learnt)
    return None


def _rated_rps(rate: Rate, target: Target) -> float:
    fraction = healthy_fraction(target)
    if rate.per_endpoint_rps is not None:
        healthy = fraction * target.endpoints
        return rate.per_endpoint_rps * (healthy if target.weighed is None else min(max(target.weighed, 0.0), healthy))
    return (rate.per_locality_rps or 0.0) * fraction


def _learn(
    policy: Policy,
    targets: Mapping[Locality, Target],
    memory: AssignmentMemory,
    intervals: float,
    reasons: list[Reason],
) -> dict[Locality, float]:
    """What one healthy endpoint of each target can serve by the metric; the last estimate without a measurement."""
    if not policy.capacity.metrics:
        return {}
    learnt = {name: rps for name, rps in memory.endpoint_rps.items() if name in targets}
    for name, target in targets.items():
        results = [_measure(metric, name, target, reasons) for metric in policy.capacity.metrics]
        measured = min((rps for rps in results if rps is not None), default=None)  # the fullest metric
        if measured is not None:
            before = learnt.get(name, measured)
            # Logarithms are averaged, so that twice and half the capacity are equally far away.
            weight = LESS_WEIGHT if measured < before else MORE_WEIGHT
            learnt[name] = exp(smooth(log(before), log(measured), weight, intervals))
    return learnt


def _measure(metric: MetricTarget, name: Locality, target: Target, reasons: list[Reason]) -> float | None:
    """The requests a second per endpoint at which the metric reaches its target, if it is proportional to load.

    Backends report a metric above 0 even when idle, so the result is too small while load is low. While the metric is
    below its target, the result is above the current load: capacity grows as needed.
    """
    average, load = target.metrics.get(metric.name), target.load_rps
    if average is None:
        return None
    if not (isfinite(average) and isfinite(load) and average >= 0 and load >= 0):
        detail = (
            f"{metric.name} {average:g} at {load:g} requests/s of {locality_label(name)} is not a valid measurement"
        )
        reasons.append(Reason(ReasonCode.FIGURE_REFUSED, detail, name))
        return None
    healthy = healthy_fraction(target) * target.endpoints
    if load == 0 or healthy == 0 or average < metric.target * _LEAST_OF_TARGET:
        return None
    return min(max(load * metric.target / average / healthy, 1 / UNLIMITED_RPS), UNLIMITED_RPS)


def _unlimited(targets: Mapping[Locality, Target], reasons: list[Reason]) -> dict[Locality, float]:
    """Capacities before the first measurement: no target is full, traffic stays near its source."""
    detail = "the metric has not been measured yet: no locality counts as full"
    reasons.append(Reason(ReasonCode.CAPACITY_UNKNOWN, detail))
    return {name: healthy_fraction(target) * target.endpoints * UNLIMITED_RPS for name, target in targets.items()}


# Draining


def _update_lapses(
    policy: Policy, targets: Mapping[Locality, Target], memory: AssignmentMemory, now: float
) -> dict[Locality, HealthLapse]:
    """The targets that lately had too few healthy endpoints, and whether they are drained."""
    if policy.drain.below <= 0:
        return {}
    lapses = {
        name: _update_lapse(policy, healthy_fraction(target), memory.lapses.get(name), now)
        for name, target in targets.items()
        if target.endpoints > 0
    }
    return {name: lapse for name, lapse in lapses.items() if lapse is not None}


def _update_lapse(policy: Policy, fraction: float, before: HealthLapse | None, now: float) -> HealthLapse | None:
    if before is None or not before.is_drained:
        if fraction < policy.drain.below:
            return HealthLapse(now, (before.times if before else 0) + 1, is_drained=True)
        if before is None:
            return None
        forget_after_s = _FORGOTTEN_AFTER * max(policy.dwell_s, _wait_s(policy, before))
        return None if now - before.ill_at >= forget_after_s else before
    if fraction < policy.drain.restore:
        # The locality recovered, waited for its share, and is unhealthy again: a relapse.
        is_relapse = fraction < policy.drain.below and before.is_well
        return HealthLapse(now, before.times + is_relapse, is_drained=True)
    is_waiting = now - before.ill_at < _wait_s(policy, before)
    return HealthLapse(before.ill_at, before.times, is_drained=is_waiting, is_well=True)


def _wait_s(policy: Policy, lapse: HealthLapse) -> float:
    """How long a locality must stay healthy before it gets a share again, in seconds; 0 after its first lapse."""
    relapses = min(lapse.times - 1, LONGEST_WAIT)
    return policy.dwell_s * min(LONGEST_WAIT, (1 << relapses) - 1)


def _drain_reasons(
    policy: Policy,
    targets: Mapping[Locality, Target],
    before: Mapping[Locality, HealthLapse],
    now: Mapping[Locality, HealthLapse],
) -> list[Reason]:
    """A reason for each target that this decision drains or restores."""
    reasons = []
    drained = {name for name, lapse in now.items() if lapse.is_drained}
    drained_before = {name for name, lapse in before.items() if lapse.is_drained and name in targets}
    for name in sorted(drained ^ drained_before, key=locality_key):
        target = targets[name]
        counts = f"{target.healthy} of {target.endpoints} endpoints of {locality_label(name)} are healthy"
        if name in drained:
            detail = f"{counts}, less than {policy.drain.below:.0%}: it gets no share"
            reasons.append(Reason(ReasonCode.DRAINED, detail, name))
        else:
            reasons.append(Reason(ReasonCode.RESTORED, f"{counts} again", name))
    return reasons

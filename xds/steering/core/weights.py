"""Turns shares into integer weights and priorities that Envoy and gRPC accept.

Priority 0 holds the split. All other localities with endpoints follow as failover, the nearest first, the localities
of one priority weighted by capacity. A proxy that finds the endpoints of priority 0 unhealthy moves its requests there
at once, by Envoy's overprovisioning factor. Drained and dead localities come last: when everything else
fails, these localities may be healthier than the server knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xds.model.node import Locality
from xds.steering.core.assignment import WEIGHT_TOTAL, Allotment, Target
from xds.steering.core.placement import failover_rank
from xds.steering.core.policy import Policy

# Priorities of failover. Envoy refuses priorities above 128, and many priorities cost a proxy time. The farthest
# localities share the last one.
FAILOVER_PRIORITIES = 16
# Failover weights that change by less than this fraction are not pushed again: no request uses them now.
FAILOVER_TOLERANCE = 0.1

# A probe adds a locality to priority 0 that may be dead. Localities that are alive are added with the least possible
# weight, so that Envoy still considers the priority healthy.
PADDING_SHARE = 1.0 / WEIGHT_TOTAL
# Envoy's overprovisioning factor: a priority takes all of its load while 1 / 1.4 of its endpoints are healthy.
OVERPROVISIONING = 1.4

Amounts = Mapping[Locality, float]


def allotments(
    policy: Policy,
    source: Locality,
    shares: Amounts,
    targets: Mapping[Locality, Target],
    capacity: Amounts,
    before: Sequence[Allotment] = (),
) -> tuple[Allotment, ...]:
    """The allotments of one source: the split by ``shares``, then failover.

    ``capacity`` is requests a second by target. ``before``: the allotments served now. Their failover stays if the new
    one is nearly the same.
    """
    split = _weigh(shares, 0, floor=0)
    used = {allotment.locality for allotment in split}
    others = [name for name, target in targets.items() if name not in used and target.endpoints > 0]
    failover = _failover(policy, source, others, targets, capacity)
    served = tuple(allotment for allotment in before if allotment.priority)
    return (*split, *(served if _is_similar(served, failover) else failover))


def with_probes(
    shares: Amounts, probes: Amounts, targets: Mapping[Locality, Target], alive: Iterable[Locality]
) -> dict[Locality, float]:
    """The shares, reduced to make room for ``probes``, with ``alive`` localities added as padding."""
    if not probes:
        return dict(shares)
    part = 1.0 - sum(probes.values())
    split = {name: share * part for name, share in shares.items()} | dict(probes)
    healthy = sum(targets[name].healthy for name in shares if name in targets)
    endpoints = sum(targets[name].endpoints for name in split if name in targets)
    for name in sorted(set(alive) - split.keys(), key=locality_key):
        if healthy * OVERPROVISIONING >= endpoints:
            break
        healthy, endpoints = healthy + targets[name].healthy, endpoints + targets[name].endpoints
        split[name] = PADDING_SHARE
    return split


def pushed_allotments(targets: Mapping[Locality, Target]) -> tuple[Allotment, ...]:
    """The pushed priorities and weights; a locality without a weight is shown with its number of endpoints."""
    pushed = (
        Allotment(
            name, target.pushed_priority, target.endpoints if target.pushed_weight is None else target.pushed_weight
        )
        for name, target in targets.items()
        if target.endpoints > 0
    )
    return tuple(sorted(pushed, key=lambda one: (one.priority, locality_key(one.locality))))


def pushed_shares(targets: Mapping[Locality, Target]) -> dict[Locality, float]:
    """The shares that proxies take from the pushed weights; from the number of endpoints where there is no weight."""
    present = {name: target for name, target in targets.items() if target.endpoints > 0}
    first = min((target.pushed_priority for target in present.values()), default=0)
    top = {name: target for name, target in present.items() if target.pushed_priority == first}
    weights = {name: float(target.pushed_weight or 0) for name, target in top.items()}
    if not any(weights.values()):
        weights = {name: float(target.endpoints) for name, target in top.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items() if weight}


def _failover(
    policy: Policy, source: Locality, others: Iterable[Locality], targets: Mapping[Locality, Target], capacity: Amounts
) -> tuple[Allotment, ...]:
    tiers: dict[tuple[int, ...], dict[Locality, float]] = {}
    for name in others:
        has_capacity = capacity[name] > 0
        is_standby = policy.is_standby(name) and targets[name].healthy > 0
        key = (int(not has_capacity), *failover_rank(policy, source, name)) if has_capacity or is_standby else (2,)
        tiers.setdefault(key, {})[name] = capacity[name] if has_capacity else float(targets[name].endpoints)
    ordered = [tiers[key] for key in sorted(tiers)]
    if len(ordered) > FAILOVER_PRIORITIES:
        rest = {name: amount for tier in ordered[FAILOVER_PRIORITIES - 1 :] for name, amount in tier.items()}
        ordered = [*ordered[: FAILOVER_PRIORITIES - 1], rest]
    return tuple(one for number, tier in enumerate(ordered, 1) for one in _weigh(tier, number, floor=1))


def _weigh(amounts: Amounts, priority: int, *, floor: int) -> tuple[Allotment, ...]:
    """Weights in proportion to ``amounts``, rounded by the largest remainder.

    They sum up to ``WEIGHT_TOTAL``, unless ``floor``, the least weight, raises some.
    """
    total = sum(amounts.values())
    exact = {name: amount * WEIGHT_TOTAL / total for name, amount in amounts.items()}
    weights = {name: int(value) for name, value in exact.items()}
    missing = WEIGHT_TOTAL - sum(weights.values())
    for name in sorted(exact, key=lambda name: (weights[name] - exact[name], locality_key(name)))[:missing]:
        weights[name] += 1
    raised = {name: max(weight, floor) for name, weight in weights.items()}
    return tuple(Allotment(name, priority, raised[name]) for name in sorted(raised, key=locality_key) if raised[name])


def _is_similar(served: Sequence[Allotment], failover: Sequence[Allotment]) -> bool:
    """Whether two failover lists have the same order and nearly the same weights."""
    is_same_order = [one[:2] for one in served] == [one[:2] for one in failover]
    return is_same_order and all(
        abs(old.weight - now.weight) <= FAILOVER_TOLERANCE * WEIGHT_TOTAL
        for old, now in zip(served, failover, strict=True)
    )


def locality_key(name: Locality) -> tuple[str, str, str]:
    """The sort key of localities: region, zone, sub-zone."""
    return name.region, name.zone, name.sub_zone

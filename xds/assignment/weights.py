"""Shares as integer weights and priorities that Envoy and gRPC accept.

Priority 0 holds the split. Below it stand all other localities with endpoints, nearest first, each tier by capacity:
a proxy that finds the endpoints of priority 0 unhealthy moves there by itself, at once, by Envoy's overprovisioning
factor. What is drained or dead comes last: if all else fails it may be better than it looks from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xds.assignment.assignment import WEIGHT_TOTAL, Allotment, Target
from xds.assignment.placement import distance
from xds.assignment.policy import Policy
from xds.model.node import Locality

# Envoy refuses priorities above 128, and the failover between so many takes a proxy's time; the farthest share one.
TIERS_LIMIT = 16
# Weights of failover that differ by less than this part are left as they are: nobody uses them now.
FAILOVER_TOLERANCE = 0.1

Amounts = Mapping[Locality, float]


def allotments(
    policy: Policy,
    source: Locality,
    shares: Amounts,
    targets: Mapping[Locality, Target],
    capacity: Amounts,
    before: Sequence[Allotment] = (),
) -> tuple[Allotment, ...]:
    """The split and what stands below it. Failover like that of ``before`` is left as it was."""
    split = _tier(shares, 0, floor=0)
    used = {allotment.locality for allotment in split}
    others = [name for name, target in targets.items() if name not in used and target.endpoints > 0]
    below = _failover(policy, source, others, targets, capacity)
    kept = tuple(allotment for allotment in before if allotment.priority)
    return (*split, *(kept if _is_alike(kept, below) else below))


def pushed_allotments(targets: Mapping[Locality, Target]) -> tuple[Allotment, ...]:
    """What was pushed, as it was pushed; a locality without a weight is told with that of its endpoints."""
    told = (
        Allotment(
            name, target.pushed_priority, target.endpoints if target.pushed_weight is None else target.pushed_weight
        )
        for name, target in targets.items()
        if target.endpoints > 0
    )
    return tuple(sorted(told, key=lambda one: (one.priority, locality_key(one.locality))))


def pushed_shares(targets: Mapping[Locality, Target]) -> dict[Locality, float]:
    """How proxies split requests by what was pushed: by weight, or by endpoints where no locality has one."""
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
        able = capacity[name] > 0
        near, place = distance(policy, source, name)
        key = (0, near, place) if able else (1,)
        tiers.setdefault(key, {})[name] = capacity[name] if able else float(targets[name].endpoints)
    ordered = [tiers[key] for key in sorted(tiers)]
    if len(ordered) > TIERS_LIMIT:
        rest = {name: amount for tier in ordered[TIERS_LIMIT - 1 :] for name, amount in tier.items()}
        ordered = [*ordered[: TIERS_LIMIT - 1], rest]
    return tuple(one for number, tier in enumerate(ordered, 1) for one in _tier(tier, number, floor=1))


def _tier(amounts: Amounts, priority: int, *, floor: int) -> tuple[Allotment, ...]:
    """Weights in proportion, by the largest remainder; they sum up to ``WEIGHT_TOTAL`` where ``floor`` raises none."""
    total = sum(amounts.values())
    exact = {name: amount * WEIGHT_TOTAL / total for name, amount in amounts.items()}
    weights = {name: int(value) for name, value in exact.items()}
    missing = WEIGHT_TOTAL - sum(weights.values())
    for name in sorted(exact, key=lambda name: (weights[name] - exact[name], locality_key(name)))[:missing]:
        weights[name] += 1
    raised = {name: max(weight, floor) for name, weight in weights.items()}
    return tuple(Allotment(name, priority, raised[name]) for name in sorted(raised, key=locality_key) if raised[name])


def _is_alike(kept: Sequence[Allotment], below: Sequence[Allotment]) -> bool:
    """Whether failover stands in the same order with nearly the same weights."""
    same = [one[:2] for one in kept] == [one[:2] for one in below]
    return same and all(
        abs(old.weight - now.weight) <= FAILOVER_TOLERANCE * WEIGHT_TOTAL for old, now in zip(kept, below, strict=True)
    )


def locality_key(name: Locality) -> tuple[str, str, str]:
    """What localities are ordered by."""
    return name.region, name.zone, name.sub_zone

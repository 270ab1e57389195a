"""Decisions in words: every change has a code for machines and a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xds.assignment.assignment import Code, Observed, Reason
from xds.assignment.placement import nearness
from xds.assignment.policy import Policy
from xds.model.node import Locality

Shares = Mapping[Locality, float]

# Less is no change of the mean distance but its rounding.
_NOTABLE = 1e-4
# A sentence names the largest shares only.
_SHOWN = 4


def named(name: Locality) -> str:
    """A locality as people call it."""
    return str(name) or "the unnamed locality"


def split(shares: Shares) -> str:
    """``60% eu/a, 40% eu/b``; what is left out is told as a number of localities."""
    ordered = sorted(((share, named(name)) for name, share in shares.items() if share > 0), key=lambda one: -one[0])
    told = [f"{share:.{0 if share > 0.0995 else 1}%} {name}" for share, name in ordered[:_SHOWN]]
    return ", ".join(told + ([f"{len(ordered) - _SHOWN} more"] if len(ordered) > _SHOWN else []))


def losses(observed: Observed, shares: Shares, alive: Iterable[Locality]) -> list[Reason]:
    """Why shares leave their targets at once."""
    found = []
    for name in sorted(shares.keys() - set(alive), key=str):
        target = observed.targets.get(name)
        if target is None:
            found.append(Reason(Code.REMOVED, f"{named(name)} is no longer among the pushed localities", name))
        elif target.healthy <= 0:
            found.append(
                Reason(
                    Code.NO_HEALTHY_ENDPOINTS,
                    f"none of the {target.endpoints} endpoints of {named(name)} is healthy",
                    name,
                )
            )
        else:
            found.append(Reason(Code.DRAINED, f"{named(name)} takes no share: drained, or without capacity", name))
    return found


def spills(
    before: Shares, wanted: Shares, pressing: Iterable[Locality], loads: Shares, capacity: Shares
) -> list[Reason]:
    """Which targets are above their capacity, and that the source leaves them."""
    return [
        Reason(
            Code.SPILL,
            f"{named(name)} would serve {loads[name]:.4g} requests/s with a capacity of {capacity.get(name, 0.0):.4g}",
            name,
        )
        for name in sorted(pressing, key=str)
        if before.get(name, 0.0) > wanted.get(name, 0.0)
    ]


def direction(policy: Policy, source: Locality, before: Shares, after: Shares) -> Reason:
    """What a change that nothing presses for does: nearer, farther, or only more even."""
    change = _distance(policy, source, after) - _distance(policy, source, before)
    way = f"{split(before)} becomes {split(after)}"
    if change < -_NOTABLE:
        return Reason(Code.RETURN, f"nearer localities have room: {way}")
    if change > _NOTABLE:
        return Reason(Code.SPILL, f"nearer localities are full: {way}")
    return Reason(Code.REBALANCE, f"as near, but loaded more alike: {way}")


def overload(factor: float, demand_rps: float, capacity_rps: float) -> Reason:
    """There is more demand than capacity."""
    told = f"{demand_rps:.4g} requests/s are wanted with a capacity of {capacity_rps:.4g}"
    return Reason(Code.OVERLOAD, f"{told}: every locality is given {factor:.0%} of its capacity")


def _distance(policy: Policy, source: Locality, shares: Shares) -> float:
    """The mean distance of requests; preferred localities are nearer than near."""
    return sum(share * (-1 if policy.is_preferred(name) else nearness(source, name)) for name, share in shares.items())

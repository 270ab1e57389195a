"""The reasons of a decision as sentences. Every reason has a code for programs and a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xds.assignment.assignment import Observation, Reason, ReasonCode
from xds.assignment.placement import distance
from xds.assignment.policy import Policy
from xds.model.node import Locality

Shares = Mapping[Locality, float]

_ROUNDING = 1e-4  # a smaller change of the mean distance is rounding
_SHOWN = 4  # shares in a sentence, the largest first


def locality_label(name: Locality) -> str:
    """The locality as ``region/zone/sub_zone``; a locality without parts has a label, too."""
    return str(name) or "the unnamed locality"


def describe_shares(shares: Shares) -> str:
    """Shares as text: ``60% eu/a, 40% eu/b``. Beyond the four largest, the number of localities is given."""
    ordered = sorted(
        ((share, locality_label(name)) for name, share in shares.items() if share > 0), key=lambda one: -one[0]
    )
    parts = [f"{share:.{0 if share > 0.0995 else 1}%} {name}" for share, name in ordered[:_SHOWN]]
    return ", ".join(parts + ([f"{len(ordered) - _SHOWN} more"] if len(ordered) > _SHOWN else []))


def loss_reasons(observed: Observation, shares: Shares, alive: Iterable[Locality]) -> list[Reason]:
    """Why a source leaves targets at once: those with a share that are not ``alive``."""
    reasons = []
    for name in sorted(shares.keys() - set(alive), key=str):
        target = observed.targets.get(name)
        label = locality_label(name)
        if target is None:
            reasons.append(Reason(ReasonCode.REMOVED, f"{label} is no longer among the pushed localities", name))
        elif target.healthy <= 0:
            detail = f"none of the {target.endpoints} endpoints of {label} is healthy"
            reasons.append(Reason(ReasonCode.NO_HEALTHY_ENDPOINTS, detail, name))
        else:
            detail = f"{label} gets no share: it is drained or has no capacity"
            reasons.append(Reason(ReasonCode.DRAINED, detail, name))
    return reasons


def spill_reasons(
    before: Shares, wanted: Shares, overloaded: Iterable[Locality], loads: Shares, capacity: Shares
) -> list[Reason]:
    """Which overloaded targets a source leaves. ``loads`` and ``capacity`` are requests a second by target."""
    return [
        Reason(
            ReasonCode.SPILL,
            f"{locality_label(name)} would serve {loads[name]:.4g} requests/s "
            f"with a capacity of {capacity.get(name, 0.0):.4g}",
            name,
        )
        for name in sorted(overloaded, key=str)
        if before.get(name, 0.0) > wanted.get(name, 0.0)
    ]


def change_reason(policy: Policy, source: Locality, before: Shares, after: Shares) -> Reason:
    """The reason of a change without an overloaded target: it goes nearer, farther, or evens out the load."""
    change = _mean_distance(policy, source, after) - _mean_distance(policy, source, before)
    shares = f"{describe_shares(before)} becomes {describe_shares(after)}"
    if change < -_ROUNDING:
        return Reason(ReasonCode.RETURN, f"nearer localities have room: {shares}")
    if change > _ROUNDING:
        return Reason(ReasonCode.SPILL, f"nearer localities are full: {shares}")
    return Reason(ReasonCode.REBALANCE, f"the load is spread more evenly at the same distance: {shares}")


def overload_reason(factor: float, demand_rps: float, capacity_rps: float) -> Reason:
    """Demand exceeds all capacity: every target gets ``factor`` times its capacity."""
    detail = f"demand of {demand_rps:.4g} requests/s exceeds the capacity of {capacity_rps:.4g}"
    return Reason(ReasonCode.OVERLOAD, f"{detail}: every locality gets {factor:.0%} of its capacity")


def _mean_distance(policy: Policy, source: Locality, shares: Shares) -> float:
    """The mean distance of a source's requests. Preferred targets count as nearer than the source's own sub-zone."""
    return sum(share * (-1 if policy.is_preferred(name) else distance(source, name)) for name, share in shares.items())

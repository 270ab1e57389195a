"""Builds the reasons of a decision. Every reason has a code for programs and a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xds.model.node import Locality
from xds.steering.core.assignment import Demand, Observation, Reason, ReasonCode, scale_of_silence
from xds.steering.core.placement import distance
from xds.steering.core.policy import Policy
from xds.steering.core.weights import locality_key

Shares = Mapping[Locality, float]

_ROUNDING = 1e-4  # a smaller change of the mean distance is rounding
LEAST_FAILED = 0.1  # a smaller failed part of the demand, without shed requests, is no reason
_LEAST_DROPPED = 0.005  # a smaller dropped part of the demand gives no reason
_SHARES_IN_DETAIL = 4  # shares in a sentence, the largest first


def locality_label(name: Locality) -> str:
    """The locality as ``region/zone/sub_zone``; a locality without parts has a label, too."""
    return str(name) or "the unnamed locality"


def describe_shares(shares: Shares) -> str:
    """Shares as text: ``60% eu/a, 40% eu/b``. Beyond the four largest, the number of localities is given."""
    ordered = sorted(
        ((share, locality_label(name)) for name, share in shares.items() if share > 0), key=lambda one: -one[0]
    )
    parts = [f"{share:.{0 if share > 0.0995 else 1}%} {name}" for share, name in ordered[:_SHARES_IN_DETAIL]]
    return ", ".join(parts + ([f"{len(ordered) - _SHARES_IN_DETAIL} more"] if len(ordered) > _SHARES_IN_DETAIL else []))


def loss_reasons(observed: Observation, shares: Shares, alive: Iterable[Locality]) -> list[Reason]:
    """Why a source leaves targets at once: one reason for each target with a share that is not ``alive``."""
    reasons = []
    for name in sorted(shares.keys() - set(alive), key=locality_key):
        target = observed.targets.get(name)
        label = locality_label(name)
        if target is None:
            reasons.append(Reason(ReasonCode.REMOVED, f"{label} is no longer among the pushed localities", name))
        elif target.healthy <= 0:
            detail = f"none of the {target.endpoints} endpoints of {label} is healthy"
            reasons.append(Reason(ReasonCode.NO_HEALTHY_ENDPOINTS, detail, name))
        else:
            detail = f"{label} gets no share: it is drained, left by the proxies, or has no capacity"
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
        for name in sorted(overloaded, key=locality_key)
        if before.get(name, 0.0) > wanted.get(name, 0.0)
    ]


def change_reason(policy: Policy, source: Locality, before: Shares, after: Shares) -> Reason:
    """The reason of a change without an overloaded target: requests go nearer, go farther, or spread more evenly."""
    change = _mean_distance(policy, source, after) - _mean_distance(policy, source, before)
    shares = f"{describe_shares(before)} becomes {describe_shares(after)}"
    if change < -_ROUNDING:
        return Reason(ReasonCode.RETURN, f"nearer localities have room: {shares}")
    if change > _ROUNDING:
        return Reason(ReasonCode.SPILL, f"nearer localities are full: {shares}")
    return Reason(ReasonCode.REBALANCE, f"the load is spread more evenly at the same distance: {shares}")


def overload_reason(surplus: Shares) -> Reason:
    """The reason of demand that fits nowhere. ``surplus``: requests a second by source; they stay at the source."""
    largest = sorted(surplus.items(), key=lambda one: (-one[1], locality_key(one[0])))
    parts = [f"{rps:.4g} of {locality_label(name)}" for name, rps in largest[:_SHARES_IN_DETAIL]]
    more = [f"{len(largest) - _SHARES_IN_DETAIL} more"] if len(largest) > _SHARES_IN_DETAIL else []
    detail = f"{sum(surplus.values()):.4g} requests/s fit nowhere and stay at their source: {', '.join(parts + more)}"
    return Reason(ReasonCode.OVERLOAD, detail)


def shed_reason(fraction: float) -> Reason:
    """The reason of dropped requests. ``fraction``: the dropped part of a source's requests."""
    return Reason(ReasonCode.SHEDDING, f"{fraction:.0%} of the requests fit nowhere: the proxies drop them")


def failing_reason(demand: Demand, shed: float) -> Reason | None:
    """The reason of a source whose requests fail or are dropped; None for a few. ``shed``: the part to be dropped."""
    if demand.failed_rps - shed * demand.rps < LEAST_FAILED * demand.rps or demand.failed_rps <= 0:
        return None
    counts = f"{demand.failed_rps:.4g} of {demand.rps:.4g} requests/s"
    return Reason(ReasonCode.FAILING, f"{counts} fail or are dropped, and no change of shares is planned")


def demand_reasons(demand: Demand) -> list[Reason]:
    """What the figure of a source's demand includes: dropped requests, and nodes that do not report."""
    reasons = []
    if demand.dropped_rps >= _LEAST_DROPPED * demand.rps > 0:
        detail = f"proxies drop {demand.dropped_rps:.4g} of {demand.rps:.4g} requests/s: they count as demand"
        reasons.append(Reason(ReasonCode.DROPPING, detail))
    if demand.silent > 0 and demand.nodes > 0:
        scale = scale_of_silence(demand.nodes, demand.silent)
        detail = (
            f"{demand.nodes} of {demand.nodes + demand.silent} nodes report: what they say counts {scale:.2f} times"
        )
        reasons.append(Reason(ReasonCode.PARTIAL_REPORTS, detail))
    return reasons


def _mean_distance(policy: Policy, source: Locality, shares: Shares) -> float:
    """The mean distance of a source's requests. Preferred targets count as nearer than the source's own sub-zone."""
    return sum(share * (-1 if policy.is_preferred(name) else distance(source, name)) for name, share in shares.items())

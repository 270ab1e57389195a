"""How fast shares move from the served ones to the wanted ones: hysteresis band, step limit, dwell time.

Demand hardly depends on the assignment, so the loop itself cannot oscillate. But noise in the demand of a target near
its capacity could move traffic back and forth. The band prevents that: a target is filled to the middle of the band, or
above it where demand is steady. Requests leave it only above the upper edge, which is its capacity. They return only
when they would fit below the lower edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from xds.model.node import Locality
from xds.steering.core.assignment import WEIGHT_TOTAL
from xds.steering.core.free_capacity import STEADY, DemandChange, free_capacity
from xds.steering.core.placement import Flows, Placement, RankedTargets, Rates, Reachable, place, rank_targets
from xds.steering.core.policy import Policy

Shares = dict[Locality, float]  # fractions of a source's requests, by target

# Integer weights miss a share, and so a load, by up to this fraction; a smaller difference does not count.
TOLERANCE = 0.005
_EQUAL = 1.0 / WEIGHT_TOTAL
# If demand does not fit otherwise, at most this part of a level's free capacity stays free.
_FREE_WHEN_FULL = 0.5
# Then the lower edge of the band is at this multiple of the free capacity, so that shares stay while noise is learnt.
_EDGE_WHEN_FULL = 2.0
# A timer may fire a little early: this fraction of a time counts as all of it.
_ELAPSED = 0.9


@dataclass(frozen=True, slots=True)
class HysteresisBand:
    """The wanted shares of every source, and the shares at the edges of the band around them.

    ``relieved``: the shares that a source takes when it must leave a target. They leave at most half of the band free,
    so that noise and a further rise of demand do not cause a change in each interval.

    ``ceilings``: the load of each target, in requests a second, above which requests must leave it. ``surplus``: the
    part of each source's demand that fits nowhere, in requests a second.
    """

    wanted: Mapping[Locality, Shares]
    relieved: Mapping[Locality, Shares]
    edges: tuple[Mapping[Locality, Shares], Mapping[Locality, Shares]]
    ceilings: Rates
    surplus: Rates

    def contains(self, source: Locality, shares: Shares, margin: float) -> bool:
        """Whether every share of the source is between the edges of the band, plus or minus ``margin``.

        The wanted and the relieved shares are within the band too: their share of a farther target may be larger than
        at either edge.

        A target without a share at any edge has no margin. Its requests fit elsewhere in any case, and a small share
        would otherwise stay for ever.
        """
        sides = [side[source] for side in (*self.edges, self.wanted, self.relieved)]
        return all(
            _is_between(shares.get(name, 0.0), [side.get(name, 0.0) for side in sides], margin)
            for name in {*shares, *(name for side in sides for name in side)}
        )

    def overloaded(self, loads: Rates, wanted: Rates) -> tuple[Locality, ...]:
        """The targets whose load is above their ceiling and above their load in ``wanted``."""
        return tuple(
            name
            for name, rps in loads.items()
            if rps > self.ceilings.get(name, 0.0) * (1.0 + TOLERANCE) and wanted.get(name, 0.0) < rps * (1.0 - _EQUAL)
        )


def hysteresis_band(
    policy: Policy,
    demand: Rates,
    capacity: Rates,
    used: Rates,
    reachable: Reachable | None = None,
    change: DemandChange = STEADY,
) -> HysteresisBand:
    """The wanted shares and their band. ``used`` is the load of sources that cannot be moved now.

    ``change`` is how demand changes: `xds.steering.core.free_capacity` says how much of each target stays free.
    """
    ranked = rank_targets(policy, demand, capacity, reachable)
    no_reserve = dict.fromkeys(capacity, 0.0)
    full = _fill_targets(policy, demand, capacity, used, ranked, no_reserve, no_reserve)
    free = free_capacity(policy, demand, capacity, full, change)
    edge = {name: _EDGE_WHEN_FULL * part for name, part in free.when_full.items()}
    levels = (
        (free.returned, free.when_full),
        (dict.fromkeys(capacity, policy.hysteresis), edge),
        (free.relieved, free.when_full),
    )
    placements = [_fill_targets(policy, demand, capacity, used, ranked, *level) for level in levels]
    upper = _shares_of(full.flows, demand)
    middle, lower, relieved = (_shares_of(one.flows, demand) for one in placements)
    loads = target_loads(demand, middle, used)
    # A target that keeps a surplus is never below its capacity. The margin keeps noise from moving its traffic.
    ceilings = {
        name: rps * (1.0 + free.tolerated[name])
        if loads.get(name, 0.0) <= rps * (1.0 + TOLERANCE)
        else loads[name] * (1.0 + policy.hysteresis)
        for name, rps in capacity.items()
    }
    return HysteresisBand(middle, relieved, (upper, lower), ceilings, full.surplus)


def _fill_targets(
    policy: Policy,
    demand: Rates,
    capacity: Rates,
    used: Rates,
    ranked: RankedTargets,
    free: Rates,
    when_full: Rates,
) -> Placement:
    """Place demand so that the part ``free`` of every target stays free; ``when_full`` if demand does not fit then."""
    room = _room(capacity, free, used)
    least = {name: min(part * _FREE_WHEN_FULL, when_full[name]) for name, part in free.items()}
    reserve = {name: rps - room[name] for name, rps in _room(capacity, least, used).items()}
    return place(policy, demand, room, ranked, reserve=reserve, capacity=capacity)


def _room(capacity: Rates, free: Rates, used: Rates) -> dict[Locality, float]:
    return {name: max(rps * (1.0 - free[name]) - used.get(name, 0.0), 0.0) for name, rps in capacity.items()}


def target_loads(demand: Rates, shares: Mapping[Locality, Shares], used: Rates | None = None) -> dict[Locality, float]:
    """The load of every target in requests a second, ``used`` included."""
    total: dict[Locality, float] = dict(used or {})
    for source, rps in demand.items():
        for name, share in shares[source].items():
            total[name] = total.get(name, 0.0) + rps * share
    return total


def evacuate(shares: Shares, alive: Set[Locality], replacement: Shares) -> Shares:
    """The shares without targets that are not ``alive``. The targets with more in ``replacement`` take over at once."""
    remaining = {name: share for name, share in shares.items() if name in alive}
    lost = 1.0 - sum(remaining.values())
    if lost <= _EQUAL / 2:
        return remaining
    missing = {
        name: share - remaining.get(name, 0.0)
        for name, share in replacement.items()
        if share > remaining.get(name, 0.0)
    }
    total = sum(missing.values())
    return remaining | {name: remaining.get(name, 0.0) + lost * part / total for name, part in missing.items()}


def largest_gap(shares: Shares, wanted: Shares) -> float:
    """The largest difference between the shares of one target."""
    return max((abs(shares.get(name, 0.0) - wanted.get(name, 0.0)) for name in {*shares, *wanted}), default=0.0)


def move_shares(shares: Shares, wanted: Shares, fraction: float) -> Shares:
    """The shares after this fraction of the way. At 1, only wanted targets have a share."""
    if fraction >= 1.0:
        return dict(wanted)
    names = {**shares, **wanted}  # not a set: later sums of floats depend on the order
    return {name: shares.get(name, 0.0) * (1.0 - fraction) + wanted.get(name, 0.0) * fraction for name in names}


def step_fraction(policy: Policy, gaps: Iterable[float]) -> float:
    """The fraction of their way that all moving sources go in this step. The source with the largest gap limits it.

    All sources go the same fraction, so no target gets more on the way than at the beginning or at the end.
    """
    longest = max(gaps, default=0.0)
    return min(1.0, policy.maximum_step / longest) if longest > policy.maximum_step + _EQUAL else 1.0


def must_leave(shares: Shares, wanted: Shares, overloaded: Iterable[Locality]) -> bool:
    """Whether the source has requests at an overloaded target that are wanted elsewhere."""
    return any(shares.get(name, 0.0) > wanted.get(name, 0.0) + _EQUAL for name in overloaded)


def has_elapsed(since: float, period_s: float, now: float) -> bool:
    """Whether ``period_s`` has elapsed, give or take a timer that fires early."""
    return now - since >= period_s * _ELAPSED


def _is_between(share: float, edges: Sequence[float], margin: float) -> bool:
    least, most = min(edges), max(edges)
    return least - margin <= share <= (most + margin if most > _EQUAL else _EQUAL)


def _shares_of(flows: Flows, demand: Rates) -> dict[Locality, Shares]:
    return {
        source: {name: rps / demand[source] for name, rps in by_target.items()} for source, by_target in flows.items()
    }

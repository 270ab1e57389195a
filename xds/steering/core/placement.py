"""Places demand on targets, given the capacity of every target: the strategies.

All strategies use one procedure. Pairs of source and target are ranked by distance. The ranks are filled in order, the
nearest first. Within a rank every source spreads the rest of its demand over its targets in proportion to their free
capacity, and a target with less free capacity than requested accepts the same fraction from every source. The
demand of a target's own zone comes before demand that spills into the zone, and spilled demand shares the rest.

Demand that fits nowhere stays at its source: no target gets more than its room from other zones. If the policy says
so, proxies drop that demand there (`shed_fractions`).

The result is continuous: a little more demand moves a little more traffic. A linear program would jump from one
corner solution to another. Where distance alone decides, the result is also optimal: as much demand as possible is
served within its zone, then within its region.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil

from xds.model.node import Locality
from xds.steering.core.policy import Policy, Reach, Strategy

Rates = Mapping[Locality, float]  # requests a second
Flows = dict[Locality, dict[Locality, float]]  # requests a second by source and target


class Distance(IntEnum):
    """What two localities have in common; a smaller value is nearer."""

    SUB_ZONE = 0
    ZONE = 1
    REGION = 2
    WORLD = 3


# Distance, then the position in the policy's order of targets.
Rank = tuple[Distance, int]
# By rank, the nearest first: the targets of each source.
RankedTargets = Sequence[tuple[Rank, Mapping[Locality, Sequence[Locality]]]]

# Sources that have different targets in one rank (a policy's order can cause that) may leave capacity for each other.
_ROUNDS = 8
_ROUNDING = 1e-12  # a smaller part of a source's demand is rounding of floats
_FARTHEST = {Reach.ZONE: Distance.ZONE, Reach.REGION: Distance.REGION, Reach.WORLD: Distance.WORLD}


def distance(source: Locality, target: Locality) -> Distance:
    """How far a target is. Empty names are compared like others: localities with only a zone are in one region."""
    if source.region != target.region:
        return Distance.WORLD
    if source.zone != target.zone:
        return Distance.REGION
    return Distance.SUB_ZONE if source.sub_zone == target.sub_zone else Distance.ZONE


def failover_rank(policy: Policy, source: Locality, target: Locality) -> Rank:
    """The rank of a target for failover, which does not depend on the strategy."""
    return distance(source, target), _position(policy, source, target)


def placement_rank(policy: Policy, source: Locality, target: Locality) -> Rank:
    """The rank in which a source fills a target under the policy's strategy."""
    rank = failover_rank(policy, source, target)
    if policy.strategy is Strategy.SPRAY_TO_WORLD:
        return Distance.WORLD, 0
    if policy.strategy is Strategy.SPRAY_TO_REGION and rank[0] <= Distance.REGION:
        return Distance.REGION, 0
    return rank


def _position(policy: Policy, source: Locality, target: Locality) -> int:
    """The position of a target in the order for this source. Unlisted targets share the last position."""
    for order in policy.order:
        if order.source.matches(source):
            positions = (position for position, pattern in enumerate(order.targets) if pattern.matches(target))
            return next(positions, len(order.targets))
    return 0


# The targets that each source may use. A source that is missing may use all targets.
Reachable = Mapping[Locality, Collection[Locality]]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where demand goes. ``flows``: all demand. ``surplus``: the part of each source's demand that fits nowhere.

    The flows include the surplus: it stays at the nearest targets of its source, above their capacity.
    """

    flows: Flows
    surplus: Mapping[Locality, float]


def reachable_targets(policy: Policy, source: Locality, targets: Collection[Locality]) -> list[Locality]:
    """The targets that are within the reach of the policy for a source."""
    farthest = _FARTHEST[policy.spill.within]
    return [target for target in targets if distance(source, target) <= farthest]


def rank_targets(
    policy: Policy, sources: Collection[Locality], targets: Collection[Locality], reachable: Reachable | None = None
) -> RankedTargets:
    """The targets of every source by rank, the nearest first; only those that it may use."""
    ranks: dict[Rank, dict[Locality, list[Locality]]] = defaultdict(dict)
    for source in sources:
        usable = targets if reachable is None or source not in reachable else reachable[source]
        for target in targets:
            if target in usable:
                ranks[placement_rank(policy, source, target)].setdefault(source, []).append(target)
    return tuple((rank, ranks[rank]) for rank in sorted(ranks))


def place(
    policy: Policy,
    demand: Rates,
    room: Rates,
    ranked: RankedTargets | None = None,
    *,
    reserve: Rates | None = None,
    capacity: Rates | None = None,
) -> Placement:
    """Requests a second from each source to each target; all of the demand is placed.

    ``room`` is the free capacity of the targets. ``reserve`` is used after the room of all targets is used up. No
    target gets more than both from the sources of other zones. The rest of a source's demand stays at its nearest
    targets, in proportion to ``capacity`` (default: ``room``). The demand of each source must be above 0, and one of
    its targets must have capacity. ``ranked`` is the result of `rank_targets`, if already known. The time taken is
    proportional to sources times targets.
    """
    placement = _Placement(policy, rank_targets(policy, demand, room) if ranked is None else ranked, demand, room)
    preferred = [target for target in room if policy.is_preferred(target)]
    for targets in (preferred, [target for target in room if target not in set(preferred)]):
        if policy.strategy is Strategy.WATERFALL_BY_REGION:
            placement.fill(placement.even_limits(targets), Distance.REGION)
        placement.fill({target: placement.room[target] for target in targets}, Distance.WORLD)
    if reserve is not None and placement.is_unplaced:
        placement.fill(dict(reserve), Distance.WORLD)
    return placement.finish(room if capacity is None else capacity)


class _Placement:
    """A placement in progress: unplaced demand by source, free capacity by target, flows."""

    def __init__(self, policy: Policy, ranked: RankedTargets, demand: Rates, room: Rates) -> None:
        self.room = dict(room)
        self._policy = policy
        # The demand that may still leave each source's zone; None if all of it may.
        at_most = policy.spill.at_most
        self._leaving = None if at_most >= 1.0 else {source: at_most * rps for source, rps in demand.items()}
        self.flows: Flows = {source: defaultdict(float) for source in demand}
        self._unplaced = dict(demand)
        self._demand = demand
        self._ranked = ranked

    @property
    def is_unplaced(self) -> bool:
        """Whether any demand is not placed yet."""
        return any(rps > 0 for rps in self._unplaced.values())

    def even_limits(self, targets: Collection[Locality]) -> dict[Locality, float]:
        """The room of the targets, reduced so that the demand of a region fills them all to the same fraction."""
        demand: dict[str, float] = defaultdict(float)
        for source, rps in self._unplaced.items():
            demand[source.region] += rps
        room: dict[str, float] = defaultdict(float)
        for target in targets:
            room[target.region] += self.room[target]
        return {
            target: self.room[target] * min(1.0, demand[target.region] / room[target.region])
            for target in targets
            if room[target.region] > 0
        }

    def fill(self, limits: dict[Locality, float], farthest: Distance) -> None:
        """Place demand rank by rank, up to the limit of each target. Reduces ``limits`` by the placed demand."""
        for (near, _), targets_of in self._ranked:
            if near > farthest:
                break
            choices = {
                source: [target for target in targets if limits.get(target)]
                for source, targets in targets_of.items()
                if self._unplaced[source]
            }
            for _ in range(_ROUNDS):
                if not self._fill_once(choices, limits):
                    break

    def _fill_once(self, choices: Mapping[Locality, Sequence[Locality]], limits: dict[Locality, float]) -> bool:
        """Let every source request capacity, and every target accept what fits. False without any request."""
        requested: Flows = {}
        requested_of: dict[Locality, float] = defaultdict(float)
        for source, targets in choices.items():
            free = sum(limits[target] for target in targets)
            if self._unplaced[source] > 0 and free > 0:
                wanted = {target: self._unplaced[source] * limits[target] / free for target in targets}
                requested[source] = self._limit_leaving(source, wanted)
                for target, rps in requested[source].items():
                    requested_of[target] += rps
        accepted = {target: min(1.0, limits[target] / rps) if rps > 0 else 0.0 for target, rps in requested_of.items()}
        for source, shares in requested.items():
            self._add(source, {target: rps * accepted[target] for target, rps in shares.items()})
        for target, rps in requested_of.items():
            used = rps * accepted[target]
            limits[target] = max(limits[target] - used, 0.0)
            self.room[target] = max(self.room[target] - used, 0.0)
        return bool(requested)

    def _limit_leaving(self, source: Locality, wanted: dict[Locality, float]) -> dict[Locality, float]:
        """Limit the requests of a source to other zones by the demand that may leave its zone."""
        if self._leaving is None:
            return wanted
        leaving = sum(rps for target, rps in wanted.items() if distance(source, target) > Distance.ZONE)
        if leaving <= self._leaving[source]:
            return wanted
        part = self._leaving[source] / leaving
        return {
            target: rps * part if distance(source, target) > Distance.ZONE else rps for target, rps in wanted.items()
        }

    def _add(self, source: Locality, placed: Mapping[Locality, float]) -> None:
        for target, rps in placed.items():
            self.flows[source][target] += rps
            if self._leaving is not None and distance(source, target) > Distance.ZONE:
                self._leaving[source] = max(self._leaving[source] - rps, 0.0)
        rest = self._unplaced[source] - sum(placed.values())
        self._unplaced[source] = rest if rest > _ROUNDING * self._demand[source] else 0.0

    def finish(self, capacity: Rates) -> Placement:
        """The result. Demand that fits nowhere, or that rounding left, stays at its source's nearest targets."""
        surplus = {source: rps for source, rps in self._unplaced.items() if rps > 0}
        for source, rps in surplus.items():
            near = {target: capacity[target] for target in self._nearest(source, capacity)}
            total = sum(near.values())
            for target, part in near.items():
                self.flows[source][target] += rps * (part / total)  # tiny capacities do not underflow in this order
        flows = {
            source: {target: rps for target, rps in by_target.items() if rps > 0}
            for source, by_target in self.flows.items()
        }
        return Placement(flows, surplus)

    def _nearest(self, source: Locality, capacity: Rates) -> list[Locality]:
        """The targets with capacity in the source's own zone; without any, the targets of its nearest rank."""
        nearest: list[Locality] = []
        farthest = Distance.ZONE
        for (near, _), targets_of in self._ranked:
            if nearest and near > farthest:
                break
            nearest += [target for target in targets_of.get(source, ()) if capacity[target] > 0]
            farthest = max(near, farthest)
        return nearest


# Fractions are whole percents, rounded up: each new fraction is pushed to all proxies of a source.
_FRACTION_STEPS = 100
_LARGEST_FRACTION = 0.99  # some requests must pass, or the server would not learn that there is room again


def shed_fractions(
    policy: Policy,
    demand: Rates,
    capacity: Rates,
    used: Rates,
    reachable: Reachable,
    before: Mapping[Locality, float],
) -> dict[Locality, float]:
    """The fraction of each source's requests that fit nowhere. ``before``: the fractions that are dropped now.

    A fraction stays while the new one differs by no more than ``minimum_change``, or two percents.
    """
    room = {name: max(rps - used.get(name, 0.0), 0.0) for name, rps in capacity.items()}
    ranked = rank_targets(policy, demand, capacity, reachable)
    surplus = place(policy, demand, room, ranked, capacity=capacity).surplus
    band = max(policy.minimum_change, 0.02)
    fractions = {}
    for source, rps in demand.items():
        wanted = surplus.get(source, 0.0) / rps
        current = before.get(source, 0.0)
        fraction = min(ceil(wanted * _FRACTION_STEPS - 1e-6) / _FRACTION_STEPS, _LARGEST_FRACTION)
        fractions[source] = current if current > 0 < wanted and abs(fraction - current) <= band else fraction
    return fractions

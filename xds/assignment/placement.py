"""Which target serves which demand, given the capacity of every target: the strategies.

All strategies are one procedure. Pairs of source and target are ranked by distance. The ranks are filled in order, the
nearest first. Within a rank every source spreads the rest of its demand over its targets in proportion to their free
capacity, and a target that is asked for more than it has free accepts the same fraction from every source. So the
demand of a target's own zone comes before the demand that spills into it, and spilled demand shares what is left.

The result is continuous: a little more demand moves a little more traffic. A linear program would jump from one
corner solution to another. Where distance alone decides, the result is also optimal: as much demand as possible is
served within its zone, then within its region.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

from xds.assignment.policy import Policy, Strategy
from xds.model.node import Locality

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
_BISECTIONS = 60
_ROUNDING = 1e-12  # a smaller part of a source's demand is rounding of floats


def distance(source: Locality, target: Locality) -> Distance:
    """How far a target is. Empty names are compared like others: where only zones are named, all is one region."""
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
    """The position of a target in the order for this source; targets that it does not list share the last one."""
    for order in policy.order:
        if order.source.matches(source):
            positions = (position for position, pattern in enumerate(order.targets) if pattern.matches(target))
            return next(positions, len(order.targets))
    return 0


def rank_targets(policy: Policy, sources: Collection[Locality], targets: Collection[Locality]) -> RankedTargets:
    """The targets of every source by rank, the nearest first."""
    ranks: dict[Rank, dict[Locality, list[Locality]]] = defaultdict(dict)
    for source in sources:
        for target in targets:
            ranks[placement_rank(policy, source, target)].setdefault(source, []).append(target)
    return tuple((rank, ranks[rank]) for rank in sorted(ranks))


def place(policy: Policy, demand: Rates, room: Rates, ranked: RankedTargets | None = None) -> Flows:
    """Requests a second from each source to each target; all of the demand is placed.

    ``room`` is the free capacity of the targets. The demand of each source must be above 0, and all room together at
    least all demand (`raise_capacity` provides for that). ``ranked`` is the result of `rank_targets`, where it is
    known. The time taken is proportional to sources times targets.
    """
    placement = _Placement(rank_targets(policy, demand, room) if ranked is None else ranked, demand, room)
    preferred = [target for target in room if policy.is_preferred(target)]
    for targets in (preferred, [target for target in room if target not in set(preferred)]):
        if policy.strategy is Strategy.WATERFALL_BY_REGION:
            placement.fill(placement.even_limits(targets), Distance.REGION)
        placement.fill({target: placement.room[target] for target in targets}, Distance.WORLD)
    return placement.finish(room)


def raise_capacity(
    capacity: Rates, demand_rps: float, used: Rates | None = None
) -> tuple[dict[Locality, float], float]:
    """The free capacity of the targets, and the factor by which capacity was raised to fit the demand.

    ``used`` is the load of targets that cannot be moved. The factor is 1 where the demand fits. Otherwise all
    capacities are raised by the same factor, so that overload is spread in proportion to capacity. At least one
    capacity must be above 0.
    """
    load = used or {}
    factor = _factor(capacity, demand_rps, load)
    return {target: max(rps * factor - load.get(target, 0.0), 0.0) for target, rps in capacity.items()}, factor


def _factor(capacity: Rates, demand_rps: float, used: Rates) -> float:
    def is_enough(factor: float) -> bool:
        return sum(max(rps * factor - used.get(target, 0.0), 0.0) for target, rps in capacity.items()) >= demand_rps

    if is_enough(1.0):
        return 1.0
    total = sum(capacity.values())
    most = (demand_rps + sum(used.get(target, 0.0) for target in capacity)) / total
    least = 1.0 if used else most
    for _ in range(_BISECTIONS if used else 0):
        middle = (least + most) / 2
        least, most = (least, middle) if is_enough(middle) else (middle, most)
    return most


class _Placement:
    """A placement under way: unplaced demand by source, free capacity by target, flows."""

    def __init__(self, ranked: RankedTargets, demand: Rates, room: Rates) -> None:
        self.room = dict(room)
        self.flows: Flows = {source: defaultdict(float) for source in demand}
        self._unplaced = dict(demand)
        self._demand = demand
        self._ranked = ranked

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
        """Place demand rank by rank, up to the limit of each target. ``limits`` is reduced by what was placed."""
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
        """Let every source ask, and every target accept what fits. False when no source could ask."""
        asked: Flows = {}
        asked_of: dict[Locality, float] = defaultdict(float)
        for source, targets in choices.items():
            free = sum(limits[target] for target in targets)
            if self._unplaced[source] > 0 and free > 0:
                asked[source] = {target: self._unplaced[source] * limits[target] / free for target in targets}
                for target, rps in asked[source].items():
                    asked_of[target] += rps
        accepted = {target: min(1.0, limits[target] / rps) if rps > 0 else 0.0 for target, rps in asked_of.items()}
        for source, shares in asked.items():
            self._add(source, {target: rps * accepted[target] for target, rps in shares.items()})
        for target, rps in asked_of.items():
            used = rps * accepted[target]
            limits[target] = max(limits[target] - used, 0.0)
            self.room[target] = max(self.room[target] - used, 0.0)
        return bool(asked)

    def _add(self, source: Locality, placed: Mapping[Locality, float]) -> None:
        for target, rps in placed.items():
            self.flows[source][target] += rps
        left = self._unplaced[source] - sum(placed.values())
        self._unplaced[source] = left if left > _ROUNDING * self._demand[source] else 0.0

    def finish(self, room: Rates) -> Flows:
        """The flows. Demand that rounding left unplaced is spread in proportion to ``room``."""
        total = sum(room.values())
        for source, rps in self._unplaced.items():
            if rps > 0:
                self._add(source, {target: rps * free / total for target, free in room.items()})
        return {source: {target: rps for target, rps in own.items() if rps > 0} for source, own in self.flows.items()}

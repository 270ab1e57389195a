"""How near a target locality is to a source, and in which order a source fills its targets.

Where demand goes, given what every target can take: the strategies.

All of them are one procedure. Sources and targets meet in turns, the nearest first; in a turn every source spreads what
it still has over the targets of that turn in proportion to their room, and a target that is asked for more than its
room takes the same fraction from all who ask. So a target's own zone comes before those who spill into it, and those
share what is left. The procedure is continuous: a little more demand moves a little more traffic, which a solver of
linear programs, hopping from corner to corner, would not give. And where nearness alone decides it is also the best
possible: as much as can be placed within zones is, then within regions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

from xds.assignment.policy import Policy, Strategy
from xds.model.node import Locality


class Nearness(IntEnum):
    """What two localities share; less is nearer."""

    SUB_ZONE = 0
    ZONE = 1
    REGION = 2
    WORLD = 3


# Nearness, then the place in the policy's order.
Rank = tuple[Nearness, int]


def nearness(source: Locality, target: Locality) -> Nearness:
    """Names are compared as they are, empty ones too: where only zones are named, all is one region."""
    if source.region != target.region:
        return Nearness.WORLD
    if source.zone != target.zone:
        return Nearness.REGION
    return Nearness.SUB_ZONE if source.sub_zone == target.sub_zone else Nearness.ZONE


def distance(policy: Policy, source: Locality, target: Locality) -> Rank:
    """How far a target is, whatever the strategy: the order of failover."""
    return nearness(source, target), _place(policy, source, target)


def rank(policy: Policy, source: Locality, target: Locality) -> Rank:
    """In which turn a source fills a target under the policy's strategy; targets of one rank are filled alike."""
    near, place = distance(policy, source, target)
    if policy.strategy is Strategy.SPRAY_TO_WORLD:
        return Nearness.WORLD, 0
    if policy.strategy is Strategy.SPRAY_TO_REGION and near <= Nearness.REGION:
        return Nearness.REGION, 0
    return near, place


def _place(policy: Policy, source: Locality, target: Locality) -> int:
    """The place of a target in the order for this source; all that the order does not name share the last one."""
    for order in policy.order:
        if order.source.matches(source):
            places = (place for place, pattern in enumerate(order.targets) if pattern.matches(target))
            return next(places, len(order.targets))
    return 0


Rates = Mapping[Locality, float]
Flows = dict[Locality, dict[Locality, float]]
# Turn by turn, the nearest first: the targets that each source meets.
Turns = Sequence[tuple[Rank, Mapping[Locality, Sequence[Locality]]]]

# Sources that have different targets in one turn (a policy's order can make that so) may leave room for one another.
_ROUNDS = 8
_BISECTIONS = 60
# The part of a source's demand that is the rounding of floats, not demand.
_DUST = 1e-12


def turns(policy: Policy, sources: Collection[Locality], targets: Collection[Locality]) -> Turns:
    """Who meets whom in which turn."""
    found: dict[Rank, dict[Locality, list[Locality]]] = defaultdict(dict)
    for source in sources:
        for target in targets:
            found[rank(policy, source, target)].setdefault(source, []).append(target)
    return tuple((turn, found[turn]) for turn in sorted(found))


def place(policy: Policy, demand: Rates, room: Rates, order: Turns | None = None) -> Flows:
    """What goes from each source to each target, in requests a second; all of the demand is placed.

    The demand of each source is above 0, the room of all targets together not less than all demand (``raised`` sees to
    that). ``order`` where the turns of these sources and targets are known. Takes time in proportion to sources times
    targets.
    """
    filling = _Filling(turns(policy, demand, room) if order is None else order, demand, room)
    preferred = [target for target in room if policy.is_preferred(target)]
    for targets in (preferred, [target for target in room if target not in set(preferred)]):
        if policy.strategy is Strategy.WATERFALL_BY_REGION:
            filling.fill(filling.even(targets), Nearness.REGION)
        filling.fill({target: filling.room[target] for target in targets}, Nearness.WORLD)
    return filling.finish(room)


def raised(capacity: Rates, demand_rps: float, taken: Rates | None = None) -> tuple[dict[Locality, float], float]:
    """The room that ``taken`` leaves of the capacities, and by what factor they had to be raised for the demand.

    Where there is enough the factor is 1. Else all are raised alike, so that overload is spread in proportion to
    capacity. Some capacity must be above 0.
    """
    used = taken or {}
    factor = _level(capacity, demand_rps, used)
    return {target: max(rps * factor - used.get(target, 0.0), 0.0) for target, rps in capacity.items()}, factor


def _level(capacity: Rates, demand_rps: float, used: Rates) -> float:
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


class _Filling:
    """What sources still have to place, what room targets still have, and what was placed."""

    def __init__(self, order: Turns, demand: Rates, room: Rates) -> None:
        self.left = dict(demand)
        self._demand = demand
        self.room = dict(room)
        self.flows: Flows = {source: defaultdict(float) for source in demand}
        self._order = order

    def even(self, targets: Collection[Locality]) -> dict[Locality, float]:
        """The room of targets, cut down so that those of a region are filled to the same fraction by its demand."""
        wanted: dict[str, float] = defaultdict(float)
        for source, rps in self.left.items():
            wanted[source.region] += rps
        there: dict[str, float] = defaultdict(float)
        for target in targets:
            there[target.region] += self.room[target]
        return {
            target: self.room[target] * min(1.0, wanted[target.region] / there[target.region])
            for target in targets
            if there[target.region] > 0
        }

    def fill(self, limits: dict[Locality, float], farthest: Nearness) -> None:
        """Fill the targets that have a limit up to it, turn by turn; ``limits`` is what is left of them then."""
        for (near, _), meeting in self._order:
            if near > farthest:
                break
            choices = {
                source: [target for target in targets if limits.get(target)]
                for source, targets in meeting.items()
                if self.left[source]
            }
            for _ in range(_ROUNDS):
                if not self._round(choices, limits):
                    break

    def _round(self, choices: Mapping[Locality, Sequence[Locality]], limits: dict[Locality, float]) -> bool:
        """One round of asking and taking; False when nothing could be placed."""
        asked: Flows = {}
        sought: dict[Locality, float] = defaultdict(float)
        for source, targets in choices.items():
            free = sum(limits[target] for target in targets)
            if self.left[source] > 0 and free > 0:
                asked[source] = {target: self.left[source] * limits[target] / free for target in targets}
                for target, rps in asked[source].items():
                    sought[target] += rps
        taken = {target: min(1.0, limits[target] / rps) if rps > 0 else 0.0 for target, rps in sought.items()}
        for source, offers in asked.items():
            self._take(source, {target: rps * taken[target] for target, rps in offers.items()})
        for target, rps in sought.items():
            used = rps * taken[target]
            limits[target] = max(limits[target] - used, 0.0)
            self.room[target] = max(self.room[target] - used, 0.0)
        return bool(asked)

    def _take(self, source: Locality, placed: Mapping[Locality, float]) -> None:
        for target, rps in placed.items():
            self.flows[source][target] += rps
        left = self.left[source] - sum(placed.values())
        self.left[source] = left if left > _DUST * self._demand[source] else 0.0

    def finish(self, room: Rates) -> Flows:
        """The flows, with what rounding left over spread by room."""
        total = sum(room.values())
        for source, rps in self.left.items():
            if rps > 0:
                self._take(source, {target: rps * free / total for target, free in room.items()})
        return {source: {target: rps for target, rps in own.items() if rps > 0} for source, own in self.flows.items()}

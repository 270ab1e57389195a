"""How near a target locality is to a source, and in which order a source fills its targets."""

from __future__ import annotations

from enum import IntEnum

from xds.load.policy import Policy, Strategy
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

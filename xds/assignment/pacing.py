"""How fast what is wanted becomes what is served: bands, steps, dwell.

Demand is what a fleet wants, not what it was assigned, so the loop has nothing of its own to swing with; what could
move traffic to and fro is noise at the edge of a capacity. Against that stands a band: a target is filled to the
middle of it. Only above its upper edge, the capacity, do requests leave; only when those that left would fit below its
lower edge do they come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from xds.assignment.assignment import WEIGHT_TOTAL
from xds.assignment.placement import (
    Flows,
    Rates,
    place,
    raised,
    turns,
)
from xds.assignment.policy import Policy
from xds.model.node import Locality

Shares = dict[Locality, float]

# By how much integer weights may miss a share, and so a load; what differs by less is equal.
TOLERANCE = 0.005
_EQUAL = 1.0 / WEIGHT_TOTAL
# An interval that a timer cut short by a little is an interval.
_WHOLE = 0.9


@dataclass(frozen=True, slots=True)
class Band:
    """The shares that are wanted of every source, and those at the edges of the band around them.

    ``ceilings`` are the loads above which requests must leave a target, ``overload`` is demand by capacity where that
    is above 1, else 1.
    """

    wanted: Mapping[Locality, Shares]
    edges: tuple[Mapping[Locality, Shares], Mapping[Locality, Shares]]
    ceilings: Rates
    overload: float

    def holds(self, source: Locality, shares: Shares, margin: float) -> bool:
        """Whether every share lies between the band's edges, give or take the margin.

        There is none for what no edge wants: all of it has room elsewhere for sure, and little would stay for ever.
        """
        sides = [side[source] for side in (*self.edges, self.wanted)]
        return all(
            _is_between(shares.get(name, 0.0), [side.get(name, 0.0) for side in sides], margin)
            for name in {*shares, *(name for side in sides for name in side)}
        )


def band(policy: Policy, demand: Rates, capacity: Rates, taken: Rates) -> Band:
    """Where demand should go. ``taken`` is the load of sources that cannot be moved now."""
    total = sum(demand.values())
    _, factor = raised(capacity, total, taken)
    order = turns(policy, demand, capacity)
    placed = [
        place(policy, demand, raised(_scaled(capacity, 1.0 - part * policy.hysteresis), total, taken)[0], order)
        for part in (0.5, 0.0, 1.0)
    ]
    middle, upper, lower = (_as_shares(flows, demand) for flows in placed)
    # With overload everywhere no edge is a capacity; the margin keeps noise between sources from moving traffic.
    slack = factor * (1.0 + policy.hysteresis) if factor > 1.0 else 1.0
    return Band(middle, (upper, lower), _scaled(capacity, slack), factor)


def loads(demand: Rates, shares: Mapping[Locality, Shares], taken: Rates | None = None) -> dict[Locality, float]:
    """What every target gets."""
    total: dict[Locality, float] = dict(taken or {})
    for source, rps in demand.items():
        for name, share in shares[source].items():
            total[name] = total.get(name, 0.0) + rps * share
    return total


def evacuated(shares: Shares, alive: Set[Locality], instead: Shares) -> Shares:
    """The shares without those of targets that are gone: these go, all at once, where ``instead`` has more."""
    kept = {name: share for name, share in shares.items() if name in alive}
    lost = 1.0 - sum(kept.values())
    if lost <= _EQUAL / 2:
        return kept
    missing = {name: share - kept.get(name, 0.0) for name, share in instead.items() if share > kept.get(name, 0.0)}
    total = sum(missing.values())
    return kept | {name: kept.get(name, 0.0) + lost * part / total for name, part in missing.items()}


def gap(shares: Shares, wanted: Shares) -> float:
    """The largest difference of a share."""
    return max((abs(shares.get(name, 0.0) - wanted.get(name, 0.0)) for name in {*shares, *wanted}), default=0.0)


def moved(shares: Shares, wanted: Shares, part: float) -> Shares:
    """The shares after a part of the way; all of it leaves nothing of what is not wanted."""
    if part >= 1.0:
        return dict(wanted)
    names = {*shares, *wanted}
    return {name: shares.get(name, 0.0) * (1.0 - part) + wanted.get(name, 0.0) * part for name in names}


def part_of_way(policy: Policy, gaps: Iterable[float]) -> float:
    """The part of their way that all who move go now: the one with the longest way sets the pace.

    As all go the same part, no target gets more on the way than at its beginning or its end.
    """
    longest = max(gaps, default=0.0)
    return min(1.0, policy.maximum_step / longest) if longest > policy.maximum_step + _EQUAL else 1.0


def is_pressed(shares: Shares, wanted: Shares, overloaded: Iterable[Locality]) -> bool:
    """Whether the source has to leave a target that is above its ceiling."""
    return any(shares.get(name, 0.0) > wanted.get(name, 0.0) + _EQUAL for name in overloaded)


def has_passed(since: float, span_s: float, now: float) -> bool:
    """Whether a time is over, near enough."""
    return now - since >= span_s * _WHOLE


def overloaded(band_: Band, now: Rates, wanted: Rates) -> tuple[Locality, ...]:
    """Targets above their ceiling that would get less by what is wanted."""
    return tuple(
        name
        for name, rps in now.items()
        if rps > band_.ceilings.get(name, 0.0) * (1.0 + TOLERANCE) and wanted.get(name, 0.0) < rps * (1.0 - _EQUAL)
    )


def _is_between(share: float, wanted: Sequence[float], margin: float) -> bool:
    least, most = min(wanted), max(wanted)
    return least - margin <= share <= (most + margin if most > _EQUAL else _EQUAL)


def _as_shares(flows: Flows, demand: Rates) -> dict[Locality, Shares]:
    return {source: {name: rps / demand[source] for name, rps in own.items()} for source, own in flows.items()}


def _scaled(capacity: Rates, factor: float) -> dict[Locality, float]:
    return {name: rps * factor for name, rps in capacity.items()}

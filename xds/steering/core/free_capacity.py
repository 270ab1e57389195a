"""The part of each target's capacity that stays free, so that noise and trends of its load seldom cause a change.

The load of a target changes with the demand of the sources that send to it. Noise of several sources partly cancels
out, so a target that many sources share needs less free capacity than the sum of their noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot

from xds.model.node import Locality
from xds.steering.core.assignment import UNKNOWN_VARIATION
from xds.steering.core.placement import Placement, Rates
from xds.steering.core.policy import Policy

# Parts of the band that stay free: the least, the least after a relief while load rises, and the most.
_LEAST_FREE, _RISING_FREE, _MOST_FREE = 0.1, 0.15, 0.5
# Free capacity at a target that requests return to, as a multiple of the noise of its load; and the same while its load
# falls by a trend.
_NOISE_FREE, _NOISE_FALLING = 1.5, 0.5
# Free capacity at a target that requests must leave, as a multiple of the variation of its sources' demand.
_NOISE_RELIEVED = 2.5
# A relief leaves room for a rise of this many intervals. With fewer, a day of two hours has more changes; with more,
# more requests leave their zone.
_RISE_INTERVALS = 8.0
# While load falls by a trend, its fall in this many intervals need not stay free now.
_FALL_INTERVALS = 3.0
# Free capacity while everything is full, as a multiple of noise: the least, up to a part of the capacity (the third
# figure), and the most, while as much demand fits nowhere. The requests of a target's own zone come before the requests
# of others, and their number is not known. Free capacity is lost to the source of the excess.
_LEAST_WHEN_FULL, _MOST_WHEN_FULL, _LIMIT_WHEN_FULL = 0.5, 1.5, 0.01
# Requests that leave a full target then exceed the capacity elsewhere. So requests leave a target only if its load
# exceeds its capacity by more than this multiple of noise, or by more than this part of the capacity.
_NOISE_TOLERATED, _MOST_TOLERATED = 2.0, 0.02

_Parts = Mapping[Locality, float]


@dataclass(frozen=True, slots=True)
class DemandChange:
    """How the demand of each source changes from one report to the next.

    ``variations`` are fractions of the demand, without the trend; a missing source has `UNKNOWN_VARIATION`. ``slopes``
    are requests a second, negative while demand falls; a missing source has no trend. ``is_full``:
    some demand fits nowhere, by its smoothed figures.
    """

    variations: Rates = field(default_factory=dict)
    slopes: Rates = field(default_factory=dict)
    is_full: bool = False


STEADY = DemandChange()  # no trend, and unknown noise


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Free parts of the capacity of each target.

    ``returned`` stays free at a target that requests return to, ``relieved`` at a target that requests must leave,
    ``when_full`` if demand does not fit otherwise. ``tolerated``: by how much a load may exceed the capacity; 0 unless
    everything is full.
    """

    returned: _Parts
    relieved: _Parts
    when_full: _Parts
    tolerated: _Parts


def free_capacity(
    policy: Policy, demand: Rates, capacity: Rates, full: Placement, change: DemandChange
) -> FreeCapacity:
    """Compute the free capacity of each target. ``full``: the placement that fills every target to its capacity."""
    noise = _noise(capacity, full, change)
    variation = _variation(capacity, full, change)
    rises = _rises(demand, capacity, full, change)
    unplaced = sum(full.surplus.values()) / sum(capacity.values())
    return FreeCapacity(
        {name: _free_for_return(policy, noise[name], rises[name]) for name in capacity},
        {name: _free_for_relief(policy, variation[name], rises[name]) for name in capacity},
        {name: _free_when_full(part, unplaced) for name, part in noise.items()},
        {
            name: min(_NOISE_TOLERATED * part, _MOST_TOLERATED) if change.is_full else 0.0
            for name, part in noise.items()
        },
    )


def _free_for_return(policy: Policy, noise: float, rise: float) -> float:
    free = min(max(_NOISE_FREE * noise, policy.hysteresis * _LEAST_FREE), policy.hysteresis * _MOST_FREE)
    return max(free + _FALL_INTERVALS * min(rise, 0.0), min(_NOISE_FALLING * noise, free))


def _free_for_relief(policy: Policy, variation: float, rise: float) -> float:
    free = max(_NOISE_RELIEVED * variation, policy.hysteresis * _RISING_FREE)
    return min(free + max(_RISE_INTERVALS * rise, 0.0), policy.hysteresis * _MOST_FREE)


def _free_when_full(noise: float, unplaced: float) -> float:
    return min(max(min(_LEAST_WHEN_FULL * noise, _LIMIT_WHEN_FULL), unplaced), _MOST_WHEN_FULL * noise)


def _noise(capacity: Rates, full: Placement, change: DemandChange) -> dict[Locality, float]:
    """The usual change of each target's load between two reports, as a part of its capacity."""
    noise = dict.fromkeys(capacity, 0.0)
    for source, flows in full.flows.items():
        variation = change.variations.get(source, UNKNOWN_VARIATION)
        for name, rps in flows.items():
            if capacity[name] > 0:
                noise[name] = hypot(noise[name], min(rps / capacity[name], 1.0) * variation)
    return noise


def _variation(capacity: Rates, full: Placement, change: DemandChange) -> dict[Locality, float]:
    """The mean variation of the sources that send to each target, weighted by their load."""
    loads, changes = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, 0.0)
    for source, flows in full.flows.items():
        for name, rps in flows.items():
            loads[name] += rps
            changes[name] += rps * change.variations.get(source, UNKNOWN_VARIATION)
    return {name: changes[name] / rps if rps > 0 else UNKNOWN_VARIATION for name, rps in loads.items()}


def _rises(demand: Rates, capacity: Rates, full: Placement, change: DemandChange) -> dict[Locality, float]:
    """The rise of each target's load in an interval, as a part of its capacity; negative for a fall."""
    rises = dict.fromkeys(capacity, 0.0)
    for source, flows in full.flows.items():
        slope = change.slopes.get(source, 0.0)
        for name, rps in flows.items():
            if slope and capacity[name] > 0:
                rises[name] += rps / demand[source] * slope / capacity[name]
    return rises

"""How many requests the proxies of each source drop, where the policy has the surplus shed at its source."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from xds.assignment.placement import Rates, Reachable, place, rank_targets
from xds.assignment.policy import Policy
from xds.model.node import Locality

# Fractions are whole percents, rounded up: each new one is pushed to all proxies of a source.
_STEPS = 100
_LARGEST = 0.99  # some requests must get through, or nobody would learn that there is room again


def shed_fractions(
    policy: Policy,
    demand: Rates,
    capacity: Rates,
    used: Rates,
    reachable: Reachable,
    before: Mapping[Locality, float],
) -> dict[Locality, float]:
    """The fraction of each source's requests that fit nowhere. ``before`` is what is dropped now.

    A fraction stays as it is while the new one differs by no more than ``minimum_change``, or two percents.
    """
    room = {name: max(rps - used.get(name, 0.0), 0.0) for name, rps in capacity.items()}
    ranked = rank_targets(policy, demand, capacity, reachable)
    surplus = place(policy, demand, room, ranked, capacity=capacity).surplus
    band = max(policy.minimum_change, 0.02)
    fractions = {}
    for source, rps in demand.items():
        wanted = surplus.get(source, 0.0) / rps
        now = before.get(source, 0.0)
        fraction = min(ceil(wanted * _STEPS - 1e-6) / _STEPS, _LARGEST)
        fractions[source] = now if now > 0 < wanted and abs(fraction - now) <= band else fraction
    return fractions

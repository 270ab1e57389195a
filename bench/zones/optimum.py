"""The optimum of an assignment that knows everything at once: a linear program.

It minimises requests above capacity first, then requests that leave their zone (cost 1) or region (cost 10). It needs
scipy (bench/requirements.txt); without it the figures of the optimum are nan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from math import nan
from typing import Any

from xds.model.node import Locality
from xds.steering.core.placement import Distance, distance

_ABOVE_COST, _REGION_COST, _ZONE_COST = 1_000.0, 10.0, 1.0


@dataclass(frozen=True, slots=True)
class Optimum:
    """Requests a second: above capacity, out of their zone, out of their region."""

    above: float
    away: float
    abroad: float


def optimum(demand: Mapping[Locality, float], capacity: Mapping[Locality, float]) -> Optimum:
    """The optimum of one moment; remembered, as moments repeat."""
    return _solved(tuple(sorted(demand.items(), key=str)), tuple(sorted(capacity.items(), key=str)))


@lru_cache(100_000)
def _solved(demand: tuple[tuple[Locality, float], ...], capacity: tuple[tuple[Locality, float], ...]) -> Optimum:
    if find_spec("scipy") is None:
        return Optimum(nan, nan, nan)
    linprog: Any = import_module("scipy.optimize").linprog
    sources, targets = [name for name, _ in demand], [name for name, _ in capacity]
    pairs = [(source, target) for source in sources for target in targets]
    count = len(pairs)
    costs = [_cost(*pair) for pair in pairs] + [_ABOVE_COST] * len(targets)
    leaves = [[float(pair[0] == source) for pair in pairs] + [0.0] * len(targets) for source in sources]
    fits = [
        [float(pair[1] == target) for pair in pairs] + [-float(other == target) for other in targets]
        for target in targets
    ]
    found = linprog(costs, A_ub=fits, b_ub=[rps for _, rps in capacity], A_eq=leaves, b_eq=[rps for _, rps in demand])
    flows = found.x
    away = sum(flows[at] for at, pair in enumerate(pairs) if distance(*pair) > Distance.ZONE)
    abroad = sum(flows[at] for at, pair in enumerate(pairs) if distance(*pair) > Distance.REGION)
    return Optimum(float(sum(flows[count:])), float(away), float(abroad))


def _cost(source: Locality, target: Locality) -> float:
    far = distance(source, target)
    return _REGION_COST if far > Distance.REGION else _ZONE_COST if far > Distance.ZONE else 0.0

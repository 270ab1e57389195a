"""The result of a control plane that knows the mean demand of each moment in advance, but not its random part.

It has no delay, decides anew each interval, and changes cost it nothing. So it is a bound for every control plane that
learns of demand from reports: where the product's cross-zone traffic is above the optimum of the linear program, this
shows how much of it cannot be avoided without knowing the future.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.zones.control import Allotments, Seen
from bench.zones.figures import Figures, figures
from bench.zones.fleet import Hosts
from bench.zones.run import run
from bench.zones.scenarios import Scenario
from xds.model.node import Locality
from xds.steering.core.assignment import WEIGHT_TOTAL, Allotment
from xds.steering.core.placement import place
from xds.steering.core.policy import Policy

_LEAST_FILL, _MOST_FILL, _BISECTIONS = 0.6, 1.1, 7


@dataclass(slots=True)
class Foresight:
    """Places the mean demand of the coming interval, with each target filled up to ``fill`` of its capacity."""

    policy: Policy
    scenario: Scenario
    fill: float
    _demand: Mapping[Locality, float]

    def decide(self, seen: Seen) -> tuple[Locality, ...]:
        """All sources may change."""
        self._demand = self.scenario.at(max(round(seen.now), 0)).demand
        return tuple(self._demand)

    def served(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> Allotments:
        """The split by the mean demand and the hosts of now."""
        capacity = {name: own.capacity_rps for name, own in hosts.items()}
        room = {name: rps * self.fill for name, rps in capacity.items()}
        demand = {name: max(rps, 1e-6) for name, rps in self._demand.items()}
        flows = place(self.policy, demand, room, capacity=capacity).flows[source]
        split = (Allotment(name, 0, round(WEIGHT_TOTAL * rps / demand[source])) for name, rps in flows.items())
        return tuple(one for one in split if one.weight)


def foreseen(scenario: Scenario, seed: int, above: float) -> Figures:
    """The run with the fewest requests out of their zone of those with no more than ``above`` above capacity.

    ``above`` is a part of all requests. Where none is as good, the run with the least filled targets.
    """
    least, most = _LEAST_FILL, _MOST_FILL
    best = _measured(scenario, seed, least)
    for _ in range(_BISECTIONS):
        fill = (least + most) / 2
        found = _measured(scenario, seed, fill)
        if found.above <= above:
            least, best = fill, found
        else:
            most = fill
    return best


def _measured(scenario: Scenario, seed: int, fill: float) -> Figures:
    return figures(run(scenario, seed, lambda policy: Foresight(policy, scenario, fill, {})))

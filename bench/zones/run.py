"""A scenario, run interval by interval: proxies send and report, the assignment follows, and is served a beat later."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random

from bench.zones.fleet import Hosts, Proxies, balanced
from bench.zones.scenarios import PROXIES, RATES, Moment, Scenario
from xds.assignment.assignment import (
    Allotment,
    Assignment,
    Observation,
    Target,
)
from xds.assignment.decide import decide
from xds.assignment.placement import Distance, distance, place, raise_capacity
from xds.assignment.policy import Policy
from xds.model.node import Locality

# How CPU grows with load: from an idle base to all of it at capacity.
IDLE_CPU, TARGET_CPU = 0.1, 0.8
# Slow noise: the part of it that an interval keeps of the one before.
_PERSISTENCE = 0.7

Shares = dict[Locality, float]


@dataclass(slots=True)
class Beat:
    """What happened in one interval.

    ``away`` is the part of requests that left their zone, ``least_away`` the least that had to; ``above`` the part that
    targets got above their capacity, ``least_above`` the least of that. ``alone`` is the load of the fullest zone, by
    its capacity, if every zone kept its own.
    """

    shares: Shares
    utilisation: dict[Locality, float]
    away: float
    least_away: float
    above: float
    least_above: float
    changed: tuple[Locality, ...]
    alone: float


@dataclass(slots=True)
class Run:
    """All intervals of a scenario."""

    scenario: Scenario
    interval_s: float
    beats: list[Beat] = field(default_factory=list)


def run(scenario: Scenario, proxies: int, seed: int) -> Run:
    """Run a scenario with so many proxies. Equal seeds give equal runs."""
    policy = Policy.parse({"cluster": "web", "capacity": RATES, **scenario.policy})
    return _World(scenario, policy, proxies, Random(f"{seed}/{scenario.name}")).run()


class _World:
    def __init__(self, scenario: Scenario, policy: Policy, proxies: int, random: Random) -> None:
        self.scenario, self.policy, self.random = scenario, policy, random
        total = sum(PROXIES.values())
        self.proxies = {
            source: Proxies(max(1, count * proxies // total), random, policy.interval_s)
            for source, count in PROXIES.items()
        }
        self.noise = dict.fromkeys(PROXIES, 0.0)
        self.health: deque[Mapping[Locality, Hosts]] = deque(maxlen=scenario.health_lag + 1)
        self.assignment: Assignment | None = None

    def run(self) -> Run:
        done = Run(self.scenario, self.policy.interval_s)
        # The hours before count for nothing: the fleet starts at rest.
        for index in range(-40, self.scenario.intervals):
            beat = self._beat(max(index, 0), 1_000_000.0 + index * self.policy.interval_s)
            if index >= 0:
                done.beats.append(beat)
        return done

    def _beat(self, index: int, now: float) -> Beat:
        moment = self.scenario.at(index)
        self.health.append(moment.hosts)
        issued = {
            source: own.issue(self._wanted(source, moment), now, is_silent=source in moment.silent)
            for source, own in self.proxies.items()
        }
        shares = {source: balanced(self._served(source, moment.hosts), moment.hosts) for source in issued}
        loads = dict.fromkeys(moment.hosts, 0.0)
        for source, rps in issued.items():
            for name, share in shares[source].items():
                loads[name] += rps * share
        decision = decide(self.policy, self._observed(moment, loads), self.assignment, now)
        self.assignment = decision.assignment
        changed = tuple(one.source for one in decision.sources if one.is_changed)
        return self._measured(moment, issued, shares, loads, changed)

    def _wanted(self, source: Locality, moment: Moment) -> float:
        part = self.scenario.noise * (1 - _PERSISTENCE**2) ** 0.5
        self.noise[source] = _PERSISTENCE * self.noise[source] + self.random.gauss(0.0, part)
        return moment.demand[source] * max(0.0, 1.0 + self.noise[source])

    def _served(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> tuple[Allotment, ...]:
        if self.assignment is None:
            return tuple(Allotment(name, 0, own.endpoints) for name, own in hosts.items())
        return self.assignment.sources[source].allotments

    def _observed(self, moment: Moment, loads: Mapping[Locality, float]) -> Observation:
        known = self.health[0]
        targets = {
            name: Target(
                own.endpoints, own.healthy, load_rps=loads[name], metrics=_cpu(moment.hosts[name], loads[name])
            )
            for name, own in known.items()
        }
        return Observation({source: own.demand() for source, own in self.proxies.items()}, targets)

    def _measured(
        self,
        moment: Moment,
        issued: Mapping[Locality, float],
        shares: Mapping[Locality, Shares],
        loads: Shares,
        changed: tuple[Locality, ...],
    ) -> Beat:
        usable = (TARGET_CPU - IDLE_CPU) / (1.0 - IDLE_CPU) if self.policy.capacity.metric else 1.0
        capacity = {name: own.capacity_rps * usable for name, own in moment.hosts.items()}
        total = sum(issued.values())
        room, _ = raise_capacity(capacity, total)
        best = place(self.policy, issued, room)
        above = sum(max(loads[name] - capacity[name], 0.0) for name in loads)
        return Beat(
            shares[self.scenario.shown],
            {name: loads[name] / capacity[name] if capacity[name] else 0.0 for name in loads},
            _away({source: {name: issued[source] * one for name, one in own.items()} for source, own in shares.items()})
            / total,
            _away(best) / total,
            above / total,
            max(0.0, total - sum(capacity.values())) / total,
            changed,
            max(rps / capacity[source] if capacity[source] else inf for source, rps in issued.items()),
        )


def _cpu(hosts: Hosts, load_rps: float) -> dict[str, float]:
    if not hosts.capacity_rps or not load_rps:
        return {}
    return {"cpu_utilization": min(1.0, IDLE_CPU + (1.0 - IDLE_CPU) * load_rps / hosts.capacity_rps)}


def _away(flows: Mapping[Locality, Shares]) -> float:
    return sum(
        rps for source, own in flows.items() for name, rps in own.items() if distance(source, name) > Distance.ZONE
    )

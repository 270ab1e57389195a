"""Control planes to compare: the product, a plain waterfall, and Envoy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bench.zones.fleet import Counts, Hosts
from xds.lrs.figures import attempted
from xds.model.node import Locality
from xds.steering.core.assignment import (
    WEIGHT_TOTAL,
    Allotment,
    Assignment,
    Demand,
    FlowRate,
    Observation,
    ObservedFlows,
    Target,
    scale_of_silence,
)
from xds.steering.core.decide import decide
from xds.steering.core.placement import Distance, distance, place
from xds.steering.core.policy import Policy

_EPOCH = 1_000_000.0
_NODES = 100  # of each source
_FILL = 0.95

Allotments = tuple[Allotment, ...]


@dataclass(slots=True)
class Seen:
    """What a control plane is told at ``now``: hosts, the rates of the latest reports, who reported when, and CPU.

    ``silent`` is the part of the proxies without a load stream, ``measured_from`` when the reports' interval began.
    """

    now: float
    hosts: Mapping[Locality, Hosts]
    rates: Counts
    reported: Mapping[Locality, float]
    cpu: Mapping[Locality, float]
    silent: float = 0.0
    measured_from: float = 0.0

    def attempted(self) -> dict[Locality, float]:
        """The requests a second of each source, with what was dropped."""
        return {source: self._attempted(source) for source in self.reported}

    def _attempted(self, source: Locality) -> float:
        issued = sum(rps for (one, _), rps in self.rates.issued.items() if one == source)
        errors = sum(rps for (one, _), rps in self.rates.errors.items() if one == source)
        return attempted(issued, issued - errors, errors, self.rates.dropped.get(source, 0.0))


class Control(Protocol):
    """Decides once an interval; ``served`` is what the proxies of a source get."""

    def decide(self, seen: Seen) -> tuple[Locality, ...]: ...

    def served(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> Allotments: ...


class Product:
    """`xds.steering.core.decide`, as the server calls it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.assignment: Assignment | None = None

    def decide(self, seen: Seen) -> tuple[Locality, ...]:
        """The sources whose allotments changed."""
        decision = decide(self.policy, observation(seen), self.assignment, _EPOCH + seen.now)
        self.assignment = decision.assignment
        return tuple(one.source for one in decision.sources if one.is_changed)

    def served(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> Allotments:
        """The allotments of the latest decision."""
        if self.assignment is None:
            return tuple(Allotment(name, 0, own.endpoints) for name, own in hosts.items())
        return self.assignment.sources[source].allotments


class Plain:
    """A waterfall to 95 % of each target's capacity, decided anew from each report, without memory."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._served: dict[Locality, Allotments] = {}

    def decide(self, seen: Seen) -> tuple[Locality, ...]:
        """The sources whose allotments changed."""
        capacity = {name: own.capacity_rps for name, own in seen.hosts.items()}
        room = {name: rps * _FILL for name, rps in capacity.items()}
        demand = {source: max(rps, 1e-6) for source, rps in _issued(seen).items()}
        flows = place(self.policy, demand, room, capacity=capacity).flows
        before, self._served = self._served, {}
        for source, own in flows.items():
            split = [Allotment(name, 0, round(WEIGHT_TOTAL * rps / demand[source])) for name, rps in own.items()]
            top = tuple(one for one in split if one.weight)
            used = {one.locality for one in top}
            self._served[source] = top + _behind(source, seen.hosts, used)
        return tuple(source for source, own in self._served.items() if before.get(source) != own)

    def served(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> Allotments:
        """The allotments of the latest decision."""
        return self._served[source]


class Envoys:
    """Envoy alone: its own zone, then its region, then the world, by the health that it sees."""

    def __init__(self, policy: Policy) -> None:
        pass

    def decide(self, seen: Seen) -> tuple[Locality, ...]:
        """Nothing ever changes."""
        return ()

    def served(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> Allotments:
        """All localities by distance."""
        return _behind(source, hosts, set(), 0)


def observation(seen: Seen) -> Observation:
    """What the server makes of reports."""
    silent = round(_NODES * seen.silent)
    scale = scale_of_silence(_NODES - silent, silent)
    flows: dict[Locality, dict[Locality, FlowRate]] = {}
    loads: dict[Locality, float] = {}
    for (source, name), rps in seen.rates.issued.items():
        if seen.reported[source] == seen.now:
            flows.setdefault(source, {})[name] = FlowRate(rps, seen.rates.errors.get((source, name), 0.0))
        loads[name] = loads.get(name, 0.0) + rps * scale
    demand = {
        source: Demand(rps * scale, _EPOCH + seen.reported[source], _NODES - silent, silent)
        for source, rps in seen.attempted().items()
    }
    targets = {
        name: Target(
            own.endpoints,
            own.healthy,
            load_rps=loads.get(name, 0.0),
            metrics={"cpu_utilization": seen.cpu[name]} if name in seen.cpu else {},
        )
        for name, own in seen.hosts.items()
    }
    return Observation(demand, targets, ObservedFlows(_EPOCH + seen.measured_from, 10.0, flows))


def _issued(seen: Seen) -> dict[Locality, float]:
    sums = dict.fromkeys(seen.reported, 0.0)
    for (source, _), rps in seen.rates.issued.items():
        sums[source] += rps
    return sums


def _behind(source: Locality, hosts: Mapping[Locality, Hosts], used: set[Locality], first: int = 1) -> Allotments:
    tiers: dict[int, list[Locality]] = {}
    for name in hosts:
        if name not in used:
            tiers.setdefault(max(distance(source, name), Distance.ZONE), []).append(name)
    return tuple(
        Allotment(name, first + number, max(1, hosts[name].endpoints))
        for number, key in enumerate(sorted(tiers))
        for name in tiers[key]
    )

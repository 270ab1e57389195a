"""What befalls a fleet: demand, capacity, health and reports over time, interval by interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import pi, sin
from typing import Any

from bench.zones.fleet import Hosts
from xds.model.node import Locality

A, B, C, US = Locality("eu", "a"), Locality("eu", "b"), Locality("eu", "c"), Locality("us", "a")
# How many proxies there are for each 3,000.
PROXIES: Mapping[Locality, int] = {A: 1_000, B: 1_000, C: 500, US: 500}
ENDPOINT_RPS = 100.0
HOUR = 360
RATES = {"rates": [{"per_endpoint_rps": ENDPOINT_RPS}]}
HOSTS: Mapping[Locality, int] = {A: 100, B: 100, C: 50, US: 100}


@dataclass(frozen=True, slots=True)
class Moment:
    """One interval: demand in requests a second, hosts as they are, and the sources whose reports do not arrive."""

    demand: Mapping[Locality, float]
    hosts: Mapping[Locality, Hosts]
    silent: frozenset[Locality] = frozenset()


@dataclass(frozen=True, slots=True)
class Scenario:
    """``events`` are the intervals at which something changes at once; ``shown`` is the source that the plot follows.

    ``health_lag`` is after how many intervals the control plane learns of the health that proxies see at once.
    """

    name: str
    title: str
    intervals: int
    at: Callable[[int], Moment]
    shown: Locality = A
    events: tuple[int, ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    noise: float = 0.03
    health_lag: int = 2


def hosts(
    healthy: Mapping[Locality, float] | None = None, rps: Mapping[Locality, float] | None = None
) -> dict[Locality, Hosts]:
    """The usual hosts; parts of them healthy, and what each takes, where that differs."""
    return {
        name: Hosts(count, round(count * (healthy or {}).get(name, 1.0)), (rps or {}).get(name, ENDPOINT_RPS))
        for name, count in HOSTS.items()
    }


def demand(**parts: float) -> dict[Locality, float]:
    """Demand as parts of a zone's own capacity; half of it where nothing is said."""
    names = {"a": A, "b": B, "c": C, "us": US}
    return {name: HOSTS[name] * ENDPOINT_RPS * parts.get(key, 0.5) for key, name in names.items()}


def _morning(index: int) -> Moment:
    return Moment(demand(a=0.4 + 1.2 * sin(pi * index / (3 * HOUR)) ** 2), hosts())


def _jump(index: int) -> Moment:
    return Moment(demand(a=1.6 if HOUR // 6 <= index < HOUR // 2 else 0.6), hosts())


def _zone_loss(index: int) -> Moment:
    return Moment(demand(b=0.7), hosts({B: 0.0 if 60 <= index < 180 else 1.0}))


def _capacity_halves(index: int) -> Moment:
    return Moment(demand(a=0.7), hosts(rps={A: ENDPOINT_RPS / 2 if 120 <= index < 300 else ENDPOINT_RPS}))


def _flapping(index: int) -> Moment:
    is_down = 30 <= index < 210 and index // 3 % 2 == 0
    return Moment(demand(b=0.7), hosts({B: 0.2 if is_down else 1.0}))


def _reports_missing(index: int) -> Moment:
    silent = 60 <= index < 72 or 120 <= index < 200
    return Moment(demand(a=1.3), hosts(), frozenset({A}) if silent else frozenset())


def _at_the_edge(index: int) -> Moment:
    return Moment(demand(a=0.98), hosts())


def _contention(index: int) -> Moment:
    is_high = 60 <= index < 240
    return Moment(demand(a=1.3 if is_high else 0.5, b=1.4 if is_high else 0.5, c=0.4, us=0.2), hosts())


def _overload(index: int) -> Moment:
    part = 1.4 if 60 <= index < 180 else 0.5
    return Moment(demand(a=part, b=part, c=part, us=0.9 if part > 1 else 0.5), hosts())


METRIC = {"capacity": {"metric": {"name": "cpu_utilization", "target": 0.8}}}

SCENARIOS = (
    Scenario("morning_rise", "Demand of eu/a rises to 160 % of its capacity and falls again", 3 * HOUR, _morning),
    Scenario("jump", "Demand of eu/a jumps to 160 % of its capacity and back", HOUR, _jump, events=(60, 180)),
    Scenario("zone_loss", "All endpoints of eu/b die and come back", HOUR, _zone_loss, B, (60, 180)),
    Scenario(
        "capacity_halves",
        "Endpoints of eu/a take half as much; capacity is learnt from CPU",
        HOUR + 60,
        _capacity_halves,
        events=(120, 300),
        policy=METRIC,
    ),
    Scenario("flapping_health", "80 % of eu/b's endpoints fail and recover, every 30 s", HOUR, _flapping, B),
    Scenario(
        "reports_missing",
        "No reports from eu/a for 2 min, later for 13 min",
        HOUR,
        _reports_missing,
        events=(60, 72, 120, 200),
    ),
    Scenario("contention", "eu/a and eu/b both spill into eu/c", HOUR, _contention, events=(60, 240)),
    Scenario("overload", "More demand than all capacity for 20 min", HOUR, _overload, events=(60, 180)),
    Scenario("at_the_edge", "Constant demand at 98 % of eu/a's capacity, with noise", 6 * HOUR, _at_the_edge),
)

"""Scenarios of a fleet of four zones: demand, capacity, health and reports over time, second by second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, pi, sin
from typing import Any

from bench.zones.fleet import Hosts
from xds.model.node import Locality

A, B, C, US = Locality("eu", "a"), Locality("eu", "b"), Locality("eu", "c"), Locality("us", "a")
ENDPOINT_RPS = 100.0
HOUR_S = 3_600
RATES = {"rates": [{"per_endpoint_rps": ENDPOINT_RPS}]}
HOSTS: Mapping[Locality, int] = {A: 100, B: 100, C: 50, US: 100}


@dataclass(frozen=True, slots=True)
class Moment:
    """One second: demand in requests, hosts as they are, and the sources whose reports do not arrive."""

    demand: Mapping[Locality, float]
    hosts: Mapping[Locality, Hosts]
    silent: frozenset[Locality] = frozenset()


@dataclass(frozen=True, slots=True)
class Scenario:
    """``events`` are the seconds at which something changes at once; ``shown`` is the source that the plot follows.

    ``health_lag_s`` is after how long the control plane learns of the health that proxies see at once, ``inf`` for
    never. ``report_lag_s``: how late reports are; ``delivery_s``: how late the proxies follow. ``silent``, ``frozen``:
    the parts of the proxies that never report, and that keep the weights of the first minute. ``breaks``: proxies drop
    what is above a target's capacity. ``retries``: they try once more what failed. ``scales_to``: an autoscaler keeps
    zones at this utilisation.
    """

    name: str
    title: str
    seconds: int
    at: Callable[[int], Moment]
    shown: Locality = A
    events: tuple[int, ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    noise: float = 0.03
    health_lag_s: float = 20.0
    report_lag_s: int = 10
    delivery_s: int = 1
    silent: float = 0.0
    frozen: float = 0.0
    breaks: bool = False
    retries: bool = False
    scales_to: float = 0.0


NEVER_TOLD = inf


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


def _morning(second: int) -> Moment:
    return Moment(demand(a=0.4 + 1.2 * sin(pi * second / (3 * HOUR_S)) ** 2), hosts())


def _jump(second: int) -> Moment:
    return Moment(demand(a=1.6 if 600 <= second < 1_800 else 0.6), hosts())


def _zone_loss(second: int) -> Moment:
    return Moment(demand(b=0.7), hosts({B: 0.0 if 600 <= second < 1_800 else 1.0}))


def _capacity_halves(second: int) -> Moment:
    return Moment(demand(a=0.7), hosts(rps={A: ENDPOINT_RPS / 2 if 1_200 <= second < 3_000 else ENDPOINT_RPS}))


def _flapping(second: int) -> Moment:
    is_down = 300 <= second < 2_100 and second // 30 % 2 == 0
    return Moment(demand(b=0.7), hosts({B: 0.2 if is_down else 1.0}))


def _reports_missing(second: int) -> Moment:
    silent = 600 <= second < 720 or 1_200 <= second < 2_000
    return Moment(demand(a=1.3), hosts(), frozenset({A}) if silent else frozenset())


def _at_the_edge(second: int) -> Moment:
    return Moment(demand(a=0.98), hosts())


def _contention(second: int) -> Moment:
    is_high = 600 <= second < 2_400
    return Moment(demand(a=1.3 if is_high else 0.5, b=1.4 if is_high else 0.5, c=0.4, us=0.2), hosts())


def _overload(second: int) -> Moment:
    part = 1.4 if 600 <= second < 1_800 else 0.5
    return Moment(demand(a=part, b=part, c=part, us=0.9 if part > 1 else 0.5), hosts())


METRIC = {"capacity": {"metric": {"name": "cpu_utilization", "target": 0.8}}}

FOUR_ZONES = (
    Scenario("morning_rise", "Demand of eu/a rises to 160 % of its capacity and falls again", 3 * HOUR_S, _morning),
    Scenario("jump", "Demand of eu/a jumps to 160 % of its capacity and back", HOUR_S, _jump, events=(600, 1_800)),
    Scenario("zone_loss", "All endpoints of eu/b die and come back", HOUR_S, _zone_loss, B, (600, 1_800)),
    Scenario(
        "capacity_halves",
        "Endpoints of eu/a take half as much; capacity is learnt from CPU",
        HOUR_S + 600,
        _capacity_halves,
        events=(1_200, 3_000),
        policy=METRIC,
    ),
    Scenario("flapping_health", "80 % of eu/b's endpoints fail and recover, every 30 s", HOUR_S, _flapping, B),
    Scenario(
        "reports_missing",
        "No reports from eu/a for 2 min, later for 13 min",
        HOUR_S,
        _reports_missing,
        events=(600, 720, 1_200, 2_000),
    ),
    Scenario("contention", "eu/a and eu/b both spill into eu/c", HOUR_S, _contention, events=(600, 2_400)),
    Scenario("overload", "More demand than all capacity for 20 min", HOUR_S, _overload, events=(600, 1_800)),
    Scenario("at_the_edge", "Constant demand at 98 % of eu/a's capacity, with noise", 6 * HOUR_S, _at_the_edge),
)

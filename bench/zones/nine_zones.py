"""Scenarios of a fleet of nine zones, three in each region: the hard cases, with little information for the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import cos, pi
from typing import Any

from bench.zones.fleet import Hosts
from bench.zones.scenarios import ENDPOINT_RPS, HOUR_S, NEVER_TOLD, Moment, Scenario
from xds.model.node import Locality

REGIONS, ENDPOINTS = ("eu", "us", "ap"), {"a": 30, "b": 20, "c": 10}
ZONES = tuple(Locality(region, zone) for region in REGIONS for zone in ENDPOINTS)
EU_A, EU_B, EU_C = ZONES[:3]
CALM_S = 300
_NO_NOISE = 0.01

Parts = Callable[[int], Mapping[Locality, float]]


def _capacity(zone: Locality) -> float:
    return ENDPOINTS[zone.zone] * ENDPOINT_RPS


def _hosts(dead: Locality | None = None, slow: Locality | None = None) -> dict[Locality, Hosts]:
    return {
        zone: Hosts(
            ENDPOINTS[zone.zone],
            0 if zone == dead else ENDPOINTS[zone.zone],
            ENDPOINT_RPS / 2 if zone == slow else ENDPOINT_RPS,
        )
        for zone in ZONES
    }


def _moment(parts: Mapping[Locality, float], base: float = 0.5, **hosts: Locality | None) -> Moment:
    return Moment({zone: _capacity(zone) * parts.get(zone, base) for zone in ZONES}, _hosts(**hosts))


def _within(second: int, begin: int, end: int) -> bool:
    return begin <= second < end


def _ramp(second: int) -> Moment:
    part = 0.4 + 1.2 * (1 - abs(second - 1_200) / 1_200) if second < 2_400 else 0.4
    return _moment({EU_A: part})


def _flash_zone(second: int) -> Moment:
    return _moment({EU_A: 2.5 if _within(second, CALM_S, 900) else 0.25})


def _flash_region(second: int) -> Moment:
    part = 2.0 if _within(second, CALM_S, 900) else 0.2
    return _moment({EU_A: part, EU_B: part, EU_C: part})


def _day(second: int) -> Moment:
    """Two hours are a day; the regions have theirs one after the other."""
    phases = {region: index / len(REGIONS) for index, region in enumerate(REGIONS)}
    parts = {zone: 0.75 - 0.55 * cos(2 * pi * (second / 7_200 - phases[zone.region])) for zone in ZONES}
    return _moment(parts)


def _zone_dies(split: bool) -> Callable[[int], Moment]:
    def at(second: int) -> Moment:
        dead = EU_A if _within(second, 600, 1_500) else None
        return _moment({EU_A: 1.35, EU_B: 0.5, EU_C: 0.5} if split else {EU_A: 0.6}, dead=dead)

    return at


def _split_dies(second: int) -> Moment:
    """eu/a spills into eu/b and eu/c; then eu/b dies, and only the proxies know."""
    return _moment({EU_A: 1.4, EU_B: 0.5, EU_C: 0.3}, dead=EU_B if _within(second, 600, 1_500) else None)


def _all_full(second: int) -> Moment:
    return _moment({}, base=1.5 if second >= CALM_S else 0.5)


def _flood(second: int) -> Moment:
    part = 5.0 if second >= CALM_S else 0.5
    return _moment({EU_A: part, EU_B: part, EU_C: part})


def _one_source(second: int) -> Moment:
    total = sum(map(_capacity, ZONES)) * 0.7
    return Moment({zone: total * (0.95 if zone == EU_A else 0.05 / 8) for zone in ZONES}, _hosts())


def _square(period_s: int) -> Callable[[int], Moment]:
    return lambda second: _moment({EU_A: 1.3 if second // (period_s // 2) % 2 else 0.6})


def _high(part: float, begin: int = CALM_S) -> Callable[[int], Moment]:
    return lambda second: _moment({EU_A: part if second >= begin else 0.5})


def _flash_to(part: float) -> Callable[[int], Moment]:
    return lambda second: _moment({EU_A: part if _within(second, CALM_S, 1_500) else 0.5})


def _slow(second: int) -> Moment:
    return _moment({EU_A: 0.8}, slow=EU_A if second >= CALM_S else None)


def _quiet(rps: float) -> Callable[[int], Moment]:
    return lambda second: Moment(dict.fromkeys(ZONES, rps), _hosts())


def _tiny(second: int) -> Moment:
    """Zones of one endpoint of two requests a second."""
    hosts = {zone: Hosts(1, 1, 2.0) for zone in ZONES}
    return Moment({zone: 1.9 if zone == EU_A else 0.5 for zone in ZONES}, hosts)


_TINY = {"capacity": {"rates": [{"per_endpoint_rps": 2}]}}


def _scenario(name: str, title: str, seconds: int, at: Callable[[int], Moment], **fields: Any) -> Scenario:
    return Scenario(name, title, seconds, at, **{"shown": EU_A, "noise": _NO_NOISE, **fields})


NINE_ZONES = (
    _scenario("ramp", "eu/a from 40 % to 160 % of its capacity and back, 40 min", 2_700, _ramp),
    _scenario("flash_zone", "Demand of eu/a ten times as high for 10 min", 1_800, _flash_zone, events=(300, 900)),
    _scenario("flash_region", "Demand of all of eu ten times as high", 1_800, _flash_region, events=(300, 900)),
    _scenario("day", "Three regions' day, peaks of 130 %; two hours are a day", 2 * HOUR_S, _day),
    _scenario("zone_dies_told", "eu/a dies; the server is told", 2_100, _zone_dies(False), events=(600,)),
    _scenario(
        "zone_dies_untold",
        "eu/a dies; only the proxies know",
        2_100,
        _zone_dies(False),
        events=(600,),
        health_lag_s=NEVER_TOLD,
    ),
    _scenario(
        "split_dies_untold",
        "eu/a spills into eu/b, which dies; only the proxies know",
        2_100,
        _split_dies,
        events=(600,),
        health_lag_s=NEVER_TOLD,
    ),
    _scenario("all_full", "All zones at 150 %", 1_800, _all_full, events=(300,)),
    _scenario("flood", "eu at 500 %, us and ap at 50 %", 1_800, _flood, events=(300,)),
    _scenario("one_source", "eu/a has 95 % of all demand, 70 % of all capacity", 1_800, _one_source),
    _scenario("square_60", "eu/a at 60 % and 130 % in turn, every 30 s", HOUR_S, _square(60)),
    _scenario("square_240", "eu/a at 60 % and 130 % in turn, every 2 min", HOUR_S, _square(240)),
    _scenario("late_reports", "eu/a jumps to 180 %, reports are 30 s late", 2_100, _flash_to(1.8), report_lag_s=30),
    _scenario(
        "old_weights", "Half of the proxies keep their first weights; eu/a at 150 %", 1_800, _high(1.5), frozen=0.5
    ),
    _scenario("silent_5", "5 % of the proxies never report; eu/a at 150 %", 1_800, _high(1.5), silent=0.05),
    _scenario("silent_30", "30 % of the proxies never report; eu/a at 150 %", 1_800, _high(1.5), silent=0.3),
    _scenario("silent_50", "Half of the proxies never report; eu/a at 130 %", 1_800, _high(1.3), silent=0.5),
    _scenario("slow", "Endpoints of eu/a serve half of their fixed rate", 1_800, _slow, events=(300,)),
    _scenario("slow_retried", "The same, and what fails is tried again", 1_800, _slow, events=(300,), retries=True),
    _scenario(
        "slow_errors",
        "The same, with errors_above",
        1_800,
        _slow,
        events=(300,),
        policy={"errors_above": 0.2},
    ),
    _scenario("breaker", "eu/a at 150 %; circuit breakers drop the excess", 1_800, _high(1.5), breaks=True),
    _scenario("scaled_flash", "An autoscaler at 70 %; eu/a jumps to 200 %", 2_100, _flash_to(2.0), scales_to=0.7),
    _scenario("scaled_day", "An autoscaler at 70 %; three regions' day", 2 * HOUR_S, _day, scales_to=0.7),
    _scenario("quiet", "One request a second from each zone", 1_800, _quiet(1.0), noise=0.0),
    _scenario("tiny", "Zones of one endpoint: 1.9 of 2 requests a second", HOUR_S, _tiny, policy=_TINY, noise=0.0),
)

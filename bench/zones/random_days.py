"""Random days: random fleets, demand and faults, to see whether a control plane ever oscillates.

A day has quiet stretches between events. A change in the last part of such a stretch, long after the event, has no
cause and no use: a control plane that comes to rest changes next to nothing there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, pi, sin
from random import Random

from bench.zones.fleet import Hosts
from bench.zones.run import INTERVAL_S, Run
from bench.zones.scenarios import Moment, Scenario
from xds.model.node import Locality

REGIONS, ZONES = ("ap", "eu", "us"), ("a", "b", "c")
LEAST_STRETCH_S, MOST_STRETCH_S = 900, 3_600
# So long after an event nothing should change any more.
CALMED_S = 600
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Stretch:
    """What holds from an event to the next: demand and healthy endpoints as parts of all, by zone."""

    begin: int
    demand: Mapping[Locality, float]
    healthy: Mapping[Locality, float]


class Day:
    """One day by chance; equal seeds give equal days."""

    def __init__(self, seed: int, seconds: int) -> None:
        self.seconds = seconds
        self.random = Random(f"day {seed}")
        chance = self.random
        regions = chance.sample(REGIONS, chance.randint(1, 3))
        zones = [Locality(region, zone) for region in regions for zone in ZONES[: chance.randint(1, 3)]]
        self.zones = zones if len(zones) > 1 else [zones[0], Locality(regions[0], "z")]
        size = chance.choice([4, 20, 100])
        self.endpoints = {zone: round(size * chance.choice([0.5, 1.0, 1.0, 2.0])) for zone in self.zones}
        self.endpoint_rps = chance.choice([5.0, 50.0, 500.0])
        self.tide = chance.choice([0.0, 0.0, 0.3])  # of a day that takes two hours, region by region
        self.stretches = self._stretches()
        self._begins = [one.begin for one in self.stretches]

    def _stretches(self) -> list[Stretch]:
        chance, begin = self.random, 0
        demand = {zone: chance.uniform(0.2, 0.75) for zone in self.zones}
        healthy = dict.fromkeys(self.zones, 1.0)
        found = [Stretch(0, demand, healthy)]
        while True:
            begin += chance.randrange(LEAST_STRETCH_S, MOST_STRETCH_S, 10)
            if begin >= self.seconds:
                return found
            zone = chance.choice(self.zones)
            if chance.random() < 0.7:
                demand = {**demand, zone: chance.choice([0.1, 0.4, 0.7, 0.95, 1.2, 1.6])}
            else:
                healthy = {**healthy, zone: 1.0 if healthy[zone] < 1.0 else chance.choice([0.0, 0.1, 0.5, 0.8])}
            found.append(Stretch(begin, demand, healthy))

    def at(self, second: int) -> Moment:
        """What holds at a second."""
        number = bisect_right(self._begins, max(second, 0)) - 1
        hosts = self._hosts(number)
        own = self.stretches[number].demand
        return Moment({zone: own[zone] * self._tide(zone, second) * self._full_rps(zone) for zone in self.zones}, hosts)

    def _full_rps(self, zone: Locality) -> float:
        return self.endpoints[zone] * self.endpoint_rps

    def _tide(self, zone: Locality, second: int) -> float:
        return 1.0 + self.tide * sin(2 * pi * (second / 7_200 + REGIONS.index(zone.region) / len(REGIONS)))

    @lru_cache(256)  # noqa: B019 - a day lives as long as its run
    def _hosts(self, number: int) -> dict[Locality, Hosts]:
        parts = self.stretches[number].healthy
        return {
            zone: Hosts(count, round(count * parts[zone]), self.endpoint_rps) for zone, count in self.endpoints.items()
        }


def random_day(seed: int, seconds: int = _DAY_S, *, told: bool = False) -> tuple[Scenario, Day]:
    """A scenario by chance, and the day behind it.

    ``told``: all proxies report, do what was decided and drop nothing, and the server learns of health.
    """
    day = Day(seed, seconds)
    chance = day.random
    scenario = Scenario(
        f"day_{seed}",
        "A day by chance",
        seconds,
        day.at,
        day.zones[0],
        tuple(one.begin for one in day.stretches[1:]),
        {
            "capacity": {"rates": [{"per_endpoint_rps": day.endpoint_rps}]},
            "strategy": chance.choice(["waterfall_by_zone"] * 3 + ["waterfall_by_region", "spray_to_region"]),
        },
        noise=chance.choice([0.0, 0.01, 0.03, 0.05]),
        report_lag_s=chance.choice([5, 10, 10, 25]),
    )
    if not told:
        scenario = replace(
            scenario,
            health_lag_s=chance.choice([5.0, 20.0, 20.0, inf]),
            silent=chance.choice([0.0, 0.0, 0.1, 0.4]),
            frozen=chance.choice([0.0, 0.0, 0.0, 0.2]),
            breaks=chance.random() < 0.2,
            delivery_s=chance.choice([1, 1, 5, 25]),
        )
    return scenario, day


def changes_at_rest(found: Run, day: Day) -> float:
    """The changes an hour, long after the event before, of the source that changed most then."""
    ends = [*(one.begin for one in day.stretches[1:]), day.seconds]
    rest = [
        beat.changed
        for stretch, end in zip(day.stretches, ends, strict=True)
        for beat in found.beats[(stretch.begin + CALMED_S) // INTERVAL_S : end // INTERVAL_S]
    ]
    counts = Counter(source for changed in rest for source in changed)
    return max(counts.values(), default=0) * 3_600 / (len(rest) * INTERVAL_S) if rest else 0.0

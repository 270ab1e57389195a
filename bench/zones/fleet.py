"""Proxies as the control plane sees them, and as they balance: what they report, and where they send requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random

from xds.assignment.assignment import Allotment, Demand
from xds.model.node import Locality

# Envoy's overprovisioning factor: a locality or priority counts as whole with 72 % of its endpoints healthy.
OVERPROVISIONING = 1.4
# How unequal proxies are (sigma of a log-normal distribution), and how many reports miss their interval.
SPREAD = 0.8
LATE = 0.03


@dataclass(frozen=True, slots=True)
class Hosts:
    """The endpoints of a locality, as they are."""

    endpoints: int
    healthy: int
    endpoint_rps: float

    @property
    def capacity_rps(self) -> float:
        return self.healthy * self.endpoint_rps

    @property
    def availability(self) -> float:
        return min(1.0, OVERPROVISIONING * self.healthy / self.endpoints) if self.endpoints else 0.0


class Proxies:
    """The proxies of one source locality. Each has its own rate, and reports it once an interval or a little later."""

    def __init__(self, count: int, random: Random, interval_s: float) -> None:
        rates = [random.lognormvariate(0.0, SPREAD) for _ in range(count)]
        total = sum(rates)
        self._parts = [rate / total for rate in rates]
        self._random = random
        self._interval_s = interval_s
        self._reported = [0.0] * count
        self._kept: dict[int, tuple[float, int]] = {}
        self._reported_at: float | None = None

    def issue(self, rps: float, now: float, *, is_silent: bool) -> float:
        """An interval's requests a second, as they come by chance; most proxies report theirs."""
        gauss, chance = self._random.gauss, self._random.random
        issued = 0.0
        for index, part in enumerate(self._parts):
            mean = rps * part * self._interval_s
            count = max(0.0, gauss(mean, mean**0.5))
            issued += count
            if is_silent or chance() < LATE or index in self._kept:
                count = self._keep(index, count, is_silent)
                if count < 0:
                    continue
            self._reported[index] = count / self._interval_s
        if not is_silent:
            self._reported_at = now
        return issued / self._interval_s

    def _keep(self, index: int, count: float, is_silent: bool) -> float:
        """A late report tells of all that came since the last one, over the interval that this was; -1: not yet."""
        kept, intervals = self._kept.pop(index, (0.0, 0))
        if not intervals or is_silent:
            self._kept[index] = (kept + count, intervals + 1)
            return -1.0
        return (kept + count) / (intervals + 1)

    def demand(self) -> Demand:
        """What the reports say: the latest of each proxy."""
        return Demand(sum(self._reported), self._reported_at, len(self._parts))


def balanced(allotments: Sequence[Allotment], hosts: Mapping[Locality, Hosts]) -> dict[Locality, float]:
    """Where an Envoy sends its requests, from what it knows of health itself: priorities, then weights.

    With everything dead it panics and uses all: told as the shares by weight of priority 0.
    """
    tiers = [list(tier) for _, tier in groupby(allotments, key=lambda one: one.priority)]
    health = [_health(tier, hosts) for tier in tiers]
    total = min(1.0, sum(health))
    if not total:
        return _within(tiers[0], {one.locality: float(one.weight) for one in tiers[0]})
    shares: dict[Locality, float] = {}
    left = 1.0
    for tier, own in zip(tiers, health, strict=True):
        part = min(left, own / total)
        left -= part
        weights = {one.locality: one.weight * hosts[one.locality].availability for one in tier}
        for name, share in _within(tier, weights).items():
            if part:
                shares[name] = shares.get(name, 0.0) + part * share
    return shares


def _health(tier: Sequence[Allotment], hosts: Mapping[Locality, Hosts]) -> float:
    endpoints = sum(hosts[one.locality].endpoints for one in tier)
    healthy = sum(hosts[one.locality].healthy for one in tier)
    return min(1.0, OVERPROVISIONING * healthy / endpoints) if endpoints else 0.0


def _within(tier: Sequence[Allotment], weights: Mapping[Locality, float]) -> dict[Locality, float]:
    total = sum(weights.values())
    return {one.locality: weights[one.locality] / total for one in tier if weights[one.locality]} if total else {}

"""Proxies as the control plane sees them, and as they balance: what they report, and where they send requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from xds.model.node import Locality
from xds.steering.core.assignment import Allotment

# Envoy's overprovisioning factor: a locality or priority counts as whole with 72 % of its endpoints healthy.
OVERPROVISIONING = 1.4

Key = TypeVar("Key")
Pair = tuple[Locality, Locality]  # source and target


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


@dataclass(slots=True)
class Counts:
    """What the proxies count in a second: requests issued and failed by source and target, dropped by source."""

    issued: dict[Pair, float] = field(default_factory=dict)
    errors: dict[Pair, float] = field(default_factory=dict)
    dropped: dict[Locality, float] = field(default_factory=dict)


class Reports:
    """Load reports of all proxies: each covers ``interval_s``, and is there ``lag_s`` after its end.

    ``silent`` is the part of the proxies of each source that never report.
    """

    def __init__(self, interval_s: int, lag_s: int, silent: float) -> None:
        self.interval_s, self.lag_s, self.silent = interval_s, lag_s, silent
        self._seconds: deque[Counts] = deque(maxlen=interval_s + lag_s)

    def add(self, counts: Counts) -> None:
        """A second is over."""
        self._seconds.append(counts)

    def rates(self) -> Counts:
        """What the latest reports say, a second."""
        told = list(self._seconds)[: self.interval_s]
        part = (1.0 - self.silent) / max(len(told), 1)
        return Counts(
            _scaled([one.issued for one in told], part),
            _scaled([one.errors for one in told], part),
            _scaled([one.dropped for one in told], part),
        )


def _scaled(counts: Sequence[Mapping[Key, float]], part: float) -> dict[Key, float]:
    sums: dict[Key, float] = {}
    for one in counts:
        for key, count in one.items():
            sums[key] = sums.get(key, 0.0) + count * part
    return sums


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

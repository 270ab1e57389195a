"""Traffic assignment policies: the settings of an operator for the traffic of one cluster.

The four strategies, capacity draining and preferred backends have the names and meanings of Google's Cloud Service
Mesh. This server adds demand from load reports and bounds on every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from xds.model.node import Locality


class Strategy(StrEnum):
    """Where the requests of a source locality go while there is capacity.

    ``WATERFALL_BY_ZONE``: its own zone until that is full, then its region, then other regions.
    ``WATERFALL_BY_REGION``: all zones of its region to the same utilisation, with as few requests as possible leaving
    their zone; then other regions. ``SPRAY_TO_REGION``: all zones of its region in proportion to capacity; then other
    regions. ``SPRAY_TO_WORLD``: all localities in proportion to capacity.
    """

    WATERFALL_BY_ZONE = "waterfall_by_zone"
    WATERFALL_BY_REGION = "waterfall_by_region"
    SPRAY_TO_REGION = "spray_to_region"
    SPRAY_TO_WORLD = "spray_to_world"


@dataclass(frozen=True, slots=True)
class LocalityPattern:
    """Selects localities by their parts. An empty part matches any: ``region="eu"`` selects every zone of ``eu``."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def matches(self, locality: Locality) -> bool:
        """Whether every part of the pattern is empty or equals the part of the locality."""
        return (
            self.region in ("", locality.region)
            and self.zone in ("", locality.zone)
            and self.sub_zone in ("", locality.sub_zone)
        )


@dataclass(frozen=True, slots=True)
class Rate:
    """The capacity of localities in requests a second. Exactly one of the two rates is given.

    ``per_locality_rps`` applies while all endpoints are healthy. With half of them healthy, capacity is half of it.
    """

    per_endpoint_rps: float | None = None
    per_locality_rps: float | None = None
    localities: LocalityPattern = LocalityPattern()


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """Capacity learnt from a metric of load reports: a locality is full when the metric's average is ``target``.

    ``name`` is as in load reports: one of the three utilisations, or a named metric as the client spells it.
    """

    name: str
    target: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of localities: the first of ``rates`` that matches a locality applies to it.

    With a ``metric``, rates apply until the metric has been measured. A locality that no rate matches gets no share of
    the traffic; it only serves as failover. Of several ``metrics`` the one with the least capacity counts. The document
    has ``metric`` for one of them and ``metrics`` for several.
    """

    rates: tuple[Rate, ...] = ()
    metrics: tuple[MetricTarget, ...] = ()

    @property
    def metric(self) -> MetricTarget | None:
        """The first metric; None if capacity is given by rates only."""
        return self.metrics[0] if self.metrics else None


@dataclass(frozen=True, slots=True)
class CapacityScaler:
    """A factor of the capacity of localities, between 0 and 1. With 0 they get no share of the traffic."""

    factor: float
    localities: LocalityPattern = LocalityPattern()


class Reach(StrEnum):
    """How far requests may spill: within their zone, within their region, or anywhere."""

    ZONE = "zone"
    REGION = "region"
    WORLD = "world"


@dataclass(frozen=True, slots=True)
class SpillLimits:
    """How many requests may leave a source's zone, and how far.

    ``at_most``: the largest fraction of a source's requests that leaves its zone. Requests that may not spill,
    and requests that fit nowhere, stay at the source. With ``shed`` the proxies drop those above the capacity there.
    """

    within: Reach = Reach.WORLD
    at_most: float = 1.0
    shed: bool = False


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """When a locality drains. It gets no share from less than ``below`` healthy endpoints until ``restore`` of them.

    Both are fractions. The defaults, 25 % and 35 %, are those of Cloud Service Mesh. ``below`` 0 turns draining off.
    """

    below: float = 0.25
    restore: float = 0.35


@dataclass(frozen=True, slots=True)
class TargetOrder:
    """Which of equally distant targets the sources that match ``source`` fill first. Unlisted targets come last."""

    source: LocalityPattern
    targets: tuple[LocalityPattern, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of one cluster. Shares are fractions of a source's requests, times are seconds.

    Reasons for the defaults:

    - ``minimum_change`` (2 %): a smaller change is not worth a push to all proxies of a zone.
    - ``maximum_step`` (25 %): a whole zone moves in four intervals. Receivers have time to open connections and scale.
    - ``hysteresis`` (10 %): wider than the noise of counting a hundred requests in ten seconds.
    - ``dwell_s``: three intervals. Traffic that left its zone returns after the peak, not between two of its waves.
    - ``stale_after_s``: three intervals. One report may be late; a reconnect may lose two.
    - ``fallback_after_s`` (5 min): longer than a restart of the server or a network failure. The pushed weights are
      right only for a fleet whose demand is unknown.

    ``standby`` localities get no share while another locality has capacity. A locality that answers a source with more
    than ``errors_above`` errors, as a fraction of its requests, has no capacity for that source for a while. Capacity
    given by rates is used up to ``target_utilisation``.
    """

    cluster: str
    capacity: Capacity
    strategy: Strategy = Strategy.WATERFALL_BY_ZONE
    preferred: tuple[LocalityPattern, ...] = ()
    order: tuple[TargetOrder, ...] = ()
    drain: DrainLimits = DrainLimits()
    spill: SpillLimits = SpillLimits()
    standby: tuple[LocalityPattern, ...] = ()
    capacity_scaler: tuple[CapacityScaler, ...] = ()
    target_utilisation: float = 1.0
    errors_above: float | None = None
    minimum_change: float = 0.02
    maximum_step: float = 0.25
    hysteresis: float = 0.1
    interval_s: float = 10.0
    dwell_s: float = 30.0
    stale_after_s: float = 30.0
    fallback_after_s: float = 300.0

    def is_preferred(self, target: Locality) -> bool:
        """Whether the target is filled before all others, at any distance."""
        return any(pattern.matches(target) for pattern in self.preferred)

    def is_standby(self, target: Locality) -> bool:
        """Whether the target gets no share while another one has capacity."""
        return any(pattern.matches(target) for pattern in self.standby)

    def scale(self, target: Locality) -> float:
        """The usable part of the target's capacity, 0 to 1. The first scaler that matches applies."""
        return next((one.factor for one in self.capacity_scaler if one.localities.matches(target)), 1.0)

    def rate(self, target: Locality) -> Rate | None:
        """The rate that applies to the target; None if no rate matches."""
        return next((rate for rate in self.capacity.rates if rate.localities.matches(target)), None)

"""What an operator wants of traffic assignment for one cluster.

The strategies are those of Google's Cloud Service Mesh, whose operators know them by these names; capacity draining
and preferred backends likewise. What is added: figures from load reports, and every step bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from xds.model.node import Locality


class Strategy(StrEnum):
    """Where the requests of a source go while there is room.

    ``WATERFALL_BY_ZONE``: its own zone until that is full, then its region, then the others. ``WATERFALL_BY_REGION``:
    all zones of its region are loaded alike, with as few requests as possible leaving their zone; then the others.
    ``SPRAY_TO_REGION``: every source uses all zones of its region, by capacity; then the others. ``SPRAY_TO_WORLD``:
    every source uses all localities, by capacity.
    """

    WATERFALL_BY_ZONE = "waterfall_by_zone"
    WATERFALL_BY_REGION = "waterfall_by_region"
    SPRAY_TO_REGION = "spray_to_region"
    SPRAY_TO_WORLD = "spray_to_world"


@dataclass(frozen=True, slots=True)
class LocalityPattern:
    """Localities by their parts; an empty part matches any, so ``region="eu"`` is all of its zones."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""

    def matches(self, locality: Locality) -> bool:
        """Whether every part that is given is that of the locality."""
        return (
            self.region in ("", locality.region)
            and self.zone in ("", locality.zone)
            and self.sub_zone in ("", locality.sub_zone)
        )


@dataclass(frozen=True, slots=True)
class Rate:
    """What localities can take, in requests a second; of the two fields one is given.

    ``per_locality_rps`` is meant with all endpoints healthy: with half of them it is half of that.
    """

    per_endpoint_rps: float | None = None
    per_locality_rps: float | None = None
    localities: LocalityPattern = LocalityPattern()


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """Capacity learnt from a metric of load reports: a locality is full where the metric's average is ``target``.

    ``name`` as in load reports: one of the three utilisations, or a named metric as the client spells it.
    """

    name: str
    target: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a locality can take: the first rate that matches it.

    With a ``metric``, the rates only say what to start from, until the metric was measured. A locality that nothing
    matches takes no share; it is there for failover.
    """

    rates: tuple[Rate, ...] = ()
    metric: MetricTarget | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """A locality with less than ``below`` of its endpoints healthy takes no share, until ``restore`` of them are.

    A quarter and 35 percent are what Cloud Service Mesh uses. ``below`` 0 turns it off.
    """

    below: float = 0.25
    restore: float = 0.35


@dataclass(frozen=True, slots=True)
class Order:
    """Which of equally near localities come first for the sources that ``source`` matches; others follow."""

    source: LocalityPattern
    targets: tuple[LocalityPattern, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of one cluster. Shares are fractions of a source's requests, times are seconds.

    The defaults, and why: a change below ``minimum_change`` (2 %) is not worth a push to a zone's proxies.
    ``maximum_step`` (25 %) moves a whole zone in four intervals, slow enough for receivers to open connections and to
    scale. ``hysteresis`` (10 %) is wider than the noise of a ten-second count of a hundred requests. ``dwell_s`` is
    three intervals: what left its zone under load comes back only when the peak is over, not between two of its waves.
    ``stale_after_s`` is three intervals: one report may be late, two are lost with a reconnect. ``fallback_after_s``
    (5 min) outlasts a restart of the server or of a network's path; the pushed weights are right only for a fleet of
    which nothing is known.
    """

    cluster: str
    capacity: Capacity
    strategy: Strategy = Strategy.WATERFALL_BY_ZONE
    preferred: tuple[LocalityPattern, ...] = ()
    order: tuple[Order, ...] = ()
    drain: Drain = Drain()
    minimum_change: float = 0.02
    maximum_step: float = 0.25
    hysteresis: float = 0.1
    interval_s: float = 10.0
    dwell_s: float = 30.0
    stale_after_s: float = 30.0
    fallback_after_s: float = 300.0

    @staticmethod
    def parse(document: object, cluster: str = "") -> Policy:
        """A policy from its JSON. ``cluster`` where the document need not name it (it must agree if it does).

        Raises ``ValidationError`` with every finding and its JSON pointer.
        """
        from xds.assignment.policy_document import read_policy

        return read_policy(document, cluster)

    def document(self) -> dict[str, Any]:
        """The JSON that ``parse`` reads back as an equal policy; defaults are written out."""
        from xds.assignment.policy_document import policy_document

        return policy_document(self)

    def is_preferred(self, target: Locality) -> bool:
        """Whether the target is filled before all others, however far it is."""
        return any(pattern.matches(target) for pattern in self.preferred)

    def rate(self, target: Locality) -> Rate | None:
        """The rate that holds for the target."""
        return next((rate for rate in self.capacity.rates if rate.localities.matches(target)), None)

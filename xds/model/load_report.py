"""Load reports: what a client sent where, over an interval that it measured itself.

Source: sources/002, spec/lrs.md. Counters say what came since the report before, ``in_progress`` what is so now. A
thousand nodes tell of millions of localities every ten seconds: what there is one of for each is a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from xds.model.node import Locality

UTILISATIONS = CPU, MEMORY, APPLICATION = "cpu_utilization", "mem_utilization", "application_utilization"


class Traffic(NamedTuple):
    """Requests. ``in_progress`` is a gauge, the others are counters."""

    successes: int = 0
    errors: int = 0
    issued: int = 0
    in_progress: int = 0


class Metric(NamedTuple):
    """What backends told of a metric: over how many requests, and the sum of what each said.

    A whole number of requests in a report, not in a window that cuts through one.
    """

    requests: float
    total: float

    @property
    def average(self) -> float:
        return self.total / self.requests if self.requests else 0.0


NO_METRICS: Mapping[str, Metric] = MappingProxyType({})
NO_DROPS: Mapping[str, int] = MappingProxyType({})


class EndpointLoad(NamedTuple):
    """The load of one endpoint; ``address`` is ``host:port`` or the path of a pipe."""

    address: str
    traffic: Traffic
    metrics: Mapping[str, Metric] = NO_METRICS


class LocalityLoad(NamedTuple):
    """The load of one locality at one priority. ``endpoints`` only where the client tells them apart.

    ``metrics`` has the three utilisations under the names of this module.
    """

    locality: Locality
    traffic: Traffic
    priority: int = 0
    metrics: Mapping[str, Metric] = NO_METRICS
    endpoints: tuple[EndpointLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The load of one cluster. ``service_name`` is what its assignment is called, where that differs.

    A locality without traffic is not named (spec/lrs.md 11). ``drops`` are by category, ``dropped`` is the total: what
    the categories leave of it has none.
    """

    cluster: str
    interval_s: float
    service_name: str = ""
    localities: tuple[LocalityLoad, ...] = ()
    dropped: int = 0
    drops: Mapping[str, int] = field(default_factory=lambda: NO_DROPS)

    @property
    def uncategorised(self) -> int:
        """Drops without a category: Envoy tells only the total of those of circuit breakers (spec/lrs.md 12)."""
        return max(0, self.dropped - sum(self.drops.values()))

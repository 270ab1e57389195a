"""Load reports (LRS): the requests that a client sent to each locality in an interval that it measured.

Counters cover the time since the previous report; ``in_progress`` is a gauge. Values that exist per locality are
tuples, because a thousand nodes report millions of localities every ten seconds
(docs/internals/design.md#load-reports).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from xds.model.node import Locality

UTILISATIONS = CPU, MEMORY, APPLICATION = "cpu_utilization", "mem_utilization", "application_utilization"


class Traffic(NamedTuple):
    """Numbers of requests. ``in_progress`` is a gauge, the others are counters."""

    successes: int = 0
    errors: int = 0
    issued: int = 0
    in_progress: int = 0


class Metric(NamedTuple):
    """A metric that backends reported: the number of requests that had it, and the sum of its values.

    ``requests`` is a whole number in a report, and may be a fraction in a window that covers part of a report.
    """

    requests: float
    total: float

    @property
    def average(self) -> float:
        """The average value per request; 0 without requests."""
        return self.total / self.requests if self.requests else 0.0


NO_METRICS: Mapping[str, Metric] = MappingProxyType({})
NO_DROPS: Mapping[str, int] = MappingProxyType({})


class EndpointLoad(NamedTuple):
    """The load of one endpoint; ``address`` is ``host:port`` or the path of a pipe."""

    address: str
    traffic: Traffic
    metrics: Mapping[str, Metric] = NO_METRICS


class LocalityLoad(NamedTuple):
    """The load of one locality at one priority. ``endpoints`` is empty unless the client reports per endpoint.

    ``metrics`` has the three utilizations (`UTILISATIONS`) among the others.
    """

    locality: Locality
    traffic: Traffic
    priority: int = 0
    metrics: Mapping[str, Metric] = NO_METRICS
    endpoints: tuple[EndpointLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The load of one cluster. ``service_name`` is its EDS service name if that differs from the cluster's name.

    Localities without traffic are absent. ``drops`` are by category. ``dropped`` is the total, which may exceed the sum
    of the categories.
    """

    cluster: str
    interval_s: float
    service_name: str = ""
    localities: tuple[LocalityLoad, ...] = ()
    dropped: int = 0
    drops: Mapping[str, int] = field(default_factory=lambda: NO_DROPS)

    @property
    def uncategorised(self) -> int:
        """The number of drops without a category. Envoy reports drops by circuit breakers only in the total."""
        return max(0, self.dropped - sum(self.drops.values()))

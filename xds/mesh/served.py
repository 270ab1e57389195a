"""The mesh on one server: upstreams whose assignments follow services."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.registry import Collector

from xds.feature import Kernel, ServedFeature
from xds.mesh.lowered_endpoints import USER as UPSTREAMS
from xds.mesh.lowered_endpoints import LoweredEndpoints
from xds.mesh.metrics import LoweredMetrics
from xds.services.served import ServedServices


class ServedMesh(ServedFeature):
    """The mesh of one server."""

    def __init__(self, kernel: Kernel) -> None:
        services, publisher = kernel.feature(ServedServices), kernel.publisher
        self._lowered = publisher.lowered
        # The assignments of lowered clusters follow services.
        endpoints = LoweredEndpoints(services.catalog, publisher.live, kernel.settings.chains.datacenter)
        publisher.lowered.endpoints = endpoints
        services.followed[UPSTREAMS] = endpoints.followed

    def collectors(self) -> Iterator[Collector]:
        """The metrics of upstreams."""
        yield LoweredMetrics(self._lowered)

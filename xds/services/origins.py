"""Where the endpoints of an assignment that follows services come from."""

from __future__ import annotations

from collections.abc import Iterable

from xds.live.owners import EndpointOrigin
from xds.services.core.index import ServiceInstance


def origins_of(instances: Iterable[ServiceInstance]) -> list[EndpointOrigin]:
    """The origins of the endpoints of these instances."""
    return [
        EndpointOrigin(
            one.instance.address, one.instance.port, one.health.value, one.source, one.instance.id, one.observed.since
        )
        for one in instances
    ]

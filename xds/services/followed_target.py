"""One selection of instances of an assignment: its endpoints now, and its draining endpoints.

The endpoints of a large service are cached by instance: only those of changed instances are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xds.live.owners import EndpointOrigin
from xds.model.drains import Drains
from xds.services.core.binding import Binding, InstanceSelection
from xds.services.core.draining import SocketAddress
from xds.services.core.endpoints import ServedEndpoint, by_address, endpoint_of
from xds.services.core.index import ServiceInstance

CACHED_FROM = 200  # instances: for fewer, computing all endpoints again is cheaper than a cache

DrainingEndpoints = Drains[SocketAddress, ServedEndpoint]


@dataclass(slots=True)
class FollowedTarget:
    """One selection of instances of an assignment.

    ``served`` are the selected endpoints that were served last; empty if the catalog alone lets endpoints drain
    (``selects_all``). ``draining`` are endpoints that are no longer selected and drain.
    """

    selection: InstanceSelection
    served: Mapping[SocketAddress, ServedEndpoint] = field(default_factory=dict)
    draining: DrainingEndpoints = field(default_factory=DrainingEndpoints)
    _cached: dict[int, tuple[ServiceInstance, ServedEndpoint | None]] = field(default_factory=dict)  # by ``id``

    @property
    def binding(self) -> Binding:
        """Which instances are selected."""
        return self.selection.binding

    @property
    def selects_all(self) -> bool:
        """Whether the endpoints are the instances one by one, so that the catalog alone lets them drain."""
        return not (self.binding.filter or self.binding.datacenter or self.binding.port)

    def served_endpoints(
        self, instances: Sequence[ServiceInstance], now: float, drain_s: float
    ) -> Collection[ServedEndpoint]:
        """The endpoints to serve for the instances of the service, draining ones included; one for each address."""
        selected = self.endpoints(instances)
        if self.served or self.draining or not self.selects_all:
            return self.advance(selected, now, drain_s)
        return selected

    def endpoints(self, instances: Sequence[ServiceInstance]) -> list[ServedEndpoint]:
        """The endpoints of the selected instances.

        Each has an address and port of its own, unless a port is named: two instances may have it at one address.
        """
        if len(instances) < CACHED_FROM:
            self._cached = {}
            endpoints = [self._endpoint(one) for one in instances]
        else:
            # The same object means that the instance is unchanged: the cache keeps it alive, so its id is not reused.
            cached = self._cached.get
            pairs = [cached(id(one)) or (one, self._endpoint(one)) for one in instances]
            self._cached = dict(zip(map(id, instances), pairs, strict=True))
            endpoints = [endpoint for _, endpoint in pairs]
        return [one for one in endpoints if one is not None]

    def advance(self, selected: Collection[ServedEndpoint], now: float, drain_s: float) -> Collection[ServedEndpoint]:
        """Note the endpoints that are selected now. Returns the endpoints to serve: selected and draining ones.

        Of two selected endpoints with one address and port the first one counts.
        """
        endpoints = by_address(selected)
        self.drain((one for address, one in self.served.items() if address not in endpoints), now + drain_s)
        self.draining.stop(endpoints)
        self.draining.end(now)
        self.served = {} if self.selects_all else endpoints
        return [*endpoints.values(), *(one for _, one, _ in self.draining)]

    def drain(self, endpoints: Iterable[ServedEndpoint], until: float, *, again: bool = False) -> None:
        """Let endpoints drain. An endpoint that was served as draining is left out, unless it drains ``again``."""
        for one in endpoints:
            if again or not one.drains:
                self.draining.begin(one.address, one.draining(), until)

    def resume(self, draining: DrainingEndpoints) -> None:
        """Let endpoints drain on that drained before a restart, or for a former assignment."""
        for drain in draining:
            self.draining.begin(*drain)

    def _endpoint(self, one: ServiceInstance) -> ServedEndpoint | None:
        if not self.selection.is_selected(one):
            return None
        return endpoint_of(one.instance, one.health, self.binding)


def origins_of(instances: Iterable[ServiceInstance]) -> list[EndpointOrigin]:
    """The origins of the endpoints of these instances."""
    return [
        EndpointOrigin(
            one.instance.address, one.instance.port, one.health.value, one.source, one.instance.id, one.observed.since
        )
        for one in instances
    ]

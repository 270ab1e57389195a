"""One selection of instances of an assignment: which endpoints it has now, and which of them go and drain.

The endpoints of a large service are remembered by instance: only those of changed instances are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xds.catalog.binding import Binding, InstanceSelection
from xds.catalog.draining import DRAINING_LIMIT, SocketAddress
from xds.catalog.service_index import ServiceInstance
from xds.lower.instances import EndpointRule, ServedEndpoint, by_address, endpoint_of

REMEMBERED_FROM = 200  # instances: below it, making all endpoints again costs less than it is worth to remember them

Leaving = dict[
    SocketAddress, tuple[ServedEndpoint, float]
]  # endpoints that drain, and when they are gone (epoch seconds)


@dataclass(slots=True)
class FollowedTarget:
    """One selection of instances of an assignment.

    ``held`` are the endpoints that were laid last, where the catalog does not let all of them drain itself.
    ``leaving`` are endpoints that go and drain.
    """

    selection: InstanceSelection
    held: Mapping[SocketAddress, ServedEndpoint] = field(default_factory=dict)
    leaving: Leaving = field(default_factory=dict)
    _known: dict[int, tuple[ServiceInstance, ServedEndpoint | None]] = field(default_factory=dict)  # by ``id``

    @property
    def binding(self) -> Binding:
        """Which instances are selected."""
        return self.selection.binding

    @property
    def selects_all(self) -> bool:
        """Whether the endpoints are the instances one by one, so that the catalog alone lets them drain."""
        return not (self.binding.filter or self.binding.datacenter or self.binding.port)

    @property
    def next_end(self) -> float | None:
        """When the next endpoint will have drained (epoch seconds); None: none is left."""
        return min((until for _, until in self.leaving.values()), default=None)

    def laid(self, instances: Sequence[ServiceInstance], now: float, drain_s: float) -> Collection[ServedEndpoint]:
        """The endpoints to lay for the instances of its service, each with an address and port of its own."""
        made = self.endpoints(instances)
        if self.held or self.leaving or not self.selects_all:
            return self.advance(made, now, drain_s)
        return made

    def endpoints(self, instances: Sequence[ServiceInstance]) -> list[ServedEndpoint]:
        """The endpoints of those instances that are selected.

        Each has an address and port of its own, unless a port is named: two instances may have it at one address.
        """
        if len(instances) < REMEMBERED_FROM:
            self._known = {}
            found = [self._endpoint(one) for one in instances]
        else:
            # An instance is what it was as long as it is the same object, which is kept alive here.
            before = self._known.get
            pairs = [before(id(one)) or (one, self._endpoint(one)) for one in instances]
            self._known = dict(zip(map(id, instances), pairs, strict=True))
            found = [endpoint for _, endpoint in pairs]
        return [one for one in found if one is not None]

    def advance(self, made: Collection[ServedEndpoint], now: float, drain_s: float) -> Collection[ServedEndpoint]:
        """Take over what is selected now. Returns the endpoints to lay: what is selected, and what drains.

        Of two with one address and port the first one counts.
        """
        endpoints = by_address(made)
        self.leave((one for address, one in self.held.items() if address not in endpoints), now + drain_s)
        self.leaving = {
            address: (one, until)
            for address, (one, until) in self.leaving.items()
            if address not in endpoints and until > now
        }
        self.held = {} if self.selects_all else endpoints
        return [*endpoints.values(), *(one for one, _ in self.leaving.values())]

    def leave(self, endpoints: Iterable[ServedEndpoint], until: float, *, again: bool = False) -> None:
        """Let endpoints drain. What has drained where it was laid is left out, unless it does so ``again``.

        At most ``DRAINING_LIMIT``: beyond it the oldest go at once.
        """
        for one in endpoints:
            if again or not one.drains:
                self.leaving.pop(one.address, None)
                self.leaving[one.address] = one.draining(), until
        while len(self.leaving) > DRAINING_LIMIT:
            del self.leaving[next(iter(self.leaving))]

    def _endpoint(self, one: ServiceInstance) -> ServedEndpoint | None:
        if not self.selection.is_selected(one):
            return None
        rule = EndpointRule(self.binding.port, self.binding.only_passing)
        return endpoint_of(one.instance, one.health, rule)

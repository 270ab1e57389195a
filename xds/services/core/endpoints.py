"""Instances of a service as a ClusterLoadAssignment.

Health is as Consul serves it to Envoy: a critical check makes an endpoint unhealthy; a warning does not, but has a
weight of its own; a weight below 1 means unhealthy. Weights are those of the instances, so that a change of one
instance changes no other endpoint. (Consul cuts weights at 128, an early limit of Envoy. Envoy and gRPC accept any
weight from 1 on, as long as the sum is below 2^32.) There is one entry for each locality and priority. Its weight is
the sum of the weights of its healthy endpoints, because gRPC ignores an entry without a weight.

Each endpoint is serialized by itself, so that unchanged endpoints are not serialized again. The bytes are canonical:
fields are in the order of their numbers (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from xds.codec.load_assignment import WEIGHT_SUM_LIMIT, decode_assignment, locality_of
from xds.model.node import Locality
from xds.model.resource import Resource, content_version
from xds.model.resource_type import ENDPOINT
from xds.services.core.binding import Binding
from xds.services.core.draining import SocketAddress
from xds.services.core.instance import Health, Instance
from xds.wire.fields import bytes_field, text_field, varint_field

_ENDPOINTS_CACHED = 65_536  # serialized endpoints, of all services
_LOCALITIES_CACHED = 4_096
_HEALTHY, _UNHEALTHY, _DRAINING = 1, 2, 3  # envoy.config.core.v3.HealthStatus

_STATUS = {
    Health.PASSING: _HEALTHY,
    Health.WARNING: _HEALTHY,
    Health.CRITICAL: _UNHEALTHY,
    Health.DRAINING: _DRAINING,
}


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """An endpoint as proxies get it.

    ``status`` is an ``envoy.config.core.v3.HealthStatus``. ``healthy_weight`` is its part of the weight of its
    locality: ``weight``, or 0 if it is not healthy. ``locality_field`` and ``endpoint_field`` are the serialized fields
    ``locality`` and ``lb_endpoints`` of its entry.
    """

    address: SocketAddress
    status: int
    weight: int
    healthy_weight: int
    locality: Locality
    locality_field: bytes
    endpoint_field: bytes

    @classmethod
    def at(cls, address: SocketAddress, status: int, weight: int, locality: Locality) -> ServedEndpoint:
        """The endpoint with this address and port."""
        healthy_weight = weight if status == _HEALTHY else 0
        locality_field, endpoint_field = _locality_field(locality), _endpoint_field(*address, status, weight)
        return cls(address, status, weight, healthy_weight, locality, locality_field, endpoint_field)

    @classmethod
    def draining_at(cls, address: SocketAddress, weight: int, locality: Locality) -> ServedEndpoint:
        """The endpoint with this address and port, as ``DRAINING``."""
        return cls.at(address, _DRAINING, weight, locality)

    @property
    def is_healthy(self) -> bool:
        """Whether it gets requests."""
        return self.status == _HEALTHY

    @property
    def drains(self) -> bool:
        """Whether it is served as ``DRAINING``."""
        return self.status == _DRAINING

    def draining(self) -> ServedEndpoint:
        """The same endpoint as ``DRAINING``."""
        return ServedEndpoint.draining_at(self.address, self.weight, self.locality)

    def divided(self, divisor: int) -> ServedEndpoint:
        """The same endpoint with its weight divided, and at least 1."""
        return ServedEndpoint.at(self.address, self.status, max(self.weight // divisor, 1), self.locality)


def endpoint_of(instance: Instance, health: Health, binding: Binding) -> ServedEndpoint | None:
    """The endpoint of an instance that a binding selects; None for an instance without the port of the binding."""
    port = instance.ports.get(binding.port, 0) if binding.port else instance.port
    if not port:
        return None
    warns = health is Health.WARNING
    weight = instance.warning_weight if warns else instance.weight
    status = _STATUS[health]
    if (warns and binding.only_passing) or (weight < 1 and status == _HEALTHY):
        status = _UNHEALTHY
    return ServedEndpoint.at((instance.address, port), status, max(weight, 1), instance.locality)


def by_address(endpoints: Iterable[ServedEndpoint]) -> dict[SocketAddress, ServedEndpoint]:
    """Endpoints by address and port. Of two with the same ones the first one counts."""
    endpoints_by_address: dict[SocketAddress, ServedEndpoint] = {}
    for one in endpoints:
        endpoints_by_address.setdefault(one.address, one)
    return endpoints_by_address


def lower_endpoints(name: str, endpoints: Collection[ServedEndpoint]) -> Resource:
    """The assignment ``name`` with these endpoints, whose addresses must differ. Their order does not matter."""
    return assignment_of(name, locality_entries(endpoints))


def assignment_of(name: str, entries: bytes) -> Resource:
    """The assignment with these serialized fields behind its name: entries, and a policy if any."""
    body = text_field(1, name) + entries
    return Resource(ENDPOINT, name, body, content_version(body))


def locality_entries(endpoints: Collection[ServedEndpoint], priority: int = 0) -> bytes:
    """The serialized entries (fields ``endpoints``) of one priority, by locality; empty without endpoints."""
    divisor = sum(map(_WEIGHT, endpoints)) // WEIGHT_SUM_LIMIT + 1
    if divisor > 1:
        endpoints = [one.divided(divisor) for one in endpoints]
    by_locality = _by_locality(sorted(endpoints, key=_ADDRESS))
    ordered = sorted(by_locality, key=lambda group: locality_parts(group[0].locality))
    return b"".join(locality_entry(group[0].locality, group, priority) for group in ordered)


def locality_entry(locality: Locality, endpoints: Collection[ServedEndpoint], priority: int) -> bytes:
    """The serialized entry of a locality and a priority."""
    weight = max(sum(map(_HEALTHY_WEIGHT, endpoints)), 1)
    weight_and_priority = bytes_field(3, varint_field(1, weight)) + varint_field(5, priority)
    return bytes_field(2, _locality_field(locality) + b"".join(map(_ENDPOINT_FIELD, endpoints)) + weight_and_priority)


def _by_locality(endpoints: list[ServedEndpoint]) -> Collection[list[ServedEndpoint]]:
    if len(set(map(_LOCALITY_FIELD, endpoints))) == 1:
        return [endpoints]
    endpoints_by_locality: dict[bytes, list[ServedEndpoint]] = {}
    for one in endpoints:
        endpoints_by_locality.setdefault(one.locality_field, []).append(one)
    return endpoints_by_locality.values()


def priorities_in(assignment: Resource) -> dict[int, dict[SocketAddress, ServedEndpoint]]:
    """The endpoints of an assignment, by priority, and by address and port. Each is in the first entry that has it.

    Endpoints without a socket address and port number are left out.
    """
    priorities: dict[int, dict[SocketAddress, ServedEndpoint]] = {}
    found_addresses: set[SocketAddress] = set()
    for entry in decode_assignment(assignment).endpoints:
        locality = locality_of(entry)
        for one in entry.lb_endpoints:
            socket = one.endpoint.address.socket_address
            address = socket.address, socket.port_value
            if all(address) and address not in found_addresses:
                found_addresses.add(address)
                weight = max(one.load_balancing_weight.value, 1)
                endpoint = ServedEndpoint.at(address, one.health_status, weight, locality)
                priorities.setdefault(entry.priority, {})[address] = endpoint
    return priorities


_ADDRESS: Callable[[ServedEndpoint], SocketAddress] = attrgetter("address")
_WEIGHT: Callable[[ServedEndpoint], int] = attrgetter("weight")
_HEALTHY_WEIGHT: Callable[[ServedEndpoint], int] = attrgetter("healthy_weight")
_LOCALITY_FIELD: Callable[[ServedEndpoint], bytes] = attrgetter("locality_field")
_ENDPOINT_FIELD: Callable[[ServedEndpoint], bytes] = attrgetter("endpoint_field")


def locality_parts(locality: Locality) -> tuple[str, str, str]:
    """Region, zone and sub-zone."""
    return locality.region, locality.zone, locality.sub_zone


@lru_cache(_LOCALITIES_CACHED)
def _locality_field(locality: Locality) -> bytes:
    """A field ``locality``. gRPC rejects an entry without one, even though all of its parts may be empty."""
    return bytes_field(1, b"".join(text_field(number, part) for number, part in enumerate(locality_parts(locality), 1)))


@lru_cache(_ENDPOINTS_CACHED)
def _endpoint_field(address: str, port: int, status: int, weight: int) -> bytes:
    """A field ``lb_endpoints``: LbEndpoint with Endpoint, Address and SocketAddress."""
    socket_address = text_field(2, address) + varint_field(3, port)
    endpoint = bytes_field(1, bytes_field(1, bytes_field(1, socket_address)))
    return bytes_field(2, endpoint + varint_field(2, status) + bytes_field(4, varint_field(1, weight)))

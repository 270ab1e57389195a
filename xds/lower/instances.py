"""Instances of a service as a ClusterLoadAssignment.

Health and weights are those that Consul gives to Envoy: a critical check makes an endpoint unhealthy, a warning one
does not but has a weight of its own, a weight below 1 means unhealthy. Weights are at most 128; greater ones are scaled
down in proportion. There is one entry for each locality and priority. Its weight is the sum of those of its healthy
endpoints, because gRPC ignores an entry without a weight.

Endpoints are serialized one by one and remembered, so that a change of one instance costs little in a large service.
The bytes are the canonical ones: fields in the order of their numbers (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from xds.catalog.instance import Health, Instance
from xds.model.node import Locality
from xds.model.resource import Resource, content_version
from xds.model.resource_type import ENDPOINT
from xds.wire.fields import bytes_field, text_field, varint_field

WEIGHT_MAX = 128
_REMEMBERED = 65_536  # serialized endpoints
_HEALTHY, _UNHEALTHY, _DRAINING = 1, 2, 3  # envoy.config.core.v3.HealthStatus

_STATUS = {
    Health.PASSING: _HEALTHY,
    Health.WARNING: _HEALTHY,
    Health.CRITICAL: _UNHEALTHY,
    Health.DRAINING: _DRAINING,
}


@dataclass(frozen=True, slots=True)
class EndpointRule:
    """How instances become endpoints. ``port``: the name of the port, empty for the first one.

    ``only_passing``: an instance with a warning gets no requests either.
    """

    port: str = ""
    only_passing: bool = False


@dataclass(frozen=True, slots=True)
class ServedEndpoint:
    """One endpoint with its health status and weight, which is not scaled yet."""

    address: str
    port: int
    status: int
    weight: int
    locality: Locality

    @property
    def is_healthy(self) -> bool:
        """Whether it gets requests."""
        return self.status == _HEALTHY


def lower_instances(name: str, instances: Iterable[tuple[Instance, Health]], rule: EndpointRule) -> Resource:
    """The assignment ``name`` with these instances and their health. The order of the instances does not matter.

    An instance without the port of the rule is left out. Of two with one address and port the first one counts.
    """
    return assignment_of(name, locality_entries(endpoints_of(instances, rule).values()))


def assignment_of(name: str, entries: bytes) -> Resource:
    """The assignment with these entries, and further fields behind them."""
    body = text_field(1, name) + entries
    return Resource(ENDPOINT, name, body, content_version(body))


def endpoints_of(
    instances: Iterable[tuple[Instance, Health]], rule: EndpointRule
) -> dict[tuple[str, int], ServedEndpoint]:
    """The endpoints of instances by address and port."""
    found: dict[tuple[str, int], ServedEndpoint] = {}
    for instance, health in instances:
        port = instance.ports.get(rule.port, 0) if rule.port else instance.port
        if port:
            found.setdefault((instance.address, port), _endpoint(instance, port, health, rule))
    return found


def locality_entries(endpoints: Iterable[ServedEndpoint], priority: int = 0) -> bytes:
    """The entries (fields ``endpoints``) of one priority, by locality; none without endpoints."""
    ordered = sorted(endpoints, key=lambda one: (one.address, one.port))
    greatest = max((one.weight for one in ordered), default=0)
    entries: dict[Locality, list[ServedEndpoint]] = {}
    for one in ordered:
        entries.setdefault(one.locality, []).append(one)
    return b"".join(
        locality_entry(locality, entries[locality], greatest, priority) for locality in sorted(entries, key=_parts)
    )


def _endpoint(instance: Instance, port: int, health: Health, rule: EndpointRule) -> ServedEndpoint:
    warns = health is Health.WARNING
    weight = instance.warning_weight if warns else instance.weight
    status = _STATUS[health]
    if (warns and rule.only_passing) or (weight < 1 and status == _HEALTHY):
        status = _UNHEALTHY
    return ServedEndpoint(instance.address, port, status, max(weight, 1), instance.locality)


def locality_entry(locality: Locality, endpoints: Iterable[ServedEndpoint], greatest: int, priority: int) -> bytes:
    """One entry, of a locality and a priority. ``greatest``: the greatest weight of an endpoint of the priority."""
    total, serialized = 0, []
    for one in endpoints:
        weight = _scaled(one.weight, greatest)
        total += weight if one.is_healthy else 0
        serialized.append(_endpoint_field(one.address, one.port, one.status, weight))
    where = b"".join(text_field(number, part) for number, part in enumerate(_parts(locality), 1))
    # gRPC rejects an entry without a locality, even though all of its parts may be empty.
    share = bytes_field(3, varint_field(1, max(total, 1)))
    return bytes_field(2, bytes_field(1, where) + b"".join(serialized) + share + varint_field(5, priority))


def _scaled(weight: int, greatest: int) -> int:
    return weight if greatest <= WEIGHT_MAX else max((weight * WEIGHT_MAX + greatest // 2) // greatest, 1)


def _parts(locality: Locality) -> tuple[str, str, str]:
    return locality.region, locality.zone, locality.sub_zone


@lru_cache(_REMEMBERED)
def _endpoint_field(address: str, port: int, status: int, weight: int) -> bytes:
    """A field ``lb_endpoints``: LbEndpoint with Endpoint, Address and SocketAddress."""
    socket_address = text_field(2, address) + varint_field(3, port)
    endpoint = bytes_field(1, bytes_field(1, bytes_field(1, socket_address)))
    return bytes_field(2, endpoint + varint_field(2, status) + bytes_field(4, varint_field(1, weight)))

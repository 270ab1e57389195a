"""Endpoints that drain: served as ``DRAINING`` for a while after they were removed (docs/services.md#draining).

Envoy keeps the connections of a draining endpoint and sends it no new requests. The served assignment is the wanted one
plus the draining endpoints, in their localities and priorities; `still_draining` leaves out those whose time is over.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from xds.codec import schema
from xds.codec.load_assignment import PRIORITY_LIMIT, decode_assignment, locality_of
from xds.codec.references import references_of
from xds.live.assignment_edits import address_text, addresses_of, endpoints_in, entry_at, entry_key, validated
from xds.model.drains import Drains
from xds.model.node import Locality
from xds.model.resource import Resource, content_version
from xds.model.resource_type import ENDPOINT

HEALTH_NAMES = (
    "UNKNOWN",
    "HEALTHY",
    "UNHEALTHY",
    "DRAINING",
    "TIMEOUT",
    "DEGRADED",
)  # envoy.config.core.v3.HealthStatus
_DRAINING = HEALTH_NAMES.index("DRAINING")
_SERVING = frozenset(map(HEALTH_NAMES.index, ("UNKNOWN", "HEALTHY", "DEGRADED")))


@dataclass(frozen=True, slots=True)
class DrainingEndpoint:
    """An endpoint that is removed at ``until_s`` (epoch seconds).

    ``entry`` is a serialized LocalityLbEndpoints with this endpoint alone, as it was before it drained.
    """

    address: str
    entry: bytes
    until_s: float


@dataclass(frozen=True, slots=True)
class EndpointState:
    """One endpoint as it is served. ``weight`` is None if none is set. ``until_s`` is its end, if it drains."""

    address: str
    health: str
    weight: int | None
    locality: Locality
    priority: int
    hostname: str = ""
    until_s: float | None = None


def endpoint_states(served: Resource, draining: Iterable[DrainingEndpoint] = ()) -> list[EndpointState]:
    """The endpoints of a served assignment, with the ends of draining ones."""
    until = {one.address: one.until_s for one in draining}
    return [_state(entry, one, until) for entry, one in endpoints_in(decode_assignment(served))]


def has_serving_endpoint(served: Resource) -> bool:
    """Whether an assignment has an endpoint that takes requests: not draining, and not known to be unhealthy."""
    return any(one.health_status in _SERVING for _, one in endpoints_in(decode_assignment(served)))


def _state(entry: Any, one: Any, until: Mapping[str, float]) -> EndpointState:
    address = address_text(one)
    weight = one.load_balancing_weight.value if one.HasField("load_balancing_weight") else None
    health = HEALTH_NAMES[one.health_status] if one.health_status < len(HEALTH_NAMES) else str(one.health_status)
    ends_s = until.get(address) if one.health_status == _DRAINING else None
    hostname = one.endpoint.hostname
    return EndpointState(address, health, weight, locality_of(entry), entry.priority, hostname, ends_s)


def drain_missing(before: Resource, wanted: Resource, until_s: float) -> tuple[DrainingEndpoint, ...]:
    """The endpoints of ``before`` that ``wanted`` lacks, as endpoints that drain until ``until_s``."""
    remaining = addresses_of(wanted)
    draining: dict[str, DrainingEndpoint] = {}
    for entry in decode_assignment(before).endpoints:
        endpoints = list(entry.lb_endpoints)
        del entry.lb_endpoints[:]
        for one in endpoints:
            address = address_text(one)
            if address not in remaining and address not in draining:
                draining[address] = DrainingEndpoint(address, _single_entry(entry, one), until_s)
    return tuple(draining.values())


def undrain(wanted: Resource, draining: Iterable[DrainingEndpoint], addresses: Collection[str]) -> Resource:
    """The assignment plus the draining endpoints of these addresses that it lacks, as they were before they drained."""
    message = decode_assignment(wanted)
    present = {address_text(one) for _, one in endpoints_in(message)}
    for each in draining:
        if each.address in addresses and each.address not in present:
            single = _parsed_entry(each.entry)
            entry = entry_at(message, entry_key(single), single)
            entry.lb_endpoints.add().CopyFrom(single.lb_endpoints[0])
    return validated(message, wanted)


def still_draining(
    draining: Iterable[DrainingEndpoint], wanted: Resource, now_s: float = 0.0
) -> tuple[DrainingEndpoint, ...]:
    """The draining endpoints that ``wanted`` lacks and that have not ended at ``now_s``."""
    wanted_again = addresses_of(wanted)
    ordered = sorted(draining, key=lambda one: (one.until_s, one.address))
    drains = Drains((one.address, one, one.until_s) for one in ordered if one.address not in wanted_again)
    drains.end(now_s)
    return tuple(one for _, one, _ in drains)


def with_draining(wanted: Resource, draining: Collection[DrainingEndpoint]) -> Resource:
    """The served assignment: the wanted one, with draining endpoints after the others of their locality."""
    if not draining:
        return wanted
    message = decode_assignment(wanted)
    highest = max((entry.priority for entry in message.endpoints), default=-1)
    for each in draining:
        single = _parsed_entry(each.entry)
        priority = min(single.priority, highest + 1, PRIORITY_LIMIT)
        highest = max(highest, priority)
        one = entry_at(message, (locality_of(single), priority), single).lb_endpoints.add()
        one.CopyFrom(single.lb_endpoints[0])
        one.health_status = _DRAINING
    body = message.SerializeToString(deterministic=True)
    version = content_version(body, wanted.aliases, wanted.ttl_s)
    return replace(wanted, body=body, version=version, references=references_of(ENDPOINT, message, body))


def _single_entry(entry: Any, one: Any) -> bytes:
    """The serialized entry with one endpoint; ``entry`` has none."""
    made = type(entry)()
    made.CopyFrom(entry)
    made.lb_endpoints.add().CopyFrom(one)
    return bytes(made.SerializeToString(deterministic=True))


def _parsed_entry(data: bytes) -> Any:
    message: Any = schema.require(ENDPOINT)()
    return message.endpoints.add().FromString(data)

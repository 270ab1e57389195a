"""The endpoints of a ClusterLoadAssignment that a Linkerd proxy uses.

Linkerd has neither priorities nor degraded endpoints: it gets the endpoints of the first priority that has usable ones,
and degraded ones only if there are no healthy ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from xds.catalog.instance import is_ip_address
from xds.codec import schema
from xds.destination.endpoint import WEIGHT_MAX, WEIGHT_ONE, DestinationEndpoint, ordered
from xds.destination.mesh_role import FILTER_METADATA, MeshRules, bare_key, mesh_role
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT

# envoy.config.core.v3.HealthStatus
_USABLE, _DEGRADED = frozenset({0, 1}), 5
_UDP = 1
_REMEMBERED = 512  # parsed assignments
_PORT_MAX = 65_535
SKIPPED_LIMIT = 20  # of one assignment


@dataclass(frozen=True, slots=True)
class AssignmentReading:
    """How assignments are read. ``weighs_localities``: a locality without a weight gets nothing (as in Envoy's
    locality-weighted load balancing).
    """

    rules: MeshRules
    has_ipv6: bool = True
    weighs_localities: bool = False


@dataclass(frozen=True, slots=True)
class AssignmentEndpoints:
    """The endpoints by address and port; ``skipped`` lists what Linkerd's API cannot express."""

    endpoints: tuple[DestinationEndpoint, ...] = ()
    skipped: tuple[str, ...] = ()


@lru_cache(_REMEMBERED)
def read_assignment(resource: Resource, reading: AssignmentReading) -> AssignmentEndpoints:
    """The endpoints of an assignment. Remembered, as many streams ask for one."""
    message = schema.require(ENDPOINT)()
    try:
        message.ParseFromString(resource.body)
    except DecodeError:  # cannot happen: every pushed resource was parsed before it was stored
        return AssignmentEndpoints(skipped=("the assignment cannot be read",))
    return endpoints_of_assignment(message, reading)


def endpoints_of_assignment(message: Any, reading: AssignmentReading) -> AssignmentEndpoints:
    """The same of a parsed assignment, such as the one in a static cluster."""
    skipped: list[str] = []
    if message.policy.drop_overloads:
        skipped.append("policy.drop_overloads: Linkerd drops no share of requests")
    entries = [entry for entry in message.endpoints if _counts(entry, reading)]
    for priority in sorted({entry.priority for entry in entries}):
        found = _of_priority([entry for entry in entries if entry.priority == priority], reading, skipped)
        if found:
            if any(entry.priority != priority for entry in entries):
                skipped.append(f"priorities: only the endpoints of priority {priority} are sent")
            return AssignmentEndpoints(ordered(found), tuple(skipped[:SKIPPED_LIMIT]))
    return AssignmentEndpoints((), tuple(skipped[:SKIPPED_LIMIT]))


def _counts(entry: Any, reading: AssignmentReading) -> bool:
    """Whether a locality gets requests at all."""
    return not reading.weighs_localities or entry.load_balancing_weight.value > 0


def _of_priority(entries: Iterable[Any], reading: AssignmentReading, skipped: list[str]) -> list[DestinationEndpoint]:
    members = [(entry, one) for entry in entries for one in entry.lb_endpoints]
    usable = [each for each in members if each[1].health_status in _USABLE]
    usable = usable or [each for each in members if each[1].health_status == _DEGRADED]
    found = [(_endpoint(entry, one, reading, skipped), _weight(entry, one, reading)) for entry, one in usable]
    return _weighted([(one, weight) for one, weight in found if one is not None])


def _weight(entry: Any, one: Any, reading: AssignmentReading) -> int:
    own = one.load_balancing_weight.value if one.HasField("load_balancing_weight") else 1
    return own * (entry.load_balancing_weight.value if reading.weighs_localities else 1)


def _weighted(found: list[tuple[DestinationEndpoint, int]]) -> list[DestinationEndpoint]:
    """Weights around 10,000 in the same proportion; exactly that where all are equal."""
    total = sum(weight for _, weight in found)
    if len({weight for _, weight in found}) < 2:
        return [one for one, _ in found]
    scale = WEIGHT_ONE * len(found)
    return [
        replace(one, weight=max(min((2 * scale * weight + total) // (2 * total), WEIGHT_MAX), 1), share=weight)
        for one, weight in found
    ]


def _endpoint(entry: Any, one: Any, reading: AssignmentReading, skipped: list[str]) -> DestinationEndpoint | None:
    places = list(_places(one.endpoint, skipped))
    wanted = [place for place in places if ":" in place[0]] if reading.has_ipv6 else []
    wanted = wanted or [place for place in places if ":" not in place[0] or reading.has_ipv6]
    if not wanted:
        return None
    address, port = wanted[0]
    values = {**linkerd_metadata(entry.metadata), **linkerd_metadata(one.metadata)}
    labels = {key.removeprefix("label_"): value for key, value in values.items() if key.startswith("label_")}
    return DestinationEndpoint(
        address,
        port,
        labels=tuple(sorted(labels.items())),
        mesh=mesh_role(values, values, port, reading.rules),
        zone=entry.locality.zone or entry.locality.region,
        node=values.get("node", ""),
        names=frozenset(filter(None, (one.endpoint.hostname, values.get("hostname")))),
        hinted_zones=frozenset(filter(None, values.get("zone_hints", "").replace(" ", "").split(","))),
    )


def _places(endpoint: Any, skipped: list[str]) -> Iterator[tuple[str, int]]:
    """The addresses of an endpoint that Linkerd's API can express: an IP address and a TCP port."""
    for address in (endpoint.address, *(each.address for each in endpoint.additional_addresses)):
        place = address.socket_address
        problem = _problem(address, place)
        if problem:
            if len(skipped) < SKIPPED_LIMIT:
                skipped.append(f"endpoint: {problem}")
        else:
            yield place.address, place.port_value


def _problem(address: Any, place: Any) -> str:
    kind = address.WhichOneof("address")
    if kind != "socket_address":
        return f"{kind or 'no address'}: Linkerd's API has only addresses with a port"
    if not is_ip_address(place.address):
        return f"{place.address!r:.80} is no IP address: names are not resolved"
    if place.protocol == _UDP:
        return "Linkerd's API has no UDP"
    return "" if 0 < place.port_value <= _PORT_MAX else "no port number"


def linkerd_metadata(metadata: Any) -> Mapping[str, str]:
    """The texts, numbers and booleans of ``io.linkerd`` in xDS metadata, by their bare keys."""
    if FILTER_METADATA not in metadata.filter_metadata:
        return {}
    found = {}
    for key, value in metadata.filter_metadata[FILTER_METADATA].fields.items():
        match value.WhichOneof("kind"):
            case "string_value":
                found[bare_key(key)] = value.string_value
            case "bool_value":
                found[bare_key(key)] = str(value.bool_value).lower()
            case "number_value":
                found[bare_key(key)] = f"{value.number_value:.15g}"
    return found

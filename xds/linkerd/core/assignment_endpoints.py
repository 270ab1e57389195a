"""The endpoints of a ClusterLoadAssignment that a Linkerd proxy uses.

Linkerd has neither priorities nor degraded endpoints. A proxy gets the endpoints of the first priority that has usable
ones, and degraded ones only if there are no healthy ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from xds.codec.load_assignment import decode_assignment
from xds.linkerd.core.endpoint import WEIGHT_MAX, WEIGHT_ONE, DestinationEndpoint, FoundEndpoints, ordered
from xds.linkerd.core.mesh_role import FILTER_METADATA, MeshRules, bare_key, mesh_role
from xds.model.ip_address import is_ip_address
from xds.model.resource import Resource

# envoy.config.core.v3.HealthStatus
_USABLE, _DEGRADED = frozenset({0, 1}), 5
_UDP = 1
_ASSIGNMENTS_CACHED = 512
_PORT_MAX = 65_535
SKIPPED_LIMIT = 20  # of one assignment


@dataclass(frozen=True, slots=True)
class AssignmentOptions:
    """How assignments are read.

    ``weighs_localities``: a locality without a weight gets no requests, as in Envoy's locality-weighted load balancing.
    """

    rules: MeshRules
    has_ipv6: bool = True
    weighs_localities: bool = False


@lru_cache(_ASSIGNMENTS_CACHED)
def read_assignment(resource: Resource, options: AssignmentOptions) -> FoundEndpoints:
    """The endpoints of an assignment. Cached, because many streams use the same assignment."""
    return endpoints_of_assignment(decode_assignment(resource), options)


def endpoints_of_assignment(message: Any, options: AssignmentOptions) -> FoundEndpoints:
    """The endpoints of a parsed assignment, such as the one in a static cluster."""
    skipped: list[str] = []
    if message.policy.drop_overloads:
        skipped.append("policy.drop_overloads: Linkerd drops no share of requests")
    entries = [entry for entry in message.endpoints if _is_used(entry, options)]
    for priority in sorted({entry.priority for entry in entries}):
        endpoints = _priority_endpoints([entry for entry in entries if entry.priority == priority], options, skipped)
        if endpoints:
            if any(entry.priority != priority for entry in entries):
                skipped.append(f"priorities: only the endpoints of priority {priority} are sent")
            return FoundEndpoints(ordered(endpoints), tuple(skipped[:SKIPPED_LIMIT]))
    return FoundEndpoints((), tuple(skipped[:SKIPPED_LIMIT]))


def _is_used(entry: Any, options: AssignmentOptions) -> bool:
    """Whether a locality gets any requests."""
    return not options.weighs_localities or entry.load_balancing_weight.value > 0


def _priority_endpoints(
    entries: Iterable[Any], options: AssignmentOptions, skipped: list[str]
) -> list[DestinationEndpoint]:
    members = [(entry, one) for entry in entries for one in entry.lb_endpoints]
    usable = [each for each in members if each[1].health_status in _USABLE]
    usable = usable or [each for each in members if each[1].health_status == _DEGRADED]
    weighted = [(_endpoint(entry, one, options, skipped), _weight(entry, one, options)) for entry, one in usable]
    return _with_weights([(one, weight) for one, weight in weighted if one is not None])


def _weight(entry: Any, one: Any, options: AssignmentOptions) -> int:
    own = one.load_balancing_weight.value if one.HasField("load_balancing_weight") else 1
    return own * (entry.load_balancing_weight.value if options.weighs_localities else 1)


def _with_weights(weighted: list[tuple[DestinationEndpoint, int]]) -> list[DestinationEndpoint]:
    """Endpoints with weights around 10,000 in the same proportion; exactly 10,000 if all are equal."""
    total = sum(weight for _, weight in weighted)
    if len({weight for _, weight in weighted}) < 2:
        return [one for one, _ in weighted]
    scale = WEIGHT_ONE * len(weighted)
    return [
        replace(one, weight=max(min((2 * scale * weight + total) // (2 * total), WEIGHT_MAX), 1), share=weight)
        for one, weight in weighted
    ]


def _endpoint(entry: Any, one: Any, options: AssignmentOptions, skipped: list[str]) -> DestinationEndpoint | None:
    addresses = list(_socket_addresses(one.endpoint, skipped))
    wanted = [each for each in addresses if ":" in each[0]] if options.has_ipv6 else []
    wanted = wanted or [each for each in addresses if ":" not in each[0] or options.has_ipv6]
    if not wanted:
        return None
    address, port = wanted[0]
    values = {**linkerd_metadata(entry.metadata), **linkerd_metadata(one.metadata)}
    labels = {key.removeprefix("label_"): value for key, value in values.items() if key.startswith("label_")}
    return DestinationEndpoint(
        address,
        port,
        labels=tuple(sorted(labels.items())),
        mesh=mesh_role(values, values, port, options.rules),
        zone=entry.locality.zone or entry.locality.region,
        node=values.get("node", ""),
        names=frozenset(filter(None, (one.endpoint.hostname, values.get("hostname")))),
        hinted_zones=frozenset(filter(None, values.get("zone_hints", "").replace(" ", "").split(","))),
    )


def _socket_addresses(endpoint: Any, skipped: list[str]) -> Iterator[tuple[str, int]]:
    """The addresses of an endpoint that Linkerd's API can express: an IP address and a TCP port."""
    for address in (endpoint.address, *(each.address for each in endpoint.additional_addresses)):
        socket = address.socket_address
        problem = _problem(address, socket)
        if problem:
            if len(skipped) < SKIPPED_LIMIT:
                skipped.append(f"endpoint: {problem}")
        else:
            yield socket.address, socket.port_value


def _problem(address: Any, socket: Any) -> str:
    kind = address.WhichOneof("address")
    if kind != "socket_address":
        return f"{kind or 'no address'}: Linkerd's API has only addresses with a port"
    if not is_ip_address(socket.address):
        return f"{socket.address!r:.80} is not an IP address: names are not resolved"
    if socket.protocol == _UDP:
        return "Linkerd's API has no UDP"
    return "" if 0 < socket.port_value <= _PORT_MAX else "no port number"


def linkerd_metadata(metadata: Any) -> Mapping[str, str]:
    """The texts, numbers and booleans of ``io.linkerd`` in xDS metadata, by their bare keys."""
    if FILTER_METADATA not in metadata.filter_metadata:
        return {}
    values = {}
    for key, value in metadata.filter_metadata[FILTER_METADATA].fields.items():
        match value.WhichOneof("kind"):
            case "string_value":
                values[bare_key(key)] = value.string_value
            case "bool_value":
                values[bare_key(key)] = str(value.bool_value).lower()
            case "number_value":
                values[bare_key(key)] = f"{value.number_value:.15g}"
    return values

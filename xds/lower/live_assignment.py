"""Assignments that are set by hand: endpoints come, change, drain and go (docs/services.md#live-endpoints).

An endpoint that goes is served as ``DRAINING`` for a while: Envoy keeps its connections and sends it no new requests.
The served assignment is the wanted one and the draining endpoints, in the localities and priorities that they had. It
is valid for Envoy and gRPC: priorities have no gap, and a locality that is added has a weight. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from xds.catalog.instance import canonical_ipv6
from xds.codec import schema
from xds.codec.references import references_of
from xds.codec.resources import resource_from_bytes
from xds.lower.load_assignment import PRIORITY_LIMIT, decode_assignment, locality_of
from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality
from xds.model.resource import Resource, content_version
from xds.model.resource_type import ENDPOINT

DRAINING_LIMIT = 10_000  # endpoints of one assignment: beyond it, those that drain longest are removed at once
HEALTH_NAMES = (
    "UNKNOWN",
    "HEALTHY",
    "UNHEALTHY",
    "DRAINING",
    "TIMEOUT",
    "DEGRADED",
)  # envoy.config.core.v3.HealthStatus
_DRAINING = HEALTH_NAMES.index("DRAINING")


@dataclass(frozen=True, slots=True)
class DrainingEndpoint:
    """An endpoint that is removed at ``until_s`` (epoch seconds).

    ``entry`` is a serialized LocalityLbEndpoints with this endpoint alone, as it was before.
    """

    address: str
    entry: bytes
    until_s: float


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """What to change of one endpoint; None: as it is. A new endpoint needs a locality where there are several."""

    address: str
    weight: int | None = None
    health: int | None = None
    locality: Locality | None = None
    priority: int | None = None
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointState:
    """One endpoint as it is served. ``weight`` None: none is set. ``until_s``: its end, if it drains."""

    address: str
    health: str
    weight: int | None
    locality: Locality
    priority: int
    hostname: str = ""
    until_s: float | None = None


# Addresses


def address_text(endpoint: Any) -> str:
    """What names an LbEndpoint: ``10.0.0.1:80``, ``[::1]:80``, ``unix:PATH``, ``internal:LISTENER/ID``.

    An IPv6 address is in its canonical spelling: all spellings of it are one endpoint.
    """
    if endpoint.WhichOneof("host_identifier") == "endpoint_name":
        return f"endpoint:{endpoint.endpoint_name}"
    address = endpoint.endpoint.address
    kind = address.WhichOneof("address")
    if kind == "pipe":
        return f"unix:{address.pipe.path}"
    if kind == "envoy_internal_address":
        internal = address.envoy_internal_address
        return f"internal:{internal.server_listener_name}/{internal.endpoint_id}"
    socket = address.socket_address
    host = f"[{canonical_ipv6(socket.address)}]" if ":" in socket.address else socket.address
    text = f"{host}:{socket.named_port or socket.port_value}"
    return text if socket.protocol == 0 else f"udp:{text}"


def canonical_address(text: str) -> str:
    """The text that names an endpoint, for one that somebody has written."""
    host, _, port = text.rpartition("]:")
    return f"[{canonical_ipv6(host[1:])}]:{port}" if host.startswith("[") and ":" in host else text


def addresses_of(assignment: Resource) -> dict[str, None]:
    """The addresses of all endpoints of an assignment, in their order."""
    return dict.fromkeys(address_text(one) for _, one in _endpoints(decode_assignment(assignment)))


def resource_label(assignment: Resource) -> str:
    """An assignment in a finding."""
    return f"endpoints/{assignment.name}"


def endpoint_states(served: Resource, draining: Iterable[DrainingEndpoint] = ()) -> list[EndpointState]:
    """The endpoints of an assignment, for readers."""
    until = {one.address: one.until_s for one in draining}
    return [_state(entry, one, until) for entry, one in _endpoints(decode_assignment(served))]


def _state(entry: Any, one: Any, until: Mapping[str, float]) -> EndpointState:
    address = address_text(one)
    weight = one.load_balancing_weight.value if one.HasField("load_balancing_weight") else None
    health = HEALTH_NAMES[one.health_status] if one.health_status < len(HEALTH_NAMES) else str(one.health_status)
    ends_s = until.get(address) if one.health_status == _DRAINING else None
    hostname = one.endpoint.hostname
    return EndpointState(address, health, weight, locality_of(entry), entry.priority, hostname, ends_s)


def _endpoints(message: Any) -> Iterator[tuple[Any, Any]]:
    for entry in message.endpoints:
        for one in entry.lb_endpoints:
            yield entry, one


# What is wanted


def check_priorities(wanted: Resource) -> None:
    """Raises ``ValidationError`` for a gap in the priorities: gRPC rejects such an assignment."""
    found = {entry.priority for entry in decode_assignment(wanted).endpoints}
    lacking = next((priority for priority in range(max(found, default=0)) if priority not in found), None)
    if lacking is not None:
        detail = f"no locality has priority {lacking}, but one has priority {max(found)}: priorities have no gap"
        raise ValidationError(
            [Violation("priority_gap", detail, resource=resource_label(wanted), pointer="/endpoints")]
        )


def empty_assignment(name: str) -> Resource:
    """An assignment without endpoints."""
    message: Any = schema.require(ENDPOINT)()
    message.cluster_name = name
    return resource_from_bytes(ENDPOINT, message.SerializeToString(deterministic=True))


def change_endpoints(wanted: Resource, changes: Iterable[EndpointChange]) -> Resource:
    """The assignment with endpoints added or changed.

    A new endpoint joins the only locality of the assignment, unless it names one. Raises ``ValidationError``.
    """
    message = decode_assignment(wanted)
    edit = _Edit(message)
    findings: list[Violation] = []
    for index, change in enumerate(changes):
        findings += _change_one(edit, change, f"/put/{index}")
    if findings:
        raise ValidationError(findings)
    edit.drop_left()
    _drop_emptied(message)
    return _checked(message, wanted)


def change_weights(wanted: Resource, weights: Mapping[tuple[Locality, int], int]) -> Resource:
    """The assignment with other weights of localities, by locality and priority. Raises ``ValidationError``."""
    message = decode_assignment(wanted)
    for index, ((locality, priority), weight) in enumerate(weights.items()):
        entries = [entry for entry in message.endpoints if _place(entry) == (locality, priority)]
        if not entries:
            detail = f"the assignment has no locality {locality} with priority {priority}; {_places(message)}"
            raise ValidationError([Violation("unknown_locality", detail, pointer=f"/localities/{index}")])
        for entry in entries:
            entry.load_balancing_weight.value = weight
    return _checked(message, wanted)


def remove_endpoints(wanted: Resource, addresses: Collection[str]) -> Resource:
    """The assignment without the endpoints of these addresses."""
    message = decode_assignment(wanted)
    gone = frozenset(addresses)
    for entry in message.endpoints:
        kept = [one for one in entry.lb_endpoints if address_text(one) not in gone]
        if len(kept) < len(entry.lb_endpoints):
            del entry.lb_endpoints[:]
            entry.lb_endpoints.extend(kept)
    _drop_emptied(message)
    return _checked(message, wanted)


class _Edit:
    """An assignment with endpoints that are changed one by one: they are found by address, and dropped together."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self._held: dict[str, list[tuple[Any, Any]]] = {}
        self._left: dict[int, Any] = {}  # endpoints that are elsewhere now, by ``id``; kept, so that the ids are theirs
        for entry, one in _endpoints(message):
            self._held.setdefault(address_text(one), []).append((entry, one))

    def held(self, address: str) -> list[tuple[Any, Any]]:
        """The endpoints with an address, each with its entry."""
        return self._held.get(address, [])

    def moved(self, entry: Any, address: str) -> Any:
        """The endpoint in this entry: as it was in another one, or new."""
        held = self.held(address)
        for place, one in held:
            if place is entry or _place(place) == _place(entry):
                return one
        one = entry.lb_endpoints.add()
        if held:
            one.CopyFrom(held[-1][1])
            self._left |= {id(old): old for _, old in held}
        else:
            host, _, port = address.rpartition(":")
            socket = one.endpoint.address.socket_address
            socket.address, socket.port_value = host.strip("[]"), int(port)
        self._held[address] = [(entry, one)]
        return one

    def drop_left(self) -> None:
        """Drop the endpoints that are elsewhere now."""
        if not self._left:
            return
        for entry in self.message.endpoints:
            kept = [one for one in entry.lb_endpoints if id(one) not in self._left]
            if len(kept) < len(entry.lb_endpoints):
                del entry.lb_endpoints[:]
                entry.lb_endpoints.extend(kept)


def _change_one(edit: _Edit, change: EndpointChange, pointer: str) -> list[Violation]:
    held = edit.held(change.address)
    places = {_place(entry): None for entry in edit.message.endpoints}
    if change.locality is None and change.priority is None and held:
        _, one = held[-1]
    else:
        place, findings = _target(places, [_place(entry) for entry, _ in held], change, pointer)
        if findings:
            return findings
        one = edit.moved(_entry_at(edit.message, place), change.address)
    if change.weight is not None:
        one.load_balancing_weight.value = change.weight
    if change.health is not None:
        one.health_status = change.health
    if change.hostname is not None:
        one.endpoint.hostname = change.hostname
    return []


_Place = tuple[Locality, int]


def _target(
    places: Collection[_Place], held: list[_Place], change: EndpointChange, pointer: str
) -> tuple[_Place, list[Violation]]:
    """The locality and priority of an endpoint, by what is given, where it was, and what there is."""
    if change.locality is not None:
        priorities = [priority for locality, priority in places if locality == change.locality]
        default = min(priorities, default=0)
        return (change.locality, change.priority if change.priority is not None else default), []
    candidates = held or [place for place in places if change.priority in (None, place[1])] or list(places)
    localities = {locality for locality, _ in candidates}
    if len(localities) > 1:
        detail = f"{change.address} is new, and the assignment has several localities: say which"
        return (Locality(), 0), [Violation("locality_needed", detail, pointer=f"{pointer}/locality")]
    locality = next(iter(localities), Locality())
    priority = change.priority if change.priority is not None else min((each for _, each in candidates), default=0)
    return (locality, priority), []


def _entry_at(message: Any, place: _Place, like: Any = None) -> Any:
    """The entry of a locality and priority, created if there is none: without endpoints, else as ``like``."""
    found = next((entry for entry in message.endpoints if _place(entry) == place), None)
    if found is not None:
        return found
    entry = message.endpoints.add()
    if like is not None:
        entry.CopyFrom(like)
        del entry.lb_endpoints[:]
    locality, entry.priority = place
    if locality != Locality():
        own = entry.locality
        own.region, own.zone, own.sub_zone = locality.region, locality.zone, locality.sub_zone
    if not entry.load_balancing_weight.value:
        entry.load_balancing_weight.value = 1  # gRPC drops a locality without a weight
    return entry


def _drop_emptied(message: Any) -> None:
    """Drop localities without endpoints, unless their priority would be missing then."""
    while True:
        entries = list(message.endpoints)
        highest = max((entry.priority for entry in entries), default=0)
        gone = next((at for at, entry in enumerate(entries) if _is_needless(entry, entries, highest)), None)
        if gone is None:
            return
        del message.endpoints[gone]


def _is_needless(entry: Any, entries: list[Any], highest: int) -> bool:
    if entry.lb_endpoints or entry.WhichOneof("lb_config") is not None:
        return False
    return entry.priority == highest or any(
        other is not entry and other.priority == entry.priority for other in entries
    )


def _place(entry: Any) -> _Place:
    return locality_of(entry), entry.priority


def _places(message: Any) -> str:
    found = dict.fromkeys(
        f"{locality} with priority {priority}" for locality, priority in map(_place, message.endpoints)
    )
    return f"it has {', '.join(found)}" if found else "it has none"


def _checked(message: Any, before: Resource) -> Resource:
    """The assignment that ``before`` became, validated as a pushed one. Raises ``ValidationError``."""
    body = message.SerializeToString(deterministic=True)
    made = resource_from_bytes(ENDPOINT, body, aliases=before.aliases, ttl_s=before.ttl_s)
    check_priorities(made)
    return made


# What drains


def drain_missing(before: Resource, wanted: Resource, until_s: float) -> tuple[DrainingEndpoint, ...]:
    """The endpoints of ``before`` that ``wanted`` lacks, as endpoints that drain until ``until_s``."""
    kept = addresses_of(wanted)
    found: dict[str, DrainingEndpoint] = {}
    for entry in decode_assignment(before).endpoints:
        endpoints = list(entry.lb_endpoints)
        del entry.lb_endpoints[:]
        for one in endpoints:
            address = address_text(one)
            if address not in kept and address not in found:
                found[address] = DrainingEndpoint(address, _alone(entry, one), until_s)
    return tuple(found.values())


def take_back(wanted: Resource, draining: Iterable[DrainingEndpoint], addresses: Collection[str]) -> Resource:
    """The assignment with those draining endpoints of these addresses that it lacks, as they were before."""
    message = decode_assignment(wanted)
    held = {address_text(one) for _, one in _endpoints(message)}
    for each in draining:
        if each.address in addresses and each.address not in held:
            alone = _parsed_entry(each.entry)
            entry = _entry_at(message, _place(alone), alone)
            entry.lb_endpoints.add().CopyFrom(alone.lb_endpoints[0])
    return _checked(message, wanted)


def still_draining(
    draining: Iterable[DrainingEndpoint], wanted: Resource, now_s: float = 0.0
) -> tuple[DrainingEndpoint, ...]:
    """Those that are not wanted again, and have not ended at ``now_s``."""
    kept = addresses_of(wanted)
    left = {one.address: one for one in draining if one.address not in kept and one.until_s > now_s}
    return tuple(sorted(left.values(), key=lambda one: (one.until_s, one.address))[-DRAINING_LIMIT:])


def with_draining(wanted: Resource, draining: Collection[DrainingEndpoint]) -> Resource:
    """What is served: the wanted assignment, and the draining endpoints behind those of their locality."""
    if not draining:
        return wanted
    message = decode_assignment(wanted)
    highest = max((entry.priority for entry in message.endpoints), default=-1)
    for each in draining:
        alone = _parsed_entry(each.entry)
        priority = min(alone.priority, highest + 1, PRIORITY_LIMIT)
        highest = max(highest, priority)
        one = _entry_at(message, (locality_of(alone), priority), alone).lb_endpoints.add()
        one.CopyFrom(alone.lb_endpoints[0])
        one.health_status = _DRAINING
    body = message.SerializeToString(deterministic=True)
    version = content_version(body, wanted.aliases, wanted.ttl_s)
    return replace(wanted, body=body, version=version, references=references_of(ENDPOINT, message, body))


def _alone(entry: Any, one: Any) -> bytes:
    """One endpoint in an entry that has none."""
    made = type(entry)()
    made.CopyFrom(entry)
    made.lb_endpoints.add().CopyFrom(one)
    return bytes(made.SerializeToString(deterministic=True))


def _parsed_entry(data: bytes) -> Any:
    message: Any = schema.require(ENDPOINT)()
    return message.endpoints.add().FromString(data)

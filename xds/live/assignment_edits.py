"""Edits of an assignment: endpoints are added, changed and removed, localities get other weights.

The edited assignment is valid for Envoy and gRPC: priorities have no gap, and an added locality has a weight. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xds.codec import schema
from xds.codec.load_assignment import decode_assignment, locality_of
from xds.codec.resources import resource_from_bytes
from xds.model.errors import ValidationError, Violation
from xds.model.ip_address import canonical_ipv6
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT

EntryKey = tuple[Locality, int]  # locality and priority


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """The changes of one endpoint; None changes nothing. A new endpoint needs a locality if there are several."""

    address: str
    weight: int | None = None
    health: int | None = None
    locality: Locality | None = None
    priority: int | None = None
    hostname: str | None = None


# Addresses


def address_text(endpoint: Any) -> str:
    """The text that identifies an LbEndpoint: ``10.0.0.1:80``, ``[::1]:80``, ``unix:PATH``, ``internal:LISTENER/ID``.

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
    """The text that identifies an endpoint, for an address that a user wrote."""
    host, _, port = text.rpartition("]:")
    return f"[{canonical_ipv6(host[1:])}]:{port}" if host.startswith("[") and ":" in host else text


def addresses_of(assignment: Resource) -> dict[str, None]:
    """The addresses of all endpoints of an assignment, in their order."""
    return dict.fromkeys(address_text(one) for _, one in endpoints_in(decode_assignment(assignment)))


def resource_label(assignment: Resource) -> str:
    """The label of an assignment in a finding."""
    return f"endpoints/{assignment.name}"


def endpoints_in(message: Any) -> Iterator[tuple[Any, Any]]:
    """Each endpoint of an assignment, with its entry."""
    for entry in message.endpoints:
        for one in entry.lb_endpoints:
            yield entry, one


# Edits


def check_priorities(wanted: Resource) -> None:
    """Raises ``ValidationError`` for a gap in the priorities: gRPC rejects such an assignment."""
    priorities = {entry.priority for entry in decode_assignment(wanted).endpoints}
    lacking = next((priority for priority in range(max(priorities, default=0)) if priority not in priorities), None)
    if lacking is not None:
        detail = f"no locality has priority {lacking}, but one has priority {max(priorities)}: priorities have no gap"
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
    edit.drop_moved()
    _drop_empty(message)
    return validated(message, wanted)


def change_weights(wanted: Resource, weights: Mapping[tuple[Locality, int], int]) -> Resource:
    """The assignment with other weights of localities, by locality and priority. Raises ``ValidationError``."""
    message = decode_assignment(wanted)
    for index, ((locality, priority), weight) in enumerate(weights.items()):
        entries = [entry for entry in message.endpoints if entry_key(entry) == (locality, priority)]
        if not entries:
            detail = f"the assignment has no locality {locality} with priority {priority}; {_entry_keys_text(message)}"
            raise ValidationError([Violation("unknown_locality", detail, pointer=f"/localities/{index}")])
        for entry in entries:
            entry.load_balancing_weight.value = weight
    return validated(message, wanted)


def remove_endpoints(wanted: Resource, addresses: Collection[str]) -> Resource:
    """The assignment without the endpoints of these addresses."""
    message = decode_assignment(wanted)
    removed = frozenset(addresses)
    for entry in message.endpoints:
        kept = [one for one in entry.lb_endpoints if address_text(one) not in removed]
        if len(kept) < len(entry.lb_endpoints):
            del entry.lb_endpoints[:]
            entry.lb_endpoints.extend(kept)
    _drop_empty(message)
    return validated(message, wanted)


class _Edit:
    """An assignment whose endpoints are changed one by one, found by address. `drop_moved` ends the edit."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self._by_address: dict[str, list[tuple[Any, Any]]] = {}
        self._moved: dict[int, Any] = {}  # the old copies of moved endpoints by ``id``; kept, so that no id is reused
        for entry, one in endpoints_in(message):
            self._by_address.setdefault(address_text(one), []).append((entry, one))

    def find(self, address: str) -> list[tuple[Any, Any]]:
        """The endpoints with an address, each with its entry."""
        return self._by_address.get(address, [])

    def move(self, entry: Any, address: str) -> Any:
        """The endpoint in this entry: moved from another entry, or new."""
        existing = self.find(address)
        for other, one in existing:
            if other is entry or entry_key(other) == entry_key(entry):
                return one
        one = entry.lb_endpoints.add()
        if existing:
            one.CopyFrom(existing[-1][1])
            self._moved |= {id(old): old for _, old in existing}
        else:
            host, _, port = address.rpartition(":")
            socket = one.endpoint.address.socket_address
            socket.address, socket.port_value = host.strip("[]"), int(port)
        self._by_address[address] = [(entry, one)]
        return one

    def drop_moved(self) -> None:
        """Drop the old copies of moved endpoints."""
        if not self._moved:
            return
        for entry in self.message.endpoints:
            kept = [one for one in entry.lb_endpoints if id(one) not in self._moved]
            if len(kept) < len(entry.lb_endpoints):
                del entry.lb_endpoints[:]
                entry.lb_endpoints.extend(kept)


def _change_one(edit: _Edit, change: EndpointChange, pointer: str) -> list[Violation]:
    existing = edit.find(change.address)
    keys = {entry_key(entry): None for entry in edit.message.endpoints}
    if change.locality is None and change.priority is None and existing:
        _, one = existing[-1]
    else:
        key, findings = _target(keys, [entry_key(entry) for entry, _ in existing], change, pointer)
        if findings:
            return findings
        one = edit.move(entry_at(edit.message, key), change.address)
    if change.weight is not None:
        one.load_balancing_weight.value = change.weight
    if change.health is not None:
        one.health_status = change.health
    if change.hostname is not None:
        one.endpoint.hostname = change.hostname
    return []


def _target(
    keys: Collection[EntryKey], existing: list[EntryKey], change: EndpointChange, pointer: str
) -> tuple[EntryKey, list[Violation]]:
    """The locality and priority of an endpoint: as the change says, else as before, else as other entries have them.

    ``keys`` are those of all entries, ``existing`` those of the entries that have the endpoint.
    """
    if change.locality is not None:
        priorities = [priority for locality, priority in keys if locality == change.locality]
        default = min(priorities, default=0)
        return (change.locality, change.priority if change.priority is not None else default), []
    candidates = existing or [key for key in keys if change.priority in (None, key[1])] or list(keys)
    localities = {locality for locality, _ in candidates}
    if len(localities) > 1:
        detail = f"{change.address} is new, and the assignment has several localities: say which"
        return (Locality(), 0), [Violation("locality_needed", detail, pointer=f"{pointer}/locality")]
    locality = next(iter(localities), Locality())
    priority = change.priority if change.priority is not None else min((each for _, each in candidates), default=0)
    return (locality, priority), []


def entry_at(message: Any, key: EntryKey, like: Any = None) -> Any:
    """The entry of a locality and priority. If there is none, an entry like ``like`` without endpoints is added."""
    present = next((entry for entry in message.endpoints if entry_key(entry) == key), None)
    if present is not None:
        return present
    entry = message.endpoints.add()
    if like is not None:
        entry.CopyFrom(like)
        del entry.lb_endpoints[:]
    locality, entry.priority = key
    if locality != Locality():
        field = entry.locality
        field.region, field.zone, field.sub_zone = locality.region, locality.zone, locality.sub_zone
    if not entry.load_balancing_weight.value:
        entry.load_balancing_weight.value = 1  # gRPC drops a locality without a weight
    return entry


def _drop_empty(message: Any) -> None:
    """Drop localities without endpoints, unless their priority would be missing then."""
    while True:
        entries = list(message.endpoints)
        highest = max((entry.priority for entry in entries), default=0)
        needless = next((at for at, entry in enumerate(entries) if _is_needless(entry, entries, highest)), None)
        if needless is None:
            return
        del message.endpoints[needless]


def _is_needless(entry: Any, entries: list[Any], highest: int) -> bool:
    if entry.lb_endpoints or entry.WhichOneof("lb_config") is not None:
        return False
    return entry.priority == highest or any(
        other is not entry and other.priority == entry.priority for other in entries
    )


def entry_key(entry: Any) -> EntryKey:
    """The locality and the priority of an entry."""
    return locality_of(entry), entry.priority


def _entry_keys_text(message: Any) -> str:
    texts = dict.fromkeys(
        f"{locality} with priority {priority}" for locality, priority in map(entry_key, message.endpoints)
    )
    return f"it has {', '.join(texts)}" if texts else "it has none"


def validated(message: Any, before: Resource) -> Resource:
    """The changed assignment, validated as a pushed one. Raises ``ValidationError``."""
    body = message.SerializeToString(deterministic=True)
    made = resource_from_bytes(ENDPOINT, body, aliases=before.aliases, ttl_s=before.ttl_s)
    check_priorities(made)
    return made

"""Checks of a planned change that need more than its own resources.

They consider the other resources of the group, and the connected nodes. A change that would
leave connected nodes without any resource is refused unless the caller permits it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import time
from types import MappingProxyType

from xds.codec.conflicts import LISTENERS, ListenerAddress, addresses_of
from xds.codec.crosscheck import check_references
from xds.codec.findings import Findings
from xds.codec.source_fit import check_nodes, names_ads
from xds.fleet.fleet import Fleet
from xds.model.errors import ERROR, WARNING, EmptyingError, ValidationError, Violation
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT, resource_type
from xds.model.units import MIB
from xds.push.content import BlobIds, GroupContent, Key
from xds.push.groups import GroupSettings, GroupTable
from xds.push.request import PlannedChange, PushRequest, plan_change
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.membership import Membership
from xds.store.base import Delta, Drop, FullSet, Rollback
from xds.tasks.threads import run_sized

REQUEST_BYTES = 8 * MIB
# Of the two occurrences of a name in a request: tags, lengths, and a version of 20 characters.
_NAME_OVERHEAD_BYTES = 32
_NO_RESOURCES: Mapping[str, Mapping[str, Resource]] = {}


def plan_reviewed(
    request: PushRequest,
    current: GroupContent | None,
    target: GroupContent | None,
    live: Iterable[str] = (),
    request_bytes: int = REQUEST_BYTES,
) -> PlannedChange:
    """Plan a change and review it; ``request_bytes`` as in `review_names`. Raises as ``plan_change`` and ``review``."""
    planned = plan_change(request, current, target)
    return replace(
        planned, warnings=(*review(planned, live), *review_moves(planned), *review_names(planned, request_bytes))
    )


def review(planned: PlannedChange, live: Iterable[str]) -> tuple[Violation, ...]:
    """Warnings about the references between the resources of a change and the other resources of the group.

    ``live`` are the assignments of the group that have an owner, so that they need not be pushed. Raises
    ``ValidationError`` for errors that make every Envoy reject the resources. A rollback is not reviewed: its resources
    were reviewed when they were pushed.
    """
    change = planned.request.change
    findings: list[Violation] = []
    owned = frozenset((ENDPOINT, name) for name in (*planned.request.derived.after.assignments, *live))
    if isinstance(change, FullSet):
        before = planned.current.blob_ids if planned.current is not None else BlobIds()
        removed = before.keys() - planned.blob_ids.keys()
        findings = check_references(planned.resources.values(), removed=removed, elsewhere=owned)
    elif isinstance(change, Delta):
        known = (
            _NO_RESOURCES
            if planned.current is None
            else {one.type.type_url: one.resources for one in planned.current.snapshot}
        )
        put = planned.resources.values()
        findings = check_references(put, removed=change.delete, known=known, elsewhere=owned)
    errors = [one for one in findings if one.severity == ERROR]
    if errors:
        raise ValidationError(errors)
    return tuple(findings)


def review_moves(planned: PlannedChange) -> list[Violation]:
    """Warnings about listeners that take an address which another listener leaves in the same change.

    Envoy has both for a moment, and rejects the new address: of two listeners that swap addresses it rejects both, of
    others the one that it reads or warms first (docs/internals/clients.md#nacks). It removes listeners before it adds
    others.
    """
    if planned.current is None:
        return []
    taken = {key: _new_addresses(planned, key) for key in planned.resources if key[0] in LISTENERS}
    if not any(taken.values()):
        return []
    owners = {address: one for one in planned.current.resources() for address in addresses_of(one)}
    findings = Findings()
    for (type_url, name), addresses in taken.items():
        for address in addresses:
            owner = owners.get(address)
            after = planned.after(owner.type_url, owner.name) if owner is not None else None
            if owner is not None and after is not None and address not in addresses_of(after):
                findings.name_resource(type_url, name)
                detail = f"listener {owner.name!r} has the address {address} until this push; Envoy may refuse it here"
                findings.warn("address_in_use", detail, ("address",), hint=_MOVE_FIRST)
    return findings.warnings


_MOVE_FIRST = "push the other listener's new address first, a swap by way of a third address"


def _new_addresses(planned: PlannedChange, key: Key) -> set[ListenerAddress]:
    """The addresses of a listener that it does not have before the change."""
    before = planned.current.get(key) if planned.current is not None else None
    return {*addresses_of(planned.resources[key])} - {*(addresses_of(before) if before is not None else ())}


def review_names(planned: PlannedChange, request_bytes: int) -> list[Violation]:
    """Warnings about types with so many or such long names that clients cannot request all of them.

    ``request_bytes`` is the size of the largest request that is accepted. A reconnecting Delta client names each
    resource twice in one request: to subscribe to it, and with its version.
    """
    before = planned.current.blob_ids if planned.current is not None else BlobIds()
    if isinstance(planned.request.change, Drop) or planned.resources.keys() <= before.keys():
        return []
    names_bytes = Counter[str]()
    for type_url, name in planned.blob_ids:
        names_bytes[type_url] += 2 * len(name) + _NAME_OVERHEAD_BYTES
    return [
        _too_many_names(resource_type(type_url).alias, size, request_bytes)
        for type_url, size in names_bytes.items()
        if size > request_bytes
    ]


def _too_many_names(alias: str, size: int, request_bytes: int) -> Violation:
    detail = (
        f"a client that names all {alias} in one request sends up to {size} bytes, and this server accepts "
        f"{request_bytes}: its stream ends with each such request"
    )
    hint = "raise limits.grpc_receive_bytes, or divide the resources among groups"
    return Violation("names_too_large", detail, alias, severity=WARNING, hint=hint)


def review_nodes(planned: PlannedChange, fleet: Fleet, now: float) -> list[Violation]:
    """A warning if the change names resources by ADS, and nodes of the group take clusters or listeners without."""
    if isinstance(planned.request.change, Drop | Rollback) or not any(map(names_ads, planned.resources.values())):
        return []
    return check_nodes(planned.resources.values(), fleet.without_ads(planned.group, now))


def review_size(request: PushRequest, current: GroupContent | None) -> int:
    """How many resources a review reads.

    A listener is compared with all other listeners, a removal with all references. Otherwise only the pushed resources
    are read.
    """
    change, size = request.change, len(request.resources)
    if (
        isinstance(change, Delta)
        and not change.delete
        and not any(type_url in LISTENERS for type_url, _ in request.resources)
    ):
        return size
    return size + (len(current) if current is not None else 0)


# Number of connected nodes by the group that they move to. The empty name means that no group matches them.
Moves = Mapping[str, int]
NO_MOVES: Moves = MappingProxyType({})


class EmptyGroupGuard:
    """Refuses changes that leave connected nodes without resources."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, settings: GroupTable) -> None:
        self._cache = cache
        self._fleet = fleet
        self._settings = settings

    async def moves(self, request: PushRequest) -> Moves:
        """Where the connected nodes of a group move when it is deleted. Other changes move no node."""
        if not isinstance(request.change, Drop):
            return NO_MOVES
        identities = [self._fleet.identity(node_id) for node_id in self._fleet.connected(request.group)]
        nodes = [node for node in identities if node is not None]
        return await run_sized(_moves, self._cache.membership, nodes, request.group, resources=len(nodes))

    def check(self, planned: PlannedChange, moves: Moves) -> None:
        """Raises ``EmptyingError`` for a change that leaves connected nodes without resources."""
        if isinstance(planned.request.change, Drop):
            self._check_moves(planned.group, moves)
        elif not planned.blob_ids:
            self._check_emptied(planned.group)

    def check_selector(self, group: str, settings: GroupSettings) -> None:
        """Raises ``EmptyingError`` for a selector that moves nodes to an empty group."""
        if settings.selector and self._is_empty(group):
            detail = f"group {group!r} is empty: the nodes that the selector matches would lose all resources"
            raise EmptyingError(detail)

    def _check_emptied(self, group: str) -> None:
        connected = len(self._fleet.connected(group)) + self._fleet.polling(group, time())
        if self._settings.get(group).selector and self._cache.pushed(group) is None:
            detail = f"an empty group {group!r} would remove all resources from the nodes that its selector matches"
            raise EmptyingError(detail)
        if connected:
            raise EmptyingError(f"this leaves group {group!r} empty with {node_count(connected)} connected")

    def _check_moves(self, group: str, moves: Moves) -> None:
        """Raises ``EmptyingError`` if the deletion of the group leaves nodes without a group, or without resources."""
        lost = [f"{node_count(moves[''])} would match no group and get no more updates"] if moves.get("") else []
        lost += [
            f"{node_count(number)} would move to {other!r}, which is empty, and lose all resources"
            for other, number in sorted(moves.items())
            if other and self._is_empty(other)
        ]
        if lost:
            raise EmptyingError(f"deleting group {group!r}: {'; '.join(lost)}")

    def _is_empty(self, group: str) -> bool:
        return any(not any(map(len, snapshot)) for snapshot in self._cache.all_pushed(group))


def node_count(nodes: int) -> str:
    """``1 node`` or ``N nodes``."""
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _moves(membership: Membership, nodes: Iterable[Node], without: str) -> Moves:
    matches = (membership.match_without(node, without) for node in nodes)
    return Counter(match.group if match is not None else "" for match in matches)

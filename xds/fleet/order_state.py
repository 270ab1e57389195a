"""Lingering and held resources of the clients of a node (docs/internals/design.md#order-of-updates).

The engine reports both as immutable values that clients share. States for operators are built on demand, in any thread.
A client has a mixed set while resources linger, are held, or were rejected; a mixed set differs from every pushed set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import nsmallest

from xds.fleet.state import HeldResources, LingeringResources
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet, empty_set, mix
from xds.protocol import events
from xds.snapshots.linger import NOTHING_LINGERS, Lingering, NamesByType

NAMES_SHOWN = 100
LINGERS_SHOWN = 100

ClientKey = tuple[str, str]  # peer address, API

_SETS_LIMIT = 64


class ClientOrderState:
    """The last report about one client. ``offset_s`` is epoch seconds minus the engine's clock."""

    __slots__ = ("held", "lingering", "offset_s")

    def __init__(self) -> None:
        self.lingering: Lingering = NOTHING_LINGERS
        self.held: tuple[events.HeldContent, ...] = ()
        self.offset_s = 0.0

    def linger(self, lingering: Lingering, offset_s: float) -> None:
        """Replace the lingering resources."""
        self.lingering, self.offset_s = lingering, offset_s

    def hold(self, held: tuple[events.HeldContent, ...]) -> None:
        """Replace the held resources."""
        self.held = held

    def __bool__(self) -> bool:
        """False if no resource lingers or is held."""
        return bool(self.lingering or self.held)


Clients = Mapping[ClientKey, ClientOrderState]
NO_CLIENTS: Mapping[ClientKey, ClientOrderState] = {}


def lingering_resources(clients: Clients) -> tuple[LingeringResources, ...]:
    """Lingering resources per push and type, oldest first. Clients of one node id are merged."""
    names: dict[tuple[int, str], frozenset[str]] = {}
    ends: dict[tuple[int, str], float | None] = {}
    for client in list(clients.values()):
        for removal in client.lingering.removals:
            until = removal.ends_s + client.offset_s if removal.ends_s is not None else None
            for type_url, removed in removal.names.items():
                key = (removal.revision, alias_of(type_url))
                names[key] = names[key] | removed if key in names else removed
                ends[key] = _later(ends[key], until) if key in ends else until
    return tuple(
        LingeringResources(alias, revision, len(found), ends[revision, alias], tuple(nsmallest(NAMES_SHOWN, found)))
        for (revision, alias), found in sorted(names.items())
    )


def lingering_until(clients: Clients) -> dict[str, dict[str, float | None]]:
    """When each lingering name is removed, by type URL and name; None while its drain time has not started."""
    ends_by_name: dict[str, dict[str, float | None]] = {}
    for client in list(clients.values()):
        for removal in client.lingering.removals:
            until = removal.ends_s + client.offset_s if removal.ends_s is not None else None
            for type_url, names in removal.names.items():
                ends = ends_by_name.setdefault(type_url, {})
                ends.update((name, _later(ends[name], until) if name in ends else until) for name in names)
    return ends_by_name


def held_resources(clients: Clients) -> tuple[HeldResources, ...]:
    """Held resources, grouped by what they wait for."""
    grouped: dict[tuple[tuple[str, ...], bool, NamesByType], set[tuple[str, str]]] = {}
    for client in list(clients.values()):
        for held in client.held:
            resources = grouped.setdefault((held.waits_for, held.is_unreadable, held.waits_for_others), set())
            resources.update(_pairs(held.names))
    return tuple(
        HeldResources(
            tuple(nsmallest(NAMES_SHOWN, resources)),
            len(resources),
            waits_for[:NAMES_SHOWN],
            any_cluster,
            tuple(nsmallest(NAMES_SHOWN, _pairs(others))),
        )
        for (waits_for, any_cluster, others), resources in grouped.items()
    )


def _pairs(names: NamesByType) -> Iterator[tuple[str, str]]:
    return ((alias_of(type_url), name) for type_url, each in names for name in each)


def held_aliases(clients: Clients) -> frozenset[str]:
    """The aliases of the types with held resources."""
    return frozenset(
        alias_of(type_url) for client in list(clients.values()) for held in client.held for type_url, _ in held.names
    )


def held_by_name(clients: Clients) -> dict[tuple[str, str], events.HeldContent]:
    """The held content that each held resource belongs to, by type URL and name."""
    return {
        (type_url, name): held
        for client in list(clients.values())
        for held in client.held
        for type_url, names in held.names
        for name in names
    }


def lingering_names(clients: Iterable[ClientOrderState]) -> dict[str, set[str]]:
    """The lingering names that have an end, by type alias."""
    by_alias: dict[str, set[str]] = {}
    for removal in (each for client in clients for each in client.lingering.removals if each.ends_s is not None):
        for type_url, names in removal.names.items():
            by_alias.setdefault(alias_of(type_url), set()).update(names)
    return by_alias


def count_resources(lingering: Iterable[LingeringResources]) -> int:
    """The number of lingering resources."""
    return sum(each.count for each in lingering)


def _later(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def pushed_base(resource_set: ResourceSet) -> ResourceSet:
    """The pushed set that a mixed set was made from."""
    while resource_set.mixture is not None:
        resource_set = resource_set.mixture.base
    return resource_set


class PartialSets:
    """Sets without the resources that a client rejected. One set serves all clients in the same state."""

    def __init__(self) -> None:
        self._sets: dict[tuple[int, int, tuple[str, ...]], ResourceSet] = {}

    def partial_set(self, offered: ResourceSet, before: ResourceSet | None, guilty: tuple[str, ...]) -> ResourceSet:
        """The set of a client that had ``before`` and rejected the names ``guilty`` of ``offered``."""
        base = before if before is not None else empty_set(offered.type.type_url)
        key = (offered.id, base.id, guilty)
        partial = self._sets.pop(key, None) or mix(offered, base, guilty)
        self._sets[key] = partial
        if len(self._sets) > _SETS_LIMIT:
            del self._sets[next(iter(self._sets))]
        return partial


def comparable_set(resource_set: ResourceSet, among: Collection[str] | None = None) -> ResourceSet:
    """The set to compare with pushes: the pushed base if a mixed set contains all of it, else the mixed set.

    With ``among`` only these names count.
    """
    if resource_set.mixture is None:
        return resource_set
    pushed, mixed = pushed_base(resource_set), resource_set
    names = pushed.resources.keys() if among is None else pushed.resources.keys() & among
    while mixed.mixture is not None:
        if not mixed.mixture.earlier_names.isdisjoint(names):
            return resource_set
        mixed = mixed.mixture.base
    return pushed

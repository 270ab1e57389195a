"""What the order of pushes keeps for the clients of a node, and what it holds back from them (DESIGN 3.2).

The engine tells both as values that clients share; what is shown of them is built when it is asked for, in whichever
thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest

from xds.fleet.state import Held, Linger
from xds.model.resource_type import alias_of
from xds.protocol import events
from xds.protocol.linger import NOTHING_LINGERS, Lingering

NAMES_SHOWN = 100
LINGERS_SHOWN = 100

ClientKey = tuple[str, str]  # peer address, API


class ClientFacts:
    """What was told last of one client. ``offset_s`` leads from the engine's clock to epoch seconds."""

    __slots__ = ("held", "lingering", "offset_s")

    def __init__(self) -> None:
        self.lingering: Lingering = NOTHING_LINGERS
        self.held: tuple[events.HeldContent, ...] = ()
        self.offset_s = 0.0

    def linger(self, lingering: Lingering, offset_s: float) -> None:
        """This lingers from now on, and nothing else."""
        self.lingering, self.offset_s = lingering, offset_s

    def hold(self, held: tuple[events.HeldContent, ...]) -> None:
        """This is held back from now on, and nothing else."""
        self.held = held

    def __bool__(self) -> bool:
        """False when there is nothing to show."""
        return bool(self.lingering or self.held)


Clients = Mapping[ClientKey, ClientFacts]
NO_CLIENTS: Clients = {}


def lingers(clients: Clients) -> tuple[Linger, ...]:
    """What lingers, push by push and type by type, the oldest first. Clients of one node id are put together."""
    names: dict[tuple[int, str], frozenset[str]] = {}
    ends: dict[tuple[int, str], float | None] = {}
    for facts in list(clients.values()):
        for removal in facts.lingering.removals:
            until = removal.ends_s + facts.offset_s if removal.ends_s is not None else None
            for type_url, removed in removal.names.items():
                key = (removal.revision, alias_of(type_url))
                names[key] = names[key] | removed if key in names else removed
                ends[key] = _later(ends[key], until) if key in ends else until
    return tuple(
        Linger(alias, revision, len(found), ends[revision, alias], tuple(nsmallest(NAMES_SHOWN, found)))
        for (revision, alias), found in sorted(names.items())
    )


def lingering_until(clients: Clients) -> dict[str, dict[str, float | None]]:
    """When each lingering name ends, by type URL and name; None while its clock has not started."""
    found: dict[str, dict[str, float | None]] = {}
    for facts in list(clients.values()):
        for removal in facts.lingering.removals:
            until = removal.ends_s + facts.offset_s if removal.ends_s is not None else None
            for type_url, names in removal.names.items():
                ends = found.setdefault(type_url, {})
                ends.update((name, _later(ends[name], until) if name in ends else until) for name in names)
    return found


def held_back(clients: Clients) -> tuple[Held, ...]:
    """What is held back, put together by what it waits for."""
    found: dict[tuple[tuple[str, ...], bool], set[tuple[str, str]]] = {}
    for facts in list(clients.values()):
        for held in facts.held:
            resources = found.setdefault((held.waits_for, held.is_unreadable), set())
            resources.update((alias_of(type_url), name) for type_url, names in held.names for name in names)
    return tuple(
        Held(tuple(nsmallest(NAMES_SHOWN, resources)), len(resources), waits_for[:NAMES_SHOWN], any_cluster)
        for (waits_for, any_cluster), resources in found.items()
    )


def held_aliases(clients: Clients) -> frozenset[str]:
    """The types of which something is held back."""
    return frozenset(
        alias_of(type_url) for facts in list(clients.values()) for held in facts.held for type_url, _ in held.names
    )


def waits_of(clients: Clients) -> dict[tuple[str, str], events.HeldContent]:
    """What a resource waits for, by type URL and name."""
    return {
        (type_url, name): held
        for facts in list(clients.values())
        for held in facts.held
        for type_url, names in held.names
        for name in names
    }


def lingering_names(clients: Iterable[ClientFacts]) -> dict[str, set[str]]:
    """All names that linger, by type."""
    found: dict[str, set[str]] = {}
    for facts in clients:
        for type_url, names in facts.lingering.names.items():
            found.setdefault(alias_of(type_url), set()).update(names)
    return found


def counted(found: Iterable[Linger]) -> int:
    """How many resources linger."""
    return sum(each.count for each in found)


def _later(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)

"""Live endpoints: who lays which assignment over the pushed ones of a group (docs/services.md#live-endpoints).

A live assignment of a group has one owner: a person who sets it by hand
(`xds.control.hand_assignments`), a binding to a service of the catalog, or an upstream that is lowered. A second owner
is refused with both named, so that no two of them take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from xds.model.errors import ConflictError
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.protocol.cache import SnapshotCache


class OwnerKind(StrEnum):
    """What owns a live assignment."""

    HAND = "hand"
    BINDING = "binding"
    LOWERED = "lowered"
    LEAVING = "leaving"  # nobody's any more, but endpoints of it still drain: everybody may have it


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a live assignment. ``actor`` changed it last, at ``time_s``.

    ``service`` is that of a binding; for a lowered assignment, the name of the upstream.
    """

    kind: OwnerKind
    service: str = ""
    actor: str = ""
    time_s: float = 0.0

    def __str__(self) -> str:
        """Such as ``set by hand by alice`` or ``bound to service 'web'``."""
        if self.kind is OwnerKind.LEAVING:
            return "about to be as it was pushed"
        if self.kind is OwnerKind.BINDING:
            return f"bound to service {self.service!r}" if self.service else "bound to a service"
        if self.kind is OwnerKind.LOWERED:
            return f"lowered from upstream {self.service!r}" if self.service else "lowered from an upstream"
        return f"set by hand by {self.actor}" if self.actor else "set by hand"


class OwnedError(ConflictError):
    """The assignment has another owner. The message names both."""

    def __init__(self, group: str, name: str, owner: Owner, wanted: Owner) -> None:
        super().__init__(f"assignment {name!r} of group {group!r} is {owner}: it cannot be {wanted}", 0, group)
        self.owner = owner


class LiveEndpoints:
    """The owners of the live assignments of all groups, and their assignments in the cache.

    ``wake`` is called once for each change that a group is served.
    """

    def __init__(self, cache: SnapshotCache, wake: Callable[[Collection[str]], None]) -> None:
        self.changes: Counter[OwnerKind] = Counter()  # of what groups are served
        self._cache = cache
        self._wake = wake
        self._owners: dict[str, dict[str, Owner]] = {}

    def owner(self, group: str, name: str) -> Owner | None:
        """The owner of a live assignment; None if it has none."""
        return self._owners.get(group, {}).get(name)

    def owners(self, group: str) -> Mapping[str, Owner]:
        """The owners of a group by the name of the assignment."""
        return self._owners.get(group, {})

    def get(self, group: str, name: str) -> Resource | None:
        """The live assignment; None if there is none, or if its owner has not provided one yet."""
        return self._cache.observed(group).get(name)

    def served(self, group: str, name: str) -> Resource | None:
        """The assignment that the group is served under this name, live or pushed; None for none."""
        snapshot = self._cache.get(group)
        return snapshot.get(ENDPOINT).resources.get(name) if snapshot is not None else self.get(group, name)

    def pushed(self, group: str, name: str) -> Resource | None:
        """The assignment that was pushed under this name; None for none."""
        snapshot = self._cache.pushed(group)
        return snapshot.get(ENDPOINT).resources.get(name) if snapshot is not None else None

    def check(self, group: str, names: Iterable[str], owner: Owner) -> None:
        """Raises ``OwnedError`` for the first name that has an owner of another kind, and is not ``LEAVING``."""
        held = self.owners(group)
        for name in names:
            found = held.get(name)
            if found is not None and found.kind not in (owner.kind, OwnerKind.LEAVING):
                raise OwnedError(group, name, found, owner)

    def claim(self, group: str, name: str, owner: Owner) -> None:
        """Own a name before there is an assignment, or as another owner of the same kind. Raises ``OwnedError``."""
        self.check(group, (name,), owner)
        self._owners.setdefault(group, {})[name] = owner

    def give(self, group: str, name: str, owner: Owner | None) -> None:
        """Give a name to another owner, or to none, whatever its present owner. What is served does not change."""
        held = self._owners.setdefault(group, {})
        if owner is not None:
            held[name] = owner
            return
        held.pop(name, None)
        if not held:
            del self._owners[group]

    def assign(
        self, group: str, owner: Owner, put: Mapping[str, Resource], gone: Collection[str] = (), *, wakes: bool = True
    ) -> bool:
        """Lay these assignments over the group, and take away those of ``gone``, in one step.

        The names of ``put`` belong to ``owner`` from now on (those that its kind claimed keep their claim). The names
        of ``gone`` have no owner. Returns whether the group is served other content; its streams are woken once then.
        Nothing is changed on ``OwnedError``. Nothing is stored: that is the owner's business.
        """
        self.check(group, (*put, *gone), owner)
        held = self._owners.setdefault(group, {})
        for name in put:
            held.setdefault(name, owner)
        for name in gone:
            held.pop(name, None)
        if not held:
            del self._owners[group]
        changed = self._cache.observe(group, put, gone)
        self.changes[owner.kind] += changed
        if changed and wakes:
            self._wake((group,))
        return changed

    def give_back(self, group: str, name: str) -> None:
        """Serve the pushed assignment again under a name. Its owner has not provided one yet, and keeps the name."""
        owner = self.owner(group, name)
        if owner is not None:
            self.release(group, (name,), owner)
        self.give(group, name, owner)

    def disown_all(self) -> None:
        """Forget all owners, before they are loaded again: their assignments stay until ``sweep``."""
        self._owners.clear()

    def sweep(self) -> None:
        """Remove the assignments without an owner. The streams are not woken."""
        for group in self._cache.observed_groups():
            held = self.owners(group)
            gone = [name for name in self._cache.observed(group) if name not in held]
            self._cache.observe(group, {}, gone)

    def counts(self) -> Counter[tuple[str, OwnerKind]]:
        """The number of owned names by group and kind of owner. May be called from another thread."""
        owners = list(self._owners.items())
        return Counter((group, owner.kind) for group, held in owners for owner in list(held.values()))

    def release(self, group: str, names: Collection[str], owner: Owner) -> bool:
        """Give up names: the pushed assignments with these names are served again. Raises ``OwnedError``."""
        return self.assign(group, owner, {}, names)

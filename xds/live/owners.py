"""Live endpoints: the owner of each live assignment, and what it serves (docs/services.md#live-endpoints).

A live assignment is served in place of the pushed one of its name. It has one owner: a person who sets it by hand
(`xds.live.by_hand`), or a feature that follows something. A second owner is refused with both named, so that two owners
never replace each other's endpoints in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from xds.live.unserved_clusters import UnservedClusters
from xds.model.errors import ConflictError
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import Snapshot
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.resource_lookup import finder

# Kinds of owners. Features have kinds of their own.
HAND = "hand"
LEAVING = "leaving"  # it has no owner any more, but some of its endpoints still drain; anybody may claim it


@dataclass(frozen=True, slots=True)
class EndpointOrigin:
    """Where an endpoint of a live assignment comes from. ``since`` (epoch seconds): how long it has its state."""

    address: str
    port: int
    health: str
    source: str
    instance: str
    since: float


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a live assignment. ``actor`` changed the assignment last, at ``time_s`` (epoch seconds).

    A feature says ``words`` of its own, such as ``bound to service 'web'``; ``follows`` is the name of the service or
    the like. ``is_stored``: the feature stores that it owns the name, and calls `HandAssignments.forget_leaving` then.
    """

    kind: str
    words: str = ""
    follows: str = ""
    actor: str = ""
    time_s: float = 0.0
    is_stored: bool = False

    def __str__(self) -> str:
        """Such as ``set by hand by alice``."""
        if self.kind == LEAVING:
            return "returning to the pushed one"
        return self.words or (f"set by hand by {self.actor}" if self.actor else "set by hand")


class OwnedError(ConflictError):
    """The assignment has another owner. The message names both."""

    def __init__(self, group: str, name: str, owner: Owner, wanted: Owner) -> None:
        super().__init__(f"assignment {name!r} of group {group!r} is {owner}: it cannot be {wanted}", 0, group)
        self.owner = owner


class LiveEndpoints:
    """The owners of the live assignments of all groups, and their assignments in the cache.

    ``wake`` is called once for each change of what a group is served.
    """

    def __init__(self, cache: SnapshotCache, wake: Callable[[Collection[str]], None]) -> None:
        self.unserved = UnservedClusters(cache.get)
        self.changes: Counter[str] = Counter()  # how often what a group is served has changed
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
        """The live assignment; None if the name has no owner, or if its owner has not provided an assignment yet."""
        return self._cache.observed(group).get(name)

    def served(self, group: str, name: str) -> Resource | None:
        """The assignment that the group is served under this name, live or pushed; None for none.

        While a rollout runs, nodes outside of its wave may be served names that the newest revision lacks.
        """
        snapshots = self._cache.served(group)
        return finder(*snapshots)(ENDPOINT, name) if snapshots else self.get(group, name)

    def snapshot(self, group: str) -> Snapshot | None:
        """All that the group is served, live and pushed, without the weights of traffic assignment; None for none."""
        return self._cache.get(group)

    def pushed(self, group: str, name: str) -> Resource | None:
        """The assignment that was pushed under this name; None for none."""
        return finder(*self._cache.all_pushed(group))(ENDPOINT, name)

    def check(self, group: str, names: Iterable[str], owner: Owner) -> None:
        """Raises ``OwnedError`` for the first name that has an owner of another kind, and is not ``LEAVING``."""
        owners = self.owners(group)
        for name in names:
            present = owners.get(name)
            if present is not None and present.kind not in (owner.kind, LEAVING):
                raise OwnedError(group, name, present, owner)

    def claim(self, group: str, name: str, owner: Owner) -> None:
        """Own a name, also before there is an assignment. The owner may replace one of the same kind.

        Raises ``OwnedError``.
        """
        self.check(group, (name,), owner)
        self._owners.setdefault(group, {})[name] = owner

    def set_owner(self, group: str, name: str, owner: Owner | None) -> None:
        """Replace the owner of a name, whatever its kind; None: no owner. What is served does not change."""
        owners = self._owners.setdefault(group, {})
        if owner is not None:
            owners[name] = owner
            return
        owners.pop(name, None)
        if not owners:
            del self._owners[group]

    def assign(
        self,
        group: str,
        owner: Owner,
        put: Mapping[str, Resource],
        removed: Collection[str] = (),
        *,
        wakes: bool = True,
    ) -> bool:
        """Serve the assignments ``put`` in place of the pushed ones, and end those named by ``removed``, in one step.

        The names of ``put`` belong to ``owner`` from now on; a name that has an owner of the same kind keeps it. The
        names of ``removed`` have no owner any more. Returns whether what the group is served has changed; if so, its
        streams are woken once. Nothing changes on ``OwnedError``. Nothing is stored: the owner does that.
        """
        self.check(group, (*put, *removed), owner)
        owners = self._owners.setdefault(group, {})
        for name in put:
            owners.setdefault(name, owner)
        for name in removed:
            owners.pop(name, None)
        if not owners:
            del self._owners[group]
        changed = self._cache.observe(group, put, removed)
        self.changes[owner.kind] += changed
        if changed and wakes:
            self._wake((group,))
        return changed

    def serve_pushed(self, group: str, name: str) -> None:
        """Serve the pushed assignment under a name until its owner provides one. The owner keeps the name."""
        owner = self.owner(group, name)
        if owner is not None:
            self.release(group, (name,), owner)
        self.set_owner(group, name, owner)

    def forget_owners(self) -> None:
        """Forget all owners, before they are loaded again. Their assignments are served until ``remove_unowned``."""
        self._owners.clear()

    def remove_unowned(self) -> None:
        """Remove the assignments without an owner. The streams are not woken."""
        for group in self._cache.observed_groups():
            owners = self.owners(group)
            unowned = [name for name in self._cache.observed(group) if name not in owners]
            self._cache.observe(group, {}, unowned)

    def counts(self) -> Counter[tuple[str, str]]:
        """The number of owned names by group and kind of owner. May be called from another thread."""
        by_group = list(self._owners.items())
        return Counter((group, owner.kind) for group, owners in by_group for owner in list(owners.values()))

    def release(self, group: str, names: Collection[str], owner: Owner) -> bool:
        """Release names: the pushed assignments are served again under them. Raises ``OwnedError``."""
        return self.assign(group, owner, {}, names)

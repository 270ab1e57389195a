"""The difference between two sets of one type, and what follows from it for clients that step from one to the other.

`Diffs.between` makes one `SetDiff` for each pair of sets; all clients share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from xds.model.names import NO_NAMES, WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet
from xds.snapshots.cluster_references import assignments_of, members_of
from xds.snapshots.linger import NamesByType, names_by_type


class InnerSubscription(NamedTuple):
    """A subscription of a client because of a resource that it holds: one for each name and config source."""

    type_url: str
    name: str
    source_hash: int


class SetDiff:
    """The step from the set ``old`` to the set ``new``; None is the empty set. ``change`` has the names that differ.

    Each further value is computed when it is first read.
    """

    def __init__(self, old: ResourceSet | None, new: ResourceSet, change: Change) -> None:
        self.old = old
        self.new = new
        self.change = change

    @cached_property
    def added(self) -> frozenset[str]:
        """The names that only ``new`` has."""
        return frozenset(self.change.added)

    @cached_property
    def removed(self) -> frozenset[str]:
        """The names that only ``old`` has."""
        return frozenset(self.change.removed)

    @cached_property
    def added_or_changed(self) -> frozenset[str]:
        """The names that ``old`` lacks or has in another version."""
        return frozenset((*self.change.added, *self.change.changed))

    @cached_property
    def redirected(self) -> tuple[str, ...]:
        """The changed names whose resources refer to other resources than before."""
        before, after = self._before, self.new.resources
        return tuple([name for name in self.change.changed if before[name].references != after[name].references])

    @cached_property
    def aggregates(self) -> Mapping[str, frozenset[str]]:
        """The changed aggregate clusters, each with the names of its members in the new version.

        docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster".
        """
        return members_of(self.new, self.change.changed)

    @cached_property
    def incomplete_aggregates(self) -> frozenset[str]:
        """The aggregate clusters of ``new`` with members that ``old`` lacks: they count as new clusters."""
        if self.old is self.new:
            return NO_NAMES
        before = self._before
        members = members_of(self.new)
        return frozenset(name for name, each in members.items() if not before.keys() >= each)

    @cached_property
    def assignments(self) -> frozenset[str]:
        """The names of the assignments of added and changed clusters."""
        return assignments_of((*self.change.added, *self.change.changed), self.new)

    @cached_property
    def newly_assigned(self) -> Mapping[str, frozenset[str]]:
        """The changed clusters, each with the names of the assignments that only its new version refers to."""
        old = self.old
        if old is None:
            return {}
        assigned = {name: assignments_of((name,), self.new) - assignments_of((name,), old) for name in self.redirected}
        return {name: assignments for name, assignments in assigned.items() if assignments}

    @cached_property
    def newly_named(self) -> NamesByType:
        """The names in new and changed listeners that no listener named before, as far as clients request them here."""
        changed = [self.new.resources[name] for name in (*self.change.added, *self.change.changed)]
        if not changed:
            return ()
        had = {(each.type_url, each.name) for listener in self._before.values() for each in listener.references}
        named = dict[str, set[str]]()
        for each in (each for listener in changed for each in listener.references):
            if each.source in ("ads", "api") and each.name != WILDCARD and (each.type_url, each.name) not in had:
                named.setdefault(each.type_url, set()).add(each.name)
        return names_by_type(named)

    @cached_property
    def begun(self) -> frozenset[InnerSubscription]:
        """The subscriptions of clients with ``new`` that clients with ``old`` do not have (`subscriptions_of`)."""
        changed = (self.new.resources[name] for name in (*self.change.added, *self.change.changed))
        begun = {each for resource in changed for each in subscriptions_of(resource)}
        for resource in self._before.values():
            if not begun:
                break
            begun.difference_update(subscriptions_of(resource))
        return frozenset(begun)

    @property
    def _before(self) -> Mapping[str, Resource]:
        return self.old.resources if self.old is not None else {}


DiffOf = Callable[[ResourceSet | None, ResourceSet], SetDiff]  # `Diffs.between`


def subscriptions_of(resource: Resource) -> Iterator[InnerSubscription]:
    """The subscriptions of a client that holds this resource, except those to assignments (`assignments_of`).

    The hosts of a route configuration ``r`` are ``r/*``. A scope is subscribed to its route configuration by the config
    source of the listener.
    """
    for each in resource.references:
        type = resource_type(each.type_url)
        if type.parents and type.alias != "endpoints":
            is_under = bool(type.narrowed_by) and alias_of(resource.type_url) == "routes"
            yield InnerSubscription(each.type_url, f"{resource.name}/*" if is_under else each.name, each.source_hash)

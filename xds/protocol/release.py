"""Releases: the content that a client may be sent now, between an older snapshot and the newest one.

A release is a snapshot: the pushed one, but some names keep the version that was released before, because they linger
or are held. Each release is made once for all clients: results are kept in bounded memos, keyed by the identity of the
snapshots and sets involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import ROUTE_TARGETS, alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet, Snapshot, mix
from xds.protocol.awaited_secrets import missing_secrets
from xds.protocol.diffs import ChangeOf, assignments_of, leads_within
from xds.protocol.linger import (
    NO_NAMES_BY_TYPE,
    Lingering,
    Lingerings,
    NamesByType,
    internal_listeners,
    names_by_type,
    removed_names,
)
from xds.protocol.memo import Memo
from xds.protocol.proof import clusters_by_assignment, unassigned
from xds.protocol.trees import (
    NewInternalListeners,
    ResourceId,
    Tree,
    changed_trees,
    newly_named,
    newly_named_internal,
    used_by,
)

_MEMO_ENTRIES = 1024
NOTHING_ASSIGNED: Mapping[str, frozenset[str]] = MappingProxyType({})

TypeChanges = Mapping[str, Change]


class Step(NamedTuple):
    """The step from a release to a pushed snapshot.

    * ``removed``: the removed names that linger;
    * ``is_simple``: no part of the step waits for another, so the whole step is released at once;
    * ``drains``: a listener changed or was removed, so old connections drain on its old filter chains;
    * ``has_trees``: the step changes types of listener trees, which may refer to clusters;
    * ``missing_secrets``: the secrets that content in use newly names and that do not exist (`awaited_secrets`).
    """

    removed: NamesByType
    is_simple: bool
    drains: bool
    has_trees: bool
    missing_secrets: frozenset[str]


class Releases:
    """Makes releases, and finds the differences between releases and sets; `ChangeOf` compares two sets."""

    def __init__(self, change_of: ChangeOf) -> None:
        self._change_of = change_of
        self.lingerings = Lingerings()
        self._mixed: Memo[tuple[int, int, frozenset[str]], ResourceSet] = Memo(_MEMO_ENTRIES)
        self._unique_sets: Memo[tuple[int, bytes], ResourceSet] = Memo(_MEMO_ENTRIES)
        self._releases: Memo[tuple[Snapshot, Snapshot, NamesByType], Snapshot] = Memo(_MEMO_ENTRIES)
        self._changes: Memo[tuple[Snapshot, Snapshot], TypeChanges] = Memo(_MEMO_ENTRIES)
        self._steps: Memo[tuple[Snapshot, Snapshot, Lingering], Step] = Memo(_MEMO_ENTRIES)
        self._trees: Memo[tuple[Snapshot, Snapshot], tuple[Tree, ...]] = Memo(_MEMO_ENTRIES)
        self._new_internal: Memo[tuple[Snapshot, Snapshot], NewInternalListeners] = Memo(_MEMO_ENTRIES)
        self._internal: Memo[int, frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._named: Memo[tuple[int, int], NamesByType] = Memo(_MEMO_ENTRIES)
        self._used: Memo[tuple[frozenset[str], Snapshot], frozenset[ResourceId]] = Memo(_MEMO_ENTRIES)
        self._added: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._aggregates: Memo[tuple[int, int], Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._assigned: Memo[tuple[int, int], Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._redirected: Memo[tuple[int, int], tuple[str, ...]] = Memo(_MEMO_ENTRIES)
        self._members: Memo[int, Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._added_or_changed: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._incomplete_aggregates: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._users: Memo[tuple[int, frozenset[str], str], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._by_assignment: Memo[tuple[int, str], Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._unassigned: Memo[tuple[int, int, str], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._resumed: Memo[tuple[Snapshot, str, int, int, bool], Snapshot] = Memo(_MEMO_ENTRIES)

    def begin_age(self) -> None:
        """Begin an age: drop the results that were not used in the last one (`Memo.begin_age`)."""
        for memo in (
            self.lingerings,
            self._mixed,
            self._unique_sets,
            self._releases,
            self._changes,
            self._steps,
            self._trees,
            self._new_internal,
            self._internal,
            self._named,
            self._used,
            self._added,
            self._aggregates,
            self._assigned,
            self._redirected,
            self._members,
            self._added_or_changed,
            self._incomplete_aggregates,
            self._users,
            self._by_assignment,
            self._unassigned,
            self._resumed,
        ):
            memo.begin_age()

    def mixed(self, base: ResourceSet, earlier: ResourceSet, held: frozenset[str]) -> ResourceSet:
        """``base`` with the names ``held`` as ``earlier`` has them (`mix`).

        Equal sets are one object, so that clients share the encoded responses.
        """
        if not held or base is earlier:
            return base
        return self._mixed.get((base.id, earlier.id, held), lambda: self._mix(base, earlier, held))

    def _mix(self, base: ResourceSet, earlier: ResourceSet, held: frozenset[str]) -> ResourceSet:
        mixed = mix(base, earlier, held)
        if mixed is base:
            return base
        if earlier.mixture is not None and earlier.mixture.base is base and earlier.digest == mixed.digest:
            return earlier
        return self._unique_sets.get((base.id, mixed.digest), lambda: mixed)

    def release(self, released: Snapshot, goal: Snapshot, held: NamesByType) -> Snapshot:
        """``goal`` with the names ``held`` as they were released.

        A result that is equal to ``goal`` or ``released`` is that object.
        """
        if not held:
            return goal
        return self._releases.get((released, goal, held), lambda: self._release(released, goal, held))

    def _release(self, released: Snapshot, goal: Snapshot, held: NamesByType) -> Snapshot:
        mixed = {url: self.mixed(goal.get(url), released.get(url), names) for url, names in held}
        sets = {**goal.sets, **{url: each for url, each in mixed.items() if each is not goal.get(url)}}
        if sets == goal.sets:
            return goal
        if sets == released.sets:
            return released
        return Snapshot(goal.group, goal.revision, sets)

    def changes(self, released: Snapshot, goal: Snapshot) -> TypeChanges:
        """The changes from a release to a snapshot, by type URL; types without a change are left out."""
        return self._changes.get((released, goal), lambda: self._find_changes(released, goal))

    def _find_changes(self, released: Snapshot, goal: Snapshot) -> TypeChanges:
        found = {}
        for url in {**released.sets, **goal.sets}:
            before, after = released.get(url), goal.get(url)
            if before is not after and (change := self._change_of(before, after)):
                found[url] = change
        return found

    def step(self, released: Snapshot, goal: Snapshot, lingering: Lingering) -> Step:
        """The step from a release to a pushed snapshot."""
        return self._steps.get((released, goal, lingering), self._find_step, released, goal, lingering)

    def _find_step(self, released: Snapshot, goal: Snapshot, lingering: Lingering) -> Step:
        changes = self.changes(released, goal)
        drains, is_simple, has_listener_parts, has_route_parts = False, True, False, False
        for url, change in changes.items():
            type = resource_type(url)
            drains = drains or (type.alias == "listeners" and bool(change.changed or change.removed))
            if type.is_route_target:
                sets = released.get(url), goal.get(url)
                is_simple = is_simple and not (change.added or self.aggregates(*sets) or self.newly_assigned(*sets))
            has_listener_parts = has_listener_parts or (type.in_tree and not type.after_listeners)
            has_route_parts = has_route_parts or type.after_listeners
        removed = removed_names(released, goal, changes, lingering, is_draining=drains)
        has_listeners = any(alias_of(url) == "listeners" for url in changes)
        is_simple = is_simple and not removed and not has_listeners and not (has_listener_parts and has_route_parts)
        is_simple = is_simple and not newly_named_internal(released, goal, changes, self.redirected)
        missing = missing_secrets(released, goal, changes, self.newly_named, self.redirected)
        return Step(removed, is_simple and not missing, drains, has_listener_parts or has_route_parts, missing)

    def trees(self, released: Snapshot, goal: Snapshot) -> tuple[Tree, ...]:
        """The listener trees in which two snapshots differ."""
        return self._trees.get((released, goal), lambda: changed_trees(released, goal, self.changes(released, goal)))

    def newly_named_internal(self, released: Snapshot, goal: Snapshot) -> NewInternalListeners:
        """The clusters and assignments in use that newly name internal listeners, each with these listeners."""
        return self._new_internal.get((released, goal), lambda: self._find_new_internal(released, goal))

    def _find_new_internal(self, released: Snapshot, goal: Snapshot) -> NewInternalListeners:
        return newly_named_internal(released, goal, self.changes(released, goal), self.redirected)

    def internal_listeners(self, held: ResourceSet) -> frozenset[str]:
        """The internal listeners that the endpoints in a set of clusters or assignments name."""
        return self._internal.get(held.id, lambda: internal_listeners(held))

    def newly_named(self, before: ResourceSet, after: ResourceSet) -> NamesByType:
        """The names in new and changed listeners that no listener named before."""
        if before is after:
            return NO_NAMES_BY_TYPE
        return self._named.get((before.id, after.id), lambda: newly_named(before, after))

    def used_by(self, listeners: frozenset[str], snapshot: Snapshot) -> frozenset[ResourceId]:
        """All tree parts that these listeners of a snapshot refer to, directly or indirectly."""
        return self._used.get((listeners, snapshot), lambda: used_by(listeners, snapshot))

    def added(self, old: ResourceSet, new: ResourceSet) -> frozenset[str]:
        """The names that only ``new`` has."""
        if old is new:
            return NO_NAMES
        return self._added.get((old.id, new.id), lambda: frozenset(self._change_of(old, new).added))

    def without_removed(self, old: ResourceSet, new: ResourceSet) -> ResourceSet:
        """``old`` without the names that ``new`` lacks."""
        removed = self._change_of(old, new).removed
        return self.mixed(old, new, frozenset(removed)) if removed else old

    def added_or_changed(self, old: ResourceSet, new: ResourceSet) -> frozenset[str]:
        """The names that ``old`` lacks or has in another version."""
        if old is new:
            return NO_NAMES
        return self._added_or_changed.get((old.id, new.id), lambda: _added_or_changed(self._change_of(old, new)))

    def aggregates(self, old: ResourceSet, new: ResourceSet) -> Mapping[str, frozenset[str]]:
        """The changed aggregate clusters, each with the names of its members in the new version.

        docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster".
        """
        return self._aggregates.get((old.id, new.id), lambda: _members(new, self._change_of(old, new).changed))

    def newly_assigned(self, old: ResourceSet, new: ResourceSet) -> Mapping[str, frozenset[str]]:
        """The changed clusters, each with the names of the assignments that only its new version refers to."""
        if old is new:
            return NOTHING_ASSIGNED
        return self._assigned.get((old.id, new.id), lambda: self._find_assigned(old, new))

    def _find_assigned(self, old: ResourceSet, new: ResourceSet) -> Mapping[str, frozenset[str]]:
        names = self.redirected(old, new)
        found = {name: assignments_of((name,), new) - assignments_of((name,), old) for name in names}
        return {name: assignments for name, assignments in found.items() if assignments}

    def redirected(self, old: ResourceSet, new: ResourceSet) -> tuple[str, ...]:
        """The changed names whose resources refer to other resources than before."""
        return self._redirected.get((old.id, new.id), lambda: _redirected(old, new, self._change_of(old, new)))

    def members(self, held: ResourceSet) -> Mapping[str, frozenset[str]]:
        """All aggregate clusters of a set, each with the names of its members."""
        return self._members.get(held.id, lambda: _members(held, held.resources))

    def incomplete_aggregates(self, held: ResourceSet, released: ResourceSet) -> frozenset[str]:
        """The aggregate clusters with members that ``released`` lacks. Their next version counts as a new cluster."""
        if held is released:
            return NO_NAMES
        return self._incomplete_aggregates.get((held.id, released.id), lambda: _incomplete_aggregates(held, released))

    def clusters_of(self, clusters: ResourceSet, parts: frozenset[str], alias: str = "endpoints") -> frozenset[str]:
        """The clusters of a set that refer to one of these assignments, or secrets (``alias``)."""
        if not parts:
            return NO_NAMES
        return self._users.get((clusters.id, parts, alias), _clusters_of, clusters, parts, alias)

    def unassigned(self, clusters: ResourceSet, assignments: ResourceSet, source: str) -> frozenset[str]:
        """The clusters with a missing assignment that clients request from ``source`` (``ads`` or ``api``)."""
        key = (clusters.id, assignments.id, source)
        return self._unassigned.get(key, self._find_unassigned, clusters, assignments, source)

    def _find_unassigned(self, clusters: ResourceSet, assignments: ResourceSet, source: str) -> frozenset[str]:
        return unassigned(self.by_assignment(clusters, source), assignments)

    def by_assignment(self, clusters: ResourceSet, source: str) -> Mapping[str, frozenset[str]]:
        """The clusters of a set by the name of their assignment, as far as clients request it from ``source``."""
        return self._by_assignment.get((clusters.id, source), clusters_by_assignment, clusters, source)

    def resumed(
        self,
        released: Snapshot,
        type_url: str,
        held: ResourceSet,
        clusters: ResourceSet | None = None,
        *,
        is_first: bool,
    ) -> Snapshot:
        """The release with the resources of a type that a reconnected client holds (``held``).

        Clusters and tree types are taken from ``held`` as a whole. Of other types, only the names that the release
        lacks and assignments that newly name an internal listener are taken. ``is_first``: no other stream of the
        client showed resources of the type, so the client holds no others: they are left out of the release. Resources
        of partial types that refer to no clusters but ``clusters`` stay in it, because the client may request them
        next.
        """
        key = (released, type_url, held.id, clusters.id if clusters is not None else 0, is_first)
        return self._resumed.get(key, lambda: _resumed(self, released, type_url, held, clusters, is_first))

    def reverted(self, released: Snapshot, earlier: Snapshot, type_url: str, names: frozenset[str]) -> Snapshot:
        """The release with these names as an earlier release has them."""
        reverted = self.release(earlier, released, ((type_url, names),))
        return released if reverted.sets == released.sets else reverted


def _added_or_changed(change: Change) -> frozenset[str]:
    return frozenset((*change.added, *change.changed))


def _members(clusters: ResourceSet, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The aggregate clusters among these names, with the names of their members."""
    found = dict[str, set[str]]()
    for name in names:
        for each in clusters.resources[name].references:
            if each.type_url in ROUTE_TARGETS:
                found.setdefault(name, set()).add(each.name)
    return {name: frozenset(members) for name, members in found.items()}


def _redirected(old: ResourceSet, new: ResourceSet, change: Change) -> tuple[str, ...]:
    before, after = old.resources, new.resources
    return tuple([name for name in change.changed if before[name].references != after[name].references])


def _incomplete_aggregates(held: ResourceSet, released: ResourceSet) -> frozenset[str]:
    return frozenset(
        name
        for name, cluster in held.resources.items()
        if any(
            resource_type(each.type_url).is_route_target and each.name not in released.resources
            for each in cluster.references
        )
    )


def _clusters_of(clusters: ResourceSet, parts: frozenset[str], alias: str) -> frozenset[str]:
    return frozenset(
        name
        for name, cluster in clusters.resources.items()
        if any(each.name in parts and alias_of(each.type_url) == alias for each in cluster.references)
    )


def _resumed(
    releases: Releases,
    released: Snapshot,
    type_url: str,
    held: ResourceSet,
    clusters: ResourceSet | None,
    is_first: bool,
) -> Snapshot:
    type, present = resource_type(type_url), released.get(type_url)
    names = held.resources.keys() - present.resources.keys()
    if type.alias == "endpoints":
        names |= _newly_naming_listeners(held, present)
    elif type.is_route_target or type.in_tree:
        names = {*held.resources}
        if is_first:
            others = [(n, each) for n, each in present.resources.items() if n not in held.resources]
            names |= {n for n, each in others if type.full_state or not leads_within(each, clusters)}
    mixed = releases.mixed(present, held, frozenset(names))
    if mixed is present:
        return released
    return Snapshot(released.group, released.revision, {**released.sets, type_url: mixed})


def _newly_naming_listeners(held: ResourceSet, present: ResourceSet) -> set[str]:
    """The assignments that name internal listeners in ``present`` that they do not name in ``held``."""
    return {
        name
        for name, before in held.resources.items()
        if (after := present.resources.get(name)) is not None and not set(after.references) <= set(before.references)
    }


def merge_names(*parts: NamesByType) -> NamesByType:
    """The union of names, by type URL."""
    summands = [part for part in parts if part]
    if len(summands) <= 1:
        return summands[0] if summands else ()
    union: dict[str, frozenset[str]] = {}
    for part in summands:
        for url, names in part:
            union[url] = union[url] | names if url in union else names
    return names_by_type(union)

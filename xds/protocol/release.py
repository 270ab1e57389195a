"""Releases: the content between two snapshots that a client may be sent, made once for all clients alike.

A release is a snapshot: the pushed one, except for names that stay as they were released before, because they linger or
their tree is held. All results are kept in bounded memos, by the identity of the snapshots and sets involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import ROUTE_TARGETS, alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet, Snapshot, mix
from xds.protocol.diffs import ChangeOf, assignments_of, leads_within
from xds.protocol.linger import (
    NO_NAMES_BY_TYPE,
    Lingering,
    Lingerings,
    Names,
    internal_listeners,
    keep_of,
    removed_names,
)
from xds.protocol.memo import Memo
from xds.protocol.trees import NewlyBehind, Part, Tree, changed_trees, newly_behind, newly_named, used_by

_MEMO_ENTRIES = 1024
NOTHING_ASSIGNED: Mapping[str, frozenset[str]] = MappingProxyType({})

TypeChanges = Mapping[str, Change]


class Step(NamedTuple):
    """The step from a release to a pushed snapshot.

    * ``removed``: the removed names that linger;
    * ``is_simple``: no part of the step waits for another, so that all of it is released at once;
    * ``drains``: a listener changed or was removed, so old connections drain on its old filter chains;
    * ``has_trees``: it changes types of listener trees, which may refer to clusters.
    """

    removed: Names
    is_simple: bool
    drains: bool
    has_trees: bool


class Releases:
    """Makes releases, and finds the differences between them."""

    def __init__(self, change_of: ChangeOf) -> None:
        self._change_of = change_of
        self.lingerings = Lingerings()
        self._mixed: Memo[tuple[int, int, frozenset[str]], ResourceSet] = Memo(_MEMO_ENTRIES)
        self._same: Memo[tuple[int, bytes], ResourceSet] = Memo(_MEMO_ENTRIES)
        self._releases: Memo[tuple[Snapshot, Snapshot, Names], Snapshot] = Memo(_MEMO_ENTRIES)
        self._changes: Memo[tuple[Snapshot, Snapshot], TypeChanges] = Memo(_MEMO_ENTRIES)
        self._steps: Memo[tuple[Snapshot, Snapshot, Lingering], Step] = Memo(_MEMO_ENTRIES)
        self._trees: Memo[tuple[Snapshot, Snapshot], tuple[Tree, ...]] = Memo(_MEMO_ENTRIES)
        self._behind: Memo[tuple[Snapshot, Snapshot], NewlyBehind] = Memo(_MEMO_ENTRIES)
        self._internal: Memo[int, frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._named: Memo[tuple[int, int], Names] = Memo(_MEMO_ENTRIES)
        self._used: Memo[tuple[frozenset[str], Snapshot], frozenset[Part]] = Memo(_MEMO_ENTRIES)
        self._added: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._aggregates: Memo[tuple[int, int], Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._assigned: Memo[tuple[int, int], Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._redirected: Memo[tuple[int, int], tuple[str, ...]] = Memo(_MEMO_ENTRIES)
        self._members: Memo[int, Mapping[str, frozenset[str]]] = Memo(_MEMO_ENTRIES)
        self._renewed: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._orphans: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._users: Memo[tuple[int, frozenset[str]], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._resumed: Memo[tuple[Snapshot, str, int, int, bool], Snapshot] = Memo(_MEMO_ENTRIES)

    def begin_age(self) -> None:
        """Drop the results that were not used since the age before began."""
        for memo in (
            self.lingerings,
            self._mixed,
            self._same,
            self._releases,
            self._changes,
            self._steps,
            self._trees,
            self._behind,
            self._internal,
            self._named,
            self._used,
            self._added,
            self._aggregates,
            self._assigned,
            self._redirected,
            self._members,
            self._renewed,
            self._orphans,
            self._users,
            self._resumed,
        ):
            memo.begin_age()

    def mixed(self, base: ResourceSet, earlier: ResourceSet, keep: frozenset[str]) -> ResourceSet:
        """``base`` with these names as ``earlier`` has them (`mix`).

        Equal sets are one object, so that clients share the encoded responses.
        """
        if not keep or base is earlier:
            return base
        return self._mixed.get((base.id, earlier.id, keep), lambda: self._mix(base, earlier, keep))

    def _mix(self, base: ResourceSet, earlier: ResourceSet, keep: frozenset[str]) -> ResourceSet:
        made = mix(base, earlier, keep)
        if made is base:
            return base
        if earlier.mixture is not None and earlier.mixture.base is base and earlier.digest == made.digest:
            return earlier
        return self._same.get((base.id, made.digest), lambda: made)

    def release(self, released: Snapshot, goal: Snapshot, keep: Names) -> Snapshot:
        """``goal`` with these names as they were released; if equal to ``goal`` or ``released``, that very object."""
        if not keep:
            return goal
        return self._releases.get((released, goal, keep), lambda: self._release(released, goal, keep))

    def _release(self, released: Snapshot, goal: Snapshot, keep: Names) -> Snapshot:
        mixed = {url: self.mixed(goal.get(url), released.get(url), names) for url, names in keep}
        sets = {**goal.sets, **{url: made for url, made in mixed.items() if made is not goal.get(url)}}
        if sets == goal.sets:
            return goal
        if sets == released.sets:
            return released
        return Snapshot(goal.group, goal.revision, sets)

    def changes(self, released: Snapshot, goal: Snapshot) -> TypeChanges:
        """The changes by type URL; types without a change are left out."""
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
        drains, is_simple, has_first, has_then = False, True, False, False
        for url, change in changes.items():
            type = resource_type(url)
            drains = drains or (type.alias == "listeners" and bool(change.changed or change.removed))
            if type.is_route_target:
                sets = released.get(url), goal.get(url)
                is_simple = is_simple and not (change.added or self.aggregates(*sets) or self.newly_assigned(*sets))
            has_first = has_first or (type.in_tree and not type.after_listeners)
            has_then = has_then or type.after_listeners
        removed = removed_names(released, goal, changes, lingering, is_draining=drains)
        has_listeners = any(alias_of(url) == "listeners" for url in changes)
        is_simple = is_simple and not removed and not has_listeners and not (has_first and has_then)
        is_simple = is_simple and not newly_behind(released, goal, changes, self.redirected)
        return Step(removed, is_simple, drains, has_first or has_then)

    def trees(self, released: Snapshot, goal: Snapshot) -> tuple[Tree, ...]:
        """The listener trees in which two snapshots differ."""
        return self._trees.get((released, goal), lambda: changed_trees(released, goal, self.changes(released, goal)))

    def newly_behind(self, released: Snapshot, goal: Snapshot) -> NewlyBehind:
        """The changed clusters and assignments that newly name internal listeners, with these listeners."""
        return self._behind.get((released, goal), lambda: self._find_newly_behind(released, goal))

    def _find_newly_behind(self, released: Snapshot, goal: Snapshot) -> NewlyBehind:
        return newly_behind(released, goal, self.changes(released, goal), self.redirected)

    def internal_listeners(self, held: ResourceSet) -> frozenset[str]:
        """The internal listeners that the endpoints in a set of clusters or assignments name."""
        return self._internal.get(held.id, lambda: internal_listeners(held))

    def newly_named(self, before: ResourceSet, after: ResourceSet) -> Names:
        """The names in changed listeners that no listener named before."""
        if before is after:
            return NO_NAMES_BY_TYPE
        return self._named.get((before.id, after.id), lambda: newly_named(before, after))

    def used_by(self, listeners: frozenset[str], snapshot: Snapshot) -> frozenset[Part]:
        """All resources that these listeners of a snapshot refer to by name, directly or not."""
        return self._used.get((listeners, snapshot), lambda: used_by(listeners, snapshot))

    def added(self, old: ResourceSet, new: ResourceSet) -> frozenset[str]:
        """Names that only ``new`` has."""
        if old is new:
            return NO_NAMES
        return self._added.get((old.id, new.id), lambda: frozenset(self._change_of(old, new).added))

    def common(self, old: ResourceSet, new: ResourceSet) -> ResourceSet:
        """``old`` without the names that ``new`` lacks."""
        gone = self._change_of(old, new).removed
        return self.mixed(old, new, frozenset(gone)) if gone else old

    def renewed(self, old: ResourceSet, new: ResourceSet) -> frozenset[str]:
        """Names that are new in ``new`` or have another version than in ``old``."""
        if old is new:
            return NO_NAMES
        return self._renewed.get((old.id, new.id), lambda: _renewed(self._change_of(old, new)))

    def aggregates(self, old: ResourceSet, new: ResourceSet) -> Mapping[str, frozenset[str]]:
        """Changed aggregate clusters with the names of their members.

        docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster".
        """
        return self._aggregates.get((old.id, new.id), lambda: _members(new, self._change_of(old, new).changed))

    def newly_assigned(self, old: ResourceSet, new: ResourceSet) -> Mapping[str, frozenset[str]]:
        """Changed clusters with the names of the assignments that only their new version refers to."""
        if old is new:
            return NOTHING_ASSIGNED
        return self._assigned.get((old.id, new.id), lambda: self._find_assigned(old, new))

    def _find_assigned(self, old: ResourceSet, new: ResourceSet) -> Mapping[str, frozenset[str]]:
        names = self.redirected(old, new)
        found = {name: assignments_of((name,), new) - assignments_of((name,), old) for name in names}
        return {name: assignments for name, assignments in found.items() if assignments}

    def redirected(self, old: ResourceSet, new: ResourceSet) -> tuple[str, ...]:
        """Changed names that refer to other resources than before."""
        return self._redirected.get((old.id, new.id), lambda: _redirected(old, new, self._change_of(old, new)))

    def members(self, held: ResourceSet) -> Mapping[str, frozenset[str]]:
        """All aggregate clusters of a set with the names of their members."""
        return self._members.get(held.id, lambda: _members(held, held.resources))

    def orphans(self, held: ResourceSet, released: ResourceSet) -> frozenset[str]:
        """Aggregate clusters with members that ``released`` lacks: their next version counts as a new cluster."""
        if held is released:
            return NO_NAMES
        return self._orphans.get((held.id, released.id), lambda: _orphans(held, released))

    def clusters_of(self, clusters: ResourceSet, assignments: frozenset[str]) -> frozenset[str]:
        """The clusters whose endpoints are in one of these assignments."""
        key = (clusters.id, assignments)
        return self._users.get(key, lambda: _clusters_of(clusters, assignments))

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

        Clusters and the types of listener trees are taken from ``held``. Of other types only the names that the release
        lacks are, and assignments that newly name an internal listener. ``is_first``: no other stream of the client
        showed resources of the type, so that the client holds no others. The others are then left out of the release,
        except those of partial types that refer only to ``clusters``: the client may request them next.
        """
        key = (released, type_url, held.id, clusters.id if clusters is not None else 0, is_first)
        return self._resumed.get(key, lambda: _resumed(self, released, type_url, held, clusters, is_first))

    def reverted(self, released: Snapshot, earlier: Snapshot, type_url: str, names: frozenset[str]) -> Snapshot:
        """The release with these names as an earlier release has them."""
        keep = ((type_url, names),)
        made = self.release(earlier, released, keep)
        return released if made.sets == released.sets else made


def _renewed(change: Change) -> frozenset[str]:
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


def _orphans(held: ResourceSet, released: ResourceSet) -> frozenset[str]:
    return frozenset(
        name
        for name, cluster in held.resources.items()
        if any(
            resource_type(each.type_url).is_route_target and each.name not in released.resources
            for each in cluster.references
        )
    )


def _clusters_of(clusters: ResourceSet, assignments: frozenset[str]) -> frozenset[str]:
    return frozenset(
        name
        for name, cluster in clusters.resources.items()
        if any(each.name in assignments and alias_of(each.type_url) == "endpoints" for each in cluster.references)
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
    keep = held.resources.keys() - present.resources.keys()
    if type.alias == "endpoints":
        keep |= _newly_over_listeners(held, present)
    elif type.is_route_target or type.in_tree:
        keep = {*held.resources}
        if is_first:
            others = [(n, each) for n, each in present.resources.items() if n not in held.resources]
            keep |= {n for n, each in others if type.full_state or not leads_within(each, clusters)}
    made = releases.mixed(present, held, frozenset(keep))
    if made is present:
        return released
    return Snapshot(released.group, released.revision, {**released.sets, type_url: made})


def _newly_over_listeners(held: ResourceSet, present: ResourceSet) -> set[str]:
    """The assignments that name internal listeners in ``present``, and others or none in ``held``."""
    return {
        name
        for name, before in held.resources.items()
        if (after := present.resources.get(name)) is not None and not set(after.references) <= set(before.references)
    }


def joined(*parts: Names) -> Names:
    """The union of names by type URL."""
    found = [part for part in parts if part]
    if len(found) <= 1:
        return found[0] if found else ()
    together: dict[str, frozenset[str]] = {}
    for part in found:
        for url, names in part:
            together[url] = together[url] | names if url in together else names
    return keep_of(together)

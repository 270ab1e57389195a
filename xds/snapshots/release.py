"""Releases: the content that a client may be sent now, between an older snapshot and the newest one.

A release is a snapshot: the pushed one, but some names keep the version that was released before, because they linger
or are held. Each release is made once for all clients: results are kept in bounded memos, keyed by the identity of the
snapshots and sets involved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet, Snapshot, mix
from xds.snapshots.cluster_references import clusters_by_part, clusters_with, members_of
from xds.snapshots.diffs import NAMES_BUDGET
from xds.snapshots.leftover import leftover_names
from xds.snapshots.linger import Lingering, Lingerings, NamesByType, names_by_type
from xds.snapshots.memo import Memo, Results, Situation
from xds.snapshots.plan import Plan, Step
from xds.snapshots.set_diff import DiffOf
from xds.snapshots.trees import ResourceId, used_by

_RESULTS = 16_384
_MEMO_ENTRIES = 1024
V = TypeVar("V")

ShownSet = tuple[Mapping[str, str], ResourceSet]  # the versions that a client showed, and the set of them


class Releases:
    """Makes releases, and plans the way from one to another; ``diff`` is the difference between two sets.

    ``results`` are those of all rules that clients share. ``advances``: of `find_advance`; ``shown_sets``: of
    `returning`.
    """

    def __init__(self, diff: DiffOf) -> None:
        self.diff = diff
        self.results = Results(_RESULTS)
        self.lingerings = Lingerings(self.results)
        self.advances: Memo[Situation, Any] = Memo(_MEMO_ENTRIES)
        self.shown_sets: Memo[tuple[object, ...], ShownSet] = Memo(
            _MEMO_ENTRIES, NAMES_BUDGET, lambda key, shown: 2 * len(shown[1])
        )

    def begin_age(self) -> None:
        """Begin an age: drop the results that were not used in the last one (`Memo.begin_age`)."""
        for memo in (self.results, self.advances, self.shown_sets):
            memo.begin_age()

    def mixed(self, base: ResourceSet, earlier: ResourceSet, held: frozenset[str]) -> ResourceSet:
        """``base`` with the names ``held`` as ``earlier`` has them (`mix`).

        Equal sets are one object, so that clients share the encoded responses.
        """
        if not held or base is earlier:
            return base
        return self.results.of(self._mix, base, earlier, held)

    def _mix(self, base: ResourceSet, earlier: ResourceSet, held: frozenset[str]) -> ResourceSet:
        mixed = mix(base, earlier, held)
        if mixed is base:
            return base
        if earlier.mixture is not None and earlier.mixture.base is base and earlier.digest == mixed.digest:
            return earlier
        return self.results.by((base, mixed.digest), _same, mixed)

    def release(self, released: Snapshot, goal: Snapshot, held: NamesByType) -> Snapshot:
        """``goal`` with the names ``held`` as they were released.

        A result that is equal to ``goal`` or ``released`` is that object.
        """
        if not held:
            return goal
        return self.results.of(self._release, released, goal, held)

    def _release(self, released: Snapshot, goal: Snapshot, held: NamesByType) -> Snapshot:
        mixed = {url: self.mixed(goal.get(url), released.get(url), names) for url, names in held}
        sets = {**goal.sets, **{url: each for url, each in mixed.items() if each is not goal.get(url)}}
        if sets == goal.sets:
            return goal
        if sets == released.sets:
            return released
        return Snapshot(goal.group, goal.revision, sets)

    def plan(self, released: Snapshot, goal: Snapshot) -> Plan:
        """The way from a release to a pushed snapshot."""
        return self.results.of(Plan, released, goal, self.diff)

    def step(self, released: Snapshot, goal: Snapshot, lingering: Lingering) -> Step:
        """The step from a release to a pushed snapshot."""
        return self.results.of(Plan.step, self.plan(released, goal), lingering)

    def used_by(self, listeners: frozenset[str], snapshot: Snapshot) -> frozenset[ResourceId]:
        """All tree parts that these listeners of a snapshot refer to, directly or indirectly."""
        return self.results.of(used_by, listeners, snapshot)

    def without_removed(self, old: ResourceSet, new: ResourceSet) -> ResourceSet:
        """``old`` without the names that ``new`` lacks."""
        return self.mixed(old, new, self.diff(old, new).removed)

    def members(self, clusters: ResourceSet) -> Mapping[str, frozenset[str]]:
        """All aggregate clusters of a set, each with the names of its members."""
        return self.results.of(members_of, clusters)

    def leftovers(self, resource_set: ResourceSet) -> frozenset[str]:
        """The names of a set that are `Leftover`s."""
        return self.results.of(leftover_names, resource_set)

    def clusters_of(self, clusters: ResourceSet, parts: frozenset[str], alias: str = "endpoints") -> frozenset[str]:
        """The clusters of a set that refer to one of these assignments, or secrets (``alias``)."""
        return self.results.of(self._find_users, clusters, parts, alias) if parts else NO_NAMES

    def _find_users(self, clusters: ResourceSet, parts: frozenset[str], alias: str) -> frozenset[str]:
        return clusters_with(self.by_part(clusters, alias), parts)

    def unrequested(self, clusters: ResourceSet, requested: frozenset[str], source: str) -> frozenset[str]:
        """The clusters of a set with an assignment from ``source`` that is not among the ``requested`` ones."""
        return self.results.of(self._find_unrequested, clusters, requested, source)

    def _find_unrequested(self, clusters: ResourceSet, requested: frozenset[str], source: str) -> frozenset[str]:
        users = self.by_part(clusters, "endpoints", source)
        return clusters_with(users, users.keys() - requested)

    def unassigned(self, clusters: ResourceSet, assignments: ResourceSet, source: str) -> frozenset[str]:
        """The clusters with a missing assignment that clients request from ``source`` (``ads`` or ``api``)."""
        return self.results.of(self._find_unassigned, clusters, assignments, source)

    def _find_unassigned(self, clusters: ResourceSet, assignments: ResourceSet, source: str) -> frozenset[str]:
        users = self.by_part(clusters, "endpoints", source)
        return clusters_with(users, users.keys() - assignments.resources.keys())

    def by_part(self, clusters: ResourceSet, alias: str, source: str = "") -> Mapping[str, frozenset[str]]:
        """The clusters of a set by the names of their parts (`clusters_by_part`)."""
        return self.results.of(clusters_by_part, clusters, alias, source)

    def replaced(self, released: Snapshot, resource_set: ResourceSet) -> Snapshot:
        """The release with this set in place of that of its type."""
        if released.get(resource_set.type.type_url) is resource_set:
            return released
        return self.results.of(Snapshot.with_set, released, resource_set)

    def reverted(self, released: Snapshot, earlier: Snapshot, type_url: str, names: frozenset[str]) -> Snapshot:
        """The release with these names as an earlier release has them."""
        reverted = self.release(earlier, released, ((type_url, names),))
        return released if reverted.sets == released.sets else reverted


def _same(value: V) -> V:
    return value


def merge_names(*parts: NamesByType) -> NamesByType:
    """The union of names, by type URL."""
    summands = [part for part in parts if part]
    if len(summands) <= 1:
        return summands[0] if summands else ()
    union: dict[str, list[frozenset[str]]] = {}
    for part in summands:
        for url, names in part:
            union.setdefault(url, []).append(names)
    return names_by_type({url: frozenset[str]().union(*each) for url, each in union.items()})

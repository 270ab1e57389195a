"""The history of revisions: finds the content that a reconnected client shows in the retained revisions of its groups.

A client that opens a new stream shows the version_info (SotW) or the resource versions (Delta) of an earlier stream.
`RevisionHistory` finds the set that they identify. docs/protocol.md#coming-back: "a label identifies old content only
if its 8 hex digits match a set that can be rebuilt from the retained revisions".

The set may be a mixed set that an earlier process served (``mixtures``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from xds.model.names import NO_NAMES
from xds.model.resource import Resource, version_stem
from xds.model.resource_type import alias_of
from xds.model.snapshot import Derivation, ResourceSet
from xds.protocol.diffs import MEMO_ENTRIES, NAMES_BUDGET, Diffs, leads_within
from xds.protocol.memo import Memo
from xds.protocol.mixtures import mixture_of
from xds.protocol.overlay import OverlaidSets

_FORMER_GROUPS = 2  # a client may have disconnected in the transition from one group to the other
_FOLLOWED_LIMIT = 50_000  # nodes


class RetainedSets(Protocol):
    """The earlier sets of groups, as the cache keeps them."""

    def retained_sets(self, groups: Sequence[str], type_url: str, api_version: str) -> list[ResourceSet]:
        """The distinct sets of a type among the retained revisions, group by group, newest first."""
        ...

    def overlaid_sets(self, groups: Sequence[str]) -> list[OverlaidSets]:
        """The overlaid sets of each group."""
        ...


class RevisionHistory:
    """Finds the sets that reconnected clients show, and remembers the groups that nodes followed."""

    __slots__ = ("_assigned", "_diffs", "_followed", "_mixtures", "_recalled", "_retained", "_subsets")

    def __init__(self, retained: RetainedSets, diffs: Diffs) -> None:
        self._retained = retained
        self._diffs = diffs
        self._followed: dict[str, tuple[str, ...]] = {}  # by node id; the first node changed groups longest ago
        self._subsets: Memo[tuple[int, frozenset[str], int, int, frozenset[str]], ResourceSet] = Memo(MEMO_ENTRIES)
        self._assigned: Memo[tuple[object, ...], ResourceSet | None] = Memo(MEMO_ENTRIES)
        self._mixtures: Memo[tuple[object, ...], ResourceSet | None] = Memo(MEMO_ENTRIES)
        self._recalled: Memo[tuple[int, ...], tuple[Mapping[str, str], ResourceSet | None]] = Memo(
            MEMO_ENTRIES, NAMES_BUDGET, lambda key, recalled: 2 * len(recalled[0])
        )

    def begin_age(self) -> None:
        """Begin an age: drop the results that were not used in the last one (`Memo.begin_age`)."""
        for memo in (self._subsets, self._assigned, self._mixtures, self._recalled):
            memo.begin_age()

    def note_followed(self, node_id: str, group: str) -> None:
        """Note that the node follows this group now."""
        before = self._followed.pop(node_id, ())
        self._followed[node_id] = (group, *(each for each in before if each != group))[:_FORMER_GROUPS]
        if len(self._followed) > _FOLLOWED_LIMIT:
            del self._followed[next(iter(self._followed))]

    def followed(self, node_id: str) -> tuple[str, ...]:
        """The groups that a node followed last, the latest first. Its content is from these groups."""
        return self._followed.get(node_id, ())

    def recall(
        self, group: str, type_url: str, version_info: str, api_version: str = "", former: Sequence[str] = ()
    ) -> ResourceSet | None:
        """The set with the version_info that a reconnected SotW client shows; None if there is none.

        The ``former`` groups of the client are searched before ``group``. docs/protocol.md#coming-back: a caller's own
        label counts "only if the group's history contains it once". A mixed set is rebuilt, and counts if it has the
        hash in the label.
        """
        history = self._retained.retained_sets((*former, group), type_url, api_version)
        named = [each for each in history if each.version_info == version_info]
        if named:
            return named[0] if len({each.digest for each in named}) == 1 else None
        for overlaid in self._retained.overlaid_sets((*former, group)):
            whole = overlaid.named(version_info, history)
            if whole is not None:
                return whole
        return self._mixed(version_info, history)

    def _mixed(self, version_info: str, history: Sequence[ResourceSet]) -> ResourceSet | None:
        """The mixed set with this label: a retained set with some names as other retained sets have them."""
        label, plus, digits = version_info.rpartition("+")
        if not plus:
            return None
        bases = [each for each in history if version_stem(each.version_info, each.digest) == label]
        for base in bases:
            key: tuple[object, ...] = (digits, base.id, *(each.id for each in history))
            mixed = self._mixtures.get(key, partial(mixture_of, base, history, digits, self._diffs.change))
            if mixed is not None:
                return mixed
        return None

    def held_subset(
        self,
        held: ResourceSet,
        names: frozenset[str],
        clusters: ResourceSet | None,
        groups: Sequence[str],
        api_version: str = "",
        assigned_clusters: ResourceSet | None = None,
        needed: frozenset[str] = NO_NAMES,
    ) -> ResourceSet:
        """The content that a client with the set ``held`` holds if it subscribes to these names only.

        The client may have subscribed to names that the set lacks. Each such name is taken from the earliest revision
        after the set in which its resource refers only to ``clusters`` of the client. Without such a revision it is
        left out, because it was not sent. If the clusters are unknown (None), it is taken from the earliest revision in
        which it refers only to ``assigned_clusters``, else from the earliest one: a later revision of a route may rely
        on a filter that the client's listener does not have yet. A name in ``needed`` that no later revision has is
        taken from the latest revision that has it, because the set may be that of several revisions.
        """
        key = (
            held.id,
            names,
            clusters.id if clusters is not None else 0,
            assigned_clusters.id if assigned_clusters is not None else 0,
            needed,
        )
        return self._subsets.get(
            key, lambda: self._held_subset(held, names, clusters, groups, api_version, assigned_clusters, needed)
        )

    def _held_subset(
        self,
        held: ResourceSet,
        names: frozenset[str],
        clusters: ResourceSet | None,
        groups: Sequence[str],
        api_version: str,
        assigned_clusters: ResourceSet | None,
        needed: frozenset[str],
    ) -> ResourceSet:
        members = {name: held.resources[name] for name in sorted(names) if name in held.resources}
        history = self._retained.retained_sets(groups, held.type.type_url, api_version)
        base = held.mixture.base if held.mixture is not None else held
        index = next((at for at, each in enumerate(history) if each is base), None)
        if index is None:
            fitting_indexes = [at for at, each in enumerate(history) if _has_all(each, members)]
            index = fitting_indexes[-1] if members and fitting_indexes else len(history)
        for name in sorted(names - members.keys()):
            versions = _versions(name, history[:index])
            if not versions and name in needed:
                versions = _versions(name, history[index:])[:1]
            if versions:
                fitting = [each for each in versions if leads_within(each, clusters)]
                if clusters is None:
                    fitting = [each for each in versions if leads_within(each, assigned_clusters)] or versions
                if fitting:
                    members[name] = fitting[-1]
        return ResourceSet(held.type, held.version_info, members, derivation=Derivation(origin_id=held.origin_id))

    def assigned_clusters(
        self, assignments: frozenset[str], clusters: str, groups: Sequence[str], api_version: str = ""
    ) -> ResourceSet | None:
        """The clusters whose endpoints are in these assignments, from the history of the groups; None for none.

        A client that subscribes to an assignment holds its cluster. ``clusters`` is the type URL of clusters.
        """
        history = self._retained.retained_sets(groups, clusters, api_version)
        return self._assigned.get(
            (assignments, *(each.id for each in history)), lambda: _assigned_clusters(assignments, history)
        )

    def recall_versions(
        self,
        group: str,
        type_url: str,
        versions: Mapping[str, str],
        api_version: str = "",
        former: Sequence[str] = (),
        remembered: Sequence[ResourceSet] = (),
    ) -> ResourceSet | None:
        """The resources with the versions that a reconnected Delta client shows; None if none of them is retained.

        ``remembered`` are sets that the client held when it disconnected. A retained set that matches exactly is
        returned itself. Otherwise a set is made of resources of all retained revisions, without names whose version is
        not retained.
        """
        groups = (*former, group)
        history = self._retained.retained_sets(groups, type_url, api_version)
        overlaid = self._retained.overlaid_sets(groups)
        latest = [whole for each in overlaid for whole in each.latest()]
        overrides = [made for each in overlaid for made in each.overrides()]
        history = [*remembered, *history, *(made for made in (*latest, *overrides) if made.type.type_url == type_url)]
        # Clients that reconnect together show the same mapping. The entry refers to it, so its id is not reused.
        key = (id(versions), *(each.id for each in history))
        return self._recalled.get(key, lambda: (versions, _internal_listeners_sent(versions, history)))[1]


def _assigned_clusters(assignments: frozenset[str], history: Sequence[ResourceSet]) -> ResourceSet | None:
    """The clusters whose endpoints are in these assignments, each from the newest set that has it; None for none.

    ``history`` has the newest set first.
    """
    members: dict[str, Resource] = {}
    for found in history:
        for name, cluster in found.resources.items():
            named = [each.name for each in cluster.references if alias_of(each.type_url) == "endpoints"]
            if name not in members and named and assignments.issuperset(named):
                members[name] = cluster
    return ResourceSet(history[0].type, history[0].version_info, members) if members else None


def _versions(name: str, history: Sequence[ResourceSet]) -> list[Resource]:
    """The resources of a name in these sets, in the order of the sets."""
    return [each.resources[name] for each in history if name in each.resources]


def _has_all(resource_set: ResourceSet, members: Mapping[str, Resource]) -> bool:
    """Whether a set has all these resources in the same versions."""
    resources = resource_set.resources
    return all(name in resources and resources[name].version == each.version for name, each in members.items())


def _internal_listeners_sent(versions: Mapping[str, str], history: Sequence[ResourceSet]) -> ResourceSet | None:
    """The set of resources with these versions, taken from ``history``; None if it has none of them.

    A set of the history that has exactly these versions is returned itself.
    """
    for found in history:
        if len(found) == len(versions) and all(
            (resource := found.resources.get(name)) is not None and resource.version == version
            for name, version in versions.items()
        ):
            return found
    members = {}
    for name, version in versions.items():
        for found in history:
            resource = found.resources.get(name)
            if resource is not None and resource.version == version:
                members[name] = resource
                break
    return ResourceSet(history[0].type, history[0].version_info, members) if members else None

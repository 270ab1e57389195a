"""The removal logs of the groups whose content one client may have: its own, and those that it was moved from.

docs/protocol.md#removals: "secrets and endpoints of a former group linger only if the client was sent them". So of
former groups only other types are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import ROUTE_TARGETS, resource_type
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.rejections import NO_VERSIONS, RefusedVersions, Rejections
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.linger import NamesByType
from xds.snapshots.removal_log import RemovalLog


class LeftGroup(NamedTuple):
    """A group that a node left, and the revision that was served then: what came later, its clients never had."""

    group: str
    revision: int


class GroupLogs(NamedTuple):
    """The logs of a client, in an API version. ``former``: the groups that its node left."""

    cache: SnapshotCache
    own: RemovalLog
    former: Sequence[LeftGroup]
    api_version: str

    @property
    def all(self) -> tuple[RemovalLog, ...]:
        """The log of its group, then those of its former groups, the latest first."""
        return (self.own, *(self.cache.log(each.group, self.api_version) for each in self.former))

    def former_sets(self, type_url: str) -> list[ResourceSet]:
        """The sets of a type that the former groups had when the node left them, without what some node refused."""
        sets = []
        for log, left in zip(self.all[1:], self.former, strict=True):
            key = (log, log.state, type_url, left.revision)
            sets.append(self.cache.releases.results.by(key, _unrefused_as_of, log, type_url, left.revision))
        return sets

    def note_shown(self, type_url: str, label: str) -> None:
        """A client showed this label of a full-state type, so it ACKed the set with it."""
        labelled = self.labelled(type_url, label)
        for log in self.all:
            if labelled is not None and log.labelled(type_url, label) is labelled:
                log.note_accepted(labelled)

    def labelled(self, type_url: str, label: str) -> ResourceSet | None:
        """The full-state set with this label; None for none, or if groups have different sets of that label."""
        if not self.former:
            return self.own.labelled(type_url, label)
        sets = [log.labelled(type_url, label) for log in self.all if log.has_label(type_url, label)]
        first = sets[0] if sets else None
        is_one = first is not None and all(each is not None and each.digest == first.digest for each in sets)
        return first if is_one else None

    def last(self, goal: ResourceSet, label: str, refused: RefusedVersions) -> ResourceSet:
        """The versions that a client may have of what the log has of a type; of former groups, of all that they have.

        In this order: as in the set with the shown ``label``, unless the node rejected something; as the log of its
        group has them last; as its former groups had them. A version of which its group did not have all parts
        is the last choice: no client serves with it. Of former groups without such a set, not what ``goal`` has.
        """
        if self.former or any(refused.values()):
            return self._find_last(goal, label, refused)
        key = (self.own, self.own.state, goal.id, label)
        return self.cache.releases.results.by(key, GroupLogs._find_last, self, goal, label, refused)

    def _find_last(self, goal: ResourceSet, label: str, refused: RefusedVersions) -> ResourceSet:
        url, own = goal.type.type_url, self.own
        if goal.type.kept_on_move:
            return own.last(url)
        newest = goal.resources.keys()
        last = empty_set(url)
        if not any(has_refused(log, url, refused) for log in self.all):
            last = self.labelled(url, label) or last
        former = list(zip(self.all[1:], self.former_sets(url), strict=True))
        former += [(log, log.last(url, each.revision)) for log, each in zip(self.all[1:], self.former, strict=True)]
        kept = [(own, own.last(url), NO_NAMES), *((log, former_set, newest) for log, former_set in former)]
        for log, former_set, excluded in kept:
            lacking = {name for name, each in former_set.resources.items() if not _has_parts(log, each)}
            last = self._with(last, former_set, excluded | lacking)
        for _, former_set, excluded in kept:
            last = self._with(last, former_set, excluded)
        return last

    def _with(self, base: ResourceSet, more: ResourceSet, excluded: Set[str]) -> ResourceSet:
        """``base`` with the resources that only ``more`` has, but not those ``excluded``."""
        if not base.resources and not excluded:
            return more
        names = more.resources.keys() - base.resources.keys() - excluded
        return self.cache.releases.mixed(base, more, frozenset(names))

    def earlier(self, type_url: str) -> ResourceSet:
        """What its group had before the last changes of a type; of a moved client, also what its former groups had."""
        joined = self.own.earlier(type_url)
        for former_set in self.former_sets(type_url):
            names = former_set.resources.keys() - joined.resources.keys()
            joined = self.cache.releases.mixed(joined, former_set, frozenset(names))
        return joined

    def naming_none(self, resource_set: ResourceSet, names: NamesByType, clusters: ResourceSet) -> ResourceSet:
        """The set with an earlier version of each resource that refers to one of these names: the last that does not,
        and that refers to no clusters but these.

        Without such a version, it stays as it is.
        """
        former = self.former_sets(resource_set.type.type_url)
        key = (resource_set.id, names, clusters.id, self.own, self.own.state, *(each.id for each in former))
        return self.cache.releases.results.by(key, _naming_none, resource_set, dict(names), clusters, self.own, former)

    def latest_unaccepted(self, type_url: str, versions: Mapping[str, str]) -> frozenset[str]:
        """The names among these that came with the latest push, of those versions that no client is known to have."""
        logs = self.all
        unknown = {
            n: each for n, each in versions.items() if not any(log.is_accepted(type_url, n, each) for log in logs)
        }
        return next(filter(None, (log.latest_unaccepted(type_url, unknown) for log in logs)), NO_NAMES)

    def stand_ins(self, type_url: str, names: frozenset[str], rejections: Rejections) -> ResourceSet:
        """The latest versions of these names that may take the place of those that the client rejects.

        A suspect that some client accepted has none: another resource of the rejected response is bad.
        """
        resources: dict[str, Resource] = {}
        for name in names:
            suspect = rejections.suspects.get(name, "")
            if any(log.is_accepted(type_url, name, suspect) for log in self.all):
                continue
            refused = {*rejections.refused.get(name, ()), *rejections.placed.get(name, ()), suspect}
            former_sets = [each for each in self.former_sets(type_url) if name in each.resources]
            former = (each.resources[name] for each in former_sets if each.resources[name].version not in refused)
            own, *others = (log.stand_ins(type_url, name, refused) for log in self.all)
            stand_in = next(chain(own, former, *others), None)
            if stand_in is not None:
                resources[name] = stand_in
        return ResourceSet(resource_type(type_url), "", resources)


def _has_parts(log: RemovalLog, each: Resource) -> bool:
    """Whether a group had all members, assignments and secrets that a resource needs: a client may serve with it."""
    parts = (part for part in each.references if part.source in ("ads", "api") or part.type_url in ROUTE_TARGETS)
    return all(map(log.had, parts))


def _unrefused_as_of(log: RemovalLog, type_url: str, revision: int) -> ResourceSet:
    logged = log.as_of(type_url, revision)
    return logged.amended("", {}, {name for name, each in logged.resources.items() if not log.is_unrefused(each)})


def _naming_none(
    resource_set: ResourceSet,
    names: Mapping[str, frozenset[str]],
    clusters: ResourceSet,
    own: RemovalLog,
    former: Sequence[ResourceSet],
) -> ResourceSet:
    url, earlier = resource_set.type.type_url, dict[str, Resource]()
    for name in [name for name, each in resource_set.resources.items() if _names_any(each, names)]:
        versions = (*own.versions(url, name), *(each.resources[name] for each in former if name in each.resources))
        usable = (each for each in versions if not _names_any(each, names) and _leads_to(each, clusters))
        if fitting := next(usable, None):
            earlier[name] = fitting
    return resource_set.amended("", earlier) if earlier else resource_set


def _leads_to(each: Resource, clusters: ResourceSet) -> bool:
    return all(part.name in clusters.resources for part in each.references if part.type_url in ROUTE_TARGETS)


def _names_any(each: Resource, names: Mapping[str, frozenset[str]]) -> bool:
    return any(part.name in names.get(part.type_url, NO_NAMES) for part in each.references)


def has_refused(log: RemovalLog, type_url: str, refused: RefusedVersions) -> bool:
    """Whether one of these rejected versions is in the log: the clients of the node have applied the others."""
    by_name = refused.get(type_url, {})
    return any(log.has(type_url, name, version) for name, each in by_name.items() for version in each or NO_VERSIONS)

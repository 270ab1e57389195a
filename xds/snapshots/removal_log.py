"""One idea: the removal log of a group. It has what pushes removed or changed, which clients that return may need.

docs/internals/engine.md#a-client-that-returns: a client that returns "may hold anything that its group had within the
time that old connections live". The log has the versions of each such name, and until when connections may use them.
The ends are computed from pushes alone, so they are the same in a new process that reads the same pushes.

Time is an argument: seconds of any clock that all calls share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from xds.model.names import NO_NAMES
from xds.model.resource import Reference, Resource
from xds.model.resource_type import ROUTE_TARGETS, alias_of, resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.snapshots.order import OrderRules
from xds.snapshots.set_diff import DiffOf

PUSHES_KEPT = 10  # whatever their age: a refused push may stand for days
VERSIONS_KEPT = 10  # different ones of one name, and the last one before that a client accepted
_ACCEPTED_KEPT = 8
_NEVER = 1 << 62
_NONE: Mapping[str, Resource] = MappingProxyType({})
T = TypeVar("T")
A = TypeVarTuple("A")

NodeVersion = tuple[str, str, str]  # type URL, name, version


@dataclass(slots=True)
class _Push:
    """One push: its revision, time and end.

    ``labels``: its version_info by type URL; ``listeners``: its sets of listeners; ``removed``: what it removed or
    changed, by type URL and name; ``changed``: the names of this for nodes that had the line's push before it;
    ``came``: the names of each full-state type that it added or changed; ``unaccepted``: the names of ``removed`` in
    versions that no client ACKed; ``forgotten``: what was dropped from ``removed``, whose versions are still known.
    """

    revision: int
    at_s: float
    end_s: float
    labels: dict[str, str]
    listeners: tuple[ResourceSet, ...]
    removed: dict[str, dict[str, Resource]] = field(default_factory=dict)
    changed: Mapping[str, Collection[str]] = field(default_factory=dict)
    came: dict[str, frozenset[str]] = field(default_factory=dict)
    unaccepted: dict[str, set[str]] = field(default_factory=dict)
    forgotten: set[NodeVersion] = field(default_factory=set)

    def may_be_accepted(self, type_url: str, name: str) -> bool:
        """Whether a client may have ACKed the version of a name that it removed: of full-state types it is known."""
        return name not in self.unaccepted.get(type_url, ())


class RefusedVersions(dict[NodeVersion, None]):
    """The versions that some node refused, the latest last. ``number`` grows with every change."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def add(self, versions: Iterable[NodeVersion]) -> None:
        """Add versions that are not in it."""
        self.update(dict.fromkeys(versions))
        self.number += 1

    def take_oldest(self) -> NodeVersion:
        """Remove the oldest one."""
        oldest = next(iter(self))
        del self[oldest]
        self.number += 1
        return oldest


class RemovedVersion(NamedTuple):
    """A version of a name that a push removed or changed; it came with the push of revision ``since`` (0: before)."""

    push: _Push
    since: int
    resource: Resource


class RemovalLog:
    """The log of one group: its pushes with what each removed. What a push costs is one pass over what it changed.

    ``diff`` compares two sets (`Diffs.between`). ``refused`` are the versions that some node refused: they take no
    one's place. ``rules`` are those of the group, which may change. ``number`` grows with every change of the answers.
    """

    def __init__(self, rules: OrderRules, diff: DiffOf, refused: RefusedVersions) -> None:
        self.number = 0
        self.rules = rules
        self._diff = diff
        self._refused = refused
        self._newest: Snapshot | None = None
        self._labelled: Snapshot | None = None  # the newest one whose labels were noted
        self._forgotten = 0  # the revision of the push before the oldest; 0 for none
        self._pushes: list[_Push] = []  # the oldest first
        self._live_from = _NEVER  # the revision of the first push since the restart; 0 if it was the first of all
        self._accepted: dict[str, list[ResourceSet]] = {}  # the last sets that clients ACKed, by type URL
        self._listeners_changed_s: float | None = None
        self._sets: dict[tuple[str, str], ResourceSet | None] = {}  # full-state sets by type and label, None: several
        self._answers: tuple[int, dict[tuple[object, ...], Any]] = (0, {})  # those given since `state` was this

    def note_push(
        self, snapshot: Snapshot, at_s: float, *, is_stored: bool = False, is_of_others: bool = False
    ) -> None:
        """A push of this snapshot at ``at_s``; pushes are noted in their order, those before a restart (``is_stored``)
        as well.

        ``is_of_others``: nodes with this content join those of the log, or go back to it. Labels mean what they meant
        before, although they come back.
        """
        before, self._newest = self._newest, snapshot
        own_before = self._labelled
        self.number += 1
        self._note_labels(snapshot, are_kept=is_of_others)
        if not is_stored and self._live_from is _NEVER:
            self._live_from = 0 if before is None else snapshot.revision
        if before is None:
            self._pushes.append(_new_push(snapshot, at_s, at_s))
            return
        steps = ((before.get(url), snapshot.get(url)) for url in {**before.sets, **snapshot.sets})
        changes = {new.type.type_url: self._diff(old, new) for old, new in steps if old is not new}
        if any(alias_of(url) == "listeners" and each.change for url, each in changes.items() if url in before.sets):
            self._listeners_changed_s = at_s
            self._extend_latest(at_s)
        push = _new_push(snapshot, at_s, self._end_s(at_s))
        for url, each in changes.items():
            if names := (*each.change.changed, *each.change.removed):
                old = before.get(url)
                push.removed[url] = removed = {name: old.resources[name] for name in names}
                if old.type.full_state and not any(one is old for one in self._accepted.get(url, ())):
                    unaccepted = {name for name, one in removed.items() if not self._has_accepted(one)}
                    push.unaccepted[url] = unaccepted
            if snapshot.get(url).type.full_state:
                push.came[url] = each.added_or_changed
        if not is_of_others:
            push.changed = push.removed if own_before is before else self._changes(own_before, snapshot)
        self._pushes.append(push)
        self._forget(at_s)

    def end(self, now_s: float) -> None:
        """What was removed is needed no longer, an operator says (`xds release`). A new process does not know of it."""
        self.number += 1
        for push in self._pushes:
            push.end_s = min(push.end_s, now_s)

    def _changes(self, before: Snapshot | None, after: Snapshot) -> dict[str, frozenset[str]]:
        """The names that another snapshot removed or changed, by type URL."""
        steps = ((url, old, after.get(url)) for url, old in before.sets.items()) if before is not None else ()
        changes = {url: self._diff(old, new).change for url, old, new in steps if old is not new}
        return {url: frozenset((*each.changed, *each.removed)) for url, each in changes.items()}

    def _note_labels(self, snapshot: Snapshot, *, are_kept: bool) -> None:
        before = self._labelled
        for resource_set in snapshot.sets.values():
            if resource_set.type.full_state:
                key = (resource_set.type.type_url, resource_set.version_info)
                last = before.get(resource_set.type.type_url) if before is not None else None
                is_new = key not in self._sets  # a label that comes back may be that of a set between
                is_same = last is not None and last.version_info == resource_set.version_info
                is_run = is_same and last is not None and last.digest == resource_set.digest
                if is_new or not are_kept:
                    self._sets[key] = resource_set if is_new or (is_run and self._sets[key] is not None) else None
        if not are_kept:
            self._labelled = snapshot

    def note_accepted(self, held: ResourceSet) -> None:
        """A client ACKed this set of a full-state type."""
        url, resources = held.type.type_url, held.resources
        accepted = self._accepted.setdefault(url, [])
        if (accepted and accepted[-1] is held) or any(each is held for each in accepted):  # the last: most often
            return
        accepted.append(held)
        del accepted[:-_ACCEPTED_KEPT]
        for push in self._pushes:
            if unaccepted := push.unaccepted.get(url):
                unaccepted -= {
                    name
                    for name in unaccepted
                    if (each := resources.get(name)) is not None and each.version == push.removed[url][name].version
                }
        if any(url == kind and name in resources and resources[name].version == v for kind, name, v in self._refused):
            self.number += 1

    def _has_accepted(self, resource: Resource) -> bool:
        for accepted in self._accepted.get(resource.type_url, ()):
            each = accepted.resources.get(resource.name)
            if each is not None and each.version == resource.version:
                return True
        return False

    def _removals(self, type_url: str, name: str) -> tuple[list[RemovedVersion], int]:
        """The versions of a name that pushes removed, the oldest first, and the push that the newest one came with."""
        removals: list[RemovedVersion] = []
        since = 0
        for push in self._pushes:
            resource = push.removed.get(type_url, _NONE).get(name)
            if resource is not None:
                removals.append(RemovedVersion(push, since, resource))
            if name in push.came.get(type_url, ()):
                since = push.revision
        return _latest_versions(removals), since

    def _unaccepted_pushes(self, type_url: str, name: str, version: str) -> list[int]:
        """The pushes that a version came with which no client is known to have ACKed; none for any other version."""
        if not resource_type(type_url).full_state:
            return []
        removals, newest_since = self._removals(type_url, name)
        same = [each for each in removals if each.resource.version == version]
        if any(name not in each.push.unaccepted.get(type_url, ()) for each in same):
            return []
        pushes = [each.since for each in same]
        newest = self._newest_set(type_url).resources.get(name)
        if newest is not None and newest.version == version:
            return [] if self._has_accepted(newest) else [*pushes, newest_since]
        return pushes

    # -- questions --------------------------------------------------------------------------------------------------

    def last(self, type_url: str, revision: int = _NEVER) -> ResourceSet:
        """Of each name of a type that pushes removed or changed, the last version that no node refused.

        Without what pushes after this revision removed. A name of which every version was refused is left out. A
        cluster whose assignment nobody can have, or of which the client may lack members, is the last choice.
        """
        return self._answer(self._find_last, type_url, revision)

    def _find_last(self, type_url: str, revision: int) -> ResourceSet:
        stand_ins = (self._most_served(type_url, name, revision) for name in self.names(type_url))
        resources = {each.name: each for each in stand_ins if each is not None}
        return ResourceSet(resource_type(type_url), "", resources) if resources else empty_set(type_url)

    def _answer(self, find: Callable[[*A], T], *arguments: *A) -> T:
        """What was found before is kept until `state` changes."""
        state, key = self.state, (find.__name__, *arguments)
        if self._answers[0] != state:
            self._answers = state, {}
        answers = self._answers[1]
        if key not in answers:
            answers[key] = find(*arguments)
        answer: T = answers[key]
        return answer

    @property
    def state(self) -> int:
        """Grows with every change of the answers, those that depend on what nodes refused as well."""
        return self.number + self._refused.number

    def _most_served(self, type_url: str, name: str, revision: int) -> Resource | None:
        removals = [each for each in self._removals(type_url, name)[0] if each.push.revision <= revision]
        unrefused = [each.resource for each in reversed(removals) if self.is_unrefused(each.resource)]
        return min(unrefused, key=self._lacks, default=None)

    def _lacks(self, cluster: Resource) -> tuple[int, int]:
        """How little a cluster may serve: 1 if it is an aggregate, whose members may be cold; 2 if it lacks a part, or
        a member does in all versions.

        Then, of aggregates, the push that the latest of its members came with: clients are most likely to have the
        earliest.
        """
        if self._lacks_assignment(cluster):
            return 2, 0
        members = [each for each in cluster.references if each.type_url in ROUTE_TARGETS]
        if any(all(map(self._lacks_assignment, self._versions_of(each))) for each in members):
            return 2, 0
        return int(bool(members)), max(map(self._first_since, members), default=0)

    def _lacks_assignment(self, cluster: Resource) -> bool:
        """Whether no push has an assignment of a cluster. It may have been observed."""
        assignments = (each for each in cluster.references if alias_of(each.type_url) == "endpoints")
        return any(each.source in ("ads", "api") and not self.had(each) for each in assignments)

    def _versions_of(self, each: Reference) -> Iterator[Resource]:
        """The newest version of a name, and those that pushes removed or changed."""
        newest = self._newest_set(each.type_url).resources.get(each.name)
        return chain([newest] if newest is not None else [], self.versions(each.type_url, each.name))

    def _newest_set(self, type_url: str) -> ResourceSet:
        return self._newest.get(type_url) if self._newest is not None else empty_set(type_url)

    def _first_since(self, each: Reference) -> int:
        """The push that a name of the newest set came with, in any version that the log has; 0 for before."""
        removals, newest_since = self._removals(each.type_url, each.name)
        return removals[0].since if removals else newest_since

    def is_unrefused(self, each: Resource) -> bool:
        """Whether no node refused a version, or some client accepted it: a node that refuses it harms only itself."""
        if (each.type_url, each.name, each.version) not in self._refused:
            return True
        return self.is_accepted(each.type_url, each.name, each.version)

    def had(self, each: Reference) -> bool:
        """Whether a name is in the newest set, or was in one that a push replaced."""
        return each.name in self._newest_set(each.type_url).resources or each.name in self.names(each.type_url)

    def end_s(self, type_url: str, name: str, version: str | None) -> float | None:
        """Until when connections may need a removed name in a version, or in some; None if the log does not have it."""
        push, versions = self._last_push_of(type_url, name), self.versions(type_url, name)
        return push.end_s if push and (version is None or any(each.version == version for each in versions)) else None

    def removed_by(self, type_url: str, name: str) -> int:
        """The revision of the last push that removed or changed a name; 0 for none."""
        push = self._last_push_of(type_url, name)
        return push.revision if push is not None else 0

    def _last_push_of(self, type_url: str, name: str) -> _Push | None:
        return next((push for push in reversed(self._pushes) if name in push.removed.get(type_url, _NONE)), None)

    def named_at(self, type_url: str, label: str) -> frozenset[str] | None:
        """The names of a type to which the listeners of pushes with this label referred; None without such a push."""
        pushes = [push for push in self._pushes if push.labels.get(type_url) == label]
        named = (
            each
            for push in pushes
            for listeners in push.listeners
            for one in listeners.resources.values()
            for each in one.references
        )
        return frozenset(each.name for each in named if each.type_url == type_url) if pushes else None

    def versions(self, type_url: str, name: str) -> Iterator[Resource]:
        """The versions of a name that pushes removed or changed, the latest first."""
        return (each.resource for each in reversed(self._removals(type_url, name)[0]))

    def has(self, type_url: str, name: str, version: str) -> bool:
        """Whether a version of a name is the newest one, or one that a push removed or changed."""
        return any(each.version == version for each in self._versions_of(Reference(type_url, name)))

    def has_known(self, type_url: str, name: str, version: str) -> bool:
        """Whether a push of the log had a version of a name, however many versions there were since."""
        is_forgotten = any((type_url, name, version) in push.forgotten for push in self._pushes)
        return is_forgotten or self.has(type_url, name, version)

    def names(self, type_url: str) -> frozenset[str]:
        """The names of a type that pushes removed or changed."""
        return self._answer(self._find_names, type_url)

    def _find_names(self, type_url: str) -> frozenset[str]:
        return frozenset[str]().union(*(push.removed.get(type_url, _NONE) for push in self._pushes))

    def earlier(self, type_url: str) -> ResourceSet:
        """Each name in the version before its last change; a new name that no client accepted is left out."""
        newest = self._newest_set(type_url)
        unaccepted = self.unaccepted(type_url, {n: each.version for n, each in newest.resources.items()})
        kept = {n: each for n, each in newest.resources.items() if n not in unaccepted}
        return ResourceSet(newest.type, "", {**kept, **self.last(type_url).resources})

    def as_of(self, type_url: str, revision: int) -> ResourceSet:
        """The set of a type that was served after the push of this revision, as far as the log goes back.

        Of types that are not full-state, what later pushes added is in it.
        """
        newest = self._newest_set(type_url)
        before: dict[str, Resource] = {}
        came = set[str]()
        for push in reversed(self._pushes):
            if push.revision <= revision:
                break
            came |= push.came.get(type_url, NO_NAMES)
            removed = push.removed.get(type_url, _NONE)
            before = {**{n: each for n, each in before.items() if n not in came}, **removed}
            came.difference_update(removed)
        return newest.amended("", before, came & newest.resources.keys()) if before or came else newest

    def served_with(self, type_url: str, name: str, listeners: Collection[Resource]) -> Iterator[Resource]:
        """The versions of a name until the last push that had these versions of listeners, the latest first.

        Later ones may open what only later versions of the listeners guard.
        """
        for push in reversed(self._pushes):
            versions = {each.name: each.version for held in push.listeners for each in held.resources.values()}
            if all(versions.get(each.name) == each.version for each in listeners):
                then = self.as_of(type_url, push.revision).resources.get(name)
                yield from (then,) if then is not None else ()
                earlier = reversed(self._removals(type_url, name)[0])
                yield from (each.resource for each in earlier if each.push.revision <= push.revision)
                return

    def latest_unaccepted(self, type_url: str, versions: Mapping[str, str]) -> frozenset[str]:
        """The names among these that came with the latest push, of those versions that no client is known to have."""
        pushes = {name: self._unaccepted_pushes(type_url, name, version) for name, version in versions.items()}
        last = max(chain.from_iterable(pushes.values()), default=0)
        return frozenset(name for name, each in pushes.items() if last in each)

    def unaccepted(self, type_url: str, versions: Mapping[str, str]) -> frozenset[str]:
        """The names among these whose versions came with a push since the restart and that no client accepted.

        Of pushes before it, it is not known what was ACKed.
        """
        pushes = {name: self._unaccepted_pushes(type_url, name, version) for name, version in versions.items()}
        return frozenset(name for name, each in pushes.items() if each and each[0] >= self._live_from)

    def is_accepted(self, type_url: str, name: str, version: str) -> bool:
        """Whether some client is known to have ACKed a version of the log."""
        is_known = resource_type(type_url).full_state and self.has(type_url, name, version)
        return is_known and not self._unaccepted_pushes(type_url, name, version)

    def stand_ins(self, type_url: str, name: str, refused: Collection[str] = ()) -> Iterator[Resource]:
        """The versions of a name that may take the place of another one, the latest first.

        Without those that some node refused, those among ``refused``, and those that came since a restart and that no
        client accepted: no client has them.
        """
        versions = [each for each in self.versions(type_url, name) if each.version not in refused]
        return (
            each for each in versions if self.is_unrefused(each) and not self.unaccepted(type_url, {name: each.version})
        )

    def came_back(self, type_url: str) -> frozenset[str]:
        """The names that a push removed or changed, and that the newest set has in that version again."""
        return self._answer(self._find_came_back, type_url)

    def _find_came_back(self, type_url: str) -> frozenset[str]:
        newest = self._newest_set(type_url).resources
        return frozenset(
            name
            for name in self._newest_set(type_url).among(self.names(type_url))
            if any(each.version == newest[name].version for each in self.versions(type_url, name))
        )

    def labelled(self, type_url: str, label: str) -> ResourceSet | None:
        """The set of a full-state type that a push served under this label; None for none, or if several differ."""
        return self._sets.get((type_url, label))

    def has_label(self, type_url: str, label: str) -> bool:
        """Whether a push served a set of a full-state type under this label."""
        return (type_url, label) in self._sets

    def changed_since(self, type_url: str, label: str) -> frozenset[str]:
        """The names of a type that pushes removed or changed after the last push with this label."""
        since = max((push.revision for push in self._pushes if push.labels.get(type_url) == label), default=0)
        later = (push.removed.get(type_url, _NONE) for push in self._pushes if push.revision > since)
        return frozenset[str]().union(*later)

    def changed_after(self, type_url: str, revision: int) -> frozenset[str]:
        """The names of a type that pushes after this revision removed or changed for nodes of the log."""
        later = (push.changed.get(type_url, NO_NAMES) for push in self._pushes if push.revision > revision)
        return frozenset[str]().union(*later)

    def revisions(self) -> list[int]:
        """The revisions from which the log can be made again, oldest first."""
        first = (self._forgotten,) if self._forgotten else ()
        return [*first, *(push.revision for push in self._pushes)]

    def copy(self) -> RemovalLog:
        """An independent log with the same pushes."""
        log = copy(self)
        log._pushes = [
            replace(
                push,
                removed={url: dict(each) for url, each in push.removed.items()},
                unaccepted={url: set(names) for url, names in push.unaccepted.items()},
                forgotten=set(push.forgotten),
            )
            for push in self._pushes
        ]
        log._accepted = {url: list(sets) for url, sets in self._accepted.items()}
        log._sets, log._answers = dict(self._sets), (0, {})
        return log

    def translated(self, translate: Callable[[ResourceSet], ResourceSet | None], newest: Snapshot) -> RemovalLog:
        """The log of the same pushes in another API version, of which ``newest`` is the newest snapshot."""
        log = RemovalLog(self.rules, self._diff, self._refused)
        log._newest, log._listeners_changed_s, log._live_from = newest, self._listeners_changed_s, self._live_from
        log._labelled = newest
        for (_, label), resource_set in self._sets.items():
            translated_set = translate(resource_set) if resource_set is not None else None
            if translated_set is not None:
                log._sets[translated_set.type.type_url, label] = translated_set
        for push in self._pushes:
            removed, urls = dict[str, dict[str, Resource]](), dict[str, str]()
            for url, resources in push.removed.items():
                translated_set = translate(ResourceSet(resource_type(url), "", resources))
                if translated_set is not None:
                    urls[url] = translated_set.type.type_url
                    removed[urls[url]] = dict(translated_set.resources)
            listeners = tuple(
                translated_set for each in push.listeners if (translated_set := translate(each)) is not None
            )
            labels = {**push.labels, **{urls[url]: label for url, label in push.labels.items() if url in urls}}
            labels |= {each.type.type_url: each.version_info for each in listeners}
            changed = {urls.get(url, url): names for url, names in push.changed.items()}
            came = {urls.get(url, url): names for url, names in push.came.items()}
            log._pushes.append(
                replace(
                    push,
                    removed=removed,
                    changed=changed,
                    listeners=listeners,
                    labels=labels,
                    came=came,
                    unaccepted={},
                )
            )
        return log

    # -- what is kept -----------------------------------------------------------------------------------------------

    @property
    def _settle_s(self) -> float:
        """How long a push may take until clients have all of it."""
        return self.rules.order_timeout_s + self.rules.removal_delay_s

    def _end_s(self, at_s: float) -> float:
        """Connections of a listener that changed within a drain before the push may use what the push removed."""
        changed_s = self._listeners_changed_s
        drained_s = changed_s + self.rules.listener_drain_s if changed_s is not None else at_s
        return max(at_s, drained_s) + self._settle_s

    def _extend_latest(self, at_s: float) -> None:
        """A client may have skipped the pushes just before listeners changed: old connections use what they removed."""
        for push in self._pushes:
            if at_s <= push.at_s + self._settle_s:
                push.end_s = max(push.end_s, at_s + self.rules.listener_drain_s + self._settle_s)

    def _forget(self, now_s: float) -> None:
        """Drop old pushes, but not the last ten, and none of ``linger_max`` while a node refuses newest content."""
        while len(self._pushes) > PUSHES_KEPT:
            oldest = self._pushes[0]
            is_young = now_s - oldest.at_s <= kept_s(self.rules) or self._is_newest_refused()
            if is_young and len(self._pushes) <= self.rules.linger_max:
                break
            self._forgotten = oldest.revision
            del self._pushes[0]
        self._forget_versions()
        for key in list(islice(self._sets, max(0, len(self._sets) - (len(self._pushes) + 1) * 3))):
            del self._sets[key]
        clusters = [
            key for key, resource_set in self._sets.items() if resource_set is not None and key[0] in ROUTE_TARGETS
        ]
        for url, label in clusters[: -PUSHES_KEPT - 2]:  # sets of clusters may be large
            if self._newest_set(url).version_info != label:
                self._sets[url, label] = None

    def _forget_versions(self) -> None:
        """Keep `VERSIONS_KEPT` of what every push changes, and the last one before that a client accepted."""
        if len(self._pushes) <= VERSIONS_KEPT:
            return
        oldest, *later = self._pushes[-VERSIONS_KEPT - 1 :]
        for url, removed in oldest.removed.items():
            names = set(removed)
            for push in later:
                names.intersection_update(push.removed.get(url, _NONE))
                if not names:
                    break
            needed = names.difference(oldest.unaccepted.get(url, ()))
            for push in later:
                needed.intersection_update(push.unaccepted.get(url, ()))
            later_removed = [push.removed[url] for push in later] if names else []
            for name in names:
                versions = {each[name].version for each in later_removed}
                if removed[name].version in versions or (len(versions) == VERSIONS_KEPT and name not in needed):
                    oldest.forgotten.add((url, name, removed.pop(name).version))
            oldest.unaccepted.get(url, set()).difference_update(names)

    def _is_newest_refused(self) -> bool:
        newest = ((self._newest_set(url).resources.get(name), version) for url, name, version in self._refused)
        return any(each is not None and each.version == version for each, version in newest)


def kept_s(rules: OrderRules) -> float:
    """How long pushes are kept, beyond the last ten."""
    return 2 * (rules.listener_drain_s + rules.removal_delay_s)


def _latest_versions(removals: list[RemovedVersion]) -> list[RemovedVersion]:
    """Those of the last `VERSIONS_KEPT` different versions, and the last one before that a client accepted."""
    versions, first = set[str](), len(removals)
    while first and len(versions | {removals[first - 1].resource.version}) <= VERSIONS_KEPT:
        first -= 1
        versions.add(removals[first].resource.version)
    accepted = [each for each in removals if each.push.may_be_accepted(each.resource.type_url, each.resource.name)]
    is_kept = not accepted or any(each is accepted[-1] for each in removals[first:])
    return removals[first:] if is_kept else [accepted[-1], *removals[first:]]


def _new_push(snapshot: Snapshot, at_s: float, end_s: float) -> _Push:
    labels = {url: resource_set.version_info for url, resource_set in snapshot.sets.items()}
    listeners = tuple(resource_set for url, resource_set in snapshot.sets.items() if alias_of(url) == "listeners")
    return _Push(snapshot.revision, at_s, end_s, labels, listeners)

"""The watches of one client, by type. A watch is pending while the client lacks some of the released content."""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import V2_URLS, resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.rejections import Refused, RefusedVersions
from xds.protocol.watch import Watch
from xds.snapshots.diffs import Diffs
from xds.snapshots.linger import NamesByType, names_by_type
from xds.snapshots.memo import Situation
from xds.snapshots.removal_log import RemovalLog

V2_TYPE_URLS = frozenset(V2_URLS.values())
NOTHING_REFUSED_BY_TYPE: Mapping[str, Refused] = MappingProxyType({})


class Watches:
    """The watches of all streams of a client.

    Most clients have one stream, so one watch of each type: a tuple takes the least memory. ``refused`` has what the
    client is known to refuse, by type URL. ``has_v2``: some type is of the v2 API.
    """

    __slots__ = ("_pending_since_s", "_watches", "has_v2", "refused")

    def __init__(self) -> None:
        self._watches: dict[str, tuple[Watch, ...]] = {}
        self._pending_since_s: dict[str, float] = {}  # types with a pending watch
        self.refused: Mapping[str, Refused] = NOTHING_REFUSED_BY_TYPE
        self.has_v2 = False

    def copy(self) -> tuple[Watches, dict[Watch, Watch]]:
        """Independent watches in the same state, and the copy of each watch."""
        clone = Watches()
        copies = {watch: watch.copy() for watches in self._watches.values() for watch in watches}
        clone._watches = {url: tuple(map(copies.__getitem__, watches)) for url, watches in self._watches.items()}
        clone._pending_since_s = dict(self._pending_since_s)
        clone.has_v2 = self.has_v2
        if self.refused:
            clone.refused = {url: Refused(versions) for url, versions in self.refused.items()}
            for watch in copies.values():
                if watch.rejections is not None:
                    watch.rejections = watch.rejections.copy(clone.refused[watch.type.type_url])
        return clone, copies

    def __iter__(self) -> Iterator[str]:
        """The watched type URLs."""
        return iter(self._watches)

    def __contains__(self, type_url: object) -> bool:
        return type_url in self._watches

    def add(self, watch: Watch, now_s: float) -> None:
        """A stream requests a type. The watch is pending until it is answered."""
        type_url = watch.type.type_url
        self._watches[type_url] = (*self._watches.get(type_url, ()), watch)
        self.has_v2 = self.has_v2 or type_url in V2_TYPE_URLS
        self.mark_pending(watch, now_s)

    def remove(self, watch: Watch) -> None:
        """The stream of this watch ended."""
        type_url = watch.type.type_url
        others = tuple(other for other in self._watches.get(type_url, ()) if other is not watch)
        if others:
            self._watches[type_url] = others
        else:
            self._watches.pop(type_url, None)
            self.has_v2 = not V2_TYPE_URLS.isdisjoint(self._watches)
        self.mark_synced(watch)

    def of(self, type_url: str) -> Collection[Watch]:
        """The watches of a type."""
        return self._watches.get(type_url, ())

    def names(self, type_url: str) -> frozenset[str]:
        """All subscribed names of a type."""
        return names_of(self.of(type_url))

    def may_hold_anything(self, type_url: str) -> bool:
        """Whether it is unknown what the client has of a type: it has returned, and ACKed nothing of it since."""
        return any(watch.shown.is_unknown for watch in self.of(type_url))

    def acked(self, type_url: str) -> ResourceSet | None:
        """The set that the watches of a type ACKed; that of a pending watch if they differ; None without an ACK."""
        watches = self.of(type_url)
        acked_set = None
        for watch in watches:
            if watch.is_pending:
                return watch.known.base
            acked_set = watch.known.base
        return acked_set

    def have_acked(self, type_urls: Container[str]) -> bool:
        """Whether some watch of these types has ACKed a response, or showed what it holds."""
        for url, watches in self._watches.items():
            if url in type_urls:
                for watch in watches:
                    if watch.known.base is not None:
                        return True
        return False

    def mark_pending(self, watch: Watch, now_s: float) -> None:
        """The client lacks some of the released content of this watch."""
        watch.is_pending = True
        self._pending_since_s.setdefault(watch.type.type_url, now_s)

    def mark_changed(self, before: Snapshot, after: Snapshot, now_s: float) -> Collection[str]:
        """Another snapshot is released to the client. Returns the watched types with other content, pending now."""
        sets, new_sets = before.sets, after.sets
        changed = []
        for url, watches in self._watches.items():
            if sets.get(url) is not new_sets.get(url):
                changed.append(url)
                self._pending_since_s.setdefault(url, now_s)
                for watch in watches:
                    watch.is_pending = True
        return changed

    def mark_synced(self, watch: Watch) -> None:
        """The client holds the released content of this watch, or the stream ended."""
        watch.is_pending = False
        type_url = watch.type.type_url
        if type_url not in self._pending_since_s:
            return
        for other in self._watches.get(type_url, ()):
            if other.is_pending:
                return
        del self._pending_since_s[type_url]
        if not self._pending_since_s:
            self._pending_since_s.clear()  # frees the memory of an emptied dict

    def pending(self, type_url: str) -> Collection[Watch]:
        """The pending watches of a type."""
        if type_url not in self._pending_since_s:
            return ()
        return [watch for watch in self._watches.get(type_url, ()) if watch.is_pending]

    def pending_since_s(self, type_url: str) -> float | None:
        """Since when the type has had a pending watch; None if it has none."""
        return self._pending_since_s.get(type_url)

    def situation(self) -> Situation:
        """What the rules about held content read of the watches; empty if the client rejected something."""
        parts: list[Hashable] = []
        if any(self.refused.values()):
            return ()
        for url, watches in self._watches.items():
            for watch in watches:
                known, sent = watch.known, watch.ack.in_flight
                if watch.rejections is not None or known.uncertain:
                    return ()
                number = sent.response.number if sent is not None else 0
                parts += (url, known.base, watch.subscription.interest, known.unanswered, watch.resend_names)
                answered = sent.answered_names if sent is not None else NO_NAMES
                parts += (watch.is_pending, number, answered, watch.shown, watch.pending_release)
        return tuple(parts)

    def with_pending_release(self) -> list[Watch]:
        """The watches with requested names that wait for a release."""
        return [watch for watches in self._watches.values() for watch in watches if watch.pending_release]

    @property
    def pending_types(self) -> Collection[str]:
        """The types with a pending watch."""
        return self._pending_since_s.keys()

    @property
    def rejects_anything(self) -> bool:
        """Whether the client rejects some resource, of the present content or of earlier content."""
        if any(self.refused.values()):
            return True
        for watches in self._watches.values():
            for watch in watches:
                if watch.rejections:
                    return True
        return False

    def refuse(self, refused: RefusedVersions) -> None:
        """The node refused these versions on earlier connections."""
        for url, versions in refused.items():
            self.refused_of(url).update(versions)

    def refused_of(self, type_url: str) -> Refused:
        """What the client is known to refuse of a type."""
        if type_url not in self.refused:
            self.refused = {**self.refused, type_url: Refused()}
        return self.refused[type_url]

    def forget_refused(self) -> None:
        """The client refuses nothing any more: it is as one that never did."""
        self.refused = NOTHING_REFUSED_BY_TYPE

    def join_search(self, watch: Watch) -> None:
        """What the client refuses on other streams is not sent on this one either."""
        if watch.rejections is None and self.refused.get(watch.type.type_url):
            watch.begin_search(self.refused_of(watch.type.type_url))

    def note_push(self, before: Snapshot, after: Snapshot, followed: RemovalLog | None) -> None:
        """Another snapshot is the newest. ``followed``: the log of the pushes between; None if it has others."""
        for url, refused in self.refused.items():
            changed = followed.changed_after(url, before.revision) if followed is not None else NO_NAMES
            refused.note_push(before.get(url), after.get(url), changed)

    def accepted(self, type_url: str, names: Collection[str]) -> ResourceSet | None:
        """The set that a stream accepted that subscribes to some of these names; None if there is none."""
        for watch in self.of(type_url):
            known = watch.known.base
            if known is not None and not watch.subscription.interest.names.isdisjoint(names):
                return known
        return None

    def rejected_versions(self, type_url: str, goal_set: ResourceSet) -> frozenset[str]:
        """The names that the client rejects in the version of a set, and of which it never accepted another version."""
        return frozenset(name for name in self.doubted_in(goal_set) if self._is_lacking(type_url, name))

    def rejected_in(self, goal_set: ResourceSet) -> frozenset[str]:
        """The names that the client rejects in the version of a set, whatever version of them it accepted before."""
        refused = self.refused.get(goal_set.type.type_url)
        return refused.among(refused, goal_set) if refused else NO_NAMES

    def doubted_in(self, goal_set: ResourceSet) -> frozenset[str]:
        """The names that the client rejects in the version of a set, or that are suspect in it."""
        watches = self.of(goal_set.type.type_url)
        suspects = (watch.rejections.suspects_in(goal_set) for watch in watches if watch.rejections)
        return self.rejected_in(goal_set).union(*suspects)

    def _is_lacking(self, type_url: str, name: str) -> bool:
        """Whether the client has accepted no version of a name on some stream that subscribes to it, or on any."""
        watches = [watch for watch in self.of(type_url) if watch.subscription.interest.wants_name(name)]
        known = [watch.known.base.resources if watch.known.base is not None else {} for watch in watches]
        return not known or any(name not in each for each in known)

    def unaccepted(self, type_url: str, diffs: Diffs) -> frozenset[str]:
        """The subscribed names of a partial type that no stream accepted in any version."""
        watches = self.of(type_url)
        lacking = frozenset[str]().union(*(watch.unaccepted_names(diffs) for watch in watches))
        if not lacking or len(watches) == 1:
            return lacking
        return lacking.difference(*(watch.accepted_names() for watch in watches))

    def never_accepted(self) -> NamesByType:
        """The names that the client rejects in some version, and of which it never accepted any version."""
        return names_by_type(
            {url: [name for name in names if self._is_lacking(url, name)] for url, names in self.refused.items()}
        )

    def changing(
        self, type_url: str, goal_set: ResourceSet, *, except_rejected: bool, except_new: bool
    ) -> frozenset[str]:
        """The subscribed names of a partial type that the client has not accepted in the version of a set.

        ``except_rejected``: without names that it rejects in this version. ``except_new``: without names of streams on
        which it has accepted nothing yet.
        """
        goal, names = goal_set.resources, set[str]()
        rejected = self.doubted_in(goal_set) if except_rejected else NO_NAMES
        for watch in self.of(type_url):
            if watch.known.base is goal_set or (except_new and watch.known.base is None):
                continue
            known = watch.known.base.resources if watch.known.base is not None else {}
            for name in goal_set.among(watch.subscription.interest.names).difference(rejected):
                before = known.get(name)
                if before is None or before.version != goal[name].version:
                    names.add(name)
        return frozenset(names)

    def not_fetched(self, names: NamesByType) -> NamesByType:
        """The names among these that the client has not requested or not ACKed yet."""
        unfetched = []
        for url, wanted in names:
            missing = set(wanted)
            for watch in self.of(url):
                if watch.known.base is not None:
                    missing -= watch.known.base.among(watch.accepted_names())
            if missing:
                unfetched.append((url, frozenset(missing)))
        return tuple(unfetched)

    def held_tree_parts(self) -> Iterator[Resource]:
        """What may have routes that the client wants and holds, in any version."""
        for url, watches in self._watches.items():
            for watch in watches if resource_type(url).in_tree else ():
                if watch.known.base is not None:
                    wants_name = watch.subscription.interest.wants_name
                    yield from (each for name, each in watch.known.base.resources.items() if wants_name(name))

    def outdated(self, names: NamesByType, goal: Snapshot) -> NamesByType:
        """The subscribed names among these, in listener trees, whose version in ``goal`` the client lacks."""
        versions = {}
        for url, wanted in names:
            subscribed = wanted & self.names(url) if resource_type(url).in_tree else ()
            resources = goal.get(url).resources
            versions[url] = [n for n in subscribed if n in resources and not self._has_version(url, resources[n])]
        return names_by_type(versions)

    def _has_version(self, type_url: str, resource: Resource) -> bool:
        name = resource.name
        known = (
            w.known.base.resources[name] for w in self.of(type_url) if w.known.base is not None and w.has_accepted(name)
        )
        return any(each.version == resource.version for each in known)


def names_of(watches: Iterable[Watch]) -> frozenset[str]:
    """All names to which these watches subscribe."""
    names = [watch.subscription.interest.names for watch in watches]
    return names[0] if len(names) == 1 else frozenset().union(*names)

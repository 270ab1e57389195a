"""The watches of one client, by type. A watch is pending while the client lacks some of the released content."""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import V2_URLS, resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.rejections import Rejections, Versions
from xds.protocol.watch import Watch
from xds.snapshots.diffs import Diffs
from xds.snapshots.leftover import Leftover
from xds.snapshots.linger import NO_NAMES_BY_TYPE, NamesByType, names_by_type
from xds.snapshots.memo import Situation

V2_TYPE_URLS = frozenset(V2_URLS.values())


class Watches:
    """The watches of all streams of a client.

    Most clients have one stream, so one watch of each type: a tuple takes the least memory. ``_dropped`` has rejected
    resources to whose names the client no longer subscribes: by type URL, name to version; None for none. ``has_v2``:
    some type is of the v2 API.
    """

    __slots__ = ("_dropped", "_pending_since_s", "_watches", "has_v2")

    def __init__(self) -> None:
        self._watches: dict[str, tuple[Watch, ...]] = {}
        self._pending_since_s: dict[str, float] = {}  # types with a pending watch
        self._dropped: dict[str, Mapping[str, str]] | None = None
        self.has_v2 = False

    def copy(self) -> tuple[Watches, dict[Watch, Watch]]:
        """Independent watches in the same state, and the copy of each watch."""
        clone = Watches()
        copies = {watch: watch.copy() for watches in self._watches.values() for watch in watches}
        clone._watches = {url: tuple(map(copies.__getitem__, watches)) for url, watches in self._watches.items()}
        clone._pending_since_s = dict(self._pending_since_s)
        clone.has_v2 = self.has_v2
        clone._dropped = dict(self._dropped) if self._dropped is not None else None
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
        if watch.rejections:
            self.note_dropped(watch, watch.rejections.rejected)
        others = tuple(other for other in self._watches.get(type_url, ()) if other is not watch)
        if others:
            self._watches[type_url] = others
        else:
            self._watches.pop(type_url, None)
            self.has_v2 = not V2_TYPE_URLS.isdisjoint(self._watches)
        self.mark_synced(watch)

    def note_dropped(self, watch: Watch, names: Collection[str]) -> None:
        """The client no longer subscribes to these names. The rejections of their resources stay.

        docs/protocol.md#rejections: "a rejected route or extension configuration that a listener newly names takes the
        listener back". The client then drops the name. Without the rejection, the listener would be re-sent at once.
        """
        rejected = watch.rejections.rejected if watch.rejections is not None else {}
        found = {name: rejected[name] for name in names if name in rejected}
        if found and watch.type.in_tree and not watch.type.full_state:
            url, dropped = watch.type.type_url, self._dropped or {}
            self._dropped = {**dropped, url: {**dropped.get(url, {}), **found}}

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
        found = None
        for watch in watches:
            if watch.is_pending:
                return watch.known.base
            found = watch.known.base
        return found

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
        found: list[Hashable] = []
        for url, watches in self._watches.items():
            for watch in watches:
                known, sent = watch.known, watch.ack.in_flight
                if watch.rejections is not None or known.uncertain:
                    return ()
                number = sent.response.number if sent is not None else 0
                found += (url, known.base, watch.subscription.interest, known.unanswered, watch.resend_names)
                answered = sent.answered_names if sent is not None else NO_NAMES
                found += (watch.is_pending, number, answered, watch.shown, watch.pending_release)
        return tuple(found) if self._dropped is None else ()

    def with_pending_release(self) -> list[Watch]:
        """The watches with requested names that wait for a release."""
        return [watch for watches in self._watches.values() for watch in watches if watch.pending_release]

    @property
    def pending_types(self) -> Collection[str]:
        """The types with a pending watch."""
        return self._pending_since_s.keys()

    @property
    def rejects_anything(self) -> bool:
        """Whether the client rejects some resource."""
        if self._dropped is not None:
            return True
        for watches in self._watches.values():
            for watch in watches:
                if watch.rejections:
                    return True
        return False

    def rejections_of(self, type_url: str) -> Rejections | None:
        """The rejections of a type on all streams of the client, for a new stream; None for none.

        Envoy requests the assignment of a changed cluster on another stream than before.
        """
        rejected: dict[str, Versions] = {}
        for watch in self.pending(type_url):
            if watch.rejections:
                rejected |= {name: (version,) for name, version in watch.rejections.rejected.items()}
        return Rejections(rejected) if rejected else None

    def accepted(self, type_url: str, names: Collection[str]) -> ResourceSet | None:
        """The set that a stream accepted that subscribes to some of these names; None if there is none."""
        for watch in self.of(type_url):
            held = watch.known.base
            if held is not None and not watch.subscription.interest.names.isdisjoint(names):
                return held
        return None

    def rejected_versions(self, type_url: str, goal_set: ResourceSet) -> Mapping[str, str]:
        """The resources of a set that the client rejects and never accepted in another version, name to version."""
        goal = goal_set.resources
        found = self._still_dropped(type_url, goal) if self._dropped is not None else {}
        for watch in self.of(type_url):
            if watch.rejections:
                held = watch.known.base.resources if watch.known.base is not None else {}
                versions = {**watch.rejections.suspects, **watch.rejections.rejected}
                found |= {
                    name: version
                    for name, version in versions.items()
                    if name not in held and name in goal and goal[name].version == version
                }
        return found

    def rejected_in(self, goal_set: ResourceSet) -> frozenset[str]:
        """The names that the client rejects in the version of a set, whatever version of them it accepted before."""
        watches = self.of(goal_set.type.type_url)
        return NO_NAMES.union(*(watch.rejections.rejected_in(goal_set) for watch in watches if watch.rejections))

    def doubted_in(self, goal_set: ResourceSet) -> frozenset[str]:
        """The names that the client rejects in the version of a set, or that are suspect in it."""
        watches = self.of(goal_set.type.type_url)
        return NO_NAMES.union(*(watch.rejections.doubted_in(goal_set) for watch in watches if watch.rejections))

    def _still_dropped(self, type_url: str, goal: Mapping[str, Resource]) -> dict[str, str]:
        """The dropped names of a type that still have the rejected version, and that no stream accepted since."""
        dropped = dict(self._dropped or {})
        found = {
            name: version
            for name, version in dropped.pop(type_url, {}).items()
            if name in goal
            and goal[name].version == version
            and not any(w.has_accepted(name) for w in self.of(type_url))
        }
        if found:
            dropped[type_url] = found
        self._dropped = dropped or None
        return dict(found)

    def unaccepted(self, type_url: str, diffs: Diffs) -> frozenset[str]:
        """The subscribed names of a partial type that no stream accepted in any version."""
        watches = self.of(type_url)
        lacking = frozenset[str]().union(*(watch.unaccepted_names(diffs) for watch in watches))
        if not lacking or len(watches) == 1:
            return lacking
        return lacking.difference(*(watch.accepted_names() for watch in watches))

    def never_accepted(self) -> NamesByType:
        """The names that the client rejects in some version, and of which it never accepted any version."""
        if not self.rejects_anything:
            return NO_NAMES_BY_TYPE
        found: dict[str, set[str]] = {}
        for url, watches in self._watches.items():
            for watch in watches:
                if watch.rejections is not None:
                    held = watch.known.base.resources if watch.known.base is not None else {}
                    found.setdefault(url, set()).update(name for name in watch.rejections.refused if name not in held)
        return names_by_type(found)

    def changing(
        self, type_url: str, goal_set: ResourceSet, *, except_rejected: bool, except_new: bool
    ) -> frozenset[str]:
        """The subscribed names of a partial type that the client has not accepted in the version of a set.

        ``except_rejected``: without names that it rejects in this version. ``except_new``: without names of streams on
        which it has accepted nothing yet.
        """
        goal, found = goal_set.resources, set[str]()
        for watch in self.of(type_url):
            if watch.known.base is goal_set or (except_new and watch.known.base is None):
                continue
            held = watch.known.base.resources if watch.known.base is not None else {}
            rejected = watch.rejections.doubted_in(goal_set) if except_rejected and watch.rejections else frozenset()
            for name in goal_set.among(watch.subscription.interest.names).difference(rejected):
                before = held.get(name)
                if before is None or before.version != goal[name].version:
                    found.add(name)
        return frozenset(found)

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
        """The subscribed names among these, in listener trees, whose version in ``goal`` the client lacks.

        Not those of a `Leftover`: what that leads to lingers, and listeners of which nothing is known may use it.
        """
        found = {}
        for url, wanted in names:
            subscribed = wanted & self.names(url) if resource_type(url).in_tree else ()
            resources = goal.get(url).resources
            found[url] = [n for n in subscribed if n in resources and not self._has_version(url, resources[n])]
        return names_by_type(found)

    def _has_version(self, type_url: str, resource: Resource) -> bool:
        name = resource.name
        held = (
            w.known.base.resources[name] for w in self.of(type_url) if w.known.base is not None and w.has_accepted(name)
        )
        return any(each.version == resource.version or type(each) is Leftover for each in held)


def names_of(watches: Iterable[Watch]) -> frozenset[str]:
    """All names to which these watches subscribe."""
    names = [watch.subscription.interest.names for watch in watches]
    return names[0] if len(names) == 1 else frozenset().union(*names)

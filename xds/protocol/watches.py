"""The watches of one client, by type, and which of them lag: they are not in sync with the released content."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from xds.model.resource import Resource
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.linger import NO_NAMES_BY_TYPE, Names, keep_of
from xds.protocol.refusals import Refusals
from xds.protocol.watch import Watch


class Watches:
    """The watches of all streams of a client.

    Most clients have one stream, so one watch of each type: a tuple takes the least memory. ``_dropped`` has the
    resources that were rejected under names to which the client does not subscribe any more, by type, None for none:
    name to version.
    """

    __slots__ = ("_dropped", "_lagging_since_s", "_watches")

    def __init__(self) -> None:
        self._watches: dict[str, tuple[Watch, ...]] = {}
        self._lagging_since_s: dict[str, float] = {}  # types of which some watch lags, with the time
        self._dropped: dict[str, Mapping[str, str]] | None = None

    def copy(self) -> tuple[Watches, dict[Watch, Watch]]:
        """Independent watches in the same state, and each watch's copy."""
        made = Watches()
        copies = {watch: watch.copy() for watches in self._watches.values() for watch in watches}
        made._watches = {url: tuple(map(copies.__getitem__, watches)) for url, watches in self._watches.items()}
        made._lagging_since_s = dict(self._lagging_since_s)
        made._dropped = dict(self._dropped) if self._dropped is not None else None
        return made, copies

    def __iter__(self) -> Iterator[str]:
        """The type URLs that are watched."""
        return iter(self._watches)

    def __contains__(self, type_url: str) -> bool:
        return type_url in self._watches

    def add(self, watch: Watch, now_s: float) -> None:
        """A stream asked for a type; it lags until it is answered."""
        type_url = watch.type.type_url
        self._watches[type_url] = (*self._watches.get(type_url, ()), watch)
        self.mark_pending(watch, now_s)

    def remove(self, watch: Watch) -> None:
        """The stream of this watch ended."""
        type_url = watch.type.type_url
        if watch.refusals:
            self.note_dropped(watch, watch.refusals.refused)
        left = tuple(other for other in self._watches.get(type_url, ()) if other is not watch)
        if left:
            self._watches[type_url] = left
        else:
            self._watches.pop(type_url, None)
        self.mark_synced(watch)

    def note_dropped(self, watch: Watch, names: Collection[str]) -> None:
        """The client no longer subscribes to these names: what it rejected under them stays rejected.

        docs/protocol.md#refusals: "a rejected route or extension configuration that a listener newly names takes the
        listener back". The client drops the name then. Without its refusal the listener would be sent again at once.
        """
        refused = watch.refusals.refused if watch.refusals is not None else {}
        found = {name: refused[name] for name in names if name in refused}
        if found and watch.type.in_tree and not watch.type.full_state:
            url, dropped = watch.type.type_url, self._dropped or {}
            self._dropped = {**dropped, url: {**dropped.get(url, {}), **found}}

    def of(self, type_url: str) -> Collection[Watch]:
        """The watches of a type."""
        return self._watches.get(type_url, ())

    def names(self, type_url: str) -> frozenset[str]:
        """All subscribed names of a type."""
        return names_of(self.of(type_url))

    def acked(self, type_url: str) -> ResourceSet | None:
        """The set that all watches of a type ACKed; that of a lagging watch where they differ; None without an ACK."""
        watches = self.of(type_url)
        found = None
        for watch in watches:
            if watch.lags:
                return watch.acked_set
            found = watch.acked_set
        return found

    def mark_pending(self, watch: Watch, now_s: float) -> None:
        """The client does not hold what was released of the type."""
        watch.lags = True
        self._lagging_since_s.setdefault(watch.type.type_url, now_s)

    def mark_changed(self, before: Snapshot, after: Snapshot, now_s: float) -> Collection[str]:
        """Another snapshot was released to the client; returns the watched types with other content, now pending."""
        sets, new_sets = before.sets, after.sets
        changed = []
        for url, watches in self._watches.items():
            if sets.get(url) is not new_sets.get(url):
                changed.append(url)
                self._lagging_since_s.setdefault(url, now_s)
                for watch in watches:
                    watch.lags = True
        return changed

    def mark_synced(self, watch: Watch) -> None:
        """The client holds what was released of the type, or the stream ended."""
        watch.lags = False
        type_url = watch.type.type_url
        if type_url not in self._lagging_since_s:
            return
        for other in self._watches.get(type_url, ()):
            if other.lags:
                return
        del self._lagging_since_s[type_url]
        if not self._lagging_since_s:
            self._lagging_since_s.clear()  # gives back the memory of an emptied dict

    def lagging(self, type_url: str) -> Collection[Watch]:
        """The watches of a type that are not in sync."""
        if type_url not in self._lagging_since_s:
            return ()
        return [watch for watch in self._watches.get(type_url, ()) if watch.lags]

    def lagging_since_s(self, type_url: str) -> float | None:
        """Since when some watch of the type lags; None if none does."""
        return self._lagging_since_s.get(type_url)

    @property
    def lagging_types(self) -> Collection[str]:
        """The types of which some watch lags."""
        return self._lagging_since_s.keys()

    @property
    def refuses_anything(self) -> bool:
        """Whether the client rejects some resource."""
        if self._dropped is not None:
            return True
        return any(watch.refusals for url in self.lagging_types for watch in self.lagging(url))

    def refusals_of(self, type_url: str) -> Refusals | None:
        """What the client rejects of a type on its streams, for a new stream; None for nothing.

        Envoy asks for the assignment of a changed cluster on another stream than before.
        """
        refused: dict[str, str] = {}
        for watch in self.lagging(type_url):
            if watch.refusals:
                refused |= watch.refusals.refused
        return Refusals(refused) if refused else None

    def accepted(self, type_url: str, names: Collection[str]) -> ResourceSet | None:
        """The set from which one of the streams accepted any of these names; None if none did."""
        for watch in self.of(type_url):
            held = watch.acked_set
            if held is not None and not watch.subscription.interest.names.isdisjoint(names):
                return held
        return None

    def refused(self, type_url: str, goal_set: ResourceSet) -> Mapping[str, str]:
        """The resources of a set that the client rejects and never accepted in another version: name to version."""
        goal = goal_set.resources
        found = self._still_dropped(type_url, goal) if self._dropped is not None else {}
        for watch in self.lagging(type_url):
            if watch.refusals:
                held = watch.acked_set.resources if watch.acked_set is not None else {}
                versions = {**watch.refusals.suspects, **watch.refusals.refused}
                found |= {
                    name: version
                    for name, version in versions.items()
                    if name not in held and name in goal and goal[name].version == version
                }
        return found

    def _still_dropped(self, type_url: str, goal: Mapping[str, Resource]) -> dict[str, str]:
        """The dropped names of a type whose content is still the rejected one, and was accepted on no stream since."""
        dropped = dict(self._dropped or {})
        found = {
            name: version
            for name, version in dropped.pop(type_url, {}).items()
            if name in goal and goal[name].version == version and not any(w.has(name) for w in self.of(type_url))
        }
        if found:
            dropped[type_url] = found
        self._dropped = dropped or None
        return dict(found)

    def never_accepted(self) -> Names:
        """The names that the client rejects, in whatever version, and of which it never accepted any."""
        if not self.refuses_anything:
            return NO_NAMES_BY_TYPE
        found: dict[str, set[str]] = {}
        for url in self.lagging_types:
            for watch in self.lagging(url):
                if watch.refusals:
                    held = watch.acked_set.resources if watch.acked_set is not None else {}
                    found.setdefault(url, set()).update(name for name in watch.refusals.refused if name not in held)
        return keep_of(found)

    def changing(
        self, type_url: str, goal_set: ResourceSet, *, besides_refused: bool, besides_new: bool
    ) -> frozenset[str]:
        """The names of a partial type to which the client subscribes and that it did not accept as in a set.

        ``besides_refused``: without those that it rejects in this version. ``besides_new``: without those of streams on
        which it accepted nothing yet.
        """
        goal, found = goal_set.resources, set[str]()
        for watch in self.of(type_url):
            if watch.acked_set is goal_set or (besides_new and watch.acked_set is None):
                continue
            held = watch.acked_set.resources if watch.acked_set is not None else {}
            refused = watch.refusals.found_in(goal_set) if besides_refused and watch.refusals else frozenset()
            for name in watch.subscription.interest.names.intersection(goal).difference(refused):
                before = held.get(name)
                if before is None or before.version != goal[name].version:
                    found.add(name)
        return frozenset(found)

    def not_fetched(self, names: Names) -> Names:
        """The names among these that the client did not ask for or did not ACK yet."""
        left = []
        for url, wanted in names:
            missing = set(wanted)
            for watch in self.of(url):
                if watch.acked_set is not None:
                    missing -= watch.arrived().intersection(watch.acked_set.resources)
            if missing:
                left.append((url, frozenset(missing)))
        return tuple(left)

    def held_routes(self) -> Iterator[Resource]:
        """The scoped routes, route configurations and virtual hosts that the client wants and holds in some version."""
        for url, watches in self._watches.items():
            for watch in watches if resource_type(url).after_listeners else ():
                if watch.acked_set is not None:
                    wants_name = watch.subscription.interest.wants_name
                    yield from (each for name, each in watch.acked_set.resources.items() if wants_name(name))

    def outdated(self, names: Names, goal: Snapshot) -> Names:
        """The names in listener trees among these to which the client subscribes and that it lacks as in ``goal``."""
        found = {}
        for url, wanted in names:
            asked = wanted & self.names(url) if resource_type(url).in_tree else ()
            resources = goal.get(url).resources
            found[url] = [n for n in asked if n in resources and not self._has_version(url, resources[n])]
        return keep_of(found)

    def _has_version(self, type_url: str, resource: Resource) -> bool:
        name = resource.name
        held = (w.acked_set.resources[name] for w in self.of(type_url) if w.acked_set is not None and w.has(name))
        return any(each.version == resource.version for each in held)


def names_of(watches: Iterable[Watch]) -> frozenset[str]:
    """All names that watches subscribe to."""
    names = [watch.subscription.interest.names for watch in watches]
    return names[0] if len(names) == 1 else frozenset().union(*names)

"""Clients that come back: what a stream shows that its client holds, and what that does to the client's state.

The first request of a type on a stream says it: by version_info in SotW, by initial_resource_versions in Delta, or by
names that only a client with an earlier listener can know (docs/design.md#order-of-updates).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xds.model.resource_type import ResourceType, resource_type
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.cache import SnapshotCache
from xds.protocol.content import NOTHING
from xds.protocol.holdings import leads_within
from xds.protocol.memory import ClientMemory
from xds.protocol.refusals import Refusals
from xds.protocol.requests import DeltaRequest, SotwRequest
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState
from collections.abc import Callable
from typing import TYPE_CHECKING

from xds.protocol.removals import with_removed
from xds.protocol.trees import listeners_naming

_NAMED = ("endpoints", "secrets")  # what clusters and listeners name, beside what is in a tree


class Origin(NamedTuple):
    """Where a client may have its content from: its group, the groups it followed before, what is remembered of it."""

    group: str
    api: str
    former: Sequence[str]
    memories: Sequence[ClientMemory]
    clusters: ResourceSet | None  # what the client is known to have
    released: ResourceSet  # what it would be told of the type that it asks for
    has_returned: bool = False  # it showed something of another type already
    # Where it asks for no clusters, since one warms: those whose assignments it asks for. Not all of them are warm.
    fed: ResourceSet | None = None

    @property
    def has_moved(self) -> bool:
        """Did it follow another group, or is that forgotten?"""
        return any(group != self.group for group in self.former) or (not self.former and bool(self.memories))

    @property
    def groups(self) -> Sequence[str]:
        """The groups whose history it may have its content from, the likelier ones first."""
        return (*self.former, self.group)

    def named(self, type_url: str, label: str) -> ResourceSet | None:
        """The set of a type that the client took under a version_info when it was here last.

        Proxies of one node id may have taken different parts of what they refused: what not all have counts as held
        only if it is there no more, so that it lingers.
        """
        found: dict[bytes, ResourceSet] = {}
        for memory in self.memories:
            held = memory.sets.get(type_url)
            if held is not None and label in (held.version_info, memory.labels.get(type_url)):
                found.setdefault(held.digest, held)
        if len(found) <= 1:
            return next(iter(found.values()), None)
        most, served = max(found.values(), key=len), self.released.resources
        unsure = [n for n in most.resources if n in served and any(n not in each.resources for each in found.values())]
        return most.amended(most.version_info, {}, unsure)

    def sets(self, type_url: str) -> list[ResourceSet]:
        """The sets of a type that are remembered, the latest first."""
        return [memory.sets[type_url] for memory in self.memories if type_url in memory.sets]


def origin_of(
    client: ClientState, cache: SnapshotCache, type_url: str, former: Sequence[str], group: str, api: str
) -> Origin:
    """Where a client may have content of a type from, as far as it is known now."""
    url = client.url_of("clusters")
    clusters, fed = client.last_acked(url), None
    if clusters is None and client.has_returned and client.is_aggregated and resource_type(type_url).in_tree:
        assignments = client.names_wanted(client.url_of("endpoints"))
        fed = cache.history.fed_by(assignments, url, (*former, group), api)
    memories, released = client.past.memories, client.release_of(type_url)
    return Origin(group, api, former, memories, clusters, released, client.has_returned, fed)


class Shown(NamedTuple):
    """A client shows an earlier version; ``held`` is what that is, None where nobody knows."""

    held: ResourceSet | None


def shown_by_version_info(watch: Watch, request: SotwRequest, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """The set that a SotW client names by its version_info.

    Rule 13: the first request is answered in full all the same; what it holds only tells what must not go yet. Of a
    type that it names part of, it holds that part.
    """
    type, label = watch.type, request.version_info
    watch.placeholders = not label
    watch.acked_label = label  # what it took last, until it takes something on this stream
    if not label:
        return needed_by(watch, request.names, cache, origin)
    url = type.type_url
    held = origin.named(url, label) or cache.history.recall(origin.group, url, label, origin.api, origin.former)
    if held is not None and not _takes_all(type, request):
        groups = origin.groups
        if type.kept_on_move and origin.has_moved:
            # A label and names prove nothing: what only another group has stays with the client, and is not sent again.
            held, groups = empty_set(type.type_url), (origin.group,)
        held = cache.history.part(held, request.names, origin.clusters, groups, origin.api, origin.fed)
    return Shown(held)


def needed_by(watch: Watch, names: frozenset[str], cache: SnapshotCache, origin: Origin) -> Shown | None:
    """What a client that is back needs for a listener that it holds, and never got: "from the revision it holds"."""
    type = watch.type
    if not ((type.in_tree or type.alias in _NAMED) and names) or type.full_state:
        return None
    if not origin.has_returned:
        # Its streams come in any order: what it asks for and no new process could know of shows that it is back.
        served = cache.served_names(origin.group, type.type_url, origin.api)
        known = (each.resources for each in origin.sets(type.type_url))
        if names <= frozenset(served) or not any(names & each.keys() for each in known):
            return None
    released = origin.released.resources
    if all(name in released and leads_within(released[name], origin.clusters) for name in names):
        return None
    held = cache.history.part(empty_set(type.type_url), names, origin.clusters, origin.groups, origin.api, origin.fed)
    return Shown(held) if held.resources else None


def _takes_all(type: ResourceType, request: SotwRequest) -> bool:
    return type.full_state or (type.legacy_wildcard and not request.names)


def shown_by_versions(watch: Watch, request: DeltaRequest, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """What ``initial_resource_versions`` says the client holds; only the first message of a type may say so.

    Rule 54: use it "to suppress unchanged resources, to send changed ones, and to report in removed_resources those
    that vanished while disconnected. It does not itself subscribe." Versions that nobody knows stay as doubts; such a
    name that no longer exists is told as removed when what lingers ends.
    """
    versions = request.initial_versions
    if not versions:
        return needed_by(watch, request.subscribe, cache, origin)
    type = watch.type
    held = cache.history.recall_versions(
        origin.group, type.type_url, versions, origin.api, origin.former, origin.sets(type.type_url)
    )
    watch.known.base = held
    if held is not None and len(held) == len(versions):
        if type.in_tree and not request.subscribe <= held.resources.keys():
            names = request.subscribe.union(held.resources)
            held = cache.history.part(held, names, origin.clusters, origin.groups, origin.api, origin.fed)
        return Shown(held)
    unknown = {name: version for name, version in versions.items() if held is None or name not in held.resources}
    if type.in_tree:
        watch.known.uncertain = unknown
        return Shown(None)
    served = cache.served_names(origin.group, type.type_url, origin.api)
    if type.lingers:
        watch.unknown = frozenset(name for name in unknown if name not in served)
    watch.known.uncertain = {name: version for name, version in unknown.items() if name not in watch.unknown}
    return Shown(held)


def unanswered_at_first(
    watch: Watch, unanswered: frozenset[str], released: ResourceSet, cache: SnapshotCache
) -> frozenset[str]:
    """Rule 56: "names both subscribed and in initial_resource_versions at the current version may be skipped"."""
    uncertain = watch.known.uncertain
    lacking = cache.diffs.lacking(unanswered, watch.known.base, released) - watch.unknown
    # What is told of another version is sent for that; what does not exist is told as removed when its time comes.
    current = [
        name
        for name, version in uncertain.items()
        if name in lacking and ((resource := released.resources.get(name)) is None or resource.version == version)
    ]
    return lacking.difference(current) if current else lacking


def is_early(client: ClientState, watch: Watch, names: frozenset[str]) -> bool:
    """Does a stream of its own ask for what only listeners name, before its client asks for listeners, or clusters?

    Envoy asks for routes when it has listeners: this is one that is back, whose streams come in any order, or one with
    listeners of its own.
    """
    if client.is_aggregated or client.has_clusters or not watch.type.in_tree or watch.type.alias == "listeners":
        return False
    if client.watches.of(client.url_of("listeners")):
        return client.has_returned and client.last_acked(client.url_of("clusters")) is None
    type_url = watch.type.type_url
    is_served = names <= client.goal.get(type_url).resources.keys()
    return bool(client.past.memories) or not is_served or bool(listeners_naming(((type_url, names),), client.goal))


def decide_early(client: ClientState, cache: SnapshotCache, origin_of: Callable[[str], Origin], now_s: float) -> None:
    """The clusters of a client are shown: what it asked for before is "answered from the revision it holds"."""
    for watch in client.take_undecided():
        url = watch.type.type_url
        shown = needed_by(watch, watch.subscription.interest.names, cache, origin_of(url))
        if shown is not None:
            others = (other for other in client.watches.of(url) if other is not watch)
            come_back(client, watch, shown, now_s, is_first=all(other.acked_set is None for other in others))


def come_back(client: ClientState, watch: Watch, shown: Shown, now_s: float, *, is_first: bool) -> None:
    """A stream shows what its client holds; ``is_first``: no other one has, of this type."""
    url, held = watch.type.type_url, shown.held
    if held is not None:
        client.past.note_shown(held)
    if client.returned_s is None:
        client.returned_s = now_s
        client.warm = client.past.warm
        if client.transition is not None:  # an early stream began it
            client.transition.drains = client.transition.drains or client.past.drains
            client.transition.readiness.before = client.warm
    if watch.type.is_route_target:
        client.shown = held
        if client.is_aggregated and held is not None:
            _trust(client, held)
    if watch.unknown:
        client.begin_return(now_s)  # they are told as removed when what lingers ends
    watch.refusals = watch.refusals or client.past.refusals(url)
    if watch.refusals is not None and held is not None:
        held = _without_refused(client, watch, held, watch.refusals)
        watch.refusals.note_ack(held.versions())  # what it has it does not refuse
    if held is not None:
        _hold(client, watch, held, now_s, is_first=is_first)
    elif watch.type.in_tree:
        transition = client.begin_return(now_s)
        transition.silent |= {url}
        transition.drains = True


def _without_refused(client: ClientState, watch: Watch, held: ResourceSet, refusals: Refusals) -> ResourceSet:
    """What it shows, with what it had accepted in the place of what it refused.

    A label of a set that is sent in parts, and names that were subscribed to, do not say that it has this resource.
    """
    if watch.type.full_state:
        return held
    shown = watch.known.base.resources if watch.known.base is not None else {}
    unproved = frozenset(name for name in refusals.left_out(held) if name not in shown)
    accepted = client.past.acked(watch.type.type_url, client.releases) or empty_set(watch.type.type_url)
    return client.releases.mixed(held, accepted, unproved)


def _hold(client: ClientState, watch: Watch, held: ResourceSet, now_s: float, *, is_first: bool) -> None:
    """The client may see what it holds, and what leads from there to the newest snapshot."""
    url = watch.type.type_url
    goal = client.goal.get(url)
    change = client.cache.diffs.change(held, goal)
    if not change.changed and not change.removed and not (watch.type.full_state and change.added):
        refused = watch.refusals.left_out(goal) if watch.refusals is not None else NOTHING
        watch.acked_set = client.releases.mixed(goal, held, refused)
        if client.released.get(url) is not goal:  # pushed since the client came back, and held
            _resume(client, url, held, is_first=is_first)
        return
    watch.acked_set = held
    _restore(client)
    clusters = client.last_acked(client.url_of("clusters"))
    client.released = client.releases.resumed(client.released, url, held, clusters, is_first=is_first)
    step = client.releases.step(client.released, client.goal, client.lingering)
    if (
        step.is_simple
        and client.transition is None
        and not client.lingering
        and (client.has_clusters or not step.has_trees)
    ):
        client.release(client.goal, now_s)
        return
    transition = client.begin_return(now_s)
    transition.origin = client.releases.resumed(transition.origin, url, held, clusters, is_first=is_first)
    # Without memory of what lingered, it may have begun to drain just now.
    transition.drains = transition.drains or step.drains or not client.past.memories
    client.lingering = with_removed(client, step.removed, client.goal.revision)


def _trust(client: ClientState, held: ResourceSet) -> None:
    """ "On a new stream Envoy asks for no clusters while one warms": what it shows now is warm.

    But for what waits for an assignment that is on its way, which it may be about to refuse.
    """
    url = client.url_of("endpoints")
    offers = (watch.ack.offered for watch in client.watches.of(url) if watch.ack.offered is not None)
    pending = frozenset().union(*(each.names for each in offers))
    if pending:
        before = client.past.warm.resources if client.past.warm is not None else {}
        unsure = client.releases.clusters_of(held, pending).difference(before)
        held = client.releases.mixed(held, empty_set(held.type.type_url), unsure)
    client.warm = held
    if client.transition is not None:
        client.transition.readiness.before = held


def _resume(client: ClientState, url: str, held: ResourceSet, *, is_first: bool) -> None:
    """The client may see what it showed it holds, instead of what would have been told it."""
    clusters = client.last_acked(client.url_of("clusters"))
    client.released = client.releases.resumed(client.released, url, held, clusters, is_first=is_first)
    transition = client.transition
    if transition is not None:
        transition.origin = client.releases.resumed(transition.origin, url, held, clusters, is_first=is_first)


def _restore(client: ClientState) -> None:
    """What lingered when the client was here last lingers on, with the same ends."""
    if not client.lingering:
        lingering = client.past.lingering(client.releases)
        client.lingering = client.releases.lingerings.missing_in(lingering, client.goal)
    client.drain_until_s = max(client.drain_until_s, client.past.drain_until_s)

"""Reconnecting clients: what their first requests show that they hold, and how that becomes the state of the client.

The first request of a type shows content by its version_info (SotW), by initial_resource_versions (Delta), or by names
that only a client with an earlier listener can know. docs/protocol.md#coming-back: "the content that a client
shows is the start of the transition, however many pushes it missed".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import ResourceType, alias_of, resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.awaited import over_unshown_filters, shows_cold
from xds.protocol.cache import SnapshotCache
from xds.protocol.diffs import leads_within
from xds.protocol.linger import NO_NAMES_BY_TYPE, Names, keep_of
from xds.protocol.memory import ClientMemory
from xds.protocol.origin import Origin
from xds.protocol.refusals import Refusals
from xds.protocol.release import joined
from xds.protocol.removals import with_removed, without_ends_of_used
from xds.protocol.requests import DeltaRequest, SotwRequest
from xds.protocol.trees import listeners_naming
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

NO_CONTENT = Snapshot("", 0)
_NAMED = ("endpoints", "secrets")  # types that clusters and listeners refer to and that are in no tree


class Shown(NamedTuple):
    """A client shows that it holds content.

    * ``held``: that content, None if it is unknown;
    * ``origin``: where it may come from;
    * ``unproved``: names of which it may hold other content: that of a former group (`Origin.is_guarded`), or unknown;
    * ``possible``: the sets of a full-state type of which it holds one, if there are several; ``held`` is what is sure;
    * ``lacking``: names that it requests and has nothing of: it rejected them, or no revision fits its clusters.
    """

    held: ResourceSet | None
    origin: Origin
    unproved: frozenset[str] = NO_NAMES
    possible: Sequence[ResourceSet] = ()
    lacking: frozenset[str] = NO_NAMES


def shown_by_version_info(watch: Watch, request: SotwRequest, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """The set that a SotW client shows by its version_info; None if it shows none.

    Rule 13: "The first request of a type on a stream is answered, even if its version is current". So the set only
    decides what may not be removed yet. If the client requests some names of a type, it holds these names only.
    """
    type, label = watch.type, request.version_info
    watch.placeholders = not label
    watch.acked_label = label  # the label that it ACKed last, until it ACKs a response on this stream
    if not label:
        return needed_by(watch, request.names, cache, origin)
    url = type.type_url
    if origin.is_aggregated and not type.full_state:
        origin.past.note_label(url, label)
    possible = origin.named(url, label, request.names)
    held = origin.surely_held(possible)
    # The set that it ACKed last lacks removed names, but it may hold these yet, as they were under the label.
    removed = request.names.difference(held.resources) if held is not None and not type.full_state else NO_NAMES
    if held is None or removed:
        recalled = cache.history.recall(origin.group, url, label, origin.api, origin.former)
        if held is None:
            held = recalled
        elif recalled is not None:
            held = cache.releases.mixed(held, recalled, removed)
    if held is not None and not _takes_all(type, request):
        unproved = NO_NAMES
        if origin.is_guarded(type):
            # A label of its own group proves what it was sent of that.
            held = cache.history.recall(origin.group, url, label, origin.api) or empty_set(url)
            unproved = request.names.difference(held.resources)
        watch.shown = held
        held = _with_names(held, request.names, cache, origin)
        return Shown(held, origin, unproved)
    return Shown(held, origin, request.names if held is None else NO_NAMES, possible if len(possible) > 1 else ())


def needed_by(watch: Watch, names: frozenset[str], cache: SnapshotCache, origin: Origin) -> Shown | None:
    """The content that a reconnected client needs for a listener that it holds, if it shows none of the type itself.

    docs/protocol.md#additions: "names that a client needs for what it holds are answered at once". The content is from
    the revision that the client holds. None if the client has not reconnected or may be sent the released content. That
    may open paths for which an earlier version of a listener has no filter.
    """
    type = watch.type
    if not ((type.in_tree or type.alias in _NAMED) and names) or type.full_state:
        return None
    if not origin.has_returned:
        # Its streams come in any order. A name that only an earlier revision has shows that the client has reconnected.
        served = cache.served_names(origin.group, type.type_url, origin.api)
        known = (each.resources for each in origin.sets(type.type_url))
        if names <= served or not any(names & each.keys() for each in known):
            return None
    released = origin.released.resources
    is_within = all(name in released and leads_within(released[name], origin.clusters) for name in names)
    if is_within and names.isdisjoint(origin.unready):
        return None
    held = _with_names(empty_set(type.type_url), names, cache, origin)
    lacking = frozenset[str]()
    if origin.clusters is not None:
        out = (name for name in names if name in released and not leads_within(released[name], origin.clusters))
        lacking = frozenset(out).difference(held.resources)
    return Shown(held, origin, lacking=lacking) if held.resources or lacking else None


def _with_names(held: ResourceSet, names: frozenset[str], cache: SnapshotCache, origin: Origin) -> ResourceSet:
    """The part of a set that a client holds, with all other names that it requests (`RevisionHistory.part`).

    Of guarded types (`Origin.is_guarded`) its former groups give only what lingered for it when it left: the server
    knows that it was sent that, whatever its group has or had under the same name. An assignment that names an
    internal listener is left out: the client may not have been sent either of them.
    """
    if not origin.is_guarded(held.type):
        return _part(held, names, origin.groups, cache, origin)
    url = held.type.type_url
    lingered = [
        (memory.lingered[url], _lingering(memory, url, names).difference(held.resources))
        for memory in reversed(origin.past.own)
        if url in memory.lingered
    ]
    others = names.difference(*(left for _, left in lingered))
    proved = held.resources
    held = _part(held, others, (origin.group,), cache, origin)
    for earlier, left in lingered:
        held = cache.releases.mixed(held, earlier, left)
    over = (name for name in names - proved.keys() if name in held.resources and held.resources[name].references)
    return cache.releases.mixed(held, empty_set(url), frozenset(over))


def _part(
    held: ResourceSet, names: frozenset[str], groups: Sequence[str], cache: SnapshotCache, origin: Origin
) -> ResourceSet:
    needed = origin.needed(names.difference(held.resources), held.type.type_url)
    return cache.history.part(held, names, origin.clusters, groups, origin.api, origin.fed, needed)


def _lingering(memory: ClientMemory, url: str, names: frozenset[str]) -> frozenset[str]:
    """Those of these names that lingered for a client of which it is remembered what it had under them."""
    return names.intersection(memory.lingering.names[url], memory.lingered[url].resources)


def _takes_all(type: ResourceType, request: SotwRequest) -> bool:
    return type.full_state or (type.legacy_wildcard and not request.names)


def shown_by_versions(watch: Watch, request: DeltaRequest, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """The set that a Delta client shows by initial_resource_versions, in the first request of a type only.

    Rule 54: "`initial_resource_versions` suppress unchanged resources and reveal vanished ones; they do not subscribe".
    Names with an unknown version are uncertain. docs/protocol.md#coming-back: "An unknown name is reported as removed
    when its lingering ends".
    """
    versions = request.initial_versions
    if not versions:
        return needed_by(watch, request.subscribe, cache, origin)
    type = watch.type
    if origin.is_aggregated and type.alias == "endpoints":
        origin.past.note_fed(versions)
    held = cache.history.recall_versions(
        origin.group, type.type_url, versions, origin.api, origin.former, origin.sets(type.type_url)
    )
    watch.known.base = watch.shown = held
    if held is not None and len(held) == len(versions):
        if (type.in_tree or type.alias in _NAMED) and not request.subscribe <= held.resources.keys():
            names = request.subscribe.union(held.resources)
            held = _with_names(held, names, cache, origin)
        return Shown(held, origin)
    unknown = {name: version for name, version in versions.items() if held is None or name not in held.resources}
    if type.in_tree:
        watch.known.uncertain = unknown
        return Shown(None, origin)
    served = cache.served_names(origin.group, type.type_url, origin.api)
    if type.lingers:
        watch.unknown = frozenset(name for name in unknown if name not in served)
    watch.known.uncertain = {name: version for name, version in unknown.items() if name not in watch.unknown}
    return Shown(held, origin)


def unanswered_at_first(
    watch: Watch, unanswered: frozenset[str], released: ResourceSet, cache: SnapshotCache
) -> frozenset[str]:
    """The names of a first request that need an answer.

    Rule 56: "Names that are subscribed at their current version may be skipped on the first message".
    """
    uncertain = watch.known.uncertain
    lacking = cache.diffs.lacking(unanswered, watch.known.base, released) - watch.unknown
    # A name with another version is sent because of that version. A name that does not exist is reported as removed
    # because it is uncertain.
    current = [
        name
        for name, version in uncertain.items()
        if name in lacking and ((resource := released.resources.get(name)) is None or resource.version == version)
    ]
    return lacking.difference(current) if current else lacking


def is_early(client: ClientState, watch: Watch, names: frozenset[str]) -> bool:
    """Whether a request on a separate stream comes too early to know what its client holds.

    docs/protocol.md#additions: "on separate streams, a client that requests routes before its listeners and clusters
    has reconnected, or has static listeners. It is answered when it has shown its clusters, or after `return_s`. The
    same holds for a client that requests, before its clusters, an assignment that only a retained revision has".
    """
    if client.is_aggregated or client.has_clusters or watch.type.alias == "listeners":
        return False
    if watch.type.alias == "endpoints":
        return bool(client.cache.no_longer_served(client.goal, watch.type.type_url, names))
    if not watch.type.in_tree:
        return False
    if client.watches.of(client.url_of("listeners")):
        return client.has_returned and client.last_acked(client.url_of("clusters")) is None
    type_url = watch.type.type_url
    is_served = names <= client.goal.get(type_url).resources.keys()
    return bool(client.past.memories) or not is_served or bool(listeners_naming(((type_url, names),), client.goal))


def decide_early(client: ClientState, cache: SnapshotCache, origin_of: Callable[[str], Origin], now_s: float) -> None:
    """Answer early requests (`is_early`), now that the client has requested clusters and so shown which it holds."""
    for watch in client.take_undecided():
        url = watch.type.type_url
        shown = needed_by(watch, watch.subscription.interest.names, cache, origin_of(url))
        if shown is not None:
            others = (other for other in client.watches.of(url) if other is not watch)
            come_back(client, watch, shown, now_s, is_first=all(other.acked_set is None for other in others))


def come_back(client: ClientState, watch: Watch, shown: Shown, now_s: float, *, is_first: bool) -> None:
    """A stream shows what its client holds of a type; ``is_first``: no other stream has shown any of it."""
    url, held = watch.type.type_url, shown.held
    if held is not None:
        client.past.note_shown(shown.possible or (held,))
    if client.returned_s is None:
        client.returned_s = now_s
        # On a connection that lasts, one stream may have ended alone: what is warm is known from this connection.
        client.warm = client.warm or client.past.warm
        if client.transition is not None:  # an early stream began it
            client.transition.drains = client.transition.drains or client.past.drains
            client.transition.readiness.before = client.transition.readiness.before or client.warm
    if watch.type.is_route_target:
        client.shown = held
        if held is not None:
            (_trust if client.is_aggregated else _distrust_unshown)(client, held)
    if watch.unknown:
        client.begin_return(now_s)  # unknown names are reported as removed after the time of lingering
    watch.refusals = watch.refusals or client.past.refusals(url)
    if watch.refusals is not None and held is not None:
        held = _without_refused(client, watch, held, watch.refusals)
        lacking = frozenset(shown.held.resources if shown.held is not None else ()).difference(held.resources)
        shown = shown._replace(lacking=shown.lacking | lacking)
        accepted = _surely_accepted(client, held, shown.possible)
        watch.refusals.note_ack(accepted.versions())  # it does not reject what it holds
    if held is not None:
        _hold(client, watch, shown._replace(held=held), now_s, is_first=is_first)
    elif watch.type.in_tree:
        transition = client.begin_return(now_s)
        transition.silent |= {url}
        transition.drains = True
    else:
        if over := _over(client, client.goal.get(url), shown.unproved):
            client.begin_return(now_s)
            client.released = client.releases.reverted(client.released, NO_CONTENT, url, over)
        _release_needed(client, url, shown, over, now_s)


def _surely_accepted(client: ClientState, held: ResourceSet, possible: Sequence[ResourceSet]) -> ResourceSet:
    """The names of a shown set that all ``possible`` sets have: the client may have rejected the others."""
    for each in possible:
        held = client.releases.common(held, each)
    return held


def _without_refused(client: ClientState, watch: Watch, held: ResourceSet, refusals: Refusals) -> ResourceSet:
    """The set that a client shows, with the accepted versions of the resources that it rejected.

    The label and the names of a partial type do not prove that the client holds a rejected resource.
    """
    if watch.type.full_state:
        return held
    shown = watch.known.base.resources if watch.known.base is not None else {}
    unproved = frozenset(name for name in refusals.left_out(held) if name not in shown)
    accepted = client.past.acked(watch.type.type_url, client.releases) or empty_set(watch.type.type_url)
    return client.releases.mixed(held, accepted, unproved)


def _hold(client: ClientState, watch: Watch, shown: Shown, now_s: float, *, is_first: bool) -> None:
    """Release what the client holds, and begin a transition from there to the newest snapshot if one is needed."""
    url, held = watch.type.type_url, shown.held
    assert held is not None, "it is known what the client holds"
    goal = client.goal.get(url)
    change = client.cache.diffs.change(held, goal)
    over = _over(client, goal, shown.unproved)
    added = change.added if watch.type.full_state else _leading_out(goal, shown)
    if not over and not change.changed and not change.removed and not added:
        refused = watch.refusals.left_out(goal) if watch.refusals is not None else NO_NAMES
        watch.acked_set = client.releases.mixed(goal, held, refused)
        if client.released.get(url) is not goal:  # content was pushed after the client reconnected, and is held back
            _resume(client, url, held, is_first=is_first)
        return
    watch.acked_set = _surely_accepted(client, held, shown.possible)
    _restore(client)
    clusters = client.last_acked(client.url_of("clusters"))
    # What it may hold stays as it may hold it, until it is known to hold it: a newer version may need a newer listener.
    watch.possible = max(shown.possible, key=len, default=None)
    present = _as_warm(client, watch.possible or held, shown.origin)
    client.released = client.releases.resumed(client.released, url, present, clusters, is_first=is_first)
    if over:
        # What it has instead is not known, and cannot be sent to it: nothing is, until the listeners are ready.
        client.released = client.releases.reverted(client.released, NO_CONTENT, url, over)
    step = client.releases.step(client.released, client.goal, client.lingering)
    if (
        step.is_simple
        and present is held
        and client.transition is None
        and not client.lingering
        and not (step.has_trees and (not client.has_clusters or shows_cold(client) or over_unshown_filters(client)))
    ):
        client.release(client.goal, now_s)
        return
    transition = client.begin_return(now_s)
    transition.origin = client.releases.resumed(transition.origin, url, present, clusters, is_first=is_first)
    transition.is_origin_shown |= watch.type.alias == "listeners"
    # Without memories of the client, its listeners may have begun to drain just now.
    transition.drains = transition.drains or step.drains or not client.past.memories
    removed = joined(step.removed, _removed_internal(client, shown.origin, url, change.removed))
    client.lingering = with_removed(client, removed, client.goal.revision)
    client.lingering = without_ends_of_used(client, held, change.changed)


def _release_needed(client: ClientState, url: str, shown: Shown, over: frozenset[str], now_s: float) -> None:
    """Release requested names of an unknown set that only earlier revisions have, except ``over``: a cluster may warm.

    A label that no retained revision has is usual: a client keeps that of the last response that it was sent.
    """
    names = shown.unproved.difference(client.released.get(url).resources, over)
    held = _with_names(empty_set(url), names, client.cache, shown.origin) if names else empty_set(url)
    if held.resources:
        client.begin_return(now_s)
        found = frozenset(held.resources)
        made = client.releases.mixed(client.released.get(url), held, found)
        client.released = Snapshot(client.released.group, client.released.revision, {**client.released.sets, url: made})
        client.lingering = with_removed(client, ((url, found),), client.goal.revision)


def _leading_out(goal: ResourceSet, shown: Shown) -> frozenset[str]:
    """The names that a client needs and has nothing of, if their newest content leads to clusters that it lacks."""
    if not shown.lacking or not goal.type.in_tree or shown.origin.clusters is None:
        return NO_NAMES
    found, clusters = goal.resources, shown.origin.clusters
    return frozenset(name for name in shown.lacking if name in found and not leads_within(found[name], clusters))


def _removed_internal(client: ClientState, origin: Origin, url: str, removed: Sequence[str]) -> Names:
    """The removed listeners that clusters or assignments of a retained revision name, of its former groups too.

    They linger, even if the client did not show these clusters and assignments: its streams come in any order, and what
    it was sent of a former group is not always proved.
    """
    if not removed or alias_of(url) != "listeners":
        return NO_NAMES_BY_TYPE
    urls, releases = map(client.url_of, ("clusters", "endpoints")), client.releases
    sets = (each for kind in urls for each in client.cache.retained_sets(origin.groups, kind, origin.api))
    return keep_of({url: frozenset().union(*map(releases.internal_listeners, sets)).intersection(removed)})


def _as_warm(client: ClientState, held: ResourceSet, origin: Origin) -> ResourceSet:
    """The clusters that a client shows; those of a former group that linger in the versions that were warm.

    On separate streams a client shows a cluster before it is warm, and the assignments and secrets of a former group
    that it was not sent may not be sent to it any more. A cluster that needs none is warm at once.
    """
    warm = client.past.warm
    if not held.type.is_route_target or client.is_aggregated or warm is None or not origin.has_moved:
        return held
    goal = client.goal.get(held.type.type_url).resources
    unproved = (
        name
        for name, cluster in held.resources.items()
        if name in warm.resources
        and name not in goal
        and any(resource_type(each.type_url).kept_on_move for each in cluster.references)
    )
    return client.releases.mixed(held, warm, frozenset(unproved))


def _over(client: ClientState, goal: ResourceSet, names: frozenset[str]) -> frozenset[str]:
    """The assignments among these names whose endpoints name internal listeners, in the newest or the released set."""
    if not names or goal.type.full_state:
        return NO_NAMES
    found = set[str]()
    for held in (goal, client.released.get(goal.type.type_url)):
        if client.releases.internal_listeners(held):
            found.update(name for name in names & held.resources.keys() if held.resources[name].references)
    return frozenset(found)


def _trust(client: ClientState, held: ResourceSet) -> None:
    """Count the clusters that a client shows on an aggregated stream as warm, if they were when it left, or if unknown.

    docs/protocol.md#coming-back: "Envoy sends no CDS request on a new stream while a cluster warms". But one that does
    not warm any more may lack endpoints that the client rejected: of others, the ACK of the assignment is the proof.
    """
    if client.past.memories:
        before = client.past.warm
        client.warm = client.releases.common(held, before) if before is not None else None
    else:
        client.warm = held
    if client.transition is not None:
        client.transition.readiness.before = client.warm


def _distrust_unshown(client: ClientState, held: ResourceSet) -> None:
    """Clusters that a client does not show on separate streams are cold: another server may have removed them."""
    if client.warm is not None:
        client.warm = client.releases.common(client.warm, held)
    if client.transition is not None:
        client.transition.readiness.note_released(held, client.releases.common)


def _resume(client: ClientState, url: str, held: ResourceSet, *, is_first: bool) -> None:
    """Release the set that the client showed, in the place of the set that was released before it showed it."""
    clusters = client.last_acked(client.url_of("clusters"))
    client.released = client.releases.resumed(client.released, url, held, clusters, is_first=is_first)
    transition = client.transition
    if transition is not None:
        transition.origin = client.releases.resumed(transition.origin, url, held, clusters, is_first=is_first)


def _restore(client: ClientState) -> None:
    """Restore lingering: it "keeps its end across reconnects" (docs/protocol.md#coming-back)."""
    if not client.lingering:
        lingering = client.past.lingering(client.releases)
        client.lingering = client.releases.lingerings.missing_in(lingering, client.goal)
    client.drain_until_s = max(client.drain_until_s, client.past.drain_until_s)

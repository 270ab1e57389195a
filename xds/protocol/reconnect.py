"""Reconnected clients: the content that their first requests show, and the state of the client that results from it.

The first request of a type shows content by its version_info (SotW), by initial_resource_versions (Delta), or by names
that only a client with an earlier listener can know. docs/protocol.md#coming-back: "the content that a client shows is
the start of the transition, however many pushes it missed".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import ResourceType, resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.cache import SnapshotCache
from xds.protocol.diffs import leads_within
from xds.protocol.expected_requests import listeners_with_unshown_filters, shows_cold_clusters
from xds.protocol.memory import ClientMemory
from xds.protocol.origin import Origin
from xds.protocol.rejections import Rejections
from xds.protocol.removals import with_removed, without_ends_of_used
from xds.protocol.requests import DeltaRequest, SotwRequest
from xds.protocol.trees import listeners_naming
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

NO_CONTENT = Snapshot("", 0)
_REFERENCED_ALIASES = ("endpoints", "secrets")  # clusters and listeners refer to these types, which are in no tree


class ShownContent(NamedTuple):
    """The content of one type that a client shows.

    * ``held_set``: the content that it holds; None if that is unknown;
    * ``origin``: where the content may come from;
    * ``unproved_names``: requested names of which it may hold other content: unknown content, or that of a former group
      (`Origin.is_guarded`);
    * ``possible_sets``: the sets of a full-state type, if it may hold several; ``held_set`` is then what all prove;
    * ``lacking_names``: requested names of which it holds no version: it rejected them, or no revision fits its
      clusters.
    """

    held_set: ResourceSet | None
    origin: Origin
    unproved_names: frozenset[str] = NO_NAMES
    possible_sets: Sequence[ResourceSet] = ()
    lacking_names: frozenset[str] = NO_NAMES


def shown_by_version_info(
    watch: Watch, request: SotwRequest, cache: SnapshotCache, origin: Origin
) -> ShownContent | None:
    """The set that a SotW client shows by its version_info; None if it shows none.

    Rule 13: "The first request of a type on a stream is answered, even if its version is current". So the set decides
    only which resources may not be removed yet. A client that requests single names holds only these names.
    """
    type, label = watch.type, request.version_info
    watch.allows_placeholders = not label
    watch.acked_label = label  # until it ACKs a response on this stream
    if not label:
        return content_needed_by(watch, request.names, cache, origin)
    url = type.type_url
    if origin.is_aggregated and not type.full_state:
        origin.past.note_label(url, label)
    possible = origin.named(url, label, request.names)
    held = origin.surely_held(possible)
    # The set that it ACKed last lacks removed names. It may still hold these, in the versions under this label.
    removed = request.names.difference(held.resources) if held is not None and not type.full_state else NO_NAMES
    if held is None or removed:
        recalled = cache.history.recall(origin.group, url, label, origin.api, origin.former)
        if held is None:
            held = recalled
        elif recalled is not None:
            held = cache.releases.mixed(held, recalled, removed)
    if held is not None and not _requests_all(type, request):
        unproved = NO_NAMES
        if origin.is_guarded(type):
            # A label of its own group proves the content that this group sent to it.
            held = cache.history.recall(origin.group, url, label, origin.api) or empty_set(url)
            unproved = request.names.difference(held.resources)
        watch.shown_set = held
        held = _add_requested_names(held, request.names, cache, origin)
        return ShownContent(held, origin, unproved)
    return ShownContent(
        held, origin, request.names if held is None else NO_NAMES, possible if len(possible) > 1 else ()
    )


def content_needed_by(watch: Watch, names: frozenset[str], cache: SnapshotCache, origin: Origin) -> ShownContent | None:
    """The content that a reconnected client needs for a listener or cluster that it holds, though it shows none itself.

    docs/protocol.md#additions: "names that a client needs for what it holds are answered at once". The content is from
    the revision that the client holds. None if the client has not reconnected, or if the released content fits. That
    may not fit a listener of which the client has an earlier version: it may open paths for which that version has no
    filter.
    """
    type = watch.type
    if not ((type.in_tree or type.alias in _REFERENCED_ALIASES) and names) or type.full_state:
        return None
    if not origin.has_returned:
        # Streams are opened in any order. A name that only an earlier revision has shows that the client reconnected.
        served = cache.served_names(origin.group, type.type_url, origin.api)
        remembered = (each.resources for each in origin.sets(type.type_url))
        if names <= served or not any(names & each.keys() for each in remembered):
            return None
    released = origin.released.resources
    is_within = all(name in released and leads_within(released[name], origin.clusters) for name in names)
    if is_within and names.isdisjoint(origin.unready_names):
        return None
    held = _add_requested_names(empty_set(type.type_url), names, cache, origin)
    lacking = frozenset[str]()
    if origin.clusters is not None:
        misfits = (name for name in names if name in released and not leads_within(released[name], origin.clusters))
        lacking = frozenset(misfits).difference(held.resources)
    return ShownContent(held, origin, lacking_names=lacking) if held.resources or lacking else None


def _add_requested_names(held: ResourceSet, names: frozenset[str], cache: SnapshotCache, origin: Origin) -> ResourceSet:
    """The requested names of a set, with those that the set lacks from other revisions (`RevisionHistory.held_subset`).

    Of guarded types (`Origin.is_guarded`), only resources that lingered for the client when it disconnected are taken
    from former groups: they were sent to it, whatever its group has or had under the same name.
    """
    if not origin.is_guarded(held.type):
        return _subset(held, names, origin.groups, cache, origin)
    url = held.type.type_url
    lingered = [
        (memory.lingering_sets[url], _lingering(memory, url, names).difference(held.resources))
        for memory in reversed(origin.past.own_memories)
        if url in memory.lingering_sets
    ]
    others = names.difference(*(lingering for _, lingering in lingered))
    held = _subset(held, others, (origin.group,), cache, origin)
    for earlier, lingering in lingered:
        held = cache.releases.mixed(held, earlier, lingering)
    return held


def _subset(
    held: ResourceSet, names: frozenset[str], groups: Sequence[str], cache: SnapshotCache, origin: Origin
) -> ResourceSet:
    needed = origin.needed(names.difference(held.resources), held.type.type_url)
    clusters = origin.held_clusters  # cold ones count: what names them was sent once these were warm
    return cache.history.held_subset(held, names, clusters, groups, origin.api, origin.assigned_clusters, needed)


def _lingering(memory: ClientMemory, url: str, names: frozenset[str]) -> frozenset[str]:
    """The names among these that lingered for a client, as far as their content is remembered."""
    return names.intersection(memory.lingering.names[url], memory.lingering_sets[url].resources)


def _requests_all(type: ResourceType, request: SotwRequest) -> bool:
    return type.full_state or (type.legacy_wildcard and not request.names)


def shown_by_versions(watch: Watch, request: DeltaRequest, cache: SnapshotCache, origin: Origin) -> ShownContent | None:
    """The set that a Delta client shows by initial_resource_versions; only for the first request of a type.

    Rule 54: "`initial_resource_versions` suppress unchanged resources and reveal vanished ones; they do not subscribe".
    Names with an unknown version are uncertain. docs/protocol.md#coming-back: "An unknown name is reported as removed
    when its lingering ends".
    """
    versions = request.initial_versions
    if not versions:
        return content_needed_by(watch, request.subscribe, cache, origin)
    type = watch.type
    if origin.is_aggregated and type.alias == "endpoints":
        origin.past.note_shown_assignments(versions)
    held = cache.history.recall_versions(
        origin.group, type.type_url, versions, origin.api, origin.former, origin.sets(type.type_url)
    )
    watch.known.base = watch.shown_set = held
    if held is not None and len(held) == len(versions):
        if (type.in_tree or type.alias in _REFERENCED_ALIASES) and not request.subscribe <= held.resources.keys():
            names = request.subscribe.union(held.resources)
            held = _add_requested_names(held, names, cache, origin)
        return ShownContent(held, origin)
    unknown = {name: version for name, version in versions.items() if held is None or name not in held.resources}
    if type.in_tree:
        watch.known.uncertain = unknown
        return ShownContent(None, origin)
    served = cache.served_names(origin.group, type.type_url, origin.api)
    if type.lingers:
        watch.unknown_names = frozenset(name for name in unknown if name not in served)
    watch.known.uncertain = {name: version for name, version in unknown.items() if name not in watch.unknown_names}
    return ShownContent(held, origin)


def unanswered_at_first(
    watch: Watch, unanswered: frozenset[str], released: ResourceSet, cache: SnapshotCache
) -> frozenset[str]:
    """The names of a first request that need an answer.

    Rule 56: "Names that are subscribed at their current version may be skipped on the first message".
    """
    uncertain = watch.known.uncertain
    lacking = cache.diffs.lacking(unanswered, watch.known.base, released) - watch.unknown_names
    # A name in another version is sent because of its version. A name that does not exist is reported as removed,
    # because it is uncertain.
    current = [
        name
        for name, version in uncertain.items()
        if name in lacking and ((resource := released.resources.get(name)) is None or resource.version == version)
    ]
    return lacking.difference(current) if current else lacking


def is_early_request(client: ClientState, watch: Watch, names: frozenset[str]) -> bool:
    """Whether a request on a separate stream comes before it is known what its client holds.

    docs/protocol.md#additions: "on separate streams, a client that requests routes before its listeners and clusters
    has reconnected, or has static listeners. It is answered when it has shown its clusters, or after `return_s`. The
    same holds for a client that requests, before its clusters, an assignment that only a retained revision has".
    """
    if client.is_aggregated or client.has_requested_clusters or watch.type.alias == "listeners":
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


def answer_early_requests(
    client: ClientState, cache: SnapshotCache, origin_of: Callable[[str], Origin], now_s: float
) -> None:
    """Answer early requests (`is_early_request`): the client has requested clusters now, and shown which it holds."""
    for watch in client.take_early_watches():
        url = watch.type.type_url
        shown = content_needed_by(watch, watch.subscription.interest.names, cache, origin_of(url))
        if shown is not None:
            others = (other for other in client.watches.of(url) if other is not watch)
            resume_from(client, watch, shown, now_s, is_first=all(other.acked_set is None for other in others))


def resume_from(client: ClientState, watch: Watch, shown: ShownContent, now_s: float, *, is_first: bool) -> None:
    """Start from the content of a type that a client shows. ``is_first``: no other stream has shown this type."""
    url, held = watch.type.type_url, shown.held_set
    if held is not None:
        client.past.note_shown(shown.possible_sets or (held,))
    if client.returned_s is None:
        client.returned_s = now_s
        client.drain_until_s = max(client.drain_until_s, client.past.drain_until_s)
        # If only one stream of the connection ended, the warm clusters are known from the connection itself.
        client.note_proved(client.proof.clusters or client.past.warm_clusters)
        if client.transition is not None:  # an early request began it
            client.transition.drains = client.transition.drains or client.past.drains
    if watch.type.is_route_target and held is not None:
        (_count_as_warm if client.is_aggregated else _count_unshown_as_cold)(client, held)
    if watch.unknown_names:
        client.begin_return(now_s)  # unknown names are reported as removed when their lingering ends
    watch.rejections = watch.rejections or client.past.rejections(url)
    if watch.rejections is not None and held is not None:
        held = _without_rejected(client, watch, held, watch.rejections)
        lacking = frozenset(shown.held_set.resources if shown.held_set is not None else ()).difference(held.resources)
        shown = shown._replace(lacking_names=shown.lacking_names | lacking)
        accepted = _surely_accepted(client, held, shown.possible_sets)
        watch.rejections.note_ack(accepted.versions())  # a client does not reject resources that it holds
    if held is not None:
        _release_held(client, watch, shown._replace(held_set=held), now_s, is_first=is_first)
    elif watch.type.in_tree:
        transition = client.begin_return(now_s)
        transition.withheld_types |= {url}
        transition.drains = True
    else:
        _release_needed(client, url, shown, now_s)


def _surely_accepted(client: ClientState, held: ResourceSet, possible: Sequence[ResourceSet]) -> ResourceSet:
    """The part of a shown set that all ``possible`` sets have: the client may have rejected the other names."""
    for each in possible:
        held = client.releases.without_removed(held, each)
    return held


def _without_rejected(client: ClientState, watch: Watch, held: ResourceSet, rejections: Rejections) -> ResourceSet:
    """The set that a client shows, with the accepted versions of the resources that it rejected.

    Of a partial type, label and names do not prove that the client holds a rejected resource.
    """
    if watch.type.full_state:
        return held
    shown = watch.known.base.resources if watch.known.base is not None else {}
    unproved = frozenset(name for name in rejections.left_out(held) if name not in shown)
    accepted = client.past.acked(watch.type.type_url, client.releases) or empty_set(watch.type.type_url)
    return client.releases.mixed(held, accepted, unproved)


def _release_held(client: ClientState, watch: Watch, shown: ShownContent, now_s: float, *, is_first: bool) -> None:
    """Release the content that the client holds, and begin a transition to the newest snapshot if one is needed."""
    url, held = watch.type.type_url, shown.held_set
    assert held is not None, "it is known what the client holds"
    goal = client.goal.get(url)
    change = client.cache.diffs.change(held, goal)
    added = change.added if watch.type.full_state else _needing_other_clusters(goal, shown)
    if not change.changed and not change.removed and not added:
        rejected = watch.rejections.left_out(goal) if watch.rejections is not None else NO_NAMES
        watch.acked_set = client.releases.mixed(goal, held, rejected)
        if client.released.get(url) is not goal:  # a push since the reconnect is held
            _resume(client, url, held, is_first=is_first)
        return
    watch.acked_set = _surely_accepted(client, held, shown.possible_sets)
    _restore_lingering(client)
    clusters = client.last_acked(client.url_of("clusters"))
    # Resources that the client may hold keep that version until it ACKs them: a newer one may need a newer listener.
    watch.possible_set = max(shown.possible_sets, key=len, default=None)
    present = _as_warm(client, watch.possible_set or held, shown.origin)
    client.released = client.releases.resumed(client.released, url, present, clusters, is_first=is_first)
    step = client.releases.step(client.released, client.goal, client.lingering)
    if (
        step.is_simple
        and present is held
        and client.transition is None
        and not client.lingering
        and not (step.has_trees and _awaits_proof(client))
    ):
        client.release(client.goal, now_s)
        return
    transition = client.begin_return(now_s)
    transition.ready_release = client.releases.resumed(
        transition.ready_release, url, present, clusters, is_first=is_first
    )
    transition.note_missing_secrets(client, step.missing_secrets, now_s)
    transition.is_ready_release_unproved |= watch.type.alias == "listeners"
    # Without a memory of the client, its listeners may have begun to drain just now.
    transition.drains = transition.drains or step.drains or not client.past.memories
    client.lingering = with_removed(client, step.removed, client.goal.revision)
    client.lingering = without_ends_of_used(client, held, change.changed)


def _awaits_proof(client: ClientState) -> bool:
    """Whether trees wait, because clusters or extension configurations of the client are not shown or not proved."""
    return (
        not client.has_requested_clusters or shows_cold_clusters(client) or bool(listeners_with_unshown_filters(client))
    )


def _release_needed(client: ClientState, url: str, shown: ShownContent, now_s: float) -> None:
    """Release the requested names of an unknown set that only earlier revisions have.

    A cluster that warms may need them. Labels that no retained revision has are usual: a client shows that of the last
    response that was sent to it.
    """
    names = shown.unproved_names.difference(client.released.get(url).resources)
    held = _add_requested_names(empty_set(url), names, client.cache, shown.origin) if names else empty_set(url)
    if held.resources:
        client.begin_return(now_s)
        released, found = client.released, frozenset(held.resources)
        mixed = client.releases.mixed(released.get(url), held, found)
        client.released = released.with_set(mixed)
        client.lingering = with_removed(client, ((url, found),), client.goal.revision)


def _needing_other_clusters(goal: ResourceSet, shown: ShownContent) -> frozenset[str]:
    """The ``lacking_names`` of a client whose newest content leads to clusters that it lacks."""
    if not shown.lacking_names or not goal.type.in_tree or shown.origin.clusters is None:
        return NO_NAMES
    found, clusters = goal.resources, shown.origin.clusters
    return frozenset(name for name in shown.lacking_names if name in found and not leads_within(found[name], clusters))


def _as_warm(client: ClientState, held: ResourceSet, origin: Origin) -> ResourceSet:
    """The clusters that a client shows, with lingering clusters of a former group in the versions that were warm.

    On separate streams a client shows a cluster before it is warm. Assignments and secrets of a former group that were
    not sent to the client may no longer be sent to it. A cluster that needs neither is warm at once.
    """
    warm = client.past.warm_clusters
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


def _count_as_warm(client: ClientState, held: ResourceSet) -> None:
    """Count clusters that a client shows on an aggregated stream as warm: all, or those that a memory proves.

    docs/protocol.md#coming-back: "Envoy sends no CDS request on a new stream while a cluster warms". A cluster that has
    stopped warming may lack endpoints that the client rejected. So without proof in the memory, the ACK of its
    assignment is the proof.
    """
    if client.past.memories:
        before = client.past.warm_clusters
        client.note_proved(client.releases.without_removed(held, before) if before is not None else None)
    else:
        client.note_proved(held)


def _count_unshown_as_cold(client: ClientState, held: ResourceSet) -> None:
    """Count clusters that a client does not show on separate streams as cold: another server may have removed them."""
    client.forget_proof(held)


def _resume(client: ClientState, url: str, held: ResourceSet, *, is_first: bool) -> None:
    """Replace the released set of a type with the set that the client shows."""
    clusters = client.last_acked(client.url_of("clusters"))
    client.released = client.releases.resumed(client.released, url, held, clusters, is_first=is_first)
    transition = client.transition
    if transition is not None:
        transition.ready_release = client.releases.resumed(
            transition.ready_release, url, held, clusters, is_first=is_first
        )


def _restore_lingering(client: ClientState) -> None:
    """Restore the lingering resources from memory: lingering "keeps its end across reconnects"
    (docs/protocol.md#coming-back)."""
    if not client.lingering:
        lingering = client.past.lingering(client.releases)
        client.lingering = client.releases.lingerings.missing_in(lingering, client.goal)

"""A stream shows what its client holds from before: what becomes of the client's state (DESIGN 3.2, Coming back).

What is shown, dialect by dialect, is in ``returning``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.cache import SnapshotCache
from xds.protocol.removals import with_removed
from xds.protocol.returning import Origin, Shown, needed_by
from xds.protocol.trees import listeners_naming
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


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
        watch.refusals.note_ack(held.versions())  # what it has it does not refuse
    if held is not None:
        _hold(client, watch, held, now_s, is_first=is_first)
    elif watch.type.in_tree:
        transition = client.begin_return(now_s)
        transition.silent |= {url}
        transition.drains = True


def _hold(client: ClientState, watch: Watch, held: ResourceSet, now_s: float, *, is_first: bool) -> None:
    """The client may see what it holds, and what leads from there to the newest snapshot."""
    url = watch.type.type_url
    goal = client.goal.get(url)
    change = client.cache.change(held, goal)
    if not change.changed and not change.removed and not (watch.type.full_state and change.added):
        watch.acked_set = goal
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

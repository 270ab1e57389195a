"""Which removals of a push linger for one client (docs/design.md#removals); ``linger`` says for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xds.model.resource_type import resource_type
from xds.model.snapshot import Snapshot, empty_set
from xds.protocol.linger import Lingering, Names, keep_of
from xds.protocol.trees import Part

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

_NOTHING: frozenset[str] = frozenset()


def with_removed(client: ClientState, removed: Names, revision: int) -> Lingering:
    """What lingers once a push has removed these names, as far as the client has them: "Only ACKed names linger".

    What only leads from a cluster or a listener stays in any case: who holds those may ask for it yet.
    """
    left = []
    asked = _named_by_listeners(client) if removed else frozenset()
    for url, gone in removed:
        type = resource_type(url)
        names = gone
        if (type.is_route_target or type.in_tree) and client.watches.of(url):
            names = _had(client, url, gone) | frozenset(name for name in gone if (url, name) in asked)
        if names:
            left.append((url, names))
    lingerings = client.releases.lingerings
    made = lingerings.with_removed(client.lingering, revision, tuple(left))
    latest = lingerings.latest(made, client.rules.linger_max)
    client.cut += made.removals[: len(made.removals) - len(latest.removals)]
    return latest


def without_unsent(client: ClientState, removed: Names) -> Names:
    """ "Secrets and endpoints of a group that a node was moved out of are not updated or sent again"."""
    guarded = ((url, resource_type(url).kept_on_move, names) for url, names in removed)
    return keep_of(
        {url: names & _sent_names(client, url) if is_guarded else names for url, is_guarded, names in guarded}
    )


def sent_of(client: ClientState, snapshot: Snapshot) -> Snapshot:
    """A snapshot without what is guarded and was not sent; the very snapshot where that is nothing."""
    sets = dict(snapshot.sets)
    for url, held in snapshot.sets.items():
        names = _sent_names(client, url).intersection(held.resources) if held.type.kept_on_move else held.resources
        if len(names) < len(held):
            sets[url] = client.releases.mixed(empty_set(url), held, frozenset(names))
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def with_sent_clusters(client: ClientState, snapshot: Snapshot) -> Snapshot:
    """A snapshot with its clusters as they were sent: in the version that the client accepted where it has no other.

    What a former group would have changed next would need assignments that nobody may send any more.
    """
    url = client.url_of("clusters")
    watches, clusters = client.watches.of(url), snapshot.get(url)
    sent = [each.resources for watch in watches for each in watch.sent_sets()]
    held = client.watches.acked(url) or empty_set(url)
    unsent = frozenset(
        name
        for name, cluster in clusters.resources.items()
        if not any(name in each and each[name].version == cluster.version for each in sent)
    )
    if not watches or not unsent:
        return snapshot
    return Snapshot(
        snapshot.group, snapshot.revision, {**snapshot.sets, url: client.releases.mixed(clusters, held, unsent)}
    )


def with_accepted(client: ClientState, snapshot: Snapshot, lingering: Names) -> Snapshot:
    """A snapshot in which what lingers and is refused is as the client accepted it: nothing newer will be repaired."""
    if not lingering or not client.watches.refuses_anything:
        return snapshot
    sets = dict(snapshot.sets)
    for url, names in lingering:
        for watch in client.watches.lagging(url):
            if watch.refusals and (refused := names & watch.refusals.found_in(sets[url])):
                sets[url] = client.releases.mixed(sets[url], watch.acked_set or empty_set(url), refused)
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def _sent_names(client: ClientState, type_url: str) -> frozenset[str]:
    """The names that were sent, and those that the clusters and listeners that were sent need."""
    watches = [watch for url in client.watches for watch in client.watches.of(url)]
    needed = (
        each.name
        for watch in watches
        if watch.type.is_route_target or watch.type.alias == "listeners"
        for sent in watch.sent_sets()
        for resource in sent.resources.values()
        for each in resource.references
        if each.type_url == type_url
    )
    return frozenset(needed).union(*(watch.sent_names() for watch in client.watches.of(type_url)))


def _had(client: ClientState, url: str, gone: frozenset[str]) -> frozenset[str]:
    """Those of some names that the client uses, as far as is known."""
    held, type = client.watches.acked(url), resource_type(url)
    names = gone.intersection(held.resources) if held is not None else _NOTHING
    if type.is_route_target:
        names |= gone.intersection(_members_kept(client, url))
        if held is not None and client.transition is not None:
            names |= client.transition.readiness.let_through(gone)
    return names


def _members_kept(client: ClientState, url: str) -> frozenset[str]:
    """The members of aggregates as they were released: "new members go out with the old aggregate" and its own."""
    changed = client.releases.aggregates(client.goal.get(url), client.released.get(url))
    return frozenset().union(*changed.values())


def _named_by_listeners(client: ClientState) -> frozenset[Part]:
    """What the listeners that were released lead to: should one be held as it is, the client asks for that."""
    listeners = client.released.get(client.url_of("listeners")).resources
    return client.releases.used_by(frozenset(listeners), client.released)

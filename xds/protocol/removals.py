"""Which removals of a push linger for one client, when their clock starts, and what it keeps when it changes groups.

The rules are in docs/protocol.md#removals; ``linger`` has the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.linger import NO_NAMES_BY_TYPE, Lingering, Names, keep_of, on_grid
from xds.protocol.release import joined
from xds.protocol.trees import Part

if TYPE_CHECKING:
    from xds.protocol.client import ClientState
    from xds.protocol.transition import Transition


def with_removed(client: ClientState, removed: Names, revision: int) -> Lingering:
    """What lingers once a push has removed these names.

    docs/protocol.md#removals: "a resource that the client never ACKed, or rejected, does not linger". Endpoints and
    secrets always linger, and so do resources that a released listener refers to: the client may request them yet.
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


def still_lingering(client: ClientState) -> Lingering:
    """What still lingers now that ``client.goal`` was pushed.

    docs/protocol.md#removals: "if a resource is pushed again in another version, what its old version refers to lingers
    on: the client uses the old version until it accepts the new one".
    """
    before, lingerings = client.lingering, client.releases.lingerings
    left = lingerings.missing_in(before, client.goal)
    if left is before or not left:
        return left
    used = {
        (url, name)
        for url, names in before.names.items()
        for name in names & client.goal.get(url).resources.keys()
        if (held := client.released.get(url).resources.get(name)) is not None
        and held.version != client.goal.get(url).resources[name].version
    }
    return lingerings.without_ends(left, _led_to(client, used))


def without_ends_of_used(client: ClientState, held: ResourceSet, names: Iterable[str]) -> Lingering:
    """What lingers when a stream shows that the client still holds the earlier versions of these names, as in ``held``.

    What they refer to has no end again. It may have got one while the stream was away, since nobody had to ACK it.
    """
    led_to = {(each.type_url, each.name) for name in names for each in held.resources[name].references}
    return client.releases.lingerings.without_ends(client.lingering, _led_to(client, led_to))


def removed_in_use(client: ClientState) -> Names:
    """The removed listeners that a sent cluster or assignment names, whatever version of it is released now."""
    url = client.url_of("listeners")
    change = client.releases.changes(client.released, client.goal).get(url)
    if change is None or not change.removed:
        return NO_NAMES_BY_TYPE
    names = _named_by(client, {}).intersection(change.removed)
    return keep_of({url: names.difference(client.lingering.names.get(url, NO_NAMES))})


def start_clock(client: ClientState, transition: Transition, now_s: float) -> None:
    """Set the end of removals: "where a listener changed or was removed, they stay another `listener_drain_s`", and
    "a later push does not shorten a drain" (docs/protocol.md#removals)."""
    order, rules = client.order, client.rules
    delay_s = _either(order.removal_delay_s, rules.removal_delay_s)
    drain_s = _either(order.listener_drain_s, rules.listener_drain_s)
    if transition.drains and _drains_listeners(client):
        client.drain_until_s = on_grid(now_s + drain_s + delay_s)
    transition.drains = False
    transition.origin, transition.is_origin_shown = client.released, False
    ends_s = max(on_grid(now_s + delay_s), client.drain_until_s)
    if client.lingering.is_pending:
        used = joined(_listeners_in_use(client), _members_in_use(client))
        client.lingering = client.releases.lingerings.with_ends(client.lingering, ends_s, used)
    watches = (watch for url in client.watches for watch in client.watches.of(url))
    if client.unknown_until_s is None and any(watch.unknown for watch in watches):
        client.unknown_until_s = ends_s


def _drains_listeners(client: ClientState) -> bool:
    """Whether a listener of this client drains: those of "clients that request listeners by name (gRPC)" do not."""
    watches = client.watches.of(client.url_of("listeners"))
    return not watches or any(w.subscription.interest.wildcard or w.subscription.interest.globs for w in watches)


def _listeners_in_use(client: ClientState) -> Names:
    """The lingering internal listeners that clusters and assignments name that the client uses and that do not linger.

    docs/protocol.md#removals: "an internal listener, and everything it refers to, stays as long as the client has a
    cluster whose endpoints (in the cluster or in its assignment, as sent) name it". The push that removed the listener
    changed that cluster or assignment, and the client has not accepted the change yet.
    """
    url = client.url_of("listeners")
    names = client.lingering.names
    if url not in names:
        return NO_NAMES_BY_TYPE
    return _led_to(client, {(url, name) for name in _named_by(client, names) & names[url]})


def _led_to(client: ClientState, parts: set[Part]) -> Names:
    """These lingering resources, and the lingering resources that they refer to, directly or not."""
    lingering, found, left = client.lingering.names, dict[str, set[str]](), list(parts)
    while left:
        url, name = left.pop()
        if name in lingering.get(url, ()) and name not in found.setdefault(url, set()):
            found[url].add(name)
            resource = client.released.get(url).resources.get(name)
            left += ((each.type_url, each.name) for each in (resource.references if resource is not None else ()))
    return keep_of(found)


def _members_in_use(client: ClientState) -> Names:
    """The lingering members of aggregate clusters that the client uses and that do not linger.

    docs/protocol.md#removals: "a member of an aggregate cluster stays as long as the client uses the aggregate". The
    push that removed the member changed the aggregate, and the client has not accepted the change yet.
    """
    url = client.url_of("clusters")
    gone = client.lingering.names.get(url, NO_NAMES)
    found = set[str]()
    for held in (held for watch in client.watches.of(url) for held in watch.sent_sets() if gone):
        aggregates = client.releases.members(held).items()
        found.update(name for aggregate, names in aggregates if aggregate not in gone for name in names & gone)
    return keep_of({url: found})


def _named_by(client: ClientState, besides: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The internal listeners that clusters and assignments name that were sent, except those in ``besides``."""
    found = set[str]()
    for url in map(client.url_of, ("clusters", "endpoints")):
        gone = besides.get(url, NO_NAMES)
        for held in (held for watch in client.watches.of(url) for held in watch.sent_sets()):
            left = client.releases.mixed(held, empty_set(url), gone.intersection(held.resources))
            found |= client.releases.internal_listeners(left)
    return frozenset(found)


def _either(own: float | None, general: float) -> float:
    return own if own is not None else general


def without_unsent(client: ClientState, removed: Names) -> Names:
    """The removed names that may linger after a move to another group.

    docs/protocol.md#removals: "secrets and endpoints of a former group linger only if the client was sent them".
    """
    guarded = ((url, resource_type(url).kept_on_move, names) for url, names in removed)
    return keep_of(
        {url: names & _sent_names(client, url) if is_guarded else names for url, is_guarded, names in guarded}
    )


def sent_of(client: ClientState, snapshot: Snapshot) -> Snapshot:
    """The snapshot without secrets and endpoints that the client was not sent; the same object if there are none."""
    sets = dict(snapshot.sets)
    for url, held in snapshot.sets.items():
        names = _sent_names(client, url).intersection(held.resources) if held.type.kept_on_move else held.resources
        if len(names) < len(held):
            sets[url] = client.releases.mixed(empty_set(url), held, frozenset(names))
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def with_sent_clusters(client: ClientState, snapshot: Snapshot) -> Snapshot:
    """The snapshot of a former group, with clusters only in versions that the client was sent.

    A cluster in another version is replaced by the version that the client accepted, or removed. The version that was
    not sent would need assignments, which may no longer be sent to the client.
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
    """A snapshot with the accepted versions of the resources that linger and that the client rejected.

    docs/protocol.md#refusals: "a resource that was rejected and is removed lingers in its last accepted version". No
    push will repair it, so its type would stay out of step as long as the client asks for it.
    """
    if not lingering or not client.watches.refuses_anything:
        return snapshot
    sets = dict(snapshot.sets)
    for url, names in lingering:
        for watch in client.watches.lagging(url):
            if watch.refusals and (refused := names & watch.refusals.found_in(sets[url])):
                sets[url] = client.releases.mixed(sets[url], watch.acked_set or empty_set(url), refused)
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def _sent_names(client: ClientState, type_url: str) -> frozenset[str]:
    """The names of a type that the client was sent, and those that the clusters and listeners sent to it refer to."""
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
    """The removed names of a type that the client may use."""
    watches, type = client.watches.of(url), resource_type(url)
    # On separate streams each may have shown its own names only.
    held = [each for watch in watches for each in (watch.acked_set, watch.possible) if each is not None]
    names = frozenset().union(*(gone.intersection(each.resources) for each in held))
    if type.alias == "listeners":
        # One that the client did not ACK yet is in use, too, as soon as it applies a cluster or an assignment.
        names |= gone & _named_by(client, {})
    if type.is_route_target:
        names |= gone.intersection(_members_kept(client, url))
        if held and client.transition is not None:
            names |= client.transition.readiness.let_through(gone)
    return names


def _members_kept(client: ClientState, url: str) -> frozenset[str]:
    """The members of released aggregate clusters that the push changes: they stay until the new aggregate is sent.

    docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster, then the new
    aggregate, then removals".
    """
    changed = client.releases.aggregates(client.goal.get(url), client.released.get(url))
    return frozenset().union(*changed.values())


def _named_by_listeners(client: ClientState) -> frozenset[Part]:
    """The resources that released listeners refer to: the client requests them while a listener is held."""
    listeners = client.released.get(client.url_of("listeners")).resources
    return client.releases.used_by(frozenset(listeners), client.released)

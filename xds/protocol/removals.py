"""The removals of one client: which of them linger, when their clock starts, and what is kept on a move between groups.

The rules are in docs/protocol.md#removals; ``linger`` has the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.linger import Lingering, NamesByType, Removal, names_by_type, on_grid
from xds.protocol.trees import ResourceId

if TYPE_CHECKING:
    from xds.protocol.client import ClientState
    from xds.protocol.transition import Transition


def with_removed(client: ClientState, removed: NamesByType, revision: int) -> Lingering:
    """The lingering resources of a client after the push ``revision`` removed these names.

    docs/protocol.md#removals: "a resource that the client never ACKed, or rejected, does not linger". Endpoints and
    secrets always linger. So do resources that a released listener refers to: the client may still request them.
    """
    names_to_linger = []
    named = _named_by_listeners(client) if removed else frozenset()
    for url, names in removed:
        type = resource_type(url)
        if (type.is_route_target or type.in_tree) and client.watches.of(url):
            used = _removed_in_use(client, url, names) | frozenset(name for name in names if (url, name) in named)
        else:
            used = names
        if used:
            names_to_linger.append((url, used))
    lingerings = client.releases.lingerings
    every = lingerings.with_removed(client.lingering, revision, tuple(names_to_linger))
    latest = lingerings.latest(every, client.rules.linger_max)
    client.cut_removals += every.removals[: len(every.removals) - len(latest.removals)]
    return latest


def still_lingering(client: ClientState) -> Lingering:
    """The resources of a client that still linger after ``client.goal`` was pushed.

    docs/protocol.md#removals: "if a resource is pushed again in another version, what its old version refers to lingers
    on: the client uses the old version until it accepts the new one".
    """
    before, lingerings = client.lingering, client.releases.lingerings
    remaining = lingerings.missing_in(before, client.goal)
    if remaining is before or not remaining:
        return remaining
    used = {
        (url, name)
        for url, names in before.names.items()
        for name in names & client.goal.get(url).resources.keys()
        if (held := client.released.get(url).resources.get(name)) is not None
        and held.version != client.goal.get(url).resources[name].version
    }
    return lingerings.without_ends(remaining, _lingering_below(client, used))


def without_ends_of_used(client: ClientState, held: ResourceSet, names: Iterable[str]) -> Lingering:
    """The lingering resources after a stream shows that its client holds ``names`` in the versions of ``held``.

    The lingering resources to which these lead have no end again. They may have got one while the stream was away,
    because nobody had to ACK these names.
    """
    references = {(each.type_url, each.name) for name in names for each in held.resources[name].references}
    return client.releases.lingerings.without_ends(client.lingering, _lingering_below(client, references))


def start_clock(client: ClientState, transition: Transition, now_s: float) -> None:
    """Set the end of the removals that have none, because the client has ACKed everything that could refer to them.

    docs/protocol.md#removals: "where a listener changed or was removed, they stay another `listener_drain_s`"; "a later
    push does not shorten a drain".
    """
    order, rules = client.order, client.rules
    delay_s = _group_or_server(order.removal_delay_s, rules.removal_delay_s)
    drain_s = _group_or_server(order.listener_drain_s, rules.listener_drain_s)
    if transition.drains and _drains_listeners(client):
        client.drain_until_s = on_grid(now_s + drain_s + delay_s)
    transition.drains = False
    transition.ready_release, transition.is_ready_release_unproved = client.released, False
    ends_s = max(on_grid(now_s + delay_s), client.drain_until_s)
    if client.lingering.lacks_end:
        used, lingerings = _members_in_use(client), client.releases.lingerings
        unknown_s = on_grid(now_s + drain_s + delay_s)
        later = [
            (removal, end_s)
            for removal in (client.lingering.removals if client.has_returned else ())
            if removal.ends_s is None and (end_s := _end_in_log(client, removal, unknown_s)) > ends_s
        ]
        client.lingering = lingerings.with_ends(client.lingering, ends_s, used, tuple(later))


def _end_in_log(client: ClientState, removal: Removal, unknown_s: float) -> float:
    """Until when connections of a returned client may need what a removal names.

    docs/internals/engine.md#what-leaves-and-when: the end in the log; "the log does not have this version, or the node
    moved: now + `listener_drain_s` + `removal_delay_s`" (``unknown_s``).
    """
    ends = [0.0]
    for url, names in removal.names.items():
        for name in names:
            held = client.released.get(url).resources.get(name)
            end_s = None
            if not client.former_groups:
                log = client.log
                end_s = log.end_s(held) if held is not None else log.end_of_name_s(url, name)  # None: an untold name
            ends.append(on_grid(end_s) if end_s is not None else unknown_s)
    return max(ends)


def _drains_listeners(client: ClientState) -> bool:
    """Whether listeners of this client drain: those of "clients that request listeners by name (gRPC)" do not."""
    watches = client.watches.of(client.url_of("listeners"))
    return not watches or any(w.subscription.interest.wildcard or w.subscription.interest.globs for w in watches)


def _lingering_below(client: ClientState, resources: set[ResourceId]) -> NamesByType:
    """The lingering ones of these resources, and the lingering resources that they refer to, directly or indirectly."""
    lingering, found, pending = client.lingering.names, dict[str, set[str]](), list(resources)
    while pending:
        url, name = pending.pop()
        if name in lingering.get(url, ()) and name not in found.setdefault(url, set()):
            found[url].add(name)
            resource = client.released.get(url).resources.get(name)
            pending += ((each.type_url, each.name) for each in (resource.references if resource is not None else ()))
    return names_by_type(found)


def _members_in_use(client: ClientState) -> NamesByType:
    """The lingering members of aggregate clusters that were sent to the client and do not linger themselves.

    docs/protocol.md#removals: "a member of an aggregate cluster stays as long as the client uses the aggregate". The
    push that removed the member changed the aggregate, and the client has not accepted the change yet.
    """
    url = client.url_of("clusters")
    lingering = client.lingering.names.get(url, NO_NAMES)
    found = set[str]()
    for held in (held for watch in client.watches.of(url) for held in watch.sent_sets() if lingering):
        aggregates = client.releases.members(held).items()
        found.update(
            name for aggregate, names in aggregates if aggregate not in lingering for name in names & lingering
        )
    return names_by_type({url: found})


def _group_or_server(group_s: float | None, server_s: float) -> float:
    """The setting of the group; that of the server if the group has none."""
    return group_s if group_s is not None else server_s


def without_unsent_names(client: ClientState, removed: NamesByType) -> NamesByType:
    """The names among ``removed`` that may linger after a move to another group.

    docs/protocol.md#removals: "secrets and endpoints of a former group linger only if the client was sent them".
    """
    guarded = ((url, resource_type(url).kept_on_move, names) for url, names in removed)
    return names_by_type(
        {url: names & _sent_names(client, url) if is_guarded else names for url, is_guarded, names in guarded}
    )


def without_unsent_resources(client: ClientState, snapshot: Snapshot) -> Snapshot:
    """The snapshot without secrets and endpoints that were not sent to the client; the same object if it has none."""
    sets = dict(snapshot.sets)
    for url, held in snapshot.sets.items():
        names = held.among(_sent_names(client, url)) if held.type.kept_on_move else held.resources
        if len(names) < len(held):
            sets[url] = client.releases.mixed(empty_set(url), held, frozenset(names))
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def with_sent_clusters(client: ClientState, snapshot: Snapshot) -> Snapshot:
    """The snapshot of a former group, with clusters only in versions that were sent to the client.

    A cluster in another version is replaced by the version that the client ACKed, or left out if it ACKed none. The
    version that was not sent would need assignments that may no longer be sent to the client.
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
    if not watches or not unsent or client.may_have_anything(url):
        return snapshot
    return Snapshot(
        snapshot.group, snapshot.revision, {**snapshot.sets, url: client.releases.mixed(clusters, held, unsent)}
    )


def with_accepted_versions(client: ClientState, snapshot: Snapshot, lingering: NamesByType) -> Snapshot:
    """The snapshot with the last accepted versions of lingering resources that the client rejected.

    docs/protocol.md#rejections: "a resource that was rejected and is removed lingers in its last accepted version". No
    push will repair the resource, so its type would stay pending as long as the client subscribes to it.
    """
    if not lingering or not client.watches.rejects_anything:
        return snapshot
    sets = dict(snapshot.sets)
    for url, names in lingering:
        for watch in client.watches.pending(url):
            if watch.rejections and (rejected := names & watch.rejections.doubted_in(sets[url])):
                held = watch.acked_set
                if client.may_have_anything(url):
                    held = client.logs.stand_ins(url, rejected, watch.rejections)
                    rejected = held.among(rejected)
                sets[url] = client.releases.mixed(sets[url], held or empty_set(url), rejected)
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def _sent_names(client: ClientState, type_url: str) -> frozenset[str]:
    """The names of a type that were sent to the client or that clusters and listeners sent to it refer to."""
    watches = [watch for url in client.watches for watch in client.watches.of(url)]
    referenced = (
        each.name
        for watch in watches
        if watch.type.is_route_target or watch.type.alias == "listeners"
        for sent in watch.sent_sets()
        for resource in sent.resources.values()
        for each in resource.references
        if each.type_url == type_url
    )
    return frozenset(referenced).union(*(watch.sent_names() for watch in client.watches.of(type_url)))


def _removed_in_use(client: ClientState, url: str, removed: frozenset[str]) -> frozenset[str]:
    """The names among ``removed`` that the client may use."""
    watches, type = client.watches.of(url), resource_type(url)
    if client.may_have_anything(url):
        return removed
    # On separate streams, each stream may have shown its own names only.
    held = [watch.acked_set for watch in watches if watch.acked_set is not None]
    names = frozenset().union(*(each.among(removed) for each in held))
    if type.is_route_target:
        names |= removed.intersection(_members_of_changed_aggregates(client, url))
        if held and client.transition is not None:
            names |= client.transition.readiness.without_waiting(client, removed)
    return names


def _members_of_changed_aggregates(client: ClientState, url: str) -> frozenset[str]:
    """The members of released aggregate clusters that the push changes. They stay until the new aggregate is sent.

    docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster, then the new
    aggregate, then removals".
    """
    changed = client.releases.diff(client.goal.get(url), client.released.get(url)).aggregates
    return frozenset().union(*changed.values())


def _named_by_listeners(client: ClientState) -> frozenset[ResourceId]:
    """The resources that released listeners refer to. The client requests them while a newer listener is held."""
    listeners = client.released.get(client.url_of("listeners")).resources
    return client.releases.used_by(frozenset(listeners), client.released)


def without_doubted(client: ClientState) -> Lingering:
    """The lingering resources without what a client that may have anything seems to reject.

    docs/protocol.md#rejections: "a refused leftover must not make a returning client refuse the repaired set". Nothing
    is dropped while a response is in flight, nor what some client accepted. What no client accepted goes first, else
    what came with the latest push before a restart.
    """
    url = client.url_of("clusters")
    watches, goal = client.watches.of(url), client.goal.get(url).resources
    if not client.lingering or not client.may_have_anything(url) or any(w.ack.in_flight for w in watches):
        return client.lingering
    lingering = client.lingering.names.get(url, NO_NAMES)
    versions = [item for watch in watches if watch.rejections for item in watch.rejections.suspects.items()]
    suspects = {n: each for n, each in versions if n in lingering or (n in goal and goal[n].version == each)}
    logs, doubted = client.logs.all, lingering.intersection(suspects)
    # If only what is newest is that suspect, a push has the repair.
    if unaccepted := frozenset().union(*(log.unaccepted(url, suspects) for log in logs)):
        doubted &= unaccepted
    else:
        unknown = frozenset().union(*(log.unaccepted(url, suspects, is_stored=True) for log in logs))
        doubted = client.log.latest(url, doubted & unknown)
    for watch in watches:
        if doubted and watch.rejections:  # an earlier version takes the place (`with_accepted_versions`)
            doubted = doubted.difference(client.logs.stand_ins(url, doubted, watch.rejections).resources)
    return client.releases.lingerings.without_names(client.lingering, names_by_type({url: doubted}))

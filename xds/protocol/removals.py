"""The removals of one client: which of them linger, when their clock starts, and what is kept on a move between groups.

The rules are in docs/protocol.md#removals; ``linger`` has the values.
"""

from __future__ import annotations

from collections.abc import Set

from xds.model.names import NO_NAMES, WILDCARD
from xds.model.resource_type import resource_type
from xds.model.snapshot import Snapshot, empty_set
from xds.protocol.cluster_parts import PARTS
from xds.protocol.facts import ClientFacts
from xds.snapshots.linger import Lingering, NamesByType, Removal, names_by_type, on_grid
from xds.snapshots.trees import ResourceId


def with_removed(
    facts: ClientFacts, removed: NamesByType, revision: int, cold: frozenset[str]
) -> tuple[Lingering, tuple[Removal, ...]]:
    """The lingering resources of a client after the push ``revision`` removed these names, and what is cut for them.

    ``cold``: the clusters that its transition waits for.

    docs/protocol.md#removals: "a resource that the client never ACKed, or rejected, does not linger". Endpoints and
    secrets always linger. So do resources that a released listener refers to: the client may still request them.
    """
    names_to_linger = []
    named = _named_by_listeners(facts) if removed else frozenset()
    for url, names in removed:
        type = resource_type(url)
        if (type.is_route_target or type.in_tree) and facts.watches.of(url):
            used = _removed_in_use(facts, url, names, cold) | frozenset(name for name in names if (url, name) in named)
        else:
            used = names
        if used:
            names_to_linger.append((url, used))
    releases, limit = facts.releases, facts.rules.linger_max
    every = releases.lingerings.with_removed(facts.lingering, revision, tuple(names_to_linger))
    if len(every.removals) <= limit:
        return every, ()
    led_to = releases.results.of(_led_to, facts.released, facts.url_of("listeners"))
    latest = releases.lingerings.latest(every, limit, led_to)
    return latest, tuple(each for each in every.removals[:-limit] if each not in latest.removals)


def _led_to(released: Snapshot, listeners_url: str) -> frozenset[ResourceId]:
    """What the released listeners refer to, directly or indirectly: new requests of the client use it.

    Also the clusters behind their trees, and what these refer to, unlike `used_by`; ``*`` stands for all of a type.
    """
    used, pending = set[ResourceId](), [(listeners_url, name) for name in released.get(listeners_url).resources]
    while pending:
        url, name = pending.pop()
        resource = released.get(url).resources.get(name)
        if (url, name) not in used and resource is not None:
            used.add((url, name))
            for each in resource.references:
                names = released.get(each.type_url).resources if each.name == WILDCARD else (each.name,)
                pending += ((each.type_url, one) for one in names)
    return frozenset(used)


def with_ends(facts: ClientFacts, now_s: float, drain_until_s: float, *, drains: bool) -> tuple[Lingering, float]:
    """The lingering resources with ends: the client has ACKed everything that could refer to them.

    ``drains``: a listener changed or was removed since the last call. ``drain_until_s``: when the old connections of
    the listeners before have ended; returned with this drain.

    docs/protocol.md#removals: "where a listener changed or was removed, they stay another `listener_drain_s`"; "a later
    push does not shorten a drain".
    """
    rules = facts.log.rules  # those of the group
    delay_s, drain_s = rules.removal_delay_s, rules.listener_drain_s
    if drains and _drains_listeners(facts):
        drain_until_s = on_grid(now_s + drain_s + delay_s)
    if not facts.lingering.lacks_end:
        return facts.lingering, drain_until_s
    ends_s, unknown_s = max(on_grid(now_s + delay_s), drain_until_s), on_grid(now_s + drain_s + delay_s)
    later = [
        (removal, end_s)
        for removal in (facts.lingering.removals if facts.has_returned else ())
        if removal.ends_s is None and (end_s := _end_in_log(facts, removal, unknown_s)) > ends_s
    ]
    lingerings = facts.releases.lingerings
    return lingerings.with_ends(facts.lingering, ends_s, _members_in_use(facts), tuple(later)), drain_until_s


def _end_in_log(facts: ClientFacts, removal: Removal, unknown_s: float) -> float:
    """Until when connections of a returned client may need what a removal names.

    docs/internals/engine.md#what-leaves-and-when: the end in the log; "the log does not have this version, or the node
    moved: now + `listener_drain_s` + `removal_delay_s`" (``unknown_s``).
    """
    ends = [0.0]
    for url, names in removal.names.items():
        for name in names:
            resource = facts.released.get(url).resources.get(name)  # None: an untold name
            version = resource.version if resource is not None else None
            end_s = facts.log.end_s(url, name, version) if not facts.former_groups else None
            ends.append(on_grid(end_s) if end_s is not None else unknown_s)
    return max(ends)


def _drains_listeners(facts: ClientFacts) -> bool:
    """Whether listeners of this client drain: those of "clients that request listeners by name (gRPC)" do not."""
    watches = facts.watches.of(facts.url_of("listeners"))
    return not watches or any(w.subscription.interest.wildcard or w.subscription.interest.globs for w in watches)


def _members_in_use(facts: ClientFacts) -> NamesByType:
    """The lingering members of aggregate clusters that were sent to the client and do not linger themselves.

    docs/protocol.md#removals: "a member of an aggregate cluster stays as long as the client uses the aggregate". The
    push that removed the member changed the aggregate, and the client has not accepted the change yet.
    """
    url = facts.url_of("clusters")
    lingering = facts.lingering.names.get(url, NO_NAMES)
    members = set[str]()
    for sent_set in (sent_set for watch in facts.watches.of(url) for sent_set in watch.sent_sets() if lingering):
        aggregates = facts.releases.members(sent_set).items()
        members.update(
            name for aggregate, names in aggregates if aggregate not in lingering for name in names & lingering
        )
    return names_by_type({url: members})


def without_unsent_names(facts: ClientFacts, removed: NamesByType) -> NamesByType:
    """The names among ``removed`` that may linger after a move to another group.

    docs/protocol.md#removals: "secrets and endpoints of a former group linger only if the client was sent them".
    """
    guarded = ((url, resource_type(url).kept_on_move, names) for url, names in removed)
    return names_by_type(
        {url: names & _sent_names(facts, url) if is_guarded else names for url, is_guarded, names in guarded}
    )


def without_unsent_resources(facts: ClientFacts, snapshot: Snapshot) -> Snapshot:
    """The snapshot without secrets and endpoints that were not sent to the client; the same object if it has none."""
    sets = dict(snapshot.sets)
    for url, resource_set in snapshot.sets.items():
        names = (
            resource_set.among(_sent_names(facts, url)) if resource_set.type.kept_on_move else resource_set.resources
        )
        if len(names) < len(resource_set):
            sets[url] = facts.releases.mixed(empty_set(url), resource_set, frozenset(names))
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def with_sent_clusters(facts: ClientFacts, names: Set[str]) -> Snapshot:
    """The release, with the clusters among ``names`` only in the versions that were sent to the client last.

    A cluster that was never sent is left out. Once a cluster is removed, another version than the client has would need
    assignments that are removed as well.
    """
    url = facts.url_of("clusters")
    snapshot = facts.released
    watches, clusters = facts.watches.of(url), snapshot.get(url)
    if not watches or not names or facts.watches.may_hold_anything(url):
        return snapshot
    earlier = [each.resources for watch in watches for each in watch.superseded_sets]
    known = facts.watches.acked(url) or empty_set(url)
    for offered in (watch.offered.resource_set for watch in watches if watch.offered is not None):
        known = facts.releases.mixed(known, offered, offered.among(names))

    def is_sent(name: str, version: str) -> bool:
        last = known.resources.get(name)
        if last is not None:
            return last.version == version
        return any(name in each and each[name].version == version for each in earlier)

    unsent = frozenset(name for name in clusters.among(names) if not is_sent(name, clusters.resources[name].version))
    return facts.releases.replaced(snapshot, facts.releases.mixed(clusters, known, unsent)) if unsent else snapshot


def with_accepted_versions(facts: ClientFacts, snapshot: Snapshot, lingering: NamesByType) -> Snapshot:
    """The snapshot with the last accepted versions of lingering resources that the client rejected.

    docs/protocol.md#rejections: "a resource that was rejected and is removed lingers in its last accepted version". No
    push will repair the resource, so its type would stay pending as long as the client subscribes to it.
    """
    if not lingering or not facts.watches.rejects_anything:
        return snapshot
    sets = dict(snapshot.sets)
    for url, names in lingering:
        for watch in facts.watches.pending(url):
            if watch.rejections and (rejected := names & watch.rejections.doubted_in(sets[url])):
                known = watch.known.base
                if facts.watches.may_hold_anything(url):
                    rejected = names & watch.rejections.rejected_in(sets[url])
                    known = facts.logs.stand_ins(url, rejected, watch.rejections)
                    rejected = known.among(rejected)
                elif watch.type.alias in PARTS:  # a cluster may wait for what may turn out to be good
                    known = known or facts.watches.accepted(url, rejected) or empty_set(url)
                    rejected = names & watch.rejections.rejected_in(sets[url]) | known.among(rejected)
                    lacking = rejected.difference(known.resources)
                    known = facts.releases.mixed(known, facts.logs.stand_ins(url, lacking, watch.rejections), lacking)
                sets[url] = facts.releases.mixed(sets[url], known or empty_set(url), rejected)
    return snapshot if sets == snapshot.sets else Snapshot(snapshot.group, snapshot.revision, sets)


def _sent_names(facts: ClientFacts, type_url: str) -> frozenset[str]:
    """The names of a type that were sent to the client or that clusters and listeners sent to it refer to."""
    watches = [watch for url in facts.watches for watch in facts.watches.of(url)]
    referenced = (
        each.name
        for watch in watches
        if watch.type.is_route_target or watch.type.alias == "listeners"
        for sent in watch.sent_sets()
        for resource in sent.resources.values()
        for each in resource.references
        if each.type_url == type_url
    )
    return frozenset(referenced).union(*(watch.sent_names() for watch in facts.watches.of(type_url)))


def _removed_in_use(facts: ClientFacts, url: str, removed: frozenset[str], cold: frozenset[str]) -> frozenset[str]:
    """The names among ``removed`` that the client may use."""
    watches, type = facts.watches.of(url), resource_type(url)
    if facts.watches.may_hold_anything(url):
        return removed
    # On separate streams, each stream may have shown its own names only.
    known_sets = [watch.known.base for watch in watches if watch.known.base is not None]
    names = frozenset().union(*(each.among(removed) for each in known_sets))
    if type.is_route_target:
        names |= removed.intersection(_members_of_changed_aggregates(facts, url))
        if known_sets:  # no content waits for those that are warm, or whose wait has timed out
            names |= removed - (cold - facts.proof.overdue)
    return names


def _members_of_changed_aggregates(facts: ClientFacts, url: str) -> frozenset[str]:
    """The members of released aggregate clusters that the push changes. They stay until the new aggregate is sent.

    docs/protocol.md#additions: "within CDS, new members are sent with the old aggregate cluster, then the new
    aggregate, then removals".
    """
    changed = facts.releases.diff(facts.goal.get(url), facts.released.get(url)).aggregates
    return frozenset().union(*changed.values())


def _named_by_listeners(facts: ClientFacts) -> frozenset[ResourceId]:
    """The resources that released listeners refer to. The client requests them while a newer listener is held."""
    listeners = facts.released.get(facts.url_of("listeners")).resources
    return facts.releases.used_by(frozenset(listeners), facts.released)

"""The parts that the clusters of a client need before they serve: assignments and secrets that it requests here."""

from __future__ import annotations

from xds.model.names import NO_NAMES
from xds.model.resource_type import ROUTE_TARGETS
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.facts import ClientFacts
from xds.snapshots.cluster_references import assignments_of

PARTS = ("endpoints", "secrets")


def unaccepted_parts(facts: ClientFacts) -> tuple[tuple[str, frozenset[str]], ...]:
    """The names of each type of parts that the client requests and has not accepted in any version."""
    return tuple([(alias, facts.watches.unaccepted(facts.url_of(alias), facts.cache.diffs)) for alias in PARTS])


def lacking_parts(facts: ClientFacts, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set with a part that the client requests and has not accepted in any version."""
    clusters_of, unaccepted = facts.releases.clusters_of, unaccepted_parts(facts)
    return frozenset().union(*(clusters_of(clusters, names, alias) for alias, names in unaccepted))


def rejected_parts(facts: ClientFacts, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set with a part that the client rejects and never accepted in another version.

    docs/protocol.md#rejections: "a rejected cluster, or a cluster whose assignment or secret is rejected, holds the
    trees that refer to it".
    """
    if not facts.watches.rejects_anything:
        return NO_NAMES
    rejected = ((alias, frozenset(facts.rejected_versions(facts.url_of(alias)))) for alias in PARTS)
    return frozenset().union(*(facts.releases.clusters_of(clusters, names, alias) for alias, names in rejected))


def unassigned(facts: ClientFacts, clusters: ResourceSet | None = None) -> frozenset[str]:
    """The clusters of a set, or of the newest snapshot, with an assignment that the client requests here, and that does
    not exist.

    Another server has the assignments if the client ACKed clusters on an aggregated stream and requests none there. A
    reconnected client requests its assignments last.
    """
    if facts.is_aggregated and not (requests_assignments(facts) or facts.is_in_return):
        return frozenset()
    clusters = clusters or facts.goal.get(facts.url_of("clusters"))
    return facts.releases.unassigned(clusters, facts.goal.get(facts.url_of("endpoints")), _source(facts))


def unrequested(facts: ClientFacts, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set whose assignment the client does not request, although it requests others.

    A Delta client that rejected a response shows what this removed, but has it no more: what it has, it requests.
    """
    requested = facts.watches.names(facts.url_of("endpoints"))
    return facts.releases.unrequested(clusters, requested, _source(facts)) if requested else NO_NAMES


def clusters_in_use(facts: ClientFacts, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set that a returned client has, in some version: it requested their assignments at first."""
    requested = {name for watch in facts.watches.of(facts.url_of("endpoints")) for name in watch.shown.requested}
    needed = {name: assignments_of((name,), clusters) for name in clusters.resources} if requested else {}
    return frozenset(name for name, each in needed.items() if each and requested.issuperset(each))


def may_be_in_use(facts: ClientFacts, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set that a returned client has, and the aggregate clusters that have these as members."""
    used = clusters_in_use(facts, clusters)
    return used.union(
        name for name, members in facts.releases.members(clusters).items() if not used.isdisjoint(members)
    )


def requests_assignments(facts: ClientFacts) -> bool:
    """Whether the client requests assignments from this server, or has ACKed no cluster that has one."""
    if facts.watches.of(facts.url_of("endpoints")):
        return True
    acked = facts.watches.acked(facts.url_of("clusters"))
    return acked is not None and not facts.releases.by_part(acked, "endpoints", _source(facts))


def proved_at_start(facts: ClientFacts) -> ResourceSet | None:
    """The clusters that are proved of a client that has just started: it goes live when its clusters are warm.

    None before it has ACKed any clusters.
    """
    acked = facts.watches.acked(facts.url_of("clusters"))
    if acked is None:
        return None
    unproved = acked.among(lacking_parts(facts, acked) | unassigned(facts))
    return facts.releases.mixed(acked, empty_set(acked.type.type_url), unproved)


def lacks_named_clusters(facts: ClientFacts, *, is_bounded: bool) -> bool:
    """Whether a client that requests clusters by name (gRPC) lacks clusters to which its routes lead.

    It requests a cluster when it has the route, and its assignment when it has the cluster. Until then it uses the old
    cluster. A response that it has not answered is waited for: it cannot have moved to what it has not read.
    ``is_bounded``: names that it did not request, and what it rejects, are not waited for any longer.
    """
    url, assignments = facts.url_of("clusters"), facts.url_of("endpoints")
    watches, others = facts.watches.of(url), facts.watches.of(assignments)
    if not watches or any(w.subscription.interest.wildcard or w.subscription.interest.globs for w in watches):
        return False
    if any(watch.ack.in_flight is not None for watch in (*watches, *others)):
        return True
    if is_bounded:
        return False
    goal = facts.goal.get(url)
    routes = facts.watches.held_tree_parts()
    led_to = goal.among(
        frozenset(each.name for route in routes for each in route.references if each.type_url in ROUTE_TARGETS)
    )
    accepted = frozenset[str]().union(*(watch.accepted_names() for watch in watches))
    assigned = frozenset[str]().union(*(watch.accepted_names() for watch in others))
    existing = facts.goal.get(assignments).among(assignments_of(led_to, goal))
    return not (led_to <= accepted and existing <= assigned)


def _source(facts: ClientFacts) -> str:
    """The config source of the references that the client requests from this server."""
    return "ads" if facts.is_aggregated else "api"

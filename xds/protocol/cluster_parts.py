"""The parts that the clusters of a client need before they serve: assignments and secrets that it requests here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xds.model.resource_type import ROUTE_TARGETS
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.set_diff import assignments_of

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

PARTS = ("endpoints", "secrets")


def lacking_parts(client: ClientState, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set with a part that the client requests and has not accepted in any version."""
    releases, watches, diffs = client.releases, client.watches, client.cache.diffs
    unaccepted = ((alias, watches.unaccepted(client.url_of(alias), diffs)) for alias in PARTS)
    return frozenset().union(*(releases.clusters_of(clusters, names, alias) for alias, names in unaccepted))


def rejected_parts(client: ClientState, clusters: ResourceSet) -> frozenset[str]:
    """The clusters of a set with a part that the client rejects and never accepted in another version.

    docs/protocol.md#rejections: "a rejected cluster, or a cluster whose assignment or secret is rejected, holds the
    trees that refer to it".
    """
    rejected = ((alias, frozenset(client.rejected_versions(client.url_of(alias)))) for alias in PARTS)
    return frozenset().union(*(client.releases.clusters_of(clusters, names, alias) for alias, names in rejected))


def unassigned(client: ClientState, clusters: ResourceSet | None = None) -> frozenset[str]:
    """The clusters of a set, or of the newest snapshot, with an assignment that the client requests here, and that does
    not exist.

    Another server has the assignments if the client ACKed clusters on an aggregated stream and requests none there. A
    reconnected client requests its assignments last.
    """
    if client.is_aggregated and not (requests_assignments(client) or client.is_in_return):
        return frozenset()
    clusters = clusters or client.goal.get(client.url_of("clusters"))
    return client.releases.unassigned(clusters, client.goal.get(client.url_of("endpoints")), _source(client))


def requests_assignments(client: ClientState) -> bool:
    """Whether the client requests assignments from this server, or has ACKed no cluster that has one."""
    if client.watches.of(client.url_of("endpoints")):
        return True
    acked = client.watches.acked(client.url_of("clusters"))
    return acked is not None and not client.releases.by_assignment(acked, _source(client))


def proved_at_start(client: ClientState) -> ResourceSet | None:
    """The clusters that are proved of a client that has just started: it goes live when its clusters are warm.

    None before it has ACKed any clusters.
    """
    acked = client.watches.acked(client.url_of("clusters"))
    if acked is None:
        return None
    unproved = acked.among(lacking_parts(client, acked) | unassigned(client))
    return client.releases.mixed(acked, empty_set(acked.type.type_url), unproved)


def lacks_named_clusters(client: ClientState, *, is_bounded: bool) -> bool:
    """Whether a client that requests clusters by name (gRPC) lacks clusters to which its routes lead.

    It requests a cluster when it has the route, and its assignment when it has the cluster. Until then it uses the old
    cluster. A response that it has not answered is waited for: it cannot have moved to what it has not read.
    ``is_bounded``: names that it did not request, and what it rejects, are not waited for any longer.
    """
    url, assignments = client.url_of("clusters"), client.url_of("endpoints")
    watches, others = client.watches.of(url), client.watches.of(assignments)
    if not watches or any(w.subscription.interest.wildcard or w.subscription.interest.globs for w in watches):
        return False
    if any(watch.ack.in_flight is not None for watch in (*watches, *others)):
        return True
    if is_bounded:
        return False
    goal = client.goal.get(url)
    routes = client.watches.held_routes(with_inline=True)
    led_to = goal.among(
        frozenset(each.name for route in routes for each in route.references if each.type_url in ROUTE_TARGETS)
    )
    accepted = frozenset[str]().union(*(watch.accepted_names() for watch in watches))
    assigned = frozenset[str]().union(*(watch.accepted_names() for watch in others))
    existing = client.goal.get(assignments).among(assignments_of(led_to, goal))
    return not (led_to <= accepted and existing <= assigned)


def _source(client: ClientState) -> str:
    """The config source of the references that the client requests from this server."""
    return "ads" if client.is_aggregated else "api"

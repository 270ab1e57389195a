"""The requests that a client is expected to send soon, and what is known of its clusters before it sends them.

The server remembers per node id which clients subscribed to clusters (``memory``). A reconnected client requests its
types in any order, and Envoy requests no clusters while one warms: docs/protocol.md#coming-back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from xds.model.resource import Resource
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.trees import listeners_naming

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


def subscribes_to_clusters(client: ClientState) -> bool:
    """Whether the client is known to subscribe to clusters of this server, even before it requests them.

    docs/protocol.md#coming-back: "The server remembers per node id which clients subscribed to clusters"; "On ADS, an
    unknown client counts as subscribed to clusters if it requests the assignment of a served cluster". Clusters of
    retained revisions count too.
    """
    if not client.is_aggregated:
        return False
    url = client.url_of("clusters")
    if client.past.subscribed_to(url):
        return True
    named = client.watches.names(client.url_of("endpoints"))
    return bool(named) and client.cache.refers_to(client.goal, url, named)


def is_returning(client: ClientState, now_s: float) -> bool:
    """Whether a client has just reconnected, so that it may use types that it has not requested yet."""
    return client.returned_s is not None and now_s < client.returned_s + client.rules.return_s


def may_have_warming_listeners(client: ClientState, now_s: float) -> bool:
    """Whether listeners that the client showed when it reconnected may still wait for resources that they name."""
    return client.returned_s is not None and now_s < client.returned_s + client.rules.order_timeout_s


def awaits_cluster_request(client: ClientState, now_s: float) -> bool:
    """Whether a CDS request is expected. On separate streams it comes within ``return_s``, or never."""
    if client.has_requested_clusters:
        # The stream for clusters or listeners may have ended alone. The client has ``return_s`` to open it again.
        are_watched = all(client.watches.of(client.url_of(alias)) for alias in ("clusters", "listeners"))
        ended_s = client.stream_ended_s
        return ended_s is not None and not are_watched and now_s < ended_s + client.rules.return_s
    if client.is_aggregated:
        return subscribes_to_clusters(client)
    return is_returning(client, now_s)


def awaits_content(client: ClientState, now_s: float) -> bool:
    """Whether the client is expected to show or prove content for which its routes wait."""
    if awaits_cluster_request(client, now_s) or shows_cold_clusters(client):
        return True
    return is_returning(client, now_s) and bool(listeners_with_unshown_filters(client))


def shows_cold_clusters(client: ClientState) -> bool:
    """Whether clusters that a reconnected client shows may be cold: on separate streams it ACKs them before."""
    if client.is_aggregated or not (client.has_returned and client.has_requested_clusters):
        return False
    clusters = client.goal.get(client.url_of("clusters"))
    return client.proof.clusters is None or bool(client.unproved(clusters))


def listeners_with_unshown_filters(client: ClientState) -> frozenset[str]:
    """The released listeners that name an extension configuration that the client has not requested yet.

    A reconnected client may hold any version of it, and no route overtakes "a changed extension configuration of that
    listener" (docs/protocol.md#additions).
    """
    url = client.url_of("extension_configs")
    unshown = client.goal.get(url).resources.keys() - client.names_wanted(url)
    return listeners_naming(((url, frozenset(unshown)),), client.released) if unshown else frozenset()


def unremembered_clusters(client: ClientState, type_url: str) -> frozenset[str]:
    """The clusters of the newest snapshot that the client is not known to have used on an earlier connection.

    On separate streams a client ACKs a cluster before it is warm, so only clusters that were warm count. On ADS a
    client requests the assignments of all its clusters and has their secrets. A memory with other clusters is therefore
    of another proxy with the same node id.
    """
    held, goal = (
        client.last_acked(type_url) if client.is_aggregated else client.past.warm_clusters,
        client.goal.get(type_url),
    )
    if held is None or (
        client.is_aggregated and not client.watches.of(type_url) and not _has_dependencies_of(client, held)
    ):
        return frozenset(goal.resources)
    return client.releases.diff(held, goal).added


def _has_dependencies_of(client: ClientState, clusters: ResourceSet) -> bool:
    """Whether the client requests the assignments of these clusters and has their secrets."""
    secrets = (watch.accepted_names() for watch in client.watches.of(client.url_of("secrets")))
    found = clusters.resources.values()
    if lacks_dependency(found, frozenset().union(*secrets), "secrets"):
        return False
    return not lacks_dependency(found, client.names_wanted(client.url_of("endpoints")), "endpoints")


def lacks_dependency(clusters: Iterable[Resource], names: Collection[str], alias: str) -> bool:
    """Whether some of these clusters refers to a resource of the type ``alias`` on ADS that is not among ``names``."""
    return any(
        each.source == "ads" and alias_of(each.type_url) == alias and each.name not in names
        for cluster in clusters
        for each in cluster.references
    )

"""What a client is expected to request or to show yet, and what is known of its clusters until it does.

The server remembers per node id which clients subscribed to clusters (``memory``). A reconnected client requests its
types in any order, and Envoy requests no clusters while one warms: docs/protocol.md#coming-back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.trees import listeners_naming

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


def takes_clusters(client: ClientState) -> bool:
    """Whether the client is known to subscribe to clusters of this server, even before it requests them.

    docs/protocol.md#coming-back: "The server remembers per node id which clients subscribed to clusters"; "On ADS, an
    unknown client counts as subscribed to clusters if it requests the assignment of a served cluster". Clusters of
    retained revisions count too.
    """
    if not client.is_aggregated:
        return False
    url = client.url_of("clusters")
    if client.past.has(url):
        return True
    named = client.watches.names(client.url_of("endpoints"))
    return bool(named) and client.cache.refers_to(client.goal, url, named)


def is_returning(client: ClientState, now_s: float) -> bool:
    """Whether a client that has just reconnected may have types that it did not request yet."""
    return client.returned_s is not None and now_s < client.returned_s + client.rules.return_s


def may_have_unready(client: ClientState, now_s: float) -> bool:
    """Whether listeners that the client showed may still wait for what they name."""
    return client.returned_s is not None and now_s < client.returned_s + client.rules.order_timeout_s


def awaits_clusters(client: ClientState, now_s: float) -> bool:
    """Whether a CDS request is expected. On separate streams it comes within ``return_s``, or never."""
    if client.has_clusters:  # their stream may have ended alone, and come back
        are_here = all(client.watches.of(client.url_of(alias)) for alias in ("clusters", "listeners"))
        return client.left_s is not None and not are_here and now_s < client.left_s + client.rules.return_s
    if client.is_aggregated:
        return takes_clusters(client)
    return is_returning(client, now_s)


def awaits_content(client: ClientState, now_s: float) -> bool:
    """Whether the client may yet show or prove something that decides when routes may be sent to it."""
    if awaits_clusters(client, now_s) or shows_cold(client):
        return True
    return is_returning(client, now_s) and bool(over_unshown_filters(client))


def shows_cold(client: ClientState) -> bool:
    """Whether some cluster that a returned client shows may be cold: on separate streams it ACKs a cluster before."""
    if client.is_aggregated or not (client.has_returned and client.has_clusters):
        return False
    clusters = client.goal.get(client.url_of("clusters"))
    return client.warm is None or bool(client.releases.added(client.warm, clusters))


def over_unshown_filters(client: ClientState) -> frozenset[str]:
    """The released listeners that name an extension configuration that the client did not request yet.

    While it returns, it may hold any: docs/protocol.md#additions, "a route never overtakes [...] a changed extension
    configuration of that listener".
    """
    url = client.url_of("extension_configs")
    unshown = client.goal.get(url).resources.keys() - client.names_wanted(url)
    return listeners_naming(((url, frozenset(unshown)),), client.released) if unshown else frozenset()


def not_remembered(client: ClientState, type_url: str) -> frozenset[str]:
    """Clusters of the newest snapshot that the client is not known to have used on an earlier connection.

    On separate streams a client ACKs a cluster before it is warm, so only clusters known to be warm count there. On ADS
    it requests the assignments of all its clusters, and has their secrets: a memory of others is of another proxy with
    its node id.
    """
    held, goal = client.last_acked(type_url) if client.is_aggregated else client.past.warm, client.goal.get(type_url)
    if held is None or (client.is_aggregated and not client.watches.of(type_url) and not _has_parts_for(client, held)):
        return frozenset(goal.resources)
    return client.releases.added(held, goal)


def _has_parts_for(client: ClientState, clusters: ResourceSet) -> bool:
    """Whether the client requests the assignments of these clusters and has their secrets."""
    found = (watch.arrived() for watch in client.watches.of(client.url_of("secrets")))
    if lacks_part(clusters, frozenset().union(*found), "secrets"):
        return False
    return not lacks_part(clusters, client.names_wanted(client.url_of("endpoints")), "endpoints")


def lacks_part(clusters: ResourceSet, names: Collection[str], alias: str) -> bool:
    """Whether some cluster refers to a resource of this type on the aggregated stream that is not among ``names``."""
    return any(
        each.source == "ads" and alias_of(each.type_url) == alias and each.name not in names
        for cluster in clusters.resources.values()
        for each in cluster.references
    )

"""The requests that a client is expected to send soon, and what is known of its clusters before it sends them.

A client that returns requests its types in any order, and Envoy requests no clusters while one warms:
docs/protocol.md#coming-back.
"""

from __future__ import annotations

from itertools import chain

from xds.model.resource_type import alias_of
from xds.protocol.facts import ClientFacts


def subscribes_to_clusters(facts: ClientFacts) -> bool:
    """Whether the client is known to subscribe to clusters of this server, even before it requests them.

    docs/protocol.md#coming-back: "On ADS, a client counts as subscribed to clusters if it requests the assignment of a
    served cluster". Clusters of the removal log count too, and those of its former groups.
    """
    if not facts.is_aggregated:
        return False
    url = facts.url_of("clusters")
    named = facts.watches.names(facts.url_of("endpoints"))
    if not named:
        return False
    logs, diffs = facts.logs, facts.cache.diffs
    served = (facts.goal.get(url), *logs.former_sets(url))
    if any(not named.isdisjoint(diffs.assignments(None, each)) for each in served):
        return True
    return any(
        each.name in named and alias_of(each.type_url) == "endpoints"
        for log in logs.all
        for name in log.names(url)
        for cluster in log.versions(url, name)
        for each in cluster.references
    )


def is_returning(facts: ClientFacts, now_s: float) -> bool:
    """Whether a client has just reconnected, so that it may use types that it has not requested yet."""
    return facts.returned_s is not None and now_s < facts.returned_s + facts.rules.return_s


def awaits_cluster_request(facts: ClientFacts, now_s: float) -> bool:
    """Whether a CDS request is expected. On separate streams it comes within ``return_s``, or never."""
    if facts.watches.of(facts.url_of("clusters")):
        # The stream for listeners may have ended alone. The client has ``return_s`` to open it again.
        return not facts.watches.of(facts.url_of("listeners")) and is_returning(facts, now_s)
    return subscribes_to_clusters(facts) if facts.is_aggregated else is_returning(facts, now_s)


def unproved_by_assignments(facts: ClientFacts, type_url: str) -> frozenset[str]:
    """The clusters of the newest snapshot that a returned client does not prove while it does not request clusters."""
    newest = frozenset(facts.goal.get(type_url).resources)
    return newest - proved_by_assignments(facts, type_url) if facts.is_aggregated else newest


def proved_by_assignments(facts: ClientFacts, type_url: str) -> frozenset[str]:
    """The clusters of the newest snapshot and of the log that a returned client proves without a request for clusters.

    Envoy requests no clusters on a new stream while one warms. A cluster is proved then if the client ACKed its
    assignment on this stream, no other cluster of the newest set or the log has that assignment, and no version of the
    cluster has health checks or secrets. The sets and logs of its former groups count too.
    """
    accepted = frozenset[str]().union(*(w.accepted_names() for w in facts.watches.of(facts.url_of("endpoints"))))
    users: dict[str, set[str]] = {}
    unprovable = set[str]()
    logs = facts.logs
    newest = (
        each
        for clusters in (facts.goal.get(type_url), *logs.former_sets(type_url))
        for each in clusters.resources.values()
    )
    logged = (each for log in logs.all for name in log.names(type_url) for each in log.versions(type_url, name))
    for cluster in chain(newest, logged) if accepted else ():
        for each in cluster.references:
            if alias_of(each.type_url) == "endpoints":
                users.setdefault(each.name, set()).add(cluster.name)
            elif alias_of(each.type_url) == "secrets":
                unprovable.add(cluster.name)
        if cluster.first_check_s:
            unprovable.add(cluster.name)
    proved = (each for name, each in users.items() if name in accepted and len(each) == 1)
    return frozenset().union(*proved) - unprovable

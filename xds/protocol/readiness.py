"""The cold clusters of a client: those that are not proved to be warm. Content that refers to a cold cluster waits.

docs/internals/engine.md#proof has what proves a cluster, docs/internals/engine.md#what-waits how long content waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource import Reference, Resource
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.cluster_parts import (
    lacking_parts,
    rejected_parts,
    requests_assignments,
    unaccepted_parts,
    unassigned,
    unrequested,
)
from xds.protocol.expected_requests import unproved_by_assignments
from xds.protocol.facts import ClientFacts
from xds.snapshots.cold import ColdInputs, find_cold

NO_TIMES: Mapping[str, float] = MappingProxyType({})


class Wait(NamedTuple):
    """Cold clusters that content has waited for since the same time."""

    since_s: float
    names: frozenset[str]


class ColdClusters(NamedTuple):
    """The clusters of the newest snapshot that are cold.

    * ``unassigned``: clusters whose assignment the client requests here, and that does not exist;
    * ``rejected``: clusters that the client rejects, or whose assignments it rejects.
    """

    names: frozenset[str] = NO_NAMES
    unassigned: frozenset[str] = NO_NAMES
    rejected: frozenset[str] = NO_NAMES


NOTHING_COLD = ColdClusters()


class Readiness(NamedTuple):
    """The clusters that one transition waits for, as they were at its last step.

    * ``waits``: since when content waits for cold clusters, those together that became cold together;
    * ``is_one_by_one``: CDS was not ACKed for ``offer_timeout_s``, so clusters are proved one by one;
    * ``acked_since_s``, on separate streams: since when CDS is ACKed; None while it is not;
    * ``warm_from_s``, on separate streams: from when a cluster with all its ACKs counts as warm; 0 once it does.
    """

    cold: ColdClusters = NOTHING_COLD
    waits: tuple[Wait, ...] = ()
    is_one_by_one: bool = False
    acked_since_s: float | None = None
    warm_from_s: Mapping[str, float] = NO_TIMES


def find_cold_clusters(facts: ClientFacts, warm_from_s: Mapping[str, float], proved: frozenset[str]) -> ColdClusters:
    """The clusters of the newest snapshot that are cold now, without those ``proved`` although CDS is not ACKed."""
    lacking = unassigned(facts)
    names = _find_cold(facts, lacking, warm_from_s)
    names = names - proved if proved else names
    rejected = NO_NAMES
    if names and facts.watches.rejects_anything:
        clusters = facts.goal.get(facts.url_of("clusters"))
        rejected = rejected_parts(facts, clusters) | facts.watches.doubted_in(clusters)
    return ColdClusters(names, lacking, rejected)


def with_cold_clusters(
    facts: ClientFacts, before: Readiness, cold: ColdClusters, warm_from_s: Mapping[str, float], now_s: float
) -> Readiness:
    """The readiness with the clusters that are cold now; the same object if it is as it was."""
    acked_since_s = None
    if not facts.is_aggregated and facts.watches.pending_since_s(facts.url_of("clusters")) is None:
        acked_since_s = now_s if before.acked_since_s is None else before.acked_since_s
    # Most often equal sets are one object. Python compares even these name by name.
    is_same = cold.names is before.cold.names or cold.names == before.cold.names
    repaired = before.cold.rejected - cold.rejected
    waits = before.waits if is_same and not repaired else _waiting(before.waits, cold.names, repaired, now_s)
    after = Readiness(cold, waits, before.is_one_by_one, acked_since_s, warm_from_s)
    return before if after == before else after


def expire_readiness(facts: ClientFacts, clusters: Readiness, now_s: float) -> tuple[Readiness, frozenset[str]]:
    """The state after the waits that have timed out; and the clusters whose wait is over."""
    over = (each.names for each in clusters.waits if _wait_ends_s(facts, clusters, each.since_s) <= now_s)
    pending_s = facts.watches.pending_since_s(facts.url_of("clusters"))
    is_one_by_one = pending_s is not None and now_s >= pending_s + facts.rules.offer_timeout_s
    warm_from_s = {name: due_s if due_s > now_s else 0.0 for name, due_s in clusters.warm_from_s.items()}
    after = clusters._replace(is_one_by_one=clusters.is_one_by_one or is_one_by_one, warm_from_s=warm_from_s)
    return after, frozenset().union(*over) - clusters.cold.rejected


def readiness_deadlines_s(facts: ClientFacts, clusters: Readiness) -> list[float]:
    """When the readiness changes if no request or push comes before."""
    ended = facts.proof.overdue | clusters.cold.rejected
    waiting = [each for each in clusters.waits if not (ended and each.names <= ended)]
    due_s = [_wait_ends_s(facts, clusters, each.since_s) for each in waiting]
    if clusters.warm_from_s:
        due_s += filter(None, clusters.warm_from_s.values())
    if clusters.cold.names and not clusters.is_one_by_one:
        pending_s = facts.watches.pending_since_s(facts.url_of("clusters"))
        if pending_s is not None:
            due_s.append(pending_s + facts.rules.offer_timeout_s)
    return due_s


def overdue_clusters(facts: ClientFacts, cold: ColdClusters) -> frozenset[str]:
    """The cold clusters that nothing waits for again while their assignment does not exist."""
    return (facts.proof.overdue & cold.unassigned) - cold.rejected if facts.is_aggregated else NO_NAMES


def proved_clusters(facts: ClientFacts, cold: ColdClusters) -> ResourceSet | None:
    """The clusters that are proved now (`Proof`): those that were, and those that have become warm since.

    A later snapshot may lack them. Then they linger in these versions, and the client shows them when it reconnects.
    Aggregate clusters are not added: a newer version may need members that the later snapshot lacks.
    """
    url, before = facts.url_of("clusters"), facts.proof.clusters
    acked, goal = facts.watches.acked(url), facts.goal.get(url).resources
    if before is None or acked is None or acked is before:
        return before
    new = facts.releases.diff(before, acked).added_or_changed - cold.names
    warm = {name for name in new if name in goal and goal[name].version == acked.resources[name].version}
    warm -= facts.releases.members(acked).keys()
    return facts.releases.mixed(before, acked, frozenset(warm))


def proved_at_end(facts: ClientFacts, cold: frozenset[str]) -> ResourceSet | None:
    """The clusters that are proved when the transition is over: all but ``cold`` and lingering ones, and those of the
    lingering ones that were proved before.
    """
    url = facts.url_of("clusters")
    acked, goal = facts.watches.acked(url), facts.goal.get(url)
    if acked is None or (acked is goal and not cold):
        return acked
    unproved = cold | (facts.releases.diff(goal, acked).added & facts.unproved(acked))
    return facts.releases.mixed(acked, empty_set(url), acked.among(unproved))


def holds_content(facts: ClientFacts, clusters: ColdClusters, names: Iterable[str], *, is_unreadable: bool) -> bool:
    """Whether content that refers to these clusters waits. Unreadable content may refer to any cold cluster."""
    cold, overdue = clusters.names, facts.proof.overdue
    named = cold.intersection(names)
    if any(name not in overdue or waits_without_limit(facts, clusters, name) for name in named):
        return True
    return is_unreadable and not cold <= overdue


def waits_without_limit(facts: ClientFacts, clusters: ColdClusters, name: str) -> bool:
    """Whether content waits for this cold cluster without a time limit: it is rejected, or can still be proved.

    On an aggregated stream the ACK of CDS also proves a cluster that cannot be proved alone, unless another such
    cluster is cold: Envoy may withhold the ACK because of the other one.
    """
    if name in clusters.rejected:
        return True
    if name in clusters.unassigned or name in unassigned(facts, facts.watches.acked(facts.url_of("clusters"))):
        return False  # in the version that the client has, too: the newest one may have to wait for a listener
    if facts.is_aggregated:
        others = clusters.names.difference(clusters.unassigned, (name,))
        return _is_newest_provable_alone(facts, name) or all(
            _is_newest_provable_alone(facts, other) for other in others
        )
    requested = facts.watches.names(facts.url_of("endpoints"))
    cluster = facts.goal.get(facts.url_of("clusters")).resources[name]
    is_requested = any(each.name in requested for each in _assignments(cluster))
    return is_requested and _is_provable_alone(facts, cluster)


def _wait_ends_s(facts: ClientFacts, clusters: Readiness, since_s: float) -> float:
    """When a wait for a cluster that began at ``since_s`` times out."""
    rules = facts.rules
    is_bounded = facts.is_aggregated or facts.has_requested_assignments
    if is_bounded or clusters.acked_since_s is None or requests_assignments(facts):
        return since_s + rules.order_timeout_s
    # No stream requests assignments: another server serves them, or the first request comes soon after the ACK.
    return max(since_s, clusters.acked_since_s) + min(rules.return_s, rules.order_timeout_s)


def _find_cold(facts: ClientFacts, lacking: frozenset[str], warm_from_s: Mapping[str, float]) -> frozenset[str]:
    """The cold clusters. ``lacking`` are those without an assignment."""
    url, watches = facts.url_of("clusters"), facts.watches
    goal, acked = facts.goal.get(url), watches.acked(url)
    if not watches.of(url):
        return unproved_by_assignments(facts, url) if facts.is_awaited else NO_NAMES
    if acked is None and not facts.is_live:
        return NO_NAMES
    acked, rejected = acked or empty_set(url), rejected_parts(facts, goal)
    is_aggregated = facts.is_aggregated
    shows_versions = is_aggregated and any(watch.shown.has_versions for watch in watches.of(url))
    inputs = ColdInputs(
        goal,
        facts.released.get(url),
        acked,
        tuple(watch.offered.resource_set for watch in watches.pending(url) if watch.offered is not None),
        facts.proof.clusters,
        unaccepted_parts(facts) if is_aggregated else (),
        lacking,
        unrequested(facts, acked) if shows_versions else NO_NAMES,
        rejected,
        is_aggregated=is_aggregated,
        awaits_assignments=facts.is_in_return and not watches.of(facts.url_of("endpoints")),
    )
    cold = facts.releases.results.of(find_cold, inputs, facts.releases)
    if not is_aggregated and (unproved := facts.unproved(acked) & goal.resources.keys()):
        cold |= {name for name in unproved if warm_from_s.get(name) != 0.0}
    if cold and facts.view.order.proceed_on_nack:
        cold = cold.difference(facts.rejected_versions(url), rejected)
    return cold


def proved_one_by_one(facts: ClientFacts) -> frozenset[str]:
    """The cold clusters in the CDS response in flight that are proved one by one, because its ACK is withheld.

    If the client rejects the response, it keeps the version that was sent before. So both versions must be proved.
    """
    url = facts.url_of("clusters")
    watches = facts.watches.of(url)
    offered = [watch.offered.resource_set for watch in watches if watch.offered is not None]
    if not offered:
        return NO_NAMES
    sent = [*offered, *(each for watch in watches for each in watch.superseded_sets)]
    arrived = _accepted_assignments(facts)
    goal = facts.goal.get(url).resources

    def is_proved(cluster: Resource) -> bool:
        return _is_provable_alone(facts, cluster) and arrived.issuperset(each.name for each in _assignments(cluster))

    return frozenset(
        name
        for name in find_cold_clusters(facts, NO_TIMES, NO_NAMES).names
        if all(name in each.resources for each in offered)
        and all(is_proved(each) for each in _versions(name, (goal, *(each_set.resources for each_set in sent))))
    )


def find_warm_from_s(facts: ClientFacts, before: Mapping[str, float], now_s: float) -> Mapping[str, float]:
    """On separate streams: from when the unproved clusters with all their ACKs count as warm; 0 for now.

    docs/protocol.md#additions: "on separate streams, a cluster with an assignment is warm when it, the assignment and
    its secrets have been ACKed for `offer_timeout_s`, and its first health check may have finished".
    """
    if facts.is_aggregated:
        return NO_TIMES
    url = facts.url_of("clusters")
    acked, goal = facts.watches.acked(url), facts.goal.get(url).resources
    if acked is None or not (names := facts.unproved(acked) & goal.keys()):
        return NO_TIMES
    warm_from_s = {}
    for name in names - lacking_parts(facts, acked):
        cluster = goal[name]
        if acked.resources[name].version == cluster.version:
            is_assigned = any(each.source == "api" for each in _assignments(cluster))
            wait_s = cluster.first_check_s + (facts.rules.offer_timeout_s if is_assigned else 0.0)
            warm_from_s[name] = before.get(name, now_s + wait_s if wait_s else 0.0)
    return warm_from_s


def _is_newest_provable_alone(facts: ClientFacts, name: str) -> bool:
    """Whether the ACK of its assignment alone can prove that the newest version of a cluster is warm."""
    cluster = facts.goal.get(facts.url_of("clusters")).resources.get(name)
    return cluster is not None and _is_provable_alone(facts, cluster)


def _is_provable_alone(facts: ClientFacts, cluster: Resource) -> bool:
    if cluster.first_check_s or not _has_secrets(facts, cluster):
        return False
    source = "ads" if facts.is_aggregated else "api"
    return any(each.source == source for each in _assignments(cluster))


def _has_secrets(facts: ClientFacts, cluster: Resource) -> bool:
    """Whether the client has all secrets that a cluster needs to become warm."""
    return all(
        any(watch.has_accepted(each.name) for watch in facts.watches.of(each.type_url))
        for each in cluster.references
        if alias_of(each.type_url) == "secrets" and each.source in ("ads", "api")
    )


def _accepted_assignments(facts: ClientFacts) -> frozenset[str]:
    """The names of the assignments that the client has ACKed."""
    return frozenset().union(*(watch.accepted_names() for watch in facts.watches.of(facts.url_of("endpoints"))))


def _assignments(cluster: Resource) -> list[Reference]:
    return [each for each in cluster.references if alias_of(each.type_url) == "endpoints"]


def _waiting(waits: Iterable[Wait], cold: frozenset[str], repaired: frozenset[str], now_s: float) -> tuple[Wait, ...]:
    """The waits for clusters that are still ``cold``; those for others and for the ``repaired`` begin now."""
    going_on = cold - repaired if repaired else cold
    kept = [each if each.names <= going_on else Wait(each.since_s, each.names & going_on) for each in waits]
    new = cold.difference(*(each.names for each in kept)) if kept else cold
    return tuple(each for each in (*kept, Wait(now_s, new)) if each.names)


def _versions(name: str, sets: Iterable[Mapping[str, Resource]]) -> list[Resource]:
    """The resources of a name in these sets, each version once."""
    return list({each.version: each for resources in sets if (each := resources.get(name)) is not None}.values())

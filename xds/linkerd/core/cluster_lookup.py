"""Destinations among the resources of a group: clusters by name and by virtual host, their assignments and rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from xds.codec.schema import parsed_or_empty
from xds.linkerd.core.assignment_endpoints import (
    SKIPPED_LIMIT,
    AssignmentOptions,
    endpoints_of_assignment,
    read_assignment,
)
from xds.linkerd.core.authority import Authority, Grammar, NamingRules, is_label, read_authority
from xds.linkerd.core.endpoint import FoundEndpoints
from xds.linkerd.core.mesh_state import DestinationRules
from xds.linkerd.core.omission import cluster_omissions
from xds.linkerd.core.profile import RetryBudget
from xds.linkerd.core.route_profile import cluster_budget, default_cluster, host_rules
from xds.linkerd.core.route_terms import ProfileRules
from xds.linkerd.core.virtual_hosts import NamedHost, addresses_of, find_host, hosts_of
from xds.model.errors import RemoteProtocolError
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import Snapshot

_CLUSTERS_CACHED = 1024
_EDS = 3  # envoy.config.cluster.v3.Cluster.DiscoveryType
_ISTIO = "outbound|"
_AGGREGATE = "envoy.extensions.clusters.aggregate.v3.ClusterConfig"
_NO_RULES = ProfileRules()


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A cluster that a name leads to, and the virtual host that leads to it, if any."""

    name: str
    host: NamedHost | None = None


def find_cluster(authority: Authority, snapshot: Snapshot) -> FoundCluster | None:
    """The cluster that a name leads to: by its own name, else by the default route of a virtual host.

    A name that is foreign to all grammars is found by its exact name, or by a domain that is not ``*``.
    """
    hosts = hosts_of(snapshot.get(ROUTE))
    named = find_host(hosts, authority.host, authority.port, or_any=authority.grammar is not Grammar.FOREIGN)
    for name in _cluster_names(authority):
        if has_cluster(snapshot, name):
            matching = [each for each in named if default_cluster(each.host) == name]
            return FoundCluster(name, matching[0] if len(matching) == 1 else None)
    clusters = {default_cluster(each.host) for each in named}
    if len(clusters) != 1:  # route configurations contradict each other: none counts
        return None
    cluster = clusters.pop()
    return FoundCluster(cluster, named[0]) if cluster and has_cluster(snapshot, cluster) else None


def _cluster_names(authority: Authority) -> Iterator[str]:
    """The names of clusters that an authority may mean, the most specific first."""
    yield str(authority)
    yield authority.host
    label = authority.candidates[0].label if authority.candidates else ""
    own = authority.host.removeprefix(f"{label}.") if label else authority.host
    yield f"{_ISTIO}{authority.port}|{label}|{own}"  # as Istio names them
    for candidate in authority.candidates:
        if not candidate.datacenter:
            yield f"{candidate.label}.{candidate.service}" if candidate.label else candidate.service


def has_cluster(snapshot: Snapshot, name: str) -> bool:
    """Whether a group has a cluster, or at least an assignment, of this name."""
    return name in snapshot.get(CLUSTER).resources or name in snapshot.get(ENDPOINT).resources


@lru_cache(_CLUSTERS_CACHED)
def _cluster(resource: Resource) -> Any:
    return parsed_or_empty(CLUSTER, resource.body)


@lru_cache(_CLUSTERS_CACHED)
def _omissions(resource: Resource) -> tuple[str, ...]:
    return cluster_omissions(_cluster(resource))


@lru_cache(_CLUSTERS_CACHED)
def _own_assignment(resource: Resource, options: AssignmentOptions) -> FoundEndpoints:
    return endpoints_of_assignment(_cluster(resource).load_assignment, options)


def cluster_endpoints(snapshot: Snapshot, name: str, rules: DestinationRules) -> FoundEndpoints:
    """The endpoints of a cluster. An aggregate has those of its first member that has any, as with priorities."""
    is_settled, skipped, clusters = True, list[str](), snapshot.get(CLUSTER).resources
    for member in _leaves(snapshot, name):
        if not has_cluster(snapshot, member):
            skipped.append(f"aggregate: there is no cluster {member!r:.80}")
            continue
        answer = _endpoints(snapshot, member, rules)
        skipped += _omissions(clusters[member]) if member in clusters else ()
        is_settled = is_settled and answer.is_settled
        skipped += answer.skipped
        if answer.endpoints:
            return FoundEndpoints(answer.endpoints, tuple(skipped[:SKIPPED_LIMIT]), is_settled)
    return FoundEndpoints((), tuple(skipped[:SKIPPED_LIMIT]), is_settled)


def _leaves(snapshot: Snapshot, name: str) -> Iterator[str]:
    """The cluster itself, or for an aggregate its members in order, each once, with those of nested aggregates."""
    clusters, visited, pending = snapshot.get(CLUSTER).resources, set[str](), [name]
    while pending:
        one = pending.pop()
        if one not in visited:
            visited.add(one)
            resource = clusters.get(one)
            members = _members(resource) if resource is not None else None
            if members is None:
                yield one
            else:
                pending += reversed(members)


@lru_cache(_CLUSTERS_CACHED)
def _members(resource: Resource) -> tuple[str, ...] | None:
    """The clusters of an aggregate; None for any other cluster."""
    config = _cluster(resource).cluster_type.typed_config
    kind = config.type_url.rpartition("/")[2]
    return tuple(parsed_or_empty(kind, config.value).clusters) if kind == _AGGREGATE else None


def _endpoints(snapshot: Snapshot, name: str, rules: DestinationRules) -> FoundEndpoints:
    """The endpoints of a cluster: those of its assignment, or those in the cluster itself."""
    resource = snapshot.get(CLUSTER).resources.get(name)
    assignments = snapshot.get(ENDPOINT).resources
    if resource is None:
        return read_assignment(assignments[name], AssignmentOptions(rules.mesh, rules.has_ipv6))
    cluster = _cluster(resource)
    weighs_localities = (
        cluster.common_lb_config.WhichOneof("locality_config_specifier") == "locality_weighted_lb_config"
    )
    options = AssignmentOptions(rules.mesh, rules.has_ipv6, weighs_localities)
    if cluster.WhichOneof("cluster_discovery_type") == "type" and cluster.type != _EDS:
        return _own_assignment(resource, options)
    if cluster.WhichOneof("cluster_discovery_type") == "cluster_type":
        omission = f"cluster_type {cluster.cluster_type.name!r:.80} has no endpoints of its own"
        return FoundEndpoints(skipped=(omission,))
    assignment = assignments.get(cluster.eds_cluster_config.service_name or name)
    if assignment is None:
        return FoundEndpoints(is_settled=False)  # its assignment does not exist yet
    return read_assignment(assignment, options)


def cluster_rules(
    snapshot: Snapshot, cluster: FoundCluster, own: str, port: int, rules: DestinationRules
) -> tuple[ProfileRules, RetryBudget]:
    """The rules and the retry budget of the profile of a cluster."""
    resource = snapshot.get(CLUSTER).resources.get(cluster.name)
    budget = cluster_budget(_cluster(resource), rules.budget) if resource is not None else rules.budget
    if cluster.host is None:
        return _NO_RULES, budget
    return host_rules(cluster.host.host, own, partial(name_cluster, rules.naming, port)), budget


def name_cluster(naming: NamingRules, port: int, cluster: str) -> str:
    """The authority by which clients request a cluster; empty if no name leads to it."""
    texts = [f"{cluster}:{port}"]
    if cluster.startswith(_ISTIO):
        own, label, host = (*cluster.removeprefix(_ISTIO).split("|", 2), "", "")[:3]
        texts.append(f"{label}.{host}:{own}" if label else f"{host}:{own}")
    return next((text for text in texts if _leads_to(text, cluster, naming)), "")


def _leads_to(text: str, cluster: str, naming: NamingRules) -> bool:
    """Whether a text is a valid authority for a client, and leads to the cluster."""
    if not is_dns_name(text.rpartition(":")[0]):
        return False
    try:
        return cluster in _cluster_names(read_authority(text, naming))
    except RemoteProtocolError:
        return False


def is_dns_name(text: str) -> bool:
    """Whether a linkerd2-proxy accepts a text as a name: labels of letters, digits, underscores and inner hyphens.

    The last label must not be a number.
    """
    labels = text.split(".")
    return len(text) <= 253 and all(map(is_label, labels)) and not labels[-1].isdigit()


def is_tcp_only(snapshot: Snapshot, cluster: str) -> bool:
    """Whether only TCP proxies lead to a cluster, so that its connections are streams of bytes."""
    listeners = addresses_of(snapshot.get(LISTENER)).values()
    if not any(bound is not None and bound.cluster == cluster for bound in listeners):
        return False
    return all(default_cluster(each.host) != cluster for each in hosts_of(snapshot.get(ROUTE)))


def bound_cluster(snapshot: Snapshot, address: str, port: int) -> FoundCluster | bool | None:
    """The cluster behind the address of a listener; None where no listener has it, False where several have.

    Behind an HTTP listener it is the cluster of the only virtual host, else of the virtual host for ``*``.
    """
    listeners = addresses_of(snapshot.get(LISTENER))
    if (address, port) not in listeners:
        return None
    bound = listeners[address, port]
    if bound is None:
        return False
    if bound.cluster:
        return FoundCluster(bound.cluster)
    if bound.inline is not None:
        hosts = [NamedHost(bound.listener, host) for host in bound.inline.virtual_hosts]
    else:
        all_hosts = hosts_of(snapshot.get(ROUTE))
        hosts = [each for each in all_hosts if each.route_configuration == bound.route_configuration]
    candidates = hosts if len(hosts) == 1 else [each for each in hosts if "*" in each.host.domains]
    cluster = default_cluster(candidates[0].host) if candidates else ""
    return FoundCluster(cluster, candidates[0]) if cluster else None

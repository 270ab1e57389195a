"""Clusters of resolvers: one for each resolver; with failover an aggregate cluster, and one for each target. Pure.

Load balancing, limits and outlier detection are set on clusters with endpoints, not on an aggregate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from xds.codec.findings import FieldPath, short_repr
from xds.filter.expression import FilterError
from xds.filter.filter import compile_filter
from xds.mesh.core.chain.chain import ChainTarget, ResolverNode
from xds.mesh.core.entries.defaults import PassiveHealthCheck, ServiceDefaults, UpstreamLimits
from xds.mesh.core.entries.resolver import LoadBalancer, RingHashConfig, ServiceResolver
from xds.mesh.core.lower.envoy_fields import (
    HTTP2_OPTIONS,
    HTTP2_PROTOCOLS,
    Json,
    ads,
    duration,
    extension,
    non_empty,
    typed_config,
)
from xds.mesh.core.lower.lowered import UPSTREAM, EntryPlace, LoweredAssignment, LoweredResource
from xds.mesh.core.lower.mesh_names import cluster_name, leg_name
from xds.mesh.core.lower.upstream_context import UpstreamContext
from xds.model.resource_type import CLUSTER
from xds.services.core.binding import Binding
from xds.services.core.instance import INSTANCE_SHAPE

INVALID_FILTER = "invalid_filter"  # code of a finding: the filter of a subset cannot be evaluated on instances
_AGGREGATE = "envoy.clusters.aggregate"
_AGGREGATE_CONFIG = "envoy.extensions.clusters.aggregate.v3.ClusterConfig"
_TLS = "envoy.transport_sockets.tls"
_TLS_CONTEXT = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_BALANCING = "envoy.load_balancing_policies"
_BALANCERS = "envoy.extensions.load_balancing_policies"
_MINIMUM_RING_SIZE = 1024  # Envoy's default
_EDS = ("EDS", 3)
_FILTERS_CACHED = 8_192

_NOT_IN_GRPC = ("random", "maglev")
_POLICIES = {
    "": None,
    "random": "RANDOM",
    "round_robin": None,  # Envoy's default
    "least_request": "LEAST_REQUEST",
    "ring_hash": "RING_HASH",
    "maglev": "MAGLEV",
}


@dataclass(frozen=True, slots=True)
class ResolverClusters:
    """The clusters of a resolver and their assignments. ``name`` is the cluster that routes lead to."""

    name: str
    clusters: tuple[LoweredResource, ...]
    assignments: tuple[LoweredAssignment, ...]


def lower_resolver(context: UpstreamContext, node: ResolverNode) -> ResolverClusters | None:
    """The clusters of a resolver; None where its target cannot be reached, with a warning.

    A failover target that cannot be reached is left out, with a warning.
    """
    first = context.target(node)
    obstacle = context.obstacle(first)
    if obstacle:
        context.warn("unreachable", f"left out: {obstacle}")
        return None
    targets = (first, *_reachable(context, node))
    for target in targets:
        _check_filter(context, target)
    if node.load_balancer is not None:
        _check_balancer(context, first, node.load_balancer)
    base = cluster_name(context.chain, first)
    if len(targets) > 1 and context.has_aggregates:
        return _with_aggregate(context, node, base, targets)
    _check_shared_tls(context, targets)
    cluster = _with_escape_hatch(context, _cluster(context, node, base, targets))
    assignments = (_assignment(context, node, base, targets),) if _has_assignment(cluster) else ()
    return ResolverClusters(base, (cluster,), assignments)


def _reachable(context: UpstreamContext, node: ResolverNode) -> Iterator[ChainTarget]:
    for key in node.failover:
        target = context.chain.targets[key]
        obstacle = context.obstacle(target)
        if obstacle:
            context.warn("unreachable", f"the failover of {node.target!r} leaves out {obstacle}")
        else:
            yield target


def _with_aggregate(
    context: UpstreamContext, node: ResolverNode, base: str, targets: tuple[ChainTarget, ...]
) -> ResolverClusters:
    names = [leg_name(base, index) for index in range(len(targets))]
    content = {
        "name": base,
        "alt_stat_name": base,
        "connect_timeout": duration(node.connect_timeout_ns),
        "cluster_type": {"name": _AGGREGATE, "typed_config": typed_config(_AGGREGATE_CONFIG, clusters=names)},
        "lb_policy": "CLUSTER_PROVIDED",
    }
    aggregate = _resource(context, node, content, targets)
    legs = [_cluster(context, node, name, (target,)) for name, target in zip(names, targets, strict=True)]
    assignments = [
        _assignment(context, node, name, (target,), is_member=True) for name, target in zip(names, targets, strict=True)
    ]
    return ResolverClusters(base, (aggregate, *legs), tuple(assignments))


def _resource(
    context: UpstreamContext, node: ResolverNode, content: Json, targets: tuple[ChainTarget, ...]
) -> LoweredResource:
    """A cluster of a resolver, for some or all of its targets. The entry of the first target decides its settings."""
    first = context.target(node)
    service = first.key.service
    places = (
        EntryPlace((), ServiceResolver.kind, service),
        EntryPlace(("connect_timeout",), ServiceResolver.kind, service, ("ConnectTimeout",)),
        EntryPlace(("ring_hash_lb_config",), ServiceResolver.kind, service, ("LoadBalancer", "RingHashConfig")),
        EntryPlace(("least_request_lb_config",), ServiceResolver.kind, service, ("LoadBalancer", "LeastRequestConfig")),
        EntryPlace(("load_balancing_policy",), ServiceResolver.kind, service, ("LoadBalancer", "LeastRequestConfig")),
        EntryPlace(("transport_socket",), ServiceDefaults.kind, targets[0].key.service, ("ExternalSNI",)),
        EntryPlace(("circuit_breakers",), UPSTREAM, context.upstream.name, ("limits",)),
        EntryPlace(("outlier_detection",), UPSTREAM, context.upstream.name, ("passive_health_check",)),
    )
    entries = context.entries_of(first, *targets)
    return LoweredResource(CLUSTER, content["name"], content, (context.upstream.name,), entries, places)


# A cluster with endpoints


def _cluster(
    context: UpstreamContext, node: ResolverNode, name: str, targets: tuple[ChainTarget, ...]
) -> LoweredResource:
    balancing = _balancing(context, node.load_balancer)
    content = {
        "name": name,
        "alt_stat_name": name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": ads()},
        "connect_timeout": duration(node.connect_timeout_ns),
        "common_lb_config": _common_balancing(context, has_list="load_balancing_policy" in balancing),
        "outlier_detection": _outlier_detection(context.upstream.passive_health_check),
        **balancing,
        **non_empty(
            circuit_breakers=_circuit_breakers(context.upstream.limits),
            typed_extension_protocol_options=HTTP2_OPTIONS if context.protocol in HTTP2_PROTOCOLS else None,
            transport_socket=_tls(context, targets[0]),
            # gRPC clients need it to report the load, which traffic assignment needs. Envoy reports without it.
            lrs_server={"self": {}} if context.proxies.locality_aware else None,
        ),
    }
    return _resource(context, node, content, targets)


def _common_balancing(context: UpstreamContext, *, has_list: bool) -> Json:
    """A panic threshold of 0: unhealthy endpoints get no requests, even if few healthy ones remain.

    A cluster with a list of policies (``has_list``) has the weights of localities in its policies.
    """
    weighted: Json = {"locality_weighted_lb_config": {}} if context.proxies.locality_aware and not has_list else {}
    return {"healthy_panic_threshold": {"value": 0}, **weighted}


def _outlier_detection(check: PassiveHealthCheck | None) -> Json:
    """The outlier detection, which every cluster has. An empty one has Envoy's defaults."""
    if check is None:
        return {}
    return non_empty(
        interval=duration(check.interval_ns) if check.interval_ns else None,
        consecutive_5xx=check.max_failures or None,
        enforcing_consecutive_5xx=check.enforcing_consecutive_5xx,
        max_ejection_percent=check.max_ejection_percent or None,
        base_ejection_time=duration(check.base_ejection_time_ns) if check.base_ejection_time_ns else None,
    )


def _circuit_breakers(limits: UpstreamLimits | None) -> Json:
    threshold = non_empty(
        max_connections=limits.max_connections if limits is not None else None,
        max_pending_requests=limits.max_pending_requests if limits is not None else None,
        max_requests=limits.max_concurrent_requests if limits is not None else None,
    )
    return {"thresholds": [threshold]} if threshold else {}


def _balancing(context: UpstreamContext, balancer: LoadBalancer | None) -> Json:
    """The load balancing policy. Zeros are left out, because Envoy refuses some of them."""
    if balancer is None:
        return {}
    choices = balancer.least_request_config.choice_count if balancer.least_request_config is not None else 0
    if balancer.policy == "least_request" and not context.upstream.is_proxied:
        by_locality = context.proxies.locality_aware
        return {"load_balancing_policy": _least_request_or_round_robin(choices, locality_aware=by_locality)}
    return non_empty(
        lb_policy=_POLICIES[balancer.policy],
        least_request_lb_config={"choice_count": choices} if choices else None,
        ring_hash_lb_config=_ring(balancer.ring_hash_config),
    )


def _least_request_or_round_robin(choices: int, *, locality_aware: bool) -> Json:
    """Least request for clients that support it, round robin for others: gRPC's C core refuses least request.

    A client uses the first policy of the list that it knows. An Envoy of the same group gets the cluster too, and does
    not support least request within ``wrr_locality``, where gRPC would use the weights of localities (A52).
    """
    fields: Json = {"choice_count": choices} if choices else {}
    if locality_aware:
        fields["locality_lb_config"] = {"locality_weighted_lb_config": {}}
    least = extension(f"{_BALANCING}.least_request", f"{_BALANCERS}.least_request.v3.LeastRequest", **fields)
    round_robin = extension(f"{_BALANCING}.round_robin", f"{_BALANCERS}.round_robin.v3.RoundRobin")
    in_locality = {"policies": [{"typed_extension_config": round_robin}]}
    message = f"{_BALANCERS}.wrr_locality.v3.WrrLocality"
    locality_weighting = extension(f"{_BALANCING}.wrr_locality", message, endpoint_picking_policy=in_locality)
    return {"policies": [{"typed_extension_config": one} for one in (least, locality_weighting)]}


def _ring(config: RingHashConfig | None) -> Json:
    if config is None:
        return {}
    minimum, maximum = config.minimum_ring_size, config.maximum_ring_size
    if maximum and not minimum and maximum < _MINIMUM_RING_SIZE:
        minimum = maximum  # Envoy refuses a maximum below its default minimum
    return non_empty(minimum_ring_size=minimum or None, maximum_ring_size=maximum or None)


def _check_balancer(context: UpstreamContext, target: ChainTarget, balancer: LoadBalancer) -> None:
    ring, service = balancer.ring_hash_config, target.key.service
    path: FieldPath
    if ring is not None and ring.maximum_ring_size and ring.minimum_ring_size > ring.maximum_ring_size:
        detail = f"MinimumRingSize {ring.minimum_ring_size} is above MaximumRingSize {ring.maximum_ring_size}"
        path = ("LoadBalancer", "RingHashConfig", "MinimumRingSize")
        context.refuse("bad_ring_size", detail, ServiceResolver.kind, service, path)
    for index, policy in enumerate(balancer.hash_policies):
        if policy.cookie_config is not None and policy.cookie_config.ttl_ns < 0:
            path = ("LoadBalancer", "HashPolicies", index, "CookieConfig", "TTL")
            context.refuse("negative", "the TTL of a cookie is below 0", ServiceResolver.kind, service, path)
    if balancer.policy in _NOT_IN_GRPC and not context.upstream.is_proxied:
        detail = f"gRPC clients without a proxy have no load balancing policy {balancer.policy}"
        context.refuse("policy_not_in_grpc", detail, ServiceResolver.kind, service, ("LoadBalancer", "Policy"))


def _tls(context: UpstreamContext, target: ChainTarget) -> Json:
    """TLS to a service outside of the mesh: one with ExternalSNI."""
    if not target.is_external or not context.upstream.is_proxied:
        return {}
    service = target.key.service
    if not target.sni.isprintable():
        detail = f"{short_repr(target.sni)} is not a server name"
        context.refuse("bad_sni", detail, ServiceDefaults.kind, service, ("ExternalSNI",))
    ca_file = context.proxies.external_ca_file
    if not ca_file:
        detail = f"the certificate of the external service {service!r} is not verified"
        context.warn("not_verified", detail, "set external_ca_file to a file of certificates on the proxies")
    common = non_empty(
        alpn_protocols=["h2"] if context.protocol in HTTP2_PROTOCOLS else None,
        validation_context=_validation(ca_file, target.sni) if ca_file else None,
    )
    return extension(_TLS, _TLS_CONTEXT, sni=target.sni, **non_empty(common_tls_context=common))


def _check_shared_tls(context: UpstreamContext, targets: tuple[ChainTarget, ...]) -> None:
    """Check that one cluster can serve all targets: the same TLS, and none for gRPC clients without a proxy."""
    if not context.upstream.is_proxied:
        for service in dict.fromkeys(target.key.service for target in targets if target.is_external):
            detail = f"{service!r} has ExternalSNI: gRPC clients without a proxy cannot call it with TLS"
            context.refuse("external_without_proxy", detail, ServiceDefaults.kind, service, ("ExternalSNI",))
    elif len({target.sni if target.is_external else None for target in targets}) > 1:
        first = targets[0].key.service
        detail = f"the failover of {first!r} leads to targets that differ in ExternalSNI: they cannot share a cluster"
        hint = "set failover of the upstreams document to aggregate"
        context.refuse("mixed_tls", detail, ServiceResolver.kind, first, ("Failover",), hint)


def _validation(ca_file: str, sni: str) -> Json:
    names = [{"san_type": "DNS", "matcher": {"exact": sni}}]
    return {"trusted_ca": {"filename": ca_file}, "match_typed_subject_alt_names": names}


# Escape hatches


def _with_escape_hatch(context: UpstreamContext, cluster: LoweredResource) -> LoweredResource:
    """The cluster, or the escape hatch that replaces that of a default chain, under the same name."""
    own = context.escape_hatch("envoy_cluster_json", "cluster", cluster.name)  # the listener warns of an unused one
    if own is None:
        return cluster
    place = EntryPlace((), UPSTREAM, context.upstream.name, ("envoy_cluster_json",))
    return LoweredResource(CLUSTER, cluster.name, own, cluster.upstreams, cluster.entries, (place,))


def _has_assignment(cluster: LoweredResource) -> bool:
    """Whether endpoints come from the catalog. An escape hatch of another type has endpoints of its own."""
    return cluster.content.get("type") in _EDS


# Assignments


def _assignment(
    context: UpstreamContext,
    node: ResolverNode,
    name: str,
    targets: tuple[ChainTarget, ...],
    *,
    is_member: bool = False,
) -> LoweredAssignment:
    selected = tuple(map(_binding, targets))
    entries = context.entries_of(context.target(node), *targets)
    return LoweredAssignment(name, selected, (context.upstream.name,), entries, is_member)


def _binding(target: ChainTarget) -> Binding:
    key, subset = target.key, target.subset
    return Binding(key.service, subset.filter, "", key.datacenter, subset.only_passing)


def _check_filter(context: UpstreamContext, target: ChainTarget) -> None:
    """Check that the filter of a subset names fields of instances. Only its syntax was checked when it was written."""
    error = _filter_error(target.subset.filter)
    if error is not None:
        key = target.key
        detail = f"filter, column {error.column}: {error.detail}"
        path = ("Subsets", key.subset, "Filter")
        context.refuse(INVALID_FILTER, detail, ServiceResolver.kind, key.service, path, error.hint)


@lru_cache(maxsize=_FILTERS_CACHED)
def _filter_error(text: str) -> FilterError | None:
    """Why a filter cannot be evaluated on instances; cached, because many services have equal filters."""
    try:
        compile_filter(text).check(INSTANCE_SHAPE)
    except FilterError as error:
        return error.with_traceback(None)
    return None

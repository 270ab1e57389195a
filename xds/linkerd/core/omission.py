"""Settings of clusters, routes and resolvers that Linkerd's API cannot express. They are left out and reported.

Requests are routed as if these settings did not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xds.mesh.core.entries.resolver import ServiceResolver

_ROUND_ROBIN, _CLUSTER_PROVIDED = 0, 6  # envoy.config.cluster.v3.Cluster.LbPolicy
_PLAINTEXT = "envoy.transport_sockets.raw_buffer"
_LIMITS = ("max_connections", "max_pending_requests", "max_requests", "max_retries", "max_connection_pools")
_CLUSTER = {
    "load_balancing_policy": "load_balancing_policy",
    "outlier_detection": "outlier_detection",
    "health_checks": "health_checks (Envoy's own)",
    "transport_socket_matches": "transport_socket_matches",
    "lb_subset_config": "lb_subset_config",
}
_HEADERS = dict.fromkeys(
    ("request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove"),
    "changes of headers",
)
_REWRITES = dict.fromkeys(
    (
        "prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "host_rewrite_literal", "auto_host_rewrite",
        "host_rewrite_header", "host_rewrite_path_regex",
    ),
    "rewrites",
)  # fmt: skip
_SHARED = {"request_mirror_policies": "mirroring", "rate_limits": "rate limits", "cors": "CORS"}
_ACTION = {**_REWRITES, **_SHARED, "hash_policy": "hash policies", "metadata_match": "subsets of clusters"}
_ROUTE = {**_HEADERS, "typed_per_filter_config": "settings of filters"}
_HOST = {**_ROUTE, **_SHARED}
_LEG = {**_HEADERS, "metadata_match": "subsets of clusters"}


def cluster_omissions(cluster: Any) -> tuple[str, ...]:
    """The settings of a cluster that are left out, as sentences."""
    words = [word for name, word in _CLUSTER.items() if _is_set(cluster, name)]
    if cluster.lb_policy not in (_ROUND_ROBIN, _CLUSTER_PROVIDED):
        words.append("lb_policy (a proxy balances by latency)")
    if any(threshold.HasField(name) for threshold in cluster.circuit_breakers.thresholds for name in _LIMITS):
        words.append("the limits of circuit_breakers")
    if cluster.HasField("transport_socket") and cluster.transport_socket.name != _PLAINTEXT:
        words.append("transport_socket (a proxy speaks TLS with peers of its mesh only)")
    return tuple(f"cluster {cluster.name!r:.80}: {word} has no equivalent in Linkerd's API" for word in words)


def resolver_omissions(resolver: ServiceResolver) -> tuple[str, ...]:
    """The settings of a resolver that are left out, as sentences."""
    settings = {
        "LoadBalancer": resolver.load_balancer is not None,
        "ConnectTimeout": resolver.connect_timeout_ns > 0,
        "PrioritizeByLocality": resolver.prioritize_by_locality is not None,
    }
    names = [name for name, is_set in settings.items() if is_set]
    return tuple(f"resolver {resolver.name!r:.80}: {name} has no equivalent in Linkerd's API" for name in names)


def route_omissions(route: Any) -> Iterator[str]:
    """The names of the actions of a route that are left out, in alphabetical order."""
    words = {word for name, word in _ACTION.items() if _is_set(route.route, name)}
    words |= {word for name, word in _ROUTE.items() if _is_set(route, name)}
    for leg in route.route.weighted_clusters.clusters:
        words |= {word for name, word in _LEG.items() if _is_set(leg, name)}
    yield from sorted(words)


def host_omissions(host: Any) -> Iterator[str]:
    """The names of the actions of a virtual host that are left out, in alphabetical order."""
    yield from sorted({word for name, word in _HOST.items() if _is_set(host, name)})


def _is_set(message: Any, name: str) -> bool:
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        return False
    return bool(getattr(message, name)) if field.is_repeated or not field.has_presence else bool(message.HasField(name))

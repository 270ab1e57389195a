"""What each message type refers to, and which types may lead to any cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from hashlib import blake2b
from typing import Any

from google.protobuf.descriptor import Descriptor

from xds.codec import schema
from xds.model.names import WILDCARD, canonical_name
from xds.model.resource import Reference
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)

References = Iterable[Reference]
Finder = Callable[[Any], References]

# The reference of a message that leads to clusters which its content does not name.
ANY_CLUSTER = Reference(CLUSTER, WILDCARD)

_UNREADABLE = (ANY_CLUSTER,)
_EDS = 3  # Cluster.DiscoveryType.EDS
_SOURCES_CACHED = 1024  # bounded, because users write them
_SOURCE_HASH_BYTES = 8
_API_SOURCES = {1: "rest", 5: "ads", 6: "ads"}  # ApiConfigSource.ApiType: REST, AGGREGATED_GRPC, AGGREGATED_DELTA_GRPC
_SOURCES = {
    "ads": "ads",
    "path": "path",
    "path_config_source": "path",
    "self": "self",
}


@cache
def finder_of(descriptor: Descriptor) -> Finder | None:
    """The finder of references in a message's own fields; None for a type without references.

    A message with a name and a ``config_discovery`` (filters of all kinds) gets its configuration by ECDS. Filters of
    the v2 API may hold a ``Struct`` instead of a message. A type that the user added may refer to anything.
    """
    finder = FINDERS.get(descriptor.full_name)
    if finder is not None:
        return finder
    fields = descriptor.fields_by_name
    if "config_discovery" in fields and "name" in fields:
        return _discovered_filter
    if "typed_config" in fields and "config" in fields and fields["config"].message_type is not None:
        return _untyped
    return _anything if schema.is_user_defined(descriptor.full_name) else None


def is_untyped(packed: Any, inner: Any) -> bool:
    """True for an ``Any`` whose meaning is not known: of an unknown type, or JSON for another type.

    Envoy reads a bare ``Struct`` as JSON of the type that it expects there, like a ``TypedStruct``.
    """
    return bool(packed.type_url) if inner is None else inner.DESCRIPTOR.full_name in _STRUCTS


_STRUCTS = frozenset(("google.protobuf.Struct", "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"))


def _anything(_: Any) -> References:
    return _UNREADABLE


def _untyped(message: Any) -> References:
    return _UNREADABLE if message.HasField("config") else ()


def _from_source(type_url: str, name: str, config_source: Any) -> References:
    """A reference through a ``ConfigSource``; none where the source is empty."""
    kind = config_source.WhichOneof("config_source_specifier")
    if kind is None:
        return ()
    source = _SOURCES.get(kind) or _API_SOURCES.get(config_source.api_config_source.api_type, "api")
    hashed = _hash_source(config_source.SerializeToString(deterministic=True))
    return (Reference(type_url, canonical_name(name), source, hashed),)


@lru_cache(_SOURCES_CACHED)
def _hash_source(config_source: bytes) -> int:
    return int.from_bytes(blake2b(config_source, digest_size=_SOURCE_HASH_BYTES).digest(), "big")


def _mention(type_url: str, name: str) -> Reference:
    return Reference(type_url, canonical_name(name))


# Clusters


def _cluster(cluster: Any) -> References:
    if cluster.type != _EDS:  # with a type of an extension, ``type`` is 0
        return internal_listeners(cluster.load_assignment) if cluster.HasField("load_assignment") else ()
    config = cluster.eds_cluster_config
    return _from_source(ENDPOINT, config.service_name or cluster.name, config.eds_config)


def _old_cluster(cluster: Any) -> References:
    """The v2 API has no internal listeners."""
    return _cluster(cluster) if cluster.type == _EDS else ()


def internal_listeners(assignment: Any) -> Iterator[Reference]:
    """The internal listeners of the same proxy to which endpoints of an assignment connect."""
    for locality in assignment.endpoints:
        for member in locality.lb_endpoints:
            address = member.endpoint.address
            name = address.envoy_internal_address.server_listener_name
            if name:
                yield _mention(LISTENER, name)


def _aggregate(config: Any) -> References:
    for name in config.clusters:
        yield _mention(CLUSTER, name)


# Secrets


def _secret(config: Any) -> References:
    """Without a source the secret is a static one of the bootstrap."""
    if config.HasField("sds_config"):
        yield from _from_source(SECRET, config.name, config.sds_config)


def _prefetched(config: Any) -> References:
    """What a client sends selects its certificate; the secrets named here are fetched in advance."""
    for name in config.prefetch_secret_names:
        yield from _from_source(SECRET, name, config.config_source)


# Listeners and routes


def _connection_manager(manager: Any) -> References:
    if manager.HasField("rds"):
        yield from _from_source(ROUTE, manager.rds.route_config_name, manager.rds.config_source)
    if manager.HasField("scoped_routes") and manager.scoped_routes.HasField("scoped_rds"):
        # SRDS asks for all scopes there are.
        source = manager.scoped_routes.scoped_rds.scoped_rds_config_source
        yield from _from_source(SCOPED_ROUTE, WILDCARD, source)


def _discovered_filter(message: Any) -> References:
    if message.HasField("config_discovery"):
        yield from _from_source(EXTENSION_CONFIG, message.name, message.config_discovery.config_source)


def _route_configuration(configuration: Any) -> References:
    if configuration.HasField("vhds"):
        yield from _from_source(VIRTUAL_HOST, WILDCARD, configuration.vhds.config_source)


def _scope(scope: Any) -> References:
    yield _mention(ROUTE, scope.route_configuration_name)


# Names of clusters


def _by(field: str, message: Any) -> References:
    return (_mention(CLUSTER, getattr(message, field)),)


_by_cluster = partial(_by, "cluster")
_by_cluster_name = partial(_by, "cluster_name")
_by_collector = partial(_by, "collector_cluster")
_by_name = partial(_by, "name")


def _or_by_header(field: str, message: Any) -> References:
    """A cluster by its name, or one that a request names."""
    if message.cluster_header:
        return _UNREADABLE
    return (_mention(CLUSTER, getattr(message, field)),)


_by_cluster_or_header = partial(_or_by_header, "cluster")
_by_name_or_header = partial(_or_by_header, "name")


def _redis(proxy: Any) -> References:
    return (_mention(CLUSTER, proxy.cluster), _mention(CLUSTER, proxy.prefix_routes.catch_all_cluster))


def _minimum_health(config: Any) -> References:
    """The filter reports the proxy as unhealthy when one of these clusters is missing."""
    return [_mention(CLUSTER, name) for name in config.cluster_min_healthy_percentages]


# Plugins that choose a cluster


def _lua_of_route(config: Any) -> References:
    return () if config.disabled else _UNREADABLE


def _lua_specifier(config: Any) -> References:
    return (ANY_CLUSTER, _mention(CLUSTER, config.default_cluster))


def _specifier(plugin: Any) -> References:
    kind = plugin.extension.typed_config.type_url.rpartition("/")[2]
    return () if kind in _READ_SPECIFIERS else _UNREADABLE


_SPECIFIERS = "envoy.extensions.router.cluster_specifiers"
_READ_SPECIFIERS = frozenset(
    (
        f"{_SPECIFIERS}.matcher.v3.MatcherClusterSpecifier",
        f"{_SPECIFIERS}.priority_group.v3.PriorityGroupClusterSpecifier",
    )
)


def _priority_groups(config: Any) -> References:
    """Its groups are messages of their own; metadata of other filters may replace them."""
    return _UNREADABLE if config.override_metadata_namespace else ()


_TCP_CLUSTER = "envoy.tcp_proxy.cluster"


def _filter_state(value: Any) -> References:
    """A TCP proxy prefers the cluster that a filter before it put into this filter state."""
    if value.object_key != _TCP_CLUSTER:
        return ()
    form = value.format_string
    text = form.text_format_source.inline_string or form.text_format
    return (_mention(CLUSTER, text),) if text and "%" not in text else _UNREADABLE


_HTTP_FILTERS = "envoy.extensions.filters.http"
_NETWORK_FILTERS = "envoy.extensions.filters.network"
_OLD_NETWORK_FILTERS = "envoy.config.filter.network"

FINDERS: Mapping[str, Finder] = {
    # Clusters
    "envoy.config.cluster.v3.Cluster": _cluster,
    "envoy.api.v2.Cluster": _old_cluster,
    "envoy.extensions.clusters.aggregate.v3.ClusterConfig": _aggregate,
    "envoy.config.cluster.aggregate.v2alpha.ClusterConfig": _aggregate,
    "envoy.extensions.clusters.composite.v3.ClusterConfig.ClusterEntry": _by_name,
    "envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfig.McpCluster": _by_cluster,
    # Secrets
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": _secret,
    "envoy.api.v2.auth.SdsSecretConfig": _secret,
    "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config": _prefetched,
    # Services that filters, loggers and tracers call
    "envoy.config.core.v3.GrpcService.EnvoyGrpc": _by_cluster_name,
    "envoy.api.v2.core.GrpcService.EnvoyGrpc": _by_cluster_name,
    "envoy.config.core.v3.HttpUri": _by_cluster,
    "envoy.api.v2.core.HttpUri": _by_cluster,
    "envoy.config.trace.v3.DatadogConfig": _by_collector,
    "envoy.config.trace.v2.DatadogConfig": _by_collector,
    "envoy.config.trace.v3.LightstepConfig": _by_collector,
    "envoy.config.trace.v2.LightstepConfig": _by_collector,
    "envoy.config.trace.v3.ZipkinConfig": _by_collector,
    "envoy.config.trace.v2.ZipkinConfig": _by_collector,
    "envoy.extensions.tracers.fluentd.v3.FluentdConfig": _by_cluster,
    "envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig": _by_cluster,
    "envoy.data.dns.v3.DnsTable.DnsEndpoint": _by_cluster_name,
    "envoy.data.dns.v3.DnsTable.DnsServiceTarget": _by_cluster_name,
    # Filters
    f"{_NETWORK_FILTERS}.http_connection_manager.v3.HttpConnectionManager": _connection_manager,
    f"{_OLD_NETWORK_FILTERS}.http_connection_manager.v2.HttpConnectionManager": _connection_manager,
    f"{_NETWORK_FILTERS}.tcp_proxy.v3.TcpProxy": _by_cluster,
    f"{_NETWORK_FILTERS}.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight": _by_name,
    f"{_OLD_NETWORK_FILTERS}.tcp_proxy.v2.TcpProxy": _by_cluster,
    f"{_OLD_NETWORK_FILTERS}.tcp_proxy.v2.TcpProxy.DeprecatedV1.TCPRoute": _by_cluster,
    f"{_OLD_NETWORK_FILTERS}.tcp_proxy.v2.TcpProxy.WeightedCluster.ClusterWeight": _by_name,
    f"{_NETWORK_FILTERS}.redis_proxy.v3.RedisProxy.PrefixRoutes.Route": _by_cluster,
    f"{_NETWORK_FILTERS}.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.ReadCommandPolicy": _by_cluster,
    f"{_NETWORK_FILTERS}.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy": _by_cluster,
    f"{_OLD_NETWORK_FILTERS}.redis_proxy.v2.RedisProxy": _redis,
    f"{_OLD_NETWORK_FILTERS}.redis_proxy.v2.RedisProxy.PrefixRoutes.Route": _by_cluster,
    f"{_OLD_NETWORK_FILTERS}.redis_proxy.v2.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy": _by_cluster,
    f"{_NETWORK_FILTERS}.thrift_proxy.v3.RouteAction": _by_cluster_or_header,
    f"{_NETWORK_FILTERS}.thrift_proxy.v3.RouteAction.RequestMirrorPolicy": _by_cluster,
    f"{_NETWORK_FILTERS}.thrift_proxy.v3.WeightedCluster.ClusterWeight": _by_name,
    f"{_OLD_NETWORK_FILTERS}.thrift_proxy.v2alpha1.RouteAction": _by_cluster_or_header,
    f"{_OLD_NETWORK_FILTERS}.thrift_proxy.v2alpha1.WeightedCluster.ClusterWeight": _by_name,
    f"{_NETWORK_FILTERS}.dubbo_proxy.v3.RouteAction": _by_cluster,
    f"{_OLD_NETWORK_FILTERS}.dubbo_proxy.v2alpha1.RouteAction": _by_cluster,
    f"{_NETWORK_FILTERS}.generic_proxy.action.v3.RouteAction": _by_cluster,
    # Contrib
    f"{_HTTP_FILTERS}.golang.v3alpha.Config": _anything,
    f"{_HTTP_FILTERS}.golang.v3alpha.ConfigsPerRoute": _anything,
    f"{_NETWORK_FILTERS}.golang.v3alpha.Config": _anything,
    f"{_NETWORK_FILTERS}.client_ssl_auth.v3.ClientSSLAuth": partial(_by, "auth_api_cluster"),
    f"{_NETWORK_FILTERS}.kafka_mesh.v3alpha.KafkaClusterDefinition": _by_cluster_name,
    f"{_NETWORK_FILTERS}.rocketmq_proxy.v3.RouteAction": _by_cluster,
    f"{_NETWORK_FILTERS}.sip_proxy.v3alpha.RouteAction": _by_cluster,
    "envoy.extensions.reverse_tunnel_reporters.v3alpha.clients.grpc_client.GrpcClientConfig": _by_cluster,
    f"{_OLD_NETWORK_FILTERS}.client_ssl_auth.v2.ClientSSLAuth": partial(_by, "auth_api_cluster"),
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": _by_cluster,
    "envoy.extensions.filters.udp.udp_proxy.v3.Route": _by_cluster,
    "envoy.config.filter.udp.udp_proxy.v2alpha.UdpProxyConfig": _by_cluster,
    f"{_HTTP_FILTERS}.cache_v2.v3.CacheV2Config": partial(_by, "override_upstream_cluster"),
    f"{_HTTP_FILTERS}.gcp_authn.v3.GcpAuthnFilterConfig": _by_cluster,
    f"{_HTTP_FILTERS}.health_check.v3.HealthCheck": _minimum_health,
    "envoy.config.filter.http.health_check.v2.HealthCheck": _minimum_health,
    f"{_HTTP_FILTERS}.mcp_router.v3.McpRouter.McpCluster": _by_cluster,
    "envoy.config.filter.http.squash.v2.Squash": _by_cluster,
    # Routes
    "envoy.config.route.v3.RouteConfiguration": _route_configuration,
    "envoy.api.v2.RouteConfiguration": _route_configuration,
    "envoy.config.route.v3.ScopedRouteConfiguration": _scope,
    "envoy.api.v2.ScopedRouteConfiguration": _scope,
    "envoy.config.route.v3.RouteAction": _by_cluster_or_header,
    "envoy.api.v2.route.RouteAction": _by_cluster_or_header,
    "envoy.config.route.v3.RouteAction.RequestMirrorPolicy": _by_cluster_or_header,
    "envoy.api.v2.route.RouteAction.RequestMirrorPolicy": _by_cluster,
    "envoy.config.route.v3.WeightedCluster.ClusterWeight": _by_name_or_header,
    "envoy.api.v2.route.WeightedCluster.ClusterWeight": _by_name,
    "envoy.config.route.v3.ClusterSpecifierPlugin": _specifier,
    f"{_SPECIFIERS}.lua.v3.LuaConfig": _lua_specifier,
    f"{_SPECIFIERS}.matcher.v3.ClusterAction": _by_cluster,
    f"{_SPECIFIERS}.priority_group.v3.PriorityGroupClusterSpecifier": _priority_groups,
    f"{_SPECIFIERS}.priority_group.v3.ClusterWeight": _by_cluster_name,
    # Code, which calls clusters by name (Lua: ``httpCall``, Wasm: ``proxy_http_call``, modules: HTTP callouts)
    f"{_HTTP_FILTERS}.lua.v3.Lua": _anything,
    f"{_HTTP_FILTERS}.lua.v3.LuaPerRoute": _lua_of_route,
    "envoy.config.filter.http.lua.v2.Lua": _anything,
    "envoy.extensions.wasm.v3.PluginConfig": _anything,
    "envoy.extensions.dynamic_modules.v3.DynamicModuleConfig": _anything,
    # The cluster of a connection: the server name that the client asks for, or what a filter makes of it
    f"{_NETWORK_FILTERS}.sni_cluster.v3.SniCluster": _anything,
    f"{_OLD_NETWORK_FILTERS}.sni_cluster.v2.SniCluster": _anything,
    "envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue": _filter_state,
}

"""Which other resources a resource names, found when it is pushed.

A resource is walked with everything that is packed in it; a message of a type listed in ``_FINDERS`` tells what it
names. Names of v2 resources refer to v2 types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor

from xds.codec.walk import ANY, placed_submessages, submessages, unpack
from xds.model.name import WILDCARD, canonical_name
from xds.model.resource import Reference
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    V2_URLS,
    VIRTUAL_HOST,
)

_EDS = 3  # Cluster.DiscoveryType.EDS
_SOURCES = {
    "ads": "ads",
    "api_config_source": "api",
    "path": "path",
    "path_config_source": "path",
    "self": "self",
}
Found = Iterable[Reference]
Path = tuple[str | int, ...]


def references_of(type_url: str, message: Any) -> tuple[Reference, ...]:
    """All references of a resource, each once, in the order in which they stand."""
    if type_url not in _REFERRING:
        return ()
    found = [one for one in _walk(message) if one.name]
    if len(found) > 1:
        found = list(dict.fromkeys(found))
    if type_url in _V2_TYPES:
        return tuple(Reference(V2_URLS.get(one.type_url, one.type_url), one.name, one.source) for one in found)
    return tuple(found)


def places_of(type_url: str, message: Any) -> dict[tuple[str, str], Path]:
    """Where each reference first stands: by type URL and name, the path within the rendered resource."""
    found: dict[tuple[str, str], Path] = {}
    for path, one in _placed(message, ()):
        meant = V2_URLS.get(one.type_url, one.type_url) if type_url in _V2_TYPES else one.type_url
        found.setdefault((meant, one.name), path)
    return found


def _placed(message: Any, path: Path) -> Iterator[tuple[Path, Reference]]:
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if inner is not None:
            yield from _placed(inner, path)  # in JSON a packed message stands where its Any does
        return
    finder = _finder(message.DESCRIPTOR)
    for one in finder(message) if finder is not None else ():
        yield (*path, *_naming(message, one.name)), one
    for step, submessage in placed_submessages(message, _WANTED, _PASSED_BY):
        yield from _placed(submessage, (*path, *step))


# Fields that name a resource, or hold the message that does; the first that fits is meant.
_NAMING = (
    *("eds_cluster_config", "rds", "service_name", "route_config_name", "route_configuration_name"),
    *("cluster_name", "collector_cluster", "cluster", "clusters", "name"),
)


def _naming(message: Any, name: str) -> Path:
    """The path from a message that refers to ``name`` to the field that says so; empty for a wildcard."""
    fields = message.DESCRIPTOR.fields_by_name
    for key in (key for key in _NAMING if key in fields):
        value = getattr(message, key)
        if fields[key].message_type is not None:
            below = _naming(value, name) if not fields[key].is_repeated and message.HasField(key) else ()
            if below:
                return (key, *below)
        elif fields[key].is_repeated and name in value:
            return (key, list(value).index(name))
        elif not fields[key].is_repeated and canonical_name(value) == name:
            return (key,)
    return ()


def _walk(message: Any) -> Iterator[Reference]:
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == ANY:
        inner = unpack(message)
        if inner is not None:
            yield from _walk(inner)
        return
    finder = _finder(descriptor)
    if finder is not None:
        yield from finder(message)
    for submessage in submessages(message, _WANTED, _PASSED_BY):
        yield from _walk(submessage)


@cache
def _finder(descriptor: Descriptor) -> Callable[[Any], Found] | None:
    """Whatever has a name and a ``config_discovery`` (filters of all kinds) gets its configuration by ECDS."""
    if {"name", "config_discovery"} <= set(descriptor.fields_by_name):
        return _discovered_filter
    return _FINDERS.get(descriptor.full_name)


def _from_source(type_url: str, name: str, config_source: Any) -> Found:
    """A reference by way of a ``ConfigSource``; one that says nothing leads nowhere."""
    kind = config_source.WhichOneof("config_source_specifier")
    return () if kind is None else (Reference(type_url, canonical_name(name), _SOURCES[kind]),)


def _mention(type_url: str, name: str) -> Reference:
    return Reference(type_url, canonical_name(name))


def _cluster(cluster: Any) -> Found:
    if cluster.type != _EDS:  # which is not the default, and so is none of the other discovery types
        return ()
    config = cluster.eds_cluster_config
    return _from_source(ENDPOINT, config.service_name or cluster.name, config.eds_config)


def _aggregate(config: Any) -> Found:
    for name in config.clusters:
        yield _mention(CLUSTER, name)


def _by_cluster_name(message: Any) -> Found:
    yield _mention(CLUSTER, message.cluster_name)


def _secret(config: Any) -> Found:
    """Without a source the secret is a static one of the bootstrap."""
    if config.HasField("sds_config"):
        yield from _from_source(SECRET, config.name, config.sds_config)


def _connection_manager(manager: Any) -> Found:
    if manager.HasField("rds"):
        yield from _from_source(ROUTE, manager.rds.route_config_name, manager.rds.config_source)
    if manager.HasField("scoped_routes") and manager.scoped_routes.HasField("scoped_rds"):
        # SRDS asks for all scopes there are.
        source = manager.scoped_routes.scoped_rds.scoped_rds_config_source
        yield from _from_source(SCOPED_ROUTE, WILDCARD, source)


def _discovered_filter(message: Any) -> Found:
    if message.HasField("config_discovery"):
        yield from _from_source(EXTENSION_CONFIG, message.name, message.config_discovery.config_source)


def _route_configuration(configuration: Any) -> Found:
    if configuration.HasField("vhds"):
        yield from _from_source(VIRTUAL_HOST, WILDCARD, configuration.vhds.config_source)


def _scope(scope: Any) -> Found:
    yield _mention(ROUTE, scope.route_configuration_name)


def _by_cluster(message: Any) -> Found:
    yield _mention(CLUSTER, message.cluster)


def _by_collector(config: Any) -> Found:
    yield _mention(CLUSTER, config.collector_cluster)


def _by_name(message: Any) -> Found:
    yield _mention(CLUSTER, message.name)


_FINDERS: Mapping[str, Callable[[Any], Found]] = {
    "envoy.config.cluster.v3.Cluster": _cluster,
    "envoy.api.v2.Cluster": _cluster,
    "envoy.extensions.clusters.aggregate.v3.ClusterConfig": _aggregate,
    "envoy.config.cluster.aggregate.v2alpha.ClusterConfig": _aggregate,
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": _secret,
    "envoy.api.v2.auth.SdsSecretConfig": _secret,
    "envoy.extensions.clusters.composite.v3.ClusterConfig.ClusterEntry": _by_name,
    "envoy.config.core.v3.GrpcService.EnvoyGrpc": _by_cluster_name,
    "envoy.extensions.router.cluster_specifiers.priority_group.v3.ClusterWeight": _by_cluster_name,
    "envoy.config.core.v3.HttpUri": _by_cluster,
    "envoy.config.trace.v3.DatadogConfig": _by_collector,
    "envoy.config.trace.v3.ZipkinConfig": _by_collector,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route": _by_cluster,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.Route.RequestMirrorPolicy": _by_cluster,
    "envoy.extensions.filters.network.thrift_proxy.v3.RouteAction": _by_cluster,
    "envoy.extensions.filters.network.thrift_proxy.v3.RouteAction.RequestMirrorPolicy": _by_cluster,
    "envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight": _by_name,
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": _by_cluster,
    "envoy.extensions.filters.udp.udp_proxy.v3.Route": _by_cluster,
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": _connection_manager,
    "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager": _connection_manager,
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy": _by_cluster,
    "envoy.config.filter.network.tcp_proxy.v2.TcpProxy": _by_cluster,
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight": _by_name,
    "envoy.config.filter.network.tcp_proxy.v2.TcpProxy.WeightedCluster.ClusterWeight": _by_name,
    "envoy.config.route.v3.RouteConfiguration": _route_configuration,
    "envoy.api.v2.RouteConfiguration": _route_configuration,
    "envoy.config.route.v3.ScopedRouteConfiguration": _scope,
    "envoy.api.v2.ScopedRouteConfiguration": _scope,
    "envoy.config.route.v3.RouteAction": _by_cluster,
    "envoy.api.v2.route.RouteAction": _by_cluster,
    "envoy.config.route.v3.RouteAction.RequestMirrorPolicy": _by_cluster,
    "envoy.api.v2.route.RouteAction.RequestMirrorPolicy": _by_cluster,
    "envoy.config.route.v3.WeightedCluster.ClusterWeight": _by_name,
    "envoy.api.v2.route.WeightedCluster.ClusterWeight": _by_name,
}
_WANTED = frozenset((ANY, *_FINDERS))
# Their clusters lead to a management server, and are the bootstrap's.
_PASSED_BY = frozenset(("envoy.config.core.v3.ConfigSource", "envoy.api.v2.core.ConfigSource"))

_V3_REFERRING = (CLUSTER, LISTENER, ROUTE, SCOPED_ROUTE, VIRTUAL_HOST, EXTENSION_CONFIG)
_V2_TYPES = frozenset(V2_URLS.values())
# Endpoints, secrets and runtime layers refer to nothing, and endpoints are long.
_REFERRING = frozenset((*_V3_REFERRING, *(V2_URLS[url] for url in _V3_REFERRING if url in V2_URLS)))

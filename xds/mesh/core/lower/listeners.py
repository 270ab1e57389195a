"""Listeners of upstreams: a TCP proxy, or HTTP with a route configuration; an API listener for gRPC clients. Pure."""

from __future__ import annotations

from xds.mesh.core.entries.defaults import ServiceDefaults
from xds.mesh.core.lower.envoy_fields import HTTP2_PROTOCOLS, Json, ads, extension, typed_config
from xds.mesh.core.lower.lowered import UPSTREAM, EntryPlace, LoweredResource
from xds.mesh.core.lower.mesh_names import listener_name, route_name, stat_prefix
from xds.mesh.core.lower.routes import route_configuration
from xds.mesh.core.lower.upstream_context import UpstreamContext
from xds.model.resource_type import LISTENER

_ESCAPE_HATCHES = ("envoy_listener_json", "envoy_cluster_json")
_HTTP = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_TCP = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
_ROUTER = extension("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router")
_GRPC_STATS = extension(
    "envoy.filters.http.grpc_stats",
    "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
    stats_for_all_methods=True,
)
_GRPC_BRIDGE = extension(
    "envoy.filters.http.grpc_http1_bridge", "envoy.extensions.filters.http.grpc_http1_bridge.v3.Config"
)


def lower_listener(context: UpstreamContext, cluster: str) -> LoweredResource:
    """The listener of an upstream. ``cluster`` is the cluster of a chain that has no routes."""
    name = listener_name(context.upstream)
    if not context.upstream.is_proxied:
        return _resource(context, {"name": name, "api_listener": {"api_listener": _api_listener(context, cluster)}})
    own = _escape_hatch(context, name)
    if own is not None:
        place = EntryPlace((), UPSTREAM, context.upstream.name, ("envoy_listener_json",))
        return _resource(context, own, place)
    return _resource(context, _listener(context, name, cluster))


def _resource(context: UpstreamContext, content: Json, *places: EntryPlace) -> LoweredResource:
    name, entries = context.upstream.name, context.all_entries()
    places = places or (EntryPlace((), UPSTREAM, name),)
    return LoweredResource(LISTENER, content["name"], content, (name,), entries, places)


def _listener(context: UpstreamContext, name: str, cluster: str) -> Json:
    upstream = context.upstream
    is_balanced = upstream.balance_outbound_connections == "exact_balance"
    return {
        "name": name,
        "address": {"socket_address": {"address": upstream.bind_address, "port_value": upstream.bind_port}},
        "filter_chains": [{"filters": [_http(context, cluster) if context.is_http else _tcp(context, cluster)]}],
        "traffic_direction": "OUTBOUND",
        **({"connection_balance_config": {"exact_balance": {}}} if is_balanced else {}),
    }


def _tcp(context: UpstreamContext, cluster: str) -> Json:
    return extension("envoy.filters.network.tcp_proxy", _TCP, stat_prefix=stat_prefix(context.chain), cluster=cluster)


def _http(context: UpstreamContext, cluster: str) -> Json:
    is_grpc = context.protocol == "grpc"
    return extension(
        "envoy.filters.network.http_connection_manager",
        _HTTP,
        stat_prefix=stat_prefix(context.chain),
        **_routes(context, cluster),
        http_filters=[*((_GRPC_STATS, _GRPC_BRIDGE) if is_grpc else ()), _ROUTER],
        tracing={"random_sampling": {"value": 0}},
        upgrade_configs=[{"upgrade_type": "websocket"}],
        **({"http2_protocol_options": {}} if context.protocol in HTTP2_PROTOCOLS else {}),
    )


def _routes(context: UpstreamContext, cluster: str) -> Json:
    if context.has_routes:
        return {"rds": {"route_config_name": route_name(context.upstream), "config_source": ads()}}
    return {"route_config": route_configuration(context, [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}])}


def _api_listener(context: UpstreamContext, cluster: str) -> Json:
    """The API listener of gRPC clients without a proxy. They reject filters that they do not know."""
    if not context.is_http:
        chain = context.chain
        detail = f"gRPC clients without a proxy cannot call {chain.service!r}: its protocol is {context.protocol}"
        hint = "set the Protocol of its service-defaults to grpc, or give the upstream a bind_port"
        context.refuse("protocol_not_http", detail, ServiceDefaults.kind, chain.service, ("Protocol",), hint)
    prefix = stat_prefix(context.chain)
    return typed_config(_HTTP, stat_prefix=prefix, **_routes(context, cluster), http_filters=[_ROUTER])


def _escape_hatch(context: UpstreamContext, name: str) -> Json | None:
    """The listener of the upstream's escape hatch; None without one, or if the chain is not a default one."""
    upstream = context.upstream
    written = [field for field in _ESCAPE_HATCHES if getattr(upstream, field) is not None]
    if written and not context.chain.is_default:
        detail = f"{' and '.join(written)} of {upstream.name!r} have no effect: config entries shape its chain"
        context.warn("escape_hatch_ignored", detail)
    return context.escape_hatch("envoy_listener_json", "listener", name)

"""Envoy resources as plain JSON values, small and complete enough for real clients.

``source`` is where a resource's own subscriptions (EDS, RDS, SDS ...) go: `ADS`, or the variant's ``config_source``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.process import LOOPBACK

Json = dict[str, Any]

TYPE = "type.googleapis.com/"
CLUSTER_TYPE = TYPE + "envoy.config.cluster.v3.Cluster"
ENDPOINT_TYPE = TYPE + "envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER_TYPE = TYPE + "envoy.config.listener.v3.Listener"
ROUTE_TYPE = TYPE + "envoy.config.route.v3.RouteConfiguration"
SCOPED_ROUTE_TYPE = TYPE + "envoy.config.route.v3.ScopedRouteConfiguration"
VIRTUAL_HOST_TYPE = TYPE + "envoy.config.route.v3.VirtualHost"
SECRET_TYPE = TYPE + "envoy.extensions.transport_sockets.tls.v3.Secret"
RUNTIME_TYPE = TYPE + "envoy.service.runtime.v3.Runtime"
EXTENSION_TYPE = TYPE + "envoy.config.core.v3.TypedExtensionConfig"
HCM_TYPE = TYPE + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER_TYPE = TYPE + "envoy.extensions.filters.http.router.v3.Router"
HEADER_MUTATION_TYPE = TYPE + "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"
RBAC_TYPE = TYPE + "envoy.extensions.filters.http.rbac.v3.RBAC"
ON_DEMAND_TYPE = TYPE + "envoy.extensions.filters.http.on_demand.v3.OnDemand"
EXT_AUTHZ_TYPE = TYPE + "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
EXT_AUTHZ_PER_ROUTE_TYPE = TYPE + "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"
LUA_TYPE = TYPE + "envoy.extensions.filters.http.lua.v3.Lua"
TYPED_STRUCT_TYPE = TYPE + "xds.type.v3.TypedStruct"
TCP_PROXY_TYPE = TYPE + "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
AGGREGATE_TYPE = TYPE + "envoy.extensions.clusters.aggregate.v3.ClusterConfig"
RESOURCE_TYPE = TYPE + "envoy.service.discovery.v3.Resource"
INTERNAL_LISTENERS: Json = {  # of a bootstrap
    "bootstrap_extensions": [
        {
            "name": "envoy.bootstrap.internal_listener",
            "typed_config": {"@type": TYPE + "envoy.extensions.bootstrap.internal_listener.v3.InternalListener"},
        }
    ]
}
UPSTREAM_TLS_TYPE = TYPE + "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
DOWNSTREAM_TLS_TYPE = TYPE + "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"

ADS: Json = {"ads": {}, "resource_api_version": "V3"}
# What a policy of traffic assignment needs of a cluster: its clients report, and weigh localities.
STEERED: Json = {"lrs_server": {"self": {}}, "common_lb_config": {"locality_weighted_lb_config": {}}}


# PEM in form only: of no certificate, and no key.
CERTIFICATE_PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY_PEM = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"


def address(port: int) -> Json:
    """A loopback socket address."""
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}


# Clusters and endpoints


def load_assignment(name: str, *ports: int) -> Json:
    """A ClusterLoadAssignment without ``@type``: one locality of weight 1 (gRPC drops localities without weight)."""
    endpoints = [{"endpoint": {"address": address(port)}} for port in ports]
    localities = [{"locality": {"region": "r", "zone": "z"}, "load_balancing_weight": 1, "lb_endpoints": endpoints}]
    return {"cluster_name": name, "endpoints": localities if ports else []}


def internal_load_assignment(name: str, listener_name: str) -> Json:
    """An assignment by EDS whose only endpoint is an internal listener of the same Envoy."""
    endpoint = {"address": {"envoy_internal_address": {"server_listener_name": listener_name}}}
    return {"@type": ENDPOINT_TYPE, "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}


def cluster_load_assignment(name: str, *ports: int) -> Json:
    """The EDS resource of cluster ``name``; no endpoints without ports."""
    return {"@type": ENDPOINT_TYPE, **load_assignment(name, *ports)}


def zoned_load_assignment(name: str, zones: Mapping[str, Sequence[int]], **fields: object) -> Json:
    """The EDS resource of cluster ``name`` with the ports of several zones of region ``r``, each zone of weight 1."""
    localities = [
        {**zone_endpoints(*ports), "locality": {"region": "r", "zone": zone}} for zone, ports in zones.items()
    ]
    return {"@type": ENDPOINT_TYPE, "cluster_name": name, "endpoints": localities, **fields}


def zone_endpoints(*ports: int) -> Json:
    """A locality's endpoints, and its weight 1."""
    endpoints = [{"endpoint": {"address": address(port)}} for port in ports]
    return {"load_balancing_weight": 1, "lb_endpoints": endpoints}


def eds_cluster(name: str, source: Json = ADS, service_name: str | None = None, **fields: object) -> Json:
    """A cluster whose endpoints come by EDS."""
    eds: Json = {"eds_config": source} if service_name is None else {"eds_config": source, "service_name": service_name}
    return {
        "@type": CLUSTER_TYPE,
        "name": name,
        "type": "EDS",
        "eds_cluster_config": eds,
        "connect_timeout": "1s",
        **fields,
    }


def steered_cluster(name: str, **fields: object) -> Json:
    """An EDS cluster with everything that a policy of traffic assignment needs."""
    return eds_cluster(name, **{**STEERED, **fields})


def static_cluster(name: str, *ports: int, **fields: object) -> Json:
    """A cluster with its endpoints inline."""
    return {
        "@type": CLUSTER_TYPE,
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": load_assignment(name, *ports),
        **fields,
    }


def aggregate_cluster(name: str, *members: str) -> Json:
    """An aggregate cluster: each request goes to the first healthy cluster of the list."""
    config = {"@type": AGGREGATE_TYPE, "clusters": list(members)}
    return {
        "@type": CLUSTER_TYPE,
        "name": name,
        "connect_timeout": "1s",
        "lb_policy": "CLUSTER_PROVIDED",
        "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": config},
    }


def with_ttl(name: str, ttl: str, resource: Json) -> Json:
    """A resource that its client drops after ``ttl`` without a heartbeat."""
    return {"@type": RESOURCE_TYPE, "name": name, "ttl": ttl, "resource": resource}


def http_health_check(path: str = "/health", interval: str = "0.2s", timeout: str = "1s") -> Json:
    """The ``health_checks`` field of a cluster; the first check decides, so warming waits for it."""
    check = {
        "timeout": timeout,
        "interval": interval,
        "no_traffic_interval": interval,
        "healthy_threshold": 1,
        "unhealthy_threshold": 2,
        "http_health_check": {"path": path},
    }
    return {"health_checks": [check]}


def refused_cluster(name: str) -> Json:
    """A cluster that parses and that every Envoy rejects: a resolver of addresses that it does not have."""
    assignment = refused_load_assignment(name, 80)
    del assignment["@type"]
    return static_cluster(name, load_assignment=assignment)


def refused_load_assignment(name: str, *ports: int) -> Json:
    """An assignment that parses and that every Envoy rejects: a resolver of addresses that it does not have."""
    assignment = cluster_load_assignment(name, *ports)
    (locality,) = assignment["endpoints"]
    for endpoint in locality["lb_endpoints"]:
        endpoint["endpoint"]["address"]["socket_address"]["resolver_name"] = "no-resolver"
    return assignment


# Routes


def route(cluster: str, prefix: str = "/", **action: object) -> Json:
    """A route to a cluster."""
    return {"match": {"prefix": prefix}, "route": {"cluster": cluster, **action}}


def header_route(header: str, prefix: str = "/") -> Json:
    """A route to the cluster that a request header names."""
    return {"match": {"prefix": prefix}, "route": {"cluster_header": header}}


def direct_route(body: str, status: int = 200, prefix: str = "/") -> Json:
    """A route with a direct response."""
    return {"match": {"prefix": prefix}, "direct_response": {"status": status, "body": {"inline_string": body}}}


def runtime_route(cluster: str, key: str, default_percent: int) -> Json:
    """A route for the fraction of requests that the runtime key ``key`` sets."""
    fraction = {"default_value": {"numerator": default_percent, "denominator": "HUNDRED"}, "runtime_key": key}
    return {"match": {"prefix": "/", "runtime_fraction": fraction}, "route": {"cluster": cluster}}


def host(name: str, routes: Sequence[Json], domains: Sequence[str] = ("*",)) -> Json:
    """A virtual host inside a route configuration."""
    return {"name": name, "domains": list(domains), "routes": list(routes)}


def virtual_host(name: str, routes: Sequence[Json], domains: Sequence[str]) -> Json:
    """A VHDS resource; ``name`` is ``<route configuration>/<authority>``."""
    return {"@type": VIRTUAL_HOST_TYPE, **host(name, routes, domains)}


def route_config(name: str, *routes: Json, hosts: Sequence[Json] = ()) -> Json:
    """A route configuration: ``hosts``, or one host for every domain with ``routes``."""
    return {"@type": ROUTE_TYPE, "name": name, "virtual_hosts": list(hosts) or [host("all", routes)]}


def vhds_route_config(name: str, source: Json = ADS) -> Json:
    """A route configuration whose virtual hosts come by VHDS."""
    return {"@type": ROUTE_TYPE, "name": name, "vhds": {"config_source": source}}


def scoped_route(name: str, route_config_name: str, key: str, on_demand: bool = False) -> Json:
    """The scope that requests with header value ``key`` fall into."""
    return {
        "@type": SCOPED_ROUTE_TYPE,
        "name": name,
        "route_configuration_name": route_config_name,
        "key": {"fragments": [{"string_key": key}]},
        "on_demand": on_demand,
    }


# Listeners


def router_filter() -> Json:
    """The last HTTP filter."""
    return {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER_TYPE}}


def on_demand_filter(odcds_source: Json | None = None, timeout: str = "5s") -> Json:
    """The filter that VHDS, on-demand scopes and (with a source) on-demand clusters need."""
    config: Json = {"@type": ON_DEMAND_TYPE}
    if odcds_source is not None:
        config["odcds"] = {"source": odcds_source, "timeout": timeout}
    return {"name": "envoy.filters.http.on_demand", "typed_config": config}


def authorizing_filter(port: int, cluster: str, timeout: str = "10s") -> Json:
    """An HTTP filter that asks the HTTP service on ``port``, behind ``cluster``, to authorise each request."""
    server = {"uri": f"http://{LOOPBACK}:{port}", "cluster": cluster, "timeout": timeout}
    config = {"@type": EXT_AUTHZ_TYPE, "transport_api_version": "V3", "http_service": {"server_uri": server}}
    return {"name": EXT_AUTHZ, "typed_config": config}


EXT_AUTHZ = "envoy.filters.http.ext_authz"
UNAUTHORIZED: Json = {EXT_AUTHZ: {"@type": EXT_AUTHZ_PER_ROUTE_TYPE, "disabled": True}}


def lua_filter(code: str) -> Json:
    """An HTTP filter that runs Lua code, whose references cannot be read."""
    return {
        "name": "envoy.filters.http.lua",
        "typed_config": {"@type": LUA_TYPE, "default_source_code": {"inline_string": code}},
    }


def opaque_filter(header: str, value: str) -> Json:
    """An HTTP filter behind a TypedStruct, which puts a header on each response."""
    append = {"header": {"key": header, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    mutations = {"mutations": {"response_mutations": [{"append": append}]}}
    config = {"@type": TYPED_STRUCT_TYPE, "type_url": HEADER_MUTATION_TYPE, "value": mutations}
    return {"name": "envoy.filters.http.header_mutation", "typed_config": config}


def deny_filter(prefix: str = "/") -> Json:
    """An HTTP filter that refuses every request below ``prefix``."""
    permission = {"url_path": {"path": {"prefix": prefix}}} if prefix != "/" else {"any": True}
    policy = {"permissions": [permission], "principals": [{"any": True}]}
    rules = {"action": "DENY", "policies": {"all": policy}}
    return {"name": "envoy.filters.http.rbac", "typed_config": {"@type": RBAC_TYPE, "rules": rules}}


def discovered_filter(name: str, type_url: str = HEADER_MUTATION_TYPE, source: Json = ADS) -> Json:
    """An HTTP filter whose configuration comes by ECDS."""
    return {"name": name, "config_discovery": {"config_source": source, "type_urls": [type_url]}}


def header_extension(name: str, header: str, value: str) -> Json:
    """An ECDS resource: a filter that puts a header on each response."""
    append = {"header": {"key": header, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    config = {"@type": HEADER_MUTATION_TYPE, "mutations": {"response_mutations": [{"append": append}]}}
    return {"@type": EXTENSION_TYPE, "name": name, "typed_config": config}


def rds(route_config_name: str, source: Json = ADS) -> Json:
    """Routes of an HTTP connection manager by RDS."""
    return {"rds": {"route_config_name": route_config_name, "config_source": source}}


def inline_routes(name: str, *routes: Json) -> Json:
    """Routes of an HTTP connection manager inline."""
    return {"route_config": {"name": name, "virtual_hosts": [host("all", routes)]}}


def scopes(header: str, source: Json = ADS) -> Json:
    """Routes of an HTTP connection manager by SRDS, the scope chosen by a request header."""
    fragment = {"header_value_extractor": {"name": header, "index": 0}}
    return {
        "scoped_routes": {
            "name": "scopes",
            "scope_key_builder": {"fragments": [fragment]},
            "rds_config_source": source,
            "scoped_rds": {"scoped_rds_config_source": source},
        }
    }


def http_connection_manager(stat_prefix: str, routes: Mapping[str, Any], filters: Iterable[Json] = ()) -> Json:
    """The typed config of an HTTP connection manager; ``filters`` come before the router."""
    return {"@type": HCM_TYPE, "stat_prefix": stat_prefix, **routes, "http_filters": [*filters, router_filter()]}


def http_chain(name: str, routes: Mapping[str, Any], filters: Iterable[Json] = (), match: Json | None = None) -> Json:
    """A filter chain with an HTTP connection manager; without ``match`` it takes every connection."""
    manager = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": http_connection_manager(name, routes, filters),
    }
    return {"name": name, "filters": [manager], **({"filter_chain_match": match} if match is not None else {})}


def tcp_chain(name: str, cluster: str) -> Json:
    """A filter chain that forwards bytes."""
    config = {"@type": TCP_PROXY_TYPE, "stat_prefix": name, "cluster": cluster}
    return {"name": name, "filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": config}]}


def sources_match(prefix_len: int) -> Json:
    """The match of a filter chain for connections from the loopback; the longest prefix wins."""
    return {"source_prefix_ranges": [{"address_prefix": "127.0.0.0", "prefix_len": prefix_len}]}


def chained_listener(name: str, chains: Sequence[Json], port: int = 0) -> Json:
    """A loopback listener; with port 0 the system chooses the port, which Envoy's admin interface shows."""
    return {"@type": LISTENER_TYPE, "name": name, "address": address(port), "filter_chains": list(chains)}


def internal_listener(name: str, chains: Sequence[Json]) -> Json:
    """A listener without a socket; Envoy needs `INTERNAL_LISTENERS` for it."""
    return {"@type": LISTENER_TYPE, "name": name, "internal_listener": {}, "filter_chains": list(chains)}


def listener(
    name: str,
    routes: Mapping[str, Any],
    port: int = 0,
    filters: Iterable[Json] = (),
    transport_socket: Json | None = None,
) -> Json:
    """A loopback HTTP listener with one filter chain."""
    chain = http_chain(name, routes, filters)
    del chain["name"]
    if transport_socket is not None:
        chain["transport_socket"] = transport_socket
    return chained_listener(name, [chain], port)


def api_listener(name: str, routes: Mapping[str, Any]) -> Json:
    """The listener that a gRPC client requests for ``xds:///name``."""
    return {
        "@type": LISTENER_TYPE,
        "name": name,
        "api_listener": {"api_listener": http_connection_manager(name, routes)},
    }


GRPC_SERVER_TEMPLATE = "grpc/server?xds.resource.listening_address=%s"


def grpc_server_listener(port: int, filters: Iterable[Json] = ()) -> Json:
    """The listener that an xDS-enabled gRPC server on ``port`` needs before it accepts calls."""
    local = {"match": {"prefix": "/"}, "non_forwarding_action": {}}
    served = listener("grpc-server", inline_routes("local", local), port, filters)
    return {**served, "name": GRPC_SERVER_TEMPLATE % f"{LOOPBACK}:{port}"}


# Secrets, runtime


def tls_secret(name: str, certificate_pem: str, key_pem: str) -> Json:
    """An SDS resource with a certificate and its key, inline."""
    pair = {"certificate_chain": {"inline_string": certificate_pem}, "private_key": {"inline_string": key_pem}}
    return {"@type": SECRET_TYPE, "name": name, "tls_certificate": pair}


def trust_secret(name: str, ca_pem: str) -> Json:
    """An SDS resource with the authorities to trust, inline."""
    return {"@type": SECRET_TYPE, "name": name, "validation_context": {"trusted_ca": {"inline_string": ca_pem}}}


def downstream_tls(secret_name: str, source: Json = ADS) -> Json:
    """A listener's transport socket whose certificate comes by SDS."""
    secret = {"name": secret_name, "sds_config": source}
    context = {"common_tls_context": {"tls_certificate_sds_secret_configs": [secret]}}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {"@type": DOWNSTREAM_TLS_TYPE, **context},
    }


def upstream_tls(trust_name: str, sni: str, source: Json = ADS) -> Json:
    """A cluster's transport socket whose trusted authorities come by SDS."""
    secret = {"name": trust_name, "sds_config": source}
    context = {"sni": sni, "common_tls_context": {"validation_context_sds_secret_config": secret}}
    return {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": UPSTREAM_TLS_TYPE, **context}}


def runtime(name: str, **layer: object) -> Json:
    """An RTDS layer; keys with dots are given as ``**{"a.b": 1}``."""
    return {"@type": RUNTIME_TYPE, "name": name, "layer": layer}


def web_resources(cluster: str, *ports: int, source: Json = ADS) -> list[Json]:
    """The usual resources: listener ``web`` -> route configuration ``web`` -> EDS cluster -> endpoints."""
    return [
        eds_cluster(cluster, source),
        cluster_load_assignment(cluster, *ports),
        listener("web", rds("web", source)),
        route_config("web", route(cluster)),
    ]

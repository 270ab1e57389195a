"""Resources that both this codec and Envoy refuse, with what this codec calls it and where.

Form: what cannot be read. Rules: what can be read and breaks a rule of the .proto files.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

T = "type.googleapis.com/"
HTTP = f"{T}envoy.extensions.filters.http"
NETWORK = f"{T}envoy.extensions.filters.network"
TLS = f"{T}envoy.extensions.transport_sockets.tls.v3"


def cluster(**fields: object) -> Json:
    return {"@type": f"{T}envoy.config.cluster.v3.Cluster", "name": "c", **fields}


def checked(**fields: object) -> Json:
    check = {
        "timeout": "1s",
        "interval": "1s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "tcp_health_check": {},
    }
    return cluster(health_checks=[{**check, **fields}])


def route_configuration(**host: object) -> Json:
    return {
        "@type": f"{T}envoy.config.route.v3.RouteConfiguration",
        "name": "r",
        "virtual_hosts": [{"name": "all", "domains": ["*"], **host}],
    }


def route(match: object = None, **fields: object) -> Json:
    action = {} if "direct_response" in fields or "redirect" in fields else {"direct_response": {"status": 200}}
    return route_configuration(routes=[{"match": match or {"prefix": "/"}, **action, **fields}])


def listener(*filters: Json, **fields: object) -> Json:
    return {
        "@type": f"{T}envoy.config.listener.v3.Listener",
        "name": "l",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
        "filter_chains": [{"filters": list(filters)}],
        **fields,
    }


def manager(**fields: object) -> Json:
    config = {
        "@type": f"{NETWORK}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "s",
        "route_config": {"name": "r"},
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{HTTP}.router.v3.Router"}}],
        **fields,
    }
    return listener({"name": "hcm", "typed_config": config})


def http_filter(kind: str, **fields: object) -> Json:
    router = {"name": "router", "typed_config": {"@type": f"{HTTP}.router.v3.Router"}}
    return manager(http_filters=[{"name": "f", "typed_config": {"@type": f"{HTTP}.{kind}", **fields}}, router])


def tcp_proxy(**fields: object) -> Json:
    config = {"@type": f"{NETWORK}.tcp_proxy.v3.TcpProxy", "stat_prefix": "s", "cluster": "c", **fields}
    return listener({"name": "tcp", "typed_config": config})


def endpoint(**socket_address: object) -> Json:
    address = {"address": "127.0.0.1", "port_value": 80, **socket_address}
    return {
        "@type": f"{T}envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "a",
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": address}}}]}],
    }


def api_source(**fields: object) -> Json:
    source = {"transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "x"}}], **fields}
    return cluster(
        type="EDS",
        eds_cluster_config={"eds_config": {"resource_api_version": "V3", "api_config_source": source}},
    )


def resolved_by(kind: str, **fields: object) -> Json:
    config = {"@type": f"{T}envoy.extensions.network.dns_resolver.{kind}", **fields}
    return cluster(type="STRICT_DNS", typed_dns_resolver_config={"name": kind, "typed_config": config})


def tls(**fields: object) -> Json:
    config = {"@type": f"{TLS}.UpstreamTlsContext", **fields}
    return cluster(transport_socket={"name": "envoy.transport_sockets.tls", "typed_config": config})


# In `manager`'s and `http_filter`'s resources.
_CONFIG = "/filter_chains/0/filters/0/typed_config"
_FILTER = f"{_CONFIG}/http_filters/0/typed_config"
_ROUTE = "/virtual_hosts/0/routes/0"
_SOCKET = "/endpoints/0/lb_endpoints/0/endpoint/address/socket_address"

FORM: dict[str, tuple[Json, str, str]] = {
    "unknown field": (cluster(conect_timeout="1s"), "unknown_field", "/conect_timeout"),
    "unknown field in an Any": (manager(stat_prefx="s"), "unknown_field", f"{_CONFIG}/stat_prefx"),
    "unknown enum value": (cluster(type="STATICAL"), "unknown_enum_value", "/type"),
    "number for a duration": (cluster(connect_timeout=5), "bad_duration", "/connect_timeout"),
    "duration in milliseconds": (cluster(connect_timeout="5ms"), "bad_duration", "/connect_timeout"),
    "text for a number": (cluster(per_connection_buffer_limit_bytes="many"), "wrong_type", ""),
    "fraction for an integer": (endpoint(port_value=80.5), "wrong_type", f"{_SOCKET}/port_value"),
    "negative for an unsigned": (endpoint(port_value=-1), "out_of_range", f"{_SOCKET}/port_value"),
    "beyond 32 bits": (cluster(per_connection_buffer_limit_bytes=4294967296), "out_of_range", ""),
    "number for text": (cluster(alt_stat_name=7), "wrong_type", "/alt_stat_name"),
    "object for text": (cluster(alt_stat_name={"a": 1}), "wrong_type", "/alt_stat_name"),
    "text for a message": (cluster(load_assignment="a"), "wrong_type", "/load_assignment"),
    "two members of a oneof": (
        cluster(type="STATIC", cluster_type={"name": "x"}),
        "oneof_conflict",
        "/cluster_type",
    ),
    "broken base64": (
        route(direct_response={"status": 200, "body": {"inline_bytes": "***"}}),
        "bad_base64",
        f"{_ROUTE}/direct_response/body/inline_bytes",
    ),
    "unknown type": (
        manager(http_filters=[{"name": "x", "typed_config": {"@type": f"{T}no.Such"}}]),
        "unknown_type",
        "",
    ),
    "Any without a type": (manager(http_filters=[{"name": "x", "typed_config": {"a": 1}}]), "missing_type", ""),
}

RULES: dict[str, tuple[Json, str, str]] = {
    "no name": (cluster(name=""), "missing_name", "/name"),
    "no stat prefix": (manager(stat_prefix=""), "missing_field", f"{_CONFIG}/stat_prefix"),
    "no route specifier": (manager(route_config=None), "missing_field", _CONFIG),
    "no cluster of a TCP proxy": (tcp_proxy(cluster=None), "missing_field", _CONFIG),
    "empty address": (endpoint(address=""), "missing_field", f"{_SOCKET}/address"),
    "port beyond 65535": (endpoint(port_value=70000), "out_of_range", f"{_SOCKET}/port_value"),
    "no port": (endpoint(port_value=None), "missing_field", _SOCKET),
    "no domains": (route_configuration(domains=[]), "missing_field", "/virtual_hosts/0/domains"),
    "virtual host without a name": (route_configuration(name=""), "missing_field", "/virtual_hosts/0/name"),
    "route without a match": (
        route_configuration(routes=[{"route": {"cluster": "c"}}]),
        "missing_field",
        f"{_ROUTE}/match",
    ),
    "route without an action": (
        route_configuration(routes=[{"match": {"prefix": "/"}}]),
        "missing_field",
        _ROUTE,
    ),
    "match without a path": (route(match={"case_sensitive": True}), "missing_field", f"{_ROUTE}/match"),
    "direct response below 200": (
        route(direct_response={"status": 99}),
        "out_of_range",
        f"{_ROUTE}/direct_response/status",
    ),
    "path separated prefix with a slash at its end": (
        route(match={"path_separated_prefix": "/a/"}),
        "pattern",
        f"{_ROUTE}/match/path_separated_prefix",
    ),
    "line break in a header's name": (
        route(request_headers_to_remove=["a\nb"]),
        "pattern",
        f"{_ROUTE}/request_headers_to_remove/0",
    ),
    "header without a key": (
        route(request_headers_to_add=[{"header": {"value": "v"}}]),
        "missing_field",
        f"{_ROUTE}/request_headers_to_add/0/header/key",
    ),
    "zero connect timeout": (cluster(connect_timeout="0s"), "out_of_range", "/connect_timeout"),
    "undefined enum number": (cluster(lb_policy=77), "unknown_enum_value", "/lb_policy"),
    "ring beyond 8M": (
        cluster(lb_policy="RING_HASH", ring_hash_lb_config={"minimum_ring_size": 8388609}),
        "out_of_range",
        "/ring_hash_lb_config/minimum_ring_size",
    ),
    "ejection above 100 percent": (
        cluster(outlier_detection={"max_ejection_percent": 101}),
        "out_of_range",
        "/outlier_detection/max_ejection_percent",
    ),
    "zero outlier interval": (
        cluster(outlier_detection={"interval": "0s"}),
        "out_of_range",
        "/outlier_detection/interval",
    ),
    "check without a timeout": (checked(timeout=None), "missing_field", "/health_checks/0/timeout"),
    "check without thresholds": (
        checked(healthy_threshold=None),
        "missing_field",
        "/health_checks/0/healthy_threshold",
    ),
    "check without a checker": (checked(tcp_health_check=None), "missing_field", "/health_checks/0"),
    "check by CONNECT": (
        checked(tcp_health_check=None, http_health_check={"path": "/", "method": "CONNECT"}),
        "not_allowed",
        "/health_checks/0/http_health_check/method",
    ),
    "more than eight checks": (
        cluster(health_checks=checked()["health_checks"] * 9),
        "too_many",
        "/health_checks",
    ),
    "percentage above 100": (
        cluster(common_lb_config={"healthy_panic_threshold": {"value": 100.5}}),
        "out_of_range",
        "/common_lb_config/healthy_panic_threshold/value",
    ),
    "endpoint in a map": (
        cluster(
            load_assignment={
                "cluster_name": "c",
                "named_endpoints": {"a": {"address": {"socket_address": {"address": "", "port_value": 1}}}},
            }
        ),
        "missing_field",
        "/load_assignment/named_endpoints/a/address/socket_address/address",
    ),
    "zero endpoint weight": (
        cluster(
            load_assignment={
                "cluster_name": "c",
                "endpoints": [{"lb_endpoints": [{"load_balancing_weight": 0, "endpoint": {}}]}],
            }
        ),
        "out_of_range",
        "/load_assignment/endpoints/0/lb_endpoints/0/load_balancing_weight",
    ),
    "priority above 128": (
        cluster(load_assignment={"cluster_name": "c", "endpoints": [{"priority": 129}]}),
        "out_of_range",
        "/load_assignment/endpoints/0/priority",
    ),
    "server name beyond 255 bytes": (tls(sni="x" * 256), "too_long", "/transport_socket/typed_config/sni"),
    "repeated uncompressible codes": (
        http_filter(
            "compressor.v3.Compressor",
            response_direction_config={"uncompressible_response_codes": [206, 206]},
            compressor_library={
                "name": "gzip",
                "typed_config": {"@type": f"{T}envoy.extensions.compression.gzip.compressor.v3.Gzip"},
            },
        ),
        "duplicate_item",
        f"{_FILTER}/response_direction_config/uncompressible_response_codes",
    ),
    "rate limit without a domain": (
        http_filter(
            "ratelimit.v3.RateLimit",
            rate_limit_service={
                "grpc_service": {"envoy_grpc": {"cluster_name": "x"}},
                "transport_api_version": "V3",
            },
        ),
        "missing_field",
        f"{_FILTER}/domain",
    ),
    "request type of a rate limit": (
        http_filter(
            "ratelimit.v3.RateLimit",
            domain="d",
            request_type="sideways",
            rate_limit_service={
                "grpc_service": {"envoy_grpc": {"cluster_name": "x"}},
                "transport_api_version": "V3",
            },
        ),
        "not_allowed",
        f"{_FILTER}/request_type",
    ),
    "bucket that never fills": (
        http_filter(
            "local_ratelimit.v3.LocalRateLimit",
            stat_prefix="s",
            token_bucket={"max_tokens": 1, "fill_interval": "0s"},
        ),
        "out_of_range",
        f"{_FILTER}/token_bucket/fill_interval",
    ),
    "rule of a nested type": (
        http_filter("fault.v3.HTTPFault", abort={"http_status": 700, "percentage": {"numerator": 1}}),
        "out_of_range",
        f"{_FILTER}/abort/http_status",
    ),
    "per-filter config of a virtual host": (
        route_configuration(
            typed_per_filter_config={"b": {"@type": f"{HTTP}.buffer.v3.BufferPerRoute", "disabled": False}}
        ),
        "not_allowed",
        "/virtual_hosts/0/typed_per_filter_config/b/disabled",
    ),
    "extension without a configuration": (
        cluster(
            cluster_type={"name": "x"}, load_balancing_policy={"policies": [{"typed_extension_config": {"name": "x"}}]}
        ),
        "missing_field",
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config",
    ),
    "deprecated and disallowed value": (
        api_source(api_type="DEPRECATED_AND_UNAVAILABLE_DO_NOT_USE"),
        "deprecated_value",
        "/eds_cluster_config/eds_config/api_config_source/api_type",
    ),
    "deprecated and disallowed value by default": (
        api_source(),
        "deprecated_value",
        "/eds_cluster_config/eds_config/api_config_source/api_type",
    ),
    "deprecated and disallowed field": (
        route_configuration(
            rate_limits=[
                {
                    "actions": [
                        {
                            "dynamic_metadata": {
                                "descriptor_key": "k",
                                "metadata_key": {"key": "a", "path": [{"key": "b"}]},
                            }
                        }
                    ]
                }
            ]
        ),
        "deprecated_field",
        "/virtual_hosts/0/rate_limits/0/actions/0/dynamic_metadata",
    ),
}

# What looks like a breach but is not one, to Envoy either.
ACCEPTED: dict[str, Json] = {
    "rules of oneof members that are not set": route(match={"path": "/"}, redirect={"host_redirect": "h"}),
    "empty text where ignore_empty is said": manager(via=""),
    "header name that is strict in no way": route(request_headers_to_remove=["a b"]),
    "pseudo header": route(match={"prefix": "/", "headers": [{"name": ":path", "present_match": True}]}),
    "duration of a nanosecond": cluster(name="nano", connect_timeout="0.000000001s"),
    "deprecated field": cluster(name="old", type="STRICT_DNS", dns_refresh_rate="5s"),
    "wrapper that is not set": cluster(name="wrapper", outlier_detection={}),
    "zero where only an upper bound is": cluster(name="zero", outlier_detection={"max_ejection_percent": 0}),
    "DNS resolver beyond its rules": resolved_by("cares.v3.CaresDnsResolverConfig", edns0_max_payload_size=1),
    "threads of a DNS resolver": resolved_by("hickory.v3.HickoryDnsResolverConfig", num_resolver_threads=99),
    "empty submessage without required fields": cluster(name="empty", common_lb_config={"healthy_panic_threshold": {}}),
}

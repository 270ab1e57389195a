"""Resources that Envoy's loader refuses though its .proto files allow them, and their like that it takes.

Each case has the finding that is expected (code and pointer); what is taken has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.resources import (
    CLUSTER_TYPE,
    DOWNSTREAM_TLS_TYPE,
    ENDPOINT_TYPE,
    HCM_TYPE,
    LISTENER_TYPE,
    ROUTE_TYPE,
    ROUTER_TYPE,
    SECRET_TYPE,
    TCP_PROXY_TYPE,
    TYPE,
    UPSTREAM_TLS_TYPE,
)

Json = dict[str, Any]

_CORS = {"name": "cors", "typed_config": {"@type": f"{TYPE}envoy.extensions.filters.http.cors.v3.Cors"}}
_ROUTER = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER_TYPE}}
_TCP = {"name": "tcp", "typed_config": {"@type": TCP_PROXY_TYPE, "stat_prefix": "x", "cluster": "c"}}
_RBAC = {
    "name": "rbac",
    "typed_config": {"@type": f"{TYPE}envoy.extensions.filters.network.rbac.v3.RBAC", "stat_prefix": "x"},
}
_CODEC = {
    "name": "codec",
    "typed_config": {"@type": f"{TYPE}envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"},
}
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_POLICIES = f"{TYPE}envoy.extensions.load_balancing_policies"
_ADS = {"ads": {}, "resource_api_version": "V3"}
_HERE = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
_V2_MANAGER = f"{TYPE}envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
_MANAGER = "/filter_chains/0/filters/0/typed_config"
_TLS = "/transport_socket/typed_config/common_tls_context"


class Case(NamedTuple):
    """A resource, and the code and pointer of the finding; ``code`` is empty for a resource that Envoy takes."""

    kind: str
    resource: Json
    code: str = ""
    pointer: str = ""


def _cluster(code: str = "", pointer: str = "", **fields: Any) -> Case:
    return Case("clusters", {"@type": CLUSTER_TYPE, "name": "x", **fields}, code, pointer)


def _members(*addresses: Json) -> Json:
    members = [{"endpoint": {"address": {"socket_address": {"port_value": 80, **one}}}} for one in addresses]
    return {"cluster_name": "x", "endpoints": [{"lb_endpoints": members}]}


def _static(code: str = "", pointer: str = "", **address: Any) -> Case:
    place = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address"
    return _cluster(code, place + pointer if code else "", type="STATIC", load_assignment=_members(address))


def _assignment(code: str = "", pointer: str = "", **fields: Any) -> Case:
    return Case("endpoints", {"@type": ENDPOINT_TYPE, "cluster_name": "x", **fields}, code, pointer)


def _listener(code: str = "", pointer: str = "", **fields: Any) -> Case:
    given = {"address": _HERE, "filter_chains": [{"filters": [_TCP]}], **fields}
    kept = {key: value for key, value in given.items() if value is not None}
    return Case("listeners", {"@type": LISTENER_TYPE, "name": "x", **kept}, code, pointer)


def _network(code: str, pointer: str, *filters: Json) -> Case:
    return _listener(code, pointer, filter_chains=[{"filters": list(filters)}])


def _manager(**fields: Any) -> Json:
    config = {"@type": HCM_TYPE, "stat_prefix": "x", "route_config": {"name": "r"}, "http_filters": [_ROUTER], **fields}
    return {"name": "manager", "typed_config": config}


def _http(code: str, pointer: str, *filters: Json) -> Case:
    return _network(code, _MANAGER + pointer if code else "", _manager(http_filters=list(filters)))


def _chains(code: str, *matches: Json | None) -> Case:
    chains = [{"filters": [_TCP], **({} if one is None else {"filter_chain_match": one})} for one in matches]
    return _listener(code, f"/filter_chains/{len(chains) - 1}" if code else "", filter_chains=chains)


def _route(code: str, pointer: str, **route: Any) -> Case:
    given = {"match": {"prefix": "/"}, "direct_response": {"status": 200}, **route}
    if "route" in given:
        del given["direct_response"]
    hosts = [{"name": "v", "domains": ["*"], "routes": [given]}]
    resource = {"@type": ROUTE_TYPE, "name": "x", "virtual_hosts": hosts}
    return Case("routes", resource, code, f"/virtual_hosts/0/routes/0{pointer}" if code else "")


def _regex(code: str, text: str) -> Case:
    return _route(code, "/match/safe_regex/regex", match={"safe_regex": {"regex": text}})


def _upstream_tls(code: str, pointer: str, **common: Any) -> Case:
    config = {"@type": UPSTREAM_TLS_TYPE, "common_tls_context": common}
    return _cluster(code, _TLS + pointer if code else "", transport_socket={"name": "tls", "typed_config": config})


def _downstream_tls(code: str, **common: Any) -> Case:
    config = {"@type": DOWNSTREAM_TLS_TYPE, "common_tls_context": common}
    chain = {"filters": [_TCP], "transport_socket": {"name": "tls", "typed_config": config}}
    return _listener(code, f"/filter_chains/0{_TLS}" if code else "", filter_chains=[chain])


def _secret(name: str) -> Json:
    return {"name": name, "sds_config": _ADS}


def _upstream_filters(code: str, pointer: str, *filters: Json) -> Case:
    options = {
        "@type": TYPE + _OPTIONS,
        "explicit_http_config": {"http_protocol_options": {}},
        "http_filters": list(filters),
    }
    place = f"/typed_extension_protocol_options/{_OPTIONS}/http_filters{pointer}" if code else ""
    return _cluster(code, place, typed_extension_protocol_options={_OPTIONS: options})


def _policy(name: str, kind: str, **fields: Any) -> Json:
    typed = {"@type": f"{_POLICIES}.{name}.v3.{kind}", **fields}
    return {"typed_extension_config": {"name": name, "typed_config": typed}}


_OPEN = "/endpoints/0/lb_endpoints/0"
_CHECK = {
    "timeout": "1s",
    "interval": "1s",
    "healthy_threshold": 1,
    "unhealthy_threshold": 1,
    "tcp_health_check": {},
}

REFUSED: Mapping[str, Case] = {
    # Addresses
    "no such IP address": _static("bad_address", "/address", address="300.1.2.3"),
    "a name in a static cluster": _static("bad_address", "/address", address="backend.example.com"),
    "a name in a cluster without a type": _cluster(
        "bad_address",
        "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/address",
        load_assignment=_members({"address": "backend.example.com"}),
    ),
    "an address with a leading zero": _static("bad_address", "/address", address="010.1.2.3"),
    "an address of two parts": _static("bad_address", "/address", address="10.1"),
    "an address with a blank": _static("bad_address", "/address", address=" 10.1.2.3"),
    "an address with brackets": _static("bad_address", "/address", address="[::1]"),
    "an address with a prefix": _static("bad_address", "/address", address="10.0.0.0/8"),
    "a named port": _static("bad_address", "/named_port", address="10.0.0.1", port_value=None, named_port="http"),
    "a name in an assignment": _assignment(
        "bad_address",
        f"{_OPEN}/endpoint/address/socket_address/address",
        endpoints=_members({"address": "s3.amazonaws.com"})["endpoints"],
    ),
    "a second address that is a name": _assignment(
        "bad_address",
        f"{_OPEN}/endpoint/additional_addresses/0/address/socket_address/address",
        endpoints=[
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": _HERE,
                            "additional_addresses": [
                                {"address": {"socket_address": {"address": "a.b", "port_value": 1}}}
                            ],
                        }
                    }
                ]
            }
        ],
    ),
    "a health check of a name": _assignment(
        "bad_address",
        f"{_OPEN}/endpoint/health_check_config/address/socket_address/address",
        endpoints=[
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": _HERE,
                            "health_check_config": {"address": {"socket_address": {"address": "a.b", "port_value": 1}}},
                        }
                    }
                ]
            }
        ],
    ),
    "an endpoint without an address": _assignment(
        "missing_field", f"{_OPEN}/endpoint/address", endpoints=[{"lb_endpoints": [{"endpoint": {}}]}]
    ),
    "an empty endpoint": _assignment("missing_field", f"{_OPEN}/endpoint/address", endpoints=[{"lb_endpoints": [{}]}]),
    "connections from a name": _cluster(
        "bad_address",
        "/upstream_bind_config/source_address/address",
        upstream_bind_config={"source_address": {"address": "localhost", "port_value": 0}},
    ),
    "a listener without an address": _listener("missing_field", "/address", address=None),
    "a listener at a name": _listener(
        "bad_address",
        "/address/socket_address/address",
        address={"socket_address": {"address": "localhost", "port_value": 0}},
    ),
    "a listener at a named port": _listener(
        "bad_address",
        "/address/socket_address/named_port",
        address={"socket_address": {"address": "127.0.0.1", "named_port": "http"}},
    ),
    "a further address that is a name": _listener(
        "bad_address",
        "/additional_addresses/0/address/socket_address/address",
        additional_addresses=[{"address": {"socket_address": {"address": "localhost", "port_value": 0}}}],
    ),
    "ipv4_compat for IPv4": _listener(
        "not_allowed",
        "/address/socket_address/ipv4_compat",
        address={"socket_address": {"address": "127.0.0.1", "port_value": 0, "ipv4_compat": True}},
    ),
    "no CIDR range": _chains("bad_address", {"prefix_ranges": [{"address_prefix": "not-an-ip"}]})._replace(
        pointer="/filter_chains/0/filter_chain_match/prefix_ranges/0/address_prefix"
    ),
    # Regular expressions
    "an open group": _regex("bad_regex", "(/v1/.*"),
    "nothing to repeat": _regex("bad_regex", "*"),
    "an open class": _regex("bad_regex", "[a"),
    "a look-behind": _regex("bad_regex", "(?<=x)y"),
    "a backreference": _regex("bad_regex", r"(a)\1"),
    "a repetition of a repetition": _regex("bad_regex", "(((a{100}){100}){100})"),
    # Filters
    "a filter without a configuration": _http(
        "missing_config", "/http_filters/0/typed_config", {"name": "envoy.filters.http.router"}
    ),
    "a filter with an empty configuration": _http(
        "missing_config", "/http_filters/0/typed_config", {"name": "envoy.filters.http.router", "typed_config": {}}
    ),
    "a network filter without a configuration": _network(
        "missing_config", "/filter_chains/0/filters/0/typed_config", {"name": "envoy.filters.network.tcp_proxy"}
    ),
    "a listener filter without a configuration": _listener(
        "missing_config",
        "/listener_filters/0/typed_config",
        listener_filters=[{"name": "envoy.filters.listener.tls_inspector"}],
    ),
    "a transport socket without a configuration": _cluster(
        "missing_config", "/transport_socket/typed_config", transport_socket={"name": "envoy.transport_sockets.tls"}
    ),
    "an access log without a configuration": _network(
        "missing_config",
        f"{_MANAGER}/access_log/0/typed_config",
        _manager(access_log=[{"name": "envoy.access_loggers.stdout"}]),
    ),
    "a tracer without a configuration": _network(
        "missing_config",
        f"{_MANAGER}/tracing/provider/typed_config",
        _manager(tracing={"provider": {"name": "envoy.tracers.zipkin"}}),
    ),
    "two routers": _http("filter_order", "/http_filters/0", _ROUTER, _ROUTER),
    "a filter behind the router": _http("filter_order", "/http_filters/0", _ROUTER, _CORS),
    "no router": _http("filter_order", "/http_filters/0", _CORS),
    "a router that is disabled": _http("filter_order", "/http_filters/0/disabled", {**_ROUTER, "disabled": True}),
    "a filter behind the TCP proxy": _network("filter_order", "/filter_chains/0/filters/0", _TCP, _RBAC),
    "two TCP proxies": _network("filter_order", "/filter_chains/0/filters/0", _TCP, _TCP),
    "no terminal network filter": _network("filter_order", "/filter_chains/0/filters/0", _RBAC),
    "upstream filters without the codec": _upstream_filters("filter_order", "/0", _CORS),
    "upstream filters with two codecs": _upstream_filters("filter_order", "/0", _CODEC, _CODEC),
    "an upgrade twice": _network(
        "duplicate_item",
        f"{_MANAGER}/upgrade_configs/1/upgrade_type",
        _manager(upgrade_configs=[{"upgrade_type": "websocket"}, {"upgrade_type": "WebSocket"}]),
    ),
    "an upgrade of a route twice": _route(
        "duplicate_item",
        "/route/upgrade_configs/1/upgrade_type",
        route={"cluster": "c", "upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "websocket"}]},
    ),
    "v2 within v3": _network("v2_type", _MANAGER, {"name": "m", "typed_config": {"@type": _V2_MANAGER}}),
    "a v2 filter": _http(
        "v2_type",
        "/http_filters/0/typed_config",
        {"name": "r", "typed_config": {"@type": f"{TYPE}envoy.config.filter.http.router.v2.Router"}},
    ),
    # Filter chains
    "a listener without filter chains": _listener("missing_field", "/filter_chains", filter_chains=None),
    "a listener with no filter chain": _listener("missing_field", "/filter_chains", filter_chains=[]),
    "an internal listener without filter chains": _listener(
        "missing_field", "/filter_chains", address=None, filter_chains=None, internal_listener={}
    ),
    "two chains for all connections": _chains("duplicate_match", None, None),
    "two chains for one server name": _chains(
        "duplicate_match", {"server_names": ["a.example", "b.example"]}, {"server_names": ["B.example"]}
    ),
    "two chains for one network": _chains(
        "duplicate_match",
        {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]},
        {"prefix_ranges": [{"address_prefix": "10.1.0.0", "prefix_len": 8}]},
    ),
    "a server name twice": _chains("duplicate_match", {"server_names": ["a", "a"]}),
    "a wildcard within a server name": _chains("pattern", {"server_names": ["a.*.b"]})._replace(
        pointer="/filter_chains/0/filter_chain_match/server_names/0"
    ),
    "an address suffix": _chains("not_allowed", {"address_suffix": "x"})._replace(
        pointer="/filter_chains/0/filter_chain_match/address_suffix"
    ),
    # Certificates
    "two client certificates": _upstream_tls(
        "too_many",
        "/tls_certificate_sds_secret_configs",
        tls_certificate_sds_secret_configs=[_secret("a"), _secret("b")],
    ),
    "a certificate that is no PEM": _upstream_tls(
        "bad_pem",
        "/tls_certificates/0/certificate_chain/inline_string",
        tls_certificates=[{"certificate_chain": {"inline_string": "oops"}, "private_key": {"inline_string": "oops"}}],
    ),
    "an authority that is no PEM": _upstream_tls(
        "bad_pem",
        "/validation_context/trusted_ca/inline_string",
        validation_context={"trusted_ca": {"inline_string": "oops"}},
    ),
    "an authority of no bytes": _upstream_tls(
        "bad_pem",
        "/validation_context/trusted_ca/inline_bytes",
        validation_context={"trusted_ca": {"inline_bytes": ""}},
    ),
    "a certificate without a key": _upstream_tls(
        "missing_field",
        "/tls_certificates/0/private_key",
        tls_certificates=[{"certificate_chain": {"filename": "/dev/null"}}],
    ),
    "a listener's TLS without a certificate": _downstream_tls("missing_field"),
    "a secret that is no PEM": Case(
        "secrets",
        {
            "@type": SECRET_TYPE,
            "name": "x",
            "tls_certificate": {"certificate_chain": {"inline_string": "x"}, "private_key": {"inline_string": "x"}},
        },
        "bad_pem",
        "/tls_certificate/certificate_chain/inline_string",
    ),
    "an authority by SDS that is no PEM": Case(
        "secrets",
        {"@type": SECRET_TYPE, "name": "x", "validation_context": {"trusted_ca": {"inline_string": "oops"}}},
        "bad_pem",
        "/validation_context/trusted_ca/inline_string",
    ),
    # Clusters
    "no load balancing policy": _cluster(
        "missing_field", "/load_balancing_policy/policies", load_balancing_policy={"policies": []}
    ),
    "a subset without a policy": _cluster(
        "missing_field",
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config/subset_lb_policy/policies",
        load_balancing_policy={"policies": [_policy("subset", "Subset", subset_lb_policy={"policies": []})]},
    ),
    "a policy that stands nowhere": _cluster(
        "missing_field", "/load_balancing_policy", lb_policy="LOAD_BALANCING_POLICY_CONFIG"
    ),
    "EDS without a source": _cluster("missing_field", "/eds_cluster_config", type="EDS"),
    "EDS without a configured source": _cluster(
        "missing_field", "/eds_cluster_config", type="EDS", eds_cluster_config={"service_name": "x"}
    ),
    "original destination with another policy": _cluster("cluster_conflict", "/lb_policy", type="ORIGINAL_DST"),
    "original destination with endpoints": _cluster(
        "cluster_conflict",
        "/load_assignment",
        type="ORIGINAL_DST",
        lb_policy="CLUSTER_PROVIDED",
        load_assignment=_members({"address": "10.0.0.1"}),
    ),
    "a cluster's own policy for static endpoints": _cluster(
        "cluster_conflict", "/lb_policy", type="STATIC", lb_policy="CLUSTER_PROVIDED"
    ),
    "two names of LOGICAL_DNS": _cluster(
        "cluster_conflict",
        "/load_assignment",
        type="LOGICAL_DNS",
        load_assignment=_members({"address": "a.b"}, {"address": "c.d"}),
    ),
    "no name of LOGICAL_DNS": _cluster("cluster_conflict", "/load_assignment", type="LOGICAL_DNS"),
    # Values
    "a negative timeout": _route("out_of_range", "/route/timeout", route={"cluster": "c", "timeout": "-10s"}),
    "a negative idle timeout": _network(
        "out_of_range",
        f"{_MANAGER}/common_http_protocol_options/idle_timeout",
        _manager(common_http_protocol_options={"idle_timeout": "-0.001s"}),
    ),
    # Envoy dies of this one.
    "a negative window of slow start": _cluster(
        "out_of_range",
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config/slow_start_config/slow_start_window",
        type="STATIC",
        load_balancing_policy={
            "policies": [_policy("least_request", "LeastRequest", slow_start_config={"slow_start_window": "-1s"})]
        },
    ),
    "weights of zero": _route(
        "out_of_range",
        "/route/weighted_clusters/clusters",
        route={"weighted_clusters": {"clusters": [{"name": "c", "weight": 0}]}},
    ),
    "a back-off that shrinks": _route(
        "out_of_range",
        "/route/retry_policy/retry_back_off/max_interval",
        route={
            "cluster": "c",
            "retry_policy": {"retry_on": "5xx", "retry_back_off": {"base_interval": "2s", "max_interval": "1s"}},
        },
    ),
}

TAKEN: Mapping[str, Case] = {
    "an IPv6 address": _static(address="::1"),
    "an IPv4-mapped address": _static(address="::ffff:1.2.3.4"),
    "a resolver of the address": _static(address="1.2.3.4", resolver_name="envoy.ip"),
    "a name of STRICT_DNS": _cluster(type="STRICT_DNS", load_assignment=_members({"address": "a.b"})),
    "an empty endpoint of STRICT_DNS": _cluster(
        type="STRICT_DNS", load_assignment={"cluster_name": "x", "endpoints": [{"lb_endpoints": [{}]}]}
    ),
    "names beside EDS": _cluster(
        type="EDS", eds_cluster_config={"eds_config": _ADS}, load_assignment=_members({"address": "a.b"})
    ),
    "a pipe": _assignment(endpoints=[{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/tmp/x"}}}}]}]),
    "an internal listener's name": _assignment(
        endpoints=[
            {"lb_endpoints": [{"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": "x"}}}}]}
        ]
    ),
    "named endpoints that nothing uses": _assignment(
        named_endpoints={"x": {"address": {"socket_address": {"address": "a.b", "port_value": 1}}}}
    ),
    "a range longer than its address": _chains(
        "", {"prefix_ranges": [{"address_prefix": "1.2.3.4", "prefix_len": 64}]}
    ),
    "a chain for all and one for the whole network": _chains(
        "", {"prefix_ranges": [{"address_prefix": "0.0.0.0", "prefix_len": 0}]}, None
    ),
    "ipv4_compat for all addresses": _listener(
        address={"socket_address": {"address": "::", "port_value": 0, "ipv4_compat": True}}
    ),
    "an expression of RE2": _regex("", "^/v[0-9]+/(?P<rest>.*)$"),
    "no HTTP filters": _http("", ""),
    "an optional filter without a configuration": _http(
        "", "", {"name": "envoy.filters.http.router", "is_optional": True}
    ),
    "a filter twice": _http("", "", _CORS, _CORS, _ROUTER),
    "no network filters": _network("", ""),
    "a filter before the TCP proxy": _network("", "", _RBAC, _TCP),
    "a default chain alone": _listener(filter_chains=None, default_filter_chain={"filters": [_TCP]}),
    "UDP without filter chains": _listener(
        filter_chains=None,
        address={"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": 0}},
    ),
    "an internal listener": _listener(address=None, internal_listener={}),
    "two certificates of a listener": _downstream_tls(
        "", tls_certificate_sds_secret_configs=[_secret("a"), _secret("b")]
    ),
    "an empty certificate": _upstream_tls("", "", tls_certificates=[{}]),
    "upstream filters with the codec": _upstream_filters("", "", _CODEC),
    "original destination": _cluster(type="ORIGINAL_DST", lb_policy="CLUSTER_PROVIDED"),
    "a cluster type by name": _cluster(
        lb_policy="CLUSTER_PROVIDED", cluster_type={"name": "envoy.cluster.original_dst"}
    ),
    "a policy of its own and one that is configured": _cluster(
        type="STATIC",
        lb_policy="CLUSTER_PROVIDED",
        load_balancing_policy={"policies": [_policy("round_robin", "RoundRobin")]},
    ),
}

# Envoy takes these; they are not what is meant.
WARNED: Mapping[str, Case] = {
    "an endpoint twice": _assignment(
        "duplicate_endpoint",
        "/endpoints/0/lb_endpoints/1/endpoint/address",
        endpoints=_members({"address": "10.0.0.1"}, {"address": "10.0.0.1"})["endpoints"],
    ),
}
# Envoy refuses these unless the proxy's runtime settings or its release say otherwise.
DEPENDING: Mapping[str, Case] = {
    "an expression that is too large": _regex("regex_too_large", "[a-z]{900}"),
    "health checks without names": _cluster("missing_field", "/health_checks/0", health_checks=[_CHECK, _CHECK]),
}

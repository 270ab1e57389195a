"""Resources that Envoy's loader refuses though its .proto files allow them, and their like that it takes.

Each case has the finding that is expected (code and pointer); what is taken has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import (
    ADS,
    ANY_PORT,
    CORS,
    FILTER,
    HEALTH_CHECK,
    HTTP_OPTIONS,
    MEMBER,
    RBAC,
    ROUTER,
    TCP,
    UPSTREAM_CODEC,
    V2_MANAGER,
    Case,
    assignment_case,
    chains_case,
    cluster_case,
    configured,
    downstream_tls_case,
    http_case,
    listener_case,
    manager,
    members,
    network_case,
    policy,
    regex_case,
    route_case,
    sds_secret,
    static_case,
    upstream_filters_case,
    upstream_tls_case,
)
from tests.support.resources import SECRET_TYPE, TYPE

_TCP_OPTIONS = "envoy.extensions.upstreams.tcp.v3.TcpProtocolOptions"
_REDIS_OPTIONS = "envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions"
_NO_TYPE = {"typed_extension_config": {"name": "x", "typed_config": {}}}

REFUSED: Mapping[str, Case] = {
    # Addresses
    "no such IP address": static_case("bad_address", "/address", address="300.1.2.3"),
    "a name in a static cluster": static_case("bad_address", "/address", address="backend.example.com"),
    "a name in a cluster without a type": cluster_case(
        "bad_address",
        "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/address",
        load_assignment=members({"address": "backend.example.com"}),
    ),
    "an address with a leading zero": static_case("bad_address", "/address", address="010.1.2.3"),
    "an address of two parts": static_case("bad_address", "/address", address="10.1"),
    "an address with a blank": static_case("bad_address", "/address", address=" 10.1.2.3"),
    "an address with brackets": static_case("bad_address", "/address", address="[::1]"),
    "an address with a prefix": static_case("bad_address", "/address", address="10.0.0.0/8"),
    "a named port": static_case("bad_address", "/named_port", address="10.0.0.1", port_value=None, named_port="http"),
    "a name in an assignment": assignment_case(
        "bad_address",
        f"{MEMBER}/endpoint/address/socket_address/address",
        endpoints=members({"address": "s3.amazonaws.com"})["endpoints"],
    ),
    "a second address that is a name": assignment_case(
        "bad_address",
        f"{MEMBER}/endpoint/additional_addresses/0/address/socket_address/address",
        endpoints=[
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": ANY_PORT,
                            "additional_addresses": [
                                {"address": {"socket_address": {"address": "a.b", "port_value": 1}}}
                            ],
                        }
                    }
                ]
            }
        ],
    ),
    "a health check of a name": assignment_case(
        "bad_address",
        f"{MEMBER}/endpoint/health_check_config/address/socket_address/address",
        endpoints=[
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": ANY_PORT,
                            "health_check_config": {"address": {"socket_address": {"address": "a.b", "port_value": 1}}},
                        }
                    }
                ]
            }
        ],
    ),
    "an endpoint without an address": assignment_case(
        "missing_field", f"{MEMBER}/endpoint/address", endpoints=[{"lb_endpoints": [{"endpoint": {}}]}]
    ),
    "an empty endpoint": assignment_case(
        "missing_field", f"{MEMBER}/endpoint/address", endpoints=[{"lb_endpoints": [{}]}]
    ),
    "connections from a name": cluster_case(
        "bad_address",
        "/upstream_bind_config/source_address/address",
        upstream_bind_config={"source_address": {"address": "localhost", "port_value": 0}},
    ),
    "a listener without an address": listener_case("missing_field", "/address", address=None),
    "a listener at a name": listener_case(
        "bad_address",
        "/address/socket_address/address",
        address={"socket_address": {"address": "localhost", "port_value": 0}},
    ),
    "a listener at a named port": listener_case(
        "bad_address",
        "/address/socket_address/named_port",
        address={"socket_address": {"address": "127.0.0.1", "named_port": "http"}},
    ),
    "a further address that is a name": listener_case(
        "bad_address",
        "/additional_addresses/0/address/socket_address/address",
        additional_addresses=[{"address": {"socket_address": {"address": "localhost", "port_value": 0}}}],
    ),
    "ipv4_compat for IPv4": listener_case(
        "not_allowed",
        "/address/socket_address/ipv4_compat",
        address={"socket_address": {"address": "127.0.0.1", "port_value": 0, "ipv4_compat": True}},
    ),
    "no CIDR range": chains_case("bad_address", {"prefix_ranges": [{"address_prefix": "not-an-ip"}]})._replace(
        pointer="/filter_chains/0/filter_chain_match/prefix_ranges/0/address_prefix"
    ),
    # Regular expressions
    "an open group": regex_case("bad_regex", "(/v1/.*"),
    "nothing to repeat": regex_case("bad_regex", "*"),
    "a letter beyond a byte": regex_case("bad_regex", r"\x{1F600}"),
    "an open class": regex_case("bad_regex", "[a"),
    "a look-behind": regex_case("bad_regex", "(?<=x)y"),
    "a backreference": regex_case("bad_regex", r"(a)\1"),
    "a repetition of a repetition": regex_case("bad_regex", "(((a{100}){100}){100})"),
    # Filters
    "a filter without a configuration": http_case(
        "missing_config", "/http_filters/0/typed_config", {"name": "envoy.filters.http.router"}
    ),
    "a filter with an empty configuration": http_case(
        "missing_config", "/http_filters/0/typed_config", {"name": "envoy.filters.http.router", "typed_config": {}}
    ),
    "a network filter without a configuration": network_case(
        "missing_config", "/filter_chains/0/filters/0/typed_config", {"name": "envoy.filters.network.tcp_proxy"}
    ),
    "a listener filter without a configuration": listener_case(
        "missing_config",
        "/listener_filters/0/typed_config",
        listener_filters=[{"name": "envoy.filters.listener.tls_inspector"}],
    ),
    "a transport socket without a configuration": cluster_case(
        "missing_config", "/transport_socket/typed_config", transport_socket={"name": "envoy.transport_sockets.tls"}
    ),
    "an access log without a configuration": network_case(
        "missing_config",
        f"{FILTER}/access_log/0/typed_config",
        manager(access_log=[{"name": "envoy.access_loggers.stdout"}]),
    ),
    "a tracer without a configuration": network_case(
        "missing_config",
        f"{FILTER}/tracing/provider/typed_config",
        manager(tracing={"provider": {"name": "envoy.tracers.zipkin"}}),
    ),
    "two routers": http_case("filter_order", "/http_filters/0", ROUTER, ROUTER),
    "a filter behind the router": http_case("filter_order", "/http_filters/0", ROUTER, CORS),
    "no router": http_case("filter_order", "/http_filters/0", CORS),
    "a router that is disabled": http_case("filter_order", "/http_filters/0/disabled", {**ROUTER, "disabled": True}),
    "a filter behind the TCP proxy": network_case("filter_order", "/filter_chains/0/filters/0", TCP, RBAC),
    "two TCP proxies": network_case("filter_order", "/filter_chains/0/filters/0", TCP, TCP),
    "no terminal network filter": network_case("filter_order", "/filter_chains/0/filters/0", RBAC),
    "upstream filters without the codec": upstream_filters_case("filter_order", "/0", CORS),
    "upstream filters with two codecs": upstream_filters_case("filter_order", "/0", UPSTREAM_CODEC, UPSTREAM_CODEC),
    "an upgrade twice": network_case(
        "duplicate_item",
        f"{FILTER}/upgrade_configs/1/upgrade_type",
        manager(upgrade_configs=[{"upgrade_type": "websocket"}, {"upgrade_type": "WebSocket"}]),
    ),
    "an upgrade of a route twice": route_case(
        "duplicate_item",
        "/route/upgrade_configs/1/upgrade_type",
        route={"cluster": "c", "upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "websocket"}]},
    ),
    "v2 within v3": network_case("v2_type", FILTER, {"name": "m", "typed_config": {"@type": V2_MANAGER}}),
    "a v2 filter": http_case(
        "v2_type",
        "/http_filters/0/typed_config",
        {"name": "r", "typed_config": {"@type": f"{TYPE}envoy.config.filter.http.router.v2.Router"}},
    ),
    # Filter chains
    "a listener without filter chains": listener_case("missing_field", "/filter_chains", filter_chains=None),
    "a listener with no filter chain": listener_case("missing_field", "/filter_chains", filter_chains=[]),
    "an internal listener without filter chains": listener_case(
        "missing_field", "/filter_chains", address=None, filter_chains=None, internal_listener={}
    ),
    "two chains for all connections": chains_case("duplicate_match", None, None),
    "two chains for one server name": chains_case(
        "duplicate_match", {"server_names": ["a.example", "b.example"]}, {"server_names": ["B.example"]}
    ),
    "two chains for one network": chains_case(
        "duplicate_match",
        {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]},
        {"prefix_ranges": [{"address_prefix": "10.1.0.0", "prefix_len": 8}]},
    ),
    "a server name twice": chains_case("duplicate_match", {"server_names": ["a", "a"]}),
    "a wildcard within a server name": chains_case("pattern", {"server_names": ["a.*.b"]})._replace(
        pointer="/filter_chains/0/filter_chain_match/server_names/0"
    ),
    "an address suffix": chains_case("not_allowed", {"address_suffix": "x"})._replace(
        pointer="/filter_chains/0/filter_chain_match/address_suffix"
    ),
    # Certificates
    "two client certificates": upstream_tls_case(
        "too_many",
        "/tls_certificate_sds_secret_configs",
        tls_certificate_sds_secret_configs=[sds_secret("a"), sds_secret("b")],
    ),
    "a certificate that is not PEM": upstream_tls_case(
        "bad_pem",
        "/tls_certificates/0/certificate_chain/inline_string",
        tls_certificates=[{"certificate_chain": {"inline_string": "oops"}, "private_key": {"inline_string": "oops"}}],
    ),
    "an authority that is not PEM": upstream_tls_case(
        "bad_pem",
        "/validation_context/trusted_ca/inline_string",
        validation_context={"trusted_ca": {"inline_string": "oops"}},
    ),
    "an authority of no bytes": upstream_tls_case(
        "bad_pem",
        "/validation_context/trusted_ca/inline_bytes",
        validation_context={"trusted_ca": {"inline_bytes": ""}},
    ),
    "a certificate without a key": upstream_tls_case(
        "missing_field",
        "/tls_certificates/0/private_key",
        tls_certificates=[{"certificate_chain": {"filename": "/dev/null"}}],
    ),
    "a listener's TLS without a certificate": downstream_tls_case("missing_field"),
    "a secret that is not PEM": Case(
        "secrets",
        {
            "@type": SECRET_TYPE,
            "name": "x",
            "tls_certificate": {"certificate_chain": {"inline_string": "x"}, "private_key": {"inline_string": "x"}},
        },
        "bad_pem",
        "/tls_certificate/certificate_chain/inline_string",
    ),
    "an authority by SDS that is not PEM": Case(
        "secrets",
        {"@type": SECRET_TYPE, "name": "x", "validation_context": {"trusted_ca": {"inline_string": "oops"}}},
        "bad_pem",
        "/validation_context/trusted_ca/inline_string",
    ),
    # Clusters
    "load balancing policies without a type": cluster_case(
        "missing_config",
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config",
        load_balancing_policy={"policies": [_NO_TYPE, _NO_TYPE]},
    ),
    "no load balancing policy": cluster_case(
        "missing_field", "/load_balancing_policy/policies", load_balancing_policy={"policies": []}
    ),
    "a subset without a policy": cluster_case(
        "missing_field",
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config/subset_lb_policy/policies",
        load_balancing_policy={"policies": [policy("subset", "Subset", subset_lb_policy={"policies": []})]},
    ),
    "a policy that stands nowhere": cluster_case(
        "missing_field", "/load_balancing_policy", lb_policy="LOAD_BALANCING_POLICY_CONFIG"
    ),
    "EDS without a source": cluster_case("missing_field", "/eds_cluster_config", type="EDS"),
    "EDS without a configured source": cluster_case(
        "missing_field", "/eds_cluster_config", type="EDS", eds_cluster_config={"service_name": "x"}
    ),
    "original destination with another policy": cluster_case("cluster_conflict", "/lb_policy", type="ORIGINAL_DST"),
    "original destination with endpoints": cluster_case(
        "cluster_conflict",
        "/load_assignment",
        type="ORIGINAL_DST",
        lb_policy="CLUSTER_PROVIDED",
        load_assignment=members({"address": "10.0.0.1"}),
    ),
    "a cluster's own policy for static endpoints": cluster_case(
        "cluster_conflict", "/lb_policy", type="STATIC", lb_policy="CLUSTER_PROVIDED"
    ),
    "two names of LOGICAL_DNS": cluster_case(
        "cluster_conflict",
        "/load_assignment",
        type="LOGICAL_DNS",
        load_assignment=members({"address": "a.b"}, {"address": "c.d"}),
    ),
    "no name of LOGICAL_DNS": cluster_case("cluster_conflict", "/load_assignment", type="LOGICAL_DNS"),
    "endpoints by EDS of a static cluster": cluster_case(
        "cluster_conflict", "/eds_cluster_config", type="STATIC", eds_cluster_config={"eds_config": ADS}
    ),
    "endpoints by EDS of DNS names": cluster_case(
        "cluster_conflict", "/eds_cluster_config", type="STRICT_DNS", eds_cluster_config={"eds_config": ADS}
    ),
    "EDS of a cluster type by name": cluster_case(
        "cluster_conflict",
        "/eds_cluster_config",
        cluster_type={"name": "envoy.cluster.eds"},
        eds_cluster_config={"eds_config": ADS},
    ),
    "empty HTTP options": cluster_case(
        "missing_field",
        f"/typed_extension_protocol_options/{HTTP_OPTIONS}",
        typed_extension_protocol_options={HTTP_OPTIONS: {}},
    ),
    "options under an unknown name": cluster_case(
        "unknown_extension",
        "/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOption",
        typed_extension_protocol_options={
            HTTP_OPTIONS[:-1]: {"@type": TYPE + HTTP_OPTIONS, "explicit_http_config": {"http_protocol_options": {}}}
        },
    ),
    "options under the name of their type": cluster_case(
        "unknown_extension",
        f"/typed_extension_protocol_options/{_REDIS_OPTIONS}",
        typed_extension_protocol_options={_REDIS_OPTIONS: {"@type": TYPE + _REDIS_OPTIONS}},
    ),
    "a cluster type without its type": cluster_case(
        "missing_config",
        "/cluster_type/typed_config",
        cluster_type={"name": "envoy.clusters.aggregate", "typed_config": {}},
    ),
    # Values
    "a negative timeout": route_case("out_of_range", "/route/timeout", route={"cluster": "c", "timeout": "-10s"}),
    "a negative idle timeout": network_case(
        "out_of_range",
        f"{FILTER}/common_http_protocol_options/idle_timeout",
        manager(common_http_protocol_options={"idle_timeout": "-0.001s"}),
    ),
    # Envoy dies of this one.
    "a negative window of slow start": cluster_case(
        "out_of_range",
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config/slow_start_config/slow_start_window",
        type="STATIC",
        load_balancing_policy={
            "policies": [policy("least_request", "LeastRequest", slow_start_config={"slow_start_window": "-1s"})]
        },
    ),
    "weights of zero": route_case(
        "out_of_range",
        "/route/weighted_clusters/clusters",
        route={"weighted_clusters": {"clusters": [{"name": "c", "weight": 0}]}},
    ),
    "a back-off that shrinks": route_case(
        "out_of_range",
        "/route/retry_policy/retry_back_off/max_interval",
        route={
            "cluster": "c",
            "retry_policy": {"retry_on": "5xx", "retry_back_off": {"base_interval": "2s", "max_interval": "1s"}},
        },
    ),
}

TAKEN: Mapping[str, Case] = {
    "an IPv6 address": static_case(address="::1"),
    "an IPv4-mapped address": static_case(address="::ffff:1.2.3.4"),
    "a resolver of the address": static_case(address="1.2.3.4", resolver_name="envoy.ip"),
    "a name of STRICT_DNS": cluster_case(type="STRICT_DNS", load_assignment=members({"address": "a.b"})),
    "an empty endpoint of STRICT_DNS": cluster_case(
        type="STRICT_DNS", load_assignment={"cluster_name": "x", "endpoints": [{"lb_endpoints": [{}]}]}
    ),
    "names beside EDS": cluster_case(
        type="EDS", eds_cluster_config={"eds_config": ADS}, load_assignment=members({"address": "a.b"})
    ),
    "a pipe": assignment_case(endpoints=[{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/tmp/x"}}}}]}]),
    "an internal listener's name": assignment_case(
        endpoints=[
            {"lb_endpoints": [{"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": "x"}}}}]}
        ]
    ),
    "named endpoints that nothing uses": assignment_case(
        named_endpoints={"x": {"address": {"socket_address": {"address": "a.b", "port_value": 1}}}}
    ),
    "a range longer than its address": chains_case(
        "", {"prefix_ranges": [{"address_prefix": "1.2.3.4", "prefix_len": 64}]}
    ),
    "a chain for all and one for the whole network": chains_case(
        "", {"prefix_ranges": [{"address_prefix": "0.0.0.0", "prefix_len": 0}]}, None
    ),
    "ipv4_compat for all addresses": listener_case(
        address={"socket_address": {"address": "::", "port_value": 0, "ipv4_compat": True}}
    ),
    "an expression of RE2": regex_case("", "^/v[0-9]+/(?P<rest>.*)$"),
    "no HTTP filters": http_case("", ""),
    "an optional filter without a configuration": http_case(
        "", "", {"name": "envoy.filters.http.router", "is_optional": True}
    ),
    "a filter twice": http_case("", "", CORS, CORS, ROUTER),
    "no network filters": network_case("", ""),
    "a filter before the TCP proxy": network_case("", "", RBAC, TCP),
    "a default chain alone": listener_case(filter_chains=None, default_filter_chain={"filters": [TCP]}),
    "UDP without filter chains": listener_case(
        filter_chains=None,
        address={"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": 0}},
    ),
    "an internal listener": listener_case(address=None, internal_listener={}),
    "two certificates of a listener": downstream_tls_case(
        "", tls_certificate_sds_secret_configs=[sds_secret("a"), sds_secret("b")]
    ),
    "a load balancing policy behind one without a type": cluster_case(
        "", "", load_balancing_policy={"policies": [_NO_TYPE, policy("round_robin", "RoundRobin")]}
    ),
    "an empty certificate": upstream_tls_case("", "", tls_certificates=[{}]),
    "upstream filters with the codec": upstream_filters_case("", "", UPSTREAM_CODEC),
    "original destination": cluster_case(type="ORIGINAL_DST", lb_policy="CLUSTER_PROVIDED"),
    "a cluster type by name": cluster_case(
        lb_policy="CLUSTER_PROVIDED", cluster_type={"name": "envoy.cluster.original_dst"}
    ),
    "options of TCP": cluster_case(typed_extension_protocol_options={_TCP_OPTIONS: {"@type": TYPE + _TCP_OPTIONS}}),
    "a policy without a type before one that Envoy knows": cluster_case(
        type="STATIC",
        load_balancing_policy={
            "policies": [
                {"typed_extension_config": {"name": "x", "typed_config": {}}},
                policy("round_robin", "RoundRobin"),
            ]
        },
    ),
    "empty options of Redis": cluster_case(typed_extension_protocol_options={"envoy.filters.network.redis_proxy": {}}),
    "a policy of its own and one that is configured": cluster_case(
        type="STATIC",
        lb_policy="CLUSTER_PROVIDED",
        load_balancing_policy={"policies": [policy("round_robin", "RoundRobin")]},
    ),
}

# Envoy takes these; they are not what is meant.
WARNED: Mapping[str, Case] = {
    "an endpoint twice": assignment_case(
        "duplicate_endpoint",
        "/endpoints/0/lb_endpoints/1/endpoint/address",
        endpoints=members({"address": "10.0.0.1"}, {"address": "10.0.0.1"})["endpoints"],
    ),
}


def _parameters(index: int, **parameters: Any) -> Case:
    context: dict[str, Any] = {"common_tls_context": {"tls_params": parameters}}
    socket = configured("tls", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", **context)
    (field,) = parameters
    pointer = f"/transport_socket/typed_config/common_tls_context/tls_params/{field}/{index}"
    return cluster_case("unknown_cipher", pointer, transport_socket=socket)


# Envoy refuses these unless the proxy's runtime settings or its release say otherwise.
DEPENDING: Mapping[str, Case] = {
    "an unknown cipher suite": _parameters(0, cipher_suites=["ECDHE-RSA-AES512-GCM-SHA256"]),
    "an unknown cipher suite behind known ones": _parameters(
        1, cipher_suites=["[ECDHE-RSA-AES128-GCM-SHA256|ECDHE-RSA-CHACHA20-POLY1305]", "AES128-SHA:ECDHE-RC4-SHA"]
    ),
    "an unknown curve": _parameters(0, ecdh_curves=["P-999"]),
    "an expression that is too large": regex_case("regex_too_large", "[a-z]{900}"),
    "health checks without names": cluster_case(
        "missing_field", "/health_checks/0", health_checks=[HEALTH_CHECK, HEALTH_CHECK]
    ),
}

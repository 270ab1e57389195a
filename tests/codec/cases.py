"""Valid resources of many shapes, as plain values; each stands for something codecs get wrong."""

from __future__ import annotations

from typing import Any

T = "type.googleapis.com/"
CORE = "envoy.config.core.v3"
HCM = f"{T}envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = f"{T}envoy.extensions.filters.http.router.v3.Router"
TLS = f"{T}envoy.extensions.transport_sockets.tls.v3"
ADS = {"ads": {}, "resource_api_version": "V3"}


def _cluster(name: str, **fields: object) -> dict[str, object]:
    return {"@type": f"{T}envoy.config.cluster.v3.Cluster", "name": name, **fields}


def _listener(name: str, manager: dict[str, object]) -> dict[str, object]:
    filters = [{"name": "hcm", "typed_config": {"@type": HCM, "stat_prefix": "s", **manager}}]
    return {
        "@type": f"{T}envoy.config.listener.v3.Listener",
        "name": name,
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}},
        "filter_chains": [{"filters": filters}],
    }


def _route(name: str, **host: object) -> dict[str, object]:
    return {
        "@type": f"{T}envoy.config.route.v3.RouteConfiguration",
        "name": name,
        "virtual_hosts": [{"name": "all", "domains": ["*"], **host}],
    }


def _extension(name: str, config: dict[str, object]) -> dict[str, object]:
    return {"@type": f"{T}{CORE}.TypedExtensionConfig", "name": name, "typed_config": config}


CASES: dict[str, dict[str, Any]] = {
    "listener with rds, snake case": _listener(
        "l1",
        {
            "codec_type": "AUTO",
            "rds": {"route_config_name": "r1", "config_source": ADS},
            "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER, "suppress_envoy_headers": True}}],
        },
    ),
    "listener with rds, camel case": {
        "@type": f"{T}envoy.config.listener.v3.Listener",
        "name": "l1",
        "address": {"socketAddress": {"address": "0.0.0.0", "portValue": 80}},
        "filterChains": [
            {
                "filters": [
                    {
                        "name": "hcm",
                        "typedConfig": {
                            "@type": HCM,
                            "statPrefix": "s",
                            "codecType": "AUTO",
                            "rds": {
                                "routeConfigName": "r1",
                                "configSource": {"ads": {}, "resourceApiVersion": "V3"},
                            },
                            "httpFilters": [
                                {"name": "router", "typedConfig": {"@type": ROUTER, "suppressEnvoyHeaders": True}}
                            ],
                        },
                    }
                ]
            }
        ],
    },
    "api listener": {
        "@type": f"{T}envoy.config.listener.v3.Listener",
        "name": "svc",
        "api_listener": {
            "api_listener": {
                "@type": HCM,
                "rds": {"route_config_name": "r1", "config_source": ADS},
                "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}],
            }
        },
    },
    "digits in camel case": _listener(
        "l2",
        {
            "http_protocol_options": {"acceptHttp10": True, "defaultHostForHttp10": "h"},
            "scoped_routes": {
                "name": "scopes",
                "scope_key_builder": {"fragments": [{"header_value_extractor": {"name": "x", "index": 0}}]},
                "rds_config_source": ADS,
                "scoped_rds": {"scoped_rds_config_source": ADS},
            },
        },
    ),
    "cluster with tls and http2": _cluster(
        "c1",
        type="EDS",
        connect_timeout="0.250s",
        eds_cluster_config={"service_name": "s1", "eds_config": ADS},
        transport_socket={
            "name": "tls",
            "typed_config": {
                "@type": f"{TLS}.UpstreamTlsContext",
                "sni": "example.org",
                "common_tls_context": {
                    "tls_certificate_sds_secret_configs": [{"name": "cert", "sds_config": ADS}],
                    "validation_context_sds_secret_config": {"name": "ca", "sds_config": ADS},
                },
            },
        },
        typed_extension_protocol_options={
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{T}envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 100}},
            }
        },
    ),
    "wrappers and digits": _cluster(
        "c2",
        per_connection_buffer_limit_bytes=32768,
        outlier_detection={"consecutive_5xx": 3, "enforcingConsecutive5xx": "100", "interval": "1s"},
        ring_hash_lb_config={"minimum_ring_size": "8388608"},
        common_lb_config={"zone_aware_lb_config": {"min_cluster_size": "18446744073709551615"}},
    ),
    "durations to the nanosecond": _cluster("c3", connect_timeout="0.000000001s", dns_refresh_rate="3600s"),
    "zero in a wrapper and in a oneof": _cluster(
        "c4", type="STATIC", per_connection_buffer_limit_bytes=0, max_requests_per_connection=None
    ),
    "aggregate cluster": _cluster(
        "agg",
        lb_policy="CLUSTER_PROVIDED",
        cluster_type={
            "name": "envoy.clusters.aggregate",
            "typed_config": {
                "@type": f"{T}envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                "clusters": ["c1", "c2"],
            },
        },
    ),
    "metadata is a map of structs": _cluster(
        "c5",
        metadata={"filter_metadata": {"b": {"x": [1, "two", None, {"y": False}]}, "a": {}, "c": {"z": 1.5}}},
    ),
    "enum by number": _cluster("c6", lb_policy=3, dns_lookup_family="V4_ONLY"),
    "endpoints": {
        "@type": f"{T}envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "s1",
        "endpoints": [
            {
                "locality": {"region": "r", "zone": "z"},
                "load_balancing_weight": 3,
                "priority": 1,
                "lb_endpoints": [
                    {
                        "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}},
                        "health_status": "HEALTHY",
                        "load_balancing_weight": 7,
                    },
                    {"endpoint": {"address": {"pipe": {"path": "/tmp/s"}}}},
                ],
            }
        ],
        "policy": {"drop_overloads": [{"category": "a", "drop_percentage": {"numerator": 5}}]},
    },
    "route with weights": _route(
        "r1",
        routes=[
            {
                "match": {"prefix": "/"},
                "route": {
                    "weighted_clusters": {"clusters": [{"name": "c1", "weight": 1}, {"name": "c2", "weight": 9}]},
                    "request_mirror_policies": [{"cluster": "shadow"}],
                    "timeout": "1.5s",
                },
            }
        ],
    ),
    "route with regex and headers": _route(
        "r2",
        routes=[
            {
                "match": {
                    "safe_regex": {"regex": "/a/.*"},
                    "headers": [{"name": "x", "range_match": {"start": "1", "end": "10"}}],
                },
                "direct_response": {"status": 200, "body": {"inline_bytes": "aGk="}},
                "request_headers_to_add": [{"header": {"key": "x", "value": "é€😀"}, "append_action": 1}],
            }
        ],
    ),
    "route with per-filter config": _route(
        "r3",
        typed_per_filter_config={
            "b": {"@type": f"{T}google.protobuf.Empty"},
            "a": {"@type": f"{T}google.protobuf.Struct", "value": {"k": [1, 2]}},
        },
    ),
    "url-safe base64": _route(
        "r4", routes=[{"match": {"path": "/"}, "direct_response": {"status": 200, "body": {"inline_bytes": "-_8"}}}]
    ),
    "virtual host": {
        "@type": f"{T}envoy.config.route.v3.VirtualHost",
        "name": "r1/foo",
        "domains": ["foo.com", "foo.com:80"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "c1"}}],
    },
    "scoped route": {
        "@type": f"{T}envoy.config.route.v3.ScopedRouteConfiguration",
        "name": "scope",
        "route_configuration_name": "r1",
        "key": {"fragments": [{"string_key": "k"}]},
    },
    "secret": {
        "@type": f"{TLS}.Secret",
        "name": "cert",
        "tls_certificate": {
            "certificate_chain": {"inline_string": "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n"},
            "private_key": {
                "inline_bytes": "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCkFBRUMvdz09Ci0tLS0tRU5EIFBSSVZBVEUgS0VZLS0tLS0K"
            },
        },
    },
    "runtime": {
        "@type": f"{T}envoy.service.runtime.v3.Runtime",
        "name": "rt1",
        "layer": {"health_check.min_interval": 5, "feature": {"numerator": 10, "denominator": "HUNDRED"}, "x": True},
    },
    "extension config": _extension("ec1", {"@type": ROUTER, "start_child_span": True}),
    "typed struct": _extension(
        "ec2",
        {"@type": f"{T}xds.type.v3.TypedStruct", "type_url": f"{T}foo.Bar", "value": {"a": {"b": [1, None]}}},
    ),
    "older typed struct": _extension(
        "ec3", {"@type": f"{T}udpa.type.v1.TypedStruct", "type_url": f"{T}foo.Bar", "value": {"a": 1}}
    ),
    "any in any": _extension(
        "ec4",
        {
            "@type": f"{T}{CORE}.TypedExtensionConfig",
            "name": "inner",
            "typed_config": {"@type": f"{T}google.protobuf.Any", "value": {"@type": ROUTER}},
        },
    ),
    "wrapper in any": _extension("ec5", {"@type": f"{T}google.protobuf.BytesValue", "value": "aGk="}),
    "duration in any": _extension("ec6", {"@type": f"{T}google.protobuf.Duration", "value": "1.500s"}),
    "v2 cluster": {
        "@type": f"{T}envoy.api.v2.Cluster",
        "name": "old",
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"ads": {}}},
        "tls_context": {"sni": "example.org"},
    },
    "keyword as a field name": _extension(
        "ec7",
        {
            "@type": f"{T}envoy.extensions.filters.http.rbac.v3.RBAC",
            "matcher": {
                "matcher_list": {
                    "matchers": [
                        {
                            "predicate": {
                                "single_predicate": {
                                    "input": {
                                        "name": "ip",
                                        "typed_config": {
                                            "@type": f"{T}envoy.extensions.matching.common_inputs.network.v3"
                                            ".SourceIPInput"
                                        },
                                    },
                                    "custom_match": {
                                        "name": "m",
                                        "typed_config": {
                                            "@type": f"{T}xds.type.matcher.v3.IPMatcher",
                                            "range_matchers": [
                                                {"ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]}
                                            ],
                                        },
                                    },
                                }
                            },
                            "on_match": {"action": {"name": "a", "typed_config": {"@type": ROUTER}}},
                        }
                    ]
                }
            },
        },
    ),
}

"""What a resource names, wherever in it that stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.codec.cases import ADS, CASES, HCM, ROUTER, TLS, T
from tests.codec.shape_files import load_shape
from xds.codec import schema
from xds.codec.downgrade import downgrade
from xds.codec.finders import finder_of
from xds.codec.record import dump_record, load_record
from xds.codec.references import references_of
from xds.codec.resources import decode_resource
from xds.model.resource import Reference, content_version
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

PIPE = {"pipe": {"path": "@x"}}


def _api(kind: str) -> dict[str, Any]:
    service: dict[str, Any] = {
        "grpc_services": [{"google_grpc": {"target_uri": "xds.example:443", "stat_prefix": "x"}}]
    }
    if kind == "REST":
        service = {"cluster_names": ["xds"], "refresh_delay": "1s"}
    source = {"api_type": kind, "transport_api_version": "V3", **service}
    return {"api_config_source": source, "resource_api_version": "V3"}


API = _api("GRPC")
ANY_CLUSTER = Reference(CLUSTER, "*")
TCP_PROXY = f"{T}envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


def _references(value: dict[str, Any]) -> list[Reference]:
    """The references without their config sources: `test_equal_config_sources_differ_from_others`."""
    return [replace(each, source_hash=0) for each in decode_resource(value).references]


def _eds(source: dict[str, Any], **config: object) -> dict[str, Any]:
    return {"@type": CLUSTER, "name": "c1", "type": "EDS", "eds_cluster_config": {"eds_config": source, **config}}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (ADS, "ads"),
        (API, "api"),
        (_api("DELTA_GRPC"), "api"),
        (_api("REST"), "rest"),
        (_api("AGGREGATED_GRPC"), "ads"),
        (_api("AGGREGATED_DELTA_GRPC"), "ads"),
        ({"path_config_source": {"path": "/x"}}, "path"),
        ({"path": "/x"}, "path"),
        ({"self": {}}, "self"),
    ],
)
def test_cluster_to_endpoints_by_each_source(source: dict[str, Any], kind: str) -> None:
    assert _references(_eds(source)) == [Reference(ENDPOINT, "c1", kind)]


def test_service_name_goes_before_the_clusters_own() -> None:
    assert _references(_eds(ADS, service_name="s1")) == [Reference(ENDPOINT, "s1", "ads")]
    name = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/s?b=1&a=2"
    assert _references(_eds(ADS, service_name=name))[0].name.endswith("?a=2&b=1")


def test_secrets_in_packed_transport_sockets() -> None:
    assert _references(CASES["cluster with tls and http2"]) == [
        Reference(ENDPOINT, "s1", "ads"),
        Reference(SECRET, "cert", "ads"),
        Reference(SECRET, "ca", "ads"),
    ]


def test_equal_config_sources_differ_from_others() -> None:
    """docs/internals/clients.md#config-sources: Envoy compares them by bytes, not by meaning."""
    sources: list[dict[str, Any]] = [ADS, ADS, {"ads": {}}]
    ((first,), (same,), (other,)) = (decode_resource(_eds(source)).references for source in sources)
    assert first == same
    assert replace(first, source_hash=other.source_hash) == other != first


def test_static_secrets_are_no_references() -> None:
    context = {"common_tls_context": {"tls_certificate_sds_secret_configs": {"name": "static"}}}
    socket = {"name": "tls", "typed_config": {"@type": f"{TLS}.UpstreamTlsContext", **context}}
    assert _references({"@type": CLUSTER, "name": "c", "transport_socket": socket}) == []


def _chain(*filters: dict[str, Any], **chain: object) -> dict[str, Any]:
    return {"filters": list(filters), **chain}


def _manager(**config: object) -> dict[str, Any]:
    return {"name": "hcm", "typed_config": {"@type": HCM, "stat_prefix": "s", **config}}


def test_listener_names_all_it_needs() -> None:
    secret = {"tls_certificate_sds_secret_configs": [{"name": "cert", "sds_config": ADS}]}
    socket = {"name": "tls", "typed_config": {"@type": f"{TLS}.DownstreamTlsContext", "common_tls_context": secret}}
    discovered = {"name": "ec1", "config_discovery": {"config_source": ADS, "type_urls": [ROUTER]}}
    weighted = {"clusters": [{"name": "w1", "weight": 1}, {"name": "w2", "weight": 1}]}
    listener = {
        "@type": LISTENER,
        "name": "l",
        "address": PIPE,
        "filter_chains": [
            _chain(_manager(rds={"route_config_name": "r1", "config_source": ADS}, http_filters=discovered)),
            _chain(
                _manager(
                    route_config={
                        "virtual_hosts": [
                            {
                                "name": "v",
                                "domains": ["*"],
                                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "inline"}}],
                            }
                        ]
                    }
                ),
                transport_socket=socket,
                filter_chain_match={"server_names": ["a"]},
            ),
            _chain(
                {"name": "tcp", "typed_config": {"@type": TCP_PROXY, "stat_prefix": "s", "cluster": "t1"}},
                filter_chain_match={"server_names": ["b"]},
            ),
        ],
        "default_filter_chain": _chain(
            {"name": "tcp", "typed_config": {"@type": TCP_PROXY, "stat_prefix": "s", "weighted_clusters": weighted}},
        ),
        "listener_filters": [{"name": "ec2", "config_discovery": {"config_source": API, "type_urls": ["x"]}}],
    }
    assert set(_references(listener)) == {
        Reference(ROUTE, "r1", "ads"),
        Reference(EXTENSION_CONFIG, "ec1", "ads"),
        Reference(EXTENSION_CONFIG, "ec2", "api"),
        Reference(CLUSTER, "inline"),
        Reference(SECRET, "cert", "ads"),
        Reference(CLUSTER, "t1"),
        Reference(CLUSTER, "w1"),
        Reference(CLUSTER, "w2"),
    }


def test_api_listener_and_scoped_routes() -> None:
    assert _references(CASES["api listener"]) == [Reference(ROUTE, "r1", "ads")]
    assert _references(CASES["digits in camel case"]) == [Reference(SCOPED_ROUTE, "*", "ads")]
    assert _references(CASES["scoped route"]) == [Reference(ROUTE, "r1")]


def test_routes_name_clusters_once() -> None:
    route = {"match": {"prefix": "/"}, "route": {"cluster": "c1"}}
    value = {
        "@type": ROUTE,
        "name": "r",
        "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [route, route]}],
        "vhds": {"config_source": ADS},
        "request_mirror_policies": [{"cluster": "shadow"}],
    }
    assert set(_references(value)) == {
        Reference(VIRTUAL_HOST, "*", "ads"),
        Reference(CLUSTER, "c1"),
        Reference(CLUSTER, "shadow"),
    }
    assert len(_references(value)) == 3


def test_weighted_and_mirrored_clusters() -> None:
    names = [one.name for one in _references(CASES["route with weights"])]
    assert sorted(names) == ["c1", "c2", "shadow"]


def test_clusters_of_priority_groups() -> None:
    listener, *_ = load_shape("newer/priority-groups")
    assert _references(listener) == [Reference(CLUSTER, "grouped-near"), Reference(CLUSTER, "grouped-far")]


def test_aggregate_clusters() -> None:
    assert _references(CASES["aggregate cluster"]) == [Reference(CLUSTER, "c1"), Reference(CLUSTER, "c2")]


def test_v2_resources_refer_to_v2_types() -> None:
    assert _references(CASES["v2 cluster"]) == [Reference(V2_URLS[ENDPOINT], "old", "ads")]
    rest = {"api_config_source": {"api_type": "REST", "cluster_names": ["xds"], "refresh_delay": "1s"}}
    polled = {**CASES["v2 cluster"], "eds_cluster_config": {"eds_config": rest}}
    assert _references(polled) == [Reference(V2_URLS[ENDPOINT], "old", "rest")]


# What is named by way of a filter, a logger or a plugin


def _listener(*filters: dict[str, Any], **config: object) -> dict[str, Any]:
    """With these HTTP filters, and more of the connection manager."""
    router = {"name": "router", "typed_config": {"@type": ROUTER}}
    routes = {"name": "r", "virtual_hosts": []}
    manager = _manager(**{"route_config": routes, **config}, http_filters=[*filters, router])
    return {"@type": LISTENER, "name": "l", "address": PIPE, "filter_chains": [_chain(manager)]}


def _typed(type: str, **config: object) -> dict[str, Any]:
    return {"name": "x", "typed_config": {"@type": f"{T}{type}", **config}}


def _network(*filters: dict[str, Any]) -> dict[str, Any]:
    tcp = {"name": "tcp", "typed_config": {"@type": TCP_PROXY, "stat_prefix": "s", "cluster": "t1"}}
    return {"@type": LISTENER, "name": "l", "address": PIPE, "filter_chains": [_chain(*filters, tcp)]}


def _route(**action: object) -> dict[str, Any]:
    routes = [{"match": {"prefix": "/"}, "route": action}]
    return {"@type": ROUTE, "name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]}


GRPC = {"envoy_grpc": {"cluster_name": "named"}}
URI = {"uri": "http://x/", "cluster": "named", "timeout": "1s"}
FILTERS = "envoy.extensions.filters"
LOG = {"common_config": {"log_name": "l", "grpc_service": GRPC, "transport_api_version": "V3"}}
JWT = {"providers": {"p": {"issuer": "i", "remote_jwks": {"http_uri": URI}}}}
LIMIT = {"domain": "d", "rate_limit_service": {"grpc_service": GRPC, "transport_api_version": "V3"}}
HEALTH = {"pass_through_mode": False, "cluster_min_healthy_percentages": {"named": {}}}
FLUENTD = {"cluster": "named", "tag": "t", "stat_prefix": "s", "record": {}}


@pytest.mark.parametrize(
    "value",
    [
        _listener(_typed(f"{FILTERS}.http.ext_authz.v3.ExtAuthz", grpc_service=GRPC, transport_api_version="V3")),
        _listener(_typed(f"{FILTERS}.http.ext_proc.v3.ExternalProcessor", grpc_service=GRPC)),
        _listener(_typed(f"{FILTERS}.http.ratelimit.v3.RateLimit", **LIMIT)),
        _listener(_typed(f"{FILTERS}.http.jwt_authn.v3.JwtAuthentication", **JWT)),
        _listener(_typed(f"{FILTERS}.http.gcp_authn.v3.GcpAuthnFilterConfig", cluster="named")),
        _listener(access_log=[_typed("envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig", **LOG)]),
        _listener(access_log=[_typed("envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig", **FLUENTD)]),
        _listener(_typed(f"{FILTERS}.http.health_check.v3.HealthCheck", **HEALTH)),
        {"@type": EXTENSION_CONFIG, **_typed(f"{FILTERS}.http.ext_proc.v3.ExternalProcessor", grpc_service=GRPC)},
    ],
)
def test_services_that_filters_call_are_named(value: dict[str, Any]) -> None:
    assert _references(value) == [Reference(CLUSTER, "named")]


def test_clusters_of_a_composite() -> None:
    typed = {
        "@type": f"{T}envoy.extensions.clusters.composite.v3.ClusterConfig",
        "clusters": [{"name": "c1"}, {"name": "c2"}],
    }
    custom = {"name": "x", "typed_config": typed}
    cluster = {"@type": CLUSTER, "name": "c", "lb_policy": "CLUSTER_PROVIDED", "cluster_type": custom}
    assert _references(cluster) == [Reference(CLUSTER, "c1"), Reference(CLUSTER, "c2")]


def test_endpoints_of_a_static_cluster_stand_for_internal_listeners() -> None:
    addresses: list[dict[str, Any]] = [
        {"envoy_internal_address": {"server_listener_name": "inner"}},
        {"socket_address": {"address": "10.0.0.1", "port_value": 80}},
    ]
    members = [{"endpoint": {"address": address}} for address in addresses]
    inline = {"load_assignment": {"cluster_name": "c1", "endpoints": [{"lb_endpoints": members}]}}
    assert _references({"@type": CLUSTER, "name": "c1", "type": "STATIC", **inline}) == [Reference(LISTENER, "inner")]


def _assignment(*addresses: dict[str, Any], **member: object) -> dict[str, Any]:
    members = [{"endpoint": {"address": address}, **member} for address in addresses]
    return {"@type": ENDPOINT, "cluster_name": "c1", "endpoints": [{"lb_endpoints": members}]}


def _inner(name: str, **fields: object) -> dict[str, Any]:
    return {"envoy_internal_address": {"server_listener_name": name, **fields}}


SOCKET = {"socket_address": {"address": "10.0.0.1", "port_value": 80}}


@pytest.mark.parametrize("name", ["i", "inner", "n" * 130, "xdstp://a/envoy.config.listener.v3.Listener/" + "n" * 3000])
def test_endpoints_of_an_assignment_stand_for_internal_listeners(name: str) -> None:
    value = _assignment(SOCKET, _inner(name), _inner("other", endpoint_id="e" * 200), _inner(name))
    assert _references(value) == [Reference(LISTENER, name), Reference(LISTENER, "other")]


def test_an_assignment_with_anything_else_refers_to_nothing() -> None:
    metadata = {"filter_metadata": {"envoy.lb": {"canary": True, "text": "\n\x1a\x05\n\x03abc"}}}
    pipe = {"pipe": {"path": "@/tmp/x"}}
    weighed = _assignment(SOCKET, pipe, metadata=metadata, load_balancing_weight=3)
    weighed["endpoints"][0].update(load_balancing_weight=100, locality={"zone": "\n\x05\x1a\x03\nz"})
    assert _references(weighed) == []
    assert _references(_assignment()) == []


def test_prefetched_secrets() -> None:
    selector = _typed(
        "envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config",
        config_source=ADS,
        certificate_mapper=_typed("envoy.extensions.transport_sockets.tls.cert_mappers.sni.v3.SNI", default_value="a"),
        prefetch_secret_names=["a", "b"],
    )
    context = {"common_tls_context": {"custom_tls_certificate_selector": selector}}
    socket = {"name": "tls", "typed_config": {"@type": f"{TLS}.DownstreamTlsContext", **context}}
    value = {"@type": LISTENER, "name": "l", "address": PIPE, "filter_chains": [{"transport_socket": socket}]}
    assert _references(value) == [Reference(SECRET, "a", "ads"), Reference(SECRET, "b", "ads")]


# What leads to any cluster

LUA = _typed(f"{FILTERS}.http.lua.v3.Lua", default_source_code={"inline_string": "function envoy_on_request(h) end"})
MODULE = {"dynamic_module_config": {"name": "m"}}
PLUGIN = {
    "config": {
        "name": "p",
        "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"inline_string": "x"}}},
    }
}
STRUCT = {"type_url": f"{T}foo.Bar", "value": {"cluster": "c"}}
OPAQUE = {"@type": f"{T}acme.Filter", "@value_base64": "CgFh"}
SPECIFIERS = "envoy.extensions.router.cluster_specifiers"
ON_ROUTE = {"inline_string": "function envoy_on_route(handle) return 'c1' end"}
LUA_SPECIFIER = _typed(f"{SPECIFIERS}.lua.v3.LuaConfig", source_code=ON_ROUTE)


@pytest.mark.parametrize(
    "value",
    [
        _listener(LUA),
        _listener(_typed(f"{FILTERS}.http.wasm.v3.Wasm", **PLUGIN)),
        _listener(_typed(f"{FILTERS}.http.dynamic_modules.v3.DynamicModuleFilter", **MODULE)),
        _listener(access_log=[_typed("envoy.extensions.access_loggers.wasm.v3.WasmAccessLog", **PLUGIN)]),
        _listener(_typed("xds.type.v3.TypedStruct", **STRUCT)),
        _listener(_typed("udpa.type.v1.TypedStruct", **STRUCT)),
        _listener(_typed("google.protobuf.Struct", value={"cluster": "c"})),
        _listener({"name": "acme", "typed_config": OPAQUE}),
        _route(cluster_header="x-cluster"),
        _route(inline_cluster_specifier_plugin={"extension": LUA_SPECIFIER}),
        _route(inline_cluster_specifier_plugin={"extension": {"name": "acme", "typed_config": OPAQUE}}),
        {"@type": EXTENSION_CONFIG, **LUA},
        {"@type": EXTENSION_CONFIG, "name": "acme", "typed_config": OPAQUE},
        {
            "@type": VIRTUAL_HOST,
            "name": "r/v",
            "domains": ["v"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster_specifier_plugin": "of the route configuration"}}],
        },
    ],
)
def test_content_that_cannot_be_read_may_lead_to_any_cluster(value: dict[str, Any]) -> None:
    assert _references(value) == [ANY_CLUSTER]


@pytest.mark.parametrize(
    "filter",
    [
        _typed(f"{FILTERS}.network.wasm.v3.Wasm", **PLUGIN),
        _typed(f"{FILTERS}.network.dynamic_modules.v3.DynamicModuleNetworkFilter", **MODULE),
        _typed(f"{FILTERS}.network.sni_cluster.v3.SniCluster"),
        _typed(
            f"{FILTERS}.network.set_filter_state.v3.Config",
            on_new_connection=[
                {
                    "object_key": "envoy.tcp_proxy.cluster",
                    "format_string": {"text_format_source": {"inline_string": "%REQUESTED_SERVER_NAME%"}},
                }
            ],
        ),
    ],
)
def test_a_filter_may_choose_the_cluster_of_a_connection(filter: dict[str, Any]) -> None:
    assert _references(_network(filter)) == [ANY_CLUSTER, Reference(CLUSTER, "t1")]


@pytest.mark.parametrize(
    ("key", "found"),
    [("envoy.tcp_proxy.cluster", [Reference(CLUSTER, "t2")]), ("envoy.network.upstream_server_name", [])],
)
def test_filter_state_that_is_spelt_out(key: str, found: list[Reference]) -> None:
    value = {"object_key": key, "format_string": {"text_format_source": {"inline_string": "t2"}}}
    state = _typed(f"{FILTERS}.network.set_filter_state.v3.Config", on_new_connection=[value])
    assert _references(_network(state)) == [*found, Reference(CLUSTER, "t1")]


def test_weights_and_mirrors_by_header() -> None:
    weighted = {"clusters": [{"name": "c1", "weight": 1}, {"cluster_header": "x", "weight": 1}]}
    assert _references(_route(weighted_clusters=weighted)) == [Reference(CLUSTER, "c1"), ANY_CLUSTER]
    mirrors = [{"cluster_header": "x"}, {"cluster": "shadow"}]
    assert set(_references(_route(cluster="c1", request_mirror_policies=mirrors))) == {
        Reference(CLUSTER, "c1"),
        ANY_CLUSTER,
        Reference(CLUSTER, "shadow"),
    }


def test_specifiers_that_name_their_clusters_are_read() -> None:
    action = _typed(f"{SPECIFIERS}.matcher.v3.ClusterAction", cluster="c1")
    matcher = _typed(
        f"{SPECIFIERS}.matcher.v3.MatcherClusterSpecifier", cluster_matcher={"on_no_match": {"action": action}}
    )
    assert _references(_route(inline_cluster_specifier_plugin={"extension": matcher})) == [Reference(CLUSTER, "c1")]
    named = {**_route(cluster_specifier_plugin="x"), "cluster_specifier_plugins": [{"extension": matcher}]}
    assert _references(named) == [Reference(CLUSTER, "c1")]
    lua = _typed(f"{SPECIFIERS}.lua.v3.LuaConfig", source_code=ON_ROUTE, default_cluster="c1")
    assert set(_references(_route(inline_cluster_specifier_plugin={"extension": lua}))) == {
        ANY_CLUSTER,
        Reference(CLUSTER, "c1"),
    }


def test_a_script_that_a_route_turns_off_leads_nowhere() -> None:
    per_route = {"x": {"@type": f"{T}{FILTERS}.http.lua.v3.LuaPerRoute", "disabled": True}}
    assert _references({**_route(cluster="c1"), "typed_per_filter_config": per_route}) == [Reference(CLUSTER, "c1")]
    per_route["x"] = {"@type": f"{T}{FILTERS}.http.lua.v3.LuaPerRoute", "source_code": {"inline_string": "local a"}}
    assert ANY_CLUSTER in _references({**_route(cluster="c1"), "typed_per_filter_config": per_route})


def test_clusters_and_endpoints_lead_to_no_cluster_that_is_not_named() -> None:
    cluster = {"@type": CLUSTER, "name": "c", "type": "STATIC"}
    assert _references({**cluster, "filters": [{"name": "acme", "typed_config": OPAQUE}]}) == []
    assert (
        _references({"@type": V2_URLS[CLUSTER], "name": "c", "filters": [{"name": "acme", "typed_config": OPAQUE}]})
        == []
    )


def test_v2_content_that_cannot_be_read() -> None:
    v2_cluster = Reference(V2_URLS[CLUSTER], "*")
    route = {"match": {"prefix": "/"}, "route": {"cluster_header": "x"}}
    host = {"name": "v", "domains": ["*"], "routes": [route]}
    assert _references({"@type": V2_URLS[ROUTE], "name": "r", "virtual_hosts": [host]}) == [v2_cluster]
    old = f"{T}envoy.config.filter"
    lua = {"@type": f"{old}.http.lua.v2.Lua", "inline_code": "x"}
    http = {"stat_prefix": "s", "route_config": {}, "http_filters": [{"name": "lua", "typed_config": lua}]}
    manager = {"@type": f"{old}.network.http_connection_manager.v2.HttpConnectionManager", **http}
    listener = {"@type": V2_URLS[LISTENER], "name": "l", "address": {"pipe": {"path": "/x"}}}
    scripted = {**listener, "filter_chains": [_chain({"name": "hcm", "typed_config": manager})]}
    assert _references(scripted) == [v2_cluster]
    untyped = {**listener, "filter_chains": [_chain({"name": "hcm", "config": {"stat_prefix": "s"}})]}
    assert _references(untyped) == [v2_cluster]


def test_types_of_users_have_no_references(monkeypatch: pytest.MonkeyPatch) -> None:
    value = _listener(_typed(f"{FILTERS}.http.cors.v3.Cors"))
    assert _references(value) == []
    monkeypatch.setattr(schema, "_USER_NAMES", [f"{FILTERS}.http.cors.v3.Cors"])
    finder_of.cache_clear()
    assert list(references_of(LISTENER, _message(value), b"")) == [ANY_CLUSTER]
    finder_of.cache_clear()


def _message(value: dict[str, Any]) -> Any:
    return schema.require(LISTENER).FromString(decode_resource(value).body)


# How long the first health check takes

CHECK = {"timeout": "2s", "interval": "10s", "unhealthy_threshold": 3, "healthy_threshold": 3, "tcp_health_check": {}}


@pytest.mark.parametrize(
    ("checks", "longest_s"),
    [
        ([], 0.0),
        ([CHECK], 2.0),
        ([{**CHECK, "initial_jitter": "0.500s"}], 2.5),
        ([{**CHECK, "initial_jitter": "0.500s"}, {**CHECK, "timeout": "3s"}], 3.0),
    ],
)
def test_the_first_check_takes_jitter_and_timeout(checks: list[dict[str, Any]], longest_s: float) -> None:
    cluster = decode_resource({**_eds(ADS), "health_checks": checks})
    assert cluster.first_check_s == longest_s
    assert load_record(dump_record(cluster)) == cluster
    assert downgrade(cluster).resource is not None
    old = decode_resource({"@type": V2_URLS[CLUSTER], "name": "c1", "health_checks": checks})
    assert old.first_check_s == longest_s


def test_the_first_check_is_kept_for_old_clients_and_is_no_part_of_the_version() -> None:
    cluster = decode_resource({**_eds({"ads": {}}), "health_checks": [CHECK]})
    old = downgrade(cluster).resource
    assert old is not None
    assert old.first_check_s == 2.0
    assert cluster.version == content_version(cluster.body)
    assert decode_resource(_route(cluster="c1")).first_check_s == 0.0

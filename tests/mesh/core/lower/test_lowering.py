"""Lowering, fixture by fixture, and what is refused: with the entry and the place in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mesh.core.chain.cases import CASES as CHAIN_CASES
from tests.mesh.core.chain.cases import Case
from tests.mesh.core.lower.lowering_cases import ALL_GRPC, ALL_HTTP, CASES, WEB, LoweringCase, http
from tests.support.chains import entries_of
from tests.support.lowering import DATACENTER, Json, catalog_of, chain_of, decoded, findings, lowered
from xds.consul.quantities import duration_text
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.defaults import ServiceDefaults
from xds.mesh.core.lower.lowered import Lowered, merge_lowered
from xds.mesh.core.lower.lowering import lower_upstream
from xds.mesh.core.lower.upstreams import ProxySettings, Upstream, read_upstreams, with_upstream_config
from xds.model.errors import ValidationError, Violation
from xds.model.resource_type import CLUSTER, LISTENER, ROUTE

GRPC_WEB = "upstreams: [{service: web}]"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fixture(case: LoweringCase) -> None:
    assert case.text() == case.golden.read_text(), (
        "run python -m tests.mesh.core.lower.lowering_cases, and read the difference"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lowered_resources_have_no_findings_as_a_push(case: LoweringCase) -> None:
    """No errors, no warnings, no unused or missing resources."""
    assert findings(lowered(case.document, case.entries), catalog_of(case.instances)) == []


def upstream_of(case: Case) -> Json:
    overrides = case.overrides or Overrides()
    datacenter = {"datacenter": case.datacenter} if case.datacenter != DATACENTER else {}
    protocol = {"protocol": overrides.protocol} if overrides.protocol else {}
    timeout = overrides.connect_timeout_ns
    return {
        "service": "web",
        "bind_port": 9191,
        **datacenter,
        **protocol,
        **({"connect_timeout": duration_text(timeout)} if timeout else {}),
    }


@pytest.mark.parametrize("case", CHAIN_CASES, ids=lambda case: case.name)
def test_a_chain_of_every_kind_makes_resources_that_the_codec_takes(case: Case) -> None:
    document = {"upstreams": [upstream_of(case)]}
    if case.name.startswith(("22_", "23_")):
        (finding,) = refusal(document, case.entries)
        assert (finding.code, finding.resource) == ("unreachable", "service-resolver/web")
        return
    found = lowered(document, case.entries)
    assert findings(found, {}) == []
    used = {one.name for one in found.resources if one.type_url == CLUSTER and one.content.get("type") == "EDS"}
    assert used == set(found.assignments)


def refusal(document: object, entries: str = "") -> list[Violation]:
    with pytest.raises(ValidationError) as caught:
        decoded(lowered(document, entries))
    return caught.value.violations


def router(route: str) -> str:
    return f"{ALL_HTTP}- {{Kind: service-router, Name: web, Routes: [{{}}, {route}]}}\n"


def resolver(fields: str) -> str:
    return f"{ALL_HTTP}- {{Kind: service-resolver, Name: web, {fields}}}\n"


ROUTER, RESOLVER = "service-router/web", "service-resolver/web"
REFUSED = [
    (router("{Match: {HTTP: {PathRegex: '/(a'}}}"), ROUTER, "/Routes/1/Match/HTTP/PathRegex", "bad_regex"),
    # Envoy 1.40 compiles patterns byte by byte.
    (router("{Match: {HTTP: {PathRegex: '/\\x{1F600}'}}}"), ROUTER, "/Routes/1/Match/HTTP/PathRegex", "bad_regex"),
    (router("{Match: {HTTP: {PathRegex: '/(?=a)'}}}"), ROUTER, "/Routes/1/Match/HTTP/PathRegex", "bad_regex"),
    (router("{Match: {HTTP: {PathRegex: '/a{1,200}'}}}"), ROUTER, "/Routes/1/Match/HTTP/PathRegex", "large_regex"),
    (
        router("{Match: {HTTP: {Header: [{Name: a, Exact: b}, {Name: x, Regex: '['}]}}}"),
        ROUTER,
        "/Routes/1/Match/HTTP/Header/1/Regex",
        "bad_regex",
    ),
    (
        router("{Match: {HTTP: {QueryParam: [{Name: x, Regex: '['}]}}}"),
        ROUTER,
        "/Routes/1/Match/HTTP/QueryParam/0/Regex",
        "bad_regex",
    ),
    (
        router("{Match: {HTTP: {PathRegex: '" + "(?:[a-c]x|[d-f]y)" * 40 + "'}}}"),
        ROUTER,
        "/Routes/1/Match/HTTP/PathRegex",
        "large_regex",
    ),
    # The letters k and s fold with two letters that are not ASCII.
    (
        router(
            f"{{Match: {{HTTP: {{PathPrefix: /{'tasks' * 20}, CaseInsensitive: true}}}}, "
            "Destination: {PrefixRewrite: /}}"
        ),
        ROUTER,
        "/Routes/1/Destination/PrefixRewrite",
        "large_regex",
    ),
    (
        router("{Destination: {RequestHeaders: {Set: {x: 100%}}}}"),
        ROUTER,
        "/Routes/1/Destination/RequestHeaders",
        "bad_header_value",
    ),
    (
        router("{Destination: {RequestHeaders: {Set: {x: '%USER%'}}}}"),
        ROUTER,
        "/Routes/1/Destination/RequestHeaders",
        "bad_header_value",
    ),
    (
        router("{Destination: {ResponseHeaders: {Remove: [Host]}}}"),
        ROUTER,
        "/Routes/1/Destination/ResponseHeaders",
        "fixed_header",
    ),
    (
        f"{ALL_HTTP}- Kind: service-splitter\n  Name: web\n"
        "  Splits: [{Weight: 100, RequestHeaders: {Add: {':path': a}}}]\n",
        "service-splitter/web",
        "/Splits",
        "fixed_header",
    ),
    (resolver("Subsets: {a: {Filter: Service.Nothing == 1}}, DefaultSubset: a"), RESOLVER, "/Subsets/a/Filter", ""),
    (
        resolver("LoadBalancer: {Policy: ring_hash, RingHashConfig: {MinimumRingSize: 20, MaximumRingSize: 10}}"),
        RESOLVER,
        "/LoadBalancer/RingHashConfig/MinimumRingSize",
        "bad_ring_size",
    ),
    (resolver("Redirect: {Service: web, Peer: east}"), RESOLVER, "", "unreachable"),
    (
        "- {Kind: proxy-defaults, Config: {protocol: http}, MeshGateway: {Mode: local}}\n"
        "- {Kind: service-resolver, Name: web, Redirect: {Datacenter: dc2}}",
        RESOLVER,
        "",
        "unreachable",
    ),
    (
        '- {Kind: service-defaults, Name: web, ExternalSNI: "a\\x01b"}',
        "service-defaults/web",
        "/ExternalSNI",
        "bad_sni",
    ),
    # What the codec finds is told of the entry as well.
    (
        resolver("LoadBalancer: {Policy: least_request, LeastRequestConfig: {ChoiceCount: 1}}"),
        RESOLVER,
        "/LoadBalancer/LeastRequestConfig",
        "",
    ),
    (
        resolver("LoadBalancer: {Policy: ring_hash, RingHashConfig: {MaximumRingSize: 9000000}}"),
        RESOLVER,
        "/LoadBalancer/RingHashConfig",
        "",
    ),
    (
        resolver(
            "LoadBalancer: {Policy: maglev, HashPolicies: "
            "[{Field: cookie, FieldValue: c, CookieConfig: {TTL: -1s}}]}, RequestTimeout: 1s"
        ),
        RESOLVER,
        "/LoadBalancer/HashPolicies/0/CookieConfig/TTL",
        "negative",
    ),
    (
        router('{Destination: {RequestHeaders: {Set: {x: "a\\nb"}}}}'),
        ROUTER,
        "/Routes/1/Destination/RequestHeaders",
        "",
    ),
    (
        router('{Match: {HTTP: {Header: [{Name: "a\\nb", Present: true}]}}}'),
        ROUTER,
        "/Routes/1/Match/HTTP/Header/0",
        "",
    ),
    (
        router('{Match: {HTTP: {PathPrefix: /a}}, Destination: {PrefixRewrite: "/a\\nb"}}'),
        ROUTER,
        "/Routes/1/Destination/PrefixRewrite",
        "",
    ),
]


@pytest.mark.parametrize(("entries", "resource", "pointer", "code"), REFUSED)
def test_resources_that_envoy_rejects_are_reported_of_the_entry(
    entries: str, resource: str, pointer: str, code: str
) -> None:
    (finding,) = refusal(WEB, entries)
    assert (finding.resource, finding.pointer) == (resource, pointer), finding
    assert not code or finding.code == code
    assert "upstream 'web'" in finding.hint


def test_a_finding_in_the_cluster_of_a_failover_is_reported_of_its_resolver() -> None:
    balancer = "LoadBalancer: {Policy: least_request, LeastRequestConfig: {ChoiceCount: 1}}"
    found = refusal(WEB, resolver(f'Failover: {{"*": {{Service: backup}}}}, {balancer}'))
    assert {(one.resource, one.pointer) for one in found} == {(RESOLVER, "/LoadBalancer/LeastRequestConfig")}


def test_a_cluster_of_a_failover_comes_from_the_entries_of_both_services() -> None:
    entries = resolver('Failover: {"*": {Service: backup}}') + http("backup")
    found = lowered(WEB, entries)
    (last,) = [one for one in found.resources if one.name.startswith("failover-target~1~")]
    wanted = {("proxy-defaults", "global"), ("service-resolver", "web"), ("service-defaults", "backup")}
    assert set(last.entries) == set(found.assignments[last.name].entries) == wanted


def test_values_with_commands_and_large_programs_that_the_proxies_allow_are_taken() -> None:
    value = "a%%b %DOWNSTREAM_REMOTE_ADDRESS% %REQ(x-id?y):8%"
    lowered(WEB, router(f"{{Destination: {{RequestHeaders: {{Set: {{x: '{value}'}}}}}}}}"))
    lowered(f"{WEB}\nregex_program_size: 2000", router("{Match: {HTTP: {PathRegex: '/a{1,900}'}}}"))


def test_a_long_regular_expression_with_a_small_program_is_taken() -> None:
    """Envoy counts instructions, not letters."""
    text = f"^/{'a' * 600}"
    found = lowered(WEB, router(f"{{Match: {{HTTP: {{PathRegex: '{text}'}}}}}}"))
    (routes,) = [one.content for one in found.resources if one.type_url == ROUTE]
    assert routes["virtual_hosts"][0]["routes"][1]["match"] == {"safe_regex": {"regex": text}}
    assert findings(found, {}) == []


def test_a_splitter_without_any_cluster_is_refused() -> None:
    entries = ALL_HTTP + (
        "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: far}]}\n"
        "- {Kind: service-resolver, Name: far, Redirect: {Service: far, Peer: east}}\n"
        "- {Kind: service-router, Name: web, Routes: [{Destination: {Service: api}}]}\n"
    )
    (finding,) = refusal(WEB, entries)
    assert (finding.code, finding.resource, finding.pointer) == ("no_weight", "service-splitter/web", "/Splits")


# gRPC clients without a proxy


def test_grpc_clients_without_a_proxy_need_a_protocol_with_requests() -> None:
    (finding,) = refusal(GRPC_WEB)
    assert (finding.code, finding.resource, finding.pointer) == (
        "protocol_not_http",
        "service-defaults/web",
        "/Protocol",
    )


@pytest.mark.parametrize("policy", ["random", "maglev"])
def test_grpc_clients_without_a_proxy_have_not_every_load_balancing_policy(policy: str) -> None:
    entries = f"{ALL_GRPC}- {{Kind: service-resolver, Name: web, LoadBalancer: {{Policy: {policy}}}}}"
    (finding,) = refusal(GRPC_WEB, entries)
    assert (finding.code, finding.pointer) == ("policy_not_in_grpc", "/LoadBalancer/Policy")


def test_a_wrong_choice_count_is_reported_of_the_entry_for_grpc_clients_too() -> None:
    entries = "LoadBalancer: {Policy: least_request, LeastRequestConfig: {ChoiceCount: 1}}"
    (finding,) = refusal(GRPC_WEB, f"{ALL_GRPC}- {{Kind: service-resolver, Name: web, {entries}}}")
    assert (finding.resource, finding.pointer) == (RESOLVER, "/LoadBalancer/LeastRequestConfig")


def test_grpc_clients_without_a_proxy_cannot_reach_an_external_service() -> None:
    (finding,) = refusal(GRPC_WEB, "- {Kind: service-defaults, Name: web, Protocol: grpc, ExternalSNI: x.example}")
    assert (finding.code, finding.pointer) == ("external_without_proxy", "/ExternalSNI")


# External services

EXTERNAL_FAILOVER = """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: outside}}}
- {Kind: service-defaults, Name: outside, Protocol: PROTOCOL, ExternalSNI: x.example}
"""


def test_targets_that_differ_in_tls_do_not_share_a_cluster() -> None:
    """Connections to the second one would be plain, or those to the first one TLS."""
    entries = ALL_HTTP + EXTERNAL_FAILOVER.replace("PROTOCOL", "http")
    (finding,) = refusal(f"{WEB}\nfailover: priority", entries)
    assert (finding.code, finding.resource, finding.pointer) == ("mixed_tls", RESOLVER, "/Failover")
    found = lowered(f"{WEB}\nfailover: aggregate", entries)
    legs = {one.name[:17]: "transport_socket" in one.content for one in found.resources if one.type_url == CLUSTER}
    assert legs == {"web.default.dc1.i": False, "failover-target~0": False, "failover-target~1": True}


def test_grpc_clients_without_a_proxy_cannot_fail_over_to_an_external_service() -> None:
    (finding,) = refusal(GRPC_WEB, ALL_GRPC + EXTERNAL_FAILOVER.replace("PROTOCOL", "grpc"))
    assert (finding.code, finding.resource) == ("external_without_proxy", "service-defaults/outside")


def test_an_external_service_without_a_file_of_certificates_is_warned_of() -> None:
    found = lowered(WEB, "- {Kind: service-defaults, Name: web, Protocol: http, ExternalSNI: x.example}")
    (cluster,) = [one for one in found.resources if one.type_url == CLUSTER]
    assert cluster.content["transport_socket"]["typed_config"]["sni"] == "x.example"
    assert [one.code for one in found.warnings] == ["not_verified"]
    decoded(found)


# Escape hatches


@pytest.mark.parametrize(
    ("field", "name"),
    [("envoy_listener_json", "web:127.0.0.1:9191"), ("envoy_cluster_json", "web.default.dc1.internal.td.consul")],
)
def test_an_escape_hatch_keeps_the_name_that_references_have(field: str, name: str) -> None:
    document = {"upstreams": [{"service": "web", "bind_port": 9191, field: {"name": "mine"}}]}
    (finding,) = refusal(document)
    assert (finding.code, finding.resource, finding.pointer) == ("wrong_name", "upstream/web", f"/{field}/name")
    assert name in finding.detail


def test_a_wrong_escape_hatch_is_reported_of_the_upstream() -> None:
    document = {"upstreams": [{"service": "web", "bind_port": 9191, "envoy_cluster_json": {"typ": "EDS"}}]}
    (finding,) = refusal(document)
    assert (finding.code, finding.resource, finding.pointer) == ("unknown_field", "upstream/web", "/envoy_cluster_json")


def test_a_cluster_of_ones_own_with_eds_keeps_its_assignment() -> None:
    own = {"type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}}}
    found = lowered({"upstreams": [{"service": "web", "bind_port": 9191, "envoy_cluster_json": own}]})
    assert list(found.assignments) == ["web.default.dc1.internal.td.consul"]


def test_an_escape_hatch_of_a_chain_that_entries_shape_is_ignored_with_a_warning() -> None:
    hatches = {"envoy_listener_json": {"name": "x"}, "envoy_cluster_json": "{}"}
    entries = http("web") + "- {Kind: service-resolver, Name: web, ConnectTimeout: 1s}"
    plain = lowered(WEB, entries)
    found = lowered({"upstreams": [{"service": "web", "bind_port": 9191, **hatches}]}, entries)
    assert [one.content for one in found.resources] == [one.content for one in plain.resources]
    assert [one.code for one in found.warnings] == ["escape_hatch_ignored"]


# Names


def test_names_without_partitions() -> None:
    found = lowered(WEB, ALL_HTTP, has_partitions=False)
    (listener,) = [one for one in found.resources if one.type_url == LISTENER]
    (proxy,) = listener.content["filter_chains"][0]["filters"]
    assert proxy["typed_config"]["stat_prefix"] == "upstream.web.default.dc1"


def test_two_upstreams_with_equal_clusters_share_them() -> None:
    document = "upstreams: [{service: web, bind_port: 1}, {service: api, bind_port: 2}]"
    entries = ALL_HTTP + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}"
    found = lowered(document, entries)
    clusters = {one.name.partition(".")[0]: one.upstreams for one in found.resources if one.type_url == CLUSTER}
    assert clusters == {"api": ("api", "web"), "web": ("web",)}
    assert {name.partition(".")[0]: one.upstreams for name, one in found.assignments.items()} == clusters


def test_two_upstreams_that_make_one_cluster_differently_are_both_named() -> None:
    document = {
        "upstreams": [
            {"service": "web", "bind_port": 1},
            {"service": "api", "bind_port": 2, "limits": {"max_connections": 3}},
        ]
    }
    entries = ALL_HTTP + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}"
    (finding,) = refusal(document, entries)
    assert finding.code == "lowered_clash"
    assert "'api'" in finding.detail
    assert "'web'" in finding.detail
    assert "clusters/api.default.dc1" in finding.detail


def test_upstreams_with_and_without_a_proxy_share_clusters_with_failover_by_priority_only() -> None:
    entries = ALL_GRPC + (
        "- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, Service: web}]}\n"
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Datacenters: [dc2]}}}\n'
    )
    document: Json = {"upstreams": [{"service": "web", "bind_port": 1}, {"service": "api"}]}
    found = refusal(document, entries)
    assert {one.code for one in found} == {"lowered_clash"}
    assert "failover to priority" in found[0].hint
    lowered({**document, "failover": "priority"}, entries)


def test_upstreams_with_and_without_a_proxy_do_not_share_a_cluster_with_least_request() -> None:
    entries = ALL_GRPC + (
        "- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, Service: web}]}\n"
        "- {Kind: service-resolver, Name: web, LoadBalancer: {Policy: least_request}}\n"
    )
    (finding,) = refusal({"upstreams": [{"service": "web", "bind_port": 1}, {"service": "api"}]}, entries)
    assert finding.code == "lowered_clash"
    assert "a group for each" in finding.hint


# Single upstreams


def test_upstreams_that_are_lowered_one_by_one_make_the_same_as_all_at_once() -> None:
    document = read_upstreams({"upstreams": [{"service": "web", "bind_port": 1}, {"service": "api", "bind_port": 2}]})
    entries = entries_of(ALL_HTTP + "- {Kind: service-router, Name: web, Routes: [{Destination: {Service: api}}]}")
    parts = [lower_upstream(one, chain_of(one, entries), document.proxies, DATACENTER) for one in document.upstreams]
    assert merge_lowered(parts) == merge_lowered(reversed(parts)) == lowered(document.document(), entries)
    assert merge_lowered([]) == Lowered()


def test_an_upstream_that_differs_changes_only_its_own_resources() -> None:
    one = Upstream("web", bind_port=1)
    compiled = chain_of(one, entries_of(ALL_HTTP))
    plain = lower_upstream(one, compiled, ProxySettings(), DATACENTER)
    moved = lower_upstream(replace(one, bind_port=2), compiled, ProxySettings(), DATACENTER)
    assert set(map(str, plain.resources)) ^ set(map(str, moved.resources)) == {
        str(part) for made in (plain, moved) for part in made.resources if part.type_url == LISTENER
    }


def test_upstream_config_of_service_defaults_fills_omitted_fields_of_the_document() -> None:
    entries = entries_of("""
- Kind: service-defaults
  Name: shop
  UpstreamConfig:
    Defaults: {ConnectTimeoutMs: 700, Limits: {MaxConnections: 1}, Protocol: http}
    Overrides:
    - {Name: api, Limits: {MaxPendingRequests: 2}}
    - {Name: web, Peer: east, ConnectTimeoutMs: 1}
    - {Name: db, EnvoyClusterJSON: '{"type": "STATIC"}'}
""")
    document = read_upstreams(
        {
            "service": "shop",
            "upstreams": [{"service": "web", "protocol": "grpc"}, {"service": "api"}, {"service": "db"}],
        }
    )
    found = with_upstream_config(document, entries.find(ServiceDefaults, "shop"))
    web, api, db = found.upstreams
    assert (web.protocol, web.connect_timeout_ns) == ("grpc", 700_000_000)
    assert web.limits is not None
    assert web.limits.max_connections == 1
    assert api.limits is not None
    assert (api.limits.max_connections, api.limits.max_pending_requests) == (None, 2)
    assert (db.envoy_cluster_json, db.envoy_listener_json) == ({"type": "STATIC"}, None)
    assert with_upstream_config(document, None) is document


def test_an_escape_hatch_of_service_defaults_that_is_no_json_is_reported_of_the_entry() -> None:
    entries = entries_of("""
- Kind: service-defaults
  Name: shop
  UpstreamConfig: {Overrides: [{Name: unused, EnvoyListenerJSON: "{"}, {Name: web, EnvoyListenerJSON: "nonsense"}]}
""")
    document = read_upstreams({"service": "shop", "upstreams": [{"service": "web"}, {"service": "api"}]})
    with pytest.raises(ValidationError) as caught:
        with_upstream_config(document, entries.find(ServiceDefaults, "shop"))
    (finding,) = caught.value.violations
    assert (finding.code, finding.resource) == ("bad_json", "service-defaults/shop")
    assert finding.pointer == "/UpstreamConfig/Overrides/1/EnvoyListenerJSON"


def test_routes_go_over_the_aggregated_stream_and_name_their_route_configuration() -> None:
    found = lowered(WEB, ALL_HTTP + "- {Kind: service-router, Name: web}")
    by_type = {one.type_url: one for one in found.resources}
    (proxy,) = by_type[LISTENER].content["filter_chains"][0]["filters"]
    ads = {"ads": {}, "resource_api_version": "V3"}
    assert proxy["typed_config"]["rds"] == {"route_config_name": by_type[ROUTE].name, "config_source": ads}
    assert by_type[CLUSTER].content["eds_cluster_config"] == {"eds_config": ads}

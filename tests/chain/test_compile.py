"""spec/discovery_chain.md 4.1 to 4.3, case by case: entries in, the whole chain out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.chains import entries_of, lines, request_of
from xds.catalog.duration import SECOND_NS
from xds.chain.chain import ResolverNode, RouterNode, SplitterNode
from xds.chain.chain_json import chain_json
from xds.chain.compile import compile_chain
from xds.chain.errors import ChainError, Flaw, RequestError
from xds.chain.request import CompileRequest, Overrides, PeerLocality


def http(*services: str) -> str:
    return "".join(f"- {{Kind: service-defaults, Name: {service}, Protocol: http}}\n" for service in services)


PD_HTTP = "- {Kind: proxy-defaults, Config: {protocol: http}}\n"


@dataclass(frozen=True)
class Case:
    name: str
    entries: str
    expected: str
    overrides: Overrides | None = None
    datacenter: str = "dc1"


CASES = [
    Case(
        "01_nothing",
        "",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "02_proxy_defaults_only",
        "- {Kind: proxy-defaults, Config: {protocol: grpc}, MeshGateway: {Mode: remote}}",
        """
        grpc default
        x:web@dc1 default 5s
        web@dc1 5s gateway=remote
        """,
    ),
    Case(
        "04_empty_router_and_resolver",
        http("web") + "- {Kind: service-router, Name: web}\n- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}",
        """
        http
        r:web -> x:web@dc1
        x:web@dc1 12s
        web@dc1 12s
        """,
    ),
    Case(
        "05_route_without_destination",
        http("web") + "- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /}}}]}",
        """
        http
        r:web -> x:web@dc1, x:web@dc1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "07_router_trivial_split_and_resolver",
        http("web")
        + """
- {Kind: service-router, Name: web}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}
- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}
""",
        """
        http
        r:web -> s:web
        s:web -> 100 x:web@dc1
        x:web@dc1 12s
        web@dc1 12s
        """,
    ),
    Case(
        "08_protocol_from_proxy_defaults",
        PD_HTTP + "- {Kind: service-router, Name: web}\n- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        """
        http
        r:web -> s:web
        s:web -> 100 x:web@dc1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "10_trivial_split",
        http("web") + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        """
        http
        s:web -> 100 x:web@dc1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "11_trivial_split_and_resolver",
        http("web")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}
- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}
""",
        """
        http
        s:web -> 100 x:web@dc1
        x:web@dc1 12s
        web@dc1 12s
        """,
    ),
    Case(
        "13_service_split",
        http("web", "api", "alt")
        + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 70, Service: api}, {Weight: 30, Service: alt}]}",
        """
        http
        s:web -> 70 x:api@dc1, 30 x:alt@dc1
        x:api@dc1 default 5s
        x:alt@dc1 default 5s
        alt@dc1 5s
        api@dc1 5s
        """,
    ),
    Case(
        "14_a_leg_with_a_subset_skips_the_next_splitter",
        http("web", "api")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api, ServiceSubset: a}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, ServiceSubset: b}]}
- {Kind: service-resolver, Name: api, Subsets: {a: {}, b: {}}}
""",
        """
        http
        s:web -> 100 x:a/api@dc1
        x:a/api@dc1 5s
        a/api@dc1 5s
        """,
    ),
    Case(
        "16_default_subset",
        "- {Kind: service-resolver, Name: web, DefaultSubset: v2, Subsets: {v1: {}, v2: {}}}",
        """
        tcp
        x:v2/web@dc1 5s
        v2/web@dc1 5s
        """,
    ),
    Case(
        "17_service_redirect",
        "- {Kind: service-resolver, Name: web, Redirect: {Service: api}}",
        """
        tcp
        x:api@dc1 default 5s
        api@dc1 5s
        """,
    ),
    Case(
        "19_service_and_subset_redirect",
        """
- {Kind: service-resolver, Name: web, Redirect: {Service: api, ServiceSubset: v2}}
- {Kind: service-resolver, Name: api, Subsets: {v1: {}, v2: {}}}
""",
        """
        tcp
        x:v2/api@dc1 5s
        v2/api@dc1 5s
        """,
    ),
    Case(
        "20_datacenter_redirect",
        "- {Kind: service-resolver, Name: web, Redirect: {Datacenter: dc9}}",
        """
        tcp
        x:web@dc9 5s
        web@dc9 5s
        """,
    ),
    Case(
        "22_peer_redirect",
        "- {Kind: service-resolver, Name: web, Redirect: {Service: api, Peer: east}}",
        """
        tcp
        x:api@peer:east default 5s
        api@peer:east 5s
        """,
    ),
    Case(
        "23_peer_redirect_with_http_proxy_defaults",
        PD_HTTP + "- {Kind: service-resolver, Name: web, Redirect: {Service: api, Peer: east}}",
        """
        http
        x:api@peer:east default 5s
        api@peer:east 5s
        """,
    ),
    Case(
        "25_service_failover",
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}',
        """
        tcp
        x:web@dc1 5s failover backup@dc1
        backup@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "26_failover_through_redirect",
        """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}
- {Kind: service-resolver, Name: backup, Redirect: {Service: real}}
""",
        """
        tcp
        x:web@dc1 5s failover real@dc1
        real@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "28_subset_failover",
        """
- Kind: service-resolver
  Name: web
  Subsets: {b: {Filter: Service.Meta.version == b}}
  Failover: {"*": {ServiceSubset: b}}
""",
        """
        tcp
        x:web@dc1 5s failover b/web@dc1
        b/web@dc1 5s filter=Service.Meta.version == b
        web@dc1 5s
        """,
    ),
    Case(
        "29_datacenter_failover",
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Datacenters: [dc4, dc2]}}}',
        """
        tcp
        x:web@dc1 5s failover web@dc4 web@dc2
        web@dc1 5s
        web@dc2 5s
        web@dc4 5s
        """,
    ),
    Case(
        "31_target_list_failover",
        """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- Kind: service-resolver
  Name: web
  Failover: {"*": {Targets: [{Datacenter: dc3}, {Service: new}, {Peer: e}, {Peer: f}]}}
""",
        """
        tcp
        x:web@dc1 5s failover web@dc3 new@dc1 web@peer:e web@peer:f
        new@dc1 5s gateway=remote
        web@dc1 5s gateway=remote
        web@dc3 5s gateway=remote
        web@peer:e 5s gateway=remote region=west
        web@peer:f 5s gateway=remote
        """,
    ),
    Case(
        "32_external_sni",
        """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
""",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s sni=x.example external
        """,
    ),
    Case(
        "34_meta",
        '- {Kind: service-defaults, Name: web, Meta: {a: "1"}}',
        """
        tcp default a=1
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
    Case(
        "35_meta_and_redirect",
        """
- {Kind: service-defaults, Name: web, Meta: {a: "1"}}
- {Kind: service-defaults, Name: api, Meta: {a: "2", b: "3"}}
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
""",
        """
        tcp a=1
        x:api@dc1 default 5s
        api@dc1 5s
        """,
    ),
    Case(
        "37_load_balancer_through_splitter",
        http("a", "b", "c")
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 60, Service: a}, {Weight: 20, Service: b}, {Weight: 20, Service: c}]
- {Kind: service-resolver, Name: a, LoadBalancer: {Policy: least_request}}
- {Kind: service-resolver, Name: b, LoadBalancer: {Policy: ring_hash}}
- {Kind: service-resolver, Name: c, LoadBalancer: {Policy: maglev}}
""",
        """
        http
        s:web -> 60 x:a@dc1, 20 x:b@dc1, 20 x:c@dc1 ring_hash
        x:a@dc1 5s least_request
        x:b@dc1 5s ring_hash
        x:c@dc1 5s maglev
        a@dc1 5s
        b@dc1 5s
        c@dc1 5s
        """,
    ),
    Case(
        "38_multi_datacenter_canary",
        http("web", "w2", "w3")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 60, Service: w2}, {Weight: 40, Service: w3}]}
- {Kind: service-resolver, Name: w2, Redirect: {Service: web, Datacenter: dc2}}
- {Kind: service-resolver, Name: w3, Redirect: {Service: web, Datacenter: dc3}}
- {Kind: service-resolver, Name: web, ConnectTimeout: 12s}
""",
        """
        http
        s:web -> 60 x:web@dc2, 40 x:web@dc3
        x:web@dc2 12s
        x:web@dc3 12s
        web@dc2 12s
        web@dc3 12s
        """,
    ),
    Case(
        "40_protocol_override",
        "- {Kind: service-defaults, Name: web, Protocol: grpc}",
        """
        http2 default customized
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(protocol="http2"),
    ),
    Case(
        "41_override_equals",
        "- {Kind: service-defaults, Name: web, Protocol: http2}",
        """
        http2 default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(protocol="http2"),
    ),
    Case(
        "43_transparent_proxy_from_service_defaults",
        "- {Kind: service-defaults, Name: web, TransparentProxy: {DialedDirectly: true}}",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s dialed-directly
        """,
    ),
    Case(
        "44_transparent_proxy_from_proxy_defaults",
        "- {Kind: proxy-defaults, TransparentProxy: {DialedDirectly: true}}",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s dialed-directly
        """,
    ),
    # 4.3
    Case(
        "59_evaluated_in_another_datacenter",
        "",
        """
        tcp default
        x:web@dc2 default 5s
        web@dc2 5s
        """,
        datacenter="dc2",
    ),
    Case(
        "61_a_subset_survives_a_datacenter_redirect",
        http("web")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50, ServiceSubset: v1}, {Weight: 50, ServiceSubset: v2}]}
- {Kind: service-resolver, Name: web, Subsets: {v1: {}, v2: {}}, Redirect: {Datacenter: dc2}}
""",
        """
        http
        s:web -> 50 x:v1/web@dc2, 50 x:v2/web@dc2
        x:v1/web@dc2 5s
        x:v2/web@dc2 5s
        v1/web@dc2 5s
        v2/web@dc2 5s
        """,
    ),
    Case(
        "62_a_service_redirect_drops_the_subset",
        http("web", "api", "alt")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api, ServiceSubset: v1}]}
- {Kind: service-resolver, Name: api, Redirect: {Service: alt}}
""",
        """
        http
        s:web -> 100 x:alt@dc1
        x:alt@dc1 default 5s
        alt@dc1 5s
        """,
    ),
    Case(
        "64_splitters_that_lead_to_each_other_without_a_cycle",
        http("web", "api")
        + """
- {Kind: service-resolver, Name: web, Subsets: {v1: {}}}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 50}, {Weight: 50, Service: web, ServiceSubset: v1}]}
""",
        """
        http
        s:web -> 50 x:web@dc1, 25 x:api@dc1, 25 x:v1/web@dc1
        x:web@dc1 5s
        x:api@dc1 default 5s
        x:v1/web@dc1 5s
        api@dc1 5s
        v1/web@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "65_failover_by_subset_and_for_any",
        http("web", "api")
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50, ServiceSubset: v1}, {Weight: 50, ServiceSubset: v2}]}
- Kind: service-resolver
  Name: web
  Subsets: {v1: {}, v2: {}}
  Failover: {v1: {Service: api}, "*": {Datacenters: [dc2]}}
""",
        """
        http
        s:web -> 50 x:v1/web@dc1, 50 x:v2/web@dc1
        x:v1/web@dc1 5s failover api@dc1
        x:v2/web@dc1 5s failover v2/web@dc2
        api@dc1 5s
        v1/web@dc1 5s
        v2/web@dc1 5s
        v2/web@dc2 5s
        """,
    ),
    Case(
        "67_failover_to_itself_is_none",
        '- {Kind: service-resolver, Name: web, Failover: {"*": {Service: web}}}',
        """
        tcp
        x:web@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "68_failover_takes_the_default_subset",
        """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: api}}}
- {Kind: service-resolver, Name: api, DefaultSubset: p, Subsets: {p: {}}}
""",
        """
        tcp
        x:web@dc1 5s failover p/api@dc1
        p/api@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "70_weights_of_flattened_splits",
        http("web", "api", "alt")
        + """
- {Kind: service-resolver, Name: api, Subsets: {v1: {}, v2: {}}}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 33.33, Service: api}, {Weight: 66.67, Service: alt}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 33.33, ServiceSubset: v1}, {Weight: 66.67, ServiceSubset: v2}]}
""",
        """
        http
        s:web -> 11.11 x:v1/api@dc1, 22.22 x:v2/api@dc1, 66.67 x:alt@dc1
        x:v1/api@dc1 5s
        x:v2/api@dc1 5s
        x:alt@dc1 default 5s
        alt@dc1 5s
        v1/api@dc1 5s
        v2/api@dc1 5s
        """,
    ),
    Case(
        "71_connect_timeout_override",
        "",
        """
        tcp default customized
        x:web@dc1 default 7s
        web@dc1 7s
        """,
        Overrides(connect_timeout_ns=7 * SECOND_NS),
    ),
    Case(
        "71b_connect_timeout_override_that_changes_nothing",
        "",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(connect_timeout_ns=5 * SECOND_NS),
    ),
    Case(
        "73_override_to_tcp_ignores_the_splitter",
        http("web") + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100}]}",
        """
        tcp default customized
        x:web@dc1 default 5s
        web@dc1 5s
        """,
        Overrides(protocol="tcp"),
    ),
    Case(
        "74_routes_share_a_node",
        http("web", "api")
        + """
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathPrefix: /a}}, Destination: {Service: api}}
  - {Match: {HTTP: {PathPrefix: /b}}, Destination: {Service: api}}
""",
        """
        http
        r:web -> x:api@dc1, x:api@dc1, x:web@dc1
        x:api@dc1 default 5s
        x:web@dc1 default 5s
        api@dc1 5s
        web@dc1 5s
        """,
    ),
    Case(
        "76_redirect_to_an_external_service",
        """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- {Kind: service-defaults, Name: api, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
""",
        """
        tcp
        x:api@dc1 default 5s
        api@dc1 5s sni=x.example external
        """,
    ),
    Case(
        "77_a_resolver_that_says_nothing",
        "- {Kind: service-resolver, Name: web}",
        """
        tcp default
        x:web@dc1 default 5s
        web@dc1 5s
        """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    request = replace(
        request_of(case.entries),
        datacenter=case.datacenter,
        overrides=case.overrides or Overrides(),
        peers={"e": PeerLocality("west", "a")},
    )
    chain = compile_chain(request)
    assert lines(chain) == [line.strip() for line in case.expected.strip().splitlines()]


def named(name: str) -> CompileRequest:
    return request_of(next(case.entries for case in CASES if case.name.startswith(name)))


def test_01_nothing_names_its_target_as_consul_does() -> None:
    (target,) = compile_chain(named("01")).targets.values()
    assert (target.id, target.sni, target.name) == (
        "web.default.default.dc1",
        "web.default.dc1.internal.td.consul",
        "web.default.dc1.internal.td.consul",
    )


def test_04_the_catch_all_route_names_the_service_and_its_place() -> None:
    (node,) = [one for one in compile_chain(named("04")).nodes.values() if isinstance(one, RouterNode)]
    json = chain_json(compile_chain(named("04")))["Nodes"][node.key]
    assert json["Routes"] == [
        {
            "Definition": {
                "Match": {"HTTP": {"PathPrefix": "/"}},
                "Destination": {"Service": "web", "Namespace": "default", "Partition": "default"},
            },
            "NextNode": "resolver:web.default.default.dc1",
        }
    ]


def test_05_a_definition_stays_as_it_was_configured() -> None:
    json = chain_json(compile_chain(named("05")))["Nodes"]["router:web.default.default"]
    assert json["Routes"][0]["Definition"] == {"Match": {"HTTP": {"PathPrefix": "/"}}}


def test_22_a_peers_target_has_no_sni_no_name_and_no_datacenter() -> None:
    json = chain_json(compile_chain(named("22")))["Targets"]
    assert json == {
        "api.default.default.external.east": {
            "ID": "api.default.default.external.east",
            "Service": "api",
            "Namespace": "default",
            "Partition": "default",
            "Peer": "east",
            "MeshGateway": {},
            "Subset": {},
            "TransparentProxy": {},
            "ConnectTimeout": "5s",
        }
    }


def test_32_an_external_target_keeps_its_name() -> None:
    (target,) = compile_chain(named("32")).targets.values()
    assert (target.name, target.sni) == ("web.default.dc1.internal.td.consul", "x.example")


def test_38_definitions_keep_the_services_that_were_redirected() -> None:
    (node,) = [one for one in compile_chain(named("38")).nodes.values() if isinstance(one, SplitterNode)]
    assert [split.definition.service for split in node.splits] == ["w2", "w3"]


def headers(text: str) -> Any:
    node = compile_chain(request_of(text)).start
    assert isinstance(node, SplitterNode)
    return chain_json(compile_chain(request_of(text)))["Nodes"][node.key]["Splits"][0]["Definition"]


def test_80_headers_of_which_one_leg_adds_and_one_sets() -> None:
    found = headers(
        PD_HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api, RequestHeaders: {Add: {a: "1"}}}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, RequestHeaders: {Set: {b: "2"}}}]}
"""
    )
    assert found == {"Weight": 100, "RequestHeaders": {"Add": {"a": "1"}, "Set": {"b": "2"}}}


def test_4_4_headers_are_merged_request_outwards_in_and_response_inwards_out() -> None:
    child = '{Add: {c: "1", x: "2"}, Set: {c: "3", x: "4"}, Remove: [c, b]}'
    parent = '{Add: {p: "9", x: "10"}, Set: {p: "11", x: "12"}, Remove: [p, b]}'
    found = headers(
        PD_HTTP
        + f"""
- Kind: service-splitter
  Name: web
  Splits: [{{Weight: 100, Service: api, RequestHeaders: {parent}, ResponseHeaders: {parent}}}]
- Kind: service-splitter
  Name: api
  Splits: [{{Weight: 100, RequestHeaders: {child}, ResponseHeaders: {child}}}]
"""
    )
    assert found["RequestHeaders"] == {
        "Add": {"c": "1", "p": "9", "x": "2"},
        "Set": {"c": "3", "p": "11", "x": "4"},
        "Remove": ["p", "b", "c"],
    }
    assert found["ResponseHeaders"] == {
        "Add": {"c": "1", "p": "9", "x": "10"},
        "Set": {"c": "3", "p": "11", "x": "12"},
        "Remove": ["c", "b", "p"],
    }


def test_header_changes_that_change_nothing_stay_for_requests_only_once_flattened_as_in_consul() -> None:
    found = headers(
        PD_HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, RequestHeaders: {}, ResponseHeaders: {Add: {}}}]}
"""
    )
    assert found == {"Weight": 100, "RequestHeaders": {}}


def test_71_equal_effective_overrides_have_equal_hashes() -> None:
    def customized(overrides: Overrides, text: str = "") -> str:
        return compile_chain(replace(request_of(text), overrides=overrides)).customization_hash

    seven = customized(Overrides(connect_timeout_ns=7 * SECOND_NS))
    assert len(seven) == 8
    assert int(seven, 16) >= 0
    assert seven == customized(Overrides(protocol="tcp", connect_timeout_ns=7 * SECOND_NS))
    assert seven == customized(Overrides(connect_timeout_ns=7 * SECOND_NS), "- {Kind: service-resolver, Name: web}")
    assert seven != customized(Overrides(connect_timeout_ns=8 * SECOND_NS))
    assert seven != customized(Overrides(protocol="http", connect_timeout_ns=7 * SECOND_NS))
    assert seven != customized(Overrides(mesh_gateway_mode="local", connect_timeout_ns=7 * SECOND_NS))


def test_a_mesh_gateway_override_beats_both_defaults_but_for_external_services() -> None:
    text = """
- {Kind: proxy-defaults, MeshGateway: {Mode: remote}}
- {Kind: service-defaults, Name: ext, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: ext}}}
"""
    chain = compile_chain(replace(request_of(text), overrides=Overrides(mesh_gateway_mode="local")))
    assert [line for line in lines(chain) if "5s" in line][1:] == [
        "ext@dc1 5s sni=x.example external",
        "web@dc1 5s gateway=local",
    ]
    assert chain.customization_hash


def test_service_defaults_without_protocol_hide_the_one_of_proxy_defaults() -> None:
    assert compile_chain(request_of(PD_HTTP + "- {Kind: service-defaults, Name: web}")).protocol == "tcp"


def test_a_hash_policy_below_a_nested_splitter_is_lost() -> None:
    chain = compile_chain(
        request_of(
            PD_HTTP
            + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100}]}
- {Kind: service-resolver, Name: api, LoadBalancer: {Policy: maglev}}
"""
        )
    )
    assert isinstance(chain.start, SplitterNode)
    assert chain.start.load_balancer is None


def test_a_request_timeout_is_an_integer_in_the_chain() -> None:
    chain = compile_chain(request_of("- {Kind: service-resolver, Name: web, RequestTimeout: 3s}"))
    assert isinstance(chain.start, ResolverNode)
    assert chain_json(chain)["Nodes"][chain.start_node]["Resolver"] == {
        "ConnectTimeout": "5s",
        "RequestTimeout": 3_000_000_000,
        "Target": "web.default.default.dc1",
    }


def test_extensions_of_all_proxies_come_before_those_of_the_service() -> None:
    chain = compile_chain(
        request_of(
            """
- {Kind: proxy-defaults, EnvoyExtensions: [{Name: builtin/aws/lambda, Arguments: {ARN: x}}]}
- {Kind: service-defaults, Name: web, EnvoyExtensions: [{Name: builtin/lua, Required: true}]}
"""
        )
    )
    assert chain_json(chain)["EnvoyExtensions"] == [
        {"Name": "builtin/aws/lambda", "Arguments": {"ARN": "x"}},
        {"Name": "builtin/lua", "Required": True},
    ]


# 4.2: what does not compile, and the path to it


@dataclass(frozen=True)
class Failure:
    name: str
    entries: str
    flaw: Flaw
    essence: str
    path: tuple[str, ...]


X_WEB, X_API = "resolver:web.default.default.dc1", "resolver:api.default.default.dc1"
S_WEB, R_WEB = "splitter:web.default.default", "router:web.default.default"
FAILURES = [
    Failure(
        "46_splitter_on_tcp",
        """
- {Kind: service-defaults, Name: web, Protocol: tcp}
- {Kind: service-resolver, Name: web, Subsets: {a: {}}}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, ServiceSubset: a}]}
""",
        Flaw.PROTOCOL_NOT_HTTP,
        'uses a protocol "tcp" that does not permit advanced routing or splitting behavior',
        (S_WEB,),
    ),
    Failure(
        "47_router_on_tcp",
        """
- {Kind: service-defaults, Name: web, Protocol: tcp}
- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /a}}}]}
""",
        Flaw.PROTOCOL_NOT_HTTP,
        "does not permit advanced routing",
        (R_WEB,),
    ),
    Failure(
        "49_route_to_tcp_service",
        """
- {Kind: service-defaults, Name: web, Protocol: tcp}
- {Kind: service-defaults, Name: api, Protocol: tcp}
- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /api}}, Destination: {Service: api}}]}
""",
        Flaw.PROTOCOL_NOT_HTTP,
        "does not permit advanced routing",
        (R_WEB,),
    ),
    Failure(
        "50_failover_crosses_protocols",
        """
- {Kind: service-defaults, Name: web, Protocol: grpc}
- {Kind: service-defaults, Name: api, Protocol: tcp}
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: api}}}
""",
        Flaw.PROTOCOL_MISMATCH,
        'discovery chain "web" uses inconsistent protocols; service "api" has "tcp" which is not "grpc"',
        (X_WEB, X_API),
    ),
    Failure(
        "52_redirect_to_missing_subset",
        """
- {Kind: service-resolver, Name: api, ConnectTimeout: 12s}
- {Kind: service-resolver, Name: web, Redirect: {Service: api, ServiceSubset: v1}}
""",
        Flaw.UNKNOWN_SUBSET,
        'service "api" does not have a subset named "v1"',
        (X_WEB, "resolver:v1.api.default.default.dc1"),
    ),
    Failure(
        "53_external_and_failover",
        """
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}
""",
        Flaw.EXTERNAL_FAILOVER,
        "cannot define failover for external services",
        (X_WEB,),
    ),
    Failure(
        "54_external_and_subsets",
        """
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Subsets: {a: {}}}
""",
        Flaw.EXTERNAL_SUBSETS,
        "cannot define subsets for external services",
        (X_WEB,),
    ),
    Failure(
        "55_external_and_redirect",
        """
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Redirect: {Datacenter: dc2}}
""",
        Flaw.EXTERNAL_REDIRECT,
        "cannot define redirects for external services",
        (X_WEB, "resolver:web.default.default.dc2"),
    ),
    Failure(
        "56_circular_redirect",
        """
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
- {Kind: service-resolver, Name: api, Redirect: {Service: web}}
""",
        Flaw.CIRCULAR_REDIRECT,
        "detected circular resolver redirect: [web.default.default.dc1 -> api.default.default.dc1 -> web.default",
        (X_WEB, X_API, X_WEB),
    ),
    Failure(
        "57_circular_splitters",
        PD_HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 50}, {Weight: 50, Service: web}]}
""",
        Flaw.CIRCULAR_REFERENCE,
        "detected circular reference: [splitter:web.default.default -> splitter:api.default.default -> splitter:web",
        (S_WEB, "splitter:api.default.default", S_WEB),
    ),
    Failure(
        "79_failover_to_unknown_subset_of_another_service",
        """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: api, ServiceSubset: v9}}}
""",
        Flaw.UNKNOWN_SUBSET,
        'service "api" does not have a subset named "v9"',
        (X_WEB, "resolver:v9.api.default.default.dc1"),
    ),
    Failure(
        "a_path_through_router_and_splitter",
        PD_HTTP
        + """
- {Kind: service-router, Name: web, Routes: [{Destination: {Service: api}}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, Service: db, ServiceSubset: v1}]}
""",
        Flaw.UNKNOWN_SUBSET,
        'service "db" does not have a subset named "v1"',
        (R_WEB, "splitter:api.default.default", "resolver:v1.db.default.default.dc1"),
    ),
]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.name)
def test_failure(case: Failure) -> None:
    with pytest.raises(ChainError) as caught:
        compile_chain(request_of(case.entries))
    assert (caught.value.flaw, caught.value.chain, caught.value.path) == (case.flaw, "web", case.path)
    assert case.essence in caught.value.detail


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ({"service": ""}, "serviceName is required"),
        ({"namespace": ""}, "evaluateInNamespace is required"),
        ({"partition": ""}, "evaluateInPartition is required"),
        ({"datacenter": ""}, "evaluateInDatacenter is required"),
        ({"trust_domain": ""}, "evaluateInTrustDomain is required"),
        ({"entries": None}, "entries is required"),
    ],
)
def test_58_missing_parameter(missing: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        compile_chain(replace(request_of(""), **missing))


@pytest.mark.parametrize("field", ["namespace", "partition"])
def test_another_namespace_or_partition_is_refused_by_name(field: str) -> None:
    changed: dict[str, Any] = {field: "team-a"}
    with pytest.raises(RequestError, match="'team-a' requires Consul Enterprise"):
        compile_chain(replace(request_of(""), **changed))


def test_an_unknown_gateway_mode_is_refused() -> None:
    with pytest.raises(RequestError, match="mesh gateway mode 'far'"):
        compile_chain(replace(request_of(""), overrides=Overrides(mesh_gateway_mode="far")))


def test_the_order_of_entries_does_not_matter() -> None:
    text = next(case.entries for case in CASES if case.name.startswith("64"))
    backwards = type(entries_of(text)).of(reversed(list(entries_of(text))))
    assert compile_chain(replace(request_of(""), entries=backwards)) == compile_chain(request_of(text))

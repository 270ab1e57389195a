"""Compiling, case by case: entries in, the whole chain out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.mesh.core.chain.cases import CASES, PD_HTTP, Case
from tests.support.chains import entries_of, lines, request_of
from xds.consul.quantities import SECOND_NS
from xds.mesh.core.chain.chain import ResolverNode, RouterNode, SplitterNode
from xds.mesh.core.chain.chain_json import chain_json
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.request import CompileRequest, Overrides


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    request = replace(
        request_of(case.entries),
        datacenter=case.datacenter,
        overrides=case.overrides or Overrides(),
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


def test_subsets_of_a_service_share_a_target_of_a_peer_and_the_first_one_counts() -> None:
    """Consul 1.14.11 does so: the router asks for the service itself before its subset."""
    chain = compile_chain(
        request_of(
            PD_HTTP
            + """
- {Kind: service-resolver, Name: web, Subsets: {v2: {}}, Failover: {"*": {Targets: [{Peer: east}]}}}
- {Kind: service-router, Name: web, Routes: [{}, {Destination: {ServiceSubset: v2}}]}
"""
        )
    )
    assert chain.targets["web.default.default.external.east"].key.subset == ""


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


def test_the_order_of_entries_does_not_matter() -> None:
    text = next(case.entries for case in CASES if case.name.startswith("64"))
    backwards = type(entries_of(text)).of(reversed(list(entries_of(text))))
    assert compile_chain(replace(request_of(""), entries=backwards)) == compile_chain(request_of(text))

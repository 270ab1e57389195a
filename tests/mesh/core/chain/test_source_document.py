"""What Consul's page "Discovery Chain" says, sentence by sentence; and the JSON of whole chains in both shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.chains import lines, request_of
from xds.mesh.core.chain.chain import ChainError, Flaw
from xds.mesh.core.chain.chain_json import response_json
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.request import Overrides

HTTP = "- {Kind: proxy-defaults, Config: {protocol: http}}\n"
CANARY = (
    HTTP
    + """
- Kind: service-router
  Name: web
  Routes:
  - Match: {HTTP: {PathPrefix: /admin, Header: [{Name: x-debug, Exact: "1"}]}}
    Destination: {Service: admin, PrefixRewrite: /, RequestTimeout: 1m30s, NumRetries: 5}
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 95, ServiceSubset: v1}, {Weight: 5, ServiceSubset: v2, ResponseHeaders: {Set: {x-canary: "yes"}}}]
- Kind: service-resolver
  Name: web
  Subsets: {v1: {Filter: Service.Meta.version == v1}, v2: {Filter: Service.Meta.version == v2, OnlyPassing: true}}
  Failover: {v2: {ServiceSubset: v1}, "*": {Datacenters: [dc2]}}
  LoadBalancer: {Policy: ring_hash, HashPolicies: [{Field: cookie, FieldValue: id, CookieConfig: {TTL: 90s}}]}
"""
)


def json_of(text: str, *, has_partitions: bool) -> dict[str, Any]:
    return response_json(compile_chain(replace(request_of(text), has_partitions=has_partitions)))


def test_the_response_is_a_single_wrapped_chain() -> None:
    assert json_of("", has_partitions=True) == {
        "Chain": {
            "ServiceName": "web",
            "Namespace": "default",
            "Partition": "default",
            "Datacenter": "dc1",
            "Default": True,
            "Protocol": "tcp",
            "StartNode": "resolver:web.default.default.dc1",
            "Nodes": {
                "resolver:web.default.default.dc1": {
                    "Type": "resolver",
                    "Name": "web.default.default.dc1",
                    "Resolver": {"Default": True, "ConnectTimeout": "5s", "Target": "web.default.default.dc1"},
                }
            },
            "Targets": {
                "web.default.default.dc1": {
                    "ID": "web.default.default.dc1",
                    "Service": "web",
                    "Namespace": "default",
                    "Partition": "default",
                    "Datacenter": "dc1",
                    "MeshGateway": {},
                    "Subset": {},
                    "TransparentProxy": {},
                    "ConnectTimeout": "5s",
                    "SNI": "web.default.dc1.internal.td.consul",
                    "Name": "web.default.dc1.internal.td.consul",
                }
            },
            "AutoVirtualIPs": None,
            "ManualVirtualIPs": None,
        }
    }


def test_the_response_in_the_shape_of_the_document() -> None:
    assert json_of("", has_partitions=False) == {
        "Chain": {
            "ServiceName": "web",
            "Namespace": "default",
            "Datacenter": "dc1",
            "Protocol": "tcp",
            "StartNode": "resolver:web.default.dc1",
            "Nodes": {
                "resolver:web.default.dc1": {
                    "Type": "resolver",
                    "Name": "web.default.dc1",
                    "Resolver": {"Default": True, "ConnectTimeout": "5s", "Target": "web.default.dc1"},
                }
            },
            "Targets": {
                "web.default.dc1": {
                    "ID": "web.default.dc1",
                    "Service": "web",
                    "Namespace": "default",
                    "Datacenter": "dc1",
                    "MeshGateway": {},
                    "Subset": {},
                    "SNI": "web.default.dc1.internal.td.consul",
                    "Name": "web.default.dc1.internal.td.consul",
                }
            },
        }
    }


def test_every_kind_of_node_whole() -> None:
    """Router, splitter, resolver, failover, load balancer: each field that the page names, and only those."""
    balancer = {
        "Policy": "ring_hash",
        "HashPolicies": [{"Field": "cookie", "FieldValue": "id", "CookieConfig": {"TTL": 90_000_000_000}}],
    }
    assert json_of(CANARY, has_partitions=False)["Chain"]["Nodes"] == {
        "resolver:admin.default.dc1": {
            "Type": "resolver",
            "Name": "admin.default.dc1",
            "Resolver": {"Default": True, "ConnectTimeout": "5s", "Target": "admin.default.dc1"},
        },
        "resolver:v1.web.default.dc1": {
            "Type": "resolver",
            "Name": "v1.web.default.dc1",
            "Resolver": {
                "ConnectTimeout": "5s",
                "Target": "v1.web.default.dc1",
                "Failover": {"Targets": ["v1.web.default.dc2"]},
            },
            "LoadBalancer": balancer,
        },
        "resolver:v2.web.default.dc1": {
            "Type": "resolver",
            "Name": "v2.web.default.dc1",
            "Resolver": {
                "ConnectTimeout": "5s",
                "Target": "v2.web.default.dc1",
                "Failover": {"Targets": ["v1.web.default.dc1"]},
            },
            "LoadBalancer": balancer,
        },
        "router:web.default": {
            "Type": "router",
            "Name": "web.default",
            "Routes": [
                {
                    "Definition": {
                        "Match": {"HTTP": {"PathPrefix": "/admin", "Header": [{"Name": "x-debug", "Exact": "1"}]}},
                        "Destination": {
                            "Service": "admin",
                            "PrefixRewrite": "/",
                            "RequestTimeout": "1m30s",
                            "NumRetries": 5,
                        },
                    },
                    "NextNode": "resolver:admin.default.dc1",
                },
                {
                    "Definition": {
                        "Match": {"HTTP": {"PathPrefix": "/"}},
                        "Destination": {"Service": "web", "Namespace": "default"},
                    },
                    "NextNode": "splitter:web.default",
                },
            ],
        },
        "splitter:web.default": {
            "Type": "splitter",
            "Name": "web.default",
            "Splits": [
                {"Weight": 95, "NextNode": "resolver:v1.web.default.dc1"},
                {"Weight": 5, "NextNode": "resolver:v2.web.default.dc1"},
            ],
            "LoadBalancer": balancer,
        },
    }


def test_every_kind_of_target_whole() -> None:
    def target(name: str, datacenter: str, subset: dict[str, Any]) -> dict[str, Any]:
        sni = f"{name}.web.default.{datacenter}.internal.td.consul"
        return {
            "ID": f"{name}.web.default.{datacenter}",
            "Service": "web",
            "ServiceSubset": name,
            "Namespace": "default",
            "Datacenter": datacenter,
            "MeshGateway": {},
            "Subset": subset,
            "SNI": sni,
            "Name": sni,
        }

    version_1 = {"Filter": "Service.Meta.version == v1"}
    found = json_of(CANARY, has_partitions=False)["Chain"]["Targets"]
    assert list(found) == sorted(found)
    assert found.pop("admin.default.dc1")["Service"] == "admin"
    assert found == {
        "v1.web.default.dc1": target("v1", "dc1", version_1),
        "v1.web.default.dc2": target("v1", "dc2", version_1),
        "v2.web.default.dc1": target("v2", "dc1", {"Filter": "Service.Meta.version == v2", "OnlyPassing": True}),
    }


def test_the_specification_s_own_example_whole() -> None:
    text = (
        HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 95, ServiceSubset: v1}, {Weight: 5, ServiceSubset: v2}]}
- Kind: service-resolver
  Name: web
  Subsets: {v1: {Filter: Service.Meta.version == v1}, v2: {Filter: Service.Meta.version == v2}}
"""
    )

    def target(name: str) -> dict[str, Any]:
        return {
            "ID": f"{name}.web.default.default.dc1",
            "Service": "web",
            "ServiceSubset": name,
            "Namespace": "default",
            "Partition": "default",
            "Datacenter": "dc1",
            "MeshGateway": {},
            "Subset": {"Filter": f"Service.Meta.version == {name}"},
            "TransparentProxy": {},
            "ConnectTimeout": "5s",
            "SNI": f"{name}.web.default.dc1.internal.td.consul",
            "Name": f"{name}.web.default.dc1.internal.td.consul",
        }

    def node(name: str) -> dict[str, Any]:
        return {
            "Type": "resolver",
            "Name": f"{name}.web.default.default.dc1",
            "Resolver": {"ConnectTimeout": "5s", "Target": f"{name}.web.default.default.dc1"},
        }

    def split(name: str, weight: int) -> dict[str, Any]:
        return {
            "Definition": {"Weight": weight, "ServiceSubset": name},
            "Weight": weight,
            "NextNode": f"resolver:{name}.web.default.default.dc1",
        }

    assert json_of(text, has_partitions=True) == {
        "Chain": {
            "ServiceName": "web",
            "Namespace": "default",
            "Partition": "default",
            "Datacenter": "dc1",
            "Protocol": "http",
            "StartNode": "splitter:web.default.default",
            "Nodes": {
                "splitter:web.default.default": {
                    "Type": "splitter",
                    "Name": "web.default.default",
                    "Splits": [split("v1", 95), split("v2", 5)],
                },
                "resolver:v1.web.default.default.dc1": node("v1"),
                "resolver:v2.web.default.default.dc1": node("v2"),
            },
            "Targets": {f"{name}.web.default.default.dc1": target(name) for name in ("v1", "v2")},
            "AutoVirtualIPs": None,
            "ManualVirtualIPs": None,
        }
    }


def test_all_references_to_a_redirected_service_are_replaced() -> None:
    text = (
        HTTP
        + """
- Kind: service-router
  Name: web
  Routes: [{Match: {HTTP: {PathPrefix: /a}}, Destination: {Service: old}}]
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: old}]}
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: old}}}
- {Kind: service-resolver, Name: old, Redirect: {Service: new}}
"""
    )
    assert lines(compile_chain(request_of(text))) == [
        "http",
        "r:web -> x:new@dc1, s:web",
        "x:new@dc1 default 5s",
        "s:web -> 50 x:web@dc1, 50 x:new@dc1",
        "x:web@dc1 5s failover new@dc1",
        "new@dc1 5s",
        "web@dc1 5s",
    ]


def test_references_without_a_subset_take_the_default_one() -> None:
    text = (
        HTTP
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 50, Service: api}, {Weight: 50, Service: api, ServiceSubset: b}]
- {Kind: service-resolver, Name: api, DefaultSubset: a, Subsets: {a: {}, b: {}}}
"""
    )
    assert lines(compile_chain(request_of(text)))[1] == "s:web -> 50 x:a/api@dc1, 50 x:b/api@dc1"


def test_splits_of_splits_are_flattened_into_a_single_one() -> None:
    text = (
        HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 60}, {Weight: 40, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 25}, {Weight: 75, Service: alt}]}
"""
    )
    assert lines(compile_chain(request_of(text)))[1] == "s:web -> 60 x:web@dc1, 10 x:api@dc1, 30 x:alt@dc1"


def test_redirect_loops_are_rejected() -> None:
    text = """
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
- {Kind: service-resolver, Name: api, Redirect: {Service: web}}
"""
    with pytest.raises(ChainError) as caught:
        compile_chain(request_of(text))
    assert caught.value.flaw is Flaw.CIRCULAR_REDIRECT


@pytest.mark.parametrize("entry", ["service-router, Name: web", "service-splitter, Name: web, Splits: [{Weight: 100}]"])
@pytest.mark.parametrize(
    "source", ["service-defaults, Name: web, Protocol: http2", "proxy-defaults, Config: {protocol: grpc}"]
)
def test_routers_and_splitters_need_an_l7_protocol_of_either_source(entry: str, source: str) -> None:
    with pytest.raises(ChainError) as caught:
        compile_chain(request_of(f"- {{Kind: {entry}}}"))
    assert caught.value.flaw is Flaw.PROTOCOL_NOT_HTTP
    assert compile_chain(request_of(f"- {{Kind: {entry}}}\n- {{Kind: {source}}}")).protocol in ("http2", "grpc")


def test_the_upstreams_datacenter_is_taken_where_entries_name_none() -> None:
    text = """
- {Kind: service-resolver, Name: web, Failover: {"*": {Targets: [{Service: api}, {Datacenter: dc1}]}}}
"""
    chain = compile_chain(replace(request_of(text), datacenter="dc9"))
    assert lines(chain)[1] == "x:web@dc9 5s failover api@dc9 web@dc1"


def test_the_customization_hash_is_there_only_for_overrides_that_had_an_effect() -> None:
    plain, customized = (
        response_json(compile_chain(replace(request_of(""), overrides=overrides)))["Chain"]
        for overrides in (Overrides(protocol="tcp"), Overrides(protocol="http"))
    )
    assert "CustomizationHash" not in plain
    assert len(customized["CustomizationHash"]) == 8


def test_a_connect_timeout_that_is_not_defined_is_5s() -> None:
    assert (
        lines(compile_chain(request_of("- {Kind: service-resolver, Name: web, RequestTimeout: 1s}")))[1]
        == "x:web@dc1 5s"
    )


def test_the_name_of_a_target_is_not_affected_by_its_sni() -> None:
    (target,) = compile_chain(
        request_of("- {Kind: service-defaults, Name: web, ExternalSNI: x.example}")
    ).targets.values()
    assert (target.sni, target.name) == ("x.example", "web.default.dc1.internal.td.consul")

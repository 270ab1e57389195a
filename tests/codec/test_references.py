"""What a resource names, wherever in it that stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.codec.cases import ADS, CASES, HCM, ROUTER, TLS, T
from tests.codec.shape_files import load_shape
from xds.codec.resources import decode_resource
from xds.model.resource import Reference
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

API = {"api_config_source": {"api_type": "GRPC", "transport_api_version": "V3"}, "resource_api_version": "V3"}
TCP_PROXY = f"{T}envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


def _references(value: dict[str, Any]) -> list[Reference]:
    return list(decode_resource(value).references)


def _eds(source: dict[str, Any], **config: object) -> dict[str, Any]:
    return {"@type": CLUSTER, "name": "c1", "type": "EDS", "eds_cluster_config": {"eds_config": source, **config}}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (ADS, "ads"),
        (API, "api"),
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


def test_only_eds_clusters_have_endpoints() -> None:
    assert _references({**_eds(ADS), "type": "STATIC"}) == []
    assert _references({"@type": CLUSTER, "name": "c1", "type": "EDS"}) == []


def test_secrets_in_packed_transport_sockets() -> None:
    assert _references(CASES["cluster with tls and http2"]) == [
        Reference(ENDPOINT, "s1", "ads"),
        Reference(SECRET, "cert", "ads"),
        Reference(SECRET, "ca", "ads"),
    ]


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
            ),
        ],
        "default_filter_chain": _chain(
            {"name": "tcp", "typed_config": {"@type": TCP_PROXY, "stat_prefix": "s", "cluster": "t1"}},
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
    header = {"match": {"prefix": "/"}, "route": {"cluster_header": "x"}}
    value = {
        "@type": ROUTE,
        "name": "r",
        "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [route, route, header]}],
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

"""v3 resources for v2 clients: the same where v2 can say it, reported where it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.codec.cases import CASES, HCM, ROUTER, T
from xds.codec import schema
from xds.codec.downgrade import PACKED_TYPES, downgrade
from xds.codec.render import render_resource
from xds.codec.resources import decode_resource, resource_from_bytes
from xds.model.resource import Reference
from xds.model.resource_type import CLUSTER, ENDPOINT, ROUTE, V2_URLS

V2_HCM = f"{T}envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"


def _down(value: dict[str, Any]) -> dict[str, Any]:
    downgraded = downgrade(decode_resource(value))
    assert downgraded.problem == ""
    assert downgraded.resource is not None
    return render_resource(downgraded.resource)


def _problem(value: dict[str, Any]) -> str:
    downgraded = downgrade(decode_resource(value))
    assert downgraded.resource is None
    return downgraded.problem


def test_listener_for_grpc() -> None:
    """The C core until 1.49 looks for the v2 HttpConnectionManager in a v2 listener."""
    rendered = _down(CASES["api listener"])
    assert rendered["@type"] == f"{T}envoy.api.v2.Listener"
    manager = rendered["api_listener"]["api_listener"]
    assert manager["@type"] == V2_HCM
    assert manager["rds"] == {"route_config_name": "r1", "config_source": {"ads": {}}}
    assert manager["http_filters"] == [
        {"name": "router", "typed_config": {"@type": f"{T}envoy.config.filter.http.router.v2.Router"}}
    ]


def test_references_and_version_are_those_of_v2() -> None:
    resource = decode_resource(CASES["api listener"])
    downgraded = downgrade(resource).resource
    assert downgraded is not None
    (reference,) = resource.references
    assert downgraded.references == (Reference(V2_URLS[ROUTE], "r1", "ads", reference.source_hash),)
    assert downgraded.version != resource.version
    read = resource_from_bytes(downgraded.type_url, downgraded.body)
    assert replace(read, references=downgraded.references) == downgraded


@pytest.mark.parametrize(
    "name",
    ["endpoints", "route with weights", "virtual host", "scoped route", "secret", "runtime", "wrappers and digits"],
)
def test_plain_resources_keep_their_content(name: str) -> None:
    rendered = _down(CASES[name])
    original = render_resource(decode_resource(CASES[name]))
    assert rendered == {**original, "@type": V2_URLS[str(original["@type"])]}


def test_cluster_with_tls_and_http2() -> None:
    """HttpProtocolOptions is v3 only; v2 has the same options as fields of the cluster."""
    rendered = _down(CASES["cluster with tls and http2"])
    assert rendered["http2_protocol_options"] == {"max_concurrent_streams": 100}
    assert "typed_extension_protocol_options" not in rendered
    assert rendered["transport_socket"]["typed_config"]["@type"] == f"{T}envoy.api.v2.auth.UpstreamTlsContext"
    assert rendered["eds_cluster_config"] == {"service_name": "s1", "eds_config": {"ads": {}}}


def test_http_options_that_v2_lacks_are_reported() -> None:
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    tls = {"@type": f"{T}envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"}
    configs: list[dict[str, Any]] = [{"auto_config": {}}, {"explicit_http_config": {"http3_protocol_options": {}}}]
    for config in configs:
        extensions = {options: {"@type": f"{T}{options}", **config}}
        cluster = {
            "@type": CLUSTER,
            "name": "c",
            "transport_socket": {"name": "envoy.transport_sockets.quic", "typed_config": tls},
        }
        problem = _problem({**cluster, "typed_extension_protocol_options": extensions})
        assert problem == f"/typed_extension_protocol_options/{options}: the v2 API has no {options}"


def test_fields_that_v2_lacks_are_reported_with_their_place() -> None:
    manager = {"@type": HCM, "stat_prefix": "s", "route_config": {"name": "r"}, "strip_any_host_port": True}
    listener = {
        "@type": f"{T}envoy.config.listener.v3.Listener",
        "name": "l",
        "address": {"pipe": {"path": "@x"}},
        "default_filter_chain": {},
        "filter_chains": [{"filters": [{"name": "h", "typed_config": manager}]}],
    }
    assert _problem(listener).split("; ") == [
        "/filter_chains/0/filters/0/typed_config/strip_any_host_port: the v2 API has no such field",
        "/default_filter_chain: the v2 API has no such field",
    ]


def test_enum_values_that_v2_lacks_are_reported() -> None:
    assert "the v2 API has no value" in _problem({"@type": CLUSTER, "name": "c", "dns_lookup_family": "ALL"})


def test_self_config_source_of_grpc() -> None:
    cluster = {"@type": CLUSTER, "name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": {"self": {}}}}
    assert _down(cluster)["eds_cluster_config"] == {"eds_config": {"self": {}}}


def test_unknown_types_and_v2_resources_pass() -> None:
    for resource in (
        decode_resource(CASES["v2 cluster"]),
        resource_from_bytes("type.googleapis.com/my.Type", b"\x00", name="n"),
    ):
        assert downgrade(resource).resource == resource


def test_extension_configs_are_reported() -> None:
    assert _problem(CASES["extension config"]) == "the v2 API has no extension configs"


def test_every_pair_of_packed_types_exists() -> None:
    for newer, older in PACKED_TYPES.items():
        assert schema.descriptor(newer) is not None, newer
        assert schema.descriptor(older) is not None, older


def test_packed_types_agree_where_they_meet() -> None:
    """Field by field, whatever both versions have is called and shaped alike, or is refused as of another kind."""
    renamed = set()
    seen = set()

    def compare(new: Any, old: Any) -> None:
        if (new.full_name, old.full_name) in seen:
            return
        seen.add((new.full_name, old.full_name))
        for field in new.fields:
            other = old.fields_by_number.get(field.number)
            if other is None or (field.type, field.is_repeated) != (other.type, other.is_repeated):
                continue
            if field.name != other.name:
                renamed.add((field.full_name, other.name))
            if field.message_type is not None:
                compare(field.message_type, other.message_type)

    for newer, older in {**V2_URLS, **PACKED_TYPES}.items():
        compare(schema.descriptor(newer), schema.descriptor(older))
    assert renamed == {
        ("envoy.config.cluster.v3.Cluster.ignore_health_on_host_removal", "drain_connections_on_host_removal"),
        ("envoy.config.route.v3.RouteAction.host_rewrite_literal", "host_rewrite"),
        ("envoy.config.route.v3.RouteAction.host_rewrite_header", "auto_host_rewrite_header"),
    }


def test_inputs_are_not_changed() -> None:
    resource = decode_resource(CASES["api listener"])
    before = resource.body
    downgrade(resource)
    assert resource.body == before
    assert ROUTER.encode() in before


def test_damaged_bytes_are_reported() -> None:
    resource = decode_resource({"@type": ENDPOINT, "cluster_name": "s"})
    damaged = type(resource)(resource.type_url, "s", b"\xff", "")
    assert downgrade(damaged).problem == "not readable"


def test_fields_this_server_does_not_know_are_reported() -> None:
    problem = downgrade(resource_from_bytes(CLUSTER, b"\x0a\x02c1\xfa\x3f\x02hi")).problem
    assert "does not know" in problem

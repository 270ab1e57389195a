"""A static bootstrap becomes a snapshot, and a bootstrap that subscribes to it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.codec.shape_files import BOOTSTRAP, bootstrap_of, load_shape, make_files, shape_names, type_of
from tests.support import resources as r
from tests.support.bootstrap import static_bootstrap
from tests.support.envoy import envoy_binary, validate
from xds.codec.crosscheck import check_references
from xds.codec.resources import decode_document
from xds.envoy.bootstrap import BootstrapOptions
from xds.envoy.convert import ConvertedBootstrap, convert
from xds.envoy.envoy_check import check_with_envoy
from xds.model.errors import MalformedError, ValidationError

Json = dict[str, Any]


def bootstrap(**fields: Any) -> Json:
    """An HTTPS listener with inline routes to two clusters, its certificate a static secret."""
    listener = r.listener(
        "web", r.inline_routes("r", r.route("b", "/b"), r.route("a")), transport_socket=static_tls("cert")
    )
    document = static_bootstrap([r.static_cluster("a", 1), r.static_cluster("b", 2)], [listener], **fields)
    document["static_resources"]["secrets"] = [untyped(r.tls_secret("cert", r.CERTIFICATE_PEM, r.KEY_PEM))]
    return document


def static_tls(secret: str) -> Json:
    socket = r.downstream_tls(secret)
    del socket["typed_config"]["common_tls_context"]["tls_certificate_sds_secret_configs"][0]["sds_config"]
    return socket


def untyped(resource: Json) -> Json:
    return {key: value for key, value in resource.items() if key != "@type"}


def of(conversion: ConvertedBootstrap, type_url: str) -> dict[str, Json]:
    found = [one for one in conversion.snapshot["resources"] if one["@type"] == type_url]
    return {one.get("name", one.get("cluster_name")): one for one in found}


def static(conversion: ConvertedBootstrap, kind: str) -> list[str]:
    return [one["name"] for one in conversion.bootstrap["static_resources"].get(kind, [])]


def assert_complete(conversion: ConvertedBootstrap) -> None:
    """The snapshot is accepted, and has no dangling references."""
    assert check_references(decode_document(json.dumps(conversion.snapshot)).resources) == []


def test_static_resources_become_a_snapshot() -> None:
    given = bootstrap()
    before = copy.deepcopy(given)
    conversion = convert(given)
    assert given == before
    types = [one["@type"] for one in conversion.snapshot["resources"]]
    assert types == [r.CLUSTER_TYPE, r.CLUSTER_TYPE, r.SECRET_TYPE, r.LISTENER_TYPE]
    assert static(conversion, "clusters") == ["xds_cluster"]
    assert conversion.bootstrap["dynamic_resources"]["cds_config"] == r.ADS
    assert conversion.bootstrap["dynamic_resources"]["lds_config"] == r.ADS
    assert conversion.bootstrap["node"] == given["node"]
    assert_complete(conversion)


def test_clusters_and_routes_stay_as_they_were() -> None:
    given = bootstrap()
    conversion = convert(given)
    assert untyped(of(conversion, r.CLUSTER_TYPE)["a"]) == given["static_resources"]["clusters"][0]
    chain = of(conversion, r.LISTENER_TYPE)["web"]["filter_chains"][0]
    assert chain["filters"] == given["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]


def test_static_secrets_come_by_discovery() -> None:
    chain = of(convert(bootstrap()), r.LISTENER_TYPE)["web"]["filter_chains"][0]
    assert chain["transport_socket"] == r.downstream_tls("cert")


def test_split_gives_endpoints_and_routes_a_resource_each() -> None:
    conversion = convert(bootstrap(), split=True)
    assert of(conversion, r.CLUSTER_TYPE)["a"] == r.eds_cluster("a")
    assert of(conversion, r.ENDPOINT_TYPE)["b"] == r.cluster_load_assignment("b", 2)
    manager = of(conversion, r.LISTENER_TYPE)["web"]["filter_chains"][0]["filters"][0]["typed_config"]
    assert manager["rds"] == r.rds("r")["rds"]
    assert "route_config" not in manager
    assert list(of(conversion, r.ROUTE_TYPE)) == ["r"]
    assert_complete(conversion)


def test_split_keeps_clusters_of_dns() -> None:
    cluster = {**r.static_cluster("dns", 80), "type": "STRICT_DNS"}
    conversion = convert(static_bootstrap([cluster], []), split=True)
    assert of(conversion, r.CLUSTER_TYPE)["dns"] == cluster
    assert any("dns" in note for note in conversion.notes)


def test_split_distinguishes_routes_of_one_name() -> None:
    listeners = [
        r.listener("one", r.inline_routes("r", r.direct_route("x"))),
        r.listener("two", r.inline_routes("r", r.direct_route("y"))),
        r.listener("three", r.inline_routes("r", r.direct_route("x"))),
        r.listener("four", r.inline_routes("", r.direct_route("z"))),
    ]
    conversion = convert(static_bootstrap([], listeners), split=True)
    assert set(of(conversion, r.ROUTE_TYPE)) == {"r", "r_2", "four/four"}
    assert_complete(conversion)


def test_camel_case_is_understood_and_kept() -> None:
    cluster: Json = {"name": "a", "connectTimeout": "1s", "loadAssignment": {"clusterName": "x", "endpoints": []}}
    given = {"node": {"id": "n", "cluster": "c"}, "staticResources": {"clusters": cluster}}
    conversion = convert(given, split=True)
    assert of(conversion, r.CLUSTER_TYPE)["a"]["connectTimeout"] == "1s"
    assert of(conversion, r.ENDPOINT_TYPE)["a"]["endpoints"] == []
    assert "static_resources" not in conversion.bootstrap
    assert conversion.bootstrap["staticResources"]["clusters"][0]["name"] == "xds_cluster"


def test_the_rest_of_the_bootstrap_is_kept() -> None:
    runtime = {"layers": [{"name": "l", "static_layer": {"a": 1}}]}
    conversion = convert(bootstrap(layered_runtime=runtime, some_day=[1]))
    assert conversion.bootstrap["layered_runtime"] == runtime
    assert conversion.bootstrap["some_day"] == [1]


STATSD: Json = {
    "name": "envoy.stat_sinks.statsd",
    "typed_config": {"@type": f"{r.TYPE}envoy.config.metrics.v3.StatsdSink", "tcp_cluster_name": "a"},
}


def test_clusters_that_the_bootstrap_needs_stay() -> None:
    aggregate = {
        **untyped(r.static_cluster("b")),
        "cluster_type": {"typed_config": {"@type": "x", "clusters": ["c"]}},
    }
    given = static_bootstrap([], [], stats_sinks=[STATSD], cluster_manager={"local_cluster_name": "b"})
    given["static_resources"]["clusters"] = [
        *(untyped(r.static_cluster(name, 1)) for name in "ac"),
        aggregate,
        untyped(r.static_cluster("test", 1)),  # named like the node's cluster, which is not a reference
    ]
    conversion = convert(given)
    assert set(static(conversion, "clusters")) == {"xds_cluster", "a", "b", "c"}
    assert list(of(conversion, r.CLUSTER_TYPE)) == ["test"]
    assert sum("stays in the bootstrap" in note for note in conversion.notes) == 3


def test_secrets_of_remaining_resources_stay() -> None:
    given = bootstrap(cluster_manager={"local_cluster_name": "a"})
    socket = r.upstream_tls("trust", "x")
    del socket["typed_config"]["common_tls_context"]["validation_context_sds_secret_config"]["sds_config"]
    given["static_resources"]["clusters"][0]["transport_socket"] = socket
    given["static_resources"]["secrets"].append(untyped(r.trust_secret("trust", "pem")))
    conversion = convert(given)
    assert static(conversion, "secrets") == ["trust"]
    assert list(of(conversion, r.SECRET_TYPE)) == ["cert"]
    assert conversion.bootstrap["static_resources"]["clusters"][1]["transport_socket"] == socket


def test_files_for_discovery_are_kept() -> None:
    files = {"path_config_source": {"path": "/etc/envoy/lds.yaml"}}
    conversion = convert(bootstrap(dynamic_resources={"lds_config": files}))
    assert conversion.bootstrap["dynamic_resources"]["lds_config"] == files
    assert static(conversion, "listeners") == ["web"]
    assert set(static(conversion, "clusters")) == {"xds_cluster", "a", "b"}  # its routes must find them
    assert any("reads files on the proxy and is kept" in note for note in conversion.notes)


def test_another_management_server_is_kept() -> None:
    service = {"envoy_grpc": {"cluster_name": "other"}}
    ads = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service]}
    given = bootstrap(dynamic_resources={"ads_config": ads})
    given["static_resources"]["clusters"].append(untyped(r.static_cluster("other", 9)))
    conversion = convert(given)
    assert conversion.bootstrap["dynamic_resources"]["ads_config"] == ads
    assert conversion.bootstrap["dynamic_resources"]["cds_config"]["api_config_source"]["api_type"] == "DELTA_GRPC"
    assert static(conversion, "clusters") == ["xds_cluster", "other"]
    assert_complete(conversion)


def test_listeners_get_names_that_last() -> None:
    listeners = [{**r.listener("x", r.inline_routes("r"), port), "name": ""} for port in (80, 80, 81)]
    conversion = convert(static_bootstrap([], listeners))
    assert list(of(conversion, r.LISTENER_TYPE)) == ["127.0.0.1_80", "127.0.0.1_80_2", "127.0.0.1_81"]


def test_converted_yaml_has_no_anchors() -> None:
    conversion = convert(bootstrap(), split=True)
    assert "&" not in yaml.safe_dump([conversion.snapshot, conversion.bootstrap])


def test_api_listeners_stay() -> None:
    listener = r.api_listener("mobile", r.inline_routes("r", r.route("a")))
    conversion = convert(static_bootstrap([r.static_cluster("a", 1)], [listener]))
    assert static(conversion, "listeners") == ["mobile"]
    assert static(conversion, "clusters") == ["xds_cluster", "a"]
    assert conversion.snapshot == {"resources": []}


def test_the_way_to_the_server_is_given() -> None:
    options = BootstrapOptions("edge-1", "edge", "xds.example", 443)
    conversion = convert({"static_resources": {}}, options=options)
    server = conversion.bootstrap["static_resources"]["clusters"][0]
    assert server["type"] == "STRICT_DNS"
    assert conversion.bootstrap["node"] == {"id": "edge-1", "cluster": "edge"}
    assert any("node" in note for note in conversion.notes)


def test_a_cluster_of_the_servers_name_is_another_one() -> None:
    conversion = convert(static_bootstrap([r.static_cluster("xds_cluster", 1)], []))
    assert static(conversion, "clusters") == ["xds_cluster_2"]
    services = conversion.bootstrap["dynamic_resources"]["ads_config"]["grpc_services"]
    assert services[0]["envoy_grpc"]["cluster_name"] == "xds_cluster_2"
    assert list(of(conversion, r.CLUSTER_TYPE)) == ["xds_cluster"]


def test_resources_that_cannot_be_pushed_are_reported() -> None:
    cluster = {**r.static_cluster("a"), "filters": [{"name": "f", "typed_config": {"@type": "type.x/private.Filter"}}]}
    conversion = convert(static_bootstrap([cluster], []))
    (error,) = conversion.errors
    assert error.pointer.startswith("/static_resources/clusters/0/") and "private.Filter" in error.detail


@pytest.mark.parametrize(
    "document",
    [
        {"resources": []},
        {"static_resources": []},
        {"static_resources": {"clusters": "a"}},
        {"dynamic_resources": 1},
        {"node": ["n"]},
    ],
)
def test_a_file_that_is_no_bootstrap_is_refused(document: Json) -> None:
    with pytest.raises(ValidationError):
        convert(document)


@pytest.mark.parametrize("split", [False, True])
def test_every_shape_is_converted_to_content_that_envoy_accepts(tmp_path: Path, split: bool) -> None:
    make_files(tmp_path)
    shapes = [one for name in shape_names() for one in load_shape(name, tmp_path)]
    given = bootstrap_of(one for one in shapes if type_of(one) != BOOTSTRAP)
    conversion = convert(given, split=split)
    assert [note for note in conversion.notes if "cannot be pushed" in note] == []
    assert validate(conversion.bootstrap, tmp_path) == ""
    pushed = decode_document(json.dumps(conversion.snapshot)).resources
    assert len(pushed) >= sum(map(len, given["static_resources"].values()))
    assert [one for one in check_references(pushed) if one.severity == "error"] == []
    assert check_with_envoy(pushed, envoy_binary()) == []


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, below in items for place in places(below, (*path, key)))]


@pytest.mark.parametrize("wrong", [None, 7, "x", [], ["x"], {}, {"x": 1}], ids=repr)
def test_any_value_may_be_wrong(wrong: object) -> None:
    given = bootstrap(stats_sinks=[STATSD])
    for *path, last in places(given)[1:]:
        document = copy.deepcopy(given)
        holder = document
        for key in path:
            holder = holder[key]
        holder[last] = wrong
        try:
            convert(document, split=True)
        except ValidationError as error:
            assert error.violations[0].pointer


def test_deep_nesting_is_refused() -> None:
    deep: Json = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(MalformedError):
        convert({"static_resources": {}, "x": deep})


# The bootstrap itself


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"admin": {"adress": {}}}, "/admin/adress"),
        ({"node": {"id": "n", "cluster": "c", "hidden_envoy_deprecated_build_version": "1"}}, "/node/hidden"),
        ({"stats_flush_interval": "5"}, "/stats_flush_interval"),
    ],
)
def test_the_bootstrap_itself_is_checked(fields: Json, pointer: str) -> None:
    (error,) = convert(bootstrap(**fields)).errors
    assert error.pointer.startswith(pointer)


def test_a_bootstrap_without_errors_has_no_findings() -> None:
    assert convert(bootstrap()).errors == ()


def test_an_error_in_a_resource_has_the_place_in_the_bootstrap() -> None:
    document = bootstrap()
    address = document["static_resources"]["listeners"][0]["address"]["socket_address"]
    address["address"] = "$proxy_ip"
    (error,) = convert(document).errors
    assert error.pointer == "/static_resources/listeners/0/address/socket_address/address"


def test_secrets_stay_where_another_server_sends_clusters() -> None:
    document = bootstrap(dynamic_resources={"cds_config": {"ads": {}}, "ads_config": {"api_type": "GRPC"}})
    conversion = convert(document)
    assert static(conversion, "secrets") == ["cert"]
    assert of(conversion, r.SECRET_TYPE) == {}
    assert any("static secrets stay" in note for note in conversion.notes)


def test_split_leaves_clusters_with_equal_endpoints() -> None:
    """EDS keeps the first of equal addresses, a static cluster keeps all."""
    twice = r.static_cluster("twice", 80, 80)
    conversion = convert(static_bootstrap([twice, r.static_cluster("once", 80)], []), split=True)
    assert list(of(conversion, r.ENDPOINT_TYPE)) == ["once"]
    assert of(conversion, r.CLUSTER_TYPE)["twice"]["load_assignment"] == twice["load_assignment"]
    assert any("an address twice" in note and note.endswith(": twice") for note in conversion.notes)


def test_certificates_in_files_are_reported() -> None:
    context = r.upstream_tls("x", "y")
    context["typed_config"]["common_tls_context"] = {
        "validation_context": {"trusted_ca": {"filename": "/etc/envoy/ca.pem"}}
    }
    conversion = convert(static_bootstrap([r.static_cluster("a", 80, transport_socket=context)], []))
    assert any("/etc/envoy/ca.pem" in note for note in conversion.notes)


# What a running Envoy has


def dump(*parts: Json) -> Json:
    return {"configs": [{**one, "@type": f"{r.TYPE}envoy.admin.v3.{one['@type']}"} for one in parts]}


def dumped_bootstrap(**fields: Any) -> Json:
    node = {"id": "edge-1", "cluster": "edge", "user_agent_name": "envoy", "extensions": [{"name": "x"}]}
    return {"@type": "BootstrapConfigDump", "bootstrap": {"node": node, **fields}}


def test_a_dump_has_no_values_of_a_runtime_layer() -> None:
    layers = [{"name": "static", "static_layer": {"a": 1}}, {"name": "r", "rtds_layer": {"name": "limits"}}]
    notes = convert(dump(dumped_bootstrap(layered_runtime={"layers": layers}))).notes
    (note,) = [one for one in notes if "runtime layer" in one]
    assert note.startswith("the values of the runtime layer 'limits' are not in the snapshot")
    assert not any("runtime layer" in one for one in convert(dump(dumped_bootstrap())).notes)


def test_a_config_dump_is_converted() -> None:
    source = {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "other"}}]}}
    cluster = r.eds_cluster("dynamic", source=source)
    conversion = convert(
        dump(
            dumped_bootstrap(
                dynamic_resources={"cds_config": {"ads": {}}, "ads_config": {"api_type": "GRPC"}},
                static_resources={"clusters": [untyped(r.static_cluster("other", 1))]},
            ),
            {"@type": "ClustersConfigDump", "dynamic_active_clusters": [{"cluster": cluster}]},
            {
                "@type": "ListenersConfigDump",
                "dynamic_listeners": [{"active_state": {"listener": r.listener("web", r.rds("r"))}}],
            },
            {
                "@type": "RoutesConfigDump",
                "dynamic_route_configs": [{"route_config": r.route_config("r", r.route("dynamic"))}],
            },
            {
                "@type": "EndpointsConfigDump",
                "dynamic_endpoint_configs": [{"endpoint_config": r.cluster_load_assignment("dynamic", 80)}],
            },
        )
    )
    assert_complete(conversion)
    assert conversion.errors == ()
    assert sorted(of(conversion, r.CLUSTER_TYPE)) == ["dynamic", "other"]
    assert list(of(conversion, r.ROUTE_TYPE)) == ["r"]
    assert list(of(conversion, r.ENDPOINT_TYPE)) == ["dynamic"]
    assert (
        of(conversion, r.CLUSTER_TYPE)["dynamic"]["eds_cluster_config"]["eds_config"]
        == conversion.bootstrap["dynamic_resources"]["cds_config"]
    )
    assert conversion.bootstrap["node"] == {"id": "edge-1", "cluster": "edge"}


def test_values_that_envoy_fills_in_are_left_out_of_the_endpoints_of_a_dump() -> None:
    address = r.address(80)
    endpoint = {"endpoint": {"address": address}, "health_status": "UNHEALTHY", "load_balancing_weight": 1}
    localities = [{"lb_endpoints": [endpoint], "load_balancing_weight": 0}]
    clusters = [r.eds_cluster("a", service_name="kept"), r.eds_cluster("found", outlier_detection={"interval": "1s"})]
    parts = [{"endpoint_config": {"cluster_name": name, "endpoints": localities}} for name in ("kept", "found", "kept")]
    conversion = convert(
        dump(
            dumped_bootstrap(),
            {"@type": "ClustersConfigDump", "dynamic_active_clusters": [{"cluster": one} for one in clusters]},
            {"@type": "EndpointsConfigDump", "dynamic_endpoint_configs": json.loads(json.dumps(parts))},
        )
    )
    assert conversion.errors == ()
    assignments = of(conversion, r.ENDPOINT_TYPE)
    state = {name: one["endpoints"][0]["lb_endpoints"][0].get("health_status") for name, one in assignments.items()}
    assert state == {"kept": "UNHEALTHY", "found": None}
    assert {note.split("'")[1] for note in conversion.notes if "UNHEALTHY" in note} == {"kept", "found"}


@pytest.mark.parametrize(("reports", "stays"), [("other", False), ("elsewhere", True)])
def test_load_is_reported_here_unless_it_went_to_a_server_of_its_own(reports: str, stays: bool) -> None:
    def source(cluster: str) -> Json:
        return {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": cluster}}]}

    conversion = convert(
        dump(
            dumped_bootstrap(
                dynamic_resources={"cds_config": {"ads": {}}, "ads_config": source("other")},
                cluster_manager={"load_stats_config": source(reports), "outlier_detection": {}},
                static_resources={"clusters": [untyped(r.static_cluster(one, 1)) for one in ("other", "elsewhere")]},
            )
        )
    )
    manager = conversion.bootstrap["cluster_manager"]
    found = manager["load_stats_config"]["grpc_services"][0]["envoy_grpc"]["cluster_name"]
    assert found == ("elsewhere" if stays else conversion.bootstrap["static_resources"]["clusters"][-1]["name"])
    assert "outlier_detection" in manager


def test_redacted_secrets_of_a_dump_are_named() -> None:
    secret = {"name": "cert", "tls_certificate": {"private_key": {"inline_bytes": "W3JlZGFjdGVkXQ=="}}}
    trust = {"name": "ca", "validation_context": {"trusted_ca": {"inline_string": r.CERTIFICATE_PEM}}}
    conversion = convert(
        dump(
            dumped_bootstrap(),
            {"@type": "SecretsConfigDump", "dynamic_active_secrets": [{"secret": secret}, {"secret": trust}]},
        )
    )
    assert list(of(conversion, r.SECRET_TYPE)) == ["ca"]
    assert any("'cert'" in note and "redacted" in note for note in conversion.notes)


def test_a_dump_without_a_bootstrap_is_refused() -> None:
    with pytest.raises(ValidationError, match="include_eds"):
        convert(dump({"@type": "ClustersConfigDump"}))

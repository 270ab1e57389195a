"""What a whole set of resources is told about who refers to whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import resources as r
from xds.codec.crosscheck import check_references
from xds.codec.findings import FINDINGS_LIMIT
from xds.codec.resources import decode_document
from xds.model.errors import Violation
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, LISTENER, ROUTE

Json = dict[str, Any]

WEB = r.web_resources("c1", 80)


def decoded(*documents: Json) -> list[Resource]:
    return decode_document(json.dumps({"resources": documents})).resources


def told(*documents: Json) -> list[tuple[str, str, str]]:
    return [(one.code, one.resource, one.pointer) for one in check_references(decoded(*documents))]


def held(*documents: Json) -> dict[str, dict[str, Resource]]:
    """What a group holds, by type and name."""
    found: dict[str, dict[str, Resource]] = {}
    for one in decoded(*documents):
        found.setdefault(one.type_url, {})[one.name] = one
    return found


def single(found: list[Violation]) -> Violation:
    assert len(found) == 1, found
    return found[0]


def test_a_complete_set_has_nothing_against_it() -> None:
    assert told(*WEB) == []


OTHER: Json = {"ads": {}}


def test_two_config_sources_for_one_resource() -> None:
    """Of different bytes, whatever they mean: one warning for each resource, in the second place."""
    secret = r.tls_secret("s1", r.CERTIFICATE_PEM, r.KEY_PEM)
    first, *others = (
        r.listener(
            name, r.inline_routes(name, r.direct_route("hi")), port, transport_socket=r.downstream_tls("s1", each)
        )
        for name, port, each in (("a", 81, r.ADS), ("b", 82, OTHER), ("c", 83, OTHER))
    )
    found = single(check_references(decoded(first, *others, secret)))
    assert (found.code, found.resource, found.severity) == ("two_sources", "listeners/b", "warning")
    assert found.pointer.endswith("/tls_certificate_sds_secret_configs/0/name")
    assert "secret 's1'" in found.detail
    assert "listeners/a" in found.detail
    (pushed,) = decoded(others[0])
    found = single(check_references([pushed], known=held(first, secret)))
    assert (found.code, found.resource) == ("two_sources", "listeners/b")
    assert check_references([pushed], known=held(others[1], secret)) == []


def test_two_config_sources_in_one_resource() -> None:
    chains = [
        {**r.http_chain(name, r.rds("r1", source), match=r.sources_match(bits)), "name": name}
        for name, source, bits in (("a", r.ADS, 8), ("b", OTHER, 16))
    ]
    found = single(
        check_references(
            decoded(
                r.chained_listener("web", chains, 81), r.route_config("r1", r.route("c")), r.static_cluster("c", 80)
            )
        )
    )
    assert (found.code, found.resource) == ("two_sources", "listeners/web")
    assert "here" in found.detail


def test_assignments_may_have_two_config_sources() -> None:
    """Each cluster is sent with its assignment (rule 43)."""
    both = r.eds_cluster("c1", service_name="e"), r.eds_cluster("c2", OTHER, service_name="e")
    assert check_references(decoded(*both, r.cluster_load_assignment("e", 80))) == []


def test_clients_ask_for_listeners_and_clusters_by_name() -> None:
    assert told(r.static_cluster("c1", 80), r.api_listener("svc", r.inline_routes("r"))) == []


def test_cluster_without_assignment() -> None:
    found = single(check_references(decoded(r.eds_cluster("shop"), r.eds_cluster("b"), r.cluster_load_assignment("b"))))
    assert (found.code, found.resource, found.severity) == ("missing_reference", "clusters/shop", "warning")
    assert (found.pointer, found.index) == ("/name", 0)
    assert "assignment 'shop'" in found.detail


def test_service_name_is_the_place_where_it_is_given() -> None:
    assert told(r.eds_cluster("c1", service_name="s1")) == [
        ("missing_reference", "clusters/c1", "/eds_cluster_config/service_name")
    ]


def test_a_close_name_is_the_hint() -> None:
    found = single(check_references(decoded(r.static_cluster("checkout", 80), r.route_config("r", r.route("chekout")))))
    assert found.hint == "did you mean 'checkout'?"


def _tcp_proxy(**config: object) -> Json:
    typed = {
        "@type": f"{r.TYPE}envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "nope",  # the name of the cluster: the pointer must not be fooled
        **config,
    }
    chain = {"filters": [{"name": "tcp", "typed_config": typed}]}
    return {"@type": r.LISTENER_TYPE, "name": "l", "address": r.address(80), "filter_chains": [chain]}


def _http_filter(name: str, config: Json) -> Json:
    return r.listener("l", r.inline_routes("r"), filters=[{"name": name, "typed_config": config}])


def _grpc(cluster: str) -> Json:
    return {"grpc_service": {"envoy_grpc": {"cluster_name": cluster}}}


def _aggregate(*names: str) -> Json:
    typed = {"@type": f"{r.TYPE}envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": names}
    return {
        "@type": r.CLUSTER_TYPE,
        "name": "a",
        "lb_policy": "CLUSTER_PROVIDED",
        "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": typed},
    }


TCP = "/filter_chains/0/filters/0/typed_config"
ROUTES = "/virtual_hosts/0/routes/0/route"
WEIGHTED: Json = {"clusters": [{"name": "nope", "weight": 1}]}
TRACED: Json = {
    "provider": {
        "name": "zipkin",
        "typed_config": {
            "@type": f"{r.TYPE}envoy.config.trace.v3.ZipkinConfig",
            "collector_cluster": "nope",
            "collector_endpoint": "/",
            "collector_endpoint_version": "HTTP_JSON",
        },
    }
}
EXT_AUTHZ = f"{r.TYPE}envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (r.route_config("r", r.route("nope")), f"{ROUTES}/cluster"),
        (
            r.route_config("r", {"match": {"prefix": "/"}, "route": {"weighted_clusters": WEIGHTED}}),
            f"{ROUTES}/weighted_clusters/clusters/0/name",
        ),
        (
            r.route_config("r", r.route("a", request_mirror_policies=[{"cluster": "nope"}])),
            f"{ROUTES}/request_mirror_policies/0/cluster",
        ),
        (r.listener("l", r.inline_routes("r", r.route("nope"))), f"{TCP}/route_config{ROUTES}/cluster"),
        (_tcp_proxy(cluster="nope"), f"{TCP}/cluster"),
        (_tcp_proxy(weighted_clusters=WEIGHTED), f"{TCP}/weighted_clusters/clusters/0/name"),
        (_aggregate("a", "nope"), "/cluster_type/typed_config/clusters/1"),
        (
            _http_filter("authz", {"@type": EXT_AUTHZ, **_grpc("nope")}),
            f"{TCP}/http_filters/0/typed_config/grpc_service/envoy_grpc/cluster_name",
        ),
        (
            r.listener("l", {**r.inline_routes("r"), "tracing": TRACED}),
            f"{TCP}/tracing/provider/typed_config/collector_cluster",
        ),
    ],
)
def test_unknown_cluster(document: Json, pointer: str) -> None:
    beside = [] if document.get("name") == "a" else [r.static_cluster("a", 80)]
    found = [one for one in check_references(decoded(*beside, document)) if one.code != "unused"]
    assert (single(found).code, single(found).pointer) == ("missing_reference", pointer)
    assert "'nope'" in single(found).detail


@pytest.mark.parametrize(
    "document",
    [
        r.listener("l", r.rds("nope")),
        r.scoped_route("s", "nope", "k"),
        r.listener("l", r.inline_routes("r"), transport_socket=r.downstream_tls("nope")),
        r.listener("l", r.inline_routes("r"), filters=[r.discovered_filter("nope")]),
        r.listener("l", r.scopes("x")),
        r.vhds_route_config("r"),
    ],
)
def test_names_that_nobody_provides(document: Json) -> None:
    assert single(check_references(decoded(document))).code == "missing_reference"


def test_scopes_and_virtual_hosts_that_are_there() -> None:
    hosts = [r.vhds_route_config("r"), r.virtual_host("r/a", [r.direct_route("x")], ["a"])]
    assert told(r.listener("l", r.scopes("x")), r.scoped_route("s", "r", "k"), *hosts) == []
    other = [r.vhds_route_config("other"), *hosts, r.listener("l", r.rds("r")), r.listener("m", r.rds("other"))]
    assert [one[1] for one in told(*other)] == ["routes/other"]


def test_content_that_cannot_be_read_misses_no_cluster() -> None:
    by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "x"}}
    assert told(r.listener("l", r.inline_routes("r", by_header))) == []
    route = decoded(r.route_config("r", by_header))
    held = {CLUSTER: {"a": decoded(r.static_cluster("a", 80))[0]}, ROUTE: {"r": route[0]}}
    assert check_references([], removed=[(CLUSTER, "a")], known=held) == []


def test_internal_listener_that_nobody_has() -> None:
    cluster = r.static_cluster("a", 80)
    (member,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    member["endpoint"]["address"] = {"envoy_internal_address": {"server_listener_name": "inner"}}
    assert told(cluster) == [("missing_reference", "clusters/a", "")]
    assert (
        told(cluster, {"@type": r.LISTENER_TYPE, "name": "inner", "internal_listener": {}, "default_filter_chain": {}})
        == []
    )


def test_files_on_the_proxy_are_not_ours() -> None:
    assert told(r.eds_cluster("c1", {"path_config_source": {"path": "/x"}})) == []


def test_the_cluster_of_a_config_source_is_the_bootstraps() -> None:
    source = {
        "resource_api_version": "V3",
        "api_config_source": {
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "xds_cluster"}}],
        },
    }
    assert told(r.eds_cluster("c1", source), r.cluster_load_assignment("c1", 80)) == []


def test_unused_resources_are_warned_of() -> None:
    lonely = [r.cluster_load_assignment("x", 80), r.route_config("y"), r.trust_secret("z", r.CERTIFICATE_PEM)]
    assert told(*WEB, *lonely) == [
        ("unused", "endpoints/x", ""),
        ("unused", "routes/y", ""),
        ("unused", "secrets/z", ""),
    ]


def test_a_place_in_a_wrapper() -> None:
    wrapped = {"@type": f"{r.TYPE}envoy.service.discovery.v3.Resource", "name": "c", "ttl": "1s"}
    assert told({**wrapped, "resource": r.eds_cluster("c")}) == [("missing_reference", "clusters/c", "/resource/name")]


def test_a_set_without_referring_types_has_no_findings() -> None:
    assert told(r.cluster_load_assignment("x", 80), r.route_config("y"), r.trust_secret("z", r.CERTIFICATE_PEM)) == []


def test_a_removed_name_that_is_still_used_has_its_own_message() -> None:
    gone = (CLUSTER, "c1")
    known = held(*WEB)
    whole = single(check_references(decoded(*WEB[2:]), removed=[gone]))
    found = single(check_references([], removed=[gone], known=known))
    assert found.code == whole.code == "still_referenced"
    assert found.resource == whole.resource == "routes/web"
    assert found.pointer == f"{ROUTES}/cluster"
    assert "this push deletes" in found.detail


def test_a_name_removed_with_its_users_is_no_finding() -> None:
    gone = [(one.type_url, one.name) for one in decoded(*WEB)]
    assert check_references([], removed=gone, known=held(*WEB)) == []
    moved = decoded(r.route_config("web", r.direct_route("x")))
    assert check_references(moved, removed=[(CLUSTER, "c1")], known=held(*WEB)) == []


def test_one_pushed_resource_is_checked_within_its_group() -> None:
    known = held(*WEB, r.eds_cluster("broken before"))
    found = single(check_references(decoded(r.route_config("web", r.route("c1"), r.route("nope", "/x"))), known=known))
    assert (found.resource, found.pointer) == ("routes/web", "/virtual_hosts/0/routes/1/route/cluster")
    assert check_references(decoded(r.cluster_load_assignment("new", 80)), known=known) == []


def test_one_pushed_listener_clashes_with_those_that_stay() -> None:
    known = held(r.listener("a", r.inline_routes("r"), 8080))
    found = single(check_references(decoded(r.listener("b", r.inline_routes("r"), 8080)), known=known))
    assert (found.code, found.severity) == ("address_clash", "error")
    assert (found.resource, found.pointer) == ("listeners/b", "/address")
    assert "'a'" in found.detail
    assert check_references(decoded(r.listener("a", r.inline_routes("r"), 8080)), known=known) == []
    swapped = decoded(r.listener("b", r.inline_routes("r"), 8080))
    assert check_references(swapped, removed=[(LISTENER, "a")], known=known) == []


def test_listeners_of_grpc_servers_may_stand_side_by_side() -> None:
    served = r.grpc_server_listener(50051)
    found = single(check_references(decoded(served, {**served, "name": "other/127.0.0.1:50051"})))
    assert (found.code, found.severity) == ("address_clash", "warning")


def test_a_domain_in_two_virtual_hosts() -> None:
    hosts = [r.host("a", [], ["Shop.example"]), r.host("b", [], ["x", "shop.example"])]
    listener = r.listener("l", {"route_config": {"name": "r", "virtual_hosts": hosts}}, 80)
    found = check_references(decoded(r.route_config("r", hosts=hosts), listener))
    assert {(one.code, one.severity, one.pointer) for one in found if one.code != "unused"} == {
        ("duplicate_domain", "error", "/virtual_hosts/1/domains/1"),
        ("duplicate_domain", "error", f"{TCP}/route_config/virtual_hosts/1/domains/1"),
    }
    assert "virtual host 'a'" in found[0].detail


def vhds_at(form: str, *domains: str, source: r.Json = r.ADS) -> list[r.Json]:
    """Route configuration ``table`` with VHDS and inline domains: a resource, or inline in a listener or scope."""
    table = {**r.vhds_route_config("table", source), "virtual_hosts": [r.host("own", [], domains)]}
    inline = {key: value for key, value in table.items() if key != "@type"}
    if form == "route":
        return [r.listener("web", r.rds("table")), table]
    if form == "scope":
        scope = r.scoped_route("s", "", "A")
        del scope["route_configuration_name"]
        return [r.listener("web", r.scopes("x")), {**scope, "route_configuration": inline}]
    return [r.listener("web", {"route_config": inline})]


@pytest.mark.parametrize("form", ["route", "listener", "scope"])
def test_a_domain_inline_and_by_vhds(form: str) -> None:
    table = vhds_at(form, "x", "Shop.example")
    hosts = [r.virtual_host("table/a", [], ["other"]), r.virtual_host("table/b", [], ["y", "shop.Example"])]
    found = single([one for one in check_references(decoded(*table, *hosts)) if one.severity == "error"])
    assert (found.code, found.resource, found.pointer) == ("duplicate_domain", "virtual_hosts/table/b", "/domains/1")
    assert "virtual host 'own'" in found.detail and found.index == len(table) + 1
    for pushed, known in ((hosts, table), (table, hosts)):
        found = single(
            [one for one in check_references(decoded(*pushed), known=held(*known)) if one.severity == "error"]
        )
        assert (found.code, found.resource) == ("duplicate_domain", "virtual_hosts/table/b")
    assert check_references(decoded(hosts[0]), known=held(*table, hosts[1])) == []


def test_domains_that_are_not_both_inline_and_by_vhds() -> None:
    host = r.virtual_host("table/x", [], ["y"])
    assert errors_of(*vhds_at("route", "x"), host) == [], "a name is not a domain"
    assert errors_of(*vhds_at("route", "y"), {**host, "name": "another/x"}) == []
    google = {"target_uri": "hosts.example:443", "stat_prefix": "x"}
    api = {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [{"google_grpc": google}]}
    elsewhere = {"api_config_source": api, "resource_api_version": "V3"}
    assert errors_of(*vhds_at("route", "y", source=elsewhere), host) == [], "these hosts are of another server"
    there = check_references(decoded(r.listener("web", r.rds("nowhere", elsewhere))))
    assert there == check_references(decoded(*vhds_at("listener", "y", source=elsewhere))) == [], "nothing is missing"


def errors_of(*documents: r.Json) -> list[str]:
    return [one.code for one in check_references(decoded(*documents)) if one.severity == "error"]


def test_errors_are_not_crowded_out() -> None:
    lost = [r.eds_cluster(f"c{number}") for number in range(FINDINGS_LIMIT + 50)]
    clash = [r.listener(name, r.inline_routes("r"), 8080) for name in "ab"]
    found = check_references(decoded(*lost, *clash))
    assert len(found) == FINDINGS_LIMIT + 1
    assert found[0].code == "address_clash"


def test_v2_names_are_found_among_v2_resources() -> None:
    cluster = {**r.eds_cluster("c1"), "@type": f"{r.TYPE}envoy.api.v2.Cluster"}
    cluster["eds_cluster_config"] = {"eds_config": {"ads": {}}}
    assignment = {**r.cluster_load_assignment("c1", 80), "@type": f"{r.TYPE}envoy.api.v2.ClusterLoadAssignment"}
    assert told(cluster, assignment) == []
    assert told(cluster, r.cluster_load_assignment("c1", 80)) == []
    assert [one[0] for one in told(cluster)] == ["missing_reference"]

"""What happens under open streams of Linkerd proxies: clusters that go, addresses that move, groups, undo.

A proxy gives up for good on INVALID_ARGUMENT and FAILED_PRECONDITION: an open stream must not end with them because
of what may pass.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any

import grpc
import pytest

from tests.support.linkerd_client import LinkerdClient, added, no_endpoints, place_of, refuses, removed
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from tests.support.resources import (
    LISTENER_TYPE,
    cluster_load_assignment,
    eds_cluster,
    host,
    route,
    route_config,
    tcp_chain,
)
from xds.linkerd.settings import DestinationSettings
from xds.push.request import PushOptions

HTTP = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
AGGREGATE = "envoy.extensions.clusters.aggregate.v3.ClusterConfig"
VIRTUAL = "10.96.0.10"
OTHER = eds_cluster("other")


def cluster(name: str, port: int) -> list[dict[str, Any]]:
    return [eds_cluster(name), cluster_load_assignment(name, port)]


# Clusters whose names are in no grammar


def test_a_cluster_with_a_foreign_name_may_go_and_come_back(site: LinkerdSite, client: LinkerdClient) -> None:
    site.push(cluster("shop.example", 81))
    streams = [client.get("shop.example"), client.get_2018("shop.example")]
    profile = client.profile("shop.example")
    assert [set(added(each.next())) for each in streams] == [{"127.0.0.1:81"}] * 2
    assert profile.next().fully_qualified_name == "shop.example"
    site.push([OTHER])
    assert [no_endpoints(each.next()) for each in streams] == [False, False]
    refuses(client.get("shop.example"), grpc.StatusCode.INVALID_ARGUMENT)
    site.push(cluster("shop.example", 82))
    assert [set(added(each.next())) for each in streams] == [{"127.0.0.1:82"}] * 2


def test_the_profile_of_a_virtual_host_that_goes_becomes_the_default_one(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    timed = {**route("web"), "route": {"cluster": "web", "timeout": "3s"}}
    hosts = [route_config("r", hosts=[host("h", [timed], ["shop.example"])])]
    site.push([*cluster("web", 81), *hosts])
    stream = client.profile("shop.example")
    assert stream.next().routes
    site.push(cluster("web", 81))
    gone = stream.next()
    assert not gone.routes and gone.fully_qualified_name == "shop.example"
    site.push([*cluster("web", 81), *hosts])
    assert stream.next().routes


# What is not known yet


def test_an_open_stream_waits_for_an_unknown_service_like_a_new_one() -> None:
    """A cluster may be pushed before its endpoints: a proxy drops what it has when it is told that there are none."""
    with closing(LinkerdSite(DestinationSettings(settle_s=1.0))) as site:
        site.push(cluster("web", 81))
        stream = site.client().get("web")
        assert set(added(stream.next())) == {"127.0.0.1:81"}
        time.sleep(1.2)  # longer than a first answer waits
        site.push([eds_cluster("web")])
        assert stream.is_quiet(0.3)
        site.push(cluster("web", 82))
        assert set(added(stream.next())) == {"127.0.0.1:82"}
        assert removed(stream.next()) == {"127.0.0.1:81"}
        assert stream.is_quiet()
        site.push([eds_cluster("web")])
        began_at = time.monotonic()
        assert no_endpoints(stream.next())
        assert time.monotonic() - began_at > 0.5
        site.push([eds_cluster("web"), OTHER])
        assert stream.is_quiet(1.5)


# Virtual addresses


def test_the_address_of_a_deleted_service_may_be_given_to_another(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=(VIRTUAL,)))
    streams = [client.profile(f"{VIRTUAL}:80"), client.watch(VIRTUAL, 80)]
    for stream in streams:
        stream.next()
    site.remove("web")
    site.put("api", instance("10.0.0.2", virtual_addresses=(VIRTUAL,)))
    name = "api.default.svc.cluster.local"
    assert client.profile(f"{VIRTUAL}:80").next().fully_qualified_name == name
    assert client.watch(VIRTUAL, 80).next().metadata.resource.name == "api"
    while streams[0].next().fully_qualified_name != name:
        pass
    while streams[1].next().metadata.resource.name != "api":
        pass


def test_an_address_that_two_services_have_for_a_while_ends_no_stream(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=(VIRTUAL,)))
    profile, policy = client.profile(f"{VIRTUAL}:80"), client.watch(VIRTUAL, 80)
    assert profile.next().fully_qualified_name == HOST
    policy.next()
    site.put("api", instance("10.0.0.2", virtual_addresses=(VIRTUAL,)))
    assert profile.is_quiet() and policy.is_quiet()
    told = [state.skipped for state in site.destinations.states()]
    assert all("several services: api, web" in " ".join(each) for each in told)
    refuses(client.profile(f"{VIRTUAL}:80"), grpc.StatusCode.FAILED_PRECONDITION)
    site.put("web", instance("10.0.0.1"))
    assert profile.next().fully_qualified_name == "api.default.svc.cluster.local"
    assert policy.next().metadata.resource.name == "api"


@pytest.mark.parametrize("text", ["2001:DB8:0::1", "2001:db8::0001"])
def test_an_ipv6_address_is_known_in_every_form(site: LinkerdSite, client: LinkerdClient, text: str) -> None:
    site.put("web", instance(text, meta={"pod": "web-1"}))
    assert client.profile("[2001:db8::1]:8080").next().endpoint.metric_labels["pod"] == "web-1"
    site.remove("web")
    fields = {"identity": "a.b"}
    end = {
        "endpoint": {"address": {"socket_address": {"address": text, "port_value": 81}}},
        "metadata": {"filter_metadata": {"io.linkerd": fields}},
    }
    site.push([{**cluster_load_assignment("web"), "endpoints": [{"lb_endpoints": [end]}]}])
    found = client.profile("[2001:db8::1]:81").next().endpoint
    assert place_of(found.addr) == "[2001:db8::1]:81" and found.HasField("tls_identity")


# Names that two services could have


def test_services_of_two_sources_differ_in_every_name_grammar(site: LinkerdSite, client: LinkerdClient) -> None:
    """In the middle of a move: ``web`` is Consul's, ``web.default`` is that of Kubernetes."""
    site.put("web", instance("10.0.0.1", virtual_addresses=(VIRTUAL,)))
    site.put("web.default", instance("10.0.0.2", virtual_addresses=("10.96.0.11",)))
    legs = [{"Weight": 90, "Service": "web"}, {"Weight": 10, "Service": "web.default"}]
    site.write(HTTP, {"Kind": "service-splitter", "Name": "web", "Splits": legs})
    for path in ("web", "web.service.consul", f"{VIRTUAL}:80"):
        profile = client.profile(path).next()
        reached = [(set(added(client.get(each.authority).next())), each.weight) for each in profile.dst_overrides]
        assert reached == [({"10.0.0.1:8080"}, 9000), ({"10.0.0.2:8080"}, 1000)], path
    assert client.profile("10.96.0.11:80").next().fully_qualified_name == HOST


def test_the_address_of_a_service_keeps_its_service_when_another_takes_its_name(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=(VIRTUAL,)))
    stream = client.watch(VIRTUAL, 80)
    assert backend_of(stream.next()) == f"{HOST}:80"
    site.put("web.default", instance("10.0.0.2"))
    path = backend_of(stream.next())
    assert set(added(client.get(path).next())) == {"10.0.0.1:8080"}


def backend_of(policy: Any) -> str:
    (route_of,) = policy.protocol.detect.http1.routes
    (backend,) = route_of.rules[0].backends.first_available.backends
    path: str = backend.backend.balancer.discovery.dst.path
    return path


def test_clusters_with_underscores_are_legs(site: LinkerdSite, client: LinkerdClient) -> None:
    legs = [{"name": "web_v1", "weight": 90}, {"name": "web_v2", "weight": 10}]
    action = {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": legs}}}
    site.push([*cluster("web_v1", 81), *cluster("web_v2", 82), route_config("r", hosts=[host("h", [action], ["web"])])])
    found = {each.authority: each.weight for each in client.profile("web").next().dst_overrides}
    assert found == {"web_v1:80": 90, "web_v2:80": 10}
    assert [set(added(client.get(leg).next())) for leg in found] == [{"127.0.0.1:81"}, {"127.0.0.1:82"}]


def test_clusters_with_names_of_istio_are_legs_and_behind_addresses(site: LinkerdSite, client: LinkerdClient) -> None:
    names = [f"outbound|80|{label}|web.shop.svc.cluster.local" for label in ("", "v2")]
    action = {"weighted_clusters": {"clusters": [{"name": name, "weight": 50} for name in names]}}
    split = host("h", [{"match": {"prefix": "/"}, "route": action}], ["shop.example"])
    place = {"socket_address": {"address": VIRTUAL, "port_value": 80}}
    bound = {"@type": LISTENER_TYPE, "name": "l", "address": place, "filter_chains": [tcp_chain("c", names[1])]}
    clusters = [part for port, name in enumerate(names, 81) for part in cluster(name, port)]
    site.push([*clusters, route_config("r", hosts=[split]), bound])
    found = {each.authority: each.weight for each in client.profile("shop.example").next().dst_overrides}
    assert found == {"web.shop.svc.cluster.local:80": 50, "v2.web.shop.svc.cluster.local:80": 50}
    assert [set(added(client.get(leg).next())) for leg in found] == [{"127.0.0.1:81"}, {"127.0.0.1:82"}]
    assert client.profile(f"{VIRTUAL}:80").next().fully_qualified_name == "v2.web.shop.svc.cluster.local"


@pytest.mark.parametrize("name", ["outbound|x||web", "outbound|0||web", "outbound||", "outbound|", "a|b", "1.2.3.4"])
def test_a_cluster_without_a_name_that_leads_to_it_is_no_leg(
    site: LinkerdSite, client: LinkerdClient, name: str
) -> None:
    action = {"weighted_clusters": {"clusters": [{"name": name, "weight": 50}, {"name": "other", "weight": 50}]}}
    split = host("h", [{"match": {"prefix": "/"}, "route": action}], ["shop.example"])
    site.push([*cluster(name, 81), OTHER, route_config("r", hosts=[split])])
    assert not client.profile("shop.example").next().dst_overrides
    (state,) = site.destinations.states()
    assert any(repr(name) in each for each in state.skipped)


def test_an_aggregate_cluster_is_the_first_of_its_clusters_that_has_endpoints(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    def push(first: list[int], second: list[int]) -> None:
        assigned = [cluster_load_assignment(name, *ports) for name, ports in (("first", first), ("second", second))]
        site.push([aggregate("web", "first", "second"), eds_cluster("first"), eds_cluster("second"), *assigned])

    push([81], [82])
    stream = client.get("web")
    assert set(added(stream.next())) == {"127.0.0.1:81"}
    push([], [82])
    assert set(added(stream.next())) == {"127.0.0.1:82"}
    assert removed(stream.next()) == {"127.0.0.1:81"}
    push([], [])
    assert no_endpoints(stream.next())
    (state,) = site.destinations.states()
    assert not state.skipped


def test_aggregates_of_each_other_end(site: LinkerdSite, client: LinkerdClient) -> None:
    site.push([aggregate("web", "api", "nobody"), aggregate("api", "web"), OTHER])
    assert no_endpoints(client.get("web").next())
    (state,) = site.destinations.states()
    assert "nobody" in " ".join(state.skipped)


def aggregate(name: str, *clusters: str) -> dict[str, Any]:
    config = {
        "@type": f"type.googleapis.com/{AGGREGATE}",
        "clusters": list(clusters),
    }
    kind = {"name": "envoy.clusters.aggregate", "typed_config": config}
    of_eds = ("type", "eds_cluster_config")
    plain = {key: value for key, value in eds_cluster(name).items() if key not in of_eds}
    return {**plain, "lb_policy": "CLUSTER_PROVIDED", "cluster_type": kind}  # fmt: skip


# Groups and undo


def test_a_proxy_that_is_moved_to_another_group_gets_the_endpoints_of_that(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    site.push(cluster("web", 81), "shop")
    stream = client.get("web", json.dumps({"ns": "shop", "pod": "p"}))
    assert set(added(stream.next())) == {"127.0.0.1:81"}
    site.push(cluster("web", 82), "p.shop")  # the group of its id is before that of its cluster
    assert set(added(stream.next())) == {"127.0.0.1:82"}
    assert removed(stream.next()) == {"127.0.0.1:81"}
    node = site.fleet.node("p.shop")
    assert node is not None and node.group == "p.shop"


def test_a_proxy_whose_group_was_deleted_keeps_its_endpoints(site: LinkerdSite, client: LinkerdClient) -> None:
    """As an Envoy does: whoever deletes a group is told that its nodes keep their configuration."""
    site.push(cluster("web", 81))
    site.put("api", instance("10.0.0.1"))
    streams = [client.get("web"), client.get_2018("web.default.svc.cluster.local")]
    of_catalog = client.get("api")
    for stream in (*streams, of_catalog):
        added(stream.next())
    site.run(site.publisher.delete_group("default", PushOptions(allow_empty=True)))
    site.put("api", instance("10.0.0.1"), instance("10.0.0.2"))
    assert set(added(of_catalog.next())) == {"10.0.0.2:8080"}
    assert all(stream.is_quiet() for stream in streams)
    assert no_endpoints(client.get("web").next()) is False  # one that comes now has none to keep
    site.push(cluster("web", 82))
    for stream in streams:
        assert set(added(stream.next())) == {"127.0.0.1:82"}
        assert removed(stream.next()) == {"127.0.0.1:81"}


def test_an_undo_is_sent_as_a_difference(site: LinkerdSite, client: LinkerdClient) -> None:
    site.push([eds_cluster("web"), cluster_load_assignment("web", 81, 82)])
    stream = client.get("web")
    assert set(added(stream.next())) == {"127.0.0.1:81", "127.0.0.1:82"}
    site.push([eds_cluster("web"), cluster_load_assignment("web", 82, 83)])
    assert set(added(stream.next())) == {"127.0.0.1:83"}
    assert removed(stream.next()) == {"127.0.0.1:81"}
    site.run(site.publisher.rollback("default", 1))
    assert set(added(stream.next())) == {"127.0.0.1:81"}
    assert removed(stream.next()) == {"127.0.0.1:83"}
    assert stream.is_quiet()


# Claims


@pytest.mark.parametrize("token", ['{"id": "\\ud800"}', '{"ns": "\\udfff", "pod": "p"}', '{"zone": "\\ud800"}'])
def test_a_token_with_half_a_character_names_nobody(site: LinkerdSite, client: LinkerdClient, token: str) -> None:
    site.put("web", instance("10.0.0.1"))
    stream = client.get(HOST, token)
    added(stream.next())
    for node in filter(None, map(site.fleet.node, site.fleet.ids_after())):
        node.id.encode()
        (node.cluster + node.locality.zone).encode()


def test_the_zone_of_a_machine_may_become_known_later(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1", zone="z1"), instance("10.0.0.2", zone="z2"))
    stream = client.get(HOST, '{"nodeName":"n1"}')
    assert {one.metric_labels["zone_locality"] for one in added(stream.next()).values()} == {"unknown"}
    site.put("agent", instance("10.0.9.9", node="n1", zone="z1"))
    found = added(stream.next())
    assert {place: one.metric_labels["zone_locality"] for place, one in found.items()} == {
        "10.0.0.1:8080": "local", "10.0.0.2:8080": "remote",
    }  # fmt: skip

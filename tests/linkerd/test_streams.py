"""Streams of Linkerd proxies as streams of this server: groups, nodes, authorisation, limits, drain, restart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from typing import Any

import grpc
import pytest

from tests.support.linkerd_client import (
    DEADLINE_S,
    LinkerdClient,
    ProxyOf2018,
    ProxyOfToday,
    added,
    no_endpoints,
    place_of,
    refuses,
    removed,
)
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from tests.support.resources import (
    LISTENER_TYPE,
    cluster_load_assignment,
    eds_cluster,
    host,
    http_chain,
    rds,
    route,
    route_config,
    static_cluster,
    tcp_chain,
)
from xds.access.authorisation import Access, ClaimPattern, NodeAuthMode, NodeRule, NodeRules, PrincipalPattern
from xds.access.tokens import XDS, Grant, Tokens
from xds.linkerd.methods import METHODS
from xds.linkerd.proto import destination_pb2
from xds.linkerd.settings import DestinationSettings
from xds.server.options import ServerOptions

A = instance("10.0.0.1")
A_AT = "10.0.0.1:8080"
SERVICES = sorted({each.service for each in METHODS})
METHOD_OF_TELEMETRY = "/conduit.proxy.telemetry.Telemetry/Report"


# Pushed snapshots alone


def weighted(*clusters: tuple[str, int]) -> dict[str, Any]:
    legs = [{"name": name, "weight": weight} for name, weight in clusters]
    return {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": legs}}}


def test_assignments_of_a_push_are_served_before_any_service_is_known(site: LinkerdSite, client: LinkerdClient) -> None:
    site.push([cluster_load_assignment("web", 8080), static_cluster("fixed", 81)])
    for name in ("web", HOST, "web.service.consul"):
        assert set(added(client.get(name).next())) == {"127.0.0.1:8080"}
    assert set(added(client.get_2018("web").next())) == {"127.0.0.1:8080"}
    assert set(added(client.get("fixed").next())) == {"127.0.0.1:81"}
    stream = client.get("web")
    added(stream.next())
    site.push([cluster_load_assignment("web", 8080, 8081)])
    assert set(added(stream.next())) == {"127.0.0.1:8081"}
    site.push([static_cluster("other", 1)])
    assert not no_endpoints(stream.next())


def test_a_virtual_host_leads_to_its_cluster_and_its_weights_are_overrides(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    clusters = [part for name, port in (("v1", 81), ("v2", 82)) for part in (eds_cluster(name), assigned(name, port))]
    shop = host("shop", [weighted(("v1", 90), ("v2", 10))], ["shop.example", "*.shop.example"])
    site.push([*clusters, route_config("r", hosts=[shop])])
    profile = client.profile("shop.example:8080").next()
    assert profile.fully_qualified_name == "shop.example"
    legs = {one.authority: one.weight for one in profile.dst_overrides}
    assert legs == {"v1:8080": 90, "v2:8080": 10}
    assert [set(added(client.get(leg).next())) for leg in legs] == [{"127.0.0.1:81"}, {"127.0.0.1:82"}]
    assert set(added(client.get("a.shop.example").next())) == {"127.0.0.1:81"}
    refuses(client.get("elsewhere.example"), grpc.StatusCode.INVALID_ARGUMENT)


def assigned(name: str, port: int) -> dict[str, Any]:
    return cluster_load_assignment(name, port)


def test_two_route_configurations_that_disagree_decide_nothing(site: LinkerdSite, client: LinkerdClient) -> None:
    hosts = [route_config(name, hosts=[host("h", [route(name)], ["shop.example"])]) for name in ("v1", "v2")]
    site.push([assigned("v1", 81), assigned("v2", 82), eds_cluster("v1"), eds_cluster("v2"), *hosts])
    refuses(client.get("shop.example"), grpc.StatusCode.INVALID_ARGUMENT)


def bound(name: str, address: str, port: int, chain: dict[str, Any]) -> dict[str, Any]:
    place = {"socket_address": {"address": address, "port_value": port}}
    return {"@type": LISTENER_TYPE, "name": name, "address": place, "filter_chains": [chain]}


def test_the_address_of_a_listener_is_that_of_its_service(site: LinkerdSite, client: LinkerdClient) -> None:
    site.push(
        [
            eds_cluster("web"), assigned("web", 81), eds_cluster("db"), assigned("db", 82),
            route_config("r", route("web")),
            bound("http", "10.96.0.1", 80, http_chain("c", rds("r"))),
            bound("tcp", "10.96.0.2", 9000, tcp_chain("c", "db")),
        ]
    )  # fmt: skip
    web, db = client.profile("10.96.0.1:80").next(), client.profile("10.96.0.2:9000").next()
    assert web.fully_qualified_name == "web" and not web.opaque_protocol
    assert db.fully_qualified_name == "db" and db.opaque_protocol
    assert web.parent_ref.resource.kind == "Cluster"
    policy = client.watch("10.96.0.1", 80).next()
    (rule,) = policy.protocol.detect.http1.routes[0].rules
    path = rule.backends.first_available.backends[0].backend.balancer.discovery.dst.path
    assert path == "web:80" and set(added(client.get(path).next())) == {"127.0.0.1:81"}
    assert client.watch("10.96.0.2", 9000).next().protocol.WhichOneof("kind") == "opaque"
    endpoint = client.profile("127.0.0.1:81").next().endpoint
    assert place_of(endpoint.addr) == "127.0.0.1:81" and endpoint.metric_labels["zone"] == "z"


def test_each_group_has_its_own_clusters(site: LinkerdSite, client: LinkerdClient) -> None:
    site.push([assigned("web", 81)], "shop")
    site.push([assigned("web", 82)], "bank")
    for name, port in (("shop", 81), ("bank", 82)):
        token = json.dumps({"ns": name, "pod": "p"})
        assert set(added(client.get("web", token).next())) == {f"127.0.0.1:{port}"}
    assert not no_endpoints(client.get("web", '{"ns":"nobody"}').next())
    assert {id: node.group for id in site.fleet.ids_after() if (node := site.fleet.node(id)) is not None} == {
        "p.shop": "shop", "p.bank": "bank", "linkerd@127.0.0.1": "",
    }  # fmt: skip


def test_envoy_and_linkerd_see_the_priorities_health_and_localities_of_an_assignment(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    def end(port: int, health: str = "HEALTHY", **fields: Any) -> dict[str, Any]:
        place = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
        return {"endpoint": place, "health_status": health, **fields}

    def pushed(*states: str) -> None:
        endpoints = [end(81 + n, state, load_balancing_weight=1 + n) for n, state in enumerate(states)]
        entries = [
            {"locality": {"zone": "z1"}, "lb_endpoints": endpoints},
            {"locality": {"zone": "z2"}, "priority": 1, "lb_endpoints": [end(90)]},
        ]
        site.push([{**cluster_load_assignment("web"), "endpoints": entries}])

    pushed("HEALTHY", "DEGRADED", "UNHEALTHY", "UNKNOWN")
    stream = client.get("web")
    found = added(stream.next())
    assert {place: one.weight for place, one in found.items()} == {"127.0.0.1:81": 4000, "127.0.0.1:84": 16000}
    assert found["127.0.0.1:81"].metric_labels["zone"] == "z1"
    pushed("UNHEALTHY", "DEGRADED", "UNHEALTHY", "DRAINING")
    assert set(added(stream.next())) == {"127.0.0.1:82"}
    assert removed(stream.next()) == {"127.0.0.1:81", "127.0.0.1:84"}
    pushed("TIMEOUT")
    assert set(added(stream.next())) == {"127.0.0.1:90"}
    assert removed(stream.next()) == {"127.0.0.1:82"}


def test_metadata_of_an_endpoint_describe_its_role_in_the_mesh(site: LinkerdSite, client: LinkerdClient) -> None:
    fields = {"identity": "a.b", "opaque_ports": "81", "label_team": "x"}
    end = {
        "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 81}}},
        "metadata": {"filter_metadata": {"io.linkerd": fields}},
    }
    name = {"address": "a.example", "port_value": 81, "resolver_name": "acme.resolver"}
    names = {"endpoint": {"address": {"socket_address": name}}}
    pipe = {"endpoint": {"address": {"pipe": {"path": "/run/x"}}}}
    site.push([{**cluster_load_assignment("web"), "endpoints": [{"lb_endpoints": [end, names, pipe]}]}])
    ((_, found),) = added(client.get("web").next()).items()
    assert found.tls_identity.dns_like_identity.name == "a.b"
    assert found.protocol_hint.WhichOneof("protocol") == "opaque"
    assert found.metric_labels["team"] == "x"
    (state,) = site.destinations.states()
    told = " ".join(state.skipped)
    assert "names are not resolved" in told and "pipe" in told


# Periodic updates, and 2018 byte for byte


@pytest.fixture
def quick() -> Iterator[LinkerdSite]:
    made = LinkerdSite(DestinationSettings(periodic_update_s=0.3))
    yield made
    made.close()


def test_case_61_a_conversation_of_2018_byte_for_byte(quick: LinkerdSite) -> None:
    quick.put("web", instance("10.1.2.3", meta={"pod": "web-1"}))
    stream = quick.client().get_2018("web:80")
    address = "0a0a0a050d0302010a10903f"  # 10.1.2.3:8080
    pod = "22100a076b38735f706f6412057765622d31"  # k8s_pod: web-1
    namespace = "12180a0d6b38735f6e616d657370616365120764656661756c74"  # k8s_namespace: default
    service = "12150a0b6b38735f7365727669636512067765623a3830"  # k8s_service: web:80
    assert stream.raw().hex() == "0a53" + "0a20" + address + "1801" + pod + namespace + service
    assert [stream.raw().hex() for _ in range(2)] == ["0a00", "0a00"], "nothing has changed"
    quick.put("web")
    until_other(stream, "0a00", "1a020801")
    assert stream.raw().hex() == "1a020801", "an empty add would say no less, and no_endpoints says it to all"
    quick.remove("web")
    until_other(stream, "1a020801", "1a00")
    assert stream.raw().hex() == "1a00", "an empty add would say that it exists"


def until_other(stream: Any, before: str, expected: str) -> None:
    while (found := stream.raw().hex()) == before:
        pass
    assert found == expected


def test_case_61_an_update_restarts_the_interval_and_nothing_comes_before_the_first(quick: LinkerdSite) -> None:
    stream = quick.client().get_2018("web")
    assert not no_endpoints(stream.next())
    at = time.monotonic()
    stream.raw()
    assert time.monotonic() - at > 0.2
    with closing(LinkerdSite(DestinationSettings(periodic_update_s=0.1), is_read=False)) as unread:
        assert unread.client().get_2018("web").is_quiet()


def test_case_61_today_nothing_is_repeated_unless_it_is_set(quick: LinkerdSite) -> None:
    quick.put("web", A)
    stream = quick.client().get("web")
    added(stream.next())
    assert stream.is_quiet(0.8)
    with closing(LinkerdSite(DestinationSettings(periodic_update_today_s=0.1))) as chatty:
        chatty.put("web", A)
        stream = chatty.client().get("web")
        added(stream.next())
        assert stream.raw() == stream.raw() == b"\x0a\x00"


def test_other_calls_of_a_proxy_of_2018_are_not_implemented(client: LinkerdClient) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.channel.unary_unary(METHOD_OF_TELEMETRY)(b"", timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


# Life


def test_bytes_that_are_no_request_are_refused(client: LinkerdClient) -> None:
    for method in ("/io.linkerd.proxy.destination.Destination/Get", "/conduit.proxy.destination.Destination/Get"):
        with pytest.raises(grpc.RpcError) as refused:
            next(client.channel.unary_stream(method)(b"\xff\xff"))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_unknown_fields_of_a_request_are_ignored(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", A)
    method = "/io.linkerd.proxy.destination.Destination/Get"
    body = bytes.fromhex("1203776562") + bytes.fromhex("a20603616263")
    assert next(client.channel.unary_stream(method)(body))


def test_case_64_many_streams_on_one_connection_and_the_end_of_all() -> None:
    with closing(LinkerdSite(options=ServerOptions(drain_s=0.1))) as site:
        site.put("web", A)
        ask = site.client().channel.unary_stream("/io.linkerd.proxy.destination.Destination/Get")
        body = destination_pb2.GetDestination(path=HOST).SerializeToString()
        calls = [ask(body, timeout=DEADLINE_S) for _ in range(1_000)]  # `bench.destination` measures the time
        assert all(set(added(destination_pb2.Update.FromString(next(call)))) == {A_AT} for call in calls)
        assert len(site.destinations) == len(calls)
        site.drain()
        assert {call.code() for call in calls} == {grpc.StatusCode.UNAVAILABLE}
        assert len(site.destinations) == 0 and site.catalog.wanted == frozenset()


def test_after_a_restart_both_proxies_have_the_newest_state(site: LinkerdSite) -> None:
    site.put("web", A, instance("10.0.0.2"))
    today, of_2018 = ProxyOfToday(), ProxyOf2018()
    client = site.client()
    today.take(client.get(HOST).next())
    of_2018.take(client.get_2018(HOST).next())
    site.run(site.catalog.save())
    site.restart()
    site.put("web", instance("10.0.0.3"))
    client = site.client()
    today.reconnect()
    of_2018.reconnect()
    today.take(client.get(HOST).next())
    of_2018.take(client.get_2018(HOST).next())
    assert set(today.endpoints) == of_2018.endpoints == {"10.0.0.3:8080"}
    assert not today.violations


def test_a_restart_begins_with_the_last_good_set(site: LinkerdSite) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.1",)))
    site.run(site.catalog.save())
    site.restart()
    assert set(added(site.client().get(HOST).next())) == {A_AT}
    assert site.client().profile("10.96.0.1:80").next().fully_qualified_name == HOST


def test_sources_read_the_service_of_a_stream_while_it_is_open(site: LinkerdSite, client: LinkerdClient) -> None:
    stream = client.get(HOST)
    stream.next()
    assert site.catalog.wanted == {"web.default", "web"}
    second = client.profile("api.service.consul")
    second.next()
    assert site.catalog.wanted == {"web.default", "web", "api", "api.default"}
    stream.cancel()
    site.wait(lambda: site.catalog.wanted == {"api", "api.default"}, "what is left")


def test_a_stream_is_shown_with_its_node(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", A)
    stream = client.get(HOST, '{"ns":"shop","pod":"web-1","zone":"z1"}')
    added(stream.next())
    node = site.fleet.node("web-1.shop")
    assert node is not None and node.cluster == "shop" and node.locality.zone == "z1"
    assert [one.service for one in node.streams] == ["Linkerd"]
    (state,) = site.destinations.of_node("web-1.shop").values()
    assert state.method == "Destination/Get" and state.endpoints == 1 and state.messages == 1
    text = site.metrics.text().decode()
    assert 'xds_server_linkerd_streams{state="told"} 1.0' in text
    assert 'xds_server_streams{protocol="linkerd",service="Linkerd"} 1.0' in text
    stream.cancel()
    site.wait(lambda: "web-1.shop" not in site.fleet.connected(), "the node gone")


def test_nodes_are_authorised_as_others_are() -> None:
    rule = NodeRule(PrincipalPattern("token:shop"), id=ClaimPattern("*.shop"))
    access = Access()
    with closing(LinkerdSite(options=ServerOptions(access=access))) as site:
        site.put("web", A)
        client = site.client()
        stream = client.get(HOST, '{"ns":"shop","pod":"web-1"}')
        added(stream.next())
        access.assign(Access(nodes=NodeRules(NodeAuthMode.ENFORCE, (rule,))))
        site.run(site.server.reauthorize())
        assert stream.status() is grpc.StatusCode.PERMISSION_DENIED
        refuses(client.get(HOST, '{"ns":"shop","pod":"web-1"}'), grpc.StatusCode.PERMISSION_DENIED)
        refuses(client.profile(HOST), grpc.StatusCode.PERMISSION_DENIED)
        refuses(client.watch_port(80), grpc.StatusCode.PERMISSION_DENIED)


def test_a_client_without_a_credential_is_refused() -> None:
    grant = Grant("proxy", frozenset({XDS}))
    with closing(LinkerdSite(options=ServerOptions(tokens=Tokens([(sha256(b"secret").hexdigest(), grant)])))) as site:
        refuses(site.client().get(HOST), grpc.StatusCode.UNAUTHENTICATED)


def test_reflection_and_health_know_the_services(client: LinkerdClient) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=each) for each in SERVICES]
    reflection = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    for answer in reflection.ServerReflectionInfo(iter(asked)):
        assert answer.file_descriptor_response.file_descriptor_proto, answer.original_request
    health = health_pb2_grpc.HealthStub(client.channel)
    for service in SERVICES:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

"""`Destination.Get` over a real connection, in both generations: each case of its rules has a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import grpc
import pytest
from pydantic import ValidationError

from tests.support.linkerd_client import (
    LinkerdClient,
    LinkerdStream,
    ProxyOf2018,
    ProxyOfToday,
    added,
    no_endpoints,
    refuses,
    removed,
)
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from xds.linkerd.settings import DestinationSettings
from xds.services.core.instance import Instance

A, B, C = instance("10.0.0.1"), instance("10.0.0.2"), instance("10.0.0.3")
A_AT, B_AT, C_AT = "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"

Get = Callable[[str], LinkerdStream]


@pytest.fixture(params=["today", "2018"])
def generation(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def get(client: LinkerdClient, generation: str) -> Get:
    """``Get`` of either generation."""
    return client.get if generation == "today" else client.get_2018


# Lifecycle


def test_case_01_all_endpoints_come_in_one_add_and_then_nothing(site: LinkerdSite, get: Get, generation: str) -> None:
    site.put("web", A, B)
    stream = get(f"{HOST}:80")
    found = added(stream.next())
    assert set(found) == {A_AT, B_AT}
    assert {one.weight for one in found.values()} == {10_000 if generation == "today" else 1}
    assert stream.is_quiet(1.0)


def test_case_02_a_service_without_ready_endpoints_exists(site: LinkerdSite, get: Get) -> None:
    site.put("web", instance("10.0.0.1", health="critical"))
    stream = get(HOST)
    assert no_endpoints(stream.next())
    assert stream.is_quiet()


def test_case_03_an_unknown_service_does_not_exist_and_the_stream_stays(get: Get) -> None:
    stream = get(HOST)
    assert not no_endpoints(stream.next())
    assert stream.is_quiet()


def test_case_04_it_is_added_when_it_appears(site: LinkerdSite, get: Get) -> None:
    stream = get(HOST)
    assert not no_endpoints(stream.next())
    site.put("web", A)
    assert set(added(stream.next())) == {A_AT}
    assert stream.is_quiet()


def test_a_service_has_the_instances_of_all_its_names_whatever_their_case(site: LinkerdSite, get: Get) -> None:
    site.edit(lambda: site.sink.put("Web", [A]), lambda: site.sink.put("web", [B]))
    stream = get(f"{HOST.replace('web', 'wEB')}:80")
    assert set(added(stream.next())) == {A_AT, B_AT}
    site.put("WEB", C)
    assert set(added(stream.next())) == {C_AT}


def test_case_05_it_exists_when_it_appears_empty(site: LinkerdSite, get: Get) -> None:
    stream = get(HOST)
    assert not no_endpoints(stream.next())
    site.put("web")
    assert no_endpoints(stream.next())
    assert stream.is_quiet()


def test_case_07_an_unhealthy_endpoint_is_removed(site: LinkerdSite, get: Get) -> None:
    site.put("web", A, B)
    stream = get(HOST)
    added(stream.next())
    site.put("web", A, instance("10.0.0.2", health="critical"))
    assert removed(stream.next()) == {B_AT}
    assert stream.is_quiet()


def test_case_08_additions_come_before_removals(site: LinkerdSite, get: Get) -> None:
    site.put("web", A, B)
    stream = get(HOST)
    added(stream.next())
    site.put("web", B, C)
    assert set(added(stream.next())) == {C_AT}
    assert removed(stream.next()) == {A_AT}
    assert stream.is_quiet()


def test_case_09_the_last_endpoint_goes_by_no_endpoints(site: LinkerdSite, get: Get) -> None:
    site.put("web", A)
    stream = get(HOST)
    added(stream.next())
    site.put("web")
    assert no_endpoints(stream.next())
    assert stream.is_quiet()


def test_cases_10_and_11_a_deleted_service_does_not_exist_until_it_is_back(site: LinkerdSite, get: Get) -> None:
    site.put("web", A, B)
    stream = get(HOST)
    added(stream.next())
    site.remove("web")
    assert not no_endpoints(stream.next())
    site.put("web", A)
    assert set(added(stream.next())) == {A_AT}
    assert stream.is_quiet()


def test_case_13_an_equal_update_is_not_sent(site: LinkerdSite, get: Get) -> None:
    site.put("web", A)
    stream = get(HOST)
    added(stream.next())
    site.put("web", instance("10.0.0.1", tags=("blue",)))  # nothing that a proxy is told
    site.put("web", A)
    site.put("other", B)
    assert stream.is_quiet()


@pytest.mark.parametrize(
    "changed",
    [
        instance("10.0.0.1", weight=5),
        instance("10.0.0.1", meta={"pod": "web-2"}),
        instance("10.0.0.1", meta={"linkerd-identity": "a.b"}),
        instance("10.0.0.1", zone="z2"),
    ],
    ids=["weight", "label", "identity", "zone"],
)
def test_case_14_a_change_of_an_endpoint_is_added_and_nothing_removed(
    site: LinkerdSite, client: LinkerdClient, changed: Instance
) -> None:
    site.put("web", A, B)
    stream = client.get(HOST)
    before = added(stream.next())[A_AT]
    site.put("web", changed, B)
    (place, after), *others = added(stream.next()).items()
    assert place == A_AT and not others
    assert before != after
    assert stream.is_quiet()


def test_case_14_in_2018_an_endpoint_has_a_weight_and_a_pod(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", A)
    stream = client.get_2018(HOST)
    added(stream.next())
    site.put("web", instance("10.0.0.1", weight=5, meta={"pod": "web-1"}))
    found = added(stream.next())[A_AT]
    assert found.weight == 5 and dict(found.metric_labels) == {"k8s_pod": "web-1"}


def test_case_16_a_later_subscriber_gets_all_and_both_get_later_changes(site: LinkerdSite, get: Get) -> None:
    site.put("web", A, B)
    first, leaving = get(HOST), get(HOST)
    assert set(added(first.next())) == set(added(leaving.next())) == {A_AT, B_AT}
    site.put("web", A)
    assert removed(first.next()) == removed(leaving.next()) == {B_AT}
    second = get(HOST)
    assert set(added(second.next())) == {A_AT}
    leaving.cancel()
    site.put("web", A, C)
    assert set(added(first.next())) == set(added(second.next())) == {C_AT}


def test_case_17_no_answer_is_sent_before_the_sources_were_read(generation: str) -> None:
    with closing(LinkerdSite(DestinationSettings(settle_s=0.1), is_read=False)) as site:
        client = site.client()
        stream = client.get(HOST) if generation == "today" else client.get_2018(HOST)
        assert stream.is_quiet()
        site.put("web", A)
        assert set(added(stream.next())) == {A_AT}


def test_case_17_an_unknown_service_is_answered_once_the_sources_were_read() -> None:
    with closing(LinkerdSite(DestinationSettings(settle_s=0.1), is_read=False)) as site:
        stream = site.client().get(HOST)
        assert stream.is_quiet()
        site.edit(site.sink.alive)
        assert not no_endpoints(stream.next())


def test_case_17_a_cluster_waits_for_its_assignment(site: LinkerdSite, client: LinkerdClient) -> None:
    from tests.support.resources import cluster_load_assignment, eds_cluster

    site.push([eds_cluster("web")])
    stream = client.get("web:80")
    assert stream.is_quiet()
    site.push([eds_cluster("web"), cluster_load_assignment("web", 8080)])
    assert set(added(stream.next())) == {"127.0.0.1:8080"}


def test_case_19_quick_changes_end_at_the_latest_state(site: LinkerdSite, get: Get, generation: str) -> None:
    site.put("web", A)
    stream = get(HOST)
    for number in range(100):
        site.put("web", *(instance(f"10.0.1.{last}") for last in range(1, 2 + number % 7)))
    site.put("web", C)
    proxy = ProxyOfToday() if generation == "today" else ProxyOf2018()
    while set(proxy.endpoints) != {C_AT}:
        proxy.take(stream.next())
    assert stream.is_quiet()


def test_case_19_a_client_that_never_reads_costs_the_messages_of_one_answer(site: LinkerdSite) -> None:
    client = site.client(**{"http2.bdp_probe": 0})  # else it has room for some megabytes
    many = [f"10.0.{n >> 8}.{n & 255}" for n in range(1, 3_001)]
    site.put("web", *map(instance, many))
    stream = client.get(HOST, paused=True)
    site.wait(lambda: len(site.destinations) == 1 and site.destinations.states()[0].messages, "the first message")
    for weight in range(2, 17):  # each of these changes is a message of a quarter of a megabyte
        site.put("web", *(instance(address, weight=weight) for address in many))
    (state,) = site.destinations.states()
    assert state.messages <= 4, "what the client has no room for is not made"
    stream.resume()
    proxy, update = ProxyOfToday(), None
    while update is None or update.add.addrs[0].weight != 160_000:
        update = stream.next()
        proxy.take(update)
    assert len(proxy.endpoints) == len(many)
    assert stream.is_quiet()
    assert len(stream.bodies) <= 5


def test_case_20_30000_endpoints_come_in_messages_that_every_client_takes(site: LinkerdSite, get: Get) -> None:
    from tests.support.resources import cluster_load_assignment

    places = [(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 80) for n in range(1, 30_001)]
    ends = [
        {"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}}
        for address, port in places
    ]
    labels = {"filter_metadata": {"io.linkerd": {"label_pod": "p" * 150}}}
    site.push([{**cluster_load_assignment("big"), "endpoints": [{"lb_endpoints": ends, "metadata": labels}]}])
    stream, found = get("big"), set[str]()
    while len(found) < len(places):
        found |= added(stream.next()).keys()
    assert found == {f"{address}:{port}" for address, port in places}
    assert len(stream.bodies) > 1 and max(map(len, stream.bodies)) < 4 << 20
    assert len(stream.bodies[0]) > (3 << 20) - 1024, "the first message has as much as there is room for"
    assert stream.is_quiet()


def test_one_change_among_10000_instances_is_one_small_message(site: LinkerdSite, get: Get) -> None:
    many = [instance(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", meta={"pod": f"p-{n}"}) for n in range(1, 10_001)]
    site.put("web", *many)
    stream = get(HOST)
    assert len(added(stream.next())) == len(many)
    changed = instance(many[5_000].address, weight=7)
    site.put("web", *many[:5_000], changed, *many[5_001:])
    assert set(added(stream.next())) == {f"{changed.address}:8080"}
    assert len(stream.bodies[-1]) < 250
    site.put("web", *many[:5_000], *many[5_001:])
    assert removed(stream.next()) == {f"{changed.address}:8080"}
    assert stream.is_quiet()


# Parsing and errors


def test_case_22_the_port_is_80_by_default(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", A)
    assert client.get(HOST).raw() == client.get(f"{HOST}:80").raw()
    assert client.get_2018(HOST).raw() == client.get_2018(f"{HOST}:80").raw()


@pytest.mark.parametrize(
    "path",
    [
        "linkerd.io", "a.b", "web.default.svc.other.domain", "a.b.c.default.svc.cluster.local",
        "web.svc.cluster.local", "web..svc.cluster.local", "", ":80", "web:0", "web:-1", "web:65536", "web:http",
        "web:80:90", "::1", "[::1]", "[::1:80", "[10.0.0.1]:80", "we b:80", "x" * 2000,
    ],
)  # fmt: skip
def test_case_23_malformed_and_foreign_names_are_refused(get: Get, path: str) -> None:
    refuses(get(path), grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("path", ["10.1.2.3:80", "[::1]:80"])
def test_case_25_addresses_are_refused_today(client: LinkerdClient, path: str) -> None:
    refuses(client.get(path), grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize("path", ["10.1.2.3:80", "[2001:db8::1]:80"])
def test_case_25_addresses_came_back_in_2018(client: LinkerdClient, path: str) -> None:
    stream = client.get_2018(path)
    found = added(stream.next())
    assert set(found) == {path} and found[path].weight == 1
    assert stream.is_quiet()


def test_case_26_the_scheme_counts_in_2018_only(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", A)
    refuses(client.get_2018(HOST, "dns"), grpc.StatusCode.INVALID_ARGUMENT)
    refuses(client.get_2018(HOST, ""), grpc.StatusCode.INVALID_ARGUMENT)
    assert set(added(client.get_2018(HOST, "K8S").next())) == {A_AT}
    for scheme in ("", "k8s", "http:", "dns"):
        assert set(added(client.get(HOST, scheme=scheme).next())) == {A_AT}


@pytest.mark.parametrize("path", ["web.default.svc", "web.default.svc.cluster.local.", "web.default.svc.corp"])
def test_case_26_names_of_2018(site: LinkerdSite, client: LinkerdClient, path: str) -> None:
    site.put("web", A)
    if path.endswith("corp"):
        refuses(client.get_2018(path), grpc.StatusCode.INVALID_ARGUMENT)
    else:
        assert set(added(client.get_2018(path).next())) == {A_AT}
    refuses(client.get(path), grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "token",
    ['{"ns":"x","nodeName":"n"}\n', "ns:x", "123fa-test", "", "[1]", '{"ns":1}', '{"ns":', "{" * 5000, "x" * 5000],
)
def test_case_28_no_token_is_an_error(site: LinkerdSite, client: LinkerdClient, token: str) -> None:
    site.put("web", A)
    assert set(added(client.get(HOST, token).next())) == {A_AT}


# Names


@pytest.mark.parametrize(
    "path",
    ["web.service.consul", "web.service.dc1.consul", "web.service.dc1.dc.consul", "web.virtual.consul", "web",
     "web.service.default.ns.dc1.dc.consul"],
)  # fmt: skip
def test_a_service_has_a_name_in_each_grammar(site: LinkerdSite, client: LinkerdClient, path: str) -> None:
    site.put("web", A)
    assert set(added(client.get(path).next())) == {A_AT}


def test_a_service_of_kubernetes_has_its_namespace_in_its_name(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web.shop", A)
    assert set(added(client.get("web.shop.svc.cluster.local").next())) == {A_AT}
    assert not no_endpoints(client.get("web.other.svc.cluster.local").next())
    site.put("web.other", B)
    assert set(added(client.get("web.other.svc.cluster.local").next())) == {B_AT}


def test_another_datacenter_has_its_own_instances(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", A, instance("10.0.0.2", datacenter="dc2"))
    assert set(added(client.get("web.service.consul").next())) == {A_AT}
    assert set(added(client.get("web.service.dc2.consul").next())) == {B_AT}


# Metadata


def test_case_31_a_meshed_endpoint_has_an_identity_and_takes_http2(client: LinkerdClient, site: LinkerdSite) -> None:
    meta = {"linkerd-meshed": "true", "serviceaccount": "s", "namespace": "n"}
    site.put("web", instance("10.0.0.1", meta=meta))
    found = added(client.get(HOST).next())[A_AT]
    name = "s.n.serviceaccount.identity.linkerd.cluster.local"
    assert found.tls_identity.dns_like_identity.name == found.tls_identity.server_name.name == name
    assert found.protocol_hint.WhichOneof("protocol") == "h2"
    assert not found.protocol_hint.HasField("opaque_transport")
    assert not found.HasField("http2")


def test_case_31_identities_and_http2_of_meshed_endpoints_are_as_configured() -> None:
    windows = {"connection_window_bytes": 1 << 20, "stream_window_bytes": 1 << 16, "adaptive_windows": True}
    internals = {"reset_streams": 20, "frame_bytes": 16_384, "send_buffer_bytes": 1 << 18}
    alive = {"keep_alive_s": 10, "keep_alive_timeout_s": 3, "keep_alive_while_idle": True}
    settings = {**windows, **internals, **alive, "trust_domain": "corp.example"}
    with closing(LinkerdSite(DestinationSettings.model_validate(settings))) as site:
        meta = {"linkerd-meshed": "true", "linkerd-serviceaccount": "s", "linkerd-namespace": "n"}
        site.put("web", instance("10.0.0.1", meta=meta), B)
        found = added(site.client().get(HOST).next())
        assert found[A_AT].tls_identity.dns_like_identity.name.endswith(".linkerd.corp.example")
        flow, inner, kept = found[A_AT].http2.flow_control, found[A_AT].http2.internals, found[A_AT].http2.keep_alive
        assert (flow.initial_connection_window_size, flow.initial_stream_window_size) == (1 << 20, 1 << 16)
        assert (kept.interval.seconds, kept.timeout.seconds) == (10, 3)
        assert flow.adaptive_flow_control and kept.while_idle
        assert (inner.max_concurrent_reset_streams, inner.max_frame_size, inner.max_send_buf_size) == (
            20, 16_384, 1 << 18,
        )  # fmt: skip
        assert not found[B_AT].HasField("http2")


@pytest.mark.parametrize("wrong", [{"frame_bytes": 100}, {"frame_bytes": 1 << 24}, {"stream_window_bytes": 1 << 31}])
def test_sizes_that_a_client_would_fail_on_are_no_settings(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        DestinationSettings.model_validate(wrong)


def test_case_32_a_port_that_the_proxy_skips_is_not_meshed(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"linkerd-identity": "a.b", "linkerd-skip-inbound-ports": "9000,8000-8100"}
    site.put("web", instance("10.0.0.1", 8080, meta=meta), instance("10.0.0.2", 8101, meta=meta))
    found = added(client.get(HOST).next())
    assert not found[A_AT].HasField("tls_identity") and not found[A_AT].HasField("protocol_hint")
    assert found["10.0.0.2:8101"].HasField("tls_identity")


def test_case_33_an_opaque_port_is_hinted_with_the_port_of_the_proxy(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"linkerd-identity": "a.b"}
    site.put("web", instance("10.0.0.1", 3306, meta=meta), instance("10.0.0.2", 3306))
    found = added(client.get(HOST).next())
    hint = found["10.0.0.1:3306"].protocol_hint
    assert hint.WhichOneof("protocol") == "opaque" and hint.opaque_transport.inbound_port == 4143
    assert not found["10.0.0.2:3306"].HasField("protocol_hint"), (
        "outside of the mesh there is nobody who understands it"
    )


def test_case_34_a_spiffe_identity_needs_a_server_name(site: LinkerdSite, client: LinkerdClient) -> None:
    identity = {"linkerd-identity": "spiffe://corp/web"}
    named = {**identity, "linkerd-server-name": "web.corp"}
    site.put("web", instance("10.0.0.1", meta=named), instance("10.0.0.2", meta=identity))
    found = added(client.get(HOST).next())
    assert found[A_AT].tls_identity.uri_like_identity.uri == "spiffe://corp/web"
    assert found[A_AT].tls_identity.server_name.name == "web.corp"
    assert not found[B_AT].HasField("tls_identity")


def test_case_35_a_gateway_overrides_the_authority(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"linkerd-authority": "web.remote.svc.cluster.local:80"}
    gateway = {**meta, "linkerd-identity": "gateway.corp"}
    site.put("web", instance("10.0.0.1", meta=gateway), instance("10.0.0.2", meta=meta))
    found = added(client.get(HOST).next())
    assert found[A_AT].authority_override.authority_override == "web.remote.svc.cluster.local:80"
    assert found[A_AT].tls_identity.dns_like_identity.name == "gateway.corp"
    assert not found[A_AT].tls_identity.HasField("server_name")
    assert found[A_AT].protocol_hint.WhichOneof("protocol") == "h2"
    assert not found[B_AT].HasField("authority_override") and not found[B_AT].HasField("tls_identity")


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_case_37_one_address_of_two_families_is_sent(has_ipv6: bool) -> None:
    from tests.support.resources import eds_cluster

    with closing(LinkerdSite(DestinationSettings(ipv6=has_ipv6))) as site:
        v6 = {"address": {"socket_address": {"address": "2001:db8::2", "port_value": 80}}}
        v4 = {"socket_address": {"address": "10.0.0.2", "port_value": 80}}
        endpoints = [
            {"endpoint": {"address": v4, "additional_addresses": [v6]}},
            {"endpoint": {"address": {"socket_address": {"address": "2001:db8::1", "port_value": 80}}}},
        ]
        type_url = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
        assignment = {"@type": type_url, "cluster_name": "dual", "endpoints": [{"lb_endpoints": endpoints}]}
        site.push([eds_cluster("dual"), assignment])
        site.put("web", instance("2001:db8::1"), A)
        expected = {"[2001:db8::1]:80", "[2001:db8::2]:80"} if has_ipv6 else {"10.0.0.2:80"}
        client = site.client()
        assert set(added(client.get("dual").next())) == expected
        expected = {"[2001:db8::1]:8080", A_AT} if has_ipv6 else {A_AT}
        assert set(added(client.get("web").next())) == expected


def test_case_38_what_one_namespace_declares_has_no_effect_in_another(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"linkerd-identity": "a.b"}
    site.put("web.a", instance("10.0.0.1", meta=meta))
    site.put("web.b", instance("10.0.0.2", meta=meta))
    site.write({"Kind": "service-defaults", "Name": "web.a", "Meta": {"linkerd-opaque-ports": "8080"}})
    first = added(client.get("web.a.svc.cluster.local:8080").next())[A_AT]
    second = added(client.get("web.b.svc.cluster.local:8080").next())[B_AT]
    assert first.protocol_hint.WhichOneof("protocol") == "opaque"
    assert second.protocol_hint.WhichOneof("protocol") == "h2"


def test_labels_are_those_of_linkerd_and_no_others(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"pod": "web-1", "deployment": "web", "namespace": "shop", "version": "2", "team": "x"}
    site.put("web.shop", instance("10.0.0.1", meta=meta, node="n1", zone="z1"))
    update = client.get("web.shop.svc.cluster.local").next()
    assert dict(update.add.metric_labels) == {"service": "web", "namespace": "shop"}
    labels = dict(added(update)[A_AT].metric_labels)
    assert labels == {
        "pod": "web-1", "deployment": "web", "node": "n1", "service_id": "i-10.0.0.1:8080", "zone": "z1",
        "zone_locality": "unknown",
    }  # fmt: skip
    of_2018 = client.get_2018("web.shop.svc.cluster.local").next()
    assert dict(of_2018.add.metric_labels) == {"k8s_service": "web.shop.svc.cluster.local:80", "k8s_namespace": "shop"}


# Topology


def hinted(last: int, *zones: str, zone: str = "") -> Instance:
    meta = {"linkerd-zone-hints": ",".join(zones)} if zones else {}
    return instance(f"10.0.0.{last}", meta=meta, zone=zone)


def test_case_40_hints_count_only_if_all_endpoints_have_one(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", hinted(1, "z1"), hinted(2, "z2"), hinted(3))
    stream = client.get(HOST, '{"zone":"z1"}')
    assert set(added(stream.next())) == {A_AT, B_AT, C_AT}
    site.put("web", hinted(1, "z1"), hinted(2, "z2"), hinted(3, "z2"))
    proxy = ProxyOfToday({A_AT: b"", B_AT: b"", C_AT: b""}, _is_initial=False)
    while set(proxy.endpoints) != {A_AT}:
        proxy.take(stream.next())
    site.put("web", hinted(1, "z1"), hinted(2), hinted(3))
    assert set(added(stream.next())) == {B_AT, C_AT}


def test_case_41_without_an_endpoint_for_the_zone_all_count(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", hinted(1, "z1"), hinted(2, "z2"))
    assert set(added(client.get(HOST, '{"zone":"z3"}').next())) == {A_AT, B_AT}
    assert set(added(client.get(HOST).next())) == {A_AT, B_AT}


def test_case_42_a_local_service_is_reached_on_the_own_node_only(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"linkerd-internal-traffic-policy": "local"}
    site.write({"Kind": "service-defaults", "Name": "web", "Meta": meta})
    site.put("web", instance("10.0.0.1", node="n1"), instance("10.0.0.2", node="n2"))
    near, far = client.get(HOST, '{"nodeName":"n1"}'), client.get(HOST, '{"nodeName":"n3"}')
    assert set(added(near.next())) == {A_AT}
    assert no_endpoints(far.next())
    site.delete("service-defaults", "web")
    assert set(added(near.next())) == {B_AT}
    assert set(added(far.next())) == {A_AT, B_AT}


def test_case_43_the_node_of_the_token_says_the_zone(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("db", instance("10.0.9.9", node="n1", zone="z1"))
    site.put("web", instance("10.0.0.1", zone="z1"), instance("10.0.0.2", zone="z2"), C)
    found = added(client.get(HOST, '{"nodeName":"n1"}').next())
    assert {place: one.metric_labels["zone_locality"] for place, one in found.items()} == {
        A_AT: "local", B_AT: "remote", C_AT: "unknown",
    }  # fmt: skip
    unknown = added(client.get(HOST, '{"nodeName":"nobody"}').next())
    assert {one.metric_labels["zone_locality"] for one in unknown.values()} == {"unknown"}


def test_case_44_an_instance_is_reached_by_its_name(site: LinkerdSite, get: Get) -> None:
    site.put("web", instance("10.0.0.1", meta={"hostname": "i"}), B)
    stream = get(f"i.{HOST}")
    assert set(added(stream.next())) == {A_AT}
    site.put("web", B, C)
    assert no_endpoints(stream.next())


# Chains


def test_a_subset_has_a_name_of_its_own_and_the_resolver_decides(site: LinkerdSite, get: Get) -> None:
    versions = [instance(f"10.0.0.{n}", meta={"version": f"v{n}"}) for n in (1, 2)]
    site.put("web", *versions, C)
    subsets = {f"v{n}": {"Filter": f"Service.Meta.version == v{n}"} for n in (1, 2)}
    site.write({"Kind": "service-resolver", "Name": "web", "Subsets": subsets})
    first, whole = get(f"v1.{HOST}"), get(HOST)
    assert set(added(first.next())) == {A_AT}
    assert set(added(whole.next())) == {A_AT, B_AT, C_AT}
    site.write({"Kind": "service-resolver", "Name": "web", "Subsets": subsets, "DefaultSubset": "v2"})
    assert removed(whole.next()) == {A_AT, C_AT}
    assert first.is_quiet()


def test_a_redirect_leads_to_the_endpoints_of_the_other_service(site: LinkerdSite, get: Get) -> None:
    site.put("web-2", A)
    site.write({"Kind": "service-resolver", "Name": "web", "Redirect": {"Service": "web-2"}})
    stream = get(HOST)
    assert set(added(stream.next())) == {A_AT}
    site.put("web-2", B)
    assert set(added(stream.next())) == {B_AT}
    assert removed(stream.next()) == {A_AT}


def test_failover_is_decided_here_and_adds_before_it_removes(site: LinkerdSite, get: Get) -> None:
    site.put("web", A)
    site.put("spare", B)
    site.write({"Kind": "service-resolver", "Name": "web", "Failover": {"*": {"Service": "spare"}}})
    stream = get(HOST)
    assert set(added(stream.next())) == {A_AT}
    site.put("web", instance("10.0.0.1", health="critical"))
    assert set(added(stream.next())) == {B_AT}
    assert removed(stream.next()) == {A_AT}
    site.put("web", A)
    assert set(added(stream.next())) == {A_AT}
    assert removed(stream.next()) == {B_AT}


def test_inexpressible_settings_of_clusters_and_resolvers_are_reported(site: LinkerdSite, get: Get) -> None:
    from tests.support.resources import cluster_load_assignment, eds_cluster

    site.push([eds_cluster("api", outlier_detection={}), cluster_load_assignment("api", 81)])
    site.put("web", A)
    site.write({"Kind": "service-resolver", "Name": "web", "LoadBalancer": {"Policy": "ring_hash"}})
    streams = [get("api"), get(HOST)]
    for stream in streams:
        added(stream.next())
    told = {state.authority: " ".join(state.skipped) for state in site.destinations.states()}
    assert "outlier_detection" in told["api:80"] and "LoadBalancer" in told[f"{HOST}:80"]


def test_a_service_that_only_a_config_entry_names_exists(site: LinkerdSite, get: Get) -> None:
    site.write({"Kind": "service-resolver", "Name": "web", "ConnectTimeout": "3s"})
    assert no_endpoints(get(HOST).next())

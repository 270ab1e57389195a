"""2.7 TTL."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support.sansio import Client, Server, make_resource
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.proto import wire_pb2
from xds.snapshots.removal_log import VERSIONS_KEPT

TTL_S = 9.0


def test_rule_71_a_ttl_is_served_in_delta(server: Server, delta: Client) -> None:
    """Rule 71: "A TTL is served in Delta only"."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=TTL_S)])
    delta.subscribe(CLUSTER)
    [resource] = delta.ack_delta().resources
    assert resource.ttl.ToTimedelta().total_seconds() == TTL_S


def test_rule_71_a_removed_ttl_is_a_change(server: Server, delta: Client) -> None:
    """The resource is sent again: without a TTL, it clears the timer at the client."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=TTL_S)])
    delta.subscribe(CLUSTER)
    delta.settle()
    server.push_resources([make_resource(CLUSTER, "a", "1")])
    [resource] = delta.ack_delta().resources
    assert not resource.HasField("ttl")
    server.elapse(3600)
    assert not delta.pending()


def test_rule_72_a_heartbeat_has_the_same_version_and_no_body(server: Server, delta: Client) -> None:
    """Rule 72: the client's content does not change by it."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=TTL_S), make_resource(CLUSTER, "b", "1")])
    delta.subscribe(CLUSTER)
    version = next(resource.version for resource in delta.ack_delta().resources if resource.name == "a")
    server.elapse(TTL_S / 3)
    [beat] = delta.ack_delta().resources
    assert (beat.name, beat.version, beat.HasField("resource")) == ("a", version, False)
    assert beat.ttl.ToTimedelta().total_seconds() == TTL_S
    assert delta.texts(CLUSTER) == {"a": "1", "b": "1"}
    assert [status.state for status in delta.stream.status()] == ["synced"]


def test_rule_72_heartbeats_continue_and_are_well_below_the_ttl(server: Server, delta: Client) -> None:
    """Rule 72: every third of the shortest TTL of the type."""
    server.push_resources(
        [make_resource(CLUSTER, "a", "1", ttl_s=TTL_S), make_resource(CLUSTER, "b", "1", ttl_s=10 * TTL_S)]
    )
    delta.subscribe(CLUSTER)
    delta.settle()
    for _ in range(5):
        server.elapse(TTL_S / 3)
        assert sorted(resource.name for resource in delta.ack_delta().resources) == ["a", "b"]


def test_rule_72_a_recent_update_replaces_a_heartbeat(server: Server, delta: Client) -> None:
    """Rule 72: an update starts the TTL again."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=TTL_S)])
    delta.subscribe(CLUSTER)
    delta.settle()
    server.elapse(TTL_S / 3 - 1)
    server.push_resources([make_resource(CLUSTER, "a", "2", ttl_s=TTL_S)])
    delta.settle()
    server.elapse(2)
    assert not delta.pending()


def test_rule_72_a_change_during_a_heartbeat_is_sent(server: Server, delta: Client) -> None:
    """Rule 72: the ACK of a heartbeat is not one of the newer content."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=TTL_S)])
    delta.subscribe(CLUSTER)
    delta.settle()
    server.elapse(TTL_S / 3)
    server.push_resources([make_resource(CLUSTER, "a", "2", ttl_s=TTL_S)])
    delta.settle()
    assert delta.texts(CLUSTER) == {"a": "2"}


def test_rule_72_resources_in_flight_have_a_heartbeat_of_their_own(server: Server, delta: Client) -> None:
    """The client may have rejected what is in flight, and it rejects a whole heartbeat for one name that it lacks."""
    held = make_resource(CLUSTER, "a", "1", ttl_s=TTL_S)
    server.push_resources([held])
    delta.subscribe(CLUSTER)
    delta.ack()
    server.push_resources([held, *(make_resource(CLUSTER, name, "1", ttl_s=TTL_S) for name in ("bad", "slow"))])
    offered = delta.pending()[-1]
    server.elapse(TTL_S / 3)
    assert [send.response.names for send in delta.pending()] == [offered.response.names, ("a",), ("bad", "slow")]
    while delta.pending():
        delta.ack()
    server.elapse(TTL_S / 3)
    assert [set(send.response.names) for send in delta.pending()] == [{"a", "bad", "slow"}]


def test_rule_72_only_subscribed_resources_beat(server: Server, delta: Client) -> None:
    """Rule 72: nothing is said of a resource that the client does not want."""
    server.push_resources([make_resource(ENDPOINT, name, "1", ttl_s=TTL_S) for name in ("a", "b")])
    delta.subscribe(ENDPOINT, "a", "b")
    delta.settle()
    delta.unsubscribe(ENDPOINT, "b")
    server.elapse(TTL_S / 3)
    assert [resource.name for resource in delta.ack_delta().resources] == ["a"]


@pytest.mark.parametrize("changed", [False, True], ids=["in-step", "changed"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE])
def test_rule_72_a_returning_client_is_sent_a_heartbeat_at_once(
    server: Server, delta: Client, url: str, restarted: bool, changed: bool
) -> None:
    """Rule 72: its TTLs went on while it was disconnected. Requested assignments are sent whole, which renews them."""

    def push(text: str) -> None:
        server.push_resources(
            [make_resource(url, "a", "1", ttl_s=TTL_S), make_resource(url, "b", text, ttl_s=TTL_S)], wake=False
        )

    push("1")
    delta.subscribe(url, *(("a", "b") if url in (ENDPOINT, ROUTE) else ()))
    delta.settle()
    delta.disconnect()
    if restarted:
        server.restart()
    if changed:
        push("2")
    delta.reconnect()
    server.elapse(0)
    renewed = {
        resource.name: resource.HasField("resource")
        for send, message in delta.inbox
        for resource in cast(wire_pb2.DeltaDiscoveryResponse, message).resources
    }
    assert renewed["a"] is (url == ENDPOINT) and "b" in renewed
    delta.settle()
    assert delta.texts(url) == {"a": "1", "b": "2" if changed else "1"}
    server.elapse(TTL_S / 3 - 1)
    assert not delta.pending()
    server.elapse(1)
    assert [resource.name for resource in delta.ack_delta().resources] == ["a", "b"]


def test_rule_72_a_version_that_the_log_has_no_longer_has_the_ttl_of_later_ones(server: Server, delta: Client) -> None:
    """The client may have that TTL as well: it would drop a cluster that its old connections use."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=TTL_S)])
    delta.subscribe(CLUSTER)
    delta.settle()
    delta.disconnect()
    for number in range(VERSIONS_KEPT + 2):
        server.push_resources([make_resource(CLUSTER, "a", f"later {number}", ttl_s=TTL_S)], wake=False)
    server.restart()
    server.push_resources([make_resource(CLUSTER, "b", "1")], wake=False)
    delta.reconnect()
    delta.settle()
    assert delta.texts(CLUSTER) == {"a": "1", "b": "1"}
    server.elapse(TTL_S / 3)
    assert [(each.name, each.HasField("resource")) for each in delta.ack_delta().resources] == [("a", False)]


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
@pytest.mark.parametrize("url", [CLUSTER, ENDPOINT, ROUTE])
def test_rule_72_resources_that_linger_for_a_returning_client_have_heartbeats(
    server: Server, delta: Client, url: str, restarted: bool
) -> None:
    """Rule 72: old connections use what a push removed while the client was away."""
    server.push_resources([make_resource(url, name, "1", ttl_s=TTL_S) for name in ("a", "b")])
    delta.subscribe(url, *(("a", "b") if url != CLUSTER else ()))
    delta.settle()
    delta.disconnect()
    server.push_resources([make_resource(url, "b", "1", ttl_s=TTL_S)])
    if restarted:
        server.restart()
    delta.reconnect()
    server.elapse(0)
    assert "a" in {name for send in delta.settle() for name in send.response.names}
    for _ in range(3):
        server.elapse(TTL_S / 3)
        assert "a" in {name for send in delta.settle() for name in send.response.names}
    assert delta.texts(url) == {"a": "1", "b": "1"}


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE])
def test_rule_73_no_heartbeats_and_no_ttl_in_sotw(server: Server, sotw: Client, url: str) -> None:
    """Rule 73: a SotW CDS heartbeat removes the cluster in Envoy 1.40."""
    server.push_resources([make_resource(url, "a", "1", ttl_s=TTL_S)])
    sotw.subscribe(url, "a")
    _, message = sotw.read()
    assert isinstance(message, wire_pb2.DiscoveryResponse)
    assert [(resource.type_url, resource.value) for resource in message.resources] == [(url, b"a=1")]
    server.elapse(3600)
    assert not sotw.pending()

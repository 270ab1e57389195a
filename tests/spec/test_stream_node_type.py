"""2.1 Stream, node, type."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.proto import wire_pb2
from xds.protocol.dialect import Variant
from xds.protocol.events import Identified, Nacked, NodeMismatch, ViewChanged

UNKNOWN = "type.googleapis.com/example.Unknown"


def node(node_id: str, cluster: str = "") -> bytes:
    return wire_pb2.Node(id=node_id, cluster=cluster).SerializeToString()


def test_rule_2_the_first_node_holds_for_the_whole_stream(server: Server, client: Client) -> None:
    """Rule 2: "Only the first request of a STREAM is guaranteed to carry node; remember it and apply to all types"."""
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}}, group="node")
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    client.settle()
    assert client.texts(CLUSTER) == client.texts(ENDPOINT) == {"c": "1"}
    assert len([event for event in client.events if isinstance(event, Identified)]) == 1


def test_rule_2_a_different_node_later_is_counted_and_the_first_one_kept(server: Server, client: Client) -> None:
    """Rule 2: "If a later node hashes to a different group, log + metric and keep the first"."""
    server.push({CLUSTER: {"c": "mine"}}, group="node")
    server.push({CLUSTER: {"c": "theirs"}}, group="other")
    client.subscribe(CLUSTER)
    client.settle()
    events = client.request(type_url=LISTENER, node=node("other"))
    assert [event.node.id for event in events if isinstance(event, NodeMismatch)] == ["other"]
    client.settle()
    assert client.stream.group == "node"
    assert client.texts(CLUSTER) == {"c": "mine"}


def test_rule_2_the_same_node_in_every_request_is_no_mismatch(server: Server, client: Client) -> None:
    """Rule 2: "Later copies should be identical"."""
    server.push({CLUSTER: {"c": "1"}})
    for url in (CLUSTER, LISTENER, ENDPOINT):
        client.request(type_url=url, node=client.node)
    assert not [event for event in client.events if isinstance(event, NodeMismatch)]


@pytest.mark.parametrize("sent", [b"", node(""), node("", cluster="edge")], ids=["none", "empty", "cluster-only"])
def test_rule_3_a_stream_without_node_id_is_refused(server: Server, client: Client, sent: bytes) -> None:
    """Rule 3: "First request without node or with empty node id: ... a server keyed by node should reject clearly"."""
    server.push({CLUSTER: {"c": "1"}})
    client.node = sent
    with pytest.raises(RemoteProtocolError) as refusal:
        client.request(type_url=CLUSTER)
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT
    assert client.stream.node is None
    assert len(server.clients) == 0


def test_rule_4_an_absent_type_on_ads_is_an_error(server: Server, client: Client) -> None:
    """Rule 4: "On ADS an absent one is an error"."""
    server.push({CLUSTER: {"c": "1"}})
    with pytest.raises(RemoteProtocolError) as refusal:
        client.request()
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT


def test_rule_4_an_absent_type_on_a_type_stream_means_its_type(server: Server, connect: Connect) -> None:
    """Rule 4: "On a per-type stream an absent type_url means the service's type"."""
    server.push({CLUSTER: {"c": "1"}})
    client = connect(type_url=CLUSTER)
    client.request()
    [send] = client.pending()
    assert (send.type_url, send.response.names) == (CLUSTER, ("c",))


def test_rule_4_another_type_on_a_type_stream_is_refused(server: Server, connect: Connect) -> None:
    """Rule 4: "A per-type request naming a DIFFERENT type: ... reject it INVALID_ARGUMENT"."""
    server.push({CLUSTER: {"c": "1"}, LISTENER: {"l": "1"}})
    client = connect(type_url=CLUSTER)
    client.subscribe(CLUSTER)
    with pytest.raises(RemoteProtocolError) as refusal:
        client.request(type_url=LISTENER)
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT
    client.settle()
    assert client.texts(CLUSTER) == {"c": "1"}


def test_rule_5_each_type_has_a_version_nonce_subscription_and_ack_state_of_its_own(
    server: Server, client: Client
) -> None:
    """Rule 5: "Each type_url on ADS is a separate logical stream: own version, nonce, subscription, ACK state"."""
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1", "d": "1"}, LISTENER: {"l": "1"}})
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    client.nack(CLUSTER)
    client.ack(ENDPOINT)
    client.subscribe(LISTENER)
    client.ack(LISTENER)
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "2", "d": "1"}, LISTENER: {"l": "1"}})
    assert [send.type_url for send in client.pending()] == [ENDPOINT]
    client.settle()
    assert client.texts(ENDPOINT) == {"c": "2"}
    states = {status.type_url: status.state for status in client.stream.status()}
    assert states == {CLUSTER: "nacked", ENDPOINT: "synced", LISTENER: "synced"}
    assert len([event for event in client.events if isinstance(event, Nacked)]) == 1


def test_rule_6_an_unknown_type_does_not_disturb_the_stream(server: Server, client: Client) -> None:
    """Rule 6: "do not tear down the whole stream for one type"; SotW is silent, Delta says removed."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(UNKNOWN, "u")
    client.subscribe(CLUSTER)
    sent = {send.type_url: send.response.removed for send in client.pending()}
    assert sent == ({CLUSTER: ()} if client.variant is Variant.SOTW else {UNKNOWN: ("u",), CLUSTER: ()})
    client.settle()
    assert client.texts(CLUSTER) == {"c": "1"}


def test_rule_6_a_type_that_appears_later_starts_flowing(server: Server, client: Client) -> None:
    """Rule 6: "A resource type registered later must then start flowing"."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(UNKNOWN, "u")
    client.settle()
    server.push({CLUSTER: {"c": "1"}, UNKNOWN: {"u": "1", "v": "1"}})
    client.settle()
    assert client.texts(UNKNOWN) == {"u": "1"}


def test_rule_7_responses_name_the_type_of_what_they_hold(server: Server, client: Client) -> None:
    """Rule 7: "Response type_url must be set and match the Any types inside"."""
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}})
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    for url in (CLUSTER, ENDPOINT):
        _, message = client.read(url)
        assert message.type_url == url
        if isinstance(message, wire_pb2.DiscoveryResponse):
            assert [resource.type_url for resource in message.resources] == [url]
        else:
            assert [resource.resource.type_url for resource in message.resources] == [url]


def test_rule_8_responses_name_the_replica(server: Server, client: Client) -> None:
    """Rule 8: "control_plane.identifier may be set on each response: use replica id"."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    _, message = client.read()
    assert message.control_plane.identifier == "test"


def test_rule_9_a_node_without_a_snapshot_waits_for_one(server: Server, client: Client) -> None:
    """Rule 9: "An unknown node with no snapshot: leave the watch open and answer when a snapshot appears"."""
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    assert not client.pending()
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}})
    client.settle()
    assert client.texts(CLUSTER) == client.texts(ENDPOINT) == {"c": "1"}


def test_rule_9_what_a_waiting_node_asked_for_is_not_forgotten(server: Server, client: Client) -> None:
    """Every change of interest of a node that waits counts once a group appears."""
    client.subscribe(ENDPOINT, "a")
    client.subscribe(ENDPOINT, "b")
    client.unsubscribe(ENDPOINT, "a")
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    client.settle()
    assert client.texts(ENDPOINT) == {"b": "1"}


def test_rule_9_a_deleted_group_is_never_told_as_an_empty_answer(server: Server, client: Client) -> None:
    """Rule 9: "Server errors that should NOT blank the client": without a group, nothing is sent."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    server.drop()
    assert not client.pending()
    assert [event.group for event in client.events if isinstance(event, ViewChanged)] == [""]
    server.push({CLUSTER: {"c": "2"}})
    client.settle()
    assert client.texts(CLUSTER) == {"c": "2"}

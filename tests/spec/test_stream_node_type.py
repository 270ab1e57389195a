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
    """Rule 2: "Only the first request of a stream is sure to carry `node`; it holds for all types of the stream"."""
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}}, group="node")
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    client.settle()
    assert client.texts(CLUSTER) == client.texts(ENDPOINT) == {"c": "1"}
    assert len([event for event in client.events if isinstance(event, Identified)]) == 1


def test_rule_2_a_different_node_later_is_counted_and_the_first_one_kept(server: Server, client: Client) -> None:
    """Rule 2: even if the other node belongs to another group."""
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
    """Rule 2: Envoy may repeat its node in every request."""
    server.push({CLUSTER: {"c": "1"}})
    for url in (CLUSTER, LISTENER, ENDPOINT):
        client.request(type_url=url, node=client.node)
    assert not [event for event in client.events if isinstance(event, NodeMismatch)]


@pytest.mark.parametrize(
    "sent", [b"", node(""), node("", cluster="edge"), node("a\0b")], ids=["none", "empty", "cluster-only", "NUL"]
)
def test_rule_3_a_stream_without_node_id_is_refused(server: Server, client: Client, sent: bytes) -> None:
    """Rule 3: the node is missing, or its id is empty. One with a NUL could not be stored with its NACKs."""
    server.push({CLUSTER: {"c": "1"}})
    client.node = sent
    with pytest.raises(RemoteProtocolError) as refusal:
        client.request(type_url=CLUSTER)
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT
    assert client.stream.node is None
    assert len(server.clients) == 0


def test_rule_4_an_absent_type_on_ads_is_an_error(server: Server, client: Client) -> None:
    """Rule 4: ADS has no type of its own."""
    server.push({CLUSTER: {"c": "1"}})
    with pytest.raises(RemoteProtocolError) as refusal:
        client.request()
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT


def test_a_type_with_a_nul_is_refused(server: Server, client: Client) -> None:
    """Its NACKs could not be stored."""
    server.push({CLUSTER: {"c": "1"}})
    with pytest.raises(RemoteProtocolError) as refusal:
        client.request(type_url=f"{UNKNOWN}\0")
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT


def test_rule_4_an_absent_type_on_a_type_stream_means_its_type(server: Server, connect: Connect) -> None:
    """Rule 4: "An absent `type_url` means the type of the service; on ADS it is an error"."""
    server.push({CLUSTER: {"c": "1"}})
    client = connect(type_url=CLUSTER)
    client.request()
    [send] = client.pending()
    assert (send.type_url, send.response.names) == (CLUSTER, ("c",))


def test_rule_4_another_type_on_a_type_stream_is_refused(server: Server, connect: Connect) -> None:
    """Rule 4: with INVALID_ARGUMENT."""
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
    """Rule 5: the types of an ADS stream are separate logical streams."""
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
    """Rule 6: SotW is silent, Delta reports the name as removed."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(UNKNOWN, "u")
    client.subscribe(CLUSTER)
    sent = {send.type_url: send.response.removed for send in client.pending()}
    assert sent == ({CLUSTER: ()} if client.variant is Variant.SOTW else {UNKNOWN: ("u",), CLUSTER: ()})
    client.settle()
    assert client.texts(CLUSTER) == {"c": "1"}


def test_rule_6_a_type_that_appears_later_starts_flowing(server: Server, client: Client) -> None:
    """Rule 6: its first push is sent to the subscriptions that wait."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(UNKNOWN, "u")
    client.settle()
    server.push({CLUSTER: {"c": "1"}, UNKNOWN: {"u": "1", "v": "1"}})
    client.settle()
    assert client.texts(UNKNOWN) == {"u": "1"}


def test_rule_7_responses_name_the_type_of_their_resources(server: Server, client: Client) -> None:
    """Rule 7: "`type_url` of a response is set and matches the resources in it"."""
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
    """Rule 8: "`control_plane.identifier` names the replica"."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    _, message = client.read()
    assert message.control_plane.identifier == "test"


def test_rule_9_a_node_without_a_snapshot_waits_for_one(server: Server, client: Client) -> None:
    """Rule 9: its stream stays open, and is answered when a snapshot is pushed."""
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    assert not client.pending()
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}})
    client.settle()
    assert client.texts(CLUSTER) == client.texts(ENDPOINT) == {"c": "1"}


def test_rule_9_requests_of_a_waiting_node_are_not_forgotten(server: Server, client: Client) -> None:
    """Every change of interest of a node that waits counts once a group appears."""
    client.subscribe(ENDPOINT, "a")
    client.subscribe(ENDPOINT, "b")
    client.unsubscribe(ENDPOINT, "a")
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    client.settle()
    assert client.texts(ENDPOINT) == {"b": "1"}


def test_rule_9_a_node_of_a_deleted_group_is_sent_nothing(server: Server, client: Client) -> None:
    """Rule 9: a node without a group is sent nothing."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    server.drop()
    assert not client.pending()
    assert [event.group for event in client.events if isinstance(event, ViewChanged)] == [""]
    server.push({CLUSTER: {"c": "2"}})
    client.settle()
    assert client.texts(CLUSTER) == {"c": "2"}

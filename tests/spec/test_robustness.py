"""2.9 Robustness."""

from __future__ import annotations

import gc

import pytest

from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.protocol.dialect import Variant
from xds.protocol.requests import StreamLimits
from xds.protocol.stream import ENCODED_AT_ONCE, DiscoveryStream


def test_rule_78_a_push_waits_for_no_client(server: Server, connect: Connect) -> None:
    """Rule 78: the engine has no locks, and a push returns at once."""
    server.push({CLUSTER: {"c": "1"}})
    mute, well = connect("mute", peer="1"), connect("well", peer="2")
    mute.subscribe(CLUSTER)
    well.subscribe(CLUSTER)
    for number in range(20):
        server.push({CLUSTER: {"c": f"x{number}"}})
        well.settle()
    assert well.texts(CLUSTER) == {"c": "x19"}
    assert len(mute.pending()) == 1


def test_rule_79_nothing_is_sent_for_a_superseded_subscription(server: Server, client: Client) -> None:
    """Rule 79: "Responses for superseded subscriptions are not sent"."""
    server.push({ENDPOINT: {"a": "1"}})
    client.subscribe(ENDPOINT, "a")
    server.push({ENDPOINT: {"a": "2"}})
    client.unsubscribe(ENDPOINT, "a")
    client.ack()
    assert not client.pending()


@pytest.mark.usefixtures("without_twins")
def test_rule_80_a_closed_stream_leaves_nothing_behind(server: Server, connect: Connect) -> None:
    """Rule 80: its subscriptions and the state of its node are freed."""
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}})
    clients = [connect(f"node-{number}", peer=str(number)) for number in range(5)]
    for client in clients:
        client.subscribe(CLUSTER)
        client.subscribe(ENDPOINT, "c")
    assert len(server.clients) == 5
    for client in clients:
        client.disconnect()
        client.stream.close(0.0)
    assert len(server.clients) == 0
    assert all(not client.stream.status() for client in clients)


def test_rule_80_streams_are_collected(server: Server, connect: Connect) -> None:
    """Rule 80: nothing of the shared parts holds on to a stream."""

    def streams() -> int:
        gc.collect()
        return sum(isinstance(each, DiscoveryStream) for each in gc.get_objects())

    before = streams()
    for number in range(3):
        client = connect(f"node-{number}", peer=str(number))
        server.push({CLUSTER: {"c": str(number)}})
        client.subscribe(CLUSTER)
        client.disconnect()
        del client
    assert streams() == before


def test_rule_80_a_stream_without_requests_is_closed(client: Client) -> None:
    """Rule 80: closing needs no node."""
    client.disconnect()


def test_rule_81_all_streams_of_a_group_are_sent_the_same_bytes(server: Server, connect: Connect) -> None:
    """Rule 81: "A group's snapshot and its encoded responses are shared, never copied per node"."""
    server.push({CLUSTER: {"c": "1"}, LISTENER: {"l": "1"}})
    clients = [connect(f"node-{number}", peer=str(number)) for number in range(4)]
    for client in clients:
        client.subscribe(CLUSTER)
        client.subscribe(LISTENER)
        client.settle()
    server.push({CLUSTER: {"c": "2"}, LISTENER: {"l": "1"}})
    bodies = [client.pending()[0].body for client in clients]
    assert all(body is bodies[0] for body in bodies)


@pytest.mark.parametrize("variant", list(Variant))
def test_limits_too_many_names_end_the_stream_and_change_nothing(variant: Variant) -> None:
    """Names per request are limited (docs/internals/design.md#operator-surface); a refused request changes no state."""
    server = Server(limits=StreamLimits(names_per_request=10))
    server.push({ENDPOINT: {"n0": "1"}})
    client = Client(server, variant)
    client.subscribe(ENDPOINT, "n0")
    client.settle()
    with pytest.raises(RemoteProtocolError) as refusal:
        client.subscribe(ENDPOINT, *(f"n{number}" for number in range(12)))
    assert refusal.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert client.stream.status()[0].names == {"n0"}


def test_limits_names_do_not_pile_up_over_many_requests() -> None:
    """A Delta subscription is bounded as a whole."""
    server = Server(limits=StreamLimits(names_per_request=10, names_per_subscription=25))
    server.push({ENDPOINT: {"a": "1"}})
    client = Client(server, Variant.DELTA)
    for start in (0, 10):
        client.subscribe(ENDPOINT, *(f"n{start + number}" for number in range(10)))
    with pytest.raises(RemoteProtocolError):
        client.subscribe(ENDPOINT, *(f"n{20 + number}" for number in range(10)))


def test_limits_types_per_stream_are_bounded(variant: Variant) -> None:
    """A client cannot make the server keep state for any number of types."""
    server = Server(limits=StreamLimits(types_per_stream=3))
    server.push({ROUTE: {"r": "1"}})
    client = Client(server, variant)
    for number in range(3):
        client.subscribe(f"type.googleapis.com/example.T{number}", "a")
    with pytest.raises(RemoteProtocolError) as refusal:
        client.subscribe("type.googleapis.com/example.T4", "a")
    assert refusal.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_garbage_is_refused_with_a_status(client: Client) -> None:
    """Bytes that are not a request end the stream with INVALID_ARGUMENT."""
    with pytest.raises(RemoteProtocolError) as refusal:
        client.raw(b"\xff\xff\xff\xff")
    assert refusal.value.code is StatusCode.INVALID_ARGUMENT


@pytest.mark.usefixtures("without_twins")
def test_large_responses_of_several_types_are_made_one_call_at_a_time(variant: Variant) -> None:
    """A push does not block the event loop: the first stream that is offered it encodes it for all."""
    server = Server(ordered=False)
    large = "x" * ENCODED_AT_ONCE
    server.push({CLUSTER: {"a": "1"}, SECRET: {"s": "1"}})
    first, second = (Client(server, variant, f"node-{number}") for number in range(2))
    for client in (first, second):
        for url, name in ((CLUSTER, "a"), (SECRET, "s")):
            client.subscribe(url, name)
            client.ack(url)
    server.push({CLUSTER: {"a": large}, SECRET: {"s": large}})
    assert len(first.inbox) == 1
    assert len(second.inbox) == 2, "the first type is made, the second is its own"
    assert first.stream.deadline() == server.now
    server.elapse(0)
    assert len(first.inbox) == 2
    assert first.stream.deadline() != server.now

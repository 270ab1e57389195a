"""2.2 Versions, nonces, ACK and NACK."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.proto import wire_pb2
from xds.protocol.dialect import Variant
from xds.protocol.events import Acked, AckRepeated, Nacked, OfferTimedOut, Stale
from xds.protocol.known_content import GONE_LIMIT

REFUSED = wire_pb2.Status(code=13, message="no")


def told(client: Client, kind: type) -> int:
    """How many events of a kind there were."""
    return sum(isinstance(event, kind) for event in client.events)


def test_rule_11_the_version_changes_with_the_type_only(server: Server, client: Client) -> None:
    """Rule 11: "`version_info` is opaque and changes with the content of the type"."""
    server.push({CLUSTER: {"c": "1"}, SECRET: {"s": "1"}}, label="one")
    client.subscribe(CLUSTER)
    client.subscribe(SECRET, "s")
    client.settle()
    server.push({CLUSTER: {"c": "1"}, SECRET: {"s": "2"}}, label="two")
    client.settle()
    versions = {status.type_url: status.version_acked for status in client.stream.status()}
    assert versions == {CLUSTER: "one", SECRET: "two"}


def test_rule_12_nonces_are_unique_even_when_content_comes_back(server: Server, client: Client) -> None:
    """Rule 12: the simulated client checks that each nonce is new and not empty."""
    for text in ("1", "2", "1", "2", "1"):
        server.push({CLUSTER: {"c": text}})
        if CLUSTER not in client.types:
            client.subscribe(CLUSTER)
        client.settle()
    assert len(client.types[CLUSTER].nonces) == 5


def test_rule_12_the_first_request_is_accepted_whatever_nonce_it_carries(server: Server, client: Client) -> None:
    """Rule 12: Envoy may send a nonce of its previous stream."""
    server.push({CLUSTER: {"c": "1"}})
    client.request(type_url=CLUSTER, response_nonce="of-another-stream")
    assert client.pending(CLUSTER)[0].response.names == ("c",)
    assert not told(client, Stale)


def test_rule_12_a_first_request_with_an_old_nonce_and_error_is_accepted(server: Server, client: Client) -> None:
    """Rule 12: a NACK of an earlier stream's response, sent first on this one, is a request like any other."""
    server.push({CLUSTER: {"c": "1"}})
    client.request(type_url=CLUSTER, response_nonce="of-another-stream", error_detail=REFUSED)
    assert client.pending(CLUSTER)
    assert not told(client, Nacked)


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET])
def test_rule_13_the_first_request_is_answered_though_its_version_is_current(
    server: Server, sotw: Client, url: str
) -> None:
    """Rule 13: "The first request of a type on a stream is answered, even if its version is current"."""
    server.push({url: {"a": "1"}}, label="v7")
    sotw.request(type_url=url, version_info="v7", resource_names=["a"])
    [send] = sotw.pending()
    assert (send.response.version_info, send.response.names) == ("v7", ("a",))


def test_rule_14_an_ack_is_answered_by_nothing(server: Server, client: Client) -> None:
    """Rule 14: an ACK has the latest nonce, the same names and no `error_detail`."""
    server.push({CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}})
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "c")
    client.ack()
    client.ack()
    assert not client.pending()
    assert told(client, Acked) == 2


def test_rule_14_everything_acked_twice_is_answered_by_nothing(server: Server, client: Client) -> None:
    """Rule 14: a server that answers an ACK loops. The second ACK is counted and ignored."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    send = client.ack()
    for _ in range(3):
        client.reply(send)
    assert not client.pending()
    assert told(client, AckRepeated) == 3


@pytest.mark.parametrize("version", ["", "1", "2"], ids=["none", "last-accepted", "refused-one"])
@pytest.mark.parametrize("code", [0, 3, 13])
def test_rule_15_a_nack_is_known_by_error_detail_alone(server: Server, client: Client, version: str, code: int) -> None:
    """Rule 15: comparing versions fails, and the code of the error may be anything, even 0."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    server.push({CLUSTER: {"c": "2"}})
    send, _ = client.read()
    fields = {"version_info": version} if client.variant is Variant.SOTW else {}
    error = wire_pb2.Status(code=code, message="no")
    client.request(type_url=CLUSTER, response_nonce=send.nonce, error_detail=error, **fields)
    assert [event.error.code for event in client.events if isinstance(event, Nacked)] == [code]


def test_rule_15_an_old_version_without_error_detail_is_an_ack(server: Server, sotw: Client) -> None:
    """Rule 15: version_info does not tell ACK from NACK."""
    server.push({ENDPOINT: {"a": "1"}})
    sotw.subscribe(ENDPOINT, "a")
    send, _ = sotw.read()
    sotw.request(type_url=ENDPOINT, response_nonce=send.nonce, version_info="older", resource_names=["a"])
    assert told(sotw, Acked) == 1
    assert not told(sotw, Nacked)


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET])
def test_rule_16_rejected_content_is_not_sent_again(server: Server, client: Client, url: str) -> None:
    """Rule 16: "Rejected content is not re-sent until it changes; newer content is sent at once"."""
    server.push({url: {"a": "1"}})
    client.subscribe(url, "a")
    client.settle()
    server.push({url: {"a": "bad"}})
    client.nack()
    server.push({url: {"a": "bad"}}, label="the same under another label")
    server.elapse(3600)
    client.wake()
    assert not client.pending()
    server.push({url: {"a": "good"}})
    assert len(client.pending()) == 1
    client.settle()
    assert client.texts(url) == {"a": "good"}


def test_rule_16_a_rejected_first_response_is_not_sent_again(server: Server, client: Client) -> None:
    """Rule 16: as above, for a client that never accepted anything."""
    server.push({CLUSTER: {"c": "bad"}})
    client.subscribe(CLUSTER)
    client.nack()
    server.elapse(3600)
    assert not client.pending()
    server.push({CLUSTER: {"c": "good"}})
    client.settle()
    assert client.texts(CLUSTER) == {"c": "good"}


def test_rule_16_rejected_content_is_tried_again_once_other_content_was_accepted(
    server: Server, client: Client
) -> None:
    """Only the state REJECTED counts: a later push may bring back rejected content.

    See docs/internals/design.md#response-states.
    """
    server.push({ENDPOINT: {"a": "good"}})
    client.subscribe(ENDPOINT, "a")
    client.settle()
    for round in (1, 2):
        server.push({ENDPOINT: {"a": "bad"}})
        client.nack()
        server.push({ENDPOINT: {"a": f"good {round}"}})
        client.settle()
        assert told(client, Nacked) == round
    assert client.texts(ENDPOINT) == {"a": "good 2"}


def test_rule_16_rejected_content_is_tried_again_after_a_roll_back(server: Server, client: Client) -> None:
    """The push in between changed the content, though the client had kept what the group is rolled back to."""
    server.push({ENDPOINT: {"a": "good"}})
    client.subscribe(ENDPOINT, "a")
    client.settle()
    server.push({ENDPOINT: {"a": "bad"}})
    client.nack()
    server.push({ENDPOINT: {"a": "good"}})
    client.settle()
    server.push({ENDPOINT: {"a": "bad"}})
    assert [send.response.names for send in client.pending()] == [("a",)]


def test_rule_16_newer_content_is_sent_at_once(server: Server, client: Client) -> None:
    """Rule 16: the snapshot may change while the NACK is on its way."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    server.push({CLUSTER: {"c": "bad"}})
    server.push({CLUSTER: {"c": "good"}})
    client.nack()
    assert len(client.pending()) == 1
    client.settle()
    assert client.texts(CLUSTER) == {"c": "good"}


def test_rule_16_another_name_is_answered_after_a_nack(server: Server, client: Client) -> None:
    """Rule 16: a change of the subscription changes the content of the response."""
    server.push({ENDPOINT: {"a": "bad", "b": "1"}})
    client.subscribe(ENDPOINT, "a")
    client.nack()
    client.subscribe(ENDPOINT, "b")
    assert len(client.pending()) == 1
    assert "b" in client.pending()[0].response.names


def test_rule_17_a_nack_may_change_the_subscription(server: Server, client: Client) -> None:
    """Rule 17: "A NACK may change the subscription"."""
    server.push({ENDPOINT: {"a": "bad", "b": "1"}})
    client.subscribe(ENDPOINT, "a")
    send, _ = client.read()
    if client.variant is Variant.SOTW:
        fields = {"resource_names": ["b"]}
    else:
        fields = {"resource_names_subscribe": ["b"], "resource_names_unsubscribe": ["a"]}
    client.request(type_url=ENDPOINT, response_nonce=send.nonce, error_detail=REFUSED, **fields)
    assert told(client, Nacked) == 1
    [send] = client.pending()
    assert send.response.names == ("b",)


def test_rule_18_names_of_a_nacked_response_are_sent_again(server: Server, client: Client) -> None:
    """Rule 18: the client may have any mixture, so the next response has everything that changed since the last ACK."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    client.subscribe(ENDPOINT, "a", "b")
    client.settle()
    server.push({ENDPOINT: {"a": "2", "b": "bad"}})
    _, partly_taken = client.inbox[0]
    client.hold(partly_taken)
    client.nack()
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    client.settle()
    assert client.texts(ENDPOINT) == {"a": "1", "b": "1"}


def test_rule_18_names_of_a_nacked_response_are_removed_explicitly(server: Server, client: Client) -> None:
    """Rule 18: a good cluster of a refused response is active in Envoy: it must be told to go."""
    server.push({CLUSTER: {"a": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    server.push({CLUSTER: {"a": "1", "good": "1", "bad": "1"}})
    _, partly_taken = client.inbox[0]
    client.hold(partly_taken)
    client.nack()
    server.push({CLUSTER: {"a": "1"}})
    client.settle()
    assert client.texts(CLUSTER) == {"a": "1"}


def test_rule_19_the_version_in_a_nack_means_nothing(server: Server, sotw: Client) -> None:
    """Rule 19: it may be the rejected one, if a new name was rejected under an old version."""
    server.push({ENDPOINT: {"a": "1", "bad": "1"}}, label="v")
    sotw.subscribe(ENDPOINT, "a")
    sotw.settle()
    sotw.subscribe(ENDPOINT, "bad")
    sotw.nack()
    assert told(sotw, Nacked) == 1
    server.push({ENDPOINT: {"a": "2", "bad": "1"}}, label="v")
    assert len(sotw.pending()) == 1
    assert "a" in sotw.pending()[0].response.names


def test_rule_20_a_stale_request_is_not_answered_out_of_turn(server: Server, client: Client) -> None:
    """Rule 20: the ACK of the latest response follows."""
    server.push({CLUSTER: {"c": "1"}})
    client.subscribe(CLUSTER)
    first = client.ack()
    server.push({CLUSTER: {"c": "2"}})
    client.reply(first)
    assert told(client, Stale) == 1
    assert len(client.pending()) == 1


def test_rule_20_names_of_a_stale_request_are_not_lost(server: Server, sotw: Client) -> None:
    """Rule 20: they are recorded, and answered after the next ACK."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    sotw.subscribe(ENDPOINT, "a")
    old = sotw.ack()
    server.push({ENDPOINT: {"a": "2", "b": "1"}})
    sotw.request(type_url=ENDPOINT, response_nonce=old.nonce, resource_names=["a", "b"])
    assert len(sotw.pending()) == 1
    [send] = sotw.pending()
    sotw.request(type_url=ENDPOINT, response_nonce=send.nonce, resource_names=["a", "b"])
    assert sotw.pending()[-1].response.names == ("b",)


def test_rule_20_one_response_is_in_flight_and_later_changes_coalesce(server: Server, client: Client) -> None:
    """Rule 20: "At most one response per type is in flight"."""
    server.push({ENDPOINT: {"a": "1"}})
    client.subscribe(ENDPOINT, "a")
    client.settle()
    for number in range(10):
        server.push({ENDPOINT: {"a": f"later-{number}"}})
        assert len(client.pending()) == 1
    client.ack()
    assert len(client.pending()) == 1
    client.ack()
    assert not client.pending()
    assert client.texts(ENDPOINT) == {"a": "later-9"}


def test_rule_20_an_unanswered_response_gives_way_to_newer_content(server: Server, client: Client) -> None:
    """After `offer_timeout_s` the newest content is offered under a new nonce.

    See docs/internals/design.md#response-states.
    """
    server.push({ENDPOINT: {"a": "1"}})
    client.subscribe(ENDPOINT, "a")
    server.push({ENDPOINT: {"a": "2"}})
    server.elapse(4.0)
    assert len(client.pending()) == 1
    server.elapse(2.0)
    assert len(client.pending()) == 2
    assert told(client, OfferTimedOut) == 1
    client.ack()
    assert told(client, Stale) == 1
    client.settle()
    assert client.texts(ENDPOINT) == {"a": "2"}


def test_rule_20_an_unanswered_response_without_news_is_not_repeated(server: Server, client: Client) -> None:
    """A client that never ACKs is not sent the same content again (docs/internals/design.md#response-states)."""
    server.push({ENDPOINT: {"a": "1"}})
    client.subscribe(ENDPOINT, "a")
    server.elapse(3600)
    assert len(client.pending()) == 1
    assert client.stream.deadline() is None


def test_rule_21_only_the_latest_request_needs_an_answer(server: Server, sotw: Client) -> None:
    """Rule 21: "The newest request of a type supersedes older ones"."""
    server.push({ENDPOINT: {"a": "1", "b": "1", "c": "1"}})
    sotw.subscribe(ENDPOINT, "a")
    for names in (["a", "b"], ["a", "b", "c"], ["a", "c"]):
        sotw.request(type_url=ENDPOINT, resource_names=names)
    [send] = sotw.pending()
    sotw.request(type_url=ENDPOINT, response_nonce=send.nonce, resource_names=["a", "c"])
    assert [send.response.names for send in sotw.pending()] == [("a",), ("c",)]


@pytest.mark.parametrize("url", [ENDPOINT, ROUTE, SECRET])
def test_rule_22_no_gratuitous_empty_responses(server: Server, client: Client, url: str) -> None:
    """Rule 22: neither when the last name is unsubscribed, nor when other resources change."""
    server.push({url: {"a": "1", "b": "1"}})
    client.subscribe(url, "a")
    client.settle()
    client.unsubscribe(url, "a")
    server.push({url: {"a": "2", "b": "2"}})
    server.push({url: {}})
    assert not client.pending()


@pytest.mark.parametrize("url", [ENDPOINT, ROUTE, CLUSTER])
def test_rule_23_odd_names_are_no_failure(server: Server, client: Client, url: str) -> None:
    """Rule 23: "Duplicate, empty and unknown names are no error"."""
    server.push({url: {"a": "1"}})
    odd = ["a", "a", "", "unknown", "x" * 10_000]
    if client.variant is Variant.SOTW:
        client.request(type_url=url, resource_names=odd)
    else:
        client.request(type_url=url, resource_names_subscribe=odd)
    assert client.pending()[0].response.names == ("a",)
    assert len(client.pending()) == 1


def test_rule_23_a_list_of_one_empty_name_is_not_a_wildcard(server: Server, client: Client) -> None:
    """Rule 23: the empty name is a name that never exists."""
    server.push({CLUSTER: {"a": "1"}})
    fields = {"resource_names": [""]} if client.variant is Variant.SOTW else {"resource_names_subscribe": [""]}
    client.request(type_url=CLUSTER, **fields)
    assert all(not send.response.names for send in client.pending())


def test_rule_16_each_client_is_judged_by_its_own_nacks(server: Server, connect: Connect) -> None:
    """One client's refusal does not keep the content from others."""
    server.push({CLUSTER: {"c": "1"}})
    one, other = connect("one", peer="1"), connect("other", peer="2")
    for each in (one, other):
        each.subscribe(CLUSTER)
        each.settle()
    server.push({CLUSTER: {"c": "2"}})
    one.nack()
    other.ack()
    assert other.texts(CLUSTER) == {"c": "2"}
    assert [status.state for status in one.stream.status()] == ["nacked"]


def test_the_memory_of_a_silent_client_is_bounded(server: Server, connect: Connect) -> None:
    """Each response that it does not answer may be applied, and names other resources. In the end it is offered all."""
    client = connect()
    server.push({CLUSTER: {"a": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    for number in range(600):
        server.push({CLUSTER: {f"c{number}": "1"}, LISTENER: {}})
        server.elapse(6)
    watch = client.stream._offers.watches[CLUSTER]
    assert len(watch.known.uncertain) <= GONE_LIMIT + 2
    assert max(len(send.response.removed) for send in client.pending()) <= GONE_LIMIT + 2
    while client.pending():
        client.ack()
    assert "c599" in client.texts(CLUSTER)

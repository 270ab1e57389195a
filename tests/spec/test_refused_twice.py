"""The version that takes the place of a rejected resource is rejected too, or a push removes a rejected resource."""

from __future__ import annotations

from time import thread_time

import pytest

from tests.spec.by_hand import DRAINED_S, OFFER_TIMEOUT_S, start
from tests.support.personas import live, spend
from tests.support.sansio import Client, Server
from tests.support.texts import TARGET, joined, push, site
from xds.model.resource_type import CLUSTER, LISTENER, ROUTE
from xds.protocol.dialect import Variant
from xds.protocol.events import Nacked
from xds.protocol.rejections import named_in


@pytest.mark.parametrize("url", [CLUSTER, LISTENER])
def test_a_full_set_has_an_earlier_version_of_a_resource_rejected_twice(server: Server, sotw: Client, url: str) -> None:
    """Left out, it would be deleted. Without an earlier version, nothing is sent until it is repaired."""
    wrong = "Error adding/updating resource(s) b: wrong"
    push(server, {url: {"a": "@1", "b": "@1"}})
    start(sotw, (url,))
    push(server, {url: {"a": "@1", "b": "@2"}})
    sotw.settle()
    push(server, {url: {"a": "@2", "b": "bad"}})
    sotw.nack(url, wrong)
    push(server, {url: {"a": "@3", "b": "bad"}})
    assert sotw.pending()[0].response.resource_set.resources["b"].body == b"b=@2"
    sotw.nack(url, wrong)
    sotw.settle()
    assert sotw.texts(url) == {"a": "@3", "b": "@1"}
    push(server, {url: {"a": "@4", "b": "bad"}})
    sotw.nack(url, wrong)
    push(server, {url: {"a": "@5", "b": "bad"}})
    assert not sotw.pending()
    push(server, {url: {"a": "@5", "b": "@6"}})
    sotw.settle()
    assert sotw.texts(url) == {"a": "@5", "b": "@6"}


def test_streams_do_not_wake_each_other_for_a_rejected_route_that_is_removed(server: Server, variant: Variant) -> None:
    """On separate streams, each told the other for ever that the listener is taken back, and that it is not."""
    client = live(server, variant, site("a"), split=True)
    bad = joined(site("a"), {LISTENER: {TARGET: "r2"}, ROUTE: {"r2": "a bad"}})
    push(server, bad, source="api")
    spend(1, client)
    push(server, {**bad, ROUTE: {"r1": "a"}}, source="api")
    spend(DRAINED_S, client)
    push(server, site("a"), source="api")
    spend(DRAINED_S, client)
    assert client.serving()[LISTENER] == {TARGET: "r1"}


def test_names_in_a_late_nack_are_not_sent_again(server: Server, sotw: Client) -> None:
    """It answers a response that a newer one superseded, so its nonce is stale. The newer one has the resource too."""
    push(server, {ROUTE: {"d": "a", "e": "a"}})
    sotw.subscribe(ROUTE, "a", "d", "e")
    sotw.settle()
    push(server, {ROUTE: {"d": "a @2", "e": "a bad"}})
    server.elapse(6.0)
    push(server, {ROUTE: {"a": "a", "d": "a @2", "e": "a bad"}})
    server.elapse(6.0)
    late, newest = sotw.inbox
    assert set(late[0].response.names) == {"d", "e"} and set(newest[0].response.names) == {"a", "d", "e"}
    sotw.nack(ROUTE, "Error adding/updating resource(s) e: wrong")
    sotw.nack(ROUTE, "cannot be read")
    sent = [*sotw.pending()]
    sotw.settle()
    assert not any("e" in each.response.names for each in sent), "it was named"
    assert sotw.texts(ROUTE) == {"a": "a", "d": "a @2", "e": "a"}


@pytest.mark.parametrize(
    "message",
    [
        "Error adding/updating cluster(s) " + "x" * 4_000_000,
        "Error adding/updating cluster(s) " + ", " * 2_000_000,
        "Error adding/updating cluster(s) " + ": " * 2_000_000,
        "Error adding/updating cluster(s) " + ", ".join(f"c{each}: wrong" for each in range(10_000)),
        ": ".join(["resource index 0"] * 200_000),
        "resource index " + "0" * 4_000_000 + ": ",
    ],
    ids=["long", "list", "colons", "names", "indices", "digits"],
)
def test_a_long_error_message_is_read_once(message: str) -> None:
    """Each of 10,000 names was searched in it: 21 s of the loop for one NACK."""
    names = [f"c{each}" for each in range(10_000)]
    began_s = thread_time()
    found = named_in(message, names)
    assert thread_time() - began_s < 8.0
    assert len(found) == (10_000 if "c1: wrong" in message else 0)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Error adding/updating cluster(s) a: bad: b: c", {"a"}),
        ("Error adding/updating listener(s) a: wrong, b: wrong; d: x\nc: wrong", {"a", "b", "c", "d"}),
        ("xDS response validation errors: [resource index 0: a: no hosts, resource index 12: b: x]", {"a", "b"}),
        ("a: wrong", set()),
        ("Error adding/updating cluster(s) aa: wrong", set()),
    ],
)
def test_names_in_an_error_message_are_read(message: str, found: set[str]) -> None:
    assert named_in(message, ["a", "b", "c", "d"]) == found


def test_the_ack_of_a_superseded_response_tells_what_the_client_has_of_it(server: Server, delta: Client) -> None:
    """Of the newer response, only the other cluster can be bad."""
    push(server, {CLUSTER: {"a": "@1"}})
    delta.subscribe(CLUSTER)
    delta.settle()
    push(server, {CLUSTER: {"a": "@2"}})
    server.elapse(OFFER_TIMEOUT_S)
    push(server, {CLUSTER: {"a": "@2", "x": "bad"}})
    server.elapse(OFFER_TIMEOUT_S)
    assert [send.response.names for send in delta.pending()] == [("a",), ("x", "a")]
    delta.ack()
    server.history = []
    delta.nack()
    assert [event.guilty for _, event in server.history if isinstance(event, Nacked)] == [("x",)]

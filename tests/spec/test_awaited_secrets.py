"""A secret that content in use newly names, and that comes a moment after the listener, cluster or filter.

Envoy drops what it has of a secret that is reported as removed, and what warms replaces what serves.
"""

from __future__ import annotations

import pytest

from tests.spec.by_hand import ORDER_TIMEOUT_S, TYPES, start, told, wait, with_listener
from tests.support.sansio import Client, Server
from tests.support.texts import joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, ROUTE, SECRET
from xds.protocol.dialect import Variant

A = site("a")
SECURE = with_listener(A, "r1 sds:s")
REMOVED = [("secrets", (), ("s",))]


@pytest.fixture
def warming(server: Server, delta: Client) -> Client:
    """A live client whose listener warms for a secret that does not exist."""
    push(server, A)
    start(delta)
    push(server, SECURE)
    delta.settle()
    delta.subscribe(SECRET, "s")
    return delta


def test_a_secret_that_a_listener_newly_names_is_waited_for(server: Server, warming: Client) -> None:
    server.elapse(1)
    assert not told(warming)
    push(server, joined(SECURE, {SECRET: {"s": "@1"}}))
    assert told(warming) == [("secrets", ("s",), ())]
    wait(server, 2 * ORDER_TIMEOUT_S, warming)
    assert warming.texts(SECRET) == {"s": "@1"}


def test_a_missing_secret_is_reported_after_the_order_timeout(server: Server, warming: Client) -> None:
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not told(warming)
    server.elapse(2)
    assert told(warming) == REMOVED


def test_a_missing_secret_is_reported_when_no_listener_names_it_any_more(server: Server, warming: Client) -> None:
    """A client may still ask for it."""
    push(server, A)
    told_names = [send.response.removed for send in warming.settle()]
    assert told_names.count(("s",)) == 1


def test_a_missing_secret_is_reported_to_a_new_client_at_once(server: Server, delta: Client) -> None:
    """It goes live only when it knows of each secret that its listeners name."""
    push(server, SECURE)
    start(delta)
    delta.subscribe(SECRET, "s")
    assert told(delta) == REMOVED


def test_a_missing_secret_that_no_new_listener_names_is_reported_at_once(server: Server, warming: Client) -> None:
    warming.subscribe(SECRET, "other")
    assert told(warming) == [("secrets", (), ("other",))]


IN_USE = {
    "cluster": joined(A, {CLUSTER: {"a": "sds:s"}}),
    "filter": joined(with_listener(A, "r1 ecds:f"), {EXTENSION_CONFIG: {"f": "sds:s"}}),
}


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("user", IN_USE)
def test_a_secret_that_content_in_use_newly_names_is_waited_for(server: Server, split: bool, user: str) -> None:
    after, source = IN_USE[user], "api" if split else "ads"
    before = joined(after, {CLUSTER: {"a": "@1"}}, {EXTENSION_CONFIG: {"f": "@1"}} if user == "filter" else {})
    push(server, before, source=source)
    streams = {url: Client(server, Variant.DELTA, type_url=url if split else "") for url in (*TYPES, EXTENSION_CONFIG)}
    if not split:
        streams = dict.fromkeys(streams, streams[CLUSTER])
    for url, client in streams.items():
        start(client, [url])
    push(server, after, source=source)
    for client in streams.values():
        client.settle()
    asking = Client(server, Variant.DELTA, type_url=SECRET) if split else streams[CLUSTER]
    asking.subscribe(SECRET, "s")
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not told(asking)
    server.elapse(1)
    assert told(asking) == REMOVED
    asking.settle()
    push(server, joined(after, {SECRET: {"s": "@1"}}), source=source)
    assert told(asking) == [("secrets", ("s",), ())]


def test_the_time_of_a_secret_begins_with_its_own_push(server: Server, delta: Client) -> None:
    """Earlier content is held for long, because the client rejects a cluster."""
    push(server, A)
    start(delta)
    held = joined(A, {CLUSTER: {"b": "bad"}, ENDPOINT: {"b": "1"}, ROUTE: {"r1": "b"}})
    push(server, held)
    delta.nack(CLUSTER, "Error adding/updating cluster(s) b: wrong")
    wait(server, 10 * ORDER_TIMEOUT_S, delta)
    push(server, joined(held, {CLUSTER: {"a": "sds:s"}}))
    delta.settle()
    delta.subscribe(SECRET, "s")
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not told(delta)
    server.elapse(2)
    assert told(delta) == REMOVED

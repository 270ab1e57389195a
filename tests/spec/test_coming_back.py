"""What a reconnecting client shows that it holds decides what it is sent, and when (docs/design.md#coming-back)."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import (
    DRAINED_S,
    GRID_S,
    ORDER_TIMEOUT_S,
    REMOVED_S,
    RETURN_S,
    TYPES,
    pending,
    start,
    states,
    told,
    wait,
    with_listener,
)
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Held, Server, make_resource
from tests.support.texts import joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, alias_of
from xds.protocol.dialect import Variant
from xds.protocol.events import AckWaitTimedOut

A, B = site("a"), site("b")


def route_of(client: Client) -> str:
    """Where new requests go."""
    return client.texts(ROUTE)["r1"]


@pytest.mark.parametrize("pushes", [1, 3])
def test_a_client_that_comes_back_is_served_in_order(server: Server, client: Client, pushes: int) -> None:
    """What it shows it holds is the old side of the swap, however many pushes it missed."""
    push(server, A)
    start(client)
    client.disconnect()
    for number in range(pushes):
        push(server, joined(B, {SECRET: {"s": f"@{number}"}}))
    client.reconnect()
    client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    for send in client.pending(ROUTE):
        assert send.response.resource_set.resources["r1"].body == b"r1=a", "answered at once, from what is released"
    while client.pending(ENDPOINT):
        client.ack(ENDPOINT)
    client.settle()
    assert route_of(client) == "b"
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_client_that_comes_back_may_ask_for_its_types_in_any_order(server: Server, client: Client) -> None:
    """On split streams routes may be asked for before clusters: they wait for them all the same."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, B)
    client.reconnect((ROUTE, LISTENER, ENDPOINT, CLUSTER))
    while client.inbox:
        client.ack()
        assert route_of(client) in client.texts(CLUSTER)
    wait(server, REMOVED_S + GRID_S, client)
    assert route_of(client) == "b"
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_client_that_asks_for_routes_only_is_not_kept_waiting(server: Server, client: Client) -> None:
    """Nothing says that it takes clusters here: the types that it may still ask for are awaited for ``return_s``."""
    push(server, A)
    client.subscribe(ROUTE, "r1")
    client.settle()
    client.disconnect()
    push(server, B)
    client.reconnect()
    client.settle()
    assert route_of(client) == "a"
    server.elapse(RETURN_S)
    client.settle()
    assert route_of(client) == "b"


@pytest.mark.parametrize("known", ["remembered", "by-assignment"])
def test_a_client_that_takes_clusters_is_waited_for(server: Server, client: Client, known: str) -> None:
    """New trees wait for the CDS request of a client that subscribed to clusters, `order_timeout_s` at most.

    The server remembers such clients by node id. On an aggregated stream, a client that it does not remember counts as
    one if it requests an assignment that a served or retained cluster refers to.
    """
    push(server, A)
    start(client)
    client.disconnect()
    if known == "by-assignment":
        server.restart()
    push(server, joined(A, B))
    client.connect()
    for held in client.types.values():
        held.nonce, held.nonces = "", set()
    for url in (ENDPOINT, LISTENER, ROUTE):
        client._resume(url, client.types[url])
    while client.inbox:
        client.ack()
    server.elapse(ORDER_TIMEOUT_S - 1)
    client.settle()
    assert route_of(client) == "a"
    server.elapse(2)
    client.settle()
    assert route_of(client) == "b"
    assert [event for event in client.events if isinstance(event, AckWaitTimedOut)]


def test_a_client_that_asks_for_all_it_took_ends_no_wait(server: Server, client: Client) -> None:
    """``AckWaitTimedOut`` is for operators: something was served without proof. Here nothing was."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, B)
    client.reconnect()
    wait(server, ORDER_TIMEOUT_S, client)
    assert route_of(client) == "b"
    assert not [event for event in client.events if isinstance(event, AckWaitTimedOut)]


def test_a_client_that_comes_back_to_what_it_left_is_sent_nothing_anew(server: Server, delta: Client) -> None:
    """Nothing changed while it was away; a wildcard is answered all the same, with nothing (rule 64)."""
    push(server, A)
    start(delta, (CLUSTER, LISTENER, ROUTE))
    delta.reconnect()
    assert told(delta) == [("clusters", (), ()), ("listeners", (), ())]


def test_a_client_that_left_amid_a_swap_is_served_in_order(server: Server, client: Client) -> None:
    """What it shows is neither the one nor the other: a mixed set, whose hash tells which."""
    push(server, A)
    start(client)
    push(server, B)
    client.ack(CLUSTER)
    client.disconnect()
    client.reconnect()
    if client.pending(CLUSTER):
        client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    client.settle()
    assert route_of(client) == "b"
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


# -- what lingers over a reconnect -------------------------------------------------------------------------------------


def test_what_lingers_keeps_its_end_over_a_reconnect(server: Server, client: Client) -> None:
    """However often the connection is cut: the end belongs to the node id."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    client.settle()
    for _ in range(6):
        wait(server, 100, client)
        client.reconnect()
    client.settle()
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_what_lingered_at_a_restart_stays_for_the_drain_time_again(server: Server, client: Client) -> None:
    """After a restart of the server, lingering lasts at most twice the drain time."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    wait(server, 300, client)
    client.disconnect()
    server.restart()
    client.reconnect()
    client.settle()
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, 315, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}, "nobody knows since when it drains"
    wait(server, 2 * DRAINED_S - 315, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_new_process_knows_how_ever_many_names_linger(server: Server, client: Client) -> None:
    """Beyond some dozen names, their combinations were too many to find the set that a SotW client shows."""
    for number in range(4):
        push(server, joined(A, {CLUSTER: {f"x{number}-{each}": "static" for each in range(20)}}))
        if not number:
            start(client)
        client.settle()
    push(server, with_listener(B, "r1 @2"))
    client.settle()
    assert len(client.texts(CLUSTER)) == 82
    client.disconnect()
    server.restart()
    push(server, site("c"))
    client.reconnect()
    client.ack(CLUSTER)
    assert route_of(client) in client.texts(CLUSTER)
    client.settle()
    assert (route_of(client), len(client.texts(CLUSTER))) == ("c", 83)


def test_a_new_process_knows_which_of_many_changed_clusters_was_rejected(server: Server, sotw: Client) -> None:
    """The rejected one is as it was accepted, and another one lingers: the client shows a set that was never pushed."""
    push(server, joined(A, {CLUSTER: {f"x{each}": "static" for each in range(18)}}))
    start(sotw)
    changed = {CLUSTER: {f"x{each}": "static @2" for each in range(18)}}
    push(server, joined(with_listener(B, "r1 @2"), changed))
    sotw.nack(CLUSTER, "Error adding/updating cluster(s) x17: wrong")
    push(server, joined(with_listener(B, "r1 @2"), changed, {CLUSTER: {"y": "static"}}))
    sotw.settle()
    assert route_of(sotw) == "b"
    assert {sotw.texts(CLUSTER)[each] for each in ("x16", "x17")} == {"static @2", "static"}
    sotw.disconnect()
    server.restart()
    push(server, site("c"))
    sotw.reconnect()
    sotw.ack(CLUSTER)
    assert {"b", "x17"} <= sotw.texts(CLUSTER).keys(), "what it shows that it holds lingers"
    sotw.settle()
    assert route_of(sotw) == "c"


def test_what_was_pushed_away_meanwhile_lingers(server: Server, client: Client) -> None:
    """The drain of a client that was away begins when it has taken the new listener."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, with_listener(B, "r1 @2"))
    server.elapse(500)
    client.reconnect()
    wait(server, 600, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


# -- what it shows that nobody knows -----------------------------------------------------------------------------------


def test_a_client_of_another_server_is_told_of_no_removal_before_its_clusters_are_shown(
    server: Server, connect: Connect
) -> None:
    """Content of another server is unknown content."""
    other = Server()
    push(other, site("foreign", route="r9"), label="of elsewhere")
    client = Client(other, connect().variant)
    client.subscribe(ROUTE, "r1", "r9")
    start(client, (CLUSTER, LISTENER))
    client.disconnect()
    push(server, B)
    client.server = server
    client.reconnect((LISTENER, ROUTE, CLUSTER))
    client.ack(CLUSTER)
    if client.variant is Variant.DELTA:
        assert set(client.texts(CLUSTER)) == {"b", "foreign"}, "it is not told as removed yet"
    else:
        assert set(client.texts(CLUSTER)) == {"b"}, "SotW can only be sent what is known"
    wait(server, 2 * DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}
    assert client.texts(LISTENER) == B[LISTENER]
    assert states(client) == {"synced"}


@pytest.mark.parametrize("label", ["2", "2+00000000", "blue"])
def test_a_label_counts_only_with_the_hash_of_what_is_served(server: Server, sotw: Client, label: str) -> None:
    """In SotW: it has 8 hex digits of the served set, and the set that is rebuilt from it must have that hash."""
    for text in ("@1", "@2", "@3"):
        push(server, joined(A, {LISTENER: {"svc": f"r1 {text}"}}))
    sotw.types = {url: Held(version_info=label) for url in (LISTENER, CLUSTER)}
    sotw.subscribe(LISTENER)
    sotw.subscribe(CLUSTER)
    wait(server, ORDER_TIMEOUT_S + 1, sotw)
    assert sotw.texts(LISTENER) == {"svc": "r1 @3"}
    assert not sotw.stream._require_client().lingering


def test_a_callers_own_label_stands_for_history_where_it_is_there_once(server: Server, sotw: Client) -> None:
    """The server serves a caller's own label as it was given."""
    push(server, A, label="blue")
    push(server, B, label="green")
    push(server, site("c"), label="green")
    sotw.request(type_url=CLUSTER, version_info="blue")
    assert set(sotw.pending()[0].response.names) == {"a", "c"}
    other = Client(server, Variant.SOTW, "other", peer="other")
    other.request(type_url=CLUSTER, version_info="green")
    assert set(other.pending()[0].response.names) == {"c"}


def test_a_client_whose_revision_is_not_retained_ends_in_step(server: Server, client: Client) -> None:
    """Nothing is missed, whatever it shows."""
    push(server, A)
    start(client)
    client.disconnect()
    for number in range(20):
        push(server, joined(B, {CLUSTER: {"b": f"@{number}"}}))
    client.reconnect()
    wait(server, 2 * DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@19"}
    assert route_of(client) == "b"


@pytest.mark.parametrize("url", [CLUSTER, ENDPOINT])
def test_versions_that_nobody_knows_are_told_as_removed_when_what_lingers_ends(
    server: Server, delta: Client, url: str
) -> None:
    """In Delta: an unknown name in `initial_resource_versions` is not reported as removed before lingering ends (trap
    9)."""
    push(server, {url: {"a": "1"}})
    push(server, {url: {"a": "2"}})
    shown = {"a": make_resource(url, "a", "1").version, "x": "unheard of"}
    delta.request(type_url=url, resource_names_subscribe=["a", "x"], initial_resource_versions=shown)
    assert not [gone for _, _, gone in told(delta) if gone]
    wait(server, 1, delta)
    server.elapse(2 * DRAINED_S)
    assert told(delta) == [(alias_of(url), (), ("x",))]


def test_a_stream_of_its_own_for_each_type_comes_back_in_any_order(server: Server, connect: Connect) -> None:
    """On separate streams too, routes wait for the clusters of a client that has `return_s` to request them."""
    push(server, A, source="api")
    names = {ENDPOINT: ("a", "b"), ROUTE: ("r1",)}
    streams = {url: connect(type_url=url) for url in TYPES}
    for url, stream in streams.items():
        stream.subscribe(url, *names.get(url, ()))
    for stream in streams.values():
        stream.settle()
    for stream in streams.values():
        stream.disconnect()
    push(server, B, source="api")
    for url in (ROUTE, LISTENER, CLUSTER, ENDPOINT):
        streams[url].reconnect()
        streams[url].settle()
        assert url == ENDPOINT or route_of(streams[ROUTE]) == "a"
    wait(server, 60, *streams.values())
    assert route_of(streams[ROUTE]) == "b"
    assert streams[CLUSTER].texts(CLUSTER) == {"b": "@1"}
    assert not pending(streams[CLUSTER])


def _early(server: Server, variant: Variant, *, names: str) -> Client:
    """A stream for routes, of a client that has no other one."""
    early = Client(server, variant, type_url=ROUTE)
    early.subscribe(ROUTE, names)
    return early


def test_an_early_stream_waits_until_it_is_known_what_its_client_has(server: Server, variant: Variant) -> None:
    """On streams of its own Envoy asks for routes when it has listeners: this one was here before."""
    push(server, A, source="api")
    listeners = Client(server, variant, type_url=LISTENER)
    listeners.subscribe(LISTENER)
    clusters = Client(server, variant, type_url=CLUSTER)
    clusters.subscribe(CLUSTER)
    listeners.ack()
    clusters.ack()
    listeners.disconnect()
    clusters.disconnect()
    push(server, B, source="api")
    server.restart()
    early = _early(server, variant, names="r1")
    assert not early.inbox
    clusters.reconnect()
    assert early.texts(ROUTE) == {} and len(early.inbox) == 1
    early.ack()
    assert early.texts(ROUTE) == {"r1": "a"}, "the client has no cluster b yet"


def test_an_early_stream_of_a_client_with_other_listeners_waits_for_a_moment(server: Server, variant: Variant) -> None:
    push(server, A, source="api")
    early = _early(server, variant, names="r1")
    assert not early.inbox
    server.elapse(RETURN_S)
    early.ack()
    assert early.texts(ROUTE) == {"r1": "a"}


def test_an_early_stream_of_a_client_with_other_listeners_is_answered_at_once_where_no_listener_names_it(
    server: Server, variant: Variant
) -> None:
    push(server, {**A, LISTENER: {}}, source="api")
    early = _early(server, variant, names="r1")
    early.ack()
    assert early.texts(ROUTE) == {"r1": "a"}

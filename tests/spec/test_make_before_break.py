"""New resources wait for what they refer to, listener tree by listener tree (docs/internals/design.md#additions)."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import ORDER_TIMEOUT_S, TYPES, pending, start, states, told, wait, with_listener
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server, make_resource
from tests.support.texts import TARGET, joined, push, resources_of, site
from xds.model.resource import Reference
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    alias_of,
)
from xds.protocol.dialect import Variant
from xds.protocol.events import Acked, HoldChanged, TransitionAdvanced

A, B = site("a"), site("b")


def test_endpoints_secrets_and_runtimes_never_wait(server: Server, client: Client) -> None:
    """They are sent beside a cluster that is not acknowledged."""
    push(server, joined(A, {SECRET: {"s": "@1"}, RUNTIME: {"layer": "@1"}}))
    start(client, (RUNTIME, SECRET, *TYPES))
    push(server, joined(B, {SECRET: {"s": "@2"}, RUNTIME: {"layer": "@2"}}))
    assert pending(client) == ["runtimes", "secrets", "clusters", "endpoints"]


def test_endpoints_flow_while_everything_else_waits(server: Server, client: Client) -> None:
    """New endpoints of clusters in use are sent while a transition waits."""
    push(server, joined(A, {SECRET: {"s": "@1"}}))
    start(client, (*TYPES, SECRET))
    push(server, joined(B, {SECRET: {"s": "@1"}}))
    client.ack(ENDPOINT)
    push(server, joined(B, {SECRET: {"s": "@2"}, ENDPOINT: {"b": "2"}}))
    assert pending(client) == ["clusters", "secrets", "endpoints"]
    assert [send.response.names for send in client.pending(ENDPOINT)] == [("b",)]


# -- the tree waits for its clusters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [LISTENER, ROUTE, SCOPED_ROUTE, EXTENSION_CONFIG, VIRTUAL_HOST])
def test_routes_to_a_new_cluster_wait_for_the_cds_ack(server: Server, client: Client, url: str) -> None:
    """Whatever type of the tree refers to it."""
    if url == VIRTUAL_HOST and client.variant is Variant.SOTW:
        return  # VHDS is Delta only (rule 1)

    def publish(text: str, *clusters: str) -> None:
        leads = tuple(Reference(CLUSTER, name) for name in clusters)
        made = [
            make_resource(url, "r/x", text, references=leads),
            *resources_of({CLUSTER: dict.fromkeys(clusters, "@1")}),
        ]
        server.push_resources(made)

    publish("1", "a")
    client.subscribe(CLUSTER)
    client.subscribe(url, "r/x")
    client.settle()
    publish("2", "a")
    assert pending(client) == [alias_of(url)]
    client.settle()
    publish("3", "a", "b")
    assert pending(client) == ["clusters"]
    client.ack(CLUSTER)
    assert pending(client) == [alias_of(url)]


def test_a_listener_waits_for_the_clusters_of_its_routes(server: Server, client: Client) -> None:
    """A listener and what it refers to are one tree: scopes, routes, virtual hosts and extension configurations."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    client.ack(ENDPOINT)
    assert pending(client) == ["clusters"]
    client.ack(CLUSTER)
    assert pending(client) == ["listeners"]


def test_trees_without_new_clusters_do_not_wait(server: Server, client: Client) -> None:
    """One push has two releases: other trees at once, and those that refer to new clusters at the CDS ACK."""
    other = site("a", name="other", route="r2")
    push(server, joined(A, other))
    client.subscribe(ROUTE, "r1", "r2")
    start(client)
    content = joined(A, other, {ROUTE: {"r1": "b", "r2": "a @2"}, CLUSTER: {"b": "@1"}, ENDPOINT: {"b": "1"}})
    push(server, content)
    assert [names for alias, names, _ in told(client) if alias == "routes"] == [("r2",)]
    client.settle()
    assert client.texts(ROUTE) == content[ROUTE]


def test_trees_that_share_a_part_are_one(server: Server, client: Client) -> None:
    """Two listeners with one route configuration: neither goes without the other."""
    both = joined(A, {LISTENER: {"other": "r1"}})
    push(server, both)
    start(client)
    push(server, joined(B, {LISTENER: {TARGET: "r1 @2", "other": "r1 @2"}}))
    client.ack(ENDPOINT)
    assert pending(client) == ["clusters"]
    client.ack(CLUSTER)
    assert told(client) == [("listeners", client.pending()[0].response.names, ())]
    assert {TARGET, "other"} <= set(client.pending()[0].response.names)


def test_a_type_that_a_push_does_not_touch_is_not_waited_for(server: Server, client: Client) -> None:
    """Rule 47: "Types whose parents did not change are pushed independently"."""
    push(server, A)
    start(client)
    push(server, joined(A, {ROUTE: {"r1": "a @2"}}))
    assert pending(client) == ["routes"]


def test_a_type_that_the_client_does_not_request_is_not_waited_for(server: Server, client: Client) -> None:
    """A client of routes only is not held by clusters that it never asked for."""
    push(server, A)
    start(client, (ROUTE,))
    push(server, B)
    assert pending(client) == ["routes"]


def test_clusters_outside_of_the_snapshot_are_not_waited_for(server: Server, client: Client) -> None:
    """They may be static in the bootstrap."""
    push(server, A)
    start(client)
    push(server, joined(A, {ROUTE: {"r1": "bootstrap"}}))
    assert pending(client) == ["routes"]


# -- within a tree -----------------------------------------------------------------------------------------------------


def test_routes_wait_for_the_listener_that_names_them(server: Server, client: Client) -> None:
    """ECDS and LDS come first. SRDS, RDS and VHDS follow when everything that the listener newly names is ACKed."""
    push(server, joined(A, {EXTENSION_CONFIG: {"f": "@1"}, LISTENER: {TARGET: "r1 ecds:f"}}))
    start(client, (*TYPES, EXTENSION_CONFIG))
    push(server, joined(A, {EXTENSION_CONFIG: {"f": "@2"}, LISTENER: {TARGET: "r1 ecds:f @2"}, ROUTE: {"r1": "a @2"}}))
    assert pending(client) == ["extension_configs"]
    client.ack(EXTENSION_CONFIG)
    assert pending(client) == ["listeners"]
    client.ack(LISTENER)
    assert pending(client) == ["routes"]


def test_a_listener_is_sent_with_a_filter_that_it_newly_names(server: Server, client: Client) -> None:
    """It warms for that. One that changes is in use at once, or refused."""
    push(server, A)
    start(client)
    push(server, joined(A, {EXTENSION_CONFIG: {"f": "@1"}, LISTENER: {TARGET: "r1 ecds:f"}, ROUTE: {"r1": "a @2"}}))
    assert pending(client) == ["listeners"]
    client.ack(LISTENER)
    client.subscribe(EXTENSION_CONFIG, "f")
    assert pending(client) == ["extension_configs"]
    client.ack(EXTENSION_CONFIG)
    assert pending(client) == ["routes"]


def test_routes_wait_for_the_resources_that_their_listener_newly_names(server: Server, client: Client) -> None:
    """The listener warms until that is ACKed, and the old one serves."""
    push(server, A)
    start(client, (*TYPES, SECRET))
    push(server, joined(A, {LISTENER: {TARGET: "r1 authz sds:s"}, ROUTE: {"r1": "a /admin"}, SECRET: {"s": "@1"}}))
    assert pending(client) == ["secrets", "listeners"]
    client.ack(LISTENER)
    assert pending(client) == ["secrets"]
    client.ack(SECRET)
    assert pending(client) == ["secrets"], "once more behind the listener, which the client has subscribed for since"
    client.ack(SECRET)
    assert pending(client) == ["routes"]


def test_resources_that_a_listener_newly_names_are_waited_for_up_to_the_order_timeout(
    server: Server, client: Client
) -> None:
    """A name that never comes ends the wait after `order_timeout_s`."""
    push(server, A)
    start(client)
    push(server, joined(A, {LISTENER: {TARGET: "r1 sds:none"}, ROUTE: {"r1": "a @2"}}))
    client.ack(LISTENER)
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not client.pending()
    server.elapse(2)
    assert pending(client) == ["routes"]


def test_a_new_route_configuration_is_answered_while_its_listener_warms(server: Server, client: Client) -> None:
    """The listener waits for it, so it is answered at once."""
    push(server, A)
    start(client)
    push(server, site("a", route="r2"))
    client.ack(LISTENER)
    assert not client.pending()
    client.subscribe(ROUTE, "r2")
    assert [send.response.names for send in client.pending(ROUTE)] == [("r2",)]


def test_listeners_are_replaced_within_one_response(server: Server, sotw: Client) -> None:
    """Envoy would refuse two listeners on one address."""
    push(server, site("a", name="old"))
    start(sotw)
    push(server, site("a", name="new"))
    assert [send.response.names for send in sotw.pending()] == [("new",)]


def test_a_listener_replaces_another_in_one_response(server: Server, client: Client) -> None:
    """The old one serves until the new one may come: it is not taken away first."""
    push(server, site("a", name="old"))
    start(client)
    push(server, site("b", name="new"))
    client.ack(ENDPOINT)
    assert pending(client) == ["clusters"]
    client.ack(CLUSTER)
    [send] = client.pending(LISTENER)
    assert "new" in send.response.names
    client.settle()
    assert client.texts(LISTENER) == {"new": "r1"}


def test_aggregates_are_sent_after_their_members(server: Server, client: Client) -> None:
    """New members are sent beside the old aggregate cluster, then the new aggregate, then removals."""
    whole = {CLUSTER: {"whole": "of:a"}}
    push(server, joined(site("a", listener="to:whole"), whole))
    start(client)
    push(server, joined(site("b", listener="to:whole"), {CLUSTER: {"whole": "of:b"}}))
    client.ack(ENDPOINT)
    client.ack(CLUSTER)
    assert client.texts(CLUSTER) == {"whole": "of:a", "a": "@1", "b": "@1"}
    client.settle()
    assert client.texts(CLUSTER) == {"whole": "of:b", "a": "@1", "b": "@1"}
    wait(server, 3600, client)
    assert client.texts(CLUSTER) == {"whole": "of:b", "b": "@1"}


# -- requests meanwhile ------------------------------------------------------------------------------------------------


def test_a_request_amid_a_transition_is_answered_at_once(server: Server, client: Client) -> None:
    """The client needs the name for content that it holds, and gets it from the content released to it."""
    push(server, joined(A, {ROUTE: {"q": "a"}}))
    start(client)
    push(server, joined(B, {ROUTE: {"q": "b"}}))
    client.subscribe(ROUTE, "q")
    client.ack(ROUTE)
    assert client.texts(ROUTE)["q"] == "a"
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b", "q": "b"}


def test_a_name_of_a_held_tree_is_missing_when_it_is_held_for_long(server: Server, client: Client) -> None:
    """It is reported as missing after `order_timeout_s`, and sent when the tree is released."""
    push(server, A)
    start(client)
    push(server, joined(B, {ROUTE: {"new": "b"}}))
    client.subscribe(ROUTE, "new")
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not client.pending(ROUTE)
    server.elapse(2)
    if client.variant is Variant.DELTA:  # SotW has no word for it (rule 38)
        assert [send.response.removed for send in client.pending(ROUTE)] == [("new",)]
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b", "new": "b"}


# -- pushes meanwhile --------------------------------------------------------------------------------------------------


def test_only_responses_without_an_ack_are_pinned(server: Server, client: Client) -> None:
    """Whatever differs between the content released to this client and the newest snapshot may be sent."""
    push(server, A)
    start(client)
    push(server, B)
    push(server, joined(site("c"), {ROUTE: {"r1": "c @never"}}))
    push(server, site("c"))
    client.settle()
    acked = [event.response for event in client.events if isinstance(event, Acked) and event.type_url == ROUTE]
    assert [response.resource_set.resources["r1"].body for response in acked] == [b"r1=a", b"r1=c"]
    assert set(client.texts(CLUSTER)) == {"a", "c"}, "b was never ACKed, so that nothing of it is in use"
    wait(server, 60, client)
    assert client.texts(CLUSTER) == {"c": "@1"}


def test_a_newer_cds_response_is_sent_when_the_older_one_was_read(server: Server, client: Client) -> None:
    """A CDS response counts as read when the client answers something that was sent after it."""
    push(server, A)
    start(client)
    push(server, B)
    push(server, joined(B, site("c", name="other", route="r2")))
    assert pending(client) == ["clusters", "endpoints"]
    client.ack(ENDPOINT)
    assert pending(client) == ["clusters", "clusters", "endpoints"]
    assert "c" in client.pending(CLUSTER)[1].response.names


def test_no_route_refers_to_a_cluster_that_the_client_lacks(server: Server, client: Client) -> None:
    """Rule 48: listeners of one push are never beside clusters of the one before, whatever is pushed in between."""
    push(server, A)
    start(client)
    for name in ("b", "c", "a", "c"):
        push(server, with_listener(site(name), f"r1 @{name}"))
        for _ in range(2):
            if client.inbox:
                client.ack()
            assert client.texts(ROUTE)["r1"] in client.texts(CLUSTER)
    while client.inbox:
        client.ack()
        assert client.texts(ROUTE)["r1"] in client.texts(CLUSTER)
    wait(server, 700, client)
    assert client.texts(CLUSTER) == {"c": "@1"}


def test_without_removals_a_push_makes_one_response_per_type(server: Server, client: Client) -> None:
    """What is pushed is sent once, under the label of the push."""
    push(server, A, label="one")
    start(client)
    before = len(client.types[CLUSTER].nonces)
    content = joined(with_listener(A, "r1 @2"), {CLUSTER: {"a": "@2", "b": "@1"}, ROUTE: {"r1": "a @2"}})
    push(server, content, label="two")
    client.settle()
    assert len(client.types[CLUSTER].nonces) == before + 1
    acked = {status.type_url: status.version_acked for status in client.stream.status()}
    assert acked == {CLUSTER: "two", ENDPOINT: "one", LISTENER: "two", ROUTE: "two"}


# -- who is told what --------------------------------------------------------------------------------------------------


def test_a_held_tree_is_shown_as_held(server: Server, client: Client) -> None:
    """`apply --wait` shows it too."""
    push(server, A)
    start(client)
    push(server, B)
    [hold] = [event.held for event in client.events if isinstance(event, HoldChanged)]
    assert [(dict(each.names), each.waits_for) for each in hold] == [({ROUTE: frozenset(["r1"])}, ("b",))]
    statuses = {status.type_url: status for status in client.stream.status()}
    assert statuses[ROUTE].held_back and statuses[ROUTE].state == "pending"
    client.settle()
    assert [event.held for event in client.events if isinstance(event, HoldChanged)][-1] == ()
    assert states(client) == {"synced"}


def test_streams_of_other_clients_are_not_waited_for(server: Server, connect: Connect) -> None:
    """A client is a peer address and a node id: two proxies with one node id have separate states."""
    push(server, A)
    slow, peer, node = connect(), connect(peer="elsewhere"), connect("another node")
    for client in (slow, peer, node):
        start(client)
    push(server, B)
    for client in (peer, node):
        client.settle()
        assert client.texts(ROUTE) == {"r1": "b"}
    assert slow.texts(ROUTE) == {"r1": "a"}


def test_split_streams_of_a_client_are_ordered_as_one(server: Server, connect: Connect) -> None:
    """Off ADS the CDS ACK does not say that a cluster is warm: its assignment is ACKed too, for the offer timeout."""
    push(server, A, source="api")
    streams = {url: connect(type_url=url) for url in TYPES}
    for url, stream in streams.items():
        stream.subscribe(url, *{ENDPOINT: ("a",), ROUTE: ("r1",)}.get(url, ()))
        stream.settle()
    push(server, B, source="api")
    streams[CLUSTER].settle()
    assert not streams[ROUTE].pending()
    endpoints = connect(type_url=ENDPOINT)
    endpoints.subscribe(ENDPOINT, "b")
    assert not streams[ROUTE].pending()
    endpoints.settle()
    wait(server, 4, endpoints)
    assert not streams[ROUTE].pending(), "nothing tells when the other streams have read what was sent to them"
    wait(server, 2, endpoints)
    assert streams[ROUTE].pending()
    told = [event for each in (*streams.values(), endpoints) for event in each.events]
    assert [event for event in told if isinstance(event, TransitionAdvanced)]
    streams[ROUTE].settle()
    wait(server, 60, *streams.values(), endpoints)
    assert streams[CLUSTER].texts(CLUSTER) == {"b": "@1"}


def test_a_stream_that_ends_is_not_waited_for(server: Server, connect: Connect) -> None:
    """A CDS stream that dies in the middle does not hold the others: they go on when it had time to come back."""
    push(server, A)
    clusters, rest = connect(), connect()
    start(clusters, (CLUSTER,))
    start(rest, (LISTENER, ROUTE))
    push(server, B)
    assert not rest.pending()
    clusters.disconnect()
    server.elapse(ORDER_TIMEOUT_S + 1)
    assert pending(rest) == ["routes"]


def test_everything_at_once_when_the_order_is_off() -> None:
    """The end-to-end test of the order must bite: without it, all goes out together."""
    server = Server(ordered=False)
    push(server, A, label="one")
    client = start(Client(server, Variant.SOTW))
    push(server, with_listener(B, "r1 @2"), label="two")
    assert pending(client) == ["clusters", "endpoints", "listeners", "routes"]
    assert {send.response.version_info for send in client.pending()} == {"two"}

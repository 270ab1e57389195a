"""Assignments are sent after the clusters that warm; their ACKs prove that a cluster is warm (rule 43)."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import OFFER_TIMEOUT_S, ORDER_TIMEOUT_S, TYPES, pending, start, told, wait
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server, make_resource
from tests.support.texts import TARGET, Site, joined, push, site
from xds.model.resource import Reference, Resource
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    alias_of,
)
from xds.protocol.dialect import Variant
from xds.protocol.events import AckWaitTimedOut

A = site("a")
AB: Site = {CLUSTER: {"a": "@1", "b": "@1"}, ENDPOINT: {"a": "1", "b": "1"}}


# -- assignments go out behind their clusters --------------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["2", "1"], ids=["cluster-and-assignment", "cluster-only"])
def test_the_assignment_is_sent_right_behind_its_changed_cluster(server: Server, client: Client, changed: str) -> None:
    """It is sent even if it did not change (rule 43)."""
    push(server, AB)
    start(client, (CLUSTER, ENDPOINT))
    push(server, joined(AB, {CLUSTER: {"a": "@2"}, ENDPOINT: {"a": changed}}))
    assert pending(client) == ["clusters", "endpoints"]
    assert client.pending(ENDPOINT)[0].response.names == ("a",)


def test_the_assignment_of_an_unchanged_cluster_is_not_sent(server: Server, client: Client) -> None:
    """A cluster that is sent again unchanged does not warm (docs/internals/clients.md#warming)."""
    push(server, {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    start(client, (CLUSTER, ENDPOINT))
    push(server, {CLUSTER: {"a": "@1", "x": "@1"}, ENDPOINT: {"a": "1"}})
    assert pending(client) == ["clusters"]


def test_the_assignment_is_sent_behind_a_cluster_changed_while_away(server: Server, delta: Client) -> None:
    """A Delta client may not request it after a reconnect (rule 43): it is sent once, with all that was requested."""
    push(server, AB)
    start(delta, (CLUSTER, ENDPOINT))
    delta.disconnect()
    push(server, joined(AB, {CLUSTER: {"a": "@2"}}))
    delta.reconnect()
    assert [(alias, names) for alias, names, _ in told(delta)] == [("clusters", ("a",)), ("endpoints", ("a", "b"))]
    assert not [send for send in delta.settle() if send.type_url == ENDPOINT][1:]


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "unanswered"])
def test_the_assignment_is_sent_behind_a_cluster_that_changes_back(
    server: Server, delta: Client, refused: bool
) -> None:
    """Rules 18 and 43: a cluster of a response that was refused, or not answered, may be active, and warms when it
    changes back. Only Delta: a SotW client asks again."""
    push(server, {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    start(delta, (CLUSTER, ENDPOINT))
    push(server, {CLUSTER: {"a": "@2", "b": "@1"}, ENDPOINT: {"a": "1"}})
    delta.ack(ENDPOINT)
    if refused:
        delta.nack(CLUSTER)
        while delta.pending(CLUSTER):  # halves of the suspects are tried: none is taken
            delta.nack(CLUSTER)
    while delta.pending(ENDPOINT):
        delta.ack(ENDPOINT)
    push(server, {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    server.elapse(OFFER_TIMEOUT_S + 1)
    if refused:
        assert not delta.pending(), "each was refused alone: its client kept what it had"
        return
    assert "a" in delta.pending(CLUSTER)[-1].response.names
    assert [send.response.names for send in delta.pending(ENDPOINT)] == [("a",)]


def test_a_cluster_that_may_have_been_applied_of_a_rejected_response_is_sent_again_with_its_assignment(
    server: Server, delta: Client
) -> None:
    """Rule 18, while nobody knows which of several was refused: each may be active in its new version."""
    push(server, AB)
    start(delta, (CLUSTER, ENDPOINT))
    push(server, joined(AB, {CLUSTER: {"a": "@2", "b": "@2"}}))
    delta.ack(ENDPOINT)
    push(server, AB, wake=False)
    delta.nack(CLUSTER)
    delta.wake()
    for _ in range(4):
        sends = delta.pending(CLUSTER)
        if sends and sends[-1].response.resource_set.resources["a"].body == b"a=@1":
            break
        delta.ack()
    assert set(sends[-1].response.names) == {"a", "b"}
    assert set(delta.pending(ENDPOINT)[-1].response.names) == {"a", "b"}


def test_the_repeated_request_of_a_warming_cluster_is_answered_once(server: Server, sotw: Client) -> None:
    """In SotW, Envoy requests EDS again after CDS, and the request equals its last ACK (rule 43)."""
    push(server, {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    sotw.subscribe(CLUSTER)
    sotw.subscribe(ENDPOINT, "a")
    sotw.ack(ENDPOINT)
    sotw.ack(CLUSTER)
    sotw.repeat(ENDPOINT)
    assert not sotw.pending()
    push(server, {CLUSTER: {"a": "@2"}, ENDPOINT: {"a": "1"}})
    sotw.ack(ENDPOINT)
    sotw.repeat(ENDPOINT)
    assert pending(sotw) == ["clusters"]


# -- what is named by another config source ----------------------------------------------------------------------------

NAMED: Site = {
    CLUSTER: {"a": "static sds:s"},
    LISTENER: {TARGET: "r1 sds:s ecds:f"},
    SECRET: {"s": "1"},
    EXTENSION_CONFIG: {"f": "1"},
    ROUTE: {"r1": "a"},
}
NAMING_TYPES = (CLUSTER, LISTENER, SECRET, EXTENSION_CONFIG, ROUTE)


@pytest.mark.parametrize(
    ("child", "changed"),
    [(SECRET, {CLUSTER: {"a": "static sds:s @2"}}), (ROUTE, {LISTENER: {TARGET: "r1 sds:s ecds:f @2"}})],
    ids=["secret", "route"],
)
def test_the_repeated_request_after_a_changed_parent_is_answered_once(
    server: Server, sotw: Client, child: str, changed: Site
) -> None:
    """Rules 14 and 43: the server cannot read all that a cluster or a listener waits for, but Envoy asks for it."""
    push(server, NAMED)
    start(sotw, NAMING_TYPES)
    push(server, joined(NAMED, changed))
    sotw.ack()
    sotw.repeat(child)
    (answer,) = sotw.pending()
    assert (answer.type_url, set(answer.response.names)) == (child, set(NAMED[child]))
    sotw.ack()
    sotw.repeat(child)
    assert not sotw.pending(), "it was answered"


@pytest.mark.parametrize("is_away", [False, True], ids=["connected", "away"])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({CLUSTER: {"a": "static sds:s other"}}, {"secrets"}),
        ({CLUSTER: {"c": "static sds:s other"}}, {"secrets"}),
        ({LISTENER: {TARGET: "r1 sds:s ecds:f other"}}, {"secrets", "extension_configs", "routes"}),
        ({LISTENER: {"second": "r1 sds:s ecds:f other"}}, {"secrets", "extension_configs", "routes"}),
    ],
    ids=["cluster", "second-cluster", "listener", "second-listener"],
)
def test_a_resource_named_by_another_config_source_is_sent_once_more(
    server: Server, delta: Client, changed: Site, expected: set[str], is_away: bool
) -> None:
    """Behind the resource that names it, and in the version that the client has."""
    push(server, NAMED)
    start(delta, NAMING_TYPES)
    if is_away:
        delta.disconnect()
    push(server, joined(NAMED, changed))
    if is_away:
        delta.reconnect((CLUSTER, LISTENER, SECRET, EXTENSION_CONFIG, ROUTE))
    (parent,) = changed
    sends = [send for send in delta.settle() if send.response.names]
    behind = sends[[send.type_url for send in sends].index(parent) :]
    assert {alias_of(send.type_url) for send in behind if send.type_url != parent} == expected
    assert not delta.settle(), "once"


def test_a_wildcard_by_another_config_source_is_sent_once_more_with_the_resources_that_it_names(
    server: Server, client: Client
) -> None:
    """Scoped routes, even if there are none, and in Delta the route configurations of the scopes."""
    listener, scope = (Reference(SCOPED_ROUTE, "*", "ads", 1),), (Reference(ROUTE, "r1"),)
    others = [
        make_resource(SCOPED_ROUTE, "s", "1", references=scope),
        make_resource(ROUTE, "r1", "1", references=()),
    ]
    server.push_resources([make_resource(LISTENER, "l", "1", references=listener), *others])
    for url, names in ((LISTENER, ()), (SCOPED_ROUTE, ()), (ROUTE, ("r1",))):
        client.subscribe(url, *names)
    client.settle()
    second = (Reference(SCOPED_ROUTE, "*", "ads", 2),)
    server.push_resources([make_resource(LISTENER, "l", "2", references=second), *others])
    assert [(alias_of(send.type_url), send.response.names) for send in client.settle()] == [
        ("listeners", ("l",)),
        ("scoped_routes", ("s",)),
        ("routes", ("r1",)),
    ]
    server.push_resources([make_resource(LISTENER, "l", "2", references=second)], types=[SCOPED_ROUTE, ROUTE])
    wait(server, 1000, client)
    third = (Reference(SCOPED_ROUTE, "*", "ads", 3),)
    server.push_resources([make_resource(LISTENER, "l", "3", references=third)])
    assert [alias_of(send.type_url) for send in client.settle()] == ["listeners", "scoped_routes"]


def test_the_hosts_of_a_route_by_another_config_source_are_sent_once_more_and_no_others(
    server: Server, delta: Client
) -> None:
    def site_of(source_hash: int) -> list[Resource]:
        hosts = [make_resource(VIRTUAL_HOST, name, "1") for name in ("r1/x", "r1/y", "r2/x")]
        routes = [
            make_resource(ROUTE, name, str(each), references=(Reference(VIRTUAL_HOST, "*", "ads", each),))
            for name, each in (("r1", source_hash), ("r2", 1))
        ]
        return [*hosts, *routes]

    server.push_resources(site_of(1))
    delta.subscribe(ROUTE, "r1", "r2")
    delta.subscribe(VIRTUAL_HOST)
    delta.settle()
    server.push_resources(site_of(2))
    assert [(alias_of(send.type_url), send.response.names) for send in delta.settle()] == [
        ("routes", ("r1",)),
        ("virtual_hosts", ("r1/x", "r1/y")),
    ]


def test_nothing_is_sent_once_more_where_no_config_source_is_new(server: Server, client: Client) -> None:
    push(server, NAMED)
    start(client, NAMING_TYPES)
    alike = {CLUSTER: {"a": "static sds:s @2", "c": "static sds:s"}, LISTENER: {TARGET: "r1 sds:s ecds:f @2"}}
    push(server, joined(NAMED, alike))
    assert {alias_of(send.type_url) for send in client.settle()} == {"clusters", "listeners"}
    push(server, joined(NAMED, alike, {SECRET: {"s": "2"}}))
    assert [alias_of(send.type_url) for send in client.settle()] == ["secrets"]
    client.reconnect()
    shown = [(alias_of(send.type_url), send.response.names) for send in client.settle()]
    if client.variant is Variant.DELTA:
        assert shown == [("secrets", ("s",)), ("clusters", ()), ("listeners", ())], "a requested secret, and wildcards"
    assert len(shown) == len({alias for alias, _ in shown}), "nothing is sent twice"


def test_a_resource_in_flight_is_sent_once_more_after_its_ack(server: Server, delta: Client) -> None:
    named = joined(NAMED, {CLUSTER: {"a": "static"}})
    push(server, named)
    start(delta, NAMING_TYPES)
    push(server, joined(named, {SECRET: {"s": "2"}}))
    push(server, joined(named, {SECRET: {"s": "2"}, LISTENER: {TARGET: "r1 sds:s ecds:f other"}}))
    delta.ack(LISTENER)
    delta.ack(SECRET)
    assert [send.response.names for send in delta.pending(SECRET)] == [("s",)]


# -- what proves that a cluster is warm --------------------------------------------------------------------------------


def test_the_cds_ack_and_that_of_the_assignment_behind_it_say_that_a_cluster_is_warm(
    server: Server, client: Client
) -> None:
    """Either ACK alone proves nothing."""
    push(server, A)
    start(client)
    push(server, site("b"))
    client.ack(CLUSTER)
    assert not client.pending(ROUTE)
    client.ack(ENDPOINT)
    assert pending(client) == ["routes"]


def trees() -> Site:
    """Two trees beside each other, each with a route configuration of its own."""
    return joined(A, site("b", name="second", route="r2"), site("c", name="third", route="r3"))


@pytest.mark.parametrize(
    "text",
    ["@1", "hc:8", "sds:s"],
    ids=["plain", "health-check", "pending-secret"],
)
def test_clusters_are_proved_one_by_one_after_the_offer_timeout(server: Server, client: Client, text: str) -> None:
    """Another cluster withholds the CDS ACK. The ACK of its assignment proves a cluster without health checks that has
    its secrets."""
    push(server, A)
    start(client, (*TYPES, SECRET))
    push(server, joined(trees(), {CLUSTER: {"b": text, "c": "hc:60"}}))
    client.ack(ENDPOINT)
    server.elapse(OFFER_TIMEOUT_S - 1)
    assert not client.pending(LISTENER)
    server.elapse(2)
    taken = [name for send in client.pending(LISTENER) for name in send.response.names if name != TARGET]
    assert taken == (["second"] if text == "@1" else [])


def test_a_cluster_that_can_be_proved_alone_is_waited_for_without_limit(server: Server, client: Client) -> None:
    """The reference to it is readable, it is new, and its readiness can be proved."""
    push(server, A)
    start(client)
    push(server, site("b"))
    server.elapse(100 * ORDER_TIMEOUT_S)
    assert pending(client) == ["clusters", "endpoints"]
    assert not [event for event in client.events if isinstance(event, AckWaitTimedOut)]


@pytest.mark.parametrize(
    "changed",
    [
        {LISTENER: {TARGET: "r1 lua"}},
        {CLUSTER: {"s": "static"}, ROUTE: {"r1": "s"}},
        {CLUSTER: {"z": "hc:60"}, ROUTE: {"r1": "z"}},
    ],
    ids=["lua", "static", "health-check"],
)
def test_a_wait_without_proof_ends_after_the_order_timeout(server: Server, client: Client, changed: Site) -> None:
    """Here that is ``y``. Lua, and DNS and static clusters beside a cold one, are other cases."""
    push(server, A)
    start(client)
    push(server, joined(A, {CLUSTER: {"y": "hc:60"}, ENDPOINT: {"y": "1"}}, changed))
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert pending(client) == ["clusters"]
    server.elapse(2)
    assert len(pending(client)) == 2


def test_a_wait_that_ends_without_proof_is_an_event(server: Server, client: Client) -> None:
    """By an event, when the tree is sent."""
    push(server, A)
    start(client)
    push(server, joined(A, {LISTENER: {TARGET: "r1 lua"}, CLUSTER: {"x": "hc:60"}, ENDPOINT: {"x": "1"}}))
    server.elapse(ORDER_TIMEOUT_S + 1)
    assert pending(client) == ["clusters", "listeners"]
    assert [event.type_url for event in client.events if isinstance(event, AckWaitTimedOut)] == [CLUSTER]


def test_each_new_cluster_is_waited_for_on_its_own(server: Server, client: Client) -> None:
    """That one wait ended says nothing of the clusters of the next push."""
    push(server, A)
    start(client)
    lua = joined(A, {LISTENER: {TARGET: "r1 lua"}, CLUSTER: {"x": "hc:60"}})
    push(server, lua)
    server.elapse(ORDER_TIMEOUT_S + 1)
    client.ack(LISTENER)
    push(server, joined(lua, {LISTENER: {TARGET: "r1 lua @2"}, CLUSTER: {"y": "hc:60"}}))
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert "listeners" not in pending(client)
    server.elapse(2)
    assert "listeners" in pending(client)


def test_a_late_cds_ack_ends_the_wait(server: Server, client: Client) -> None:
    """Whatever was given up: the ACK is the proof."""
    push(server, A)
    start(client)
    push(server, site("b"))
    server.elapse(2 * ORDER_TIMEOUT_S)
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}


def test_a_cluster_that_never_warms_does_not_block_the_push_that_repairs_it(server: Server, client: Client) -> None:
    """Its CDS ACK never comes. The newer CDS response, which repairs it, is sent at once."""
    push(server, A)
    start(client)
    push(server, joined(site("b"), {CLUSTER: {"b": "@never"}}))
    client.ack(ENDPOINT)
    push(server, site("b"))
    sent = client.pending(CLUSTER)
    assert len(sent) == 2
    assert sent[1].response.resource_set.resources["b"].body == b"b=@1"
    client.inbox.popleft()  # superseded
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}
    wait(server, 60, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_an_unread_cds_gives_way_after_the_offer_timeout(server: Server, client: Client) -> None:
    """Rule 20: nothing behind it was answered, so that it may not have been read."""
    push(server, A)
    start(client)
    push(server, joined(A, {CLUSTER: {"sick": "@1"}}))
    push(server, joined(A, {CLUSTER: {"a": "@2"}}))
    assert len(client.pending(CLUSTER)) == 1
    server.elapse(OFFER_TIMEOUT_S + 1)
    assert list(client.pending(CLUSTER)[-1].response.names) == ["a"], "what was never ACKed comes back"


def test_on_separate_streams_a_cluster_has_the_time_of_its_first_check(server: Server, connect: Connect) -> None:
    """The jitter and the timeout of its health check (8 s), after the offer timeout (5 s), counted from its ACKs."""
    push(server, A, source="api")
    streams = {url: connect(type_url=url) for url in TYPES}
    for url, stream in streams.items():
        stream.subscribe(url, *{ENDPOINT: ("a",), ROUTE: ("r1",)}.get(url, ()))
        stream.settle()
    push(server, site("b", text="hc:8"), source="api")
    streams[CLUSTER].settle()
    endpoints = connect(type_url=ENDPOINT)  # Envoy opens one for each cluster
    endpoints.subscribe(ENDPOINT, "b")
    wait(server, 12, endpoints)
    assert not streams[ROUTE].pending()
    wait(server, 2, endpoints)
    assert streams[ROUTE].pending()

"""What a client that returns shows, and what follows from it (docs/protocol.md#coming-back).

The clients behave as Envoy does. Each case was lost by some simpler rule.
"""

from __future__ import annotations

import pytest

from tests.support.personas import DRAIN_S, DRAINED_S, REMOVED_S, EnvoyLike, assert_in_step, live, push, spend
from tests.support.sansio import Client, Server, make_resource
from tests.support.texts import TARGET, Site, joined, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.protocol.dialect import Variant
from xds.protocol.events import Send

KEPT_S = 1230.0  # a push is in the log: twice the drain and the delay
SLOW = "hc:2"  # warm when its first health check has finished: never while the cluster is in `EnvoyLike.cold`
two_listeners = site("a", listener="to:a @1") | {LISTENER: {TARGET: "to:a @1", "web": "to:a @1"}}


def inline(*clusters: str) -> Site:
    """A listener with inline routes."""
    return site(*clusters, listener=" ".join(f"to:{each}" for each in clusters))


def sent(server: Server, type_url: str) -> list[Send]:
    """All responses of a type since ``server.history`` was set."""
    events = [event for _, event in server.history or ()]
    return [event for event in events if isinstance(event, Send) and event.type_url == type_url]


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [True, False], ids=["known-label", "unknown-label"])
def test_the_label_of_a_listener_set_shows_that_set(server: Server, is_known: bool) -> None:
    """In SotW. A held listener stays as it is, and the others are sent. If it is not known how it is, all wait."""
    client = live(server, Variant.SOTW, two_listeners)
    client.disconnect()
    if not is_known:
        server = Server()
        client.move(server)
    client.cold.add("b")
    held = {LISTENER: {TARGET: "to:b @2", "web": "to:a @2"}}
    push(server, joined(two_listeners, {CLUSTER: {"b": SLOW}, ENDPOINT: {"b": "1"}}, held))
    client.reconnect()
    spend(20, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a @1", "web": "to:a @2" if is_known else "to:a @1"}
    client.warm("b")
    spend(10, client)
    assert client.serving()[LISTENER] == held[LISTENER]
    assert not client.lost


def test_a_label_is_that_of_no_listener_set_while_a_listener_is_rejected(server: Server) -> None:
    """In SotW: Envoy applies the other listeners of a refused response and shows the label before. All wait."""
    client = live(server, Variant.SOTW, two_listeners)
    push(server, joined(two_listeners, {LISTENER: {TARGET: "to:a bad", "web": "to:a @2"}}))
    spend(1, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a @1", "web": "to:a @2"}
    client.disconnect()
    server.history = []
    client.reconnect()
    spend(100, client)
    assert not sent(server, LISTENER)
    repaired = joined(two_listeners, {LISTENER: {TARGET: "to:a @3", "web": "to:a @1"}})
    push(server, repaired)
    spend(2 * DRAINED_S, client)
    assert_in_step(client, repaired)


def test_the_label_names_the_listener_set_though_a_listener_is_rejected(server: Server) -> None:
    """In SotW: nothing else of the set changed since, so its other listeners and their routes go on."""
    client = live(server, Variant.SOTW, two_listeners)
    refused = {LISTENER: {TARGET: "to:a bad"}}
    push(server, joined(two_listeners, refused))
    spend(1, client)
    client.disconnect()
    server.history = []
    client.reconnect()
    spend(100, client)
    assert not sent(server, LISTENER)
    push(server, joined(two_listeners, refused, {LISTENER: {"web": "to:a @2"}}))
    spend(100, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a @1", "web": "to:a @2"}
    push(server, two_listeners)
    spend(2 * DRAINED_S, client)
    assert_in_step(client, two_listeners)


def test_a_listener_that_another_node_rejects_is_no_reason_to_wait(server: Server) -> None:
    """In SotW: what the label shows is in doubt for that node alone."""
    client = live(server, Variant.SOTW, two_listeners)
    other = EnvoyLike(server, Variant.SOTW, "other", peer="other")
    other.refuses.add("web=to:a @2")
    other.start()
    client.disconnect()
    push(server, joined(two_listeners, {LISTENER: {"web": "to:a @2"}}))
    spend(1, other)
    assert other.serving()[LISTENER] == {TARGET: "to:a @1", "web": "to:a @1"}
    client.cold.add("b")
    changed = {LISTENER: {TARGET: "to:b @3", "web": "to:a @3"}}
    push(server, joined(two_listeners, {CLUSTER: {"b": SLOW}, ENDPOINT: {"b": "1"}}, changed))
    client.reconnect()
    spend(20, client, other)
    assert client.serving()[LISTENER] == {TARGET: "to:a @1", "web": "to:a @3"}


def test_listeners_wait_for_the_clusters_of_the_newest_trees_and_no_others(server: Server, variant: Variant) -> None:
    """In SotW a client may be given clusters that it never had. While one warms, Envoy withholds the ACK of CDS."""
    push(server, site("old", text=SLOW))
    client = live(server, variant, inline("a"))
    client.disconnect()
    push(server, inline("b") | {CLUSTER: {"b": "sds:s"}, SECRET: {}})
    client.cold |= {"old"}
    client.reconnect()
    spend(8, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a"}
    push(server, inline("b") | {CLUSTER: {"b": "sds:s"}, SECRET: {"s": "1"}})
    spend(8, client)
    assert client.serving()[LISTENER] == {TARGET: "to:b"}
    assert set(client.warming) == ({"old"} if variant is Variant.SOTW else set())
    assert not client.lost


@pytest.mark.parametrize("variant", [Variant.DELTA], ids=["delta"])
def test_a_listener_that_the_newest_set_lacks_is_removed_at_once(server: Server, variant: Variant) -> None:
    """It may hold the port of another one, and Envoy drains it."""
    client = live(server, variant, two_listeners)
    client.disconnect()
    push(server, site("a", listener="to:a @1"))
    client.reconnect()
    spend(1, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a @1"}


@pytest.mark.parametrize("variant", [Variant.SOTW], ids=["sotw"])
def test_a_leftover_that_never_warms_leaves_at_its_end(server: Server, variant: Variant) -> None:
    """Envoy withholds the ACK of CDS for it, however long."""
    push(server, site("old", text=SLOW))
    client = live(server, variant, inline("a"))
    client.disconnect()
    push(server, inline("b"))
    client.cold.add("old")
    client.reconnect()
    spend(60, client)
    assert set(client.warming) == {"old"} and client.serving()[LISTENER] == {TARGET: "to:b"}
    spend(2 * DRAINED_S, client)
    assert_in_step(client, inline("b"))


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_an_aggregate_takes_no_place_while_a_member_is_cold(server: Server, variant: Variant, restarted: bool) -> None:
    """Its earlier version, whose member serves, stays until the new member is warm."""
    before, after = (joined(site(each, listener="to:whole"), {CLUSTER: {"whole": f"of:{each}"}}) for each in "ab")
    after = joined(after, {CLUSTER: {"b": SLOW}})
    client = live(server, variant, before)
    client.disconnect()
    client.cold.add("b")
    push(server, after)
    if restarted:
        server.restart()
    client.reconnect()
    spend(10, client)
    assert client.serving()[CLUSTER] == before[CLUSTER] and set(client.warming) == {"b"}
    client.warm("b")
    spend(1, client)
    assert client.serving()[CLUSTER]["whole"] == "of:b"
    spend(DRAINED_S, client)
    assert not client.lost
    assert_in_step(client, after)


@pytest.mark.parametrize("cluster", ["b", "c"], ids=["cold", "warm"])
def test_a_listener_that_warms_gets_the_last_route_that_leads_to_warm_clusters(
    server: Server, variant: Variant, cluster: str
) -> None:
    """The client was cut off between the listener and its route. ``b`` is new, and its health check never ends."""
    known: Site = {CLUSTER: {"c": "@1"}, ENDPOINT: {"c": "1"}}
    client = live(server, variant, joined(site("a"), known))
    client.cold.add("b")
    push(server, joined(site("a", route="r2"), known))
    while TARGET not in client.opening:
        client.step()
    client.disconnect()
    push(server, joined(site(cluster, route="r2", text=SLOW if cluster == "b" else "@1"), known))
    server.history = []
    client.reconnect()
    spend(14, client)
    assert client.serving()[ROUTE] == {"r2": "a" if cluster == "b" else cluster}
    assert not client.lost


# -- what the newest set lacks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_routes_that_the_newest_set_lacks_are_left_alone(server: Server, variant: Variant, restarted: bool) -> None:
    """Another version may lead to clusters that the client never had."""
    client = live(server, variant, site("a"))
    client.disconnect()
    push(server, site("c"))
    push(server, inline("b"))
    if restarted:
        server.restart()
    client.reconnect()
    server.history = []
    spend(DRAIN_S - 5, client)
    assert client.draining and client.available[ROUTE] == {"r1": "a"} and "a" in client.active
    assert not sent(server, ROUTE)
    spend(DRAINED_S, client)
    assert_in_step(client, inline("b"))


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_nothing_ends_before_the_client_is_in_step(server: Server, variant: Variant, restarted: bool) -> None:
    """A tree that is held may use what the push removed, however long ago that was."""
    client = live(server, variant, site("a"))
    client.disconnect()
    push(server, site("b", text="bad"))
    if restarted:
        server.restart()
    client.reconnect()
    spend(2 * DRAINED_S, client)
    assert client.serving()[ROUTE] == {"r1": "a"} and "a" in client.active
    push(server, site("b", text="@2"))
    spend(10, client)
    assert client.serving()[ROUTE] == {"r1": "b"} and set(client.active) == {"a", "b"}
    spend(DRAINED_S, client)
    assert_in_step(client, site("b", text="@2"))


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_more_pushes_within_a_drain_than_revisions_are_retained(
    server: Server, variant: Variant, restarted: bool
) -> None:
    """Old connections use what the first of them removed: the log has it."""
    client = live(server, variant, inline("c0"))
    client.disconnect()
    for number in range(1, 40):
        push(server, inline(f"c{number}"))
        server.elapse(10)
    if restarted:
        server.restart()
    client.reconnect()
    spend(5, client)
    assert client.serving()[LISTENER] == {TARGET: "to:c39"}
    assert "c0" in client.active
    spend(DRAIN_S - 10, client)
    assert "c0" in client.active, "connections drain"
    spend(2 * DRAINED_S, client)
    assert_in_step(client, inline("c39"))


# -- in Delta: what a refused response brought -------------------------------------------------------------------------


def shows(delta: Client, **texts: str) -> None:
    """A client of unknown content requests all clusters and shows these."""
    versions = {name: make_resource(CLUSTER, name, text).version for name, text in texts.items()}
    delta.request(type_url=CLUSTER, initial_resource_versions=versions)
    delta.settle()


def test_a_version_that_was_removed_and_pushed_again_is_sent_again(server: Server, delta: Client) -> None:
    """A refused response may have brought another one: Envoy applies the good clusters and does not show them."""
    for text in ("1", "2", "1"):
        server.push({CLUSTER: {"a": text, "b": "1"}})
    shows(delta, a="1", b="1")
    assert [event.response.names for event in delta.events if isinstance(event, Send)] == [("a",)]


def test_a_removal_that_the_client_does_not_show_is_reported_at_its_end(server: Server, delta: Client) -> None:
    """A refused response may have brought the cluster."""
    server.push({CLUSTER: {"a": "1", "x": "1"}})
    server.push({CLUSTER: {"a": "1"}})
    shows(delta, a="1")
    server.elapse(44)
    assert not delta.pending()
    server.elapse(1)
    assert [(send.response.names, send.response.removed) for send in delta.pending()] == [((), ("x",))]


def test_a_listener_that_the_client_does_not_show_is_reported_as_removed(server: Server, delta: Client) -> None:
    """A refused response may have brought the listener."""
    server.push({LISTENER: {"web": "1", "x": "1"}})
    server.push({LISTENER: {"web": "1"}})
    versions = {"web": make_resource(LISTENER, "web", "1").version}
    delta.request(type_url=LISTENER, initial_resource_versions=versions)
    delta.settle()
    assert [event.response.removed for event in delta.events if isinstance(event, Send)] == [("x",)]


# -- what was refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [("", ""), ("blue", "green")], ids=["default-label", "own-label"])
def test_a_cut_between_a_nack_and_a_roll_back(server: Server, variant: Variant, labels: tuple[str, str]) -> None:
    """Envoy has applied the good clusters of the refused response, and shows what it had before."""
    before, after = labels
    push(server, site("a", "b"), label=before)
    client = EnvoyLike(server, variant)
    client.start()
    push(server, joined(site("a", "b"), {CLUSTER: {"a": "@2", "b": "bad"}}), label=after)
    spend(1, client)
    assert client.serving()[CLUSTER] == {"a": "@2", "b": "@1"}
    client.disconnect()
    push(server, site("a", "b"), label=before)
    client.reconnect()
    spend(DRAINED_S, client)
    assert client.serving()[CLUSTER] == {"a": "@1", "b": "@1"}
    assert_in_step(client, site("a", "b"))


def test_a_rejected_push_outlasts_the_log(server: Server, variant: Variant) -> None:
    """What the refused version replaced stays in the log, so that it can stand in for it after a cut."""
    client = live(server, variant, site("a", "b"))
    bad = joined(site("a", "b"), {CLUSTER: {"b": "bad"}})
    push(server, bad)
    spend(1, client)
    for number in range(12):
        server.elapse(KEPT_S)
        push(server, joined(bad, {SECRET: {"s": f"@{number}"}}))
        spend(1, client)
    client.disconnect()
    client.reconnect()
    spend(DRAINED_S, client)
    assert client.serving()[CLUSTER] == {"a": "@1", "b": "@1"}
    assert not client.lost
    push(server, site("a", "b", text="@2"))
    spend(DRAINED_S, client)
    assert_in_step(client, site("a", "b", text="@2"))


def test_a_rejected_cluster_does_not_come_back_as_a_leftover(server: Server, variant: Variant) -> None:
    """It would make the client refuse the set that repairs it (trap 3)."""
    client = live(server, variant, site("a"))
    push(server, joined(site("a"), {CLUSTER: {"x": "bad"}, ENDPOINT: {"x": "1"}}))
    spend(1, client)
    client.disconnect()
    push(server, site("b"))
    server.history = []
    client.reconnect()
    spend(REMOVED_S, client)
    assert all("x" not in send.response.names for send in sent(server, CLUSTER))
    spend(DRAINED_S, client)
    assert_in_step(client, site("b"))


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_a_leftover_that_may_be_rejected_does_not_stop_the_repair(server: Server, restarted: bool) -> None:
    """In SotW the NACK of a malformed set names nobody, and a new process does not know of it. The next push does
    without the suspects that only linger."""
    client = live(server, Variant.SOTW, site("a"))
    push(server, joined(site("a"), {CLUSTER: {"x": "malformed"}, ENDPOINT: {"x": "1"}}))
    spend(1, client)
    client.disconnect()
    if restarted:
        server.restart()
    push(server, site("b"))
    client.reconnect()
    spend(10, client)
    push(server, site("b", text="@2"))
    spend(10, client)
    assert client.serving()[ROUTE] == {"r1": "b"}
    assert not client.lost
    spend(DRAINED_S, client)
    assert_in_step(client, site("b", text="@2"))


def test_a_set_is_tried_without_clusters_that_no_client_is_known_to_have(server: Server) -> None:
    """The repair is taken without another push: what the newest set lacks is left out first."""
    client = live(server, Variant.SOTW, site("a"))
    push(server, joined(site("a"), {CLUSTER: {"x": "malformed"}, ENDPOINT: {"x": "1"}}))
    spend(1, client)
    client.disconnect()
    server.restart()
    push(server, site("b"))
    server.history = []
    client.reconnect()
    spend(10, client)
    assert client.serving()[ROUTE] == {"r1": "b"}
    assert [send.response.names for send in sent(server, CLUSTER)][:2] == [("b", "a", "x"), ("b", "a")]
    assert not client.lost


# -- a listener that warms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_a_route_waits_for_the_secret_of_a_listener_that_warms(
    server: Server, variant: Variant, restarted: bool
) -> None:
    """The listener that the client shows has the filter that guards the route; new connections use the one before."""
    client = live(server, variant, site("a"))
    guarded = joined(site("a"), {LISTENER: {TARGET: "r1 authz sds:s"}, SECRET: {}})
    push(server, guarded)
    spend(1, client)
    assert TARGET in client.opening
    client.disconnect()
    opened = joined(guarded, {ROUTE: {"r1": "a /admin"}})
    push(server, opened)
    if restarted:
        server.restart()
    client.reconnect()
    spend(10, client)
    assert client.serving()[ROUTE] == {"r1": "a"}
    push(server, joined(opened, {SECRET: {"s": "1"}}))
    spend(1, client)
    assert client.serving()[LISTENER] == opened[LISTENER]
    assert client.serving()[ROUTE] == opened[ROUTE]
    assert not client.exposures and not client.lost


def test_routes_of_other_listeners_do_not_wait_for_a_secret_that_no_push_has(server: Server, variant: Variant) -> None:
    """It says nothing of whether the listener that names it warms. So they change at once when a client returns."""
    without = joined(site("a"), {LISTENER: {"other": "r2 sds:s"}, ROUTE: {"r2": "a"}, SECRET: {}})
    client = live(server, variant, without)
    client.disconnect()
    push(server, joined(without, {ROUTE: {"r1": "a @2"}}))
    client.reconnect()
    spend(3, client)
    assert client.serving()[ROUTE]["r1"] == "a @2"

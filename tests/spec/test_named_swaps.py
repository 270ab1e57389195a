"""Swaps that once lost requests, by their names in docs/internals/design.md#named-swaps.

``envoy_like`` says which requests are lost, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.personas import (
    DRAIN_S,
    DRAINED_S,
    REMOVED_S,
    EnvoyLike,
    assert_in_step,
    live,
    push,
    spend,
    spend_warming,
)
from tests.support.sansio import Server
from tests.support.texts import MALFORMED, TARGET, Site, joined, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.protocol.dialect import Variant

Start = Callable[..., EnvoyLike]


@pytest.fixture
def start(server: Server, variant: Variant) -> Start:
    """An Envoy of the test's variant, live with what was pushed."""

    def start(content: Site, **fields: Any) -> EnvoyLike:
        return live(server, variant, content, **fields)

    return start


def inline(*clusters: str) -> Site:
    """A listener with routes of its own."""
    return site(*clusters, listener=" ".join(f"to:{name}" for name in clusters))


# -- B1: old connections stay on old filter chains -------------------------------------------------------------------


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (inline("a"), inline("b")),
        (site("a"), site("b", route="r2")),
        (inline("a"), site("b")),
        (joined(site("b"), {LISTENER: {"blue": "to:a"}, CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}}), site("b")),
    ],
    ids=["inline", "rds-name", "inline-to-rds", "listener-removed"],
)
def test_b1_clusters_linger_while_old_connections_drain(
    server: Server, start: Start, before: Site, after: Site, split: bool
) -> None:
    """A listener changed or was removed, so they linger for the drain time as well."""
    client = start(before, split=split)
    push(server, after, source="api" if split else "ads")
    if after[CLUSTER].keys() - before[CLUSTER].keys():
        spend_warming(client)
    spend(1, client)
    assert client.serving()[LISTENER] == after[LISTENER]
    spend(DRAIN_S, client)
    assert not client.lost
    assert "a" in client.active
    spend(DRAINED_S - DRAIN_S, client)
    assert_in_step(client, after)


def test_b1_where_no_listener_changes_a_cluster_lingers_for_retries_only(server: Server, start: Start) -> None:
    """They look a cluster up again, as do requests that wait in a filter: this takes `removal_delay_s`."""
    client = start(site("a"))
    push(server, site("b"))
    spend(1, client)
    assert client.serving()[ROUTE] == {"r1": "b"}
    spend(13, client)
    assert set(client.active) == {"a", "b"}
    spend(REMOVED_S - 13, client)
    assert_in_step(client, site("b"))


def test_b1_lingering_counts_as_in_step(server: Server, start: Start) -> None:
    """Otherwise `apply --wait` would wait for the end of lingering."""
    client = start(inline("a"))
    push(server, inline("b"))
    spend(1, client)
    assert set(client.active) == {"a", "b"}
    assert {status.state for status in client.status()} == {"synced"}


def test_b1_a_lingering_resource_that_is_pushed_again_stays(server: Server, start: Start) -> None:
    """A -> B -> A: what lingered is there still, and what replaced it lingers in its turn."""
    client = start(inline("a"))
    for name in "babcb":
        push(server, inline(name))
        spend(20, client)
        assert client.serving()[LISTENER] == inline(name)[LISTENER]
    assert set(client.active) == {"a", "b", "c"}
    spend(DRAINED_S, client)
    assert_in_step(client, inline("b"))


# -- secrets that a push renames -------------------------------------------------------------------------------------


def secured(secret: str, *, by_cluster: bool) -> Site:
    """A cluster or a listener that needs this secret, and no other secret."""
    cluster, listener = (f"sds:{secret}", "to:a") if by_cluster else ("@1", f"to:a sds:{secret}")
    return joined(site("a", listener=listener, text=cluster), {SECRET: {secret: "@1"}})


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("by_cluster", [False, True], ids=["listener", "cluster"])
def test_a_secret_stays_while_clusters_that_name_it_linger(
    server: Server, start: Start, *, by_cluster: bool, split: bool
) -> None:
    """A push names another secret and drops the old one; a connection is cut before its client has the new one."""
    before, after = secured("s", by_cluster=by_cluster), secured("u", by_cluster=by_cluster)
    client = start(before, split=split)
    url = CLUSTER if by_cluster else LISTENER
    push(server, after, source="api" if split else "ads")
    assert client.step(next(link for link in client.links if link.pending(url)))
    client.reconnect()
    client.run()
    assert client.texts(SECRET).keys() >= {"u"}
    assert client.serving()[url] == after[url]
    if not by_cluster:  # its old connections are on the old filter chain, which needs the old secret
        spend(DRAIN_S / 2, client)
        client.reconnect()
        client.run()
        assert client.texts(SECRET) == {"s": "@1", "u": "@1"}
        assert all("s" not in status.missing for status in client.status())
    spend(DRAINED_S, client)
    assert not client.lost
    assert_in_step(client, after)
    assert client.texts(SECRET) == {"u": "@1"}


# -- B2: no CDS on a new stream while a cluster warms ------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restart"])
def test_b2_a_client_that_requests_no_clusters_has_one_that_warms(
    server: Server, start: Start, restarted: bool
) -> None:
    """It requests the assignment of a served cluster but no clusters: the server waits for these, `order_timeout_s` at
    most. So does a new process (trap 1)."""
    client = start(site("a"))
    client.cold.add("c")
    push(server, site("c", text="hc:20"))
    client.run()
    assert set(client.warming) == {"c"}
    client.disconnect()
    if restarted:
        server.restart()
    client.reconnect()
    spend(19, client)
    assert CLUSTER not in {status.type_url for status in client.status()}
    assert client.serving()[ROUTE] == {"r1": "a"}
    client.warm("c")
    spend(1, client)
    assert client.serving()[ROUTE] == {"r1": "c"}
    spend(DRAINED_S, client)
    assert_in_step(client, site("c", text="hc:20"))


def turn(number: int) -> Site:
    """A site with names of its own, as a pipeline makes them that numbers what it deploys."""
    return site(f"c{number}", text="hc:2", route=f"r{number}")


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("cuts", [1, 5, 14])
def test_b2_a_client_is_cut_off_again_and_again_amid_pushes_while_clusters_warm(
    server: Server, start: Start, cuts: int, when: str
) -> None:
    """Its clusters are of pushes that it missed or never finished: the removal log of the group has them.

    On most of its connections it requests no clusters, because one warms (every other cluster is slow).
    """
    client = start(turn(0))
    pushed = 0

    def push_next() -> None:
        nonlocal pushed
        pushed += 1
        if pushed % 2:
            client.cold.add(f"c{pushed}")
        push(server, turn(pushed))

    for _ in range(cuts):
        client.disconnect()
        if when in ("before", "both"):
            push_next()
        client.reconnect()
        client.run()
        if when in ("after", "both"):
            push_next()
            client.run()
        push_next()
    spend(8, client)
    for _ in range(4):
        client.warm(*client.warming)
        spend(30, client)
    assert not client.lost
    assert client.serving()[ROUTE] == {f"r{pushed}": f"c{pushed}"}
    spend(DRAINED_S, client)
    assert_in_step(client, turn(pushed))


@pytest.mark.parametrize("is_told", [False, True], ids=["before-the-push", "while-the-cluster-warms"])
def test_a_stream_for_clusters_that_ends_alone_is_waited_for(
    server: Server, variant: Variant, *, is_told: bool
) -> None:
    """Off ADS. A push leads to a cluster that the client has not, or that is not warm, before its stream is back."""
    client = live(server, variant, site("a"), split=True)
    link = next(each for each in client.links if each.type_url == CLUSTER)
    if not is_told:
        link.disconnect()
    push(server, site("b", listener="to:b"), source="api")
    if is_told:
        assert client.step(link)
        link.disconnect()
        assert not client.pending(LISTENER)
    client.run()
    link.begin_anew()
    link.resume(CLUSTER)
    spend(DRAINED_S, client)
    assert not client.lost
    assert_in_step(client, site("b", listener="to:b"))


def test_a_stream_for_clusters_that_ends_alone_gets_no_earlier_versions(server: Server, variant: Variant) -> None:
    """Off ADS. In SotW, the label of clusters of which one lingers names no set."""
    client = live(server, variant, site("a", "b"), split=True)
    content = site("a", text="@2")
    push(server, content, source="api")
    spend(1, client)
    link = next(each for each in client.links if each.type_url == CLUSTER)
    link.disconnect()
    link.begin_anew()
    link.resume(CLUSTER)
    spend(1, client)
    assert client.serving()[CLUSTER] == {"a": "@2", "b": "@1"}
    spend(DRAINED_S, client)
    assert_in_step(client, content)


def test_a_stream_for_listeners_that_ends_alone_is_waited_for(server: Server, variant: Variant) -> None:
    """Off ADS. A push leads over an internal listener that the client has not before the stream is back."""
    client = live(server, variant, site("a"), split=True)
    link = next(each for each in client.links if each.type_url == LISTENER)
    link.disconnect()
    content = joined(site("a"), {CLUSTER: {"t": "in:inner"}, LISTENER: {"inner": "to:a internal"}, ROUTE: {"r1": "t"}})
    push(server, content, source="api")
    client.run()
    link.begin_anew()
    link.resume(LISTENER)
    spend(DRAINED_S, client)
    assert_in_step(client, content)


# -- B3: TTLs ----------------------------------------------------------------------------------------------------------

TTL_S = 9.0
sotw_only = pytest.mark.parametrize("variant", [Variant.SOTW], ids=["sotw"])
delta_only = pytest.mark.parametrize("variant", [Variant.DELTA], ids=["delta"])


@delta_only
@pytest.mark.parametrize(
    ("url", "added"),
    [(CLUSTER, {CLUSTER: {"x": "bad"}}), (CLUSTER, {CLUSTER: {"x": "hc:60"}}), (LISTENER, {LISTENER: {"x": "bad"}})],
    ids=["cluster-refused", "cluster-withheld", "listener-refused"],
)
def test_b3_heartbeats_continue_while_a_response_is_in_flight_or_rejected(
    server: Server, start: Start, url: str, added: Site
) -> None:
    """They are sent in every state, for all names whose version at the client is known."""
    ttls = {url: TTL_S}
    client = start(site("a"), ttls=ttls)
    client.cold.add("x")
    client.must_listen.add(TARGET)
    push(server, joined(site("a"), added), ttls=ttls)
    spend(5 * TTL_S, client)
    assert not client.lost


@delta_only
@pytest.mark.parametrize("pushes", [1, 3])
def test_b3_heartbeats_continue_for_uncertain_names_of_a_rejected_response(
    server: Server, start: Start, pushes: int
) -> None:
    """Envoy names no resource when it cannot read a response: all of its names are in doubt for some time."""
    ttls = {CLUSTER: TTL_S}
    client = start(site("a"), ttls=ttls)
    bad = {CLUSTER: {"a": MALFORMED, "x": "hc:60", "y": "@1"}}
    push(server, joined(site("a", "x", "y"), bad), ttls=ttls)
    spend(1, client)  # the good half waits for x now
    for number in range(1, pushes):
        push(server, joined(site("a", "x", "y", f"z{number}"), bad), ttls=ttls)
        spend(1, client)
    assert set(client.warming) >= {"x"}
    spend(5 * TTL_S, client)
    assert not client.lost


@delta_only
def test_b3_no_heartbeat_is_due_when_no_resource_has_a_ttl(server: Server, start: Start) -> None:
    """A resource that is sent again without a TTL has none any more."""
    client = start(site("a"), ttls={CLUSTER: TTL_S})
    push(server, site("a"))
    spend(5 * TTL_S, client)
    assert not client.deadlines()


@delta_only
def test_b3_resources_of_a_rejected_heartbeat_are_sent_whole(server: Server, start: Start) -> None:
    """A client that rejects a heartbeat has dropped the resource."""
    client = start(site("a"), ttls={CLUSTER: TTL_S})
    server.now += TTL_S + 1  # the server was busy
    client.tick()
    assert not client.active
    client.lost.clear()
    spend(1, client)
    assert set(client.active) == {"a"}
    client.lost.clear()
    spend(3 * TTL_S, client)
    assert not client.lost


@delta_only
@pytest.mark.parametrize("url", [ENDPOINT, ROUTE])
def test_b3_heartbeats_begin_when_a_client_returns_in_step(server: Server, start: Start, url: str) -> None:
    """It is sent nothing else, because it missed nothing."""
    client = start(site("a"), ttls={url: TTL_S})
    client.disconnect()
    client.reconnect()
    spend(5 * TTL_S, client)
    assert set(client.links[0].types[url].versions) == {"a" if url == ENDPOINT else "r1"}


# -- B4: one refused assignment ----------------------------------------------------------------------------------------


def test_b4_a_rejected_assignment_does_not_stop_others(server: Server, start: Start) -> None:
    """New content is sent first, without the suspects."""
    content = site("a", "y", "z")
    client = start(content)
    for name, text in (("a", "bad"), ("y", "2"), ("z", "2"), ("y", "3")):
        content = joined(content, {ENDPOINT: {name: text}})
        push(server, content)
        spend(2, client)
        assert client.serving()[ENDPOINT] == {**content[ENDPOINT], "a": "1"}
    content = joined(content, {ENDPOINT: {"a": "2"}})
    push(server, content)
    spend(DRAINED_S, client)
    assert_in_step(client, content)


def test_b4_the_rejected_assignment_among_many_is_found(server: Server, start: Start) -> None:
    """Halves of the suspects are tried between other content. In the end the rejected one is alone, and is left out."""
    names = [f"c{index:02}" for index in range(50)]
    client = start(site(*names))
    before = sent(client, ENDPOINT)
    push(server, joined(site(*names, load="2"), {ENDPOINT: {"c17": "bad"}}))
    spend(2, client)
    assert client.serving()[ENDPOINT] == {**dict.fromkeys(names, "2"), "c17": "1"}
    found_after = sent(client, ENDPOINT) - before
    assert found_after < 20
    spend(100, client)
    assert sent(client, ENDPOINT) - before == found_after, "what was refused is sent again"
    assert not client.lost


def sent(client: EnvoyLike, url: str) -> int:
    """How many responses of a type were sent."""
    return sum(len(link.types[url].nonces) for link in client.links if url in link.types)


# -- B5 to B13 ---------------------------------------------------------------------------------------------------------


def test_b5_a_mixed_set_is_built_from_the_content_that_the_client_has(server: Server, start: Start) -> None:
    """After two coalesced pushes that is not the revision before: listeners of revision 1 still use cluster ``a``."""
    client = start(site("a"))
    push(server, site("b"), wake=False)
    push(server, site("c"))
    client.step()
    assert set(client.warming) == {"c"}
    client.disconnect()
    client.reconnect()
    spend(DRAINED_S, client)
    assert_in_step(client, site("c"))


def test_b6_routes_that_are_not_requested_yet_are_waited_for(server: Server, start: Start) -> None:
    """On separate streams, the client has not requested the routes of its listeners yet. Removals wait until they are
    ACKed."""
    client = start(inline("a"), split=True)
    push(server, site("b"), source="api")
    spend(DRAINED_S, client)
    assert_in_step(client, site("b"))


@pytest.mark.parametrize("source", ["api", "rest"])
def test_b8_assignments_from_elsewhere_are_not_waited_for(server: Server, start: Start, source: str) -> None:
    """The client never requested endpoints here. On ADS, Envoy's ACK of CDS is proof enough."""
    client = start(site("a", text=source), elsewhere=True)
    for name in "bc":
        push(server, site(name, text=source))
        spend(1, client)
        assert client.serving()[ROUTE] == {"r1": name}
    spend(REMOVED_S, client)
    assert not client.lost


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
def test_b8_routes_of_another_listener_from_elsewhere_hold_no_routes(server: Server, start: Start, split: bool) -> None:
    """Whether a listener that a client shows still warms for it is not known, and no reason to wait.

    On separate streams a client shows a cluster before it is warm.
    """
    source = "api" if split else "ads"
    before = joined(site("a"), {LISTENER: {"other": "r9"}})
    client = start(before, split=split)
    spend(60, client)
    client.disconnect()
    server.restart()
    client.reconnect()
    push(server, joined(before, site("a", listener="r1 @2"), {ROUTE: {"r1": "a @2"}}), source=source)
    spend_warming(client)
    client.run()
    assert client.serving()[ROUTE] == {"r1": "a @2"}


def test_b9_content_that_was_never_released_answers_no_request(server: Server, start: Start) -> None:
    """A route to a refused cluster does not come to light when the repaired push brings its name."""
    client = start(joined(inline("a"), {ROUTE: {}}))
    push(server, joined(site("a", route="r"), {ROUTE: {"r": "x"}, CLUSTER: {"x": "bad"}, ENDPOINT: {"x": "1"}}))
    spend(1, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a"}
    push(server, site("b", route="r"))
    spend(DRAINED_S, client)
    assert_in_step(client, site("b", route="r"))


def test_b10_a_name_that_the_client_lacks_is_answered_with_the_newest_content(server: Server, start: Start) -> None:
    """It shows version 1 without names, and then requests ``r1``: it gets the newest ``r1``, not that of revision 1."""
    client = start(site("a"))
    push(server, inline("b"))
    spend(DRAINED_S, client)
    client.disconnect()
    push(server, site("c"))
    client.reconnect()
    while client.step():
        assert client.serving()[ROUTE] in ({}, {"r1": "c"})
    spend(DRAINED_S, client)
    assert_in_step(client, site("c"))


@sotw_only
def test_b11_the_label_of_another_server_means_nothing_here(server: Server, start: Start) -> None:
    """A client shows version "2" of elsewhere: it is sent no route or listener of revision 2 of this group.

    Of clusters it is sent the newest ones and all that the group's log has as removed, as any client with such a label.
    """
    client = start(site("x"))
    push(server, site("a"))
    client.run()
    other = Server()
    for name in ("x", "old", "a"):
        push(other, site(name))
    server.now = other.now = 100.0  # whatever was used before is not any more
    client.lost.clear()
    client.move(other)
    client.reconnect()
    while client.step():
        assert client.serving()[ROUTE] == {"r1": "a"}
        assert set(client.texts(CLUSTER)) <= {"a", "x", "old"}
    spend(DRAINED_S, client)
    assert_in_step(client, site("a"))


@delta_only
def test_b13_a_cluster_in_flight_keeps_its_assignment(server: Server, start: Start) -> None:
    """The assignment is not reported as removed while a response in flight has the cluster that uses it."""
    client = start(assigned("x"))
    client.disconnect()
    push(server, assigned("y"))
    client.be_slow()
    client.reconnect()
    client.links[0].deliver()  # CDS
    push(server, assigned("z"))
    client.be_slow(False)
    spend(DRAINED_S, client)
    assert_in_step(client, assigned("z"))


def assigned(name: str) -> Site:
    """A cluster whose assignment has this name."""
    return joined(site("a", text=f"eds:{name}"), {ENDPOINT: {name: "1"}})

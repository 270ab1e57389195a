"""Traps of the order of updates, by their numbers in docs/internals/design.md#traps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.personas import DRAIN_S, DRAINED_S, REMOVED_S, EnvoyLike, assert_in_step, live, push, spend
from tests.support.sansio import Server
from tests.support.texts import ADMIN, TARGET, Site, joined, site
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SECRET
from xds.protocol.clients import ClientTable
from xds.protocol.dialect import Variant
from xds.protocol.events import LingerCut, Send
from xds.snapshots.removal_log import VERSIONS_KEPT

OFFER_TIMEOUT_S, ORDER_TIMEOUT_S = 5.0, 30.0
WAITED_S = ORDER_TIMEOUT_S + OFFER_TIMEOUT_S + 1  # nothing unproved waits longer
COLD = "hc:60"
sotw_only = pytest.mark.parametrize("variant", [Variant.SOTW], ids=["sotw"])
delta_only = pytest.mark.parametrize("variant", [Variant.DELTA], ids=["delta"])


def inline(*clusters: str) -> Site:
    """A listener with routes of its own."""
    return site(*clusters, listener=" ".join(f"to:{name}" for name in clusters))


def told(client: EnvoyLike, url: str) -> list[str]:
    """The names in all responses of a type so far."""
    sends = (event for link in client.links for event in link.events if isinstance(event, Send))
    return [name for send in sends if send.type_url == url for name in send.response.names]


def used(client: EnvoyLike) -> dict[str, str]:
    """The route configurations that new requests meet."""
    return client.serving()[ROUTE]


# -- 2, 3: what is held and what is not --------------------------------------------------------------------------------


def test_trap_2_a_held_tree_blocks_no_other(server: Server, variant: Variant) -> None:
    """Whatever differs between the content released to this client and the newest snapshot may be sent."""
    client = live(server, variant, site("a"))
    client.cold.add("x")
    content = joined(site("a"), site("x", name="slow", route="rx", text=COLD))
    push(server, content)
    spend(1, client)
    content = joined(content, {ROUTE: {"r1": "a @2"}, ENDPOINT: {"a": "2"}})
    push(server, content)
    client.run()
    assert used(client) == {"r1": "a @2"}
    assert client.serving()[ENDPOINT] == {"a": "2"}
    content = joined(content, site("y", name="third", route="ry"))
    push(server, content)
    spend(OFFER_TIMEOUT_S + 2, client)
    assert set(client.listening) == {TARGET, "third"}
    spend(100, client)
    assert set(client.listening) == {TARGET, "third"}, "the clusters of a readable tree are waited for without end"
    client.warm("x")
    spend(DRAINED_S, client)
    assert_in_step(client, content)


def test_trap_2_a_newer_route_does_not_overtake_a_held_listener(server: Server, variant: Variant) -> None:
    """The difference is to the content released, so the filter of push 6 comes before the path of push 7."""
    client = live(server, variant, site("a"))
    client.cold.add("x")
    content = joined(site("a"), site("x", listener="r1 authz to:x", text=COLD))
    push(server, content)
    spend(1, client)
    content = joined(content, {ROUTE: {"r1": f"a {ADMIN}"}})
    push(server, content)
    spend(60, client)
    assert not client.exposures
    assert used(client) == {"r1": "a"}
    client.warm("x")
    spend(DRAINED_S, client)
    assert not client.exposures
    assert_in_step(client, content)


@pytest.mark.parametrize("text", ["bad", COLD])
def test_trap_3_a_removed_cluster_that_was_never_acked_does_not_come_back(
    server: Server, variant: Variant, text: str
) -> None:
    """Push 6 adds ``x``, which is rejected or never warms. Push 7 removes it again. Only ACKed names linger."""
    client = live(server, variant, site("a"))
    client.cold.add("x")
    push(server, site("x", text=text))
    spend(1, client)
    before = told(client, CLUSTER).count("x")
    push(server, site("b"))
    spend(1, client)
    assert used(client) == {"r1": "b"}
    assert told(client, CLUSTER).count("x") == before
    assert "x" not in client.warming
    spend(REMOVED_S, client)
    assert_in_step(client, site("b"))


def test_trap_3_no_client_is_sent_a_removed_resource_that_it_never_had(server: Server, variant: Variant) -> None:
    """A mixed set of two coalesced pushes could have clusters that the client never had."""
    client = live(server, variant, site("a"))
    push(server, site("b"), wake=False)
    push(server, site("c"))
    client.run()
    assert "b" not in told(client, CLUSTER)
    spend(REMOVED_S, client)
    assert_in_step(client, site("c"))


# -- 4: holds without a possible proof end -----------------------------------------------------------------------------


def test_trap_4_code_that_may_choose_any_cluster_is_not_held_for_ever(server: Server, variant: Variant) -> None:
    """A tree with Lua may refer to every cluster, so that one cold cluster would hold it."""
    client = live(server, variant, site("a", listener="to:a lua"))
    client.cold.add("x")
    push(server, joined(site("a", listener="to:a lua @2"), {CLUSTER: {"x": COLD}, ENDPOINT: {"x": "1"}}))
    spend(WAITED_S, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a lua @2"}
    assert not client.lost


def test_trap_4_a_static_cluster_beside_a_cold_one_is_not_held_for_ever(server: Server, variant: Variant) -> None:
    """A static cluster has no EDS response that could be ACKed."""
    client = live(server, variant, site("a"))
    client.cold.add("x")
    push(server, joined(site("s", text="static"), {CLUSTER: {"x": COLD}, ENDPOINT: {"x": "1"}}))
    spend(WAITED_S, client)
    assert used(client) == {"r1": "s"}
    assert not client.lost


def test_trap_4_a_changed_cluster_that_stays_cold_holds_nothing_for_ever(server: Server, variant: Variant) -> None:
    """It serves its old version meanwhile."""
    client = live(server, variant, site("a"))
    client.cold.add("a")
    push(server, joined(site("a", text=COLD), {ROUTE: {"r1": "a @2"}}))
    spend(WAITED_S, client)
    assert used(client) == {"r1": "a @2"}
    assert not client.lost


def test_trap_4_split_streams_show_no_warmth(server: Server, variant: Variant) -> None:
    """Nothing on separate streams proves that clusters with health checks, DNS or secrets are warm. The time of the
    first health check decides."""
    client = live(server, variant, site("a"), split=True)
    push(server, site("x", text="hc:8"), source="api")
    spend(7, client)
    assert used(client) == {"r1": "a"}
    spend(WAITED_S - 7, client)
    assert used(client) == {"r1": "x"}
    assert not client.lost


def test_trap_4_an_old_stream_for_an_assignment_says_nothing_of_a_new_cluster(server: Server, variant: Variant) -> None:
    """Off ADS each cluster has a stream of its own, be it for the same assignment: the one that a cluster before it had
    ACKed does not show that the new one has its endpoints."""
    client = live(server, variant, joined(site("a", text="eds:x"), {ENDPOINT: {"x": "1"}}), split=True)
    content = joined(site("b", text="eds:x"), {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1", "x": "1"}})
    push(server, content, source="api")
    spend(DRAINED_S, client)
    assert_in_step(client, content)


# -- 5: a NACK is not unreadiness --------------------------------------------------------------------------------------


def test_trap_5_a_cluster_without_its_assignment_is_not_led_to(server: Server, variant: Variant) -> None:
    """Envoy ACKs a cluster whose assignment it rejected, and uses it without endpoints: requests of a route would be
    lost."""
    client = live(server, variant, site("a"))
    push(server, site("c", load="bad"))
    spend(100, client)
    assert set(client.active) == {"a", "c"}
    assert used(client) == {"r1": "a"}
    push(server, site("c", load="2"))
    spend(DRAINED_S, client)
    assert_in_step(client, site("c", load="2"))


def test_trap_5_a_listener_does_not_go_back_where_on_nack_is_proceed(server: Server, variant: Variant) -> None:
    """With `on_nack: proceed`, nothing is held."""
    client = live(server, variant, site("a"))
    push(server, site("c", load="bad"), on_nack="proceed")
    spend(WAITED_S, client)
    assert used(client) == {"r1": "c"}


@pytest.mark.parametrize(
    ("text", "refused"),
    [("r2", {ROUTE: {"r2": "a bad"}}), ("r1 ecds:f", {EXTENSION_CONFIG: {"f": "bad"}, ROUTE: {"r1": "a"}})],
    ids=["route", "extension-config"],
)
def test_trap_5_a_listener_goes_back_when_a_resource_that_it_newly_names_is_rejected(
    server: Server, variant: Variant, text: str, refused: Site
) -> None:
    """A rejected new route or extension configuration takes its listener back to the last accepted version."""
    client = live(server, variant, site("a"))
    push(server, joined(site("a", listener=text), refused))
    spend(2, client)
    assert client.serving()[LISTENER] == {TARGET: "r1"}
    assert used(client) == {"r1": "a"}
    assert not client.listening[TARGET].is_incomplete
    repaired = joined(site("a", listener=text), {url: dict.fromkeys(texts, "a") for url, texts in refused.items()})
    push(server, repaired)
    spend(DRAINED_S, client)
    assert_in_step(client, repaired)


# -- 6: what the client needs for what it holds ------------------------------------------------------------------------


@pytest.mark.parametrize("paused", [False, True], ids=["asked", "paused"])
def test_trap_6_a_listener_that_the_client_applied_gets_its_routes(
    server: Server, variant: Variant, paused: bool
) -> None:
    """The client ACKed listeners of push 7, the server restarts, and a cluster of push 8 warms. The client requests
    ``r1`` and ``r2`` at an older version. Without ``r2`` its listener would warm for 15 s and then answer 404."""
    client = live(server, variant, site("a"))
    client.cold.add("d")
    push(server, site("a", route="r2"))
    while TARGET not in client.opening:
        client.step()
    client.disconnect()
    push(server, site("d", route="r2", text=COLD))
    server.restart()
    client.reconnect()
    if paused:
        while "d" not in client.warming:
            client.step()
        client.disconnect()
        server.restart()
        client.reconnect()
    spend(14, client)
    assert used(client) == {"r2": "a"}
    assert not client.lost


# -- 7: refused full sets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [CLUSTER, LISTENER])
def test_trap_7_resources_that_a_client_applied_of_a_rejected_set_are_not_reverted(
    server: Server, variant: Variant, url: str
) -> None:
    """Envoy applies the good resources of a rejected set. To send all suspects as last accepted would revert 49."""
    names = [f"c{index:02}" for index in range(50)]

    def many(text: str, **others: str) -> Site:
        words = {CLUSTER: text, LISTENER: f"to:c00 {text}"}
        content = joined(
            site(*names), {LISTENER: dict.fromkeys(names, words[LISTENER] if url == LISTENER else "to:c00")}
        )
        content[CLUSTER] = dict.fromkeys(names, words[CLUSTER] if url == CLUSTER else "@0")
        return joined(content, {url: {name: f"{words[url]} {extra}" for name, extra in others.items()}})

    client = live(server, variant, many("@1"))
    push(server, many("@2", c17="bad"))
    spend(1, client)
    newest = many("@2", c17="bad", c03="@3")
    push(server, newest)
    for _ in range(3):
        while client.step():
            held = client.serving()[url]
            assert {held[name] for name in names if name not in ("c03", "c17")} == {newest[url]["c00"]}
        spend(1, client)
    assert client.serving()[url] == {**newest[url], "c17": many("@1")[url]["c17"]}
    push(server, many("@2", c03="@3"))
    spend(DRAINED_S, client)
    assert_in_step(client, many("@2", c03="@3"))


def test_trap_7_a_rejection_without_a_name_is_narrowed_down(server: Server, variant: Variant) -> None:
    """Half of the suspects are replaced at each push, until the rejected one is alone."""
    names = [f"c{index}" for index in range(8)]
    client = live(server, variant, site(*names))
    content = joined(site(*names, text="@2"), {CLUSTER: {"c3": "malformed"}})
    for index in range(10):
        content = joined(content, {CLUSTER: {"c0": f"@{index}"}})
        push(server, content)
        spend(2, client)
    assert client.serving()[CLUSTER] == {**content[CLUSTER], "c3": "@1"}
    assert not client.lost


@delta_only
def test_trap_7_applied_resources_of_a_rejected_response_are_removed_though_the_client_does_not_show_them(
    server: Server, variant: Variant
) -> None:
    """After a reconnect, `initial_resource_versions` lists nothing of a NACKed response, not even what took effect.

    See docs/internals/clients.md#nacks.
    """
    client = live(server, variant, site("a"))
    push(server, joined(site("a"), {CLUSTER: {"good": "@1", "x": "bad"}, ENDPOINT: {"good": "1"}}))
    spend(1, client)
    assert set(client.active) == {"a", "good"}
    client.disconnect()
    push(server, site("a"))
    client.reconnect()
    spend(DRAINED_S, client)
    assert set(client.active) == {"a"}


@delta_only
def test_trap_7_resources_removed_by_a_rejected_response_are_sent_though_the_client_lists_them(
    server: Server, variant: Variant
) -> None:
    """A Delta Envoy drops the removed names of a response that it rejects, and goes on listing their versions: its
    ``handleGoodResponse`` applies a response before it updates the versions."""
    client = live(server, variant, joined(site("a"), {CLUSTER: {"b": "@1"}, ENDPOINT: {"b": "1"}}))
    push(server, site("a"))
    while server.now < REMOVED_S:  # until b is gone, a refused cluster keeps coming anew
        push(server, joined(site("a"), {CLUSTER: {"x": f"bad @{server.now}"}}))
        spend(1, client)
    assert set(client.active) == {"a"}
    client.disconnect()
    push(server, joined(site("b"), {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}}))
    client.reconnect()
    spend(DRAINED_S, client)
    assert not client.lost
    assert set(client.active) == {"a", "b"}


@sotw_only
def test_trap_7_an_error_of_an_earlier_response_is_not_of_the_repaired_one(server: Server, variant: Variant) -> None:
    """Envoy keeps ``error_detail`` in the request that it will send: while CDS is paused, a refused response and a
    good one are answered at once, by the nonce and the version of the good one and the error of the refused one."""
    client = live(server, variant, site("a"))
    client.cold.add("y")
    good = joined(site("a"), {CLUSTER: {"y": COLD}, ENDPOINT: {"y": "1"}})
    push(server, joined(good, {CLUSTER: {"x": "bad"}}))
    spend(1, client)
    push(server, good)
    spend(OFFER_TIMEOUT_S + 1, client)
    client.warm("y")
    spend(DRAINED_S, client)
    assert_in_step(client, good)


# -- 8: security -------------------------------------------------------------------------------------------------------


def test_trap_8_a_route_waits_for_the_filter_that_guards_it(server: Server, variant: Variant) -> None:
    """The new ``r1`` opens ``/admin``. It must not reach the old listener while the new one is ACKed but warms."""
    client = live(server, variant, site("a"))
    content = joined(site("a", listener="r1 authz sds:s"), {ROUTE: {"r1": f"a {ADMIN}"}})
    push(server, content)
    spend(10, client)
    assert not client.exposures
    content = joined(content, {SECRET: {"s": "1"}})
    push(server, content)
    spend(DRAINED_S, client)
    assert not client.exposures
    assert_in_step(client, content)


def test_trap_8_a_returning_client_that_acks_nothing_new_may_still_warm_its_listener(
    server: Server, variant: Variant
) -> None:
    """The listener that it shows warms for a secret. In Delta the server answers its first request with nothing."""
    client = live(server, variant, site("a"))
    push(server, site("a", listener="r1 authz sds:s"))
    spend(1, client)
    client.disconnect()
    content = joined(site("a", "c", listener="r1 authz sds:s @2"), {ROUTE: {"r1": f"a c {ADMIN}"}})
    push(server, content)
    client.reconnect()
    spend(10, client)
    assert not client.exposures
    content = joined(content, {SECRET: {"s": "1"}})
    push(server, content)
    spend(DRAINED_S, client)
    assert not client.exposures
    assert_in_step(client, content)


def test_trap_8_a_route_of_a_listener_of_which_the_log_has_only_later_versions_waits(server: Server) -> None:
    """In Delta a client shows a version. What it refers to is not known after ten later ones."""
    client = live(server, Variant.DELTA, site("a"))
    client.disconnect()
    server.restart()
    for number in range(VERSIONS_KEPT + 1):
        push(server, site("a", listener=f"r1 @{number}"))
    content = joined(site("a", listener="r1 authz sds:s"), {ROUTE: {"r1": f"a {ADMIN}"}, SECRET: {"s": "1"}})
    push(server, content)
    client.reconnect()
    spend(1, client)
    assert not client.exposures
    spend(DRAINED_S, client)
    assert_in_step(client, content)


def test_trap_8_a_route_that_moves_to_a_guarded_listener_is_not_opened_on_the_old_one(
    server: Server, variant: Variant
) -> None:
    """Off ADS: ``svc`` is about to go back to ``r2``, whose cluster lingered and becomes an aggregate, when ``r2`` goes
    to ``web`` with a path that both have a filter for."""
    client = live(server, variant, site("d", route="r2"), split=True)
    push(server, inline("a"), source="api")
    spend(40, client)
    aggregate = {CLUSTER: {"a": "@1", "d": "of:a"}, ENDPOINT: {"a": "2", "d": "2"}}
    push(server, joined(site("d", route="r2"), aggregate), source="api")
    for _ in range(3):
        client.run()
    guarded = joined(site("a", listener="r1 authz"), {LISTENER: {"web": "r2 authz"}, ENDPOINT: {"d": "1"}})
    push(server, joined(guarded, {ROUTE: {"r1": f"a {ADMIN}", "r2": f"a {ADMIN}"}}), source="api")
    spend(DRAINED_S, client)
    assert not client.exposures


# -- 9: labels ---------------------------------------------------------------------------------------------------------


@sotw_only
def test_trap_9_a_label_may_repeat(server: Server, variant: Variant) -> None:
    """Content decides whether a client is in sync, never the label."""
    push(server, site("a"), label="v")
    client = EnvoyLike(server, variant)
    client.start()
    client.disconnect()
    push(server, site("b"), label="v")
    client.reconnect()
    spend(DRAINED_S, client)
    assert_in_step(client, site("b"))


@delta_only
def test_trap_9_resources_of_another_server_linger(server: Server, variant: Variant) -> None:
    """An unknown name in `initial_resource_versions` is not reported as removed before lingering ends."""
    client = live(server, variant, site("foreign"))
    other = Server()
    push(other, site("b"))
    client.move(other)
    client.reconnect()
    client.run()
    assert used(client) == {"r1": "b"}
    spend(DRAINED_S, client)
    assert_in_step(client, site("b"))


# -- 10, 11, 12: lingering ---------------------------------------------------------------------------------------------


def test_trap_10_lingering_ends_though_something_is_never_there(server: Server, variant: Variant) -> None:
    """Routes or secrets by REST, missing or rejected, are never ACKed here."""
    client = live(server, variant, site("a"))
    push(server, joined(site("b"), {LISTENER: {TARGET: "r1", "web": "missing"}, ROUTE: {"r1": "b"}}))
    spend(DRAINED_S, client)
    assert set(client.active) == {"b"}


def test_trap_10_lingering_ends_though_connections_are_short(server: Server, variant: Variant) -> None:
    """A clock that starts again at each reconnect would never end."""
    client = live(server, variant, inline("a"))
    push(server, inline("b"))
    for _ in range(int(DRAINED_S) // 60 + 1):
        spend(60, client)
        if client.server.now < DRAIN_S:
            assert "a" in client.active
        client.disconnect()
        client.reconnect()
    spend(REMOVED_S, client)  # each connection keeps it for `removal_delay_s`
    assert_in_step(client, inline("b"))


@delta_only
def test_trap_10_lingering_resources_have_heartbeats(server: Server, variant: Variant) -> None:
    """By heartbeats, where it has a TTL."""
    client = live(server, variant, inline("a"), ttls={CLUSTER: 9.0})
    push(server, inline("b"), ttls={CLUSTER: 9.0})
    spend(DRAIN_S, client)
    assert set(client.active) == {"a", "b"}
    assert not client.lost
    spend(DRAINED_S - DRAIN_S, client)
    assert set(client.active) == {"b"}


def test_trap_10_lingering_is_bounded(server: Server, variant: Variant) -> None:
    """By `linger_max` pushes. Beyond it the oldest resources are removed early."""
    client = live(server, variant, inline("c0"))
    for index in range(1, 130):
        push(server, inline(f"c{index}"))
        spend(1, client)
    assert 90 <= len(client.active) <= 102
    assert f"c{129 - 80}" in client.active


def test_trap_10_what_a_held_route_leads_to_does_not_end_early(server: Server, variant: Variant) -> None:
    server.rules = replace(server.rules, linger_max=2)
    server.clients = ClientTable(server.cache, server.rules)
    client = live(server, variant, site("a"))
    refused = joined(site("b"), {CLUSTER: {"b": "bad"}})
    for index in range(5):
        push(server, joined(refused, {CLUSTER: {f"x{index}": "static"}}))
        spend(1, client)
    assert set(client.active) == {"a", "x2", "x3", "x4"}
    assert not client.lost
    push(server, site("b"))
    spend(DRAINED_S, client)
    assert_in_step(client, site("b"))


def test_trap_10_an_early_end_of_lingering_is_an_event(server: Server, variant: Variant) -> None:
    """An event names them."""
    server.rules = replace(server.rules, linger_max=2)
    server.clients = ClientTable(server.cache, server.rules)
    client = live(server, variant, inline("c0"))
    for index in range(1, 6):
        push(server, inline(f"c{index}"))
        spend(1, client)
    cuts = [event for link in client.links for event in link.events if isinstance(event, LingerCut)]
    removals = [removal for cut in cuts for removal in cut.removals]
    assert [(removal.revision, list(removal.names[CLUSTER])) for removal in removals] == [
        (2, ["c0"]),
        (3, ["c1"]),
        (4, ["c2"]),
    ]
    assert set(client.active) == {"c3", "c4", "c5"}


def test_trap_11_lingering_ends_for_all_clients_at_once(server: Server, variant: Variant) -> None:
    """Ends are rounded up to multiples of 5 s, so that the clients of a group share encoded responses."""
    first = live(server, variant, site("a"), peer="one")
    second = EnvoyLike(server, variant, "other", peer="two")
    second.start()
    server.now = 101.0
    push(server, site("b"))
    spend(1, first)  # the other one reads nothing yet
    spend(REMOVED_S, first, second)
    ends = [[e.response.body for link in c.links for e in link.events if isinstance(e, Send)] for c in (first, second)]
    assert set(first.active) == set(second.active) == {"b"}
    assert ends[0][-1] == ends[1][-1]


def test_trap_12_lingering_clusters_keep_their_endpoints(server: Server, variant: Variant) -> None:
    """Their removal is not sent yet, and a request for them is answered."""
    client = live(server, variant, inline("a"))
    push(server, inline("b"))
    spend(20, client)
    client.disconnect()
    client.reconnect()
    spend(20, client)
    client.disconnect()
    push(server, inline("c"))
    client.reconnect()
    spend(20, client)
    assert {name: cluster.endpoints for name, cluster in client.active.items()} == dict.fromkeys("abc", "1")
    assert not client.lost
    spend(DRAINED_S, client)
    assert_in_step(client, inline("c"))

"""Internal listeners that a cluster's own endpoints name belong to the cluster's tree.

See docs/internals/design.md#additions.
"""

from __future__ import annotations

import pytest

from tests.support.personas import DRAIN_S, DRAINED_S, EnvoyLike, assert_in_step, live, push, spend
from tests.support.sansio import Server
from tests.support.texts import TARGET, Site, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.dialect import Variant

INNER = "inner"
SPLIT = pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])


BY_EDS = pytest.mark.parametrize("by_eds", [False, True], ids=["in-cluster", "in-assignment"])


def tunnelled(
    cluster: str = "b", *, text: str = "@1", route: str = "r1", inner: str = "", by_eds: bool = False
) -> Site:
    """The target leads to ``tunnel``, whose endpoint is the internal listener, which leads to a cluster.

    ``by_eds``: the assignment of ``tunnel`` says so, else the cluster itself.
    """
    behind = f"in:{INNER}"
    return {
        CLUSTER: {"tunnel": "@1" if by_eds else behind, cluster: text},
        ENDPOINT: {cluster: "1", **({"tunnel": behind} if by_eds else {})},
        LISTENER: {TARGET: route, INNER: f"{inner or f'to:{cluster}'} internal"},
        ROUTE: {route: "tunnel"} if not route.startswith("to:") else {},
    }


def _source(split: bool) -> str:
    return "api" if split else "ads"


@pytest.mark.parametrize("route", ["r1", "to:tunnel"], ids=["rds", "inline"])
@pytest.mark.parametrize(("split", "inner"), [(False, "to:b"), (False, "r2"), (True, "to:b")])
@BY_EDS
def test_a_tree_waits_for_the_ack_of_a_new_internal_listener(
    server: Server, variant: Variant, split: bool, route: str, inner: str, by_eds: bool
) -> None:
    """On separate streams, the routes of the internal listener are not waited for."""
    client = live(server, variant, site("a"), split=split)
    after = tunnelled(text="hc:3", route=route, inner=inner, by_eds=by_eds)
    after[ROUTE] = {**after[ROUTE], **({"r2": "b"} if inner == "r2" else {})}
    push(server, after, source=_source(split))
    spend(2, client)
    assert client.serving()[LISTENER] == {TARGET: "r1"}, "b is cold"
    assert client.serving()[ROUTE] == {"r1": "a"}
    spend(DRAINED_S, client)
    assert_in_step(client, after)


@SPLIT
@BY_EDS
def test_an_internal_listener_stays_as_long_as_the_cluster_that_leads_to_it(
    server: Server, variant: Variant, split: bool, by_eds: bool
) -> None:
    client = live(server, variant, tunnelled(route="to:tunnel", by_eds=by_eds), split=split)
    after = site("a", listener="to:a")
    push(server, after, source=_source(split))
    spend(DRAIN_S / 2, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a", INNER: "to:b internal"}
    assert set(client.active) == {"a", "b", "tunnel"}
    spend(DRAINED_S, client)
    assert set(client.listening) == {TARGET}
    assert not client.lost


@SPLIT
@BY_EDS
def test_a_rejected_internal_listener_holds_the_trees_that_lead_to_it(
    server: Server, variant: Variant, split: bool, by_eds: bool
) -> None:
    client = live(server, variant, site("a"), split=split)
    push(server, tunnelled(inner="to:b bad", by_eds=by_eds), source=_source(split))
    spend(60, client)
    assert client.serving()[ROUTE] == {"r1": "a"}
    push(server, tunnelled(by_eds=by_eds), source=_source(split))
    spend(DRAINED_S, client)
    assert_in_step(client, tunnelled(by_eds=by_eds))


@SPLIT
def test_internal_listeners_that_refer_to_each_other_hold_nothing(
    server: Server, variant: Variant, split: bool
) -> None:
    """A cycle through internal listeners: they go out together."""
    client = live(server, variant, site("a"), split=split)
    after: Site = {
        CLUSTER: {"there": "in:one", "back": "in:two", "a": "@1"},
        ENDPOINT: {"a": "1"},
        LISTENER: {TARGET: "r1", "one": "to:back internal", "two": "to:there to:a internal"},
        ROUTE: {"r1": "there"},
    }
    push(server, after, source=_source(split))
    spend(1, client)
    assert client.serving()[LISTENER] == after[LISTENER]
    spend(DRAINED_S, client)
    assert_in_step(client, after)


@SPLIT
def test_a_changed_internal_listener_serves_its_earlier_version_while_it_is_held(
    server: Server, variant: Variant, split: bool
) -> None:
    """Nobody waits for it, but what it newly leads to is there before it."""
    client: EnvoyLike = live(server, variant, tunnelled(), split=split)
    after = tunnelled("c", text="hc:12")
    after[CLUSTER]["d"], after[ENDPOINT]["d"], after[ROUTE]["r1"] = "@1", "1", "tunnel d"
    push(server, after, source=_source(split))
    spend(8, client)
    assert client.serving()[ROUTE] == {"r1": "tunnel d"}
    assert client.serving()[LISTENER][INNER] == "to:b internal"
    spend(DRAINED_S, client)
    assert_in_step(client, after)


# A cluster that is in use begins to lead over an internal listener, or ceases to

PLAIN = {CLUSTER: "@1", ENDPOINT: "1"}
IN_ASSIGNMENT = {CLUSTER: "@1", ENDPOINT: f"in:{INNER}"}
IN_CLUSTER = {CLUSTER: f"in:{INNER}"}
RENAMED = {CLUSTER: "eds:inside", ENDPOINT: f"in:{INNER}"}
BEGINS = pytest.mark.parametrize(
    "over", [IN_ASSIGNMENT, IN_CLUSTER, RENAMED], ids=["assignment", "cluster", "other-assignment"]
)


def used(tunnel: dict[str, str], *, inner: str = "", text: str = "@1") -> Site:
    """The target leads to ``tunnel``, which is of these texts; ``inner`` is the internal listener, if there is one."""
    assignment = "inside" if "eds:" in tunnel[CLUSTER] else "tunnel"
    return {
        CLUSTER: {"tunnel": tunnel[CLUSTER], **({"b": text} if inner else {})},
        ENDPOINT: {
            **({assignment: tunnel[ENDPOINT]} if ENDPOINT in tunnel else {}),
            **({"b": "1"} if inner else {}),
        },
        LISTENER: {TARGET: "r1", **({INNER: f"{inner} internal"} if inner else {})},
        ROUTE: {"r1": "tunnel"},
    }


@SPLIT
@BEGINS
def test_the_internal_listener_stays_until_nothing_uses_it(
    server: Server, variant: Variant, split: bool, over: dict[str, str]
) -> None:
    client = live(server, variant, used(over, inner="to:b"), split=split)
    after = used(PLAIN)
    push(server, after, source=_source(split))
    spend(10, client)
    assert client.serving()[LISTENER] == {TARGET: "r1", INNER: "to:b internal"}
    spend(DRAINED_S + DRAIN_S, client)  # Envoy drains it once it is gone
    assert_in_step(client, after)


@SPLIT
@BY_EDS
@pytest.mark.parametrize("is_away", [False, True], ids=["there", "away"])
@pytest.mark.parametrize("variant", [Variant.DELTA], ids=["delta"])
def test_a_route_that_only_a_draining_listener_uses_is_sent_before_a_listener_that_names_it_again(
    server: Server, variant: Variant, split: bool, by_eds: bool, is_away: bool
) -> None:
    """An internal listener lingers first and drains then. Meanwhile, Envoy keeps its routes, but not their clusters."""
    name_again_what_drains(server, variant, split=split, by_eds=by_eds, is_away=is_away)


@SPLIT
@BY_EDS
def test_a_route_that_only_a_draining_listener_uses_is_sent_before_a_listener_that_names_it_again_in_sotw(
    server: Server, split: bool, by_eds: bool
) -> None:
    """Not after a return: a label does not tell which version of a route a client has."""
    name_again_what_drains(server, Variant.SOTW, split=split, by_eds=by_eds, is_away=False)


def name_again_what_drains(server: Server, variant: Variant, *, split: bool, by_eds: bool, is_away: bool) -> None:
    """A push names the routes of a draining internal listener again. ``is_away``: the client is away meanwhile."""
    before = tunnelled("b", inner="r2", by_eds=by_eds)
    before[ROUTE] = {**before[ROUTE], "r2": "b"}
    client = live(server, variant, before, split=split)
    push(server, site("a"), source=_source(split))
    spend(DRAIN_S + 20, client)
    assert [chain.name for _, chain in client.draining] == [INNER]
    after = {**site("a"), LISTENER: {TARGET: "r1", "web": "r2"}, ROUTE: {"r1": "a", "r2": "a"}}
    if is_away:
        client.disconnect()
    push(server, after, source=_source(split))
    if is_away:
        client.reconnect()
    spend(2 * DRAINED_S, client)
    assert not client.lost
    assert_in_step(client, after)

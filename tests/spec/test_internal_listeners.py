"""Internal listeners that a cluster's own endpoints name belong to the cluster's tree (docs/design.md#additions)."""

from __future__ import annotations

import pytest

from tests.support.personas import DRAIN_S, DRAINED_S, EnvoyLike, assert_in_step, live, push, spend
from tests.support.sansio import Server
from tests.support.texts import TARGET, Site, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.dialect import Variant

INNER = "inner"
SPLIT = pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])


def tunnelled(cluster: str = "b", *, text: str = "@1", route: str = "r1", inner: str = "") -> Site:
    """The target leads to ``tunnel``, whose endpoint is the internal listener, which leads to a cluster."""
    return {
        CLUSTER: {"tunnel": f"in:{INNER}", cluster: text},
        ENDPOINT: {cluster: "1"},
        LISTENER: {TARGET: route, INNER: f"{inner or f'to:{cluster}'} internal"},
        ROUTE: {route: "tunnel"} if not route.startswith("to:") else {},
    }


def _source(split: bool) -> str:
    return "api" if split else "ads"


@SPLIT
@pytest.mark.parametrize("route", ["r1", "to:tunnel"], ids=["rds", "inline"])
@pytest.mark.parametrize("inner", ["to:b", "r2"], ids=["inner-inline", "inner-rds"])
def test_what_leads_to_an_internal_listener_waits_until_that_is_ready(
    server: Server, variant: Variant, split: bool, route: str, inner: str
) -> None:
    client = live(server, variant, site("a"), split=split)
    after = tunnelled(text="hc:3", route=route, inner=inner)
    after[ROUTE] = {**after[ROUTE], **({"r2": "b"} if inner == "r2" else {})}
    push(server, after, source=_source(split))
    spend(2, client)
    assert client.serving()[LISTENER] == {TARGET: "r1"}, "b is cold"
    assert client.serving()[ROUTE] == {"r1": "a"}
    spend(DRAINED_S, client)
    assert_in_step(client, after)


@SPLIT
def test_an_internal_listener_stays_as_long_as_the_cluster_that_leads_to_it(
    server: Server, variant: Variant, split: bool
) -> None:
    client = live(server, variant, tunnelled(route="to:tunnel"), split=split)
    after = site("a", listener="to:a")
    push(server, after, source=_source(split))
    spend(DRAIN_S / 2, client)
    assert client.serving()[LISTENER] == {TARGET: "to:a", INNER: "to:b internal"}
    assert set(client.active) == {"a", "b", "tunnel"}
    spend(DRAINED_S, client)
    assert set(client.listening) == {TARGET}
    assert not client.lost


@SPLIT
def test_an_internal_listener_that_is_refused_holds_what_leads_to_it(
    server: Server, variant: Variant, split: bool
) -> None:
    client = live(server, variant, site("a"), split=split)
    push(server, tunnelled(inner="to:b bad"), source=_source(split))
    spend(60, client)
    assert client.serving()[ROUTE] == {"r1": "a"}
    push(server, tunnelled(), source=_source(split))
    spend(DRAINED_S, client)
    assert_in_step(client, tunnelled())


@SPLIT
def test_internal_listeners_that_lead_to_each_other_hold_nothing(server: Server, variant: Variant, split: bool) -> None:
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
def test_a_changed_internal_listener_serves_as_it_was(server: Server, variant: Variant, split: bool) -> None:
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

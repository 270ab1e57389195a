"""Filters by ECDS that guard routes: what is behind a filter never overtakes its change.

See docs/internals/design.md#traps, 8.
"""

from __future__ import annotations

import pytest

from tests.support.personas import DRAINED_S, EnvoyLike, assert_in_step, live, push, spend
from tests.support.sansio import Server
from tests.support.texts import ADMIN, AUTHZ, BAD, joined, site
from xds.model.resource_type import EXTENSION_CONFIG, LISTENER, ROUTE
from xds.protocol.dialect import Variant

WAITED_S = 36.0  # nothing unproved waits longer


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("text", ["@2", BAD], ids=["taken", "refused"])
def test_trap_8_a_route_waits_for_a_filter_that_changes(
    server: Server, variant: Variant, *, split: bool, text: str
) -> None:
    """The listener stays as it is: its filter comes by ECDS."""
    source = "api" if split else "ads"
    content = joined(site("a", listener="r1 ecds:f"), {ROUTE: {"r1": "a"}, EXTENSION_CONFIG: {"f": "@1"}})
    client = live(server, variant, content, split=split)
    opened = {ROUTE: {"r1": f"a {ADMIN}"}}
    push(server, joined(content, {EXTENSION_CONFIG: {"f": text}}, opened), source=source)
    assert not client.pending(ROUTE)
    spend(WAITED_S, client)
    assert client.serving()[ROUTE] == (content if text == BAD else opened)[ROUTE]
    content = joined(content, {EXTENSION_CONFIG: {"f": "@3"}}, opened)
    push(server, content, source=source)
    spend(DRAINED_S, client)
    assert not client.lost
    assert_in_step(client, content)


@pytest.mark.parametrize("restarted", [False, True], ids=["cut", "restarted"])
@pytest.mark.parametrize("bad", [False, True], ids=["taken", "refused"])
@pytest.mark.parametrize(("split", "backwards"), [(False, False), (True, False), (True, True)])
def test_trap_8_a_route_waits_for_a_filter_that_changed_while_the_client_was_away(
    server: Server, variant: Variant, *, split: bool, backwards: bool, bad: bool, restarted: bool
) -> None:
    """The filter came after the routes, so a client that comes back asks for it last."""
    source = "api" if split else "ads"
    client = live(server, variant, site("a"), split=split)
    content = joined(site("a", listener="r1 ecds:f"), {ROUTE: {"r1": "a"}, EXTENSION_CONFIG: {"f": "@1"}})
    push(server, content, source=source)
    spend(DRAINED_S, client)
    client.disconnect()
    text = f"{AUTHZ} {BAD}" if bad else AUTHZ
    content = joined(content, {EXTENSION_CONFIG: {"f": text}, ROUTE: {"r1": f"a {ADMIN}"}})
    push(server, content, source=source)
    if restarted:
        server.restart()
    client.reconnect(lambda links: list(reversed(links)) if backwards else links)
    spend(WAITED_S, client)
    assert client.serving()[ROUTE] == {"r1": "a" if bad else f"a {ADMIN}"}
    content = joined(content, {EXTENSION_CONFIG: {"f": f"{AUTHZ} @2"}})
    push(server, content, source=source)
    spend(DRAINED_S, client)
    assert not client.exposures
    assert not client.lost
    assert_in_step(client, content)


def test_trap_8_a_route_is_sent_beside_a_rejected_filter_where_on_nack_is_proceed(
    server: Server, variant: Variant
) -> None:
    """`on_nack: proceed`."""
    content = joined(site("a", listener="r1 ecds:f"), {ROUTE: {"r1": "a"}, EXTENSION_CONFIG: {"f": "@1"}})
    client = live(server, variant, content)
    push(server, joined(content, {EXTENSION_CONFIG: {"f": BAD}, ROUTE: {"r1": f"a {ADMIN}"}}), on_nack="proceed")
    spend(1, client)
    assert client.serving()[ROUTE] == {"r1": f"a {ADMIN}"}


def test_trap_8_a_route_waits_for_its_filter_whatever_other_filters_do(server: Server, variant: Variant) -> None:
    """Off ADS each filter has a stream: one that the client refuses says nothing of the others."""
    content = joined(site("a", listener="r1 ecds:f"), {LISTENER: {"a": "to:a ecds:bad"}, ROUTE: {"r1": "a"}})
    content = joined(content, {EXTENSION_CONFIG: {"f": "@1", "bad": BAD}})
    push(server, content, source="api")
    client = EnvoyLike(server, variant, split=True)
    client.start()
    push(server, joined(content, {EXTENSION_CONFIG: {"f": "@2"}, ROUTE: {"r1": f"a {ADMIN}"}}), source="api")
    assert [send.response.names for send in client.pending(EXTENSION_CONFIG)] == [("f",)]
    assert not client.pending(ROUTE)
    spend(1, client)
    assert client.serving()[ROUTE] == {"r1": f"a {ADMIN}"}


@pytest.mark.parametrize("text", [AUTHZ, f"{AUTHZ} {BAD}"], ids=["taken", "refused"])
@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
def test_trap_8_a_listener_waits_for_its_filter_that_changes(
    server: Server, variant: Variant, *, split: bool, text: str
) -> None:
    """It leads to a route configuration again that its old connections still use, so it needs to wait for nothing."""
    source = "api" if split else "ads"
    client = live(server, variant, site("a"), split=split)
    content = joined(site("a", listener="to:a ecds:f"), {EXTENSION_CONFIG: {"f": "@1"}})
    push(server, content, source=source)
    spend(1, client)
    opened = joined(site("a", listener="r1 ecds:f"), {ROUTE: {"r1": f"a {ADMIN}"}, EXTENSION_CONFIG: {"f": text}})
    push(server, opened, source=source)
    spend(WAITED_S, client)
    is_refused = BAD in text
    assert client.serving()[LISTENER] == (content if is_refused else opened)[LISTENER]
    opened = joined(opened, {EXTENSION_CONFIG: {"f": f"{AUTHZ} @2"}})
    push(server, opened, source=source)
    spend(DRAINED_S, client)
    assert not client.exposures
    assert not client.lost
    assert_in_step(client, opened)


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
def test_a_rejected_change_of_a_filter_holds_the_routes_and_listeners_that_name_it(
    server: Server, variant: Variant, split: bool
) -> None:
    source = "api" if split else "ads"
    before = joined(site("a", listener="r1 ecds:f"), {EXTENSION_CONFIG: {"f": "@1"}})
    client = live(server, variant, before, split=split)
    after = joined(site("a", listener="r1 ecds:f @2"), {ROUTE: {"r1": "a @2"}})
    push(server, joined(after, {EXTENSION_CONFIG: {"f": BAD}}), source=source)
    spend(100, client)
    assert [client.serving()[url] for url in (LISTENER, ROUTE)] == [before[LISTENER], before[ROUTE]]
    push(server, joined(after, {EXTENSION_CONFIG: {"f": "@3"}}), source=source)
    spend(100, client)
    assert [client.serving()[url] for url in (LISTENER, ROUTE)] == [after[LISTENER], after[ROUTE]]

"""Resources that a push removes linger with the client, and are removed after a time.

See docs/internals/design.md#removals.
"""

from __future__ import annotations

import pytest

from tests.spec.by_hand import (
    DRAINED_S,
    GRID_S,
    ORDER_TIMEOUT_S,
    REMOVED_S,
    TYPES,
    start,
    states,
    wait,
    with_listener,
)
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server, make_resource
from tests.support.texts import TARGET, Site, joined, push, site
from xds.model.resource import Reference
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)
from xds.protocol.events import Acked, LingerChanged
from xds.snapshots.order import GroupOrder

REMOVAL_DELAY_S, LISTENER_DRAIN_S = 15.0, 600.0
A, B = site("a"), site("b")


def removed(client: Client) -> dict[str, tuple[str, ...]]:
    """What Delta responses told as removed so far, by type."""
    events = (event.response for event in client.events if isinstance(event, Acked) and event.response.removed)
    return {response.resource_set.type.type_url: response.removed for response in events}


# -- how long ----------------------------------------------------------------------------------------------------------


def test_clusters_stay_for_the_removal_delay_where_no_listener_changed(server: Server, client: Client) -> None:
    """`removal_delay_s` is 15, as long as Envoy's route timeout: retries and paused filters look clusters up again."""
    push(server, A)
    start(client)
    push(server, B)
    client.settle()
    wait(server, REMOVAL_DELAY_S - 1, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S - REMOVAL_DELAY_S + 1, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


@pytest.mark.parametrize(
    "after",
    [with_listener(B, "r1 @2"), site("b", listener="to:b"), site("b", route="r2"), site("b", name="other")],
    ids=["changed", "inline", "route-name", "removed"],
)
def test_clusters_stay_for_the_drain_time_where_a_listener_changed_or_went(
    server: Server, client: Client, after: Site
) -> None:
    """So they do where a filter chain or the name of a route configuration changed. `listener_drain_s` is 600, as
    Envoy's ``--drain-time-s``, and the removal delay is added."""
    push(server, A)
    start(client)
    client.subscribe(ROUTE, "r1", "r2")
    push(server, after)
    wait(server, LISTENER_DRAIN_S + REMOVAL_DELAY_S - 1, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S - REMOVAL_DELAY_S + 1, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_new_listener_drains_nothing(server: Server, client: Client) -> None:
    """A listener that is only added has no old connections."""
    push(server, A)
    start(client)
    push(server, joined(B, {LISTENER: {"second": "r1"}}))
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_removal_times_are_settings_of_a_group(server: Server, client: Client) -> None:
    """Both times are settings, per group too."""
    server.cache.configure([], {"default": GroupOrder(removal_delay_s=40.0, listener_drain_s=100.0)})
    push(server, A)
    start(client)
    push(server, B)
    wait(server, 39, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, 1 + GRID_S, client)
    push(server, with_listener(A, "r1 @2"))
    wait(server, 139, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, 1 + GRID_S, client)
    assert client.texts(CLUSTER) == {"a": "@1"}


# -- since when --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [LISTENER, ROUTE])
def test_lingering_is_timed_from_the_ack_of_everything_that_could_refer_to_the_resource(
    server: Server, client: Client, last: str
) -> None:
    """A push alone starts no clock."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    for url in (CLUSTER, ENDPOINT):
        client.ack(url)
    if last == ROUTE:
        client.ack(LISTENER)
    assert client.pending(last)
    server.elapse(3600)
    assert not client.pending(CLUSTER)
    client.settle()
    wait(server, LISTENER_DRAIN_S, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_lingering_is_timed_though_a_name_of_a_listener_never_comes(server: Server, client: Client) -> None:
    """It starts `order_timeout_s` after the LDS ACK."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 sds:none"))
    wait(server, ORDER_TIMEOUT_S + LISTENER_DRAIN_S, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_resources_of_an_earlier_swap_linger_until_their_own_end(server: Server, client: Client) -> None:
    """Removals of several pushes linger beside each other."""
    push(server, A)
    start(client)
    push(server, B)
    wait(server, 10, client)
    push(server, site("c"))
    wait(server, 2, client)
    assert set(client.texts(CLUSTER)) == {"a", "b", "c"}
    wait(server, 9, client)
    assert set(client.texts(CLUSTER)) == {"b", "c"}
    wait(server, 10, client)
    assert set(client.texts(CLUSTER)) == {"c"}


def test_a_push_that_changes_no_listener_does_not_shorten_a_drain(server: Server, client: Client) -> None:
    """Old connections are on their old filter chain, whatever is pushed next."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    wait(server, 60, client)
    push(server, with_listener(site("c"), "r1 @2"))
    wait(server, LISTENER_DRAIN_S - 61, client)
    assert set(client.texts(CLUSTER)) == {"a", "b", "c"}
    wait(server, 61 + REMOVED_S, client)
    assert set(client.texts(CLUSTER)) == {"c"}


# -- what lingers ------------------------------------------------------------------------------------------------------


def test_a_mixed_set_is_labelled_by_the_served_content(server: Server, client: Client) -> None:
    """While something lingers, the label is that of the push with the hash of what is served; the last response is
    exactly the pushed version."""
    push(server, A, label="one")
    start(client)
    push(server, B, label="two")
    [label] = {send.response.version_info for send in client.pending(CLUSTER)}
    stem, _, served = label.partition("+")
    assert (stem, len(served)) == ("two", 8)
    wait(server, REMOVED_S + GRID_S, client)
    acked = [e.response.version_info for e in client.events if isinstance(e, Acked) and e.type_url == CLUSTER]
    assert acked == ["one", label, "two"]
    assert states(client) == {"synced"}


def test_resources_that_nothing_can_use_are_reported_as_removed_in_delta(server: Server, delta: Client) -> None:
    """Until then the removal of routes, assignments and secrets is not sent."""
    push(server, joined(site("a", route="r0"), {SECRET: {"s": "@1"}, LISTENER: {TARGET: "r0 sds:s"}}))
    delta.subscribe(ROUTE, "r0", "r1")
    start(delta, (*TYPES, SECRET))
    delta.events.clear()
    push(server, B)
    wait(server, LISTENER_DRAIN_S, delta)
    assert not removed(delta)
    wait(server, REMOVED_S, delta)
    assert removed(delta) == {CLUSTER: ("a",), ENDPOINT: ("a",), ROUTE: ("r0",), SECRET: ("s",)}


def test_a_name_that_lingers_is_answered(server: Server, client: Client) -> None:
    """An old filter chain may request its routes once more."""
    push(server, joined(A, {SECRET: {"s": "@1"}}))
    start(client, (*TYPES, SECRET))
    push(server, site("b", route="r2"))
    wait(server, 60, client)
    for url, name, text in ((ENDPOINT, "a", "1"), (ROUTE, "r1", "a"), (SECRET, "s", "@1")):
        client.unsubscribe(url, name)
        client.subscribe(url, name)
        client.settle()
        assert client.texts(url)[name] == text


def test_a_resource_that_is_pushed_again_lingers_no_more(server: Server, client: Client) -> None:
    """A -> B -> A: it is the pushed one that is served, and it does not go when the old end comes."""
    push(server, A)
    start(client)
    push(server, B)
    wait(server, 5, client)
    push(server, site("a", text="@2"))
    wait(server, 1, client)
    assert client.texts(CLUSTER) == {"a": "@2", "b": "@1"}
    wait(server, 100, client)
    assert client.texts(CLUSTER) == {"a": "@2"}


@pytest.mark.parametrize("refused", [False, True], ids=["unread", "refused"])
def test_a_resource_that_was_never_acked_does_not_linger(server: Server, client: Client, refused: bool) -> None:
    """Nor does a resource that the client rejected."""
    push(server, A)
    start(client)
    push(server, joined(A, {CLUSTER: {"x": "@1"}}))
    if refused:
        client.nack(CLUSTER, "Error adding/updating cluster(s) x: wrong")
    push(server, joined(A, {CLUSTER: {"y": "@1"}}))
    wait(server, 1, client)
    assert set(client.texts(CLUSTER)) == {"a", "y"}
    assert not [event for event in client.events if isinstance(event, LingerChanged)]


def test_virtual_hosts_and_scopes_are_removed_at_once(server: Server, delta: Client) -> None:
    """They are looked up for each request, and their owner wants them gone; those of a route configuration that
    lingers linger with it."""

    def publish(*hosts: str, routes: tuple[str, ...] = ("r", "q"), scopes: tuple[str, ...] = ("x", "y")) -> None:
        made = [make_resource(VIRTUAL_HOST, name, "1") for name in hosts]
        made += [make_resource(ROUTE, name, "1", references=(Reference(VIRTUAL_HOST, "*", "ads"),)) for name in routes]
        made += [make_resource(SCOPED_ROUTE, name, "1", references=(Reference(ROUTE, "r", "ads"),)) for name in scopes]
        server.push_resources(made)

    publish("r/a", "r/b", "q/a")
    delta.subscribe(SCOPED_ROUTE)
    delta.subscribe(ROUTE, "r", "q")
    delta.subscribe(VIRTUAL_HOST)
    delta.settle()
    publish("r/a", routes=("r",), scopes=("x",))
    delta.settle()
    assert set(delta.texts(VIRTUAL_HOST)) == {"r/a", "q/a"}
    assert set(delta.texts(SCOPED_ROUTE)) == {"x"}
    wait(server, REMOVED_S, delta)
    assert set(delta.texts(VIRTUAL_HOST)) == {"r/a"}


def test_extension_configurations_are_never_reported_as_removed(server: Server, delta: Client) -> None:
    """Rule 49, after the drain too."""
    push(server, joined(A, {EXTENSION_CONFIG: {"f": "@1"}, LISTENER: {TARGET: "r1 ecds:f"}}))
    start(delta, (*TYPES, EXTENSION_CONFIG))
    push(server, A)
    wait(server, DRAINED_S, delta)
    assert EXTENSION_CONFIG not in removed(delta)


def test_clients_that_name_their_listeners_get_the_short_delay(server: Server, client: Client) -> None:
    """gRPC clients have no drain."""
    push(server, A)
    client.subscribe(LISTENER, TARGET)
    client.subscribe(CLUSTER, "a", "b")
    client.subscribe(ENDPOINT, "a", "b")
    client.subscribe(ROUTE, "r1")
    client.settle()
    push(server, with_listener(B, "r1 @2"))
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


# -- who sees it -------------------------------------------------------------------------------------------------------


def test_lingering_counts_as_in_step_and_is_shown(server: Server, client: Client) -> None:
    """Operators see what lingers and until when."""
    push(server, A)
    start(client)
    push(server, B)
    client.settle()
    assert states(client) == {"synced"}
    shown = [event.lingering for event in client.events if isinstance(event, LingerChanged)][-1]
    assert shown.names == {CLUSTER: frozenset("a"), ENDPOINT: frozenset("a")}
    assert shown.next_end_s == REMOVAL_DELAY_S
    wait(server, REMOVED_S, client)
    assert not [event.lingering for event in client.events if isinstance(event, LingerChanged)][-1]


def test_lingering_can_be_ended_by_hand(server: Server, client: Client) -> None:
    """``xds release``: the removals go out now."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    client.settle()
    client.take(client.stream.end_lingering(server.now))
    client.settle()
    assert client.texts(CLUSTER) == {"b": "@1"}
    wait(server, DRAINED_S, client)
    assert states(client) == {"synced"}


def test_nothing_is_ended_by_hand_of_what_a_client_uses_that_is_not_in_step(server: Server, client: Client) -> None:
    push(server, A)
    start(client)
    push(server, B)
    client.ack(CLUSTER)  # the route waits for the assignment of b
    client.take(client.stream.end_lingering(server.now))
    while client.inbox:
        client.ack()
        assert client.texts(ROUTE)["r1"] in client.texts(CLUSTER)
    client.take(client.stream.end_lingering(server.now))
    client.settle()
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_ends_are_those_of_a_grid(server: Server, connect: Connect) -> None:
    """They are rounded up to multiples of 5 s, so that the clients of a group share encoded responses."""
    push(server, A)
    clients = [start(connect(f"node-{index}", peer=f"peer-{index}")) for index in range(3)]
    server.now = 101.0
    push(server, B)
    for client in clients:
        client.settle()
        server.elapse(1)
    server.elapse(REMOVED_S)
    assert len({id(client.pending(CLUSTER)[0].body) for client in clients}) == 1


def test_a_move_between_groups_removes_resources_like_a_push(server: Server, connect: Connect) -> None:
    """Make before break between groups: both have clusters of their own."""
    push(server, A)
    client = start(connect("node"))
    push(server, B, "node")
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_node_without_a_group_keeps_its_resources(server: Server, client: Client) -> None:
    """It is sent nothing. The next group is a transition like any other."""
    push(server, A)
    start(client)
    server.drop()
    client.subscribe(ENDPOINT, "b")
    server.elapse(3600)
    assert not [send for send in client.pending() if send.type_url != ENDPOINT]
    assert client.stream.group == ""
    client.settle()
    push(server, B)
    client.settle()
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}

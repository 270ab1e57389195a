"""Clients that behave like Envoy and gRPC lose no request in any swap (docs/internals/design.md#order-of-updates)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.personas import DRAINED_S, EnvoyLike, GrpcLike, Proxy, assert_in_step, push, spend, spend_warming
from tests.support.sansio import Server
from tests.support.texts import Site, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.dialect import Variant
from xds.protocol.events import LingerChanged
from xds.snapshots.linger import Lingering

Open = Callable[[Server, Variant], Proxy]
OFFER_TIMEOUT_S = 5.0
ORDER_TIMEOUT_S = 30.0
NAMES = ("a", "b", "c")

clusters = st.sets(st.sampled_from(NAMES), min_size=1, max_size=2)
texts = st.sampled_from("12")
sites = st.builds(
    lambda names, route, text, load: site(*sorted(names), route=route, text=f"@{text}", load=load),
    clusters,
    st.sampled_from(["r1", "r2"]),
    texts,
    texts,
)


def envoy(server: Server, variant: Variant) -> Proxy:
    client = EnvoyLike(server, variant)
    client.start()
    return client


def split_envoy(server: Server, variant: Variant) -> Proxy:
    client = EnvoyLike(server, variant, split=True)
    client.start()
    return client


def grpc(server: Server, variant: Variant) -> Proxy:
    client = GrpcLike(server)
    client.start()
    return client


personas = pytest.mark.parametrize(
    ("connect", "variant"),
    [
        pytest.param(envoy, Variant.SOTW, id="envoy-sotw"),
        pytest.param(envoy, Variant.DELTA, id="envoy-delta"),
        pytest.param(split_envoy, Variant.SOTW, id="split-sotw"),
        pytest.param(split_envoy, Variant.DELTA, id="split-delta"),
        pytest.param(grpc, Variant.SOTW, id="grpc"),
    ],
)


def publish(server: Server, client: Proxy, content: Site, group: str = "default") -> None:
    """Push what a client of this kind is given."""
    push(server, content, group, source="api" if isinstance(client, EnvoyLike) and client.split else "ads")


def used(client: Proxy) -> dict[str, str]:
    """The route configurations that new requests meet."""
    return client.serving()[ROUTE] if isinstance(client, EnvoyLike) else client.texts(ROUTE)


def swap(server: Server, client: Proxy, content: Site, *, is_new: bool) -> None:
    """Push this; what is due is read and ACKed. ``is_new``: it leads to a cluster that the client has not yet."""
    publish(server, client, content)
    if is_new and isinstance(client, EnvoyLike):
        spend_warming(client)
    client.run()


def check(client: Proxy, content: Site) -> None:
    """All waits end; nothing was lost on the way, and the client has what was pushed."""
    spend(DRAINED_S, client)
    if isinstance(client, EnvoyLike):
        assert_in_step(client, content)
        return
    assert not client.lost
    assert {url: client.texts(url) for url in (CLUSTER, LISTENER, ROUTE)} == {
        url: content[url] for url in (CLUSTER, LISTENER, ROUTE)
    }
    held = client.texts(ENDPOINT)
    assert {name: held.get(name) for name in content[ENDPOINT]} == content[ENDPOINT]
    assert all(status.state == "synced" for status in client.status()), client.status()


@personas
def test_a_swap_loses_nothing(connect: Open, variant: Variant) -> None:
    """The route moves from one cluster to another and the first is removed, in one push."""
    server = Server()
    push(server, site("a"))
    client = connect(server, variant)
    for name, is_new in (("b", True), ("c", True), ("a", False), ("b", False)):  # what was removed lingers
        swap(server, client, site(name), is_new=is_new)
        assert used(client) == {"r1": name}
        assert not client.lost
    check(client, site("b"))


@personas
def test_a_swap_of_route_names_loses_nothing(connect: Open, variant: Variant) -> None:
    """The listener moves to a route configuration of another name, and the first is removed."""
    server = Server()
    push(server, site("a"))
    client = connect(server, variant)
    for name, route, is_new in (("b", "r2", True), ("b", "r1", False), ("a", "r2", False)):
        swap(server, client, site(name, route=route), is_new=is_new)
        assert used(client) == {route: name}
        assert not client.lost
    check(client, site("a", route="r2"))


@personas
def test_a_push_while_away_loses_nothing(connect: Open, variant: Variant) -> None:
    """The client reconnects and shows content of an earlier push."""
    server = Server()
    push(server, site("a"))
    client = connect(server, variant)
    for name in "bca":
        client.disconnect()
        publish(server, client, site(name))
        client.reconnect()
        client.run()
        assert not client.lost
    check(client, site("a"))


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("connect", [envoy, split_envoy])
def test_a_changed_cluster_is_warmed_without_a_timer(connect: Open, variant: Variant) -> None:
    """Rule 43, connected and after a push while away."""
    server = Server()
    push(server, site("a", "b"))
    client = connect(server, variant)
    publish(server, client, site("a", "b", text="@2"))
    client.run()
    assert isinstance(client, EnvoyLike)
    assert client.serving()[CLUSTER] == {"a": "@2", "b": "@2"}
    client.disconnect()
    publish(server, client, site("a", "b", text="@3"))
    client.reconnect()
    client.run()
    assert client.serving()[CLUSTER] == {"a": "@3", "b": "@3"}
    check(client, site("a", "b", text="@3"))


@pytest.mark.parametrize("variant", list(Variant))
def test_a_rejected_cluster_loses_nothing_and_is_repaired(variant: Variant) -> None:
    """NACK, then the fix."""
    server = Server()
    push(server, site("a"))
    client = envoy(server, variant)
    push(server, site("b", text="bad"))
    spend(DRAINED_S, client)
    assert used(client) == {"r1": "a"}
    push(server, site("b"))
    check(client, site("b"))


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("of:a", "of:c", id="replaced"),
        pytest.param("of:a,b", "of:b,c", id="one-of-two"),
        pytest.param("static", "of:c", id="becomes-one"),
        pytest.param("of:a", "static", id="was-one"),
    ],
)
def test_an_aggregate_always_has_a_member_that_serves(variant: Variant, before: str, after: str) -> None:
    """New members are sent beside the old aggregate cluster, then the new aggregate, then removals."""

    def aggregate(text: str) -> Site:
        members = text.removeprefix("of:").split(",") if text.startswith("of:") else []
        content = site(*members, listener="to:whole")
        content[CLUSTER]["whole"] = text
        return content

    server = Server()
    push(server, aggregate(before))
    client = envoy(server, variant)
    push(server, aggregate(after))
    check(client, aggregate(after))


def test_a_grpc_client_that_was_overtaken_by_the_next_swap_loses_nothing() -> None:
    """A push that arrives while the client still follows the listener of the one before."""
    server = Server()
    push(server, site("a"))
    client = grpc(server, Variant.SOTW)
    push(server, site("b", route="r2"))
    push(server, site("b"))
    for _ in range(4):
        client.step()
    push(server, site("a"))
    check(client, site("a"))


def test_rule_18_a_cluster_that_changes_back_unanswered_gets_its_assignment_with_a_new_name() -> None:
    """The client asks for what warms and for a new cluster at once, after an offer of CDS that it answered late."""
    server = Server()
    push(server, site("a"))
    client = envoy(server, Variant.SOTW)
    push(server, site("b", "c", route="r2", text="@2"))
    for _ in range(4):
        client.step()
    push(server, site("b", "c", route="r2", load="2"))
    client.step()
    push(server, site("a", "b", text="@2"))
    client.step()
    server.elapse(OFFER_TIMEOUT_S + 1)
    check(client, site("a", "b", text="@2"))


@pytest.mark.parametrize("variant", list(Variant))
def test_a_group_change_loses_nothing(variant: Variant) -> None:
    """A better group appears, and goes again."""
    server = Server()
    push(server, site("a"))
    client = envoy(server, variant)
    push(server, site("b"), group="node")
    client.run()
    assert used(client) == {"r1": "b"}
    server.drop("node")
    check(client, site("a"))


def test_a_grpc_client_never_loses_a_cluster_that_it_uses() -> None:
    """It ACKs the route first and asks for the new cluster then; the old one stays until it has moved over."""
    server = Server()
    push(server, site("a"))
    client = GrpcLike(server)
    client.start()
    push(server, site("b"))
    while client.step():
        assert client.in_use <= set(client.texts(CLUSTER)), "told that its cluster is gone"
    assert client.in_use == {"b"}


def test_a_grpc_client_that_never_moves_over_is_not_waited_for_for_ever() -> None:
    """A named cluster is retired at last, when the client has had ``order_timeout`` to leave it."""
    server = Server()
    push(server, site("a"))
    client = GrpcLike(server)
    client.start()
    push(server, {**site("b"), LISTENER: {}, ROUTE: {}})
    client.settle()
    server.elapse(ORDER_TIMEOUT_S + 1)
    client.settle()
    assert all(status.state == "synced" for status in client.stream.status()), client.stream.status()


def swap_at_random(client: GrpcLike, data: st.DataObject) -> Site:
    """Pushes at any moment of the transition before, and reconnects in between; returns what was pushed last."""
    content = site("a")
    for _ in range(data.draw(st.integers(1, 5))):
        action = data.draw(st.sampled_from(["push", "push", "away", "read", "wait"]))
        if action == "away":
            spend(DRAINED_S, client)
            client.disconnect()
        if action in ("push", "away"):
            content = data.draw(sites)
            push(client.server, content)
        if action == "away":
            client.reconnect()
        if action == "wait":
            client.server.elapse(OFFER_TIMEOUT_S + 1)
        for _ in range(data.draw(st.integers(0, 4))):
            client.step()
    return content


@pytest.mark.parametrize("pushes", [1, 2])
@pytest.mark.parametrize("away_s", [15.0, 60.0])
@pytest.mark.parametrize("is_inline", [False, True], ids=["rds", "inline"])
def test_a_grpc_client_that_reads_nothing_for_long_loses_nothing(pushes: int, away_s: float, is_inline: bool) -> None:
    """The clock of a removed cluster starts when the client has the new one with its endpoints, not with the route."""

    def to(name: str, *others: str) -> Site:
        return site(name, *others, listener=f"to:{name}" if is_inline else "")

    server = Server()
    push(server, to("a"))
    client = GrpcLike(server)
    client.start()
    if pushes == 2:
        push(server, to("a", "b"))
    push(server, to("b"))
    for _ in range(pushes):
        client.step()
    server.elapse(away_s)
    check(client, to("b"))


@pytest.mark.parametrize("rejected", [CLUSTER, ENDPOINT])
def test_a_rejection_of_a_grpc_client_does_not_keep_a_removed_cluster_without_end(rejected: str) -> None:
    """It cannot use the new cluster, so the old one stays for ``order_timeout`` and the drain time alone."""
    server = Server()
    push(server, site("a"))
    client = GrpcLike(server)
    client.start()
    push(server, site("b"))
    while not client.pending(rejected):
        assert client.step()
    client.nack(rejected)
    client.run()
    assert CLUSTER in lingering(client).names
    spend(ORDER_TIMEOUT_S + DRAINED_S, client)
    assert CLUSTER not in lingering(client).names


def lingering(client: GrpcLike) -> Lingering:
    return [event.lingering for event in client.events if isinstance(event, LingerChanged)][-1]


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)
def test_random_swaps_of_grpc_lose_nothing() -> None:
    """Those of Envoys are in ``tests/property/test_swaps``."""

    @examples(80, in_soak=2_500, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        server = Server()
        push(server, site("a"))
        client = GrpcLike(server)
        client.start()
        check(client, swap_at_random(client, data))

    run()

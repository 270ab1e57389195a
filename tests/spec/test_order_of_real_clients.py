"""DESIGN 3.2 with clients that behave like Envoy and gRPC: no request is lost in any swap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.personas import TARGET, EnvoyLike, GrpcLike, Persona, push
from tests.support.sansio import Server
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.draft import Variant

Site = dict[str, dict[str, str]]
Open = Callable[[Server, Variant], Persona]
ORDER_TIMEOUT_S = 30.0
OFFER_TIMEOUT_S = 5.0
NAMES = ("a", "b", "c")

clusters = st.sets(st.sampled_from(NAMES), min_size=1, max_size=2)
texts = st.sampled_from("12")
sites = st.tuples(clusters, st.sampled_from(["r1", "r2"]), texts, texts)


def site(names: set[str], route: str = "r1", text: str = "1", load: str = "1") -> Site:
    """A target whose route leads to these clusters."""
    return {
        CLUSTER: dict.fromkeys(sorted(names), text),
        ENDPOINT: dict.fromkeys(sorted(names), load),
        LISTENER: {TARGET: route},
        ROUTE: {route: " ".join(sorted(names))},
    }


def envoy(server: Server, variant: Variant) -> Persona:
    client = EnvoyLike(server, variant)
    client.start()
    return client


def grpc(server: Server, variant: Variant) -> Persona:
    client = GrpcLike(server)
    client.start()
    return client


personas = pytest.mark.parametrize(
    ("connect", "variant"),
    [(envoy, Variant.SOTW), (envoy, Variant.DELTA), (grpc, Variant.SOTW)],
    ids=["envoy-sotw", "envoy-delta", "grpc"],
)


def finish(server: Server, client: Persona) -> None:
    """Let the client read, and time pass, until nothing is left to do."""
    for _ in range(4):
        client.run()
        server.elapse(OFFER_TIMEOUT_S + 1)
    client.run()
    if client.stream.deadline() is not None:
        server.elapse(ORDER_TIMEOUT_S + 1)
        client.run()


def check(client: Persona, content: Site) -> None:
    """Nothing was lost on the way, and the client has what was pushed."""
    assert not client.lost
    assert {url: client.texts(url) for url in (CLUSTER, LISTENER, ROUTE)} == {
        url: content[url] for url in (CLUSTER, LISTENER, ROUTE)
    }
    assert {name: text for name, text in client.texts(ENDPOINT).items() if name in content[ENDPOINT]} == content[
        ENDPOINT
    ]
    assert all(status.state == "synced" for status in client.stream.status()), client.stream.status()


@personas
def test_a_swap_loses_nothing(connect: Open, variant: Variant) -> None:
    """The route moves from one cluster to another and the first is removed, in one push."""
    server = Server()
    push(server, site({"a"}))
    client = connect(server, variant)
    for name in "bcab":
        push(server, site({name}))
        client.run()
        check(client, site({name}))


@personas
def test_a_swap_of_route_names_loses_nothing(connect: Open, variant: Variant) -> None:
    """The listener moves to a route configuration of another name, and the first is removed."""
    server = Server()
    push(server, site({"a"}, "r1"))
    client = connect(server, variant)
    for name, route in (("b", "r2"), ("b", "r1"), ("a", "r2")):
        push(server, site({name}, route))
        client.run()
        check(client, site({name}, route))


@personas
def test_a_push_while_away_loses_nothing(connect: Open, variant: Variant) -> None:
    """ "pushes while the client was away included"."""
    server = Server()
    push(server, site({"a"}))
    client = connect(server, variant)
    for name in "bca":
        client.disconnect()
        push(server, site({name}))
        client.reconnect()
        client.run()
        check(client, site({name}))


@personas
def test_a_changed_cluster_is_warmed_without_a_timer(connect: Open, variant: Variant) -> None:
    """Rule 43, connected and after a push while away."""
    server = Server()
    push(server, site({"a", "b"}))
    client = connect(server, variant)
    push(server, site({"a", "b"}, text="2"))
    client.run()
    check(client, site({"a", "b"}, text="2"))
    client.disconnect()
    push(server, site({"a", "b"}, text="3"))
    client.reconnect()
    client.run()
    check(client, site({"a", "b"}, text="3"))


@pytest.mark.parametrize("variant", list(Variant))
def test_a_refused_cluster_loses_nothing_and_is_repaired(variant: Variant) -> None:
    """NACK, then the fix."""
    server = Server()
    push(server, site({"a"}))
    client = EnvoyLike(server, variant)
    client.refuses = {"b=bad"}
    client.start()
    push(server, site({"b"}, text="bad"))
    finish(server, client)
    assert client.texts(ROUTE) == {"r1": "a"}
    push(server, site({"b"}))
    finish(server, client)
    check(client, site({"b"}))


def test_a_grpc_client_that_was_overtaken_by_the_next_swap_loses_nothing() -> None:
    """A push that arrives while the client still follows the listener of the one before."""
    server = Server()
    push(server, site({"a"}))
    client = GrpcLike(server)
    client.start()
    push(server, site({"b"}, "r2"))
    push(server, site({"b"}, "r1"))
    for _ in range(4):
        client.step()
    push(server, site({"a"}, "r1"))
    finish(server, client)
    check(client, site({"a"}, "r1"))


def test_rule_18_a_cluster_that_changes_back_unanswered_gets_its_assignment_with_a_new_name() -> None:
    """The client asks for what warms and for a new cluster at once, after an offer of CDS that it answered late."""
    server = Server()
    push(server, site({"a"}))
    client = envoy(server, Variant.SOTW)
    push(server, site({"b", "c"}, "r2", "2", "1"))
    for _ in range(4):
        client.step()
    push(server, site({"b", "c"}, "r2", "1", "2"))
    client.step()
    push(server, site({"a", "b"}, "r1", "2", "1"))
    client.step()
    server.elapse(OFFER_TIMEOUT_S + 1)
    finish(server, client)
    check(client, site({"a", "b"}, "r1", "2", "1"))


@pytest.mark.parametrize("variant", list(Variant))
def test_a_group_change_loses_nothing(variant: Variant) -> None:
    """A better group appears, and goes again."""
    server = Server()
    push(server, site({"a"}))
    client = envoy(server, variant)
    push(server, site({"b"}), group="node")
    client.run()
    check(client, site({"b"}))
    server.drop("node")
    client.run()
    check(client, site({"a"}))


def test_a_grpc_client_is_never_told_that_a_cluster_it_still_uses_is_gone() -> None:
    """It ACKs the route first and asks for the new cluster then; the old one stays until it has moved over."""
    server = Server()
    push(server, site({"a"}))
    client = GrpcLike(server)
    client.start()
    push(server, site({"b"}))
    while client.step():
        assert client.in_use <= set(client.texts(CLUSTER)), "told that its cluster is gone"
    assert client.in_use == {"b"}


def test_a_grpc_client_that_never_moves_over_is_not_waited_for_for_ever() -> None:
    """A named cluster is retired at last, when the client has had ``order_timeout`` to leave it."""
    server = Server()
    push(server, site({"a"}))
    client = GrpcLike(server)
    client.start()
    push(server, {**site({"b"}), LISTENER: {}, ROUTE: {}})
    client.settle()
    server.elapse(ORDER_TIMEOUT_S + 1)
    client.settle()
    assert all(status.state == "synced" for status in client.stream.status()), client.stream.status()


def swap_at_random(client: Persona, data: st.DataObject) -> Site:
    """Pushes at any moment of the transition before, and reconnects in between; returns what was pushed last."""
    server = client.server
    content = site({"a"})
    for _ in range(data.draw(st.integers(1, 5))):
        action = data.draw(st.sampled_from(["push", "push", "away", "read", "wait"]))
        if action == "away":
            finish(server, client)
            client.disconnect()
        if action in ("push", "away"):
            content = site(*data.draw(sites))
            push(server, content)
        if action == "away":
            client.reconnect()
        if action == "wait":
            server.elapse(OFFER_TIMEOUT_S + 1)
        for _ in range(data.draw(st.integers(0, 4))):
            client.step()
    return content


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)
@personas
def test_random_swaps_lose_nothing(connect: Open, variant: Variant) -> None:
    @examples(80, in_soak=10_000, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        server = Server()
        push(server, site({"a"}))
        client = connect(server, variant)
        content = swap_at_random(client, data)
        finish(server, client)
        check(client, content)

    run()

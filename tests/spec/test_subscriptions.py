"""2.3 Subscriptions and wildcard."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
)
from xds.protocol.dialect import Variant
from xds.protocol.events import Send, Subscribed

CUSTOM = "type.googleapis.com/example.Custom"


def names_of_next(client: Client, url: str) -> tuple[str, ...]:
    """Names in the next response of a type, which is ACKed."""
    return client.ack(url).response.names


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET, CUSTOM])
def test_rule_24_requested_names_are_sent_and_no_others(server: Server, client: Client, url: str) -> None:
    """Rule 24: "Subscribed resources that exist are sent, and no others"."""
    server.push({url: {"a": "1", "b": "1", "c": "1"}})
    client.subscribe(url, "a", "c")
    assert sorted(names_of_next(client, url)) == ["a", "c"]
    assert not client.pending()


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET, CUSTOM])
def test_rule_25_new_names_on_an_unchanged_version_are_answered_at_once(
    server: Server, client: Client, url: str
) -> None:
    """Rule 25: the response has the new names."""
    server.push({url: {"a": "1", "b": "1"}})
    client.subscribe(url, "a")
    client.settle()
    client.subscribe(url, "b")
    assert "b" in client.pending()[0].response.names
    client.settle()
    assert client.texts(url) == {"a": "1", "b": "1"}


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET, CUSTOM])
def test_rule_25_unsubscribe_then_resubscribe_is_answered(server: Server, client: Client, url: str) -> None:
    """Rule 25: the server forgets the version of a name that is unsubscribed."""
    server.push({url: {"a": "1", "b": "1"}})
    client.subscribe(url, "a", "b")
    client.settle()
    client.unsubscribe(url, "a")
    client.settle()
    client.subscribe(url, "a")
    assert "a" in client.pending()[0].response.names
    client.settle()
    assert client.texts(url) == {"a": "1", "b": "1"}


def test_rule_25_the_last_name_dropped_and_requested_again_is_answered(server: Server, client: Client) -> None:
    """Rule 25, for a client that drops everything (an idle gRPC channel)."""
    server.push({ENDPOINT: {"a": "1"}})
    client.subscribe(ENDPOINT, "a")
    client.settle()
    client.unsubscribe(ENDPOINT, "a")
    client.settle()
    client.subscribe(ENDPOINT, "a")
    client.settle()
    assert client.texts(ENDPOINT) == {"a": "1"}


def test_rule_25_a_name_requested_while_a_response_is_in_flight_is_answered_after_the_ack(
    server: Server, client: Client
) -> None:
    """Rule 25 with rule 20: Envoy asks for more names under the old nonce before it ACKs."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    client.subscribe(ENDPOINT, "a")
    client.subscribe(ENDPOINT, "b")
    assert len(client.pending()) == 1
    client.settle()
    assert client.texts(ENDPOINT) == {"a": "1", "b": "1"}


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET])
def test_rule_26_dropping_names_needs_no_answer(server: Server, client: Client, url: str) -> None:
    """Rule 26: a response would cost an ACK and say nothing new."""
    server.push({url: {"a": "1", "b": "1"}})
    client.subscribe(url, "a", "b")
    client.settle()
    client.unsubscribe(url, "a")
    assert not client.pending()
    server.push({url: {"a": "2", "b": "1"}})
    assert not client.pending()
    server.push({url: {"a": "2", "b": "2"}})
    assert names_of_next(client, url) == ("b",)


def test_rule_27_an_empty_first_request_means_everything(server: Server, client: Client) -> None:
    """Rule 27: the client has named nothing on this stream yet."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    client.subscribe(CLUSTER)
    client.settle()
    server.push({CLUSTER: {"a": "1", "b": "1", "c": "1"}})
    client.settle()
    assert client.texts(CLUSTER) == {"a": "1", "b": "1", "c": "1"}


@pytest.mark.parametrize("named", [["a"], ["*"], ["*", "a"]], ids=["name", "star", "star-and-name"])
def test_rule_27_an_empty_list_after_any_name_means_nothing(server: Server, sotw: Client, named: list[str]) -> None:
    """Rule 27: `*` is a name in this sense."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    sotw.request(type_url=CLUSTER, resource_names=named)
    send, _ = sotw.read()
    sotw.request(type_url=CLUSTER, response_nonce=send.nonce)
    server.push({CLUSTER: {"a": "2", "b": "2"}})
    assert not sotw.pending()
    subscribed = [event for event in sotw.events if isinstance(event, Subscribed)]
    assert (subscribed[-1].wildcard, subscribed[-1].names) == (False, frozenset())


def test_rule_27_names_after_a_legacy_wildcard_replace_it(server: Server, sotw: Client) -> None:
    """Rule 27: in SotW, the list of names is the whole interest."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    sotw.request(type_url=CLUSTER)
    send, _ = sotw.read()
    sotw.request(type_url=CLUSTER, resource_names=["a"], response_nonce=send.nonce)
    sotw.inbox.clear()
    subscribed = [event for event in sotw.events if isinstance(event, Subscribed)]
    assert (subscribed[-1].wildcard, subscribed[-1].names) == (False, frozenset(["a"]))


def test_rule_28_wildcard_and_names_come_and_go(server: Server, sotw: Client) -> None:
    """Rule 28: ``*`` and ``A`` are both; then ``A`` alone leaves the wildcard; then an empty list is nothing."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    sotw.request(type_url=CLUSTER, resource_names=["*", "a"])
    send, _ = sotw.read()
    assert send.response.names == ("a", "b")
    sotw.request(type_url=CLUSTER, resource_names=["a"], response_nonce=send.nonce)
    server.push({CLUSTER: {"a": "2", "b": "2"}})
    send, _ = sotw.read()
    assert send.response.names == ("a",)
    sotw.request(type_url=CLUSTER, response_nonce=send.nonce)
    server.push({CLUSTER: {"a": "3", "b": "3"}})
    assert not sotw.pending()


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, SCOPED_ROUTE, CUSTOM])
def test_rule_29_legacy_wildcard_is_on(server: Server, client: Client, url: str) -> None:
    """Rule 29: for LDS, CDS, SRDS and custom types."""
    server.push({url: {"a": "1"}})
    client.request(type_url=url)
    assert names_of_next(client, url) == ("a",)


@pytest.mark.parametrize("url", [ENDPOINT, ROUTE, SECRET])
def test_rule_29_legacy_wildcard_is_off(server: Server, client: Client, url: str) -> None:
    """Rule 29: for RDS, EDS and SDS, whose clients name what they need."""
    server.push({url: {"a": "1"}})
    client.request(type_url=url)
    server.push({url: {"a": "2"}})
    assert not client.pending()


def test_rule_29_an_empty_vhds_request_means_the_hosts_of_the_subscribed_routes(server: Server, delta: Client) -> None:
    """Rule 29: "An empty VHDS request means the hosts of the subscribed routes"."""
    server.push({ROUTE: {"r1": "1", "r2": "1"}, VIRTUAL_HOST: {"r1/a.com": "1", "r1/b.com": "1", "r2/c.com": "1"}})
    delta.subscribe(ROUTE, "r1")
    delta.ack(ROUTE)
    delta.request(type_url=VIRTUAL_HOST)
    assert sorted(names_of_next(delta, VIRTUAL_HOST)) == ["r1/a.com", "r1/b.com"]
    delta.subscribe(ROUTE, "r2")
    delta.ack(ROUTE)
    assert names_of_next(delta, VIRTUAL_HOST) == ("r2/c.com",)


def test_rule_29_an_empty_vhds_request_is_answered_though_there_are_no_hosts(server: Server, delta: Client) -> None:
    """Rule 29: Envoy waits for an answer."""
    server.push({ROUTE: {"r1": "1"}})
    delta.subscribe(ROUTE, "r1")
    delta.ack(ROUTE)
    delta.request(type_url=VIRTUAL_HOST)
    assert names_of_next(delta, VIRTUAL_HOST) == ()


def test_rule_30_listeners_and_clusters_are_served_by_name(server: Server, client: Client) -> None:
    """Rule 30: gRPC requests them so."""
    template = "grpc/server?xds.resource.listening_address=127.0.0.1:8080"
    server.push({LISTENER: {"svc": "1", "other": "1", template: "1"}, CLUSTER: {"c1": "1", "c2": "1"}})
    client.subscribe(LISTENER, "svc")
    assert names_of_next(client, LISTENER) == ("svc",)
    client.subscribe(CLUSTER, "c2")
    assert names_of_next(client, CLUSTER) == ("c2",)
    client.subscribe(LISTENER, template)
    client.settle()
    assert set(client.texts(LISTENER)) == {"svc", template}


def test_rule_31_the_wildcard_set_is_chosen_by_node(server: Server, connect: Connect) -> None:
    """Rule 31: each node gets all resources of its group."""
    for group in ("by-id", "by-cluster", "default"):
        server.push({CLUSTER: {f"of {group}": "1"}}, group=group)
    nodes = {
        "by-id": connect("by-id", cluster="by-cluster", peer="1"),
        "by-cluster": connect("n2", cluster="by-cluster", peer="2"),
        "default": connect("n3", cluster="unheard-of", peer="3"),
    }
    for group, client in nodes.items():
        client.subscribe(CLUSTER)
        client.settle()
        assert client.texts(CLUSTER) == {f"of {group}": "1"}


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET, CUSTOM])
def test_rule_32_a_missing_name_is_remembered_and_sent_when_it_appears(
    server: Server, client: Client, url: str
) -> None:
    """Rule 32: "A missing name is remembered, and sent when it appears"."""
    server.push({url: {"a": "1"}})
    client.subscribe(url, "late")
    client.settle()
    server.push({url: {"a": "1", "late": "1"}})
    client.settle()
    assert client.texts(url)["late"] == "1"


def test_rule_32_a_missing_name_is_no_loop(server: Server, client: Client) -> None:
    """Rule 32: go-control-plane looped here until its pull request 1319."""
    server.push({ENDPOINT: {"a": "1"}})
    client.subscribe(ENDPOINT, "a", "missing")
    client.settle()
    assert len([event for event in client.events if isinstance(event, Send)]) == 1


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET, CUSTOM])
def test_rule_33_existing_names_are_answered_beside_missing_ones(server: Server, client: Client, url: str) -> None:
    """Rule 33: some peers answer only if all requested names exist, or only if all resources are requested."""
    server.push({url: {"a": "1", "b": "1"}})
    client.subscribe(url, "a", "missing")
    assert names_of_next(client, url) == ("a",)


def test_aliases_and_collections_are_subscriptions_too(server: Server, client: Client) -> None:
    """A later member of a subscribed glob is sent (docs/internals/clients.md#on-demand-clusters-and-other-types)."""
    glob = "xdstp://auth/envoy.config.cluster.v3.Cluster/foo/*"
    server.push({CLUSTER: {f"{glob[:-1]}a": "1", "a": "1"}})
    client.subscribe(CLUSTER, glob)
    assert names_of_next(client, CLUSTER) == (f"{glob[:-1]}a",)
    server.push({CLUSTER: {f"{glob[:-1]}a": "1", f"{glob[:-1]}b": "1", f"{glob[:-1]}deeper/c": "1", "a": "1"}})
    names = set(client.pending()[0].response.names)
    assert names == ({f"{glob[:-1]}a", f"{glob[:-1]}b"} if client.variant is Variant.SOTW else {f"{glob[:-1]}b"})

"""2.5 Ordering and warming, rule by rule.

docs/internals/design.md#order-of-updates goes beyond the rules: ``test_make_before_break``, ``test_warming``,
``test_removals``, ``test_refusals`` and ``test_coming_back``.
"""

from __future__ import annotations

import pytest

from tests.support.personas import REMOVED_S, EnvoyLike, push, spend
from tests.support.sansio import Client, Server
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SECRET
from xds.protocol.dialect import Variant


def site(cluster: str, text: str = "1") -> dict[str, dict[str, str]]:
    """A listener, a route, and the cluster it leads to."""
    return {CLUSTER: {cluster: text}, ENDPOINT: {cluster: "1"}, LISTENER: {"l": "r"}, ROUTE: {"r": cluster}}


def test_rule_42_make_before_break(server: Server, variant: Variant) -> None:
    """Rule 42: "Make before break: CDS, EDS, LDS, RDS, and only then removals"."""
    push(server, site("a"))
    client = EnvoyLike(server, variant)
    client.start()
    push(server, site("b"))
    while client.step():
        assert not client.lost
        assert "a" in client.active, "removals come last"
    assert client.serving()[ROUTE] == {"r": "b"}
    spend(REMOVED_S, client)
    assert not client.lost
    assert client.texts(CLUSTER) == {"b": "1"}


def test_rule_43_endpoints_follow_every_changed_cluster(server: Server, variant: Variant) -> None:
    """Rule 43: a changed cluster warms until it gets an EDS response."""
    push(server, site("a"))
    client = EnvoyLike(server, variant)
    client.start()
    for text in ("2", "3"):
        push(server, site("a", text))
        client.run()
        assert not client.warming
    client.disconnect()
    push(server, site("a", "4"))
    client.reconnect()
    client.run()
    assert not client.warming


@pytest.mark.parametrize("url", [ROUTE, SECRET])
def test_rule_44_routes_and_secrets_are_answered_after_a_reconnect(server: Server, sotw: Client, url: str) -> None:
    """Rule 44: "RDS and SDS are answered after a reconnect"."""
    server.push({url: {"a": "1"}})
    sotw.subscribe(url, "a")
    sotw.settle()
    sotw.reconnect()
    assert sotw.pending()[0].response.names == ("a",)


@pytest.mark.parametrize("first", [CLUSTER, ENDPOINT, LISTENER, ROUTE])
def test_rule_45_first_requests_come_in_any_order(server: Server, client: Client, first: str) -> None:
    """Rule 45: "EDS may be requested before CDS": a client that reconnects has an order of its own."""
    server.push(site("a"))
    names = {ENDPOINT: ("a",), ROUTE: ("r",)}
    for url in sorted((CLUSTER, ENDPOINT, LISTENER, ROUTE), key=lambda url: url != first):
        client.subscribe(url, *names.get(url, ()))
    client.settle()
    assert {url: client.texts(url) for url in site("a")} == site("a")


def test_rule_46_a_cluster_without_endpoints_gets_an_empty_assignment(server: Server, variant: Variant) -> None:
    """Rule 46: silence would let the cluster warm for 15 s."""
    push(server, {CLUSTER: {"a": "1"}})
    client = EnvoyLike(server, variant)
    client.start()
    assert not client.warming


def test_rule_47_types_are_pushed_independently(server: Server, client: Client) -> None:
    """Rule 47: "Types whose parents did not change are pushed independently"."""
    server.push(site("a"))
    for url, names in ((CLUSTER, ()), (ENDPOINT, ("a",)), (LISTENER, ()), (ROUTE, ("r",))):
        client.subscribe(url, *names)
    client.settle()
    for url, name in ((ENDPOINT, "a"), (ROUTE, "r"), (LISTENER, "l")):
        content = site("a")
        content[url] = {name: "2"}
        server.push(content)
        assert client.ack(url).response.names == (name,)
        server.push(site("a"))
        client.settle()


def test_rule_48_listeners_and_routes_of_a_push_wait_for_its_clusters(server: Server, client: Client) -> None:
    """Rule 48: no client has listeners of one push beside clusters of the one before."""
    push(server, site("a"))
    client.subscribe(CLUSTER)
    client.subscribe(LISTENER)
    client.subscribe(ROUTE, "r")
    client.settle()
    push(server, {**site("b"), LISTENER: {"l": "r @2"}})
    assert [send.type_url for send in client.pending()] == [CLUSTER]
    client.nack()
    assert not client.pending()


def test_rule_49_filter_configurations_are_never_removed(server: Server, delta: Client) -> None:
    """Rule 49: "ECDS never reports `removed_resources`", even if no listener refers to the configuration any more."""
    server.push({EXTENSION_CONFIG: {"f": "1", "g": "1"}})
    delta.subscribe(EXTENSION_CONFIG, "f", "g")
    delta.settle()
    server.push({EXTENSION_CONFIG: {"g": "2"}})
    assert [(send.response.names, send.response.removed) for send in delta.pending()] == [(("g",), ())]
    delta.settle()
    server.push({EXTENSION_CONFIG: {}})
    assert not delta.pending()

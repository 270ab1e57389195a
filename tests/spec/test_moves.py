"""What a node may still have of a group that it was moved out of (docs/internals/design.md#removals).

Its secrets and endpoints linger and are not updated. It gets no name of the former group that it never had.
"""

from __future__ import annotations

import pytest

from tests.spec.by_hand import DRAINED_S, GRID_S, REMOVED_S, start, wait
from tests.spec.conftest import Connect
from tests.support.sansio import DIALECTS, Client, Server
from tests.support.texts import joined, push, site
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, ENDPOINT, ROUTE, SECRET
from xds.protocol.dialect import Variant
from xds.protocol.events import Send
from xds.protocol.stream import DiscoveryStream

FORMER = joined(site("a"), {SECRET: {"had": "@1", "never": "@1"}, ENDPOINT: {"never": "@1"}})
PRESENT = joined(site("b"), {SECRET: {"own": "@1"}})


def holding(server: Server, connect: Connect, group: str = "default") -> Client:
    """A client that has one of the secrets of its group."""
    push(server, FORMER, group)
    client = start(connect("node"))
    client.subscribe(SECRET, "had")
    client.settle()
    assert client.texts(SECRET) == {"had": "@1"}
    return client


def moved(server: Server, connect: Connect) -> Client:
    """The same, in a group of its own now."""
    client = holding(server, connect)
    push(server, PRESENT, "node")
    client.settle()
    return client


def test_secrets_and_clusters_of_the_former_group_linger(server: Server, connect: Connect) -> None:
    client = moved(server, connect)
    assert client.texts(SECRET) == {"had": "@1"}
    assert {"a", "b"} <= client.texts(CLUSTER).keys()
    wait(server, REMOVED_S + GRID_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


@pytest.mark.parametrize("url", [SECRET, ENDPOINT])
def test_a_moved_node_gets_no_name_of_its_former_group_that_it_never_had(
    server: Server, connect: Connect, url: str
) -> None:
    client = moved(server, connect)
    client.subscribe(url, "never")
    client.settle()
    assert client.texts(url).get("never") != "@1"
    wait(server, REMOVED_S, client)
    assert client.texts(url).get("never") != "@1"


def test_another_stream_of_a_moved_node_gets_no_name_of_its_former_group(server: Server, connect: Connect) -> None:
    moved(server, connect)
    other = connect("node", type_url=SECRET)
    other.subscribe(SECRET, "never", "own")
    other.settle()
    assert other.texts(SECRET) == {"own": "@1"}


def test_lingering_secrets_of_the_former_group_are_not_updated(server: Server, connect: Connect) -> None:
    client = moved(server, connect)
    push(server, joined(FORMER, {SECRET: {"had": "@2", "never": "@2"}}))
    client.settle()
    client.unsubscribe(SECRET, "had")
    client.subscribe(SECRET, "had")
    client.settle()
    assert client.texts(SECRET) == {"had": "@1"}


def test_a_moved_node_that_reconnects_gets_no_secret_of_its_former_group(server: Server, connect: Connect) -> None:
    """The label and the names of a reconnecting client are its own word."""
    client = moved(server, connect)
    client.types[SECRET].names |= {"never"}
    client.types[ENDPOINT].names |= {"never"}
    client.reconnect()
    client.settle()
    assert "never" not in client.texts(SECRET)
    assert client.texts(ENDPOINT).get("never") != "@1"


def test_a_node_moved_while_away_gets_no_secret_of_its_former_group(server: Server, connect: Connect) -> None:
    client = holding(server, connect)
    client.disconnect()
    push(server, PRESENT, "node")
    client.types[SECRET].names |= {"never", "own"}
    client.reconnect()
    client.settle()
    assert client.texts(SECRET).keys() - {"had"} == {"own"}


def test_secrets_of_the_former_group_are_not_reported_as_removed_to_a_node_that_reconnects(
    server: Server, connect: Connect
) -> None:
    """Secrets and assignments of the former group: neither sent nor told as removed while its clusters linger."""
    client = holding(server, connect)
    client.disconnect()
    push(server, PRESENT, "node")
    client.reconnect()
    wait(server, 60, client)
    assert "a" in client.texts(CLUSTER)
    for url, name in ((SECRET, "had"), (ENDPOINT, "a")):
        sent = [event.response for event in client.events if isinstance(event, Send) and event.type_url == url]
        assert all(name not in each.removed for each in sent)
        assert sum(name in each.names for each in sent) == 1, "before the move"


def test_clusters_of_the_former_group_linger_for_the_drain_time_after_a_reconnect(
    server: Server, connect: Connect
) -> None:
    """The end in the log of that group is not the one of the move."""
    client = holding(server, connect)
    client.disconnect()
    push(server, PRESENT, "node")
    client.reconnect()
    wait(server, DRAINED_S - GRID_S - 1, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, GRID_S + 1, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_clusters_of_a_deleted_group_linger_after_a_reconnect(server: Server, connect: Connect) -> None:
    push(server, PRESENT)
    client = holding(server, connect, "node")
    client.disconnect()
    server.drop("node")
    client.reconnect()
    wait(server, DRAINED_S - GRID_S - 1, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, GRID_S + 1, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_clusters_of_a_group_that_was_deleted_and_made_anew_linger_after_a_reconnect(
    server: Server, connect: Connect
) -> None:
    client = holding(server, connect)
    client.disconnect()
    server.drop()
    push(server, PRESENT)
    client.reconnect()
    client.settle()
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_cds_response_in_flight_is_superseded_at_once(server: Server, connect: Connect) -> None:
    """It may be withheld for a cluster of the former group whose assignment may not be sent any more."""
    client = holding(server, connect)
    push(server, joined(FORMER, {CLUSTER: {"c": "@1"}, ENDPOINT: {"c": "1"}}))
    assert "c" in client.pending(CLUSTER)[-1].response.names
    push(server, PRESENT, "node")
    assert "b" in client.pending(CLUSTER)[-1].response.names
    client.settle()
    wait(server, 2 * DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_node_without_a_group_gets_no_name_of_its_former_group(server: Server, connect: Connect) -> None:
    client = holding(server, connect)
    server.drop()
    client.subscribe(SECRET, "never")
    client.settle()
    assert client.texts(SECRET) == {"had": "@1"}


def test_a_group_that_it_is_in_again_is_all_there(server: Server, connect: Connect) -> None:
    server.select(("fleet", "node.id == node"))
    client = holding(server, connect, "fleet")
    server.select()
    client.subscribe(SECRET, "never")
    client.settle()
    assert client.texts(SECRET) == {"had": "@1"}
    server.select(("fleet", "node.id == node"))
    client.settle()
    if client.variant is Variant.SOTW:
        client.repeat(SECRET)
    else:
        client.subscribe(SECRET, "never")
    client.settle()
    assert client.texts(SECRET) == {"had": "@1", "never": "@1"}


# -- authorisation


class Rules:
    """Lets a node follow some groups."""

    def __init__(self, *groups: str) -> None:
        self.groups = {*groups, ""}

    def __call__(self, node: Node, group: str) -> None:
        if group not in self.groups:
            raise RemoteProtocolError(StatusCode.PERMISSION_DENIED, f"{node.id} may not follow {group}")

    def allows(self, node: Node, group: str) -> bool:
        return group in self.groups


def ruled(server: Server, variant: Variant, rules: Rules) -> Client:
    client = Client(server, variant)
    client.stream = DiscoveryStream(
        cache=server.cache,
        clients=server.clients,
        dialect=DIALECTS[variant],
        peer=client.peer,
        authorize=rules,
        may_return=rules.allows,
    )
    return client


def test_a_refused_node_has_changed_nothing(server: Server, variant: Variant) -> None:
    push(server, FORMER)
    client = ruled(server, variant, Rules())
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="may not follow default"):
            client.request(type_url=CLUSTER, node=client.node)
    assert client.stream.node is None
    assert len(server.clients) == 0


def test_a_move_into_a_group_that_it_may_not_follow_is_refused_before_anything_is_sent(
    server: Server, variant: Variant
) -> None:
    push(server, FORMER)
    client = ruled(server, variant, Rules("default"))
    start(client)
    server.push(PRESENT, "node", wake=False)
    with pytest.raises(RemoteProtocolError, match="may not follow node"):
        client.wake()
    assert not client.pending()
    assert client.stream.group == "default"


def test_a_group_that_appears_later_is_judged_as_well(server: Server, variant: Variant) -> None:
    client = ruled(server, variant, Rules("other"))
    client.subscribe(CLUSTER)
    server.push(FORMER, wake=False)
    with pytest.raises(RemoteProtocolError, match="may not follow default"):
        client.wake()
    assert not client.pending()


def test_history_of_a_group_that_it_may_not_follow_any_more_is_not_for_it(server: Server, variant: Variant) -> None:
    """On a new stream, routes of the former group linger, unless that group is forbidden."""
    push(server, FORMER)
    rules = Rules("default", "node")
    client = ruled(server, variant, rules)
    start(client)
    client.disconnect()
    push(server, site("b", route="r2"), "node")
    rules.groups.discard("default")
    back = ruled(server, variant, rules)
    back.types = client.types
    back.types[ROUTE].names = {"r1", "r2"}
    for held in back.types.values():
        held.nonce, held.nonces, held.explicit = "", set(), False
    for url in (CLUSTER, ROUTE):
        back._resume(url, back.types[url])
    sent = {name for send in back.pending(ROUTE) for name in send.response.names}
    assert "r1" not in sent

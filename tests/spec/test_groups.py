"""The group of a node (docs/internals/design.md#operator-surface), and what happens to live streams when it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.spec.by_hand import DRAINED_S, pending, start, wait, with_listener
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from tests.support.texts import Site, joined, push, site
from xds.filter.expression import EvaluationError
from xds.filter.filter import compile_filter
from xds.model.node import GroupMatch, Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.protocol.events import ViewChanged
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.membership import Membership, Rule
from xds.snapshots.order import GroupOrder

NODE = Node(
    "edge-1",
    "edge",
    Locality("eu", "eu-1", "a"),
    {"role": "edge", "labels": {"team": "pay"}, "tags": ["blue", "x"], "size": 3},
    user_agent_name="envoy",
    user_agent_version="1.40.0",
)


def rule(group: str, selector: str, priority: int = 0) -> Rule:
    return Rule(group, compile_filter(selector), priority)


def matched(*rules: Rule, groups: str = "a b default", node: Node = NODE) -> GroupMatch | None:
    membership = Membership(groups.split().__contains__)
    membership.assign(rules)
    found = membership.match(node)
    tried = list(membership.candidates(node))
    assert next((each.match for each in tried if each.matched), None) == found, "explained as decided"
    return found


def test_selectors_come_before_names() -> None:
    """Then come the groups named like `node.id` and `node.cluster`, and `default` at last."""
    every = "edge-1 edge default a"
    assert matched(rule("a", "node.id is not empty"), groups=every) == GroupMatch("a", "selector")
    assert matched(rule("a", "node.id == other"), groups=every) == GroupMatch("edge-1", "node.id")
    assert matched(groups="edge default") == GroupMatch("edge", "node.cluster")
    assert matched(groups="default") == GroupMatch("default", "default")
    assert matched(groups="other") is None


def test_the_highest_priority_comes_first_then_the_name() -> None:
    both = "node.cluster == edge"
    assert matched(rule("a", both), rule("b", both, 5)) == GroupMatch("b", "selector")
    assert matched(rule("b", both), rule("a", both)) == GroupMatch("a", "selector")
    assert matched(rule("a", both, -1), rule("b", both)) == GroupMatch("b", "selector")


def test_a_group_without_a_snapshot_takes_no_nodes() -> None:
    assert matched(rule("unborn", "node.cluster == edge"), groups="default") == GroupMatch("default", "default")


@pytest.mark.parametrize(
    "selector",
    [
        'node.id == "edge-1"',
        "node.id matches `^edge-[0-9]+$`",
        "node.locality.region == eu and node.locality.sub_zone == a",
        'node.locality.zone == "eu-1"',
        "node.metadata.role == edge",
        'node.metadata["labels"].team == pay',
        "blue in node.metadata.tags",
        "node.metadata.size == 3",
        "node.metadata.missing is empty",
        "node.user_agent.name == envoy",
        'node.user_agent.version matches "^1[.]40[.]"',
    ],
)
def test_selectors_match_these_fields_of_a_node(selector: str) -> None:
    assert matched(rule("a", selector)) == GroupMatch("a", "selector")


def test_a_selector_that_fails_does_not_match_and_is_reported_once() -> None:
    told: list[tuple[str, EvaluationError]] = []
    membership = Membership({"a", "default"}.__contains__)
    membership.on_failure = lambda group, error: told.append((group, error))
    membership.assign([rule("a", "node.metadata.role.deep == x")])
    for _ in range(3):
        assert membership.match(NODE) == GroupMatch("default", "default")
    assert (membership.failures["a"], [group for group, _ in told]) == (3, ["a"])
    assert "cannot be answered" in next(membership.candidates(NODE)).detail
    membership.assign([rule("a", "node.metadata.role.deep == x", 7)])
    assert membership.failures["a"] == 3
    membership.assign([rule("a", "node.metadata.role == x")])
    assert membership.failures["a"] == 0


def test_metadata_on_the_wire_decides(server: Server, connect: Connect) -> None:
    push(server, swapped("a"), "blue")
    push(server, swapped("b"), "green")
    server.select(("blue", "node.metadata.color == blue"), ("green", "green in node.metadata.colors"))
    blue = start(connect("one", peer="p1", metadata={"color": "blue", "n": 1}))
    green = start(connect("two", peer="p2", metadata={"colors": ["x", "green"], "deep": {"er": [1, None]}}))
    assert (list(blue.texts(CLUSTER)), list(green.texts(CLUSTER))) == (["a"], ["b"])


@pytest.mark.usefixtures("without_twins")
def test_a_push_matches_no_selectors(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream remembers where its node belongs until groups or selectors change."""
    push(server, swapped("a"), "g")
    server.select(("g", "node.id == node"))
    start(client)
    asked: list[Node] = []
    match = SnapshotCache.match

    def counted(self: SnapshotCache, node: Node) -> GroupMatch | None:
        asked.append(node)
        return match(self, node)

    monkeypatch.setattr(SnapshotCache, "match", counted)
    push(server, swapped("b"), "g")
    client.settle()
    assert (asked, client.texts(ROUTE)) == ([], {"r1": "b"})
    push(server, swapped("c"), "another")
    assert len(asked) == 1


# Moving


def swapped(cluster: str) -> Site:
    """A site that has a listener of its own in each group."""
    return with_listener(site(cluster), f"r1 @{cluster}")


MOVES = {
    "a selector is set": lambda server: server.select(("green", "node.id == node")),
    "a group named like the node appears": lambda server: push(server, swapped("b"), "node"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_move_to_another_group_is_a_transition_like_any_other(
    server: Server, client: Client, move: Callable[[Server], object]
) -> None:
    """Make before break: clusters of both groups until the routes are ACKed."""
    push(server, swapped("a"))
    push(server, swapped("b"), "green")
    start(client)
    move(server)
    assert [each for each in client.events if isinstance(each, ViewChanged)]
    assert pending(client) == ["clusters", "endpoints"]
    for url in (CLUSTER, ENDPOINT):
        client.ack(url)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    assert pending(client) == ["listeners"]
    client.ack(LISTENER)
    client.ack(ROUTE)
    client.settle()
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}
    assert (client.texts(ROUTE), client.texts(LISTENER)) == ({"r1": "b"}, {"svc": "r1 @b"})


def test_routes_never_point_to_a_cluster_the_client_has_not(server: Server, client: Client) -> None:
    """Whatever order groups come, go and change their selectors in."""
    push(server, swapped("a"))
    push(server, swapped("b"), "green")
    push(server, swapped("c"), "blue")
    start(client)
    for step in steps(server):
        step()
        for _ in range(50):
            assert_routed(client)
            if not client.inbox:
                break
            client.ack()
    assert client.texts(ROUTE) == {"r1": "a"}
    wait(server, DRAINED_S, client)
    assert set(client.texts(CLUSTER)) == {"a"}


def steps(server: Server) -> Iterator[Callable[[], object]]:
    green, blue = ("green", "node.id == node"), ("blue", "node.cluster is empty")
    yield lambda: server.select(green)
    yield lambda: server.select(green, blue)
    yield lambda: server.select(green, blue, blue=5)
    yield lambda: server.select(blue)
    yield lambda: server.drop("blue")
    yield lambda: push(server, joined(swapped("c"), {SECRET: {"s": "@1"}}), "blue")
    yield server.select


def assert_routed(client: Client) -> None:
    target = client.texts(ROUTE)["r1"]
    assert target in client.texts(CLUSTER), f"the route leads to {target}"


def test_a_move_amid_a_transition_starts_from_the_resources_that_the_client_may_have(
    server: Server, client: Client
) -> None:
    push(server, swapped("a"))
    push(server, swapped("c"), "green")
    start(client)
    push(server, swapped("b"))
    client.ack(CLUSTER)
    server.select(("green", "node.id == node"))
    for _ in range(50):
        if not client.inbox:
            break
        client.ack()
        assert_routed(client)
    wait(server, DRAINED_S, client)
    assert set(client.texts(CLUSTER)) == {"c"}


def test_a_node_keeps_its_last_group_when_the_selector_is_removed(server: Server, client: Client) -> None:
    """A node without a group any more keeps its last answer and is sent nothing.

    See docs/internals/design.md#response-states.
    """
    push(server, swapped("a"), "green")
    server.select(("green", "node.id == node"))
    start(client)
    server.select()
    assert (client.inbox, client.stream.group, set(client.texts(CLUSTER))) == (client.inbox.__class__(), "", {"a"})
    server.select(("green", "node.id == node"))
    assert (client.stream.group, pending(client)) == ("green", [])


def test_split_streams_of_a_client_move_together(server: Server, connect: Connect) -> None:
    push(server, swapped("a"))
    push(server, swapped("b"), "green")
    names = {ENDPOINT: ("a", "b"), ROUTE: ("r1",)}
    streams = {url: connect(type_url=url) for url in (CLUSTER, ENDPOINT, LISTENER, ROUTE)}
    for url, stream in streams.items():
        stream.subscribe(url, *names.get(url, ()))
    for stream in streams.values():
        stream.settle()
    server.select(("green", "node.id == node"))
    for _ in range(20):
        for url, stream in streams.items():
            if stream.inbox:
                stream.ack(url)
            target = streams[ROUTE].texts(ROUTE)["r1"]
            assert target in streams[CLUSTER].texts(CLUSTER)
    assert streams[ROUTE].texts(ROUTE) == {"r1": "b"}
    wait(server, DRAINED_S, *streams.values())
    assert set(streams[CLUSTER].texts(CLUSTER)) == {"b"}


def test_a_client_that_was_away_while_its_group_changed_keeps_its_clusters_until_its_routes_moved(
    server: Server, client: Client
) -> None:
    """Both groups are at version 1: what the client names is looked for in the group that it followed."""
    push(server, swapped("a"))
    push(server, swapped("b"), "green")
    start(client)
    client.disconnect()
    server.select(("green", "node.id == node"))
    client.reconnect()
    for _ in range(50):
        assert_routed(client)
        if not client.inbox:
            break
        client.ack()
    wait(server, 2 * DRAINED_S, client)
    assert (set(client.texts(CLUSTER)), client.texts(ROUTE)) == ({"b"}, {"r1": "b"})


def test_on_nack_is_a_setting_of_each_group(server: Server, client: Client) -> None:
    """`on_nack`, which is `hold` or `proceed`, is a setting of the group."""
    push(server, swapped("a"))
    start(client)
    server.cache.configure([], {"default": GroupOrder(proceed_on_nack=True)})
    push(server, swapped("b"))
    client.nack(CLUSTER)
    assert "listeners" in pending(client)
    client.settle()
    server.cache.configure([], {"default": GroupOrder(proceed_on_nack=False)})
    push(server, swapped("c"))
    client.nack(CLUSTER)
    assert "listeners" not in pending(client)


def test_a_changed_on_nack_applies_to_a_held_transition(server: Server, client: Client) -> None:
    push(server, swapped("a"))
    start(client)
    push(server, swapped("b"))
    client.nack(CLUSTER)
    client.settle()
    assert client.texts(LISTENER) == {"svc": "r1 @a"}
    server.cache.configure([], {"default": GroupOrder(proceed_on_nack=True)})
    server.wake()
    assert "listeners" in pending(client)

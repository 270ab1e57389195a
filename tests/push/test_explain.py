"""Explanations of what a node is served."""

from __future__ import annotations

import pytest

from tests.support.connected import Client
from tests.support.plane import Plane
from tests.support.sansio import make_resource
from xds.model.errors import NotFoundError
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import ResourceSet
from xds.protocol.events import HeldContent
from xds.push.explain import ExplainQuery, Explanation
from xds.push.groups import GroupSettings
from xds.push.request import PushOptions
from xds.snapshots.linger import Removal

NODE = Node("n1", "edge", metadata={"role": "edge"})


async def push(plane: Plane, group: str, **names: str) -> None:
    """Clusters by name, and a listener and a route with one name each."""
    resources = [make_resource(CLUSTER, name, text) for name, text in names.items()]
    resources += [make_resource(LISTENER, "web", "1"), make_resource(ROUTE, "local_route", "".join(names.values()))]
    await plane.publisher.push(group, resources)


def held(plane: Plane, type_url: str, group: str = "default") -> ResourceSet:
    return plane.publisher.groups.content(group).snapshot.get(type_url)


def deliveries(found: Explanation) -> list[tuple[str, str, str]]:
    return [(each.type, each.name, each.status.value) for each in found.resources]


async def test_candidate_groups_are_explained_in_the_order_of_their_trial(plane: Plane) -> None:
    await push(plane, "default", d="1")
    await push(plane, "blue", b="1")
    await push(plane, "green", g="1")
    await plane.publisher.configure("blue", GroupSettings("node.id == other", 5))
    await plane.publisher.configure("green", GroupSettings("node.metadata.role == edge"))
    await plane.publisher.configure("unborn", GroupSettings("node.cluster == edge", 9))
    await plane.publisher.configure("odd", GroupSettings("node.metadata.role.x == y", 8))
    found = await plane.publisher.views.explain_node(NODE)
    assert [(each.match.group, each.match.rule, each.matched) for each in found.candidates] == [
        ("unborn", "selector", False),
        ("odd", "selector", False),
        ("blue", "selector", False),
        ("green", "selector", True),
        ("n1", "node.id", False),
        ("edge", "node.cluster", False),
        ("default", "default", True),
    ]
    details = [each.detail for each in found.candidates]
    assert "no snapshot yet" in details[0]
    assert "cannot be answered" in details[1]
    assert found.chosen is not None
    assert (found.chosen.match.group, found.revision, found.connected) == ("green", 1, False)


async def test_no_group_at_all(plane: Plane) -> None:
    found = await plane.publisher.views.explain_node(NODE, ExplainQuery(CLUSTER, "a"))
    assert (found.chosen, found.revision, deliveries(found)) == (None, None, [("clusters", "a", "no_group")])


async def test_a_disconnected_node_is_explained_by_the_answer_that_it_would_get(plane: Plane) -> None:
    await push(plane, "default", alpha="1", beta="1")
    explain = plane.publisher.views.explain_node
    assert deliveries(await explain(NODE)) == []
    served = [("clusters", "alpha", "served"), ("clusters", "beta", "served")]
    assert deliveries(await explain(NODE, ExplainQuery(CLUSTER))) == served
    assert deliveries(await explain(NODE, ExplainQuery(CLUSTER, "beta"))) == served[1:]
    (missing,) = (await explain(NODE, ExplainQuery(CLUSTER, "alhpa"))).resources
    assert (missing.status.value, "did you mean 'alpha'?" in missing.detail) == ("missing", True)


async def test_a_connected_node_is_explained_by_its_subscriptions(plane: Plane) -> None:
    await push(plane, "default", alpha="1")
    client = Client(plane.fleet, NODE, "default")
    client.subscribe(CLUSTER)
    client.ack(held(plane, CLUSTER))
    client.subscribe(ROUTE, "local_route", "local_ruote")
    client.ack(held(plane, ROUTE))
    found = await plane.publisher.views.explain("n1")
    assert deliveries(found) == [
        ("clusters", "alpha", "sent"),
        ("routes", "local_route", "sent"),
        ("routes", "local_ruote", "missing"),
    ]
    assert found.resources[0].version == held(plane, CLUSTER).resources["alpha"].version
    assert "'local_route'" in found.resources[2].detail
    unasked = await plane.publisher.views.explain("n1", ExplainQuery(ROUTE, "web"))
    assert deliveries(unasked) == [("routes", "web", "not_subscribed")]
    assert deliveries(await plane.publisher.views.explain("n1", ExplainQuery(ENDPOINT))) == [
        ("endpoints", "", "not_subscribed")
    ]
    (listener,) = (await plane.publisher.views.explain("n1", ExplainQuery(LISTENER, "web"))).resources
    assert (listener.status.value, "the group has it" in listener.detail) == ("not_subscribed", True)


async def connected(plane: Plane) -> Client:
    """A client in sync with cluster alpha, pending for a push of beta."""
    await push(plane, "default", alpha="1")
    client = Client(plane.fleet, NODE, "default")
    for url, names in ((CLUSTER, ()), (ROUTE, ("local_route",))):
        client.subscribe(url, *names)
        client.ack(held(plane, url))
    await push(plane, "default", beta="2")
    return client


async def test_held_content_is_explained_with_the_clusters_that_it_waits_for(plane: Plane) -> None:
    client = await connected(plane)
    client.hold(HeldContent(((ROUTE, frozenset({"local_route"})),), ("beta",)))
    beta, alpha, route = (await plane.publisher.views.explain("n1")).resources
    assert (beta.name, beta.status.value) == ("beta", "pending")
    assert (alpha.name, alpha.status.value, alpha.detail) == (
        *("alpha", "pending"),
        "it was removed from the group; the removal will be sent",
    )
    assert (route.status.value, "held until clusters beta are warm on the node" in route.detail) == ("held", True)
    many = tuple(f"c{number}" for number in range(7))
    client.hold(HeldContent(((ROUTE, frozenset({"local_route"})),), many, is_unreadable=True))
    route = (await plane.publisher.views.explain("n1", ExplainQuery(ROUTE, "local_route"))).resources[0]
    assert "c4 and 2 more are warm on the node; the clusters that it refers to cannot be determined" in route.detail
    others = ((LISTENER, frozenset({"web"})),)
    for clusters, told in (((), ""), (("beta",), "clusters beta are warm on the node and ")):
        client.hold(HeldContent(((ROUTE, frozenset({"local_route"})),), clusters, waits_for_others=others))
        (route,) = (await plane.publisher.views.explain("n1", ExplainQuery(ROUTE, "local_route"))).resources
        assert route.detail == f"it is held until {told}the node accepts listeners/web"


async def test_lingering_content_is_explained_with_its_end(plane: Plane) -> None:
    client = await connected(plane)
    client.linger(Removal(2, {CLUSTER: frozenset({"alpha"})}, 90.0))
    asked = ExplainQuery(CLUSTER, "alpha")
    (alpha,) = (await plane.publisher.views.explain("n1", asked)).resources
    assert (alpha.status.value, "lingers until 1970-01-01T00:01:30Z" in alpha.detail) == ("lingering", True)
    client.linger(Removal(2, {CLUSTER: frozenset({"alpha"})}, None))
    (alpha,) = (await plane.publisher.views.explain("n1", asked)).resources
    assert (alpha.status.value, "its time starts" in alpha.detail) == ("lingering", True)


async def test_rejected_content_is_explained_with_the_message_of_the_node(plane: Plane) -> None:
    await push(plane, "default", alpha="1")
    client = Client(plane.fleet, NODE, "default")
    client.subscribe(CLUSTER)
    client.ack(held(plane, CLUSTER))
    await push(plane, "default", alpha="2")
    client.nack(held(plane, CLUSTER), "no such thing as alpha")
    (alpha,) = (await plane.publisher.views.explain("n1")).resources
    assert (alpha.status.value, "no such thing as alpha" in alpha.detail) == ("refused", True)
    client.ack(held(plane, CLUSTER))
    assert deliveries(await plane.publisher.views.explain("n1")) == [("clusters", "alpha", "sent")]


async def test_a_node_without_a_group_keeps_its_resources(plane: Plane) -> None:
    await push(plane, "default", alpha="1")
    client = Client(plane.fleet, NODE, "default")
    client.subscribe(CLUSTER)
    client.ack(held(plane, CLUSTER))
    await plane.publisher.delete_group("default", PushOptions(allow_empty=True))
    (answer,) = (await plane.publisher.views.explain("n1")).resources
    assert (answer.name, answer.status.value) == ("*", "no_group")


async def test_a_node_that_left_is_explained_as_one_that_is_not_connected(plane: Plane) -> None:
    await push(plane, "default", alpha="1")
    client = Client(plane.fleet, NODE, "default")
    client.leave()
    found = await plane.publisher.views.explain("n1", ExplainQuery(CLUSTER))
    assert (found.connected, deliveries(found)) == (False, [("clusters", "alpha", "served")])
    with pytest.raises(NotFoundError):
        await plane.publisher.views.explain("stranger")


async def test_an_explanation_is_bounded(plane: Plane) -> None:
    await plane.publisher.push("default", [make_resource(CLUSTER, f"c{number}", "1") for number in range(1500)])
    found = await plane.publisher.views.explain_node(NODE, ExplainQuery(CLUSTER))
    assert (len(found.resources), found.total) == (1000, 1500)

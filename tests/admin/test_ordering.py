"""Lingering and held resources of nodes, over HTTP."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.fleet.event_log import EventFilter, EventKind
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, LISTENER, ROUTE
from xds.model.snapshot import ResourceSet, mix
from xds.protocol.events import HeldContent
from xds.snapshots.linger import Removal

A, B = static_cluster("a", 80), static_cluster("b", 80)
OTHERS = ((ROUTE, frozenset({"r2"})),)
WEB = HeldContent(((LISTENER, frozenset({"web"})),), ("b",), is_unreadable=True, waits_for_others=OTHERS)
WAITING = {
    "resources": [{"type": "listeners", "name": "web"}],
    "count": 1,
    "waits_for": ["b"],
    "any_cluster": True,
    "waits_for_others": [{"type": "routes", "name": "r2"}],
}


def pushed(api: Api) -> ResourceSet:
    return api.plane.publisher.groups.content("edge").snapshot.get(CLUSTER)


async def get(api: Api, path: str) -> Any:
    answer = await api.client.get(f"/api/v1{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def swapped(api: Api) -> Client:
    """A node that ACKed revision 2, which replaced a by b; a lingers."""
    await api.put("edge", A)
    client = Client(api.plane.fleet, Node("n1", "edge"), "edge")
    client.subscribe(CLUSTER)
    before = pushed(api)
    client.ack(before)
    await api.put("edge", B)
    client.ack(mix(pushed(api), before, ["a"]))
    client.linger(Removal(2, {CLUSTER: frozenset({"a"})}, 90.0))
    return client


async def test_lingering_content_is_shown_and_the_node_is_in_step(api: Api) -> None:
    client = await swapped(api)
    item = await get(api, "/nodes/n1")
    until = "1970-01-01T00:01:30.000Z"
    assert item["lingering"] == [{"type": "clusters", "revision": 2, "count": 1, "names": ["a"], "until": until}]
    assert (item["lingering_total"], item["held"], item["types"]["clusters"]["state"]) == (1, [], "synced")
    assert item["types"]["clusters"]["revision"] == 2
    assert (await get(api, "/nodes"))["items"] == [item]
    rollout = await get(api, "/groups/edge/rollout")
    assert (rollout["synced"], rollout["pending"], rollout["held"]) == (1, 0, [])
    assert (await get(api, "/groups/edge/revisions/2/progress"))["verdict"] == "done"
    shown = {each["name"]: each for each in (await get(api, "/nodes/n1/resources"))["items"]}
    assert (shown["a"]["lingers"], shown["a"]["until"], "lingers" in shown["b"]) == (True, until, False)
    (served,) = (await get(api, "/nodes/n1/resources?side=served"))["items"]
    assert (served["name"], "lingers" in served) == ("b", False)
    client.linger(Removal(2, {CLUSTER: frozenset({"a"})}, None))
    assert (await get(api, "/nodes/n1"))["lingering"][0]["until"] is None
    assert (await get(api, "/nodes/n1/resources?name=a"))["items"][0]["until"] is None


async def test_held_content_is_shown_wherever_a_node_is_waited_for(api: Api) -> None:
    client = await swapped(api)
    await api.put("edge", static_cluster("b", 81))
    client.hold(WEB)
    assert (await get(api, "/nodes/n1"))["held"] == [WAITING]
    for path in ("/groups/edge/rollout", "/groups/edge/revisions/3/progress"):
        found = await get(api, path)
        assert (found["pending_nodes"], found["held"]) == (["n1"], [{"node": "n1", **WAITING}])
    client.ack(pushed(api))
    assert (await get(api, "/groups/edge/revisions/3/progress"))["held"] == []


async def test_lingering_is_ended_by_hand(api: Api) -> None:
    client = await swapped(api)
    asked: list[tuple[list[str], str]] = []

    async def let_go(node_ids: Collection[str], group: str) -> None:
        asked.append((sorted(node_ids), group))
        client.linger()

    api.services.let_go = let_go
    other = Client(api.plane.fleet, Node("n2", "edge"), "edge")
    other.linger(Removal(2, {CLUSTER: frozenset({"a", "x"}), LISTENER: frozenset({"web"})}, 90.0))
    answer = await api.client.post("/api/v1/nodes/n1/release", params={"author": "ada"})
    assert (answer.status_code, answer.json()) == (200, {"nodes": 1, "clients": 1, "released": {"clusters": 1}})
    assert (await get(api, "/nodes/n1"))["lingering"] == []
    again = await api.client.post("/api/v1/nodes/n1/release")
    assert again.json() == {"nodes": 0, "clients": 0, "released": {}}
    client.linger(Removal(3, {CLUSTER: frozenset({"a"})}, None))
    answer = await api.client.post("/api/v1/groups/edge/release")
    assert answer.json() == {"nodes": 1, "clients": 1, "released": {"clusters": 2, "listeners": 1}}
    assert asked == [(["n1"], ""), (["n2"], "edge")], "n1 is not in step"
    log = api.plane.fleet.events.after(0, EventFilter(frozenset({EventKind.ORDER})), 10).events
    assert [(event.action, event.node, event.group) for event in log] == [
        ("released", "n1", "edge"),
        ("released", "", "edge"),
    ]
    assert log[0].details == {"author": "ada", "nodes": 1, "clusters": 1}


async def test_lingering_is_ended_only_for_existing_groups_and_nodes(api: Api) -> None:
    client = await swapped(api)
    assert (await api.client.post("/api/v1/nodes/n2/release")).status_code == 404
    assert (await api.client.post("/api/v1/groups/none/release")).status_code == 404
    client.leave()
    assert (await api.client.post("/api/v1/nodes/n1/release")).status_code == 404
    assert (await api.client.post("/api/v1/groups/edge/release")).json()["nodes"] == 0

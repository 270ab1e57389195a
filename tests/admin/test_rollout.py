"""The progress of the fleet with the head of a group."""

from __future__ import annotations

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import CLUSTER_TYPE, cluster_load_assignment, eds_cluster
from xds.model.node import Node
from xds.model.resource_type import ENDPOINT

ROLLOUT = "/api/v1/groups/edge/rollout"


async def test_each_node_and_type_is_counted(api: Api) -> None:
    await api.put("edge", eds_cluster("c"), cluster_load_assignment("c", 80))
    sets = api.plane.publisher.groups.content("edge").snapshot.sets
    taken, late, refusing, idle = (Client(api.plane.fleet, Node(name), "edge") for name in ("n1", "n2", "n3", "n4"))
    for client in (taken, late, refusing):
        client.subscribe(CLUSTER_TYPE)
    taken.ack(sets[CLUSTER_TYPE])
    taken.subscribe(ENDPOINT, "c")
    taken.ack(sets[ENDPOINT])
    refusing.nack(sets[CLUSTER_TYPE], "no good")
    found = (await api.client.get(ROLLOUT)).json()
    assert (found["group"], found["revision"]) == ("edge", 1)
    assert (found["synced"], found["pending"], found["nacked"]) == (1, 1, 1)
    assert found["types"] == {
        "clusters": {"synced": 1, "pending": 1, "nacked": 1, "not_subscribed": 1},
        "endpoints": {"synced": 1, "pending": 0, "nacked": 0, "not_subscribed": 3},
    }
    assert found["pending_nodes"] == ["n2"]
    assert [nack["message"] for nack in found["nacks"]] == ["no good"]
    idle.leave()


async def test_a_group_without_nodes(api: Api) -> None:
    await api.put("edge", eds_cluster("c"))
    found = (await api.client.get(ROLLOUT)).json()
    nobody = {"synced": 0, "pending": 0, "nacked": 0, "not_subscribed": 0}
    assert found["types"] == {"clusters": nobody}
    assert (await api.client.get("/api/v1/groups/none/rollout")).status_code == 404


async def test_many_nodes_are_counted_once(api: Api) -> None:
    await api.put("edge", eds_cluster("c"))
    held = api.plane.publisher.groups.content("edge").snapshot.sets[CLUSTER_TYPE]
    for number in range(450):
        client = Client(api.plane.fleet, Node(f"n{number}"), "edge")
        client.subscribe(CLUSTER_TYPE)
        if number % 3:
            client.ack(held)
    found = (await api.client.get(ROLLOUT)).json()
    assert (found["synced"], found["pending"], len(found["pending_nodes"])) == (300, 150, 100)

"""Nodes, NACKs, bootstraps and progress over HTTP."""

from __future__ import annotations

import asyncio
from time import time
from urllib.parse import quote

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import CLUSTER_TYPE, static_cluster
from xds.fleet.polls import Poll
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.model.snapshot import ResourceSet
from xds.protocol.requests import Request
from xds.protocol.sotw import fetch

A = static_cluster("a", 80)
B = static_cluster("b", 80)


def held(api: Api, group: str = "edge") -> ResourceSet:
    return api.plane.publisher.groups.content(group).snapshot.get(CLUSTER)


def connected(api: Api, node_id: str = "n1") -> Client:
    node = Node(node_id, "edge", Locality("eu", "1a"), user_agent="envoy 1.40.0")
    client = Client(api.plane.fleet, node, "edge")
    client.subscribe(CLUSTER)
    return client


async def test_node_item(api: Api) -> None:
    await api.put("edge", A)
    client = connected(api, "n/1")
    client.ack(held(api))
    item = (await api.client.get("/api/v1/nodes")).json()["items"][0]
    assert (item["id"], item["cluster"], item["group"], item["user_agent"]) == ("n/1", "edge", "edge", "envoy 1.40.0")
    assert item["locality"] == {"region": "eu", "zone": "1a", "sub_zone": ""}
    state = item["types"]["clusters"]
    label = held(api).version_info
    assert (state["state"], state["version_sent"], state["version_acked"], state["revision"]) == (
        "synced",
        label,
        label,
        1,
    )
    assert state["subscribed"] == ["*"] and "error" not in state
    assert item["streams"][0]["types"] == item["types"]
    assert (await api.client.get(f"/api/v1/nodes/{quote('n/1', safe='')}")).json() == item
    client.leave()
    assert (await api.client.get("/api/v1/nodes")).json()["items"][0]["connected"] is False


async def test_a_node_that_only_reports_load(api: Api) -> None:
    """It is shown and selected as others, and a push that waits does not wait for it."""
    node = Node("n1", "edge", Locality("eu", "1a"), user_agent="envoy 1.40.0", metadata={"team": "web"})
    api.plane.fleet.reporter_opened(node, "edge", 1.0)
    item = (await api.client.get("/api/v1/nodes/n1")).json()
    assert (item["group"], item["connected"], item["types"], item["streams"]) == ("edge", True, {}, [])
    for query in ("", "?group=edge", "?selector=" + quote('node.metadata.team == "web"')):
        assert [each["id"] for each in (await api.client.get(f"/api/v1/nodes{query}")).json()["items"]] == ["n1"]
    progress = (await api.put("edge", A, headers={"prefer": "wait=30"})).json()["progress"]
    assert (progress["synced"], progress["pending_nodes"]) == (0, []), progress
    api.plane.fleet.reporter_closed("n1", 2.0)
    assert (await api.client.get("/api/v1/nodes/n1")).json()["connected"] is False


async def test_a_node_that_polls(api: Api) -> None:
    await api.put("edge", A)
    node, view = Node("n1", "edge"), api.plane.cache.resolve(Node("n1", "edge"))
    assert view is not None

    def poll(held: str = "") -> str:
        fetched = fetch(view, Request(CLUSTER, version_info=held))
        api.plane.fleet.polled(node, view.group, Poll(CLUSTER, held, fetched), time())
        return fetched.version_info

    version = poll()
    poll(version)
    item = (await api.client.get("/api/v1/nodes/n1")).json()
    clusters = item["types"]["clusters"]
    assert (item["group"], item["connected"], item["streams"]) == ("edge", True, [])
    assert (clusters["state"], clusters["version_acked"], clusters["revision"]) == ("synced", version, 1)
    assert item["polls"] == {"last": item["last_seen"], "interval_s": 5.0}
    for query in ("?group=edge", "?state=synced"):
        assert (await api.client.get(f"/api/v1/nodes{query}")).json()["items"] == [item]
    progress = (await api.put("edge", A, B, headers={"prefer": "wait=30"})).json()["progress"]
    assert (progress["synced"], progress["pending_nodes"]) == (0, []), "no push waits for it"
    assert (await api.put("edge")).status_code == 409, "it would lose all"
    problem = (await api.client.get("/api/v1/nodes/n1/resources")).json()
    assert problem["detail"] == "no node 'n1' has an open stream"


async def test_node_on_the_old_transport(api: Api) -> None:
    await api.put("edge", A, static_cluster("b", 80, dns_lookup_family="ALL"))
    client = Client(api.plane.fleet, Node("n1", "edge"), "edge", "v2")
    client.subscribe(V2_URLS[CLUSTER])
    item = (await api.client.get("/api/v1/nodes")).json()["items"][0]
    state = item["types"]["clusters"]
    assert state["type_url"] == V2_URLS[CLUSTER]
    assert state["unexpressed"] == [{"name": "b", "problem": "/dns_lookup_family: the v2 API has no value 4"}]
    assert item["streams"][0]["api"] == "v2"
    assert (await api.client.get("/api/v1/nodes/n1")).json() == item


async def test_nodes_are_filtered_and_paged(api: Api) -> None:
    await api.put("edge", A)
    for number in range(3):
        connected(api, f"n{number}").ack(held(api))
    Client(api.plane.fleet, Node("other"), "default")
    assert len((await api.client.get("/api/v1/nodes", params={"group": "edge"})).json()["items"]) == 3
    assert len((await api.client.get("/api/v1/nodes", params={"state": "synced"})).json()["items"]) == 3
    assert (await api.client.get("/api/v1/nodes", params={"state": "nonsense"})).status_code == 422
    first = (await api.client.get("/api/v1/nodes", params={"limit": 3})).json()
    rest = (await api.client.get("/api/v1/nodes", params={"page_token": first["next_page_token"]})).json()
    assert [item["id"] for item in rest["items"]] == ["other"]


@pytest.mark.parametrize("type", ["clusters", CLUSTER_TYPE])
async def test_nacks_by_filter(api: Api, type: str) -> None:
    await api.put("edge", A)
    client = connected(api)
    client.nack(held(api), "no such thing")
    query = {"group": "edge", "node": "n1", "type": type, "state": "open", "since": "1970-01-01T00:00:00Z"}
    item = (await api.client.get("/api/v1/nacks", params=query)).json()["items"][0]
    assert (item["node"], item["type"], item["message"]) == ("n1", "clusters", "no such thing")
    assert item["version"] == held(api).version_info
    assert (item["names"], item["count"], item["state"]) == (["a"], 1, "open")
    for other in ({"group": "x"}, {"node": "x"}, {"type": "listeners"}, {"state": "resolved"}, {"since": "1h"}):
        assert (await api.client.get("/api/v1/nacks", params=other)).json()["items"] == []
    error = (await api.client.get("/api/v1/nodes/n1")).json()["types"]["clusters"]["error"]
    assert error == "no such thing"


async def test_push_that_waits_is_answered_when_the_nodes_have_it(api: Api) -> None:
    await api.put("edge", A)
    client = connected(api)
    client.ack(held(api))
    push = asyncio.create_task(api.put("edge", B, headers={"prefer": "wait=60"}))
    async with asyncio.timeout(30):
        while api.plane.publisher.groups.content("edge").revision != 2:
            await asyncio.sleep(0)
    assert (await api.client.get("/api/v1/groups/edge/revisions/2/progress")).json()["verdict"] == "pending"
    client.ack(held(api))
    answer = await push
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=60"
    assert (answer.json()["progress"]["verdict"], answer.json()["progress"]["synced"]) == ("done", 1)


async def test_push_that_is_refused_says_so(api: Api) -> None:
    await api.put("edge", A)
    client = connected(api)
    await api.put("edge", B)
    client.nack(held(api), "no")
    progress = (await api.client.get("/api/v1/groups/edge/revisions/2/progress?wait=60")).json()
    assert (progress["verdict"], progress["nacks"][0]["message"]) == ("refused", "no")


async def test_wait_that_runs_out_is_accepted(api: Api) -> None:
    connected(api)
    answer = await api.put("edge", A, headers={"prefer": "respond-async, wait=1"})
    assert (answer.status_code, answer.json()["progress"]["pending_nodes"]) == (202, ["n1"])
    assert (await api.client.get("/api/v1/groups/edge/revisions/9/progress")).status_code == 404


async def test_bootstrap(api: Api) -> None:
    query = {"node_id": "n1", "cluster": "edge", "mode": "rest"}
    rest = (await api.client.get("/api/v1/bootstrap", params=query)).json()
    assert rest["node"] == {"id": "n1", "cluster": "edge"}
    assert "18080" in str(rest["static_resources"])
    split = await api.client.get("/api/v1/bootstrap", params={"mode": "split", "address": "[::1]:9"})
    assert "'::1'" in str(split.json()["static_resources"])
    text = await api.client.get("/api/v1/bootstrap", headers={"accept": "application/yaml"})
    assert text.text.startswith("node:")


async def test_a_node_is_disconnected(api: Api) -> None:
    ended: list[str] = []

    def disconnect(node_id: str) -> int:
        ended.append(node_id)
        return int(node_id == "a/b")

    api.services.disconnect = disconnect
    answer = await api.client.delete("/api/v1/nodes/a%2Fb")
    assert answer.json() == {"node": "a/b", "streams": 1}
    assert (await api.client.delete("/api/v1/nodes/n2")).status_code == 404
    assert ended == ["a/b", "n2"]


async def test_nodes_by_selector(api: Api) -> None:
    Client(api.plane.fleet, Node("n1", "edge", metadata={"role": "a"}), "default")
    Client(api.plane.fleet, Node("n2", "core"), "default")
    Client(api.plane.fleet, Node("n3", "edge"), "default")

    async def ids(selector: str) -> list[str]:
        answer = await api.client.get("/api/v1/nodes", params={"selector": selector})
        return [item["id"] for item in answer.json()["items"]]

    assert await ids('node.cluster == "edge"') == ["n1", "n3"]
    assert await ids('node.metadata.role == "a"') == ["n1"]
    assert await ids("") == ["n1", "n2", "n3"]
    wrong = await api.client.get("/api/v1/nodes", params={"selector": "node.cluster ="})
    assert (wrong.status_code, "column" in wrong.json()["detail"]) == (400, True)
    assert (await api.client.get("/api/v1/nodes", params={"selector": "x" * 5000})).status_code == 422


async def test_pages_of_a_selection(api: Api) -> None:
    for number in range(7):
        Client(api.plane.fleet, Node(f"n{number}", "edge" if number % 2 else "core"), "default")
    query = {"selector": 'node.cluster == "core"', "limit": "2"}
    first = (await api.client.get("/api/v1/nodes", params=query)).json()
    assert [item["id"] for item in first["items"]] == ["n0", "n2"]
    rest = (await api.client.get("/api/v1/nodes", params={**query, "page_token": first["next_page_token"]})).json()
    assert [item["id"] for item in rest["items"]] == ["n4", "n6"]
    assert "next_page_token" not in rest

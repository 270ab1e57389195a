"""Groups with selectors over HTTP, and explanations."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.model.node import Node
from xds.model.resource_type import CLUSTER

A = static_cluster("a", 80)
EDGE = {"selector": "node.metadata.role == edge", "priority": 10}
DEFAULTS: dict[str, Any] = {
    "selector": "",
    "priority": 0,
    "on_nack": "",
    "removal_delay_s": None,
    "listener_drain_s": None,
}
GROUP = "/api/v1/groups/edge"
EXPLAIN = "/api/v1/explain"


async def settings(api: Api, group: str = "edge") -> dict[str, Any]:
    item = (await api.client.get(f"/api/v1/groups/{group}")).json()
    return {name: item[name] for name in (*DEFAULTS, "selector_failures")}


async def test_a_group_is_made_with_its_settings_and_shows_them(api: Api) -> None:
    answer = await api.client.put(GROUP, json=EDGE)
    assert (answer.status_code, answer.json()["group"], answer.json()["revision"]) == (200, "edge", 0)
    assert await settings(api) == {**DEFAULTS, **EDGE, "selector_failures": 0}
    assert "etag" not in answer.headers
    await api.put("edge", A)
    item = (await api.client.get(GROUP)).json()
    assert (item["revision"], item["selector"], item["resources"]) == (1, EDGE["selector"], {"clusters": 1})


async def test_omitted_settings_are_reset(api: Api) -> None:
    own = {"on_nack": "proceed", "removal_delay_s": 5, "listener_drain_s": 60.5}
    await api.client.put(GROUP, json={**EDGE, **own})
    assert await settings(api) == {**EDGE, **own, "selector_failures": 0}
    await api.client.put(GROUP, json={"priority": 3})
    assert await settings(api) == {**DEFAULTS, "priority": 3, "selector_failures": 0}


class TestOfTwoWhoChangeThem:
    """If-Match takes the etag of the settings, so no concurrent change is lost."""

    async def change(self, api: Api, priority: int, **headers: str) -> tuple[int, str]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await api.client.put(GROUP, json={"priority": priority}, headers=names)
        return answer.status_code, answer.json().get("settings_etag", answer.json().get("detail"))

    async def test_a_write_with_an_outdated_etag_of_settings_is_refused(self, api: Api) -> None:
        _, looked_at = await self.change(api, 1)
        assert (await api.client.get(GROUP)).json()["settings_etag"] == looked_at
        status, now = await self.change(api, 2, if_match=looked_at)
        assert (status, now != looked_at) == (200, True)
        status, detail = await self.change(api, 3, if_match=f'"{looked_at}"')
        assert (status, now in detail) == (412, True)
        assert (await settings(api))["priority"] == 2
        query, headers = {"dry_run": "true"}, {"if-match": looked_at}
        dry = await api.client.put(GROUP, json={"priority": 3}, params=query, headers=headers)
        assert dry.status_code == 412

    async def test_one_of_many_concurrent_writers_succeeds(self, api: Api) -> None:
        _, looked_at = await self.change(api, 1)
        changes = (self.change(api, priority, if_match=looked_at) for priority in range(2, 12))
        answers = await asyncio.gather(*changes)
        assert sorted(status for status, _ in answers) == [200, *[412] * 9]

    async def test_preconditions_for_some_settings_or_none(self, api: Api) -> None:
        await api.put("edge", A)  # a group without settings
        assert (await api.client.get(GROUP)).json()["settings_etag"] == ""
        assert (await self.change(api, 1, if_match="*"))[0] == 412
        assert (await self.change(api, 1, if_none_match="*"))[0] == 200
        assert (await self.change(api, 2, if_none_match="*"))[0] == 412
        assert (await self.change(api, 2, if_match="*"))[0] == 200

    async def test_an_invalid_etag_of_settings_is_refused(self, api: Api) -> None:
        pushed = await api.put("edge", A)
        for etag in (pushed.json()["etag"], "p-1f3a9c07", "s-", 's-1", "s-2'):
            assert (await self.change(api, 1, if_match=etag))[0] == 400
        assert (await self.change(api, 1, if_none_match="s-1"))[0] == 400


async def test_settings_as_yaml(api: Api) -> None:
    text = yaml.safe_dump({"selector": 'node.id matches "^edge-"'})
    answer = await api.client.put(GROUP, content=text, headers={"content-type": "application/yaml"})
    assert answer.json()["selector"] == 'node.id matches "^edge-"'


async def test_groups_with_settings_only_are_listed(api: Api) -> None:
    await api.put("a", A)
    await api.client.put(GROUP, json=EDGE)
    items = (await api.client.get("/api/v1/groups")).json()["items"]
    assert [(item["group"], item["revision"]) for item in items] == [("a", 1), ("edge", 0)]
    assert (await api.client.get("/api/v1/groups", params={"limit": 1})).status_code == 200


async def test_an_invalid_selector_is_refused_with_its_column(api: Api) -> None:
    answer = await api.client.put(GROUP, json={"selector": "node.metadata.role = edge"})
    body = answer.json()
    assert (answer.status_code, len(body["errors"])) == (422, 1)
    error = body["errors"][0]
    assert (error["code"], error["pointer"], error["hint"]) == ("invalid_selector", "/selector", 'write "=="')
    assert "column 20" in error["detail"]
    assert (await api.client.get(GROUP)).status_code == 404


@pytest.mark.parametrize(
    "body", [b"[]", b'{"selector": 3}', b'{"selektor": "x"}', b'{"removal_delay_s": -1}', b"{} \n---\n{}", b"{", b""]
)
async def test_invalid_group_settings_are_refused(api: Api, body: bytes) -> None:
    answer = await api.client.put(GROUP, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}
    assert answer.json()["errors"]


async def test_a_dry_run_changes_nothing(api: Api) -> None:
    answer = await api.client.put(GROUP, json=EDGE, params={"dry_run": "true"})
    assert (answer.status_code, answer.json()["selector"]) == (200, EDGE["selector"])
    assert (await api.client.get(GROUP)).status_code == 404
    wrong = await api.client.put(GROUP, json={"selector": "("}, params={"dry_run": "true"})
    assert wrong.status_code == 422


async def test_an_empty_group_takes_nodes_only_when_that_is_meant(api: Api) -> None:
    await api.put("edge")
    assert (await api.client.put(GROUP, json=EDGE)).status_code == 409
    assert (await api.client.put(GROUP, json=EDGE, params={"allow_empty": "true"})).status_code == 200


async def test_settings_go_with_the_group(api: Api) -> None:
    await api.client.put(GROUP, json=EDGE)
    await api.put("edge", A)
    assert (await api.client.delete(GROUP)).status_code == 200
    assert (await api.client.get(GROUP)).status_code == 404
    await api.client.put(GROUP, json=EDGE)
    assert (await api.client.delete(GROUP)).json()["revision"] == 0
    assert (await api.client.delete(GROUP)).status_code == 404


async def test_explain_a_node_file(api: Api) -> None:
    await api.client.put(GROUP, json=EDGE)
    await api.put("edge", A)
    await api.put("default", A)
    node = {"id": "n1", "metadata": {"role": "edge"}, "userAgentName": "envoy", "locality": {"region": "eu"}}
    query = {"type": "clusters", "name": "a"}
    body = (await api.client.post(EXPLAIN, json=node, params=query)).json()
    assert (body["group"], body["rule"], body["revision"]) == ("edge", "selector", 1)
    assert (body["node"]["id"], body["node"]["locality"]["region"], body["node"]["connected"]) == ("n1", "eu", False)
    assert body["candidates"][0] == {
        "group": "edge",
        "rule": "selector",
        "selector": EDGE["selector"],
        "priority": 10,
        "matched": True,
        "detail": "the selector matches",
    }
    assert [(each["type"], each["name"], each["answer"]) for each in body["resources"]] == [("clusters", "a", "served")]
    wrapped = (await api.client.post(EXPLAIN, json={"node": {"id": "n2"}})).json()
    assert (wrapped["group"], wrapped["rule"], wrapped["resources"]) == ("default", "default", [])


async def test_explain_a_connected_node(api: Api) -> None:
    await api.put("default", A)
    client = Client(api.plane.fleet, Node("n/1"), "default")
    client.subscribe(CLUSTER)
    client.ack(api.plane.publisher.groups.content("default").snapshot.get(CLUSTER))
    path = f"/api/v1/nodes/{quote('n/1', safe='')}/explain"
    body = (await api.client.get(path)).json()
    assert (body["group"], body["node"]["connected"], body["resources_total"]) == ("default", True, 1)
    assert body["resources"][0]["answer"] == "sent"
    assert body["resources"][0]["version"]
    other = (await api.client.get(path, params={"type": "routes", "name": "r"})).json()
    assert [each["answer"] for each in other["resources"]] == ["not_subscribed"]


async def test_explain_refuses_questions_without_an_answer(api: Api) -> None:
    assert (await api.client.get("/api/v1/nodes/stranger/explain")).status_code == 404
    assert (await api.client.post(EXPLAIN, json={"id": "x"}, params={"name": "a"})).status_code == 400
    bodies: list[object] = [{"id": 3}, [], {"id": "x", "metadata": []}, {"node": 1}]
    for body in bodies:
        answer = await api.client.post(EXPLAIN, json=body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "invalid_node")
    answer = await api.client.post(EXPLAIN, content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert (await api.client.post(EXPLAIN, json={"id": "x" * (1 << 20)})).status_code == 413

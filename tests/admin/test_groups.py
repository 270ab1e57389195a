"""Groups, snapshots and single resources over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.labels import stems
from tests.support.resources import CLUSTER_TYPE, cluster_load_assignment, eds_cluster, static_cluster
from xds.codec import schema
from xds.model.node import Node

A = static_cluster("a", 80)
B = static_cluster("b", 80)
SNAPSHOT = "/api/v1/groups/edge/snapshot"


async def test_a_push_is_answered_with_its_changes(api: Api) -> None:
    answer = await api.put("edge", eds_cluster("c"), cluster_load_assignment("c", 80))
    body = answer.json()
    assert answer.status_code == 200
    assert (body["group"], body["revision"]) == ("edge", 1)
    assert stems(body["versions"]) == {"clusters": "1", "endpoints": "1"}
    assert body["changes"]["clusters"] == {"added": ["c"], "changed": [], "removed": []}
    assert answer.headers["etag"] == f'"{body["etag"]}"'


async def test_snapshot_round_trips(api: Api) -> None:
    pushed = [B, eds_cluster("z"), cluster_load_assignment("z", 1, 2), A]
    await api.put("edge", *pushed)
    first = (await api.client.get(SNAPSHOT)).json()
    assert [item.get("name", item.get("cluster_name")) for item in first["resources"]] == ["b", "z", "z", "a"]
    assert "load_assignment" in first["resources"][0]
    again = await api.client.put(SNAPSHOT, json=first)
    assert (again.json()["revision"], again.json()["changed"]) == (1, False)
    assert (await api.client.get(SNAPSHOT)).json() == first


async def test_an_answer_that_is_edited_and_put_back_gets_versions_of_its_own(api: Api) -> None:
    """Otherwise two contents would have one name, and a reconnecting client could not say which it holds."""
    await api.put("edge", A, B)
    got = (await api.client.get(SNAPSHOT)).json()
    got["resources"].pop()
    answer = (await api.client.put(SNAPSHOT, json=got)).json()
    assert (answer["revision"], stems(answer["versions"])) == (2, {"clusters": "2"})


async def test_labels_by_type(api: Api) -> None:
    body = {"resources": [A, cluster_load_assignment("x", 1)], "version": "v1", "versions": {"endpoints": "e1"}}
    answer = await api.client.put(SNAPSHOT, json=body)
    assert answer.json()["versions"] == {"clusters": "v1", "endpoints": "e1"}


async def test_yaml_in_and_out(api: Api) -> None:
    text = yaml.safe_dump({"resources": [A]})
    answer = await api.client.put(SNAPSHOT, content=text, headers={"content-type": "application/yaml"})
    assert answer.json()["revision"] == 1
    shown = await api.client.get(SNAPSHOT, headers={"accept": "application/yaml"})
    assert shown.headers["content-type"].startswith("application/yaml")
    assert yaml.safe_load(shown.text)["resources"][0]["name"] == "a"


async def test_protobuf_in(api: Api) -> None:
    response: Any = schema.require("envoy.service.discovery.v3.DiscoveryResponse")()
    cluster = schema.require("envoy.config.cluster.v3.Cluster")(name="p")
    packed = response.resources.add()
    packed.type_url, packed.value = CLUSTER_TYPE, cluster.SerializeToString()
    headers = {"content-type": "application/x-protobuf"}
    answer = await api.client.put(SNAPSHOT, content=response.SerializeToString(), headers=headers)
    assert answer.json()["changes"]["clusters"]["added"] == ["p"]


@pytest.mark.parametrize("type", ["clusters", "envoy.config.cluster.v3.Cluster", quote(CLUSTER_TYPE, safe="")])
async def test_single_resource_by_alias_and_type_url(api: Api, type: str) -> None:
    name = "xdstp://auth/a b/ü?x=1&y=2"
    path = f"/api/v1/groups/edge/resources/{type}/{quote(name, safe='')}"
    assert (await api.client.put(path, json={**A, "name": name})).json()["changes"]["clusters"]["added"] == [name]
    shown = await api.client.get(path)
    assert (shown.json()["@type"], shown.json()["name"]) == (CLUSTER_TYPE, name)
    assert (await api.client.put(path, json=shown.json())).json()["changed"] is False
    assert (await api.client.delete(path)).json()["changes"]["clusters"]["removed"] == [name]
    assert (await api.client.get(path)).status_code == 404
    assert (await api.client.delete(path)).status_code == 404


async def test_names_with_plain_slashes(api: Api) -> None:
    path = "/api/v1/groups/edge/resources/clusters/outbound/80/web"
    body = {key: value for key, value in A.items() if key != "@type"}
    assert (await api.client.put(path, json={**body, "name": "outbound/80/web"})).status_code == 200
    assert (await api.client.get(path)).json()["name"] == "outbound/80/web"


async def test_resource_under_another_name_or_type_is_invalid(api: Api) -> None:
    named = await api.client.put("/api/v1/groups/edge/resources/clusters/other", json=A)
    typed = await api.client.put("/api/v1/groups/edge/resources/listeners/a", json=A)
    assert (named.status_code, typed.status_code) == (422, 422)
    assert named.json()["errors"] and typed.json()["errors"]


async def test_unknown_types_pass_through(api: Api) -> None:
    custom = {"@type": "type.googleapis.com/my.Thing", "@name": "t1", "@value_base64": "AQI="}
    assert stems((await api.put("edge", custom)).json()["versions"]) == {"my.Thing": "1"}
    shown = await api.client.get("/api/v1/groups/edge/resources/my.Thing/t1")
    assert shown.json() == custom


async def test_resources_of_a_type_are_listed_in_pages(api: Api) -> None:
    await api.put("edge", *(static_cluster(f"c{number}", 80) for number in range(5)))
    path, query, names = "/api/v1/groups/edge/resources/clusters", {"limit": "2"}, []
    for _ in range(3):
        page = (await api.client.get(path, params=query)).json()
        names += [item["name"] for item in page["items"]]
        query["page_token"] = page.get("next_page_token", "")
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    assert query["page_token"] == ""


async def test_groups_are_listed(api: Api) -> None:
    for group in ("b", "a", "sidecar~10.0.0.1/x"):
        await api.put(quote(group, safe=""), A)
    Client(api.plane.fleet, Node("n", "a"), "a")
    items = (await api.client.get("/api/v1/groups")).json()["items"]
    assert [item["group"] for item in items] == ["a", "b", "sidecar~10.0.0.1/x"]
    assert (items[0]["nodes"], items[0]["resources"], items[0]["revision"]) == (1, {"clusters": 1}, 1)
    assert (await api.client.get("/api/v1/groups/a")).json() == items[0]
    first = (await api.client.get("/api/v1/groups", params={"limit": 2})).json()
    rest = await api.client.get("/api/v1/groups", params={"page_token": first["next_page_token"]})
    assert rest.json()["items"] == items[2:]


async def test_preconditions(api: Api) -> None:
    create = {"if-none-match": "*"}
    etag = (await api.put("edge", A, headers=create)).headers["etag"]
    clash = await api.put("edge", B, headers=create)
    assert (clash.status_code, clash.json()["revision"]) == (412, 1)
    assert (await api.put("edge", B, headers={"if-match": etag})).json()["revision"] == 2
    assert (await api.put("edge", A, headers={"if-match": etag})).status_code == 412
    assert (await api.put("edge", A, headers={"if-match": '"r2-00000000"'})).status_code == 412
    assert (await api.put("edge", A, headers={"if-match": "r2"})).json()["revision"] == 3
    assert (await api.put("edge", B, headers={"if-match": "*"})).json()["revision"] == 4
    assert (await api.put("none", B, headers={"if-match": "*"})).status_code == 412
    assert (await api.put("edge", B, headers={"if-match": "nonsense"})).status_code == 400


async def test_unchanged_snapshot_is_not_sent_again(api: Api) -> None:
    etag = (await api.put("edge", A)).headers["etag"]
    answer = await api.client.get(SNAPSHOT, headers={"if-none-match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


async def test_dry_run_changes_nothing(api: Api) -> None:
    answer = await api.put("edge", A, params={"dry_run": "true"})
    assert (answer.json()["dry_run"], answer.json()["changes"]["clusters"]["added"]) == (True, ["a"])
    assert (await api.client.get(SNAPSHOT)).status_code == 404


async def test_emptying_needs_consent(api: Api) -> None:
    await api.put("edge", A)
    Client(api.plane.fleet, Node("n", "edge"), "edge")
    for answer in (
        await api.put("edge"),
        await api.client.delete(SNAPSHOT),
        await api.client.delete("/api/v1/groups/edge"),
    ):
        assert answer.status_code == 409
        assert "allow_empty" in answer.json()["detail"]
        assert answer.json()["override"] == "allow_empty"
        assert "allow_empty" not in answer.json()["reason"]
    consent = {"allow_empty": "true"}
    assert (await api.client.delete(SNAPSHOT, params=consent)).json()["changes"]["clusters"]["removed"] == ["a"]
    assert (await api.client.delete("/api/v1/groups/edge", params=consent)).status_code == 200
    assert (await api.client.get("/api/v1/groups/edge")).status_code == 404


async def test_a_deletion_says_where_the_nodes_go(api: Api) -> None:
    await api.put("edge", A)
    await api.put("canary", A)
    Client(api.plane.fleet, Node("canary", "edge"), "canary")
    dry = await api.client.delete("/api/v1/groups/canary", params={"dry_run": "true"})
    done = await api.client.delete("/api/v1/groups/canary")
    assert dry.json()["moves"] == done.json()["moves"] == {"edge": 1}
    assert "moves" not in (await api.client.delete("/api/v1/groups/edge")).json()


async def test_a_new_group_needs_a_plain_name(api: Api) -> None:
    for path in ("groups/a%20b/snapshot", "groups/a%20b/resources/clusters/a", "groups/a%20b"):
        body = {"priority": 1} if path.endswith("b") else A if path.endswith("/a") else {"resources": [A]}
        answer = await api.client.put(f"/api/v1/{path}", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "invalid_group"), path
    transaction = {"changes": [{"group": "fine", "put": [A]}, {"group": "a b", "put": [A]}]}
    answer = await api.client.post("/api/v1/transactions", json=transaction)
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["code"], error["pointer"][:10]) == (422, "invalid_group", "/changes/1")
    assert (await api.client.get("/api/v1/groups")).json()["items"] == []


async def test_history_and_rollback(api: Api) -> None:
    await api.put("edge", A, params={"author": "ann", "message": "first ✓"})
    await api.put("edge", B)
    items = (await api.client.get("/api/v1/groups/edge/revisions")).json()["items"]
    assert [(item["revision"], item["author"], item["message"]) for item in items] == [
        (2, "", ""),
        (1, "ann", "first ✓"),
    ]
    assert items[0]["time"].endswith("Z")
    first = (await api.client.get("/api/v1/groups/edge/revisions/1")).json()
    assert (first["revision"], first["resources"][0]["name"]) == (1, "a")
    back = await api.client.post("/api/v1/groups/edge/rollback", json={"to": 1})
    assert (back.json()["revision"], back.json()["changes"]["clusters"]["removed"]) == (3, ["b"])
    page = (await api.client.get("/api/v1/groups/edge/revisions", params={"limit": 2})).json()
    rest = await api.client.get("/api/v1/groups/edge/revisions", params={"page_token": page["next_page_token"]})
    assert [item["revision"] for item in rest.json()["items"]] == [1]
    for body, status in ((b'{"to": 9}', 404), (b'{"to": "x"}', 400), (b"[", 400), (b"[" * 100_000, 400)):
        answer = await api.client.post(
            "/api/v1/groups/edge/rollback", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == status


async def test_validate_pushes_nothing(api: Api) -> None:
    good = await api.client.post("/api/v1/validate", json={"resources": [A]})
    assert good.json() == {"valid": True, "resources": 1, "errors": [], "warnings": []}
    bad = await api.client.post("/api/v1/validate", json={"resources": [{**A, "nmae": 1}, {**B, "typ": 2}]})
    assert (bad.status_code, len(bad.json()["errors"])) == (422, 2)
    assert (await api.client.get("/api/v1/groups")).json()["items"] == []


async def test_invalid_push_applies_nothing(api: Api) -> None:
    await api.put("edge", A)
    answer = await api.put("edge", B, {**A, "connect_timeout": "soon"})
    error = answer.json()["errors"][0]
    assert answer.status_code == 422
    assert (error["resource"], error["pointer"], error["severity"]) == ("clusters/a", "/connect_timeout", "error")
    assert (await api.client.get(SNAPSHOT)).json()["revision"] == 1

"""Traffic assignment policies over HTTP, and their decisions."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.admin.conftest import Api
from tests.steering.assigned import A, B
from tests.support.connected import Client
from tests.support.resources import steered_cluster, zoned_load_assignment
from xds.lrs.figures import Flow
from xds.model.node import Node
from xds.model.resource_type import ENDPOINT
from xds.steering.core.policy import Strategy
from xds.steering.core.policy_document import parse_policy, policy_document
from xds.steering.policy_schema import POLICY_SCHEMA

PATH = "/api/v1/groups/edge/assignments/web"
POLICY: dict[str, Any] = {"capacity": {"rates": [{"per_locality_rps": 100}]}, "maximum_step": 1.0}
CLUSTER = steered_cluster("web")
ENDPOINTS = zoned_load_assignment("web", {"za": [1, 2], "zb": [3]})
NEAR, FAR = ({"region": "r", "zone": zone, "sub_zone": ""} for zone in ("za", "zb"))


@pytest.fixture
async def pushed(api: Api) -> Api:
    await api.put("edge", CLUSTER, ENDPOINTS)
    api.reports.rps = {A: 150.0, B: 10.0}
    return api


async def test_a_policy_decides_at_once_and_says_why(pushed: Api) -> None:
    answer = await pushed.client.put(PATH, json=POLICY)
    assert answer.status_code == 200
    item = answer.json()
    assert (item["group"], item["cluster"], item["endpoints"], item["waits_for"]) == ("edge", "web", "web", "")
    assert item["policy"]["strategy"] == "waterfall_by_zone", "defaults are written out"
    near, far = item["sources"]
    assert (near["source"], near["demand_rps"], near["nodes"], near["standing"]) == (NEAR, 150.0, 1, "settled")
    split = {one["locality"]["zone"]: one["share"] for one in near["allotments"]}
    assert split["za"] == pytest.approx(2 / 3, abs=0.1)
    assert far["allotments"][0]["locality"] == FAR
    assert [(one["locality"], one["endpoints"], one["healthy"]) for one in item["targets"]] == [
        (NEAR, 2, 2),
        (FAR, 1, 1),
    ]
    assert item["targets"][0]["capacity_rps"] == 100.0
    assert all(reason["code"] and reason["detail"] for one in item["sources"] for reason in one["reasons"])
    assert item["warnings"] == []
    shown = (await pushed.client.get(PATH)).json()
    assert shown == item


async def test_targets_show_utilisation_and_sources_their_real_shares(pushed: Api) -> None:
    """The proxies of za were to send two thirds home, and sent a third there: both are shown."""
    pushed.reports.flows = (Flow(A, A, 50.0, 0.0, 0), Flow(A, B, 100.0, 0.0, 0), Flow(B, B, 10.0, 0.0, 0))
    item = (await pushed.client.put(PATH, json=POLICY)).json()
    near, far = item["targets"]
    assert (near["load_rps"], near["utilisation"], far["load_rps"], far["utilisation"]) == (50, 0.5, 110, 1.1)
    assert near["real_share"] == pytest.approx(50 / 160, abs=1e-4)
    assert near["decided_share"] == pytest.approx(near["decided_rps"] / 160, abs=1e-3)
    source = item["sources"][0]
    real = {one["locality"]["zone"]: (one["real_share"], one["real_rps"]) for one in source["allotments"]}
    assert real == {"za": (pytest.approx(1 / 3, abs=1e-4), 50.0), "zb": (pytest.approx(2 / 3, abs=1e-4), 100.0)}


async def test_the_history_has_pages_with_the_latest_first(pushed: Api) -> None:
    await pushed.client.put(PATH, json=POLICY)
    pushed.reports.rps = {A: 20.0, B: 10.0}
    await pushed.client.put(PATH, json={**POLICY, "spill": {"within": "zone"}, "dwell_s": 0, "interval_s": 1})
    whole = (await pushed.client.get(f"{PATH}/history")).json()["items"]
    assert [item["number"] for item in whole] == sorted((item["number"] for item in whole), reverse=True)
    first = next(item for item in whole if item["number"] == 1)
    assert (first["source"], first["before"], first["actions"]) == (NEAR, [], ["changed"])
    assert sum(one["share"] for one in first["after"]) == pytest.approx(1.0, abs=1e-3)
    assert first["time"].endswith("Z") and first["reasons"]
    page = (await pushed.client.get(f"{PATH}/history", params={"limit": 1})).json()
    query = {"page_token": page["next_page_token"]}
    assert page["items"] + (await pushed.client.get(f"{PATH}/history", params=query)).json()["items"] == whole
    assert (await pushed.client.get("/api/v1/groups/edge/assignments/none/history")).status_code == 404


async def test_the_pushed_snapshot_is_not_altered(pushed: Api) -> None:
    before = (await pushed.client.get("/api/v1/groups/edge/snapshot")).json()
    await pushed.client.put(PATH, json=POLICY)
    assert (await pushed.client.get("/api/v1/groups/edge/snapshot")).json() == before


async def test_a_policy_as_yaml_goes_round(pushed: Api) -> None:
    text = yaml.safe_dump({**POLICY, "strategy": "spray_to_world"})
    answer = await pushed.client.put(PATH, content=text, headers={"content-type": "application/yaml"})
    policy = answer.json()["policy"]
    assert policy["strategy"] == "spray_to_world"
    again = await pushed.client.put(PATH, json=policy)
    assert again.json()["etag"] == answer.json()["etag"]


async def test_the_policies_of_a_group_are_listed_page_by_page(pushed: Api) -> None:
    for cluster in ("web", "api"):
        await pushed.client.put(f"/api/v1/groups/edge/assignments/{cluster}", json=POLICY)
    first = (await pushed.client.get("/api/v1/groups/edge/assignments", params={"limit": 1})).json()
    query = {"page_token": first["next_page_token"]}
    second = (await pushed.client.get("/api/v1/groups/edge/assignments", params=query)).json()
    assert [item["cluster"] for page in (first, second) for item in page["items"]] == ["api", "web"]
    for cluster, found in (("web", ["web"]), ("none", [])):
        one = (await pushed.client.get("/api/v1/groups/edge/assignments", params={"cluster": cluster})).json()
        assert [item["cluster"] for item in one["items"]] == found


async def test_a_dry_run_shows_the_result_and_changes_nothing(pushed: Api) -> None:
    item = (await pushed.client.put(PATH, json=POLICY, params={"dry_run": "true"})).json()
    assert item["dry_run"] is True
    assert item["sources"][0]["allotments"][0]["share"] == pytest.approx(2 / 3, abs=0.1)
    assert (await pushed.client.get(PATH)).status_code == 404
    assert (await pushed.client.get("/api/v1/groups/edge/assignments")).json() == {"items": []}


async def test_a_dry_run_over_a_policy_in_force(pushed: Api) -> None:
    await pushed.client.put(PATH, json=POLICY)
    before = (await pushed.client.get(PATH)).json()
    spray = {**POLICY, "strategy": "spray_to_world"}
    item = (await pushed.client.put(PATH, json=spray, params={"dry_run": "true"})).json()
    assert item["policy"]["strategy"] == "spray_to_world"
    assert (await pushed.client.get(PATH)).json() == before


async def test_all_errors_are_reported_together(pushed: Api) -> None:
    wrong = {"capacity": {}, "strategy": "fountain", "intervals": 3}
    answer = await pushed.client.put(PATH, json=wrong)
    assert answer.status_code == 422
    assert {error["pointer"] for error in answer.json()["errors"]} >= {"/capacity", "/strategy", "/intervals"}
    assert (await pushed.client.get(PATH)).status_code == 404


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"[1", "application/json", 400),
        (b"[]", "application/json", 422),
        (b"{}---{}", "application/json", 400),
        (b"\n\n", "application/yaml", 422),
        (b"x", "application/x-protobuf", 415),
        (b"#" * (257 * 1024), "application/yaml", 413),
    ],
)
async def test_a_body_that_is_no_policy(pushed: Api, body: bytes, content_type: str, status: int) -> None:
    answer = await pushed.client.put(PATH, content=body, headers={"content-type": content_type})
    assert answer.status_code == status, answer.text


async def test_a_policy_of_another_cluster_is_refused(pushed: Api) -> None:
    answer = await pushed.client.put(PATH, json={**POLICY, "cluster": "api"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/cluster")


async def test_a_policy_needs_its_group(api: Api) -> None:
    assert (await api.client.put(PATH, json=POLICY)).status_code == 404
    assert (await api.client.get("/api/v1/groups/edge/assignments")).status_code == 404
    await api.client.put("/api/v1/groups/edge", json={"priority": 1})
    answer = await api.client.put(PATH, json=POLICY)
    assert answer.status_code == 200
    assert "no such cluster" in answer.json()["waits_for"]
    assert [warning["code"] for warning in answer.json()["warnings"]] == ["unknown_cluster"]


async def test_obstacles_of_a_policy_are_warnings(api: Api) -> None:
    lacking = {name: value for name, value in CLUSTER.items() if name not in {"lrs_server", "common_lb_config"}}
    await api.put("edge", lacking, ENDPOINTS)
    answer = await api.client.put(PATH, json=POLICY, params={"strict": "true"})
    assert answer.status_code == 422
    item = (await api.client.put(PATH, json=POLICY)).json()
    assert [warning["code"] for warning in item["warnings"]] == ["no_load_reports", "no_locality_weights"]
    assert {warning["resource"] for warning in item["warnings"]} == {"policy/web"}


async def test_a_push_warns_of_removed_resources_that_a_policy_needs(pushed: Api) -> None:
    await pushed.client.put(PATH, json=POLICY)
    answer = await pushed.put("edge", {**CLUSTER, "common_lb_config": None}, ENDPOINTS)
    assert [warning["code"] for warning in answer.json()["warnings"]] == ["no_locality_weights"]


async def test_the_etag_is_that_of_the_policy(pushed: Api) -> None:
    first = await pushed.client.put(PATH, json=POLICY, headers={"If-None-Match": "*"})
    etag = first.headers["etag"]
    assert first.status_code == 200
    assert etag == f'"{first.json()["etag"]}"' == (await pushed.client.get(PATH)).headers["etag"]
    again = await pushed.client.put(PATH, json=POLICY, headers={"If-None-Match": "*"})
    assert again.status_code == 412
    other = {**POLICY, "maximum_step": 0.5}
    assert (await pushed.client.put(PATH, json=other, headers={"If-Match": etag})).status_code == 200
    for method in ("PUT", "DELETE"):
        for query in ({}, {"dry_run": "true"}):
            late = await pushed.client.request(method, PATH, headers={"If-Match": etag}, params=query, json=POLICY)
            assert late.status_code == 412
    assert (await pushed.client.delete(PATH, headers={"If-Match": "r1"})).status_code == 400
    assert (await pushed.client.delete(PATH, headers={"If-Match": "*"})).status_code == 200


async def test_a_policy_is_deleted(pushed: Api) -> None:
    await pushed.client.put(PATH, json=POLICY)
    assert (await pushed.client.delete(PATH, params={"dry_run": "true"})).json()["dry_run"] is True
    assert (await pushed.client.get(PATH)).status_code == 200
    answer = await pushed.client.delete(PATH)
    assert answer.json() == {"group": "edge", "cluster": "web"}
    assert (await pushed.client.get(PATH)).status_code == 404
    assert (await pushed.client.delete(PATH)).status_code == 404


async def test_names_may_hold_anything(pushed: Api) -> None:
    path = "/api/v1/groups/edge/assignments/outbound%7C80%2F%7Cweb"
    answer = await pushed.client.put(path, json=POLICY)
    assert answer.json()["cluster"] == "outbound|80/|web"
    assert (await pushed.client.get(path)).status_code == 200


async def test_the_schema_is_that_of_the_documents() -> None:
    assert set(POLICY_SCHEMA["properties"]) == set(policy_document(parse_policy(POLICY, "web")))
    assert POLICY_SCHEMA["properties"]["strategy"]["enum"] == list(Strategy)


# The overlay is shown as such


async def test_the_resources_of_a_node_show_overlaid_ones(pushed: Api) -> None:
    node = Node("n1", "edge", A)
    await pushed.client.put(PATH, json=POLICY)
    view = pushed.plane.cache.resolve(node)
    assert view is not None
    client = Client(pushed.plane.fleet, node, "edge")
    client.subscribe(ENDPOINT, "web")
    client.ack(view.snapshot.get(ENDPOINT))
    pushed_version = pushed.plane.publisher.groups.content("edge").snapshot.get(ENDPOINT).resources["web"].version
    for side in ("acked", "sent", "served"):
        query = {"side": side, "contents": "true"}
        (item,) = (await pushed.client.get("/api/v1/nodes/n1/resources", params=query)).json()["items"]
        assert item["pushed_version"] == pushed_version != item["version"]
        assert item["version_info"].startswith("1+")
        assert item["resource"]["endpoints"][0]["load_balancing_weight"] != 1
    (node_item,) = (await pushed.client.get("/api/v1/nodes")).json()["items"]
    assert node_item["types"]["endpoints"]["revision"] == 1, "it is in step with what was pushed"


async def test_resources_of_a_node_are_explained_by_its_overlay(pushed: Api) -> None:
    await pushed.client.put(PATH, json=POLICY)
    node = {"id": "new", "cluster": "edge", "locality": {"region": "r", "zone": "za", "sub_zone": "rack"}}
    query = {"type": "endpoints", "name": "web"}
    found = (await pushed.client.post("/api/v1/explain", json=node, params=query)).json()
    assert found["overlay"] == NEAR, "a sub-zone counts to its zone"
    (answer,) = found["resources"]
    assert answer["pushed_version"] and answer["pushed_version"] != answer["version"]
    assert "the traffic assignment for r/za replaces the pushed one" in answer["detail"]
    elsewhere = {**node, "locality": {"region": "r", "zone": "zc"}}
    found = (await pushed.client.post("/api/v1/explain", json=elsewhere, params=query)).json()
    assert found["overlay"] is None
    assert "pushed_version" not in found["resources"][0]


async def test_a_push_has_arrived_when_its_overlay_has(pushed: Api) -> None:
    """`Prefer: wait` and the rollout count a node that holds the push with its overlay."""
    await pushed.client.put(PATH, json=POLICY)
    node = Node("n1", "edge", A)
    client = Client(pushed.plane.fleet, node, "edge")
    client.subscribe(ENDPOINT, "web")
    view = pushed.plane.cache.resolve(node)
    assert view is not None
    client.ack(view.snapshot.get(ENDPOINT))
    rollout = (await pushed.client.get("/api/v1/groups/edge/rollout")).json()
    assert (rollout["synced"], rollout["pending"]) == (1, 0)

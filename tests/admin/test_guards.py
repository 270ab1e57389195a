"""Changes that are likely mistakes are refused (409) until the caller insists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support.resources import cluster_load_assignment, eds_cluster, route, route_config

SNAPSHOT = "/api/v1/groups/edge/snapshot"
WEB = "/api/v1/groups/edge/endpoints/web"
A, B = "127.0.0.1:80", "127.0.0.1:81"


async def pushed(api: Api) -> None:
    resources = [eds_cluster("web"), cluster_load_assignment("web", 80, 81), route_config("r", route("web"))]
    answer = await api.client.put(SNAPSHOT, json={"resources": resources})
    assert answer.status_code == 200, answer.text


def refused(answer: httpx.Response, override: str) -> str:
    assert (answer.status_code, answer.json().get("override")) == (409, override), answer.text
    assert f"pass {override}=true to do it anyway" in answer.json()["detail"]
    return str(answer.json()["detail"])


EMPTIED = cluster_load_assignment("web")
DRAINING = [{"address": A, "health": "draining"}, {"address": B, "health": "unhealthy"}]


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("PATCH", {"remove": [A, B]}),
        ("PATCH", {"put": DRAINING}),
        ("PATCH", {"put": DRAINING[:1], "remove": [B]}),
        ("PUT", EMPTIED),
    ],
)
async def test_the_last_serving_endpoint_of_an_assignment_in_use_stays(
    api: Api, method: str, body: Mapping[str, Any]
) -> None:
    await pushed(api)
    for query in ("", "?drain_s=0"):
        answer = await api.client.request(method, WEB + query, json=body)
        assert "assignment 'web' of group 'edge' without a serving endpoint" in refused(answer, "allow_empty")
    states = {each["address"]: each["health"] for each in (await api.client.get(WEB)).json()["endpoints"]}
    assert set(states.values()) == {"UNKNOWN"}, "nothing was changed"
    assert (await api.client.request(method, f"{WEB}?dry_run=true", json=body)).status_code == 200
    assert (await api.client.request(method, f"{WEB}?allow_empty=true", json=body)).status_code == 200


async def test_one_of_two_endpoints_may_go_and_an_empty_assignment_may_change(api: Api) -> None:
    await pushed(api)
    assert (await api.client.patch(WEB, json={"remove": [A]})).status_code == 200
    refused(await api.client.patch(WEB, json={"remove": [B]}), "allow_empty")
    assert (await api.client.patch(f"{WEB}?allow_empty=true", json={"remove": [B]})).status_code == 200
    assert (await api.client.patch(WEB, json={"put": [{"address": A, "health": "draining"}]})).status_code == 200


async def test_an_assignment_that_no_cluster_uses_may_become_empty(api: Api) -> None:
    answer = await api.client.put(SNAPSHOT, json={"resources": [cluster_load_assignment("web", 80)]})
    assert answer.status_code == 200
    assert (await api.client.patch(WEB, json={"remove": [A]})).status_code == 200


async def test_an_assignment_by_hand_is_not_deleted_if_the_pushed_one_is_empty(api: Api) -> None:
    answer = await api.client.put(SNAPSHOT, json={"resources": [eds_cluster("web"), EMPTIED]})
    assert answer.status_code == 200, answer.text
    assert (await api.client.patch(WEB, json={"put": [{"address": A}]})).status_code == 200
    refused(await api.client.delete(WEB), "allow_empty")
    assert (await api.client.delete(f"{WEB}?allow_empty=true")).status_code == 200


@pytest.mark.parametrize(
    ("kind", "by"), [("clusters", "routes/r"), ("endpoints", "clusters/web")], ids=["cluster", "assignment"]
)
async def test_a_resource_that_others_name_is_not_deleted(api: Api, kind: str, by: str) -> None:
    await pushed(api)
    path = f"/api/v1/groups/edge/resources/{kind}/web"
    assert by in refused(await api.client.delete(path), "force")
    change = {"group": "edge", "delete": [{"type": kind, "name": "web"}]}
    assert by in refused(await api.client.post("/api/v1/transactions", json={"changes": [change]}), "force")
    assert (await api.client.get(path)).status_code == 200, "nothing was changed"
    preview = await api.client.delete(f"{path}?dry_run=true")
    assert [one["code"] for one in preview.json()["warnings"]] == ["still_referenced"]
    assert (await api.client.delete(f"{path}?force=true")).status_code == 200


async def test_a_reference_may_be_removed_first_or_in_the_same_transaction(api: Api) -> None:
    await pushed(api)
    names = (("routes", "r"), ("clusters", "web"), ("endpoints", "web"))
    change = {"group": "edge", "delete": [{"type": kind, "name": name} for kind, name in names]}
    answer = await api.client.post("/api/v1/transactions?dry_run=true", json={"changes": [change]})
    assert answer.status_code == 200, answer.text
    for kind, name in names:
        answer = await api.client.delete(f"/api/v1/groups/edge/resources/{kind}/{name}")
        assert answer.status_code == 200, (kind, answer.text)


async def test_force_is_a_parameter_of_deletions_alone(api: Api) -> None:
    document = (await api.client.get("/api/v1/openapi.json")).json()
    with_force = {
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
        if any(each["name"] == "force" for each in operation.get("parameters", ()))
    }
    assert with_force == {"delete_resource", "transact"}

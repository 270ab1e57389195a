"""Several groups in one request: applied together, or refused with the change that caused it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import yaml

from tests.admin.conftest import Api
from tests.support.labels import stems
from tests.support.resources import static_cluster

PATH = "/api/v1/transactions"
A, B, C = (static_cluster(name, 80) for name in "abc")

Json = dict[str, Any]


async def transact(api: Api, *changes: Json, **arguments: Any) -> httpx.Response:
    return await api.client.post(PATH, json={"changes": changes}, **arguments)


async def names(api: Api, group: str) -> list[str]:
    answer = await api.client.get(f"/api/v1/groups/{group}/snapshot")
    return [item.get("name", item.get("cluster_name")) for item in answer.json().get("resources", [])]


async def test_changes_of_all_kinds_are_applied_together(api: Api) -> None:
    etag = (await api.put("edge", A, B)).json()["etag"]
    answer = await transact(
        api,
        {"group": "edge", "if_match": etag, "put": [C], "delete": [{"type": "clusters", "name": "a"}]},
        {"group": "core", "if_none_match": "*", "snapshot": {"resources": [B], "version": "v1"}},
        params={"author": "ann", "message": "both"},
    )
    edge, core = answer.json()["results"]
    assert answer.status_code == 200
    assert (edge["group"], edge["revision"], stems(edge["versions"])) == ("edge", 2, {"clusters": "2"})
    assert edge["changes"]["clusters"] == {"added": ["c"], "changed": [], "removed": ["a"]}
    assert (core["group"], core["revision"], core["versions"]) == ("core", 1, {"clusters": "v1"})
    assert (await names(api, "edge"), await names(api, "core")) == (["b", "c"], ["b"])
    for group in ("edge", "core"):
        line = (await api.client.get(f"/api/v1/groups/{group}/revisions")).json()["items"][0]
        assert (line["author"], line["message"]) == ("ann", "both")


async def test_yaml_is_taken(api: Api) -> None:
    text = yaml.safe_dump({"changes": [{"group": "edge", "put": [A]}]})
    answer = await api.client.post(PATH, content=text, headers={"content-type": "application/yaml"})
    assert answer.json()["results"][0]["changes"]["clusters"]["added"] == ["a"]


@pytest.mark.parametrize(
    ("bad", "pointer"),
    [
        ({"snapshot": {"resources": [B, {**A, "connect_timeout": "soon"}]}}, "/snapshot/resources/1/connect_timeout"),
        ({"put": [{**A, "connect_timeout": "soon"}]}, "/put/0/connect_timeout"),
        ({"snapshot": {"resorces": []}}, "/snapshot/resorces"),
        ({"snapshot": {"resources": [A]}, "put": [B]}, ""),
        ({}, ""),
        ({"put": [A], "more": 1}, "/more"),
        ({"put": [A], "delete": [{"type": "clusters"}]}, "/delete/0/name"),
        ({"put": "all"}, "/put"),
    ],
)
async def test_an_invalid_change_is_named_by_its_pointer(api: Api, bad: Json, pointer: str) -> None:
    answer = await transact(api, {"group": "core", "put": [A]}, {"group": "edge", **bad})
    assert answer.status_code == 422, answer.text
    assert f"/changes/1{pointer}" in [error["pointer"] for error in answer.json()["errors"]]
    assert (await api.client.get("/api/v1/groups")).json()["items"] == []


async def test_findings_of_all_changes_are_reported_together(api: Api) -> None:
    wrong = {**A, "connect_timeout": "soon"}
    answer = await transact(api, {"group": "a", "put": [wrong]}, {"group": "b", "snapshot": {"resources": [wrong]}})
    assert [error["pointer"] for error in answer.json()["errors"]] == [
        "/changes/0/put/0/connect_timeout",
        "/changes/1/snapshot/resources/0/connect_timeout",
    ]


async def test_the_group_that_moved_is_named(api: Api) -> None:
    first = (await api.put("edge", A)).json()["etag"]
    await api.put("edge", B)
    answer = await transact(
        api, {"group": "core", "put": [A]}, {"group": "edge", "if_match": first, "snapshot": {"resources": []}}
    )
    body = answer.json()
    assert (answer.status_code, body["group"], body["revision"]) == (412, "edge", 2)
    assert "edge" in body["detail"]
    assert [error["pointer"] for error in body["errors"]] == ["/changes/1"]
    assert (await names(api, "core"), await names(api, "edge")) == ([], ["b"])


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"group": "edge", "delete": [{"type": "clusters", "name": "none"}]}, 404),
        ({"group": "none", "delete": [{"type": "clusters", "name": "a"}]}, 404),
        ({"group": "none", "if_match": "*", "put": [A]}, 412),
        ({"group": "edge", "if_none_match": "*", "put": [A]}, 412),
        ({"group": "edge", "if_match": "nonsense", "put": [A]}, 400),
        ({"group": "a\nb", "put": [A]}, 422),
        ({"group": "core", "put": [B]}, 422),
    ],
)
async def test_one_change_that_cannot_be_made_stops_all(api: Api, change: Json, status: int) -> None:
    await api.put("edge", A)
    answer = await transact(api, {"group": "core", "put": [A]}, change)
    assert answer.status_code == status, answer.text
    assert await names(api, "core") == []


async def test_a_repeat_gets_the_first_answer(api: Api) -> None:
    key = {"headers": {"idempotency-key": "k"}}
    changes: list[Json] = [{"group": "edge", "put": [A]}, {"group": "core", "put": [A]}]
    first = await transact(api, *changes, **key)
    await api.put("edge", B)
    assert (await transact(api, *changes, **key)).json() == first.json()
    other = await transact(api, changes[0], {"group": "core", "put": [B]}, **key)
    assert other.status_code == 422
    assert "used for another push" in other.json()["detail"]
    assert (await names(api, "edge"), await names(api, "core")) == (["b"], ["a"])


async def test_a_dry_run_changes_nothing(api: Api) -> None:
    answer = await transact(api, {"group": "edge", "put": [A]}, params={"dry_run": "true"})
    [result] = answer.json()["results"]
    assert (result["dry_run"], result["changes"]["clusters"]["added"]) == (True, ["a"])
    assert (await api.client.get("/api/v1/groups")).json()["items"] == []


async def test_waiting_is_for_all_groups(api: Api) -> None:
    answer = await transact(
        api, {"group": "edge", "put": [A]}, {"group": "core", "put": [A]}, headers={"prefer": "wait=5"}
    )
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=5")
    assert [result["progress"]["verdict"] for result in answer.json()["results"]] == ["done", "done"]


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"[", "application/json", 400),
        (b"{}", "application/json", 422),
        (b'{"changes": []}', "application/json", 422),
        (b'{"changes": {}}', "application/json", 422),
        (b"[1]", "application/json", 422),
        (b"a: 1\n---\nb: 2", "application/yaml", 400),
        (b"\x0a\x00", "application/x-protobuf", 415),
    ],
)
async def test_bad_bodies(api: Api, body: bytes, content_type: str, status: int) -> None:
    answer = await api.client.post(PATH, content=body, headers={"content-type": content_type})
    assert answer.status_code == status, answer.text


async def test_one_of_two_concurrent_transactions_succeeds(api: Api) -> None:
    etags = {group: (await api.put(group, A)).json()["etag"] for group in ("edge", "core")}

    async def race(number: int) -> int:
        change = {"snapshot": {"resources": [static_cluster(f"c{number}", 80)]}}
        groups = list(etags)[:: -1 if number % 2 else 1]
        return (
            await transact(api, *({"group": each, "if_match": etags[each], **change} for each in groups))
        ).status_code

    statuses = await asyncio.gather(*(race(number) for number in range(8)))
    assert sorted(statuses) == [200] + [412] * 7
    assert await names(api, "edge") == await names(api, "core")

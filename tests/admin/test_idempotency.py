"""Idempotency keys and preconditions on every route that changes a group."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support.resources import static_cluster

EDGE = "/api/v1/groups/edge"
A, B = (static_cluster(name, 80) for name in "ab")

# Every request that changes the group, which holds ``a`` at revision 2 and ``b`` at 1: method, path, body.
DOORS: dict[str, tuple[str, str, object]] = {
    "PUT snapshot": ("PUT", f"{EDGE}/snapshot", {"resources": [B]}),
    "DELETE snapshot": ("DELETE", f"{EDGE}/snapshot", None),
    "PUT resource": ("PUT", f"{EDGE}/resources/clusters/b", B),
    "DELETE resource": ("DELETE", f"{EDGE}/resources/clusters/a", None),
    "POST rollback": ("POST", f"{EDGE}/rollback", {"to": 1}),
    "DELETE group": ("DELETE", EDGE, None),
}
each_door = pytest.mark.parametrize("door", DOORS)


async def send(api: Api, door: str, **more: Any) -> httpx.Response:
    method, path, body = DOORS[door]
    return await api.client.request(method, path, json=body, **more)


async def revisions(api: Api) -> list[dict[str, object]]:
    items: list[dict[str, object]] = (await api.client.get(f"{EDGE}/revisions")).json()["items"]
    return items


@pytest.fixture
async def edge(api: Api) -> Api:
    await api.put("edge", B)
    await api.put("edge", A)
    return api


@each_door
async def test_the_same_key_is_done_once(edge: Api, door: str) -> None:
    key = {"idempotency-key": "k"}
    first = await send(edge, door, headers=key)
    assert (first.status_code, first.json()["revision"]) == (200, 3)
    again = await send(edge, door, headers=key)
    assert (again.status_code, again.json()) == (200, first.json())
    await edge.put("edge", static_cluster("later", 80))
    assert (await send(edge, door, headers=key)).json() == first.json()
    assert len(await revisions(edge)) == 4


@each_door
async def test_the_same_key_at_the_same_time_is_done_once(edge: Api, door: str) -> None:
    answers = await asyncio.gather(*(send(edge, door, headers={"idempotency-key": "k"}) for _ in range(6)))
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, answers[0].text)}
    assert len(await revisions(edge)) == 3


@each_door
async def test_the_same_key_after_a_restart_is_done_once(edge: Api, door: str) -> None:
    key = {"idempotency-key": "k"}
    first = await send(edge, door, headers=key)
    plane = await edge.plane.reloaded()
    after = Api(plane)
    assert (await send(after, door, headers=key)).json() == first.json()
    assert len(await revisions(after)) == 3


@each_door
async def test_a_key_that_was_used_for_another_push_is_refused(edge: Api, door: str) -> None:
    key = {"idempotency-key": "k"}
    assert (await edge.put("edge", static_cluster("first", 80), headers=key)).status_code == 200
    answer = await send(edge, door, headers=key)
    assert answer.status_code == 422
    assert "'k' was used for another push" in answer.json()["detail"]
    assert len(await revisions(edge)) == 3


async def test_a_key_belongs_to_its_group(edge: Api) -> None:
    key = {"idempotency-key": "k"}
    assert (await edge.put("edge", B, headers=key)).json()["revision"] == 3
    assert (await edge.put("core", A, headers=key)).json()["revision"] == 1


async def test_a_refused_push_does_not_use_up_its_key(edge: Api) -> None:
    key = {"idempotency-key": "k"}
    assert (await edge.put("edge", B, headers={**key, "if-match": "r1"})).status_code == 412
    assert (await edge.put("edge", B, headers={**key, "if-match": "r2"})).json()["revision"] == 3
    assert (await edge.put("edge", B, headers={**key, "if-match": "r2"})).json()["revision"] == 3


@each_door
async def test_an_etag_that_is_not_the_groups_is_refused(edge: Api, door: str) -> None:
    held = (await edge.client.get(EDGE)).headers["etag"]
    for stale in ('"r1-00000000"', '"r2-00000000"', "r1", "r3"):
        answer = await send(edge, door, headers={"if-match": stale})
        assert (answer.status_code, answer.json()["revision"], answer.json()["group"]) == (412, 2, "edge")
    assert (await send(edge, door, headers={"if-none-match": "*"})).status_code == 412
    assert (await send(edge, door, headers={"if-match": held})).json()["revision"] == 3


@each_door
async def test_one_of_two_writes_with_the_same_etag_succeeds(edge: Api, door: str) -> None:
    held = (await edge.client.get(EDGE)).headers["etag"]
    other = edge.put("edge", static_cluster("other", 80), headers={"if-match": held})
    answers = await asyncio.gather(send(edge, door, headers={"if-match": held}), other)
    assert sorted(answer.status_code for answer in answers) == [200, 412]
    assert len(await revisions(edge)) == 3


@each_door
async def test_every_revision_has_author_and_message(edge: Api, door: str) -> None:
    await send(edge, door, params={"author": "ann", "message": "because"})
    newest = (await revisions(edge))[0]
    assert (newest["revision"], newest["author"], newest["message"]) == (3, "ann", "because")
    assert str(newest["time"]).startswith("20")


async def test_a_deleted_group_can_be_rolled_back(edge: Api) -> None:
    await edge.client.delete(EDGE)
    assert [line["content"] for line in await revisions(edge)] == [False, True, True]
    back = await edge.client.post(f"{EDGE}/rollback", json={"to": 2})
    assert (back.status_code, back.json()["revision"]) == (200, 4)
    assert (await edge.client.post(f"{EDGE}/rollback", json={"to": 3})).status_code == 404


async def test_a_repeated_deletion_leaves_later_settings_alone(edge: Api) -> None:
    key = {"idempotency-key": "k"}
    await edge.client.put(EDGE, json={"selector": "node.id == x", "priority": 1})
    first = await send(edge, "DELETE group", headers=key)
    assert (await edge.client.get(EDGE)).status_code == 404
    assert await edge.plane.store.docs("group") == []
    await edge.put("edge", A)
    await edge.client.put(EDGE, json={"selector": "node.id == x", "priority": 2})
    assert (await send(edge, "DELETE group", headers=key)).json() == first.json()
    assert (await edge.client.get(EDGE)).json()["priority"] == 2

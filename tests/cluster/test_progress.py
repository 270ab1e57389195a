"""The wait for a push, and the rollout of a group, over all servers.

Each server here has a store of its own. A server follows a push when it gets the same one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.cluster.conftest import Site
from tests.support.resources import static_cluster
from xds.store.member_register import Member

A, B = static_cluster("a", 80), static_cluster("b", 80)
SNAPSHOT = "/api/v1/groups/edge/snapshot"
PROGRESS = "/groups/edge/revisions/{}/progress"


def pushing(site: Site, server: str, *resources: object, wait_s: int = 5) -> asyncio.Task[httpx.Response]:
    headers = {"Prefer": f"wait={wait_s}"}
    call = site[server].client.put(SNAPSHOT, json={"resources": resources}, headers=headers, timeout=30)
    return asyncio.create_task(call)


def counts(progress: dict[str, Any]) -> tuple[str, int, int, int]:
    return progress["verdict"], progress["synced"], progress["pending"], progress["nacked"]


async def until_revision(site: Site, server: str, revision: int) -> None:
    while (content := site[server].plane.publisher.groups.find("edge")) is None or content.revision < revision:
        await asyncio.sleep(0.01)


async def test_a_push_waits_for_the_nodes_of_all_servers(site: Site) -> None:
    await site.put("edge", A)
    at_a, at_b = site.connect("a", "n1"), site.connect("b", "n2")
    for server, client in (("a", at_a), ("b", at_b)):
        client.ack(site.held(server))
    push = pushing(site, "a", B)
    await until_revision(site, "a", 2)
    at_a.ack(site.held("a"))
    await asyncio.sleep(0.6)
    assert not push.done()  # the other server does not follow it yet
    await site["b"].put("edge", B)
    await asyncio.sleep(0.6)
    assert not push.done()
    at_b.ack(site.held("b"))
    answer = await push
    assert answer.status_code == 200 and counts(answer.json()["progress"]) == ("done", 2, 0, 0)
    assert "partial" not in answer.json()["progress"]


async def test_a_node_of_another_server_that_rejects_ends_the_wait(site: Site) -> None:
    await site.put("edge", A)
    at_b = site.connect("b", "n2")
    at_b.ack(site.held("b"))
    push = pushing(site, "a", B)
    await site["b"].put("edge", B)
    at_b.nack(site.held("b"), "bad")
    progress = (await push).json()["progress"]
    assert counts(progress) == ("refused", 0, 0, 1)
    assert [(nack["node"], nack["message"]) for nack in progress["nacks"]] == [("n2", "bad")]


async def test_a_server_that_does_not_follow_yet_is_not_done(site: Site) -> None:
    """Even where no node of the group is connected to it: some may be about to move to the group."""
    await site.put("edge", A)
    at_b = site.connect("b", "n2")
    at_b.ack(site.held("b"))
    answer = await pushing(site, "a", B, wait_s=1)
    assert answer.status_code == 202
    assert counts(answer.json()["progress"]) == ("pending", 0, 1, 0)
    assert answer.json()["progress"]["partial"] == ["b"] and answer.json()["progress"]["pending_nodes"] == ["n2"]
    at_b.leave()
    assert counts(await site.get("a", PROGRESS.format(2)))[0] == "pending"


async def test_a_silent_server_leaves_a_push_pending_until_its_row_is_gone(site: Site, silent: str) -> None:
    await site.put("edge", A)
    site.rows.append(Member("c", silent))
    answer = await pushing(site, "a", A, wait_s=1)
    assert answer.status_code == 202 and answer.json()["progress"]["partial"] == ["c"]
    waiting = asyncio.create_task(site.get("a", PROGRESS.format(1), wait=20))
    await asyncio.sleep(0.5)
    site.rows.pop()
    assert counts(await waiting) == ("done", 0, 0, 0)


async def test_any_server_tells_the_progress_of_a_push(site: Site) -> None:
    """The one that is asked need not be the one that took the push, nor follow it yet."""
    await site["a"].put("edge", A)
    client = site.connect("a", "n1")
    early = await site.get("b", PROGRESS.format(1))
    assert counts(early)[0] == "pending" and early["partial"] == ["b"]
    await site["b"].put("edge", A)
    client.ack(site.held("a"))
    assert counts(await site.get("b", PROGRESS.format(1))) == ("done", 1, 0, 0)
    assert (await site["b"].client.get(f"/api/v1{PROGRESS.format(9)}")).status_code == 404


async def test_a_node_that_moves_during_the_wait_is_waited_for(site: Site) -> None:
    await site.put("edge", A)
    client = site.connect("a", "n1")
    client.ack(site.held("a"))
    push = pushing(site, "a", B)
    await site["b"].put("edge", B)
    client.leave()
    client = site.connect("b", "n1")
    await asyncio.sleep(0.6)
    assert not push.done()
    client.ack(site.held("b"))
    assert counts((await push).json()["progress"]) == ("done", 1, 0, 0)


async def test_a_server_that_went_over_a_revision_knows_it(site: Site) -> None:
    await site["a"].put("edge", A)
    await site["a"].put("edge", B)
    for number in range(3):
        await site["b"].put("edge", static_cluster(f"c{number}"))
    client = site.connect("b", "n1")
    client.ack(site.held("b"))
    assert counts(await site.get("a", PROGRESS.format(2))) == ("done", 1, 0, 0)


async def test_a_rollout_counts_the_nodes_of_all_servers(site: Site, silent: str) -> None:
    await site.put("edge", A)
    for server, node in (("a", "n1"), ("b", "n2"), ("b", "n3")):
        site.connect(server, node).ack(site.held(server))
    whole = await site.get("a", "/groups/edge/rollout")
    assert (whole["synced"], whole["pending"], whole["types"]["clusters"]["synced"]) == (3, 0, 3)
    assert whole.keys() == (await site.get("b", "/groups/edge/rollout")).keys() and "partial" not in whole
    await site["a"].put("edge", B)
    for asked in ("a", "b"):
        behind = await site.get(asked, "/groups/edge/rollout")
        assert (behind["revision"], behind["synced"], behind["pending"]) == (2, 0, 3)
        assert behind["types"]["clusters"] == {"nacked": 0, "not_subscribed": 0, "pending": 3, "synced": 0}
    site.rows.append(Member("c", silent))
    assert (await site.get("a", "/groups/edge/rollout"))["partial"] == ["c"]

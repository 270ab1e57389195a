"""Several groups changed as one: in the store, in the cache, towards the streams."""

from __future__ import annotations

import asyncio

import pytest

from tests.push.test_publisher import LosingStore, SlowStore, clusters
from tests.support.connected import Client
from tests.support.plane import Plane
from xds.model.errors import ConflictError, EmptyingError, NotFoundError, ValidationError
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.push.request import ChangeError, PushOptions, PushRequest, patch, replace_all
from xds.snapshots.cache import SnapshotCache
from xds.store.base import Drop, GroupPush, ReusedPushIdError, Rollback, UnavailableError


def served(cache: SnapshotCache, group: str) -> list[str]:
    snapshot = cache.get(group)
    return list(snapshot.get(CLUSTER).resources) if snapshot is not None else []


async def test_all_groups_are_served_and_woken_together(plane: Plane) -> None:
    await plane.publisher.push("b", clusters("old", "kept"))
    woken: list[tuple[str, ...]] = []
    plane.publisher._wake = lambda groups: woken.append((*groups, *served(plane.cache, "a"), *served(plane.cache, "b")))
    drafts = [await patch("b", clusters("new"), [(CLUSTER, "old")]), await replace_all("a", clusters("x"))]
    results = await plane.publisher.transaction(drafts)
    assert [(each.group, each.revision) for each in results] == [("b", 2), ("a", 1)]
    assert results[0].changes["clusters"].added == ("new",)
    assert results[0].changes["clusters"].removed == ("old",)
    assert woken == [("b", "a", "x", "kept", "new")]


async def test_rollbacks_and_deletions_take_part(plane: Plane) -> None:
    await plane.publisher.push("a", clusters("one"))
    await plane.publisher.push("a", clusters("two"))
    await plane.publisher.push("b", clusters("x"))
    results = await plane.publisher.transaction([PushRequest("a", Rollback(1)), PushRequest("b", Drop())])
    assert [each.revision for each in results] == [3, 2]
    assert served(plane.cache, "a") == ["one"]
    assert plane.cache.get("b") is None


async def test_a_change_that_cannot_be_made_is_named_and_stops_all(plane: Plane) -> None:
    await plane.publisher.push("b", clusters("x"))
    Client(plane.fleet, Node("b"), "b")
    fine = await replace_all("a", clusters("new"))
    moved = await replace_all("b", clusters("new"))
    for bad, kind in (
        (await patch("b", [], [(CLUSTER, "missing")]), NotFoundError),
        (await replace_all("b", []), EmptyingError),
        (PushRequest("none", Drop()), NotFoundError),
        (PushRequest(moved.group, moved.change, moved.resources, expect=7), ConflictError),
        (PushRequest(moved.group, moved.change, moved.resources, etag="r1-00000000"), ConflictError),
        (PushRequest("none", moved.change, moved.resources, etag="*"), ConflictError),
    ):
        with pytest.raises(ChangeError) as raised:
            await plane.publisher.transaction([fine, bad], PushOptions(push_id="p"))
        assert (raised.value.index, raised.value.group) == (1, bad.group)
        assert isinstance(raised.value.cause, kind)
    assert await plane.store.head("a") is None
    assert await plane.store.committed([GroupPush("a", fine.change)], "p") is None
    assert served(plane.cache, "b") == ["x"]


@pytest.mark.parametrize("groups", [[], ["a", "b", "a"]])
async def test_no_change_and_two_of_one_group_are_refused(plane: Plane, groups: list[str]) -> None:
    with pytest.raises(ValidationError):
        await plane.publisher.transaction([await replace_all(group, clusters("x")) for group in groups])


async def test_a_transaction_with_a_known_key_is_not_repeated(plane: Plane) -> None:
    drafts = [await replace_all(group, clusters(group)) for group in "ab"]
    once = PushOptions(push_id="p")
    first = await plane.publisher.transaction(drafts, once)
    await plane.publisher.push("a", clusters("later"))
    assert await plane.publisher.transaction(drafts, once) == first
    with pytest.raises(ReusedPushIdError):
        await plane.publisher.transaction(drafts[:1], once)
    with pytest.raises(ReusedPushIdError):
        await plane.publisher.push("b", clusters("b"), options=once)
    assert served(plane.cache, "a") == ["later"]
    after = await plane.reloaded()
    assert await after.publisher.transaction(drafts, once) == first


async def test_a_dry_run_changes_nothing(plane: Plane) -> None:
    drafts = [await replace_all(group, clusters(group)) for group in "ab"]
    results = await plane.publisher.transaction(drafts, PushOptions(dry_run=True))
    assert [each.changes["clusters"].added for each in results] == [("a",), ("b",)]
    assert await plane.store.groups() == []


async def test_overlapping_transactions_do_not_wait_for_each_other_in_circles(plane: Plane) -> None:
    async def change(turn: int, order: str) -> None:
        await plane.publisher.transaction([await patch(group, clusters(f"c{turn}")) for group in order])

    async with asyncio.timeout(20):
        await asyncio.gather(*(change(turn, order) for turn, order in enumerate(["abc", "cba", "bca"] * 5)))
    for group in "abc":
        assert len(served(plane.cache, group)) == 15


async def test_cancelled_caller_leaves_nothing_half_published() -> None:
    store = SlowStore()
    await store.open()
    plane = Plane(store)
    drafts = [await replace_all(group, clusters(group)) for group in "ab"]
    request = asyncio.create_task(plane.publisher.transaction(drafts))
    await store.reached.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (served(plane.cache, "a"), served(plane.cache, "b")) == ([], [])
    store.answer.set()
    await plane.publisher.close()
    assert (served(plane.cache, "a"), served(plane.cache, "b")) == (["a"], ["b"])


async def test_one_whose_answer_was_lost_is_published_after_all() -> None:
    store = LosingStore()
    await store.open()
    plane = Plane(store)
    with pytest.raises(UnavailableError):
        await plane.publisher.transaction([await replace_all(group, clusters(group)) for group in "ab"])
    store.losing = False
    async with asyncio.timeout(20):
        while not (served(plane.cache, "a") and served(plane.cache, "b")):
            await asyncio.sleep(0.01)
    await plane.publisher.close()

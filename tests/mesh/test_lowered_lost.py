"""Pushes to groups with upstreams after the store's answer to a change of what is lowered was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.mesh.test_config_entries import ForgetfulStore
from tests.mesh.test_lowered_groups import (
    GROUP,
    HTTP,
    RESOLVER,
    V1,
    V2,
    WEB,
    bodies,
    cluster,
    put_entries,
    put_upstreams,
    served,
    splitter,
)
from tests.support.plane import Plane
from xds.mesh.entry_records import DeleteEntry
from xds.model.resource_type import CLUSTER
from xds.store.base import NO_META, Commit, GroupPush, Meta, UnavailableError

API = "api.default.dc1.internal.consul"


class LateStore(ForgetfulStore):
    """Its answers come once ``may_answer`` is set. ``is_asked`` is set by a call that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        try:
            return await super().commit_all(pushes, push_id=push_id, meta=meta)
        finally:
            self.is_asked.set()
            await self.may_answer.wait()


@pytest.fixture
async def store() -> AsyncIterator[LateStore]:
    made = LateStore()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def shop(store: LateStore) -> AsyncIterator[Plane]:
    """A group with an upstream, whose requests are split."""
    plane = Plane(store)
    await put_entries(plane, HTTP, RESOLVER, splitter(90))
    await put_upstreams(plane, "web")
    yield plane
    await plane.publisher.close()


async def lose_deletion(plane: Plane) -> None:
    """Delete the splitter; the answer of the store is lost."""
    with pytest.raises(UnavailableError):
        await plane.mesh.entries.apply([DeleteEntry("service-splitter", "web")])


async def assert_served_as_stored(plane: Plane) -> None:
    again = await plane.reloaded()
    assert bodies(again) == bodies(plane)
    await again.publisher.close()


async def test_a_push_brings_nothing_back_that_was_taken_away(store: LateStore, shop: Plane) -> None:
    store.fails = True
    await lose_deletion(shop)
    store.fails = False
    await shop.publisher.push(GROUP, [cluster("pushed")])
    assert set(served(shop, CLUSTER)) == {WEB, "pushed"}
    await assert_served_as_stored(shop)


async def test_a_push_keeps_the_upstreams_that_were_added(store: LateStore, shop: Plane) -> None:
    store.fails = True
    with pytest.raises(UnavailableError):
        await put_upstreams(shop, "web", "api")
    store.fails = False
    await shop.publisher.push(GROUP, [cluster("pushed")])
    assert set(served(shop, CLUSTER)) == {V1, V2, API, "pushed"}
    assert [one.name for one in shop.mesh.lowered.get(GROUP).document.upstreams] == ["web", "api"]
    await assert_served_as_stored(shop)


async def test_a_push_that_waits_while_the_answer_is_lost_brings_nothing_back(store: LateStore, shop: Plane) -> None:
    store.fails = True
    store.is_asked.clear()
    store.may_answer.clear()
    lost = asyncio.create_task(lose_deletion(shop))
    async with asyncio.timeout(10):
        await store.is_asked.wait()
        push = asyncio.create_task(shop.publisher.push(GROUP, [cluster("pushed")]))
        for _ in range(20):
            await asyncio.sleep(0)  # the push waits for its group
        assert not push.done()
        store.fails = False
        store.may_answer.set()
        await lost
        await push
    assert set(served(shop, CLUSTER)) == {WEB, "pushed"}
    await assert_served_as_stored(shop)


async def test_a_push_is_refused_while_the_stored_upstreams_are_unknown(store: LateStore, shop: Plane) -> None:
    store.fails = True
    await lose_deletion(shop)
    with pytest.raises(UnavailableError):
        await shop.publisher.push(GROUP, [cluster("pushed")])
    store.fails = False
    await shop.publisher.push(GROUP, [cluster("pushed")])
    assert set(served(shop, CLUSTER)) == {WEB, "pushed"}


async def test_pushes_to_several_groups_and_writes_of_entries_do_not_block_each_other(
    store: LateStore, shop: Plane
) -> None:
    await put_upstreams(shop, "web", group="other")
    store.fails = True
    await lose_deletion(shop)
    store.fails = False
    async with asyncio.timeout(10):
        await asyncio.gather(
            *(shop.publisher.push(group, [cluster("pushed")]) for group in ("other", GROUP, "third")),
            put_entries(shop, splitter(50)),
        )
    assert set(served(shop, CLUSTER)) == {V1, V2, "pushed"} == set(served(shop, CLUSTER, "other"))
    assert set(served(shop, CLUSTER, "third")) == {"pushed"}
    await assert_served_as_stored(shop)

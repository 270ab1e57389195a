"""The collector keeps what reconnecting clients may have, and survives failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.push.test_publisher import GROUP, clusters, served
from tests.support.plane import Plane
from xds.model.resource_type import CLUSTER
from xds.push.collector import Collector
from xds.push.request import PushOptions
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT
from xds.store.base import GoneError, UnavailableError
from xds.store.retention import Collected, Retention, StoreStats
from xds.store.sqlite.memory import MemoryStore

LITTLE = Retention(revisions=1, age_s=-60)  # nothing is recent
SOON_S = 0.01
RULES = OrderRules(linger_max=1)  # the removal log has the last ten pushes, however young they are
RETAINED = PUSHES_KEPT + 1  # revisions: the log is made of what differs between two


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    made = Plane(rules=RULES)
    await made.store.open()
    yield made
    await made.publisher.close()
    await made.store.close()


async def test_the_collector_spares_content_that_the_cache_retains(plane: Plane) -> None:
    labels = [""]
    for turn in range(RETAINED + 5):
        result = await plane.publisher.push(GROUP, clusters("a", f"b{turn}"))
        labels.append(result.versions["clusters"])
    collector = Collector(plane.store, plane.cache, LITTLE, 1)
    await collector.collect()
    assert collector.collected.revisions == 5
    assert (collector.collected.blobs, collector.stats) == (5, await plane.store.stats())
    after = await plane.reloaded()
    assert after.cache.retained(GROUP) == plane.cache.retained(GROUP) == list(range(6, RETAINED + 6))
    found = after.cache.log(GROUP).labelled(CLUSTER, labels[6])
    assert found is not None and list(found.resources) == ["a", "b5"]
    assert after.cache.log(GROUP).labelled(CLUSTER, labels[5]) is None
    assert sorted(after.cache.log(GROUP).names(CLUSTER)) == sorted(plane.cache.log(GROUP).names(CLUSTER))


async def test_a_roll_back_to_collected_content_is_refused(plane: Plane) -> None:
    for turn in range(RETAINED + 1):
        await plane.publisher.push(GROUP, clusters(f"c{turn}"))
    await Collector(plane.store, plane.cache, LITTLE, 1).collect()
    with pytest.raises(GoneError, match="revision 1 of group 'edge' is no longer kept"):
        await plane.publisher.rollback(GROUP, 1)
    with pytest.raises(GoneError):
        await plane.publisher.history.content(GROUP, 1)
    assert [line.content for line in await plane.publisher.history.lines(GROUP)] == [True] * RETAINED + [False]
    assert (await plane.publisher.rollback(GROUP, 2)).changed


async def test_a_repeated_push_is_answered_when_its_content_is_gone(plane: Plane) -> None:
    once = PushOptions(push_id="p1")
    await plane.publisher.push(GROUP, clusters("first"), options=once)
    for turn in range(RETAINED):
        await plane.publisher.push(GROUP, clusters(f"c{turn}"))
    await Collector(plane.store, plane.cache, LITTLE, 1).collect()
    again = await plane.publisher.push(GROUP, clusters("first"), options=once)
    assert (again.revision, again.changed) == (1, True)
    assert served(plane.cache) == [f"c{RETAINED - 1}"]


async def test_a_deleted_group_is_brought_back(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.delete_group(GROUP)
    await Collector(plane.store, plane.cache, Retention(revisions=1), 1).collect()
    assert (await plane.publisher.rollback(GROUP, 1)).revision == 3
    assert served(plane.cache) == ["a"]
    await plane.publisher.delete_group(GROUP)
    await Collector(plane.store, plane.cache, LITTLE, 1).collect()
    with pytest.raises(GoneError):
        await plane.publisher.rollback(GROUP, 3)
    assert (await plane.publisher.push(GROUP, clusters("a"))).revision == 5


async def test_only_the_holder_of_the_lease_collects(plane: Plane) -> None:
    for turn in range(RETAINED + 5):
        await plane.publisher.push(GROUP, clusters(f"c{turn}"))
    holds = False
    collector = Collector(plane.store, plane.cache, LITTLE, 0.01, lambda: holds)
    collector.start()
    before = await plane.store.stats()
    await asyncio.sleep(0.1)
    assert (collector.stats, collector.collected.revisions) == (before, 0)
    holds = True
    async with asyncio.timeout(30):
        while not collector.collected.revisions:
            await asyncio.sleep(0.01)
    await collector.close()


class FailingStore(MemoryStore):
    """Fails at first; ``tries`` counts."""

    tries = 0

    async def collect(self, policy: Retention, now_s: float) -> Collected:
        self.tries += 1
        if self.tries < 3:
            raise UnavailableError("not now")
        return await super().collect(policy, now_s)


async def test_the_collector_continues_after_failures() -> None:
    store = FailingStore()
    await store.open()
    plane = Plane(store, rules=RULES)
    for turn in range(RETAINED + 1):
        await plane.publisher.push(GROUP, clusters(f"c{turn}"))
    collector = Collector(store, plane.cache, LITTLE, SOON_S)
    collector.start()
    async with asyncio.timeout(20):
        while not collector.collected.revisions:
            await asyncio.sleep(SOON_S)
    await collector.close()
    assert (collector.failures, collector.collected.revisions) == (2, 1)
    assert isinstance(collector.stats, StoreStats)
    tries = store.tries
    await asyncio.sleep(10 * SOON_S)
    assert store.tries == tries
    await plane.publisher.close()

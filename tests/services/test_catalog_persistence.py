"""The last good sets across restarts, with the real stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.test_catalog import Clock, instances, shown
from xds.model.node import Locality
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.instance import Check, Health, Instance
from xds.store.base import ObservedRecord, Store
from xds.store.sqlite.engine import SqliteStore


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = SqliteStore(tmp_path / "store.db")
    await made.open()
    yield made
    await made.close()


async def started(store: Store, clock: Clock) -> ServiceCatalog:
    """A catalog as it is before streams are answered."""
    catalog = ServiceCatalog(HoldRule(drain_s=15.0), None, clock, store=store)
    await catalog.load()
    return catalog


FULL = Instance(
    "i",
    "fd00::1",
    80,
    ports={"grpc": 90},
    meta={"version": "2"},
    tags=("a", "b"),
    weight=3,
    warning_weight=2,
    locality=Locality("eu", "1", "x"),
    datacenter="dc2",
    node="n1",
    node_meta={"rack": "7"},
    checks=(Check("c", Health.WARNING, "name", "ttl", "output", "notes"), Check("d", Health.PASSING)),
)


async def test_everything_is_there_again_with_its_age(store: Store, clock: Clock) -> None:
    before = await started(store, clock)
    sink = before.sink("a", "files")
    sink.put("web", [FULL, *instances(1, 2)])
    before.start()
    await before.close()
    clock.now += 3600
    after = await started(store, clock)
    (status,) = after.statuses()
    assert (status.name, status.kind, status.read_at) == ("a", "files", 1_000.0)
    served = {each.instance.id: each for each in after.instances("web")}
    assert served["i"].instance == FULL
    assert {each.observed.since for each in served.values()} == {1_000.0}
    assert after.is_known("web")


async def test_a_source_that_shows_the_same_again_changes_nothing(store: Store, clock: Clock) -> None:
    before = await started(store, clock)
    before.sink("a", "files").put("web", [FULL])
    before.start()
    await before.close()
    after = await started(store, clock)
    served = after.instances("web")
    after.sink("a", "files").put("web", [FULL])
    await after.tick()
    assert after.instances("web") is served


async def test_a_source_that_comes_back_with_nothing_after_a_restart_is_held(store: Store, clock: Clock) -> None:
    before = await started(store, clock)
    before.sink("a", "files").put("web", instances(1, 2, 3))
    before.start()
    await before.close()
    after = await started(store, clock)
    after.sink("a", "files").replace({})
    after.start()
    await after.close()
    again = await started(store, clock)
    assert again.held_losses("a") == {"web": 3}
    assert shown(again, "web") == dict.fromkeys(("i1", "i2", "i3"), Health.PASSING)


async def test_draining_continues_after_a_restart_until_its_first_deadline(store: Store, clock: Clock) -> None:
    before = await started(store, clock)
    sink = before.sink("a", "files")
    sink.put("web", instances(1, 2))
    await before.tick()
    sink.put("web", instances(1))
    before.start()
    await before.close()
    clock.now += 10
    after = await started(store, clock)
    assert shown(after, "web") == {"i1": Health.PASSING, "i2": Health.DRAINING}
    clock.now += 5
    await after.tick()
    assert shown(after, "web") == {"i1": Health.PASSING}


async def test_changes_are_stored_within_about_a_second_without_a_stop(store: Store, clock: Clock) -> None:
    catalog = await started(store, clock)
    catalog.start()
    catalog.sink("a", "files").put("web", instances(1))
    async with asyncio.timeout(5):
        while {record.service for record in await store.observed()} != {"", "web"}:
            await asyncio.sleep(0.05)
    catalog.sink("a", "files").remove("web")
    catalog.accept("a")
    await catalog.close()


async def test_removed_services_are_deleted_from_the_store(store: Store, clock: Clock) -> None:
    catalog = await started(store, clock)
    sink = catalog.sink("a", "files", hold_share=1.0)
    catalog.sink("b", "files")
    sink.put("web", instances(1))
    catalog.start()
    await catalog.close()
    sink.remove("web")
    await catalog.tick()
    clock.now += 15
    await catalog.tick()
    catalog.retain_sources(("a",))
    catalog.start()
    await catalog.close()
    assert [(record.source, record.service) for record in await store.observed()] == [("a", "")]


async def test_an_unreadable_record_affects_no_other(store: Store, clock: Clock) -> None:
    catalog = await started(store, clock)
    catalog.sink("a", "files").put("web", instances(1))
    catalog.start()
    await catalog.close()
    broken = [b"{", b"[]", b'{"present": [{}]}', b'{"present": [{"id": "x", "address": "no", "port": 80}]}']
    await store.put_observed([ObservedRecord("a", f"s{n}", body) for n, body in enumerate(broken)])
    await store.put_observed([ObservedRecord("z", "", b"null")])
    after = await started(store, clock)
    assert after.names() == ["web"]
    after.start()
    await after.close()
    assert {record.service for record in await store.observed()} == {"", "web"}


async def test_a_failing_store_keeps_serving_and_everything_is_written_later(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    catalog = await started(store, clock)
    catalog.sink("a", "files").put("web", instances(1))
    await store.close()
    catalog.start()
    await catalog.close()
    assert shown(catalog, "web") == {"i1": Health.PASSING}
    await store.open()
    await catalog.save()
    assert {record.service for record in await store.observed()} == {"", "web"}
    await store.close()

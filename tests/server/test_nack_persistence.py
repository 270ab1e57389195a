"""Open NACKs in the store: written in batches, read at start, forgotten in time; failures stop nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from tests.fleet.conftest import Client, resource_set, response
from tests.support.plane import Plane
from xds.fleet.fleet import Fleet
from xds.fleet.state import NackState
from xds.model.resource_type import CLUSTER
from xds.server import nack_persistence
from xds.server.nack_persistence import NackPersistence
from xds.snapshots.cache import SnapshotCache
from xds.store.base import OpenNack, OutOfSpaceError, Store
from xds.store.sqlite.memory import MemoryStore
from xds.tasks import batch_writer

SERVED = resource_set("clusters", "2", bad="x")
FIXED = resource_set("clusters", "3", bad="fixed")
WAIT_S = 10


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(batch_writer, "BATCH_EVERY_S", 0.001)


async def running(
    store: Store, fleet: Fleet, cache: SnapshotCache | None = None
) -> tuple[NackPersistence, nack_persistence.Refused]:
    refused: nack_persistence.Refused = {}
    kept = NackPersistence(store, fleet, refused, (cache or SnapshotCache()).note_refused)
    await kept.load()
    kept.start()
    return kept, refused


async def wait_for_rows(store: Store, number: int) -> list[OpenNack]:
    async with asyncio.timeout(WAIT_S):
        while len(rows := await store.nacks()) != number:
            await asyncio.sleep(0.005)
    return rows


async def test_a_nack_is_kept_until_it_is_resolved(plane: Plane) -> None:
    kept, _ = await running(plane.store, plane.fleet)
    client = Client(plane.fleet, "n1")
    client.nack(response(SERVED), guilty=("bad",))
    (row,) = await wait_for_rows(plane.store, 1)
    assert (row.node, row.type_url) == ("n1", CLUSTER)
    client.ack(response(FIXED))
    await wait_for_rows(plane.store, 0)
    await kept.close()


async def test_the_engine_knows_stored_rejections_after_a_restart(plane: Plane) -> None:
    kept, _ = await running(plane.store, plane.fleet)
    Client(plane.fleet, "n1").nack(response(SERVED), guilty=("bad",))
    Client(plane.fleet, "n2").nack(response(SERVED))  # the rejected resource is not known
    await kept.close()  # the rest is written
    after = plane.restarted()
    kept, refused = await running(after.store, after.fleet, after.cache)
    assert refused == {"n1": {CLUSTER: {"bad": ("x",)}}}
    assert after.cache.refused_versions() == {(CLUSTER, "bad"): ["x"]}
    assert sorted((record.node, record.state) for record in after.fleet.nack_log.select()) == [
        ("n1", NackState.OPEN),
        ("n2", NackState.OPEN),
    ]
    client = Client(after.fleet, "n1")
    client.subscribe("clusters", "*")
    client.ack(response(FIXED))
    await wait_for_rows(after.store, 1)
    assert not refused
    await kept.close()


async def test_one_of_two_refusals_of_a_node_is_forgotten(plane: Plane) -> None:
    kept, _ = await running(plane.store, plane.fleet)
    client = Client(plane.fleet)
    client.nack(response(SERVED), guilty=("bad",))
    client.nack(response(resource_set("listeners", "2", l="x")), guilty=("l",))
    await kept.close()
    after = plane.restarted()
    kept, refused = await running(after.store, after.fleet)
    assert {len(types) for types in refused.values()} == {2}
    client = Client(after.fleet)
    client.subscribe("clusters", "*")
    client.ack(response(FIXED))
    await wait_for_rows(after.store, 1)
    assert list(refused["n1"]) == [resource_set("listeners", "").type.type_url]
    await kept.close()


async def test_many_at_once_are_written_in_batches(plane: Plane) -> None:
    kept, _ = await running(plane.store, plane.fleet)
    number = 3 * batch_writer.BATCH + 1
    for index in range(number):
        Client(plane.fleet, f"n{index}").nack(response(SERVED), guilty=("bad",))
    await kept.close()
    assert len(await plane.store.nacks()) == number


async def test_a_row_that_nobody_can_read_is_left_out_and_forgotten(plane: Plane) -> None:
    await plane.store.put_nacks([OpenNack(1, "n1", CLUSTER, b"what?")])
    kept, refused = await running(plane.store, plane.fleet)
    assert (refused, list(plane.fleet.nack_log.select())) == ({}, [])
    await wait_for_rows(plane.store, 0)
    await kept.close()


class FullStore(MemoryStore):
    """The store is full until ``is_full`` is false."""

    is_full = True
    asked = 0

    async def put_nacks(self, put: Sequence[OpenNack], gone: Collection[int] = ()) -> None:
        self.asked += 1
        if self.is_full:
            raise OutOfSpaceError("full")
        await super().put_nacks(put, gone)


async def test_a_store_that_takes_nothing_is_asked_again() -> None:
    store, fleet = FullStore(), Fleet()
    await store.open()
    kept, _ = await running(store, fleet)
    Client(fleet).nack(response(SERVED), guilty=("bad",))
    async with asyncio.timeout(WAIT_S):
        while store.asked < 2:
            await asyncio.sleep(0.005)
    store.is_full = False
    await wait_for_rows(store, 1)
    store.is_full = True
    await kept.close()  # ends whatever the store answers
    await store.close()

"""What a binding or a lowered cluster lets drain goes on to do so after a restart, for the time that is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.live.test_by_hand import KEY, push
from tests.mesh.test_lowered_drains import SOME, resolver
from tests.mesh.test_lowered_groups import GROUP, HTTP, put_entries, put_upstreams
from tests.services.test_bindings import bind, instances, served, sink
from tests.support.plane import Plane
from xds.mesh.lowered_endpoints import USER as UPSTREAMS
from xds.model.drains import Drains
from xds.model.node import Locality
from xds.services.bindings import USER as BINDINGS
from xds.services.core.endpoints import ServedEndpoint
from xds.services.drain_persistence import RECORDS, DrainPersistence, decoded, encoded
from xds.store.base import ObservedRecord, UnavailableError
from xds.tasks import batch_writer


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "WRITE_EVERY_S", 0.01)


def drains_of(plane: Plane) -> DrainPersistence:
    lowered = plane.mesh.lowered.endpoints
    assert lowered is not None
    followed = {BINDINGS: plane.bindings.followed, UPSTREAMS: lowered.followed}
    return DrainPersistence(plane.store, followed, lambda: plane.now_s)


async def restarted(plane: Plane, drains: DrainPersistence) -> tuple[Plane, DrainPersistence]:
    """As the server starts and stops (`xds.services.served`)."""
    await drains.close()
    plane.catalog.start()
    await plane.catalog.close()
    again = await plane.reloaded()
    loaded = drains_of(again)
    await loaded.load()
    await again.catalog.load()
    again.bindings.followed.start()
    loaded.start()
    return again, loaded


async def records(plane: Plane) -> list[ObservedRecord]:
    return [one for one in await plane.store.observed() if one.source.startswith(RECORDS)]


async def none_left(plane: Plane) -> None:
    async with asyncio.timeout(5):
        while await records(plane):
            await asyncio.sleep(0.01)


async def bound_with_a_drain(plane: Plane) -> DrainPersistence:
    """Endpoint 10 drains because the filter of its binding was changed."""
    plane.bindings.followed.start()
    drains = drains_of(plane)
    drains.start()
    await push(plane)
    sink(plane).put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "2"})])
    await bind(plane, filter="Service.Meta.v == 1")
    await bind(plane, filter="Service.Meta.v == 2")
    assert served(plane) == {10: "DRAINING", 11: "HEALTHY"}
    return drains


async def test_endpoints_that_a_changed_binding_removes_drain_over_a_restart(plane: Plane) -> None:
    drains = await bound_with_a_drain(plane)
    plane.now_s += 8
    again, drains = await restarted(plane, drains)
    assert served(again) == {10: "DRAINING", 11: "HEALTHY"}
    again.now_s += 6.9
    sink(again).put("web", instances(12, meta={"v": "2"}))
    await again.catalog.tick()
    assert served(again) == {10: "DRAINING", 11: "DRAINING", 12: "HEALTHY"}
    again.now_s += 0.1
    sink(again).put("web", instances(12, 13, meta={"v": "2"}))
    await again.catalog.tick()
    assert served(again) == {11: "DRAINING", 12: "HEALTHY", 13: "HEALTHY"}, "a restart begins no time anew"
    await drains.close()
    await again.publisher.close()


async def test_endpoints_that_drained_while_the_server_was_down_are_removed(plane: Plane) -> None:
    drains = await bound_with_a_drain(plane)
    plane.now_s += 15
    again, drains = await restarted(plane, drains)
    assert served(again) == {11: "HEALTHY"}
    await none_left(again)
    await drains.close()
    await again.publisher.close()


async def test_an_endpoint_that_is_selected_again_is_served_after_a_restart(plane: Plane) -> None:
    drains = await bound_with_a_drain(plane)
    await bind(plane, filter="")
    again, drains = await restarted(plane, drains)
    assert served(again) == {10: "HEALTHY", 11: "HEALTHY"}
    await drains.close()
    await again.publisher.close()


async def test_endpoints_that_a_lowered_cluster_removes_drain_over_a_restart(plane: Plane) -> None:
    lowered = plane.mesh.lowered.endpoints
    assert lowered is not None
    lowered.followed.start()
    drains = drains_of(plane)
    drains.start()
    await put_entries(plane, HTTP, resolver("1"))
    await put_upstreams(plane, "web")
    sink(plane).put("web", [*instances(10, meta={"v": "1"}), *instances(11, meta={"v": "2"})])
    await plane.catalog.tick()
    await put_entries(plane, resolver("2"))
    assert served(plane, SOME, GROUP) == {10: "DRAINING", 11: "HEALTHY"}
    again, drains = await restarted(plane, drains)
    assert served(again, SOME, GROUP) == {10: "DRAINING", 11: "HEALTHY"}
    await drains.close()
    await again.publisher.close()


async def test_draining_endpoints_of_a_deleted_assignment_are_forgotten_at_their_end(plane: Plane) -> None:
    drains = await bound_with_a_drain(plane)
    await drains.close()
    await plane.bindings.delete(KEY, drain_s=0)
    again, drains = await restarted(plane, drains)
    again.now_s += 15
    await none_left(again)
    await drains.close()
    await again.publisher.close()


async def test_a_store_that_fails_delays_the_record_only(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    put, failures = plane.store.put_observed, 0

    async def failing(*args: Any, **kwargs: Any) -> None:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise UnavailableError("away")
        await put(*args, **kwargs)

    monkeypatch.setattr(plane.store, "put_observed", failing)
    drains = await bound_with_a_drain(plane)
    async with asyncio.timeout(5):
        while not await records(plane):
            await asyncio.sleep(0.01)
    assert failures == 3
    await drains.close()


async def test_a_record_of_another_release_stops_no_start(plane: Plane) -> None:
    await plane.store.put_observed([ObservedRecord(RECORDS + BINDINGS, "default/web", b'[{"port": 1}]')])
    await plane.store.put_observed([ObservedRecord(RECORDS + "others", "default/web", b"[]")])
    drains = drains_of(plane)
    await drains.load()
    drains.start()
    await none_left(plane)
    await drains.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"[[0]]", b'[[0, "a", "x", 1, "", "", "", 0]]', b"{}[", b"null"])
def test_an_invalid_record_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        decoded(body)


def test_a_record_has_everything_served_of_draining_endpoints() -> None:
    one = ServedEndpoint.draining_at(("10.0.0.1", 80), 7, Locality("eu", "a", "1"))
    other = ServedEndpoint.draining_at(("::1", 81), 1, Locality("", "", ""))
    leaving = {0: [(one.address, one, 1_000_000.25)], 2: [(other.address, other, 1_000_000.0)]}
    read = decoded(encoded({priority: Drains(drains) for priority, drains in leaving.items()}))
    assert {priority: list(drains) for priority, drains in read.items()} == leaving

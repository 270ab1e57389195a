"""Registrations in a real store: durable before they are answered, and clocks that are fair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xds.model.errors import NotFoundError, ValidationError
from xds.services import registration as module
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.instance import Health
from xds.services.core.registered_instance import AGENT_NODE, CheckKey, Key
from xds.services.core.registration_edits import Registrant
from xds.services.core.registration_rules import (
    read_catalog_registration,
    read_check,
    read_deregistration,
    read_service,
)
from xds.services.registration import KIND, Registering, Registrations
from xds.services.registration_store import RECORDS
from xds.store.audit_entries import AuditNote
from xds.store.base import MayWrite, ObservedRecord, Store, UnavailableError, always
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

BY = Registering(Registrant("ops", "192.0.2.9", 1_000))
WEB: dict[str, Any] = {"ID": "web-1", "Name": "web", "Address": "10.0.0.1", "Port": 80, "Check": {"TTL": "10s"}}
CHECK = "service:web-1"
DB: dict[str, Any] = {"Node": "n1", "Address": "10.9.0.1", "Service": {"ID": "db-1", "Service": "db", "Port": 5432}}


class Clock:
    """Epoch seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Obstructed(MemoryStore):
    """A store that fails, or holds writes back, as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.is_failing = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.is_held = asyncio.Event()  # a write waits until it may go on
        self.batches: list[int] = []

    async def put_observed(
        self,
        put: Sequence[ObservedRecord],
        delete: Collection[tuple[str, str]] = (),
        notes: Sequence[AuditNote] = (),
        *,
        is_told: bool = False,
        may_write: MayWrite = always,
    ) -> None:
        if not self.may_go_on.is_set():
            self.is_held.set()
        await self.may_go_on.wait()
        if self.is_failing:
            raise UnavailableError("the disk is full")
        self.batches.append(len(put) + len(delete))
        await super().put_observed(put, delete, notes, is_told=is_told, may_write=may_write)


class World:
    """Registrations with a catalog, in which nothing drains, and a clock of the test."""

    def __init__(self, store: Store) -> None:
        self.clock, self.catalog = Clock(), ServiceCatalog(HoldRule(drain_s=0.0))
        self.registrations = Registrations(store, clock=self.clock)

    async def load(self) -> None:
        await self.registrations.load(self.catalog.sink(KIND, KIND, hold_share=1.0))

    async def register(self, value: dict[str, Any]) -> bool:
        return await self.registrations.register(read_service(value), BY)

    async def tells(self, status: Health, output: str = "", check: str = CHECK) -> bool:
        return await self.registrations.update_check(check, status, output)

    async def pass_time(self, seconds: float) -> None:
        """The server runs for some time."""
        ends = self.clock.now + seconds
        while self.clock.now < ends:
            self.clock.now = min(ends, self.clock.now + module.TICK_S)
            await self.registrations.tick()

    def health(self, service: str = "web") -> list[Health]:
        return [one.health for one in self.catalog.instances(service)]


@pytest.fixture
async def store() -> AsyncIterator[Obstructed]:
    found = Obstructed()
    await found.open()
    yield found
    found.is_failing = False
    found.may_go_on.set()
    await found.close()


@pytest.fixture
async def world(store: Obstructed) -> AsyncIterator[World]:
    found = World(store)
    await found.load()
    found.registrations.start()
    yield found
    store.is_failing = False
    store.may_go_on.set()
    await found.registrations.close()


async def reloaded(store: Store) -> World:
    """A second server that reads the same store."""
    found = World(store)
    await found.load()
    return found


# Durable before it is answered


async def test_answered_registrations_survive_a_kill(tmp_path: Path) -> None:
    """Nothing is closed: the second store reads what the first one has written to the disk by then."""
    path = tmp_path / "xds.db"
    first = SqliteStore(path)
    await first.open()
    world = await reloaded(first)
    world.registrations.start()
    await world.register(WEB)
    await world.register({**WEB, "ID": "web-2", "Port": 81})
    await world.tells(Health.PASSING, "well")
    await world.registrations.maintain("web-2", True, "new disk")
    await world.registrations.register_in_catalog(read_catalog_registration({**DB, "NodeMeta": {"a": "b"}}), BY)
    await world.registrations.register(read_service({**WEB, "ID": "gone", "Check": None}), BY)
    await world.registrations.deregister("gone")
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("xds.db*"):
        (copy / file.name).write_bytes(file.read_bytes())
    second = SqliteStore(copy / "xds.db")
    await second.open()
    found = await reloaded(second)
    assert found.registrations.table.nodes() != ()
    assert {one.key: one for one in found.registrations.table} == {one.key: one for one in world.registrations.table}
    assert {one.name: one for one in found.registrations.table.nodes()} == {
        one.name: one for one in world.registrations.table.nodes()
    }
    assert found.health() == [Health.PASSING, Health.CRITICAL]
    await world.registrations.close()
    await first.close()
    await second.close()


async def test_nothing_is_answered_or_shown_before_it_is_stored(world: World, store: Obstructed) -> None:
    store.may_go_on.clear()
    asked = asyncio.create_task(world.register(WEB))
    await store.is_held.wait()
    assert not asked.done()
    assert world.health() == []
    store.may_go_on.set()
    assert await asked
    assert world.health() == [Health.CRITICAL]


async def test_a_registration_that_cannot_be_stored_is_refused_and_changes_nothing(
    world: World, store: Obstructed
) -> None:
    await world.register(WEB)
    store.is_failing = True
    requests: list[Callable[[], Awaitable[object]]] = [
        lambda: world.register({**WEB, "Port": 81}),
        lambda: world.registrations.deregister("web-1"),
        lambda: world.registrations.maintain("web-1", True),
        lambda: world.registrations.register_in_catalog(read_catalog_registration(DB), BY),
        lambda: world.registrations.deregister_check(CHECK),
    ]
    before = list(world.registrations.table)
    for request in requests:
        with pytest.raises(UnavailableError):
            await request()
    assert list(world.registrations.table) == before
    store.is_failing = False
    assert await world.register({**WEB, "Port": 81})


async def test_a_caller_that_goes_away_leaves_nothing_half_done(world: World, store: Obstructed) -> None:
    store.may_go_on.clear()
    asked = asyncio.create_task(world.register(WEB))
    await store.is_held.wait()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    store.may_go_on.set()
    async with asyncio.timeout(10):
        while not len(world.registrations.table):
            await asyncio.sleep(0.01)
    assert [one.key for one in (await reloaded(store)).registrations.table] == [Key(AGENT_NODE, "web-1")]


async def test_many_that_register_at_once_are_written_together(world: World, store: Obstructed) -> None:
    store.may_go_on.clear()
    asked = [asyncio.create_task(world.register({**WEB, "ID": f"web-{n}", "Port": 1 + n})) for n in range(400)]
    await store.is_held.wait()
    store.may_go_on.set()
    assert all(await asyncio.gather(*asked))
    assert len(store.batches) <= 3
    assert len(world.health()) == 400


async def test_one_that_cannot_be_encoded_holds_nobody_up(world: World, store: Obstructed) -> None:
    await world.register(WEB)
    store.may_go_on.clear()
    first = asyncio.create_task(world.register({**WEB, "ID": "web-2", "Port": 82}))
    await store.is_held.wait()
    bad = asyncio.create_task(world.tells(Health.PASSING, "half: \ud800"))
    last = asyncio.create_task(world.register({**WEB, "ID": "web-3", "Port": 83}))
    await asyncio.sleep(0.01)
    store.may_go_on.set()
    async with asyncio.timeout(5):
        assert await first and await last
        with pytest.raises(UnicodeEncodeError):
            await bad
        assert await world.register({**WEB, "ID": "web-4", "Port": 84})


# Checks


async def test_a_status_takes_effect_at_once_and_is_stored_before_it_is_answered(
    world: World, store: Obstructed
) -> None:
    await world.register(WEB)
    store.may_go_on.clear()
    asked = asyncio.create_task(world.tells(Health.PASSING))
    await store.is_held.wait()
    assert world.health() == [Health.PASSING]
    assert not asked.done()
    store.may_go_on.set()
    assert await asked
    assert (await reloaded(store)).health() == [Health.PASSING]


async def test_a_store_that_fails_does_not_keep_an_instance_out_or_in(world: World, store: Obstructed) -> None:
    await world.register({**WEB, "Check": {"TTL": "300s"}})
    store.is_failing = True
    for status in (Health.PASSING, Health.CRITICAL, Health.PASSING):
        with pytest.raises(UnavailableError):
            await world.tells(status)
        assert world.health() == [status]
    assert (await reloaded(store)).health() == [Health.CRITICAL]
    await world.pass_time(1.0)
    store.is_failing = False
    await world.pass_time(2 * module.RETRY_S)
    assert world.registrations.unsaved_n == 0
    assert (await reloaded(store)).health() == [Health.PASSING]


async def test_heartbeats_write_nothing_and_show_nothing(world: World, store: Obstructed) -> None:
    await world.register(WEB)
    await world.tells(Health.PASSING, "first")
    (status,) = world.catalog.statuses()
    written, shown = len(store.batches), status.changes_n
    for beat in range(50):
        assert not await world.tells(Health.PASSING, f"note {beat}")
    assert (len(store.batches), status.changes_n) == (written, shown)
    one = world.registrations.table.get(Key(AGENT_NODE, "web-1"))
    assert one is not None
    assert one.checks[0].output == "note 49"


async def test_a_status_that_arrives_during_a_registration_is_not_lost(world: World, store: Obstructed) -> None:
    """The registration was computed from the status before: it must not bring that back."""
    await world.register(WEB)
    store.may_go_on.clear()
    asked = asyncio.create_task(world.register({**WEB, "Port": 81}))
    await store.is_held.wait()
    update = asyncio.create_task(world.tells(Health.PASSING))
    await asyncio.sleep(0.01)
    store.may_go_on.set()
    await asyncio.gather(asked, update)
    assert world.health() == [Health.PASSING]
    found = (await reloaded(store)).registrations.table.get(Key(AGENT_NODE, "web-1"))
    assert found is not None
    assert (found.port, found.checks[0].status) == (81, "passing")


async def test_an_instance_that_goes_while_its_status_is_stored_stays_gone(world: World, store: Obstructed) -> None:
    await world.register(WEB)
    store.may_go_on.clear()
    gone = asyncio.create_task(world.registrations.deregister("web-1"))
    await store.is_held.wait()
    update = asyncio.create_task(world.tells(Health.PASSING))
    await asyncio.sleep(0.01)
    store.may_go_on.set()
    await asyncio.gather(gone, update)
    assert world.health() == []
    assert len((await reloaded(store)).registrations.table) == 0


# Clocks


async def test_a_check_without_a_heartbeat_in_time_is_critical_and_recovers(world: World, store: Obstructed) -> None:
    await world.register(WEB)
    await world.tells(Health.PASSING)
    await world.pass_time(9.5)
    assert world.health() == [Health.PASSING]
    await world.tells(Health.PASSING)
    await world.pass_time(9.5)
    assert world.health() == [Health.PASSING]
    await world.pass_time(0.5)
    assert world.health() == [Health.CRITICAL]
    assert world.registrations.expired_n == 1
    assert (await reloaded(store)).health() == [Health.CRITICAL]
    await world.tells(Health.PASSING)
    assert world.health() == [Health.PASSING]
    await world.pass_time(10.0)
    assert world.health() == [Health.CRITICAL]


async def test_clocks_restart_when_the_server_starts(world: World, store: Obstructed) -> None:
    await world.register(WEB)
    await world.tells(Health.PASSING)
    await world.pass_time(9.0)
    second = await reloaded(store)
    second.clock.now = 5_000.0  # more than an hour later
    await second.registrations.tick()
    assert second.health() == [Health.PASSING]
    second.registrations.start()  # only now callers are heard
    await second.pass_time(9.5)
    assert second.health() == [Health.PASSING]
    await second.pass_time(0.5)
    assert second.health() == [Health.CRITICAL]
    await second.registrations.close()


async def test_a_server_that_did_not_run_lets_nothing_expire(world: World) -> None:
    await world.register({**WEB, "Check": {"TTL": "10s", "DeregisterCriticalServiceAfter": "60s"}})
    await world.tells(Health.PASSING)
    await world.pass_time(5.0)
    world.clock.now += 3_600  # stopped, or asleep
    await world.registrations.tick()
    assert world.health() == [Health.PASSING]
    await world.pass_time(4.5)
    assert world.health() == [Health.PASSING]
    await world.pass_time(0.5)
    assert world.health() == [Health.CRITICAL]
    await world.pass_time(30)
    world.clock.now += 3_600
    await world.registrations.tick()
    assert world.health() == [Health.CRITICAL]
    await world.pass_time(29)
    assert world.health() == [Health.CRITICAL]
    await world.pass_time(2)
    assert world.health() == []


async def test_an_instance_that_stays_critical_is_deregistered_for_good(world: World, store: Obstructed) -> None:
    await world.register({**WEB, "Check": {"TTL": "10s", "DeregisterCriticalServiceAfter": "60s"}})
    await world.pass_time(50)
    await world.tells(Health.PASSING)
    await world.tells(Health.CRITICAL)
    await world.pass_time(30)
    await world.tells(Health.CRITICAL)  # a second time: it stays critical
    await world.pass_time(29)
    assert world.health() == [Health.CRITICAL]
    await world.pass_time(2)
    assert world.health() == []
    assert world.registrations.reaped_n == 1
    assert len((await reloaded(store)).registrations.table) == 0


async def test_deregistrations_by_the_server_are_audited_once(world: World, store: Obstructed) -> None:
    await world.register({**WEB, "Check": {**WEB["Check"], "DeregisterCriticalServiceAfter": "60s"}})
    await world.pass_time(100)
    notes = [entry.note for entry in (await store.audit()).entries]
    assert [(note.actor, note.action, note.subject, note.message) for note in notes] == [
        ("", "registration.put", "web-1", ""),
        ("server", "registration.deleted", "web-1", "critical for too long"),
    ]


async def test_a_store_that_fails_delays_a_deregistration(world: World, store: Obstructed) -> None:
    await world.register({**WEB, "Check": {"TTL": "10s", "DeregisterCriticalServiceAfter": "60s"}})
    store.is_failing = True
    await world.pass_time(70)
    assert world.health() == [Health.CRITICAL]
    store.is_failing = False
    await world.pass_time(2 * module.RETRY_S)
    assert world.health() == []


async def test_checks_that_are_gone_have_no_clock(world: World) -> None:
    await world.register(WEB)
    id, check = read_check({"ID": "disk", "Name": "disk", "ServiceID": "web-1", "TTL": "300s", "Status": "passing"})
    await world.registrations.register_check(id, check)
    assert world.registrations.ttl_checks_n == 2
    await world.registrations.deregister_check(CHECK)
    assert world.registrations.expires_at(CheckKey(AGENT_NODE, CHECK)) is None
    assert world.registrations.ttl_checks_n == 1
    await world.pass_time(20)
    assert world.health() == [Health.PASSING]
    await world.registrations.deregister("web-1")
    assert world.registrations.ttl_checks_n == 0


async def test_a_registration_without_a_check_never_expires(world: World) -> None:
    await world.register({**WEB, "Check": None})
    await world.pass_time(100)
    assert world.health() == [Health.PASSING]


# Who may, and what is there


async def test_a_registration_without_the_scope_changes_nothing(world: World, store: Obstructed) -> None:
    class DeniedError(Exception):
        pass

    def refuse_others(services: Iterable[str]) -> None:
        if set(services) != {"shop"}:
            raise DeniedError(sorted(services))

    only_shop = replace(BY, permit=refuse_others)
    await world.register(WEB)
    await world.tells(Health.PASSING)
    await world.registrations.register_in_catalog(read_catalog_registration(DB), BY)
    before, written = list(world.registrations.table), len(store.batches)
    rename = read_service({**WEB, "Name": "shop"})
    id, check = read_check({"Name": "x", "ServiceID": "web-1", "TTL": "1s"})
    denied: list[Callable[[], Awaitable[object]]] = [
        lambda: world.registrations.register(rename, only_shop),
        lambda: world.registrations.deregister("web-1", only_shop),
        lambda: world.registrations.maintain("web-1", True, "", only_shop),
        lambda: world.registrations.maintain("web-1", False, "", only_shop),
        lambda: world.registrations.update_check(CHECK, Health.CRITICAL, "", only_shop),
        lambda: world.registrations.register_check(id, check, only_shop),
        lambda: world.registrations.deregister_check(CHECK, only_shop),
        lambda: world.registrations.register_in_catalog(read_catalog_registration(DB), only_shop),
        lambda: world.registrations.register_in_catalog(
            read_catalog_registration({"Node": "n1", "Address": "10.0.0.9"}), only_shop
        ),
        lambda: world.registrations.deregister_from_catalog(read_deregistration({"Node": "n1"}), only_shop),
        lambda: world.registrations.deregister_from_catalog(
            read_deregistration({"Node": AGENT_NODE, "CheckID": CHECK}), only_shop
        ),
    ]
    for request in denied:
        with pytest.raises(DeniedError):
            await request()
    assert list(world.registrations.table) == before
    assert len(store.batches) == written


async def test_an_unknown_instance_is_reported(world: World) -> None:
    assert not await world.registrations.deregister("absent")
    requests: list[Callable[[], Awaitable[object]]] = [
        lambda: world.registrations.update_check("absent", Health.PASSING),
        lambda: world.registrations.deregister_check("absent"),
        lambda: world.registrations.maintain("absent", True),
    ]
    for request in requests:
        with pytest.raises(NotFoundError):
            await request()
    with pytest.raises(ValidationError):
        await world.registrations.deregister_from_catalog(read_deregistration({"Node": AGENT_NODE}))


async def test_a_record_that_cannot_be_read_is_kept_and_the_others_are_served(store: Obstructed) -> None:
    first = await reloaded(store)
    first.registrations.start()
    await first.register(WEB)
    broken = ObservedRecord(RECORDS, "/web-9", b'{"Service": "web", "Node": 7}')
    other = ObservedRecord("dns", "web", b"\x00 not one of ours")
    await MemoryStore.put_observed(store, [broken, other])
    second = await reloaded(store)
    assert [one.id for one in second.registrations.table] == ["web-1"]
    assert {broken, other} <= set(await store.observed())
    await first.registrations.close()

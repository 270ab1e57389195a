"""Registrations with two servers on one store: each takes them, both have them, and one lets checks expire."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.services.test_registration import BY, CHECK, DB, WEB, Clock
from xds.model.errors import XdsError
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.instance import Health
from xds.services.core.registered_instance import AGENT_NODE, CheckKey, Key
from xds.services.core.registration_rules import read_catalog_registration, read_deregistration, read_service
from xds.services.registration import KIND, TICK_S, Registrations
from xds.services.registration_follower import RegistrationFollower
from xds.services.registration_store import key_of_record, record_id
from xds.store.base import Store
from xds.store.sqlite.memory import MemoryStore

DEADLINE_S = 20.0


class ServerOnStore:
    """The registrations of one server. ``others`` are those whose heartbeats it asks for."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.clock, self.catalog = clock, ServiceCatalog(HoldRule(drain_s=0.0))
        self.holds_lease = False
        self.is_silent = False
        self.others: list[ServerOnStore] = []
        self.registrations = Registrations(
            store,
            clock=clock,
            holds_lease=lambda: self.holds_lease,
            heard_elsewhere=self.heard_elsewhere,
            is_shared=True,
        )
        self.follower = RegistrationFollower(store, self.registrations)

    async def heard_elsewhere(self, checks: Sequence[CheckKey]) -> Mapping[CheckKey, float]:
        if any(other.is_silent for other in self.others):
            return dict.fromkeys(checks, 2.0)
        heard: dict[CheckKey, float] = {}
        for other in self.others:
            heard.update(other.registrations.remaining(checks))
        return heard

    async def start(self) -> None:
        await self.follower.begin()
        await self.registrations.load(self.catalog.sink(KIND, KIND, hold_share=1.0))
        self.registrations.start()
        await self.registrations._task.stop()  # time passes as the test says
        self.follower.start()

    async def close(self) -> None:
        await self.follower.close()
        await self.registrations.close()

    def all(self) -> dict[Key, Any]:
        table = self.registrations.table
        return {one.key: one for one in (*table, *table.nodes())}

    def shown(self) -> dict[str, list[tuple[str, Health]]]:
        services = {name: self.catalog.instances(name) for name in self.catalog.names()}
        return {name: sorted((one.instance.id, one.health) for one in each) for name, each in services.items()}


class Pair(NamedTuple):
    """Two servers, the first of which holds the lease."""

    first: ServerOnStore
    second: ServerOnStore

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.first.clock.now += TICK_S
            for server in self:
                await server.registrations.tick()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    store, clock = MemoryStore(), Clock()
    await store.open()
    made = Pair(ServerOnStore(store, clock), ServerOnStore(store, clock))
    made.first.holds_lease = True
    made.first.others, made.second.others = [made.second], [made.first]
    for server in made:
        await server.start()
    yield made
    for server in made:
        await server.close()
    await store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def test_what_one_server_registers_the_other_has(pair: Pair) -> None:
    first, second = pair
    await second.registrations.register(read_service(WEB), BY)
    await first.registrations.register_in_catalog(read_catalog_registration(DB), BY)
    await until(lambda: len(first.all()) == 3 and first.all() == second.all())
    assert first.shown() == second.shown() and first.shown().keys() == {"web", "db"}
    await first.registrations.update_check(CHECK, Health.PASSING)
    await until(lambda: second.shown() == first.shown())
    await first.registrations.deregister("web-1")
    await second.registrations.deregister_from_catalog(read_deregistration({"Node": "n1"}))
    await until(lambda: not first.all() and not second.all())


async def test_a_heartbeat_at_either_server_keeps_an_instance_in_service(pair: Pair) -> None:
    first, second = pair
    await first.registrations.register(read_service(WEB), BY)
    await first.registrations.update_check(CHECK, Health.PASSING)
    await until(lambda: second.shown() == first.shown() == {"web": [("web-1", Health.PASSING)]})
    for _ in range(10):
        await pair.pass_time(4)
        await second.registrations.update_check(CHECK, Health.PASSING)
    assert first.shown() == {"web": [("web-1", Health.PASSING)]}
    await pair.pass_time(9)
    assert first.shown() == {"web": [("web-1", Health.PASSING)]}
    await pair.pass_time(2)
    assert first.shown() == {"web": [("web-1", Health.CRITICAL)]}
    await until(lambda: second.shown() == first.shown())
    assert (first.registrations.expired_n, second.registrations.expired_n) == (1, 0)
    await second.registrations.update_check(CHECK, Health.PASSING)
    await until(lambda: first.shown() == {"web": [("web-1", Health.PASSING)]})


async def test_a_server_that_is_silent_takes_nothing_out_of_service(pair: Pair) -> None:
    first, second = pair
    await first.registrations.register(read_service(WEB), BY)
    await first.registrations.update_check(CHECK, Health.PASSING)
    second.is_silent = True
    await pair.pass_time(30)
    assert first.shown() == {"web": [("web-1", Health.PASSING)]}
    second.is_silent = False
    await pair.pass_time(3)
    assert first.shown() == {"web": [("web-1", Health.CRITICAL)]}


async def test_the_next_holder_gives_each_check_its_whole_time(pair: Pair) -> None:
    first, second = pair
    await first.registrations.register(read_service(WEB), BY)
    await first.registrations.update_check(CHECK, Health.PASSING)
    await until(lambda: second.shown() == first.shown())
    await pair.pass_time(9)
    first.holds_lease, second.holds_lease, second.others = False, True, []
    await pair.pass_time(9)
    assert second.shown() == {"web": [("web-1", Health.PASSING)]}
    await pair.pass_time(2)
    await until(lambda: first.shown() == second.shown() == {"web": [("web-1", Health.CRITICAL)]})


@pytest.mark.parametrize("seed", range(3))
async def test_after_random_writes_at_both_servers_both_have_what_is_stored(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)

    async def write() -> None:
        server, name = chance.choice(pair).registrations, f"web-{chance.randrange(4)}"
        value = {**WEB, "ID": name, "Port": chance.randrange(80, 84)}
        try:
            match chance.randrange(4):
                case 0 | 1:
                    await server.register(read_service(value), BY, replaces_checks=True)
                case 2:
                    await server.update_check(f"service:{name}", chance.choice(list(Health)))
                case _:
                    await server.deregister(name)
        except XdsError:  # it was registered, or deregistered, a moment ago
            pass

    for _ in range(40):
        await asyncio.gather(*(write() for _ in range(5)))
    store = pair.first.registrations._records
    await until(lambda: pair.first.all() == pair.second.all())
    await until(lambda: not any(server.registrations.unsaved_n for server in pair))
    stored = {one.key: one for one in await store.load()}
    assert pair.first.all() == pair.second.all() == stored
    assert pair.first.shown() == pair.second.shown()


@pytest.mark.parametrize("key", [Key(AGENT_NODE, "web/1"), Key("n1", ""), Key("n1", "a/b"), Key(AGENT_NODE, "")])
def test_the_id_of_a_record_says_its_key(key: Key) -> None:
    assert key_of_record(record_id(key)) == key

"""The open NACKs of other servers of a store: read, taken over, and resolved once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.fleet import DISCONNECTED_KEPT_S, Fleet
from xds.fleet.state import NackState
from xds.model.resource_type import CLUSTER
from xds.server import nack_persistence
from xds.server.nack_persistence import NackPersistence
from xds.server.nacks_elsewhere import NacksElsewhere, Numbers
from xds.snapshots.cache import SnapshotCache
from xds.store.base import OpenNack
from xds.store.member_register import NUMBER_BITS
from xds.store.sqlite.memory import MemoryStore
from xds.tasks import batch_writer

SERVED = resource_set("clusters", "2", bad="x")
FIXED = resource_set("clusters", "3", bad="fixed")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "WRITE_EVERY_S", 0.01)
    monkeypatch.setattr(batch_writer, "BATCH_EVERY_S", 0.001)


@dataclass
class Server:
    """A server on a store that others use, as far as it keeps NACKs."""

    store: MemoryStore
    number: int
    living: set[int]
    holder: bool = False
    fleet: Fleet = field(default_factory=Fleet)
    refused: nack_persistence.Refused = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet.nack_log.number((1 << NUMBER_BITS) + self.number, 1 << NUMBER_BITS)
        numbers = Numbers(True, lambda: self.number, lambda: frozenset(self.living), lambda: self.holder)
        note = SnapshotCache().note_refused
        self.kept = NackPersistence(self.store, self.fleet, self.refused, note, numbers.is_mine)
        self.elsewhere = NacksElsewhere(self.store, self.fleet, self.refused, note, numbers)

    async def start(self) -> Server:
        await self.kept.load()
        self.kept.start()
        return self

    async def look(self, times: int = 1) -> None:
        """Look at the rows of all servers."""
        for _ in range(times):
            self.elsewhere.note(await self.store.nacks())

    def open(self) -> list[tuple[int, str]]:
        return [(each.id, each.node) for each in self.fleet.nack_log.select(state=NackState.OPEN)]

    async def rows(self, number: int) -> list[OpenNack]:
        async with asyncio.timeout(10):
            while len(rows := await self.store.nacks()) != number:
                await asyncio.sleep(0.005)
        return rows


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Server, Server]]:
    """Two servers, 0 and 1; the first holds the lease."""
    store = MemoryStore()
    await store.open()
    living = {0, 1}
    a, b = Server(store, 0, living, holder=True), Server(store, 1, living)
    yield await a.start(), await b.start()
    await a.kept.close()
    await b.kept.close()
    await store.close()


async def rejected(server: Server, node: str = "n1") -> Client:
    client = Client(server.fleet, node)
    client.nack(response(SERVED), guilty=("bad",))
    await server.rows(1)
    return client


async def test_two_servers_give_no_id_twice(pair: tuple[Server, Server]) -> None:
    a, b = pair
    for number, server in enumerate((a, b, a, b)):
        Client(server.fleet, f"n{number}").nack(response(SERVED), guilty=("bad",))
    assert len({row.id for row in await a.rows(4)}) == 4


async def test_what_a_node_rejected_elsewhere_is_known_before_it_comes(pair: tuple[Server, Server]) -> None:
    a, b = pair
    client = await rejected(a)
    await b.look()
    assert b.refused["n1"][CLUSTER].keys() == {"bad"} and not b.open()
    client.ack(response(FIXED))
    await a.rows(0)
    await b.look()
    assert "n1" not in b.refused


async def test_a_server_that_starts_leaves_the_rows_of_others_alone(pair: tuple[Server, Server]) -> None:
    a, _ = pair
    await rejected(a)
    late = await Server(a.store, 2, {0, 1, 2}).start()
    assert not late.open() and a.open()
    own = await Server(a.store, 0, {0, 1}).start()  # the first one, started again
    assert own.open() == a.open()
    await late.kept.close()
    await own.kept.close()


async def test_a_node_that_comes_brings_its_nack(pair: tuple[Server, Server]) -> None:
    a, b = pair
    client = await rejected(a)
    client.close()
    came = Client(b.fleet, "n1")
    came.subscribe("clusters", "*")
    await b.look()
    assert b.open() == a.open() != []
    came.ack(response(FIXED))
    await b.rows(0)
    assert not b.open()
    await a.look(2)
    assert not a.open()


async def test_a_nack_stays_open_where_its_node_is_when_another_server_forgets_the_node(
    pair: tuple[Server, Server],
) -> None:
    """A server forgets a node that left it an hour ago, with its NACKs. The node may still reject at another one."""
    a, b = pair
    client = await rejected(a)
    client.close()
    came = Client(b.fleet, "n1")
    came.subscribe("clusters", "*")
    await b.look()
    a.fleet.stream_opened(0, "ipv4:127.0.0.1:2", "ADS", "sotw", client.now + DISCONNECTED_KEPT_S + 1)
    assert not a.open()
    await a.rows(0)
    await b.look(2)
    ((renewed, node),) = b.open()
    (row,) = await b.rows(1)
    assert (row.id, row.node) == (renewed, node) == (renewed, "n1") and renewed & 1 == b.number
    assert b.fleet.nack_log.open_of("n1", CLUSTER)[0].guilty == ("bad",)
    await b.look(2)
    assert b.open() == [(renewed, "n1")]
    came.ack(response(FIXED))
    await b.rows(0)
    assert not b.open()


async def test_a_row_that_is_being_written_is_not_one_that_was_deleted(pair: tuple[Server, Server]) -> None:
    a, _ = pair
    (await rejected(a)).close()
    a.elsewhere.note([])
    assert a.open()
    await a.look()
    a.elsewhere.note([])
    assert a.open()
    a.elsewhere.note([])
    assert not a.open()


async def test_the_holder_takes_over_from_a_server_that_is_gone(pair: tuple[Server, Server]) -> None:
    a, b = pair
    await rejected(b)
    await a.look(3)
    assert not a.open()
    a.living.discard(1)
    await a.look()
    assert not a.open()  # it may be starting again
    await a.look()
    assert a.open() == b.open()
    heir = await Server(a.store, 2, {2}, holder=True).start()  # all others are gone
    assert heir.open() == b.open()
    await heir.kept.close()


async def test_a_damaged_row_harms_nothing(pair: tuple[Server, Server]) -> None:
    a, b = pair
    await rejected(a)
    b.elsewhere.note([OpenNack(1 << 40, "n9", CLUSTER, b"{"), *(await a.store.nacks())])
    assert b.refused.keys() == {"n1"}

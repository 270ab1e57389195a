"""A pooler in session mode between servers and their database: docs/replicas.md#the-database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.store.contract import cluster, contents, full, push, start, take, watch_items
from tests.store.process import committed
from tests.support.pooler import Pooler
from tests.support.postgres import PostgresServer
from xds.store.base import GroupCommitted, GroupPush, Head, SilentError, UnavailableError
from xds.store.member_register import Member
from xds.store.postgres.engine import PostgresStore
from xds.store.retention import Retention

pytestmark = pytest.mark.soak

GOES_ON_S = 60.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(["fsync = off"]) as running:
        yield running


async def test_servers_behind_a_pooler_share_a_database_and_go_on_after_its_end(server: PostgresServer) -> None:
    with Pooler(server) as pooler:
        url = pooler.url(server.make_database())
        store, other = (PostgresStore(url) for _ in range(2))
        for each in (store, other):
            await each.open()
        watch = watch_items(other)
        await start(watch)
        for revision in range(1, 5):
            await push(store, full(cluster("a", b"%d" % revision)))
            (item,) = await take(watch, 1)
            assert isinstance(item, GroupCommitted) and item.head == Head("g", revision)
        holds = [(await each.beat(Member(name, ""), name)).holds for each, name in ((store, "a"), (other, "b"))]
        assert holds == [True, False]
        async with store.turn(["g"]):
            assert (await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)).revisions == 3
        assert (await other.collect(Retention(revisions=1, age_s=-1.0), 0.0)).revisions == 0
        pooler.kill()
        with pytest.raises(UnavailableError):
            await push(store, full(cluster("a", b"5")), push_id="5")
        pooler.start()
        async with asyncio.timeout(GOES_ON_S):
            assert (await committed(store, GroupPush("g", full(cluster("a", b"5"))), "5")).revision == 5
        (item,) = await take(watch, 1)
        assert isinstance(item, GroupCommitted) and item.head == Head("g", 5)
        assert await contents(other, await other.manifest("g")) == [cluster("a", b"5")]
        for each in (store, other):
            await each.close()


async def test_a_database_that_is_away_behind_a_pooler_is_silent_and_refuses_nobody(server: PostgresServer) -> None:
    """So a server that starts waits for it."""
    with Pooler(server) as pooler:
        url = pooler.url(server.make_database())
        server.kill()
        for _ in range(2):  # the pooler tells it in two ways
            with pytest.raises(SilentError) as silent:
                await PostgresStore(url).open()
            assert not silent.value.is_refusal, silent.value

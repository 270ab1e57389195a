"""Members, lease and secret in a real PostgreSQL, by its clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from xds.cluster.members import RegisteredMembers
from xds.store.base import UnavailableError
from xds.store.member_register import NO_NUMBER, Member
from xds.store.postgres import turn_rows
from xds.store.postgres.connection import PostgresConnection
from xds.store.postgres.engine import PostgresStore

pytestmark = pytest.mark.soak


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [PostgresStore(url) for _ in range(3)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


def member(name: str) -> Member:
    return Member(f"{name}:18080", f"http://{name}:18080", "1")


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, options="-c search_path=xds", autocommit=True) as connection:
        connection.execute(statement.encode())


async def test_servers_that_join_at_once_have_numbers_of_their_own(stores: list[PostgresStore]) -> None:
    await asyncio.gather(*(store.beat(member(name), name) for store, name in zip(stores, "abc", strict=True)))
    answers = [await store.beat(member(name), name) for store, name in zip(stores, "abc", strict=True)]
    assert {answer.number for answer in answers} == {0, 1, 2}
    assert [each.id for each in answers[0].members] == ["a:18080", "b:18080", "c:18080"]
    assert [answer.holds for answer in answers].count(True) == 1
    assert len({answer.holder for answer in answers}) == 1
    assert {answer.epoch for answer in answers} == {1}
    assert all(abs(each.seen_s - answers[0].now_s) < 30 for each in answers[0].members)


async def test_the_lease_goes_to_another_server_when_it_ends(url: str, stores: list[PostgresStore]) -> None:
    a, b, _ = stores
    assert (await a.beat(member("a"), "a")).holds
    assert not (await b.beat(member("b"), "b")).holds
    execute(url, "UPDATE lease SET expires = now() - interval '1 ms'")
    answer = await b.beat(member("b"), "b")
    assert answer.holds and answer.holder == "b:18080" and answer.epoch == 2
    late = await a.beat(member("a"), "a")
    assert not late.holds and late.holder == "b:18080"
    await b.leave("b")
    answer = await a.beat(member("a"), "a")
    assert answer.holds and answer.epoch == 3 and [each.id for each in answer.members] == ["a:18080"]


async def test_an_address_belongs_to_one_server_that_lives(url: str, stores: list[PostgresStore]) -> None:
    a, twin, c = stores
    await c.beat(member("c"), "c")
    number = (await a.beat(member("a"), "a")).number
    answer = await twin.beat(member("a"), "twin")
    assert answer.number is None and not answer.holds
    execute(url, "UPDATE member SET seen = now() - interval '11 s' WHERE id = 'a:18080'")
    assert "a:18080" not in {each.id for each in (await c.beat(member("c"), "c")).members}
    assert (await twin.beat(member("a"), "twin")).number == number
    assert (await a.beat(member("a"), "a")).number is None


async def test_a_clock_of_the_database_that_goes_back_leaves_no_ghosts(url: str, stores: list[PostgresStore]) -> None:
    a, b, _ = stores
    await a.beat(member("a"), "a")
    execute(url, "UPDATE member SET seen = seen + interval '1 hour'")
    execute(url, "UPDATE lease SET expires = expires + interval '1 hour'")
    answer = await b.beat(member("b"), "b")
    assert answer.holds and [each.id for each in answer.members] == ["b:18080"]


async def test_numbers_of_servers_that_are_long_gone_are_free(url: str, stores: list[PostgresStore]) -> None:
    execute(
        url,
        "INSERT INTO member SELECT 'm' || n, 'm' || n, '', '', n, now(), now() - interval '2 days'"
        f" FROM generate_series(0, {NO_NUMBER - 1}) AS n",
    )
    assert (await stores[0].beat(member("a"), "a")).number == 0


async def test_all_servers_take_up_a_new_secret(url: str, stores: list[PostgresStore]) -> None:
    servers = [RegisteredMembers(store) for store in stores]
    for name, server in zip("abc", servers, strict=True):
        await server.start(f"http://{name}:18080")
    old = servers[0].secret()
    assert len(bytes.fromhex(old)) == 32
    await stores[2].rotate_secret()
    async with asyncio.timeout(60):
        while any(server.secret() == old for server in servers):
            assert all(each.accepts(other.secret()) for each in servers for other in servers)
            await asyncio.sleep(0.1)
    assert len({server.secret() for server in servers}) == 1
    execute(url, "UPDATE meta SET v = CAST(v AS double precision) - 60 WHERE k = 'cluster_secret_rotated'")
    async with asyncio.timeout(60):
        while any(server.accepts(old) for server in servers):
            await asyncio.sleep(0.1)
    for server in servers:
        await server.close()


async def test_a_rotated_secret_ends_though_the_clock_of_the_database_goes_back(
    url: str, stores: list[PostgresStore]
) -> None:
    (server,) = [RegisteredMembers(stores[0])]
    await server.start("http://a:18080")
    old = server.secret()
    await stores[0].rotate_secret()
    execute(url, "UPDATE meta SET v = CAST(v AS double precision) + 3600 WHERE k = 'cluster_secret_rotated'")
    async with asyncio.timeout(60):
        while server.accepts(old) or server.secret() == old:
            await asyncio.sleep(0.1)
    await server.close()


async def make_earlier(url: str) -> None:
    """A database of a release that had no members."""
    store = PostgresStore(url)
    await store.open()
    await store.close()
    execute(url, "DROP TABLE member, lease, turn; DELETE FROM meta WHERE k = 'cluster_secret'")


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'xds'")}


async def test_a_database_of_the_release_before_gets_the_tables(url: str) -> None:
    await make_earlier(url)
    store = PostgresStore(url)
    await store.open()
    assert (await store.beat(member("a"), "a")).holds
    await store.close()


async def test_an_upgrade_that_ends_half_way_has_changed_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release before goes on with the database as it is, and the next attempt succeeds."""
    await make_earlier(url)
    before = tables(url)

    def create_half(connection: PostgresConnection) -> None:
        assert connection.execute("SELECT count(*) FROM member").fetchone() == (0,)  # made in this transaction
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as patched:
        patched.setattr(turn_rows, "create", create_half)
        with pytest.raises(UnavailableError):
            await PostgresStore(url).open()
    assert tables(url) == before
    store = PostgresStore(url)
    await store.open()
    assert tables(url) == before | {"member", "lease", "turn"}
    await store.close()

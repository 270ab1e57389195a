"""A database that hangs, or is away: what a store over it does, and what its copy on this disk is good for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.store.contract import cluster, full, push
from tests.support.postgres import PostgresServer
from xds.cluster.members import HEARTBEAT_S, RegisteredMembers
from xds.store.base import Commit, Reset, SilentError, UnavailableError
from xds.store.copy.copy_rows import Kept
from xds.store.member_register import Member
from xds.store.postgres import schema
from xds.store.postgres.connection import ANSWER_S, PostgresConnection
from xds.store.postgres.database import COMMIT_S, PostgresDatabase
from xds.store.postgres.engine import PostgresStore
from xds.store.sql.connection import Job
from xds.store.sql.tables import SCHEMA_VERSION
from xds.store.sqlite.engine import SqliteStore

pytestmark = pytest.mark.soak
T = TypeVar("T")

WAIT_S = 20.0
NOTICED_S = 15.0  # ten times what is usual would say nothing: half of it is waiting
KEPT = Kept(10, 60.0, 100)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(["fsync = off"]) as running:
        yield running


@asynccontextmanager
async def opened(url: str, copy: Path | None = None) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, copy, lambda: KEPT)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], object]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.05)

    await asyncio.wait_for(poll(), WAIT_S)


async def copied(store: PostgresStore) -> None:
    newest, copier = await store.newest_cursor(), store._copier
    assert copier is not None
    await until(lambda: copier.copied_cursor >= newest)


async def test_a_database_that_hangs_is_noticed_and_used_again(server: PostgresServer) -> None:
    async with opened(server.make_database()) as store:
        await push(store, full(cluster("a")))
        server.freeze()
        began_s = time.monotonic()
        with pytest.raises(UnavailableError):
            await push(store, full(cluster("b", b"2")))
        assert time.monotonic() - began_s < NOTICED_S
        condition = store.condition()
        assert 0 < condition.cut_off_s < time.time() - ANSWER_S
        assert "has not answered since" in condition.read_only
        for _ in range(5):  # at once, since the listener tries
            began_s = time.monotonic()
            with pytest.raises(UnavailableError, match="cannot be used"):
                await store.groups()
            assert time.monotonic() - began_s < 1
        server.thaw()
        await until(lambda: not store.condition().cut_off_s)
        assert await push(store, full(cluster("b", b"2"))) == Commit("g", 2)


async def test_a_long_statement_of_a_database_that_answers_is_waited_for(server: PostgresServer) -> None:
    url = server.make_database()
    async with opened(url) as store:
        await push(store, full(cluster("a")))
        name = url.rpartition("/")[2]
        body = "$$ BEGIN PERFORM pg_sleep(6); RETURN NEW; END $$"
        server.execute(f"CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS {body}", name)
        server.execute("CREATE TRIGGER wait BEFORE INSERT ON xds.blob EXECUTE FUNCTION wait()", name)
        assert await push(store, full(cluster("b", b"2"))) == Commit("g", 2)
        assert not store.condition().cut_off_s


@pytest.mark.timeout(600)
async def test_without_its_synchronous_standby_a_server_is_cut_off_until_it_is_back() -> None:
    """The primary is read, and commits nothing: heartbeats are lost one after the other."""
    with PostgresServer() as primary, PostgresServer(copy_of=primary) as standby:
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        async with opened(primary.make_database()) as store:
            members = RegisteredMembers(store)
            await members.start("http://127.0.0.1:1")
            await push(store, full(cluster("a")), push_id="p1")
            standby.kill()
            await until(lambda: store.condition().cut_off_s)
            began_s = time.monotonic()
            while time.monotonic() < began_s + 4 * (HEARTBEAT_S + ANSWER_S):
                assert "lost its synchronous standby" in store.condition().read_only
                await asyncio.sleep(0.05)
            began_s = time.monotonic()
            with pytest.raises(UnavailableError, match="cannot be used"):
                await push(store, full(cluster("b")), push_id="p2")
            assert time.monotonic() < began_s + 1
            standby.start()
            await until(lambda: not store.condition().cut_off_s and not members.problem)
            assert await push(store, full(cluster("b")), push_id="p2") == Commit("g", 2)
            await members.close()


async def test_a_server_starts_from_its_copy_and_takes_up_what_it_missed(
    server: PostgresServer, tmp_path: Path
) -> None:
    url, copy = server.make_database(), tmp_path / "data" / "copy.sqlite3"
    async with opened(url, copy) as store:
        for number in range(3):
            await push(store, full(cluster("a", b"%d" % number)))
        await store.put_doc("settings", "g", b"{}")
        await copied(store)
    server.kill()
    async with opened(url, copy) as store:
        assert (await store.manifest("g")).revision == 3
        assert [document.body for document in await store.docs("settings")] == [b"{}"]
        assert "of the copy" in store.condition().read_only
        with pytest.raises(UnavailableError, match="nothing can be written"):
            await push(store, full(cluster("b")))
        watch = store.watch(await store.newest_cursor())
        waiting = asyncio.ensure_future(anext(watch))
        server.start()
        (reset,) = await asyncio.wait_for(waiting, WAIT_S)
        assert isinstance(reset, Reset)
        assert await push(store, full(cluster("b"))) == Commit("g", 4)
        assert (await asyncio.wait_for(anext(watch), WAIT_S))[-1].cursor == await store.newest_cursor()
        await copied(store)
    async with opened_file(copy) as file:
        assert (await file.manifest("g")).revision == 4


@asynccontextmanager
async def opened_file(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def made_with_copy(server: PostgresServer, folder: Path) -> tuple[str, Path]:
    """The URL of a database with one push, and its copy."""
    url, copy = server.make_database(), folder / "copy.sqlite3"
    async with opened(url, copy) as store:
        await push(store, full(cluster("a")))
        await copied(store)
    return url, copy


async def test_a_server_that_may_not_join_its_database_says_why(server: PostgresServer, tmp_path: Path) -> None:
    """A newer release has changed it while it was silent."""
    url, copy = await made_with_copy(server, tmp_path)
    server.kill()
    async with opened(url, copy) as store:
        server.start()
        change = "UPDATE xds.meta SET v = '{}' WHERE k = 'schema'"
        server.execute(change.format(SCHEMA_VERSION + 1), url.rpartition("/")[2])
        await until(lambda: f"the data has schema {SCHEMA_VERSION + 1}" in store.condition().read_only)
        assert (await store.manifest("g")).revision == 1
        server.execute(change.format(SCHEMA_VERSION), url.rpartition("/")[2])
        await until(lambda: not store.is_copy)


async def test_a_database_that_ends_while_a_server_joins_it_is_joined_later(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, copy = await made_with_copy(server, tmp_path)
    server.kill()
    async with opened(url, copy) as store:
        read, ends = PostgresDatabase.read, iter([True])

        def ending(self: PostgresDatabase, job: Job[T]) -> T:
            if next(ends, False):
                raise SilentError("it ends")
            return read(self, job)

        monkeypatch.setattr(PostgresDatabase, "read", ending)
        server.start()
        me = Member("a:1", "http://a:1", "")
        await until(lambda: not store.is_copy)
        assert await push(store, full(cluster("b"))) == Commit("g", 2)
        assert (await store.beat(me, "process")).holds


async def test_a_database_that_hangs_at_the_start_is_silent(server: PostgresServer, tmp_path: Path) -> None:
    url, copy = await made_with_copy(server, tmp_path)
    server.freeze()
    with pytest.raises(SilentError) as silent:
        await PostgresStore(url).open()
    assert not silent.value.is_refusal
    async with opened(url, copy) as store:
        assert (await store.manifest("g")).revision == 1
    server.thaw()
    with pytest.raises(SilentError) as refused:
        await PostgresStore(server.url("nowhere")).open()
    assert refused.value.is_refusal


@pytest.mark.timeout(600)
async def test_a_server_that_starts_while_nothing_is_committed_serves_its_copy(tmp_path: Path) -> None:
    """The synchronous standby is gone: the primary is read."""
    with PostgresServer() as primary, PostgresServer(copy_of=primary) as standby:
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        url, copy = await made_with_copy(primary, tmp_path)
        standby.kill()
        with pytest.raises(SilentError):
            await PostgresStore(url).open()
        async with opened(url, copy) as store:
            async with asyncio.timeout(4 * COMMIT_S):
                for _ in range(100):  # what a start reads does not wait each time for an attempt to use the database
                    assert (await store.manifest("g")).revision == 1
                    await asyncio.sleep(0.1)
            assert "of the copy" in store.condition().read_only
            standby.start()
            async with asyncio.timeout(4 * COMMIT_S):
                while store.is_copy:
                    await asyncio.sleep(0.1)
            assert await push(store, full(cluster("b"))) == Commit("g", 2)


async def test_a_session_that_ends_amid_the_start_is_a_database_that_is_silent(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a failover: the next attempt may succeed."""
    url, copy = await made_with_copy(server, tmp_path)

    def end(connection: PostgresConnection) -> None:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as patched:
        patched.setattr(schema, "ensure", end)
        with pytest.raises(SilentError) as silent:
            await PostgresStore(url).open()
        assert not silent.value.is_refusal
        async with opened(url, copy) as store:
            assert (await store.manifest("g")).revision == 1
            patched.undo()
            await until(lambda: not store.is_copy)
            assert await push(store, full(cluster("b"))) == Commit("g", 2)


async def test_a_database_that_went_back_while_it_was_away_is_told(server: PostgresServer, tmp_path: Path) -> None:
    url, copy = server.make_database(), tmp_path / "copy.sqlite3"
    async with opened(url, copy) as store:
        for number in range(5):
            await push(store, full(cluster("a", b"%d" % number)))
        await copied(store)
    name = url.rpartition("/")[2]
    server.execute("UPDATE xds.seq SET v = 3 WHERE name = 'event'; DELETE FROM xds.event WHERE cursor > 3", name)
    server.execute("UPDATE xds.grp SET revision = 3; DELETE FROM xds.revision WHERE revision > 3", name)
    server.freeze()
    async with opened(url, copy) as store:
        assert (await store.manifest("g")).revision == 5
        server.thaw()
        await until(lambda: store.condition().behind.startswith("commits up to 5 were there"))
        copier = store._copier
        assert copier is not None
        await until(lambda: copier.copied_s)
    async with opened_file(copy) as file:  # nobody has decided yet
        assert (await file.manifest("g")).revision == 5

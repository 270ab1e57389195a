"""PostgreSQL fulfils the contract, and what is its own: several servers, lost answers, failover, unfit databases."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import TypeVar

import psycopg
import pytest

from tests.store.audit_contract import AuditContract
from tests.store.child import line, process
from tests.store.contract import (
    READER_BUFFER,
    WAIT_S,
    StoreContract,
    cluster,
    contents,
    delta,
    dumped,
    fill,
    full,
    push,
    replayed,
    start,
    take,
    watch_items,
)
from tests.store.derived_contract import DerivedContract
from tests.store.process import GROUP, committed, content_at
from tests.support.pki import CertificateAuthority
from tests.support.postgres import Link, PostgresServer
from tests.support.process import LOOPBACK, free_port
from xds.model.errors import ConflictError, ValidationError
from xds.store.audit_entries import AuditNote
from xds.store.base import (
    PUSH_IDS_KEPT_S,
    Commit,
    CorruptError,
    DocumentChanged,
    GroupCommitted,
    GroupPush,
    Head,
    Meta,
    ObservedRecord,
    OutOfSpaceError,
    Reset,
    Store,
    UnavailableError,
)
from xds.store.postgres.connection import PostgresConnection, check_url, place_of
from xds.store.postgres.database import COMMIT_S
from xds.store.postgres.engine import COLLECTION_LOCK, PostgresStore
from xds.store.postgres.failures import SHOWN
from xds.store.postgres.listener import TICK_S, Listener
from xds.store.postgres.turn_rows import LONGEST_S
from xds.store.records import Record
from xds.store.retention import Collected, Retention, StoreCondition
from xds.store.sql.connection import Job, SqlConnection
from xds.store.sql.ledger import CommitCall, commit_all
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

KILLS = 50
ONLY_THE_LATEST = Retention(revisions=1, age_s=-1.0)
GROUPS = ("g", "h")

T = TypeVar("T")

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(["fsync = off"]) as running:
        yield running


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.make_database()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection in many steps."""
    monkeypatch.setattr("xds.store.sql.collection.ROWS_PER_STEP", 2)
    monkeypatch.setattr("xds.store.sql.collection.ROWS_PER_SCAN", 3)


class TestPostgresStore(AuditContract, DerivedContract, StoreContract):
    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[Store]:
        store = PostgresStore(url, reader_buffer=READER_BUFFER)
        await store.open()
        yield store
        await store.close()


async def opened(url: str) -> PostgresStore:
    store = PostgresStore(url, reader_buffer=1000)
    await store.open()
    return store


def test_a_listener_looks_again_after_a_look_that_failed(url: str) -> None:
    looked = Event()
    failures = iter([CorruptError("a damaged row")])

    def look(connection: SqlConnection) -> None:
        for failure in failures:
            raise failure
        looked.set()

    listener = Listener(url, look)
    assert looked.wait(10 * TICK_S)
    listener.end()
    listener.join()


async def test_what_one_server_commits_the_others_watch_in_one_order(url: str) -> None:
    stores = [await opened(url) for _ in range(3)]
    watches = [watch_items(store) for store in stores]
    for watch in watches:
        await start(watch)
    pushes = (push(stores[n % 3], full(cluster("a", b"%d" % n)), group=f"g{n % 5}") for n in range(60))
    commits = await asyncio.gather(*pushes)
    seen = [await take(watch, 60) for watch in watches]
    assert seen[0] == seen[1] == seen[2]
    assert [item.cursor for item in seen[0]] == list(range(1, 61))
    heads = {(item.head.group, item.head.revision) for item in seen[0] if isinstance(item, GroupCommitted)}
    assert heads == {(commit.group, commit.revision) for commit in commits}
    for store in stores:
        await store.close()


async def test_a_notification_is_heard_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next tick, at the server that commits as at others."""
    for name in ("TICK_S", "ANSWER_S"):
        monkeypatch.setattr(f"xds.store.postgres.listener.{name}", 10 * WAIT_S)
    store, other = await opened(url), await opened(url)
    watches = [watch_items(each) for each in (store, other)]
    for watch in watches:
        await start(watch)
    for revision in range(1, 4):
        await push(store, full(cluster("a", b"%d" % revision)))
        for watch in watches:
            (item,) = await take(watch, 1)
            assert isinstance(item, GroupCommitted) and item.head == Head("g", revision)
    for each in (store, other):
        await each.close()


async def test_what_is_committed_without_a_notification_is_seen_at_the_next_tick(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await opened(url), await opened(url)
    watch = watch_items(other)
    await start(watch)
    monkeypatch.setattr("xds.store.postgres.event_marks.notify", lambda connection: None)
    began_s = time.monotonic()
    for revision in range(1, 4):
        await push(store, full(cluster("a", b"%d" % revision)))
        (item,) = await take(watch, 1)
        assert isinstance(item, GroupCommitted) and item.head == Head("g", revision)
    assert time.monotonic() - began_s < 20 * TICK_S
    for each in (store, other):
        await each.close()


async def test_of_two_servers_that_expect_one_revision_one_wins(url: str) -> None:
    stores = [await opened(url) for _ in range(2)]
    await push(stores[0], full(cluster("a")))
    for revision in range(1, 21):
        both = (
            push(store, full(cluster("a", b"%d-%d" % (revision, n))), expect=revision) for n, store in enumerate(stores)
        )
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(map(type, outcomes), key=str) == sorted([Commit, ConflictError], key=str)
    assert await stores[1].head("g") == Head("g", 21)
    for store in stores:
        await store.close()


@pytest.mark.parametrize("seed", range(3))
async def test_a_collector_in_another_process_deletes_only_what_nobody_names(url: str, seed: int) -> None:
    source = random.Random(seed)
    store = await opened(url)
    bodies = [b"%d" % n for n in range(12)]
    async with process("collect", url) as child:
        for _ in range(300):
            content = [cluster(f"c{n}", source.choice(bodies)) for n in range(source.randint(0, 6))]
            change = full(*content) if source.random() < 0.5 else delta(*content)
            by_id = replace(change, blobs={}) if source.random() < 0.5 else change
            group = source.choice("ghi")
            try:
                await push(store, by_id, group)
            except CorruptError:  # a blob that was named by its id alone is gone: it is to be given
                await push(store, change, group)
            held = [await contents(store, await store.manifest(head.group)) for head in await store.groups()]
        assert child.stdin is not None
        child.stdin.close()
        assert int(await line(child)) > 0
    await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)
    assert (await store.stats()).blobs == len({body for content in held for _, _, body in content})
    await store.close()


class Pausing(PostgresStore):
    """Stops amid a collection: before it looks which bodies are in use; if it ``is_late``, before it deletes others."""

    def __init__(self, url: str, *, is_late: bool) -> None:
        super().__init__(url)
        self.pauses, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._is_late, self._sweeps = is_late, False

    async def _sweep(self) -> Collected:
        self._sweeps = True
        if not self._is_late:
            await self._pause()
        return await super()._sweep()

    async def _repeat(self, job: Job[Collected]) -> Collected:
        if self._sweeps:
            await self._pause()
        return await super()._repeat(job)

    async def _pause(self) -> None:
        self.pauses.set()
        await self.may_go_on.wait()


class Stepping(PostgresStore):
    """Awaits something ``before`` the steps of a collection with these numbers."""

    def __init__(self, url: str, before: Mapping[int, Callable[[], Awaitable[None]]]) -> None:
        super().__init__(url)
        self.steps = 0
        self._before = before

    async def _step(self, job: Job[T]) -> T:
        self.steps += 1
        if self.steps in self._before:
            await self._before[self.steps]()
        return await super()._step(job)


async def use_again(store: Store) -> None:
    """A body that is in use has a row in the past again."""
    for group in GROUPS:
        for body in (b"other", b"first"):
            await push(store, full(cluster("a", body)), group)


async def collect_and_lose_session(server: PostgresServer, at: int, *, is_late: bool) -> int:
    """Another server begins to collect then. Returns the number of steps."""
    url = server.make_database()
    other = Pausing(url, is_late=is_late)
    others: list[asyncio.Task[Collected]] = []

    async def lose_session() -> None:
        pid = await store.query(lambda each: each.execute("SELECT pg_backend_pid()").fetchone()[0])
        server.execute(f"SELECT pg_terminate_backend({pid})")
        await use_again(other)
        others.append(asyncio.create_task(other.collect(ONLY_THE_LATEST, 0.0)))
        await other.pauses.wait()
        await use_again(other)

    async def let_go_on() -> None:
        other.may_go_on.set()
        await asyncio.gather(*others)

    store = Stepping(url, {at: lose_session, at + 2: let_go_on} if is_late else {at: lose_session})
    for each in (store, other):
        await each.open()
    for group in GROUPS:
        await push(store, full(cluster("a", b"first")), group)
    await use_again(store)
    with suppress(UnavailableError):
        await store.collect(ONLY_THE_LATEST, 0.0)
    await let_go_on()
    for group in GROUPS:
        assert await contents(other, await other.manifest(group)) == [cluster("a", b"first")]
    for each in (store, other):
        await each.close()
    return store.steps


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.usefixtures("small_steps")
async def test_a_server_that_lost_its_session_amid_a_collection_takes_nothing_in_use(
    server: PostgresServer, is_late: bool
) -> None:
    """Neither does it delete a body, nor does it leave one to the server that collects by now."""
    for at in count(1):
        if at > await collect_and_lose_session(server, at, is_late=is_late):
            break
    assert at > 10


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("small_steps")
async def test_a_restore_at_another_server_ends_a_collection_and_no_more(url: str) -> None:
    source = MemoryStore()
    await source.open()
    for body in (b"first", b"second", b"first"):
        await push(source, full(cluster("a", body)), "h")
    one_group = await dumped(source)
    await push(source, full(cluster("a", b"first")), "g")
    both_groups = await dumped(source)
    await source.close()
    other = await opened(url)

    async def restore() -> None:
        await other.restore(lambda: iter(one_group), replace=True)

    for at in count(1):
        await other.restore(lambda: iter(both_groups), replace=True)
        store = Stepping(url, {at: restore})
        await store.open()
        with suppress(UnavailableError):
            await store.collect(ONLY_THE_LATEST, 0.0)
        assert await contents(other, await other.manifest("h")) == [cluster("a", b"first")]
        await store.close()
        if at > store.steps:
            break
    assert at > 10
    await other.close()


async def test_a_server_that_is_stopped_amid_a_collection_keeps_no_other_one_from_it(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xds.store.postgres.engine.HOLDER_IDLE_S", 1.0)
    name = url.rpartition("/")[2]
    held = (
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        f" WHERE datname = '{name}' AND locktype = 'advisory' AND objid = {COLLECTION_LOCK & 0xFFFFFFFF}"
    )
    store = await opened(url)
    for n in range(12):
        await push(store, full(*(cluster(f"c{m}", b"%d" % (n * m)) for m in range(20))))
    async with process("collect", url) as child:
        while True:
            child.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.1)
            if server.execute(held) == [(1,)]:
                break
            child.send_signal(signal.SIGCONT)
            await asyncio.sleep(random.uniform(0, 0.1))
        async with asyncio.timeout(60):  # its session may have to end amid a transaction first
            await push(store, full(cluster("a", b"new")))
            await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)
            assert [record async for batch in store.dump() for record in batch]
        child.send_signal(signal.SIGCONT)
        assert await contents(store, await store.manifest("g")) == [cluster("a", b"new")]
    await store.close()


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_whose_answer_is_lost_is_done_once(server: PostgresServer, url: str, committed: bool) -> None:
    async with Link(server.port) as link:
        store = await opened(link.url(url))
        watch = watch_items(store)
        await start(watch)
        link.lose_commit(committed=committed)
        assert await push(store, full(cluster("a")), push_id="p") == Commit("g", 1)
        link.lose_commit(committed=committed)
        assert await store.put_doc("kind", "a", b"1", note=AuditNote("token", "ann")) == 1
        link.lose_commit(committed=committed)
        await store.note([AuditNote("released", "ann")])
        assert link.lost == 3
        assert [type(item) for item in await take(watch, 2)] == [GroupCommitted, DocumentChanged]
        assert [entry.id for entry in (await store.audit()).entries] == [1, 2]
        assert await store.head("g") == Head("g", 1)
        await store.close()


async def test_a_dump_goes_on_over_a_lost_connection(server: PostgresServer, url: str) -> None:
    store = await opened(url)
    await fill(store)
    expected = await dumped(store)
    found: list[Record] = []
    async for batch in store.dump():
        found += batch
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'xds_%'")
    assert found == expected
    await store.close()


@pytest.mark.timeout(1800)
async def test_nothing_acknowledged_is_lost_when_servers_or_databases_are_killed() -> None:
    with PostgresServer() as server:
        url = server.make_database()
        for kill in range(KILLS):
            async with process("commit", url) as child:
                for _ in range(2 + kill % 7):
                    acknowledged = await line(child)
                if kill % 2:
                    server.kill()
                    server.start()
                    for _ in range(3):  # it goes on by itself
                        acknowledged = await line(child)
                child.kill()
                while more := await line(child):
                    acknowledged = more
            await check_nothing_lost(url, int(acknowledged))


async def check_nothing_lost(url: str, acknowledged: int) -> None:
    store = await opened(url)
    head = await store.head(GROUP)
    assert head is not None
    assert head.revision in {acknowledged, acknowledged + 1}  # the last may have been committed and not yet told
    for revision in {1, acknowledged, head.revision}:
        assert await contents(store, await store.manifest(GROUP, revision)) == content_at(revision)
        change = full(*content_at(revision))
        assert await replayed(store, change, f"p{revision}", GROUP) == Commit(GROUP, revision, replayed=True)
    await store.close()


async def push_until_told(store: Store, told: asyncio.Event, acknowledged: list[int]) -> None:
    """Push as a caller does who keeps his id until he has an answer; ``acknowledged`` are the revisions."""
    while not told.is_set():
        number = len(acknowledged) + 1
        pushed = GroupPush(GROUP, full(*content_at(number)))
        acknowledged.append((await committed(store, pushed, f"p{number}")).revision)


@pytest.mark.parametrize("is_first", [True, False])
async def test_pushes_go_on_after_a_failover(is_first: bool) -> None:
    """Of a primary with a synchronous standby, both in the URL, in any order."""
    with PostgresServer() as primary, PostgresServer(copy_of=primary) as standby:
        first, second = (primary, standby) if is_first else (standby, primary)
        url = primary.make_database().replace(f":{primary.port}/", f":{first.port},{LOOPBACK}:{second.port}/")
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        store = await opened(url)
        watch = watch_items(store)
        await start(watch)
        told, acknowledged = asyncio.Event(), list[int]()
        pushing = asyncio.create_task(push_until_told(store, told, acknowledged))
        while len(acknowledged) < 20:
            await asyncio.sleep(0.01)
        primary.kill()
        before = len(acknowledged)
        standby.promote()
        async with asyncio.timeout(60):
            while len(acknowledged) < before + 20:
                await asyncio.sleep(0.01)
        told.set()
        await pushing
        assert acknowledged == list(range(1, len(acknowledged) + 1))
        heads = [
            item.head.revision for item in await take(watch, len(acknowledged)) if isinstance(item, GroupCommitted)
        ]
        assert heads == acknowledged
        await store.close()
        await check_nothing_lost(url, acknowledged[-1])


@pytest.mark.timeout(600)
async def test_without_its_synchronous_standby_a_push_is_answered_and_goes_on_when_it_is_back() -> None:
    """The primary answers, but no commit returns: who pushes is told that it may have been made."""
    with PostgresServer() as primary, PostgresServer(copy_of=primary) as standby:
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        url = primary.make_database()
        stores = [await opened(url) for _ in range(2)]
        await push(stores[0], full(cluster("a")), push_id="p1")
        standby.kill()
        for store in stores:
            async with asyncio.timeout(4 * COMMIT_S):
                with pytest.raises(UnavailableError):
                    await push(store, full(cluster("b")), push_id="p2")
                assert await store.head("g") == Head("g", 1)
        standby.start()
        for store in stores:
            async with asyncio.timeout(4 * COMMIT_S):
                commit = await committed(store, GroupPush("g", full(cluster("b"))), "p2")
                assert commit.revision == 2
        for store in stores:
            await store.close()


@pytest.mark.timeout(600)
async def test_a_push_that_no_standby_has_is_not_acknowledged_though_the_primary_shows_it() -> None:
    """After a crash: the commit is in its own log."""
    with PostgresServer() as primary, PostgresServer(copy_of=primary) as standby:
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        store = await opened(primary.make_database())
        await push(store, full(cluster("a")))
        pushed = GroupPush("g", full(cluster("b")))
        standby.freeze()
        pushing = asyncio.create_task(store.commit_all([pushed], push_id="p"))
        while primary.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != [(1,)]:
            await asyncio.sleep(0.05)
        primary.kill()
        primary.start()
        with pytest.raises(UnavailableError) as unknown:
            await pushing
        assert unknown.value.maybe_committed
        async with asyncio.timeout(4 * COMMIT_S):
            while store.condition() != StoreCondition():
                await asyncio.sleep(0.05)
        assert await store.head("g") == Head("g", 2)
        with pytest.raises(UnavailableError):
            await store.committed([pushed], "p")
        standby.thaw()
        async with asyncio.timeout(4 * COMMIT_S):
            assert (await committed(store, pushed, "p")).revision == 2
        assert await store.committed([pushed], "p") == [Commit("g", 2, replayed=True)]
        await store.close()


async def test_sessions_that_the_database_ends_amid_pushes_lose_nothing(server: PostgresServer, url: str) -> None:
    """Of both connections, again and again: each push is made once, and the other server hears of all in order."""
    store, other = await opened(url), await opened(url)
    watch = watch_items(other)
    await start(watch)
    told, acknowledged = asyncio.Event(), list[int]()
    pushing = asyncio.create_task(push_until_told(store, told, acknowledged))
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' ORDER BY random() LIMIT 1"
    for _ in range(40):
        await asyncio.to_thread(server.execute, ends.format(url.rpartition("/")[2]))
        await asyncio.sleep(0.05)
    told.set()
    await pushing
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    heads = [item.head.revision for item in await take(watch, len(acknowledged)) if isinstance(item, GroupCommitted)]
    assert heads == acknowledged
    for each in (store, other):
        await each.close()
    await check_nothing_lost(url, acknowledged[-1])


async def test_a_database_that_is_away_is_reported_until_it_is_back() -> None:
    with PostgresServer() as server:
        store = await opened(server.make_database())
        await push(store, full(cluster("a")))
        assert store.condition() == StoreCondition()
        server.kill()
        for _ in range(3):
            with pytest.raises(UnavailableError, match="cannot be used"):
                await push(store, full(cluster("b")))
        began_s = time.monotonic()
        for _ in range(20):  # they do not wait one after the other
            with pytest.raises(UnavailableError, match="cannot be used"):
                await store.groups()
        assert time.monotonic() - began_s < 2
        down = store.condition().read_only
        assert "cannot be used" in down or "has not answered since" in down
        server.start()
        async with asyncio.timeout(20):
            while store.condition() != StoreCondition():
                await asyncio.sleep(0.05)
        assert await push(store, full(cluster("b"))) == Commit("g", 2)
        assert store.condition() == StoreCondition()
        await store.close()


async def test_a_watch_of_a_database_that_goes_back_is_reset(server: PostgresServer, url: str) -> None:
    store = await opened(url)
    for n in range(5):
        await push(store, full(cluster("a", b"%d" % n)))
    watch = watch_items(store)
    await start(watch)
    name = url.rpartition("/")[2]
    server.execute("UPDATE xds.seq SET v = 3 WHERE name = 'event'; DELETE FROM xds.event WHERE cursor > 3", name)
    (again,) = await take(watch, 1)
    assert isinstance(again, Reset) and again.cursor == 3
    assert store.condition().behind.startswith("commits up to 5 were there")
    await store.close()


async def test_lost_commits_are_noticed_though_others_have_taken_their_cursors(
    server: PostgresServer, url: str
) -> None:
    """A standby that lagged is promoted, and servers push to it before this one hears of it."""
    store, name = await opened(url), url.rpartition("/")[2]
    for n in range(3):
        await push(store, full(cluster("a", b"%d" % n)))
    server.execute("CREATE SCHEMA standby", name)
    tables = ("type", "grp", "blob", "seq", "revision", "entry", "past", "push", "event")
    for table in tables:
        server.execute(f"CREATE TABLE standby.{table} AS SELECT * FROM xds.{table}", name)
    for n in range(3, 5):
        await push(store, full(cluster("a", b"%d" % n)))
    watch = watch_items(store)
    await start(watch)
    with psycopg.connect(url) as promoted:  # one transaction: the store sees its end alone
        for table in reversed(tables):
            promoted.execute(f"DELETE FROM xds.{table}".encode())
        for table in tables:
            copied = f"INSERT INTO xds.{table} OVERRIDING SYSTEM VALUE SELECT * FROM standby.{table}"
            promoted.execute(copied.encode())
        promoted.execute("SET search_path TO xds")
        for n in range(10, 14):
            change = GroupPush("g", full(cluster("a", b"%d" % n)))
            commit_all(PostgresConnection(promoted), CommitCall([change], f"elsewhere-{n}", Meta(), 0.0))
    (again,) = await take(watch, 1)
    assert isinstance(again, Reset) and again.cursor == 7
    assert store.condition().behind.startswith("commits up to 5 were there")
    await store.close()


async def test_a_turn_ends_though_the_clock_of_the_database_goes_back(server: PostgresServer, url: str) -> None:
    store = await opened(url)
    server.execute("INSERT INTO xds.turn VALUES ('g', 'gone', now() + interval '1 hour')", url.rpartition("/")[2])
    async with asyncio.timeout(60):
        assert await push(store, full(cluster("a"))) == Commit("g", 1)
        async with store.turn(["g"]):
            assert await push(store, full(cluster("b"))) == Commit("g", 2)
    await store.close()


async def test_push_ids_are_kept_for_a_day_by_the_clock_of_the_database(url: str) -> None:
    ahead = PostgresStore(url, clock=lambda: time.time() + 2 * PUSH_IDS_KEPT_S)
    store = await opened(url)
    await ahead.open()
    await push(store, full(cluster("a")), push_id="first")
    for n in range(3):
        await push(ahead, full(cluster("a", b"%d" % n)))
    await ahead.collect(Retention(), await ahead.now_s())
    assert await replayed(store, full(cluster("a")), "first") == Commit("g", 1, replayed=True)
    for each in (store, ahead):
        await each.close()


async def test_no_server_collects_while_another_one_dumps(url: str) -> None:
    first, second = await opened(url), await opened(url)
    for n in range(12):
        await push(first, full(cluster("a", b"%d" % n)))
    records, collecting = list[Record](), None
    async for batch in first.dump():
        collecting = collecting or asyncio.create_task(second.collect(Retention(2, -60.0, 3), time.time()))
        await asyncio.sleep(0.2)
        assert not collecting.done()
        records += batch
    assert collecting is not None and (await collecting).revisions
    await second.restore(lambda: iter(records), replace=True)
    assert (await second.manifest("g", 1)).revision == 1
    for each in (first, second):
        await each.close()


@pytest.mark.timeout(900)
async def test_a_dump_that_lost_its_lock_fails_if_something_was_deleted_meanwhile(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, whatever part of it was made by then."""
    monkeypatch.setattr("xds.store.sql.record_rows.BYTES_PER_STEP", 1)
    for at in count():
        url = server.make_database()
        first, second = await opened(url), await opened(url)
        for n in range(6):
            await push(first, full(cluster("a", b"%d" % n)))
        batches = 0
        with suppress(UnavailableError):
            async for _ in first.dump():
                if batches == at:
                    pid = await first.query(lambda each: each.execute("SELECT pg_backend_pid()").fetchone()[0])
                    server.execute(f"SELECT pg_terminate_backend({pid})")
                    assert (await second.collect(Retention(2, -60.0, 3), time.time())).revisions
                batches += 1
            assert batches <= at, "the backup lacks what was deleted"
        for each in (first, second):
            await each.close()
        if batches <= at:
            break
    assert at > 8


async def enter_turn(store: PostgresStore) -> None:
    async with store.turn({GROUP}):
        pass


async def collect(store: PostgresStore) -> None:
    await store.collect(Retention(), time.time())


@pytest.mark.parametrize("call", [enter_turn, collect])
async def test_a_caller_that_is_cancelled_while_it_takes_a_lock_does_not_keep_it(
    url: str, call: Callable[[PostgresStore], Awaitable[None]]
) -> None:
    one, other = await opened(url), await opened(url)
    busy = asyncio.create_task(one.query(lambda _: time.sleep(0.3)))
    await asyncio.sleep(0)
    cancelled = asyncio.ensure_future(call(one))
    await asyncio.sleep(0.1)
    cancelled.cancel()  # it has been taken when this caller has gone
    await asyncio.gather(busy, cancelled, return_exceptions=True)
    await asyncio.wait_for(call(other), LONGEST_S / 2)
    for each in (one, other):
        await each.close()


async def test_what_postgres_cannot_hold_is_refused_by_its_text(url: str) -> None:
    store = await opened(url)
    with pytest.raises(UnicodeEncodeError):
        await push(store, full(cluster("\ud800")))
    for writing in (push(store, full(cluster("a\0b"))), store.put_doc("kind", "a\0b", b"1")):
        with pytest.raises(ValidationError, match=r"the text 'a\\x00b' contains the character NUL"):
            await writing
    assert await store.put_doc("kind", "a", b"\0") == 1
    too_long = secrets.token_hex(4_000)  # an index holds some 2,700 bytes, of random text
    for writing in (push(store, full(cluster(too_long))), store.put_doc("kind", too_long, b"1")):
        with pytest.raises(ValidationError, match=rf"'{too_long[:SHOWN]}'... \(8000 bytes\) is longer"):
            await writing
    assert (await store.groups(), await push(store, full(cluster("a")))) == ([], Commit("g", 1))
    await store.close()


@pytest.mark.parametrize("at", ["group", "name", "message", "document"])
async def test_a_store_with_a_text_that_postgres_cannot_hold_is_not_taken_over(
    url: str, tmp_path: Path, at: str
) -> None:
    """An earlier release took such texts, and SQLite holds them."""
    source = SqliteStore(tmp_path / "xds.sqlite3")
    await source.open()
    text = {at: "earlier\0text"}
    pushed = GroupPush(text.get("group", "g"), full(cluster("a"), cluster(text.get("name", "b"))))
    await source.commit_all([pushed], push_id="p", meta=Meta(message=text.get("message", "")))
    await source.put_doc("kind", text.get("document", "d"), b"1")
    records = await dumped(source)
    await source.close()
    store = await opened(url)
    await push(store, full(cluster("here")), push_id="p")
    with pytest.raises(ValidationError, match=r"the text 'earlier\\x00text' contains the character NUL"):
        await store.restore(lambda: iter(records), replace=True)
    assert await contents(store, await store.manifest("g")) == [cluster("here")]
    assert await replayed(store, full(cluster("here")), "p") == Commit("g", 1, replayed=True)
    await store.close()


async def test_an_observed_record_that_postgres_cannot_hold_keeps_no_other_one_out(url: str) -> None:
    store = await opened(url)
    unfit = [
        (source, name) for source in ("s", "engine/moved") for name in ("a\0b", secrets.token_hex(4_000), "\ud800")
    ]
    await store.put_observed([ObservedRecord(*key, b"1") for key in [*unfit, ("s", "fit")]], [*unfit, ("s", "gone")])
    assert await store.observed() == [ObservedRecord("s", "fit", b"1")]
    await store.close()


async def test_a_full_disk_refuses_pushes(server: PostgresServer, url: str) -> None:
    store = await opened(url)
    await push(store, full(cluster("a")))
    name = url.rpartition("/")[2]
    server.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$",
        name,
    )
    server.execute("CREATE TRIGGER fail BEFORE INSERT ON xds.blob EXECUTE FUNCTION fail()", name)
    with pytest.raises(OutOfSpaceError, match="no space left in the database xds_"):
        await push(store, full(cluster("b", b"2")))
    assert await store.head("g") == Head("g", 1)
    server.execute("DROP TRIGGER fail ON xds.blob", name)
    assert await push(store, full(cluster("b", b"2"))) == Commit("g", 2)
    await store.close()


async def test_the_url_says_how_the_database_proves_itself(tmp_path: Path) -> None:
    authority, other = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path, "other-ca")
    with PostgresServer(certificate=authority.issue("database", [LOOPBACK])) as server:
        url = server.make_database()
        verified = f"{url}?sslmode=verify-full&sslrootcert="
        store = await opened(f"{verified}{authority.path}")
        await push(store, full(cluster("a")))
        name = url.rpartition("/")[2]
        sessions = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname"
        assert server.execute(f"SELECT count(*), bool_and(ssl) {sessions} = '{name}'") == [(2, True)]
        await store.close()
        assert "certificate verify failed" in await refusal(f"{verified}{other.path}")
        elsewhere = verified.replace(LOOPBACK, "localhost")
        assert 'does not match host name "localhost"' in await refusal(f"{elsewhere}{authority.path}")
    with PostgresServer() as server:
        assert "does not support SSL" in await refusal(
            f"{server.url()}?sslmode=verify-full&sslrootcert={authority.path}"
        )


async def refusal(url: str) -> str:
    with pytest.raises(UnavailableError) as refused:
        await opened(url)
    return str(refused.value)


async def test_limits_of_time_that_a_role_has_are_not_those_of_a_store(server: PostgresServer) -> None:
    server.execute("CREATE USER hurried")
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"):
        server.execute(f"ALTER ROLE hurried SET {name} = '1s'")
    server.execute("ALTER ROLE hurried SET default_transaction_isolation = 'serializable'")
    url = server.make_database("OWNER hurried").replace("postgres@", "hurried@")
    store, other = await opened(url), await opened(url)
    sessions = "SELECT pid FROM pg_stat_activity WHERE usename = 'hurried' ORDER BY pid"
    before = server.execute(sessions)
    busy = asyncio.create_task(other._step(lambda _: time.sleep(3.0)))
    await asyncio.sleep(0.3)
    assert await push(store, full(cluster("a"))) == Commit("g", 1)
    await busy
    await asyncio.sleep(1.0)
    assert len(before) == 4 and server.execute(sessions) == before
    for each in (store, other):
        await each.close()


async def test_an_unfit_database_is_refused(server: PostgresServer, url: str) -> None:
    assert 'database "absent" does not exist' in await refusal(server.url("absent"))
    assert "cannot be used" in await refusal(f"postgresql://{LOOPBACK}:{free_port()}/xds")
    latin = server.make_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert "its encoding is LATIN1" in await refusal(latin)

    name = url.rpartition("/")[2]
    server.execute("CREATE SCHEMA xds; CREATE TABLE xds.orders (id int)", name)
    assert "its schema xds belongs to another program" in await refusal(url)
    server.execute("DROP SCHEMA xds CASCADE", name)
    await (await opened(url)).close()
    server.execute("UPDATE xds.meta SET v = '99' WHERE k = 'schema'", name)
    assert "schema 99, this release supports" in await refusal(url)
    server.execute("UPDATE xds.meta SET v = '5' WHERE k = 'schema'", name)

    server.execute("CREATE USER reader")
    server.execute("GRANT USAGE ON SCHEMA xds TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA xds TO reader", name)
    assert "the user may not write in the database" in await refusal(url.replace("postgres@", "reader@"))
    server.execute("CREATE USER nobody")
    assert "the user may not use its schema xds" in await refusal(url.replace("postgres@", "nobody@"))


def test_an_error_about_a_url_has_no_password() -> None:
    with pytest.raises(ValueError, match="not the URL of a PostgreSQL database") as refused:
        check_url("postgresql://xds:secret@host:port/xds?nonsense=1")
    assert "secret" not in str(refused.value)
    with pytest.raises(ValueError, match="%40 for @") as refused:
        check_url("postgresql://xds:s@ecret@db.internal/xds")
    assert "ecret" not in str(refused.value)
    assert place_of("postgresql://xds:secret@db.internal/fleet") == "the database fleet at db.internal"

"""A store with a copy on this disk: what the copy has, and what it is good for while the database is silent.

The database is one of SQLite in memory that can be silent; `tests.replicas.test_silent_database` has PostgreSQL.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.store.contract import (
    CDS as CLUSTER,
)
from tests.store.contract import (
    cluster,
    contents,
    delta,
    endpoints,
    full,
    push,
)
from tests.support.sansio import make_resource
from xds.backup.backups import copy_store
from xds.codec.record import dump_record
from xds.model.errors import NotFoundError
from xds.store.audit_entries import AuditNote
from xds.store.base import (
    Drop,
    Entry,
    FullSet,
    GroupCommitted,
    Head,
    Meta,
    ObservedRecord,
    OpenNack,
    Reset,
    Rollback,
    SilentError,
    Store,
    UnavailableError,
    blob_id,
)
from xds.store.copy import copier, copy_rows
from xds.store.copy.copied_store import CopiedStore
from xds.store.copy.copy_file import CopyFile
from xds.store.copy.copy_rows import Kept
from xds.store.engines import SQLITE_FILE
from xds.store.retention import StoreCondition
from xds.store.sql.connection import Job, SqlConnection
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryDatabase

T = TypeVar("T")

CONDITION_BEHIND = StoreCondition(behind="commits are missing")
KEPT = Kept(revisions=3, seconds=0.0, limit=50)
WAIT_S = 20.0


class AwayDatabase(MemoryDatabase):
    """A database that does not answer while it ``is_away``."""

    is_away = False

    def open(self) -> None:
        self._check()
        super().open()

    def read(self, job: Job[T]) -> T:
        self._check()
        return super().read(job)

    def write(self, job: Job[T]) -> T:
        self._check()
        return super().write(job)

    def _check(self) -> None:
        if self.is_away:
            raise SilentError("nobody answers")


class SharedStore(CopiedStore):
    """Tries its database again after each job, and when there is none."""

    def _after_job(self) -> None:
        self._may_join = True
        super()._after_job()

    def _sizes(self, connection: SqlConnection) -> tuple[int, int]:
        return 0, 0


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier, "PAUSE_S", 0.01)
    monkeypatch.setattr(copier, "RETRY_S", 0.1)
    monkeypatch.setattr(copier, "OBSERVED_EVERY_S", 0.05)


@pytest.fixture
def database() -> AwayDatabase:
    return AwayDatabase()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "copy.sqlite3"


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def shared(database: AwayDatabase, path: Path) -> SharedStore:
    return SharedStore(database, path, lambda: KEPT)


async def until(condition: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    async def poll() -> None:
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), WAIT_S)


async def copied(store: CopiedStore) -> None:
    """Wait until all that is committed now is in the copy."""
    assert store._copier is not None
    newest = await store.newest_cursor()
    await until(lambda: store._copier is not None and store._copier.copied_cursor >= newest)


async def fill(store: Store) -> None:
    await push(store, full(cluster("a"), cluster("b"), endpoints("a")))
    await push(store, delta(cluster("a", b"2"), cluster("c")))
    await push(store, full(cluster("c"), cluster("b")), push_id="x")
    await push(store, full(cluster("z"), label="mine"), group="other")
    await push(store, full(cluster("y")), group="gone")
    await push(store, Drop(), group="gone")
    await store.put_doc("settings", "g", b"{}")
    await store.put_doc("settings", "g", b"{1}")
    await store.put_doc("policy", "p", b"p")
    await store.put_doc("policy", "p", None)


async def pictured(store: Store, since: int = 0) -> list[object]:
    """All that a start reads, of a group from a revision on."""
    picture: list[object] = [await store.groups(), [await store.docs(kind) for kind in ("settings", "policy")]]
    for group in ("g", "other", "gone"):
        head = await store.head(group)
        lines = [line for line in await store.history(group, limit=100) if line.revision >= since]
        picture += [head, lines]
        if head is not None and head.live:
            manifest = await store.manifest(group)
            lifetimes = sorted(await store.lifetimes(group, since), key=str)
            picture += [manifest, await contents(store, manifest), lifetimes]
    return picture


async def test_the_copy_has_what_a_start_reads(database: AwayDatabase, path: Path) -> None:
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        await fill(store)
        await store.put_nacks([OpenNack(7, "n", "t", b"body")])
        await store.put_observed([ObservedRecord("dns", "web", b"set")])
        await copied(store)
        picture = await pictured(store)
        assert store.condition().copy == ""
        await asyncio.sleep(0.2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with opened(SqliteStore(path)) as copy:  # an ordinary store file
        assert await pictured(copy) == picture
        assert await copy.nacks() == [OpenNack(7, "n", "t", b"body")]
        assert await copy.observed() == [ObservedRecord("dns", "web", b"set")]
        commit = await push(copy, full(cluster("w")))
        assert await copy.head("g") == Head("g", commit.revision)


async def test_a_server_whose_database_is_silent_reads_the_copy_and_then_the_database(
    database: AwayDatabase, path: Path
) -> None:
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        await fill(store)
        await copied(store)
        picture, newest = await pictured(store), await store.newest_cursor()
    database.is_away = True
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        assert store.condition().cut_off_s > 0 and store.condition().read_only
        assert (await pictured(store), await store.newest_cursor()) == (picture, newest)
        watch = store.watch(newest)
        waiting = asyncio.ensure_future(anext(watch))
        for write in (
            push(store, full(cluster("n"))),
            store.put_doc("settings", "g", b"{2}"),
            store.put_nacks([OpenNack(8, "n", "t", b"body")]),
            store.note([AuditNote("push", "g")]),
        ):
            with pytest.raises(UnavailableError, match="nothing can be written"):
                await write
        assert not waiting.done()
        await asyncio.sleep(0.1)
        database.is_away = False
        (reset,) = await asyncio.wait_for(waiting, WAIT_S)
        assert isinstance(reset, Reset) and {head.group for head in reset.groups} == {"g", "other"}
        assert store.condition().cut_off_s == 0 and not store.condition().read_only
        assert (await push(store, full(cluster("n")))).revision == 4
        (committed,) = await asyncio.wait_for(anext(watch), WAIT_S)
        assert isinstance(committed, GroupCommitted)
        await copied(store)
        picture = await pictured(store, 2)
    async with opened(SqliteStore(path)) as copy:
        assert await pictured(copy, 2) == picture


async def test_the_copy_is_a_way_back(database: AwayDatabase, path: Path, tmp_path: Path) -> None:
    record = dump_record(make_resource(CLUSTER, "a", "1"))
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        for label in ("one", "two"):
            change = FullSet((Entry(CLUSTER, "a", blob_id(record)),), {blob_id(record): record}, label)
            await push(store, change, group="g")
        await push(store, delta(delete=((CLUSTER, "a"),)), group="g")
        await push(store, FullSet((Entry(CLUSTER, "a", blob_id(record)),), {blob_id(record): record}), group="g")
        await store.put_doc("settings", "g", b"{}")
        await copied(store)
        manifest = await store.manifest("g")
    found = await copy_store(str(path), str(tmp_path / "new"))
    assert (found.findings, found.groups["g"]) == ([], f"intact at revision {manifest.revision}")
    async with opened(SqliteStore(tmp_path / "new" / SQLITE_FILE)) as new:
        assert await new.manifest("g") == manifest
        assert [document.body for document in await new.docs("settings")] == [b"{}"]


async def test_the_copy_goes_back_to_the_base_of_a_rollout(database: AwayDatabase, path: Path) -> None:
    """Nodes outside of its wave are served the base, also by a server that starts while the database is away."""
    store = SharedStore(database, path, lambda: KEPT._replace(pinned={"g": 2}))
    async with opened(store):
        for number in range(20):
            await push(store, full(cluster("a", b"%d" % number)))
            await push(store, full(cluster("a", b"%d" % number)), group="other")
        await copied(store)
    database.is_away = True
    async with opened(SharedStore(database, path, lambda: KEPT)) as copy:
        assert (await copy.manifest("g", 2)).revision == 2
        with pytest.raises(NotFoundError):
            await copy.manifest("other", 2)


async def test_without_a_copy_a_silent_database_is_waited_for(database: AwayDatabase, path: Path) -> None:
    database.is_away = True
    store = shared(database, path)
    with pytest.raises(SilentError):
        await store.open()
    assert "there is no copy" in store.condition().copy
    database.is_away = False
    async with opened(store):
        await fill(store)
        await copied(store)
        assert store.condition() == StoreCondition()


def _break_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192 : 3 * 8192] = bytes(2 * 8192)
    path.write_bytes(data)


def _lose(statement: str, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_break_pages, "damaged"),
        (partial(_lose, "DELETE FROM entry WHERE name = 'b'"), "group 'g' has 1 of 2 resources"),
        (partial(_lose, "UPDATE blob SET data = x'00' WHERE id = 1"), "is damaged"),
        (partial(_lose, "DELETE FROM blob"), "is missing"),
        (lambda path: path.write_bytes(b"no database"), "damaged or not a store"),
    ],
)
async def test_a_damaged_copy_is_told_and_not_used(
    database: AwayDatabase, path: Path, damage: Callable[[Path], None], told: str
) -> None:
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        await fill(store)
        await copied(store)
        picture = await pictured(store)
    damage(path)
    database.is_away = True
    store = shared(database, path)
    with pytest.raises(SilentError):
        await store.open()
    assert told in store.condition().copy and "is not used" in store.condition().copy
    database.is_away = False
    async with opened(shared(database, path)) as again:  # it is made anew
        assert isinstance(again, SharedStore)
        await until(lambda: again._copier is not None and again._copier.copied_s > 0)
        assert again.condition().copy == ""
    async with opened(SqliteStore(path)) as copy:
        assert await pictured(copy) == picture


async def test_a_copy_that_another_process_has_open_is_used_when_that_has_ended(
    database: AwayDatabase, path: Path
) -> None:
    """The server that is replaced may not have ended yet."""
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        await fill(store)
        await copied(store)
    database.is_away = True
    store = shared(database, path)
    async with opened(SqliteStore(path)) as former:
        await push(former, full(cluster("w")))
        with pytest.raises(SilentError):
            await store.open()
        assert "is not used" in store.condition().copy
    async with opened(store):
        assert await store.head("g") == Head("g", 4)
        assert store.condition().copy == ""


async def test_a_full_disk_stops_the_copy_and_nothing_else(
    database: AwayDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "CopyFile", partial(CopyFile, max_bytes=400_000))
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        await fill(store)
        await copied(store)
        await push(store, full(*(cluster(f"c{number}", bytes([number]) * 50_000) for number in range(40))))
        await until(lambda: "no space left" in store.condition().copy)
        assert (await push(store, full(cluster("a")))).revision == 5
        monkeypatch.setattr(copier, "CopyFile", CopyFile)
        await copied(store)
        assert store.condition().copy == ""


async def test_the_copy_keeps_no_more_than_it_needs(
    database: AwayDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "COLLECT_EVERY_S", 0.1)
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        for number in range(30):
            await push(store, full(cluster("a", b"%d" % number), cluster("b")))
            await copied(store)
        await asyncio.sleep(0.5)
        picture = await recent(store, "g", 30 - KEPT.revisions)
        assert len(await store.history("g", limit=100)) == 30
    async with opened(SqliteStore(path)) as copy:
        lines = [line for line in await copy.history("g", limit=100) if line.content]
        assert len(lines) == KEPT.revisions + 1
        assert (await copy.stats()).blobs == KEPT.revisions + 2
        assert await recent(copy, "g", 30 - KEPT.revisions) == picture


async def test_a_collection_amid_copying_leaves_the_copy_whole(
    database: AwayDatabase, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies are there before the rows that name them."""
    monkeypatch.setattr(copier, "COLLECT_EVERY_S", 0.0)
    monkeypatch.setattr(copier, "BLOBS_AT_ONCE", 1)
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        for number in range(5):
            await push(store, full(*(cluster(f"c{each}", b"%d-%d" % (number, each)) for each in range(20))))
            await copied(store)
    async with opened(CopyFile(path)) as copy:
        assert isinstance(copy, CopyFile)
        assert await copy.query(copy_rows.find_damage) == ""


async def test_a_database_that_went_back_does_not_take_the_copy_back(database: AwayDatabase, path: Path) -> None:
    store = shared(database, path)
    store.condition = lambda: CONDITION_BEHIND  # type: ignore[method-assign]
    async with opened(store):
        await fill(store)
        await copied(store)
    older = AwayDatabase()
    behind = shared(older, path)
    behind.condition = lambda: CONDITION_BEHIND  # type: ignore[method-assign]
    async with opened(behind):
        await push(behind, full(cluster("old")))
        await copied(behind)
    async with opened(SqliteStore(path)) as copy:
        head = await copy.head("g")
        assert head is not None and head.revision == 3
    async with opened(shared(older, path)) as confirmed:
        assert isinstance(confirmed, SharedStore)
        await until(lambda: confirmed._copier is not None and confirmed._copier.copied_s > 0)
    async with opened(SqliteStore(path)) as copy:
        head = await copy.head("g")
        assert head is not None and head.revision == 1


async def test_a_restore_and_pushes_beyond_it_leave_nothing_of_before_in_the_copy(
    database: AwayDatabase, path: Path
) -> None:
    """The restored group is at a later revision again when the copy looks."""
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore) and store._copier is not None

        async def commit(number: int, before: int, after: int) -> None:
            change = full(cluster("a", bytes([before])), cluster("b", bytes([after])))
            await store.commit("g", change, push_id=f"push-{number}", meta=Meta(time_s=float(number)))

        await commit(1, 1, 0)
        records = [record async for batch in store.dump() for record in batch]
        for number in range(2, 5):
            await commit(number, number, 0)
        await copied(store)
        copy_everything, may_copy = store._copier._copy_everything, asyncio.Event()

        async def later(copy: CopyFile) -> None:
            await may_copy.wait()
            await copy_everything(copy)

        store._copier._copy_everything = later  # type: ignore[method-assign]
        await store.restore(lambda: iter(records), replace=True)
        for number in range(11, 16):
            await commit(number, 1, number)
        may_copy.set()
        await copied(store)
        assert store.condition().copy == ""
        expected = await recent(store, "g", 6 - KEPT.revisions)
    async with opened(SqliteStore(path)) as copy:
        assert await recent(copy, "g", 6 - KEPT.revisions) == expected


@pytest.mark.parametrize("seed", range(4))
async def test_random_changes_make_the_copy_equal_to_the_store(database: AwayDatabase, path: Path, seed: int) -> None:
    choose = random.Random(seed)
    async with opened(shared(database, path)) as store:
        assert isinstance(store, SharedStore)
        for number in range(60):
            group = choose.choice(("g", "other", "gone"))
            await change(store, choose, group, number)
            if choose.random() < 0.3:
                await copied(store)
        await copied(store)
        heads = [await store.head(group) for group in ("g", "other", "gone")]
        floors = {head.group: max(1, head.revision - KEPT.revisions) for head in heads if head is not None}
        expected = {group: await recent(store, group, floor) for group, floor in floors.items()}
        documents = await store.docs("settings")
    async with opened(SqliteStore(path)) as copy:
        assert {group: await recent(copy, group, floor) for group, floor in floors.items()} == expected
        assert await copy.docs("settings") == documents


async def change(store: Store, choose: random.Random, group: str, number: int) -> None:
    names = [f"n{each}" for each in range(8)]
    some = [cluster(name, bytes([choose.randrange(3)])) for name in choose.sample(names, choose.randrange(6))]
    meta = Meta(time_s=float(number))
    try:
        match choose.randrange(6):
            case 0 | 1:
                await store.commit(group, full(*some), push_id=str(number), meta=meta)
            case 2 | 3:
                await store.commit(group, delta(*some), push_id=str(number), meta=meta)
            case 4:
                head = await store.head(group)
                back = Rollback(choose.randint(1, head.revision) if head is not None else 1)
                await store.commit(group, back, push_id=str(number), meta=meta)
            case _:
                await store.commit(group, Drop(), push_id=str(number), meta=meta)
        await store.put_doc("settings", group, bytes([choose.randrange(3)]))
    except NotFoundError:
        pass


async def recent(store: Store, group: str, floor: int) -> list[object]:
    """What a start reads of a group, from the oldest revision that the copy keeps."""
    lines = [line for line in await store.history(group, limit=100) if line.revision >= floor]
    content: list[object] = [await store.head(group), [(line.revision, line.versions, line.live) for line in lines]]
    content += [set((await store.manifest(group, line.revision)).entries) for line in lines if line.live]
    if lines and lines[0].live:
        manifest = await store.manifest(group)
        content += [manifest, await contents(store, manifest)]
    content.append(sorted(await store.lifetimes(group, floor), key=str))
    return content

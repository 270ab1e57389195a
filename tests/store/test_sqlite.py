"""SQLite fulfils the contract, and what is its own: restarts, kill -9, a second process, full and broken disks."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from stat import S_IMODE

import pytest

from tests.store.audit_contract import AuditContract
from tests.store.child import line, process
from tests.store.contract import (
    CDS,
    EDS,
    READER_BUFFER,
    WAIT_S,
    StoreContract,
    cluster,
    contents,
    delta,
    endpoints,
    full,
    push,
    push_knowing,
    replayed,
    start,
    take,
    watch_items,
)
from tests.store.derived_contract import DerivedContract
from tests.store.earlier_schemas import TO_SCHEMA_1, TO_SCHEMA_2, TO_SCHEMA_3
from tests.store.process import GROUP, content_at
from xds.store import base
from xds.store.audit_entries import AuditNote
from xds.store.base import (
    Commit,
    CorruptError,
    Delta,
    Drop,
    GroupCommitted,
    GroupPush,
    Head,
    Meta,
    ObservedRecord,
    OpenNack,
    OutOfSpaceError,
    Reset,
    ReusedPushIdError,
    Rollback,
    Store,
    StoredContent,
    UnavailableError,
    blob_id,
)
from xds.store.engines import open_store
from xds.store.postgres.engine import PostgresStore
from xds.store.retention import Retention
from xds.store.sql import tables
from xds.store.sql.worker import PENDING_LIMIT, Worker
from xds.store.sqlite import schema
from xds.store.sqlite.database import CHECKPOINT_ROWS
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.files import file_system
from xds.store.sqlite.memory import MemoryStore

ROOT = Path(__file__).parents[2]
KILLS, SOAK_KILLS = 3, 40

Open = Callable[..., Awaitable[SqliteStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "xds.sqlite3"


@pytest.fixture
async def opened(path: Path) -> AsyncIterator[Open]:
    """Opens stores on ``path`` with the options given, and closes them in the end."""
    stores: list[SqliteStore] = []

    async def open(max_bytes: int | None = None, clock: Callable[[], float] = time.time) -> SqliteStore:
        stores.append(SqliteStore(path, max_bytes=max_bytes, reader_buffer=READER_BUFFER, clock=clock))
        await stores[-1].open()
        return stores[-1]

    yield open
    for store in stores:
        await store.close()


class TestSqliteStore(AuditContract, DerivedContract, StoreContract):
    @pytest.fixture
    async def store(self, opened: Open) -> Store:
        return await opened()


async def test_a_restart_keeps_heads_versions_documents_and_push_ids(opened: Open) -> None:
    before = await opened()
    await push(before, full(cluster("a"), endpoints("x"), label="v1"), push_id="p")
    await push(before, delta(endpoints("x", b"2")))
    await push(before, full(cluster("a")), group="dropped")
    await push(before, Drop(), group="dropped")
    await before.put_doc("token", "t", b"1")
    manifests = [await before.manifest("g", revision) for revision in (1, 2)]
    history = await before.history("g")
    await before.close()

    after = await opened()
    assert await after.groups() == [Head("g", 2)]
    assert [await after.manifest("g", revision) for revision in (1, 2)] == manifests
    assert manifests[1].versions == {CDS: "v1", EDS: "2"}
    assert await contents(after, manifests[1]) == [cluster("a"), endpoints("x", b"2")]
    assert await after.history("g") == history
    again = full(cluster("a"), endpoints("x"), label="v1")
    assert await push(after, again, push_id="p") == Commit("g", 1, replayed=True)
    with pytest.raises(ReusedPushIdError):
        await push(after, full(), push_id="p")
    assert await after.put_doc("token", "t", b"2", expect=1) == 2
    assert await push(after, full(cluster("a")), group="dropped") == Commit("dropped", 3)


async def test_a_watch_continues_after_its_cursor_after_a_restart(opened: Open) -> None:
    before = await opened()
    watch = watch_items(before)
    await start(watch)
    await push(before, full(cluster("a")))
    (seen,) = await take(watch, 1)
    await push(before, delta(cluster("b")))
    await before.close()

    after = await opened()
    resumed = watch_items(after, seen.cursor)
    await push(after, delta(cluster("c")))
    items = await take(resumed, 2)
    assert [item.head.revision for item in items if isinstance(item, GroupCommitted)] == [2, 3]


async def test_a_cursor_older_than_the_events_kept_is_reset(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xds.store.sql.ledger.EVENTS_KEPT", 3)
    store = await opened()
    watch = watch_items(store)
    await start(watch)
    for n in range(5):
        await push(store, full(cluster("a", b"%d" % n)))
    cursors = [item.cursor for item in await take(watch, 5)]
    assert await take(watch_items(store, cursors[1]), 3) == [
        GroupCommitted(Head("g", n), cursor) for n, cursor in zip((3, 4, 5), cursors[2:], strict=True)
    ]
    assert await take(watch_items(store, cursors[0]), 1) == [Reset((Head("g", 5),), cursors[-1])]


async def test_a_clock_that_is_set_between_restarts_stops_no_push(opened: Open) -> None:
    """Revisions grow whatever the clock says; only their times may then be in another order."""
    for number, shift_days in enumerate((0, 400, -400, 0), start=1):
        store = await opened(clock=lambda days=shift_days: time.time() + days * 86_400)
        commit = await push(store, full(cluster("a", bytes((number,)))))
        assert (commit.revision, commit.replayed) == (number, False)
        assert await contents(store, await store.manifest("g", number)) == [cluster("a", bytes((number,)))]
        assert [line.revision for line in await store.history("g")] == list(range(number, 0, -1))
        await store.close()


async def test_push_ids_are_kept_for_a_day(opened: Open) -> None:
    now_s = 1000.0
    store = await opened(clock=lambda: now_s)
    await push(store, full(cluster("a")), push_id="old")
    now_s += base.PUSH_IDS_KEPT_S
    await push(store, full(cluster("b")), push_id="second")
    assert await replayed(store, full(cluster("a")), "old") == Commit("g", 1, replayed=True)
    now_s += 1
    await push(store, full(cluster("c")), push_id="third")
    assert await replayed(store, full(cluster("a")), "old") is None
    assert await replayed(store, full(cluster("b")), "second") == Commit("g", 2, replayed=True)


async def test_closing_finishes_pending_commits(opened: Open) -> None:
    store = await opened()
    pending = [asyncio.create_task(push(store, full(cluster("a", b"%d" % n)))) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert [commit.revision for commit in await asyncio.gather(*pending)] == list(range(1, 21))
    assert await (await opened()).head("g") == Head("g", 20)


async def test_the_log_is_brought_into_the_file_behind_a_large_push(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(*(cluster(f"c{n}", b"%1000d" % n) for n in range(CHECKPOINT_ROWS))))
    await store.groups()  # behind the checkpoint, which is done between two calls
    assert path.stat().st_size > 1000 * CHECKPOINT_ROWS


async def test_all_and_some_of_a_group_replaced_can_both_be_read_back(opened: Open) -> None:
    store = await opened()
    contents_by_revision = [b"one", b"two", b"three", b"three"]
    for body in contents_by_revision[:3]:  # every row is replaced
        await push(store, full(cluster("a", body), cluster("b", body)))
    await push(store, full(cluster("b", b"three"), cluster("c", b"three")))  # one goes, one comes, one stays
    await push(store, full(cluster("d", b"five")))  # all go, another comes
    for revision, body in enumerate(contents_by_revision, 1):
        names = ["b", "c"] if revision == 4 else ["a", "b"]
        held = await contents(store, await store.manifest("g", revision))
        assert held == [(CDS, name, body) for name in names]


async def test_more_calls_than_may_wait_are_refused() -> None:
    worker = Worker("test")
    met, go_on = threading.Barrier(2), threading.Event()

    def occupy() -> bool:
        met.wait(WAIT_S)
        return go_on.wait(WAIT_S)

    first = worker.submit(occupy)
    await asyncio.to_thread(met.wait, WAIT_S)
    waiting = [worker.submit(partial(str, n)) for n in range(PENDING_LIMIT)]
    with pytest.raises(UnavailableError, match="busy"):
        worker.submit(lambda: 0)
    last = worker.finish(lambda: "last")
    go_on.set()
    assert await asyncio.gather(first, *waiting, last) == [True, *map(str, range(PENDING_LIMIT)), "last"]


async def test_the_file_and_its_directory_are_private(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(cluster("a")))
    assert S_IMODE(path.parent.stat().st_mode) == 0o700
    note = path.with_name("xds.sqlite3.acknowledged")
    while not note.exists():  # written behind the push
        await asyncio.sleep(0.01)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["xds.sqlite3", "xds.sqlite3-wal", note.name]
    assert [S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600, 0o600]


async def test_the_settings_that_durability_rests_on(opened: Open, path: Path) -> None:
    await (await opened()).close()
    connection = sqlite3.connect(path, isolation_level=None)
    schema.configure(connection, None)
    names = ("page_size", "journal_mode", "synchronous", "locking_mode", "foreign_keys", "auto_vacuum")
    values = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    assert values == [8192, "wal", 2, "exclusive", 1, 2]
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_a_second_process_is_refused(opened: Open, path: Path) -> None:
    store = await opened()
    async with process("open", path) as second:
        assert "UnavailableError" in (answer := await line(second))
        assert "in use by another process" in answer
    await push(store, full(cluster("a")))
    await store.close()
    async with process("open", path) as second:
        assert await line(second) == "open"
        with pytest.raises(UnavailableError, match="in use by another process"):
            await opened()
    assert await (await opened()).head("g") == Head("g", 1)


async def test_blobs_falsely_declared_known_are_not_written(opened: Open) -> None:
    store = await opened()
    await push(store, full(cluster("a"), cluster("b")))
    false = StoredContent(1, {(CDS, name): blob_id(b"1") for name in ("a", "c")})
    with pytest.raises(CorruptError, match="1 of 2"):
        await push_knowing(store, full(cluster("a", b"2"), cluster("c", b"2")), false)
    assert await contents(store, await store.manifest("g")) == [cluster("a"), cluster("b")]


async def test_a_second_store_in_the_same_process_is_refused(opened: Open) -> None:
    await opened()
    with pytest.raises(UnavailableError, match="in use"):
        await opened()


async def kill_while_committing(path: Path, at_least: int) -> int:
    """Kill -9 a committing process; the last revision it acknowledged."""
    async with process("commit", path) as child:
        for _ in range(at_least):
            acknowledged = await line(child)
        child.kill()
        while more := await line(child):
            acknowledged = more
    return int(acknowledged)


async def check_nothing_lost(path: Path, acknowledged: int) -> None:
    store = SqliteStore(path)
    await store.open()
    head = await store.head(GROUP)
    assert head is not None
    assert head.revision in {acknowledged, acknowledged + 1}  # the last may have been written and not yet told
    for revision in {1, acknowledged, head.revision}:
        assert await contents(store, await store.manifest(GROUP, revision)) == content_at(revision)
        change = full(*content_at(revision))
        assert await replayed(store, change, f"p{revision}") == Commit(GROUP, revision, replayed=True)
    await store.close()


async def test_kill_9_loses_nothing_acknowledged(path: Path) -> None:
    for kill in range(KILLS):
        await check_nothing_lost(path, await kill_while_committing(path, at_least=5 + 7 * kill))


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_kill_9_many_times_loses_nothing_acknowledged(path: Path) -> None:
    for kill in range(SOAK_KILLS):
        await check_nothing_lost(path, await kill_while_committing(path, at_least=20 + 13 * kill))


async def test_a_full_disk_refuses_pushes_and_serves_on(opened: Open) -> None:
    store = await opened(max_bytes=1 << 20)
    await push(store, full(cluster("a")))
    big = delta(cluster("big", bytes(2 << 20)))
    for _ in range(2):
        with pytest.raises(OutOfSpaceError, match="Free or add space"):
            await push(store, big, push_id="big")
    assert await replayed(store, big, "big") is None
    assert await contents(store, await store.manifest("g")) == [cluster("a")]
    assert await push(store, delta(cluster("b"))) == Commit("g", 2)
    await store.close()
    roomier = await opened()
    assert await push(roomier, big, push_id="big") == Commit("g", 3)


async def test_after_an_io_error_the_file_is_opened_again(path: Path) -> None:
    async with process("file-limit", path) as child:
        assert "UnavailableError" in await line(child)
        assert await line(child) == "recovered"


async def test_a_removed_file_is_not_created_again(path: Path) -> None:
    async with process("vanish", path) as child:
        assert "UnavailableError" in await line(child)
        assert "moved or deleted" in await line(child)
    assert not path.exists()


# As root every permission check passes, so these places are ones where nobody can make a directory.
@pytest.mark.parametrize("place", ["/proc/xds-data", "file/data", "file"])
async def test_an_unwritable_directory_is_reported(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    store = open_store("sqlite", tmp_path / place)
    with pytest.raises(UnavailableError, match="cannot keep data in"):
        await store.open()
    with pytest.raises(UnavailableError):
        await store.groups()
    await store.close()


async def test_a_directory_in_place_of_the_file_is_reported(opened: Open, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(UnavailableError):
        await opened()


async def test_a_file_that_is_no_database_is_reported(opened: Open, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database " * 1000)
    with pytest.raises(CorruptError, match="is damaged or not a store"):
        await opened()
    assert path.read_bytes() == b"not a database " * 1000


def alter(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


async def test_a_newer_schema_is_refused(opened: Open, path: Path) -> None:
    await (await opened()).close()
    alter(path, "UPDATE meta SET v = '99' WHERE k = 'schema'")
    with pytest.raises(UnavailableError, match="schema 99"):
        await opened()
    alter(path, "UPDATE meta SET v = ? WHERE k = 'schema'", str(tables.SCHEMA_VERSION))
    assert await (await opened()).groups() == []


async def test_a_file_of_schema_2_keeps_its_versions_and_its_history(opened: Open, path: Path) -> None:
    store = await opened()
    await store.commit("g", full(cluster("a"), label="v1"), push_id="p", meta=Meta("ann", "first", 1.0))
    await store.commit("g", delta(endpoints("a")), push_id="q", meta=Meta("bob", "second", 2.0))
    await store.commit("g", Drop(), push_id="r", meta=Meta("cat", "gone", 3.0))
    await push(store, full(cluster("h")), group="h")
    manifests = [await store.manifest("g", revision) for revision in (1, 2)]
    await store.close()
    for statement in TO_SCHEMA_2:
        alter(path, statement)

    store = await opened()
    assert [await store.manifest("g", revision) for revision in (1, 2)] == manifests
    assert manifests[1].versions[CDS] == "v1"
    lines = await store.history("g")
    # What a push was is not known of before: it counts as one of configuration, and is kept as such.
    assert [(line.kind, line.meta.author, line.endpoints_only, line.undone_by) for line in lines] == [
        ("delete", "cat", False, 0),
        ("push", "bob", False, 0),
        ("push", "ann", False, 0),
    ]
    page = await store.audit()
    assert (page.entries, page.lagged) == ((), False)
    assert (await push(store, full(cluster("a"), label="v1"), push_id="p")).replayed
    back = GroupPush("g", Rollback(1), note=AuditNote("restore", "team", group="g"))
    assert await store.commit_all([back], push_id="s") == [Commit("g", 4)]
    assert (await store.history("g"))[0].kind == "restore"
    (entry,) = (await store.audit(page.cursor)).entries
    assert (entry.note.actor, entry.note.revision) == ("team", 4)


async def test_the_audit_list_survives_a_restart_and_its_cursors_do(opened: Open) -> None:
    store = await opened()
    await store.note([AuditNote("released", "ann", time_s=1.0)])
    page = await store.audit()
    await store.note([AuditNote("released", "bob", time_s=2.0)])
    await store.close()
    later = await (await opened()).audit(page.cursor)
    assert ([entry.note.actor for entry in later.entries], later.lagged) == (["bob"], False)


async def test_a_write_that_fails_leaves_no_note(opened: Open) -> None:
    store = await opened(max_bytes=1 << 20)
    with pytest.raises(OutOfSpaceError):
        note = AuditNote("push", "ann")
        await store.commit_all([GroupPush("g", full(cluster("a", bytes(2 << 20))), note=note)], push_id="p")
    with pytest.raises(OutOfSpaceError):
        await store.put_doc("token", "t", bytes(2 << 20), note=AuditNote("token", "ann"))
    assert (await store.audit()).entries == ()


async def test_a_file_of_schema_1_is_brought_up_to_date(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(cluster("a")), push_id="p")
    await push(store, delta(cluster("a", b"2")))
    await store.close()
    for statement in TO_SCHEMA_1:
        alter(path, statement)
    store = await opened()
    assert await contents(store, await store.manifest("g", 1)) == [cluster("a")]
    # What was asked for then is not known: the id alone decides.
    assert await push(store, full(cluster("b")), push_id="p") == Commit("g", 1, replayed=True)
    assert (await store.collect(Retention(revisions=1), 1e10)).blobs == 1
    await store.close()
    assert await (await opened()).groups() == [Head("g", 2)]


async def test_a_file_of_schema_2_is_brought_up_to_date(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(cluster("a")))
    await store.close()
    for statement in TO_SCHEMA_2:
        alter(path, statement)
    store = await opened()
    nack = OpenNack(7, "n", CDS, b"why")
    await store.put_nacks([nack])
    await store.close()
    store = await opened()
    assert (await store.nacks(), await store.groups()) == ([nack], [Head("g", 1)])


async def test_a_file_of_schema_3_is_brought_up_to_date(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(cluster("a")))
    await store.close()
    for statement in TO_SCHEMA_3:
        alter(path, statement)
    store = await opened()
    record = ObservedRecord("consul", "web", b"{}")
    await store.put_observed([record])
    await store.close()
    store = await opened()
    assert (await store.observed(), await store.groups()) == ([record], [Head("g", 1)])


SCHEMA_4 = ROOT / "tests/e2e/earlier_releases/3582321c/data.tar.xz"  # with 20 events and 24 audit entries


def columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The columns of each table, without their defaults, and the indices."""
    with closing(sqlite3.connect(path)) as connection:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        names = [name for (name,) in connection.execute(tables)]
        found = {name: list(connection.execute(f"PRAGMA table_info({name})")) for name in names}
        indices = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name")
        return {
            **{name: sorted((row[1], row[2], row[3], row[5]) for row in found[name]) for name in found},
            "indices": list(indices),
        }


async def test_a_file_of_schema_4_continues_its_revisions(opened: Open, path: Path, tmp_path: Path) -> None:
    with tarfile.open(SCHEMA_4) as archive:
        archive.extractall(path.parent, filter="data")
    with closing(sqlite3.connect(path)) as connection:
        audited = connection.execute("SELECT position, id, actor, body FROM audit ORDER BY position").fetchall()
        events = connection.execute("SELECT * FROM event ORDER BY cursor").fetchall()
        (epoch,) = connection.execute("SELECT v FROM meta WHERE k = 'audit_epoch'").fetchone()
    assert (len(audited), len(events)) == (24, 20)

    store = await opened()
    page = await store.audit(f"{epoch}-20")
    assert ([entry.position for entry in page.entries], page.lagged) == ([21, 22, 23, 24], False)
    assert [item.cursor for item in await take(watch_items(store, 12), 8)] == list(range(13, 21))
    await push(store, full(cluster("a")), group="new")
    await store.note([AuditNote("released", "ann", time_s=1e10)])
    (item,) = await take(watch_items(store, 20), 1)
    assert item.cursor == 21
    assert [entry.id for entry in (await store.audit(page.cursor)).entries] == [25]
    await store.close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM event ORDER BY cursor LIMIT 20").fetchall() == events
        kept = connection.execute("SELECT position, id, actor, body FROM audit ORDER BY position LIMIT 24").fetchall()
        assert kept == audited
    fresh = SqliteStore(tmp_path / "fresh" / "xds.sqlite3")
    await fresh.open()
    await fresh.close()
    assert columns(path) == columns(tmp_path / "fresh" / "xds.sqlite3")


async def test_a_sqlite_without_returning_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    for store in (opened, MemoryStore().open):
        with pytest.raises(UnavailableError, match=r"SQLite 3\.34\.1, and the store needs 3\.35 or newer"):
            await store()


async def test_a_database_of_another_program_is_refused(opened: Open, path: Path) -> None:
    path.parent.mkdir()
    alter(path, "CREATE TABLE theirs (x)")
    with pytest.raises(UnavailableError, match="another program"):
        await opened()


async def test_a_damaged_blob_is_not_served(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(cluster("a", b"sound"), cluster("b")))
    await store.close()
    alter(path, "UPDATE blob SET data = ? WHERE data = ?", b"rotten", b"sound")
    store = await opened()
    manifest = await store.manifest("g")
    with pytest.raises(CorruptError, match="does not match its hash"):
        await contents(store, manifest)
    assert await store.blobs([manifest.entries[1].blob_id]) == {manifest.entries[1].blob_id: b"1"}


async def test_a_manifest_with_lost_rows_is_not_served(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(cluster("a"), cluster("b")))
    await store.close()
    alter(path, "DELETE FROM entry WHERE name = 'b'")
    with pytest.raises(CorruptError, match="1 of 2"):
        await (await opened()).manifest("g")


async def test_a_cancelled_close_still_closes(opened: Open, path: Path) -> None:
    store = await opened()
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await store.close()
    await opened()


async def test_a_delta_writes_a_row_not_the_whole_group(opened: Open, path: Path) -> None:
    store = await opened()
    await push(store, full(*(cluster(f"c{n}") for n in range(500))))
    for n in range(5):
        await push(store, delta(cluster("c7", b"v%d" % n)))
    whole = full(*(cluster(f"c{n}") for n in range(500)), endpoints("x"))
    await push(store, Delta(whole.entries, (), whole.blobs))
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM past").fetchone() == (6,)
    assert connection.execute("SELECT count(*) FROM entry").fetchone() == (501,)
    connection.close()


def test_the_file_system_of_a_path_is_that_of_its_innermost_mount() -> None:
    mounts = [
        "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        "30 21 0:45 / /srv/da\\040ta rw shared:9 - nfs4 server:/export rw,vers=4.2",
        "31 30 0:46 / /srv/da\\040ta/local rw - xfs /dev/vdb rw",
    ]
    places = ["/etc/xds", "/srv/da ta/xds", "/srv/da ta/local", "/srv/da taboo"]
    assert [file_system(Path(place), mounts) for place in places] == ["ext4", "nfs4", "xfs", "ext4"]


async def test_engines_are_opened_by_name(tmp_path: Path) -> None:
    assert isinstance(open_store("memory", tmp_path), MemoryStore)
    store = open_store("sqlite", tmp_path / "xds-data")
    await store.open()
    await store.close()
    assert (tmp_path / "xds-data" / "xds.sqlite3").is_file()
    assert isinstance(open_store("postgres", tmp_path, url="postgresql://db/xds"), PostgresStore)
    with pytest.raises(ValueError, match="not the URL of a PostgreSQL database"):
        open_store("postgres", tmp_path, url="postgresql://db:port/xds?secret=1")
    with pytest.raises(ValueError, match="no such store: 'paper'"):
        open_store("paper", tmp_path)


def test_postgres_without_psycopg_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xds.store.postgres.connection", None)
    with pytest.raises(ValueError, match=r"pip install 'xds-server\[postgres\]'"):
        open_store("postgres", tmp_path, url="postgresql://db/xds")

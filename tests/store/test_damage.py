"""Damaged files: reported in plain words, and what is undamaged is copied (docs/operations.md#a-damaged-store)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.store.contract import CDS, dumped
from tests.store.earlier_schemas import TO_SCHEMA_2
from xds.backup.backups import copy_store, examine_directory
from xds.codec.record import dump_record
from xds.fleet.fleet import Fleet
from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.push.publisher import Publisher
from xds.snapshots.cache import SnapshotCache
from xds.store.audit_entries import AuditNote
from xds.store.base import CorruptError, Drop, Entry, FullSet, Store, StoreError, UnavailableError, blob_id
from xds.store.engines import SQLITE_FILE, open_store
from xds.store.records import REVISIONS as REVISIONS_KIND
from xds.store.records import Record
from xds.store.sqlite.memory import MemoryStore

REVISIONS, SIZE = 12, 20
FLIPS = 60
SEEDS, SOAK_SEEDS = 40, 1_000
RAW_WORDS = ("malformed", "disk image", "UTF-8", "I/O", "Traceback", "sqlite_", "not a database", "no such table")


def body(name: str, revision: int) -> bytes:
    """A stored resource, whose bytes say to which revision it belongs."""
    return dump_record(
        Resource(CDS, name, b"\x0a" + bytes([len(name)]) + name.encode() + b"\xa2\x06\x03%03d" % revision, "v")
    )


def content(group: str, revision: int) -> dict[str, bytes]:
    return {f"{group}-{n}": body(f"{group}-{n}", revision if n % 3 else 1) for n in range(SIZE)}


async def fill(directory: Path) -> None:
    store = open_store("sqlite", directory)
    await store.open()
    for revision in range(1, REVISIONS + 1):
        for group in "ab":
            held = content(group, revision)
            entries = tuple(Entry(CDS, name, blob_id(data)) for name, data in held.items())
            change = FullSet(entries, {blob_id(data): data for data in held.values()})
            await store.commit(group, change, push_id=f"{group}{revision}")
    await store.commit("gone", FullSet((), {}), push_id="1")
    await store.commit("gone", Drop(), push_id="2")
    await store.put_doc("group", "a", b'{"priority": 3}')
    await store.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a filled store."""
    directory = tmp_path_factory.mktemp("sound")
    asyncio.run(fill(directory))
    return (directory / SQLITE_FILE).read_bytes()


def flipped(data: bytes, seed: int) -> bytes:
    source = random.Random(seed)
    made = bytearray(data)
    for _ in range(FLIPS if seed % 2 else 3):
        made[source.randrange(100 if seed % 3 else 0, len(made))] ^= 1 << source.randrange(8)
    return bytes(made)


def half(data: bytes, _: int) -> bytes:
    return data[: len(data) // 2]


def headless(data: bytes, _: int) -> bytes:
    return bytes(100) + data[100:]


def spoiled(data: bytes, _: int) -> bytes:
    """One byte of every body of the newest revision of group a."""
    for number in range(SIZE):
        good = content("a", REVISIONS)[f"a-{number}"]
        if number % 3:
            data = data.replace(good, good[:-1] + b"X")
    return data


def change(directory: Path, *statements: str) -> None:
    """Change rows behind the back of the store."""
    with closing(sqlite3.connect(directory / SQLITE_FILE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


async def loaded(directory: Path) -> Publisher:
    """What a server does when it starts. Raises ``StoreError``."""
    store = open_store("sqlite", directory)
    try:
        await store.open()
        publisher = Publisher(store, SnapshotCache(), Fleet(), lambda groups: None)
        await publisher.load()
        return publisher
    finally:
        await store.close()


Damage = Callable[[bytes, int], bytes]


@pytest.mark.parametrize("damage", [half, headless, spoiled])
async def test_a_damaged_file_is_reported_in_our_words(sound: bytes, tmp_path: Path, damage: Damage) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(damage(sound, 0))
    with pytest.raises(CorruptError) as told:
        await loaded(tmp_path)
    assert not [word for word in RAW_WORDS if word in str(told.value)], told.value


async def check_flipped(sound: bytes, directory: Path, seed: int) -> None:
    path = directory / SQLITE_FILE
    path.write_bytes(flipped(sound, seed))
    found = None
    try:
        found = examine_directory(directory)
    except StoreError as error:
        assert not [word for word in RAW_WORDS if word in str(error)], (seed, error)
    if found is not None:
        await check_copied(found.records, seed)
    try:
        publisher = await loaded(directory)
    except StoreError as error:
        assert not [word for word in RAW_WORDS if word in str(error)], (seed, error)
        assert found is None or found.findings, (seed, "a store that does not start is not sound")
    else:
        for each in publisher.groups.all():
            assert each.group in "ab" or each.group == "gone", seed


async def check_copied(records: Sequence[Record], seed: int) -> None:
    """It makes a store of which every group holds what was pushed to it, whole."""
    async with opened_memory() as store:
        await store.restore(lambda: iter(records))
        for head in await store.groups():
            manifest = await store.manifest(head.group)
            bodies = await store.blobs(entry.blob_id for entry in manifest.entries)
            held = {entry.name: bodies[entry.blob_id] for entry in manifest.entries}
            name = next(iter(held), "-").partition("-")[0]
            assert held in [content(name, revision) for revision in range(REVISIONS + 1)] or not held, (seed, head)


@asynccontextmanager
async def opened_memory() -> AsyncIterator[Store]:
    """A store in memory, closed in the end: each has a thread, and thousands are made here."""
    store = MemoryStore()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize(
    "seeds", [SEEDS, pytest.param(SOAK_SEEDS, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
async def test_flipped_bits(sound: bytes, tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        directory = tmp_path / str(seed)
        directory.mkdir()
        await check_flipped(sound, directory, seed)


async def test_a_sound_store_is_copied_as_it_is(sound: bytes, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / SQLITE_FILE).write_bytes(sound)
    found = await copy_store(str(source), str(target))
    assert (found.findings, found.groups["a"], found.groups["gone"]) == ([], "intact at revision 12", "deleted")
    assert (source / SQLITE_FILE).read_bytes() == sound
    assert await records_in(target) == await records_in(source)
    with pytest.raises(UnavailableError, match="has a store already"):
        await copy_store(str(source), str(target))


async def records_in(directory: Path) -> list[str]:
    store = open_store("sqlite", directory)
    await store.open()
    records = await dumped(store)
    await store.close()
    return sorted(map(repr, records))


async def test_a_damaged_audit_list_is_left_out(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    store = open_store("sqlite", tmp_path)
    await store.open()
    await store.note([AuditNote("push", "team", old='{"a": 1}')])
    await store.close()
    assert "audit" in {record.kind for record in examine_directory(tmp_path).records}
    change(tmp_path, "UPDATE audit SET body = '{' WHERE position = 1")
    found = examine_directory(tmp_path)
    assert found.findings == ["the audit list: damaged"]
    assert found.groups["a"] == "intact at revision 12"
    await check_copied(found.records, 0)


async def test_a_store_of_an_earlier_release_is_copied(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    with closing(sqlite3.connect(tmp_path / SQLITE_FILE)) as connection, connection:
        for statement in TO_SCHEMA_2:
            connection.execute(statement)
    found = examine_directory(tmp_path)
    assert found.findings == []
    assert (found.groups["a"], found.groups["gone"]) == ("intact at revision 12", "deleted")
    await check_copied(found.records, 0)
    lines = {each.values[0]: each.values for each in found.records if each.kind == "revisions"}  # the newest
    kind = list(REVISIONS_KIND.fields).index("kind")
    assert (lines["a"][kind], lines["gone"][kind]) == ("push", "delete")


async def test_a_group_with_a_damaged_body_is_left_out(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(spoiled(sound, 0))
    found = examine_directory(tmp_path)
    assert (found.groups["a"], found.groups["b"]) == ("damaged", "intact at revision 12")
    assert found.findings == ["group 'a': damaged"]
    assert {record.values[0] for record in found.records if record.kind == "groups"} == {"b", "gone"}
    await check_copied(found.records, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE past SET born = 10 WHERE name = 'a-1' AND died = 12",
        "UPDATE revision SET versions = CAST(x'7b2261e9223a2231227d' AS TEXT) WHERE grp = 1 AND revision = 5",
        "DELETE FROM revision WHERE grp = 1 AND revision = 5",
    ],
)
async def test_a_group_whose_history_is_damaged_is_copied_without_it(
    sound: bytes, tmp_path: Path, statement: str
) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, statement)
    found = examine_directory(tmp_path)
    assert found.groups["a"] == "intact at revision 12, its history is damaged"
    assert found.groups["b"] == "intact at revision 12"
    assert found.findings == ["group 'a': its history is damaged"]
    await check_copied(found.records, 0)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE grp SET revision = 4 WHERE name = 'a'",
        "UPDATE grp SET revision = 1 << 40 WHERE name = 'a'",
        "UPDATE grp SET live = 0 WHERE name = 'a'",
        "UPDATE entry SET born = 27 WHERE name = 'a-0'",
        "UPDATE past SET died = 27 WHERE name = 'a-19' AND died = 11",
        "DELETE FROM entry WHERE name = 'a-0'",
        "UPDATE entry SET h = (SELECT h FROM entry WHERE name = 'a-1') WHERE name = 'a-0'",
        "UPDATE entry SET name = 'a-77' WHERE name = 'a-0'",
    ],
)
async def test_a_group_whose_rows_contradict_each_other_is_left_out(
    sound: bytes, tmp_path: Path, statement: str
) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, statement)
    found = examine_directory(tmp_path)
    assert (found.groups["a"], found.groups["b"]) == ("damaged", "intact at revision 12")
    await check_copied(found.records, 0)


async def test_damaged_documents_are_reported(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, "UPDATE doc SET kind = CAST(x'e922' AS TEXT)")
    found = examine_directory(tmp_path)
    assert found.findings == ["settings and other documents: damaged"]


async def test_a_missing_counter_is_reported(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, "UPDATE seq SET name = 'evunt' WHERE name = 'event'")
    assert examine_directory(tmp_path).findings == ["the number of the newest commit: damaged"]
    with pytest.raises(CorruptError, match="the counter 'event' is missing"):
        await loaded(tmp_path)


async def test_a_damaged_number_of_the_schema_is_reported(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, "UPDATE meta SET v = CAST(x'15' AS TEXT) WHERE k = 'schema'")
    with pytest.raises(CorruptError):
        examine_directory(tmp_path)
    with pytest.raises(CorruptError, match="the number of its schema is damaged"):
        await loaded(tmp_path)


async def test_a_damaged_time_of_a_push_is_reported(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, "UPDATE revision SET time_s = 'x' WHERE revision = 3")
    assert "group 'a': its history is damaged" in examine_directory(tmp_path).findings
    with pytest.raises(CorruptError, match="the history of group 'a' is damaged at revision 3"):
        await loaded(tmp_path)


async def test_a_missing_column_is_reported(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(sound)
    change(tmp_path, "ALTER TABLE revision RENAME COLUMN nodes TO ngdes")
    assert set(examine_directory(tmp_path).groups.values()) == {"damaged"}


@pytest.mark.parametrize("damage", [half, headless])
async def test_an_unreadable_file_is_reported(sound: bytes, tmp_path: Path, damage: Damage) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(damage(sound, 0))
    with pytest.raises(CorruptError, match="cannot be read"):
        examine_directory(tmp_path)


async def test_a_store_that_is_held_or_not_there_is_not_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="No such file"):
        examine_directory(tmp_path)
    (tmp_path / SQLITE_FILE).touch()
    with pytest.raises(CorruptError, match="is empty"):
        examine_directory(tmp_path)
    store = open_store("sqlite", tmp_path)
    await store.open()
    with pytest.raises(NotFoundError):
        await store.manifest("a")
    await store.close()

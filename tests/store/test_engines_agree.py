"""Random commits: a store in a file, now and then restarted, does what one in memory does that never is."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.contract import CDS, EDS, dumped, known_of, take, watch_items
from tests.support.examples import examples
from xds.model.errors import ConflictError, NotFoundError
from xds.store.audit_entries import AuditFilter, AuditLane, AuditNote
from xds.store.base import (
    CorruptError,
    Delta,
    Drop,
    Entry,
    FullSet,
    GroupChange,
    GroupPush,
    Meta,
    Reset,
    ReusedPushIdError,
    Rollback,
    Store,
    blob_id,
)
from xds.store.retention import Retention
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

Lag = int | None  # how many revisions ago the caller knew what a group held

GROUPS = ("g", "h")
BODIES = (b"", b"1", b"2")
NAMES = ("a", "b", "c", "ü", "d\x00")


@dataclass(frozen=True)
class Push:
    group: str
    change: GroupChange
    push_id: str
    expect: int | None
    meta: Meta
    lag: Lag
    note: AuditNote | None


@dataclass(frozen=True)
class Transaction:
    pushes: tuple[GroupPush, ...]
    push_id: str
    lag: Lag


@dataclass(frozen=True)
class Collect:
    policy: Retention
    now_s: float


@dataclass(frozen=True)
class Document:
    id: str
    body: bytes | None
    expect: int | None


@dataclass(frozen=True)
class Tally:
    group: str
    revision: int
    nodes: int
    refused: int


@dataclass(frozen=True)
class Notes:
    notes: list[AuditNote]


class Restart:
    """Close SQLite and open it again."""


class Exchange:
    """Each is given what the other one holds."""


Step = Push | Transaction | Collect | Document | Tally | Notes | Restart | Exchange

notes = st.builds(
    AuditNote,
    st.sampled_from(["push", "release"]),
    st.sampled_from(["", "team"]),
    peer=st.sampled_from(["", "127.0.0.1:1"]),
    group=st.sampled_from(GROUPS),
    old=st.sampled_from(["", '"ü"']),
    time_s=st.sampled_from([0.0, 1.0, 5000.0]),
    lane=st.sampled_from(AuditLane),
    key=st.sampled_from(["", "k"]),
    count=st.integers(1, 3),
    first_s=st.none() | st.just(0.5),
)
label = st.sampled_from(["", "", "v1", "v2"])
labels = st.dictionaries(st.sampled_from([CDS, EDS]), label, max_size=1)
bodies = st.sampled_from(BODIES)
key = st.tuples(st.sampled_from([CDS, EDS]), st.sampled_from(NAMES))
keys = st.lists(key, max_size=2).map(tuple)
content = st.builds(lambda key, body: (*key, body), key, bodies)
contents = st.lists(content, max_size=8, unique_by=lambda content: content[:2])
repeated = st.lists(st.tuples(st.just(CDS), st.sampled_from(NAMES[:2]), bodies), max_size=3)


def as_entries(content: list[tuple[str, str, bytes]]) -> tuple[Entry, ...]:
    return tuple(Entry(url, name, blob_id(body)) for url, name, body in content)


@st.composite
def full_sets(draw: st.DrawFn) -> FullSet:
    content = draw(contents | repeated)
    blobs = {blob_id(body): body for _, _, body in content if draw(st.integers(0, 9))}
    return FullSet(as_entries(content), blobs, draw(label), draw(labels))


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    content = draw(contents)[:3]
    return Delta(as_entries(content), draw(keys), {blob_id(b): b for _, _, b in content}, draw(label), draw(labels))


changes = (
    full_sets()
    | full_sets()
    | deltas()
    | deltas()
    | st.builds(Rollback, st.integers(0, 12), st.booleans(), keys)
    | st.just(Drop())
)
expect = st.none() | st.none() | st.integers(0, 12)
lag = st.sampled_from([None, 0, 0, 1])
steps = st.lists(
    st.builds(
        Push,
        st.sampled_from(GROUPS),
        changes,
        st.integers(0, 30).map(str),
        expect,
        st.builds(
            Meta,
            st.sampled_from(["", "ann"]),
            st.sampled_from(["", "why"]),
            st.sampled_from([0.0, 1.5]),
            st.sampled_from(["", "team"]),
            st.sampled_from(["", "restore"]),
        ),
        lag,
        st.none() | notes,
    )
    | st.builds(Tally, st.sampled_from(GROUPS), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
    | st.builds(Notes, st.lists(notes, max_size=4))
    | st.builds(Document, st.sampled_from("ab"), st.none() | bodies, expect)
    | st.builds(
        Transaction,
        st.lists(st.builds(GroupPush, st.sampled_from(GROUPS), changes, expect), max_size=2).map(tuple),
        st.integers(0, 30).map(str),
        lag,
    )
    | st.builds(
        Collect,
        st.builds(
            Retention,
            st.integers(1, 3),
            st.sampled_from([0.0, 1.0]),
            st.integers(3, 5),
            st.sampled_from([0.0, 1.0]),
            st.integers(1, 6),
            st.dictionaries(st.sampled_from(GROUPS), st.sets(st.integers(1, 12), max_size=1)),
            st.integers(1, 3),
            st.integers(1, 4),
            st.sampled_from([1.0, 100.0]),
            st.sampled_from([300, 10_000]),
        ),
        st.sampled_from([0.5, 1.5, 9.0]),
    )
    | st.builds(Restart)
    | st.builds(Exchange),
    max_size=25,
)


async def outcome(store: Store, step: Push | Transaction | Collect | Document | Tally | Notes) -> object:
    """What a step came to, errors included, in comparable form."""
    try:
        if isinstance(step, Document):
            return await store.put_doc("kind", step.id, step.body, expect=step.expect)
        if isinstance(step, Tally):
            await store.record_outcome(step.group, step.revision, step.nodes, step.refused)
            return None
        if isinstance(step, Notes):
            await store.note(step.notes)
            return None
        if isinstance(step, Collect):
            return await store.collect(step.policy, step.now_s)
        if isinstance(step, Transaction):
            return await store.commit_all(await knowing(store, step.pushes, step.lag), push_id=step.push_id)
        pushes = await knowing(store, (GroupPush(step.group, step.change, step.expect, note=step.note),), step.lag)
        return await store.commit_all(pushes, push_id=step.push_id, meta=step.meta)
    except (ConflictError, NotFoundError, CorruptError, ReusedPushIdError, ValueError) as error:
        return type(error), getattr(error, "revision", None)


async def knowing(store: Store, pushes: tuple[GroupPush, ...], lag: Lag) -> list[GroupPush]:
    """The pushes of a caller who knows what the groups held some revisions ago."""
    told: list[GroupPush] = []
    for push in pushes:
        known, head = None, await store.head(push.group)
        if head is not None and lag is not None:
            with suppress(NotFoundError):
                known = known_of(await store.manifest(push.group, head.revision - lag))
        told.append(replace(push, head_content=known))
    return told


async def counts(store: Store) -> tuple[int, int]:
    found = await store.stats()
    return found.revisions, found.blobs


async def picture(store: Store) -> list[object]:
    """All that can be read of a store."""
    seen: list[object] = [await store.groups(), await store.docs("kind"), await counts(store)]
    for group in GROUPS:
        history = await store.history(group, limit=100)
        live = [line.revision for line in history if line.content]
        seen.append(await store.history(group, before=9, limit=3, endpoints=False))
        seen += [await store.head(group), history, [await store.manifest(group, revision) for revision in live]]
    page = await store.audit()
    seen += [page.entries, page.lagged, (await store.audit("", 2, AuditFilter(group="g", since_s=1.0))).entries]
    await store.put_doc("mark", "end", b"")
    (head, *_) = await take(watch_items(store), 1)
    (first,) = await take(watch_items(store, 0), 1)
    # Behind a restore nothing of before can be resumed.
    seen.append(first if isinstance(first, Reset) else await take(watch_items(store, 0), head.cursor))
    return seen


async def compare(steps: list[Step], directory: Path) -> None:
    memory, sqlite = MemoryStore(), SqliteStore(directory / "xds.sqlite3")
    await memory.open()
    await sqlite.open()
    try:
        for step in steps:
            if isinstance(step, Restart):
                await sqlite.close()
                await sqlite.open()
            elif isinstance(step, Exchange):
                given = [await dumped(sqlite), await dumped(memory)]
                await memory.restore(partial(iter, given[0]), replace=True)
                await sqlite.restore(partial(iter, given[1]), replace=True)
            else:
                assert await outcome(sqlite, step) == await outcome(memory, step)
        assert await picture(sqlite) == await picture(memory)
    finally:
        await memory.close()
        await sqlite.close()


@pytest.mark.timeout(3600)
@given(steps)
@examples(40, in_soak=1_000)
def test_sqlite_agrees_with_memory(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(steps, Path(directory)))

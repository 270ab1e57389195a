"""Random pushes, rollbacks, deletions, collections and restarts against a plain model of what must still be there."""

from __future__ import annotations

import asyncio
import os
import random
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from tests.store.contract import CDS, EDS, Content, cluster, contents, delta, full, push
from xds.model.errors import NotFoundError
from xds.store.base import (
    Commit,
    CorruptError,
    Drop,
    FullSet,
    GoneError,
    GroupPush,
    Meta,
    RevisionInfo,
    Rollback,
    Store,
    StoredContent,
    UnavailableError,
    blob_id,
)
from xds.store.records import Record
from xds.store.retention import Retention
from xds.store.sql.connection import Job
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore

GROUPS = ("g", "h", "i")
KEYS = tuple((url, f"n{n}") for url in (CDS, EDS) for n in range(4))
BODIES = tuple(b"%d" % n for n in range(60))
LAST = 1 << 60
MIB = 1 << 20
LITTLE = Retention(revisions=1, age_s=-1.0)  # nothing is young

T = TypeVar("T")

Key = tuple[str, str]
Resources = dict[Key, bytes]


@dataclass
class Line:
    """What a group held from a push on; None for a deletion. ``held``: not let go yet."""

    resources: Resources | None
    time_s: float
    endpoints_only: bool
    held: bool = True


class Walk:
    """One history that ``source`` makes up, lived through by both engines; ``lines`` is all that ever was."""

    def __init__(self, path: Path, source: random.Random) -> None:
        self._path = path
        self._random = source
        self._now_s = 0.0
        self._number = 0
        self._memory = MemoryStore(clock=lambda: self._now_s)
        self._sqlite = SqliteStore(path, clock=lambda: self._now_s)
        self.lines: dict[str, list[Line]] = {group: [] for group in GROUPS}

    async def run(self, steps: int) -> None:
        await self._memory.open()
        await self._sqlite.open()
        try:
            for _ in range(steps):
                step = self._random.choices([self.push, self.collect, self.collect_amid, self.restart], [20, 3, 2, 1])
                await step[0]()
                self._now_s += self._random.choice((0, 0, 1, 5))
        finally:
            await self._memory.close()
            await self._sqlite.close()

    # Steps

    async def push(self) -> None:
        """A push to one group, or a transaction of two."""
        groups = self._random.sample(GROUPS, self._random.choice((1, 1, 1, 2)))
        await self._commit([self._change(group) for group in groups])

    async def collect(self) -> None:
        policy = self._policy()
        done = [await store.collect(policy, self._now_s) for store in (self._memory, self._sqlite)]
        assert done[0] == done[1]
        self._collected(policy)
        await self._check()

    async def collect_amid(self) -> None:
        """Pushes while SQLite collects; they bring back bodies that are about to be deleted."""
        for group, lines in self.lines.items():  # or it would depend on the moment whether a deleted one is kept
            if lines and lines[-1].resources is None:
                await self._commit([GroupPush(group, full())])
        policy = self._policy()
        collecting = asyncio.create_task(self._sqlite.collect(policy, self._now_s))
        for _ in range(self._random.randint(1, 30)):
            await self._commit([self._content_change(self._random.choice(GROUPS))])
        await collecting
        for store in (self._memory, self._sqlite):  # what came in late
            await store.collect(policy, self._now_s)
        self._collected(policy)
        await self._check()

    async def restart(self) -> None:
        await self._sqlite.close()
        self._sqlite = SqliteStore(self._path, clock=lambda: self._now_s)
        await self._sqlite.open()

    # What is pushed

    def _change(self, group: str) -> GroupPush:
        chosen = self._random.random()
        if chosen < 0.1:
            return GroupPush(group, Drop())
        if chosen < 0.25:
            return GroupPush(group, Rollback(self._random.randint(1, len(self.lines[group]) + 1)))
        return self._content_change(group)

    def _content_change(self, group: str) -> GroupPush:
        held = self.lines[group][-1].resources if self.lines[group] else None
        if not held or self._random.random() < 0.3:
            keys = self._random.sample(KEYS, self._random.randint(0, len(KEYS)))
            return GroupPush(group, full(*(self._content(key) for key in keys)))
        put = self._random.sample(KEYS, self._random.randint(0, 2))
        gone = [key for key in held if key not in put]
        delete = self._random.sample(gone, min(len(gone), self._random.randint(0, 1)))
        return GroupPush(group, delta(*(self._content(key) for key in put), delete=tuple(delete)))

    def _content(self, key: Key) -> Content:
        return (*key, self._random.choice(BODIES))

    def _policy(self) -> Retention:
        group = self._random.choice(GROUPS)
        latest = len(self.lines[group])
        return Retention(
            revisions=self._random.randint(1, 4),
            age_s=self._random.choice((-1.0, 0.0, 3.0, 20.0)),
            revisions_limit=self._random.randint(4, 8),
            history_s=self._random.choice((30.0, 1e9)),
            pinned={group: [self._random.randint(0, latest)]} if self._random.random() < 0.5 else {},
            endpoint_revisions=self._random.randint(1, 4),
        )

    async def _commit(self, pushes: list[GroupPush]) -> None:
        self._number += 1
        meta = Meta(time_s=self._now_s)
        if self._random.random() < 0.5:
            pushes = [replace(one, head_content=self._known(one.group)) for one in pushes]
        outcomes = [await _outcome(store, pushes, f"p{self._number}", meta) for store in (self._memory, self._sqlite)]
        assert outcomes[0] == outcomes[1]
        for one, commit in zip(pushes, outcomes[0], strict=False):
            lines = self.lines[one.group]
            after = self._after(one)
            assert commit == Commit(one.group, len(lines) + commit.changed, commit.changed)
            if commit.changed:
                lines.append(Line(after, self._now_s, _endpoints_only(lines[-1].resources if lines else None, after)))
            else:
                assert after == lines[-1].resources

    def _known(self, group: str) -> StoredContent | None:
        """What a caller knows who has followed the group."""
        held = self.lines[group][-1].resources if self.lines[group] else None
        return (
            StoredContent(len(self.lines[group]), {key: blob_id(body) for key, body in held.items()}) if held else None
        )

    def _after(self, pushed: GroupPush) -> Resources | None:
        lines, change = self.lines[pushed.group], pushed.change
        if isinstance(change, Drop):
            return None
        if isinstance(change, Rollback):
            return lines[change.to - 1].resources
        bodies = change.blobs
        if isinstance(change, FullSet):
            return {(each.type_url, each.name): bodies[each.blob_id] for each in change.entries}
        held = dict(lines[-1].resources or {}) if lines else {}
        held.update({(each.type_url, each.name): bodies[each.blob_id] for each in change.put})
        return {key: body for key, body in held.items() if key not in change.delete}

    # What must hold

    def _collected(self, policy: Retention) -> None:
        """What the policy lets go."""
        for group, lines in self.lines.items():
            kept = self._kept(group, policy)
            first = min((at for at, line in enumerate(lines) if line.held and at in kept), default=len(lines))
            moves = [at for at, line in enumerate(lines) if line.endpoints_only]
            spared = {*moves[-policy.endpoint_revisions :], *_pinned(policy, group), len(lines) - 1}
            for at, line in enumerate(lines):
                line.held &= at >= first and (not line.endpoints_only or at in spared)

    def _kept(self, group: str, policy: Retention) -> set[int]:
        """The positions of the lines that the policy names; what comes after one of them is kept, too."""
        lines = self.lines[group]
        every = [at for at, line in enumerate(lines) if not line.endpoints_only]
        young = {at for at in every if lines[at].time_s >= self._now_s - policy.age_s}
        if not lines or (lines[-1].resources is None and not any(lines[at].held for at in young)):
            return set()
        last = {*every[-policy.revisions :], *(young & {*every[-policy.revisions_limit :]})}
        return last | _pinned(policy, group) | {len(lines) - 1}

    async def _check(self) -> None:
        """What is held is whole, the rest is said to be gone, and no blob is there that nobody names."""
        for store in (self._memory, self._sqlite):
            named: set[bytes] = set()
            for group, lines in self.lines.items():
                kept = {line.revision: line for line in await store.history(group, limit=LAST)}
                for revision, line in enumerate(lines, start=1):
                    named |= await self._check_line(store, group, revision, line, kept.get(revision))
            assert (await store.stats()).blobs == len(named)
        for group in GROUPS:
            assert await self._memory.history(group, limit=LAST) == await self._sqlite.history(group, limit=LAST)

    async def _check_line(
        self, store: Store, group: str, revision: int, line: Line, kept: RevisionInfo | None
    ) -> set[bytes]:
        """One revision; the bodies it names."""
        if line.held and line.resources is not None:
            assert kept is not None and kept.content and kept.meta.time_s == line.time_s
            found = await contents(store, await store.manifest(group, revision))
            assert found == [(*key, body) for key, body in line.resources.items()]
            return set(line.resources.values())
        assert kept is None or not kept.content
        if self._random.random() < 0.1:
            with pytest.raises(GoneError if kept is not None and kept.live else NotFoundError):
                await store.manifest(group, revision)
        return set()


def _pinned(policy: Retention, group: str) -> set[int]:
    return {revision - 1 for revision in policy.pinned.get(group, ())}


def _endpoints_only(before: Resources | None, after: Resources | None) -> bool:
    """Whether a group that was there holds other endpoints and nothing else that is new."""
    if before is None or after is None:
        return False
    return {key: body for key, body in before.items() if key[0] != EDS} == {
        key: body for key, body in after.items() if key[0] != EDS
    }


async def _outcome(store: Store, pushes: list[GroupPush], push_id: str, meta: Meta) -> list[Commit]:
    try:
        return await store.commit_all(pushes, push_id=push_id, meta=meta)
    except NotFoundError:
        return []


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection in as many steps as there can be."""
    monkeypatch.setattr("xds.store.sql.collection.ROWS_PER_STEP", 2)
    monkeypatch.setattr("xds.store.sql.collection.ROWS_PER_SCAN", 3)
    monkeypatch.setattr("xds.store.sql.collection.BYTES_PER_STEP", 2)


class Interrupted(SqliteStore, ABC):
    """Does ``between`` before the step of a collection whose number is ``at``, counted from 1."""

    at = 0
    steps = 0

    @abstractmethod
    async def between(self) -> None: ...

    async def _step(self, job: Job[T]) -> T:
        self.steps += 1
        if self.steps == self.at:
            await self.between()
        return await super()._step(job)


class Pushing(Interrupted):
    """Names bodies again that the collection is about to delete: one as it is, one moved on to the past at once."""

    async def between(self) -> None:
        await push(self, delta(cluster("c0", b"0-first"), cluster("c5", b"5-first")))
        await push(self, delta(cluster("c5", b"5-later")))


async def three_revisions(store: Store) -> None:
    for turn in (b"first", b"second", b"third"):
        await push(store, full(*(cluster(f"c{n}", b"%d-%s" % (n, turn)) for n in range(6))))


@pytest.mark.usefixtures("small_steps")
async def test_a_push_at_any_moment_of_a_collection_keeps_its_blobs(tmp_path: Path) -> None:
    steps = 0
    for at in count(1):
        store = Pushing(tmp_path / f"{at}" / "xds.sqlite3")
        store.at = at
        await store.open()
        await three_revisions(store)
        await store.collect(LITTLE, 0.0)
        for line in await store.history("g"):
            if line.content:
                assert len(await contents(store, await store.manifest("g", line.revision))) == 6
        steps = store.steps
        await store.close()
        if at > steps:
            break
    assert steps > 20


class Dying(Interrupted):
    """Is as good as killed: the connection is gone with all that is temporary, what was committed stays."""

    async def between(self) -> None:
        await self._running().submit(self._database.close)
        raise DeadError


class DeadError(Exception):
    """The process would have ended here."""


@pytest.mark.usefixtures("small_steps")
async def test_an_end_at_any_moment_of_a_collection_leaves_no_orphan(tmp_path: Path) -> None:
    for at in count(1):
        path = tmp_path / f"{at}" / "xds.sqlite3"
        store = Dying(path)
        store.at = at
        await store.open()
        await three_revisions(store)
        with suppress(DeadError):
            await store.collect(LITTLE, 0.0)
        await store.close()
        after = SqliteStore(path)
        await after.open()
        assert len(await contents(after, await after.manifest("g"))) == 6
        await push(after, delta(cluster("c0", b"0-first")))  # a blob that may be doomed by now
        await after.collect(LITTLE, 0.0)
        assert len(await contents(after, await after.manifest("g"))) == 6
        assert await after.stats() == replace(await after.stats(), blobs=6, revisions=1)
        await after.close()
        if at > store.steps:
            return


@pytest.mark.usefixtures("small_steps")
async def test_a_connection_that_breaks_amid_a_collection_loses_nothing(tmp_path: Path) -> None:
    """What pushes named on the next connection must not be deleted."""

    class Breaking(Interrupted):
        async def between(self) -> None:
            await self._running().submit(self._database.close)
            await push(self, delta(cluster("c0", b"0-first"), cluster("c5", b"5-first")))

    for at in count(1):
        store = Breaking(tmp_path / f"{at}" / "xds.sqlite3")
        store.at = at
        await store.open()
        await three_revisions(store)
        await store.collect(LITTLE, 0.0)
        at_end, store.at = store.steps, 0
        assert len(await contents(store, await store.manifest("g"))) == 6
        await store.collect(LITTLE, 0.0)
        assert len(await contents(store, await store.manifest("g"))) == 6
        assert (await store.stats()).blobs == 6
        await store.close()
        if at > at_end:
            break
    assert at_end > 20


@pytest.mark.parametrize("batches", range(1, 9))
async def test_a_dump_amid_the_collection_of_another_server_is_whole_or_fails(batches: int) -> None:
    """A backup that no restore accepts would be noticed when it is needed."""
    store, restored = MemoryStore(), MemoryStore()
    await store.open()
    await restored.open()
    for n in range(12):
        await push(store, full(cluster("a", b"%d" % n), cluster("b", b"%d" % (n // 3))))
    records, number, is_whole = list[Record](), 0, True
    try:
        async for batch in store.dump():
            records += batch
            number += 1
            if number == batches:
                await store._trim("g", Retention(2, -60.0, 3, history_s=-60.0, history_limit=3), 1e12)
                await store._sweep()
    except (CorruptError, UnavailableError):
        is_whole = False
    if is_whole:
        await restored.restore(lambda: iter(records))
        assert (await restored.manifest("g")).revision == 12
    await store.close()
    await restored.close()


async def test_space_is_given_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "xds.sqlite3")
    await store.open()
    for turn in range(12):
        await push(store, full(*(cluster(f"c{n}", os.urandom(MIB)) for n in range(2))), push_id=f"{turn}")
    assert (await store.stats()).bytes > 24 * MIB
    done = await store.collect(Retention(revisions=2, age_s=-1.0), 0.0)
    assert (done.blobs, done.blob_bytes) == (20, 20 * MIB)
    await store.close()
    await store.open()
    after = await store.stats()
    assert after.bytes < 8 * MIB
    assert after.free_bytes < 4 * MIB
    assert (tmp_path / "xds.sqlite3").stat().st_size <= after.bytes
    await store.close()


async def test_a_push_waits_for_a_step_not_for_a_collection(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "xds.sqlite3")
    await store.open()
    for turn in range(12):
        await push(store, full(*(cluster(f"c{n}", b"%d-%d" % (n, turn)) for n in range(3000))))
    collecting = asyncio.create_task(store.collect(LITTLE, 0.0))
    pushed = 0
    while not collecting.done():
        await push(store, delta(cluster("c0", b"%d" % pushed)))
        pushed += 1
    assert (await collecting).blobs >= 11 * 3000
    assert pushed >= 10
    await store.close()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("seed", range(4))
async def test_any_pushes_and_collections_keep_the_right_content(tmp_path: Path, seed: int) -> None:
    await Walk(tmp_path / "xds.sqlite3", random.Random(seed)).run(80)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("seed", range(100, 120))
async def test_many_pushes_and_collections_keep_the_right_content(tmp_path: Path, seed: int) -> None:
    await Walk(tmp_path / "xds.sqlite3", random.Random(seed)).run(500)

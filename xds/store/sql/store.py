"""The store over the statements of this package. An engine adds its database and what only that can do.

Every call is one job of the thread (`Worker`), which returns results on the event loop. Reads of the history wait for a
push in progress; serving is from memory and does not wait. Load reports are not stored.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TypeVar

from xds.store.audit_entries import EVERYTHING_AUDITED, AuditFilter, AuditNote, AuditPage
from xds.store.base import (
    NO_META,
    READER_BUFFER,
    ChangeItem,
    Commit,
    CorruptError,
    GroupChange,
    GroupPush,
    Head,
    Lifetime,
    Manifest,
    MayWrite,
    Meta,
    ObservedRecord,
    OpenNack,
    RevisionInfo,
    Store,
    StoredDocument,
    UnavailableError,
    WatchItem,
    always,
    check_may_write,
)
from xds.store.feed import Feed
from xds.store.records import AUDIT, ENTRIES, Record
from xds.store.retention import Collected, Retention, StoreStats
from xds.store.sql import (
    audit_rows,
    blob_rows,
    collection,
    ledger,
    observed_rows,
    record_rows,
)
from xds.store.sql.connection import ContradictionError, Database, Job, SqlConnection
from xds.store.sql.worker import Worker, post

T = TypeVar("T")

_BLOB = list(ENTRIES.fields).index("blob")
_POSITION = list(AUDIT.fields).index("position")


class SqlStore(Store, ABC):
    """A ``Store`` in a database. ``clock`` returns epoch seconds, for the age of push ids."""

    def __init__(
        self, database: Database, *, reader_buffer: int = READER_BUFFER, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._clock = clock
        self._feed = Feed(reader_buffer)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._closing: asyncio.Future[None] | None = None
        self._collecting = asyncio.Lock()

    async def open(self) -> None:
        if self._worker is not None:
            return
        self._loop = asyncio.get_running_loop()
        worker = Worker("xds-store", self._after_job)
        try:
            await worker.submit(self._open)
        except BaseException:
            worker.finish(self._close)
            raise
        self._worker = worker

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._closing = asyncio.ensure_future(self._finish(worker))
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def commit(
        self, group: str, change: GroupChange, *, push_id: str, expect: int | None = None, meta: Meta = NO_META
    ) -> Commit:
        (commit,) = await self.commit_all((GroupPush(group, change, expect),), push_id=push_id, meta=meta)
        return commit

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        def commit(connection: SqlConnection) -> tuple[list[Commit], list[ChangeItem]]:
            return ledger.commit_all(connection, ledger.CommitCall(pushes, push_id, meta, self._now_s(connection)))

        return await self._write(commit)

    def turn(self, groups: Collection[str]) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def committed(self, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
        return await self._read(lambda connection: ledger.committed(connection, pushes, push_id))

    async def head(self, group: str) -> Head | None:
        group_row = await self._read(lambda connection: ledger.find_group(connection, group))
        return group_row.head if group_row is not None else None

    async def groups(self) -> list[Head]:
        return await self._read(ledger.groups)

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        return await self._read(lambda connection: ledger.manifest(connection, group, revision))

    async def lifetimes(self, group: str, since: int) -> list[Lifetime]:
        return await self._read(lambda connection: ledger.lifetimes(connection, group, since))

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        wanted = list(ids)
        return await self._read(lambda connection: blob_rows.read(connection, wanted))

    async def history(
        self, group: str, *, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        return await self._read(lambda connection: ledger.history(connection, group, before, limit, endpoints))

    async def record_outcome(self, group: str, revision: int, nodes: int, refused: int) -> None:
        await self._step(lambda connection: ledger.record_outcome(connection, group, revision, nodes, refused))

    async def newest_cursor(self) -> int:
        return await self._read(ledger.newest_cursor)

    def watch(self, cursor: int | None = None) -> AsyncIterator[Sequence[WatchItem]]:
        return self._feed.follow(cursor, self._catch_up)

    async def put_doc(
        self, kind: str, id: str, body: bytes | None, *, expect: int | None = None, note: AuditNote | None = None
    ) -> int:
        return await self._write(lambda connection: ledger.put_doc(connection, kind, id, body, expect, note))

    async def note(self, notes: Sequence[AuditNote]) -> None:
        await self._step(lambda connection: audit_rows.write(connection, notes))

    async def audit(self, cursor: str = "", limit: int = 100, wanted: AuditFilter = EVERYTHING_AUDITED) -> AuditPage:
        return await self._read(lambda connection: audit_rows.read(connection, cursor, limit, wanted))

    async def docs(self, kind: str, prefix: str = "") -> list[StoredDocument]:
        return await self._read(lambda connection: ledger.docs(connection, kind, prefix))

    async def put_nacks(self, put: Sequence[OpenNack], delete: Collection[int] = ()) -> None:
        rows, ids = list(put), list(delete)
        await self._step(lambda connection: observed_rows.put_nacks(connection, rows, ids))

    async def nacks(self) -> list[OpenNack]:
        return await self._read(observed_rows.nacks)

    async def put_observed(
        self,
        put: Sequence[ObservedRecord],
        delete: Collection[tuple[str, str]] = (),
        notes: Sequence[AuditNote] = (),
        *,
        is_told: bool = False,
        may_write: MayWrite = always,
    ) -> None:
        records, keys, texts = list(put), list(delete), list(notes)
        changed = {*keys, *((record.source, record.service) for record in records)} if is_told else set()

        def write(connection: SqlConnection) -> tuple[None, Sequence[ChangeItem]]:
            check_may_write(may_write)
            observed_rows.put(connection, records, keys, texts)
            return None, ledger.tell_observed(connection, changed)

        await self._write(write)

    async def observed(self, source: str = "", services: Collection[str] | None = None) -> list[ObservedRecord]:
        wanted = sorted(services) if services is not None else None
        return await self._read(lambda connection: observed_rows.read(connection, source, wanted))

    async def now_s(self) -> float:
        return await self._read(self._now_s)

    async def collect(self, policy: Retention, now_s: float) -> Collected:
        async with self._collection():
            total = Collected()
            for group in await self._read(collection.group_names):
                total += await self._trim(group, policy, now_s)
            total += await self._repeat(lambda connection: collection.trim_push_ids(connection, now_s))
            while await self._delete(lambda connection: audit_rows.trim(connection, policy, now_s)):
                pass
            total += await self._sweep()
            await self._shrink()
            return total

    async def stats(self) -> StoreStats:
        return await self._read(lambda connection: collection.stats(connection, *self._sizes(connection)))

    async def dump(self, history: bool = True) -> AsyncGenerator[Sequence[Record], None]:
        async with self._no_collection():
            point = await self._read(lambda connection: record_rows.begin(connection, history))
            yield point.heads()
            async for batch in self._lines(point, history):
                yield batch
            yield point.documents
            after = 0
            while batch := await self._read(partial(record_rows.audited, after=after, end=point.audit_end)):
                yield batch
                after = batch[-1].values[_POSITION]
            yield point.counted
            blobs: set[str] = set()
            async for batch in self._entries(point, history):
                blobs.update(record.values[_BLOB] for record in batch)
                yield batch
            wanted = list(blobs)
            while wanted:
                try:
                    bodies = await self._read(lambda connection: record_rows.bodies(connection, wanted))
                except CorruptError:
                    await self._read(point.check)  # another server may have deleted it
                    raise
                yield bodies
            await self._read(point.check)

    async def restore(
        self, records: Callable[[], Iterator[Record]], *, replace: bool = False, note: AuditNote | None = None
    ) -> None:
        async with self._collecting:
            try:
                await self._write(lambda connection: record_rows.import_records(connection, records(), replace, note))
            except ContradictionError as error:
                raise CorruptError("two records contradict each other") from error
            await self._running().submit(self._start_over)

    def _now_s(self, connection: SqlConnection) -> float:
        """The time by the clock of the store."""
        return self._clock()

    def _collection(self) -> AbstractAsyncContextManager[object]:
        """Nobody else collects meanwhile, or dumps."""
        return self._collecting

    def _no_collection(self) -> AbstractAsyncContextManager[object]:
        """Nobody collects meanwhile."""
        return self._collecting

    def _check_alone(self, connection: SqlConnection) -> None:
        """Raises ``UnavailableError`` if another server may have begun to collect meanwhile."""

    @abstractmethod
    def _sizes(self, connection: SqlConnection) -> tuple[int, int]:
        """The bytes of the database on disk, and how many of them are free."""

    async def _shrink(self) -> None:
        """Return free space to the file system, after a collection."""

    def _start_over(self) -> None:
        """Restart all watches, after a restore."""
        self._interrupt_watches()

    def _open(self) -> None:
        self._database.open()

    def _after_job(self) -> None:
        """Runs between two jobs, and when there is no job."""

    def _close(self) -> None:
        self._database.close()

    def _committed(self, events: Sequence[ChangeItem]) -> None:
        """Runs after a transaction that made ``events``, at least one, before its caller has the result."""
        # Published here, since the caller may be cancelled after the commit.
        self._call_on_loop(self._feed.publish, events)

    async def _lines(self, point: record_rows.DumpPoint, history: bool) -> AsyncIterator[Sequence[Record]]:
        for group in point.groups:
            after = 0
            while batch := await self._read(partial(record_rows.lines, group=group, after=after, history=history)):
                yield batch
                after = batch[-1].values[1]

    async def _entries(self, point: record_rows.DumpPoint, history: bool) -> AsyncIterator[Sequence[Record]]:
        for group in point.groups:
            yield await self._read(partial(record_rows.present_rows, group=group))
            after = record_rows.FIRST
            while history:
                batch, after = await self._read(partial(record_rows.past_rows, group=group, after=after))
                if not batch:
                    break
                yield batch

    async def _trim(self, group: str, policy: Retention, now_s: float) -> Collected:
        total = await self._delete(lambda connection: collection.raise_floor(connection, group, policy, now_s))
        while await self._delete(lambda connection: collection.trim(connection, group)):
            pass
        total += await self._repeat(lambda connection: collection.thin(connection, group, policy))
        return total + await self._repeat(lambda connection: collection.trim_history(connection, group, policy, now_s))

    async def _sweep(self) -> Collected:
        position: collection.StrikePosition | None = collection.StrikePosition()
        while position is not None:
            position = await self._delete(partial(collection.strike, position=position))
        return await self._repeat(collection.sweep)

    async def _repeat(self, job: Job[Collected]) -> Collected:
        """Repeat a step of a collection until it has nothing to do."""
        total = Collected()
        while (done := await self._delete(job)) != Collected():
            total += done
        return total

    async def _delete(self, job: Job[T]) -> T:
        """One step of a collection."""

        def step(connection: SqlConnection) -> T:
            self._check_alone(connection)
            return job(connection)

        return await self._step(step)

    async def _step(self, job: Job[T]) -> T:
        """One short transaction. Waiting pushes run before the next one."""
        return await self._write(lambda connection: (job(connection), ()))

    async def _finish(self, worker: Worker) -> None:
        await worker.finish(self._close)
        self._feed.close()

    async def _catch_up(self, cursor: int | None) -> list[WatchItem]:
        return await self._read(lambda connection: ledger.catch_up(connection, cursor))

    async def query(self, job: Job[T]) -> T:
        """Run a job that reads on the state of one moment. Raises ``StoreError``."""
        return await self._read(job)

    async def _read(self, job: Job[T]) -> T:
        return await self._running().submit(lambda: self._database.read(job))

    async def _write(self, job: Job[tuple[T, Sequence[ChangeItem]]]) -> T:
        def write() -> T:
            result, events = self._database.write(job)
            if events:
                self._committed(events)
            return result

        return await self._running().submit(write)

    def _interrupt_watches(self) -> None:
        self._call_on_loop(self._feed.interrupt)

    def _call_on_loop(self, call: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        post(self._loop, call, *args)

    def _running(self) -> Worker:
        if self._worker is None:
            raise UnavailableError("the store is not open")
        return self._worker

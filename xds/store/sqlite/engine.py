"""The default engine: SQLite in one file, for one process, with one writer thread (docs/internals/design.md#storage).

Every call is one job of the thread (`Worker`), which returns results on the event loop. Reads of the history wait for a
push in progress; serving is from memory and does not wait. Load reports are not stored.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

import structlog

from xds.store.audit_entries import EVERYTHING_AUDITED, AuditFilter, AuditNote, AuditPage
from xds.store.base import (
    NO_META,
    READER_BUFFER,
    ChangeItem,
    Commit,
    GroupChange,
    GroupPush,
    Head,
    Lifetime,
    Manifest,
    Meta,
    ObservedRecord,
    OpenNack,
    RevisionInfo,
    Store,
    StoredDocument,
    UnavailableError,
    WatchItem,
)
from xds.store.feed import Feed
from xds.store.records import AUDIT, ENTRIES, Record
from xds.store.retention import Collected, Retention, StoreCondition, StoreStats
from xds.store.sqlite import (
    audit_rows,
    collection,
    ledger,
    observed_rows,
    record_rows,
)
from xds.store.sqlite.database import Database, Job
from xds.store.sqlite.files import AcknowledgedFile

T = TypeVar("T")

PENDING_LIMIT = 1024  # jobs that wait for the thread
IDLE_S = 1.0

_BLOB = list(ENTRIES.fields).index("blob")
_POSITION = list(AUDIT.fields).index("position")
_log = structlog.get_logger(logger_name="xds.store")


class SqliteStore(Store):
    """A ``Store`` in the file ``path``, beside which SQLite keeps its write-ahead log.

    ``max_bytes`` bounds the file: beyond it pushes raise ``OutOfSpaceError``. ``clock`` returns epoch seconds, for the
    age of push ids.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int | None = None,
        reader_buffer: int = READER_BUFFER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = Database(path, max_bytes, self._interrupt_watches)
        self._acknowledged = AcknowledgedFile(path)
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
        push = ledger.CommitCall(pushes, push_id, meta, self._clock())
        return await self._write(lambda connection: ledger.commit_all(connection, push))

    async def committed(self, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
        return await self._read(lambda connection: ledger.committed(connection, pushes, push_id))

    async def commit_status(self, group: str, push_id: str) -> Commit | None:
        return await self._read(lambda connection: ledger.commit_status(connection, group, push_id))

    async def head(self, group: str) -> Head | None:
        found = await self._read(lambda connection: ledger.find_group(connection, group))
        return found.head if found is not None else None

    async def groups(self) -> list[Head]:
        return await self._read(ledger.groups)

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        return await self._read(lambda connection: ledger.manifest(connection, group, revision))

    async def lifetimes(self, group: str, since: int) -> list[Lifetime]:
        return await self._read(lambda connection: ledger.lifetimes(connection, group, since))

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        wanted = list(ids)
        return await self._read(lambda connection: ledger.blobs(connection, wanted))

    async def history(
        self, group: str, *, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        return await self._read(lambda connection: ledger.history(connection, group, before, limit, endpoints))

    async def record_outcome(self, group: str, revision: int, nodes: int, refused: int) -> None:
        await self._step(lambda connection: ledger.record_outcome(connection, group, revision, nodes, refused))

    def watch(self, cursor: int | None = None) -> AsyncIterator[WatchItem]:
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
        await self._step(lambda connection: ledger.put_nacks(connection, rows, ids))

    async def nacks(self) -> list[OpenNack]:
        return await self._read(ledger.nacks)

    async def put_observed(
        self,
        put: Sequence[ObservedRecord],
        delete: Collection[tuple[str, str]] = (),
        notes: Sequence[AuditNote] = (),
    ) -> None:
        records, keys, texts = list(put), list(delete), list(notes)
        await self._step(lambda connection: observed_rows.put(connection, records, keys, texts))

    async def observed(self) -> list[ObservedRecord]:
        return await self._read(observed_rows.read)

    async def collect(self, policy: Retention, now_s: float) -> Collected:
        async with self._collecting:
            total = Collected()
            for group in await self._read(collection.group_names):
                total += await self._trim(group, policy, now_s)
            total += await self._repeat(lambda connection: collection.trim_push_ids(connection, now_s))
            while await self._step(lambda connection: audit_rows.trim(connection, policy, now_s)):
                pass
            total += await self._sweep()
            while await self._step(collection.shrink):
                pass
            return total

    async def stats(self) -> StoreStats:
        found = await self._read(collection.stats)
        return replace(found, bytes=found.bytes + self._database.log_bytes())

    async def dump(self, history: bool = True) -> AsyncGenerator[Sequence[Record], None]:
        async with self._collecting:
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
                yield await self._read(lambda connection: record_rows.bodies(connection, wanted))

    async def restore(
        self, records: Callable[[], Iterator[Record]], *, replace: bool = False, note: AuditNote | None = None
    ) -> None:
        async with self._collecting:
            await self._write(lambda connection: record_rows.import_records(connection, records(), replace, note))
            await self._running().submit(self._start_over)

    def condition(self) -> StoreCondition:
        cursor = self._acknowledged.cursor
        behind = (
            f"commits {cursor.first} to {cursor.last} were acknowledged and are not in the store:"
            " restore a backup, or push the missing changes again"
            if cursor.first
            else ""
        )
        database = self._database
        return StoreCondition(database.loss_reason(), database.read_only_reason(), database.full_reason(), behind)

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

    def _start_over(self) -> None:
        """Forget missing commits and restart all watches, after a restore."""
        self._acknowledged.forget_missing()
        self._acknowledged.acknowledge(self._database.read(ledger.newest_cursor))
        self._acknowledged.flush(at_once=True)
        self._call_on_loop(self._feed.interrupt)

    def _open(self) -> None:
        self._database.open()
        newest = self._database.read(ledger.newest_cursor)
        if self._acknowledged.compare(newest):
            _log.error("store.behind", error_message=self.condition().behind, newest=newest)
            if not self._database.read_only_reason():
                self._database.write(partial(ledger.skip_cursors, to=self._acknowledged.cursor.newest))

    def _after_job(self) -> None:
        """Runs between two jobs, and when there is no job."""
        self._database.checkpoint()
        self._acknowledged.flush()

    def _close(self) -> None:
        self._database.close()
        self._acknowledged.flush(at_once=True)

    async def _trim(self, group: str, policy: Retention, now_s: float) -> Collected:
        total = await self._step(lambda connection: collection.raise_floor(connection, group, policy, now_s))
        while await self._step(lambda connection: collection.trim(connection, group)):
            pass
        total += await self._repeat(lambda connection: collection.thin(connection, group, policy))
        return total + await self._repeat(lambda connection: collection.trim_history(connection, group, policy, now_s))

    async def _sweep(self) -> Collected:
        position = await self._step(collection.begin_striking)
        if position is None:
            await self._step(collection.end_striking)
            return Collected()
        while position is not None:
            position = await self._step(partial(collection.strike, position=position))
        swept = await self._repeat(collection.sweep)
        await self._step(collection.end_striking)
        return swept

    async def _repeat(self, job: Job[Collected]) -> Collected:
        """Repeat a step until it has nothing to do."""
        total = Collected()
        while (done := await self._step(job)) != Collected():
            total += done
        return total

    async def _step(self, job: Job[T]) -> T:
        """One short transaction. Waiting pushes run before the next one."""
        return await self._write(lambda connection: (job(connection), ()))

    async def _finish(self, worker: Worker) -> None:
        await worker.finish(self._close)
        self._feed.close()

    async def _catch_up(self, cursor: int | None) -> list[WatchItem]:
        return await self._read(lambda connection: ledger.catch_up(connection, cursor))

    async def _read(self, job: Job[T]) -> T:
        return await self._running().submit(lambda: self._database.read(job))

    async def _write(self, job: Callable[[sqlite3.Connection], tuple[T, Sequence[ChangeItem]]]) -> T:
        def write_and_call_on_loop() -> T:
            result, events = self._database.write(job)
            if events:
                self._database.note_space()
                self._acknowledged.acknowledge(events[-1].cursor)
            for event in events:  # published here, since the caller may be cancelled after the commit
                self._call_on_loop(self._feed.publish, event)
            return result

        return await self._running().submit(write_and_call_on_loop)

    def _interrupt_watches(self) -> None:
        self._call_on_loop(self._feed.interrupt)

    def _call_on_loop(self, call: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        post(self._loop, call, *args)

    def _running(self) -> Worker:
        if self._worker is None:
            raise UnavailableError("the store is not open")
        return self._worker


class Worker:
    """A thread that runs every job, even if the caller was cancelled.

    ``after`` runs after every job, when its result has been returned, and every ``IDLE_S`` seconds without a job. The
    thread is a daemon: for the store, a process that ends without ``finish`` is like a killed process, which is safe.
    """

    def __init__(self, name: str, after: Callable[[], None] = lambda: None) -> None:
        self._after = after
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a job. Raises ``UnavailableError`` when ``PENDING_LIMIT`` jobs are waiting."""
        if self._jobs.qsize() >= PENDING_LIMIT:
            raise UnavailableError(f"the store is busy: {PENDING_LIMIT} calls are waiting")
        return self._submit(job)

    def finish(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue the last job, without a limit. The thread ends after it."""
        last = self._submit(job)
        self._jobs.put(None)
        return last

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(lambda: _run_job(loop, future, job))
        return future

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                self._after()
                continue
            if job is None:
                return
            job()
            self._after()


def _run_job(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], job: Callable[[], T]) -> None:
    try:
        result = job()
    except BaseException as error:  # raised in the caller; the thread must continue
        post(loop, _reject, future, error)
    else:
        post(loop, _resolve, future, result)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _reject(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    """Run ``call`` on the event loop from another thread. It does nothing when the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)

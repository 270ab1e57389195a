"""The embedded default: SQLite, one file, one process, one writer thread (spec/storage.md 6.3).

Every call is one job of the thread; history reads queue behind a running push, serving is from memory and does not
wait. Load reports and the like are not kept here.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from xds.store import ledger
from xds.store.base import (
    NO_META,
    READER_BUFFER,
    Changed,
    Commit,
    Doc,
    DocChanged,
    GroupChange,
    Head,
    Manifest,
    Meta,
    RevisionInfo,
    UnavailableError,
    WatchItem,
)
from xds.store.database import Database, Job
from xds.store.feed import Feed
from xds.store.worker import Worker, post

T = TypeVar("T")


class SqliteStore:
    """A ``Store`` in the file ``path``, beside which SQLite keeps its write-ahead log.

    ``max_bytes`` bounds the file: beyond it pushes raise ``OutOfSpaceError``. ``clock`` tells seconds since the epoch;
    it ages push ids.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int | None = None,
        reader_buffer: int = READER_BUFFER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = Database(path, max_bytes, self._reopened)
        self._clock = clock
        self._feed = Feed(reader_buffer)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        if self._worker is not None:
            return
        self._loop = asyncio.get_running_loop()
        worker = Worker("xds-store")
        try:
            await worker.submit(self._database.open)
        except BaseException:
            worker.finish(self._database.close)
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
        push = ledger.Push(group, change, push_id, expect, meta, self._clock())
        return await self._write(lambda connection: ledger.commit(connection, push))

    async def commit_status(self, group: str, push_id: str) -> Commit | None:
        return await self._read(lambda connection: ledger.commit_status(connection, group, push_id))

    async def head(self, group: str) -> Head | None:
        found = await self._read(lambda connection: ledger.find_group(connection, group))
        return found.head if found is not None else None

    async def groups(self) -> list[Head]:
        return await self._read(ledger.groups)

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        return await self._read(lambda connection: ledger.manifest(connection, group, revision))

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        wanted = list(ids)
        return await self._read(lambda connection: ledger.blobs(connection, wanted))

    async def history(self, group: str, *, before: int | None = None, limit: int = 50) -> list[RevisionInfo]:
        return await self._read(lambda connection: ledger.history(connection, group, before, limit))

    def watch(self, cursor: int | None = None) -> AsyncIterator[WatchItem]:
        return self._feed.follow(cursor, self._catch_up)

    async def put_doc(self, kind: str, id: str, body: bytes | None, *, expect: int | None = None) -> int:
        return await self._write(lambda connection: ledger.put_doc(connection, kind, id, body, expect))

    async def docs(self, kind: str, prefix: str = "") -> list[Doc]:
        return await self._read(lambda connection: ledger.docs(connection, kind, prefix))

    async def _finish(self, worker: Worker) -> None:
        await worker.finish(self._database.close)
        self._feed.close()

    async def _catch_up(self, cursor: int | None) -> list[WatchItem]:
        return await self._read(lambda connection: ledger.catch_up(connection, cursor))

    async def _read(self, job: Job[T]) -> T:
        return await self._running().submit(lambda: self._database.read(job))

    async def _write(self, job: Callable[[sqlite3.Connection], tuple[T, Changed | DocChanged | None]]) -> T:
        def write_and_tell() -> T:
            result, event = self._database.write(job)
            if event is not None:  # told from here: the caller may be cancelled by now, the commit stands
                self._tell(self._feed.publish, event)
            return result

        return await self._running().submit(write_and_tell)

    def _reopened(self) -> None:
        self._tell(self._feed.interrupt)

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        post(self._loop, call, *args)

    def _running(self) -> Worker:
        if self._worker is None:
            raise UnavailableError("the store is not open")
        return self._worker

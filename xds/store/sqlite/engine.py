"""The default engine: SQLite in one file, for one process (docs/internals/design.md#storage)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import structlog

from xds.store.base import READER_BUFFER, ChangeItem
from xds.store.retention import StoreCondition
from xds.store.sql import ledger
from xds.store.sql.connection import SqlConnection
from xds.store.sql.store import SqlStore
from xds.store.sqlite import pages
from xds.store.sqlite.database import SqliteDatabase
from xds.store.sqlite.files import AcknowledgedFile

_log = structlog.get_logger(logger_name="xds.store")


class SqliteStore(SqlStore):
    """A ``Store`` in the file ``path``, beside which SQLite keeps its write-ahead log.

    ``max_bytes`` bounds the file: beyond it pushes raise ``OutOfSpaceError``. ``clock`` returns epoch seconds, for the
    age of push ids.
    """

    _database: SqliteDatabase

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int | None = None,
        reader_buffer: int = READER_BUFFER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        database = SqliteDatabase(path, max_bytes, self._interrupt_watches)
        super().__init__(database, reader_buffer=reader_buffer, clock=clock)
        self._acknowledged = AcknowledgedFile(path)

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

    def _sizes(self, connection: SqlConnection) -> tuple[int, int]:
        used, free = pages.sizes(connection)
        return used + self._database.log_bytes(), free

    async def _shrink(self) -> None:
        while await self._step(pages.shrink):
            pass

    def _start_over(self) -> None:
        """Forget missing commits too."""
        self._acknowledged.forget_missing()
        self._acknowledged.acknowledge(self._database.read(ledger.newest_cursor))
        self._acknowledged.flush(at_once=True)
        super()._start_over()

    def _open(self) -> None:
        super()._open()
        newest = self._database.read(ledger.newest_cursor)
        if self._acknowledged.compare(newest):
            _log.error("store.behind", error_message=self.condition().behind, newest=newest)
            if not self._database.read_only_reason():
                self._database.write(partial(ledger.skip_cursors, to=self._acknowledged.cursor.newest))

    def _after_job(self) -> None:
        self._database.checkpoint()
        self._acknowledged.flush()

    def _close(self) -> None:
        super()._close()
        self._acknowledged.flush(at_once=True)

    def _committed(self, events: Sequence[ChangeItem]) -> None:
        self._database.note_space()
        self._acknowledged.acknowledge(events[-1].cursor)
        super()._committed(events)

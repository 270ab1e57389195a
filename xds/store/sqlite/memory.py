"""The engine without a file: SQLite in memory, for as long as the object lives. Closing it keeps the data."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from xds.store.base import READER_BUFFER
from xds.store.sqlite import schema
from xds.store.sqlite.database import SqliteDatabase
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.files import NothingAcknowledged

_IN_MEMORY = Path(":memory:")


class MemoryStore(SqliteStore):
    """A ``Store`` in memory. ``clock`` returns epoch seconds, for the age of push ids."""

    def __init__(self, *, reader_buffer: int = READER_BUFFER, clock: Callable[[], float] = time.time) -> None:
        super().__init__(_IN_MEMORY, reader_buffer=reader_buffer, clock=clock)
        self._database = MemoryDatabase()
        self._acknowledged = NothingAcknowledged(_IN_MEMORY)


class MemoryDatabase(SqliteDatabase):
    """A database without a file: there is nothing to lock, to lose or to copy."""

    def __init__(self) -> None:
        super().__init__(_IN_MEMORY, None, lambda: None)

    def open(self) -> None:
        schema.check_release()
        self._current()

    def close(self) -> None:
        pass  # the data stays

    def checkpoint(self) -> None:
        pass

    def loss_reason(self) -> str:
        return ""

    def _connect_file(self) -> sqlite3.Connection:
        # The store has another thread each time it is opened.
        connection = sqlite3.connect(_IN_MEMORY, isolation_level=None, cached_statements=256, check_same_thread=False)
        schema.configure_in_memory(connection)
        schema.ensure(connection)
        return connection

"""One SQLite connection, its transactions and its failures. Belongs to one thread.

Failures, from spec/storage.md 9: "SQLite disk full / I/O error: transaction rolled back, push refused; after any fsync
error re-open the database before accepting more". So a connection that met more than a full disk is closed, and the
next call opens another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from xds.store import schema
from xds.store.base import CorruptError, OutOfSpaceError, StoreError, UnavailableError
from xds.store.directory import prepare_file, sync_directory

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]

_PRIMARY_CODE = 0xFF  # extended result codes keep the primary one in their low byte
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNWRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})


# Rows written between checkpoints: about as many pages, as a commit to one resource writes 8 of either.
SETTLED_ROWS = 1000


class Database:
    """``max_bytes`` bounds the file: beyond it, as on a full disk, writing raises ``OutOfSpaceError``.

    ``reopened`` is called when a broken connection was replaced: what its last transaction came to is open, so the
    file may hold a commit that nobody was told of.
    """

    def __init__(self, path: Path, max_bytes: int | None, reopened: Callable[[], None]) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._reopened = reopened
        self._connection: sqlite3.Connection | None = None
        self._broke = False
        self._settled = 0  # rows written by the last checkpoint

    def open(self) -> None:
        """Open and lock the file, made if missing. Raises as ``Store.open`` does."""
        prepare_file(self._path)
        self._connected()

    def close(self) -> None:
        """Checkpoint and release."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # all that was acknowledged is in the write-ahead log
                connection.close()

    def read(self, job: Job[T]) -> T:
        """Run ``job``. Raises ``StoreError``."""
        try:
            return job(self._connected())
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from error

    def write(self, job: Job[T]) -> T:
        """Run ``job`` as one durable transaction; rolled back when it raises. Raises ``StoreError``."""
        connection = self._connected()
        committing = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = job(connection)
            committing = True
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back(connection)
            raise self._failure(error, committing) from error
        except BaseException:
            self._roll_back(connection)
            raise
        return result

    def settle(self) -> None:
        """Bring what was committed from the write-ahead log into the file, where enough has gathered.

        Nothing depends on it; done between two jobs, no push waits for it.
        """
        connection = self._connection
        if connection is None or connection.total_changes - self._settled < SETTLED_ROWS:
            return
        self._settled = connection.total_changes
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.DatabaseError as error:
            self._failure(error)

    def log_bytes(self) -> int:
        """The size of the write-ahead log; from any thread."""
        try:
            return self._path.with_name(self._path.name + "-wal").stat().st_size
        except OSError:
            return 0

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            # An empty file in place of one that vanished would be a wiped fleet.
            if not self._path.exists():
                raise UnavailableError(f"{self._path} is gone")
            try:
                self._connection, self._settled = _connect(self._path, self._max_bytes), 0
            except sqlite3.DatabaseError as error:
                raise self._failure(error) from error
            sync_directory(self._path.parent)
            if self._broke:
                self._broke = False
                self._reopened()
        return self._connection

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._give_up()

    def _give_up(self) -> None:
        self._broke = self._broke or self._connection is not None
        self.close()

    def _failure(self, error: sqlite3.DatabaseError, committing: bool = False) -> Exception:
        """What to raise for an error of SQLite's; ends the connection unless it can be trusted further."""
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            return error  # a bug of ours, not a state of the disk
        if code == sqlite3.SQLITE_FULL:
            return OutOfSpaceError(self._full_message())
        self._give_up()
        return _unavailable(code, error, self._path, committing)

    def _full_message(self) -> str:
        limit = f" or its limit of {self._max_bytes} bytes is reached" if self._max_bytes is not None else ""
        return f"no space left for {self._path}{limit}; nothing was written. Free or add space, then push again"


def _connect(path: Path, max_bytes: int | None) -> sqlite3.Connection:
    # timeout 0: the lock is held for as long as its process lives, so waiting for it helps nobody.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=256)
    try:
        schema.configure(connection, max_bytes)
        # The lock is taken, and being allowed to write is found out, here and not at the first push.
        connection.execute("BEGIN IMMEDIATE")
        schema.ensure(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _unavailable(code: int, error: sqlite3.DatabaseError, path: Path, committing: bool) -> StoreError:
    if code in _HELD:
        return UnavailableError(f"{path} is in use by another process: only one server can hold it")
    if code in _DAMAGED:
        return CorruptError(f"{path} is damaged or no database: {error}")
    if code in _UNWRITABLE:
        return UnavailableError(f"{path} cannot be written: {error}")
    hint = (
        "; look at the disk: its space, quotas and health. The next push tries again"
        if code == sqlite3.SQLITE_IOERR
        else ""
    )
    return UnavailableError(f"{path}: {error}{hint}", maybe_committed=committing)

"""One SQLite connection with its transactions and errors. It belongs to one thread.

After a full disk the transaction is rolled back and the push fails. After any other error of the disk the connection is
closed, because SQLite's state is unknown after a failed fsync; the next call opens a new one. A file that cannot be
written when it is opened, because the disk is full or read-only, is served from a copy; each write tries the file
again. The directory stays locked meanwhile. See docs/internals/design.md#storage.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog

from xds.store.base import CorruptError, OutOfSpaceError, StoreError, UnavailableError
from xds.store.sql.connection import ContradictionError, Job
from xds.store.sqlite import schema
from xds.store.sqlite.directory_lock import DirectoryLock
from xds.store.sqlite.files import (
    connect_copy,
    log_path,
    prepare_file,
    sync_directory,
    trim,
)

T = TypeVar("T")
FileId = tuple[int, int]  # device and inode

_PRIMARY_CODE = 0xFF  # extended result codes keep the primary one in their low byte
_LOCKED_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_UNWRITABLE_CODES = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
# Errors of the disk, not of the configuration: the existing data can still be served.
_SERVED_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, *_UNWRITABLE_CODES})
_SERVED_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

_log = structlog.get_logger(logger_name="xds.store")

# Rows written between checkpoints. This is about the number of pages: a commit of one resource writes 8 of each.
CHECKPOINT_ROWS = 1000


class SqliteDatabase:
    """``max_bytes`` bounds the file: beyond it, as on a full disk, writes raise ``OutOfSpaceError``.

    ``on_reopen`` is called when a broken connection was replaced. The outcome of its last transaction is unknown, so
    the file may contain a commit that no watch has seen.
    """

    def __init__(self, path: Path, max_bytes: int | None, on_reopen: Callable[[], None]) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._full = ""  # the message of the last change that found no space, until one is stored
        self._on_reopen = on_reopen
        self._connection: sqlite3.Connection | None = None
        self._was_broken = False
        self._rows_at_checkpoint = 0  # rows written by the last checkpoint
        self._file: FileId | None = None  # the file that was opened first; later it must be the same
        self._log: FileId | None = None
        self._read_only = ""
        self._lock = DirectoryLock(path.parent)

    def open(self) -> None:
        """Open and lock the file and its directory; create them where they are missing. Raises as ``Store.open``."""
        schema.check_release()
        try:
            is_empty = prepare_file(self._path)
            self._lock.take()
            if is_empty:
                _log.warning("store.empty", path=str(self._path), error_message="the file is empty: a new store begins")
            self._current()
        except StoreError as error:
            if not _is_served(error, self._path):
                raise
            self._lock.take()
            self._read_only = f"the store can only be read: {error}"
            self._current()
            _log.error("store.read_only", error_message=str(error))

    def close(self) -> None:
        """Checkpoint and release."""
        self._close_connection()
        self._lock.release()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # all acknowledged commits are in the write-ahead log
                connection.close()

    def read(self, job: Job[T]) -> T:
        """Run ``job``. Raises ``StoreError``."""
        try:
            return job(self._current())
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from error
        except UnicodeDecodeError as error:  # an error message of SQLite about damaged text
            raise damaged(self._path) from error

    def write(self, job: Job[T]) -> T:
        """Run ``job`` as one durable transaction; rolled back when it raises. Raises ``StoreError``."""
        connection = self._writable()
        committing = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = job(connection)
            self._check_in_place()
            committing = True
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back(connection)
            raise self._failure(error, committing) from error
        except UnicodeDecodeError as error:
            self._roll_back(connection)
            raise damaged(self._path) from error
        except BaseException:
            self._roll_back(connection)
            raise
        return result

    def checkpoint(self) -> None:
        """Copy commits from the write-ahead log to the file, when there are enough of them.

        It runs between two jobs, so that no push waits for it.
        """
        connection = self._connection
        if connection is None or connection.total_changes - self._rows_at_checkpoint < CHECKPOINT_ROWS:
            return
        self._rows_at_checkpoint = connection.total_changes
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.DatabaseError as error:
            self._failure(error)

    def log_bytes(self) -> int:
        """The size of the write-ahead log; from any thread."""
        try:
            return log_path(self._path).stat().st_size
        except OSError:
            return 0

    def loss_reason(self) -> str:
        """Why new commits would be lost at a restart; empty when the files are in place. From any thread."""
        if self._file is None or _file_id(self._path) == self._file:
            return ""
        return f"{self._path} was {'replaced' if self._path.exists() else 'moved or deleted'} under the server"

    def read_only_reason(self) -> str:
        """Why the store cannot be written since the start; empty where it can. From any thread."""
        return self._read_only

    def full_reason(self) -> str:
        """Why the last change was not stored, if it was for lack of space; empty otherwise. From any thread."""
        return self._full

    def note_space(self) -> None:
        """A change was stored: there is space again."""
        self._full = ""

    def _current(self) -> sqlite3.Connection:
        """The connection, which is opened here if there is none."""
        if self._connection is None:
            self._connection, self._rows_at_checkpoint = self._connect_file(), 0
            if self._was_broken:
                self._was_broken = False
                self._on_reopen()
        return self._connection

    def _connect_file(self) -> sqlite3.Connection:
        if self._read_only:
            self._file = self._file or _file_id(self._path)
            return connect_copy(self._path, lambda path: _connect(path, None))
        # An empty or different file in place of a missing one would remove all resources from the fleet.
        if not self._path.exists():
            raise UnavailableError(f"{self._path} is gone")
        self._check_same_file()
        try:
            connection = _connect(self._path, self._max_bytes)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from error
        except UnicodeDecodeError as error:
            raise damaged(self._path) from error
        self._file, self._log = _file_id(self._path), _file_id(log_path(self._path))
        sync_directory(self._path.parent)
        return connection

    def _writable(self) -> sqlite3.Connection:
        """The connection for writing. Where the file was read-only so far, it is tried again.

        Without the lock of the directory another server may have served the same copy, and may write now as well.
        """
        if self._read_only:
            if not self._lock.is_held:
                raise OutOfSpaceError(f"{self._read_only}; restart the server when it can be written")
            self._check_same_file()
            try:
                connection = _connect(self._path, self._max_bytes)
            except (sqlite3.DatabaseError, StoreError):
                raise OutOfSpaceError(self._read_only) from None
            self._close_connection()
            self._read_only = ""
            self._connection, self._rows_at_checkpoint = connection, 0
            self._file, self._log = _file_id(self._path), _file_id(log_path(self._path))
            self._on_reopen()  # a program without the lock may have written, such as a server of an earlier release
            _log.info("store.writable", path=str(self._path))
        return self._current()

    def _check_in_place(self) -> None:
        """Raises ``UnavailableError`` when the database or its log was deleted or replaced."""
        self._check_same_file()
        log = _file_id(log_path(self._path))
        if self._log is not None and log != self._log:
            self._disconnect()  # this copies all commits to the file
            raise UnavailableError(f"the log of {self._path} was deleted under the server; the next push tries again")

    def _check_same_file(self) -> None:
        """Raises ``UnavailableError`` when the database was deleted or replaced."""
        loss_reason = self.loss_reason()
        if loss_reason:
            raise UnavailableError(
                f"{loss_reason}: nothing is written. Put the file back, or restart the server to use the present file"
            )

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection is self._connection and connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        self._was_broken = self._was_broken or self._connection is not None
        self._close_connection()

    def _failure(self, error: sqlite3.DatabaseError, committing: bool = False) -> Exception:
        """The exception for an error of SQLite. Closes the connection unless its state is known."""
        if isinstance(error, sqlite3.IntegrityError):
            return ContradictionError(str(error))
        if isinstance(error, sqlite3.ProgrammingError):
            return error  # a bug, not a state of the disk
        if _code(error) == sqlite3.SQLITE_FULL:
            self._free_log()
            self._full = self._full_message()
            return OutOfSpaceError(self._full)
        self._disconnect()
        return _unavailable(error, self._path, committing)

    def _free_log(self) -> None:
        """Free the pages of a transaction that failed on a full disk. They may have filled it."""
        connection = self._connection
        if connection is None:
            return
        with suppress(sqlite3.DatabaseError, OSError):
            trim(self._path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _full_message(self) -> str:
        limit = f" or its limit of {self._max_bytes} bytes is reached" if self._max_bytes is not None else ""
        return f"no space left for {self._path}{limit}; nothing was written. Free or add space, then push again"


def _connect(path: Path, max_bytes: int | None) -> sqlite3.Connection:
    # timeout 0: another process holds the lock for its whole life, so waiting for it is useless.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=256)
    try:
        schema.configure(connection, max_bytes)
        # Take the lock, and test whether the file can be written, now rather than at the first push.
        connection.execute("BEGIN IMMEDIATE")
        schema.ensure(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _file_id(path: Path) -> FileId | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _code(error: sqlite3.DatabaseError) -> int:
    """The primary error code of SQLite. An error about invalid UTF-8 has none and counts as damage."""
    code = getattr(error, "sqlite_errorcode", None)
    return int(code) & _PRIMARY_CODE if code is not None else sqlite3.SQLITE_CORRUPT


def _is_served(error: StoreError, path: Path) -> bool:
    """Whether the file can at least be read, and the disk caused the error."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.DatabaseError):
        is_of_the_disk = _code(cause) in _SERVED_CODES
    else:
        is_of_the_disk = isinstance(cause, OSError) and cause.errno in _SERVED_ERRNOS
    return is_of_the_disk and os.access(path, os.R_OK) and path.stat().st_size > 0


def _unavailable(error: sqlite3.DatabaseError, path: Path, committing: bool) -> StoreError:
    """The exception for an error of SQLite, whose own message is logged."""
    code, name = _code(error), getattr(error, "sqlite_errorname", "")
    if code in _LOCKED_CODES:
        return UnavailableError(f"{path} is in use by another process: only one server can use it")
    _log.warning("store.failed", error_message=str(error), error_code=name)
    if code in _DAMAGED_CODES:
        return damaged(path)
    # A read-only file cannot be locked for writing.
    if code in _UNWRITABLE_CODES or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_LOCK:
        return UnavailableError(f"{path} cannot be written: look at its mode, its owner and its file system")
    if code == sqlite3.SQLITE_IOERR:
        hint = "look at the disk: its space, quotas and health. The next push tries again"
        return UnavailableError(f"{path} cannot be read or written; {hint}", maybe_committed=committing)
    return UnavailableError(f"{path} cannot be used now ({name})", maybe_committed=committing)


def damaged(path: Path) -> CorruptError:
    """The error for a damaged file."""
    return CorruptError(
        f"{path} is damaged or not a store: `xds store check` lists what is intact, `xds store copy` takes it"
    )

"""One SQLite connection, its transactions and its failures. Belongs to one thread.

Failures, from spec/storage.md 9: "SQLite disk full / I/O error: transaction rolled back, push refused; after any fsync
error re-open the database before accepting more". So a connection that met more than a full disk is closed, and the
next call opens another. A file that cannot be written when it is opened, for its disk is full or read-only, is served
from a copy; each write tries anew.
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
from xds.store.sqlite import schema
from xds.store.sqlite.files import connect_copy, log_path, prepare_file, sync_directory, trim

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
FileId = tuple[int, int]  # device and inode

_PRIMARY_CODE = 0xFF  # extended result codes keep the primary one in their low byte
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_UNWRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
# Of the disk, not of how the server is set up: what is there can be served.
_SERVED_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, *_UNWRITABLE})
_SERVED_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

_log = structlog.get_logger(logger_name="xds.store")

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
        self._file: FileId | None = None  # what was opened first: it must not be another later
        self._log: FileId | None = None
        self._read_only = ""

    def open(self) -> None:
        """Open and lock the file, made if missing. Raises as ``Store.open`` does."""
        try:
            if prepare_file(self._path):
                _log.warning("store.empty", path=str(self._path), error_message="the file is empty: a new store begins")
            self._connected()
        except StoreError as error:
            if not _is_served(error, self._path):
                raise
            self._read_only = f"the store can only be read: {error}"
            self._connected()
            _log.error("store.read_only", error_message=str(error))

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
        except UnicodeDecodeError as error:  # of SQLite's own words about what is damaged
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
            return log_path(self._path).stat().st_size
        except OSError:
            return 0

    def lost(self) -> str:
        """Why what is committed now would be gone after a restart; empty while all is in its place. From any thread."""
        if self._file is None or _file_id(self._path) == self._file:
            return ""
        return f"{self._path} was {'replaced' if self._path.exists() else 'moved or deleted'} under the server"

    def read_only(self) -> str:
        """Why nothing can be written since the start; empty where that is not so. From any thread."""
        return self._read_only

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection, self._settled = self._opened(), 0
            if self._broke:
                self._broke = False
                self._reopened()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        if self._read_only:
            self._file = self._file or _file_id(self._path)
            return connect_copy(self._path, lambda path: _connect(path, None))
        # An empty file in place of one that vanished would be a wiped fleet, and so would be another one.
        if not self._path.exists():
            raise UnavailableError(f"{self._path} is gone")
        self._refuse_another()
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
        """The connection; where the file could only be read so far, it is tried again."""
        if self._read_only:
            self._refuse_another()
            try:
                connection = _connect(self._path, self._max_bytes)
            except (sqlite3.DatabaseError, StoreError):
                raise OutOfSpaceError(self._read_only) from None
            self.close()
            self._read_only = ""
            self._connection, self._settled = connection, 0
            self._file, self._log = _file_id(self._path), _file_id(log_path(self._path))
            _log.info("store.writable", path=str(self._path))
        return self._connected()

    def _check_in_place(self) -> None:
        """Raises ``UnavailableError`` where a commit would go into files that have no name any more."""
        self._refuse_another()
        log = _file_id(log_path(self._path))
        if self._log is not None and log != self._log:
            self._give_up()  # which brings all that is committed into the file
            raise UnavailableError(f"the log of {self._path} was deleted under the server; the next push tries again")

    def _refuse_another(self) -> None:
        lost = self.lost()
        if lost:
            raise UnavailableError(
                f"{lost}: nothing is written. Put the file back; or restart the server, which begins with what is there"
            )

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection is self._connection and connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._give_up()

    def _give_up(self) -> None:
        self._broke = self._broke or self._connection is not None
        self.close()

    def _failure(self, error: sqlite3.DatabaseError, committing: bool = False) -> Exception:
        """What to raise for an error of SQLite's; ends the connection unless it can be trusted further."""
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            return error  # a bug of ours, not a state of the disk
        if _code(error) == sqlite3.SQLITE_FULL:
            self._give_log_back()
            return OutOfSpaceError(self._full_message())
        self._give_up()
        return _unavailable(error, self._path, committing)

    def _give_log_back(self) -> None:
        """Let go of the pages of a transaction that found no room: they may be what fills the disk."""
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


def _file_id(path: Path) -> FileId | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code(error: sqlite3.DatabaseError) -> int:
    """SQLite's primary code; that of damage where the bytes of a text are none, for which there is no code."""
    code = getattr(error, "sqlite_errorcode", None)
    return int(code) & _PRIMARY_CODE if code is not None else sqlite3.SQLITE_CORRUPT


def _is_served(error: StoreError, path: Path) -> bool:
    """Whether there is something to read at least, and the disk is to blame for the rest."""
    cause = error.__cause__
    if isinstance(cause, sqlite3.DatabaseError):
        is_of_the_disk = _code(cause) in _SERVED_CODES
    else:
        is_of_the_disk = isinstance(cause, OSError) and cause.errno in _SERVED_ERRNOS
    return is_of_the_disk and os.access(path, os.R_OK) and path.stat().st_size > 0


def _unavailable(error: sqlite3.DatabaseError, path: Path, committing: bool) -> StoreError:
    """In words of ours; SQLite's own are in the log."""
    code, name = _code(error), getattr(error, "sqlite_errorname", "")
    if code in _HELD:
        return UnavailableError(f"{path} is in use by another process: only one server can hold it")
    _log.warning("store.failed", error_message=str(error), error_code=name)
    if code in _DAMAGED:
        return damaged(path)
    # The lock that is for writing cannot be had of a file that may only be read.
    if code in _UNWRITABLE or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_LOCK:
        return UnavailableError(f"{path} cannot be written: look at its mode, its owner and its file system")
    if code == sqlite3.SQLITE_IOERR:
        hint = "look at the disk: its space, quotas and health. The next push tries again"
        return UnavailableError(f"{path} cannot be read or written; {hint}", maybe_committed=committing)
    return UnavailableError(f"{path} cannot be used now ({name})", maybe_committed=committing)


def damaged(path: Path) -> CorruptError:
    """The error for a file of which SQLite, or what is read by it, says that it cannot be so."""
    return CorruptError(
        f"{path} is damaged, or no store: `xds store check` says what is sound, `xds store salvage` saves that"
    )

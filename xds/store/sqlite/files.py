"""The files of a database: creation with private permissions, durability, network file systems, copies, and the log.

The format of the write-ahead log is that of sqlite.org/fileformat2.html#walformat.

A small file beside the database has the cursor of the newest acknowledged commit. SQLite cannot detect that a
write-ahead log was truncated: it opens the database without the commits at the end of the log. The small file reveals
that. It is written at most once a second, in place and with a fixed size, so that a full disk does not prevent the
write. It may lack the commits of the last second.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import structlog

from xds.store.base import UnavailableError

# SQLite's locks and its write-ahead log do not work over a network (sqlite.org/wal.html).
NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
_MOUNTS = Path("/proc/self/mountinfo")


def prepare_file(path: Path) -> bool:
    """Create the file (mode 0600) and its directory (0700) where they are missing; the store contains secrets.

    Returns whether the file existed and was empty. Raises ``UnavailableError`` when it cannot be created or is on a
    network file system.
    """
    try:
        _prepare_directory(path.parent)
        _refuse_network(path.parent)
        # The mode applies to a new file only: the permissions of an existing file are the choice of its owner.
        existed = path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return existed and os.fstat(descriptor).st_size == 0
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnavailableError(f"cannot keep data in {path.parent}: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Flush the entries of a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_system(path: Path, mounts: Iterable[str]) -> str:
    """The type of the file system of an absolute path, from the lines of mountinfo (proc(5)); "" if unknown."""
    best, kind = -1, ""
    for line in mounts:
        fields, _, source = line.partition(" - ")
        mount = fields.split(" ")[4].encode().decode("unicode_escape")
        if path.is_relative_to(mount) and len(mount) >= best:
            best, kind = len(mount), source.split(" ", 1)[0]
    return kind


def _prepare_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    above = next(parent for parent in directory.absolute().parents if parent.exists())
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_directory(above)


def _refuse_network(directory: Path) -> None:
    if not _MOUNTS.exists():
        return
    kind = file_system(directory.resolve(), _MOUNTS.read_text(errors="replace").splitlines())
    if kind in NETWORK_FILE_SYSTEMS:
        raise UnavailableError(f"cannot keep data in {directory}: {kind} is a network file system; use a local disk")


_MEMORY = Path("/dev/shm")  # noqa: S108 - a directory with mode 0700 is created in it


def connect_copy(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sqlite3.Connection:
    """A connection to a private copy of a database with its log. The copy is deleted with the connection.

    ``connect`` opens a path. Raises ``UnavailableError`` when there is no space for a copy.
    """
    problem = ""
    for place in (None, _MEMORY):
        try:
            with tempfile.TemporaryDirectory(prefix="xds-store-", dir=place) as folder:
                copied = Path(folder) / path.name
                for source, target in ((path, copied), (log_path(path), log_path(copied))):
                    if source.exists():
                        shutil.copyfile(source, target)
                connection = connect(copied)
                connection.execute(
                    "SELECT count(*) FROM sqlite_master"
                ).fetchone()  # opens both files before they are unlinked
                return connection
        except OSError as error:
            problem = error.strerror or str(error)
    raise UnavailableError(f"{path} cannot be written, and there is no space for a copy to read: {problem}")


_HEADER_BYTES = 32
_FRAME_BYTES = 24
_SALTS = slice(16, 24)


def log_path(database: Path) -> Path:
    """The path of the write-ahead log."""
    return database.with_name(database.name + "-wal")


def trim(database: Path) -> None:
    """Truncate the log after the last commit: a transaction that was rolled back leaves its pages there.

    The caller must hold the lock of the database and have no open transaction. Raises ``OSError``.
    """
    with log_path(database).open("rb+") as log:
        log.truncate(committed_bytes(log.fileno()))


def committed_bytes(log: int) -> int:
    """The length of the committed part of a log, up to the last commit frame with the salts of the header."""
    header = os.pread(log, _HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES:
        return 0
    frame_bytes = _FRAME_BYTES + int.from_bytes(header[8:12])
    end = at = _HEADER_BYTES
    while True:
        frame = os.pread(log, _FRAME_BYTES, at)
        # "The salt values in the frame-header exactly match those in the WAL header": others are from before a
        # checkpoint.
        if len(frame) < _FRAME_BYTES or frame[8:16] != header[_SALTS]:
            return end
        at += frame_bytes
        if frame[4:8] != bytes(4):  # "For commit records, the size of the database file in pages after the commit"
            end = at


_FLUSH_EVERY_S = 1.0
_ACKNOWLEDGED_SUFFIX = ".acknowledged"
_LINE = re.compile(rb"(\d{20} \d{20} \d{20}) ([0-9a-f]{8})\n")

_log = structlog.get_logger(logger_name="xds.store")


class AcknowledgedCursor(NamedTuple):
    """``newest`` is the cursor of the newest commit; ``first`` to ``last`` are those of missing commits, 0 for none."""

    newest: int = 0
    first: int = 0
    last: int = 0


class AcknowledgedFile:
    """The file of one store. It belongs to the thread of the store."""

    def __init__(self, database: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = _acknowledged_path(database)
        self.cursor = AcknowledgedCursor()
        self._written_cursor = AcknowledgedCursor()
        self._clock = clock
        self._due_s = 0.0

    def compare(self, newest: int) -> bool:
        """Read the file. True when the database, whose newest commit is ``newest``, lacks acknowledged commits.

        ``cursor`` then has the missing commits, across restarts, until ``forget_missing``.
        """
        self._written_cursor = self.cursor = _read_acknowledged(self._path)
        if self.cursor.newest <= newest:
            self.cursor = self.cursor._replace(newest=newest)
            return False
        self.cursor = AcknowledgedCursor(self.cursor.newest, self.cursor.first or newest + 1, self.cursor.newest)
        return True

    def acknowledge(self, newest: int) -> None:
        """Set the cursor of the newest acknowledged commit."""
        self.cursor = self.cursor._replace(newest=newest)

    def forget_missing(self) -> None:
        """Forget the missing commits."""
        self.cursor = AcknowledgedCursor(self.cursor.newest)

    def flush(self, at_once: bool = False) -> None:
        """Write the file when it is due. A failure is retried at the next call."""
        if self.cursor == self._written_cursor or (not at_once and self._clock() < self._due_s):
            return
        self._due_s = self._clock() + _FLUSH_EVERY_S
        try:
            _write_acknowledged(self._path, self.cursor)
        except OSError as error:
            _log.debug("store.note_failed", error_message=error.strerror)
        else:
            self._written_cursor = self.cursor


class NothingAcknowledged(AcknowledgedFile):
    """No file: nothing was acknowledged that could be missing, as in a store in memory, or in a copy."""

    def compare(self, newest: int) -> bool:
        """Nothing is missing."""
        return False

    def flush(self, at_once: bool = False) -> None:
        """There is no file."""


def acknowledged_of(database: Path) -> AcknowledgedCursor:
    """The content of the file beside a database; zeros where it is missing or damaged."""
    return _read_acknowledged(_acknowledged_path(database))


def _acknowledged_path(database: Path) -> Path:
    return database.with_name(database.name + _ACKNOWLEDGED_SUFFIX)


def _read_acknowledged(path: Path) -> AcknowledgedCursor:
    try:
        match = _LINE.fullmatch(path.read_bytes())
    except OSError:
        return AcknowledgedCursor()
    if match is None or crc32(match[1]) != int(match[2], 16):
        return AcknowledgedCursor()
    return AcknowledgedCursor(*map(int, match[1].split()))


def _write_acknowledged(path: Path, cursor: AcknowledgedCursor) -> None:
    line = b" ".join(b"%020d" % number for number in cursor)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, b"%s %08x\n" % (line, crc32(line)), 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)

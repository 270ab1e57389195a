"""The place on disk: made, kept private, made durable, and refused where locks or fsync cannot be relied upon.

A private copy of a database, for who may not, or must not, write the file itself.

The file of the write-ahead log (sqlite.org/fileformat2.html#walformat): what is committed; the rest given back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from xds.store.base import UnavailableError

# SQLite's locks and WAL need one machine (sqlite.org/wal.html); spec/storage.md 6.3: "Refuse network file systems."
NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
_MOUNTS = Path("/proc/self/mountinfo")


def prepare_file(path: Path) -> bool:
    """Make the file (mode 0600) and its directory (0700) where they are missing: secrets lie in it.

    Whether it was there and empty. Raises ``UnavailableError`` when it cannot be made or lies on a network file system.
    """
    try:
        _prepare_directory(path.parent)
        _refuse_network(path.parent)
        # The mode counts only for a file that is made now: whoever opened an existing one to others meant it.
        was_there = path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return was_there and os.fstat(descriptor).st_size == 0
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnavailableError(f"cannot keep data in {path.parent}: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_system(path: Path, mounts: Iterable[str]) -> str:
    """The type of the file system that holds an absolute path, by the lines of mountinfo (proc(5)); "" if unknown."""
    best, found = -1, ""
    for line in mounts:
        fields, _, source = line.partition(" - ")
        mount = fields.split(" ")[4].encode().decode("unicode_escape")
        if path.is_relative_to(mount) and len(mount) >= best:
            best, found = len(mount), source.split(" ", 1)[0]
    return found


def _prepare_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    above = next(parent for parent in directory.absolute().parents if parent.exists())
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_directory(above)


def _refuse_network(directory: Path) -> None:
    if not _MOUNTS.exists():
        return
    found = file_system(directory.resolve(), _MOUNTS.read_text(errors="replace").splitlines())
    if found in NETWORK_FILE_SYSTEMS:
        raise UnavailableError(f"cannot keep data in {directory}: {found} is a network file system; use a local disk")


_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of mode 0700 is made in it


def connect_copy(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> sqlite3.Connection:
    """A connection to a copy of the database with its log; the copy has no name and goes with the connection.

    ``connect`` opens it. Raises ``UnavailableError`` where there is no room for it either.
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
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # now both files are open
                return connection
        except OSError as error:
            problem = error.strerror or str(error)
    raise UnavailableError(f"{path} cannot be written, and there is no room for a copy of it to read: {problem}")


_HEADER_BYTES = 32
_FRAME_BYTES = 24
_SALTS = slice(16, 24)


def log_path(database: Path) -> Path:
    """Where the log of a database is."""
    return database.with_name(database.name + "-wal")


def trim(database: Path) -> None:
    """Give back what stands behind the last commit: a transaction that was rolled back leaves its pages there.

    Only for who holds the database's lock and has no transaction open. Raises ``OSError``.
    """
    with log_path(database).open("rb+") as log:
        log.truncate(committed_bytes(log.fileno()))


def committed_bytes(log: int) -> int:
    """How much of a log is committed: up to the last frame of this round that ends a transaction."""
    header = os.pread(log, _HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES:
        return 0
    frame_bytes = _FRAME_BYTES + int.from_bytes(header[8:12])
    end = at = _HEADER_BYTES
    while True:
        frame = os.pread(log, _FRAME_BYTES, at)
        # "The salt values in the frame-header exactly match those in the WAL header": others are of an earlier round.
        if len(frame) < _FRAME_BYTES or frame[8:16] != header[_SALTS]:
            return end
        at += frame_bytes
        if frame[4:8] != bytes(4):  # "For commit records, the size of the database file in pages after the commit"
            end = at

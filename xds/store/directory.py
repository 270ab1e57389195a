"""The place on disk: made, kept private, made durable, and refused where locks or fsync cannot be relied upon."""

from __future__ import annotations

import os
from collections.abc import Iterable
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

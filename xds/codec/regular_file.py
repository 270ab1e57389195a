"""Files that are read again and again while the server runs, and that others may write: read without surprises.

A name in a directory may be that of a named pipe, which blocks its reader for good, of a device without an end, or of a
link to any file of the machine, whose words would stand in a finding. So what a name leads to is a regular file of a
bounded size, and where a directory is given, within it. The links of a mounted ConfigMap stay within its directory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from xds.codec.effort import check_effort

_PIECE_BYTES = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileContent(NamedTuple):
    """The bytes of a file, and its state after they were read."""

    data: bytes
    state: os.stat_result


def read_regular(path: Path, limit_bytes: int, directory: Path | None = None) -> FileContent:
    """The content of a regular file; with ``directory``, one that lies within it when all links are resolved.

    Raises ``OSError`` with the reason as its ``strerror``, for a larger file too, however it grows meanwhile.
    """
    target = _resolved(path)
    root = _resolved(directory or target.parent)
    if not is_within(path, root):
        raise _refused(path, f"leads to a file outside of {directory}")
    with _opened(root, target.relative_to(root).parts) as descriptor:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise _refused(path, "not a regular file")
        data = bytearray()
        if state.st_size > limit_bytes:
            raise _refused(path, f"larger than {limit_bytes} bytes")
        while len(data) <= limit_bytes and (piece := os.read(descriptor, _PIECE_BYTES)):
            check_effort()
            data += piece
        if len(data) > limit_bytes:
            raise _refused(path, f"grew beyond {limit_bytes} bytes while it was read")
        return FileContent(bytes(data), os.fstat(descriptor))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except RuntimeError:  # what Python before 3.13 says of links that lead to themselves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def is_within(path: Path, directory: Path) -> bool:
    """Whether a path lies within a directory, and is not the directory itself, when all links are resolved.

    Raises ``OSError``.
    """
    target, root = _resolved(path), _resolved(directory)
    return target.is_relative_to(root) and target != root


def _refused(path: Path, reason: str) -> OSError:
    return _RefusedFileError(0, reason, str(path))


class _RefusedFileError(OSError):
    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


@contextmanager
def _opened(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """The descriptor of a file below ``root``. A link that took the place of a part meanwhile is not followed."""
    descriptor = os.open(root, _DIRECTORY)
    try:
        for at, part in enumerate(parts, 1):
            opened = os.open(part, _FILE if at == len(parts) else _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = opened
        yield descriptor
    finally:
        os.close(descriptor)

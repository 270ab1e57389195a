"""The lock of a data directory: one server, or readers that keep servers away.

SQLite locks a file that it can write. A server that starts on a full or read-only disk serves a copy, and holds none of
SQLite's locks; it becomes writable later. So the directory itself is locked (flock(2)): that needs no space and no
right to write, and ends with the process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from xds.store.base import UnavailableError


class DirectoryLock:
    """The lock of one directory, not held yet. ``shared``: others may hold it too, if they share it as well."""

    def __init__(self, directory: Path, *, shared: bool = False) -> None:
        self._directory = directory
        self._mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether it is held; False also where the file system has no such locks."""
        return self._descriptor is not None

    def take(self) -> None:
        """Take it if the file system has such locks. Raises ``UnavailableError`` if another process holds it."""
        if self._descriptor is not None:
            return
        try:
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return  # whoever needs the directory tells why it cannot be opened
        try:
            fcntl.flock(descriptor, self._mode | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                message = f"{self._directory} is in use by another process: only one server can use it"
                raise UnavailableError(message) from error
        else:
            self._descriptor = descriptor

    def release(self) -> None:
        """Release it. Harmless when repeated."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""Folders that only their owner may enter, removed when the process ends that made them.

A process keeps its folder locked. The lock of a process that was killed is gone, so the next process that makes a
folder of this kind removes what is left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_folder(kind: str) -> Iterator[Path]:
    """A new folder of mode 0700 for temporary files, removed at the end. Those of ended processes are removed first."""
    prefix = f"{kind}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(left)
    folder, lock = _locked(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(prefix: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that keeps its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():  # else another process took it for left before the lock
            return folder, lock
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    """Remove a folder of ours that no process keeps locked."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # that of another user, or gone by now
        return
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)

"""The cursor of the newest acknowledged commit, in a small file beside the database.

SQLite cannot tell a truncated write-ahead log from one that was never longer: the database opens without the commits
that were in it. This file, which is apart from the database, reveals that. It is written at most once a second, in
place and with a fixed size, so that a full disk does not prevent it. Commits of the last second may not be in it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import structlog

FLUSH_EVERY_S = 1.0
SUFFIX = ".acknowledged"
_LINE = re.compile(rb"(\d{20} \d{20} \d{20}) ([0-9a-f]{8})\n")

_log = structlog.get_logger(logger_name="xds.store")


class AcknowledgedCursor(NamedTuple):
    """``newest`` is the cursor of the newest commit; ``first`` to ``last`` are missing commits, 0 for none."""

    newest: int = 0
    first: int = 0
    last: int = 0


class AcknowledgedFile:
    """The file of one store. It belongs to the thread of the store."""

    def __init__(self, database: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = database.with_name(database.name + SUFFIX)
        self.noted = AcknowledgedCursor()
        self._written = AcknowledgedCursor()
        self._clock = clock
        self._due_s = 0.0

    def compare(self, newest: int) -> bool:
        """Read the file. True when the database, whose newest commit is ``newest``, lacks acknowledged commits.

        ``noted`` keeps the missing commits from then on, across restarts, until ``begin_anew``.
        """
        self._written = self.noted = read(self.path)
        if self.noted.newest <= newest:
            self.noted = self.noted._replace(newest=newest)
            return False
        self.noted = AcknowledgedCursor(self.noted.newest, self.noted.first or newest + 1, self.noted.newest)
        return True

    def note(self, newest: int) -> None:
        """A commit is acknowledged."""
        self.noted = self.noted._replace(newest=newest)

    def begin_anew(self) -> None:
        """Forget the missing commits."""
        self.noted = AcknowledgedCursor(self.noted.newest)

    def flush(self, at_once: bool = False) -> None:
        """Write the file when it is due. A failure is retried at the next call."""
        if self.noted == self._written or (not at_once and self._clock() < self._due_s):
            return
        self._due_s = self._clock() + FLUSH_EVERY_S
        try:
            _write(self.path, self.noted)
        except OSError as error:
            _log.debug("store.note_failed", error_message=error.strerror)
        else:
            self._written = self.noted


def read(path: Path) -> AcknowledgedCursor:
    """The content of the file; zeros where it is missing or damaged."""
    try:
        found = _LINE.fullmatch(path.read_bytes())
    except OSError:
        return AcknowledgedCursor()
    if found is None or crc32(found[1]) != int(found[2], 16):
        return AcknowledgedCursor()
    return AcknowledgedCursor(*map(int, found[1].split()))


def _write(path: Path, noted: AcknowledgedCursor) -> None:
    line = b" ".join(b"%020d" % number for number in noted)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, b"%s %08x\n" % (line, crc32(line)), 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)

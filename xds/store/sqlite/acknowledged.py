"""The newest commit that anybody was told of, in a small file beside the database.

A log that lost its end is taken by SQLite for one that was never longer: it opens, and is behind what was
acknowledged. What is noted here, apart from the database, tells. The file is written once a second at most, in place
and of one size, so that a full disk does not hinder it; what was acknowledged within the last second may not be noted.
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
    """``newest`` is the cursor of the newest commit; ``first`` to ``last`` were found missing, 0 for none."""

    newest: int = 0
    first: int = 0
    last: int = 0


class AcknowledgedFile:
    """The note of one store. Belongs to the store's thread."""

    def __init__(self, database: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = database.with_name(database.name + SUFFIX)
        self.noted = AcknowledgedCursor()
        self._written = AcknowledgedCursor()
        self._clock = clock
        self._due_s = 0.0

    def compare(self, newest: int) -> bool:
        """Read the note, and whether a database whose newest commit is ``newest`` is behind it.

        What is missing is kept in ``noted`` from then on, across restarts, until ``begin_anew``.
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
        """What was missing matters no more."""
        self.noted = AcknowledgedCursor(self.noted.newest)

    def flush(self, at_once: bool = False) -> None:
        """Write what is noted where it is due; what fails is tried again."""
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
    """What a file says; nothing where it is not there, or is damaged."""
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

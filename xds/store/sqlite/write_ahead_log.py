"""The file of the write-ahead log (sqlite.org/fileformat2.html#walformat): what is committed; the rest given back."""

from __future__ import annotations

import os
from pathlib import Path

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

"""What the store says to SQLite of open NACKs: rows without revisions, written in batches."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from xds.store.base import OpenNack

_WRITE = "INSERT OR REPLACE INTO nack (id, node, type, body) VALUES (?, ?, ?, ?)"


def write(connection: sqlite3.Connection, put: Sequence[OpenNack], gone: Collection[int]) -> None:
    """Write some and forget others, in the caller's transaction."""
    connection.executemany("DELETE FROM nack WHERE id = ?", [(id,) for id in gone])
    connection.executemany(_WRITE, [(nack.id, nack.node, nack.type_url, nack.body) for nack in put])


def read(connection: sqlite3.Connection) -> list[OpenNack]:
    """All of them, by id."""
    return [OpenNack(*row) for row in connection.execute("SELECT id, node, type, body FROM nack ORDER BY id")]

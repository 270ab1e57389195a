"""Counters that never go back, also when the rows that they numbered are deleted."""

from __future__ import annotations

from collections.abc import Sequence

from xds.store.base import CorruptError
from xds.store.sql.connection import SqlConnection

EVENT = "event"  # the cursor of the newest commit
AUDIT = "audit"  # the newest position of the audit list
AUDIT_TRIMMED = "audit_trimmed"  # the highest deleted position of a change, for readers that missed entries
NAMES = (EVENT, AUDIT, AUDIT_TRIMMED)


def value(connection: SqlConnection, name: str) -> int:
    """The last value, 0 for none. Raises ``CorruptError``."""
    return _only(name, connection.execute("SELECT v FROM seq WHERE name = ?", (name,)).fetchall())


def advance(connection: SqlConnection, name: str) -> int:
    """The next value. Raises ``CorruptError``."""
    return _only(name, connection.execute("UPDATE seq SET v = v + 1 WHERE name = ? RETURNING v", (name,)).fetchall())


def put(connection: SqlConnection, name: str, to: int) -> None:
    """Set the last value."""
    connection.execute("UPDATE seq SET v = ? WHERE name = ?", (to, name))


def _only(name: str, rows: Sequence[tuple[int]]) -> int:
    """The value in the only row. Each counter has had its row since the schema was made."""
    if not rows:
        raise CorruptError(f"the counter {name!r} is missing")
    return int(rows[0][0])

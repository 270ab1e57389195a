"""Counters that never go back, also when the rows that they numbered are deleted."""

from __future__ import annotations

from xds.store.sql.connection import SqlConnection

EVENT = "event"  # the cursor of the newest commit
AUDIT = "audit"  # the newest position of the audit list
AUDIT_TRIMMED = "audit_trimmed"  # the highest deleted position of a change, for readers that missed entries
NAMES = (EVENT, AUDIT, AUDIT_TRIMMED)


def value(connection: SqlConnection, name: str) -> int:
    """The last value, 0 for none."""
    return int(connection.execute("SELECT v FROM seq WHERE name = ?", (name,)).fetchone()[0])


def advance(connection: SqlConnection, name: str) -> int:
    """The next value."""
    return int(connection.execute("UPDATE seq SET v = v + 1 WHERE name = ? RETURNING v", (name,)).fetchone()[0])


def put(connection: SqlConnection, name: str, to: int) -> None:
    """Set the last value."""
    connection.execute("UPDATE seq SET v = ? WHERE name = ?", (to, name))

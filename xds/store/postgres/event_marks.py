"""Marks of events: a server recognises by one whether commits are lost that it has seen.

A standby that lagged, or a database that was restored, lacks the last commits; others may have taken their cursors. If
an event is still there, all events before it are.
"""

from __future__ import annotations

from typing import NamedTuple

from xds.store.sql.connection import SqlConnection

CHANNEL = "xds"  # of notifications

_MARK = "SELECT cursor, md5(CAST(event AS TEXT)) FROM event"
_NEWEST = f"{_MARK} ORDER BY cursor DESC LIMIT 1"


class Mark(NamedTuple):
    """The event at a cursor; an empty ``digest`` for one that is known by its cursor alone."""

    cursor: int
    digest: str = ""


NO_MARK = Mark(0)


def newest(connection: SqlConnection) -> Mark:
    """The mark of the newest event."""
    row = connection.execute(_NEWEST).fetchone()
    return Mark(*row) if row is not None else NO_MARK


def is_lost(connection: SqlConnection, seen: Mark) -> bool:
    """Whether an event that was there is not there any more, without a restore by a server."""
    (last,) = connection.execute("SELECT coalesce(max(cursor), 0) FROM event").fetchone()
    if last < seen.cursor:
        return True
    row = connection.execute(f"{_MARK} WHERE cursor = ?", (seen.cursor,)).fetchone()
    return row is not None and seen.digest not in ("", row[1])


def notify(connection: SqlConnection) -> None:
    """Tell the listeners of all servers, when the caller's transaction is committed."""
    connection.execute(f"NOTIFY {CHANNEL}")

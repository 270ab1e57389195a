"""Turns: a server that was outrun again and again keeps others from committing to some groups for a moment.

A lock of the database would not do: a session may have another connection for each transaction (pooling).
"""

from __future__ import annotations

from collections.abc import Collection

from xds.store.sql.connection import SqlConnection

LONGEST_S = 10.0
# A turn that ends later is from before the clock of the database was set back.
_HELD_BY_OTHERS = "SELECT name FROM turn WHERE holder <> ? AND ends > now() AND ends <= now() + ? * interval '1 second'"
_TAKE = (
    "INSERT INTO turn (name, holder, ends) VALUES (?, ?, now() + ? * interval '1 second')"
    " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, ends = excluded.ends"
)


def create(connection: SqlConnection) -> None:
    """Create the table."""
    connection.execute('CREATE TABLE turn (name TEXT COLLATE "C" PRIMARY KEY, holder TEXT NOT NULL, ends TIMESTAMPTZ)')


def take(connection: SqlConnection, groups: Collection[str], holder: str) -> bool:
    """Take the turns of all these groups, or of none: False if another server has one."""
    others = held_by_others(connection, holder)
    if others.intersection(groups):
        return False
    for group in groups:
        connection.execute(_TAKE, (group, holder, LONGEST_S))
    return True


def end(connection: SqlConnection, holder: str) -> None:
    """End all turns of a server."""
    connection.execute("DELETE FROM turn WHERE holder = ? OR ends < now()", (holder,))


def held_by_others(connection: SqlConnection, holder: str) -> set[str]:
    """The groups that other servers have the turn of."""
    return {name for (name,) in connection.execute(_HELD_BY_OTHERS, (holder, LONGEST_S))}

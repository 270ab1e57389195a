"""The tables of `xds.store.sql.tables` in a schema of PostgreSQL, and what only PostgreSQL needs."""

from __future__ import annotations

from xds.store.base import UnavailableError
from xds.store.postgres import member_rows, turn_rows
from xds.store.postgres.connection import SCHEMA, PostgresConnection
from xds.store.sql import tables
from xds.store.sql.tables import ColumnTypes

OLDEST_POSTGRES = 13

# Names are compared by their bytes, as in SQLite and in Python, whatever the database's own order is.
_TYPES = ColumnTypes(
    "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "BIGINT",
    "DOUBLE PRECISION",
    "BOOLEAN",
    'TEXT COLLATE "C"',
    "BYTEA",
    keyed="",
)
# The number of the last transaction of each writer: it tells whether a commit whose answer was lost was made.
_WRITER = "CREATE TABLE writer (id TEXT PRIMARY KEY, n BIGINT NOT NULL, seen TIMESTAMPTZ NOT NULL)"


def ensure(connection: PostgresConnection) -> None:
    """Create the schema and its tables, in the caller's transaction, unless they exist.

    Raises ``UnavailableError`` for a schema of a newer release or of another program, and for an unfit server.
    """
    _check_server(connection)
    if connection.execute("SELECT to_regnamespace(?)", (SCHEMA,)).fetchone() == (None,):
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
    elif connection.execute("SELECT has_schema_privilege(?, 'USAGE')", (SCHEMA,)).fetchone() == (False,):
        raise UnavailableError(f"the user may not use its schema {SCHEMA}: grant it the schema and its tables")
    names = {name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = ?", (SCHEMA,))}
    if not names:
        tables.create(connection, _TYPES)
        connection.execute(_WRITER)
    elif names >= {"meta", "seq", "writer"}:
        tables.schema_of(connection)
    else:
        raise UnavailableError(f"its schema {SCHEMA} belongs to another program: use a database of its own")
    if "member" not in names:  # an earlier release reads a database that has it
        member_rows.create(connection)
    if "turn" not in names:
        turn_rows.create(connection)
    connection.execute("DELETE FROM writer WHERE seen < now() - interval '1 day'")


def _check_server(connection: PostgresConnection) -> None:
    version = connection.raw.info.server_version
    if version < OLDEST_POSTGRES * 10_000:
        raise UnavailableError(f"it is PostgreSQL {version // 10_000}, and the store needs {OLDEST_POSTGRES} or newer")
    encoding = connection.raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise UnavailableError(f"its encoding is {encoding}, and names need UTF8: CREATE DATABASE ... ENCODING 'UTF8'")

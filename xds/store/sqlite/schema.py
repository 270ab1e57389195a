"""The migrations of the tables (`xds.store.sql.tables`) in SQLite, and the settings of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from xds.store.base import UnavailableError
from xds.store.sql import tables
from xds.store.sql.tables import SCHEMA_VERSION, ColumnTypes

OLDEST_SQLITE = (3, 35, 0)  # RETURNING
PAGE_BYTES = 8192
CACHE_KIB = 32 * 1024
WAL_LIMIT_BYTES = 64 << 20

_TYPES = ColumnTypes("INTEGER PRIMARY KEY", "INTEGER", "REAL", "INTEGER", "TEXT", "BLOB", keyed=" WITHOUT ROWID")

# The statements that migrate each schema to the next one.
_MIGRATIONS: Mapping[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE grp ADD COLUMN floor INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE push ADD COLUMN digest BLOB NOT NULL DEFAULT x''",
        "CREATE TABLE doomed (h BLOB PRIMARY KEY) WITHOUT ROWID",
    ),
    2: (
        "ALTER TABLE revision ADD COLUMN actor TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE revision ADD COLUMN kind TEXT NOT NULL DEFAULT 'push'",
        "ALTER TABLE revision ADD COLUMN content_of INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE revision ADD COLUMN keeps_endpoints INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE revision ADD COLUMN endpoints_only INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE revision ADD COLUMN content INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE revision ADD COLUMN nodes INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE revision ADD COLUMN refused INTEGER NOT NULL DEFAULT 0",
        "UPDATE revision SET kind = 'delete' WHERE NOT live",
        "CREATE INDEX rollbacks ON revision (grp, revision) WHERE content_of > 0",
        "CREATE TABLE audit ("
        " position INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL, lane INTEGER NOT NULL, key TEXT NOT NULL,"
        " grp TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, count INTEGER NOT NULL, first_s REAL NOT NULL,"
        " time_s REAL NOT NULL, size INTEGER NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX audit_lanes ON audit (lane, position)",
        "CREATE INDEX audit_keys ON audit (key) WHERE key <> ''",
        "INSERT INTO meta VALUES ('audit_epoch', lower(hex(randomblob(4)))), ('audit_trimmed', '0')",
        "CREATE TABLE nack (id INTEGER PRIMARY KEY, node TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL)",
    ),
    3: (
        "CREATE TABLE observed ("
        " id INTEGER PRIMARY KEY, source TEXT NOT NULL, service TEXT NOT NULL, body BLOB NOT NULL,"
        " UNIQUE (source, service))",
    ),
    4: (  # The counters move from SQLite's own table to one of the store.
        "CREATE TABLE seq (name TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO seq SELECT 'event', coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'",
        "INSERT INTO seq SELECT 'audit', coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'audit'",
        "INSERT INTO seq SELECT 'audit_trimmed', CAST(v AS INTEGER) FROM meta WHERE k = 'audit_trimmed'",
        "DELETE FROM meta WHERE k = 'audit_trimmed'",
        "ALTER TABLE event RENAME TO earlier",
        "CREATE TABLE event (cursor INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,"
        " revision INTEGER NOT NULL, live INTEGER NOT NULL, body BLOB)",
        "INSERT INTO event SELECT cursor, kind, name, revision, live, body FROM earlier",
        "DROP TABLE earlier",
        "ALTER TABLE audit RENAME TO earlier",
        "CREATE TABLE audit ("
        " position INTEGER PRIMARY KEY, id INTEGER NOT NULL, lane INTEGER NOT NULL, key TEXT NOT NULL,"
        " grp TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, count INTEGER NOT NULL, first_s REAL NOT NULL,"
        " time_s REAL NOT NULL, size INTEGER NOT NULL, body TEXT NOT NULL)",
        "INSERT INTO audit SELECT position, id, lane, key, grp, actor, action, count, first_s, time_s, size, body"
        " FROM earlier",
        "DROP TABLE earlier",
        "CREATE INDEX audit_lanes ON audit (lane, position)",
        "CREATE INDEX audit_keys ON audit (key) WHERE key <> ''",
    ),
}


def check_release() -> None:
    """Raises ``UnavailableError`` where the library is older than the statements need."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE[:2]))
        raise UnavailableError(
            f"this Python has SQLite {sqlite3.sqlite_version}, and the store needs {oldest} or newer:"
            " use the container image, or a Python of a newer system"
        )


def configure(connection: sqlite3.Connection, max_bytes: int | None) -> None:
    """Configure the connection; the order matters. ``max_bytes`` bounds the database file."""
    # "EXCLUSIVE makes a second server process fail, needs no -shm file, and means exactly one connection both writes
    # and checkpoints": it must be set before WAL is, and before anything is read: on a full
    # disk there is no room for a -shm file.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    # Before the first table: a later change needs a VACUUM. auto_vacuum allows free pages to be returned.
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise UnavailableError(f"the data directory does not support a write-ahead log (journal mode {mode})")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA cache_size={-CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
    # ``Database.checkpoint`` runs long before that, between jobs; a commit does it itself only at the limit.
    connection.execute(f"PRAGMA wal_autocheckpoint={WAL_LIMIT_BYTES // PAGE_BYTES}")
    if max_bytes is not None:
        connection.execute(f"PRAGMA max_page_count={max(1, max_bytes // PAGE_BYTES)}")


def configure_in_memory(connection: sqlite3.Connection) -> None:
    """Configure a connection to a database without a file."""
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA foreign_keys=ON")


def ensure(connection: sqlite3.Connection) -> None:
    """Create the tables or bring them up to date, in the caller's transaction.

    Raises ``UnavailableError`` for a file of a newer release, or of another program.
    """
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names:
        tables.create(connection, _TYPES)
    elif "meta" in names:
        _migrate(connection, tables.schema_of(connection))
    else:
        raise UnavailableError("the database file belongs to another program")


def _migrate(connection: sqlite3.Connection, schema: int) -> None:
    for version in range(schema, SCHEMA_VERSION):
        for statement in _MIGRATIONS[version]:
            connection.execute(statement)
    if schema < SCHEMA_VERSION:
        connection.execute("UPDATE meta SET v = ? WHERE k = 'schema'", (str(SCHEMA_VERSION),))

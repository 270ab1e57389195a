"""The tables, their migrations, and the settings of a connection (docs/internals/design.md#storage).

The present content of a group is in ``entry``, one row per resource. A row that is replaced or removed moves to
``past`` with the revision that ended it. The content at a revision consists of the rows that began by then and had not
ended. So an update of one resource writes one row, and reading an older revision costs the head plus the changes since.
Deleting history means deleting rows of ``past`` that ended by the ``floor`` of the group, then the blobs in ``doomed``
that neither table names (``collection``).

Rows name blobs by hash, without a foreign key: reading a manifest does not touch the blobs, and the check would need an
index over both tables that every push pays for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from xds.store.base import UnavailableError

SCHEMA_VERSION = 4
PAGE_BYTES = 8192
CACHE_KIB = 32 * 1024
WAL_LIMIT_BYTES = 64 << 20

_TABLES = """
CREATE TABLE meta (k TEXT PRIMARY KEY, v TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE type (id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE);
CREATE TABLE grp (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    revision INTEGER NOT NULL,
    live INTEGER NOT NULL,
    last_rank INTEGER NOT NULL,
    floor INTEGER NOT NULL DEFAULT 1 -- the lowest revision whose content is kept
);
-- A rowid table: WITHOUT ROWID keyed by hash took 8 times the time and 4 times the space.
CREATE TABLE blob (id INTEGER PRIMARY KEY, h BLOB NOT NULL UNIQUE, codec INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE revision (
    grp INTEGER NOT NULL REFERENCES grp,
    revision INTEGER NOT NULL,
    live INTEGER NOT NULL,
    resources INTEGER NOT NULL,
    versions TEXT NOT NULL,
    author TEXT NOT NULL,
    message TEXT NOT NULL,
    time_s REAL NOT NULL,
    actor TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL DEFAULT 'push',
    content_of INTEGER NOT NULL DEFAULT 0, -- target of a rollback
    keeps_endpoints INTEGER NOT NULL DEFAULT 0,
    endpoints_only INTEGER NOT NULL DEFAULT 0,
    content INTEGER NOT NULL DEFAULT 1, -- 0 where it was collected above the floor
    nodes INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (grp, revision)
) WITHOUT ROWID;
CREATE INDEX rollbacks ON revision (grp, revision) WHERE content_of > 0;
CREATE TABLE entry (
    grp INTEGER NOT NULL REFERENCES grp,
    type INTEGER NOT NULL REFERENCES type,
    name TEXT NOT NULL,
    h BLOB NOT NULL,
    rank INTEGER NOT NULL,
    born INTEGER NOT NULL,
    PRIMARY KEY (grp, type, name)
) WITHOUT ROWID;
CREATE TABLE past (
    grp INTEGER NOT NULL REFERENCES grp,
    died INTEGER NOT NULL,
    type INTEGER NOT NULL REFERENCES type,
    name TEXT NOT NULL,
    h BLOB NOT NULL,
    rank INTEGER NOT NULL,
    born INTEGER NOT NULL,
    PRIMARY KEY (grp, died, type, name)
) WITHOUT ROWID;
CREATE TABLE push (
    id INTEGER PRIMARY KEY,
    grp INTEGER NOT NULL REFERENCES grp,
    push_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    time_s REAL NOT NULL,
    digest BLOB NOT NULL DEFAULT x'', -- of the request; empty: not known
    UNIQUE (grp, push_id)
);
CREATE TABLE doc (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB,
    revision INTEGER NOT NULL,
    UNIQUE (kind, name)
);
-- kind '' is a commit to the group ``name``; else a document of that kind.
CREATE TABLE event (
    cursor INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    live INTEGER NOT NULL,
    body BLOB
);
-- Contains every blob that no row names, across a crash during a collection; it may contain blobs that are named.
CREATE TABLE doomed (h BLOB PRIMARY KEY) WITHOUT ROWID;
-- Open NACKs, so that rejected resources are not re-sent after a restart.
CREATE TABLE nack (id INTEGER PRIMARY KEY, node TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL);
"""

# Observed state: the last good set of each source and service. A rowid table, since its rows are large.
_OBSERVED = (
    "CREATE TABLE observed ("
    " id INTEGER PRIMARY KEY, source TEXT NOT NULL, service TEXT NOT NULL, body BLOB NOT NULL,"
    " UNIQUE (source, service))"
)

_AUDIT = (
    "CREATE TABLE audit ("
    " position INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL, lane INTEGER NOT NULL, key TEXT NOT NULL,"
    " grp TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, count INTEGER NOT NULL, first_s REAL NOT NULL,"
    " time_s REAL NOT NULL, size INTEGER NOT NULL, body TEXT NOT NULL)",
    "CREATE INDEX audit_lanes ON audit (lane, position)",
    "CREATE INDEX audit_keys ON audit (key) WHERE key <> ''",
    # The epoch distinguishes cursors of different stores; the highest deleted position tells readers that they missed
    # entries.
    "INSERT INTO meta VALUES ('audit_epoch', lower(hex(randomblob(4)))), ('audit_trimmed', '0')",
)

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
        *_AUDIT,
        # Open NACKs.
        "CREATE TABLE nack (id INTEGER PRIMARY KEY, node TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL)",
    ),
    3: (_OBSERVED,),
}


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
        _create(connection)
        return
    if "meta" not in names:
        raise UnavailableError("the database file belongs to another program")
    (found,) = connection.execute("SELECT v FROM meta WHERE k = 'schema'").fetchone() or ("0",)
    if int(found) > SCHEMA_VERSION or (int(found) < SCHEMA_VERSION and int(found) not in _MIGRATIONS):
        raise UnavailableError(
            f"the data has schema {found}, this release supports {SCHEMA_VERSION}; use a newer release"
        )
    _migrate(connection, int(found))


def _migrate(connection: sqlite3.Connection, found: int) -> None:
    for version in range(found, SCHEMA_VERSION):
        for statement in _MIGRATIONS[version]:
            connection.execute(statement)
    if found < SCHEMA_VERSION:
        connection.execute("UPDATE meta SET v = ? WHERE k = 'schema'", (str(SCHEMA_VERSION),))


def _create(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";\n"):  # a comment holds no semicolon at the end of its line
        connection.execute(statement)
    for statement in (*_AUDIT, _OBSERVED):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))

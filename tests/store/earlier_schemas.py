"""Statements that make a file of today's schema one of an earlier schema, as far as tests need it."""

from __future__ import annotations

from xds.store.sql.record_rows import LINE_COLUMNS

_EVENT = (
    "CREATE TABLE event (cursor INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,"
    " revision INTEGER NOT NULL, live INTEGER NOT NULL, body BLOB)"
)
_AUDIT = (
    "CREATE TABLE audit (position INTEGER PRIMARY KEY AUTOINCREMENT, id INTEGER NOT NULL, lane INTEGER NOT NULL,"
    " key TEXT NOT NULL, grp TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, count INTEGER NOT NULL,"
    " first_s REAL NOT NULL, time_s REAL NOT NULL, size INTEGER NOT NULL, body TEXT NOT NULL)"
)

TO_SCHEMA_4 = (
    *(
        statement
        for table, create in (("event", _EVENT), ("audit", _AUDIT))
        for statement in (
            f"ALTER TABLE {table} RENAME TO later",
            create,
            f"INSERT INTO {table} SELECT * FROM later",
            "DROP TABLE later",
            f"DELETE FROM sqlite_sequence WHERE name = '{table}'",
            f"INSERT INTO sqlite_sequence (name, seq) SELECT name, v FROM seq WHERE name = '{table}'",
        )
    ),
    "CREATE INDEX audit_lanes ON audit (lane, position)",
    "CREATE INDEX audit_keys ON audit (key) WHERE key <> ''",
    "INSERT INTO meta SELECT 'audit_trimmed', v FROM seq WHERE name = 'audit_trimmed'",
    "DROP TABLE seq",
    "UPDATE meta SET v = '4' WHERE k = 'schema'",
)
TO_SCHEMA_3 = (*TO_SCHEMA_4, "DROP TABLE observed", "UPDATE meta SET v = '3' WHERE k = 'schema'")
TO_SCHEMA_2 = (
    *TO_SCHEMA_3,
    "DROP INDEX rollbacks",
    *(f"ALTER TABLE revision DROP COLUMN {column}" for column in LINE_COLUMNS[LINE_COLUMNS.index("actor") :]),
    "DROP TABLE audit",
    "DROP TABLE nack",
    "DELETE FROM meta WHERE k IN ('audit_epoch', 'audit_trimmed')",
    "UPDATE meta SET v = '2' WHERE k = 'schema'",
)
TO_SCHEMA_1 = (
    *TO_SCHEMA_2,
    "ALTER TABLE grp DROP COLUMN floor",
    "ALTER TABLE push DROP COLUMN digest",
    "DROP TABLE doomed",
    "UPDATE meta SET v = '1' WHERE k = 'schema'",
)

"""The servers of a database, their lease and their secret, in tables. Each statement is a transaction of its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from xds.store.member_register import GONE_AFTER_S, LEASE_S, NO_NUMBER, Heartbeat, Member, SharedSecret
from xds.store.postgres.connection import PostgresConnection
from xds.store.sql.connection import SqlConnection

SECRET_BYTES = 32
MEMBER_LOCK = 0x7864735F33  # of joining
_SECRET, _PREVIOUS, _ROTATED = "cluster_secret", "cluster_secret_previous", "cluster_secret_rotated"

TABLES = (
    'CREATE TABLE member (id TEXT COLLATE "C" PRIMARY KEY, process TEXT NOT NULL, url TEXT NOT NULL,'
    " version TEXT NOT NULL, number BIGINT NOT NULL UNIQUE, started TIMESTAMPTZ NOT NULL, seen TIMESTAMPTZ NOT NULL)",
    "CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, epoch BIGINT NOT NULL,"
    " expires TIMESTAMPTZ NOT NULL)",
    "INSERT INTO lease (name, holder, epoch, expires) VALUES ('work', '', 0, now())",
)
# A time that is further ahead is from before the database's clock was set back. Statements that wait for each other
# differ by less.
_TIMES = {"gone_s": GONE_AFTER_S, "lease_s": LEASE_S, "ahead_s": 60.0}

_BEAT = "UPDATE member SET seen = now() WHERE id = :id AND process = :process RETURNING number"
# Whoever was killed comes back with its id: its number stays.
_JOIN = """
INSERT INTO member (id, process, url, version, number, started, seen)
VALUES (
    :id, :process, :url, :version,
    coalesce(
        (SELECT number FROM member WHERE id = :id),
        (
            SELECT min(n) FROM generate_series(0, :numbers - 1) AS n
            WHERE NOT EXISTS (SELECT 1 FROM member WHERE number = n)
        )
    ),
    now(), now()
)
ON CONFLICT (id) DO UPDATE
SET process = excluded.process, url = excluded.url, version = excluded.version, started = now(), seen = now()
WHERE member.seen NOT BETWEEN now() - make_interval(secs => :gone_s) AND now() + make_interval(secs => :ahead_s)
RETURNING number
"""
_RENEW = """
UPDATE lease SET
    epoch = epoch + CASE WHEN holder = :process THEN 0 ELSE 1 END,
    holder = :process,
    expires = now() + make_interval(secs => :lease_s)
WHERE name = 'work'
    AND (holder = :process OR expires NOT BETWEEN now() AND now() + make_interval(secs => :ahead_s))
"""
_LEASE = """
SELECT epoch, CASE WHEN expires BETWEEN now() AND now() + make_interval(secs => :ahead_s) THEN holder ELSE '' END
FROM lease WHERE name = 'work'
"""
_MEMBERS = """
SELECT id, url, version, number, CAST(extract(epoch FROM started) AS DOUBLE PRECISION),
    CAST(extract(epoch FROM seen) AS DOUBLE PRECISION), process
FROM member
WHERE seen BETWEEN now() - make_interval(secs => :gone_s) AND now() + make_interval(secs => :ahead_s) ORDER BY id
"""
_NOW = "SELECT CAST(extract(epoch FROM now()) AS DOUBLE PRECISION)"


def create(connection: PostgresConnection) -> None:
    """Create the tables and the secret, in the caller's transaction."""
    for statement in TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO meta (k, v) VALUES (?, ?)", (_SECRET, secrets.token_hex(SECRET_BYTES)))


def beat(connection: PostgresConnection, me: Member, process: str) -> Heartbeat:
    """Join or stay, and take or renew the lease."""
    values = {**_TIMES, "numbers": NO_NUMBER, "id": me.id, "url": me.url, "version": me.version, "process": process}
    row = connection.execute(_BEAT, values).fetchone() or _join(connection, values)
    sent_s = time.monotonic()
    if row is not None:
        connection.execute(_RENEW, values)
    epoch, holder = connection.execute(_LEASE, values).fetchone()
    now_s = clock_s(connection)
    rows = connection.execute(_MEMBERS, values).fetchall()
    return Heartbeat(
        sent_s=sent_s,
        now_s=now_s,
        number=row[0] if row is not None else None,
        members=tuple(Member(*fields) for *fields, _ in rows),
        holds=holder == process,
        holder=next((id for id, *_, of in rows if of == holder), ""),
        epoch=epoch,
        secret=_secret(connection, now_s),
    )


def leave(connection: SqlConnection, process: str) -> None:
    """Leave, and give the lease to whoever comes next."""
    connection.execute("UPDATE lease SET expires = now() - interval '1 s' WHERE holder = ?", (process,))
    connection.execute("DELETE FROM member WHERE process = ?", (process,))


def rotate_secret(connection: SqlConnection) -> None:
    """Make a new secret, in the caller's transaction."""
    (previous,) = connection.execute("SELECT v FROM meta WHERE k = ?", (_SECRET,)).fetchone()
    now_s = clock_s(connection)
    connection.executemany(
        "INSERT INTO meta (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
        [(_SECRET, secrets.token_hex(SECRET_BYTES)), (_PREVIOUS, previous), (_ROTATED, str(now_s))],
    )


def clock_s(connection: SqlConnection) -> float:
    """The time by the database's clock, in seconds since the epoch."""
    (now_s,) = connection.execute(_NOW).fetchone()
    return float(now_s)


def _join(connection: PostgresConnection, values: Mapping[str, Any]) -> tuple[int] | None:
    """The number of a new member; None if another one that lives has its id."""
    with connection.raw.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(?)", (MEMBER_LOCK,))
        connection.execute("DELETE FROM member WHERE seen < now() - interval '1 day'")
        row: tuple[int] | None = connection.execute(_JOIN, values).fetchone()
    return row


def _secret(connection: PostgresConnection, now_s: float) -> SharedSecret:
    known = dict(connection.execute("SELECT k, v FROM meta WHERE k IN (?, ?, ?)", (_SECRET, _PREVIOUS, _ROTATED)))
    age_s = now_s - float(known.get(_ROTATED, 0))
    has_previous = age_s > -_TIMES["ahead_s"]
    return SharedSecret(known[_SECRET], known.get(_PREVIOUS, "") if has_previous else "", age_s)

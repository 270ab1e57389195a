"""The rows of the audit list (see `xds.store.audit_entries`). All functions run in the transaction of the caller."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from xds.store.audit_entries import (
    LIMITS,
    MERGED_S,
    AuditEntry,
    AuditFilter,
    AuditLane,
    AuditNote,
    AuditPage,
    entry_of_note,
    page,
    position_of_cursor,
)
from xds.store.records import merge_audit_lists
from xds.store.retention import Retention
from xds.store.sql import sequences
from xds.store.sql.connection import SqlConnection

ROWS_PER_STEP = 2_000
KEY_LIMIT, KEY_BYTES = 500, 16
COLUMNS = "position, id, lane, key, grp, actor, action, count, first_s, time_s, body"
_BODY = ("author", "peer", "subject", "message", "old", "new", "reason", "request_id", "revision")


def write(connection: SqlConnection, notes: Sequence[AuditNote]) -> None:
    """Append notes. A note with the key of an existing entry is merged into it."""
    grown: set[AuditLane] = set()
    before = newest(connection) if notes else 0
    for position, note in enumerate(notes, before + 1):
        existing = _mergeable(connection, note) if note.key else None
        if existing is not None:
            connection.execute("DELETE FROM audit WHERE position = ?", (existing.position,))
        else:
            grown.add(note.lane)
        _put(connection, entry_of_note(note, position, existing))
    if notes:
        sequences.put(connection, sequences.AUDIT, before + len(notes))
    for lane in grown & LIMITS.keys():
        _bound(connection, lane)


def read(connection: SqlConnection, cursor: str, limit: int, wanted: AuditFilter) -> AuditPage:
    """``Store.audit``."""
    (epoch,) = connection.execute("SELECT v FROM meta WHERE k = 'audit_epoch'").fetchone()
    end = newest(connection)
    after, lagged = position_of_cursor(cursor, epoch, sequences.value(connection, sequences.AUDIT_TRIMMED), end)
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM audit WHERE position > :after AND :group IN ('', grp) AND :actor IN ('', actor)"  # noqa: S608
        " AND :action IN ('', action) AND time_s >= :since"
        f" AND lane IN ({', '.join(str(int(lane)) for lane in sorted(wanted.lanes))})"
        f" ORDER BY position {'DESC' if wanted.newest else ''} LIMIT :limit",
        {
            "after": after,
            "group": wanted.group,
            "actor": wanted.actor,
            "action": wanted.action,
            "since": wanted.since_s,
            "limit": limit if wanted.newest else limit + 1,
        },
    )
    return page([entry(row) for row in rows], limit, epoch, end, lagged, wanted)


def all_entries(connection: SqlConnection) -> list[AuditEntry]:
    """All entries."""
    return [entry(row) for row in connection.execute(f"SELECT {COLUMNS} FROM audit ORDER BY position")]  # noqa: S608


def counted(connection: SqlConnection) -> list[AuditEntry]:
    """The entries with a key, which later notes may be merged into."""
    return [entry(row) for row in connection.execute(f"SELECT {COLUMNS} FROM audit WHERE key <> '' ORDER BY position")]  # noqa: S608


def newest(connection: SqlConnection) -> int:
    """The highest position that was ever used, 0 for none."""
    return sequences.value(connection, sequences.AUDIT)


def sizes(connection: SqlConnection) -> tuple[dict[AuditLane, int], int]:
    """The number of entries in each lane, and the size of the entries of changes."""
    rows = list(connection.execute("SELECT lane, count(*), sum(size) FROM audit GROUP BY lane"))
    by_lane = {AuditLane(lane): (int(count), int(size)) for lane, count, size in rows}
    return {lane: by_lane.get(lane, (0, 0))[0] for lane in AuditLane}, by_lane.get(AuditLane.CHANGE, (0, 0))[1]


def without_key(connection: SqlConnection, after: int, end: int) -> list[AuditEntry]:
    """The next entries without a key after position ``after`` and up to ``end``; empty at the end."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM audit WHERE key = '' AND position > ? AND position <= ? ORDER BY position LIMIT ?",  # noqa: S608
        (after, end, ROWS_PER_STEP // 4),
    )
    return [entry(row) for row in rows]


def merge(connection: SqlConnection, given: Sequence[AuditEntry]) -> None:
    """Merge the list of a backup (`merge_audit_lists`)."""
    made = merge_audit_lists(all_entries(connection), given)
    if made is None:
        return
    connection.execute("DELETE FROM audit")
    for each in made:
        _put(connection, each)
    sequences.put(connection, sequences.AUDIT, made[-1].position if made else 0)
    sequences.put(connection, sequences.AUDIT_TRIMMED, 0)
    connection.execute("UPDATE meta SET v = ? WHERE k = 'audit_epoch'", (secrets.token_hex(4),))


def trim(connection: SqlConnection, policy: Retention, now_s: float) -> int:
    """Delete entries that are too old, and the oldest changes beyond the maximum size.

    Returns the number of deleted entries. Call it until it returns 0.
    """
    dropped = _drop(connection, "time_s < ?", (now_s - policy.audit_s,))
    (size,) = connection.execute(
        "SELECT coalesce(sum(size), 0) FROM audit WHERE lane = ?", (AuditLane.CHANGE,)
    ).fetchone()
    if size > policy.audit_bytes:
        running = (
            "position IN (SELECT position FROM (SELECT position, sum(size) OVER (ORDER BY position DESC) AS total"
            " FROM audit WHERE lane = ?) AS each WHERE total > ?)"
        )
        dropped += _drop(connection, running, (AuditLane.CHANGE, policy.audit_bytes))
    return dropped


def _put(connection: SqlConnection, entry: AuditEntry) -> None:
    note = entry.note
    connection.execute(
        "INSERT INTO audit (position, id, lane, key, grp, actor, action, count, first_s, time_s, size, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.position,
            entry.id,
            int(note.lane),
            _stored_key(note.key),
            note.group,
            note.actor,
            note.action,
            entry.count,
            entry.first_s,
            note.time_s,
            note.size,
            json.dumps({name: getattr(note, name) for name in _BODY}, ensure_ascii=False),
        ),
    )


def _stored_key(key: str) -> str:
    """A key as an index can hold it: that of PostgreSQL has 2,704 bytes, and a key may have the message of a push."""
    return key if len(key) <= KEY_LIMIT else blake2b(key.encode(), digest_size=KEY_BYTES).hexdigest()


def _mergeable(connection: SqlConnection, note: AuditNote) -> AuditEntry | None:
    """The entry that a note is merged into; None for a new entry."""
    row = connection.execute(
        f"SELECT {COLUMNS} FROM audit WHERE key = ? AND first_s > ? ORDER BY position DESC LIMIT 1",  # noqa: S608
        (_stored_key(note.key), note.time_s - MERGED_S),
    ).fetchone()
    return entry(row) if row is not None else None


def _bound(connection: SqlConnection, lane: AuditLane) -> None:
    """Delete the oldest entries of a lane beyond its bound."""
    _drop(
        connection,
        "lane = ? AND position <= (SELECT position FROM audit WHERE lane = ? ORDER BY position DESC LIMIT 1 OFFSET ?)",
        (int(lane), int(lane), LIMITS[lane]),
    )


def _drop(connection: SqlConnection, condition: str, values: tuple[float, ...]) -> int:
    """Delete entries, and store the highest deleted position of changes for readers."""
    dropped = connection.execute(
        f"SELECT position, lane FROM audit WHERE {condition} ORDER BY position LIMIT {ROWS_PER_STEP}",  # noqa: S608
        values,
    ).fetchall()
    connection.executemany("DELETE FROM audit WHERE position = ?", [(position,) for position, _ in dropped])
    last = max((position for position, lane in dropped if lane == AuditLane.CHANGE), default=0)
    connection.execute("UPDATE seq SET v = ? WHERE name = ? AND v < ?", (last, sequences.AUDIT_TRIMMED, last))
    return len(dropped)


def entry(row: tuple[object, ...]) -> AuditEntry:
    """The entry of a row of `COLUMNS`."""
    position, identifier, lane, key, group, actor, action, count, first_s, time_s, body = row
    note = AuditNote(action=str(action), actor=str(actor), group=str(group), key=str(key), **json.loads(str(body)))
    note = replace(note, lane=AuditLane(int(str(lane))), time_s=float(str(time_s)))
    return AuditEntry(int(str(identifier)), int(str(position)), note, int(str(count)), float(str(first_s)))

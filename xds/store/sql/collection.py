"""Deletes old content, in steps that are each a short transaction (docs/internals/design.md#storage).

``trim`` deletes rows of ``past`` and puts the blobs that they named into ``doomed`` in the same transaction. Then all
blobs that are still named are removed from ``doomed``: first those named in ``entry``, then those in ``past``, which is
the order in which rows move between the tables. A push removes the blobs that it names (``spare``). The blobs that
remain are named nowhere, and ``sweep`` deletes them. A crash between two steps does no harm: ``doomed`` is a table, and
the next collection starts this search over.

Each function does one step and says how to continue; pushes run between the steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from xds.store.base import PUSH_IDS_KEPT_S, UnavailableError
from xds.store.retention import Collected, Retention, RevisionBounds, StoreStats, content_floor
from xds.store.sql import audit_rows
from xds.store.sql.connection import SqlConnection

ROWS_PER_STEP = 2_000  # written
ROWS_PER_SCAN = 20_000  # read
REVISIONS_PER_STEP = 200
BYTES_PER_STEP = 8 << 20

_DOOM = "INSERT INTO doomed (h) VALUES (?) ON CONFLICT (h) DO NOTHING"
_TABLES = {"entry": ("grp", "type", "name"), "past": ("grp", "died", "type", "name")}


class StrikePosition(NamedTuple):
    """How far ``strike`` has come: the last key that was read of a table."""

    table: str = "entry"
    key: tuple[int | str, ...] = (-1, -1, "")


def group_names(connection: SqlConnection) -> list[str]:
    """All groups, deleted ones included."""
    return [name for (name,) in connection.execute("SELECT name FROM grp ORDER BY name")]


def raise_floor(connection: SqlConnection, name: str, policy: Retention, now_s: float) -> Collected:
    """Set the lowest revision of a group that keeps its content. Lower ones cannot be read from then on."""
    group, newest, live, floor = _group(connection, name)
    limit = _nth_last(connection, group, policy.revisions_limit)
    (young,) = connection.execute(
        "SELECT min(revision) FROM revision WHERE grp = ? AND revision >= ? AND time_s >= ? AND NOT endpoints_only",
        (group, max(floor, limit or 1), now_s - policy.age_s),
    ).fetchone()
    bounds = RevisionBounds(_nth_last(connection, group, policy.revisions), limit, young)
    raised = content_floor(newest, bool(live), floor, bounds, _pinned(connection, group, policy.pinned.get(name, ())))
    if raised > floor:
        connection.execute("UPDATE grp SET floor = ? WHERE id = ?", (raised, group))
    (thinned,) = connection.execute(
        "SELECT count(*) FROM revision WHERE grp = ? AND revision >= ? AND revision < ? AND NOT content",
        (group, floor, raised),
    ).fetchone()
    return Collected(revisions=raised - floor - thinned)


def _group(connection: SqlConnection, name: str) -> tuple[int, int, int, int]:
    """Row id, revision, whether it is live, and floor of a group. Raises ``UnavailableError`` if it is gone."""
    columns = "SELECT id, revision, live, floor FROM grp WHERE name = ?"
    row: tuple[int, int, int, int] | None = connection.execute(columns, (name,)).fetchone()
    if row is None:
        raise UnavailableError(f"group {name!r} is gone: another server has restored the store amid the collection")
    return row


def _pinned(connection: SqlConnection, group: int, revisions: Iterable[int]) -> list[int]:
    """The pinned revisions whose content is not collected."""
    pinned = "SELECT 1 FROM revision WHERE grp = ? AND revision = ? AND content"
    return [each for each in revisions if connection.execute(pinned, (group, each)).fetchone() is not None]


def thin(connection: SqlConnection, name: str, policy: Retention) -> Collected:
    """Delete contents above the floor of revisions that changed endpoints alone. Call it until it deletes none.

    A row of ``past`` is deleted with the last revision that it belongs to. Such rows end at the next kept revision at
    the latest, so only rows that ended by then are read.
    """
    group, newest, _, floor = _group(connection, name)
    pinned = policy.pinned.get(name, ())
    rows = connection.execute(
        "SELECT revision FROM revision WHERE grp = ? AND endpoints_only AND content AND revision >= ?"
        " AND revision < ? AND revision < ? ORDER BY revision LIMIT ?",
        (
            group,
            floor,
            newest,
            _nth_last(connection, group, policy.endpoint_revisions, endpoints_only=True) or 0,
            REVISIONS_PER_STEP + len(pinned),
        ),
    )
    collected = [revision for (revision,) in rows if revision not in pinned][:REVISIONS_PER_STEP]
    if not collected:
        return Collected()
    connection.executemany(
        "UPDATE revision SET content = FALSE WHERE grp = ? AND revision = ?",
        [(group, revision) for revision in collected],
    )
    _delete_unused_rows(connection, group, floor, collected[0], collected[-1])
    return Collected(revisions=len(collected))


def _delete_unused_rows(connection: SqlConnection, group: int, floor: int, first: int, last: int) -> None:
    """Delete the rows of ``past`` that belong to revisions from ``first`` to ``last`` and to no kept one."""
    (until,) = connection.execute(
        "SELECT min(revision) FROM revision WHERE grp = :grp AND content AND revision > :last",
        {"grp": group, "last": last},
    ).fetchone()
    rows = connection.execute(
        "SELECT grp, died, type, name, h FROM past WHERE grp = :grp AND died > :first AND died <= :until"
        " AND NOT EXISTS (SELECT 1 FROM revision WHERE grp = :grp AND content AND live"
        " AND revision >= past.born AND revision >= :floor AND revision < past.died)",
        {"grp": group, "first": first, "until": until, "floor": floor},
    ).fetchall()
    connection.executemany(
        "DELETE FROM past WHERE grp = ? AND died = ? AND type = ? AND name = ?", [row[:4] for row in rows]
    )
    connection.executemany(_DOOM, [row[4:] for row in rows])


def _nth_last(connection: SqlConnection, group: int, number: int, endpoints_only: bool = False) -> int | None:
    """The ``number``-th last of the revisions that changed endpoints alone, or of the others."""
    row = connection.execute(
        "SELECT revision FROM revision WHERE grp = ? AND endpoints_only = ? ORDER BY revision DESC LIMIT 1 OFFSET ?",
        (group, endpoints_only, number - 1),
    ).fetchone()
    return row[0] if row is not None else None


def trim(connection: SqlConnection, name: str) -> int:
    """Delete rows that ended at the floor of a group or below; returns their number. Call it until it returns 0."""
    rows = connection.execute(
        "SELECT grp, died, type, past.name, h FROM past JOIN grp ON grp.id = past.grp"
        " WHERE grp.name = ? AND died <= floor ORDER BY died, type, past.name LIMIT ?",
        (name, ROWS_PER_STEP),
    ).fetchall()
    # Deleted first: on a full disk this frees the space for the next statement.
    connection.executemany(
        "DELETE FROM past WHERE grp = ? AND died = ? AND type = ? AND name = ?", [row[:4] for row in rows]
    )
    connection.executemany(_DOOM, [row[4:] for row in rows])
    return len(rows)


def trim_history(connection: SqlConnection, name: str, policy: Retention, now_s: float) -> Collected:
    """Delete lines of the history of a group. Call it until it deletes none."""
    group, *_ = _group(connection, name)
    dropped = connection.execute(
        "DELETE FROM revision WHERE grp = :grp AND revision IN ("
        " SELECT revision.revision FROM revision JOIN grp ON grp.id = grp WHERE grp = :grp"
        " AND revision.revision < grp.revision AND (revision.revision < floor OR NOT content)"
        " AND (time_s < :old OR revision.revision < CASE WHEN endpoints_only THEN :endpoints ELSE :others END)"
        " LIMIT :limit)",
        {
            "grp": group,
            "old": now_s - policy.history_s,
            "endpoints": _nth_last(connection, group, policy.endpoint_lines, endpoints_only=True) or 0,
            "others": _nth_last(connection, group, policy.history_limit) or 0,
            "limit": ROWS_PER_STEP,
        },
    ).rowcount
    return Collected(lines=dropped)


def trim_push_ids(connection: SqlConnection, now_s: float) -> Collected:
    """Delete push ids older than ``PUSH_IDS_KEPT_S``. Call it until it deletes none."""
    dropped = connection.execute(
        "DELETE FROM push WHERE id IN (SELECT id FROM push ORDER BY id LIMIT ?) AND time_s < ?",
        (ROWS_PER_STEP, now_s - PUSH_IDS_KEPT_S),
    ).rowcount
    return Collected(push_ids=dropped)


def spare(connection: SqlConnection, blobs: Iterable[str]) -> None:
    """Remove the blobs that a push names from ``doomed``, which is empty but during a collection or after a crash."""
    if _any_doomed(connection):
        connection.executemany("DELETE FROM doomed WHERE h = ?", [(bytes.fromhex(blob),) for blob in blobs])


def strike(connection: SqlConnection, position: StrikePosition) -> StrikePosition | None:
    """Remove the blobs that the next rows name from ``doomed``. Returns the next position, None at the end."""
    if not _any_doomed(connection):
        return None
    columns = ", ".join(_TABLES[position.table])
    marks = ", ".join("?" for _ in position.key)
    remaining = f"FROM {position.table} WHERE ({columns}) > ({marks}) ORDER BY {columns}"
    last = connection.execute(
        f"SELECT {columns} {remaining} LIMIT 1 OFFSET ?", (*position.key, ROWS_PER_SCAN - 1)
    ).fetchone()
    connection.execute(
        f"DELETE FROM doomed WHERE h IN (SELECT h {remaining} LIMIT ?)",  # noqa: S608
        (*position.key, ROWS_PER_SCAN),
    )
    if last is not None:
        return StrikePosition(position.table, last)
    return StrikePosition("past", (-1, -1, -1, "")) if position.table == "entry" else None


def sweep(connection: SqlConnection) -> Collected:
    """Delete the blobs that remain in ``doomed`` after ``strike``. Call it until it deletes none."""
    rows = connection.execute(
        "SELECT doomed.h, coalesce(length(data), 0) FROM doomed LEFT JOIN blob ON blob.h = doomed.h LIMIT ?",
        (ROWS_PER_STEP,),
    ).fetchall()
    count, size = 0, 0
    for _, length in rows:
        count, size = count + 1, size + length
        if size >= BYTES_PER_STEP:
            break
    doomed = [(h,) for h, _ in rows[:count]]
    connection.executemany("DELETE FROM blob WHERE h = ?", doomed)
    connection.executemany("DELETE FROM doomed WHERE h = ?", doomed)
    return Collected(blobs=count, blob_bytes=size)


def stats(connection: SqlConnection, size: int, free: int) -> StoreStats:
    """``Store.stats`` of a database of so many bytes, of which some are free."""
    (blobs,) = connection.execute("SELECT count(*) FROM blob").fetchone()
    (revisions,) = connection.execute(
        "SELECT count(*) FROM revision JOIN grp ON grp.id = grp WHERE revision.live AND content"
        " AND revision.revision >= floor"
    ).fetchone()
    audit, audit_bytes = audit_rows.sizes(connection)
    return StoreStats(size, free, revisions, blobs, audit, audit_bytes)


def _any_doomed(connection: SqlConnection) -> bool:
    return connection.execute("SELECT 1 FROM doomed LIMIT 1").fetchone() is not None

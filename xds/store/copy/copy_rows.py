"""The rows that a copy takes over from its source: what is new in a group since a revision, and all documents.

Rows of ``entry`` that are new or moved have been born since; the others are in the copy already. Rows that have died
since are in ``past``. So what is read and written depends on the changes, not on the size of the group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from xds.store.base import CorruptError, blob_id
from xds.store.sql import collection, content_rows, ledger
from xds.store.sql.connection import SqlConnection
from xds.store.sql.record_rows import LINE_COLUMNS

Row = tuple[Any, ...]

_LINE = ", ".join(LINE_COLUMNS)


class Kept(NamedTuple):
    """How far back a copy goes: the last ``revisions``, those of the last ``seconds``, ``limit`` at most.

    Of some groups it goes back to a revision that is ``pinned``.
    """

    revisions: int
    seconds: float
    limit: int
    pinned: Mapping[str, int] = MappingProxyType({})


class CopiedHead(NamedTuple):
    """A group as its newest line of history has it. Equal heads have equal content."""

    revision: int
    live: bool
    time_s: float
    versions: str


class CopiedDocument(NamedTuple):
    """A document; ``body`` is None for one that was deleted, whose revision is kept."""

    body: bytes | None
    revision: int


class GroupNews(NamedTuple):
    """What is new in a group since the revision ``since``; 0: everything that the copy keeps.

    ``floor`` is the oldest revision whose content is kept. ``entries`` are (type URL, name, hash, rank, born), of
    ``past`` with the revision that ended them as well.
    """

    group: str
    since: int
    head: CopiedHead
    floor: int
    last_rank: int
    lines: Sequence[Row]
    entries: Sequence[Row]
    past: Sequence[Row]

    def hashes(self) -> set[bytes]:
        """The hashes of all blobs that the rows name."""
        return {row[2] for row in (*self.entries, *self.past)}


# Reading


def heads(connection: SqlConnection) -> dict[str, CopiedHead]:
    """The heads of all groups by name, deleted ones included."""
    rows = connection.execute(
        "SELECT name, grp.revision, grp.live, time_s, versions FROM grp"
        " JOIN revision ON revision.grp = grp.id AND revision.revision = grp.revision"
    )
    return {name: CopiedHead(revision, bool(live), time_s, versions) for name, revision, live, time_s, versions in rows}


def documents(connection: SqlConnection) -> dict[tuple[str, str], CopiedDocument]:
    """All documents by kind and id."""
    rows = connection.execute("SELECT kind, name, body, revision FROM doc")
    return {(kind, name): CopiedDocument(body, revision) for kind, name, body, revision in rows}


def news_of(
    connection: SqlConnection, group: str, known: CopiedHead | None, kept: Kept, now_s: float
) -> GroupNews | None:
    """What is new in a group since ``known``, which the copy has; None for a group that does not exist.

    All of it, if the history of the group is another one since a restore. ``now_s``: seconds since the epoch.
    """
    row = connection.execute("SELECT id, revision, last_rank, floor FROM grp WHERE name = ?", (group,)).fetchone()
    if row is None:
        return None
    id, revision, last_rank, floor = row
    (young,) = connection.execute(
        "SELECT coalesce(min(revision), ?) FROM revision WHERE grp = ? AND revision >= ? AND time_s >= ?",
        (revision, id, floor, now_s - kept.seconds),
    ).fetchone()
    # The content before a push is needed for what the push removed.
    oldest = max(revision - kept.limit, min(young - 1, revision - kept.revisions))
    floor = max(1, floor, min(oldest, kept.pinned.get(group, oldest)))
    is_earlier = known is not None and known.revision >= floor and _line_head(connection, id, known.revision) == known
    since = known.revision if known is not None and is_earlier else 0
    lines = connection.execute(
        f"SELECT {_LINE} FROM revision WHERE grp = ? AND revision > ? AND revision >= ? ORDER BY revision",  # noqa: S608
        (id, since, floor),
    ).fetchall()
    entries = connection.execute(
        "SELECT url, name, h, rank, born FROM entry JOIN type ON id = entry.type WHERE grp = ? AND born > ?",
        (id, since),
    ).fetchall()
    past = connection.execute(
        "SELECT url, name, h, rank, born, died FROM past JOIN type ON id = past.type"
        " WHERE grp = ? AND died > ? AND died > ?",
        (id, since, floor),
    ).fetchall()
    head = _line_head(connection, id, revision)
    assert head is not None, "the newest line of a group is never deleted"
    return GroupNews(group, since, head, floor, last_rank, lines, entries, past)


def _line_head(connection: SqlConnection, group: int, revision: int) -> CopiedHead | None:
    """A line of the history as a head; None if there is none."""
    row = connection.execute(
        "SELECT live, time_s, versions FROM revision WHERE grp = ? AND revision = ?", (group, revision)
    ).fetchone()
    return CopiedHead(revision, bool(row[0]), *row[1:]) if row is not None else None


def missing(connection: SqlConnection, hashes: Iterable[bytes]) -> list[bytes]:
    """Those of the blobs that the copy does not have."""
    statement = "SELECT 1 FROM blob WHERE h = ?"
    return [each for each in hashes if connection.execute(statement, (each,)).fetchone() is None]


def find_damage(connection: SqlConnection) -> str:
    """What is damaged of a copy; empty if nothing is. Reads all of it."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        return "it has damaged pages"
    for name, stored, wanted in connection.execute(
        "SELECT name, (SELECT count(*) FROM entry WHERE entry.grp = grp.id), resources FROM grp"
        " JOIN revision ON revision.grp = grp.id AND revision.revision = grp.revision"
    ):
        if stored != wanted:
            return f"group {name!r} has {stored} of {wanted} resources"
    for h, data in connection.execute("SELECT h, data FROM blob"):
        if blob_id(data) != h.hex():
            return f"blob {h.hex()} is damaged"
    named = "SELECT h FROM entry UNION SELECT h FROM past"
    lacking = connection.execute(f"SELECT h FROM ({named}) WHERE h NOT IN (SELECT h FROM blob) LIMIT 1").fetchone()  # noqa: S608
    return f"blob {lacking[0].hex()} is missing" if lacking is not None else ""


# Writing


def put_blobs(connection: SqlConnection, blobs: Mapping[str, bytes]) -> None:
    """Insert blobs that no row names yet."""
    rows = [(bytes.fromhex(blob), data) for blob, data in blobs.items()]
    connection.executemany("INSERT INTO blob (h, codec, data) VALUES (?, 0, ?) ON CONFLICT (h) DO NOTHING", rows)
    connection.executemany("INSERT INTO doomed (h) VALUES (?) ON CONFLICT (h) DO NOTHING", [row[:1] for row in rows])


def put_group(connection: SqlConnection, news: GroupNews) -> None:
    """Write what is new in a group. Raises ``CorruptError`` if the rows do not make the content of the head."""
    if not news.since:
        remove_group(connection, news.group)
    head = news.head
    (id,) = connection.execute(
        "INSERT INTO grp (name, revision, live, last_rank, floor) VALUES (?, ?, ?, ?, ?) ON CONFLICT (name)"
        " DO UPDATE SET revision = excluded.revision, live = excluded.live, last_rank = excluded.last_rank"
        " RETURNING id",
        (news.group, head.revision, head.live, news.last_rank, news.floor),
    ).fetchone()
    types = {url: content_rows.id_of_type(connection, url) for url in {row[0] for row in (*news.entries, *news.past)}}
    connection.executemany(
        f"INSERT INTO revision (grp, {_LINE}) VALUES (?{', ?' * len(LINE_COLUMNS)})",  # noqa: S608
        [(id, *row) for row in news.lines],
    )
    connection.executemany(
        "DELETE FROM entry WHERE grp = ? AND type = ? AND name = ?", [(id, types[row[0]], row[1]) for row in news.past]
    )
    connection.executemany(
        "INSERT INTO past (grp, type, name, h, rank, born, died) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(id, types[url], *others) for url, *others in news.past],
    )
    connection.executemany(
        "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (grp, type, name) DO UPDATE SET h = excluded.h, rank = excluded.rank, born = excluded.born",
        [(id, types[url], *others) for url, *others in news.entries],
    )
    collection.spare(connection, [h.hex() for h in news.hashes()])
    _check_content(connection, id, news)


def _check_content(connection: SqlConnection, group: int, news: GroupNews) -> None:
    stored, wanted = connection.execute(
        "SELECT (SELECT count(*) FROM entry WHERE grp = :grp),"
        " (SELECT resources FROM revision WHERE grp = :grp AND revision = :revision)",
        {"grp": group, "revision": news.head.revision},
    ).fetchone()
    if stored != wanted:
        raise CorruptError(f"the copy of group {news.group!r} has {stored} of {wanted} resources")


def remove_group(connection: SqlConnection, name: str) -> None:
    """Remove all rows of a group that the copy has."""
    row = connection.execute("SELECT id FROM grp WHERE name = ?", (name,)).fetchone()
    if row is None:
        return
    for table in ("entry", "past"):
        doom = f"INSERT INTO doomed (h) SELECT DISTINCT h FROM {table} WHERE grp = ? ON CONFLICT (h) DO NOTHING"  # noqa: S608
        connection.execute(doom, row)
    for table in ("entry", "past", "push", "revision"):
        connection.execute(f"DELETE FROM {table} WHERE grp = ?", row)  # noqa: S608
    connection.execute("DELETE FROM grp WHERE id = ?", row)


def put_documents(
    connection: SqlConnection, put: Mapping[tuple[str, str], CopiedDocument], delete: Collection[tuple[str, str]] = ()
) -> None:
    """Write documents; ``delete`` are those that the source never had."""
    connection.executemany("DELETE FROM doc WHERE kind = ? AND name = ?", list(delete))
    connection.executemany(
        "INSERT INTO doc (kind, name, body, revision) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body, revision = excluded.revision",
        [(*key, each.body, each.revision) for key, each in put.items()],
    )


def put_cursor(connection: SqlConnection, cursor: int) -> None:
    """Note the newest commit of the source that the copy has."""
    ledger.skip_cursors(connection, cursor - 2)  # so that the event that it adds has this cursor

"""Exports the records of a store as of one moment while pushes go on, and imports them in one transaction.

`begin` fixes the moment of the export: the head of each group. The content at that moment can be read later, because
rows that end move to ``past`` (`schema`); only collections have to wait. Each function is one short step.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, NamedTuple

from xds.model.errors import ConflictError
from xds.store import revisions
from xds.store.audit_entries import AuditEntry, AuditNote
from xds.store.base import CorruptError, UnavailableError
from xds.store.records import (
    AUDIT,
    BLOBS,
    DOCUMENTS,
    ENTRIES,
    FLAG,
    GROUPS,
    REVISIONS,
    TEXTS,
    Record,
    RecordField,
    entry_of,
    record_of,
)
from xds.store.sql import audit_rows, blob_rows, ledger
from xds.store.sql.connection import SqlConnection

Values = tuple[Any, ...]

LINE_COLUMNS = tuple(REVISIONS.fields)[1:]  # without the group
ROWS_PER_STEP = 5_000
BYTES_PER_STEP = 4 << 20
AUDIT_BYTES = 256 << 20  # the newest entries of an audit list up to this size are imported

_LINE, _LINE_FIELDS = ", ".join(LINE_COLUMNS), tuple(REVISIONS.fields.values())[1:]
_READ: Mapping[RecordField, Callable[[Any], Any]] = {FLAG: bool, TEXTS: ledger.versions_of}
_WRITE: Mapping[RecordField, Callable[[Any], Any]] = {TEXTS: json.dumps}


def _same(value: Any) -> Any:
    return value


class DumpedGroup(NamedTuple):
    """The head of a group at the moment of the export. ``floor`` is the lowest revision to export."""

    id: int
    name: str
    revision: int
    live: bool
    floor: int


Kept = Mapping[int, tuple[str, int, int]]  # of each group by id: name, floor, and how many revisions above are deleted
_KEPT = (
    "SELECT id, name, floor, (SELECT count(*) FROM revision WHERE revision.grp = each.id AND NOT content"
    " AND revision.revision >= floor) FROM grp AS each"
)


@dataclass(frozen=True, slots=True)
class DumpPoint:
    """The moment of an export: all groups and documents, the end of the audit list, and its entries with a key."""

    groups: tuple[DumpedGroup, ...]
    documents: tuple[Record, ...]
    audit_end: int
    counted: tuple[Record, ...]
    kept: Kept

    def check(self, connection: SqlConnection) -> None:
        """Raises ``UnavailableError`` if what is exported is not kept any more: another server has deleted it."""
        present = _kept(connection)
        if any(present.get(group) != before for group, before in self.kept.items()):
            raise UnavailableError(
                "another server has deleted old revisions, or restored the store, meanwhile: repeat it"
            )

    def heads(self) -> list[Record]:
        """The records of the groups."""
        return [Record(GROUPS.name, (group.name, group.revision, group.live, group.floor)) for group in self.groups]


def begin(connection: SqlConnection, history: bool) -> DumpPoint:
    """Fix the moment of the export. Without ``history`` only the heads of groups are exported."""
    rows = connection.execute("SELECT id, name, revision, live, floor FROM grp ORDER BY name").fetchall()
    groups = (
        DumpedGroup(id, name, revision, bool(live), floor if history else revision)
        for id, name, revision, live, floor in rows
    )
    docs_rows = connection.execute("SELECT kind, name, body, revision FROM doc ORDER BY kind, name")
    documents = (
        Record(DOCUMENTS.name, (kind, name, body is not None, body or b"", revision))
        for kind, name, body, revision in docs_rows
    )
    counted = (record_of(entry) for entry in (audit_rows.counted(connection) if history else ()))
    audit_end = audit_rows.newest(connection) if history else 0
    return DumpPoint(tuple(groups), tuple(documents), audit_end, tuple(counted), _kept(connection))


def _kept(connection: SqlConnection) -> Kept:
    return {id: (name, floor, deleted) for id, name, floor, deleted in connection.execute(_KEPT)}


def audited(connection: SqlConnection, after: int, end: int) -> list[Record]:
    """The next entries of the audit list without a key; empty at the end."""
    return [record_of(entry) for entry in audit_rows.without_key(connection, after, end)]


def lines(connection: SqlConnection, group: DumpedGroup, after: int, history: bool) -> list[Record]:
    """The next lines of the history of a group, oldest first; empty at the end."""
    rows = connection.execute(
        f"SELECT {_LINE} FROM revision WHERE grp = ? AND revision > ? AND revision <= ? ORDER BY revision LIMIT ?",  # noqa: S608
        (group.id, after if history else max(after, group.revision - 1), group.revision, ROWS_PER_STEP),
    )
    return [Record(REVISIONS.name, (group.name, *line_values(row))) for row in rows]


def line_values(row: Values) -> Values:
    """The record values of a row with the columns `LINE_COLUMNS`. Raises ``CorruptError``."""
    return tuple(_READ.get(field, _same)(value) for field, value in zip(_LINE_FIELDS, row, strict=True))


def present_rows(connection: SqlConnection, group: DumpedGroup) -> list[Record]:
    """The content of a group at the moment of the export."""
    rows = connection.execute(
        "SELECT url, name, h, rank, born FROM ("
        " SELECT type, name, h, rank, born FROM entry WHERE grp = :grp AND born <= :at"
        " UNION ALL SELECT type, name, h, rank, born FROM past WHERE grp = :grp AND died > :at AND born <= :at"
        ") AS line JOIN type ON id = line.type ORDER BY rank",
        {"grp": group.id, "at": group.revision},
    )
    return [Record(ENTRIES.name, (group.name, url, name, h.hex(), rank, born, 0)) for url, name, h, rank, born in rows]


PastKey = tuple[int, int, str]
FIRST: PastKey = (0, 0, "")


def past_rows(connection: SqlConnection, group: DumpedGroup, after: PastKey) -> tuple[list[Record], PastKey]:
    """The next rows of earlier content, and the key after which to continue; empty at the end."""
    rows = connection.execute(
        "SELECT url, name, h, rank, born, died, type FROM past JOIN type ON id = past.type"
        " WHERE past.grp = ? AND (died, past.type, name) > (?, ?, ?) AND died <= ? ORDER BY died, type, name LIMIT ?",
        (group.id, *max(after, (group.floor + 1, 0, "")), group.revision, ROWS_PER_STEP),
    ).fetchall()
    if not rows:
        return [], after
    *_, died, type_id = rows[-1]
    past = [
        Record(ENTRIES.name, (group.name, url, name, h.hex(), rank, born, died))
        for url, name, h, rank, born, died, _ in rows
    ]
    return past, (died, type_id, rows[-1][1])


def bodies(connection: SqlConnection, wanted: list[str]) -> list[Record]:
    """The next blobs, which are removed from the end of ``wanted`` once all were read. Raises ``CorruptError``."""
    records: list[Record] = []
    size = 0
    for blob in reversed(wanted):
        if size >= BYTES_PER_STEP:
            break
        data = blob_rows.read(connection, (blob,))[blob]
        size += len(data)
        records.append(Record(BLOBS.name, (blob, data)))
    del wanted[len(wanted) - len(records) :]
    return records


# Importing


@dataclass(slots=True)
class _Import:
    """The state of an import: row ids of groups and types by name, and the audit list."""

    connection: SqlConnection
    groups: dict[str, int] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    audit: deque[AuditEntry] = field(default_factory=deque)
    audit_bytes: int = 0

    def group(self, name: str) -> int:
        if name not in self.groups:
            raise CorruptError(f"records belong to the group {name!r}, which is missing")
        return self.groups[name]

    def type(self, url: str) -> int:
        if url not in self.types:
            self.connection.execute("INSERT INTO type (url) VALUES (?) ON CONFLICT (url) DO NOTHING", (url,))
            (self.types[url],) = self.connection.execute("SELECT id FROM type WHERE url = ?", (url,)).fetchone()
        return self.types[url]


def import_records(
    connection: SqlConnection, records: Iterator[Record], replace: bool, note: AuditNote | None = None
) -> tuple[None, tuple[()]]:
    """Replace everything by ``records`` in the transaction of the caller, and merge the audit lists.

    Raises ``ConflictError`` when the store is not empty and ``replace`` is False, ``CorruptError`` for inconsistent
    records. There are no items for watches: they start over.
    """
    count = connection.execute("SELECT (SELECT count(*) FROM grp) + (SELECT count(*) FROM doc)").fetchone()[0]
    if count and not replace:
        raise ConflictError("the store is not empty: a restore replaces everything in it", 0)
    newest = ledger.newest_cursor(connection)
    for table in ("past", "entry", "push", "revision", "grp", "blob", "doc", "doomed"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608
    target = _Import(connection)
    for kind, some in groupby(records, key=lambda record: record.kind):
        values = (record.values for record in some)
        while batch := list(islice(values, ROWS_PER_STEP)):
            _IMPORTERS[kind](target, batch)
    connection.execute("UPDATE grp SET last_rank = coalesce((SELECT max(rank) FROM entry WHERE entry.grp = grp.id), 0)")
    _check_consistency(connection)
    audit_rows.merge(connection, target.audit)
    audit_rows.write(connection, [note] if note is not None else [])
    ledger.skip_cursors(connection, newest)
    return None, ()


def _import_groups(target: _Import, batch: list[Values]) -> None:
    for name, revision, live, floor in batch:
        (target.groups[name],) = target.connection.execute(
            "INSERT INTO grp (name, revision, live, last_rank, floor) VALUES (?, ?, ?, 0, ?) RETURNING id",
            (name, revision, live, floor),
        ).fetchone()


def _import_revisions(target: _Import, batch: list[Values]) -> None:
    target.connection.executemany(
        f"INSERT INTO revision (grp, {_LINE}) VALUES (?{', ?' * len(LINE_COLUMNS)})",  # noqa: S608
        [
            (
                target.group(group),
                *(_WRITE.get(field, _same)(value) for field, value in zip(_LINE_FIELDS, line, strict=True)),
            )
            for group, *line in batch
        ],
    )


def _import_documents(target: _Import, batch: list[Values]) -> None:
    target.connection.executemany(
        "INSERT INTO doc (kind, name, body, revision) VALUES (?, ?, ?, ?)",
        [(kind, name, body if live else None, revision) for kind, name, live, body, revision in batch],
    )


def _import_audit(target: _Import, batch: list[Values]) -> None:
    for entry in map(entry_of, batch):
        target.audit.append(entry)
        target.audit_bytes += entry.note.size
        while target.audit_bytes > AUDIT_BYTES:
            target.audit_bytes -= target.audit.popleft().note.size


def _import_entries(target: _Import, batch: list[Values]) -> None:
    rows = [
        (target.group(group), target.type(url), name, bytes.fromhex(blob), rank, born, died)
        for group, url, name, blob, rank, born, died in batch
    ]
    target.connection.executemany(
        "INSERT INTO entry (grp, type, name, h, rank, born) VALUES (?, ?, ?, ?, ?, ?)",
        [row[:-1] for row in rows if not row[-1]],
    )
    target.connection.executemany(
        "INSERT INTO past (grp, type, name, h, rank, born, died) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [row for row in rows if row[-1]],
    )


def _import_blobs(target: _Import, batch: list[Values]) -> None:
    for blob, data in batch:
        revisions.check_blob(blob, data)
    target.connection.executemany(
        "INSERT INTO blob (h, codec, data) VALUES (?, ?, ?)",
        [(bytes.fromhex(blob), blob_rows.RAW, data) for blob, data in batch],
    )


_IMPORTERS: Mapping[str, Callable[[_Import, list[Values]], None]] = {
    GROUPS.name: _import_groups,
    REVISIONS.name: _import_revisions,
    DOCUMENTS.name: _import_documents,
    AUDIT.name: _import_audit,
    ENTRIES.name: _import_entries,
    BLOBS.name: _import_blobs,
}

_INCONSISTENCIES = {
    "group {!r} lacks the line of its revision": (
        "SELECT name FROM grp WHERE NOT EXISTS (SELECT 1 FROM revision AS line WHERE line.grp = grp.id"
        " AND line.revision = grp.revision AND line.live = grp.live AND line.content)"
    ),
    "group {!r} has a rollback to a later revision": (
        "SELECT grp.name FROM revision AS line JOIN grp ON grp.id = line.grp"
        " WHERE content_of < 0 OR (content_of > 0 AND content_of >= line.revision)"
    ),
    "group {!r} has content of a revision after its head": (
        "SELECT grp.name FROM grp WHERE EXISTS (SELECT 1 FROM revision AS line WHERE line.grp = grp.id"
        " AND line.revision > grp.revision)"
        " OR EXISTS (SELECT 1 FROM entry WHERE entry.grp = grp.id AND born > grp.revision)"
        " OR EXISTS (SELECT 1 FROM past WHERE past.grp = grp.id AND died > grp.revision)"
    ),
    "the body of {!r} is missing": (
        "SELECT name FROM (SELECT name, h FROM entry UNION ALL SELECT name, h FROM past) AS line"
        " WHERE NOT EXISTS (SELECT 1 FROM blob WHERE blob.h = line.h)"
    ),
}

_SIZES = (
    "SELECT revision, resources FROM revision WHERE grp = :grp AND content",
    "SELECT born, count(*) FROM"
    " (SELECT born FROM entry WHERE grp = :grp UNION ALL SELECT born FROM past WHERE grp = :grp) AS line GROUP BY born",
    "SELECT died, count(*) FROM past WHERE grp = :grp GROUP BY died",
)


def _check_consistency(connection: SqlConnection) -> None:
    for text, statement in _INCONSISTENCIES.items():
        row = connection.execute(statement + " LIMIT 1").fetchone()
        if row is not None:
            raise CorruptError(text.format(row[0]))
    for group, name, floor in connection.execute("SELECT id, name, floor FROM grp").fetchall():
        stated, begun, ended = (dict(connection.execute(statement, {"grp": group})) for statement in _SIZES)
        revisions.check_sizes(name, floor, stated, begun, ended)

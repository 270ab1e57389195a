"""Finds what is intact in a damaged store, and exports it as records from which a store can be built.

It works on a copy, so that nothing is lost, and trusts nothing: a table is read from both ends until it cannot be read
further, a blob counts when its hash is right, a revision when all of it is intact. A group whose newest revision is
damaged goes back to the newest intact one, under a revision number that was never used.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from xds.store.base import DELETE, PUSH, RESTORE, CorruptError, UnavailableError, blob_id
from xds.store.records import (
    AUDIT,
    BLOBS,
    DOCUMENTS,
    ENTRIES,
    GROUPS,
    KINDS,
    REVISIONS,
    Record,
    WrongRecordError,
    record_of,
)
from xds.store.sqlite import audit_rows, ledger, record_rows
from xds.store.sqlite.files import acknowledged_of, connect_copy
from xds.store.sqlite.schema import SCHEMA_VERSION

Connection = sqlite3.Connection
Values = tuple[Any, ...]
Fits = Callable[[str, str, bytes], bool]

_LOCKED_FROM, _LOCKED_BYTES = 0x40000002, 510  # sqlite.org/fileformat2.html: a writer locks these bytes
_SHOWN = 20
_KEPT = 1 + record_rows.LINE_COLUMNS.index("content")
_MIGRATED = {"actor": "''", "kind": "iif(live, 'push', 'delete')", "content": "1"}
_LENGTHENED_TIMES = 16
# The error messages of SQLite may contain damaged text.
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)


class _Group(NamedTuple):
    id: int
    name: str
    revision: int
    live: bool
    floor: int


@dataclass(slots=True)
class SalvageResult:
    """``findings`` are the damages, ``groups`` the outcome for each group; ``records`` are the intact records."""

    findings: list[str] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


def examine(path: Path, fits: Fits) -> SalvageResult:
    """Examine a database that no server uses. ``fits`` says whether a blob is the resource of a type URL and name.

    Raises ``UnavailableError`` when a server uses it or it is missing; ``CorruptError`` when nothing can be read.
    """
    _refuse_held(path)
    connection = connect_copy(path, _connect)
    try:
        return _examined(connection, path, fits)
    finally:
        with suppress(sqlite3.Error):
            connection.close()


def _refuse_held(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from None
    try:
        if not os.fstat(descriptor).st_size:
            raise CorruptError(f"{path} is empty")
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, _LOCKED_BYTES, _LOCKED_FROM)
    except BlockingIOError:
        raise UnavailableError(f"{path} is in use by a server: stop it first, or run `xds check`") from None
    finally:
        os.close(descriptor)


def _lengthen(path: Path) -> None:
    """Extend a truncated file to the length in its header: otherwise SQLite reads nothing of it."""
    size = path.stat().st_size
    with path.open("rb+") as file:
        head = file.read(32)
        page, pages = int.from_bytes(head[16:18]), int.from_bytes(head[28:32])
        if size < page * pages <= size * _LENGTHENED_TIMES:
            file.truncate(page * pages)


def _connect(path: Path) -> Connection:
    _lengthen(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = lambda octets: octets.decode("utf-8", "replace")
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA cell_size_check=ON")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except _UNREADABLE:
        connection.close()
        raise CorruptError("it cannot be read: its first page is damaged, or it is not a SQLite file") from None
    if not {"meta", "grp", "entry", "blob"} <= tables:
        connection.close()
        raise CorruptError("it lacks the tables of a store")
    return connection


def _examined(connection: Connection, path: Path, fits: Fits) -> SalvageResult:
    found = SalvageResult()
    found.findings += _of_pages(connection)
    found.findings += _of_schema(connection)
    tables = _Tables(connection, found.findings, fits)
    noted = acknowledged_of(path)
    newest = tables.newest()
    if newest is not None and noted.newest > newest:
        found.findings.append(f"commits {newest + 1} to {noted.newest} were acknowledged and are missing")
    for group in tables.groups():
        told, records = tables.sound(group)
        found.groups[group.name] = told
        found.records += records
    found.records += tables.documents()
    found.records += tables.audited()
    found.records += [Record(BLOBS.name, each) for each in tables.bodies_of(found.records)]
    order = list(KINDS)
    found.records.sort(key=lambda record: order.index(record.kind))
    return found


def _of_pages(connection: Connection) -> list[str]:
    """The findings of SQLite's integrity check, in one line."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({_SHOWN})").fetchall()
    except _UNREADABLE:
        return ["the file has damaged pages"]
    wrong = [text for (text,) in rows if text != "ok"]
    many = f"{len(wrong)} places" if len(wrong) < _SHOWN else f"{_SHOWN} places or more"
    return [f"the file is damaged in {many}"] if wrong else []


def _of_schema(connection: Connection) -> list[str]:
    try:
        row = connection.execute("SELECT v FROM meta WHERE k = 'schema'").fetchone()
    except _UNREADABLE:
        row = None
    if row is None:
        return ["the version of the schema cannot be read"]
    return (
        []
        if str(row[0]) == str(SCHEMA_VERSION)
        else [f"the schema is {row[0]!s:.20}, this release knows {SCHEMA_VERSION}"]
    )


class _Tables:
    """The readable rows of all tables. Damages are added to ``findings``."""

    def __init__(self, connection: Connection, findings: list[str], fits: Fits) -> None:
        self._fits = fits
        self._sound: dict[Values, bool] = {}
        self._connection = connection
        self._findings = findings
        self._types: dict[int, str] = dict(self._rows("type", "id, url", "id"))
        self._bodies = {h: data for h, data in self._blobs() if isinstance(h, bytes)}
        self._entries = self._by_group("entry", "grp, type, name, h, rank, born, 0", "grp, type, name")
        self._past = self._by_group("past", "grp, type, name, h, rank, born, died", "grp, died, type, name")
        self._lines = self._by_group("revision", f"grp, {self._line_columns()}", "grp, revision")

    def newest(self) -> int | None:
        """The cursor of the newest commit; None where it cannot be read."""
        with suppress(*_UNREADABLE, TypeError, ValueError):
            return ledger.newest_cursor(self._connection)
        return None

    def groups(self) -> Iterator[_Group]:
        for id, name, revision, live, floor in self._rows("grp", "id, name, revision, live, floor", "id"):
            if all(isinstance(value, int) for value in (id, revision, live, floor)) and isinstance(name, str):
                yield _Group(id, name, revision, bool(live), floor)
            else:
                self._findings.append("a group cannot be read")

    def documents(self) -> list[Record]:
        rows = self._rows("doc", "kind, name, body, revision", "id")
        return [
            Record(DOCUMENTS.name, (kind, name, body is not None, body or b"", revision))
            for kind, name, body, revision in rows
            if isinstance(kind, str)
            and isinstance(name, str)
            and isinstance(body, bytes | None)
            and type(revision) is int
        ]

    def audited(self) -> list[Record]:
        """The readable entries of the audit list."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
            return []  # the store is of an earlier release
        found: list[Record] = []
        rows = self._rows("audit", audit_rows.COLUMNS, "position")
        for row in rows:
            with suppress(ValueError, TypeError, RecursionError):
                record = record_of(audit_rows.entry(row))
                found.append(Record(AUDIT.name, AUDIT.values(AUDIT.document(record.values))))
        if len(found) < len(rows):
            self._findings.append(f"{len(rows) - len(found)} entries of the audit list are damaged")
        return found

    def bodies_of(self, records: list[Record]) -> list[Values]:
        """The blobs that records of entries name, each once."""
        wanted = dict.fromkeys(record.values[3] for record in records if record.kind == ENTRIES.name)
        return [(blob, self._bodies[bytes.fromhex(blob)]) for blob in wanted]

    def sound(self, group: _Group) -> tuple[str, list[Record]]:
        """The outcome for a group, as a message and as records."""
        lines = {line[1]: line for line in self._lines.get(group.id, ()) if _is_line(line)}
        past = [row for row in self._past.get(group.id, ()) if type(row[6]) is not int or row[6] > group.floor]
        wrong = sum(not (_is_entry(row) and self._is_sound(row)) for row in (*self._entries.get(group.id, ()), *past))
        wrong += sum(not _is_line(line) for line in self._lines.get(group.id, ()))
        if wrong:
            self._findings.append(f"group {group.name!r}: {wrong} rows of its content and history are damaged")
        if not group.live:
            return "deleted", self._made(group, group.revision, lines.get(group.revision), [])
        for revision in range(group.revision, max(group.floor, 1) - 1, -1):
            line, held = lines.get(revision), self._at(group.id, revision)
            if line is None or held is None or not (line[2] and line[_KEPT]):
                continue
            if len(held) == line[3]:
                if revision == group.revision:
                    return f"intact at revision {revision}", self._made(group, revision, line, held)
                self._findings.append(f"group {group.name!r}: revision {group.revision} is incomplete")
                told = f"revision {revision} becomes {group.revision + 1}"
                return told, self._made(group, group.revision + 1, line, held)
        self._findings.append(f"group {group.name!r}: no revision is complete")
        return "lost: no revision is complete", []

    def _made(self, group: _Group, revision: int, line: Values | None, held: list[Values]) -> list[Record]:
        values = record_rows.line_values(line[1:] if line is not None else _no_line(revision, group.live))
        told = dict(zip(record_rows.LINE_COLUMNS, values, strict=True)) | {"resources": len(held), "content": True}
        if told["revision"] != revision:
            told |= {"kind": RESTORE, "message": f"salvaged from revision {told['revision']}", "revision": revision}
            told |= {"content_of": 0, "keeps_endpoints": False, "endpoints_only": False, "nodes": 0, "refused": 0}
        head = Record(GROUPS.name, (group.name, revision, told["live"], revision))
        entries = [
            Record(ENTRIES.name, (group.name, self._types[type_id], name, h.hex(), rank, min(born, revision), 0))
            for _, type_id, name, h, rank, born, _ in held
        ]
        return [head, Record(REVISIONS.name, (group.name, *told.values())), *entries]

    def _at(self, group: int, revision: int) -> list[Values] | None:
        """The rows of the content at a revision, in order; None where a blob is missing or damaged."""
        rows = (*self._entries.get(group, ()), *self._past.get(group, ()))
        held = [row for row in rows if _is_entry(row) and row[5] <= revision and (row[6] == 0 or row[6] > revision)]
        if not all(self._is_sound(row) for row in held):
            return None
        return sorted(held, key=lambda row: row[4])

    def _is_sound(self, row: Values) -> bool:
        _, type_id, name, h, *_ = row
        key = (type_id, name, h)
        if key not in self._sound:
            body, url = self._bodies.get(h), self._types.get(type_id)
            self._sound[key] = body is not None and url is not None and self._fits(url, name, body)
        return self._sound[key]

    def _line_columns(self) -> str:
        """The columns of the history. Columns that an earlier release lacks get the value of the migration."""
        with suppress(*_UNREADABLE):
            there = {row[1] for row in self._connection.execute("PRAGMA table_info(revision)")}
            return ", ".join(name if name in there else _MIGRATED.get(name, "0") for name in record_rows.LINE_COLUMNS)
        return ", ".join(record_rows.LINE_COLUMNS)

    def _by_group(self, table: str, columns: str, key: str) -> Mapping[int, list[Values]]:
        found: dict[int, list[Values]] = {}
        for row in self._rows(table, columns, key):
            found.setdefault(row[0], []).append(row)
        return found

    def _blobs(self) -> Iterator[Values]:
        wrong = 0
        for h, codec, data in self._rows("blob", "h, codec, data", "id"):
            if codec == ledger.RAW and isinstance(data, bytes) and isinstance(h, bytes) and blob_id(data) == h.hex():
                yield h, data
            else:
                wrong += 1
        if wrong:
            self._findings.append(f"the bodies of {wrong} resources are damaged")

    def _rows(self, table: str, columns: str, key: str) -> list[Values]:
        """All rows, read from both ends where a part in between cannot be read."""
        found, is_whole = self._scan(f"SELECT {columns} FROM {table} ORDER BY {key}")  # noqa: S608 - ours
        if not is_whole:
            self._findings.append(f"a part of the table {table!r} cannot be read")
            back = f"{key.replace(',', ' DESC,')} DESC"
            backwards, _ = self._scan(f"SELECT {columns} FROM {table} ORDER BY {back}")  # noqa: S608 - ours
            seen = set(found)
            found += [row for row in backwards if row not in seen]
        return found

    def _scan(self, statement: str) -> tuple[list[Values], bool]:
        found: list[Values] = []
        try:
            found.extend(self._connection.execute(statement))
        except _UNREADABLE:
            return found, False
        return found, True


def _is_entry(row: Values) -> bool:
    kinds = (int, int, str, bytes, int, int, int)
    return all(type(value) is kind for value, kind in zip(row, kinds, strict=True))


def _is_line(row: Values) -> bool:
    try:
        values = record_rows.line_values(row[1:])
        line = REVISIONS.document(("", *values))
        REVISIONS.values(line)
    except (CorruptError, WrongRecordError, RecursionError, TypeError):
        return False
    return type(row[0]) is int and 0 <= line["content_of"] < max(1, line["revision"])


def _no_line(revision: int, live: bool) -> Values:
    """Replaces the damaged line of a head."""
    told = {"revision": revision, "live": live, "versions": "{}", "author": "", "message": "", "time_s": 0.0}
    told |= {"actor": "", "kind": PUSH if live else DELETE, "content": 1}
    return tuple(told.get(name, 0) for name in record_rows.LINE_COLUMNS)

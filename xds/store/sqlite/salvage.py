"""Finds the intact parts of a damaged store, and exports them as records from which a store can be built.

The search works on a copy, so that nothing is lost, and trusts nothing. A table is read from both ends until it cannot
be read further. A row counts when it is in the order of the keys and its revisions are possible, a blob when its hash
is right, a revision when all of it is intact. A group whose newest revision is damaged gets the content of the newest
intact one, under a revision number that was never used.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from xds.store.sqlite.directory_lock import DirectoryLock
from xds.store.sqlite.files import acknowledged_of, connect_copy
from xds.store.sqlite.schema import SCHEMA_VERSION

Connection = sqlite3.Connection
Values = tuple[Any, ...]
Fits = Callable[[str, str, bytes], bool]

_IN_USE = "{} is in use by a server: stop it first, or run `xds check`"
_LOCK_OFFSET, _LOCK_BYTES = 0x40000002, 510  # sqlite.org/fileformat2.html: a writer locks these bytes
_FINDINGS_LIMIT = 20
_CONTENT_COLUMN = 1 + record_rows.LINE_COLUMNS.index("content")
_MIGRATED_COLUMNS = {"actor": "''", "kind": "iif(live, 'push', 'delete')", "content": "1"}
_EXTENSION_LIMIT = 16  # a file is extended to this multiple of its size at most
# The error messages of SQLite may contain damaged text.
_READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)


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
    lock = DirectoryLock(path.parent, shared=True)
    try:
        _check_unused(path, lock)
        connection = connect_copy(path, _connect)
        try:
            return _examine(connection, path, fits)
        finally:
            with suppress(sqlite3.Error):
                connection.close()
    finally:
        lock.release()


def _check_unused(path: Path, lock: DirectoryLock) -> None:
    """Take the lock of the directory. Raises ``UnavailableError`` when a server uses it."""
    try:
        lock.take()
    except UnavailableError:
        raise UnavailableError(_IN_USE.format(path)) from None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from None
    try:
        if not os.fstat(descriptor).st_size:
            raise CorruptError(f"{path} is empty")
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_OFFSET)
    except BlockingIOError:
        raise UnavailableError(_IN_USE.format(path)) from None
    finally:
        os.close(descriptor)


def _extend(path: Path) -> None:
    """Extend a truncated file to the length in its header: otherwise SQLite reads nothing of it."""
    size = path.stat().st_size
    with path.open("rb+") as file:
        head = file.read(32)
        page, pages = int.from_bytes(head[16:18]), int.from_bytes(head[28:32])
        if size < page * pages <= size * _EXTENSION_LIMIT:
            file.truncate(page * pages)


def _connect(path: Path) -> Connection:
    _extend(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = _text
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA cell_size_check=ON")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except _READ_ERRORS:
        connection.close()
        raise CorruptError("it cannot be read: its first page is damaged, or it is not a SQLite file") from None
    if not {"meta", "grp", "entry", "blob"} <= tables:
        connection.close()
        raise CorruptError("it lacks the tables of a store")
    return connection


def _text(octets: bytes) -> str | bytes:
    """A text of a row. Damaged UTF-8 stays bytes, so that the row does not count."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def _examine(connection: Connection, path: Path, fits: Fits) -> SalvageResult:
    found = SalvageResult()
    found.findings += _page_findings(connection)
    schema = _schema(connection)
    found.findings += _schema_findings(schema)
    tables = _Tables(connection, found.findings, fits, is_current=schema == str(SCHEMA_VERSION))
    acknowledged = acknowledged_of(path)
    newest = tables.newest()
    if newest is not None and acknowledged.newest > newest:
        found.findings.append(f"commits {newest + 1} to {acknowledged.newest} were acknowledged and are missing")
    for group in tables.groups():
        outcome, records = tables.salvage(group)
        found.groups[group.name] = outcome
        found.records += records
    found.records += tables.documents()
    found.records += tables.audit_entries()
    found.records += [Record(BLOBS.name, each) for each in tables.bodies_of(found.records)]
    order = list(KINDS)
    found.records.sort(key=lambda record: order.index(record.kind))
    return found


def _page_findings(connection: Connection) -> list[str]:
    """The findings of SQLite's integrity check, in one line."""
    try:
        rows = connection.execute(f"PRAGMA integrity_check({_FINDINGS_LIMIT})").fetchall()
    except _READ_ERRORS:
        return ["the file has damaged pages"]
    wrong = [text for (text,) in rows if text != "ok"]
    many = f"{len(wrong)} places" if len(wrong) < _FINDINGS_LIMIT else f"{_FINDINGS_LIMIT} places or more"
    return [f"the file is damaged in {many}"] if wrong else []


def _schema(connection: Connection) -> str | None:
    """The version of the schema; None where it cannot be read."""
    try:
        row = connection.execute("SELECT v FROM meta WHERE k = 'schema'").fetchone()
    except _READ_ERRORS:
        row = None
    return str(row[0]) if row is not None else None


def _schema_findings(schema: str | None) -> list[str]:
    if schema is None:
        return ["the version of the schema cannot be read"]
    known = str(SCHEMA_VERSION)
    return [] if schema == known else [f"the schema is {schema:.20}, this release knows {known}"]


class _Tables:
    """The readable rows of all tables. Damages are added to ``findings``.

    ``is_current`` says whether the store has the schema of this release.
    """

    def __init__(self, connection: Connection, findings: list[str], fits: Fits, *, is_current: bool) -> None:
        self._fits = fits
        self._is_current = is_current
        self._intact: dict[Values, bool] = {}
        self._connection = connection
        self._findings = findings
        self._types = {id: url for id, url in self._rows("type", "id, url", "id") if isinstance(url, str)}
        self._bodies = {h: data for h, data in self._blobs() if isinstance(h, bytes)}
        self._entries = self._by_group("entry", "grp, type, name, h, rank, born, 0", "grp, type, name")
        self._past = self._by_group("past", "grp, type, name, h, rank, born, died", "grp, died, type, name")
        self._lines = self._by_group("revision", f"grp, {self._line_columns()}", "grp, revision")

    def newest(self) -> int | None:
        """The cursor of the newest commit; None where it cannot be read."""
        with suppress(*_READ_ERRORS, TypeError, ValueError):
            return ledger.newest_cursor(self._connection)
        return None

    def groups(self) -> Iterator[_Group]:
        for id, name, revision, live, floor in self._rows("grp", "id, name, revision, live, floor", "id"):
            if all(isinstance(value, int) for value in (id, revision, live, floor)) and isinstance(name, str):
                yield _Group(id, name, revision, bool(live), floor)
            else:
                self._findings.append("a group cannot be read")

    def documents(self) -> list[Record]:
        """The readable documents."""
        rows = self._rows("doc", "kind, name, body, revision", "id")
        found = [
            Record(DOCUMENTS.name, (kind, name, body is not None, body or b"", revision))
            for kind, name, body, revision in rows
            if isinstance(kind, str)
            and isinstance(name, str)
            and isinstance(body, bytes | None)
            and type(revision) is int
        ]
        if len(found) < len(rows):
            self._findings.append(f"{len(rows) - len(found)} documents are damaged")
        return found

    def audit_entries(self) -> list[Record]:
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

    def salvage(self, group: _Group) -> tuple[str, list[Record]]:
        """The outcome for a group as a message, and its intact records."""
        lines = {line[1]: line for line in self._lines.get(group.id, ()) if _is_line(line)}
        group = self._corrected(group, lines)
        past = [row for row in self._past.get(group.id, ()) if type(row[6]) is not int or row[6] > group.floor]
        rows = (*self._entries.get(group.id, ()), *past)
        possible = [row for row in rows if _is_entry(row) and _is_possible(row, group.revision)]
        wrong = len(rows) - sum(map(self._has_intact_blob, possible))
        wrong += len(self._lines.get(group.id, ())) - len(lines)
        if wrong:
            self._findings.append(f"group {group.name!r}: {wrong} rows of its content and history are damaged")
        if not group.live:
            return "deleted", self._records(group, group.revision, lines.get(group.revision), [])
        for revision in sorted(lines, reverse=True):
            line, content = lines[revision], self._content_at(possible, revision)
            if (
                revision < group.floor
                or content is None
                or len(content) != line[3]
                or not (line[2] and line[_CONTENT_COLUMN])
            ):
                continue
            if revision == group.revision:
                return f"intact at revision {revision}", self._records(group, revision, line, content)
            self._findings.append(f"group {group.name!r}: revision {group.revision} is incomplete")
            outcome = f"revision {revision} becomes {group.revision + 1}"
            return outcome, self._records(group, group.revision + 1, line, content)
        self._findings.append(f"group {group.name!r}: no revision is complete")
        return "lost: no revision is complete", []

    def _corrected(self, group: _Group, lines: Mapping[int, Values]) -> _Group:
        """The group with the newest revision and the state of its history, where its row has others."""
        line = lines.get(max(group.revision, *lines, 0))
        if line is None or (line[1], bool(line[2])) == (group.revision, group.live):
            return group
        corrected = group._replace(revision=line[1], live=bool(line[2]))
        row_text, history_text = (
            f"revision {each.revision}, {'live' if each.live else 'deleted'}" for each in (group, corrected)
        )
        self._findings.append(f"group {group.name!r}: its row says {row_text}, its history {history_text}")
        return corrected

    def _records(self, group: _Group, revision: int, line: Values | None, content: list[Values]) -> list[Record]:
        values = record_rows.line_values(line[1:] if line is not None else _no_line(revision, group.live))
        fields = dict(zip(record_rows.LINE_COLUMNS, values, strict=True)) | {"resources": len(content), "content": True}
        if fields["revision"] != revision:
            fields |= {"kind": RESTORE, "message": f"salvaged from revision {fields['revision']}", "revision": revision}
            fields |= {"content_of": 0, "keeps_endpoints": False, "endpoints_only": False, "nodes": 0, "refused": 0}
        head = Record(GROUPS.name, (group.name, revision, fields["live"], revision))
        entries = [
            Record(ENTRIES.name, (group.name, self._types[type_id], name, h.hex(), rank, min(born, revision), 0))
            for _, type_id, name, h, rank, born, _ in content
        ]
        return [head, Record(REVISIONS.name, (group.name, *fields.values())), *entries]

    def _content_at(self, rows: Sequence[Values], revision: int) -> list[Values] | None:
        """The rows of the content at a revision, in order.

        None where a blob is missing or damaged, or where two rows have the same type and name: then one belongs to
        another revision.
        """
        content = [row for row in rows if row[5] <= revision and (row[6] == 0 or row[6] > revision)]
        if not all(self._has_intact_blob(row) for row in content) or len({row[1:3] for row in content}) < len(content):
            return None
        return sorted(content, key=lambda row: row[4])

    def _has_intact_blob(self, row: Values) -> bool:
        _, type_id, name, h, *_ = row
        key = (type_id, name, h)
        if key not in self._intact:
            body, url = self._bodies.get(h), self._types.get(type_id)
            self._intact[key] = body is not None and url is not None and self._fits(url, name, body)
        return self._intact[key]

    def _line_columns(self) -> str:
        """The columns of the history. Columns that an earlier release lacks get the value of the migration."""
        try:
            columns = {row[1] for row in self._connection.execute("PRAGMA table_info(revision)")}
        except _READ_ERRORS:
            return ", ".join(record_rows.LINE_COLUMNS)
        if self._is_current and not columns.issuperset(record_rows.LINE_COLUMNS):
            self._findings.append("the schema of the table 'revision' is damaged")
        return ", ".join(
            name if name in columns else _MIGRATED_COLUMNS.get(name, "0") for name in record_rows.LINE_COLUMNS
        )

    def _by_group(self, table: str, columns: str, key: str) -> Mapping[int, list[Values]]:
        """The rows of a table that are in the order of its key, by group."""
        names, rows = columns.split(", "), self._rows(table, columns, key)
        ordered = _in_order(rows, [names.index(name) for name in key.split(", ")])
        if len(ordered) < len(rows):
            self._findings.append(f"{len(rows) - len(ordered)} rows of the table {table!r} are out of order")
        found: dict[int, list[Values]] = {}
        for row in ordered:
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
            found += [row for row in reversed(backwards) if row not in seen]
        return found

    def _scan(self, statement: str) -> tuple[list[Values], bool]:
        found: list[Values] = []
        try:
            found.extend(self._connection.execute(statement))
        except _READ_ERRORS:
            return found, False
        return found, True


def _is_entry(row: Values) -> bool:
    kinds = (int, int, str, bytes, int, int, int)
    return all(type(value) is kind for value, kind in zip(row, kinds, strict=True))


def _is_possible(row: Values, newest: int) -> bool:
    """Whether the revisions of a row of content are possible in a group with this newest revision."""
    born, died = int(row[5]), int(row[6])
    return 0 < born <= newest and (died == 0 or born < died <= newest)


def _in_order(rows: Sequence[Values], places: Sequence[int]) -> list[Values]:
    """The rows in ascending order of their keys, which are the values at ``places``, without rows with damaged keys.

    A row counts if it belongs to every longest ascending sequence. If either of two rows may be the damaged one,
    neither counts. Rows with keys of unusual types come last.
    """
    keys = [tuple(row[at] for at in places) for row in rows]
    kinds = [tuple(map(type, key)) for key in keys]
    ((usual, _),) = Counter(kinds).most_common(1) or [((), 0)]
    keyed = [(key, row) for key, kind, row in zip(keys, kinds, rows, strict=True) if kind == usual]
    ends: list[Values] = []  # the lowest last key of the ascending sequences of each length
    lengths = []
    for key, _ in keyed:
        length = bisect_left(ends, key)
        ends[length : length + 1] = [key]
        lengths.append(length)
    highest: dict[int, Values] = {}
    found: dict[int, list[Values]] = {}
    for (key, row), length in zip(reversed(keyed), reversed(lengths), strict=True):
        if length + 1 == len(ends) or key < highest.get(length + 1, ()):
            highest[length] = max(key, highest.get(length, key))
            found.setdefault(length, []).append(row)
    ordered = [found[length][0] for length in range(len(ends)) if len(found[length]) == 1]
    return ordered + [row for kind, row in zip(kinds, rows, strict=True) if kind != usual]


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
    fields = {"revision": revision, "live": live, "versions": "{}", "author": "", "message": "", "time_s": 0.0}
    fields |= {"actor": "", "kind": PUSH if live else DELETE, "content": 1}
    return tuple(fields.get(name, 0) for name in record_rows.LINE_COLUMNS)

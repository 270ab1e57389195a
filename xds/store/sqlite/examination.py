"""Which groups of a store are undamaged, with their records, from which another store can be made (`xds store copy`).

The file is copied, and read with the statements of the engine, group by group. A group is undamaged if all of it can
be read, each body is the resource whose name it has, and the records make a store by themselves.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from xds.store.base import CorruptError, StoreError, UnavailableError
from xds.store.records import AUDIT, BLOBS, DOCUMENTS, ENTRIES, GROUPS, KINDS, Record, record_of
from xds.store.sql import audit_rows, ledger, record_rows
from xds.store.sql.record_rows import DumpedGroup
from xds.store.sqlite import schema
from xds.store.sqlite.directory_lock import DirectoryLock
from xds.store.sqlite.files import acknowledged_of, connect_copy

Connection = sqlite3.Connection
Fits = Callable[[str, str, bytes], bool]

_IN_USE = "{} is in use by a server: stop it first, or run `xds check`"
_LOCK_OFFSET, _LOCK_BYTES = 0x40000002, 510  # sqlite.org/fileformat2.html: a writer locks these bytes
# What damaged rows raise: errors of SQLite, whose messages may contain damaged text, and values of another type.
_DAMAGE = (sqlite3.DatabaseError, StoreError, ValueError, TypeError, AttributeError, RecursionError)
_POSITION = list(AUDIT.fields).index("position")


@dataclass(slots=True)
class Examination:
    """``findings`` are the damages, ``groups`` what was found of each group; ``records`` are those undamaged."""

    findings: list[str] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


def examine(path: Path, fits: Fits) -> Examination:
    """Examine a database that no server uses. ``fits`` says whether a blob is the resource of a type URL and name.

    Raises ``UnavailableError`` when a server uses it or it is missing; ``CorruptError`` when nothing can be read.
    """
    lock = DirectoryLock(path.parent, shared=True)
    try:
        _check_unused(path, lock)
        with closing(connect_copy(path, _connect)) as connection:
            return _examine(connection, path, fits)
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


def _connect(path: Path) -> Connection:
    """A connection to the copy, which gets the tables of this release."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA cell_size_check=ON")
        if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'grp'").fetchone() == (0,):
            raise CorruptError("it lacks the tables of a store")
        schema.ensure(connection)
    except (sqlite3.DatabaseError, UnicodeDecodeError, ValueError):
        connection.close()
        raise CorruptError("it cannot be read: its first pages are damaged, or it is not a SQLite file") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _examine(connection: Connection, path: Path, fits: Fits) -> Examination:
    examination = Examination()
    if not _is_sound(connection):
        examination.findings.append("the file has damaged pages")
    acknowledged, newest = acknowledged_of(path), _newest(connection)
    if newest is None:
        examination.findings.append("the number of the newest commit: damaged")
    elif acknowledged.newest > newest:
        examination.findings.append(f"commits {newest + 1} to {acknowledged.newest} were acknowledged and are missing")
    for group in _groups(connection, examination):
        examination.records += _examine_group(connection, group, fits, examination)
    for what, read in (("settings and other documents", _documents), ("the audit list", _audited)):
        try:
            more = list(read(connection))
            _check(more)
        except _DAMAGE:
            examination.findings.append(f"{what}: damaged")
        else:
            examination.records += more
    bodies = {
        record.values[0]: record for record in examination.records if record.kind == BLOBS.name
    }  # groups share them
    others = (record for record in examination.records if record.kind != BLOBS.name)
    examination.records = [*sorted(others, key=_order), *bodies.values()]
    return examination


def _is_sound(connection: Connection) -> bool:
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


def _newest(connection: Connection) -> int | None:
    try:
        return ledger.newest_cursor(connection)
    except _DAMAGE:
        return None


def _groups(connection: Connection, examination: Examination) -> list[DumpedGroup]:
    """The groups whose heads can be read."""
    heads: list[DumpedGroup] = []
    try:
        for id, name, revision, live, floor in connection.execute("SELECT id, name, revision, live, floor FROM grp"):
            heads.append(DumpedGroup(id, name, revision, bool(live), floor))
    except _DAMAGE:
        examination.findings.append("the list of groups: damaged")
    return sorted((each for each in heads if isinstance(each.name, str)), key=lambda group: group.name)


def _examine_group(connection: Connection, group: DumpedGroup, fits: Fits, examination: Examination) -> list[Record]:
    """The records of a group: with its history, else without it, else none."""
    present = f"intact at revision {group.revision}" if group.live else "deleted"
    for outcome, history in ((present, True), (f"{present}, its history is damaged", False)):
        try:
            records = list(_of_group(connection, group, history))
            _check(records, fits)
        except _DAMAGE:
            continue
        examination.groups[group.name] = outcome
        if not history:
            examination.findings.append(f"group {group.name!r}: its history is damaged")
        return records
    examination.groups[group.name] = "damaged"
    examination.findings.append(f"group {group.name!r}: damaged")
    return []


def _of_group(connection: Connection, group: DumpedGroup, history: bool) -> Iterator[Record]:
    if not history:
        group = group._replace(floor=group.revision)
    _check_lines(connection, group)
    yield Record(GROUPS.name, (group.name, group.revision, group.live, group.floor))
    at = 0
    while batch := record_rows.lines(connection, group, at, history):
        yield from batch
        at = batch[-1].values[1]
    entries, after = record_rows.present_rows(connection, group), record_rows.FIRST
    while history:
        batch, after = record_rows.past_rows(connection, group, after)
        if not batch:
            break
        entries += batch
    yield from entries
    wanted = list({entry.values[3] for entry in entries})
    while wanted:
        yield from record_rows.bodies(connection, wanted)


def _check_lines(connection: Connection, group: DumpedGroup) -> None:
    """Raises ``CorruptError`` unless the history has each revision from the floor to the head, and none after it."""
    newest, count = connection.execute(
        "SELECT max(revision), count(*) FROM revision WHERE grp = ? AND revision >= ?", (group.id, group.floor)
    ).fetchone()
    if (newest, count) != (group.revision, group.revision - group.floor + 1):
        raise CorruptError(f"group {group.name!r} lacks lines of its history")


def _documents(connection: Connection) -> Iterator[Record]:
    rows = connection.execute("SELECT kind, name, body, revision FROM doc ORDER BY kind, name")
    return (Record(DOCUMENTS.name, (kind, name, body is not None, body or b"", rev)) for kind, name, body, rev in rows)


def _audited(connection: Connection) -> Iterator[Record]:
    yield from map(record_of, audit_rows.counted(connection))
    end, after = audit_rows.newest(connection), 0
    while batch := record_rows.audited(connection, after, end):
        yield from batch
        after = batch[-1].values[_POSITION]


def _check(records: list[Record], fits: Fits | None = None) -> None:
    """Raises one of `_DAMAGE` where records make no store, or a body is not the resource whose name it has."""
    for kind, values in records:
        KINDS[kind].values(KINDS[kind].document(values))
    bodies = dict(values for kind, values in records if kind == BLOBS.name)
    for kind, values in records:
        if kind == ENTRIES.name and fits is not None and not fits(values[1], values[2], bodies[values[3]]):
            raise CorruptError(f"the body of {values[2]!r} is another's")
    ordered = sorted(records, key=_order)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as scratch:
        schema.configure_in_memory(scratch)
        schema.ensure(scratch)
        record_rows.import_records(scratch, iter(ordered), replace=True)


def _order(record: Record) -> int:
    """The place of a record: it refers to earlier kinds only."""
    return list(KINDS).index(record.kind)

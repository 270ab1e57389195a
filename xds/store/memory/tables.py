"""The tables of the memory engine: groups, with their conversion to and from backup records; the audit list. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

from xds.store import rank, revisions
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
from xds.store.base import CorruptError, Entry, Head, Lifetime, Manifest, Meta, RevisionInfo
from xds.store.records import ENTRIES, GROUPS, REVISIONS, Record, merge_audit_lists
from xds.store.retention import Retention
from xds.store.revisions import Key


@dataclass(slots=True)
class MemoryGroup:
    """The state of a group.

    ``manifests`` and ``history`` are by revision. A deletion and a collected revision have no manifest. ``floor`` is
    the lowest revision whose content is kept. ``content`` and ``blob_ids`` belong to the head and are in pushed order,
    so that a change of one resource does not read all of them.
    """

    head: Head
    manifests: dict[int, Manifest] = field(default_factory=dict)
    history: dict[int, RevisionInfo] = field(default_factory=dict)
    floor: int = 1
    content: dict[Key, Entry] = field(default_factory=dict)
    blob_ids: dict[Key, str] = field(default_factory=dict)

    def current(self) -> Manifest | None:
        """The manifest of the head; None after a deletion."""
        return self.manifests.get(self.head.revision)


def lifetimes(state: MemoryGroup, since: int) -> list[Lifetime]:
    """``Store.lifetimes``."""
    found: list[Lifetime] = []
    born: dict[Entry, int] = {}
    for at in sorted(at for at in {*state.manifests, *state.history} if at >= since):
        if at not in state.manifests and state.history[at].live:
            continue  # its content was collected
        entries = set(state.manifests[at].entries) if at in state.manifests else set()
        found += [Lifetime(entry, born.pop(entry), at) for entry in born.keys() - entries]
        born.update(dict.fromkeys(entries - born.keys(), at))
    found += [Lifetime(entry, at, 0) for entry, at in born.items()]
    return [each for each in found if each.born > since or each.died]


_Row = tuple[str, int, int]  # blob id, rank, born
_META = ("author", "message", "time_s", "actor")


class GroupRecords(NamedTuple):
    """The records of a group."""

    head: Record
    lines: list[Record]
    entries: list[Record]


def records_of_group(state: MemoryGroup, history: bool) -> GroupRecords:
    """The records of a group; without ``history`` its head alone."""
    head = state.head
    name, newest = head.group, head.revision
    floor = state.floor if history else newest
    manifests = {at: made for at, made in state.manifests.items() if at >= floor}
    lines = [_line(line) for at, line in sorted(state.history.items()) if history or at == newest]
    deletions = {at for at, line in state.history.items() if not line.live}
    entries = entry_records(name, newest, manifests, deletions)
    return GroupRecords(Record(GROUPS.name, (name, newest, head.live, floor)), lines, entries)


def group_of_records(group: str, found: Mapping[str, list[tuple[Any, ...]]], blobs: Mapping[str, bytes]) -> MemoryGroup:
    """A group from its records. Raises ``CorruptError`` for inconsistent records."""
    ((_, newest, live, floor),) = (values for values in found[GROUPS.name] if values[0] == group)
    rows = [values for values in found[ENTRIES.name] if values[0] == group]
    history = {values[1]: _info(values) for values in found[REVISIONS.name] if values[0] == group}
    if newest not in history or history[newest].live is not live or not history[newest].content:
        raise CorruptError(f"group {group!r} lacks the line of its revision")
    if any(line.content_of and not 0 < line.content_of < at for at, line in history.items()):
        raise CorruptError(f"group {group!r} has a rollback to a later revision")
    if missing := next((name for _, _, name, blob, *_ in rows if blob not in blobs), None):
        raise CorruptError(f"the body of {missing!r} is missing")
    manifests = {
        at: Manifest(group, at, entries_at(rows, at), line.versions, line.meta)
        for at, line in history.items()
        if line.live and line.content and at >= floor
    }
    stated = {at: line.resources for at, line in history.items() if line.content}
    begun, ended = Counter(row[5] for row in rows), Counter(row[6] for row in rows if row[6])
    revisions.check_sizes(group, floor, stated, begun, ended)
    entries = manifests[newest].entries if live else ()
    content = {(entry.type_url, entry.name): entry for entry in entries}
    ids = {key: entry.blob_id for key, entry in content.items()}
    return MemoryGroup(Head(group, newest, live), manifests, history, floor, content, ids)


def entry_records(
    group: str, newest: int, manifests: Mapping[int, Manifest], deletions: Collection[int]
) -> list[Record]:
    """The records of all revisions in ``manifests``. Revisions between them are collected ones or ``deletions``."""
    ended: list[Record] = []
    current: dict[Key, _Row] = {}
    for revision in sorted({*manifests, *(at for at in deletions if at >= min(manifests, default=newest))}):
        manifest = manifests.get(revision)
        wanted = {(e.type_url, e.name): e.blob_id for e in manifest.entries} if manifest is not None else {}
        ranks = rank.assign([current[key][1] if key in current else None for key in wanted])
        next_rows: dict[Key, _Row] = {}
        for (key, blob), at in zip(wanted.items(), ranks, strict=True):
            previous = current.get(key)
            next_rows[key] = previous if previous is not None and previous[:2] == (blob, at) else (blob, at, revision)
        ending = {key: row for key, row in current.items() if next_rows.get(key) != row}
        ended += [_record(group, key, row, revision) for key, row in ending.items()]
        current = next_rows
    return [*(_record(group, key, row, 0) for key, row in current.items()), *ended]


def entries_at(rows: Iterable[tuple[Any, ...]], revision: int) -> tuple[Entry, ...]:
    """The content at a revision from the rows of a group's records, in pushed order."""
    rows_then = [row for row in rows if row[5] <= revision and (row[6] == 0 or row[6] > revision)]
    return tuple(Entry(url, name, blob) for _, url, name, blob, *_ in sorted(rows_then, key=lambda row: row[4]))


def _line(line: RevisionInfo) -> Record:
    values = {name: getattr(line.meta, name) for name in _META}
    values |= {name: getattr(line, name) for name in REVISIONS.fields if name not in values}
    values["content"] = line.content or not line.live  # a deletion has no content to collect
    return Record(REVISIONS.name, tuple(values[name] for name in REVISIONS.fields))


def _info(values: tuple[Any, ...]) -> RevisionInfo:
    line_fields = dict(zip(REVISIONS.fields, values, strict=True))
    return RevisionInfo(meta=Meta(**{name: line_fields.pop(name) for name in _META}), **line_fields)


def _record(group: str, key: Key, row: _Row, died: int) -> Record:
    return Record(ENTRIES.name, (group, *key, *row, died))


class AuditList:
    """The audit list in memory: entries by position, oldest first."""

    def __init__(self) -> None:
        self._epoch = uuid4().hex[:8]
        self._entries: dict[int, AuditEntry] = {}
        self._newest = 0
        self._trimmed = 0

    def write(self, notes: Sequence[AuditNote]) -> None:
        """Append notes. A note with the key of an existing entry is merged into it."""
        for note in notes:
            existing = self._mergeable(note) if note.key else None
            if existing is not None:
                del self._entries[existing.position]
            self._newest += 1
            self._entries[self._newest] = entry_of_note(note, self._newest, existing)
        for lane in {note.lane for note in notes} & LIMITS.keys():
            own = [entry for entry in self._entries.values() if entry.note.lane is lane]
            self._drop(own[: max(0, len(own) - LIMITS[lane])])

    def read(self, cursor: str, limit: int, wanted: AuditFilter) -> AuditPage:
        """``Store.audit``."""
        after, lagged = position_of_cursor(cursor, self._epoch, self._trimmed, self._newest)
        found = [entry for position, entry in self._entries.items() if position > after]
        return page(found, limit, self._epoch, self._newest, lagged, wanted)

    def entries(self) -> list[AuditEntry]:
        """All entries."""
        return list(self._entries.values())

    def sizes(self) -> tuple[dict[AuditLane, int], int]:
        """The number of entries in each lane, and the size of the entries of changes."""
        notes = [entry.note for entry in self._entries.values()]
        counts = {lane: sum(note.lane is lane for note in notes) for lane in AuditLane}
        return counts, sum(note.size for note in notes if note.lane is AuditLane.CHANGE)

    def merge(self, given: Sequence[AuditEntry]) -> None:
        """Merge the list of a backup (`merge_audit_lists`)."""
        merged = merge_audit_lists(self.entries(), given)
        if merged is not None:
            self._epoch, self._trimmed, self._newest = uuid4().hex[:8], 0, merged[-1].position
            self._entries = {entry.position: entry for entry in merged}

    def trim(self, policy: Retention, now_s: float) -> None:
        """Delete entries that are too old, and the oldest changes beyond the maximum size."""
        self._drop([entry for entry in self._entries.values() if entry.note.time_s < now_s - policy.audit_s])
        size = 0
        for entry in reversed([each for each in self._entries.values() if each.note.lane is AuditLane.CHANGE]):
            size += entry.note.size
            if size > policy.audit_bytes:
                self._drop([entry])

    def _mergeable(self, note: AuditNote) -> AuditEntry | None:
        """The entry that a note is merged into; None for a new entry."""
        for entry in reversed(self._entries.values()):
            if entry.note.key == note.key and entry.first_s > note.time_s - MERGED_S:
                return entry
        return None

    def _drop(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            del self._entries[entry.position]
            if entry.note.lane is AuditLane.CHANGE:
                self._trimmed = max(self._trimmed, entry.position)

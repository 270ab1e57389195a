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
from xds.store.base import CorruptError, Entry, Head, Manifest, Meta, RevisionInfo
from xds.store.records import ENTRIES, GROUPS, REVISIONS, Record, merge_audit_lists
from xds.store.retention import Retention
from xds.store.revisions import Key


@dataclass(slots=True)
class MemoryGroup:
    """``manifests`` and ``history`` are by revision. A deletion and a collected revision have no manifest.

    ``floor`` is the lowest revision whose content is kept. ``content`` and ``blob_ids`` are those of the head in pushed
    order, so that a change of one resource need not read all of them.
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
    said = {at: line.resources for at, line in history.items() if line.content}
    came, went = Counter(row[5] for row in rows), Counter(row[6] for row in rows if row[6])
    revisions.check_sizes(group, floor, said, came, went)
    entries = manifests[newest].entries if live else ()
    content = {(entry.type_url, entry.name): entry for entry in entries}
    ids = {key: entry.blob_id for key, entry in content.items()}
    return MemoryGroup(Head(group, newest, live), manifests, history, floor, content, ids)


def entry_records(
    group: str, newest: int, manifests: Mapping[int, Manifest], deletions: Collection[int]
) -> list[Record]:
    """The records of all revisions in ``manifests``. Other revisions between them are collected, except deletions."""
    ended: list[Record] = []
    alive: dict[Key, _Row] = {}
    for revision in sorted({*manifests, *(at for at in deletions if at >= min(manifests, default=newest))}):
        made = manifests.get(revision)
        wanted = {(e.type_url, e.name): e.blob_id for e in made.entries} if made is not None else {}
        ranks = rank.assign([alive[key][1] if key in alive else None for key in wanted])
        following: dict[Key, _Row] = {}
        for (key, blob), at in zip(wanted.items(), ranks, strict=True):
            before = alive.get(key)
            following[key] = before if before is not None and before[:2] == (blob, at) else (blob, at, revision)
        gone = {key: row for key, row in alive.items() if following.get(key) != row}
        ended += [_record(group, key, row, revision) for key, row in gone.items()]
        alive = following
    return [*(_record(group, key, row, 0) for key, row in alive.items()), *ended]


def entries_at(rows: Iterable[tuple[Any, ...]], revision: int) -> tuple[Entry, ...]:
    """The content at a revision from the rows of a group's records, in pushed order."""
    held = [row for row in rows if row[5] <= revision and (row[6] == 0 or row[6] > revision)]
    return tuple(Entry(url, name, blob) for _, url, name, blob, *_ in sorted(held, key=lambda row: row[4]))


def _line(line: RevisionInfo) -> Record:
    told = {name: getattr(line.meta, name) for name in _META}
    told |= {name: getattr(line, name) for name in REVISIONS.fields if name not in told}
    told["content"] = line.content or not line.live  # a deletion has no content to collect
    return Record(REVISIONS.name, tuple(told[name] for name in REVISIONS.fields))


def _info(values: tuple[Any, ...]) -> RevisionInfo:
    told = dict(zip(REVISIONS.fields, values, strict=True))
    return RevisionInfo(meta=Meta(**{name: told.pop(name) for name in _META}), **told)


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
            held = self._held(note) if note.key else None
            if held is not None:
                del self._entries[held.position]
            self._newest += 1
            self._entries[self._newest] = entry_of_note(note, self._newest, held)
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

    def join(self, given: Sequence[AuditEntry]) -> None:
        """Merge the list of a backup (`merge_audit_lists`)."""
        whole = merge_audit_lists(self.entries(), given)
        if whole is not None:
            self._epoch, self._trimmed, self._newest = uuid4().hex[:8], 0, whole[-1].position
            self._entries = {entry.position: entry for entry in whole}

    def trim(self, policy: Retention, now_s: float) -> None:
        """Delete entries that are too old, and the oldest changes beyond the maximum size."""
        self._drop([entry for entry in self._entries.values() if entry.note.time_s < now_s - policy.audit_s])
        size = 0
        for entry in reversed([each for each in self._entries.values() if each.note.lane is AuditLane.CHANGE]):
            size += entry.note.size
            if size > policy.audit_bytes:
                self._drop([entry])

    def _held(self, note: AuditNote) -> AuditEntry | None:
        """The entry that a note is merged into."""
        for entry in reversed(self._entries.values()):
            if entry.note.key == note.key and entry.first_s > note.time_s - MERGED_S:
                return entry
        return None

    def _drop(self, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            del self._entries[entry.position]
            if entry.note.lane is AuditLane.CHANGE:
                self._trimmed = max(self._trimmed, entry.position)

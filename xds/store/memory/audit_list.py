"""The audit list in memory."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from xds.store.audit import (
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


class AuditList:
    """Entries by position, oldest first."""

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

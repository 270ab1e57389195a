"""The audit list: every write and every refused write, with actor, time, source and content. Pure.

Each entry belongs to one of three lanes with bounds of their own: changes (by age and size), pushes of endpoints alone
with registrations of instances, and refusals (both by number). Neither frequent endpoint updates nor many refused
requests displace real changes then.

Entries of the last two lanes with the same key are merged and counted. A counted entry keeps its id and moves to the
end of the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

MERGED_S = 3600.0  # entries of one key within this time are merged
ENDPOINTS_KEPT = 10_000
REFUSED_KEPT = 2_000
VALUE_LIMIT = 16 * 1024  # characters of an old or new value
ENTRY_BYTES = 200  # estimated size of an entry without its strings


class AuditLane(IntEnum):
    """The bound that applies to an entry."""

    CHANGE = 0
    ENDPOINTS = 1
    REFUSED = 2


LIMITS = {AuditLane.ENDPOINTS: ENDPOINTS_KEPT, AuditLane.REFUSED: REFUSED_KEPT}


@dataclass(frozen=True, slots=True)
class AuditNote:
    """One write or refused write.

    ``actor`` is authenticated, ``author`` is what the client claims, ``peer`` its address. ``subject`` names what was
    written in the group; ``old`` and ``new`` are JSON. ``reason`` says why a write was refused. The store sets
    ``revision``. ``key``, ``count`` and ``first_s`` are for merged entries.
    """

    action: str
    actor: str = ""
    author: str = ""
    peer: str = ""
    group: str = ""
    subject: str = ""
    message: str = ""
    old: str = ""
    new: str = ""
    reason: str = ""
    request_id: str = ""
    time_s: float = 0.0
    revision: int = 0
    lane: AuditLane = AuditLane.CHANGE
    key: str = ""
    count: int = 1
    first_s: float | None = None  # None: ``time_s``

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        texts = (self.action, self.actor, self.author, self.peer, self.group, self.subject, self.message)
        return ENTRY_BYTES + sum(map(len, (*texts, self.old, self.new, self.reason, self.request_id, self.key)))


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the list. ``id`` is stable; ``position`` changes when ``count`` grows. ``note`` is the latest one."""

    id: int
    position: int
    note: AuditNote
    count: int
    first_s: float


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries to return; empty fields match all. ``since_s`` is epoch seconds.

    ``newest``: the newest of them first, in one page.
    """

    group: str = ""
    actor: str = ""
    action: str = ""
    since_s: float = 0.0
    lanes: frozenset[AuditLane] = frozenset(AuditLane)
    newest: bool = False

    def __call__(self, entry: AuditEntry) -> bool:
        note = entry.note
        return (
            note.lane in self.lanes
            and self.group in ("", note.group)
            and self.actor in ("", note.actor)
            and self.action in ("", note.action)
            and note.time_s >= self.since_s
        )


EVERYTHING_AUDITED = AuditFilter()


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries after a cursor, oldest first. Continue with ``cursor``.

    ``more``: there are further entries. ``lagged``: entries after the given cursor were deleted, or the cursor belongs
    to another store.
    """

    entries: tuple[AuditEntry, ...]
    cursor: str
    more: bool = False
    lagged: bool = False


def cursor_of(epoch: str, position: int) -> str:
    """A cursor: a position in the list of one store."""
    return f"{epoch}-{position}"


def position_of_cursor(cursor: str, epoch: str, trimmed: int, newest: int) -> tuple[int, bool]:
    """The position after which a reader continues, and whether it missed entries.

    ``trimmed`` is the highest deleted position. Raises ``ValueError`` for an invalid cursor.
    """
    if not cursor:
        return 0, False
    own, _, number = cursor.partition("-")
    if not (own.isalnum() and number.isascii() and number.isdecimal() and len(number) < 19):
        raise ValueError(f"not a cursor of the audit list: {cursor[:100]!r}")
    position = int(number)
    if own != epoch or position > newest:
        return 0, True
    return position, position < trimmed


def entry_of_note(note: AuditNote, position: int, existing: AuditEntry | None) -> AuditEntry:
    """The entry for a note at a new position: a new entry, or ``existing`` with a higher count."""
    first_s = note.time_s if note.first_s is None else note.first_s
    latest = replace(note, count=1, first_s=None)
    if existing is None:
        return AuditEntry(position, position, latest, note.count, first_s)
    return AuditEntry(existing.id, position, latest, existing.count + note.count, min(existing.first_s, first_s))


def page(
    entries: list[AuditEntry], limit: int, epoch: str, newest: int, lagged: bool, wanted: Callable[[AuditEntry], bool]
) -> AuditPage:
    """A page of ``entries``, which are all entries after the given cursor, or the newest ones."""
    chosen = [entry for entry in entries if wanted(entry)]
    more = len(chosen) > limit
    end = chosen[limit - 1].position if more else newest
    return AuditPage(tuple(chosen[:limit]), cursor_of(epoch, end), more, lagged)

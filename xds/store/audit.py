"""The audit list: every write, and every one that was refused, with who, when, from where, what. Pure.

An entry stands in one of three lanes, each with a bound of its own: what was changed (by age and size), pushes of
endpoints alone, and what was refused (both by number). So neither a service that moves every second nor somebody who
is turned away as often pushes a real change out. Entries of the two latter lanes that have the same key are one, with
a count; it moves to the end of the list when it grows, under the id that it had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

MERGED_S = 3600.0  # entries of one key that begin within so long are one
ENDPOINTS_KEPT = 10_000
REFUSED_KEPT = 2_000
VALUE_LIMIT = 16 * 1024  # characters of an old or a new value
ENTRY_BYTES = 200  # what an entry takes besides its texts


class AuditLane(IntEnum):
    """Which bound an entry is under."""

    CHANGE = 0
    ENDPOINTS = 1
    REFUSED = 2


LIMITS = {AuditLane.ENDPOINTS: ENDPOINTS_KEPT, AuditLane.REFUSED: REFUSED_KEPT}


@dataclass(frozen=True, slots=True)
class AuditNote:
    """One write as the audit list keeps it.

    ``actor`` is who was authenticated, ``author`` what the client says besides, ``peer`` its address. ``subject`` says
    what of the group was written, ``old`` and ``new`` are JSON. ``reason`` says why it was refused. ``revision`` is the
    one that was made: the store knows it. ``key``, ``count`` and ``first_s`` are of entries that are counted.
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
        """About how many bytes it takes."""
        texts = (self.action, self.actor, self.author, self.peer, self.group, self.subject, self.message)
        return ENTRY_BYTES + sum(map(len, (*texts, self.old, self.new, self.reason, self.request_id, self.key)))


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A line of the list. ``id`` stays, ``position`` grows with ``count``; ``note`` is the latest that it counts."""

    id: int
    position: int
    note: AuditNote
    count: int
    first_s: float


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; what is empty means all. ``since_s``: seconds since the epoch."""

    group: str = ""
    actor: str = ""
    action: str = ""
    since_s: float = 0.0
    lanes: frozenset[AuditLane] = frozenset(AuditLane)

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
    """Entries behind a cursor, the oldest first. Go on with ``cursor``.

    ``more``: there are others already. ``lagged``: some behind the cursor that was given are not kept any more, or it
    is that of another store.
    """

    entries: tuple[AuditEntry, ...]
    cursor: str
    more: bool = False
    lagged: bool = False


def cursor_of(epoch: str, position: int) -> str:
    """Names a place in the list of one store."""
    return f"{epoch}-{position}"


def position_of_cursor(cursor: str, epoch: str, trimmed: int, newest: int) -> tuple[int, bool]:
    """The position behind which a reader goes on, and whether it missed something.

    ``trimmed`` is the highest position that was let go. Raises ``ValueError`` for what is no cursor.
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


def entry_of_note(note: AuditNote, position: int, held: AuditEntry | None) -> AuditEntry:
    """What a note makes at a position that nobody had: an entry of its own, or ``held``, grown."""
    first_s = note.time_s if note.first_s is None else note.first_s
    told = replace(note, count=1, first_s=None)
    if held is None:
        return AuditEntry(position, position, told, note.count, first_s)
    return AuditEntry(held.id, position, told, held.count + note.count, min(held.first_s, first_s))


def page(
    entries: list[AuditEntry], limit: int, epoch: str, newest: int, lagged: bool, wanted: Callable[[AuditEntry], bool]
) -> AuditPage:
    """A page of ``entries``, which are all behind the cursor that was given."""
    found = [entry for entry in entries if wanted(entry)]
    more = len(found) > limit
    end = found[limit - 1].position if more else newest
    return AuditPage(tuple(found[:limit]), cursor_of(epoch, end), more, lagged)

"""Entries of the audit list as records of a backup, and the lists of two servers as one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from xds.store.audit import LIMITS, AuditEntry, Note
from xds.store.records import AUDIT, Record

_OF_ENTRY = ("id", "position", "count", "first_s")


def record_of(entry: AuditEntry) -> Record:
    """An entry as a record."""
    told = (getattr(entry if name in _OF_ENTRY else entry.note, name) for name in AUDIT.fields)
    return Record(AUDIT.name, tuple(told))


def entry_of(values: Sequence[Any]) -> AuditEntry:
    """The entry of a record's values."""
    told = dict(zip(AUDIT.fields, values, strict=True))
    own = {name: told.pop(name) for name in _OF_ENTRY}
    return AuditEntry(note=Note(**told), **own)


def joined(own: Sequence[AuditEntry], given: Iterable[AuditEntry]) -> list[AuditEntry] | None:
    """The list of a server together with that of a backup, the oldest first; None where it has all of that already.

    A restore must hide nothing that was done to the server before. Entries have the numbers that they had in the
    backup where the server had none of its own, else new ones.
    """
    known = {_identity(entry) for entry in own}
    added = sorted((entry for entry in given if _identity(entry) not in known), key=lambda entry: entry.position)
    if not added:
        return None
    if not own and added[0].position > 0 and all(one.position < next.position for one, next in pairwise(added)):
        return _bounded(added)
    ordered = sorted((*own, *added), key=lambda entry: entry.note.time_s)
    return _bounded([replace(entry, id=n, position=n) for n, entry in enumerate(ordered, 1)])


def _bounded(entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Without the oldest of lanes that hold more than they may."""
    left = dict(LIMITS)
    kept: list[AuditEntry] = []
    for entry in reversed(entries):
        lane = entry.note.lane
        if left.get(lane, 1) > 0:
            kept.append(entry)
            if lane in left:
                left[lane] -= 1
    return kept[::-1]


def _identity(entry: AuditEntry) -> object:
    """What an entry is known by; one that is counted may have grown."""
    note = entry.note
    return (note.key, entry.first_s) if note.key else (note, entry.first_s)

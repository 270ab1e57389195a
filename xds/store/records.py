"""The content of a store as records, which every engine exports and imports. Backups consist of them. Pure.

`KINDS` lists the kinds of records in the order in which they are exported: a record refers to earlier kinds only. A
record is its kind and the values of the kind's fields, in order. Push ids, events of commits and open NACKs are not
included, since they concern one server process and its clients. The audit lists of a backup and of a server are merged.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from xds.store.audit_entries import LIMITS, AuditEntry, AuditLane, AuditNote

BLOB_ID_BYTES = 20
_INTEGER_LIMIT = 1 << 62


class WrongRecordError(ValueError):
    """An invalid record. The message names the field and the reason."""


@dataclass(frozen=True, slots=True)
class RecordField:
    """The type of a field, with functions to write it as JSON and to read it. ``read`` raises ``ValueError``."""

    noun: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return read


def _integer(value: Any) -> int:
    if type(value) is not int or not -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < _INTEGER_LIMIT:
        raise ValueError
    return float(value)


def _blob(value: Any) -> str:
    if len(bytes.fromhex(_exactly(str)(value))) != BLOB_ID_BYTES:
        raise ValueError
    return str(value).lower()


def _octets(value: Any) -> bytes:
    return b64decode(_exactly(str)(value), validate=True)


def _texts(value: Any) -> dict[str, str]:
    texts: dict[str, str] = _exactly(dict)(value)
    for text in texts.values():
        _exactly(str)(text)
    return texts


def _json(value: Any) -> str:
    text: str = _exactly(str)(value)
    if text:
        json.loads(text)
    return text


TEXT = RecordField("a string", _same, _exactly(str))
INTEGER = RecordField("an integer", _same, _integer)
NUMBER = RecordField("a number", _same, _number)
FLAG = RecordField("true or false", _same, _exactly(bool))
BLOB_ID = RecordField("a blob id", _same, _blob)
OCTETS = RecordField("bytes in base64", lambda value: b64encode(value).decode(), _octets)
LANE = RecordField("a lane of the audit list", int, lambda value: AuditLane(_integer(value)))
JSON = RecordField("JSON in a string, or an empty string", _same, _json)
TEXTS = RecordField("strings by name", dict, _texts)


@dataclass(frozen=True, slots=True)
class RecordKind:
    """One kind of record, with its fields by name."""

    name: str
    fields: Mapping[str, RecordField]

    def document(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """A record as a JSON object."""
        return {name: field.write(value) for (name, field), value in zip(self.fields.items(), values, strict=True)}

    def values(self, document: object) -> tuple[Any, ...]:
        """The values of a JSON object. Raises ``WrongRecordError``."""
        if not isinstance(document, dict) or document.keys() != self.fields.keys():
            raise WrongRecordError(f"not an object with {', '.join(self.fields)}")
        return tuple(_read(name, field, document[name]) for name, field in self.fields.items())


class Record(NamedTuple):
    """One record; ``kind`` is a name of `KINDS`."""

    kind: str
    values: tuple[Any, ...]


def _read(name: str, field: RecordField, value: object) -> Any:
    try:
        return field.read(value)
    except (ValueError, NotBase64Error, RecursionError):
        raise WrongRecordError(f"{name} is not {field.noun}") from None


# ``floor`` is the lowest revision with content.
GROUPS = RecordKind("groups", {"name": TEXT, "revision": INTEGER, "live": FLAG, "floor": INTEGER})
# ``content`` is False for a revision above the floor whose content was collected.
REVISIONS = RecordKind(
    "revisions",
    {
        "group": TEXT,
        "revision": INTEGER,
        "live": FLAG,
        "resources": INTEGER,
        "versions": TEXTS,
        "author": TEXT,
        "message": TEXT,
        "time_s": NUMBER,
        "actor": TEXT,
        "kind": TEXT,
        "content_of": INTEGER,
        "keeps_endpoints": FLAG,
        "endpoints_only": FLAG,
        "content": FLAG,
        "nodes": INTEGER,
        "refused": INTEGER,
    },
)
# Deleted documents are included, because their revisions continue.
DOCUMENTS = RecordKind("documents", {"kind": TEXT, "id": TEXT, "live": FLAG, "body": OCTETS, "revision": INTEGER})
# An entry of the audit list. The entries need not be ordered.
AUDIT = RecordKind(
    "audit",
    {
        "id": INTEGER,
        "position": INTEGER,
        "lane": LANE,
        "key": TEXT,
        "group": TEXT,
        "actor": TEXT,
        "action": TEXT,
        "count": INTEGER,
        "first_s": NUMBER,
        "time_s": NUMBER,
        "author": TEXT,
        "peer": TEXT,
        "subject": TEXT,
        "message": TEXT,
        "old": JSON,
        "new": JSON,
        "reason": TEXT,
        "request_id": TEXT,
        "revision": INTEGER,
    },
)
# A resource of a group from revision ``born`` up to but not including ``died``; 0: the resource exists now.
ENTRIES = RecordKind(
    "entries",
    {
        "group": TEXT,
        "type": TEXT,
        "name": TEXT,
        "blob": BLOB_ID,
        "rank": INTEGER,
        "born": INTEGER,
        "died": INTEGER,
    },
)
BLOBS = RecordKind("blobs", {"id": BLOB_ID, "data": OCTETS})

KINDS: Mapping[str, RecordKind] = {kind.name: kind for kind in (GROUPS, REVISIONS, DOCUMENTS, AUDIT, ENTRIES, BLOBS)}


_ENTRY_FIELDS = ("id", "position", "count", "first_s")


def record_of(entry: AuditEntry) -> Record:
    """An entry as a record."""
    values = (getattr(entry if name in _ENTRY_FIELDS else entry.note, name) for name in AUDIT.fields)
    return Record(AUDIT.name, tuple(values))


def entry_of(values: Sequence[Any]) -> AuditEntry:
    """The entry for the values of a record."""
    note_fields = dict(zip(AUDIT.fields, values, strict=True))
    entry_fields = {name: note_fields.pop(name) for name in _ENTRY_FIELDS}
    return AuditEntry(note=AuditNote(**note_fields), **entry_fields)


def merge_audit_lists(own: Sequence[AuditEntry], given: Iterable[AuditEntry]) -> list[AuditEntry] | None:
    """The merged audit list of a server and a backup, oldest first; None where the server has all entries already.

    A restore must not hide what was done to the server before. Entries keep their numbers from the backup when the
    server has no entries, else they are numbered again.
    """
    own_identities = {_identity(entry) for entry in own}
    added = sorted(
        (entry for entry in given if _identity(entry) not in own_identities), key=lambda entry: entry.position
    )
    if not added:
        return None
    if not own and added[0].position > 0 and all(one.position < next.position for one, next in pairwise(added)):
        return _bounded(added)
    ordered = sorted((*own, *added), key=lambda entry: entry.note.time_s)
    return _bounded([replace(entry, id=n, position=n) for n, entry in enumerate(ordered, 1)])


def _bounded(entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """The entries, without the oldest ones of each lane that has more than its bound."""
    room = dict(LIMITS)
    kept: list[AuditEntry] = []
    for entry in reversed(entries):
        lane = entry.note.lane
        if room.get(lane, 1) > 0:
            kept.append(entry)
            if lane in room:
                room[lane] -= 1
    return kept[::-1]


def _identity(entry: AuditEntry) -> object:
    """The identity of an entry. That of a counted entry does not depend on its count."""
    note = entry.note
    return (note.key, entry.first_s) if note.key else (note, entry.first_s)

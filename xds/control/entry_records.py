"""Config entries as the store keeps them, and what a write of several asks for and changes.

They are the content of one line of revisions beside those of groups (`LINE`): the type is the kind, the name is the
name, and the bytes are the canonical JSON of the entry with its ``CreateIndex`` and ``ModifyIndex``, which are
revisions of the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from xds.catalog.entry import ConfigEntry, Key, entry_from_json, entry_json, key_of
from xds.control.audit_log import Caller
from xds.control.push import CONFIG_ENTRIES_LINE, PushOptions, PushResult
from xds.model.errors import ConflictError, NotFoundError, ValidationError, Violation
from xds.store.audit_entries import AuditNote
from xds.store.base import Entry, blob_id

LINE = CONFIG_ENTRIES_LINE
CREATED, MODIFIED = "CreateIndex", "ModifyIndex"
ENTRY_BYTES = 512 * 1024  # of the canonical JSON of one entry
ENTRIES_LIMIT = 100_000
CHANGES_LIMIT = 50_000  # entries that one write names
_DIGEST_BYTES = 4
_ASKED_BYTES = 20
_NAMES_SHOWN = 20


class EntryConflictError(ConflictError):
    """A compare-and-set failed: the entry ``key`` was modified at another ``revision`` (0: there is none)."""

    def __init__(self, message: str, key: Key, revision: int) -> None:
        super().__init__(message, revision)
        self.key = key


class UnreadableEntryError(ValidationError):
    """Stored bytes are no config entry that this release can read."""


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """An entry with the revisions of the line that created it and that modified it last."""

    entry: ConfigEntry
    created_revision: int
    modified_revision: int

    @property
    def key(self) -> Key:
        """Kind and name."""
        return key_of(self.entry)

    @property
    def etag(self) -> str:
        """Identifies revision and content: ``r42-1f3a9c07``, without quotes."""
        digest = blake2b(canonical(entry_json(self.entry)), digest_size=_DIGEST_BYTES)
        return f"r{self.modified_revision}-{digest.hexdigest()}"

    def document(self) -> dict[str, object]:
        """The entry as Consul shows it: its JSON with both indexes."""
        return {**entry_json(self.entry), CREATED: self.created_revision, MODIFIED: self.modified_revision}

    def body(self) -> bytes:
        """The bytes that the store keeps."""
        return canonical(self.document())


def record_of(entry: ConfigEntry, created: int, modified: int) -> EntryRecord:
    """A record of an entry. Raises ``ValidationError`` for an entry that is too large."""
    made = EntryRecord(entry, created, modified)
    size = len(made.body())
    if size > ENTRY_BYTES:
        detail = f"a config entry has at most {ENTRY_BYTES} bytes as JSON, not {size}"
        raise ValidationError([Violation("entry_too_large", detail, _title(made.key))])
    return made


def read_record(body: bytes, key: Key | None = None) -> EntryRecord:
    """The record of stored bytes; ``key`` is what they are stored under. Raises ``UnreadableEntryError``."""
    title = _title(key) if key is not None else ""
    try:
        document = json.loads(body)
        created, modified = document[CREATED], document[MODIFIED]
        entry = entry_from_json(document)
    except ValidationError as error:
        raise UnreadableEntryError([replace(one, resource=title) for one in error.violations]) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreadableEntryError([Violation("malformed", "not a stored config entry", title)]) from None
    if not _is_revision(created) or not _is_revision(modified) or (key is not None and key != key_of(entry)):
        raise UnreadableEntryError([Violation("malformed", "not the config entry that it is stored as", title)])
    return EntryRecord(entry, created, modified)


def is_entry(body: bytes) -> bool:
    """True for the stored bytes of a config entry, of whatever release: those of a resource begin otherwise."""
    try:
        document = json.loads(body) if body[:1] == b"{" else None
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and CREATED in document and isinstance(document.get("Kind"), str)


def canonical(document: object) -> bytes:
    """The JSON of a value: keys in order, no blanks."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class PutEntry:
    """An entry to write. ``cas`` is the revision that it must have been modified at last, 0: there must be none.

    ``etag`` is the etag that it must have, ``*``: it must exist.
    """

    entry: ConfigEntry
    cas: int | None = None
    etag: str = ""

    @property
    def key(self) -> Key:
        """Kind and name."""
        return key_of(self.entry)


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """An entry to delete. ``cas`` and ``etag`` as in `PutEntry`. ``must_exist``: one that is not there is an error."""

    kind: str
    name: str
    cas: int | None = None
    etag: str = ""
    must_exist: bool = True

    @property
    def key(self) -> Key:
        """Kind and name."""
        return self.kind, self.name


EntryWrite = PutEntry | DeleteEntry

ADDED, CHANGED, REMOVED = "added", "changed", "removed"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry that differs: ``added``, ``changed`` or ``removed``; None is on the side that does not have it."""

    key: Key
    before: EntryRecord | None
    after: EntryRecord | None

    @property
    def change(self) -> str:
        """The word for it."""
        if self.before is None:
            return ADDED
        return REMOVED if self.after is None else CHANGED


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The result of a write of config entries.

    * ``revision``: the revision of the line after it; in a dry run, the present one;
    * ``changes``: the entries that differ, by kind and name; ``chains``: the services with a changed chain;
    * ``changed``: False when nothing differs and no revision was made;
    * ``replayed``: the write was made before, under the same push id;
    * ``groups``: what changes in groups with upstreams, whose chains it touches.
    """

    revision: int
    changes: tuple[EntryChange, ...] = ()
    chains: tuple[str, ...] = ()
    changed: bool = True
    dry_run: bool = False
    replayed: bool = False
    warnings: tuple[Violation, ...] = ()
    groups: tuple[PushResult, ...] = ()

    @property
    def etag(self) -> str:
        """The etag of the whole line, without quotes; empty where there is none."""
        return line_etag(self.revision)


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """What a write makes of the stored entries: records to put, keys to remove."""

    put: Mapping[Key, EntryRecord] = field(default_factory=dict)
    removed: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)

    def stored(self) -> tuple[tuple[Entry, ...], dict[str, bytes]]:
        """The lines and the blobs for the store."""
        bodies = {key: record.body() for key, record in sorted(self.put.items())}
        ids = {key: blob_id(body) for key, body in bodies.items()}
        blobs = {ids[key]: body for key, body in bodies.items()}
        return tuple(Entry(*key, blob) for key, blob in ids.items()), blobs

    def changes(self, held: Mapping[Key, EntryRecord]) -> tuple[EntryChange, ...]:
        """What differs from ``held``, by kind and name."""
        return tuple(EntryChange(key, held.get(key), self.put.get(key)) for key in sorted((*self.put, *self.removed)))


def edit_of(
    writes: Sequence[EntryWrite], held: Mapping[Key, EntryRecord], unreadable: Mapping[Key, str], revision: int
) -> EntryEdit:
    """What the writes change. Raises ``EntryConflictError``, ``NotFoundError``, ``ValidationError``."""
    for write in writes:
        check_precondition(write, held.get(write.key))
    put: dict[Key, EntryRecord] = {}
    removed: list[Key] = []
    for write in writes:
        before = held.get(write.key)
        if isinstance(write, PutEntry):
            if before is None or before.entry != write.entry:
                put[write.key] = record_of(write.entry, _created(before, revision), revision)
        elif before is not None or write.key in unreadable:
            removed.append(write.key)
        elif write.must_exist:
            raise NotFoundError(f"no config entry {'/'.join(write.key)}")
    return EntryEdit(put, tuple(removed))


def edit_to(target: Mapping[Key, EntryRecord], held: Mapping[Key, EntryRecord], revision: int) -> EntryEdit:
    """What makes ``target`` of ``held``."""
    put = {
        key: EntryRecord(wanted.entry, _created(held.get(key), revision), revision)
        for key, wanted in target.items()
        if key not in held or held[key].entry != wanted.entry
    }
    return EntryEdit(put, tuple(key for key in held if key not in target))


def _created(before: EntryRecord | None, revision: int) -> int:
    return before.created_revision if before is not None else revision


def entries_note(changes: Sequence[EntryChange], options: PushOptions, revision: int) -> AuditNote:
    """The note of a write for the audit list. ``revision`` is the one before; the store adds the new one."""
    names: dict[str, list[str]] = {}
    for change in changes:
        names.setdefault(change.change, []).append(_title(change.key))
    told = {word: {"count": len(found), "names": found[:_NAMES_SHOWN]} for word, found in names.items()}
    return Caller(options.meta.actor, options.meta.author, options.peer).note(
        "config_entries.changed",
        subject=_title(changes[0].key) if len(changes) == 1 else "",
        message=options.meta.message,
        old={"revision": revision},
        new={"changes": told},
    )


def line_etag(revision: int) -> str:
    """The etag of the line at a revision; empty where there is none."""
    return f"r{revision}" if revision else ""


def asked_digest(writes: Iterable[EntryWrite]) -> str:
    """Stands for what a write asks for, so that a repeat can be compared with it; preconditions do not count."""
    asked: list[Any] = [
        ["put", entry_json(each.entry)] if isinstance(each, PutEntry) else ["delete", *each.key] for each in writes
    ]
    return blake2b(canonical(asked), digest_size=_ASKED_BYTES).hexdigest()


def check_writes(writes: Sequence[EntryWrite]) -> None:
    """Raises ``ValidationError`` for no write, too many of them, or two of one entry."""
    if not 0 < len(writes) <= CHANGES_LIMIT:
        detail = f"a write names 1 to {CHANGES_LIMIT} config entries, not {len(writes)}"
        raise ValidationError([Violation("invalid_write", detail)])
    seen: set[Key] = set()
    findings: list[Violation] = []
    for index, each in enumerate(writes):
        if each.key in seen:
            findings.append(
                Violation("duplicate_entry", "a write names each entry once", _title(each.key), index=index)
            )
        seen.add(each.key)
    if findings:
        raise ValidationError(findings)


def check_precondition(write: EntryWrite, held: EntryRecord | None) -> None:
    """Compare-and-set of one entry. Raises ``EntryConflictError``."""
    title, cas, at = _title(write.key), write.cas, held.modified_revision if held is not None else 0
    if held is None:
        if cas or write.etag:
            raise EntryConflictError(f"config entry {title} does not exist", write.key, 0)
    elif cas is not None and cas != at:
        wanted = f"is at revision {at}, not {cas}" if cas else f"exists already, at revision {at}"
        raise EntryConflictError(f"config entry {title} {wanted}", write.key, at)
    elif write.etag not in ("", "*", f"r{at}") and write.etag != held.etag:
        raise EntryConflictError(f"config entry {title} is {held.etag}, not {write.etag[:80]}", write.key, at)


def _title(key: Key) -> str:
    return "/".join(key)


def _is_revision(value: object) -> bool:
    return type(value) is int and value > 0

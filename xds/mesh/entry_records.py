"""Config entries as the store keeps them, and the requests and results of a write.

Config entries have a line of revisions of their own, beside those of groups (`LINE`). In the store the type of an entry
is its kind, its name is its name as it was written, and its bytes are its canonical JSON with ``CreateIndex`` and
``ModifyIndex``. Both indexes are revisions of the line.

An earlier release stored names that differ in case only as several entries. Of these the one modified last counts
(`counting`). A write of the entry deletes the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from xds.access.caller import Caller
from xds.mesh.core.entries.entry import ConfigEntry, Key, WrittenKey, entry_from_json, entry_json, entry_key, key_of
from xds.model.errors import ConflictError, NotFoundError, ValidationError, Violation
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.push.request import PushOptions, PushResult
from xds.store.audit_entries import AuditNote
from xds.store.base import Entry, blob_id

LINE = CONFIG_ENTRIES_LINE
CREATED, MODIFIED = "CreateIndex", "ModifyIndex"
ENTRY_BYTES = 512 * 1024  # of the canonical JSON of one entry
ENTRIES_LIMIT = 100_000
CHANGES_LIMIT = 50_000  # entries that one write names
_DIGEST_BYTES = 4
_REQUEST_DIGEST_BYTES = 20
_NAMES_SHOWN = 20


class EntryConflictError(ConflictError):
    """A compare-and-set failed: the entry ``key`` was modified at another ``revision`` (0: there is none)."""

    def __init__(self, message: str, key: Key, revision: int) -> None:
        super().__init__(message, revision)
        self.key = key


class UnreadableEntryError(ValidationError):
    """Stored bytes are not a config entry that this release can read."""


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """An entry with the revisions of the line that created it and that modified it last."""

    entry: ConfigEntry
    created_revision: int
    modified_revision: int

    @property
    def key(self) -> Key:
        """The key of the entry."""
        return key_of(self.entry)

    @property
    def written(self) -> WrittenKey:
        """Kind and name as they were written, and are stored."""
        return self.entry.kind, self.entry.name

    @property
    def etag(self) -> str:
        """Identifies revision and content: ``r42-1f3a9c07``, without quotes."""
        digest = blake2b(canonical(entry_json(self.entry)), digest_size=_DIGEST_BYTES)
        return f"r{self.modified_revision}-{digest.hexdigest()}"

    def json(self) -> dict[str, object]:
        """The entry in Consul's names, without indexes."""
        return entry_json(self.entry)

    def document(self) -> dict[str, object]:
        """The entry as Consul shows it: its JSON with both indexes."""
        return {**entry_json(self.entry), CREATED: self.created_revision, MODIFIED: self.modified_revision}

    def body(self) -> bytes:
        """The bytes that the store keeps."""
        return canonical(self.document())


def record_of(entry: ConfigEntry, created: int, modified: int) -> EntryRecord:
    """A record of an entry. Raises ``ValidationError`` for an entry that is too large."""
    record = EntryRecord(entry, created, modified)
    size = len(record.body())
    if size > ENTRY_BYTES:
        detail = f"a config entry has at most {ENTRY_BYTES} bytes as JSON, not {size}"
        raise ValidationError([Violation("entry_too_large", detail, _title(record.written))])
    return record


def counting(records: Iterable[EntryRecord]) -> dict[Key, EntryRecord]:
    """The entries by key. Of several that have one key, the one that was modified last."""
    counted: dict[Key, EntryRecord] = {}
    for each in records:
        other = counted.setdefault(each.key, each)
        if (each.modified_revision, each.written) > (other.modified_revision, other.written):
            counted[each.key] = each
    return counted


def read_record(body: bytes, key: WrittenKey | None = None) -> EntryRecord:
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
    if not _is_revision(created) or not _is_revision(modified) or key not in (None, (entry.kind, entry.name)):
        raise UnreadableEntryError([Violation("malformed", "not the config entry that it is stored as", title)])
    return EntryRecord(entry, created, modified)


def canonical(document: object) -> bytes:
    """The JSON of a value: keys in order, no blanks."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class PutEntry:
    """An entry to write. ``cas`` is the revision that must have modified it last; 0: the entry must not exist.

    ``etag`` is the etag that the entry must have; ``*``: it must exist.
    """

    entry: ConfigEntry
    cas: int | None = None
    etag: str = ""

    @property
    def key(self) -> Key:
        """The key of the entry."""
        return key_of(self.entry)

    @property
    def written(self) -> WrittenKey:
        """Kind and name as they are written."""
        return self.entry.kind, self.entry.name


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """An entry to delete. ``cas`` and ``etag`` as in `PutEntry`. ``must_exist``: an absent entry is an error."""

    kind: str
    name: str
    cas: int | None = None
    etag: str = ""
    must_exist: bool = True

    @property
    def key(self) -> Key:
        """The key of the entry."""
        return entry_key(self.kind, self.name)

    @property
    def written(self) -> WrittenKey:
        """Kind and name as they are written."""
        return self.kind, self.name


EntryWrite = PutEntry | DeleteEntry

ADDED, CHANGED, REMOVED = "added", "changed", "removed"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry that differs. ``before`` is None for an added entry, ``after`` for a removed one."""

    key: Key
    before: EntryRecord | None
    after: EntryRecord | None

    @property
    def change(self) -> str:
        """``added``, ``changed`` or ``removed``."""
        if self.after is None:
            return REMOVED
        return ADDED if self.before is None else CHANGED

    @property
    def written(self) -> WrittenKey:
        """Kind and name as they are written now, or were written last."""
        record = self.after or self.before
        return record.written if record is not None else self.key


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
        """The etag of all config entries together, without quotes; empty if there are none."""
        return line_etag(self.revision)


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """The effect of a write on the stored entries: records to put, keys to remove.

    ``deleted`` are the entries to delete in the store: those of removed keys, and of put keys under other names.
    """

    put: Mapping[Key, EntryRecord] = field(default_factory=dict)
    removed: tuple[Key, ...] = ()
    deleted: tuple[WrittenKey, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)

    def stored(self) -> tuple[tuple[Entry, ...], dict[str, bytes]]:
        """The manifest entries and the blobs for the store."""
        bodies = {record.written: record.body() for _, record in sorted(self.put.items())}
        ids = {written: blob_id(body) for written, body in bodies.items()}
        blobs = {ids[written]: body for written, body in bodies.items()}
        return tuple(Entry(*written, blob) for written, blob in ids.items()), blobs

    def changes(self, present: Mapping[Key, EntryRecord]) -> tuple[EntryChange, ...]:
        """The entries that differ from ``present``, by kind and name."""
        keys = sorted((*self.put, *self.removed))
        return tuple(EntryChange(key, present.get(key), self.put.get(key)) for key in keys)


# Stored entries that are not used, by key: those that cannot be read, and those that do not count.
Unused = Mapping[Key, tuple[WrittenKey, ...]]


def edit_of(
    writes: Sequence[EntryWrite], present: Mapping[Key, EntryRecord], unused: Unused, revision: int
) -> EntryEdit:
    """The edit that applies ``writes`` to the ``present`` entries, as ``revision``.

    Raises ``EntryConflictError``, ``NotFoundError``, ``ValidationError``.
    """
    for write in writes:
        check_precondition(write, present.get(write.key))
    put: dict[Key, EntryRecord] = {}
    removed: list[Key] = []
    for write in writes:
        before = present.get(write.key)
        if isinstance(write, PutEntry):
            if before is None or before.entry != write.entry or write.key in unused:
                put[write.key] = record_of(write.entry, _created(before, revision), revision)
        elif before is not None or write.key in unused:
            removed.append(write.key)
        elif write.must_exist:
            raise NotFoundError(f"no config entry {_title(write.written)}")
    return _edit(put, removed, present, unused)


def edit_to(
    target: Mapping[Key, EntryRecord], present: Mapping[Key, EntryRecord], unused: Unused, revision: int
) -> EntryEdit:
    """The edit that turns the ``present`` entries into ``target``, as ``revision``."""
    put = {
        key: EntryRecord(wanted.entry, _created(present.get(key), revision), revision)
        for key, wanted in target.items()
        if key not in present or present[key].entry != wanted.entry
    }
    return _edit(put, [key for key in present if key not in target], present, unused)


def _edit(
    put: Mapping[Key, EntryRecord], removed: Sequence[Key], present: Mapping[Key, EntryRecord], unused: Unused
) -> EntryEdit:
    kept = {record.written for record in put.values()}
    stored = (name for key in (*put, *removed) for name in _stored_names(key, present, unused))
    return EntryEdit(put, tuple(removed), tuple(name for name in stored if name not in kept))


def _stored_names(key: Key, present: Mapping[Key, EntryRecord], unused: Unused) -> tuple[WrittenKey, ...]:
    names = unused.get(key, ())
    return (present[key].written, *names) if key in present else names


def _created(before: EntryRecord | None, revision: int) -> int:
    return before.created_revision if before is not None else revision


def entries_note(changes: Sequence[EntryChange], options: PushOptions, revision: int) -> AuditNote:
    """The note of a write for the audit list. ``revision`` is the one before; the store adds the new one."""
    names: dict[str, list[str]] = {}
    for change in changes:
        names.setdefault(change.change, []).append(_title(change.written))
    counts = {word: {"count": len(titles), "names": titles[:_NAMES_SHOWN]} for word, titles in names.items()}
    return Caller(options.meta.actor, options.meta.author, options.peer).note(
        "config_entries.changed",
        subject=_title(changes[0].written) if len(changes) == 1 else "",
        message=options.meta.message,
        old={"revision": revision},
        new={"changes": counts},
    )


def line_etag(revision: int) -> str:
    """The etag of the line at a revision; empty if there is none."""
    return f"r{revision}" if revision else ""


def request_digest(writes: Iterable[EntryWrite]) -> str:
    """The digest of a write without its preconditions. A repeated write is recognised by it."""
    requests: list[Any] = [
        ["put", entry_json(each.entry)] if isinstance(each, PutEntry) else ["delete", *each.written] for each in writes
    ]
    return blake2b(canonical(requests), digest_size=_REQUEST_DIGEST_BYTES).hexdigest()


def check_writes(writes: Sequence[EntryWrite]) -> None:
    """Raises ``ValidationError`` for no write, too many writes, or two writes of one entry."""
    if not 0 < len(writes) <= CHANGES_LIMIT:
        detail = f"a write names 1 to {CHANGES_LIMIT} config entries, not {len(writes)}"
        raise ValidationError([Violation("invalid_write", detail)])
    seen: set[Key] = set()
    findings: list[Violation] = []
    for index, each in enumerate(writes):
        if each.key in seen:
            findings.append(
                Violation("duplicate_entry", "a write names each entry once", _title(each.written), index=index)
            )
        seen.add(each.key)
    if findings:
        raise ValidationError(findings)


def check_precondition(write: EntryWrite, present: EntryRecord | None) -> None:
    """Check ``cas`` and ``etag`` of a write against the present entry. Raises ``EntryConflictError``."""
    title, cas, revision = _title(write.written), write.cas, present.modified_revision if present is not None else 0
    if present is None:
        if cas or write.etag:
            raise EntryConflictError(f"config entry {title} does not exist", write.key, 0)
    elif cas is not None and cas != revision:
        state = f"is at revision {revision}, not {cas}" if cas else f"exists already, at revision {revision}"
        raise EntryConflictError(f"config entry {title} {state}", write.key, revision)
    elif write.etag not in ("", "*", f"r{revision}") and write.etag != present.etag:
        raise EntryConflictError(f"config entry {title} is {present.etag}, not {write.etag[:80]}", write.key, revision)


def _title(key: WrittenKey) -> str:
    return "/".join(key)


def _is_revision(value: object) -> bool:
    return type(value) is int and value > 0

"""Computes the next revision of a group. All engines share these functions. Pure.

An engine reads the current content, computes the ``ContentEdit``, and, if it changes something, writes the next
revision with ``next_versions``. An edit contains the differences only, so that the cost of a change of one resource
does not depend on the other 50,000.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from hashlib import blake2b
from typing import NamedTuple

from xds.model.errors import ConflictError, NotFoundError
from xds.model.resource_type import ENDPOINT_TYPES
from xds.store.audit_entries import AuditLane, AuditNote
from xds.store.base import (
    DELETE,
    DERIVED,
    PUSH,
    RESTORE,
    ROLLBACK,
    CorruptError,
    Delta,
    Drop,
    Entry,
    FullSet,
    GoneError,
    GroupChange,
    GroupPush,
    Head,
    Meta,
    ReusedPushIdError,
    RevisionInfo,
    Rollback,
    blob_id,
)

Key = tuple[str, str]  # (type_url, name)

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class ContentEdit:
    """The difference between two contents of a group.

    ``put`` maps the keys of new and changed resources to blob ids. ``order`` is the whole new order; None keeps the
    present order and appends new resources.
    """

    put: Mapping[Key, str] = field(default_factory=dict)
    removed: tuple[Key, ...] = ()
    order: tuple[Key, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)

    def types(self) -> set[str]:
        """The type URLs of changed types."""
        return {type_url for type_url, _ in (*self.put, *self.removed)}


def replace(entries: Sequence[Entry], current: Mapping[Key, str]) -> ContentEdit:
    """The edit to exactly ``entries``. ``current`` is the whole present content: key to blob id, in pushed order."""
    wanted = _by_key(entries)
    put = {key: blob for key, blob in wanted.items() if current.get(key) != blob}
    if list(wanted) == list(current):  # the usual case
        return ContentEdit(put)
    in_place = [key for key in current if key in wanted]
    in_place += [key for key in wanted if key not in current]
    removed = tuple(key for key in current if key not in wanted)
    return ContentEdit(put, removed, tuple(wanted) if in_place != list(wanted) else None)


def amend(delta: Delta, current: Mapping[Key, str]) -> ContentEdit:
    """The edit of a delta. ``current`` needs to contain only those keys of the group that ``delta`` names."""
    wanted = _by_key(delta.put)
    removed = tuple(dict.fromkeys(delta.delete))
    for key in removed:
        if key in wanted:
            raise ValueError(f"both put and deleted: {_title(key)}")
        if key not in current:
            raise NotFoundError(f"no such resource: {_title(key)}")
    return ContentEdit({key: blob for key, blob in wanted.items() if current.get(key) != blob}, removed)


def rolled_back_entries(entries: Iterable[Entry], change: Rollback, current: Mapping[Key, str]) -> list[Entry]:
    """The entries after a rollback to ``entries``. ``current`` is the present content."""
    kept, omit = {key: current[key] for key in change.keep if key in current}, frozenset(change.omit)
    restored = [Entry(url, name, kept.pop((url, name), blob)) for url, name, blob in entries if (url, name) not in omit]
    return [*restored, *(Entry(*key, blob) for key, blob in kept.items())]


class RollbackStep(NamedTuple):
    """A rollback: ``revision`` brought back the content of the revision ``to``."""

    revision: int
    to: int
    keeps_endpoints: bool


def undone_by(revision: int, endpoints_only: bool, rollbacks: Sequence[RollbackStep], newest: int) -> int:
    """The rollback that undid a revision, seen from ``newest``; 0 while the revision is in effect.

    ``rollbacks`` is ordered by revision. The content of a group results from the pushes after the last rollback, then
    from those before the target of that rollback and after the rollback before it, and so on. Endpoints that a rollback
    kept stay in effect.
    """
    end = newest
    while index := bisect_right(rollbacks, end, key=lambda rollback: rollback.revision):
        rollback = rollbacks[index - 1]
        if revision >= rollback.revision:
            return 0
        if revision > rollback.to:
            return 0 if endpoints_only and rollback.keeps_endpoints else rollback.revision
        end = rollback.to
    return 0


def undone_line_by(line: RevisionInfo, rollbacks: Sequence[RollbackStep], newest: int) -> int:
    """As ``undone_by``, for a line of the history. Derived revisions are never undone: they follow documents."""
    return 0 if line.kind == DERIVED else undone_by(line.revision, line.endpoints_only, rollbacks, newest)


def kind_of(push: GroupPush, head: Head, meta: Meta) -> str:
    """The kind of the next revision."""
    change = push.change
    match change:
        case Drop():
            return DELETE
        case Rollback():
            return ROLLBACK if head.live else RESTORE
        case Delta() if change.content_of:
            return ROLLBACK
        case _:
            return push.kind or meta.kind or PUSH


def _content_of(change: GroupChange) -> int:
    match change:
        case Rollback():
            return change.to
        case Delta():
            return change.content_of
        case _:
            return 0


def is_endpoints_only(edit: ContentEdit, head: Head) -> bool:
    """Whether the next revision of an existing group changes endpoints alone."""
    return head.live and bool(edit) and edit.types() <= ENDPOINT_TYPES


def revision_line(push: GroupPush, before: Head, head: Head, edit: ContentEdit, info: RevisionInfo) -> RevisionInfo:
    """The line of the history for the revision ``head`` that a push makes.

    ``before`` is the head until then. ``info`` has the fields that the engine knows: meta, versions and resources.
    """
    change = push.change
    return with_fields(
        info,
        live=head.live,
        content=head.live,
        # The kind is a field of its own.
        meta=with_fields(info.meta, kind=""),
        kind=kind_of(push, before, info.meta),
        content_of=_content_of(change),
        keeps_endpoints=isinstance(change, Rollback) and change.keeps_endpoints,
        endpoints_only=is_endpoints_only(edit, before) and head.live,
    )


def audit_notes(note: AuditNote | None, revision_line: RevisionInfo) -> list[AuditNote]:
    """The notes for the audit list about a revision."""
    if note is None:
        return []
    text = with_fields(note, revision=revision_line.revision)
    if not revision_line.endpoints_only:
        return [text]
    host = note.peer.rpartition(":")[0]
    key = json.dumps([note.action, note.actor, note.author, host, note.group, note.message])
    return [with_fields(text, lane=AuditLane.ENDPOINTS, key=key)]


def delta_keys(delta: Delta) -> list[Key]:
    """The keys that a delta names."""
    return [*((entry.type_url, entry.name) for entry in delta.put), *delta.delete]


def next_versions(
    previous: Mapping[str, str], changed: Iterable[str], push: GroupPush, revision: int
) -> dict[str, str]:
    """version_info by type URL: ``changed`` types get the caller's label, else the revision and their hash.

    Other types keep their version_info.
    """
    change, hashes = push.change, push.hashes
    label, labels = (change.label, change.labels) if isinstance(change, FullSet | Delta) else ("", {})
    default = {url: f"{revision}+{hashes[url]}" if url in hashes else str(revision) for url in changed}
    return {**previous, **{url: labels.get(url) or label or default[url] for url in default}}


def position(head: Head | None) -> int:
    """The revision that ``expect`` is compared with: 0 for a group that does not exist."""
    return head.revision if head is not None and head.live else 0


def check_expect(subject: str, at: int, expect: int | None, group: str = "") -> None:
    """Compare-and-set. Raises ``ConflictError``."""
    if expect is not None and expect != at:
        raise ConflictError(f"{subject} is at revision {at}, not {expect}", at, group)


def check_groups(pushes: Sequence[GroupPush]) -> None:
    """Raises ``ValueError`` for an empty transaction, or two pushes to one group."""
    named = {push.group for push in pushes}
    if not pushes or len(named) < len(pushes):
        raise ValueError("a transaction changes at least one group, and each of them once")


def check_kept(group: str, revision: int, has_content: bool) -> None:
    """Raises ``GoneError`` for a revision whose content was collected."""
    if not has_content:
        raise GoneError(
            f"the content of revision {revision} of group {group!r} is no longer kept;"
            " the history says who pushed it and when"
        )


def check_repeat(push_id: str, stored: Sequence[bytes | None], digest: bytes) -> bool:
    """Whether a push was committed before. ``stored`` has the digest stored with the id in each group, None for none.

    An empty digest (from a release without digests) matches any. Raises ``ReusedPushIdError``.
    """
    if all(each is None for each in stored):
        return False
    if any(each is None or each not in (b"", digest) for each in stored):
        raise ReusedPushIdError(f"the push id {push_id!r} was used for another push; take a fresh one for each")
    return True


def push_digest(pushes: Iterable[GroupPush]) -> bytes:
    """A digest of the requested changes and their groups."""
    text = "".join([_sized(push.group) + _request_text(push) for push in pushes if not push.is_derived])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def requested_pushes(pushes: Iterable[GroupPush]) -> list[GroupPush]:
    """The pushes that the caller requested, without derived pushes."""
    return [push for push in pushes if not push.is_derived]


def _request_text(push: GroupPush) -> str:
    return _sized(push.request_text) if push.request_text else _change_text(push.requested_change or push.change)


def _change_text(change: GroupChange) -> str:
    """All parts of a change, each with its length."""
    text = _sized(type(change).__name__)
    if isinstance(change, Rollback):
        text += _sized(str(change.to)) + ("keeps" if change.keeps_endpoints else "")
    if isinstance(change, FullSet | Delta):
        entries = change.entries if isinstance(change, FullSet) else change.put
        labels = (part for label in sorted(change.labels.items()) for part in label)
        parts = (change.label, str(len(change.labels)), str(len(entries)), *labels)
        text += "".join(map(_sized, parts)) + _entries_text(entries)
    if isinstance(change, Delta):
        text += "".join([_sized(part) for key in change.delete for part in key])
        text += _sized(str(change.content_of)) if change.content_of else ""
    return text


def _entries_text(entries: Sequence[Entry]) -> str:
    types = {type_url: _sized(type_url) for type_url in {one.type_url for one in entries}}
    return "".join([f"{types[url]}{len(name)}:{name}{len(blob)}:{blob}" for url, name, blob in entries])


def _sized(part: str) -> str:
    return f"{len(part)}:{part}"


def given_blobs(edit: ContentEdit, change: GroupChange) -> dict[str, bytes]:
    """The blobs of the edit that came with the change, checked against their ids. Raises ``CorruptError``."""
    offered = change.blobs if isinstance(change, FullSet | Delta) else {}
    given = {blob: offered[blob] for blob in edit.put.values() if blob in offered}
    for blob, data in given.items():
        check_blob(blob, data)
    return given


def check_sizes(
    group: str, floor: int, stated: Mapping[int, int], begun: Mapping[int, int], ended: Mapping[int, int]
) -> None:
    """Raises ``CorruptError`` unless a group has, at each revision from ``floor`` on, the stated number of resources.

    All numbers are by revision: ``stated`` of resources, ``begun`` and ``ended`` of rows that begin and end with it.
    """
    count = 0
    for revision in sorted({*stated, *begun, *ended}):
        count += begun.get(revision, 0) - ended.get(revision, 0)
        if revision >= floor and stated.get(revision, count) != count:
            raise CorruptError(f"group {group!r} at revision {revision} has {count} of {stated[revision]} resources")


def check_blob(blob: str, data: bytes) -> None:
    """Raises ``CorruptError`` unless ``data`` hashes to ``blob``."""
    if blob_id(data) != blob:
        raise CorruptError(f"blob {blob} does not match its hash")


def _by_key(entries: Sequence[Entry]) -> dict[Key, str]:
    wanted = {(type_url, name): blob for type_url, name, blob in entries}
    if len(wanted) < len(entries):
        times = Counter((type_url, name) for type_url, name, _ in entries)
        raise ValueError(f"named twice: {_title(times.most_common(1)[0][0])}")
    return wanted


def _title(key: Key) -> str:
    return f"{key[1]!r} of type {key[0]}"

"""From one revision of a group to the next: the arithmetic that all engines share. Pure.

An engine looks up what it holds, asks for the ``ContentEdit``, and when that changes something writes the next revision with
``next_versions``. An edit names only what differs, so that one resource of 50,000 costs one resource.
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
from xds.store.audit import AuditLane, AuditNote
from xds.store.base import (
    DELETE,
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
    """What turns the content of a group into the next.

    ``put`` holds what is new or has another blob, by key, to blob id. ``order`` is the whole new order; None keeps
    the order there is and appends what is new.
    """

    put: Mapping[Key, str] = field(default_factory=dict)
    removed: tuple[Key, ...] = ()
    order: tuple[Key, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)

    def types(self) -> set[str]:
        """Type URLs whose content changes."""
        return {type_url for type_url, _ in (*self.put, *self.removed)}


def replace(entries: Sequence[Entry], held: Mapping[Key, str]) -> ContentEdit:
    """The edit that leaves exactly ``entries``. ``held``: all that the group holds, key to blob id, in pushed order."""
    wanted = _by_key(entries)
    put = {key: blob for key, blob in wanted.items() if held.get(key) != blob}
    if list(wanted) == list(held):  # most often
        return ContentEdit(put)
    in_place = [key for key in held if key in wanted]
    in_place += [key for key in wanted if key not in held]
    removed = tuple(key for key in held if key not in wanted)
    return ContentEdit(put, removed, tuple(wanted) if in_place != list(wanted) else None)


def amend(delta: Delta, held: Mapping[Key, str]) -> ContentEdit:
    """The edit a delta makes. ``held`` needs to hold only the keys that ``delta`` names, where the group has them."""
    wanted = _by_key(delta.put)
    removed = tuple(dict.fromkeys(delta.delete))
    for key in removed:
        if key in wanted:
            raise ValueError(f"both put and deleted: {_title(key)}")
        if key not in held:
            raise NotFoundError(f"no such resource: {_title(key)}")
    return ContentEdit({key: blob for key, blob in wanted.items() if held.get(key) != blob}, removed)


def rolled_back_entries(entries: Iterable[Entry], keep: Iterable[Key], held: Mapping[Key, str]) -> list[Entry]:
    """What a rollback leaves: ``entries``, where of ``keep`` the group's own stay."""
    kept = {key: held[key] for key in keep if key in held}
    found = [Entry(url, name, kept.pop((url, name), blob)) for url, name, blob in entries]
    return [*found, *(Entry(*key, blob) for key, blob in kept.items())]


class RollbackStep(NamedTuple):
    """A revision that went back ``to`` another."""

    revision: int
    to: int
    keeps_endpoints: bool


def undone_by(revision: int, endpoints_only: bool, backs: Sequence[RollbackStep], newest: int) -> int:
    """The rollback for which a revision is not in effect at ``newest``; 0 where it is.

    ``backs`` in the order of their revisions. What a group is served came about by the pushes behind the last rollback,
    by those up to where that one went, behind the last rollback before there, and so on. What a rollback kept of
    endpoints is in effect still.
    """
    end = newest
    while at := bisect_right(backs, end, key=lambda back: back.revision):
        back = backs[at - 1]
        if revision >= back.revision:
            return 0
        if revision > back.to:
            return 0 if endpoints_only and back.keeps_endpoints else back.revision
        end = back.to
    return 0


def kind_of(change: GroupChange, head: Head, meta: Meta) -> str:
    """What the next revision is called."""
    match change:
        case Drop():
            return DELETE
        case Rollback():
            return ROLLBACK if head.live else RESTORE
        case _:
            return meta.kind or PUSH


def is_endpoints_only(edit: ContentEdit, head: Head) -> bool:
    """Whether the next revision of a group that is there changes endpoints alone."""
    return head.live and bool(edit) and edit.types() <= ENDPOINT_TYPES


def revision_line(push: GroupPush, before: Head, head: Head, edit: ContentEdit, info: RevisionInfo) -> RevisionInfo:
    """The line of the history for the revision ``head`` that a push makes; ``info`` has what is the engine's."""
    change = push.change
    return with_fields(
        info,
        live=head.live,
        content=head.live,
        # What a revision is called is in its kind.
        meta=with_fields(info.meta, kind=""),
        kind=kind_of(change, before, info.meta),
        content_of=change.to if isinstance(change, Rollback) else 0,
        keeps_endpoints=isinstance(change, Rollback) and change.keeps_endpoints,
        endpoints_only=is_endpoints_only(edit, before) and head.live,
    )


def audit_notes(note: AuditNote | None, revision_line: RevisionInfo) -> list[AuditNote]:
    """What the audit list is told of a revision."""
    if note is None:
        return []
    told = with_fields(note, revision=revision_line.revision)
    if not revision_line.endpoints_only:
        return [told]
    host = note.peer.rpartition(":")[0]
    key = json.dumps([note.action, note.actor, note.author, host, note.group, note.message])
    return [with_fields(told, lane=AuditLane.ENDPOINTS, key=key)]


def delta_keys(delta: Delta) -> list[Key]:
    """All keys that a delta names."""
    return [*((entry.type_url, entry.name) for entry in delta.put), *delta.delete]


def next_versions(
    previous: Mapping[str, str], changed: Iterable[str], push: GroupPush, revision: int
) -> dict[str, str]:
    """version_info by type URL: ``changed`` types get the caller's label, else the revision and their hash.

    The others keep theirs.
    """
    change, hashes = push.change, push.hashes
    label, labels = (change.label, change.labels) if isinstance(change, FullSet | Delta) else ("", {})
    default = {url: f"{revision}+{hashes[url]}" if url in hashes else str(revision) for url in changed}
    return {**previous, **{url: labels.get(url) or label or default[url] for url in default}}


def position(head: Head | None) -> int:
    """What ``expect`` is compared with: 0 for a group that is not there."""
    return head.revision if head is not None and head.live else 0


def check_expect(subject: str, at: int, expect: int | None, group: str = "") -> None:
    """Compare-and-set. Raises ``ConflictError``."""
    if expect is not None and expect != at:
        raise ConflictError(f"{subject} is at revision {at}, not {expect}", at, group)


def check_groups(pushes: Sequence[GroupPush]) -> None:
    """Raises ``ValueError`` for what is no transaction."""
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


def check_repeat(push_id: str, known: Sequence[bytes | None], digest: bytes) -> bool:
    """Whether a push was made before. ``known``: by what digest each of its groups knows the id, None for not at all.

    An empty digest (from before digests were kept) stands for any. Raises ``ReusedPushIdError``.
    """
    if all(each is None for each in known):
        return False
    if any(each is None or each not in (b"", digest) for each in known):
        raise ReusedPushIdError(f"the push id {push_id!r} was used for another push; take a fresh one for each")
    return True


def push_digest(pushes: Iterable[GroupPush]) -> bytes:
    """Identifies what a push asks for: equal digests, equal changes to the same groups."""
    told = "".join([_sized(push.group) + _told(push.change) for push in pushes])
    return blake2b(told.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def _told(change: GroupChange) -> str:
    """All that a change says, each part with its length."""
    told = _sized(type(change).__name__)
    if isinstance(change, Rollback):
        told += _sized(str(change.to)) + ("keeps" if change.keeps_endpoints else "")
    if isinstance(change, FullSet | Delta):
        entries = change.entries if isinstance(change, FullSet) else change.put
        labels = (part for label in sorted(change.labels.items()) for part in label)
        parts = (change.label, str(len(change.labels)), str(len(entries)), *labels)
        told += "".join(map(_sized, parts)) + _entries_told(entries)
    if isinstance(change, Delta):
        told += "".join([_sized(part) for key in change.delete for part in key])
    return told


def _entries_told(entries: Sequence[Entry]) -> str:
    types = {type_url: _sized(type_url) for type_url in {one.type_url for one in entries}}
    return "".join([f"{types[url]}{len(name)}:{name}{len(blob)}:{blob}" for url, name, blob in entries])


def _sized(part: str) -> str:
    return f"{len(part)}:{part}"


def given_blobs(edit: ContentEdit, change: GroupChange) -> dict[str, bytes]:
    """Those blobs of the edit that came with the change, each checked against its id. Raises ``CorruptError``."""
    offered = change.blobs if isinstance(change, FullSet | Delta) else {}
    given = {blob: offered[blob] for blob in edit.put.values() if blob in offered}
    for blob, data in given.items():
        check_blob(blob, data)
    return given


def check_sizes(
    group: str, floor: int, said: Mapping[int, int], came: Mapping[int, int], went: Mapping[int, int]
) -> None:
    """Raises ``CorruptError`` unless a group held, at each revision from ``floor`` on, as many resources as is said.

    ``came`` and ``went``: how many rows of its content begin and end with a revision.
    """
    held = 0
    for revision in sorted({*said, *came, *went}):
        held += came.get(revision, 0) - went.get(revision, 0)
        if revision >= floor and said.get(revision, held) != held:
            raise CorruptError(f"group {group!r} at revision {revision} has {held} of {said[revision]} resources")


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

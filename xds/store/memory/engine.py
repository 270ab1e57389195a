"""The reference engine: everything is in dictionaries, nothing is on disk."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xds.model.errors import ConflictError, NotFoundError
from xds.store import revisions
from xds.store.audit_entries import EVERYTHING_AUDITED, AuditFilter, AuditNote, AuditPage
from xds.store.base import (
    EVENTS_KEPT,
    NO_META,
    PUSH_IDS_KEPT_S,
    READER_BUFFER,
    SKIPPED,
    ChangeItem,
    Commit,
    CorruptError,
    Delta,
    DocumentChanged,
    DocumentWrite,
    Drop,
    Entry,
    FullSet,
    GroupChange,
    GroupCommitted,
    GroupPush,
    Head,
    Lifetime,
    Manifest,
    Meta,
    ObservedRecord,
    OpenNack,
    Reset,
    RevisionInfo,
    Rollback,
    Store,
    StoredDocument,
    UnavailableError,
    WatchItem,
)
from xds.store.feed import Feed, resumable
from xds.store.memory.tables import AuditList, MemoryGroup, group_of_records, lifetimes, records_of_group
from xds.store.records import AUDIT, BLOBS, DOCUMENTS, ENTRIES, GROUPS, REVISIONS, Record, entry_of, record_of
from xds.store.retention import Collected, Retention, RevisionBounds, StoreCondition, StoreStats, content_floor
from xds.store.revisions import ContentEdit, RollbackStep


@dataclass(frozen=True, slots=True)
class _StoredPush:
    """One push id of one group: the commit, the digest of the request, and the time."""

    commit: Commit
    digest: bytes
    time_s: float


class MemoryStore(Store):
    """A ``Store`` that lasts as long as the process. ``clock`` returns epoch seconds, for the age of push ids."""

    def __init__(self, *, reader_buffer: int = READER_BUFFER, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._groups: dict[str, MemoryGroup] = {}
        self._pushes: dict[tuple[str, str], _StoredPush] = {}  # (group, push id), the oldest first
        self._blobs: dict[str, bytes] = {}
        self._docs: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        self._nacks: dict[int, OpenNack] = {}
        self._observed: dict[tuple[str, str], ObservedRecord] = {}
        self._events: deque[ChangeItem] = deque(maxlen=EVENTS_KEPT)
        self._cursor = 0
        self._feed = Feed(reader_buffer)
        self._audit = AuditList()
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False
        self._feed.close()

    async def commit(
        self, group: str, change: GroupChange, *, push_id: str, expect: int | None = None, meta: Meta = NO_META
    ) -> Commit:
        (commit,) = await self.commit_all((GroupPush(group, change, expect),), push_id=push_id, meta=meta)
        return commit

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        done = await self.committed(pushes, push_id)
        if done is not None:
            return done
        given: dict[str, bytes] = {}
        staged = [self._stage(push, given) for push in pushes]
        self._blobs.update(given)
        digest, now_s = revisions.push_digest(pushes), self._clock()
        commits: list[Commit] = []
        for push, (state, edit) in zip(pushes, staged, strict=True):
            commits.append(self._apply(state, push, edit, meta))
            for key in push.change.docs if isinstance(push.change, Drop) else ():
                await self._write_doc(DocumentWrite(*key, None))
            for write in push.writes:
                await self._write_doc(write)
            self._groups[push.group] = state
            self._pushes[push.group, push_id] = _StoredPush(commits[-1], digest, now_s)
        self._forget_pushes(now_s)
        return commits

    async def committed(self, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
        self._check_open()
        revisions.check_groups(pushes)
        found = [self._pushes.get((push.group, push_id)) for push in revisions.requested_pushes(pushes)]
        digests = [each.digest if each is not None else None for each in found]
        if not revisions.check_repeat(push_id, digests, revisions.push_digest(pushes)):
            return None
        return [replace(each.commit, replayed=True, versions={}) for each in found if each is not None]

    async def _write_doc(self, write: DocumentWrite) -> None:
        if write.body is not None or self._docs.get((write.kind, write.id), (0, None))[1] is not None:
            await self.put_doc(write.kind, write.id, write.body, note=write.note)

    async def commit_status(self, group: str, push_id: str) -> Commit | None:
        self._check_open()
        found = self._pushes.get((group, push_id))
        return replace(found.commit, versions={}) if found is not None else None

    async def head(self, group: str) -> Head | None:
        self._check_open()
        state = self._groups.get(group)
        return state.head if state is not None else None

    async def groups(self) -> list[Head]:
        self._check_open()
        return self._live_heads()

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        self._check_open()
        state = self._groups.get(group)
        if state is None:
            raise NotFoundError(f"no such group: {group!r}")
        return _manifest(state, revision)

    async def lifetimes(self, group: str, since: int) -> list[Lifetime]:
        self._check_open()
        state = self._groups.get(group)
        return lifetimes(state, since) if state is not None else []

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        self._check_open()
        found: dict[str, bytes] = {}
        for blob in ids:
            if blob not in self._blobs:
                raise CorruptError(f"blob {blob} is missing")
            found[blob] = self._blobs[blob]
            revisions.check_blob(blob, found[blob])
        return found

    async def history(
        self, group: str, *, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        self._check_open()
        state = self._groups.get(group)
        if state is None:
            return []
        wanted = [
            revision
            for revision, line in state.history.items()
            if (before is None or revision < before) and (endpoints or not line.endpoints_only)
        ]
        rollbacks = _rollbacks(state)
        return [_line(state, revision, rollbacks) for revision in sorted(wanted, reverse=True)[: max(0, limit)]]

    async def record_outcome(self, group: str, revision: int, nodes: int, refused: int) -> None:
        self._check_open()
        state = self._groups.get(group)
        if state is not None and revision in state.history:
            state.history[revision] = replace(state.history[revision], nodes=nodes, refused=refused)

    def watch(self, cursor: int | None = None) -> AsyncIterator[WatchItem]:
        return self._feed.follow(cursor, self._catch_up)

    async def put_doc(
        self, kind: str, id: str, body: bytes | None, *, expect: int | None = None, note: AuditNote | None = None
    ) -> int:
        self._check_open()
        revision, current = self._docs.get((kind, id), (0, None))
        revisions.check_expect(f"{kind} {id!r}", revision if current is not None else 0, expect)
        if body is None and current is None:
            raise NotFoundError(f"no such {kind}: {id!r}")
        if body == current:
            return revision
        self._docs[kind, id] = (revision + 1, body)
        self._audit.write([note] if note is not None else [])
        self._publish(DocumentChanged(kind, id, body, self._cursor + 1))
        return revision + 1

    async def docs(self, kind: str, prefix: str = "") -> list[StoredDocument]:
        self._check_open()
        return [
            StoredDocument(kind, id, body, revision)
            for (of_kind, id), (revision, body) in sorted(self._docs.items())
            if of_kind == kind and id.startswith(prefix) and body is not None
        ]

    async def note(self, notes: Sequence[AuditNote]) -> None:
        self._check_open()
        self._audit.write(notes)

    async def audit(self, cursor: str = "", limit: int = 100, wanted: AuditFilter = EVERYTHING_AUDITED) -> AuditPage:
        self._check_open()
        return self._audit.read(cursor, limit, wanted)

    async def put_nacks(self, put: Sequence[OpenNack], delete: Collection[int] = ()) -> None:
        self._check_open()
        for id in delete:
            self._nacks.pop(id, None)
        self._nacks.update((nack.id, nack) for nack in put)

    async def nacks(self) -> list[OpenNack]:
        self._check_open()
        return [nack for _, nack in sorted(self._nacks.items())]

    async def put_observed(
        self,
        put: Sequence[ObservedRecord],
        delete: Collection[tuple[str, str]] = (),
        notes: Sequence[AuditNote] = (),
    ) -> None:
        self._check_open()
        self._audit.write(notes)
        for key in delete:
            self._observed.pop(key, None)
        self._observed.update(((record.source, record.service), record) for record in put)

    async def observed(self) -> list[ObservedRecord]:
        self._check_open()
        return [record for _, record in sorted(self._observed.items())]

    async def collect(self, policy: Retention, now_s: float) -> Collected:
        self._check_open()
        self._audit.trim(policy, now_s)
        total = Collected(push_ids=self._forget_pushes(now_s))
        for state in self._groups.values():
            total += _trim(state, policy, now_s)
        return total + self._sweep()

    async def stats(self) -> StoreStats:
        self._check_open()
        size = sum(map(len, self._blobs.values()))
        revisions = sum(len(state.manifests) for state in self._groups.values())
        return StoreStats(size, 0, revisions, len(self._blobs), *self._audit.sizes())

    async def dump(self, history: bool = True) -> AsyncGenerator[Sequence[Record], None]:
        self._check_open()
        groups = [records_of_group(state, history) for _, state in sorted(self._groups.items())]
        documents = [
            Record(DOCUMENTS.name, (kind, id, body is not None, body or b"", revision))
            for (kind, id), (revision, body) in sorted(self._docs.items())
        ]
        entries = [record for each in groups for record in each.entries]
        audited = [record_of(entry) for entry in self._audit.entries()] if history else []
        blobs = {record.values[3]: self._blobs[record.values[3]] for record in entries}
        yield [each.head for each in groups]
        yield [line for each in groups for line in each.lines]
        yield documents
        yield audited
        yield entries
        yield [Record(BLOBS.name, each) for each in blobs.items()]

    async def restore(
        self, records: Callable[[], Iterator[Record]], *, replace: bool = False, note: AuditNote | None = None
    ) -> None:
        self._check_open()
        if (self._groups or self._docs) and not replace:
            raise ConflictError("the store is not empty: a restore replaces everything in it", 0)
        found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for kind, values in await asyncio.to_thread(lambda: list(records())):
            found[kind].append(values)
        names = {name for name, *_ in found[GROUPS.name]}
        for name, *_ in (*found[REVISIONS.name], *found[ENTRIES.name]):
            if name not in names:
                raise CorruptError(f"there is no group {name!r}, which other records belong to")
        blobs = dict(found[BLOBS.name])
        for blob, data in blobs.items():
            revisions.check_blob(blob, data)
        self._groups = {name: group_of_records(name, found, blobs) for name, *_ in found[GROUPS.name]}
        self._blobs = blobs
        self._docs = {(k, id): (at, body if live else None) for k, id, live, body, at in found[DOCUMENTS.name]}
        self._audit.merge([entry_of(values) for values in found[AUDIT.name]])
        self._audit.write([note] if note is not None else [])
        self._pushes.clear()
        self._events.clear()
        self._publish(DocumentChanged(SKIPPED, "", None, self._cursor + 2))
        self._feed.interrupt()

    def condition(self) -> StoreCondition:
        return StoreCondition()

    def _sweep(self) -> Collected:
        manifests = (manifest for state in self._groups.values() for manifest in state.manifests.values())
        used = {entry.blob_id for manifest in manifests for entry in manifest.entries}
        unused = [self._blobs.pop(blob) for blob in self._blobs.keys() - used]
        return Collected(blobs=len(unused), blob_bytes=sum(map(len, unused)))

    def _forget_pushes(self, now_s: float) -> int:
        deleted = 0
        while self._pushes and next(iter(self._pushes.values())).time_s < now_s - PUSH_IDS_KEPT_S:
            del self._pushes[next(iter(self._pushes))]
            deleted += 1
        return deleted

    def _stage(self, push: GroupPush, given: dict[str, bytes]) -> tuple[MemoryGroup, ContentEdit]:
        """Check one group's part of a push without changing anything; its blobs are added to ``given``."""
        state = self._groups.get(push.group) or MemoryGroup(Head(push.group, 0, live=False))
        at = revisions.position(state.head)
        revisions.check_expect(f"group {push.group!r}", at, push.expect, push.group)
        edit = _edit(state, push.change)
        given.update(revisions.given_blobs(edit, push.change))
        for blob in edit.put.values():
            if blob not in given and blob not in self._blobs:
                raise CorruptError(f"blob {blob} is neither given nor stored")
        return state, edit

    def _apply(self, state: MemoryGroup, push: GroupPush, edit: ContentEdit, meta: Meta) -> Commit:
        previous, change = state.current(), push.change
        if previous is not None and not edit and not isinstance(change, Drop):
            return Commit(state.head.group, state.head.revision, changed=False, versions=previous.versions)
        head = Head(state.head.group, state.head.revision + 1, live=not isinstance(change, Drop))
        _apply_edit(state, edit)
        manifest = (
            _next_manifest(head, previous, tuple(state.content.values()), edit, push, meta) if head.live else None
        )
        versions, resources = (manifest.versions, len(manifest.entries)) if manifest is not None else ({}, 0)
        if manifest is not None:
            state.manifests[head.revision] = manifest
        info = RevisionInfo(head.group, head.revision, meta, versions, resources)
        line = state.history[head.revision] = revisions.revision_line(push, state.head, head, edit, info)
        self._audit.write(revisions.audit_notes(push.note, line))
        state.head = head
        self._publish(GroupCommitted(head, self._cursor + 1))
        return Commit(head.group, head.revision, versions=versions)

    def _publish(self, item: ChangeItem) -> None:
        self._cursor = item.cursor
        self._events.append(item)
        self._feed.publish(item)

    async def _catch_up(self, cursor: int | None) -> list[WatchItem]:
        self._check_open()
        oldest = self._events[0].cursor if self._events else 1
        if cursor is None or not resumable(cursor, oldest, self._cursor):
            return [Reset(tuple(self._live_heads()), self._cursor)]
        return [item for item in self._events if item.cursor > cursor]

    def _live_heads(self) -> list[Head]:
        return [state.head for _, state in sorted(self._groups.items()) if state.head.live]

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError("the store is not open")


def _edit(state: MemoryGroup, change: GroupChange) -> ContentEdit:
    current = state.blob_ids
    match change:
        case FullSet():
            return revisions.replace(change.entries, current)
        case Delta():
            return revisions.amend(change, current)
        case Rollback():
            return revisions.replace(
                revisions.rolled_back_entries(_manifest(state, change.to).entries, change, current), current
            )
        case Drop():
            if state.current() is None:
                raise NotFoundError(f"no such group: {state.head.group!r}")
            return revisions.replace((), current)


def _apply_edit(state: MemoryGroup, edit: ContentEdit) -> None:
    """Apply an edit to the content of the head."""
    state.blob_ids.update(edit.put)
    state.content.update({key: Entry(*key, blob) for key, blob in edit.put.items()})
    for key in edit.removed:
        del state.blob_ids[key], state.content[key]
    if edit.order is not None:
        state.blob_ids = {key: state.blob_ids[key] for key in edit.order}
        state.content = {key: state.content[key] for key in edit.order}


def _next_manifest(
    head: Head, previous: Manifest | None, entries: tuple[Entry, ...], edit: ContentEdit, push: GroupPush, meta: Meta
) -> Manifest:
    versions = previous.versions if previous is not None else {}
    made = revisions.next_versions(versions, edit.types(), push, head.revision)
    return Manifest(head.group, head.revision, entries, made, replace(meta, kind=""))


def _manifest(state: MemoryGroup, revision: int | None) -> Manifest:
    wanted = state.head.revision if revision is None else revision
    line = state.history.get(wanted)
    if line is None or not line.live:
        raise NotFoundError(f"group {state.head.group!r} has no content at revision {wanted}")
    revisions.check_kept(state.head.group, wanted, wanted in state.manifests)
    return state.manifests[wanted]


def _line(state: MemoryGroup, revision: int, rollbacks: Sequence[RollbackStep]) -> RevisionInfo:
    line = state.history[revision]
    undone = revisions.undone_line_by(line, rollbacks, state.head.revision)
    return replace(line, content=revision in state.manifests, undone_by=undone)


def _rollbacks(state: MemoryGroup) -> list[RollbackStep]:
    """The rollbacks of a group, ordered by revision."""
    lines = (line for _, line in sorted(state.history.items()) if line.content_of)
    return [RollbackStep(line.revision, line.content_of, line.keeps_endpoints) for line in lines]


def _nth_last(state: MemoryGroup, number: int, endpoints_only: bool = False) -> int | None:
    """The ``number``-th last of the revisions that changed endpoints alone, or of the others."""
    found = sorted((at for at, line in state.history.items() if line.endpoints_only == endpoints_only), reverse=True)
    return found[number - 1] if len(found) >= number else None


def _trim(state: MemoryGroup, policy: Retention, now_s: float) -> Collected:
    head, floor = state.head, state.floor
    limit = _nth_last(state, policy.revisions_limit)
    young = (
        at
        for at, line in state.history.items()
        if at >= max(floor, limit or 1) and line.meta.time_s >= now_s - policy.age_s and not line.endpoints_only
    )
    bounds = RevisionBounds(_nth_last(state, policy.revisions), limit, min(young, default=None))
    state.floor = content_floor(head.revision, head.live, floor, bounds, _pinned(state, policy))
    thinned = sum(
        1 for at, line in state.history.items() if floor <= at < state.floor and not line.content and line.live
    )
    for revision in range(floor, min(state.floor, head.revision + 1)):
        state.manifests.pop(revision, None)
    thin = _thin(state, policy)
    return Collected(revisions=state.floor - floor - thinned + thin, lines=_trim_history(state, policy, now_s))


def _pinned(state: MemoryGroup, policy: Retention) -> list[int]:
    """The pinned revisions whose content is not collected. A deletion has no content to collect."""
    lines = [(at, state.history.get(at)) for at in policy.pinned.get(state.head.group, ())]
    return [at for at, line in lines if line is not None and (line.content or not line.live)]


def _thin(state: MemoryGroup, policy: Retention) -> int:
    """Delete contents of revisions that changed endpoints alone; returns their number."""
    last, pinned = (
        _nth_last(state, policy.endpoint_revisions, endpoints_only=True) or 0,
        policy.pinned.get(state.head.group, ()),
    )
    collected = [
        at
        for at, line in state.history.items()
        if line.endpoints_only
        and line.content
        and state.floor <= at < min(last, state.head.revision)
        and at not in pinned
    ]
    for revision in collected:
        state.manifests.pop(revision)
        state.history[revision] = replace(state.history[revision], content=False)
    return len(collected)


def _trim_history(state: MemoryGroup, policy: Retention, now_s: float) -> int:
    floors = {
        True: _nth_last(state, policy.endpoint_lines, endpoints_only=True) or 0,
        False: _nth_last(state, policy.history_limit) or 0,
    }
    old = [
        at
        for at, line in state.history.items()
        if at < state.head.revision
        and (at < state.floor or (line.endpoints_only and not line.content))
        and (line.meta.time_s < now_s - policy.history_s or at < floors[line.endpoints_only])
    ]
    for revision in old:
        del state.history[revision]
    return len(old)

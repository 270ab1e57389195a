"""The reference engine: everything in dicts, nothing durable. What it does is what the contract means."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from xds.model.errors import NotFoundError
from xds.store import revisions
from xds.store.base import (
    EVENTS_KEPT,
    NO_META,
    READER_BUFFER,
    Changed,
    Commit,
    CorruptError,
    Delta,
    Doc,
    DocChanged,
    Drop,
    Entry,
    FullSet,
    GroupChange,
    Head,
    Manifest,
    Meta,
    Reset,
    RevisionInfo,
    Rollback,
    UnavailableError,
    WatchItem,
)
from xds.store.feed import Feed, resumable
from xds.store.revisions import Edit, Key


@dataclass(slots=True)
class _Group:
    """``manifests`` by revision; None stands for a deletion, whose ``Meta`` is in ``metas`` like any other."""

    head: Head
    manifests: dict[int, Manifest | None] = field(default_factory=dict)
    metas: dict[int, Meta] = field(default_factory=dict)
    pushes: dict[str, Commit] = field(default_factory=dict)

    def current(self) -> Manifest | None:
        return self.manifests.get(self.head.revision)


class MemoryStore:
    """A ``Store`` that lasts as long as the process; push ids, blobs and history are kept without end."""

    def __init__(self, *, reader_buffer: int = READER_BUFFER) -> None:
        self._groups: dict[str, _Group] = {}
        self._blobs: dict[str, bytes] = {}
        self._docs: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        self._events: deque[Changed | DocChanged] = deque(maxlen=EVENTS_KEPT)
        self._cursor = 0
        self._feed = Feed(reader_buffer)
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False
        self._feed.close()

    async def commit(
        self, group: str, change: GroupChange, *, push_id: str, expect: int | None = None, meta: Meta = NO_META
    ) -> Commit:
        self._check_open()
        known = self._groups.get(group)
        if known is not None and push_id in known.pushes:
            return replace(known.pushes[push_id], replayed=True)
        state = known or _Group(Head(group, 0, live=False))
        revisions.check_expect(f"group {group!r}", revisions.position(state.head), expect)
        commit = self._apply(state, change, meta)
        state.pushes[push_id] = commit
        self._groups[group] = state
        return commit

    async def commit_status(self, group: str, push_id: str) -> Commit | None:
        self._check_open()
        state = self._groups.get(group)
        return state.pushes.get(push_id) if state is not None else None

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

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        self._check_open()
        found: dict[str, bytes] = {}
        for blob in ids:
            if blob not in self._blobs:
                raise CorruptError(f"blob {blob} is missing")
            found[blob] = self._blobs[blob]
            revisions.check_blob(blob, found[blob])
        return found

    async def history(self, group: str, *, before: int | None = None, limit: int = 50) -> list[RevisionInfo]:
        self._check_open()
        state = self._groups.get(group)
        if state is None:
            return []
        wanted = [revision for revision in state.manifests if before is None or revision < before]
        return [_info(state, revision) for revision in sorted(wanted, reverse=True)[: max(0, limit)]]

    def watch(self, cursor: int | None = None) -> AsyncIterator[WatchItem]:
        return self._feed.follow(cursor, self._catch_up)

    async def put_doc(self, kind: str, id: str, body: bytes | None, *, expect: int | None = None) -> int:
        self._check_open()
        revision, held = self._docs.get((kind, id), (0, None))
        revisions.check_expect(f"{kind} {id!r}", revision if held is not None else 0, expect)
        if body is None and held is None:
            raise NotFoundError(f"no such {kind}: {id!r}")
        if body == held:
            return revision
        self._docs[kind, id] = (revision + 1, body)
        self._publish(DocChanged(kind, id, body, self._cursor + 1))
        return revision + 1

    async def docs(self, kind: str, prefix: str = "") -> list[Doc]:
        self._check_open()
        return [
            Doc(kind, id, body, revision)
            for (of_kind, id), (revision, body) in sorted(self._docs.items())
            if of_kind == kind and id.startswith(prefix) and body is not None
        ]

    def _apply(self, state: _Group, change: GroupChange, meta: Meta) -> Commit:
        previous = state.current()
        edit = _edit(state, previous, change)
        if previous is not None and not edit and not isinstance(change, Drop):
            return Commit(state.head.group, state.head.revision, changed=False)
        self._keep_blobs(edit, change)
        head = Head(state.head.group, state.head.revision + 1, live=not isinstance(change, Drop))
        state.manifests[head.revision] = _next(head, previous, edit, change, meta) if head.live else None
        state.metas[head.revision] = meta
        state.head = head
        self._publish(Changed(head, self._cursor + 1))
        return Commit(head.group, head.revision)

    def _keep_blobs(self, edit: Edit, change: GroupChange) -> None:
        given = revisions.given_blobs(edit, change)
        for blob in edit.put.values():
            if blob not in given and blob not in self._blobs:
                raise CorruptError(f"blob {blob} is neither given nor held")
        self._blobs.update(given)

    def _publish(self, item: Changed | DocChanged) -> None:
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


def _edit(state: _Group, previous: Manifest | None, change: GroupChange) -> Edit:
    held = {(entry.type_url, entry.name): entry.blob_id for entry in previous.entries} if previous is not None else {}
    match change:
        case FullSet():
            return revisions.replace(change.entries, held)
        case Delta():
            return revisions.amend(change, held)
        case Rollback():
            return revisions.replace(_manifest(state, change.to).entries, held)
        case Drop():
            if previous is None:
                raise NotFoundError(f"no such group: {state.head.group!r}")
            return revisions.replace((), held)


def _next(head: Head, previous: Manifest | None, edit: Edit, change: GroupChange, meta: Meta) -> Manifest:
    versions = previous.versions if previous is not None else {}
    return Manifest(
        head.group,
        head.revision,
        _entries(previous.entries if previous is not None else (), edit),
        revisions.next_versions(versions, edit.types(), change, head.revision),
        meta,
    )


def _entries(previous: tuple[Entry, ...], edit: Edit) -> tuple[Entry, ...]:
    content: dict[Key, str] = {(entry.type_url, entry.name): entry.blob_id for entry in previous}
    content.update(edit.put)
    gone = set(edit.removed)
    order = edit.order if edit.order is not None else tuple(key for key in content if key not in gone)
    return tuple(Entry(*key, content[key]) for key in order)


def _manifest(state: _Group, revision: int | None) -> Manifest:
    wanted = state.head.revision if revision is None else revision
    found = state.manifests.get(wanted)
    if found is None:
        raise NotFoundError(f"group {state.head.group!r} has no content at revision {wanted}")
    return found


def _info(state: _Group, revision: int) -> RevisionInfo:
    found, meta = state.manifests[revision], state.metas[revision]
    if found is None:
        return RevisionInfo(state.head.group, revision, meta, {}, 0, live=False)
    return RevisionInfo(state.head.group, revision, meta, found.versions, len(found.entries))

"""From pushed input to served snapshot: codec, store, cache, streams (DESIGN 3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import structlog

from xds.control.assembly import assemble, decode, encode, shared
from xds.control.content import Content, Key, amended, blob_ids, changes, type_label
from xds.control.translation import Unexpressed, unexpressed
from xds.control.waiting import PushLog
from xds.fleet.fleet import Fleet
from xds.fleet.state import NodeState
from xds.model.errors import ConflictError, NotFoundError, ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.model.snapshot import Change
from xds.protocol.cache import RETAINED_REVISIONS, SnapshotCache
from xds.store.base import (
    NO_META,
    Commit,
    Delta,
    Drop,
    FullSet,
    GroupChange,
    Manifest,
    Meta,
    RevisionInfo,
    Rollback,
    Store,
    StoreError,
    UnavailableError,
)

GROUP_NAME_LIMIT = 256
OFF_LOOP_RESOURCES = 200  # more than these are hashed and compared in a thread
_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 5.0

T = TypeVar("T")

# Wakes the streams of these groups, and those that belong elsewhere now because one of them came or went.
Wake = Callable[[Collection[str]], None]

_log = structlog.get_logger(logger_name="xds.control.publisher")


class EmptyingError(XdsError):
    """A push would take everything from connected nodes; say ``allow_empty`` when that is meant."""


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push came to. ``versions`` and ``changes`` are by type label; ``changed`` False made no revision."""

    group: str
    revision: int
    etag: str
    versions: Mapping[str, str]
    changes: Mapping[str, Change]
    changed: bool = True


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How a push is made.

    * ``push_id``: the same id never applies twice; the first answer is given again.
    * ``expect``: the revision the group must be at, 0 for none.
    * ``dry_run``: say what would change, change nothing.
    * ``allow_empty``: the group may become empty although nodes are connected.
    """

    push_id: str = ""
    expect: int | None = None
    meta: Meta = NO_META
    dry_run: bool = False
    allow_empty: bool = False


DEFAULT_OPTIONS = PushOptions()


@dataclass(frozen=True, slots=True)
class _Plan:
    """The content a change leads to. ``known`` holds at least the resources that the group does not hold yet."""

    change: GroupChange
    blob_ids: Mapping[Key, str]
    known: Mapping[Key, Resource] = field(default_factory=dict)


class Publisher:
    """Takes pushes, one at a time per group, and publishes what the store has made durable.

    An acknowledged push is always published and one that is not acknowledged is fully there or not at all: the work
    goes on when the caller is cancelled.
    """

    def __init__(self, store: Store, cache: SnapshotCache, fleet: Fleet, wake: Wake, on_nack: str = "hold") -> None:
        self.pushes = PushLog(cache, fleet)
        self._store = store
        self._cache = cache
        self._fleet = fleet
        self._wake = wake
        self._on_nack = on_nack
        self._contents: dict[str, Content] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Task[Any]] = set()
        self._behind: dict[str, asyncio.Task[None]] = {}

    # Life

    async def load(self) -> None:
        """Publish all that the store holds, the retained revisions included. Raises ``StoreError``."""
        for head in await self._store.groups():
            await self._load_group(head.group)

    async def close(self) -> None:
        """Let pushes that are under way come to their end; stop catching up."""
        while self._running:
            await asyncio.wait(self._running)
        for task in self._behind.values():
            task.cancel()

    # Reading

    def groups(self) -> list[Content]:
        """The content of all groups, by name."""
        return [self._contents[group] for group in sorted(self._contents)]

    def content(self, group: str) -> Content:
        """What a group is served now. Raises ``NotFoundError``."""
        found = self._contents.get(group)
        if found is None:
            raise NotFoundError(f"no such group: {group!r}")
        return found

    async def content_at(self, group: str, revision: int) -> Content:
        """A group's content at an earlier revision. Raises ``NotFoundError``, ``StoreError``."""
        held = self._contents.get(group)
        if held is not None and held.revision == revision:
            return held
        manifest = await self._store.manifest(group, revision)
        return await self._restore(manifest, None)

    async def history(self, group: str, before: int | None = None, limit: int = 50) -> list[RevisionInfo]:
        """A group's revisions, newest first. Raises ``NotFoundError``, ``StoreError``."""
        found = await self._store.history(group, before=before, limit=limit)
        if not found and await self._store.head(group) is None:
            raise NotFoundError(f"no such group: {group!r}")
        return found

    def unexpressed(self, node: NodeState) -> Mapping[str, tuple[Unexpressed, ...]]:
        """What a node asks for and is not sent, because its API cannot express it; by type alias."""
        return unexpressed(self._cache, node)

    # Writing

    async def push(
        self,
        group: str,
        resources: Iterable[Resource],
        *,
        label: str = "",
        labels: Mapping[str, str] | None = None,
        options: PushOptions = DEFAULT_OPTIONS,
    ) -> PushResult:
        """Replace the whole content of a group.

        ``label`` and ``labels`` (by type URL) become the version_info of the types that change. Raises
        ``ValidationError``, ``ConflictError``, ``EmptyingError``, ``StoreError``.
        """
        check_group_name(group)
        members = list(resources)
        entries, blobs = await _off_loop(len(members), encode, members)
        change = FullSet(entries, blobs, label, dict(labels or {}))
        plan = _Plan(change, blob_ids(entries), {(item.type_url, item.name): item for item in members})
        return await self._finish(self._push(group, lambda held: plan, options))

    async def put(self, group: str, resource: Resource, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Add or replace one resource. Raises as ``push``."""
        check_group_name(group)
        entries, blobs = encode([resource])
        delta = Delta(entries, (), blobs)
        known = {(resource.type_url, resource.name): resource}
        return await self._finish(self._push(group, lambda held: _Plan(delta, amended(held, delta), known), options))

    async def delete(self, group: str, key: Key, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Take one resource out. Raises ``NotFoundError`` and as ``push``."""
        self.content(group)
        delta = Delta((), (key,), {})
        return await self._finish(self._push(group, lambda held: _Plan(delta, amended(held, delta)), options))

    async def rollback(self, group: str, to: int, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """A new revision with the content of ``to``. Raises ``NotFoundError`` and as ``push``."""
        self.content(group)
        target = await self.content_at(group, to)
        known = {(item.type_url, item.name): item for item in target.resources()}
        plan = _Plan(Rollback(to), target.blob_ids, known)
        return await self._finish(self._push(group, lambda held: plan, options))

    async def delete_group(self, group: str, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Delete a group; its nodes fall to the next group that matches. Raises ``NotFoundError`` and as ``push``."""
        self.content(group)
        return await self._finish(self._push(group, lambda held: _Plan(Drop(), {}), options))

    # One push

    async def _push(
        self, group: str, plan_of: Callable[[Mapping[Key, str]], _Plan], options: PushOptions
    ) -> PushResult:
        async with self._lock(group):
            if options.push_id and (done := await self._store.commit_status(group, options.push_id)) is not None:
                return await self._replayed(done)
            if group in self._behind:
                await self._refresh(group)
            held = self._contents.get(group)
            plan = plan_of(held.blob_ids if held is not None else {})
            if options.dry_run:
                return self._preview(group, held, plan, options)
            self._check_not_emptied(group, plan, options)
            return await self._apply(group, held, plan, options)

    async def _apply(self, group: str, held: Content | None, plan: _Plan, options: PushOptions) -> PushResult:
        before = held.blob_ids if held is not None else {}
        commit = await self._commit(group, plan, options)
        if not commit.changed and held is not None:
            self.pushes.record(group, held.revision, frozenset(held.snapshot.sets))
            return _result(held, {}, changed=False)
        difference = changes(before, plan.blob_ids)
        _log.info(
            "snapshot.committed",
            group=group,
            revision=commit.revision,
            actor=options.meta.author,
            resources_n=len(plan.blob_ids),
        )
        if isinstance(plan.change, Drop):
            self._withdraw(group)
            return PushResult(group, commit.revision, "", {}, _labelled(difference))
        content = await self._built(commit, held, plan)
        self._publish(content, frozenset(difference))
        return _result(content, difference)

    async def _commit(self, group: str, plan: _Plan, options: PushOptions) -> Commit:
        push_id = options.push_id or uuid4().hex
        meta = replace(options.meta, time_s=time.time())
        try:
            return await self._store.commit(group, plan.change, push_id=push_id, expect=options.expect, meta=meta)
        except UnavailableError as error:
            if error.maybe_committed:
                self._catch_up(group)
            raise

    async def _built(self, commit: Commit, held: Content | None, plan: _Plan) -> Content:
        """The content of a commit; what the group already holds stays the same objects."""
        try:
            info = (await self._store.history(commit.group, before=commit.revision + 1, limit=1))[0]
        except StoreError as error:
            self._catch_up(commit.group)
            raise UnavailableError(f"committed, but not published yet: {error}", maybe_committed=True) from error
        manifest = Manifest(commit.group, commit.revision, (), info.versions, info.meta)
        return await _off_loop(len(plan.blob_ids), assemble, manifest, plan.blob_ids, plan.known, held)

    def _preview(self, group: str, held: Content | None, plan: _Plan, options: PushOptions) -> PushResult:
        revision = held.revision if held is not None else 0
        if options.expect is not None and options.expect != revision:
            raise ConflictError(f"group {group!r} is at revision {revision}, not {options.expect}", revision)
        difference = changes(held.blob_ids if held is not None else {}, plan.blob_ids)
        changed = bool(difference) or held is None
        if held is None:
            return PushResult(group, revision, "", {}, _labelled(difference), changed)
        return _result(held, difference, changed)

    async def _replayed(self, commit: Commit) -> PushResult:
        """The answer to a push that was committed before, as far as the store still knows its revisions."""
        try:
            after = await self._store.manifest(commit.group, commit.revision)
        except NotFoundError:
            return PushResult(commit.group, commit.revision, "", {}, {}, commit.changed)
        content = await self._restore(after, None)
        if not commit.changed:
            return _result(content, {}, changed=False)
        try:
            before = blob_ids((await self._store.manifest(commit.group, commit.revision - 1)).entries)
        except NotFoundError:
            before = {}
        return _result(content, changes(before, content.blob_ids))

    def _check_not_emptied(self, group: str, plan: _Plan, options: PushOptions) -> None:
        """An empty answer by accident wipes a fleet (DESIGN 5.2)."""
        if plan.blob_ids or options.allow_empty:
            return
        connected = len(self._fleet.connected(group))
        if connected:
            raise EmptyingError(
                f"this leaves group {group!r} empty while {connected} nodes are connected;"
                " pass allow_empty=true when that is meant"
            )

    # Publishing

    def _publish(self, content: Content, changed_types: frozenset[str]) -> None:
        self._contents[content.group] = content
        self._cache.set(content.snapshot, on_nack=self._on_nack)
        self._fleet.published(content.snapshot)
        self.pushes.record(content.group, content.revision, changed_types)
        self._wake((content.group,))

    def _withdraw(self, group: str) -> None:
        self._contents.pop(group, None)
        self._cache.drop(group)
        self._wake((group,))

    async def _load_group(self, group: str) -> None:
        """Publish a group's head with the revisions before it, oldest first."""
        contents: list[Content] = []
        for manifest in reversed(await self._retained(group)):
            contents.append(await self._restore(manifest, contents[-1] if contents else None))
        *earlier, newest = contents
        self._contents[group] = newest
        for content in contents:
            self._fleet.published(content.snapshot)
        self._cache.set(newest.snapshot, [content.snapshot for content in earlier], self._on_nack)

    async def _retained(self, group: str) -> list[Manifest]:
        """The manifests that a reconnecting client may name, newest first."""
        manifests = [await self._store.manifest(group)]
        for info in await self._store.history(group, before=manifests[0].revision, limit=RETAINED_REVISIONS - 1):
            if not info.live:
                continue
            try:
                manifests.append(await self._store.manifest(group, info.revision))
            except NotFoundError:
                break
        return manifests

    async def _restore(self, manifest: Manifest, near: Content | None) -> Content:
        """A manifest's content; resources that ``near`` or the group's head hold are shared, the others are read."""
        held = self._contents.get(manifest.group)
        known = {**shared(manifest, held), **shared(manifest, near)}
        wanted = [entry for entry in manifest.entries if (entry.type_url, entry.name) not in known]
        blobs = await self._store.blobs({entry.blob_id for entry in wanted})
        read = await _off_loop(len(wanted), decode, wanted, blobs)
        return await _off_loop(
            len(manifest.entries), assemble, manifest, blob_ids(manifest.entries), {**known, **read}, near
        )

    # Catching up with a store whose answer was lost

    def _catch_up(self, group: str) -> None:
        """Publish what the store turns out to hold; nothing acknowledged depends on it."""
        if group not in self._behind:
            self._behind[group] = asyncio.create_task(self._retry(group))

    async def _retry(self, group: str) -> None:
        delay_s = _RETRY_FIRST_S
        while True:
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_LAST_S)
            try:
                async with self._lock(group):
                    await self._refresh(group)
                    del self._behind[group]
                return
            except StoreError as error:
                _log.warning("snapshot.behind", group=group, error_message=str(error))

    async def _refresh(self, group: str) -> None:
        head = await self._store.head(group)
        held = self._contents.get(group)
        if head is None or (held is not None and held.revision == head.revision):
            return
        if not head.live:
            self._withdraw(group)
            return
        content = await self._restore(await self._store.manifest(group), held)
        difference = changes(held.blob_ids if held is not None else {}, content.blob_ids)
        self._publish(content, frozenset(difference))

    # Running

    def _lock(self, group: str) -> asyncio.Lock:
        return self._locks.setdefault(group, asyncio.Lock())

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, which goes on when the caller is cancelled: its commit must not stay unpublished."""
        return await asyncio.shield(self._start(work))


def check_group_name(group: str) -> None:
    """Raises ``ValidationError`` for a name that no node could belong to or that nobody could type."""
    if not 0 < len(group) <= GROUP_NAME_LIMIT or not group.isprintable():
        detail = f"a group is named by 1 to {GROUP_NAME_LIMIT} printable characters"
        raise ValidationError([Violation("invalid_group", detail, resource=group[:GROUP_NAME_LIMIT])])


def _result(content: Content, difference: Mapping[str, Change], changed: bool = True) -> PushResult:
    return PushResult(content.group, content.revision, content.etag, content.versions(), _labelled(difference), changed)


def _labelled(difference: Mapping[str, Change]) -> dict[str, Change]:
    return {type_label(type_url): change for type_url, change in difference.items()}


async def _off_loop(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run a pure function; in a thread when it would hold up the streams."""
    if size <= OFF_LOOP_RESOURCES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)

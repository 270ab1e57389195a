"""From pushed input to served snapshot: codec, store, cache, streams (DESIGN 3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import structlog

from xds.control.assembly import succeed
from xds.control.audit import NOBODY, Audit, Caller, push_note
from xds.control.content import BlobIds, Content, Key, changes
from xds.control.emptying import Emptying
from xds.control.gate import Gate
from xds.control.groups import KIND as SETTINGS_KIND
from xds.control.groups import GroupSettings, GroupTable, check_settings
from xds.control.journal import Journal
from xds.control.off_loop import off_loop
from xds.control.policies import PolicyTable
from xds.control.push import (
    DEFAULT_OPTIONS,
    ChangeError,
    Draft,
    EmptyingError,
    PushOptions,
    PushResult,
    Step,
    amendment,
    check_group_name,
    check_new_group_name,
    labelled,
    outcome,
    preview,
    whole,
)
from xds.control.reading import Reading
from xds.control.review import review_policies, review_size, settle_reviewed
from xds.control.undo import REFUSED_SHARE
from xds.fleet.fleet import Fleet
from xds.model.errors import ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.model.snapshot import Change
from xds.protocol.cache import SnapshotCache
from xds.protocol.precompute import NOTHING_PRECOMPUTED, Precomputed
from xds.store.base import (
    Commit,
    Drop,
    GroupPush,
    Manifest,
    Meta,
    Rollback,
    Store,
    StoreError,
    UnavailableError,
)

__all__ = ["DEFAULT_OPTIONS", "EmptyingError", "Publisher", "PushOptions", "PushResult", "check_group_name"]

_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 5.0

T = TypeVar("T")

# Wakes the streams of these groups, and those that belong elsewhere now because one of them came or went.
Wake = Callable[[Collection[str]], None]

_log = structlog.get_logger(logger_name="xds.control.publisher")


@dataclass(frozen=True, slots=True)
class _Built:
    """What a commit led to: the content, how it differs by type URL, and what streams will ask of it."""

    content: Content | None
    difference: Mapping[str, Change] = field(default_factory=dict)
    precomputed: Precomputed = NOTHING_PRECOMPUTED


class Publisher(Reading):
    """Takes pushes, one at a time per group, and publishes what the store has made durable.

    An acknowledged push is always published and one that is not acknowledged is fully there or not at all: the work
    goes on when the caller is cancelled.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        wake: Wake,
        on_nack: str = "hold",
        refused_share: float = REFUSED_SHARE,
    ) -> None:
        super().__init__(store, cache, fleet, refused_share)
        self.audit = Audit(store)
        self.journal = Journal(fleet.events)
        self.settings = GroupTable(store, cache, wake)
        self.policies = PolicyTable(store)
        self._emptying = Emptying(cache, fleet, self.settings)
        self._wake = wake
        self._on_nack = on_nack
        self.gate = Gate()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Task[Any]] = set()
        self._behind: dict[str, asyncio.Task[None]] = {}

    # Life

    async def load(self) -> None:
        """Publish all that the store holds, the retained revisions included. Raises ``StoreError``."""
        await self.settings.load()
        await self.policies.load()
        for head in await self._store.groups():
            contents = await self._archive.retained(head.group)
            self._serve(contents, await self._precomputed(contents[-1]))

    async def reload(self) -> None:
        """Publish what the store was restored to, in place of everything. Nobody may write meanwhile."""
        contents = [await self._archive.retained(head.group) for head in await self._store.groups()]
        precomputed = [await self._precomputed(each[-1]) for each in contents]
        before = set(self._contents)
        for group in before - {each[-1].group for each in contents}:
            self._withdraw(group)
        for each, made in zip(contents, precomputed, strict=True):
            self._serve(each, made)
        await self.settings.load()
        await self.policies.load()
        self._wake(before | set(self._contents))

    async def close(self) -> None:
        """Let pushes that are under way come to their end; stop catching up."""
        while self._running:
            await asyncio.wait(self._running)
        for task in self._behind.values():
            task.cancel()
        await self.audit.close()

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
        return await self._push(await whole(group, resources, label, labels, self._contents.get(group)), options)

    async def put(self, group: str, resource: Resource, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Add or replace one resource. Raises as ``push``."""
        return await self._push(await amendment(group, [resource]), options)

    async def delete(self, group: str, key: Key, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Take one resource out. Raises ``NotFoundError`` and as ``push``."""
        return await self._push(await amendment(group, [], [key]), options)

    async def rollback(
        self, group: str, to: int, options: PushOptions = DEFAULT_OPTIONS, *, keeps_endpoints: bool = False
    ) -> PushResult:
        """A new revision with the content of ``to``; a deleted group is there again. With ``keeps_endpoints`` clusters
        that are in both keep their present assignments. Raises ``NotFoundError`` (``GoneError`` for what is no longer
        kept) and as ``push``.
        """
        return await self._push(Draft(group, Rollback(to, keeps_endpoints)), options)

    async def delete_group(self, group: str, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Delete a group with its settings; its nodes fall to the next group that matches.

        Raises ``NotFoundError`` and as ``push``.
        """
        return await self._finish(self._delete_group(group, options))

    async def configure(
        self,
        group: str,
        settings: GroupSettings,
        *,
        etag: str = "",
        dry_run: bool = False,
        allow_empty: bool = False,
        by: Caller = NOBODY,
    ) -> bool:
        """Say which nodes a group takes, and how; False when that was so already. It makes no revision.

        With an ``etag`` the settings before must have it. Raises ``ConflictError``, ``ValidationError`` for a selector
        that is none, ``EmptyingError`` when an empty group would take nodes by selector, ``StoreError``.
        """
        check_group_name(group)
        selector = await asyncio.to_thread(check_settings, settings)
        self._check_name(group)
        if not allow_empty:
            self._emptying.check_selector(group, settings)
        if dry_run:
            self.settings.check(group, etag)
            return self.settings.get(group) != settings
        changed = await self._finish(self.settings.put(group, settings, selector, etag, by))
        if changed:
            self.journal.configured(group, time.time(), by)
        return changed

    async def transaction(self, drafts: Sequence[Draft], options: PushOptions = DEFAULT_OPTIONS) -> list[PushResult]:
        """Change several groups, all of them or none; a result for each, in the given order.

        They are published together, and their streams woken at once. Raises ``ChangeError`` for the first change that
        cannot be made, ``ValidationError`` for no change or two of one group, ``StoreError``.
        """
        named = [draft.group for draft in drafts]
        twice = next((group for group in named if named.count(group) > 1), None)
        if twice is not None or not named:
            detail = "a transaction has at least one change" if twice is None else f"group {twice!r} is changed twice"
            raise ValidationError([Violation("invalid_transaction", detail, pointer="/changes")])
        return await self._finish(self._transact(drafts, options))

    async def _delete_group(self, group: str, options: PushOptions) -> PushResult:
        draft = Draft(group, Drop(docs=((SETTINGS_KIND, group), *self.policies.documents(group))))
        if group in self.settings and group not in self._contents and not (options.expect or options.etag):
            pushes = [GroupPush(group, draft.change)]
            if not options.push_id or await self._store.committed(pushes, options.push_id) is None:
                if not options.dry_run:
                    by = Caller(options.meta.actor, options.meta.author, options.peer)
                    await self.settings.forget(group, by)
                    await self.policies.forget(group, by)
                return PushResult(group, 0, "", {}, {})
        return await self._push(draft, options)

    # One push

    async def _push(self, draft: Draft, options: PushOptions) -> PushResult:
        one = replace(draft, expect=options.expect, etag=options.etag)
        try:
            (result,) = await self._finish(self._transact([one], options))
        except ChangeError as error:
            raise error.cause from None
        return result

    async def _transact(self, drafts: Sequence[Draft], options: PushOptions) -> list[PushResult]:
        async with self._held_still(drafts):
            pushes = [GroupPush(draft.group, draft.change) for draft in drafts]
            if options.push_id and (done := await self._store.committed(pushes, options.push_id)) is not None:
                return [await self._archive.replayed(commit, self._contents.get(commit.group)) for commit in done]
            for draft in drafts:
                if draft.group in self._behind:
                    await self._refresh(draft.group)
            if options.dry_run:
                return [preview(step) for step in await self._steps(drafts, options)]
            try:
                return await self._apply(await self._steps(drafts, options), options)
            except XdsError as error:
                self.journal.refused(_blamed(drafts, error), error, options.meta)

    async def _steps(self, drafts: Sequence[Draft], options: PushOptions) -> list[Step]:
        """What each draft leads to. Raises ``ChangeError``."""
        steps: list[Step] = []
        for index, draft in enumerate(drafts):
            try:
                steps.append(await self._step(draft, options))
            except XdsError as error:
                raise ChangeError(index, draft.group, error) from error
        return steps

    async def _step(self, draft: Draft, options: PushOptions) -> Step:
        change, held = draft.change, self._contents.get(draft.group)
        target = await self.content_at(draft.group, change.to) if isinstance(change, Rollback) else None
        size = review_size(draft, held) if target is None else len(target)
        step = await off_loop(size, settle_reviewed, draft, held, target)
        step = replace(step, warnings=(*step.warnings, *review_policies(step, self.policies.of(draft.group))))
        options.heed(step.warnings)
        if step.held is None and target is None:
            self._check_name(draft.group)
        moves = await self._emptying.moves(draft)
        if not (options.dry_run or options.allow_empty):
            self._emptying.check(step, moves)
        return replace(step, moves=moves)

    def _check_name(self, group: str) -> None:
        """Groups that are there keep working, whatever their names."""
        if group not in self._contents and group not in self.settings:
            check_new_group_name(group)

    async def _apply(self, steps: Sequence[Step], options: PushOptions) -> list[PushResult]:
        meta = replace(options.meta, time_s=time.time())
        await self.undo.note_refusals(step.group for step in steps)
        commits = await self._commit(steps, options, meta)
        built = [await self._built(commit, step, meta) for commit, step in zip(commits, steps, strict=True)]
        # Nothing is awaited from here: all groups are served together.
        results = [
            replace(self._settled(commit, step, made, meta), warnings=step.warnings)
            for commit, step, made in zip(commits, steps, built, strict=True)
        ]
        changed = [commit.group for commit in commits if commit.changed]
        if changed:
            self._wake(changed)
        return results

    async def _commit(self, steps: Sequence[Step], options: PushOptions, meta: Meta) -> list[Commit]:
        pushes = [replace(step.asked(), note=push_note(step, options, meta)) for step in steps]
        try:
            return await self._store.commit_all(pushes, push_id=options.push_id or uuid4().hex, meta=meta)
        except UnavailableError as error:
            if error.maybe_committed:
                for step in steps:
                    self._catch_up(step.group)
            raise

    async def _built(self, commit: Commit, step: Step, meta: Meta) -> _Built:
        """The content of a commit; what the group holds stays the same objects."""
        if not commit.changed:
            return _Built(step.held)
        if isinstance(step.draft.change, Drop):
            return _Built(step.held, step.difference)
        manifest = Manifest(commit.group, commit.revision, (), commit.versions, meta)
        made = (manifest, step.blob_ids, step.known, step.held, step.digests, self._cache.precompute)
        content, precomputed = await off_loop(step.touched, succeed, *made)
        if self._cache.is_overlaid(commit.group):
            await asyncio.to_thread(self._cache.prepare_overlays, content.snapshot)
        return _Built(content, step.difference, precomputed)

    def _settled(self, commit: Commit, step: Step, built: _Built, meta: Meta) -> PushResult:
        """Publish what a commit came to."""
        content, difference = built.content, built.difference
        if not commit.changed and content is not None:
            self.journal.unchanged()
            self.pushes.record(commit.group, content.revision, frozenset(content.snapshot.sets))
            return outcome(content, {}, changed=False)
        shown, change = labelled(difference), step.draft.change
        size = len(step.blob_ids)
        self.journal.committed(commit.group, commit.revision, change, meta, shown, size, new=step.held is None)
        if isinstance(change, Drop) or content is None:
            self._withdraw(commit.group)
            self._forget(commit.group)
            return PushResult(commit.group, commit.revision, "", {}, shown, moves=step.moves)
        self._publish(content, frozenset(difference), built.precomputed)
        return outcome(content, difference)

    # Publishing; the caller wakes

    def _publish(
        self, content: Content, changed_types: frozenset[str], precomputed: Precomputed = NOTHING_PRECOMPUTED
    ) -> None:
        self._contents[content.group] = content
        self._cache.set(content.snapshot, on_nack=self._on_nack, precomputed=precomputed)
        self._fleet.published(content.snapshot)
        self.pushes.record(content.group, content.revision, changed_types)

    def _forget(self, group: str) -> None:
        """The store let go of what was said of a group."""
        self.settings.dropped(group)
        self.policies.dropped(group)

    def _withdraw(self, group: str) -> None:
        self._contents.pop(group, None)
        self._cache.drop(group)

    def _serve(self, contents: Sequence[Content], precomputed: Precomputed) -> None:
        """Publish a group's head with the revisions before it, oldest first."""
        *earlier, newest = contents
        self._contents[newest.group] = newest
        for content in contents:
            self._fleet.published(content.snapshot)
        self._cache.set(newest.snapshot, [content.snapshot for content in earlier], self._on_nack, precomputed)

    async def _precomputed(self, content: Content) -> Precomputed:
        return await off_loop(len(content.blob_ids), self._cache.precompute, content.snapshot)

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
                async with self.gate.passing(), self._lock(group):
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
        self.journal.caught_up(group, head.revision)
        if head.live:
            content = await self._archive.content(group, None, held)
            difference = changes(held.blob_ids if held is not None else BlobIds(), content.blob_ids)
            self._publish(content, frozenset(difference), await self._precomputed(content))
        else:
            self._withdraw(group)
            self._forget(group)
        self._wake((group,))

    # Running

    def _lock(self, group: str) -> asyncio.Lock:
        return self._locks.setdefault(group, asyncio.Lock())

    @asynccontextmanager
    async def _held_still(self, drafts: Iterable[Draft]) -> AsyncIterator[None]:
        """No other push to these groups meanwhile. Locked in the order of names: no two pushes wait for each other."""
        async with self.gate.passing(), AsyncExitStack() as stack:
            for group in sorted(draft.group for draft in drafts):
                await stack.enter_async_context(self._lock(group))
            yield

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, which goes on when the caller is cancelled: its commit must not stay unpublished."""
        return await asyncio.shield(self._start(work))


def _blamed(drafts: Sequence[Draft], error: XdsError) -> str:
    """The group for whose sake a push was refused."""
    return error.group if isinstance(error, ChangeError) else ", ".join(draft.group for draft in drafts)

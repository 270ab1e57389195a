"""Takes pushes: plan, commit to the store, build the snapshot, publish it (docs/design.md#push-path)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

import structlog

from xds.chain.index import Seen
from xds.control.audit_log import UNKNOWN_CALLER, AuditLog, Caller, push_note
from xds.control.config_entries import EntryPart, EntryPublisher
from xds.control.group_content import (
    BlobIds,
    GroupContent,
    Key,
    build_next_content,
    changes,
)
from xds.control.group_documents import GroupDocuments
from xds.control.groups import KIND as SETTINGS_KIND
from xds.control.groups import GroupSettings, GroupTable, check_settings
from xds.control.journal import PushJournal
from xds.control.live_endpoints import LiveEndpoints
from xds.control.policies import PolicyTable
from xds.control.published_state import PublishedState
from xds.control.push import (
    CONFIG_ENTRIES_LINE,
    DEFAULT_OPTIONS,
    ChangeError,
    EmptyingError,
    PlannedChange,
    Published,
    PushOptions,
    PushRequest,
    PushResult,
    by_type_label,
    check_group_name,
    check_new_group_name,
    dry_run_result,
    patch,
    replace_all,
)
from xds.control.pushed_certificates import PushedCertificates
from xds.control.review import EmptyGroupGuard, plan_reviewed, review_policies, review_size
from xds.control.threads import run_sized
from xds.control.undo import REFUSED_SHARE
from xds.control.writes import RunningWrites, WriteLocks
from xds.fleet.fleet import Fleet
from xds.model.errors import ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.protocol.cache import NOTHING_PRECOMPUTED, Precomputed, SnapshotCache
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

DEFAULT_SEEN = Seen("dc1", "consul")  # as the settings have it (`ChainSettings`)
_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 5.0


# Wakes the streams of these groups, and the streams whose group changes because a group was created or deleted.
Wake = Callable[[Collection[str]], None]

_log = structlog.get_logger(logger_name="xds.control.publisher")


class Publisher(PublishedState):
    """Applies pushes, one at a time per group, and publishes what the store has committed.

    A push goes on when its caller is cancelled. So a committed push is always published, and a push that was not
    acknowledged is either applied completely or not at all.

    ``documents`` are the tables of documents that belong to groups, besides their settings. ``live`` has the
    assignments that are laid over the pushed ones.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        wake: Wake,
        on_nack: str = "hold",
        refused_share: float = REFUSED_SHARE,
        seen: Seen = DEFAULT_SEEN,
        live: LiveEndpoints | None = None,
    ) -> None:
        super().__init__(store, cache, fleet, refused_share)
        self.audit = AuditLog(store)
        self.journal = PushJournal(fleet.events)
        self.settings = GroupTable(store, cache, wake)
        self.policies = PolicyTable(store)
        self.documents: list[GroupDocuments] = [self.policies]
        self.live = live if live is not None else LiveEndpoints(cache, wake)
        self.certificates = PushedCertificates(self.group_names, self.held)
        self._emptying = EmptyGroupGuard(cache, fleet, self.settings)
        self._wake = wake
        self._on_nack = on_nack
        self.locks = WriteLocks()
        self.entries = EntryPublisher(store, self.locks, seen, fleet.events)
        self._running = RunningWrites()
        self._behind: dict[str, asyncio.Task[None]] = {}

    # Start and stop

    async def load(self) -> None:
        """Publish the config entries, and every group with its retained revisions. Raises ``StoreError``."""
        await self.settings.load()
        await self._load_documents()
        await self.entries.load()
        for group in await self._stored_groups():
            contents = await self._revisions.retained(group)
            self._serve(contents, await self._precomputed(contents[-1]))

    async def reload(self) -> None:
        """Publish the restored store in place of everything else. The caller holds the lock of all groups."""
        contents = [await self._revisions.retained(group) for group in await self._stored_groups()]
        precomputed = [await self._precomputed(each[-1]) for each in contents]
        await self._load_documents()
        before = set(self._contents)
        for group in before - {each[-1].group for each in contents}:
            self._withdraw(group)
        for each, made in zip(contents, precomputed, strict=True):
            self._serve(each, made)
        await self.settings.load()
        await self.entries.load()
        self._wake(before | set(self._contents))

    async def close(self) -> None:
        """Wait for the pushes in progress, then stop."""
        await self._running.wait()
        for task in self._behind.values():
            task.cancel()
        await self.entries.close()
        await self.audit.close()

    async def _load_documents(self) -> None:
        self.live.disown_all()
        for table in self.documents:
            await table.load()
        self.live.sweep()

    async def _stored_groups(self) -> list[str]:
        return [head.group for head in await self._store.groups() if head.group != CONFIG_ENTRIES_LINE]

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
        return await self._push(await replace_all(group, resources, label, labels, self._contents.get(group)), options)

    async def put(self, group: str, resource: Resource, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Add or replace one resource. Raises as ``push``."""
        return await self._push(await patch(group, [resource]), options)

    async def delete(self, group: str, key: Key, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Remove one resource. Raises ``NotFoundError`` and as ``push``."""
        return await self._push(await patch(group, [], [key]), options)

    async def rollback(
        self, group: str, to: int, options: PushOptions = DEFAULT_OPTIONS, *, keeps_endpoints: bool = False
    ) -> PushResult:
        """Make a new revision with the content of revision ``to``. It also restores a deleted group.

        With ``keeps_endpoints`` a cluster that is in both revisions keeps its present endpoints. Raises
        ``NotFoundError``, ``GoneError`` for a revision whose content is no longer kept, and as ``push``.
        """
        return await self._push(PushRequest(group, Rollback(to, keeps_endpoints)), options)

    async def delete_group(self, group: str, options: PushOptions = DEFAULT_OPTIONS) -> PushResult:
        """Delete a group with its settings and other documents. Its nodes move to the next group that matches them.

        Raises ``NotFoundError`` and as ``push``.
        """
        return await self._running.finish(self._delete_group(group, options))

    async def configure(
        self,
        group: str,
        settings: GroupSettings,
        *,
        etag: str = "",
        dry_run: bool = False,
        allow_empty: bool = False,
        by: Caller = UNKNOWN_CALLER,
    ) -> bool:
        """Set the settings of a group; False when it has them already. This makes no revision.

        ``etag``, where given, must be that of the present settings. Raises ``ConflictError``, ``ValidationError`` for
        an invalid selector, ``EmptyingError`` when an empty group would match nodes by selector, ``StoreError``.
        """
        check_group_name(group)
        selector = await asyncio.to_thread(check_settings, settings)
        self._check_name(group)
        if not allow_empty:
            self._emptying.check_selector(group, settings)
        if dry_run:
            self.settings.check(group, etag)
            return self.settings.get(group) != settings
        changed = await self._running.finish(self.settings.put(group, settings, selector, etag, by))
        if changed:
            self.journal.configured(group, time.time(), by)
        return changed

    async def transaction(
        self,
        requests: Sequence[PushRequest],
        options: PushOptions = DEFAULT_OPTIONS,
        part: EntryPart | None = None,
    ) -> list[PushResult]:
        """Change several groups, all of them or none. The results are in the order of the requests.

        The groups are published together and their streams are woken once; ``part`` is committed and published with
        them. Raises ``ChangeError`` for the first change that cannot be applied, ``ValidationError`` for no change or
        two changes of one group, ``StoreError``, and what ``part`` raises.
        """
        named = [request.group for request in requests]
        twice = next((group for group in named if named.count(group) > 1), None)
        if twice is not None or not (named or part):
            detail = "a transaction has at least one change" if twice is None else f"group {twice!r} is changed twice"
            raise ValidationError([Violation("invalid_transaction", detail, pointer="/changes")])
        return await self._running.finish(self._transact(requests, options, part))

    async def _delete_group(self, group: str, options: PushOptions) -> PushResult:
        request = PushRequest(group, Drop())
        if group in self.settings and group not in self._contents and not (options.expect or options.etag):
            pushes = [GroupPush(group, request.change)]
            if not options.push_id or await self._store.committed(pushes, options.push_id) is None:
                if not options.dry_run:
                    by = Caller(options.meta.actor, options.meta.author, options.peer)
                    await self.settings.forget(group, by)
                    for table in self.documents:
                        await table.forget(group, by)
                return PushResult(group, 0, "", {}, {})
        return await self._push(request, options)

    # One push: plan, commit, build, publish

    async def _push(self, request: PushRequest, options: PushOptions) -> PushResult:
        one = replace(request, expect=options.expect, etag=options.etag)
        try:
            (result,) = await self._running.finish(self._transact([one], options))
        except ChangeError as error:
            raise error.cause from None
        return result

    async def _transact(
        self, requests: Sequence[PushRequest], options: PushOptions, part: EntryPart | None = None
    ) -> list[PushResult]:
        lines = [part.line] if part is not None else []
        async with self.locks.groups([*(request.group for request in requests), *lines]):
            pushes = [GroupPush(request.group, request.change) for request in requests]
            pushes += [await part.asked()] if part is not None else []
            if options.push_id and (done := await self._store.committed(pushes, options.push_id)) is not None:
                return await self._replayed(done, part)
            for request in requests:
                if request.group in self._behind:
                    await self._refresh(request.group)
            if options.dry_run:
                planned = await self._plan_all(requests, options)
                if part is not None:
                    await part.plan()
                return [dry_run_result(each) for each in planned]
            try:
                planned = await self._plan_all(requests, options)
                return await self._apply(planned, options, part, await part.plan() if part is not None else None)
            except XdsError as error:
                self.journal.refused(_refused_group(requests, error), error, options.meta)

    async def _replayed(self, done: Sequence[Commit], part: EntryPart | None) -> list[PushResult]:
        if part is not None:
            *done, last = done
            await part.replay(last)
        return [await self._revisions.replayed(commit, self._contents.get(commit.group)) for commit in done]

    async def _apply(
        self,
        changes: Sequence[PlannedChange],
        options: PushOptions,
        part: EntryPart | None,
        push: GroupPush | None,
    ) -> list[PushResult]:
        meta = replace(options.meta, time_s=time.time())
        await self.undo.note_refusals(planned.group for planned in changes)
        try:
            commits = await self._commit(changes, options, meta, [push] if push is not None else [])
        except UnavailableError as error:
            if error.maybe_committed and part is not None:
                part.lost()
            raise
        built = [await self._build(planned, commit, meta) for planned, commit in zip(changes, commits, strict=False)]
        # Nothing is awaited from here, so that no stream sees one group of a transaction without the others.
        if part is not None:
            part.publish(commits[-1], meta)
        for published in built:
            self._publish_commit(published, meta)
        changed = [published.planned.group for published in built if published.commit.changed]
        if changed:
            self._wake(changed)
        return [published.result() for published in built]

    async def _plan_all(self, requests: Sequence[PushRequest], options: PushOptions) -> list[PlannedChange]:
        """Raises ``ChangeError`` for the first request that cannot be applied."""
        changes: list[PlannedChange] = []
        for index, request in enumerate(requests):
            try:
                changes.append(await self._plan(request, options))
            except XdsError as error:
                raise ChangeError(index, request.group, error) from error
        return changes

    async def _plan(self, request: PushRequest, options: PushOptions) -> PlannedChange:
        if isinstance(request.change, Drop):
            request = replace(request, change=self._drop(request.group))
        change, current = request.change, self._contents.get(request.group)
        target = await self.content_at(request.group, change.to) if isinstance(change, Rollback) else None
        size = review_size(request, current) if target is None else len(target)
        planned = await run_sized(plan_reviewed, request, current, target, resources=size)
        warnings = review_policies(planned, self.policies.of(request.group))
        planned = replace(planned, warnings=(*planned.warnings, *warnings))
        options.check_warnings(planned.warnings)
        if planned.current is None and target is None:
            self._check_name(request.group)
        moves = await self._emptying.moves(request)
        if not (options.dry_run or options.allow_empty):
            self._emptying.check(planned, moves)
        return replace(planned, moves=moves)

    def _drop(self, group: str) -> Drop:
        """The deletion of a group with its documents of now: while its lock is held."""
        others = [document for table in self.documents for document in table.documents(group)]
        return Drop(docs=((SETTINGS_KIND, group), *others))

    async def _commit(
        self, changes: Sequence[PlannedChange], options: PushOptions, meta: Meta, more: Sequence[GroupPush]
    ) -> list[Commit]:
        pushes = [replace(planned.group_push(), note=push_note(planned, options, meta)) for planned in changes]
        pushes += more
        try:
            return await self._store.commit_all(pushes, push_id=options.push_id or uuid4().hex, meta=meta)
        except UnavailableError as error:
            if error.maybe_committed:
                for planned in changes:
                    self._catch_up(planned.group)
            raise

    async def _build(self, planned: PlannedChange, commit: Commit, meta: Meta) -> Published:
        """Build the content of a commit. Resources and sets that did not change stay the same objects."""
        if not commit.changed:
            return Published(planned, commit, planned.current)
        if isinstance(planned.request.change, Drop):
            return Published(planned, commit, None)
        manifest = Manifest(commit.group, commit.revision, (), commit.versions, meta)
        made = (manifest, planned.blob_ids, planned.resources, planned.current, planned.digests, self._cache.precompute)
        content, precomputed = await run_sized(build_next_content, *made, resources=planned.touched)
        if self._cache.is_overlaid(commit.group):
            await asyncio.to_thread(self._cache.prepare_overlays, content.snapshot)
        return Published(planned, commit, content, precomputed)

    def _publish_commit(self, published: Published, meta: Meta) -> None:
        """Serve what was committed, and record it."""
        planned, commit, content = published.planned, published.commit, published.content
        if not commit.changed and content is not None:
            self.journal.unchanged()
            self.pushes.record(commit.group, content.revision, frozenset(content.snapshot.sets))
            return
        change, difference = planned.request.change, by_type_label(published.difference)
        is_new = planned.current is None
        self.journal.committed(
            commit.group, commit.revision, change, meta, difference, len(planned.blob_ids), new=is_new
        )
        if content is None:
            self._withdraw(commit.group)
            self._forget(commit.group)
        else:
            self._publish(content, frozenset(published.difference), published.precomputed)

    def _check_name(self, group: str) -> None:
        """The rule for names applies to new groups only."""
        if group not in self._contents and group not in self.settings:
            check_new_group_name(group)

    # Serving. The caller wakes the streams.

    def _publish(
        self, content: GroupContent, changed_types: frozenset[str], precomputed: Precomputed = NOTHING_PRECOMPUTED
    ) -> None:
        self._contents[content.group] = content
        self._cache.set(content.snapshot, on_nack=self._on_nack, precomputed=precomputed)
        self._fleet.published(content.snapshot)
        self.pushes.record(content.group, content.revision, changed_types)

    def _serve(self, contents: Sequence[GroupContent], precomputed: Precomputed) -> None:
        """Publish the retained revisions of a group, oldest first; the last one is its head."""
        *earlier, head = contents
        self._contents[head.group] = head
        for content in contents:
            self._fleet.published(content.snapshot)
        self._cache.set(head.snapshot, [content.snapshot for content in earlier], self._on_nack, precomputed)

    async def _precomputed(self, content: GroupContent) -> Precomputed:
        return await run_sized(self._cache.precompute, content.snapshot, resources=len(content.blob_ids))

    def _withdraw(self, group: str) -> None:
        self._contents.pop(group, None)
        self._cache.drop(group)

    def _forget(self, group: str) -> None:
        """Forget the settings and other documents of a group; the store has deleted them with the group."""
        self.settings.dropped(group)
        for table in self.documents:
            table.dropped(group)

    # Catching up when the store's answer to a commit was lost

    def _catch_up(self, group: str) -> None:
        """Publish what the store holds, once it answers again. No acknowledged push depends on this."""
        if group not in self._behind:
            self._behind[group] = asyncio.create_task(self._retry(group))

    async def _retry(self, group: str) -> None:
        delay_s = _RETRY_FIRST_S
        while True:
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_LAST_S)
            try:
                async with self.locks.groups((group,)):
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
            content = await self._revisions.content(group, None, held)
            difference = changes(held.blob_ids if held is not None else BlobIds(), content.blob_ids)
            self._publish(content, frozenset(difference), await self._precomputed(content))
        else:
            self._withdraw(group)
            self._forget(group)
        self._wake((group,))


def _refused_group(requests: Sequence[PushRequest], error: XdsError) -> str:
    """The group whose change was refused; all groups of the push where the error is about none of them."""
    return error.group if isinstance(error, ChangeError) else ", ".join(request.group for request in requests)

"""Takes pushes: plan, commit to the store, build the snapshot, publish it (docs/internals/design.md#push-path)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import structlog

from xds.access.caller import SERVER, UNKNOWN_CALLER, Caller
from xds.codec.resources import ResourceDecoder
from xds.fleet.fleet import Fleet
from xds.live.owners import LiveEndpoints
from xds.mesh.config_entries import EntryPart, EntryPublisher
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.lower.upstreams import UpstreamsDocument
from xds.mesh.group_lowering import LoweredGroup
from xds.mesh.lowered_content import NOTHING_LOWERED, LoweringChange
from xds.mesh.lowered_groups import GROUPS_LIMIT, LoweredGroups
from xds.model.errors import ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.push.audit_log import AuditLog, push_note
from xds.push.certificates import PushedCertificates
from xds.push.content import Key
from xds.push.groups import GroupSettings, check_settings
from xds.push.request import (
    DEFAULT_OPTIONS,
    ChangeError,
    PlannedChange,
    PushOptions,
    PushRequest,
    PushResult,
    check_group_name,
    dry_run_result,
    patch,
    replace_all,
)
from xds.push.review import REQUEST_BYTES, EmptyGroupGuard, plan_reviewed, review_nodes, review_size
from xds.push.serving import ServedState, Wake
from xds.push.transaction import Transaction, UpstreamsWrite, derived_request, refused_group
from xds.push.undo import REFUSED_SHARE
from xds.snapshots.cache import SnapshotCache
from xds.store.base import (
    Commit,
    Delta,
    Drop,
    GroupPush,
    Meta,
    Rollback,
    Store,
    StoreError,
    UnavailableError,
)
from xds.tasks.threads import run_sized
from xds.tasks.writes import HeldLocks, RunningWrites
from xds.version import __version__

__all__ = ["DEFAULT_OPTIONS", "Publisher", "PushOptions", "PushResult", "check_group_name"]

DEFAULT_CHAIN_CONTEXT = ChainContext("dc1", "consul")  # as the settings have it (`ChainSettings`)
RETRY_LOWERED_S = 1.0

_log = structlog.get_logger(logger_name="xds.push.publisher")


class Publisher(ServedState):
    """Applies pushes, one at a time per group, and publishes what the store has committed.

    A cancelled caller does not stop a push. So a committed push is always published, and a push that was not
    acknowledged is either applied completely or not at all.

    ``live`` has the live assignments. ``decoder`` checks the lowered resources of groups with upstreams. At most
    ``upstream_groups`` groups can have upstreams. ``request_bytes`` is the size of the largest request of a client.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        wake: Wake,
        on_nack: str = "hold",
        refused_share: float = REFUSED_SHARE,
        chain_context: ChainContext = DEFAULT_CHAIN_CONTEXT,
        live: LiveEndpoints | None = None,
        decoder: ResourceDecoder | None = None,
        upstream_groups: int = GROUPS_LIMIT,
        request_bytes: int = REQUEST_BYTES,
    ) -> None:
        super().__init__(store, cache, fleet, wake, on_nack, refused_share, live)
        self.audit = AuditLog(store)
        self.entries = EntryPublisher(store, self.locks, chain_context, fleet.events, self._transact_entries)
        self.lowered = LoweredGroups(store, self.entries, decoder or ResourceDecoder(), upstream_groups)
        self.documents.append(self.lowered)
        self.certificates = PushedCertificates(self.group_names, self.find_content)
        self._emptying = EmptyGroupGuard(cache, fleet, self.settings)
        self._running = RunningWrites()
        self._is_lowering_behind, self._request_bytes = False, request_bytes

    # Start and stop

    async def load(self) -> None:
        """Publish the config entries, and every group with its retained revisions. Raises ``StoreError``."""
        await self.settings.load()
        await self.entries.load()
        await self._load_documents()
        lowered_by_blob: dict[str, Resource] = {}
        for group in await self._stored_groups():
            self._serve(*await self._read(group, lowered_by_blob))
        await self._lower_again()

    async def reload(self) -> None:
        """Publish the restored store in place of everything else. The caller holds the lock of all groups."""
        groups = await self._stored_groups()
        contents = [await self._read(group) for group in groups]
        await self.entries.load()
        await self._load_documents()
        former_groups = set(self._contents)
        for group in former_groups - set(groups):
            self._withdraw(group)
        for retained, precomputed in contents:
            self._serve(retained, precomputed)
        await self.settings.load()
        await self._lower_again()
        self._wake(former_groups | set(self._contents))

    async def close(self) -> None:
        """Wait for the pushes in progress, then stop."""
        await self._running.wait()
        for task in self._behind.values():
            task.cancel()
        await self.entries.close()
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
        """Replace all pushed resources of a group.

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
        """Make a new revision with the content of revision ``to``. A rollback also restores a deleted group.

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
        """Set the settings of a group; False when they are unchanged. This makes no revision.

        ``etag``, if given, must be the etag of the present settings. Raises ``ConflictError``, ``ValidationError`` for
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

        The groups are published together and their streams are woken once. ``part`` are config entries that are
        committed and published in the same transaction. Raises ``ChangeError`` for the first change that cannot be
        applied, ``ValidationError`` for no change or two changes of one group, ``StoreError``, and as
        `EntryPublisher.apply` for ``part``.
        """
        groups = [request.group for request in requests]
        repeated = next((group for group in groups if groups.count(group) > 1), None)
        if repeated is not None or not (groups or part):
            detail = "a transaction has at least one change"
            detail = detail if repeated is None else f"group {repeated!r} is changed twice"
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
        conditional = replace(request, expect=options.expect, etag=options.etag)
        try:
            (result,) = await self._running.finish(self._transact([conditional], options))
        except ChangeError as error:
            raise error.cause from None
        return result

    async def _transact_entries(self, part: EntryPart, options: PushOptions) -> None:
        await self._transact([], options, part)

    async def _transact(
        self, requests: Sequence[PushRequest], options: PushOptions, part: EntryPart | None = None
    ) -> list[PushResult]:
        groups = [request.group for request in requests]
        async with self._locked(groups, part) as locks:
            pushes = [GroupPush(request.group, request.change) for request in requests]
            pushes += [await part.repeated_push()] if part is not None else []
            if options.push_id and (commits := await self._store.committed(pushes, options.push_id)) is not None:
                return await self._replayed(commits, part)
            try:
                transaction = await self._prepare(requests, options, part, locks)
                results = await (self._preview if options.dry_run else self._apply)(transaction, options)
            except XdsError as error:
                if options.dry_run or not requests:
                    raise
                self.journal.refused(refused_group(requests, error), error, options.meta)
        if part is not None:
            part.add_groups(results[len(requests) :])
        return results[: len(requests)]

    @asynccontextmanager
    async def _locked(self, groups: Sequence[str], part: EntryPart | None) -> AsyncIterator[HeldLocks]:
        """Take the lock of config entries for ``part``, else the locks of the groups.

        While lowered resources are behind the store, a push takes the lock of config entries too: it cannot be planned
        before the server has caught up. The server can fall behind while the push waits for the locks of its groups.
        """
        while True:
            locks_entries = part is not None or self._is_lowering_behind
            async with self.locks.groups([self.entries.line] if locks_entries else groups) as locks:
                if locks_entries or not self._is_lowering_behind:
                    yield locks
                    return

    async def _prepare(
        self, requests: Sequence[PushRequest], options: PushOptions, part: EntryPart | None, locks: HeldLocks
    ) -> Transaction:
        """Plan all changes, and those that follow for groups with upstreams. Raises ``ChangeError``."""
        groups = [request.group for request in requests]
        if part is None:
            await self._refresh_lowered(locks)
            await locks.add(groups)
            await self._refresh_all(groups)
            return Transaction(await self._plan_all([self._with_lowered(each) for each in requests], options))
        entries_push = await part.plan()
        await self._refresh_lowered(locks)
        touched = await self.lowered.find_touched(part.planned)
        await locks.add([*groups, *touched.groups])
        await self._refresh_all({*groups, *touched.groups})
        lowered = await self.lowered.plan_entries(touched)
        lowerings = {group: self._lowering(one, part.planned.push) for group, one in lowered.items()}
        requested = [self._with_lowered(each, lowerings.get(each.group)) for each in requests]
        derived = [
            derived_request(group, each) for group, each in lowerings.items() if group not in groups and each.has_effect
        ]
        deleted = {request.group for request in requests if isinstance(request.change, Drop)}
        remaining = {group: one for group, one in lowered.items() if group not in deleted}
        planned = await self._plan_all([*requested, *derived], options, len(requested))
        return Transaction(planned, remaining, part, entries_push)

    async def _replayed(self, commits: Sequence[Commit], part: EntryPart | None) -> list[PushResult]:
        if part is not None:
            *commits, entries_commit = commits
            await part.replay(entries_commit)
        return [await self._revisions.replayed(commit, self._contents.get(commit.group)) for commit in commits]

    async def _preview(self, transaction: Transaction, options: PushOptions) -> list[PushResult]:
        return [dry_run_result(each) for each in transaction.planned]

    async def _apply(self, transaction: Transaction, options: PushOptions) -> list[PushResult]:
        planned, part = transaction.planned, transaction.part
        meta = replace(options.meta, time_s=time.time())
        await self.undo.note_refusals(each.group for each in planned)
        try:
            commits = await self._commit(transaction, options, meta)
        except UnavailableError as error:
            if error.maybe_committed:
                self._catch_up_later(transaction)
            raise
        built = [await self._build(each, commit, meta) for each, commit in zip(planned, commits, strict=False)]
        # Nothing is awaited from here, so that no stream sees one group of a transaction without the others.
        if part is not None:
            part.publish(commits[-1], meta)
        with_new_endpoints = self.lowered.begin(transaction.lowered)
        for published in built:
            self._publish_commit(published, meta)
        self.lowered.end(transaction.lowered.keys())
        changed = [published.planned.group for published in built if published.commit.changed]
        if changed or with_new_endpoints:
            self._wake(list(dict.fromkeys((*changed, *with_new_endpoints))))
        return [published.result() for published in built]

    async def _plan_all(
        self, requests: Sequence[PushRequest], options: PushOptions, requested_n: int | None = None
    ) -> list[PlannedChange]:
        """Raises ``ChangeError`` for the first of the ``requested_n`` requests (None: all) that cannot be applied."""
        changes: list[PlannedChange] = []
        for index, request in enumerate(requests):
            try:
                changes.append(await self._plan(request, options))
            except XdsError as error:
                if requested_n is not None and index >= requested_n:
                    raise
                raise ChangeError(index, request.group, error) from error
        return changes

    async def _plan(self, request: PushRequest, options: PushOptions) -> PlannedChange:
        if isinstance(request.change, Drop):
            request = replace(request, change=self._drop(request.group))
        change, current = request.change, self._contents.get(request.group)
        target = await self.content_at(request.group, change.to) if isinstance(change, Rollback) else None
        size = review_size(request, current) if target is None else len(target)
        live = tuple(self.live.owners(request.group))
        planned = await run_sized(plan_reviewed, request, current, target, live, self._request_bytes, resources=size)
        warnings = [warning for review in self.reviews for warning in review(planned)]
        warnings += review_nodes(planned, self._fleet, time.time())
        planned = replace(planned, warnings=(*planned.warnings, *warnings))
        if not request.is_derived:
            options.check_warnings(planned.warnings, change)
        if planned.current is None and target is None:
            self._check_name(request.group)
        moves = await self._emptying.moves(request)
        if not (options.dry_run or options.allow_empty):
            self._emptying.check(planned, moves)
        return replace(planned, moves=moves)

    async def _commit(self, transaction: Transaction, options: PushOptions, meta: Meta) -> list[Commit]:
        pushes = [self._push_with_note(planned, options, meta) for planned in transaction.planned]
        pushes += [transaction.entries_push] if transaction.entries_push is not None else []
        return await self._store.commit_all(pushes, push_id=options.push_id or uuid4().hex, meta=meta)

    def _push_with_note(self, planned: PlannedChange, options: PushOptions, meta: Meta) -> GroupPush:
        """The call to the store. A change of lowered resources alone has the note of what has caused it."""
        push = planned.group_push()
        return push if planned.request.changes_lowered_only else replace(push, note=push_note(planned, options, meta))

    def _catch_up_later(self, transaction: Transaction) -> None:
        """Read what the store holds once it answers again: its answer to this transaction was lost."""
        self._is_lowering_behind |= bool(transaction.lowered)
        if self._is_lowering_behind and self.entries.line not in self._behind:
            self._behind[self.entries.line] = asyncio.create_task(self._catch_up_lowered())
        for planned in transaction.planned:
            self._catch_up(planned.group)
        if transaction.part is not None:
            transaction.part.catch_up_later()

    # Lowered resources

    async def write_upstreams(
        self,
        group: str,
        document: UpstreamsDocument | None,
        options: PushOptions,
        settings: GroupSettings | None = None,
    ) -> PushResult:
        """Set the upstreams of a group, or delete them (None). The group is created if it does not exist.

        ``settings`` are the new settings of the group; None: they stay. ``options.etag`` is the etag of the upstreams
        document; a push id is ignored. Raises ``ValidationError`` with the places in the document and the config
        entries, also for names of pushed resources of the group; ``OwnedError`` for assignments with another owner,
        ``NotFoundError`` for the deletion of upstreams that do not exist, ``ConflictError``, ``EmptyingError``,
        ``StoreError``.
        """
        check_group_name(group)
        selector = await asyncio.to_thread(check_settings, settings) if settings is not None else None
        write = UpstreamsWrite(document, settings, selector)
        return await self._running.finish(self._write_upstreams(group, write, options))

    async def _write_upstreams(self, group: str, write: UpstreamsWrite, options: PushOptions) -> PushResult:
        document, by = write.document, Caller(options.meta.actor, options.meta.author, options.peer)
        async with self.locks.groups((self.entries.line,)) as locks, self.settings.lock:
            await self.entries.refresh()
            await self._refresh_lowered(locks)
            await locks.add((group,))
            await self._refresh_all((group,))
            self.lowered.check(group, document, options.etag)
            lowered = await self.lowered.plan_document(group, document) if document is not None else None
            writes = [self.lowered.write(group, document, by, options.meta.message)]
            if write.settings is not None:
                writes.append(self.settings.write(group, write.settings, by))
            request = PushRequest(
                group, Delta((), (), {}), lowering=self._lowering(lowered, None, group), writes=tuple(writes)
            )
            planned = await self._plan(request, replace(options, etag=""))
            if options.dry_run:
                return dry_run_result(planned)
            (result,) = await self._apply(Transaction([planned], {group: lowered}), replace(options, push_id=""))
            if write.settings is not None and write.selector is not None:
                self.settings.apply_stored(group, write.settings, write.selector)
            return result

    def _with_lowered(self, request: PushRequest, lowering: LoweringChange | None = None) -> PushRequest:
        return replace(request, lowering=lowering or self.lowered.lowering(request.group))

    def _lowering(self, lowered: LoweredGroup | None, push: GroupPush | None, group: str = "") -> LoweringChange:
        """The change of the lowered resources of a group. Its label shows the revision of the config entries."""
        revision = self.entries.revision + (1 if push is not None else 0)
        after = lowered.content if lowered is not None else NOTHING_LOWERED
        before = self.lowered.content(lowered.group if lowered is not None else group)
        return LoweringChange(before, after, f"e{revision}")

    def _adopt_stored_lowering(self) -> list[str]:
        """Take over the stored lowered resources. Returns the groups for which this release makes other ones."""
        return [group for group in self.lowered if not self.lowered.adopt_stored(group, self._contents.get(group))]

    async def _refresh_lowered(self, locks: HeldLocks) -> None:
        """Catch up with upstreams documents and lowered resources, if the server is behind. Raises ``StoreError``."""
        if self._is_lowering_behind:
            await self.entries.refresh()
            await self.lowered.load()
            await locks.add(self.lowered)
            await self._refresh_all([*self.lowered])
            self._adopt_stored_lowering()
            self._is_lowering_behind = False

    async def _catch_up_lowered(self) -> None:
        while self._is_lowering_behind:
            await asyncio.sleep(RETRY_LOWERED_S)
            try:
                async with self.locks.groups((self.entries.line,)) as locks:
                    await self._refresh_lowered(locks)
            except StoreError as error:
                _log.warning("upstreams.behind", error_message=str(error))
        del self._behind[self.entries.line]

    async def _lower_again(self) -> None:
        """Lower groups again whose stored resources differ, as after an upgrade. On an error they keep these."""
        for group in self._adopt_stored_lowering():
            try:
                lowered = await self.lowered.plan_document(group, self.lowered.get(group).document)
                try:
                    await self._apply_lowered(lowered)
                except ValidationError as clash:
                    lowered = await self.lowered.plan_rest(lowered, clash)
                    await self._apply_lowered(lowered)
            except XdsError as error:
                self._wake(await self.lowered.keep_stored(group, str(error)))

    async def _apply_lowered(self, lowered: LoweredGroup) -> None:
        options = PushOptions(meta=Meta(message=f"lowered by release {__version__}", actor=SERVER))
        planned = await self._plan(derived_request(lowered.group, self._lowering(lowered, None)), options)
        await self._apply(Transaction([planned], {lowered.group: lowered}), options)

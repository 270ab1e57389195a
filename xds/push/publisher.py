"""Takes pushes: plan, commit to the store, build the snapshot, publish it (docs/internals/design.md#push-path).

One idea: all writes of groups go this way, so that what is served is what the store has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from time import time
from uuid import uuid4

from xds.access.caller import SERVER, UNKNOWN_CALLER, Caller
from xds.fleet.fleet import Fleet
from xds.live.owners import LiveEndpoints
from xds.model.errors import ConflictError, ValidationError, Violation, XdsError
from xds.model.resource import Resource
from xds.push.audit_log import AuditLog, push_note
from xds.push.backlog import Backlog
from xds.push.certificates import PushedCertificates
from xds.push.content import Key
from xds.push.derived import DerivedChange, DerivedWrite, unchanged
from xds.push.explain import NodeViews
from xds.push.following import StoreFollower
from xds.push.group_names import CONFIG_ENTRIES_LINE, check_group_name, check_new_group_name
from xds.push.groups import GroupSettings, GroupTable, SettingsWrite, check_settings
from xds.push.history import GroupHistory
from xds.push.journal import PushJournal
from xds.push.request import (
    DEFAULT_OPTIONS,
    ChangeError,
    PlannedChange,
    Published,
    PushOptions,
    PushRequest,
    PushResult,
    build,
    by_type_label,
    dry_run_result,
    patch,
    replace_all,
)
from xds.push.review import REQUEST_BYTES, EmptyGroupGuard, plan_reviewed, review_nodes, review_size
from xds.push.rollout_facts import FactsHere
from xds.push.rollout_pushes import RolloutPushes, UnknownNodesError
from xds.push.rollouts import Rollouts
from xds.push.served import ServedGroups
from xds.push.stored_state import StoredState, Wake
from xds.push.transaction import OutdatedError, Transaction, derived_request, refused_group
from xds.push.undo import REFUSED_SHARE, UndoPlanner
from xds.rollouts.rollout import Rollout
from xds.snapshots.cache import SnapshotCache
from xds.store.attempts import pause_after
from xds.store.base import (
    Commit,
    CorruptError,
    Drop,
    GroupPush,
    Meta,
    Rollback,
    Store,
    StoreError,
    UnavailableError,
    check_may_write,
)
from xds.tasks.threads import run_sized
from xds.tasks.writes import HeldLocks, RunningWrites, WriteLocks
from xds.version import __version__

_OUTRUN_OFTEN = 2  # attempts, after which a push takes turns with other servers
_OUTRUN_LIMIT = 10  # attempts of a write that the server makes itself; all groups are locked meanwhile: no turns
Review = Callable[[PlannedChange], Iterable[Violation]]  # warnings about a planned change


class Publisher:
    """Applies pushes, one at a time per group, and publishes what the store has committed.

    A cancelled caller does not stop a push. So a committed push is always published, and a push that was not
    acknowledged is either applied completely or not at all.

    ``groups`` are served, ``history`` has their revisions, ``undo`` plans to take one back, ``views`` are what nodes
    see. ``derived`` are the sources of derived resources; their documents are loaded first. ``documents`` are the other
    tables of documents that belong to groups. ``reviews`` see each change that is planned. ``live`` has the live
    assignments. ``request_bytes`` is the size of the largest request of a client.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        wake: Wake,
        on_nack: str = "hold",
        refused_share: float = REFUSED_SHARE,
        live: LiveEndpoints | None = None,
        request_bytes: int = REQUEST_BYTES,
    ) -> None:
        self.journal = PushJournal(fleet.events)
        self.settings = GroupTable(store, cache, wake)
        self.groups = ServedGroups(cache, fleet, self.settings, on_nack)
        self.history = GroupHistory(store, self.groups)
        self.live = live if live is not None else LiveEndpoints(cache, wake)
        self.locks = WriteLocks()
        self.rollouts = Rollouts(store, self.groups, self.locks, self.history.content, wake, self.journal.rolled_out)
        self.rollouts.roll_back = self._roll_back
        self.rollout_facts = FactsHere(cache, fleet, self.rollouts)
        self.rollout_pushes = RolloutPushes(self.rollouts, self.settings, self.rollout_facts.gather)
        self.undo = UndoPlanner(store, cache, fleet, self.groups.find, self.rollouts.find, refused_share)
        self.stored = StoredState(
            store,
            cache,
            self.groups,
            self.history,
            self.settings,
            self.rollouts,
            self.journal,
            self.live,
            self.locks,
            wake,
        )
        self.rollouts.refresh = self.stored.refresh
        self.derived, self.documents = self.stored.derived, self.stored.documents
        self.views = NodeViews(cache, fleet, self.live, self.derived.content, self.rollouts.find)
        self.audit = AuditLog(store)
        self.certificates = PushedCertificates(self.groups.names, self.groups.find)
        self.reviews: list[Review] = []
        self._store = store
        self._cache = cache
        self._fleet = fleet
        self._wake = wake
        self._emptying = EmptyGroupGuard(cache, fleet, self.settings)
        self._running = RunningWrites()
        self.backlog = Backlog(self.locks, self.stored)
        self.following = StoreFollower(store, self.stored, self.backlog)
        self._request_bytes = request_bytes

    # Start and stop

    async def load(self) -> None:
        """Publish every group with its retained revisions. Raises ``StoreError``."""
        while True:
            await self.following.begin()
            try:
                await self.stored.load()
                break
            except CorruptError:  # also what was read before another server has restored the store
                if await self._store.newest_cursor() == self.following.cursor:
                    raise
        await self._settle()

    async def reload(self) -> None:
        """Publish the restored store in place of everything else. The caller holds all locks (`StoredState`)."""
        changed = await self.stored.reload()
        await self._settle()
        self._wake(changed)

    async def close(self) -> None:
        """Wait for the pushes in progress, then stop."""
        await self._running.wait()
        await self.following.close()
        self.backlog.close()
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
        return await self._push(await replace_all(group, resources, label, labels, self.groups.find(group)), options)

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
            self.journal.configured(group, time(), by)
        return changed

    async def transaction(
        self,
        requests: Sequence[PushRequest],
        options: PushOptions = DEFAULT_OPTIONS,
        write: DerivedWrite | None = None,
    ) -> list[PushResult]:
        """Change several groups, all of them or none. The results are in the order of the requests.

        Each group is rolled out as its settings say; options with a plan are for one group.

        The groups are published together and their streams are woken once. ``write`` is a write of what resources are
        derived from, committed and published in the same transaction. Raises ``ChangeError`` for the first change that
        cannot be applied, ``ValidationError`` for no change or two changes of one group, ``StoreError``, and what
        ``write`` raises.
        """
        groups = [request.group for request in requests]
        repeated = next((group for group in groups if groups.count(group) > 1), None)
        if repeated is not None or not (groups or write):
            detail = "a transaction has at least one change"
            detail = detail if repeated is None else f"group {repeated!r} is changed twice"
            raise ValidationError([Violation("invalid_transaction", detail, pointer="/changes")])
        if options.rollout is not None and (len(groups) != 1 or write is not None):
            detail = "a rollout is of one group: leave it out, and each group is rolled out as its settings say"
            raise ValidationError([Violation("invalid_rollout", detail, pointer="/rollout")])
        return await self._running.finish(self._transact(requests, options, write))

    async def _delete_group(self, group: str, options: PushOptions) -> PushResult:
        await self.following.catch_up()  # documents of the group that another server has just written go with it
        request = PushRequest(group, Drop())
        if group in self.settings and self.groups.find(group) is None and not (options.expect or options.etag):
            pushes = [GroupPush(group, request.change)]
            if not options.push_id or await self._store.committed(pushes, options.push_id) is None:
                if not options.dry_run:
                    check_may_write(options.may_write)
                    by = Caller(options.meta.actor, options.meta.author, options.peer)
                    for table in reversed(self.stored.tables()):  # the settings last: a deletion that fails is repeated
                        await table.forget(group, by)
                return PushResult(group, 0, "", {}, {})
        return await self._push(request, options)

    async def _roll_back(self, before: Rollout, after: Rollout, by: Caller) -> PushResult:
        """Take a rollout back: push what the nodes outside of the wave are served."""
        options = PushOptions(meta=by.meta(after.reason), peer=by.peer, allow_empty=True)
        return await self._push(
            PushRequest(before.group, Rollback(before.base, keeps_endpoints=True), ends=(before, after)), options
        )

    # One push: plan, commit, build, publish

    async def _push(self, request: PushRequest, options: PushOptions) -> PushResult:
        conditional = replace(request, expect=options.expect, etag=options.etag)
        try:
            (result,) = await self._running.finish(self._transact([conditional], options))
        except ChangeError as error:
            raise error.cause from None
        return result

    async def _transact(
        self, requests: Sequence[PushRequest], options: PushOptions, write: DerivedWrite | None = None
    ) -> list[PushResult]:
        number, own_turn = 0, set[str]()
        while True:
            try:
                async with self._store.turn(own_turn) if own_turn else nullcontext():
                    return await self._attempt(requests, options, write)
            except UnknownNodesError as unknown:
                found = await self.rollout_pushes.gather(unknown.group, unknown.selector)
                options = replace(options, nodes={**options.nodes, unknown.group: found})
                continue
            except OutdatedError as outdated:
                for kind, id in outdated.documents:
                    await self.stored.refresh_document(kind, id)
                number += 1
                if number >= _OUTRUN_OFTEN:
                    own_turn = {*outdated.groups, *([CONFIG_ENTRIES_LINE] if write is not None else ())}
            except CorruptError:  # also what was read before another server has restored the store
                if number >= _OUTRUN_OFTEN:
                    raise
                number += 1
            await pause_after(number)

    async def _attempt(
        self, requests: Sequence[PushRequest], options: PushOptions, write: DerivedWrite | None
    ) -> list[PushResult]:
        """Plan and commit once. Raises ``OutdatedError`` when another server was first; it is caught up with then."""
        groups = [request.group for request in requests]
        async with self._locked(groups, write) as locks:
            if options.push_id and (commits := await self._committed(requests, options, write)) is not None:
                return await self._replayed(commits, len(requests), write)
            try:
                transaction = await self._prepare(requests, options, write, locks)
                results = await (self._preview if options.dry_run else self._apply)(transaction, options)
            except XdsError as error:
                if write is None and not isinstance(error, StoreError) and await self._was_behind(groups):
                    raise OutdatedError(groups) from error
                if options.dry_run or not requests:
                    raise
                self.journal.refused(refused_group(requests, error), error, options.meta)
        if write is not None:
            write.done(results[len(requests) :])
        return results[: len(requests)]

    async def _was_behind(self, groups: Sequence[str]) -> bool:
        """Whether another server had pushed to these groups what was not served here yet; it is now."""
        with suppress(StoreError):
            heads = [head for group in groups if (head := await self._store.head(group)) is not None]
            behind = [head.group for head in heads if not self.groups.has(head)]
            await self.backlog.refresh(behind)
            return bool(behind)
        return False

    @asynccontextmanager
    async def _locked(self, groups: Sequence[str], write: DerivedWrite | None) -> AsyncIterator[HeldLocks]:
        """Take the lock of the derived line for ``write``, and of settings that it has; else the locks of the groups.

        While derived resources are behind the store, nothing can be planned: the server catches up first. It can fall
        behind while the push waits for its locks.
        """
        has_settings = write is not None and write.settings is not None
        while True:
            await self.backlog.catch_up_derived()
            async with self.locks.groups([CONFIG_ENTRIES_LINE] if write is not None else groups) as locks:
                if not self.backlog.is_derived_behind:
                    async with self.settings.lock if has_settings else nullcontext():
                        yield locks
                    return

    async def _committed(
        self, requests: Sequence[PushRequest], options: PushOptions, write: DerivedWrite | None
    ) -> Sequence[Commit] | None:
        """The commits of an earlier push with the same id: those of the requests, then that of ``write``."""
        pushes = [GroupPush(request.group, request.change) for request in requests]
        repeated = await write.repeated_push() if write is not None else None
        pushes += [repeated] if repeated is not None else []
        return await self._store.committed(pushes, options.push_id) if pushes else None

    async def _prepare(
        self, requests: Sequence[PushRequest], options: PushOptions, write: DerivedWrite | None, locks: HeldLocks
    ) -> Transaction:
        """Plan all changes, and those that follow from ``write``. Raises ``ChangeError``."""
        groups = {request.group for request in requests}
        touched = {*groups, *(await write.plan() if write is not None else ())}
        await locks.add(touched)
        await self.backlog.catch_up(touched)
        if self.backlog.is_derived_behind:
            raise OutdatedError(touched)
        deleted = {request.group for request in requests if isinstance(request.change, Drop)}
        changes = await self._derive(write, deleted) if write is not None else {}
        requested = [self._with_derived(each, changes.get(each.group)) for each in requests]
        others = {group: each for group, each in changes.items() if group not in groups}
        if write is not None and write.settings is not None:
            others = {group: self._with_settings(each, write.settings) for group, each in others.items()}
        following = [derived_request(group, each) for group, each in others.items() if each.has_effect or each.writes]
        return Transaction(await self._plan_all([*requested, *following], options, len(requested)), write)

    def _with_settings(self, change: DerivedChange, write: SettingsWrite) -> DerivedChange:
        return replace(change, writes=(*change.writes, self.settings.write(write.group, write.settings, write.by)))

    async def _replayed(
        self, commits: Sequence[Commit], requests_n: int, write: DerivedWrite | None
    ) -> list[PushResult]:
        own, others = commits[:requests_n], commits[requests_n:]
        if write is not None and others:
            await write.replay(others[0])
        return [
            replace(await self.history.replayed(commit), rollout=self.rollout_pushes.replayed(commit)) for commit in own
        ]

    async def _preview(self, transaction: Transaction, options: PushOptions) -> list[PushResult]:
        return [dry_run_result(each) for each in transaction.planned]

    async def _apply(self, transaction: Transaction, options: PushOptions) -> list[PushResult]:
        planned, write = transaction.planned, transaction.write
        meta = replace(options.meta, time_s=time())
        await self.undo.note_refusals((each.group for each in planned), asks_others=False)
        try:
            commits = await self._commit(transaction, options, meta)
        except UnavailableError as error:
            if error.maybe_committed:
                self.backlog.note([each.group for each in planned], write is not None)
            raise
        except ConflictError as error:
            touched = [each.group for each in planned]
            await self.backlog.refresh(touched)
            raise OutdatedError(touched, [(each.kind, each.id) for each in transaction.writes()]) from error
        for each in transaction.writes():
            self.stored.note_committed(each, commits)
        built = [await self._build(each, commit, meta) for each, commit in zip(planned, commits, strict=False)]
        # Nothing is awaited from here, so that no stream sees one group of a transaction without the others.
        with_new_endpoints = write.begin(commits[len(planned) :], meta) if write is not None else ()
        for published in built:
            self._publish_commit(published, meta)
            self.rollouts.tell(published.planned.rollout)
        if write is not None:
            write.end()
            if write.settings is not None:
                self.settings.apply_stored(write.settings)
        changed = [one.planned.group for one in built if one.commit.changed or one.planned.rollout.write is not None]
        if changed or with_new_endpoints:
            self._wake(list(dict.fromkeys((*changed, *with_new_endpoints))))
        return [published.result() for published in built]

    async def _build(self, planned: PlannedChange, commit: Commit, meta: Meta) -> Published:
        published = await build(self._cache, planned, commit, meta)
        if published.content is None:
            return published
        rollout = planned.rollout.rollout or self.rollouts.find(planned.group)
        served = await self.rollouts.prepare(planned.group, rollout, published.content)
        if served is not None and served.base is not None and self._cache.is_overlaid(planned.group):
            await asyncio.to_thread(self._cache.prepare_overlays, served.base.snapshot)
        return replace(published, rollout=served)

    async def _plan_all(
        self, requests: Sequence[PushRequest], options: PushOptions, requested_n: int
    ) -> list[PlannedChange]:
        """Raises ``ChangeError`` for the first of the ``requested_n`` requests that cannot be applied."""
        changes: list[PlannedChange] = []
        for index, request in enumerate(requests):
            try:
                changes.append(await self._plan(request, options))
            except XdsError as error:
                if index >= requested_n:
                    raise
                raise ChangeError(index, request.group, error) from error
        return changes

    async def _plan(self, request: PushRequest, options: PushOptions) -> PlannedChange:
        if isinstance(request.change, Drop):
            request = replace(request, change=self._drop())
        change, current = request.change, self.groups.find(request.group)
        target = await self.history.content(request.group, change.to) if isinstance(change, Rollback) else None
        size = review_size(request, current) if target is None else len(target)
        live = tuple(self.live.owners(request.group))
        planned = await run_sized(plan_reviewed, request, current, target, live, self._request_bytes, resources=size)
        warnings = [warning for review in self.reviews for warning in review(planned)]
        warnings += review_nodes(planned, self._fleet, time())
        planned = replace(planned, warnings=(*planned.warnings, *warnings))
        if not request.is_derived:
            options.check_warnings(planned.warnings, change)
        if planned.current is None and target is None:
            self._check_name(request.group)
        moves = await self._emptying.moves(request)
        if not (options.dry_run or options.allow_empty):
            self._emptying.check(planned, moves)
        planned = replace(planned, moves=moves)
        return replace(planned, rollout=await self.rollout_pushes.step(planned, options))

    async def _commit(self, transaction: Transaction, options: PushOptions, meta: Meta) -> list[Commit]:
        pushes = [self._push_with_note(planned, options, meta) for planned in transaction.planned]
        pushes += transaction.write.pushes() if transaction.write is not None else ()
        return await self._store.commit_all(pushes, push_id=options.push_id or uuid4().hex, meta=meta)

    def _push_with_note(self, planned: PlannedChange, options: PushOptions, meta: Meta) -> GroupPush:
        """The call to the store. A change of derived resources alone has the note of what has caused it."""
        push = replace(planned.group_push(), may_write=options.may_write)
        return push if planned.request.changes_derived_only else replace(push, note=push_note(planned, options, meta))

    def _publish_commit(self, published: Published, meta: Meta) -> None:
        """Serve a committed change, and record it in the journal."""
        planned, commit, content = published.planned, published.commit, published.content
        is_derived = planned.request.changes_derived_only
        if content is not None:
            self.rollouts.adopt(commit.group, published.rollout)
        if not commit.changed and content is not None:
            self.journal.unchanged(is_derived=is_derived)
            if planned.rollout.write is not None:
                self.groups.split(commit.group, self.rollouts.split(commit.group))
            self.groups.pushes.record(commit.group, content.revision, frozenset(content.snapshot.sets))
            return
        self.journal.committed(
            commit.group,
            commit.revision,
            planned.request.change,
            meta,
            by_type_label(published.difference),
            len(planned.blob_ids),
            new=planned.current is None,
            is_derived=is_derived,
        )
        if content is None:
            self._forget(commit)
        else:
            split = self.rollouts.split(commit.group)
            self.groups.publish(content, frozenset(published.difference), published.precomputed, split=split)

    def _forget(self, commit: Commit) -> None:
        """Serve a group no longer, and forget its documents; the store has deleted them with the group."""
        self.groups.withdraw(commit.group)
        for table in self.stored.tables():
            for kind, id in table.known.later_than(commit, is_within=table.is_within):
                self.backlog.note_document(kind, id)
            table.dropped(commit.group)

    def _drop(self) -> Drop:
        """The deletion of a group with its documents."""
        kinds = [(kind, table.is_within) for table in self.stored.tables() for kind in table.kinds]
        return Drop(
            tuple(kind for kind, is_within in kinds if not is_within),
            tuple(kind for kind, is_within in kinds if is_within),
        )

    def _check_name(self, group: str) -> None:
        """Raises ``ValidationError`` for the name of a new group. Existing groups keep their names."""
        if not self.groups.is_group(group):
            check_new_group_name(group)

    # Derived resources

    def _with_derived(self, request: PushRequest, change: DerivedChange | None = None) -> PushRequest:
        return replace(request, derived=change or unchanged(self.derived.content(request.group)))

    async def _settle(self) -> None:
        """Derive resources again where the stored ones differ, as after an upgrade; what the store refuses, later."""
        for source, group in self.stored.adopt_stored():
            try:
                self._wake(await source.settle(group, self._apply_derived))
            except StoreError:
                self._wake((group,))
                self.backlog.note_unsettled(self._settle_again)

    async def _settle_again(self) -> None:
        async with self.stored.all_locked():
            await self._settle()

    async def _derive(self, write: DerivedWrite, deleted: Collection[str]) -> dict[str, DerivedChange]:
        """What follows from a write, by group."""
        changes = await write.derive(deleted)
        return {group: self.derived.change(write.source, group, each) for group, each in changes.items()}

    async def _apply_derived(self, write: DerivedWrite) -> None:
        """Publish a write that the server makes itself. No caller of this server writes meanwhile; other servers do."""
        options = PushOptions(meta=Meta(message=f"lowered by release {__version__}", actor=SERVER))
        deleted: set[str] = set()
        for _ in range(_OUTRUN_LIMIT):
            changes = await self._derive(write, deleted)
            if not changes:
                return
            planned = [await self._plan(derived_request(group, each), options) for group, each in changes.items()]
            try:
                await self._apply(Transaction(planned, write), options)
                return
            except OutdatedError as outdated:  # what another server has pushed is served by now
                deleted = {group for group in outdated.groups if self.groups.find(group) is None}
        raise UnavailableError("other servers write to these groups all the time")

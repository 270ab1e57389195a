"""Serves what the store has committed: publishes groups, withdraws groups, and catches up with the store.

The caller wakes the streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from time import monotonic, time

import structlog

from xds.fleet.fleet import Fleet
from xds.live.owners import LiveEndpoints
from xds.model.errors import Violation
from xds.model.resource import Resource
from xds.push.content import BlobIds, GroupContent, build_next_content, changes
from xds.push.derived import Derived, NothingDerived
from xds.push.documents import GroupDocuments
from xds.push.groups import KIND as SETTINGS_KIND
from xds.push.groups import GroupTable
from xds.push.history import Retained, StoredReach
from xds.push.journal import PushJournal
from xds.push.published_state import PublishedState
from xds.push.request import CONFIG_ENTRIES_LINE, PlannedChange, Published, by_type_label, check_new_group_name
from xds.snapshots.cache import NOTHING_PRECOMPUTED, Precomputed, SnapshotCache
from xds.store.base import Commit, Drop, Manifest, Meta, Store, StoreError
from xds.tasks.threads import run_sized
from xds.tasks.writes import WriteLocks

_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 5.0

# Wakes the streams of these groups, and the streams whose group changes because a group was created or deleted.
Wake = Callable[[Collection[str]], None]
Review = Callable[[PlannedChange], Iterable[Violation]]  # warnings about a planned change

_log = structlog.get_logger(logger_name="xds.push.publisher")


class ServedState(PublishedState):
    """The serving half of ``Publisher``.

    ``derived`` makes the derived resources of groups; its documents are loaded first. ``documents`` are the other
    tables of documents that belong to groups. ``reviews`` see each change that is planned.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        wake: Wake,
        on_nack: str,
        refused_share: float,
        live: LiveEndpoints | None,
    ) -> None:
        super().__init__(store, cache, fleet, refused_share)
        self.journal = PushJournal(fleet.events)
        self.settings = GroupTable(store, cache, wake)
        self.derived: Derived = NothingDerived(CONFIG_ENTRIES_LINE)
        self.documents: list[GroupDocuments] = []
        self.reviews: list[Review] = []
        self.live = live if live is not None else LiveEndpoints(cache, wake)
        self.locks = WriteLocks()
        self._wake = wake
        self._on_nack = on_nack
        self._behind: dict[str, asyncio.Task[None]] = {}

    def tables(self) -> tuple[GroupDocuments, ...]:
        """All tables of documents that belong to groups."""
        return (self.derived, *self.documents)

    async def _load_documents(self) -> None:
        self.live.forget_owners()
        for table in self.tables():
            await table.load()
        self.live.remove_unowned()

    async def _stored_groups(self) -> list[str]:
        return [head.group for head in await self._store.groups() if head.group != CONFIG_ENTRIES_LINE]

    async def _build(self, planned: PlannedChange, commit: Commit, meta: Meta) -> Published:
        """Build the content of a commit. Unchanged resources and sets stay the same objects."""
        if not commit.changed:
            return Published(planned, commit, planned.current)
        if isinstance(planned.request.change, Drop):
            return Published(planned, commit, None)
        manifest = Manifest(commit.group, commit.revision, (), commit.versions, meta)
        content, precomputed = await run_sized(
            build_next_content,
            manifest,
            planned.blob_ids,
            planned.resources,
            planned.current,
            planned.digests,
            self._cache.precompute,
            resources=planned.touched,
        )
        if self._cache.is_overlaid(commit.group):
            await asyncio.to_thread(self._cache.prepare_overlays, content.snapshot)
        return Published(planned, commit, content, precomputed)

    def _publish_commit(self, published: Published, meta: Meta) -> None:
        """Serve a committed change, and record it in the journal."""
        planned, commit, content = published.planned, published.commit, published.content
        is_derived = planned.request.changes_derived_only
        if not commit.changed and content is not None:
            self.journal.unchanged(is_derived=is_derived)
            self.pushes.record(commit.group, content.revision, frozenset(content.snapshot.sets))
            return
        change, difference = planned.request.change, by_type_label(published.difference)
        is_new = planned.current is None
        self.journal.committed(
            commit.group,
            commit.revision,
            change,
            meta,
            difference,
            len(planned.blob_ids),
            new=is_new,
            is_derived=is_derived,
        )
        if content is None:
            self._withdraw(commit.group)
            self._forget(commit.group)
        else:
            self._publish(content, frozenset(published.difference), published.precomputed)

    def _publish(
        self, content: GroupContent, changed_types: frozenset[str], precomputed: Precomputed = NOTHING_PRECOMPUTED
    ) -> None:
        self._contents[content.group] = content
        self._cache.set(content.snapshot, on_nack=self._on_nack, precomputed=precomputed, now_s=monotonic())
        self._fleet.published(content.snapshot)
        self.pushes.record(content.group, content.revision, changed_types)

    def _serve(self, retained: Retained, precomputed: Precomputed) -> None:
        """Publish the head of a group, after a start with the revisions before it.

        For a group that is served, the head of a restored store is one more push.
        """
        head, is_served = retained.head, self._cache.pushed(retained.head.group) is not None
        earlier, pushed_s = ((), monotonic()) if is_served else (retained.earlier, retained.pushed_s)
        self._contents[head.group] = head
        for snapshot in (*(snapshot for _, snapshot in retained.earlier), head.snapshot):
            self._fleet.published(snapshot)
        self._cache.set(head.snapshot, earlier, self._on_nack, precomputed, pushed_s)

    async def _read(self, group: str, derived: dict[str, Resource] | None = None) -> tuple[Retained, Precomputed]:
        """Read what ``_serve`` needs; ``derived`` as in `RevisionReader.retained`. Raises ``StoreError``."""
        reach = StoredReach(self._cache.rules_of(group), self._cache.refused_versions(), time(), monotonic())
        retained = await self._revisions.retained(group, reach, derived)
        return retained, await self._precomputed(retained.head)

    async def _precomputed(self, content: GroupContent) -> Precomputed:
        return await run_sized(self._cache.precompute, content.snapshot, resources=len(content.blob_ids))

    def _withdraw(self, group: str) -> None:
        self._contents.pop(group, None)
        self._cache.drop(group)

    def _forget(self, group: str) -> None:
        """Forget the settings and other documents of a group; the store has deleted them with the group."""
        self.settings.dropped(group)
        for table in self.tables():
            table.dropped(group)

    def _drop(self, group: str) -> Drop:
        """The deletion of a group with its present documents. The caller holds the lock of the group."""
        documents = [document for table in self.tables() for document in table.documents(group)]
        return Drop(docs=((SETTINGS_KIND, group), *documents))

    def _check_name(self, group: str) -> None:
        """Raises ``ValidationError`` for the name of a new group. Existing groups keep their names."""
        if group not in self._contents and group not in self.settings:
            check_new_group_name(group)

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

    async def _refresh_all(self, groups: Collection[str]) -> None:
        """Catch up with groups that are behind the store. The caller holds their locks. Raises ``StoreError``."""
        for group in self._behind.keys() & groups:
            await self._refresh(group)

    async def _refresh(self, group: str) -> None:
        head = await self._store.head(group)
        current = self._contents.get(group)
        if head is None or (current is not None and current.revision == head.revision):
            return
        self.journal.caught_up(group, head.revision)
        if head.live:
            content = await self._revisions.content(group, None, current)
            difference = changes(current.blob_ids if current is not None else BlobIds(), content.blob_ids)
            self._publish(content, frozenset(difference), await self._precomputed(content))
        else:
            self._withdraw(group)
            self._forget(group)
        self._wake((group,))

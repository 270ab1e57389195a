"""Publishes what the store has: at the start, after a restore, and what was committed elsewhere or unanswered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic, time

from xds.live.owners import LiveEndpoints
from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.snapshot import Snapshot
from xds.push.content import BlobIds, GroupContent, changes
from xds.push.derived import ORDER_ID, Derived, DerivedSources
from xds.push.documents import GroupDocuments
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.push.groups import GroupTable
from xds.push.history import GroupHistory, Retained, StoredReach
from xds.push.journal import PushJournal
from xds.push.request import precomputed
from xds.push.rollout_step import ServedRollout
from xds.push.rollouts import Rollouts
from xds.push.served import ServedGroups
from xds.snapshots.cache import NOTHING_PRECOMPUTED, Precomputed, SnapshotCache
from xds.snapshots.lines import GroupSplit
from xds.store.base import Commit, CorruptError, DocumentChanged, DocumentWrite, Head, Store, UnavailableError
from xds.tasks.writes import WriteLocks

# Wakes the streams of these groups, and the streams whose group changes because a group was created or deleted.
Wake = Callable[[Collection[str]], None]

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class _News:
    """What a server lacks of a group: the ``head``, and revisions ``earlier`` than that.

    Without content the group is deleted, or only its ``rollout`` is another one.
    """

    head: Head
    content: GroupContent | None = None
    earlier: Sequence[tuple[float, Snapshot]] = ()
    precomputed: Precomputed = NOTHING_PRECOMPUTED
    rollout: ServedRollout | None = None


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a start serves of a group."""

    retained: Retained
    precomputed: Precomputed
    rollout: ServedRollout | None


class StoredState:
    """Takes over what the store has.

    ``documents`` are tables besides ``settings``, ``rollouts`` and those of ``derived``.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        groups: ServedGroups,
        history: GroupHistory,
        settings: GroupTable,
        rollouts: Rollouts,
        journal: PushJournal,
        live: LiveEndpoints,
        locks: WriteLocks,
        wake: Wake,
    ) -> None:
        self.derived = DerivedSources()
        self.documents: list[GroupDocuments] = []
        self.groups = groups
        self.locks = locks
        self._store = store
        self._cache = cache
        self._history = history
        self._settings = settings
        self._rollouts = rollouts
        self._journal = journal
        self._live = live
        self.wake: Wake = wake

    def tables(self) -> tuple[GroupDocuments, ...]:
        """All tables of documents that belong to groups."""
        return (self._settings, self._rollouts, *self.derived.sources, *self.documents)

    def table(self, kind: str) -> GroupDocuments | None:
        """The table of the documents of a kind; None if the server has none."""
        return next((table for table in self.tables() if kind in table.kinds), None)

    @asynccontextmanager
    async def all_locked(self) -> AsyncIterator[None]:
        """Nobody writes meanwhile.

        The lock of a group is also that of its rollout, which is taken over while all groups are locked.
        """
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.locks.all_groups())
            for lock in (table.lock for table in self.tables() if table is not self._rollouts):
                await locks.enter_async_context(lock)
            yield

    # All

    async def load(self) -> None:
        """Publish every group with its retained revisions. Raises ``StoreError``."""
        await self._settings.load()
        await self._load_documents()
        for each in await self._read_all(await self._stored_groups(), {}):
            retained, split = each.retained, self._adopt(each.retained.head.group, each.rollout)
            self.groups.serve(retained.head, retained.earlier, retained.pushed_s, each.precomputed, split)

    async def reload(self) -> Collection[str]:
        """Publish the restored store in place of everything else. The caller holds all locks.

        Returns the groups that there were and that there are; the caller wakes their streams. Raises ``StoreError``.
        """
        kept = await self._kept_groups()
        groups = [group for group in await self._stored_groups() if group not in kept]
        found = await self._read_all(groups)
        await self._load_documents()
        former_groups = {content.group for content in self.groups.all()} - kept
        for group in former_groups - {each.retained.head.group for each in found}:
            self.groups.withdraw(group)
            self._rollouts.adopt(group, None)
        for each in found:
            self._serve_again(each)
        await self._settings.load()
        return former_groups.union(groups)

    def _serve_again(self, found: _Stored) -> None:
        """Serve the stored head of a group, which continues what is served, or is a restored one."""
        retained, computed = found.retained, found.precomputed
        head, current = retained.head, self.groups.find(retained.head.group)
        split = self._adopt(head.group, found.rollout)
        before = [*retained.earlier, (retained.pushed_s, head.snapshot)]
        if current is None or not any(_is_same(each, current.snapshot) for _, each in before):
            self.groups.serve(head, retained.earlier, retained.pushed_s, computed, split)
        elif head.revision != current.revision:
            between = tuple(each for each in retained.earlier if each[1].revision > current.revision)
            difference = changes(current.blob_ids, head.blob_ids)
            self.groups.publish(head, frozenset(difference), computed, between, split)
        else:
            self.groups.split(head.group, split)

    def _adopt(self, group: str, rollout: ServedRollout | None) -> GroupSplit | None:
        """The group is served by this rollout from the next step on."""
        self._rollouts.adopt(group, rollout)
        return self._rollouts.split(group)

    async def _kept_groups(self) -> set[str]:
        """The groups that would go back: a database was restored to an earlier state, and nobody has decided yet."""
        if not self._store.condition().behind:
            return set()
        stored = {head.group: head.revision for head in await self._store.groups()}
        return {each.group for each in self.groups.all() if stored.get(each.group, 0) < each.revision}

    # What is missing

    async def refresh(self, groups: Collection[str]) -> None:
        """Publish what the store has of these groups, in one step. The caller holds their locks."""
        found = [await self._news(group) for group in groups]
        news = [each for each in found if each is not None]
        # Nothing is awaited from here, so that no stream sees one group of a transaction without the others.
        for each in news:
            self._publish(each)
        if news:
            self.wake([each.head.group for each in news])

    async def catch_up_derived(self) -> Collection[str]:
        """Take over the documents that resources are derived from. Returns the groups whose resources may differ."""
        return {group for source in self.derived.sources for group in await source.catch_up()}

    def adopt_stored(self, groups: Collection[str] | None = None) -> list[tuple[Derived, str]]:
        """Take over the stored derived resources of these groups; None: of all.

        Returns the sources and groups for which this release makes other ones.
        """
        return self.derived.adopt_stored(self.groups.find, groups)

    def end_derived(self, groups: Collection[str]) -> None:
        """Remove what the published groups no longer have."""
        self.derived.end(groups)

    async def refresh_document(self, kind: str, id: str) -> None:
        """Take over what the store has of a document that no resource is derived from."""
        table = self.table(kind)
        if table is self._rollouts:
            async with self.locks.groups((id,)):
                await self.refresh((id,))
        elif table is not None and kind not in self.derived.kinds():
            await table.known.catch_up(kind, id)

    def note_rollout(self, changed: DocumentChanged) -> Collection[str]:
        """The watch shows a rollout. Returns the group if it is another one than is known here."""
        is_news = self._rollouts.known.is_news(changed)
        if not is_news:
            self._rollouts.known.note_shown(changed)
        return (changed.id,) if is_news else ()

    def note_committed(self, write: DocumentWrite, commits: Iterable[Commit]) -> None:
        """A document was written with the groups of these ``commits``."""
        table = self.table(write.kind)
        if table is not None:
            for commit in commits:
                table.known.note_committed(write, commit)

    async def is_derived_level(self, groups: Collection[str]) -> bool:
        """Whether the server has all documents of which resources of these groups are derived."""
        head = await self._store.head(CONFIG_ENTRIES_LINE) if self.derived.sources else None
        if head is not None and not self.derived.has(head.revision if head.live else 0):
            return False
        kinds = [(source, kind) for source in self.derived.sources for kind in source.kinds]
        ids = (ORDER_ID, *groups)
        return all([await source.known.is_level(kind, id) for source, kind in kinds for id in ids])

    async def _news(self, group: str) -> _News | None:
        """What is lacking of a group; None for nothing.

        A rollout belongs to the content that was read before it, if it has not changed since the look before.
        """
        news = await self._content_news(group)
        while await self._rollouts.catch_up(group):
            news = await self._content_news(group)
        current, rollout = self.groups.find(group), self._rollouts.find(group)
        content = news.content if news is not None else current
        if content is None or (news is None and self._rollouts.serves(rollout, group)):
            return news
        served = await self._rollouts.prepare(group, rollout, content)
        if news is None:
            return _News(Head(group, content.revision), rollout=served)
        return replace(news, rollout=served)

    async def _content_news(self, group: str) -> _News | None:
        for _ in range(_LOOKS):
            # What was the head is deleted or collected already, or the store is restored at this moment.
            with suppress(NotFoundError, CorruptError):
                return await self._news_now(group)
        return await self._news_now(group)

    async def _news_now(self, group: str) -> _News | None:
        head, current = await self._store.head(group), self.groups.find(group)
        present = current.revision if current is not None else 0
        stored = head.revision if head is not None else 0
        if stored < present and (behind := self._store.condition().behind):
            raise UnavailableError(f"group {group!r} would go back from revision {present} to {stored}: {behind}")
        if head is None or (not head.live and current is None) or (head.live and stored == present):
            return None
        if not head.live:
            return _News(head)
        if current is not None and head.revision == present + 1:
            content = await self._history.content(group, head.revision)
            return _News(head, content, (), await precomputed(self._cache, content))
        retained, computed = await self._read(group)
        # Clients that come from another server may have any of the revisions between.
        between = tuple(each for each in retained.earlier if each[1].revision > present)
        return _News(Head(group, retained.head.revision), retained.head, between, computed)

    def _publish(self, news: _News) -> None:
        group, content, current = news.head.group, news.content, self.groups.find(news.head.group)
        split = self._adopt(group, news.rollout)
        if content is None and current is not None and news.head.live:  # its rollout alone took a step
            self.groups.split(group, split)
            return
        self._journal.caught_up(group, news.head.revision)
        if content is None:
            self.groups.withdraw(group)  # its documents are deleted one by one: there may be new ones already
            return
        difference = changes(current.blob_ids if current is not None else BlobIds(), content.blob_ids)
        self.groups.publish(content, frozenset(difference), news.precomputed, news.earlier, split)

    async def _load_documents(self) -> None:
        self._live.forget_owners()
        for table in (*self.derived.sources, *self.documents):
            await table.load()
        self._live.remove_unowned()

    async def _stored_groups(self) -> list[str]:
        return [head.group for head in await self._store.groups() if head.group != CONFIG_ENTRIES_LINE]

    async def _read_all(self, groups: Iterable[str], derived: dict[str, Resource] | None = None) -> list[_Stored]:
        """Read what a start serves of these groups. The caller holds all locks, or is alone.

        A rollout belongs to the content that was read before it: what has changed meanwhile is read again.
        """
        await self._rollouts.load()
        found: dict[str, tuple[Retained, Precomputed]] = {}
        behind: Iterable[str] = groups
        while behind:
            for group in behind:
                found.pop(group, None)
                with suppress(NotFoundError):  # another server deletes it
                    found[group] = await self._read(group, derived)
            behind = await self._rollouts.catch_up_all()
        return [
            _Stored(*each, await self._rollouts.prepare(group, self._rollouts.find(group), each[0].head))
            for group, each in found.items()
        ]

    async def _read(self, group: str, derived: dict[str, Resource] | None = None) -> tuple[Retained, Precomputed]:
        """Read what a start serves of a group; ``derived`` as in `GroupHistory.retained`. Raises ``StoreError``."""
        reach = StoredReach(self._cache.rules_of(group), self._cache.refused_versions(), time(), monotonic())
        retained = await self._history.retained(group, reach, derived)
        return retained, await precomputed(self._cache, retained.head)


def _is_same(stored: Snapshot, served: Snapshot) -> bool:
    """Whether a stored revision is the served one, and not that of another history."""
    digests = [{url: each.digest for url, each in one.sets.items()} for one in (stored, served)]
    return stored.revision == served.revision and digests[0] == digests[1]

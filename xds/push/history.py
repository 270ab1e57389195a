"""The revisions of groups in the store: their list, their content, their differences, and those that a start reads.

docs/internals/engine.md#who-has-which-state: the removal log of a group is "read from the store's history at a start".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.snapshot import Change, Snapshot
from xds.push.content import (
    BlobIds,
    GroupContent,
    Key,
    blob_ids,
    build_content,
    changes,
    decode_resources,
    ids_at,
    shared,
)
from xds.push.group_names import check_is_group
from xds.push.request import PushResult, by_type_label, result_of
from xds.push.served import ServedGroups
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT, kept_s
from xds.store.base import Commit, CorruptError, Entry, GoneError, Manifest, RevisionInfo, Store
from xds.store.line import Line
from xds.tasks.threads import run_sized

_log = structlog.get_logger(logger_name="xds.push.history")


@dataclass(frozen=True, slots=True)
class StoredReach:
    """How far back a start reads the revisions of a group.

    ``rules`` are those of the group. ``refused`` are the keys of the resources of which a node refused a version.
    ``wall_s`` is the epoch time, and ``now_s`` the same instant on the clock of the streams.
    """

    rules: OrderRules
    refused: Collection[Key]
    wall_s: float
    now_s: float


@dataclass(frozen=True, slots=True)
class Retained:
    """The head of a group, and the revisions before it that clients may have, oldest first.

    Times are those of the pushes, on the clock of the streams.
    """

    head: GroupContent
    pushed_s: float
    earlier: Sequence[tuple[float, Snapshot]] = ()


@dataclass(frozen=True, slots=True)
class RevisionComparison:
    """Two revisions of a group: the blob ids ``before`` and ``after``. ``changes`` is by type URL."""

    group: str
    old: int
    new: int
    before: BlobIds
    after: BlobIds
    changes: Mapping[str, Change]

    def touched(self) -> list[Key]:
        """The keys of all resources that differ."""
        return [
            (type_url, name)
            for type_url, change in self.changes.items()
            for name in (*change.added, *change.changed, *change.removed)
        ]


@dataclass(frozen=True, slots=True)
class ComparedResources:
    """Resources of a comparison by type URL and name, in the old and in the new revision."""

    before: Mapping[Key, Resource]
    after: Mapping[Key, Resource]


class GroupHistory:
    """The revisions of groups, read from the store.

    The resources of the published content of a group (``groups``) are shared, and not read again.
    """

    def __init__(self, store: Store, groups: ServedGroups) -> None:
        self._store = store
        self._groups = groups

    async def content(self, group: str, revision: int) -> GroupContent:
        """A group's content at a revision. Raises ``NotFoundError``, ``StoreError``."""
        check_is_group(group)
        current = self._groups.find(group)
        if current is not None and current.revision == revision:
            return current
        return await self._restore(await self._store.manifest(group, revision), current, None)

    async def head(self, group: str) -> GroupContent:
        """A group's newest stored content. Raises ``NotFoundError``, ``StoreError``."""
        return await self._restore(await self._store.manifest(group), self._groups.find(group), None)

    async def lines(
        self, group: str, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        """A group's revisions, newest first. ``endpoints`` False leaves out revisions that changed endpoints only.

        Raises ``NotFoundError``, ``StoreError``.
        """
        check_is_group(group)
        lines = await Line(self._store, group).page(before, limit, endpoints)
        if not lines and await self._store.head(group) is None:
            raise NotFoundError(f"no such group: {group!r}")
        return lines

    async def compare(self, group: str, old: int, new: int) -> RevisionComparison:
        """The difference between two revisions. Revision 0, and one that deleted the group, are empty.

        Raises ``NotFoundError``, ``StoreError``.
        """
        check_is_group(group)
        after = await self._blob_ids_at(group, new)
        before = await self._blob_ids_at(group, old)
        difference = await run_sized(changes, before, after, resources=len(before) + len(after))
        return RevisionComparison(group, old, new, before, after, difference)

    async def compared_resources(self, comparison: RevisionComparison, keys: Collection[Key]) -> ComparedResources:
        """The resources ``keys`` of both revisions, without those that do not exist. Raises ``StoreError``."""
        before, after = (
            [Entry(*key, ids[key]) for key in keys if key in ids] for ids in (comparison.before, comparison.after)
        )
        blobs = await self._store.blobs({entry.blob_id for entry in (*before, *after)})
        return ComparedResources(
            await run_sized(decode_resources, before, blobs, resources=len(before)),
            await run_sized(decode_resources, after, blobs, resources=len(after)),
        )

    async def _blob_ids_at(self, group: str, revision: int) -> BlobIds:
        if revision == 0:
            return BlobIds()
        line = await Line(self._store, group).find(revision)
        if line is not None and not line.live:
            return BlobIds()
        entries = (await self._store.manifest(group, revision)).entries
        return await run_sized(blob_ids, entries, resources=len(entries))

    async def retained(self, group: str, reach: StoredReach, derived: dict[str, Resource] | None = None) -> Retained:
        """The head, and the revisions that a reconnecting client may still have.

        ``derived`` are the derived resources that were read so far, by blob id: groups share them. Those of this group
        are added. A damaged earlier revision is left out with all revisions before it, so that the server still starts.
        Raises ``NotFoundError`` for a group that is deleted at this moment, ``StoreError``.
        """
        head = await self._head(group)
        lines = await self._earlier(head, reach)
        times = pushed_times([head.meta.time_s, *(line.meta.time_s for line in lines)], reach)
        contents: list[tuple[float, Snapshot]] = []
        base: GroupContent | None = None
        oldest_first = list(reversed(lines))
        changed = await self._store.lifetimes(group, oldest_first[0].revision) if lines else []
        retained_ids = ids_at(head.entries, changed, [line.revision for line in oldest_first]) if lines else ()
        for line, pushed_s, ids in zip(oldest_first, reversed(times[1:]), retained_ids, strict=True):
            try:
                base = await self._restore_line(line, ids, base, derived)
            except CorruptError as error:
                # It may be there no more because another server has restored the store, which is no damage.
                log = _log.error if await self._store.manifest(group) == head else _log.info
                log("store.revision_damaged", group=group, revision=line.revision, error_message=str(error))
                contents, base = [], None
            else:
                contents.append((pushed_s, base.snapshot))
        return Retained(await self._restore(head, None, base, derived), times[0], contents)

    async def replayed(self, commit: Commit) -> PushResult:
        """The result of a push that was committed before. It is incomplete if its revisions are no longer kept."""
        group, revision = commit.group, commit.revision
        try:
            content = await self.content(group, revision)
        except GoneError:
            return PushResult(group, revision, "", {}, {}, commit.changed)
        except NotFoundError:  # the revision that deleted the group
            return PushResult(group, revision, "", {}, by_type_label(changes(await self._before(commit), BlobIds())))
        if not commit.changed:
            return result_of(content, {}, changed=False)
        return result_of(content, changes(await self._before(commit), content.blob_ids))

    async def _before(self, commit: Commit) -> BlobIds:
        """The blob ids before a commit; empty if they are no longer kept."""
        try:
            return blob_ids((await self._store.manifest(commit.group, commit.revision - 1)).entries)
        except NotFoundError:
            return BlobIds()

    async def _restore(
        self,
        manifest: Manifest,
        current: GroupContent | None,
        base: GroupContent | None,
        derived: dict[str, Resource] | None = None,
    ) -> GroupContent:
        """The content of a manifest. Sets equal to those of ``base`` are the same objects. Raises ``StoreError``.

        ``derived`` as in ``retained``.
        """
        known = {**shared(manifest, current), **shared(manifest, base)}
        return await self._build(manifest, blob_ids(manifest.entries), known, base, derived)

    async def _restore_line(
        self, line: RevisionInfo, ids: BlobIds, base: GroupContent | None, derived: dict[str, Resource] | None
    ) -> GroupContent:
        """The content of a line of the history. Raises ``StoreError``."""
        if len(ids) != line.resources:
            raise CorruptError(f"{len(ids)} of {line.resources} resources are left")
        manifest = Manifest(line.group, line.revision, (), line.versions, line.meta)
        return await self._build(manifest, ids, {}, base, derived)

    async def _build(
        self,
        manifest: Manifest,
        ids: BlobIds,
        known: dict[Key, Resource],
        base: GroupContent | None,
        derived: dict[str, Resource] | None,
    ) -> GroupContent:
        """Build the content. What is neither ``known`` nor in ``base`` in the same form is read and decoded."""
        touched = ids.touched_since(base.blob_ids) if base is not None else None
        needed = [Entry(*key, ids[key]) for key in (touched if touched is not None else ids) if key in ids]
        if derived:
            by_key = ((each.type_url, each.name, derived.get(each.blob_id)) for each in needed)
            known = {(url, name): each for url, name, each in by_key if each is not None} | known
        unknown = [entry for entry in needed if (entry.type_url, entry.name) not in known]
        blobs = await self._store.blobs({entry.blob_id for entry in unknown})
        decoded = await run_sized(decode_resources, unknown, blobs, resources=len(unknown))
        if derived is not None:
            ids_of = ((entry.blob_id, decoded[entry.type_url, entry.name]) for entry in unknown)
            derived.update((blob_id, resource) for blob_id, resource in ids_of if resource.is_lowered)
        return await run_sized(build_content, manifest, ids, {**known, **decoded}, base, resources=len(needed))

    async def _head(self, group: str) -> Manifest:
        try:
            return await self._store.manifest(group)
        except NotFoundError as error:
            head = await self._store.head(group)
            if head is None or not head.live:
                raise  # it was deleted at this moment
            raise CorruptError(f"group {group!r} has no manifest: the store is damaged") from error

    async def _earlier(self, head: Manifest, reach: StoredReach) -> list[RevisionInfo]:
        """The revisions before the head that the removal log needs, newest first.

        The log has pushes, so it needs the revision before each: that of the last ten pushes, of young ones, and of all
        while a node may refuse what is newest; ``linger_max`` at most. `RemovalLog` forgets what it need not keep.
        """
        limit = max(PUSHES_KEPT, reach.rules.linger_max)
        lines = await self._store.history(head.group, before=head.revision, limit=limit)
        is_refused = any((entry.type_url, entry.name) in reach.refused for entry in head.entries)
        oldest_s = reach.wall_s - kept_s(reach.rules)
        pushed_s = [head.meta.time_s, *(line.meta.time_s for line in lines)]
        needed = [
            line for count, line in enumerate(lines) if is_refused or count < PUSHES_KEPT or pushed_s[count] >= oldest_s
        ]
        return [line for line in needed if line.live and line.content]


def pushed_times(epoch_s: Sequence[float], reach: StoredReach) -> list[float]:
    """The times of pushes on the clock of the streams, newest first as ``epoch_s``.

    The wall clock may have been set back: no push was in the future, and none was after the next one.
    """
    times: list[float] = []
    for each in epoch_s:
        latest_s = times[-1] if times else reach.now_s
        times.append(min(latest_s, reach.now_s - (reach.wall_s - each)))
    return times

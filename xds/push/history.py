"""Builds the content of revisions from the store: of one revision, and of those that a start reads.

docs/internals/engine.md#who-has-which-state: the removal log of a group is "read from the store's history at a start".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.snapshot import Snapshot
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
from xds.push.request import PushResult, by_type_label, result_of
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT, kept_s
from xds.store.base import Commit, CorruptError, Entry, GoneError, Manifest, RevisionInfo, Store
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


class RevisionReader:
    """Builds the content of revisions from the store.

    ``current`` is always the published content of the group. Its resources are shared, and not read again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def content(self, group: str, revision: int | None, current: GroupContent | None) -> GroupContent:
        """A group's content at a revision (None: the head). Raises ``NotFoundError``, ``StoreError``."""
        return await self._restore(await self._store.manifest(group, revision), current, None)

    async def retained(self, group: str, reach: StoredReach, lowered: dict[str, Resource] | None = None) -> Retained:
        """The head, and the revisions that a reconnecting client may still have.

        ``lowered`` are the lowered resources that were read so far, by blob id: groups share them. Those of this group
        are added. A damaged earlier revision is left out with all revisions before it, so that the server still starts.
        """
        head = await self._head(group)
        lines = await self._earlier(head, reach)
        times = pushed_times([head.meta.time_s, *(line.meta.time_s for line in lines)], reach)
        contents: list[tuple[float, Snapshot]] = []
        base: GroupContent | None = None
        oldest_first = list(reversed(lines))
        changed = await self._store.lifetimes(group, oldest_first[0].revision) if lines else []
        found = ids_at(head.entries, changed, [line.revision for line in oldest_first]) if lines else ()
        for line, pushed_s, ids in zip(oldest_first, reversed(times[1:]), found, strict=True):
            try:
                base = await self._restore_line(line, ids, base, lowered)
            except CorruptError as error:
                _log.error("store.revision_damaged", group=group, revision=line.revision, error_message=str(error))
                contents, base = [], None
            else:
                contents.append((pushed_s, base.snapshot))
        return Retained(await self._restore(head, None, base, lowered), times[0], contents)

    async def replayed(self, commit: Commit, current: GroupContent | None) -> PushResult:
        """The result of a push that was committed before. It is incomplete if its revisions are no longer kept."""
        group, revision = commit.group, commit.revision
        try:
            content = await self.content(group, revision, current)
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
        lowered: dict[str, Resource] | None = None,
    ) -> GroupContent:
        """The content of a manifest. Sets equal to those of ``base`` are the same objects. Raises ``StoreError``.

        ``lowered`` as in ``retained``.
        """
        known = {**shared(manifest, current), **shared(manifest, base)}
        return await self._build(manifest, blob_ids(manifest.entries), known, base, lowered)

    async def _restore_line(
        self, line: RevisionInfo, ids: BlobIds, base: GroupContent | None, lowered: dict[str, Resource] | None
    ) -> GroupContent:
        """The content of a line of the history. Raises ``StoreError``."""
        if len(ids) != line.resources:
            raise CorruptError(f"{len(ids)} of {line.resources} resources are left")
        manifest = Manifest(line.group, line.revision, (), line.versions, line.meta)
        return await self._build(manifest, ids, {}, base, lowered)

    async def _build(
        self,
        manifest: Manifest,
        ids: BlobIds,
        known: dict[Key, Resource],
        base: GroupContent | None,
        lowered: dict[str, Resource] | None,
    ) -> GroupContent:
        """Build the content. What is neither ``known`` nor in ``base`` in the same form is read and decoded."""
        touched = ids.touched_since(base.blob_ids) if base is not None else None
        needed = [Entry(*key, ids[key]) for key in (touched if touched is not None else ids) if key in ids]
        if lowered:
            by_key = ((each.type_url, each.name, lowered.get(each.blob_id)) for each in needed)
            known = {(url, name): each for url, name, each in by_key if each is not None} | known
        unknown = [entry for entry in needed if (entry.type_url, entry.name) not in known]
        blobs = await self._store.blobs({entry.blob_id for entry in unknown})
        decoded = await run_sized(decode_resources, unknown, blobs, resources=len(unknown))
        if lowered is not None:
            ids_of = ((entry.blob_id, decoded[entry.type_url, entry.name]) for entry in unknown)
            lowered.update((blob_id, resource) for blob_id, resource in ids_of if resource.is_lowered)
        return await run_sized(build_content, manifest, ids, {**known, **decoded}, base, resources=len(needed))

    async def _head(self, group: str) -> Manifest:
        try:
            return await self._store.manifest(group)
        except NotFoundError as error:
            raise CorruptError(
                f"group {group!r} is listed in the store, but has no manifest: the store is damaged"
            ) from error

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

"""The groups that are served: the content of each, what nodes are expected to have, and the progress of pushes.

The caller wakes the streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic

from xds.fleet.fleet import Fleet
from xds.model.errors import NotFoundError
from xds.model.snapshot import Snapshot
from xds.push.content import GroupContent
from xds.push.groups import GroupTable
from xds.push.progress import PushLog, RolloutStatus, rollout_status
from xds.snapshots.cache import NOTHING_PRECOMPUTED, Precomputed, SnapshotCache
from xds.snapshots.lines import GroupSplit
from xds.store.base import Head


class ServedGroups:
    """The groups with their content. ``pushes`` knows the progress of the latest pushes."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, settings: GroupTable, on_nack: str) -> None:
        self.pushes = PushLog(cache, fleet)
        self._cache = cache
        self._fleet = fleet
        self._settings = settings
        self._on_nack = on_nack
        self._contents: dict[str, GroupContent] = {}

    # Reading

    def all(self) -> list[GroupContent]:
        """The content of all groups, by name."""
        return [self._contents[group] for group in sorted(self._contents)]

    def names(self) -> list[str]:
        """The names of all groups, including those that have settings and no snapshot."""
        return sorted({*self._contents, *self._settings})

    def is_group(self, group: str) -> bool:
        """Whether there is a group of this name: it has a snapshot, or settings alone."""
        return group in self._contents or group in self._settings

    def check(self, group: str) -> None:
        """Raises ``NotFoundError`` if there is no group of this name, which is likely a typing error."""
        if not self.is_group(group):
            raise NotFoundError(f"no such group: {group!r}")

    def find(self, group: str) -> GroupContent | None:
        """The published content of a group; None if it has no snapshot."""
        return self._contents.get(group)

    def content(self, group: str) -> GroupContent:
        """The published content of a group. Raises ``NotFoundError``."""
        content = self._contents.get(group)
        if content is None:
            raise NotFoundError(f"no such group: {group!r}")
        return content

    async def rollout(self, group: str) -> RolloutStatus:
        """How many connected nodes of a group have what they are to have. Raises ``NotFoundError``."""
        return await rollout_status(self._cache, self._fleet, group, self.content(group).revision)

    def has(self, head: Head) -> bool:
        """Whether the published content of a group is that of this head, or a later one."""
        content = self._contents.get(head.group)
        revision = content.revision if content is not None else 0
        return revision >= head.revision if head.live else revision == 0 or revision > head.revision

    def is_beyond(self, head: Head) -> bool:
        """Whether a group is published at a later revision than this head."""
        content = self._contents.get(head.group)
        return content is not None and content.revision > head.revision

    # Publishing: nothing is awaited

    def publish(
        self,
        content: GroupContent,
        changed_types: frozenset[str],
        precomputed: Precomputed = NOTHING_PRECOMPUTED,
        earlier: Sequence[tuple[float, Snapshot]] = (),
        split: GroupSplit | None = None,
    ) -> None:
        """Serve this content of a group from now on. ``precomputed`` is what its streams will need.

        ``earlier`` are revisions before it that were not published here, oldest first, with the times of their pushes.
        ``split`` says which nodes a rollout serves its base instead.
        """
        self._contents[content.group] = content
        self._cache.set(content.snapshot, earlier, self._on_nack, precomputed, monotonic(), split)
        self._note_published(content, earlier, split)
        self.pushes.record(content.group, content.revision, changed_types)

    def serve(
        self,
        head: GroupContent,
        earlier: Iterable[tuple[float, Snapshot]],
        pushed_s: float,
        precomputed: Precomputed,
        split: GroupSplit | None = None,
    ) -> None:
        """Serve the stored head of a group, after a start with the revisions before it, oldest first.

        For a group that is served, the head of a restored store is one more push.
        """
        is_served, before = self._cache.pushed(head.group) is not None, tuple(earlier)
        self._contents[head.group] = head
        self._note_published(head, before, split)
        if is_served:
            before, pushed_s = (), monotonic()
        self._cache.set(head.snapshot, before, self._on_nack, precomputed, pushed_s, split, is_stored=not is_served)

    def split(self, group: str, split: GroupSplit | None) -> None:
        """Serve the contents of a group to other nodes from now on."""
        self._cache.split(group, split, monotonic())
        self._note_published(self._contents[group], (), split)

    def _note_published(
        self, content: GroupContent, earlier: Iterable[tuple[float, Snapshot]], split: GroupSplit | None
    ) -> None:
        base = (split.base,) if split is not None and split.base is not None else ()
        for snapshot in (*(snapshot for _, snapshot in earlier), *base, content.snapshot):
            self._fleet.published(snapshot)

    def withdraw(self, group: str) -> None:
        """Serve a group no longer."""
        self._contents.pop(group, None)
        self._cache.drop(group)

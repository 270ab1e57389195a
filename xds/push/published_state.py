"""Reads the published state: the content of groups, and which nodes have it. Nothing is changed here.

Earlier revisions, and the difference between two revisions, are read from the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from xds.envoy.translation import UnexpressedResource, unexpressed
from xds.fleet.fleet import Fleet
from xds.fleet.state import NackState, NodeState
from xds.live.owners import LiveEndpoints
from xds.model.errors import NotFoundError
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.snapshot import Change, Snapshot
from xds.push.content import (
    BlobIds,
    GroupContent,
    Key,
    blob_ids,
    changes,
    decode_resources,
)
from xds.push.derived import Derived
from xds.push.explain import EXPLAIN_ALL, ExplainQuery, Explanation, explain, node_context
from xds.push.groups import GroupTable
from xds.push.history import RevisionReader
from xds.push.progress import PushLog, RolloutStatus, rollout_status
from xds.push.request import check_is_group
from xds.push.undo import UndoPlan, UndoPlanner
from xds.snapshots.cache import SnapshotCache
from xds.store.base import DELETE, Entry, RevisionInfo, Store
from xds.tasks.threads import run_sized

_log = structlog.get_logger(logger_name="xds.push.published_state")


class PublishedState:
    """The reading half of ``Publisher``. ``pushes`` knows the progress of the latest pushes."""

    settings: GroupTable
    live: LiveEndpoints
    derived: Derived

    def __init__(self, store: Store, cache: SnapshotCache, fleet: Fleet, refused_share: float) -> None:
        self.pushes = PushLog(cache, fleet)
        self.undo = UndoPlanner(store, cache, fleet, self.find_content, refused_share)
        self._store = store
        self._revisions = RevisionReader(store)
        self._cache = cache
        self._fleet = fleet
        self._contents: dict[str, GroupContent] = {}

    def groups(self) -> list[GroupContent]:
        """The content of all groups, by name."""
        return [self._contents[group] for group in sorted(self._contents)]

    def group_names(self) -> list[str]:
        """The names of all groups, including those that have settings and no snapshot."""
        return sorted({*self._contents, *self.settings})

    def is_group(self, group: str) -> bool:
        """Whether there is a group of this name: it has a snapshot, or settings alone."""
        return group in self._contents or group in self.settings

    def check_group(self, group: str) -> None:
        """Raises ``NotFoundError`` if there is no group of this name, which is likely a typing error."""
        if not self.is_group(group):
            raise NotFoundError(f"no such group: {group!r}")

    def find_content(self, group: str) -> GroupContent | None:
        """The published content of a group; None if it has no snapshot."""
        return self._contents.get(group)

    def content(self, group: str) -> GroupContent:
        """The published content of a group. Raises ``NotFoundError``."""
        content = self._contents.get(group)
        if content is None:
            raise NotFoundError(f"no such group: {group!r}")
        return content

    async def content_at(self, group: str, revision: int) -> GroupContent:
        """A group's content at an earlier revision. Raises ``NotFoundError``, ``StoreError``."""
        check_is_group(group)
        current = self._contents.get(group)
        if current is not None and current.revision == revision:
            return current
        return await self._revisions.content(group, revision, current)

    async def compare(self, group: str, old: int, new: int) -> RevisionComparison:
        """The difference between two revisions. Revision 0 is empty. Raises ``NotFoundError``, ``StoreError``."""
        check_is_group(group)
        return await compare(self._store, group, old, new)

    async def compared_resources(self, comparison: RevisionComparison, keys: Collection[Key]) -> ComparedResources:
        """The resources ``keys`` in both revisions of a comparison. Raises ``StoreError``."""
        return await read_compared(self._store, comparison, keys)

    async def history(
        self, group: str, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        """A group's revisions, newest first. ``endpoints`` False leaves out revisions that changed endpoints only.

        Raises ``NotFoundError``, ``StoreError``.
        """
        check_is_group(group)
        lines = await self._store.history(group, before=before, limit=limit, endpoints=endpoints)
        if not lines and await self._store.head(group) is None:
            raise NotFoundError(f"no such group: {group!r}")
        return lines

    async def undo_plan(self, group: str) -> UndoPlan:
        """What ``undo`` would do with a group. Raises ``NotFoundError``, ``StoreError``.

        The deletion of a group is undone by a rollback to a named revision only; the error names one.
        """
        if group not in self._contents:
            lines = await self.history(group, limit=2)
            if len(lines) == 2 and lines[0].kind == DELETE:
                hint = f"name a revision to go back to, such as {lines[1].revision}"
                raise NotFoundError(f"group {group} was deleted in revision {lines[0].revision}; {hint}")
        return await self.undo.plan(self.content(group))

    async def rollout(self, group: str) -> RolloutStatus:
        """How many connected nodes have the published content of a group. Raises ``NotFoundError``."""
        pushed = self.content(group).snapshot
        return await rollout_status(self._cache, self._fleet, self._cache.get(group) or pushed)

    def served(self, node_id: str) -> Snapshot | None:
        """The snapshot of a node, overlays for its locality included; None if no group matches."""
        node = self._fleet.identity(node_id)
        return (
            node_context(self._cache, node, self.live, self.derived.content).snapshot("") if node is not None else None
        )

    def unexpressed(self, node: NodeState) -> Mapping[str, tuple[UnexpressedResource, ...]]:
        """The requested resources that are not sent since the node's API cannot express them, by type alias."""
        return unexpressed(self._cache, node)

    async def explain(self, node_id: str, query: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """Why a node that is or was connected receives each resource. Raises ``NotFoundError``."""
        node, state = self._fleet.identity(node_id), self._fleet.node(node_id)
        if node is None or state is None:
            raise NotFoundError(f"no node {node_id!r} has connected recently")
        holdings = self._fleet.holdings(node_id)
        refusals = tuple(self._fleet.nack_log.select(node=node_id, state=NackState.OPEN))
        context = replace(
            node_context(self._cache, node, self.live, self.derived.content),
            connected=state.connected,
            holdings=holdings,
            refusals=refusals,
            clients=self._fleet.clients(node_id),
        )
        size = sum(len(holding.sent) for holding in holdings if holding.sent is not None)
        return await run_sized(explain, context, query, resources=size)

    async def explain_node(self, node: Node, query: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """What a node with this identity would receive."""
        return await run_sized(
            explain, node_context(self._cache, node, self.live, self.derived.content), query, resources=0
        )


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


async def compare(store: Store, group: str, old: int, new: int) -> RevisionComparison:
    """Compare two revisions. Revision 0, and one that deleted the group, are empty.

    Raises ``NotFoundError``, ``StoreError``.
    """
    after = await _blob_ids_at(store, group, new)
    before = await _blob_ids_at(store, group, old)
    difference = await run_sized(changes, before, after, resources=len(before) + len(after))
    return RevisionComparison(group, old, new, before, after, difference)


async def read_compared(store: Store, comparison: RevisionComparison, keys: Collection[Key]) -> ComparedResources:
    """The resources ``keys`` of both revisions, without those that do not exist. Raises ``StoreError``."""
    before, after = (
        [Entry(*key, ids[key]) for key in keys if key in ids] for ids in (comparison.before, comparison.after)
    )
    blobs = await store.blobs({entry.blob_id for entry in (*before, *after)})
    return ComparedResources(
        await run_sized(decode_resources, before, blobs, resources=len(before)),
        await run_sized(decode_resources, after, blobs, resources=len(after)),
    )


async def _blob_ids_at(store: Store, group: str, revision: int) -> BlobIds:
    if revision == 0:
        return BlobIds()
    lines = await store.history(group, before=revision + 1, limit=1)
    if lines and lines[0].revision == revision and not lines[0].live:
        return BlobIds()
    entries = (await store.manifest(group, revision)).entries
    return await run_sized(blob_ids, entries, resources=len(entries))

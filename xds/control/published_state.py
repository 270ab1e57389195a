"""Reads of what is published: the contents of groups, their history, the nodes that have them. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from xds.control.explain import EXPLAIN_ALL, ExplainQuery, Explanation, explain, node_context
from xds.control.group_content import GroupContent, Key
from xds.control.groups import GroupTable
from xds.control.live_endpoints import LiveEndpoints
from xds.control.progress import PushLog, RolloutStatus, rollout_status
from xds.control.push import check_is_group
from xds.control.revision_history import (
    ComparedResources,
    RevisionComparison,
    RevisionReader,
    compare,
    read_compared,
)
from xds.control.threads import run_sized
from xds.control.translation import UnexpressedResource, unexpressed
from xds.control.undo import UndoPlan, UndoPlanner
from xds.fleet.fleet import Fleet
from xds.fleet.state import NackState, NodeState
from xds.model.errors import NotFoundError
from xds.model.node import Node
from xds.model.snapshot import Snapshot
from xds.protocol.cache import SnapshotCache
from xds.store.base import RevisionInfo, Store


class PublishedState:
    """The reading half of ``Publisher``. ``pushes`` knows the progress of the latest pushes."""

    settings: GroupTable
    live: LiveEndpoints

    def __init__(self, store: Store, cache: SnapshotCache, fleet: Fleet, refused_share: float) -> None:
        self.pushes = PushLog(cache, fleet)
        self.undo = UndoPlanner(store, cache, fleet, self.held, refused_share)
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

    def held(self, group: str) -> GroupContent | None:
        """The published content of a group; None where it has no snapshot."""
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

    async def sides(self, comparison: RevisionComparison, keys: Collection[Key]) -> ComparedResources:
        """The resources of a comparison, before and after. Raises ``StoreError``."""
        return await read_compared(self._store, comparison, keys)

    async def history(
        self, group: str, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        """A group's revisions, newest first. ``endpoints`` False leaves out those that changed endpoints only.

        Raises ``NotFoundError``, ``StoreError``.
        """
        check_is_group(group)
        lines = await self._store.history(group, before=before, limit=limit, endpoints=endpoints)
        if not lines and await self._store.head(group) is None:
            raise NotFoundError(f"no such group: {group!r}")
        return lines

    async def undo_plan(self, group: str) -> UndoPlan:
        """What ``undo`` would do with a group. Raises ``NotFoundError``, ``StoreError``."""
        return await self.undo.plan(self.content(group))

    async def rollout(self, group: str) -> RolloutStatus:
        """How many connected nodes have the published content of a group. Raises ``NotFoundError``."""
        pushed = self.content(group).snapshot
        return await rollout_status(self._cache, self._fleet, self._cache.get(group) or pushed)

    def served(self, node_id: str) -> Snapshot | None:
        """The snapshot of a node, overlays for its locality included; None where no group matches."""
        node = self._fleet.identity(node_id)
        return node_context(self._cache, node, self.live).snapshot("") if node is not None else None

    def unexpressed(self, node: NodeState) -> Mapping[str, tuple[UnexpressedResource, ...]]:
        """The requested resources that are not sent since the node's API cannot express them, by type alias."""
        return unexpressed(self._cache, node)

    async def explain(self, node_id: str, asked: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """Why a node that is or was connected receives each resource. Raises ``NotFoundError``."""
        node, state = self._fleet.identity(node_id), self._fleet.node(node_id)
        if node is None or state is None:
            raise NotFoundError(f"no node {node_id!r} has connected recently")
        holdings = self._fleet.holdings(node_id)
        refusals = tuple(self._fleet.nacks(node=node_id, state=NackState.OPEN))
        context = replace(
            node_context(self._cache, node, self.live),
            connected=state.connected,
            holdings=holdings,
            refusals=refusals,
            clients=self._fleet.clients(node_id),
        )
        size = sum(len(holding.sent) for holding in holdings if holding.sent is not None)
        return await run_sized(explain, context, asked, resources=size)

    async def explain_node(self, node: Node, asked: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """What a node with this identity would receive."""
        return await run_sized(explain, node_context(self._cache, node, self.live), asked, resources=0)

"""What a publisher is asked: contents, histories, where the fleet stands with them. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from xds.control.content import GroupContent, Key
from xds.control.explain import EXPLAIN_ALL, ExplainQuery, Explanation, explain, node_context
from xds.control.groups import GroupTable
from xds.control.history import (
    ComparedResources,
    RevisionComparison,
    RevisionReader,
    compare,
    read_compared,
)
from xds.control.progress import PushLog, RolloutStatus, rollout_status
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
    """The reading half of ``Publisher``. ``pushes`` is how far the latest pushes have come."""

    settings: GroupTable

    def __init__(self, store: Store, cache: SnapshotCache, fleet: Fleet, refused_share: float) -> None:
        self.pushes = PushLog(cache, fleet)
        self.undo = UndoPlanner(store, cache, fleet, self.held, refused_share)
        self._store = store
        self._archive = RevisionReader(store)
        self._cache = cache
        self._fleet = fleet
        self._contents: dict[str, GroupContent] = {}

    def groups(self) -> list[GroupContent]:
        """The content of all groups, by name."""
        return [self._contents[group] for group in sorted(self._contents)]

    def group_names(self) -> list[str]:
        """The names of all groups, those included that have settings and no snapshot yet."""
        return sorted({*self._contents, *self.settings})

    def held(self, group: str) -> GroupContent | None:
        """What a group is served now; None where it has no snapshot."""
        return self._contents.get(group)

    def content(self, group: str) -> GroupContent:
        """What a group is served now. Raises ``NotFoundError``."""
        found = self._contents.get(group)
        if found is None:
            raise NotFoundError(f"no such group: {group!r}")
        return found

    async def content_at(self, group: str, revision: int) -> GroupContent:
        """A group's content at an earlier revision. Raises ``NotFoundError``, ``StoreError``."""
        held = self._contents.get(group)
        if held is not None and held.revision == revision:
            return held
        return await self._archive.content(group, revision, held)

    async def compare(self, group: str, old: int, new: int) -> RevisionComparison:
        """What leads from one revision to another; 0 is the one before the first.

        Raises ``NotFoundError``, ``StoreError``.
        """
        return await compare(self._store, group, old, new)

    async def sides(self, comparison: RevisionComparison, keys: Collection[Key]) -> ComparedResources:
        """The contents of what differs, before and after. Raises ``StoreError``."""
        return await read_compared(self._store, comparison, keys)

    async def history(
        self, group: str, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        """A group's revisions, newest first, with or without those that changed endpoints alone.

        Raises ``NotFoundError``, ``StoreError``.
        """
        found = await self._store.history(group, before=before, limit=limit, endpoints=endpoints)
        if not found and await self._store.head(group) is None:
            raise NotFoundError(f"no such group: {group!r}")
        return found

    async def undo_plan(self, group: str) -> UndoPlan:
        """What taking back the last change of a group comes to. Raises ``NotFoundError``, ``StoreError``."""
        return await self.undo.plan(self.content(group))

    async def rollout(self, group: str) -> RolloutStatus:
        """How far the connected nodes have come with what a group is served now. Raises ``NotFoundError``."""
        return await rollout_status(self._cache, self._fleet, self.content(group).snapshot)

    def served(self, node_id: str) -> Snapshot | None:
        """What a node is to hold of its group, as it is overlaid for its locality; None where no group matches."""
        node = self._fleet.identity(node_id)
        return node_context(self._cache, node).snapshot("") if node is not None else None

    def unexpressed(self, node: NodeState) -> Mapping[str, tuple[UnexpressedResource, ...]]:
        """What a node asks for and is not sent, because its API cannot express it; by type alias."""
        return unexpressed(self._cache, node)

    async def explain(self, node_id: str, asked: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """Why a node that is or was connected gets what it gets. Raises ``NotFoundError``."""
        node, state = self._fleet.identity(node_id), self._fleet.node(node_id)
        if node is None or state is None:
            raise NotFoundError(f"no node {node_id!r} has connected lately")
        holdings = self._fleet.holdings(node_id)
        refusals = tuple(self._fleet.nacks(node=node_id, state=NackState.OPEN))
        situation = replace(
            node_context(self._cache, node),
            connected=state.connected,
            holdings=holdings,
            refusals=refusals,
            clients=self._fleet.clients(node_id),
        )
        size = sum(len(holding.sent) for holding in holdings if holding.sent is not None)
        return await run_sized(explain, situation, asked, resources=size)

    async def explain_node(self, node: Node, asked: ExplainQuery = EXPLAIN_ALL) -> Explanation:
        """What a node that names itself so would get."""
        return await run_sized(explain, node_context(self._cache, node), asked, resources=0)

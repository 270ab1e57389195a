"""Decides whether the nodes have ACKed a push: for ``Prefer: wait``, ``xds apply --wait`` and ``xds rollout``.

The nodes that were connected at the commit count. A node that has disconnected since, or that subscribes to no type
that the push changed, does not count.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from time import monotonic

from xds.envoy.translation import variant_sets
from xds.fleet.convergence import SHOWN_LIMIT
from xds.fleet.fleet import Fleet
from xds.fleet.state import Convergence, HeldResources, NackRecord, Sync
from xds.model.snapshot import Snapshot
from xds.snapshots.cache import SnapshotCache
from xds.tasks.threads import run_sized

PUSHES_KEPT = 64
NODES_AT_ONCE = 200
WAIT_POLL_S = 0.05


class PushVerdict(StrEnum):
    """Whether the nodes that count have ACKed a push."""

    DONE = "done"
    PENDING = "pending"
    REFUSED = "refused"


def verdict_of(convergence: Convergence, needed_percent: float = 100.0) -> PushVerdict:
    """``DONE`` when ``needed_percent`` of the nodes have ACKed; ``REFUSED`` when too many have NACKed."""
    needed = convergence.total * needed_percent / 100
    if convergence.synced >= needed:
        return PushVerdict.DONE
    return PushVerdict.REFUSED if convergence.total - convergence.nacked < needed else PushVerdict.PENDING


@dataclass(frozen=True, slots=True)
class TrackedPush:
    """A push that a caller may wait for: the types that it changed, and the nodes that were connected at the commit."""

    group: str
    revision: int
    type_urls: frozenset[str]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class PushShare:
    """What the nodes of one of several servers have of a push.

    ``is_known``: the server has served the push, or a later one. ``is_behind``: it does not serve it yet; its nodes of
    the group are pending.
    """

    convergence: Convergence
    is_known: bool
    is_behind: bool


class PushLog:
    """The latest pushes, and the progress of each. At most ``PUSHES_KEPT`` are kept."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet) -> None:
        self._cache = cache
        self._fleet = fleet
        self._pushes: dict[tuple[str, int], TrackedPush] = {}

    def record(self, group: str, revision: int, type_urls: frozenset[str]) -> None:
        """Record a push at its commit, before the streams are woken."""
        push = TrackedPush(group, revision, type_urls, self._followers(group))
        self._pushes[group, revision] = push
        while len(self._pushes) > PUSHES_KEPT:
            del self._pushes[next(iter(self._pushes))]

    async def wait_for_verdict(self, group: str, revision: int, wait_s: float) -> Convergence | None:
        """Wait until the push is not ``PENDING`` any more, for ``wait_s`` seconds at most. Returns as ``progress``."""
        end = monotonic() + wait_s
        while True:
            changes = self._fleet.changes
            convergence = await self.progress(group, revision)
            if convergence is None or verdict_of(convergence) is not PushVerdict.PENDING:
                return convergence
            while changes == self._fleet.changes:
                if monotonic() >= end:
                    return convergence
                await asyncio.sleep(WAIT_POLL_S)

    async def progress(self, group: str, revision: int) -> Convergence | None:
        """How many nodes have ACKed a push; None for a push that is too old, or older than the last restart.

        A later push of the same types counts for an earlier one, since clients skip superseded versions.
        """
        push = self._pushes.get((group, revision))
        snapshot = self._cache.get(group)
        return (
            await self._progress_of(push, snapshot, push.nodes) if push is not None and snapshot is not None else None
        )

    async def share(self, group: str, revision: int) -> PushShare:
        """What the nodes of this server have of a push, which any server has taken.

        All that are connected now count: a node that was connected to another server at the commit may be here now.
        """
        snapshot, here = self._cache.get(group), self._fleet.connected(group)
        if snapshot is None or snapshot.revision < revision:
            waiting = Convergence(pending=len(here), pending_nodes=tuple(islice(sorted(here), SHOWN_LIMIT)))
            return PushShare(waiting, is_known=False, is_behind=True)
        push = self._first_since(group, revision)
        known = push or TrackedPush(group, revision, frozenset(snapshot.sets), here)
        convergence = await self._progress_of(known, snapshot, here)
        return PushShare(convergence, is_known=push is not None, is_behind=False)

    def _first_since(self, group: str, revision: int) -> TrackedPush | None:
        """A push; the next one of its group, if this server went from an earlier revision to a later one at once."""
        later = (each for each in self._pushes.values() if each.group == group and each.revision >= revision)
        return min(later, key=lambda push: push.revision, default=None)

    async def _progress_of(self, push: TrackedPush, snapshot: Snapshot, among: frozenset[str]) -> Convergence:
        targets = {url: snapshot.sets[url] for url in push.type_urls if url in snapshot.sets}
        variants = variant_sets(self._cache, self._fleet, push.group, push.type_urls)
        # Only this takes long. It reads the fleet but not the cache, which belongs to the event loop.
        convergence = await run_sized(
            self._fleet.convergence, push.group, targets, among, variants, resources=len(among)
        )
        moving = self._moving(push)
        return replace(
            convergence, pending=convergence.pending + len(moving), pending_nodes=(*convergence.pending_nodes, *moving)
        )

    def _followers(self, group: str) -> frozenset[str]:
        """The connected nodes of the group; for a new group, those that are about to move to it."""
        followers = self._fleet.connected(group)
        if followers:
            return followers
        return frozenset(node for node in self._fleet.connected() if self._group_of(node) == group)

    def _moving(self, push: TrackedPush) -> list[str]:
        """Nodes that belong to the group now, but have streams that have not moved to it yet."""
        elsewhere = (push.nodes & self._fleet.connected()) - self._fleet.connected(push.group)
        return sorted(node for node in elsewhere if self._group_of(node) == push.group)

    def _group_of(self, node_id: str) -> str:
        node = self._fleet.identity(node_id)
        match = self._cache.match(node) if node is not None else None
        return match.group if match is not None else ""


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """How many connected nodes of a group have its head revision. ``types`` is by alias.

    The lists are bounded, the counts are not. ``held`` pairs a pending node with its held resources.
    """

    group: str
    revision: int
    states: Mapping[Sync, int]
    types: Mapping[str, Mapping[Sync, int]]
    pending_nodes: tuple[str, ...]
    nacks: tuple[NackRecord, ...]
    held: tuple[tuple[str, HeldResources], ...] = ()


async def rollout_status(cache: SnapshotCache, fleet: Fleet, snapshot: Snapshot) -> RolloutStatus:
    """Compare all connected nodes with a snapshot. Streams are served between batches of ``NODES_AT_ONCE`` nodes."""
    variants = variant_sets(cache, fleet, snapshot.group, frozenset(snapshot.sets))
    states: Counter[Sync] = Counter()
    types: dict[str, Counter[Sync]] = {}
    pending: list[str] = []
    nacks: list[NackRecord] = []
    held: list[tuple[str, HeldResources]] = []
    remaining = iter(sorted(fleet.connected(snapshot.group)))
    # At least once, so that ``types`` names the types of a group without nodes.
    while (among := list(islice(remaining, NODES_AT_ONCE))) or not types:
        convergence = fleet.convergence(snapshot.group, snapshot.sets, among, variants)
        states += Counter(
            {Sync.SYNCED: convergence.synced, Sync.PENDING: convergence.pending, Sync.NACKED: convergence.nacked}
        )
        pending += convergence.pending_nodes
        nacks += convergence.nacks
        held += convergence.held
        for alias, counted in fleet.progress_by_type(snapshot.group, snapshot.sets, among, variants).items():
            types.setdefault(alias, Counter()).update(counted)
        if not among:
            break
        await asyncio.sleep(0)
    return RolloutStatus(
        snapshot.group,
        snapshot.revision,
        states,
        types,
        tuple(pending[:SHOWN_LIMIT]),
        tuple(nacks[:SHOWN_LIMIT]),
        tuple(held[:SHOWN_LIMIT]),
    )

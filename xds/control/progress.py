"""Has the fleet taken a push? One place decides, for ``Prefer: wait`` and ``apply --wait`` alike (DESIGN 5.2).

The nodes that were connected at commit count. Those that have left since, or subscribe to nothing the push changed,
do not.

How far the fleet has come with what a group is served now, type by type.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from xds.control.threads import run_sized
from xds.control.translation import variant_sets
from xds.fleet.fleet import SHOWN_LIMIT, Fleet
from xds.fleet.state import Convergence, HeldResources, NackRecord, Sync
from xds.model.snapshot import Snapshot
from xds.protocol.cache import SnapshotCache

PUSHES_KEPT = 64


class PushVerdict(StrEnum):
    """How a push stands with the nodes that count."""

    DONE = "done"
    PENDING = "pending"
    REFUSED = "refused"


def verdict_of(convergence: Convergence, needed_percent: float = 100.0) -> PushVerdict:
    """``DONE`` once ``needed_percent`` of the nodes hold the push; ``REFUSED`` once NACKs rule that out."""
    needed = convergence.total * needed_percent / 100
    if convergence.synced >= needed:
        return PushVerdict.DONE
    return PushVerdict.REFUSED if convergence.total - convergence.nacked < needed else PushVerdict.PENDING


@dataclass(frozen=True, slots=True)
class TrackedPush:
    """One push that may be waited for: the types it changed and the nodes that were connected then."""

    group: str
    revision: int
    type_urls: frozenset[str]
    nodes: frozenset[str]


class PushLog:
    """The latest pushes and how far each has come."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet) -> None:
        self._cache = cache
        self._fleet = fleet
        self._pushes: dict[tuple[str, int], TrackedPush] = {}

    def record(self, group: str, revision: int, type_urls: frozenset[str]) -> None:
        """Remember a push at its commit, before the streams are woken."""
        push = TrackedPush(group, revision, type_urls, self._followers(group))
        self._pushes[group, revision] = push
        while len(self._pushes) > PUSHES_KEPT:
            del self._pushes[next(iter(self._pushes))]

    async def progress(self, group: str, revision: int) -> Convergence | None:
        """How far a push has come; None when it is not known here (too old, or from before a restart).

        A later push of the same types stands for an earlier one: clients skip what was superseded.
        """
        push = self._pushes.get((group, revision))
        snapshot = self._cache.get(group)
        if push is None or snapshot is None:
            return None
        targets = {url: snapshot.sets[url] for url in push.type_urls if url in snapshot.sets}
        variants = variant_sets(self._cache, self._fleet, group, push.type_urls)
        # Only this is long, and reads nothing but the fleet: the cache belongs to the loop.
        found = await run_sized(
            self._fleet.convergence, group, targets, push.nodes, variants, resources=len(push.nodes)
        )
        moving = self._moving(push)
        return replace(found, pending=found.pending + len(moving), pending_nodes=(*found.pending_nodes, *moving))

    def _followers(self, group: str) -> frozenset[str]:
        """The connected nodes that follow the group or are about to, because it is new."""
        followers = self._fleet.connected(group)
        if followers:
            return followers
        return frozenset(node for node in self._fleet.connected() if self._group_of(node) == group)

    def _moving(self, push: TrackedPush) -> list[str]:
        """Nodes that belong to the group now but whose streams have not been told yet."""
        late = (push.nodes & self._fleet.connected()) - self._fleet.connected(push.group)
        return sorted(node for node in late if self._group_of(node) == push.group)

    def _group_of(self, node_id: str) -> str:
        node = self._fleet.identity(node_id)
        match = self._cache.match(node) if node is not None else None
        return match.group if match is not None else ""


NODES_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """The connected nodes of a group against its head. ``types`` by alias; the lists are bounded, the counts not.

    ``held`` says what is held back from pending nodes, node by node.
    """

    group: str
    revision: int
    states: Mapping[Sync, int]
    types: Mapping[str, Mapping[Sync, int]]
    pending_nodes: tuple[str, ...]
    nacks: tuple[NackRecord, ...]
    held: tuple[tuple[str, HeldResources], ...] = ()


async def rollout_status(cache: SnapshotCache, fleet: Fleet, snapshot: Snapshot) -> RolloutStatus:
    """Look at all connected nodes; the streams are let in between them."""
    variants = variant_sets(cache, fleet, snapshot.group, frozenset(snapshot.sets))
    states: Counter[Sync] = Counter()
    types: dict[str, Counter[Sync]] = {}
    pending: list[str] = []
    nacks: list[NackRecord] = []
    held: list[tuple[str, HeldResources]] = []
    waiting = iter(sorted(fleet.connected(snapshot.group)))
    # Once even without nodes: the types are named.
    while (among := list(islice(waiting, NODES_AT_ONCE))) or not types:
        found = fleet.convergence(snapshot.group, snapshot.sets, among, variants)
        states += Counter({Sync.SYNCED: found.synced, Sync.PENDING: found.pending, Sync.NACKED: found.nacked})
        pending += found.pending_nodes
        nacks += found.nacks
        held += found.held
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

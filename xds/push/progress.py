"""Decides whether the nodes have ACKed a push: for ``Prefer: wait``, ``xds apply --wait`` and ``xds rollout``.

The nodes that were connected at the commit count. A node that has disconnected since, or that subscribes to no type
that the push changed, does not count.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from time import monotonic

from xds.envoy.translation import variant_sets
from xds.fleet.convergence import SHOWN_LIMIT
from xds.fleet.fleet import Fleet
from xds.fleet.state import Convergence, Sync
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.lines import GroupLine
from xds.tasks.threads import run_sized

PUSHES_KEPT = 64
NODES_AT_ONCE = 200
WAIT_POLL_S = 0.05
NOTHING_KNOWN = Convergence()


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
        is_served = push is not None and self._cache.get(group) is not None
        return await self._progress_of(push, push.nodes) if push is not None and is_served else None

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
        convergence = await self._progress_of(known, here)
        return PushShare(convergence, is_known=push is not None, is_behind=False)

    def _first_since(self, group: str, revision: int) -> TrackedPush | None:
        """A push; the next one of its group, if this server went from an earlier revision to a later one at once."""
        later = (each for each in self._pushes.values() if each.group == group and each.revision >= revision)
        return min(later, key=lambda push: push.revision, default=None)

    async def _progress_of(self, push: TrackedPush, among: frozenset[str]) -> Convergence:
        """Each node is compared with what its own line is served, so those outside of a rollout are in sync."""
        lines = await progress_by_line(self._cache, self._fleet, push.group, push.type_urls, among)
        convergence = joined(each.convergence for each in lines.values())
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


@dataclass(slots=True)
class LineProgress:
    """How far the nodes of a line, ``nodes_n`` in all, have what the line is served. ``types`` is by alias."""

    nodes_n: int = 0
    convergence: Convergence = NOTHING_KNOWN
    types: dict[str, Counter[Sync]] = field(default_factory=dict)


async def progress_by_line(
    cache: SnapshotCache, fleet: Fleet, group: str, type_urls: Collection[str] | None, among: Iterable[str]
) -> dict[GroupLine, LineProgress]:
    """Compare connected nodes with what their own lines are served of these types; of all types (None), also by type.

    There is always the line of the head. Streams are served between batches of ``NODES_AT_ONCE`` nodes.
    """
    served = {line: cache.get(group, line) for line in GroupLine}
    progress: dict[GroupLine, LineProgress] = {}
    variants_by_line: dict[GroupLine, dict[str, dict[str, ResourceSet]]] = {}  # found once: it takes all streams
    remaining = iter(sorted(among))
    while (batch := list(islice(remaining, NODES_AT_ONCE))) or not progress:
        for line, nodes in nodes_by_line(cache, fleet, group, batch).items():
            snapshot, found = served[line], progress.setdefault(line, LineProgress())
            sets = snapshot.sets if snapshot is not None else {}
            targets = {url: each for url, each in sets.items() if type_urls is None or url in type_urls}
            if line not in variants_by_line:
                variants_by_line[line] = variant_sets(cache, fleet, group, targets.keys(), line)
            variants = variants_by_line[line]
            found.nodes_n += len(nodes)
            found.convergence = joined((found.convergence, fleet.convergence(group, targets, nodes, variants)))
            if type_urls is None:
                for alias, counted in fleet.progress_by_type(group, targets, nodes, variants).items():
                    found.types.setdefault(alias, Counter()).update(counted)
        await asyncio.sleep(0)
    return progress


def nodes_by_line(
    cache: SnapshotCache, fleet: Fleet, group: str, nodes: Collection[str]
) -> dict[GroupLine, Collection[str]]:
    """Nodes of a group by the line that they are on."""
    if not cache.is_split(group):
        return {GroupLine.HEAD: nodes}
    lines: dict[GroupLine, list[str]] = {GroupLine.HEAD: []}
    for node in nodes:
        lines.setdefault(cache.line(group, fleet.identity(node)), []).append(node)
    return dict(lines)


async def converged_at(cache: SnapshotCache, fleet: Fleet, group: str) -> float | None:
    """When the last connected node of a group ACKed what its line is served; None while one has not."""
    latest = 0.0
    for line, nodes in nodes_by_line(cache, fleet, group, fleet.connected(group)).items():
        snapshot = cache.get(group, line)
        sets = snapshot.sets if snapshot is not None else {}
        last_ack = await run_sized(fleet.converged_at, group, sets, nodes, resources=len(nodes))
        if last_ack is None:
            return None
        latest = max(latest, last_ack)
    return latest


def joined(convergences: Iterable[Convergence]) -> Convergence:
    """Counts added up, and the beginning of the joined lists."""
    found = list(convergences)
    return Convergence(
        synced=sum(each.synced for each in found),
        pending=sum(each.pending for each in found),
        nacked=sum(each.nacked for each in found),
        pending_nodes=tuple(node for each in found for node in each.pending_nodes)[:SHOWN_LIMIT],
        nacks=tuple(nack for each in found for nack in each.nacks)[:SHOWN_LIMIT],
        held=tuple(held for each in found for held in each.held)[:SHOWN_LIMIT],
    )


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """How many connected nodes of a group have what they are to have. ``types`` is by alias.

    ``wave`` are those that are served the head, ``outside_n`` the number of all others. ``at_base`` are how many of
    them have ACKed a type that the head changes, by alias.
    """

    group: str
    revision: int
    all: Convergence
    types: Mapping[str, Mapping[Sync, int]]
    wave: LineProgress
    outside_n: int
    at_base: Mapping[str, int]


async def rollout_status(cache: SnapshotCache, fleet: Fleet, group: str, revision: int) -> RolloutStatus:
    """Compare all connected nodes of a group, at this revision, with what they are to have."""
    lines = await progress_by_line(cache, fleet, group, None, fleet.connected(group))
    types: dict[str, Counter[Sync]] = {}
    for each in lines.values():
        for alias, counted in each.types.items():
            types.setdefault(alias, Counter()).update(counted)
    wave = lines[GroupLine.HEAD]
    outside_n = sum(each.nodes_n for each in lines.values()) - wave.nodes_n
    convergence = joined(each.convergence for each in lines.values())
    outside = [each.types for line, each in lines.items() if line is not GroupLine.HEAD]
    changed = map(alias_of, changed_sets(cache, group)) if outside else ()
    at_base = {alias: sum(each.get(alias, Counter())[Sync.SYNCED] for each in outside) for alias in changed}
    return RolloutStatus(group, revision, convergence, types, wave, outside_n, at_base)


def changed_sets(cache: SnapshotCache, group: str) -> dict[str, tuple[ResourceSet, ResourceSet]]:
    """What base and head have of each type of which their content differs, by type URL; nothing without a rollout."""
    head, base = cache.get(group), cache.get(group, GroupLine.BASE)
    if head is None or base is None:
        return {}
    pairs = {url: (base.get(url), head.get(url)) for url in {**base.sets, **head.sets}}
    return {url: (before, after) for url, (before, after) in pairs.items() if before.digest != after.digest}

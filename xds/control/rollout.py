"""How far the fleet has come with what a group is served now, type by type."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from xds.control.translation import variant_sets
from xds.fleet.fleet import SHOWN_LIMIT, Fleet
from xds.fleet.state import Held, NackRecord, Sync
from xds.model.snapshot import Snapshot
from xds.protocol.cache import SnapshotCache

NODES_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Rollout:
    """The connected nodes of a group against its head. ``types`` by alias; the lists are bounded, the counts not.

    ``held`` says what is held back from pending nodes, node by node.
    """

    group: str
    revision: int
    states: Mapping[Sync, int]
    types: Mapping[str, Mapping[Sync, int]]
    pending_nodes: tuple[str, ...]
    nacks: tuple[NackRecord, ...]
    held: tuple[tuple[str, Held], ...] = ()


async def rollout(cache: SnapshotCache, fleet: Fleet, snapshot: Snapshot) -> Rollout:
    """Look at all connected nodes; the streams are let in between them."""
    variants = variant_sets(cache, fleet, snapshot.group, frozenset(snapshot.sets))
    states: Counter[Sync] = Counter()
    types: dict[str, Counter[Sync]] = {}
    pending: list[str] = []
    nacks: list[NackRecord] = []
    held: list[tuple[str, Held]] = []
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
    return Rollout(
        snapshot.group,
        snapshot.revision,
        states,
        types,
        tuple(pending[:SHOWN_LIMIT]),
        tuple(nacks[:SHOWN_LIMIT]),
        tuple(held[:SHOWN_LIMIT]),
    )

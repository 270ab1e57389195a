"""The fleet in numbers, counted in one pass when somebody asks.

May be called from another thread than the one that folds: it reads copies of what grows and shrinks, so that what
changes meanwhile is counted as it was or as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from xds.fleet.state import Sync
from xds.fleet.track import NodeTrack, StreamTrack, TypeTrack, by_alias, worst
from xds.model.resource_type import alias_of

STALE_AFTER_S = 60.0


@dataclass(slots=True)
class Census:
    """Connected nodes by group; by (alias, group) those that refuse a type, and those whose answer is overdue.

    ``missing`` counts names asked for that do not exist, by alias, over all streams. ``synced`` says by (node, group,
    alias) whether the type is in step, for the first nodes only; ``left_out`` counts the others. ``lingering`` and
    ``held`` count the nodes by group that keep what was removed, and those from which something is held back.
    """

    nodes: Counter[str] = field(default_factory=Counter)
    nacked: Counter[tuple[str, str]] = field(default_factory=Counter)
    stale: Counter[tuple[str, str]] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    lingering: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    synced: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    left_out: int = 0


def take_census(
    nodes: Collection[NodeTrack],
    streams: Collection[StreamTrack],
    now: float,
    *,
    stale_after_s: float = STALE_AFTER_S,
    detailed: int = 0,
) -> Census:
    """Count. ``detailed`` is how many nodes are told one by one."""
    found = Census()
    for node in list(nodes):
        if node.streams:
            _count_node(found, node, now - stale_after_s, detailed)
    for stream in list(streams):
        for track in list(stream.types.values()):
            if track.names and (missing := track.missing()):
                found.missing[alias_of(track.type_url)] += len(missing)
    return found


def _count_node(found: Census, node: NodeTrack, stale_before: float, detailed: int) -> None:
    found.nodes[node.group] += 1
    clients = list(node.clients.values())
    found.lingering[node.group] += any(facts.lingering for facts in clients)
    found.held[node.group] += any(facts.held for facts in clients)
    is_told = detailed > 0 and found.nodes.total() <= detailed
    if detailed and not is_told:
        found.left_out += 1
    for alias, tracks in by_alias(_tracks(node)).items():
        lead = worst(tracks)
        if lead.state is Sync.NACKED:
            found.nacked[alias, node.group] += 1
        elif lead.state is Sync.PENDING and min(_pending_since(tracks)) < stale_before:
            found.stale[alias, node.group] += 1
        if is_told and lead.state is not Sync.NOT_SUBSCRIBED:
            found.synced[node.node.id, node.group, alias] = lead.state is Sync.SYNCED


def _tracks(node: NodeTrack) -> list[TypeTrack]:
    return [track for stream in list(node.streams.values()) for track in list(stream.types.values())]


def _pending_since(tracks: list[TypeTrack]) -> list[float]:
    return [track.since for track in tracks if track.state is Sync.PENDING] or [float("inf")]

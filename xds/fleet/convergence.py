"""How far one node has come with a push. Judged by content: a version_info may repeat.

What was made of a pushed set for the nodes of a locality, or for clients of another API, stands for that set.

The fleet in numbers, counted in one pass when somebody asks.

May be called from another thread than the one that folds: it reads copies of what grows and shrinks, so that what
changes meanwhile is counted as it was or as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from xds.fleet.partial_sets import stands_for
from xds.fleet.records import (
    NodeRecord,
    StreamRecord,
    TypeRecord,
    by_alias,
    worst,
)
from xds.fleet.state import Sync
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet


class NodeProgress:
    """The worst state over all streams and pushed types, and what to show for it."""

    __slots__ = ("last_ack", "nacks", "state")

    def __init__(self) -> None:
        self.state = Sync.NOT_SUBSCRIBED
        self.nacks: list[int] = []
        self.last_ack = 0.0

    def add(self, track: TypeRecord, target: ResourceSet) -> None:
        """Take one type of one stream into account."""
        state = progress(track, target)
        if state is Sync.NACKED:
            self.state = Sync.NACKED
            self.nacks += (refusal.record.id for refusal in track.refusals if refusal.concerns(target))
        elif state is Sync.PENDING and self.state is not Sync.NACKED:
            self.state = Sync.PENDING
        elif state is Sync.SYNCED:
            self.last_ack = max(self.last_ack, track.since)
            if self.state is Sync.NOT_SUBSCRIBED:
                self.state = Sync.SYNCED


def node_progress(
    node: NodeRecord, targets: Mapping[str, ResourceSet], variants: Mapping[str, Mapping[str, ResourceSet]]
) -> NodeProgress:
    """Where a connected node stands with ``targets``, the pushed sets by type URL.

    ``variants`` are the sets that streams of another API get instead, by API.
    """
    found = NodeProgress()
    for stream in list(node.streams.values()):
        for type_url, target in variants.get(stream.api, targets).items():
            track = stream.types.get(type_url)
            if track is not None:
                found.add(track, target)
    return found


def type_progress(
    node: NodeRecord, targets: Mapping[str, ResourceSet], variants: Mapping[str, Mapping[str, ResourceSet]]
) -> dict[str, Sync]:
    """Where a connected node stands with each pushed type, by alias; the worst of its streams."""
    found = {alias_of(type_url): NodeProgress() for type_url in targets}
    for stream in list(node.streams.values()):
        for type_url, target in variants.get(stream.api, targets).items():
            track, progressed = stream.types.get(type_url), found.get(alias_of(type_url))
            if track is not None and progressed is not None:
                progressed.add(track, target)
    return {alias: each.state for alias, each in found.items()}


def progress(track: TypeRecord, target: ResourceSet) -> Sync:
    """Where one type on one stream stands with the set that was pushed."""
    if track.state is Sync.NOT_SUBSCRIBED:
        return Sync.NOT_SUBSCRIBED
    if track.state is Sync.NACKED:
        # A refusal of what came before this push says nothing about it: the new offer may be on its way.
        return Sync.NACKED if any(refusal.concerns(target) for refusal in track.refusals) else Sync.PENDING
    if track.state is Sync.SYNCED and track.acked is not None and same(track.acked, target):
        return Sync.SYNCED
    return Sync.PENDING


def same(one: ResourceSet, other: ResourceSet) -> bool:
    """True when ``one`` has the content of ``other``, or that under an overlay: then what was pushed has arrived.

    What lingers besides does not matter.
    """
    one = stands_for(one)
    return one is other or one.origin_id == other.origin_id or one.digest == other.digest


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
    nodes: Collection[NodeRecord],
    streams: Collection[StreamRecord],
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


def _count_node(found: Census, node: NodeRecord, stale_before: float, detailed: int) -> None:
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


def _tracks(node: NodeRecord) -> list[TypeRecord]:
    return [track for stream in list(node.streams.values()) for track in list(stream.types.values())]


def _pending_since(tracks: list[TypeRecord]) -> list[float]:
    return [track.since for track in tracks if track.state is Sync.PENDING] or [float("inf")]

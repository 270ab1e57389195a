"""How far one node has come with a push. Judged by content: a version_info may repeat.

What was made of a pushed set for the nodes of a locality, or for clients of another API, stands for that set.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.fleet.mixed import stands_for
from xds.fleet.state import Sync
from xds.fleet.track import NodeTrack, TypeTrack
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet


class NodeProgress:
    """The worst state over all streams and pushed types, and what to show for it."""

    __slots__ = ("last_ack", "nacks", "state")

    def __init__(self) -> None:
        self.state = Sync.NOT_SUBSCRIBED
        self.nacks: list[int] = []
        self.last_ack = 0.0

    def add(self, track: TypeTrack, target: ResourceSet) -> None:
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
    node: NodeTrack, targets: Mapping[str, ResourceSet], variants: Mapping[str, Mapping[str, ResourceSet]]
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
    node: NodeTrack, targets: Mapping[str, ResourceSet], variants: Mapping[str, Mapping[str, ResourceSet]]
) -> dict[str, Sync]:
    """Where a connected node stands with each pushed type, by alias; the worst of its streams."""
    found = {alias_of(type_url): NodeProgress() for type_url in targets}
    for stream in list(node.streams.values()):
        for type_url, target in variants.get(stream.api, targets).items():
            track, progressed = stream.types.get(type_url), found.get(alias_of(type_url))
            if track is not None and progressed is not None:
                progressed.add(track, target)
    return {alias: each.state for alias, each in found.items()}


def progress(track: TypeTrack, target: ResourceSet) -> Sync:
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

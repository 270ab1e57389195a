"""What a connected node has, resource by resource, as far as its answers prove it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xds.fleet.track import TypeTrack
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.subscription import Interest


@dataclass(frozen=True, slots=True)
class Holding:
    """One type on one stream. ``acked`` is what the client took last, ``sent`` what it was sent last."""

    type_url: str
    interest: Interest
    state: str
    acked: ResourceSet | None
    sent: ResourceSet | None

    @property
    def type(self) -> str:
        return alias_of(self.type_url)


def holding(track: TypeTrack) -> Holding:
    """The type's holding, from its track."""
    interest = Interest.of(track.wildcard, track.names)
    return Holding(track.type_url, interest, track.state, track.acked, track.sent)


def holdings(tracks: Iterable[TypeTrack]) -> Iterator[Holding]:
    """Holdings in the order of their types."""
    return map(holding, sorted(tracks, key=lambda track: (alias_of(track.type_url), track.type_url)))

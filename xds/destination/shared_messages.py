"""Messages between two states of a destination, encoded once for all streams that are at the same point."""

from __future__ import annotations

from typing import NamedTuple

from xds.destination.authority import Generation
from xds.destination.endpoint import DestinationState
from xds.destination.update_messages import encode_updates
from xds.destination.updates import updates

KEPT_BYTES = 32 << 20
_ENTRY_BYTES, _REFERENCE_BYTES = 1_024, 8  # of an entry, and of an endpoint in a state that it holds


class _Kept(NamedTuple):
    """The states are held, so that no other objects can have their ids."""

    sent: DestinationState | None
    now: DestinationState
    bodies: list[bytes]
    size_bytes: int


class SharedMessages:
    """The messages that were used last, of ``limit_bytes`` together; the newest are kept whatever their size."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: dict[tuple[Generation, int, int], _Kept] = {}
        self.kept_bytes = 0

    def between(self, sent: DestinationState | None, now: DestinationState, generation: Generation) -> list[bytes]:
        """The messages that lead from one state to the other. Do not change the list."""
        key = generation, id(sent), id(now)
        kept = self._kept.pop(key, None)
        if kept is None:
            bodies = encode_updates(updates(sent, now), generation)
            kept = _Kept(sent, now, bodies, _size(sent, now, bodies))
            self.kept_bytes += kept.size_bytes
        self._kept[key] = kept  # the latest one is the last
        while self.kept_bytes > self._limit_bytes and len(self._kept) > 1:
            self.kept_bytes -= self._kept.pop(next(iter(self._kept))).size_bytes
        return kept.bodies


def _size(sent: DestinationState | None, now: DestinationState, bodies: list[bytes]) -> int:
    references = len(now.endpoints) + (len(sent.endpoints) if sent is not None else 0)
    return sum(map(len, bodies)) + references * _REFERENCE_BYTES + _ENTRY_BYTES

"""Update messages from one state of a destination to another, encoded once for all streams with the same two states."""

from __future__ import annotations

from typing import NamedTuple

from xds.linkerd.core.authority import ProtocolGeneration
from xds.linkerd.core.endpoint import DestinationState
from xds.linkerd.core.update_messages import encode_updates
from xds.linkerd.core.updates import updates

CACHE_BYTES = 32 << 20
_ENTRY_BYTES, _REFERENCE_BYTES = 1_024, 8  # of an entry, and of an endpoint in a state that it holds


class _Entry(NamedTuple):
    """The messages between two states. The references to the states keep their ids unique."""

    sent: DestinationState | None
    now: DestinationState
    bodies: list[bytes]
    size_bytes: int


class SharedMessages:
    """A cache of the messages used last, up to ``limit_bytes``. The newest messages are cached whatever their size."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._entries: dict[tuple[ProtocolGeneration, int, int], _Entry] = {}
        self.cached_bytes = 0

    def between(
        self, sent: DestinationState | None, now: DestinationState, generation: ProtocolGeneration
    ) -> list[bytes]:
        """The messages from one state to the other. Callers must not change the list."""
        key = generation, id(sent), id(now)
        entry = self._entries.pop(key, None)
        if entry is None:
            bodies = encode_updates(updates(sent, now), generation)
            entry = _Entry(sent, now, bodies, _size(sent, now, bodies))
            self.cached_bytes += entry.size_bytes
        self._entries[key] = entry  # the last used entry is at the end
        while self.cached_bytes > self._limit_bytes and len(self._entries) > 1:
            self.cached_bytes -= self._entries.pop(next(iter(self._entries))).size_bytes
        return entry.bodies


def _size(sent: DestinationState | None, now: DestinationState, bodies: list[bytes]) -> int:
    references = len(now.endpoints) + (len(sent.endpoints) if sent is not None else 0)
    return sum(map(len, bodies)) + references * _REFERENCE_BYTES + _ENTRY_BYTES

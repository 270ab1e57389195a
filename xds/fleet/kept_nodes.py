"""Ids of nodes that are kept for a while after they were last seen, in bounded number."""

from __future__ import annotations


class KeptNodes:
    """Node ids with the time at which each was last seen, oldest first. Times are epoch seconds."""

    def __init__(self, kept_s: float, limit: int) -> None:
        self._seen: dict[str, float] = {}
        self._kept_s = kept_s
        self._limit = limit

    def note(self, node_id: str, now: float) -> None:
        """Note that a node was seen now."""
        self._seen.pop(node_id, None)
        self._seen[node_id] = now

    def discard(self, node_id: str) -> None:
        """Remove a node, if it is there."""
        self._seen.pop(node_id, None)

    def take_forgotten(self, now: float) -> list[str]:
        """Remove the nodes that were seen too long ago, and the oldest ones above the limit. Return their ids."""
        forgotten: list[str] = []
        for node_id, seen in self._seen.items():
            if len(self._seen) - len(forgotten) <= self._limit and seen > now - self._kept_s:
                break
            forgotten.append(node_id)
        for node_id in forgotten:
            del self._seen[node_id]
        return forgotten

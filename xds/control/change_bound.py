"""A bound on the rate of changes: what a source may put into the catalog, and how many events it may cause."""

from __future__ import annotations


class ChangeBound:
    """``per_s`` changes a second on average, and ``burst`` at once.

    A change is admitted while anything is left. What it takes beyond that is owed, up to ``burst``, so that one large
    change is admitted as well, and delays those that follow it by a bounded time. Times are in seconds, of any clock
    that only goes forward.
    """

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = max(burst, 1.0)
        self._left = self._burst
        self._at = now

    def admits(self, now: float) -> bool:
        """Whether a change may be made now."""
        self._left = min(self._left + (now - self._at) * self._per_s, self._burst)
        self._at = now
        return self._left > 0

    def spend(self, changes_n: int) -> None:
        """So many changes were made."""
        self._left = max(self._left - max(changes_n, 1), -self._burst)

    def wait_s(self) -> float:
        """How long after the last ``admits`` the next change is admitted."""
        return max(0.0, 1 - self._left) / self._per_s

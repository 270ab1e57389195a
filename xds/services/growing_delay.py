"""The delay before something that failed is tried again."""

from __future__ import annotations

from random import uniform


class GrowingDelay:
    """It doubles each time, up to ``longest_s``, and is random, so that sources do not retry together."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._s = first_s

    def reset(self) -> None:
        """Start again with the first delay, after a success."""
        self._s = self._first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The next delay in seconds: at least what the server asked for, at most the longest."""
        delay_s = self._s * uniform(0.5, 1.0)  # noqa: S311
        self._s = min(self._s * 2, self._longest_s)
        return max(delay_s, min(at_least_s, self._longest_s))

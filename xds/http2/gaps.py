"""The numbers that a client's streams passed over: which they were, as far back as a bound allows."""

from __future__ import annotations

from collections import deque

GAPS = 64  # that are remembered; clients make none, so only one that tests us makes more


class Gaps:
    """Numbers below the last stream's on which no stream was ever opened."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: deque[tuple[int, int]] = deque(maxlen=GAPS)

    def opened(self, last: int, number: int) -> None:
        """A stream was opened as ``number``, the one before it as ``last``."""
        if number > last + 2:
            self._gaps.append((last, number))

    def __contains__(self, number: int) -> bool:
        return any(last < number < following for last, following in self._gaps)

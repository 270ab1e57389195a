"""The interval that clients are asked for: longer while reading their reports takes too much of a core. Pure."""

from __future__ import annotations

from typing import NamedTuple

WORK_SHARE = 0.3  # of a core, for reading reports
RETURN_SHARE = 0.2  # to this much at most, before the interval is shortened again: it would be exceeded at once else
STEP = 2.0  # the interval is doubled and halved: each change reconnects the clients that read one response only
MEASURED_INTERVALS = 2.0  # over so many intervals work is measured, so that all clients follow a change before the next
MEASURED_MINIMUM_S = 20.0


class IntervalChange(NamedTuple):
    """Clients are asked for another interval. ``share``: of a core, at the interval ``before_s``."""

    before_s: float
    interval_s: float
    share: float


class ReportInterval:
    """``interval_s`` is between what the operator set, ``set_s``, and ``longest_s``; the same turns lengthening off.

    ``share`` is the share of a core that reading took when it was last measured.
    """

    __slots__ = ("_begun_at", "_work_s", "interval_s", "longest_s", "set_s", "share")

    def __init__(self, set_s: float, longest_s: float) -> None:
        self.set_s = set_s
        self.longest_s = max(set_s, longest_s)
        self.interval_s = set_s
        self.share = 0.0
        self._begun_at: float | None = None
        self._work_s = 0.0

    @property
    def is_longer(self) -> bool:
        """Whether clients are asked for a longer interval than was set."""
        return self.interval_s > self.set_s

    def add(self, work_s: float, now: float) -> IntervalChange | None:
        """Reading a report took so many seconds of CPU, and ended at ``now``."""
        if self._begun_at is None:
            self._begun_at = now
        self._work_s += work_s
        lasted_s = now - self._begun_at
        if lasted_s < max(MEASURED_MINIMUM_S, MEASURED_INTERVALS * self.interval_s):
            return None
        self.share, self._begun_at, self._work_s = self._work_s / lasted_s, now, 0.0
        before_s, self.interval_s = self.interval_s, self._next_s()
        return IntervalChange(before_s, self.interval_s, self.share) if self.interval_s != before_s else None

    def _next_s(self) -> float:
        """Reports cost in proportion to how many come: half as much at twice the interval."""
        if self.share > WORK_SHARE:
            return min(self.longest_s, self.interval_s * STEP)
        shorter_s = max(self.set_s, self.interval_s / STEP)
        if self.share * self.interval_s / shorter_s <= RETURN_SHARE:
            return shorter_s
        return self.interval_s

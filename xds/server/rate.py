"""A request rate limit with bursts, in one number (GCRA, the leaky bucket as a meter)."""

from __future__ import annotations


class RateLimit:
    """``take(now)`` says how many seconds to wait before the request may be handled; 0 within the limit.

    What is limited may be another thing than requests: a request then takes several ``units``.
    """

    __slots__ = ("_full_at", "_interval_s", "_tolerance_s")

    def __init__(self, per_s: float, burst: float) -> None:
        self._interval_s = 1.0 / per_s
        self._tolerance_s = burst / per_s
        self._full_at = 0.0  # when all taken so far would have come at the plain rate

    def take(self, now: float, units: float = 1.0) -> float:
        self._full_at = max(self._full_at, now) + units * self._interval_s
        return max(0.0, self._full_at - now - self._tolerance_s)

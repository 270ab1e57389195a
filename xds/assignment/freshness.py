"""The demand of a source, estimated from its load reports, and how far the reports can be relied on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import fmean

from xds.assignment.assignment import UNKNOWN_VARIATION, Demand, Reason, ReasonCode, SourceMemory
from xds.assignment.capacity import smooth
from xds.assignment.policy import Policy
from xds.assignment.trend import TREND_FIGURES, extrapolate, slope

# Weights of a new figure after one interval. A rise counts almost at once: demand that is underestimated overloads a
# zone. A fall counts slowly: demand that is overestimated only leaves some requests in another zone for a while. So
# noise makes the estimate a little high, which is the safe side.
RISE_WEIGHT, FALL_WEIGHT = 0.8, 0.15
VARIATION_WEIGHT = 0.1
_MEAN_FIGURES = 6  # of which the mean is taken where everything is full: a minute
# A change is a jump where it is more than so many times the usual one, and than this part of demand. A rise that is a
# jump counts whole: it is no noise. As noise, a jump counts no more than this.
_JUMP, _LEAST_JUMP = 5.0, 0.02
_AN_INTERVAL = 0.9  # a timer may fire a little early


class Freshness(StrEnum):
    """How old the reports of a source are.

    ``FRESH``: the source is decided again. ``STALE``: its assignment is held. ``LOST``: stale for longer than
    ``fallback_after_s``. ``NEVER``: no node of the source ever reported.
    """

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class DemandEstimate:
    """The demand of one source. ``memory`` is stored for the next decision; None where nothing is known."""

    freshness: Freshness
    memory: SourceMemory | None
    reasons: tuple[Reason, ...] = ()

    @property
    def demand_rps(self) -> float:
        """Smoothed demand in requests a second: the last estimate while reports are stale, 0 once they are lost."""
        if self.memory is None or self.freshness not in {Freshness.FRESH, Freshness.STALE}:
            return 0.0
        return self.memory.demand_rps

    @property
    def mean_rps(self) -> float:
        """The mean of the latest figures since demand last jumped; ``demand_rps`` where it follows a trend.

        ``demand_rps`` is mostly above it: noise makes the smoothed figure too high.
        """
        if self.memory is None or not self.memory.recent_rps or slope(self.memory.recent_rps):
            return self.demand_rps
        newest = self.memory.recent_rps[-1]
        figures: list[float] = []
        for rps in reversed(self.memory.recent_rps[-_MEAN_FIGURES:]):
            if abs(rps - newest) > _jump(self.memory) * newest:
                break
            figures.append(rps)
        return fmean(figures)


def estimate_demand(
    policy: Policy, demand: Demand, memory: SourceMemory | None, intervals: float, now: float
) -> DemandEstimate:
    """The demand of one source at ``now``, ``intervals`` policy intervals after the estimate in ``memory``."""
    is_valid = isfinite(demand.rps) and demand.rps >= 0
    if demand.reported_at is None or now - demand.reported_at > policy.stale_after_s or not is_valid:
        return _without_report(policy, demand, memory, is_valid, now)
    recent_rps = _recent(policy, demand, memory, intervals, now)
    demand_rps = extrapolate(_smoothed_rps(policy, demand, memory, intervals, now), recent_rps)
    variation = _variation(demand.rps, memory, intervals, slope(recent_rps))
    return DemandEstimate(
        Freshness.FRESH, SourceMemory(demand_rps, demand.reported_at, demand.rps, variation, recent_rps)
    )


def _recent(
    policy: Policy, demand: Demand, memory: SourceMemory | None, intervals: float, now: float
) -> tuple[float, ...]:
    """The latest figures, one an interval; a decision between two intervals adds none."""
    if memory is None or _is_forgotten(policy, memory, now):
        return (demand.rps,)
    if intervals < _AN_INTERVAL and memory.recent_rps:
        return memory.recent_rps
    return (*memory.recent_rps, demand.rps)[-TREND_FIGURES:]


def _is_forgotten(policy: Policy, memory: SourceMemory, now: float) -> bool:
    """Whether the reports paused for so long that the figures before tell nothing."""
    return now - memory.heard_at > policy.stale_after_s + policy.interval_s


def _variation(rps: float, memory: SourceMemory | None, intervals: float, trend_rps: float) -> float:
    """The mean change between two reports, besides what the trend explains, as a fraction."""
    if memory is None or max(rps, memory.measured_rps) <= 0:
        return UNKNOWN_VARIATION
    change = abs(rps - memory.measured_rps - trend_rps) / max(rps, memory.measured_rps)
    return smooth(memory.variation, min(change, _jump(memory)), VARIATION_WEIGHT, intervals)


def _jump(memory: SourceMemory) -> float:
    """From which change on demand has jumped, as a fraction."""
    return max(_JUMP * memory.variation, _LEAST_JUMP)


def _smoothed_rps(policy: Policy, demand: Demand, memory: SourceMemory | None, intervals: float, now: float) -> float:
    if memory is None or _is_forgotten(policy, memory, now):
        return demand.rps
    weight = RISE_WEIGHT if demand.rps > memory.demand_rps else FALL_WEIGHT
    if demand.rps - memory.demand_rps > _jump(memory) * demand.rps:
        weight = 1.0
    return smooth(memory.demand_rps, demand.rps, weight, intervals)


def _without_report(
    policy: Policy, demand: Demand, memory: SourceMemory | None, is_valid: bool, now: float
) -> DemandEstimate:
    reasons = (
        [] if is_valid else [Reason(ReasonCode.FIGURE_REFUSED, f"{demand.rps:g} requests/s is not a valid demand")]
    )
    if memory is None:
        detail = "no node of it has reported yet: the pushed weights apply"
        return DemandEstimate(Freshness.NEVER, None, (*reasons, Reason(ReasonCode.NEVER_REPORTED, detail)))
    age_s = now - memory.heard_at
    if age_s > policy.fallback_after_s:
        detail = f"no report for {age_s:.0f} s, more than {policy.fallback_after_s:g} s: the pushed weights apply"
        return DemandEstimate(Freshness.LOST, memory, (*reasons, Reason(ReasonCode.FALLBACK, detail)))
    detail = f"no report for {age_s:.0f} s: the last decision is held"
    return DemandEstimate(Freshness.STALE, memory, (*reasons, Reason(ReasonCode.STALE, detail)))

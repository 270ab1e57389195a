"""Estimates the demand of a source from its load reports, and how fresh these reports are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import fmean

from xds.steering.core.assignment import UNKNOWN_VARIATION, Demand, Reason, ReasonCode, SourceMemory
from xds.steering.core.capacity import smooth
from xds.steering.core.policy import Policy
from xds.steering.core.trend import TREND_FIGURES, extrapolate, slope

# Weights of a new figure after one interval. A rise counts almost at once: underestimated demand overloads a zone. A
# fall counts slowly: overestimated demand only leaves some requests in another zone for a while. Noise therefore makes
# the estimate a little high, which is the safe side.
RISE_WEIGHT, FALL_WEIGHT = 0.8, 0.15
VARIATION_WEIGHT = 0.1
_MEAN_FIGURES = 6  # the mean of these figures, a minute, is used while everything is full
# A change is a jump if it is more than this multiple of the usual change, and more than this part of demand. A rise
# that is a jump counts whole, because it is no noise. In the variation, a jump counts no more than this limit.
_JUMP, _LEAST_JUMP = 5.0, 0.02
_NEARLY_AN_INTERVAL = 0.9  # of an interval: a timer may fire a little early


class Freshness(StrEnum):
    """How old the reports of a source are.

    ``FRESH``: a new assignment is decided. ``STALE``: the last assignment is held. ``LOST``: stale for longer than
    ``fallback_after_s``. ``NEVER``: no node of the source ever reported.
    """

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class DemandEstimate:
    """The demand of one source. ``memory`` is stored for the next decision; None if no report is known."""

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
        """The mean of the latest figures since demand last jumped; ``demand_rps`` while demand follows a trend.

        ``demand_rps`` is mostly above the mean: noise makes the smoothed figure too high.
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
    recent_rps = _recent_figures(policy, demand, memory, intervals, now)
    demand_rps = extrapolate(_smoothed_rps(policy, demand, memory, intervals, now), recent_rps)
    variation = _variation(demand.rps, memory, intervals, slope(recent_rps))
    return DemandEstimate(
        Freshness.FRESH, SourceMemory(demand_rps, demand.reported_at, demand.rps, variation, recent_rps)
    )


def _recent_figures(
    policy: Policy, demand: Demand, memory: SourceMemory | None, intervals: float, now: float
) -> tuple[float, ...]:
    """The latest figures, one an interval; a decision between two intervals adds none."""
    if memory is None or _is_forgotten(policy, memory, now):
        return (demand.rps,)
    if intervals < _NEARLY_AN_INTERVAL and memory.recent_rps:
        return memory.recent_rps
    return (*memory.recent_rps, demand.rps)[-TREND_FIGURES:]


def _is_forgotten(policy: Policy, memory: SourceMemory, now: float) -> bool:
    """Whether the reports paused for so long that the earlier figures no longer count."""
    return now - memory.heard_at > policy.stale_after_s + policy.interval_s


def _variation(rps: float, memory: SourceMemory | None, intervals: float, trend_rps: float) -> float:
    """The mean change between two reports, without the part that the trend explains, as a fraction."""
    if memory is None or max(rps, memory.measured_rps) <= 0:
        return UNKNOWN_VARIATION
    change = abs(rps - memory.measured_rps - trend_rps) / max(rps, memory.measured_rps)
    return smooth(memory.variation, min(change, _jump(memory)), VARIATION_WEIGHT, intervals)


def _jump(memory: SourceMemory) -> float:
    """The least change that is a jump of demand, as a fraction."""
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

"""What is known of a source's demand: fresh, stale, lost or never heard of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from xds.assignment.assignment import (
    Code,
    Demand,
    Reason,
    SourceMemory,
)
from xds.assignment.capacity import smoothed
from xds.assignment.policy import Policy

# How much of a new figure counts after one interval. A rise counts nearly at once: unseen, it overloads a zone. A fall
# counts slowly: unseen, it only leaves some requests in another zone for a while. So noise reads a little high, which
# is the safe side.
RISE, FALL = 0.8, 0.15


class Hearing(StrEnum):
    """``FRESH``: figures to decide by. ``STALE``: hold. ``LOST``: held for too long. ``NEVER``: nothing to hold."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Heard:
    """``memory`` is what to remember of the source; None: nothing."""

    hearing: Hearing
    memory: SourceMemory | None
    reasons: tuple[Reason, ...] = ()

    @property
    def demand_rps(self) -> float:
        """Smoothed demand; the last one known where the reports are stale, 0 where they are lost."""
        known = self.memory is not None and self.hearing in {Hearing.FRESH, Hearing.STALE}
        return self.memory.demand_rps if known and self.memory else 0.0


def hear(policy: Policy, demand: Demand, memory: SourceMemory | None, intervals: float, now: float) -> Heard:
    """What the figures of one source say, ``intervals`` after they were last looked at."""
    is_figure = isfinite(demand.rps) and demand.rps >= 0
    if demand.reported_at is None or now - demand.reported_at > policy.stale_after_s or not is_figure:
        return _unheard(policy, demand, memory, is_figure, now)
    return Heard(Hearing.FRESH, SourceMemory(_smoothed(policy, demand, memory, intervals, now), demand.reported_at))


def _smoothed(policy: Policy, demand: Demand, memory: SourceMemory | None, intervals: float, now: float) -> float:
    if memory is None or now - memory.heard_at > policy.stale_after_s + policy.interval_s:
        return demand.rps
    weight = RISE if demand.rps > memory.demand_rps else FALL
    return smoothed(memory.demand_rps, demand.rps, weight, intervals)


def _unheard(policy: Policy, demand: Demand, memory: SourceMemory | None, is_figure: bool, now: float) -> Heard:
    refused = () if is_figure else (Reason(Code.FIGURE_REFUSED, f"{demand.rps:g} requests/s is no demand"),)
    if memory is None:
        told = "its nodes never reported: the pushed weights hold"
        return Heard(Hearing.NEVER, None, (*refused, Reason(Code.NEVER_REPORTED, told)))
    age_s = now - memory.heard_at
    if age_s > policy.fallback_after_s:
        told = f"no report for {age_s:.0f} s, more than {policy.fallback_after_s:g} s: the pushed weights hold"
        return Heard(Hearing.LOST, memory, (*refused, Reason(Code.FALLBACK, told)))
    told = f"no report for {age_s:.0f} s: what was decided last is held"
    return Heard(Hearing.STALE, memory, (*refused, Reason(Code.STALE, told)))

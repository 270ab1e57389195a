"""How full each target is, and how the decided shares compare with what really flows.

Figures for people and for metrics: no decision rests on them (`xds.assignment.following` has what decisions compare).
Flows were measured just before the decision, so they follow a change of shares one window later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from xds.assignment.assignment import Assignment, Decision, Observation, Path
from xds.assignment.capacity import UNLIMITED_RPS
from xds.model.node import Locality

# From so much on, a capacity stands for one that is not known yet: a part of `UNLIMITED_RPS` for each endpoint.
_UNKNOWN_RPS = UNLIMITED_RPS / 10


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """One target: what it can serve, what arrives there, and what was decided, in requests a second.

    ``load_rps`` is of all sources. Shares are parts of the requests of all sources, 0 to 1: ``decided_share`` of their
    demand, ``real_share`` of what they sent; None while there is none.
    """

    capacity_rps: float
    load_rps: float
    decided_rps: float
    decided_share: float | None
    real_share: float | None

    @property
    def utilisation(self) -> float | None:
        """Load as a part of capacity; None where the capacity is 0 or not known yet."""
        return self.load_rps / self.capacity_rps if 0 < self.capacity_rps < _UNKNOWN_RPS else None


@dataclass(frozen=True, slots=True)
class PathFigures:
    """One target for one source, in requests a second. Shares are parts of the requests of the source, 0 to 1.

    ``real_rps`` is None where flows were not measured by source, ``real_share`` also where the source sent nothing.
    """

    decided_rps: float
    decided_share: float
    real_rps: float | None = None
    real_share: float | None = None


def target_figures(observed: Observation, decision: Decision) -> dict[Locality, TargetFigures]:
    """Each target of the cluster, in the order of ``observed``."""
    decided: dict[Locality, float] = defaultdict(float)
    for (_, target), path in path_figures(observed, decision.assignment).items():
        decided[target] += path.decided_rps
    wanted, sent = sum(decided.values()), sum(target.load_rps for target in observed.targets.values())
    return {
        name: TargetFigures(
            decision.capacity_rps.get(name, 0.0),
            target.load_rps,
            decided[name],
            decided[name] / wanted if wanted > 0 else None,
            target.load_rps / sent if sent > 0 else None,
        )
        for name, target in observed.targets.items()
    }


def path_figures(observed: Observation, assignment: Assignment) -> dict[Path, PathFigures]:
    """Each source with each target that it is served, or that it sends to."""
    found: dict[Path, PathFigures] = {}
    for source, own in assignment.sources.items():
        shares = own.shares()
        demand = observed.demand.get(source)
        wanted_rps = demand.rps * (1.0 - own.shed) if demand is not None else 0.0
        flowing = _flowing(observed, source)
        sent_rps = sum(flowing.values()) if flowing is not None else 0.0
        for target in dict.fromkeys((*(one.locality for one in own.allotments), *(flowing or ()))):
            share = shares.get(target, 0.0)
            real_rps = flowing.get(target, 0.0) if flowing is not None else None
            real_share = real_rps / sent_rps if real_rps is not None and sent_rps > 0 else None
            found[source, target] = PathFigures(wanted_rps * share, share, real_rps, real_share)
    return found


def _flowing(observed: Observation, source: Locality) -> Mapping[Locality, float] | None:
    """Requests a second to each target that gets some; None where flows are not known by source."""
    if observed.flows is None:
        return None
    rates = observed.flows.rates.get(source, {})
    return {target: rate.rps for target, rate in rates.items() if rate.rps > 0}

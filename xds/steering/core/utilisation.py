"""How full each target is, and how the decided shares compare with the real flows.

These figures are for people and for metrics. No decision uses them (decisions use `xds.steering.core.following`).
Flows were measured just before the decision, so they follow a change of shares one window later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from xds.model.node import Locality
from xds.steering.core.assignment import Assignment, Decision, Observation, Path
from xds.steering.core.capacity import UNLIMITED_RPS

# A capacity from this on is not known yet: it stands for `UNLIMITED_RPS` per healthy endpoint, perhaps scaled.
_UNKNOWN_RPS = UNLIMITED_RPS / 10


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """The capacity, load and decided load of one target, in requests a second.

    ``load_rps`` is the load from all sources. ``decided_share`` is a part of the demand of all sources, ``real_share``
    a part of the requests that they sent, 0 to 1; None without any.
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
    """The figures of each source with each target that is assigned to it, or that it sends to."""
    figures: dict[Path, PathFigures] = {}
    for source, assigned in assignment.sources.items():
        shares = assigned.shares()
        demand = observed.demand.get(source)
        wanted_rps = demand.rps * (1.0 - assigned.shed) if demand is not None else 0.0
        flows = _real_flows(observed, source)
        sent_rps = sum(flows.values()) if flows is not None else 0.0
        for target in dict.fromkeys((*(one.locality for one in assigned.allotments), *(flows or ()))):
            share = shares.get(target, 0.0)
            real_rps = flows.get(target, 0.0) if flows is not None else None
            real_share = real_rps / sent_rps if real_rps is not None and sent_rps > 0 else None
            figures[source, target] = PathFigures(wanted_rps * share, share, real_rps, real_share)
    return figures


def _real_flows(observed: Observation, source: Locality) -> Mapping[Locality, float] | None:
    """The requests a second from a source to each target that gets some; None if flows are not known by source."""
    if observed.flows is None:
        return None
    rates = observed.flows.rates.get(source, {})
    return {target: rate.rps for target, rate in rates.items() if rate.rps > 0}

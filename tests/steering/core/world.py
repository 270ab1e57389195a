"""A world to assign traffic in: localities, their capacity and demand, and the loop over intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xds.model.node import Locality
from xds.steering.core.assignment import (
    Assignment,
    Decision,
    Demand,
    Observation,
    ReasonCode,
    SourceAssignment,
    Standing,
    Target,
)
from xds.steering.core.decide import decide
from xds.steering.core.policy import Policy
from xds.steering.core.policy_document import parse_policy

START = 1_000_000.0
ENDPOINT_RPS = 10.0

A, B, C, US = Locality("eu", "a"), Locality("eu", "b"), Locality("eu", "c"), Locality("us", "a")


def policy(**fields: Any) -> Policy:
    """A policy where every healthy endpoint takes 10 requests a second, unless told otherwise."""
    return parse_policy({"cluster": "web", "capacity": {"rates": [{"per_endpoint_rps": ENDPOINT_RPS}]}, **fields})


def target(endpoints: int, healthy: int | None = None, **fields: Any) -> Target:
    return Target(endpoints, endpoints if healthy is None else healthy, **fields)


@dataclass(slots=True)
class World:
    """What is observed, and what was decided so far. ``demand`` and ``targets`` may be changed between intervals."""

    policy: Policy
    demand: dict[Locality, float]
    targets: dict[Locality, Target]
    silent: set[Locality] = field(default_factory=set)
    now: float = START
    assignment: Assignment | None = None
    decision: Decision | None = None
    heard: dict[Locality, Demand] = field(default_factory=dict)

    def observed(self) -> Observation:
        """What is known now; of silent sources, what they said last."""
        self.heard |= {
            source: Demand(rps, self.now, 1) for source, rps in self.demand.items() if source not in self.silent
        }
        return Observation({source: self.heard.get(source, Demand()) for source in self.demand}, self.targets)

    def step(self, intervals: int = 1) -> Decision:
        """Let intervals go by; the last decision."""
        for _ in range(intervals):
            self.decision = decide(self.policy, self.observed(), self.assignment, self.now)
            self.assignment = self.decision.assignment
            self.now += self.policy.interval_s
        assert self.decision
        return self.decision

    def assigned(self, source: Locality) -> SourceAssignment:
        return self.known().sources[source]

    def known(self) -> Assignment:
        assert self.assignment
        return self.assignment

    def shares(self, source: Locality) -> dict[Locality, float]:
        return self.assigned(source).shares()

    def loads(self, demand: Mapping[Locality, float] | None = None) -> dict[Locality, float]:
        """What every target gets of the demand."""
        total = dict.fromkeys(self.targets, 0.0)
        for source, rps in (demand or self.demand).items():
            for name, share in self.shares(source).items():
                total[name] += rps * share
        return total

    def codes(self, source: Locality) -> set[ReasonCode]:
        """Why the last decision about a source is as it is."""
        assert self.decision
        return {reason.code for one in self.decision.sources if one.source == source for reason in one.reasons}

    def general(self) -> set[ReasonCode]:
        """What the last decision says of the cluster."""
        assert self.decision
        return {reason.code for reason in self.decision.reasons}


def world(demand: Mapping[Locality, float], targets: Mapping[Locality, Target], **fields: Any) -> World:
    return World(policy(**fields), dict(demand), dict(targets))


def pushed_sources(decision: Decision) -> list[Locality]:
    """The sources that are served the pushed weights."""
    return [one.source for one in decision.sources if one.standing is Standing.PUSHED]

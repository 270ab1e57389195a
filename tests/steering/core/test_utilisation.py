"""How full targets are, and decided shares beside real ones."""

from __future__ import annotations

import pytest

from tests.steering.core.world import A, B, C, World, policy, target
from xds.model.node import Locality
from xds.steering.core.assignment import Demand, FlowRate, Observation, ObservedFlows, Target
from xds.steering.core.decide import decide
from xds.steering.core.policy_document import parse_policy
from xds.steering.core.utilisation import path_figures, target_figures

NOW = 1_000_000.0


def observed(flows: dict[Locality, dict[Locality, FlowRate]] | None, **loads: float) -> Observation:
    targets = {A: Target(10, 10, load_rps=loads.get("a", 0.0)), B: Target(10, 5, load_rps=loads.get("b", 0.0))}
    measured = ObservedFlows(NOW - 10, 10.0, flows) if flows is not None else None
    return Observation({A: Demand(90.0, NOW, 1), B: Demand(10.0, NOW, 1)}, targets, measured)


def test_targets_have_load_capacity_and_both_shares() -> None:
    seen = observed({A: {A: FlowRate(30.0), B: FlowRate(50.0)}, B: {B: FlowRate(10.0)}}, a=30.0, b=60.0)
    decision = decide(policy(maximum_step=1.0), seen, None, NOW)
    found = target_figures(seen, decision)
    assert (found[A].capacity_rps, found[A].load_rps, found[B].capacity_rps) == (100.0, 30.0, 50.0)
    assert found[A].utilisation == pytest.approx(0.3)
    assert found[B].utilisation == pytest.approx(1.2)
    assert found[A].real_share == pytest.approx(1 / 3)
    assert found[A].decided_share == pytest.approx(0.9), "all of both zones' requests stay at home"
    assert (found[A].decided_rps, found[B].decided_rps) == (90.0, 10.0)


def test_paths_have_the_share_of_the_source() -> None:
    seen = observed({A: {A: FlowRate(30.0), C: FlowRate(50.0)}}, a=30.0)
    decision = decide(policy(maximum_step=1.0), seen, None, NOW)
    found = path_figures(seen, decision.assignment)
    assert found[A, A].decided_share == 1.0
    assert found[A, A].real_share == pytest.approx(0.375)
    assert (found[A, C].decided_rps, found[A, C].real_rps) == (0.0, 50.0), "where it was not to go"
    assert (found[A, B].decided_share, found[A, B].real_share) == (0.0, 0.0), "failover"
    assert (found[B, B].real_rps, found[B, B].real_share) == (0.0, None), "it sent nothing"


def test_an_unknown_utilisation_is_none() -> None:
    metric = parse_policy({"cluster": "web", "capacity": {"metric": {"name": "cpu_utilization", "target": 0.5}}})
    seen = observed(None)
    decision = decide(metric, seen, None, NOW)
    found = target_figures(seen, decision)
    assert found[A].utilisation is None, "the metric has not been measured yet"
    assert found[A].real_share is None, "nothing arrives"
    assert path_figures(seen, decision.assignment)[A, A].real_rps is None


def test_a_target_without_capacity_has_no_utilisation() -> None:
    world = World(policy(), {A: 5.0}, {A: target(2, healthy=0), B: target(2)})
    decision = world.step()
    assert target_figures(world.observed(), decision)[A].utilisation is None

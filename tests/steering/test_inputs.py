"""The inputs of a decision."""

from __future__ import annotations

import pytest

from tests.steering.assigned import A, B
from xds.fleet.senders import Reporting
from xds.lrs.figures import ClusterDemand as Reported
from xds.lrs.figures import Flow, SourceDemand
from xds.model.load_report import Metric
from xds.model.node import Locality
from xds.steering.core.assignment import (
    Assignment,
    AssignmentMemory,
    Demand,
    SourceMemory,
    Target,
)
from xds.steering.core.load_assignment import PushedLocality
from xds.steering.inputs import SOURCES_LIMIT, bounded, observe

C = Locality("r", "zc")
PUSHED = {A: PushedLocality(3, 2, 0, 5), B: PushedLocality(1, 1, 1, None)}


def reported(*sources: SourceDemand, flows: tuple[Flow, ...] = ()) -> Reported:
    return Reported("web", 10.0, 100.0, sources, flows)


def test_sources_are_reporting_connected_and_recently_connected_localities() -> None:
    memory = AssignmentMemory(90.0, {C: SourceMemory(5.0, 95.0), Locality("gone"): SourceMemory(5.0, 80.0)})
    found = observe(
        reported(SourceDemand(A, 9.0, 0, 0, 1, 2, 99.0, 9.0)),
        {B: Reporting()},
        PUSHED,
        Assignment({}, memory),
        90.0,
        100.0,
    )
    assert found.demand == {A: Demand(9.0, 99.0, 2), B: Demand(), C: Demand()}


def test_drops_are_demand_and_nodes_that_do_not_report_scale_it() -> None:
    """6 of 8 nodes report 50 requests/s and as many drops; the flows are scaled alike."""
    own = SourceDemand(A, 50.0, 25.0, 50.0, 1, 6, 99.0, attempted_ps=100.0, repeats_ps=9.0)
    flow = Flow(A, B, 60.0, 30.0, 0, unissued_ps=24.0)
    found = observe(reported(own, flows=(flow,)), {A: Reporting(6, 2)}, PUSHED, None, 0.0, 100.0)
    demand = found.demand[A]
    assert (demand.reported_at, demand.nodes, demand.silent) == (99.0, 6, 2)
    assert [demand.rps, demand.dropped_rps, demand.repeats_rps] == pytest.approx([400 / 3, 200 / 3, 12.0])
    assert found.targets[B].load_rps == pytest.approx(80.0)
    assert found.flows is not None
    rate = found.flows.rates[A][B]
    assert [rate.rps, rate.errors_ps] == pytest.approx([80.0, 8.0]), "drops that count as errors are none"


def test_drops_of_one_target_are_errors_of_no_other_one() -> None:
    """``max_requests`` counts the drops at B as errors too; connections to A fail. Half of the nodes are silent."""
    own = SourceDemand(A, 100.0, 40.0, 30.0, 0, 4, 99.0, attempted_ps=140.0)
    flows = (Flow(A, B, 50.0, 30.0, 0, unissued_ps=30.0), Flow(A, A, 50.0, 10.0, 0, unissued_ps=10.0))
    found = observe(reported(own, flows=flows), {A: Reporting(4, 4)}, PUSHED, None, 0.0, 100.0)
    assert found.flows is not None
    rates = found.flows.rates[A]
    # Reports do not tell the errors apart: the drops are shared out by the errors that were not issued.
    assert rates[B].errors_ps == pytest.approx(2 * 30 * (1 - 30 / 40))
    assert rates[A].errors_ps == pytest.approx(2 * 10 * (1 - 30 / 40))


def test_no_more_than_half_of_the_nodes_are_made_up() -> None:
    own = SourceDemand(A, 50.0, 0, 0, 1, 1, 99.0, 50.0)
    found = observe(reported(own), {A: Reporting(1, 9)}, PUSHED, None, 0.0, 100.0)
    assert found.demand[A].rps == 100.0


def test_a_node_that_has_had_a_load_stream_for_long_says_zero_by_saying_nothing() -> None:
    """A node with an open load stream that says nothing has no requests."""
    found = observe(reported(), {A: Reporting(2, 0, settled=1), B: Reporting(1)}, PUSHED, None, 0.0, 100.0)
    assert found.demand == {A: Demand(0.0, 100.0, 2), B: Demand(0.0, None, 1)}


def test_nodes_that_never_reported_differ_from_those_that_did() -> None:
    found = observe(reported(SourceDemand(A, 0.0, 0, 0, 0, 0, 0)), {}, PUSHED, None, 0.0, 100.0)
    assert found.demand[A].reported_at is None


def test_targets_are_the_pushed_localities_with_their_measurements() -> None:
    level = {"cpu_utilization": Metric(10, 5.0)}
    other = {"cpu_utilization": Metric(30, 27.0), "unused": Metric(0, 0.0)}
    flows = (Flow(A, A, 7.0, 0, 0, level), Flow(B, A, 3.0, 0, 0, other), Flow(A, C, 1.0, 0, 0))
    found = observe(reported(flows=flows), {}, PUSHED, None, 0.0, 100.0)
    assert found.targets == {
        A: Target(3, 2, 0, 5, 10.0, {"cpu_utilization": 0.8}),
        B: Target(1, 1, 1, None, 0.0, {}),
    }


def test_zones_stand_for_their_sub_zones_where_there_are_too_many() -> None:
    demand = {Locality("r", f"z{number % 2}", str(number)): Demand(1.0, float(number), 1) for number in range(100)}
    found = bounded(demand)
    assert found == {
        Locality("r", "z0"): Demand(50.0, 98.0, 50),
        Locality("r", "z1"): Demand(50.0, 99.0, 50),
    }


def test_of_too_many_zones_those_with_most_demand_are_taken() -> None:
    demand = {Locality("r", f"z{number:03}"): Demand(float(number)) for number in range(SOURCES_LIMIT + 10)}
    found = bounded(demand)
    assert len(found) == SOURCES_LIMIT
    assert Locality("r", "z009") not in found
    assert Locality("r", "z010") in found

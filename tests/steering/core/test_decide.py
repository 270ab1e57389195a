"""How traffic is assigned: named cases of strategies, faults, missing reports and odd input."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest

from tests.steering.core.world import (
    START,
    US,
    A,
    B,
    C,
    World,
    policy,
    pushed_sources,
    target,
    world,
)
from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.steering.core.assignment import (
    Allotment,
    Demand,
    Observation,
    ReasonCode,
    Standing,
)
from xds.steering.core.assignment_document import assignment_document, read_assignment
from xds.steering.core.capacity import LONGEST_WAIT
from xds.steering.core.decide import decide
from xds.steering.core.policy import Policy

THREE = {A: target(10), B: target(10), US: target(20)}


def _settled(own: World, intervals: int = 8) -> World:
    own.step(intervals)
    return own


# Strategies


def test_a_zone_keeps_its_own_traffic_while_it_has_room() -> None:
    own = _settled(world({A: 80, B: 20}, THREE))
    assert own.shares(A) == {A: 1.0}
    assert own.shares(B) == {B: 1.0}


def test_a_full_zone_spills_to_its_region_before_others() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    assert own.shares(A) == {A: pytest.approx(95 / 150, abs=0.02), B: pytest.approx(55 / 150, abs=0.02)}


def test_a_full_region_spills_to_others() -> None:
    own = _settled(world({A: 250, B: 20}, THREE))
    loads = own.loads()
    assert loads[A] <= 100.5 and loads[B] <= 100.5
    assert loads[US] == pytest.approx(80, abs=2)
    assert own.shares(B) == {B: 1.0}, "a target's own zone comes before those who spill into it"


def test_two_sources_that_spill_share_the_room_in_proportion() -> None:
    own = _settled(world({A: 200, B: 300, C: 0}, {A: target(10), B: target(10), C: target(10), US: target(100)}))
    into_c = {source: own.demand[source] * own.shares(source)[C] for source in (A, B)}
    assert into_c[A] + into_c[B] == pytest.approx(95, abs=2)
    assert into_c[B] / into_c[A] == pytest.approx(205 / 105, rel=0.05)


def test_waterfall_by_region_loads_zones_alike_and_lets_few_requests_leave_their_zone() -> None:
    own = _settled(world({A: 90, B: 30}, THREE, strategy="waterfall_by_region"))
    assert own.loads() == {A: pytest.approx(60, abs=1), B: pytest.approx(60, abs=1), US: 0}
    assert own.shares(B) == {B: 1.0}


def test_spray_to_region_uses_all_zones_of_the_region_by_capacity() -> None:
    own = _settled(world({A: 90}, {A: target(10), B: target(30), US: target(20)}, strategy="spray_to_region"))
    assert own.shares(A) == {A: 0.25, B: 0.75}
    own.demand[A] = 500
    own.step(8)
    assert 100 <= own.loads()[US] <= 121


def test_spray_to_world_uses_everything_by_capacity() -> None:
    own = _settled(world({A: 10, B: 70}, THREE, strategy="spray_to_world"))
    assert own.shares(A) == own.shares(B) == {A: 0.25, B: 0.25, US: 0.5}


def test_preferred_localities_are_filled_first_however_far() -> None:
    own = _settled(world({A: 300}, {A: target(20), US: target(20)}, preferred=[{"region": "us"}]))
    assert own.loads()[US] == pytest.approx(190, abs=5)
    assert own.loads()[A] == pytest.approx(110, abs=5)


def test_an_order_says_which_region_is_next() -> None:
    asia = Locality("ap", "a")
    order = [{"source": {"region": "eu"}, "targets": [{"region": "ap"}, {"region": "us"}]}]
    own = _settled(world({A: 150}, {A: target(10), asia: target(10), US: target(10)}, order=order))
    assert own.shares(A).keys() == {A, asia}
    assert [one[:2] for one in own.assigned(A).allotments] == [(asia, 0), (A, 0), (US, 1)]


def test_a_sub_zone_is_nearer_than_its_zone() -> None:
    rack1, rack2 = Locality("eu", "a", "1"), Locality("eu", "a", "2")
    own = _settled(world({rack1: 150}, {rack1: target(10), rack2: target(10), B: target(10)}))
    assert own.loads() == {rack1: pytest.approx(95, abs=2), rack2: pytest.approx(55, abs=2), B: 0}


def test_capacity_may_be_that_of_a_locality_and_shrinks_with_its_health() -> None:
    own = _settled(world({A: 90}, THREE, capacity={"rates": [{"per_locality_rps": 100}]}))
    assert own.shares(A) == {A: 1.0}
    own.targets[A] = target(10, 5)
    own.step(8)
    assert own.loads()[A] == pytest.approx(47.5, abs=1)


def test_a_locality_without_a_rate_serves_failover_only() -> None:
    rates = [{"localities": {"region": "eu"}, "per_endpoint_rps": 10}]
    own = _settled(world({A: 50}, {B: target(10), US: target(50)}, capacity={"rates": rates}))
    assert own.assigned(A).allotments == (Allotment(B, 0, 10_000), Allotment(US, 1, 10_000))
    assert ReasonCode.CAPACITY_UNKNOWN in own.general()


def test_demand_beyond_all_capacity_stays_at_its_source_and_is_reported() -> None:
    """No request of another zone is placed above a target's own capacity."""
    own = _settled(world({A: 800, B: 60}, THREE))
    assert own.loads() == {
        A: pytest.approx(800 - 40 - 200, rel=0.03),
        B: pytest.approx(100, rel=0.03),
        US: pytest.approx(200, rel=0.03),
    }
    assert own.loads()[B] <= 100 and own.loads()[US] <= 200
    assert own.shares(B) == {B: 1.0}
    assert ReasonCode.OVERLOAD in own.general()


def test_a_source_without_a_zone_of_its_own_overloads_the_nearest_region() -> None:
    own = _settled(world({C: 800}, THREE))
    loads = own.loads()
    assert loads[US] <= 200
    assert loads[A] == pytest.approx(loads[B], rel=0.01)
    assert loads[A] > 280


@pytest.mark.parametrize(("within", "kept"), [("zone", 300), ("region", 200), ("world", 100)])
def test_requests_spill_no_farther_than_the_policy_says(within: str, kept: float) -> None:
    own = _settled(world({A: 300}, THREE, spill={"within": within}))
    assert own.loads()[A] == pytest.approx(kept, abs=7)
    others = {one.locality for one in own.assigned(A).allotments}
    assert others == {A, B, US}, "all are still there when everything else fails"


def test_spillover_of_a_zone_is_bounded_by_the_policy() -> None:
    own = _settled(world({A: 300}, THREE, spill={"at_most": 0.3}))
    assert own.shares(A)[A] == pytest.approx(0.7, abs=0.01)
    assert ReasonCode.OVERLOAD in own.general()


def test_a_reach_without_a_living_target_is_ignored() -> None:
    own = _settled(world({A: 50}, {**THREE, A: target(10, 0)}, spill={"within": "zone"}))
    assert sum(own.shares(A).values()) == pytest.approx(1.0)
    assert A not in own.shares(A)


def test_the_surplus_is_shed_at_its_source() -> None:
    own = _settled(world({A: 600, B: 60}, THREE, spill={"within": "region", "shed": True}))
    shed = own.assigned(A).shed
    assert shed == pytest.approx(1 - 140 / 600, abs=0.02)
    assert own.assigned(B).shed == 0.0
    assert ReasonCode.SHEDDING in own.codes(A)
    loads = own.loads({A: 600 * (1 - shed), B: 60})
    assert loads[A] <= 101 and loads[B] <= 101
    own.demand[A] = 50
    own.step(40)
    assert own.assigned(A).shed == 0.0


def test_standby_localities_get_requests_only_when_all_others_are_dead() -> None:
    own = _settled(world({A: 300}, THREE, standby=[{"region": "us"}]))
    assert US not in own.shares(A)
    assert own.assigned(A).allotments[-1] == Allotment(US, 1, 10_000)
    own.targets = {A: target(10, 0), B: target(10, 0), US: target(20)}
    assert _settled(own).shares(A) == {US: 1.0}


def test_a_zone_is_drained_by_hand() -> None:
    scalers = [{"localities": {"zone": "a", "region": "eu"}, "factor": 0.3}]
    own = _settled(world({A: 90}, THREE, capacity_scaler=scalers))
    assert own.loads()[A] == pytest.approx(30, abs=2)
    gone = _settled(world({A: 90}, THREE, capacity_scaler=[{**scalers[0], "factor": 0}]))
    assert A not in gone.shares(A)


def test_capacity_is_used_up_to_the_target_utilisation() -> None:
    own = _settled(world({A: 90}, THREE, target_utilisation=0.5))
    assert own.loads()[A] == pytest.approx(50, abs=3)


def test_weights_of_endpoints_are_capacity() -> None:
    """Two endpoints of the weights 8 and 1: the first gets 8 of 9 requests, and can serve 10 a second."""
    own = _settled(world({A: 90}, {A: target(2, weighed=1.125), B: target(10)}))
    assert own.loads()[A] == pytest.approx(11.25, abs=0.8)


# Capacity learnt from a metric


class Backend:
    """Localities whose CPU grows with load, from an idle base to all of it."""

    def __init__(self, own: World, full_rps: float) -> None:
        self.own, self.full_rps = own, full_rps

    def measure(self) -> None:
        loads = self.own.loads()
        for name, one in list(self.own.targets.items()):
            cpu = min(1.0, 0.05 + 0.95 * loads[name] / self.full_rps)
            metrics = {"cpu_utilization": cpu} if loads[name] else {}
            self.own.targets[name] = target(one.endpoints, one.healthy, load_rps=loads[name], metrics=metrics)


METRIC = {"metric": {"name": "cpu_utilization", "target": 0.8}}


def test_capacity_is_learnt_from_utilisation() -> None:
    own = world({A: 150}, THREE, capacity=METRIC)
    backend = Backend(own, 100)
    for _ in range(40):
        own.step()
        backend.measure()
    assert own.targets[A].metrics["cpu_utilization"] == pytest.approx(0.76, abs=0.05)
    changed = 0
    for _ in range(40):
        changed += own.step().is_changed
        backend.measure()
    assert not changed


def test_before_anything_is_measured_traffic_stays_near() -> None:
    own = _settled(world({A: 10_000}, THREE, capacity=METRIC))
    assert own.shares(A) == {A: 1.0}
    assert ReasonCode.CAPACITY_UNKNOWN in own.general()


@pytest.mark.parametrize("average", [math.nan, math.inf, -0.5])
def test_a_metric_that_is_no_figure_is_refused(average: float) -> None:
    own = world({A: 50}, dict(THREE), capacity=METRIC)
    own.targets[A] = target(10, load_rps=50, metrics={"cpu_utilization": 0.5})
    own.step()
    learnt = own.known().memory.endpoint_rps
    own.targets[A] = target(10, load_rps=50, metrics={"cpu_utilization": average})
    own.step()
    assert ReasonCode.FIGURE_REFUSED in own.general()
    assert own.known().memory.endpoint_rps == learnt


# Stability


def test_demand_above_capacity_moves_within_three_intervals() -> None:
    own = _settled(world({A: 50, B: 20}, THREE))
    own.demand[A] = 180
    own.step(3)
    assert own.loads()[A] <= 100.5
    assert own.loads()[B] == pytest.approx(100, abs=6)


def test_when_the_load_is_gone_traffic_comes_home() -> None:
    own = _settled(world({A: 180, B: 20}, THREE))
    assert own.shares(A)[B] > 0.3
    own.demand[A] = 50
    own.step(15)
    assert own.shares(A) == {A: 1.0}


def test_the_last_of_the_traffic_comes_home_however_little() -> None:
    """What is left is less than the least change; nothing but room at home for all of it says that it may come."""
    own = world({A: 96.5, B: 20}, THREE, dwell_s=0, maximum_step=1.0)
    own.step()
    assert 0 < own.shares(A)[B] < own.policy.minimum_change, "it is all at home already: this says nothing"
    own.demand[A] = 50
    own.step(15)
    assert own.shares(A) == {A: 1.0}


def test_at_the_edge_of_its_capacity_traffic_does_not_go_to_and_fro() -> None:
    own = _settled(world({A: 80, B: 20}, THREE))
    changes = 0
    for wave in range(60):
        own.demand[A] = 104 if wave % 2 else 97
        changes += own.step().is_changed
    assert changes == 1, "spilled once, and what was spilled stays while it would not fit well below the edge"


def test_noise_moves_little_where_everything_is_full() -> None:
    """More demand than all capacity, with 3 % of noise: requests do not go from one full target to another."""
    random = Random(3)
    own = _settled(world({A: 300, B: 120}, THREE))
    changes, loads = 0, []
    for _ in range(360):
        own.demand = {A: 300 * random.gauss(1.0, 0.03), B: 120 * random.gauss(1.0, 0.03)}
        changes += sum(one.is_changed for one in own.step().sources)
        loads.append(own.loads()[US])
        assert own.loads({A: 300, B: 120})[US] <= 200, "but for noise"
    assert changes <= 12, "an hour"
    assert fmean(max(rps - 200, 0.0) for rps in loads) < 200 * 0.005


@pytest.mark.parametrize("seed", range(4))
def test_requests_do_not_leave_a_full_target_for_noise_while_all_are_full(seed: int) -> None:
    """What leaves it would be above capacity elsewhere. Its own zone loses next to nothing by that."""
    random = Random(seed)
    own = _settled(world({A: 300, B: 120}, THREE))
    changes, loads = 0, []
    for _ in range(360):
        own.demand = {A: 300 * random.gauss(1.0, 0.02), B: 120 * random.gauss(1.0, 0.02)}
        changes += own.step().is_changed
        loads.append(own.loads()[US])
    assert changes == 0
    assert fmean(loads) > 194, "of 200: what was wanted at first"
    assert fmean(max(rps - 200, 0.0) for rps in loads) < 200 * 0.001


@pytest.mark.parametrize("demand", [14, 40, 100])
def test_a_small_zone_is_helped_by_a_large_one_that_is_nearly_full(demand: float) -> None:
    """What stays free while everything is full is no more than what fits nowhere, or one percent."""
    own = _settled(world({A: demand, US: 1_975}, {A: target(1), US: target(200)}))
    surplus = max(0.0, demand + 1_975 - 2_010)
    assert own.loads()[A] <= 10.1 + max(2 * surplus, surplus + 20 if surplus else 0)


def test_slow_waves_within_the_band_move_nothing() -> None:
    """The band itself, without smoothing or dwell to help: each crest and trough lasts for two minutes."""
    own = _settled(world({A: 105, B: 20}, THREE, dwell_s=0))
    changes = 0
    for interval in range(96):
        own.demand[A] = 105 if interval // 12 % 2 else 100
        changes += own.step().is_changed
    assert changes == 0
    own.demand[A] = 85
    own.step(16)
    assert own.shares(A) == {A: 1.0}, "beyond the band it does come back"


def test_moved_demand_returns_after_a_delay() -> None:
    own = _settled(world({A: 99, B: 20}, THREE, dwell_s=120))
    own.demand[A] = 140
    own.step(6)
    left = own.now
    own.demand[A] = 40
    while own.shares(A) != {A: 1.0}:
        own.step()
    assert own.now - left >= 120 - 6 * own.policy.interval_s


def test_relief_does_not_wait() -> None:
    own = _settled(world({A: 80, B: 20}, THREE, dwell_s=3_600))
    own.demand[A] = 120
    own.step(3)
    assert own.loads()[A] <= 100.5
    own.demand[A] = 180
    own.step(3)
    assert own.loads()[A] <= 100.5


def test_no_more_than_a_step_moves_in_an_interval() -> None:
    own = world({A: 50}, THREE, maximum_step=0.1)
    own.targets[A] = target(10, pushed_weight=1)
    own.targets[B] = target(10, pushed_weight=1)
    own.targets[US] = target(10, pushed_weight=2)
    seen = [0.25]
    while own.shares(A) != {A: 1.0} if own.assignment else True:
        own.step()
        seen.append(own.shares(A)[A])
        assert len(seen) < 20
    assert all(0 < later - earlier <= 0.1001 for earlier, later in pairwise(seen))
    assert own.assigned(A).standing is Standing.SETTLED


@pytest.mark.parametrize(
    ("rps", "failed_rps", "shed", "standing"),
    [
        (50.0, 0.0, False, Standing.SETTLED),
        (50.0, 2.0, False, Standing.SETTLED),
        (50.0, 30.0, False, Standing.FAILING),
        (800.0, 400.0, False, Standing.FAILING),  # all is full
        (800.0, 400.0, True, Standing.SETTLED),  # and half is to be dropped
        (0.0, 0.0, False, Standing.SETTLED),
    ],
)
def test_a_source_is_not_settled_while_its_requests_fail(
    rps: float, failed_rps: float, shed: bool, standing: Standing
) -> None:
    own = world({A: rps}, THREE, spill={"shed": shed})
    _settled(own, 30)
    demand = {A: Demand(rps, own.now, 1, failed_rps=failed_rps)}
    decision = decide(own.policy, Observation(demand, THREE), own.assignment, own.now)
    assert decision.assignment.sources[A].standing is standing
    assert decision.assignment.sources[A].allotments == own.assigned(A).allotments
    codes = {reason.code for reason in decision.sources[0].reasons}
    assert (ReasonCode.FAILING in codes) == (standing is Standing.FAILING)


def test_a_call_within_the_interval_takes_no_second_step() -> None:
    own = world({A: 50}, THREE)
    own.step()
    again = decide(own.policy, own.observed(), own.assignment, own.now - 9)
    assert again.assignment.sources[A].allotments == own.assigned(A).allotments
    assert again.sources[0].standing is Standing.MOVING


def test_a_call_at_the_same_time_changes_nothing() -> None:
    """So a dry run may ask as often as it likes."""
    own = _settled(world({A: 150, B: 20}, THREE))
    observed = own.observed()
    first = decide(own.policy, observed, own.assignment, own.now)
    second = decide(own.policy, observed, first.assignment, own.now)
    assert second.assignment == first.assignment
    assert not second.is_changed


# Health


def test_a_dead_zone_is_left_at_once() -> None:
    own = _settled(world({A: 70, B: 20}, THREE))
    own.targets[A] = target(10, 0)
    decision = own.step()
    assert own.shares(A) == {B: 1.0}
    assert ReasonCode.NO_HEALTHY_ENDPOINTS in own.codes(A)
    assert decision.is_changed


def test_proxies_find_the_way_out_of_a_dead_zone_by_themselves() -> None:
    """Priorities below the split hold the rest, nearest first, by capacity; what is dead comes last."""
    own = _settled(world({A: 80}, {A: target(10), B: target(10), C: target(30), US: target(20)}))
    assert own.assigned(A).allotments == (
        Allotment(A, 0, 10_000),
        Allotment(B, 1, 2_500),
        Allotment(C, 1, 7_500),
        Allotment(US, 2, 10_000),
    )
    own.targets[B] = target(10, 0)
    own.step()
    assert [one[:2] for one in own.assigned(A).allotments] == [(A, 0), (C, 1), (US, 2), (B, 3)]


def test_the_smallest_locality_of_a_tier_keeps_a_weight() -> None:
    """gRPC leaves localities without one out."""
    own = _settled(world({A: 5}, {A: target(10), B: target(1), C: target(1_000_000)}))
    assert own.assigned(A).allotments[1:] == (Allotment(B, 1, 1), Allotment(C, 1, 10_000))


def test_a_zone_drains_below_its_healthy_fraction_and_is_restored_above_a_higher_one() -> None:
    own = _settled(world({A: 80, B: 20}, THREE))
    for healthy, is_drained in [(3, False), (2, True), (3, True), (4, False), (3, False)]:
        own.targets[A] = target(10, healthy)
        decision = own.step()
        assert (A in decision.assignment.memory.drained) is is_drained, healthy
        assert (decision.capacity_rps[A] == 0) is is_drained, healthy


def test_draining_and_its_end_are_reported_once() -> None:
    own = _settled(world({A: 80, B: 20}, THREE))
    told = []
    for healthy in (2, 2, 10, 10):
        own.targets[A] = target(10, healthy)
        own.step()
        told.append(own.general() & {ReasonCode.DRAINED, ReasonCode.RESTORED})
    assert told == [{ReasonCode.DRAINED}, set(), {ReasonCode.RESTORED}, set()]


def test_health_that_goes_up_and_down_moves_traffic_a_few_times_only() -> None:
    own = _settled(world({A: 70, B: 20}, THREE))
    moved = []
    for interval in range(180):
        own.targets[A] = target(10, 1 if interval // 3 % 2 else 10)
        moved.append(own.step().is_changed)
    assert sum(moved[:30]) > 1, "it does go up and down"
    assert sum(moved[60:]) <= 3
    own.targets[A] = target(10)
    own.step(LONGEST_WAIT * 3 + 8)
    assert own.shares(A) == {A: 1.0}


def test_relapses_are_forgotten_after_a_long_time_of_health() -> None:
    own = _settled(world({A: 70, B: 20}, THREE))
    for healthy in (0, 10, 0, 10, 0, 10):
        own.targets[A] = target(10, healthy)
        own.step()
    assert own.known().memory.lapses[A].times == 3
    own.step(LONGEST_WAIT * 3 * 10)
    assert not own.known().memory.lapses


def test_traffic_comes_back_to_a_restored_zone_step_by_step() -> None:
    own = _settled(world({A: 80, B: 0}, THREE))
    own.targets[A] = target(10, 0)
    own.step(5)
    own.targets[A] = target(10)
    seen = [0.0]
    for _ in range(6):
        own.step()
        seen.append(own.shares(A).get(A, 0.0))
    assert seen[-1] == 1.0
    assert all(later - earlier <= 0.2501 for earlier, later in pairwise(seen))


def test_where_all_are_below_the_healthy_fraction_nothing_is_drained() -> None:
    own = _settled(world({A: 5}, {A: target(10, 1), B: target(10, 2)}))
    assert own.shares(A) == {A: 1.0}
    assert ReasonCode.DRAIN_IGNORED in own.general()


def test_draining_can_be_turned_off() -> None:
    own = _settled(world({A: 5}, {A: target(10, 1), B: target(10)}, drain={"below": 0}))
    assert own.shares(A) == {A: 1.0}


def test_without_healthy_endpoints_anywhere_the_pushed_weights_hold() -> None:
    own = _settled(world({A: 80}, THREE))
    own.targets = {name: target(10, 0) for name in THREE}
    decision = own.step()
    assert pushed_sources(decision) == [A]
    assert ReasonCode.NO_CAPACITY in own.general()
    assert not own.step().is_changed


def test_a_locality_that_is_no_longer_pushed_is_left() -> None:
    own = _settled(world({A: 150, B: 0}, THREE))
    del own.targets[B]
    own.step()
    assert ReasonCode.REMOVED in own.codes(A)
    assert B not in {one.locality for one in own.assigned(A).allotments}


# Reports


def test_with_stale_reports_a_source_is_held_then_falls_back() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    split = own.shares(A)
    own.silent = {A}
    states = []
    for _ in range(35):
        own.demand[A] += 10
        decision = own.step()
        states.append(decision.assignment.sources[A].standing)
        if decision.held:
            assert own.shares(A) == split
    assert states == [Standing.SETTLED] * 3 + [Standing.HELD] * 27 + [Standing.MOVING] + [Standing.PUSHED] * 4
    assert ReasonCode.FALLBACK in own.codes(A)


def test_a_source_that_is_heard_again_is_moved_again() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    own.silent = {A}
    own.step(35)
    own.silent = set()
    own.demand[A] = 50
    own.step(4)
    assert own.shares(A) == {A: 1.0}


def test_a_held_source_still_leaves_the_dead() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    own.silent = {A}
    own.step(5)
    own.targets[A] = target(10, 0)
    own.step()
    assert A not in own.shares(A)
    assert own.assigned(A).standing is Standing.HELD


def test_the_load_of_a_held_source_is_left_its_room() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    own.silent = {A}
    own.step(5)
    own.demand[B] = 100
    own.step(6)
    assert own.loads()[B] <= 101
    assert own.shares(B)[US] > 0.4


def test_a_source_that_never_reported_is_served_the_pushed_weights() -> None:
    own = world({A: 50, B: 20}, THREE)
    own.silent = {B}
    decision = own.step(4)
    assert pushed_sources(decision) == [B]
    assert ReasonCode.NEVER_REPORTED in own.codes(B)
    assert own.shares(A) == {A: 1.0}
    assert not any(one.is_changed for one in decision.sources if one.source == B)


def test_after_a_restart_the_stored_assignment_is_held_until_reports_come() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    stored = read_assignment(assignment_document(own.known()))
    nothing = Observation({A: Demand(), B: Demand()}, own.targets)
    decision = decide(own.policy, nothing, stored, own.now + 40)
    assert decision.held == (A, B)
    assert not decision.is_changed


@pytest.mark.parametrize("rps", [math.nan, math.inf, -1.0])
def test_demand_that_is_no_figure_is_refused_and_counts_as_missing(rps: float) -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    split = own.shares(A)
    own.demand[A] = rps
    own.step(2)
    assert own.shares(A) == split
    assert {ReasonCode.FIGURE_REFUSED, ReasonCode.STALE} <= own.codes(A)


def test_a_source_whose_nodes_are_gone_is_forgotten() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    del own.demand[A]
    own.step()
    assert own.known().sources.keys() == own.known().memory.sources.keys() == {B}


# Odd input


def test_a_source_without_demand_is_placed_where_its_first_request_belongs() -> None:
    own = _settled(world({A: 150, B: 0, US: 0}, THREE))
    assert own.shares(B) == {B: 1.0}
    assert own.shares(US) == {US: 1.0}


def test_without_any_demand_everybody_stays_near() -> None:
    own = _settled(world({A: 0, B: 0}, THREE))
    assert own.shares(A) == {A: 1.0}
    assert own.shares(B) == {B: 1.0}


def test_a_source_in_an_unknown_locality_gets_remaining_capacity() -> None:
    nowhere = Locality()
    own = _settled(world({nowhere: 40, A: 90}, THREE))
    assert own.shares(A) == {A: 1.0}
    assert sum(own.shares(nowhere).values()) == pytest.approx(1.0)
    assert own.loads()[A] <= 100


def test_empty_names_are_names() -> None:
    nowhere, zone = Locality(), Locality("", "a")
    own = _settled(world({nowhere: 50, zone: 50}, {nowhere: target(10), zone: target(10)}))
    assert own.shares(nowhere) == {nowhere: 1.0}
    assert own.shares(zone) == {zone: 1.0}


def test_a_cluster_without_targets() -> None:
    decision = _settled(world({A: 50}, {})).step()
    assert pushed_sources(decision) == [A]
    assert decision.assignment.sources[A].allotments == ()


def test_a_cluster_without_sources() -> None:
    assert world({}, THREE).step().sources == ()


def test_a_rate_of_zero_is_no_capacity() -> None:
    own = _settled(world({A: 50}, THREE, capacity={"rates": [{"per_endpoint_rps": 0}]}))
    assert ReasonCode.NO_CAPACITY in own.general()


def test_counts_of_endpoints_that_cannot_be_are_bounded() -> None:
    own = _settled(world({A: 50}, {A: target(10, 99), B: target(10, -3)}))
    assert own.step().capacity_rps == {A: 100.0, B: 0.0}


def test_decisions_continue_after_the_clock_was_set_back() -> None:
    own = _settled(world({A: 150, B: 20}, THREE))
    own.now = START - 1_000
    own.step(3)
    assert sum(own.shares(A).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("back_s", [15, 10_000])
def test_after_a_clock_that_went_back_decisions_are_as_fast_as_before(back_s: int) -> None:
    """Steps and dwell were measured from a time that had not come yet: nothing moved until it came."""
    own = _settled(world({A: 50, B: 20}, THREE))
    own.demand[A] = 150
    own.step()
    own.now -= back_s
    own.step(6)
    assert own.loads()[A] <= 100
    own.demand[A] = 50
    own.step(20)
    assert own.shares(A) == {A: 1.0}


def test_every_change_has_a_reason_in_words() -> None:
    own = world({A: 50, B: 20}, THREE)
    for rps, healthy in [(50, 10), (180, 10), (180, 10), (180, 0), (50, 10), (50, 10), (50, 10), (50, 10), (50, 10)]:
        own.demand[A] = rps
        own.targets[B] = target(10, healthy)
        for one in own.step().sources:
            assert one.reasons or not one.is_changed
            assert all(reason.detail for reason in one.reasons)


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"sources": [{}], "memory": {}}, {"sources": 3, "memory": {"observed_at": math.nan}}],
)
def test_an_invalid_stored_assignment_is_refused(document: object) -> None:
    with pytest.raises(ValidationError):
        read_assignment(document)


def test_many_localities_share_the_last_tier_of_failover() -> None:
    regions = {Locality(f"r{number:02}", "a"): target(1) for number in range(40)}
    order = [{"targets": [{"region": name.region} for name in regions]}]
    own = _settled(World(policy(order=order), {Locality("r00", "a"): 1.0}, regions))
    priorities = [one.priority for one in own.assigned(Locality("r00", "a")).allotments]
    assert len(priorities) == 40
    assert set(priorities) == set(range(17))


def test_the_policy_of_these_tests_is_the_default_one() -> None:
    assert policy() == Policy("web", policy().capacity)

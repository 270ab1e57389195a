"""Whether the proxies do what was decided: real flows compared with decided shares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.steering.core.world import START, A, B, C, World, policy, target
from xds.model.node import Locality
from xds.steering.core.assignment import (
    Demand,
    FlowRate,
    Observation,
    ObservedFlows,
    ReasonCode,
)
from xds.steering.core.assignment_document import assignment_document, read_assignment
from xds.steering.core.decide import decide
from xds.steering.core.following import PROBE_SHARE_LIMIT

THREE = {A: target(10), B: target(10), C: target(10)}


@dataclass
class Followed:
    """A world whose flows are seen: proxies follow the shares of two intervals ago, except to targets that they left.

    ``left``: by source, the targets that it sends nothing to; ``failing``: the part of requests that targets fail;
    ``frozen``: half of the proxies keep all requests at home; ``late``: by how many intervals more they follow.
    """

    world: World
    left: dict[Locality, set[Locality]] = field(default_factory=dict)
    failing: dict[Locality, float] = field(default_factory=dict)
    frozen: bool = False
    late: int = 0
    history: list[dict[Locality, dict[Locality, float]]] = field(default_factory=list)
    changes: int = 0

    def step(self, intervals: int = 1) -> None:
        for _ in range(intervals):
            self._step()

    def _step(self) -> None:
        own = self.world
        rates = {source: self._rates(source, rps) for source, rps in own.demand.items()} if self.history else {}
        flows = ObservedFlows(own.now - 2 * own.policy.interval_s, own.policy.interval_s, rates)
        demand = {source: Demand(rps, own.now, 1) for source, rps in own.demand.items()}
        observed = Observation(demand, own.targets, flows if rates else None)
        own.decision = decide(own.policy, observed, own.assignment, own.now)
        own.assignment = own.decision.assignment
        self.changes += own.decision.is_changed
        own.now += own.policy.interval_s
        self.history.append({source: own.shares(source) for source in own.demand})

    def _rates(self, source: Locality, rps: float) -> dict[Locality, FlowRate]:
        shares = self.history[-min(2 + self.late, len(self.history))][source]
        left = self.left.get(source, set())
        followed = {name: share for name, share in shares.items() if name not in left} or {
            name: 1.0 for name in self.world.targets if name not in left or len(self.world.targets) == 1
        }  # with nothing else they fail over
        total = sum(followed.values())
        sent = {name: rps * share / total for name, share in followed.items()}
        if self.frozen:
            sent = {name: own / 2 for name, own in sent.items()}
            sent[source] = sent.get(source, 0.0) + rps / 2
        return {name: FlowRate(own, own * self.failing.get(name, 0.0)) for name, own in sent.items()}


def followed(demand: dict[Locality, float], **fields: Any) -> Followed:
    found = Followed(World(policy(**fields), demand, dict(THREE)))
    found.step(12)
    return found


def test_proxies_that_do_what_was_decided_change_nothing() -> None:
    own = followed({A: 150.0, B: 50.0})
    own.changes = 0
    own.step(50)
    assert own.changes == 0
    assert ReasonCode.NOT_FOLLOWED not in own.world.codes(A)


def test_a_target_that_the_proxies_left_has_no_capacity_for_anybody() -> None:
    """The server is not told that a target is dead; it learns so from the flows, in four intervals."""
    own = followed({A: 150.0, B: 20.0})
    assert own.world.shares(A)[B] > 0.1
    own.left = {source: {B} for source in (A, B)}
    own.step(4)
    for source in (A, B):
        assert own.world.shares(source).get(B, 0.0) == 0.0
        assert ReasonCode.NOT_FOLLOWED in own.world.codes(source)
    assert own.world.decision and own.world.decision.capacity_rps[B] == 0.0
    assert own.world.loads()[A] <= 101 and own.world.loads()[C] <= 101


def test_a_target_that_one_source_left_has_capacity_for_the_others() -> None:
    own = followed({A: 150.0, B: 50.0})
    own.left = {A: {B}}
    own.step(4)
    assert B not in own.world.shares(A)
    assert own.world.shares(B) == {B: 1.0}
    assert own.world.decision and own.world.decision.capacity_rps[B] == 100.0


def test_a_returning_target_is_found_by_probes_of_few_requests() -> None:
    """The proxies send nothing to a target that they take for dead, so the share of the probe may stay."""
    own = followed({A: 150.0, B: 50.0})
    own.left = {source: {B} for source in (A, B)}
    own.step(60)
    own.changes, probes = 0, []
    for _ in range(60):
        own.step()
        probes.append(sum(own.world.shares(source).get(B, 0.0) for source in (A, B)))
    assert own.changes == 0
    assert min(probes) > 0
    assert max(probes) <= PROBE_SHARE_LIMIT + 1e-3
    own.left = {}
    own.step(25)
    assert own.world.shares(B) == {B: 1.0}
    assert own.world.loads()[A] <= 101


def test_a_probe_keeps_its_share_while_demand_varies() -> None:
    """With few requests the share of a probe depends on their number: 30 a second need 5 %."""
    random = Random(1)
    own = followed({A: 150.0, B: 30.0})
    own.left = {source: {B} for source in (A, B)}
    own.step(20)
    shares = set()
    for _ in range(60):
        own.world.demand[B] = 30 * random.gauss(1.0, 0.05)
        own.step()
        shares.add(own.world.shares(B).get(B, 0.0))
    assert len(shares) == 1
    assert 0.04 < shares.pop() < 0.06


def test_a_target_that_keeps_failing_is_probed_less_and_less_often() -> None:
    """Each probe costs requests there."""
    own = followed({A: 80.0, B: 50.0}, errors_above=0.2)
    own.failing = {A: 1.0}
    own.step(5)
    probes = []
    for _ in range(60):
        own.step()
        probes.append(sum(own.world.shares(source).get(A, 0.0) for source in (A, B)))
    begun = sum(share > 0 and before == 0 for before, share in pairwise(probes))
    assert 2 <= begun <= 3, "each wait is twice as long as the one before"


def test_probes_are_in_the_history() -> None:
    own = followed({A: 150.0, B: 50.0})
    own.left = {source: {B} for source in (A, B)}
    codes = set()
    for _ in range(20):
        own.step()
        codes |= own.world.codes(A) | own.world.codes(B)
    assert ReasonCode.PROBING in codes
    own.left = {}
    for _ in range(40):
        own.step()
        codes |= own.world.codes(A) | own.world.codes(B)
    assert ReasonCode.FOLLOWED in codes


def test_proxies_with_old_weights_are_no_reason_to_leave_a_target() -> None:
    """Half of the proxies never got the weights: what arrives is half of what was decided."""
    own = followed({A: 150.0, B: 50.0})
    own.frozen = True
    own.step(30)
    assert own.world.shares(A).get(B, 0.0) + own.world.shares(A).get(C, 0.0) > 0.3


@pytest.mark.parametrize("late", [2, 4])
def test_proxies_that_follow_late_are_waited_for(late: int) -> None:
    """An update may take some intervals to reach them: the target of a spill is not dead because of that."""
    own = followed({A: 60.0, B: 50.0})
    own.late = late
    own.world.demand[A] = 160.0
    codes = set()
    for _ in range(40):
        own.step()
        codes |= own.world.codes(A)
    assert ReasonCode.SPILL in codes and ReasonCode.NOT_FOLLOWED not in codes
    assert own.world.loads()[A] <= 101


def test_a_target_that_fails_just_after_its_share_rose_is_left() -> None:
    """What it got before should arrive in any case."""
    own = followed({A: 150.0, B: 20.0})
    own.world.demand[A] = 200.0
    own.step(2)
    own.left = {source: {B} for source in (A, B)}
    own.step(4)
    assert own.world.shares(A).get(B, 0.0) == 0.0


def test_proxies_that_follow_a_probe_late_find_a_target_that_is_back() -> None:
    own = followed({A: 150.0, B: 50.0})
    own.left = {source: {B} for source in (A, B)}
    own.step(5)
    own.left, own.late = {}, 3
    own.step(60)
    assert own.world.shares(B) == {B: 1.0}


@pytest.mark.parametrize(("limit", "leaves"), [(None, False), (0.2, True), (0.5, False)])
def test_a_target_that_fails_too_many_requests_is_left_if_the_policy_says_so(limit: float | None, leaves: bool) -> None:
    own = followed({A: 80.0, B: 50.0}, errors_above=limit)
    own.failing = {A: 0.3}
    own.step(5)
    assert (A not in own.world.shares(A)) is leaves, own.world.shares(A)
    own.failing = {}
    own.step(60)
    assert own.world.shares(A) == {A: 1.0}


def test_a_target_that_all_have_left_is_kept_where_nothing_else_is_left() -> None:
    own = Followed(World(policy(), {A: 80.0}, {A: target(10)}))
    own.step(5)
    own.failing, own.world.policy = {A: 0.9}, replace(own.world.policy, errors_above=0.2)
    own.step(10)
    assert own.world.shares(A) == {A: 1.0}


def test_few_requests_prove_nothing() -> None:
    own = followed({A: 1.0})
    own.left = {A: {A}}
    own.step(20)
    assert own.world.shares(A) == {A: 1.0}, "ten requests in an interval"


def test_measurements_of_targets_survive_a_restart() -> None:
    own = followed({A: 150.0, B: 50.0})
    own.left = {source: {B} for source in (A, B)}
    own.step(5)
    assert own.world.assignment is not None
    assert own.world.assignment.memory.paths
    assert read_assignment(assignment_document(own.world.assignment)) == own.world.assignment


def test_a_document_of_an_earlier_release_is_read() -> None:
    own = followed({A: 150.0})
    assert own.world.assignment is not None
    document = assignment_document(own.world.assignment)
    del document["memory"]["paths"]
    for one in document["sources"]:
        del one["shed"]
    for one in document["memory"]["sources"]:
        del one["variation"], one["measured_rps"]
    found = read_assignment(document)
    assert found.sources == own.world.assignment.sources
    assert own.world.now > START

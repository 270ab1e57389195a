"""The history of decisions: what it records, its bounds, and how it is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.steering.core.world import START, A, B, World, policy, target
from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.steering.core.assignment import Reason, ReasonCode, Standing
from xds.steering.core.decision_history import (
    CHANGED,
    FALLBACK,
    HELD,
    KEPT_LIMIT,
    REASONS_LIMIT,
    SHARES_LIMIT,
    STORED_LIMIT,
    DecisionChange,
    DecisionHistory,
    decision_changes,
    read_history,
)


def stepped(world: World) -> list[DecisionChange]:
    """Let an interval go by; what changed."""
    before = world.assignment
    decision = world.step()
    return decision_changes(before, world.observed(), decision, world.now)


def test_a_change_has_its_time_reasons_and_the_shares_before_and_after() -> None:
    world = World(policy(maximum_step=1.0), {A: 50.0}, {A: target(10), B: target(10)})
    (first,) = stepped(world)
    assert (first.actions, first.before, first.after) == ((CHANGED,), {}, {A: 1.0})
    assert stepped(world) == [], "nothing changed"
    world.demand[A] = 190.0
    (spilt,) = stepped(world)
    assert (spilt.source, spilt.before, spilt.demand_rps) == (A, {A: 1.0}, 190.0)
    assert spilt.after[A] + spilt.after[B] == pytest.approx(1.0)
    assert ReasonCode.SPILL in {reason.code for reason in spilt.reasons}
    assert spilt.decided_at == world.now > START


def test_a_source_that_is_held_and_falls_back_is_in_the_history() -> None:
    own = policy(stale_after_s=30, fallback_after_s=100, maximum_step=1.0)
    world = World(own, {A: 150.0}, {A: target(10), B: target(10)})
    stepped(world)
    world.silent = {A}
    found = [change for _ in range(20) for change in stepped(world)]
    actions = [action for change in found for action in change.actions]
    assert actions[0] == HELD and actions[-1] == FALLBACK
    assert found[-1].standing is Standing.PUSHED


def change(number: int = 0, **fields: Any) -> DecisionChange:
    reasons = (Reason(ReasonCode.SPILL, "full", A),)
    return DecisionChange(START + number, A, (CHANGED,), Standing.MOVING, {A: 1.0}, {A: 0.4, B: 0.6}, reasons, **fields)


def test_it_is_bounded_and_numbers_go_on() -> None:
    history = DecisionHistory()
    history.record(change(number) for number in range(KEPT_LIMIT + 10))
    numbers = [one.number for one in history.latest()]
    assert numbers == list(range(KEPT_LIMIT + 10, 10, -1))
    assert [one.number for one in history.latest(before=12)] == [11]


def test_one_change_is_bounded() -> None:
    zones = {Locality("eu", f"z{number}"): target(1) for number in range(40)}
    world = World(policy(strategy="spray_to_world"), {A: 300.0}, zones)
    (found,) = stepped(world)
    assert len(found.after) == SHARES_LIMIT
    assert len(found.reasons) <= REASONS_LIMIT


def test_the_latest_are_stored_and_read_back() -> None:
    history = DecisionHistory()
    history.record(change(number, shed=0.25, demand_rps=5.0) for number in range(STORED_LIMIT + 5))
    back = read_history(json.loads(json.dumps(history.document())))
    assert list(back.changes) == list(history.changes)[-STORED_LIMIT:]
    back.record([change()])
    assert back.changes[-1].number == STORED_LIMIT + 6


@pytest.mark.parametrize("document", [3, [3], [{}], [{"number": 1, "decided_at": "soon"}]])
def test_another_document_is_refused(document: object) -> None:
    with pytest.raises(ValidationError, match="not a stored history"):
        read_history(document)

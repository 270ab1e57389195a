"""When waves reach a node, and when it goes back."""

from __future__ import annotations

from dataclasses import replace

from tests.rollouts.test_rollout import CONNECTED, GROUP, begun, inside
from xds.model.node import Node
from xds.rollouts.line_changes import KEPT_CHANGES, LineChanges
from xds.rollouts.rollout import Rollout, RolloutState
from xds.rollouts.wave import everybody

Found = list[tuple[float, bool, int, str]]


def noted(*steps: Rollout) -> LineChanges:
    changes = LineChanges()
    for step in steps:
        changes.note(step)
        changes.note(replace(step, reason=step.reason))  # nothing has changed
    return changes


def of(changes: LineChanges, id: str) -> Found:
    return [(each.time_s, each.is_head, each.revision, each.text) for each in changes.of_node(GROUP, Node(id))]


first = begun("1,50%,100%")
(canary,) = inside(first)
other = next(iter(set(CONNECTED) - {canary}))
last = replace(first, wave=2, nodes=everybody(GROUP), since_s=200.0)


def test_each_node_has_the_wave_that_reached_it() -> None:
    promoted = last.end(RolloutState.PROMOTED, "", 300.0)
    changes = noted(first, last, promoted)
    assert of(changes, canary) == [(100.0, True, 2, "wave 1 of 3")]
    assert of(changes, other) == [(200.0, True, 2, "wave 3 of 3")]
    assert [each.until_s for each in changes.of_node(GROUP, Node(canary))] == [300.0]
    assert [each.until_s for each in noted(first).of_node(GROUP, Node(canary))] == [None]
    assert changes.heads(GROUP) == {2} and changes.heads("other") == frozenset()


def test_a_wave_that_takes_another_node_reaches_it() -> None:
    """The push did not concern the first one."""
    changes = noted(first, replace(first, nodes=last.nodes))
    assert of(changes, canary) == of(changes, other) == [(100.0, True, 2, "wave 1 of 3")]


def test_a_promotion_by_hand_reaches_all() -> None:
    changes = noted(first, first.promote("me", "", 150.0).end(RolloutState.PROMOTED, "", 160.0))
    assert of(changes, canary) == [(100.0, True, 2, "wave 1 of 3")]
    assert of(changes, other) == [(160.0, True, 2, "promoted")]


def test_only_nodes_of_the_waves_go_back() -> None:
    changes = noted(first, first.pause("me", "", 110.0), first.end(RolloutState.ROLLED_BACK, "refused", 120.0))
    assert of(changes, canary) == [(100.0, True, 2, "wave 1 of 3"), (120.0, False, 1, "refused")]
    assert of(changes, other) == []


def test_a_rollout_that_supersedes_another_one() -> None:
    second = begun({"waves": "1", "nodes": [other]}, head=3, former=first, now_s=150.0)
    assert inside(second) == {other}
    changes = noted(first, second)
    assert of(changes, canary) == [(100.0, True, 2, "wave 1 of 3"), (150.0, False, 1, "superseded")]
    assert of(changes, other) == [(150.0, True, 3, "wave 1 of 3")]


def test_they_are_bounded_and_forgotten() -> None:
    changes = noted(*(begun(head=head) for head in range(2, 200)))
    assert len(changes.heads(GROUP)) == KEPT_CHANGES
    changes.forget(GROUP)
    assert changes.heads(GROUP) == frozenset() and of(changes, canary) == []

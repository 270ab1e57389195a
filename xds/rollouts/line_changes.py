"""When the waves of rollouts reached a node, and when it went back: once per group, however many nodes it has. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xds.model.node import Node
from xds.rollouts.rollout import Rollout, RolloutState

KEPT_CHANGES = 20  # of a group: the latest


@dataclass(frozen=True, slots=True)
class LineOfNode:
    """A node is served ``revision`` since ``time_s``: the head of a rollout, or again the base. ``text`` says why."""

    time_s: float
    is_head: bool
    revision: int
    text: str


class LineChanges:
    """The latest steps of the rollouts of groups at which nodes changed lines."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[Rollout, ...]] = {}

    def note(self, rollout: Rollout) -> None:
        """A rollout has begun, has taken a step, or has ended."""
        known = self._steps.get(rollout.group, ())
        if not known or _step(known[-1]) != _step(rollout):
            self._steps[rollout.group] = (*known, rollout)[-KEPT_CHANGES:]

    def forget(self, group: str) -> None:
        """The group is deleted."""
        self._steps.pop(group, None)

    def heads(self, group: str) -> frozenset[int]:
        """The revisions of a group that waves were served."""
        return frozenset(each.head for each in self._steps.get(group, ()))

    def of_node(self, group: str, node: Node) -> list[LineOfNode]:
        """The changes of a node, oldest first."""
        return list(_changes(self._steps.get(group, ()), node))


def _step(rollout: Rollout) -> tuple[int, int, bool]:
    return rollout.head, rollout.wave, rollout.is_open


def _changes(steps: Sequence[Rollout], node: Node) -> Iterator[LineOfNode]:
    head = 0  # of the rollout that the node is in a wave of
    for step in steps:
        if step.is_open and step.in_wave(node):
            if head != step.head:
                head = step.head
                yield LineOfNode(step.since_s, True, head, _wave_text(step))
        elif step.state is RolloutState.PROMOTED:
            if head != step.head:
                yield LineOfNode(step.ended_s or step.since_s, True, step.head, "promoted")
            head = 0
        elif head:
            is_of_step = head == step.head  # else this rollout superseded the one that the node was in a wave of
            head = 0
            at_s = step.since_s if step.is_open else step.ended_s or step.since_s
            yield LineOfNode(at_s, False, step.base, step.reason if is_of_step else "superseded")


def _wave_text(step: Rollout) -> str:
    return "promoted" if step.is_promoting else f"wave {step.wave + 1} of {len(step.plan.steps)}"

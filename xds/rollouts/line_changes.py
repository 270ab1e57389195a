"""When the waves of rollouts reached a node, and when it went back: once per group, however many nodes it has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xds.model.node import Node
from xds.rollouts.rollout import Rollout, RolloutState

KEPT_CHANGES = 20  # of a group: the latest


@dataclass(frozen=True, slots=True)
class LineOfNode:
    """A node is served ``revision`` since ``time_s``: the head of a rollout, or again the base. ``text`` says why.

    ``until_s`` is when the head was served to all, or to the node no more; None while the rollout goes on.
    """

    time_s: float
    is_head: bool
    revision: int
    text: str
    until_s: float | None = None


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
        return _changes(self._steps.get(group, ()), node)


def _step(rollout: Rollout) -> tuple[int, int, object, bool]:
    """Differs when nodes change lines: a wave may take another node beside those that the push does not concern."""
    return rollout.head, rollout.wave, rollout.nodes, rollout.is_open


def _changes(steps: Sequence[Rollout], node: Node) -> list[LineOfNode]:
    found: list[LineOfNode] = []
    head = 0  # of the rollout that the node is in a wave of, which the last item is about
    for step in steps:
        is_in = step.is_open and step.in_wave(node)
        if is_in and head == step.head:
            continue
        at_s = step.since_s if step.is_open else step.ended_s or step.since_s
        if head:
            found[-1] = replace(found[-1], until_s=at_s)
        if is_in:
            found.append(LineOfNode(at_s, True, step.head, _wave_text(step)))
        elif step.state is RolloutState.PROMOTED and head != step.head:
            found.append(LineOfNode(at_s, True, step.head, "promoted", at_s))
        elif head and step.state is not RolloutState.PROMOTED:
            # Another head: this rollout superseded the one that the node was in a wave of.
            found.append(LineOfNode(at_s, False, step.base, step.reason if head == step.head else "superseded"))
        head = step.head if is_in else 0
    return found


def _wave_text(step: Rollout) -> str:
    return "promoted" if step.is_promoting else f"wave {step.wave + 1} of {len(step.plan.steps)}"

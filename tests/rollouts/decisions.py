"""What a decision about a rollout does, told from the rollout before and after it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from xds.rollouts.rollout import Rollout, RolloutState


class Act(StrEnum):
    """What is to be done: nothing, store the rollout, or store it with the promotion or the roll-back that ends it."""

    NOTHING = "nothing"
    WRITE = "write"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"


class Decision(NamedTuple):
    """What is to be done, and why."""

    act: Act
    reason: str


def decision(before: Rollout, after: Rollout) -> Decision:
    """What leads from one to the other."""
    if after == before:
        return Decision(Act.NOTHING, "")
    if not after.is_open:
        return Decision(Act.PROMOTE if after.state is RolloutState.PROMOTED else Act.ROLL_BACK, after.reason)
    if after.wave != before.wave:
        return Decision(Act.WRITE, f"wave {after.wave + 1} of {len(after.plan.steps)} ({after.step})")
    if after.state is before.state:
        return Decision(Act.WRITE, f"{after.connected_n} nodes in the wave")
    return Decision(Act.WRITE, after.reason)

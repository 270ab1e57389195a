"""Careful rollouts: pushes that go to some nodes first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.values import time_of

if TYPE_CHECKING:
    from xds.rollouts.plan import RolloutPlan
    from xds.rollouts.rollout import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class CarefulPlan:
    """The plan of a rollout, with what was not named.

    * ``waves``: the sizes of the waves; after them come all nodes;
    * ``selector``: present if the nodes of a filter are the first wave;
    * ``nodes``: present if these nodes are the first wave;
    * ``hold_s``: how long all nodes of a wave must have ACKed before the next one begins;
    * ``timeout_s``: how long a wave may take until all its nodes have ACKed;
    * ``max_nacks``: more nodes that NACK are a failure;
    * ``max_errors``: a larger failed share of the wave's requests, above that of the other nodes, is a failure; null:
      requests are not judged;
    * ``on_failure``: ``rollback`` or ``hold``.
    """

    schema_name: ClassVar[str] = "RolloutPlanItem"

    waves: tuple[str, ...]
    selector: str = ""
    nodes: tuple[str, ...] = ()
    hold_s: float
    timeout_s: float
    max_nacks: int
    max_errors: float | None
    on_failure: str

    @classmethod
    def from_domain(cls, plan: RolloutPlan) -> CarefulPlan:
        """A plan."""
        return cls(
            waves=tuple(map(str, plan.waves)),
            selector=plan.selector,
            nodes=plan.nodes,
            hold_s=plan.hold_s,
            timeout_s=plan.timeout_s,
            max_nacks=plan.max_nacks,
            max_errors=plan.max_errors,
            on_failure=plan.on_failure.value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveNodes:
    """The connected nodes of a group by their line.

    * ``wave``: the number of nodes in the wave, which are served the head;
    * ``acked``: how many of them have ACKed all of it;
    * ``nacked``: how many of them have NACKed a type of it;
    * ``outside``: the number of all others, which are served the base.
    """

    schema_name: ClassVar[str] = "RolloutNodesItem"

    wave: int
    acked: int
    nacked: int
    outside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRollout:
    """The last careful rollout of a group. All of it is absent if there was none.

    * ``state``: ``running``, ``paused`` or ``held``; after its end ``promoted``, ``rolled_back`` or ``superseded``;
    * ``plan``: its plan;
    * ``base``: the revision that nodes outside of the wave are served;
    * ``head``: the revision that is rolled out;
    * ``wave``: the number of the present wave, from 1; steps that would add no node are skipped;
    * ``waves``: the number of waves, with the one of all nodes;
    * ``size``: the size of the wave as it is written in the plan; ``named`` are the nodes that the plan names;
    * ``nodes``: the connected nodes by their line; absent after the end;
    * ``reason``: why it is held, or has ended; absent without one;
    * ``by``: who began it, or acted on it last; absent for the server itself;
    * ``why``: the message of that; absent without one;
    * ``began``: when it began;
    * ``since``: when the present wave began, or was resumed;
    * ``deadline``: when all nodes of the wave must have ACKed; present while it runs;
    * ``ended``: when it ended; absent before.
    """

    state: str = ""
    plan: CarefulPlan | None = None
    base: int = 0
    head: int = 0
    wave: int = 0
    waves: int = 0
    size: str = ""
    nodes: WaveNodes | None = None
    reason: str = ""
    by: str = ""
    why: str = ""
    began: datetime | None = None
    since: datetime | None = None
    deadline: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CarefulRollout(LastRollout):
    """A careful rollout of a group."""

    schema_name: ClassVar[str] = "CarefulRolloutItem"

    group: str

    @classmethod
    def from_domain(cls, rollout: Rollout, nodes: WaveNodes | None = None) -> CarefulRollout:
        """A rollout, with its nodes if they are known."""
        return cls(group=rollout.group, **rollout_fields(rollout, nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPage:
    """The rollouts that have not ended, by group, without ``nodes``."""

    items: tuple[CarefulRollout, ...]
    next_page_token: str = ""


def rollout_fields(rollout: Rollout, nodes: WaveNodes | None) -> dict[str, Any]:
    """The fields that describe a rollout; ``nodes`` of one that has ended do not."""
    is_running = rollout.state == "running"
    return {
        "state": rollout.state.value,
        "plan": CarefulPlan.from_domain(rollout.plan),
        "base": rollout.base,
        "head": rollout.head,
        "wave": rollout.wave + 1,
        "waves": len(rollout.plan.steps),
        "size": str(rollout.step),
        "nodes": nodes if rollout.is_open else None,
        "reason": rollout.reason,
        "by": rollout.by,
        "why": rollout.message,
        "began": time_of(rollout.began_s),
        "since": time_of(rollout.since_s),
        "deadline": time_of(rollout.since_s + rollout.plan.timeout_s) if is_running else None,
        "ended": time_of(rollout.ended_s) if rollout.ended_s is not None else None,
    }

"""Careful rollouts: pushes that go to some nodes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.values import time_of

if TYPE_CHECKING:
    from xds.push.rollout_step import RolloutStep
    from xds.rollouts.plan import RolloutPlan
    from xds.rollouts.rollout import Rollout

NODES_SHOWN = 10  # of a planned wave


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
        return copied(cls, plan, waves=tuple(map(str, plan.waves)))


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
    """The last careful rollout of a group. Fields that are "present for a rollout" are absent if there was none.

    * ``state``: present for a rollout: ``running``, ``paused`` or ``held``; after its end ``promoted``, ``rolled_back``
      or ``superseded``;
    * ``plan``: present for a rollout: its plan;
    * ``base``: present for a rollout: the revision that nodes outside of the wave are served;
    * ``head``: present for a rollout: the revision that is rolled out;
    * ``wave``: present for a rollout: the number of the present wave, from 1. Steps that would add no node are skipped;
    * ``waves``: present for a rollout: the number of waves, with the one of all nodes;
    * ``size``: present for a rollout: the size of the wave as it is written in the plan; ``named`` are the nodes that
      the plan names;
    * ``nodes``: present until its end: the connected nodes by their line;
    * ``errors``: present if requests of the wave were reported: their failed share, less that of the other nodes;
    * ``unknown``: present until its end while the wave cannot be judged: what is missing;
    * ``reason``: present if it is held or has ended for a reason: why;
    * ``by``: present if it is known who began it, or acted on it last; ``server``: the server took it back;
    * ``why``: present if there is one: the message of that;
    * ``began``: present for a rollout: when it began;
    * ``since``: present for a rollout: when the present wave began, or was resumed;
    * ``deadline``: present while it runs: when all nodes of the wave must have ACKed;
    * ``ended``: present after its end: when that was.
    """

    state: str = ""
    plan: CarefulPlan | None = None
    base: int = 0
    head: int = 0
    wave: int = 0
    waves: int = 0
    size: str = ""
    nodes: WaveNodes | None = None
    errors: float | None = None
    unknown: str = ""
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
class PlannedWave:
    """A wave that a rollout would have now.

    * ``size``: its size as it is written in the plan; ``named`` are the nodes that the plan names;
    * ``count``: the number of nodes that it adds;
    * ``nodes``: the ids of the first ten of them. A wave of a number of nodes takes others beside those that subscribe
      to nothing that the push changes, which is known only once it is served to them.
    """

    schema_name: ClassVar[str] = "PlannedWaveItem"

    size: str
    count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedRollout(LastRollout):
    """What a push does to the careful rollout of its group, and the rollout as it is then.

    * ``effect``: ``started``; ``superseded``: it begins again, in place of another push; ``continues``: endpoints or
      derived resources change, for all nodes; ``ended``: the push is for all nodes, and ends the rollout;
      ``all_at_once``: the push is for all nodes, although there is a plan;
    * ``detail``: why; absent without one;
    * ``planned``: present in a dry run that would begin a rollout: its waves;
    * ``last_kinds``: present with ``planned`` if only the last of these waves has some kinds of nodes: their Envoy
      versions and zones;
    * ``partial``: present if some servers did not tell about their nodes when it began, or would begin: their names.
    """

    schema_name: ClassVar[str] = "PushRolloutItem"

    effect: str
    detail: str = ""
    planned: tuple[PlannedWave, ...] = ()
    last_kinds: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    @classmethod
    def from_domain(
        cls, step: RolloutStep, waves: Iterable[tuple[str, Sequence[str]]] = (), last_kinds: Iterable[str] = ()
    ) -> PushedRollout | None:
        """What a push does; None for nothing. ``waves`` are those of a dry run: their sizes and nodes."""
        if not step.effect:
            return None
        known = rollout_fields(step.rollout, None) if step.rollout is not None else {}
        planned = tuple(PlannedWave(size=size, count=len(ids), nodes=tuple(ids[:NODES_SHOWN])) for size, ids in waves)
        silent = step.nodes.silent if step.nodes is not None else ()
        return cls(
            effect=step.effect,
            detail=step.detail,
            planned=planned,
            last_kinds=tuple(last_kinds),
            partial=silent,
            **known,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPage:
    """The rollouts that have not ended, by group, without ``nodes``."""

    items: tuple[CarefulRollout, ...]
    next_page_token: str = ""


def rollout_fields(rollout: Rollout, nodes: WaveNodes | None) -> dict[str, Any]:
    """The fields that describe a rollout; ``nodes`` of one that has ended do not."""
    is_running, errors, unknown = rollout.state == "running", rollout.progress.errors, rollout.progress.unknown
    return {
        "state": rollout.state.value,
        "plan": CarefulPlan.from_domain(rollout.plan),
        "base": rollout.base,
        "head": rollout.head,
        "wave": rollout.wave + 1,
        "waves": len(rollout.plan.steps),
        "size": str(rollout.step),
        "nodes": nodes if rollout.is_open else None,
        "errors": round(errors, 4) if errors is not None else None,
        "unknown": unknown if rollout.is_open else "",
        "reason": rollout.reason,
        "by": rollout.by,
        "why": rollout.message,
        "began": time_of(rollout.began_s),
        "since": time_of(rollout.since_s),
        "deadline": time_of(rollout.since_s + rollout.plan.timeout_s) if is_running else None,
        "ended": time_of(rollout.ended_s) if rollout.ended_s is not None else None,
    }

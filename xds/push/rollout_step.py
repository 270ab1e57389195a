"""What a push does to the rollout of its group, and what a rollout serves. Values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from xds.model.errors import ConflictError
from xds.push.content import GroupContent
from xds.rollouts.rollout import Rollout
from xds.rollouts.server_facts import ServerFacts
from xds.store.base import DocumentWrite


class ChangedRolloutError(ConflictError):
    """A rollout is not as it was when its end was decided."""


class Effect(StrEnum):
    """What a push does to the rollout of its group; empty: there is none.

    * ``STARTED``, ``SUPERSEDED``: the push is rolled out from now on, the latter in place of the present rollout;
    * ``CONTINUES``: endpoints or derived resources changed, for all nodes at once, and the rollout goes on;
    * ``ENDED``: the push goes to all nodes, and the rollout ends;
    * ``ALL_AT_ONCE``: the push goes to all nodes, although there is a plan.
    """

    NONE = ""
    STARTED = "started"
    SUPERSEDED = "superseded"
    CONTINUES = "continues"
    ENDED = "ended"
    ALL_AT_ONCE = "all_at_once"


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """What a push does. ``detail`` says why, for people. ``rollout`` is as the push leaves it.

    ``write`` is its document, if the push changes it. ``nodes`` is what all servers know, where a rollout begins.
    ``superseded`` is the rollout that this ends.
    """

    effect: Effect = Effect.NONE
    detail: str = ""
    rollout: Rollout | None = None
    write: DocumentWrite | None = None
    nodes: ServerFacts | None = None
    superseded: Rollout | None = None


NO_STEP = RolloutStep()


@dataclass(frozen=True, slots=True)
class ServedRollout:
    """The rollout of a group with what it needs to be served.

    ``promoted`` is the content of its base as it was pushed, ``base`` what the nodes outside of the wave are served.
    ``head_since_s`` is when this server began to serve the head (epoch seconds), ``moved_s`` when nodes changed lines
    last, on the clock of the streams.
    """

    rollout: Rollout
    promoted: GroupContent | None = None
    base: GroupContent | None = None
    head_since_s: float = 0.0
    moved_s: float = 0.0

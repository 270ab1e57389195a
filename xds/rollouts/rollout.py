"""The rollout of a group: the document that says who is served the head, and what has come of it.

A group has two lines while a rollout runs. The nodes of the wave are served the head, the newest revision. All others
are served the base: the content that an undo to the revision ``base`` would make now. The document is written in the
transaction of the push that begins the rollout, and of the promotion or roll-back that ends it. It stays when the
rollout has ended: it says which content was taken back, and which nodes had it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from xds.model.errors import ValidationError, Violation
from xds.model.node import Node
from xds.model.units import UNIT_S
from xds.rollouts.plan import RolloutPlan, Wave, plan_document, read_plan
from xds.rollouts.reading import TEXT_LIMIT, FieldReader
from xds.rollouts.wave import NodeSet, everybody, next_wave, read_node_set

DOCUMENT_BYTES = 1 << 26
# How long after its end it matters what a rollout took back, and from whom: longer than any client keeps leftovers.
MATTERS_S = UNIT_S["d"]
OUTDONE_KEPT = 100  # heads of former rollouts
_REVISION_LIMIT = 2**63 - 1
_TIME_LIMIT_S = 1e12
_INTEGERS = ("base", "head", "wave", "connected_n", "last_head")  # the members of a document, by kind
_TIMES = ("began_s", "since_s")
_TEXTS = ("reason", "by", "message", "content")
_FLAGS = ("is_promoting", "has_superseded")
_OTHERS = ("state", "usual_errors", "ended_s", "outdone", *_FLAGS)


class RolloutState(StrEnum):
    """The states. `xds.rollouts.decide` has the table of how they follow each other."""

    RUNNING = "running"
    PAUSED = "paused"
    HELD = "held"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    SUPERSEDED = "superseded"

    @property
    def is_open(self) -> bool:
        """Whether the rollout has not ended."""
        return self in (RolloutState.RUNNING, RolloutState.PAUSED, RolloutState.HELD)


class RolloutAction(StrEnum):
    """What a person does with a rollout."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Progress:
    """What one server has seen of the present wave. It is not stored: after a restart a wave is watched anew.

    Each time is a sum of the times between two decisions, of which none counts for more than a few seconds. So a clock
    that jumps ahead, or a server that stood still, counts for a few seconds at most, and a clock that is set back for
    none.

    * ``seen_s``: when the last decision was made (epoch seconds); ``wave_s``: how long the wave has been watched;
    * ``is_acked``: all its nodes had ACKed at the last decision, but for a few that are new; ``held_s``: for how long,
      without break;
    * ``behind_since_s``: nodes that have not ACKed, with the time of the wave at which they were first seen so;
    * ``away_s``: for how long half or more of its nodes have been away;
    * ``most_n``: the most of its nodes that were connected at one time;
    * ``errors``: the failed share of its requests, less the usual one; None without requests;
    * ``unknown``: what is missing for a judgement; empty if nothing is.
    """

    seen_s: float | None = None
    wave_s: float = 0.0
    is_acked: bool = False
    held_s: float = 0.0
    behind_since_s: Mapping[str, float] = field(default_factory=dict)
    away_s: float = 0.0
    most_n: int = 0
    errors: float | None = None
    unknown: str = ""


NO_PROGRESS = Progress()
# Of a wave that this server has not watched. A client takes up to half a minute to come back to a server that was down;
# that it is away counts only afterwards.
UNWATCHED = Progress(away_s=-30.0)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout of a group. Times are epoch seconds.

    * ``base``, ``head``: the revisions that are served outside and inside of the wave;
    * ``wave``: the index of the present wave in ``plan.steps``; ``nodes``: its nodes;
    * ``since_s``: when the wave began, or was last watched anew;
    * ``had``: nodes that were served the head of an earlier rollout that was superseded or taken back;
    * ``connected_n``: how many nodes of the wave were connected when it began; 0 if that is not known yet;
    * ``usual_errors``: the failed share of requests of the other nodes, as last measured;
    * ``has_superseded``: it began in place of one that was open;
    * ``is_promoting``: somebody promoted it: all nodes are served the head, without further waves;
    * ``content``: identifies the pushed configuration of the head. It is empty once other content was pushed after a
      roll-back. ``last_head``: the newest revision that waves alone were served; 0 while the rollout is open;
    * ``outdone``: heads of former rollouts of the group that were superseded before all had them, the latest last;
    * ``reason``: why it is held or has ended; ``by``, ``message``: who acted last, and what for.
    """

    group: str
    plan: RolloutPlan
    base: int
    head: int
    state: RolloutState
    wave: int
    nodes: NodeSet
    had: NodeSet
    began_s: float
    since_s: float
    connected_n: int = 0
    usual_errors: float = 0.0
    has_superseded: bool = False
    is_promoting: bool = False
    reason: str = ""
    by: str = ""
    message: str = ""
    ended_s: float | None = None
    content: str = ""
    last_head: int = 0
    outdone: tuple[int, ...] = ()
    progress: Progress = field(default=NO_PROGRESS, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether the rollout has not ended."""
        return self.state.is_open

    @property
    def step(self) -> Wave:
        """The present wave of the plan."""
        return self.plan.steps[self.wave]

    def in_wave(self, node: Node) -> bool:
        """Whether a node is served the head."""
        return node in self.nodes

    def had_head(self, node: Node) -> bool:
        """Whether a node was served the head of this rollout, or of one that it superseded."""
        return node in self.nodes or node in self.had

    def matters(self, now_s: float) -> bool:
        """Whether clients may still hold something of the head that this rollout took back."""
        return self.ended_s is None or now_s - self.ended_s < MATTERS_S

    def refuses(self, now_s: float) -> bool:
        """Whether the content that it took back is refused: for a day, unless other content was pushed."""
        return self.state is RolloutState.ROLLED_BACK and bool(self.content) and self.matters(now_s)

    def is_hidden(self, revision: int) -> bool:
        """Whether a revision was served only to waves of this rollout, or of those that it superseded."""
        last = self.head - 1 if self.state is RolloutState.PROMOTED else self.last_head
        return revision > self.base and not (last and revision > last)

    def never_reached_all(self, revision: int) -> bool:
        """Whether a revision was served only to waves, of this rollout or one before. Roll-backs undo theirs."""
        return self.is_hidden(revision) or revision in self.outdone

    def pause(self, by: str, message: str, now_s: float) -> Rollout:
        """The rollout, stopped until it is resumed."""
        return self._acted(RolloutState.PAUSED, by, message, now_s)

    def resume(self, by: str, message: str, now_s: float) -> Rollout:
        """The rollout, running; its wave is watched anew."""
        return replace(self._acted(RolloutState.RUNNING, by, message, now_s), connected_n=0)

    def promote(self, by: str, message: str, now_s: float) -> Rollout:
        """The rollout to all nodes at once. It ends when all have ACKed, or after ``timeout_s``."""
        wave = len(self.plan.steps) - 1
        acted = self._acted(RolloutState.RUNNING, by, message, now_s)
        return replace(acted, wave=wave, nodes=everybody(self.group), is_promoting=True)

    def end(self, state: RolloutState, reason: str, now_s: float, by: str | None = None, message: str = "") -> Rollout:
        """The rollout, ended; None: by itself."""
        ended = replace(self, state=state, reason=reason, ended_s=now_s, progress=NO_PROGRESS)
        return ended if by is None else replace(ended, by=by, message=message)

    def watched_anew(self, now_s: float) -> Rollout:
        """The rollout, with a wave that begins, or of which nothing has been seen yet."""
        return replace(self, since_s=now_s, progress=Progress(seen_s=now_s))

    def _acted(self, state: RolloutState, by: str, message: str, now_s: float) -> Rollout:
        acted = replace(self.watched_anew(now_s), state=state, reason="")
        return replace(acted, by=by, message=message)


def begin(
    group: str,
    plan: RolloutPlan,
    base: int,
    head: int,
    connected: Mapping[str, str],
    now_s: float,
    by: str = "",
    message: str = "",
    former: Rollout | None = None,
    usual_errors: float = 0.0,
) -> Rollout:
    """A rollout at its first wave. ``connected`` has the kinds of the connected nodes of the group, by id.

    ``former`` is the last rollout of the group. If it is open, this one supersedes it. ``usual_errors`` is the failed
    share of requests before the rollout.
    """
    had = NodeSet(group)
    if former is not None and former.state is not RolloutState.PROMOTED and former.matters(now_s):
        had = former.nodes | former.had
    outdone: tuple[int, ...] = ()
    if former is not None:
        is_outdone = former.state is RolloutState.SUPERSEDED or (former.is_open and not former.is_promoting)
        outdone = (*former.outdone, former.head)[-OUTDONE_KEPT:] if is_outdone else former.outdone
    first = next_wave(plan, -1, NodeSet(group), connected, ())
    return Rollout(
        group,
        plan,
        base,
        head,
        RolloutState.RUNNING,
        first.at,
        first.nodes,
        had,
        began_s=now_s,
        since_s=now_s,
        connected_n=first.connected_n,
        usual_errors=usual_errors,
        has_superseded=former is not None and former.is_open,
        by=by,
        message=message,
        outdone=outdone,
    )


def encode(rollout: Rollout) -> bytes:
    """The document of a rollout, without its progress."""
    document = {
        **{name: getattr(rollout, name) for name in (*_INTEGERS, *_TIMES, *_OTHERS)},
        **{name: getattr(rollout, name)[:TEXT_LIMIT] for name in _TEXTS},
        "plan": plan_document(rollout.plan),
        "nodes": rollout.nodes.document(),
        "had": rollout.had.document(),
    }
    return json.dumps(document).encode()


def decode(group: str, body: bytes) -> Rollout:
    """The rollout that `encode` has written. Compiles selectors, so call this in a thread.

    Raises ``ValidationError`` for anything else.
    """
    fields = FieldReader(_load(body), "", (*_INTEGERS, *_TIMES, *_OTHERS, *_TEXTS, "plan", "nodes", "had"))
    state = fields.choice("state", RolloutState.HELD)
    simple: dict[str, Any] = {
        **{name: fields.integer(name, -1, 0, _REVISION_LIMIT) for name in _INTEGERS},
        **{name: fields.number(name, -1.0, 0.0, _TIME_LIMIT_S) for name in _TIMES},
        **{name: fields.text(name) for name in _TEXTS},
        **{name: fields.flag(name) for name in _FLAGS},
    }
    rollout = Rollout(
        group=group,
        plan=read_plan(fields.given("plan", {}), "/plan"),
        state=state,
        nodes=read_node_set(group, fields.given("nodes"), "/nodes"),
        had=read_node_set(group, fields.given("had"), "/had"),
        usual_errors=fields.number("usual_errors", 0.0, 0.0, 1.0),
        ended_s=fields.number_or_none("ended_s", 0.0, _TIME_LIMIT_S),
        outdone=fields.integers("outdone", OUTDONE_KEPT, _REVISION_LIMIT),
        progress=UNWATCHED,
        **simple,
    )
    if rollout.wave >= len(rollout.plan.steps):
        fields.add("out_of_range", "wave", "is not a wave of the plan")
    if state.is_open is not (rollout.ended_s is None):
        fields.add("invalid_value", "ended_s", f"does not fit the state {state}")
    fields.finish()
    return rollout


def _load(body: bytes) -> object:
    try:
        if len(body) > DOCUMENT_BYTES:
            raise ValueError("too long")
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValidationError([Violation("syntax", f"not the document of a rollout: {error!s:.100}")]) from None

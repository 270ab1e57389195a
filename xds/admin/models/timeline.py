"""The timeline of a node."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """One item of the timeline of a node.

    * ``time``: when it happened;
    * ``kind``: ``connected``, ``disconnected``, ``sent`` (its group got a revision while it was connected), ``pushed``
      (likewise while it was away or polled, or only a wave of nodes was served it, or it took back a rollout of which
      the node never had the head), ``line`` (a careful rollout served it the head, or the base again), ``acked`` (it
      ACKed later than usual), ``nacked``, ``resolved`` (of a NACK), ``moved`` (to another group) or ``orphaned`` (no
      group matches any more);
    * ``group``: the group that this is about; empty if none matches;
    * ``revision``: the revision that this is about; of ``connected``, ``disconnected`` and ``nacked`` the newest one
      then; null if it is not known;
    * ``type``: present where it is about one type;
    * ``text``: present where there is more to say: kind and message of a push, the wave, the message of a NACK;
    * ``by``: present for a push: who made it;
    * ``previous``: present after a move: the group before;
    * ``line``: present for a ``line``: ``head`` or ``base``;
    * ``names``: present for a NACK: resources that are rejected;
    * ``nack``: present for a NACK: the id of its record;
    * ``count``: present for ``nacked``: how often it was NACKed;
    * ``late_s``: present for ``acked``: how long the ACK took, in seconds;
    * ``server``: present where several servers work on one store, for what only one of them has seen.
    """

    schema_name: ClassVar[str] = "TimelineItem"

    time: datetime
    kind: str
    group: str
    revision: int | None
    type: str = ""
    text: str = ""
    by: str = ""
    previous: str = ""
    line: str = ""
    names: tuple[str, ...] = ()
    nack: int | None = None
    count: int = 0
    late_s: int = 0
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimeline:
    """What happened to a node, and to its group while it was in it, newest first.

    * ``node``: the id of the node;
    * ``items``: the latest items;
    * ``truncated``: true if earlier items are left out, by ``limit`` or because they are not kept;
    * ``partial``: present if servers did not answer: their names. What they have seen is missing.
    """

    schema_name: ClassVar[str] = "TimelineAnswer"

    node: str
    items: tuple[TimelineEvent, ...]
    truncated: bool
    partial: tuple[str, ...] = ()

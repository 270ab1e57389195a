"""The servers that share a store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMember:
    """A server. Times are those of the database's clock.

    * ``id``: `HOST:PORT` of its URL;
    * ``url``: where the other servers reach it (`server.advertise`);
    * ``version``: its version;
    * ``started``: when it started;
    * ``silent_s``: how long ago it was seen last;
    * ``is_holder``: it holds the lease: it does what only one server does for all;
    * ``is_asked``: it is the one that answers;
    * ``streams``: the number of its open streams; null if it did not answer;
    * ``lag_s``: for how long it lacks commits that the store has; 0 if it has them all, null if it did not answer;
    * ``problem``: why it is no member, or lacks what the others commit, in words; empty where all is well, null if it
      did not answer.
    """

    schema_name: ClassVar[str] = "MemberItem"

    id: str
    url: str
    version: str
    started: datetime
    silent_s: float
    is_holder: bool
    is_asked: bool
    streams: int | None
    lag_s: float | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMembers:
    """All servers that share the store, by id.

    * ``partial``: present if servers did not answer: their names.
    """

    schema_name: ClassVar[str] = "MemberPage"

    items: tuple[ServerMember, ...]
    partial: tuple[str, ...] = ()

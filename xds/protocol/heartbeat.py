"""Heartbeats: the TTLs of what a client holds start anew, nothing else changes (rule 72).

They are sent in every state of the type, besides the response in flight: "heartbeats go on in every state for what the
client holds". Each has a nonce of its own, by which its answer is known. Delta only: in SotW a heartbeat removes the
cluster in Envoy (rule 73).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet
from xds.protocol.response import Response
from xds.protocol.subscription import Interest

_PER_TTL = 3
_UNANSWERED = 8  # heartbeats whose answers are awaited; of an older one the answer is stale


class Heartbeats:
    """When the next heartbeat of a watch is due, and which are not answered yet."""

    __slots__ = ("due_s", "unanswered")

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.unanswered: dict[str, tuple[str, ...]] = {}  # names by nonce

    def note_sent(self, response: Response) -> None:
        """A heartbeat was made for the wire."""
        self.unanswered[response.nonce] = response.names
        if len(self.unanswered) > _UNANSWERED:
            del self.unanswered[next(iter(self.unanswered))]

    def take_answer(self, nonce: str) -> tuple[str, ...] | None:
        """The names of the heartbeat that a nonce answers; None where it is none's."""
        return self.unanswered.pop(nonce, None)


def next_beat_s(now_s: float, ttl_s: float) -> float:
    """Rule 72: "Send well below the TTL (e.g. TTL/3)"."""
    return now_s + ttl_s / _PER_TTL


def beating(
    held: ResourceSet, offered: Response | None, interest: Interest, doubted: Collection[str] | Mapping[str, str]
) -> dict[str, Resource]:
    """What is to be told now: all with a TTL that the client holds in a version that is known, by name.

    What is in flight was read by the client before it reads the heartbeat, so it beats in its new version. What a
    client may hold in any version (rule 18) does not beat: it is sent whole when its turn comes.
    """
    found = {
        name: each
        for name, each in held.resources.items()
        if each.ttl_s is not None and name not in doubted and interest.wants(each)
    }
    if offered is not None:
        for name in offered.removed:
            found.pop(name, None)
        for name in offered.names:
            each = offered.resource_set.resources[name]
            if each.ttl_s is not None:
                found[name] = each
            else:
                found.pop(name, None)
    return found

"""Heartbeats, which only Delta has: they restart the TTLs of resources that a client holds.

A heartbeat changes nothing else (rule 72). Heartbeats are sent in every response state, also while a response is in
flight. Each heartbeat has its own nonce, which identifies its answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet
from xds.protocol.rejections import Rejections
from xds.snapshots.interest import Interest
from xds.snapshots.responses import Response

_HEARTBEATS_PER_TTL = 3
_UNANSWERED_LIMIT = 8  # heartbeats; the answer to an older one is stale


class Heartbeats:
    """The heartbeats of one watch.

    * ``due_s``: when the next heartbeat is due;
    * ``unanswered``: the names in unanswered heartbeats, by nonce;
    * ``superseded_names``: the names in responses that newer responses superseded since the last ACK.
    """

    __slots__ = ("due_s", "superseded_names", "unanswered")

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.superseded_names: frozenset[str] = NO_NAMES
        self.unanswered: dict[str, tuple[str, ...]] = {}

    def copy(self) -> Heartbeats:
        """An independent object in the same state."""
        clone = Heartbeats(self.due_s)
        clone.superseded_names = self.superseded_names
        clone.unanswered = dict(self.unanswered)
        return clone

    def uncertain_names(
        self, uncertain: Mapping[str, str], rejections: Rejections | None, offered: Response | None
    ) -> Collection[str]:
        """The names among ``uncertain`` that get no heartbeat: their version is unknown (rule 18), so they are sent
        whole next. ``offered`` is the response in flight.

        Names in a rejected response get one. docs/internals/clients.md#ttl: "After a NACK, Envoy continues with the
        versions and TTLs from before the rejected response".
        """
        if not uncertain or not rejections:
            return uncertain
        names = offered.names if offered is not None else ()
        return uncertain.keys() - (rejections.suspects.keys() - self.superseded_names) - set(names)

    def note_sent(self, response: Response) -> None:
        """Note that a heartbeat is sent."""
        self.unanswered[response.nonce] = response.names
        if len(self.unanswered) > _UNANSWERED_LIMIT:
            del self.unanswered[next(iter(self.unanswered))]

    def pop_answered(self, nonce: str) -> tuple[str, ...] | None:
        """The names in the unanswered heartbeat with this nonce, which is answered now; None if there is none."""
        return self.unanswered.pop(nonce, None)


def next_heartbeat_s(now_s: float, ttl_s: float) -> float:
    """A third of the TTL from now. Rule 72: a heartbeat "is sent well before the TTL ends"."""
    return now_s + ttl_s / _HEARTBEATS_PER_TTL


def renewable(known: ResourceSet, offered: Response | None, interest: Interest) -> dict[str, Resource]:
    """The resources with a TTL that the client holds when it reads a heartbeat that is sent now, by name.

    ``known`` is the set that the client ACKed. It reads the response in flight (``offered``) before the heartbeat.
    """
    resources = {
        name: each for name, each in known.resources.items() if each.ttl_s is not None and interest.wants(each)
    }
    if offered is not None:
        for name in offered.removed:
            resources.pop(name, None)
        for name in offered.names:
            each = offered.resource_set.resources[name]
            if each.ttl_s is not None:
                resources[name] = each
            else:
                resources.pop(name, None)
    return resources


def separated(renewed: Mapping[str, Resource], offered: Response | None) -> list[Mapping[str, Resource]]:
    """The resources of one heartbeat by message: those that the response in flight does not contain, then the others.

    docs/protocol.md#ttls: "Resources in a response without an answer have a heartbeat of their own". The client may
    have rejected that response, and withhold the NACK. It rejects a whole heartbeat for one resource that it lacks.
    """
    names = frozenset(offered.names) if offered is not None else NO_NAMES
    parts = (
        {name: each for name, each in renewed.items() if (name in names) is is_offered} for is_offered in (False, True)
    )
    return [part for part in parts if part]

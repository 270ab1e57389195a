"""Heartbeats: the TTLs of what a client holds start anew, nothing else changes (rule 72).

Delta only: in SotW a heartbeat removes the cluster in Envoy (rule 73).
"""

from __future__ import annotations

from xds.protocol.ack import State
from xds.protocol.track import Track

_PER_TTL = 3


def plan_heartbeat(track: Track, now_s: float) -> None:
    """When the next one is due, judged by what was sent last."""
    ttl_s = track.sent_set.shortest_ttl_s if track.sent_set is not None else None
    track.heartbeat_at_s = now_s + ttl_s / _PER_TTL if ttl_s is not None else None


def beating(track: Track) -> tuple[str, ...]:
    """The names to be told now; none while a response is on its way."""
    held = track.acked_set
    if track.ack.state is not State.SETTLED or held is None:
        return ()
    wants = track.subscription.interest.wants
    return tuple(name for name, each in held.resources.items() if each.ttl_s is not None and wants(each))

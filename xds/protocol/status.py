"""Where one type of a stream stands, for people."""

from __future__ import annotations

from dataclasses import dataclass

from xds.protocol.order import Gate
from xds.protocol.track import Track


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """``held_back``: a transition has newer content that waits for its turn."""

    type_url: str
    state: str  # synced | pending | nacked
    wildcard: bool
    names: frozenset[str]
    missing: tuple[str, ...]
    version_sent: str
    version_acked: str
    held_back: bool


def status_of(track: Track, gate: Gate) -> TypeStatus:
    """The status of a track whose client is at ``gate``."""
    released = gate.release_of(track.type.type_url)
    held_back = gate.coming(track.type.type_url) is not None
    interest = track.subscription.interest
    synced = track.in_step_with(released) and not held_back
    return TypeStatus(
        type_url=track.type.type_url,
        state="nacked" if track.is_rejected else "synced" if synced else "pending",
        wildcard=interest.wildcard,
        names=interest.names,
        missing=tuple(interest.missing(released)),
        version_sent=track.sent_set.version_info if track.sent_set is not None else "",
        version_acked=track.acked_set.version_info if track.acked_set is not None else "",
        held_back=held_back,
    )

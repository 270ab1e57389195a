"""The state of one type on one stream, as operators see it."""

from __future__ import annotations

from dataclasses import dataclass

from xds.protocol.client import ClientState
from xds.protocol.watch import Watch


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """The state of one type on one stream, as operators see it.

    ``held_back``: a transition holds newer content.
    """

    type_url: str
    state: str  # synced | pending | nacked
    wildcard: bool
    names: frozenset[str]
    missing: tuple[str, ...]
    version_sent: str
    version_acked: str
    held_back: bool


def status_of(watch: Watch, client: ClientState) -> TypeStatus:
    """The status of one of a client's watches."""
    released = client.release_of(watch.type.type_url)
    held_back = client.transition is not None and client.transition.holds_back(watch.type.type_url)
    interest = watch.subscription.interest
    synced = watch.is_synced_with(released) and not held_back
    return TypeStatus(
        type_url=watch.type.type_url,
        state="nacked" if watch.is_rejected else "synced" if synced else "pending",
        wildcard=interest.wildcard,
        names=interest.names,
        missing=tuple(interest.missing(released)),
        version_sent=watch.sent_label,
        version_acked=watch.known.base.version_info if watch.known.base is not None else "",
        held_back=held_back,
    )


def is_in_step(watch: Watch, client: ClientState) -> bool:
    """Whether all newest content of a type is released, and the client has it."""
    url = watch.type.type_url
    diff = client.releases.diff(client.released.get(url), client.goal.get(url))
    return not watch.is_pending and not diff.added_or_changed

"""The messages for a stream whose destination changes: the difference between two states, in order.

The rules: the first message is sent at once and contains everything; additions come before removals; when the last
endpoint is removed, the message says whether the service still exists; unchanged endpoints are not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xds.linkerd.core.endpoint import DestinationEndpoint, DestinationState, EndpointAddress, Labels


@dataclass(frozen=True, slots=True)
class Add:
    """New and changed endpoints. The first `Add` on a stream replaces everything that the client has."""

    endpoints: tuple[DestinationEndpoint, ...]
    labels: Labels
    zone: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The addresses of removed endpoints."""

    addresses: tuple[EndpointAddress, ...]


@dataclass(frozen=True, slots=True)
class NoEndpoints:
    """There are no endpoints, whatever the client has."""

    exists: bool


Update = Add | Remove | NoEndpoints


def updates(sent: DestinationState | None, now: DestinationState) -> list[Update]:
    """The messages that lead from the sent state to the present one; ``sent`` is None before the first message."""
    return [] if sent is now else list(_updates(sent, now))


def _updates(sent: DestinationState | None, now: DestinationState) -> Iterator[Update]:
    if not now.endpoints:
        if sent is None or sent.endpoints or sent.exists is not now.exists:
            yield NoEndpoints(now.exists)
        return
    if sent is None or not sent.endpoints:
        yield Add(now.endpoints, now.labels, now.zone)
        return
    changed = _changed(sent, now)
    if changed:
        yield Add(changed, now.labels, now.zone)
    present = {one.numeric_address for one in now.endpoints}
    removed = tuple(one.numeric_address for one in sent.endpoints if one.numeric_address not in present)
    if removed:
        yield Remove(removed)


def _changed(sent: DestinationState, now: DestinationState) -> tuple[DestinationEndpoint, ...]:
    """The new and changed endpoints. A change of the common labels or of the zone locality counts, too."""
    if sent.labels != now.labels:
        return now.endpoints
    previous = {one.numeric_address: one for one in sent.endpoints}
    has_moved = sent.zone != now.zone
    return tuple(
        one for one in now.endpoints if _is_changed(previous.get(one.numeric_address), one, sent, now, has_moved)
    )


def _is_changed(
    previous: DestinationEndpoint | None,
    one: DestinationEndpoint,
    sent: DestinationState,
    now: DestinationState,
    has_moved: bool,
) -> bool:
    if previous is None:
        return True
    if previous is not one and previous != one:
        return True
    return has_moved and one.zone_locality(sent.zone) is not one.zone_locality(now.zone)

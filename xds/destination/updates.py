"""The messages for a stream whose destination changes: the difference between two states, in order.

The rules: the first message is sent at once and contains everything; additions come before removals; when the last
endpoint is removed, the message says whether the service still exists; unchanged endpoints are not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xds.destination.endpoint import DestinationEndpoint, DestinationState, Labels, Place


@dataclass(frozen=True, slots=True)
class Add:
    """These endpoints are new or changed. The first `Add` on a stream replaces everything that the client has."""

    endpoints: tuple[DestinationEndpoint, ...]
    labels: Labels
    zone: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The endpoints at these addresses are removed."""

    places: tuple[Place, ...]


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
    told = _told(sent, now)
    if told:
        yield Add(told, now.labels, now.zone)
    there = {one.place for one in now.endpoints}
    gone = tuple(one.place for one in sent.endpoints if one.place not in there)
    if gone:
        yield Remove(gone)


def _told(sent: DestinationState, now: DestinationState) -> tuple[DestinationEndpoint, ...]:
    """The endpoints that are new or changed, also by the labels of the set, or by their distance."""
    if sent.labels != now.labels:
        return now.endpoints
    before = {one.place: one for one in sent.endpoints}
    is_elsewhere = sent.zone != now.zone
    return tuple(one for one in now.endpoints if _is_news(before.get(one.place), one, sent, now, is_elsewhere))


def _is_news(
    before: DestinationEndpoint | None,
    one: DestinationEndpoint,
    sent: DestinationState,
    now: DestinationState,
    is_elsewhere: bool,
) -> bool:
    if before is None:
        return True
    if before is not one and before != one:
        return True
    return is_elsewhere and one.nearness(sent.zone) is not one.nearness(now.zone)

"""The answers of a client to responses: what an ACK or a NACK changes in a watch (docs/protocol.md#response-states)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xds.protocol.ack import RequestKind
from xds.protocol.dialect import Dialect
from xds.protocol.events import Acked, Event, Nacked, Stale
from xds.protocol.requests import Request
from xds.protocol.watch import Watch
from xds.snapshots.release import Releases


def note_answer(
    watch: Watch,
    kind: RequestKind,
    request: Request,
    dialect: Dialect,
    watches: Collection[Watch],
    releases: Releases,
) -> Event | None:
    """Note the ACK or NACK in a request; returns the event, None for a request without one.

    ``kind`` is from `AckState.classify`. ``watches`` are all of the stream.
    """
    type_url = watch.type.type_url
    if kind is RequestKind.STALE:
        if request.error is None:
            watch.accept_superseded(request.nonce, releases)
        elif request.nonce != watch.ack.nonce:
            watch.refuse_superseded(request.error.message)
        return Stale(type_url, request.nonce)
    if kind is RequestKind.ACK or (kind is RequestKind.NACK and _is_of_earlier(watch, request)):
        if len(watches) > 1:
            _note_read(watch, watches)
        return Acked(type_url, request.nonce, watch.accept())
    if kind is RequestKind.NACK:
        if len(watches) > 1:
            _note_read(watch, watches)
        return _note_nack(watch, request, dialect, releases)
    return None


def _note_nack(watch: Watch, request: Request, dialect: Dialect, releases: Releases) -> Event:
    assert request.error is not None, "a NACK has an error"
    is_whole = dialect.sends_whole_set(watch.type)
    offer, guilty = watch.reject(request.error.message, releases, is_whole=is_whole)
    return Nacked(watch.type.type_url, request.nonce, offer.response, request.error, guilty)


def _is_of_earlier(watch: Watch, request: Request) -> bool:
    error = request.error
    return error is not None and watch.is_of_earlier(error.message, request.version_info)


def _note_read(answered: Watch, watches: Iterable[Watch]) -> None:
    """Note that the client has read all responses before the answered one, even if it withholds their answers."""
    for watch in watches:
        if watch.response_position < answered.response_position:
            watch.become_read()

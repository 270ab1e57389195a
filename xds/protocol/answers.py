"""Answers: what the ACK or NACK of a response says about the content that a client holds.

docs/protocol.md#response-states has the states; the kind of an answer is found by `Ack.classify`.
"""

from __future__ import annotations

from collections.abc import Iterable

from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.ack import RequestKind
from xds.protocol.dialect import AnyDialect
from xds.protocol.events import Acked, Event, Nacked, Stale
from xds.protocol.offers import Offers
from xds.protocol.release import Releases
from xds.protocol.requests import Request
from xds.protocol.responses import Response
from xds.protocol.watch import Watch


def note_answer(
    watch: Watch, kind: RequestKind, request: Request, dialect: AnyDialect, offers: Offers, releases: Releases
) -> Event | None:
    """Note what a request answers; returns what happened, None if it answers nothing.

    ``offers`` are those of the stream of ``watch``.
    """
    type_url = watch.type.type_url
    if kind is RequestKind.STALE:
        return Stale(type_url, request.nonce)
    if kind is RequestKind.ACK or (kind is RequestKind.NACK and _is_of_earlier(watch, request, dialect)):
        if len(offers.watches) > 1:
            _note_read(watch, offers.watches)
        return Acked(type_url, request.nonce, watch.accept())
    if kind is RequestKind.NACK:
        if len(offers.watches) > 1:
            _note_read(watch, offers.watches)
        return _refuse(watch, request, dialect, offers, releases)
    return None


def _refuse(watch: Watch, request: Request, dialect: AnyDialect, offers: Offers, releases: Releases) -> Event:
    assert request.error is not None, "a NACK has an error"
    type_url, asked, shown = watch.type.type_url, watch.asked, watch.shown
    watch.accept_superseded(dialect.accepted_version(request))
    response, guilty = watch.refuse(request.error.message, is_whole=dialect.sends_whole_set(watch.type))
    offers.lose_removed(watch, response)
    if asked and watch.acked_set is not None:
        # It does not hold the resources that it asked for, even if it had ACKed the rest of the set.
        unproved = asked - _still_held(shown, response) if shown is not None else asked
        watch.known.base = releases.mixed(watch.acked_set, empty_set(type_url), asked)
        watch.acked_set = releases.mixed(watch.acked_set, empty_set(type_url), unproved)
    if watch.type.full_state and guilty and not (watch.refusals and watch.refusals.suspects):
        # Rule 18: "clients apply the valid resources of CDS and LDS".
        held = watch.acked_set or empty_set(type_url)
        watch.acked_set = releases.mixed(response.resource_set, held, frozenset(guilty))
        watch.superseded = ()
    return Nacked(type_url, request.nonce, response, request.error, guilty)


def _still_held(shown: ResourceSet, refused: Response) -> frozenset[str]:
    """The names that a client showed when it reconnected, in another version than that of a response that it rejected.

    It has them in some version. The label of a partial type does not prove which: the rejected one it may lack.
    """
    versions = refused.versions()
    return frozenset(name for name, held in shown.resources.items() if versions.get(name) != held.version)


def _is_of_earlier(watch: Watch, request: Request, dialect: AnyDialect) -> bool:
    error = request.error
    return error is not None and watch.is_of_earlier(error.message, dialect.accepted_version(request))


def _note_read(answered: Watch, watches: Iterable[Watch]) -> None:
    """Note that a client that answers a response has read all earlier ones, even if it withholds their answers."""
    for watch in watches:
        if watch.ack.offered is not None and watch.sent < answered.sent:
            watch.is_read = True

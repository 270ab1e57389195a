"""The response state of one type on one stream (docs/protocol.md#response-states): its nonces, the response in flight.

Rule 20: "At most one response per type is in flight". This is also the backpressure. Only the methods below write
``state``.
"""

from __future__ import annotations

from copy import copy
from enum import Enum

from xds.model.errors import LocalProtocolError
from xds.snapshots.responses import Response


class ResponseState(Enum):
    """The response states of docs/protocol.md#response-states."""

    NEW = "new"
    SETTLED = "settled"
    IN_FLIGHT = "in_flight"
    REJECTED = "rejected"


class RequestKind(Enum):
    """The meaning of a request for the response state."""

    FIRST = "first"
    ACK = "ack"
    NACK = "nack"
    REPEAT = "repeat"
    STALE = "stale"
    PLAIN = "plain"  # no nonce: in Delta, a change of the interest alone (rule 50)


class Offer:
    """A response in flight, and what is known of it until it is answered.

    * ``released_id``: the id of the released set when it was made, whatever it leaves out of that;
    * ``answered_names``: the names that it answers because they were requested;
    * ``resent_names``: the names that it contains although they did not change (``Watch.resend_names``);
    * ``is_read``: the client answered a response that was sent later, so it has read this one;
    * ``is_interest_replaced``: the interest changed so much since that its ACK will prove nothing.
    """

    __slots__ = ("answered_names", "is_interest_replaced", "is_read", "released_id", "resent_names", "response")

    def __init__(
        self, response: Response, released_id: int, answered_names: frozenset[str], resent_names: frozenset[str]
    ) -> None:
        self.response = response
        self.released_id = released_id
        self.answered_names = answered_names
        self.resent_names = resent_names
        self.is_read = self.is_interest_replaced = False


class AckState:
    """The response state of one type on one stream.

    * ``nonce``: the nonce of the last response;
    * ``newest_number``: the highest `Response.number` sent on this stream; a response with a higher one is new to it;
    * ``in_flight``: the response in flight, or None;
    * ``dirty_since_s``: since when newer content than that of the response in flight exists; None if none does.
    """

    __slots__ = ("dirty_since_s", "in_flight", "newest_number", "nonce", "state")

    def __init__(self) -> None:
        self.state = ResponseState.NEW
        self.nonce = ""
        self.newest_number = 0
        self.in_flight: Offer | None = None
        self.dirty_since_s: float | None = None

    def classify(self, nonce: str, is_error: bool) -> RequestKind:
        """The kind of a request with this nonce; changes nothing. ``is_error``: the request has an error_detail."""
        if self.state is ResponseState.NEW:
            # Rule 12: "The first request of a type is accepted whatever nonce it carries".
            return RequestKind.FIRST
        if not nonce:
            return RequestKind.PLAIN
        if nonce != self.nonce:
            return RequestKind.STALE
        if self.state is ResponseState.IN_FLIGHT:
            return RequestKind.NACK if is_error else RequestKind.ACK
        return RequestKind.STALE if is_error else RequestKind.REPEAT

    def copy(self) -> AckState:
        """An independent object in the same state."""
        clone = copy(self)
        clone.in_flight = copy(self.in_flight)
        return clone

    def become_in_flight(self, offer: Offer, nonce: str) -> None:
        """The response is sent under this nonce."""
        self.state = ResponseState.IN_FLIGHT
        self.in_flight, self.nonce = offer, nonce
        self.newest_number = max(self.newest_number, offer.response.number)
        self.dirty_since_s = None

    def become_settled(self) -> None:
        """Nothing has to be sent. Rejected content stays rejected if it is pushed again."""
        self.state = ResponseState.SETTLED

    def remain_rejected(self) -> None:
        """The only content to send is content that the client rejected: it is not sent (rule 16)."""
        self.state = ResponseState.REJECTED

    def end_flight(self, state: ResponseState) -> Offer:
        """The response in flight was ACKed, or a newer one takes its place, so that its answer will be stale (SETTLED);
        or it was NACKed (REJECTED). Returns it.
        """
        if self.in_flight is None:
            raise LocalProtocolError("no response in flight")
        offer, self.in_flight = self.in_flight, None
        self.state, self.dirty_since_s = state, None
        return offer

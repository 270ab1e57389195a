"""The response state of one type on one stream: its nonces, the response in flight, the rejected response.

    state      first request   ACK              NACK             stale nonce    interest changed   view changed
    NEW        offer           -                -                first: offer   -                  wait
    SETTLED    -               repeated         stale            record names   offer              offer
    IN_FLIGHT  -               -> SETTLED       -> REJECTED      record names   dirty              dirty
    REJECTED   -               repeated         stale            record names   offer              offer what differs

Rule 20: "At most one response per type is in flight". This is also the backpressure. Only the methods below write
``state``. docs/protocol.md#response-states explains the table.
"""

from __future__ import annotations

from enum import Enum

from xds.model.errors import LocalProtocolError
from xds.protocol.responses import Response


class ResponseState(Enum):
    """The response states of docs/protocol.md#response-states."""

    NEW = "new"
    SETTLED = "settled"
    IN_FLIGHT = "in_flight"
    REJECTED = "rejected_digest"


class RequestKind(Enum):
    """The meaning of a request for the response state."""

    FIRST = "first"
    ACK = "ack"
    NACK = "nack"
    REPEAT = "repeat"
    STALE = "stale"
    PLAIN = "plain"  # no nonce: in Delta, a change of the interest alone (rule 50)


class AckState:
    """The response state of one type on one stream.

    * ``nonce``: the nonce of the last response;
    * ``newest_number``: the highest `Response.number` sent on this stream; a response with a higher one is new to it;
    * ``in_flight``: the response in flight, or None;
    * ``rejected_digest``: the `Response.digest` of the last rejected response; empty for none;
    * ``dirty_since_s``: since when newer content than that of the response in flight exists; None if none does.
    """

    __slots__ = ("dirty_since_s", "in_flight", "newest_number", "nonce", "rejected_digest", "state")

    def __init__(self) -> None:
        self.state = ResponseState.NEW
        self.nonce = ""
        self.newest_number = 0
        self.in_flight: Response | None = None
        self.rejected_digest: bytes = b""
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

    def become_in_flight(self, response: Response, nonce: str) -> None:
        """The response is sent under this nonce."""
        self.state = ResponseState.IN_FLIGHT
        self.in_flight, self.nonce = response, nonce
        self.newest_number = max(self.newest_number, response.number)
        self.dirty_since_s = None

    def become_accepted(self) -> Response:
        """The response in flight was ACKed; returns it. Content that was rejected before may be sent again."""
        response = self._end_flight()
        self.state = ResponseState.SETTLED
        self.rejected_digest = b""
        return response

    def become_settled(self) -> None:
        """Nothing has to be sent. Rejected content stays rejected if it is pushed again."""
        self.state = ResponseState.SETTLED

    def remain_rejected(self) -> None:
        """The only content to send is content that the client rejected: it is not sent (rule 16)."""
        self.state = ResponseState.REJECTED

    def become_rejected(self) -> Response:
        """The response in flight was NACKed; returns it."""
        response = self._end_flight()
        self.state = ResponseState.REJECTED
        self.rejected_digest = response.digest
        return response

    def supersede(self) -> Response:
        """Stop waiting for the answer to the response in flight; returns the response. Its answer will be stale."""
        response = self._end_flight()
        self.state = ResponseState.SETTLED
        return response

    def _end_flight(self) -> Response:
        if self.in_flight is None:
            raise LocalProtocolError("no response in flight")
        response, self.in_flight = self.in_flight, None
        self.dirty_since_s = None
        return response

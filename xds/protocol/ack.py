"""The response state of one type on one stream: nonces, the response in flight, the rejected one.

    state      first request   ACK               NACK              stale nonce   interest changed   view changed
    NEW        offer           -                 -                 first: offer  -                  wait
    SETTLED    -               repeat            record            record names  offer              offer
    IN_FLIGHT  -               known := offered  -> REJECTED       record names  dirty              dirty
    REJECTED   -               -                 record            record names  offer              offer what differs

Rule 20: "At most one response per type is in flight", which is backpressure as well. Only the methods below write
``state``. docs/protocol.md#response-states describes the table.
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
    REJECTED = "rejected"


class RequestKind(Enum):
    """What a request means for the response state."""

    FIRST = "first"
    ACK = "ack"
    NACK = "nack"
    REPEAT = "repeat"
    STALE = "stale"
    PLAIN = "plain"  # no nonce: Delta states a change of interest only (rule 50)


class AckState:
    """The response state of one type on one stream.

    * ``nonce``: of the last response sent;
    * ``number``: of the newest body sent on this stream; a body with a higher one was never sent here;
    * ``offered``: the response in flight;
    * ``rejected``: the digest of the content that the client rejected last;
    * ``dirty_since``: since when there has been newer content than the response in flight.
    """

    __slots__ = ("dirty_since", "nonce", "number", "offered", "rejected", "state")

    def __init__(self) -> None:
        self.state = ResponseState.NEW
        self.nonce = ""
        self.number = 0
        self.offered: Response | None = None
        self.rejected: bytes = b""
        self.dirty_since: float | None = None

    def classify(self, nonce: str, is_error: bool) -> RequestKind:
        """The kind of a request with this nonce, which changes nothing yet. ``is_error``: it has an error_detail."""
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
        """A response was handed to the wire."""
        self.state = ResponseState.IN_FLIGHT
        self.offered, self.nonce = response, nonce
        self.number = max(self.number, response.number)
        self.dirty_since = None

    def become_accepted(self) -> Response:
        """The response in flight was ACKed; returns it. Content that was rejected before may be sent again."""
        offered = self._end_flight()
        self.state = ResponseState.SETTLED
        self.rejected = b""
        return offered

    def become_settled(self) -> None:
        """There is nothing to send. Rejected content stays rejected, should it be pushed again."""
        self.state = ResponseState.SETTLED

    def become_held(self) -> None:
        """There is content to send, but the client rejected it (rule 16)."""
        self.state = ResponseState.REJECTED

    def become_rejected(self) -> Response:
        """The response in flight was NACKed; returns it."""
        offered = self._end_flight()
        self.state = ResponseState.REJECTED
        self.rejected = offered.digest
        return offered

    def supersede(self) -> Response:
        """Stop waiting for the answer to the response in flight, which will be stale; returns the response."""
        offered = self._end_flight()
        self.state = ResponseState.SETTLED
        return offered

    def _end_flight(self) -> Response:
        if self.offered is None:
            raise LocalProtocolError("no response in flight")
        offered, self.offered = self.offered, None
        self.dirty_since = None
        return offered

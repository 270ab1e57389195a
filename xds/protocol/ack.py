"""Where one type stands on one stream: nonces, the response in flight, the refused one.

    state      first request   ACK               NACK              stale nonce   interest changed   view changed
    NEW        offer           -                 -                 first: offer  -                  wait
    SETTLED    -               repeat            record            record names  offer              offer
    IN_FLIGHT  -               known := offered  -> REJECTED       record names  dirty              dirty
    REJECTED   -               -                 record            record names  offer              offer what differs

At most one response per type is in flight (rule 20: "the client's ACK always carries the newest names"); that is the
backpressure, too. Transitions are the methods below, the only writers of ``state``.
"""

from __future__ import annotations

from enum import Enum

from xds.model.errors import LocalProtocolError
from xds.protocol.responses import Response


class ResponseState(Enum):
    """The states of DESIGN 3.1."""

    NEW = "new"
    SETTLED = "settled"
    IN_FLIGHT = "in_flight"
    REJECTED = "rejected"


class RequestKind(Enum):
    """What a request is to the response machine."""

    FIRST = "first"
    ACK = "ack"
    NACK = "nack"
    REPEAT = "repeat"
    STALE = "stale"
    PLAIN = "plain"  # no nonce: Delta states a change of interest only (rule 50)


class AckState:
    """The response machine of one type on one stream."""

    __slots__ = ("dirty_since", "nonce", "number", "offered", "rejected", "state")

    def __init__(self) -> None:
        self.state = ResponseState.NEW
        self.nonce = ""
        self.number = 0  # of the newest body sent on this stream: a higher one was never sent here
        self.offered: Response | None = None
        self.rejected: bytes = b""
        self.dirty_since: float | None = None

    def classify(self, nonce: str, refused: bool) -> RequestKind:
        """What a request with this nonce is; nothing changes."""
        if self.state is ResponseState.NEW:
            # Rule 12: "the FIRST request of a type on a stream must be accepted whatever nonce it carries".
            return RequestKind.FIRST
        if not nonce:
            return RequestKind.PLAIN
        if nonce != self.nonce:
            return RequestKind.STALE
        if self.state is ResponseState.IN_FLIGHT:
            return RequestKind.NACK if refused else RequestKind.ACK
        return RequestKind.STALE if refused else RequestKind.REPEAT

    def become_in_flight(self, response: Response, nonce: str) -> None:
        """A response was handed to the wire."""
        self.state = ResponseState.IN_FLIGHT
        self.offered, self.nonce = response, nonce
        self.number = max(self.number, response.number)
        self.dirty_since = None

    def become_accepted(self) -> Response:
        """The response in flight was ACKed; returns it. What was refused before is history."""
        offered = self._take()
        self.state = ResponseState.SETTLED
        self.rejected = b""
        return offered

    def become_settled(self) -> None:
        """There is nothing to tell. A refused content stays refused, should it come back."""
        self.state = ResponseState.SETTLED

    def become_held(self) -> None:
        """There is something to tell, but it is what the client refused."""
        self.state = ResponseState.REJECTED

    def become_rejected(self) -> Response:
        """The response in flight was refused; returns it."""
        offered = self._take()
        self.state = ResponseState.REJECTED
        self.rejected = offered.digest
        return offered

    def supersede(self) -> Response:
        """Give up waiting for the response in flight; its late answer will be stale."""
        offered = self._take()
        self.state = ResponseState.SETTLED
        return offered

    def _take(self) -> Response:
        if self.offered is None:
            raise LocalProtocolError("no response in flight")
        offered, self.offered = self.offered, None
        self.dirty_since = None
        return offered

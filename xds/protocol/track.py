"""One type on one stream: its subscription, its ack state, and what the client holds."""

from __future__ import annotations

from xds.model.resource_type import ResourceType
from xds.model.snapshot import ResourceSet
from xds.protocol.ack import AckState, State
from xds.protocol.draft import NOTHING, Draft
from xds.protocol.known import Known
from xds.protocol.response import Response
from xds.protocol.subscription import Subscription


class Track:
    """Everything the engine keeps for one type of one stream.

    * ``forced``: names to be sent if wanted, though unchanged (a cluster that warms needs its assignment again);
    * ``withheld``: names asked for that the client's transition has yet to release; ``withheld_from`` lacked them;
    * ``placeholders``: the client shows no earlier version, so a missing assignment may be told by an empty one;
    * ``sent``, ``changed``: positions among all the client's doings of the last send and the last change of interest;
    * ``outlived``: the interest changed so much that the response in flight will prove nothing;
    * ``lags``: it is not in step with what was released, as of the last that its client's gate was told of it.
    """

    __slots__ = (
        "ack",
        "acked_set",
        "changed",
        "forced",
        "heartbeat_at_s",
        "known",
        "lags",
        "outlived",
        "placeholders",
        "sent",
        "sent_set",
        "subscription",
        "type",
        "withheld",
        "withheld_from",
    )

    def __init__(self, type: ResourceType, *, position: int) -> None:
        self.type = type
        self.subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
        self.ack = AckState()
        self.known = Known()
        self.forced: frozenset[str] = NOTHING
        self.withheld: frozenset[str] = NOTHING
        self.withheld_from: ResourceSet | None = None
        self.placeholders = False
        self.outlived = False
        self.lags = False
        self.sent = 0
        self.changed = position
        self.sent_set: ResourceSet | None = None
        self.acked_set: ResourceSet | None = None
        self.heartbeat_at_s: float | None = None

    @property
    def is_rejected(self) -> bool:
        return self.ack.state is State.REJECTED

    def in_step_with(self, released: ResourceSet) -> bool:
        """True when the client is proved to hold all it wants of ``released``."""
        known = self.known
        return (
            self.ack.state is State.SETTLED
            and known.base is released
            and not known.owed
            and not known.doubted
            and not self.forced
        )

    def has_news(self, released: ResourceSet) -> bool:
        """While a response is in flight: is there anything it does not say?"""
        offered = self.ack.offered
        held = self.known.base if offered is not None and offered.heartbeat else None
        stale = offered is not None and (held or offered.resource_set) is not released
        return stale or bool(self.known.owed or self.forced) or self.outlived

    def collect_withheld(self, released: ResourceSet) -> None:
        """A transition released new content: what was withheld is owed again."""
        if self.withheld and self.withheld_from is not released:
            self.known.owe(self.withheld)
            self.withheld = NOTHING

    def settle(self, released: ResourceSet, withheld: frozenset[str]) -> None:
        """There is nothing to say: the client is in step with ``released``, but for names still to come."""
        self.known.become(released)
        self._answered(withheld, released)
        self.ack.become_settled()
        self.acked_set = released

    def offer(self, response: Response, nonce: str, draft: Draft, position: int) -> None:
        """A response was made for the wire: what was owed is answered by it."""
        self._answered(draft.withheld, response.resource_set)
        self.ack.become_in_flight(response, nonce)
        self.sent = position
        self.sent_set = response.resource_set
        self.outlived = False

    def beat(self, response: Response) -> None:
        """A heartbeat was made for the wire: it asks for an ACK and changes nothing else."""
        self.ack.become_in_flight(response, response.nonce)

    def accept(self) -> Response:
        """The client ACKed: what was offered is known."""
        response = self.ack.become_accepted()
        if response.heartbeat:
            return response
        if self.outlived:
            self.known.doubt((*response.names, *response.removed))
        else:
            self.known.become(response.resource_set)
        self.acked_set = response.resource_set
        return response

    def refuse(self) -> Response:
        """The client NACKed: it may hold any part of what was offered (rule 18)."""
        return self._doubt(self.ack.become_rejected())

    def supersede(self) -> Response:
        """The response in flight is given up for a newer one."""
        return self._doubt(self.ack.supersede())

    def _doubt(self, response: Response) -> Response:
        if not response.heartbeat:
            self.known.doubt((*response.names, *response.removed))
        return response

    def _answered(self, withheld: frozenset[str], released: ResourceSet) -> None:
        self.known.owed = NOTHING
        self.forced = NOTHING
        self.withheld, self.withheld_from = withheld, released if withheld else None

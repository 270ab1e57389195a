"""One type on one stream: its subscription, its ack state, and what the client holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xds.model.resource_type import ResourceType
from xds.model.snapshot import ResourceSet
from xds.protocol.ack import AckState, ResponseState
from xds.protocol.content import NOTHING, ResponseContent
from xds.protocol.known import Known
from xds.protocol.refusals import Refusals, named_in
from xds.protocol.responses import Response
from xds.protocol.subscription import Subscription

if TYPE_CHECKING:
    from xds.protocol.delta import Heartbeats

_SUPERSEDED_LIMIT = 8


class Watch:
    """Everything the engine keeps for one type of one stream.

    * ``acked_set``: what the client took last, as far as it is proved; at its return what it showed;
    * ``acked_label``: the version_info of the last response that it ACKed;
    * ``forced``: names to be sent if wanted, though unchanged (a cluster that warms needs its assignment again);
    * ``warmed``: those of them that the response in flight has;
    * ``withheld``: names asked for that the client's transition has yet to release; ``withheld_from`` lacked them;
    * ``placeholders``: the client shows no earlier version, so a missing assignment may be told by an empty one;
    * ``told_missing``: names that were told not to exist since they were asked for (TP3);
    * ``reads_errors``: as in `Demand`;
    * ``opened``, ``sent``: positions, among all that the client does, of its first request and of the last send;
      ``is_read``: something sent behind the
      response in flight was answered, so that the client has read it;
    * ``asked``: names that the response in flight answers since they were asked for, whatever ``acked_set`` has;
    * ``goal``: what was released when the response in flight was made, which lacks what the client refuses;
    * ``refusals``: what the client refuses, once it refused something;
    * ``heartbeats``: of what has a TTL, while something has (Delta);
    * ``superseded``: what was offered since the last ACK and given up for something newer: any of it may be in use;
    * ``unknown``: names that a Delta client showed at its return and that nobody knows: told as removed later;
    * ``outlived``: the interest changed so much that the response in flight will prove nothing;
    * ``lags``: it is not in step with what was released, as of the last that its client's state was told of it.
    """

    __slots__ = (
        "ack",
        "acked_label",
        "acked_set",
        "asked",
        "forced",
        "goal",
        "heartbeats",
        "is_read",
        "known",
        "lags",
        "opened",
        "outlived",
        "placeholders",
        "reads_errors",
        "refusals",
        "sent",
        "sent_set",
        "subscription",
        "superseded",
        "told_missing",
        "type",
        "unknown",
        "warmed",
        "withheld",
        "withheld_from",
    )

    def __init__(self, type: ResourceType, opened: int = 0) -> None:
        self.type = type
        self.subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
        self.ack = AckState()
        self.known = Known()
        self.forced: frozenset[str] = NOTHING
        self.warmed: frozenset[str] = NOTHING
        self.withheld: frozenset[str] = NOTHING
        self.withheld_from: ResourceSet | None = None
        self.placeholders = False
        self.reads_errors = False
        self.told_missing: frozenset[str] = NOTHING
        self.outlived = False
        self.asked: frozenset[str] = NOTHING
        self.goal: ResourceSet | None = None
        self.is_read = False
        self.lags = False
        self.opened = opened
        self.sent = 0
        self.sent_set: ResourceSet | None = None
        self.superseded: tuple[ResourceSet, ...] = ()
        self.acked_set: ResourceSet | None = None
        self.acked_label = ""
        self.refusals: Refusals | None = None
        self.heartbeats: Heartbeats | None = None
        self.unknown: frozenset[str] = NOTHING

    @property
    def is_rejected(self) -> bool:
        """The client refuses something of what it was sent last."""
        return self.ack.state is ResponseState.REJECTED or bool(self.refusals)

    def in_step_with(self, released: ResourceSet) -> bool:
        """True when the client is proved to hold all it wants of ``released``."""
        known = self.known
        return (
            self.ack.state is ResponseState.SETTLED
            and known.base is released
            and not known.owed
            and not known.doubted
            and not self.forced
        )

    def has_news(self, released: ResourceSet) -> bool:
        """While a response is in flight: is there anything it does not say?"""
        offered = self.ack.offered
        stale = offered is not None and self.goal is not released
        return stale or bool(self.known.owed or self.forced) or self.outlived

    def collect_withheld(self, released: ResourceSet) -> None:
        """A transition released new content: what was withheld is owed again."""
        if self.withheld and self.withheld_from is not released:
            self.known.owe(self.withheld)
            self.withheld = NOTHING

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The names of what was released that are not offered now, since the client refuses them."""
        if not self.refusals:
            return NOTHING
        wants = self.subscription.interest.wants_name
        return frozenset(name for name in self.refusals.left_out(released) if wants(name))

    def settle(self, released: ResourceSet, withheld: frozenset[str]) -> None:
        """There is nothing to say: the client is in step with ``released``, but for names still to come."""
        self._hold(released)
        self._answered(withheld, released)
        self.ack.become_settled()
        self.acked_set = released

    def offer(self, response: Response, nonce: str, draft: ResponseContent, goal: ResourceSet, position: int) -> None:
        """A response was made for the wire, on the way to ``goal``: what was owed is answered by it."""
        self.goal = goal
        self.asked, self.warmed = self.known.owed, self.forced
        if draft.errors or self.told_missing:
            self.told_missing = self.told_missing.union(draft.errors).difference(response.resource_set.resources)
        self._answered(draft.withheld, response.resource_set)
        self.ack.become_in_flight(response, nonce)
        self.sent = position
        self.sent_set = response.resource_set
        self.outlived = self.is_read = False

    def accept(self) -> Response:
        """The client ACKed: what was offered is known."""
        response = self.ack.become_accepted()
        self.superseded = ()
        self.asked = self.warmed = NOTHING  # large sets are not kept for nothing
        if self.refusals is not None:
            self.refusals.note_ack(response.versions())
            if not self.refusals:
                self.refusals = None
        if self.outlived:
            self.known.doubt((*response.names, *response.removed))
        else:
            self._hold(response.resource_set, response)
        self.acked_set = response.resource_set
        self.acked_label = response.version_info
        return response

    def refuse(self, message: str, *, is_whole: bool = False) -> tuple[Response, tuple[str, ...]]:
        """The client NACKed with this text: it may hold any part of what was offered (rule 18).

        ``is_whole``: what was offered is all that it is to have.
        Returns the response and the names that are now known to be refused.
        """
        response = self._doubt(self.ack.become_rejected())
        # A cluster that warms has no assignment yet: it gets the last accepted one.
        self.forced, self.warmed = self.forced | self.warmed, NOTHING
        offered = self._news_of(response)
        if not offered:
            return response, ()
        if self.refusals is None:
            self.refusals = Refusals()
            self.refusals.refused_set = self.goal
        guilty = self.refusals.note_nack(offered, named_in(message, offered), is_whole=is_whole)
        # What it has unsubscribed from meanwhile may have been what was wrong, but is not offered again.
        wants, resources = self.subscription.interest.wants, response.resource_set.resources
        self.refusals.forgive([name for name in offered if not wants(resources[name])])
        self.known.trust(guilty)  # the client kept what it had of what it refused
        return response, guilty

    def is_of_earlier(self, message: str, version_info: str) -> bool:
        """Is an error text left over from a response that was given up?

        While CDS is paused, Envoy answers the newest response in SotW, with the error of an earlier one. It names what
        only that one had; or the request has the newest ``version_info``, which tells what was accepted last.
        """
        offered = self.ack.offered
        if offered is None or not self.known.doubted:
            return False
        if version_info == offered.version_info != self.acked_label:
            return True
        return bool(named_in(message, self.known.doubted)) and not named_in(message, offered.names)

    def arrived(self) -> frozenset[str]:
        """The names asked for that the client has an answer to, which it accepted."""
        names = self.subscription.interest.names
        if self.acked_set is None:
            return NOTHING
        if not self.lags:
            return names
        known, offered = self.known, self.ack.offered
        names = (names - known.owed - self.forced).intersection(self.acked_set.resources)
        if known.doubted:
            names = names.difference(known.doubted)
        return names.difference(offered.names, offered.removed) if offered is not None else names

    def sent_sets(self) -> Iterable[ResourceSet]:
        """The sets that the client may use something of."""
        offered = (self.ack.offered.resource_set,) if self.ack.offered is not None else ()
        acked = (self.acked_set,) if self.acked_set is not None else ()
        return (*acked, *offered, *self.superseded)

    def sent_names(self) -> frozenset[str]:
        """The names that it asks for and was sent, as far as that is known."""
        interest, offered = self.subscription.interest, self.ack.offered
        names = self.arrived()
        if (interest.everything or interest.globs) and self.acked_set is not None:
            names = names.union(interest.select(self.acked_set)) - self.known.owed
        return names.union(offered.names) if offered is not None else names

    def has(self, name: str) -> bool:
        """Did the client accept this resource, which it asks for?"""
        return self.acked_set is not None and name in self.acked_set.resources and name in self.arrived()

    def supersede(self) -> Response:
        """The response in flight is given up for a newer one."""
        response = self._doubt(self.ack.supersede())
        self.superseded = (*self.superseded, response.resource_set)[-_SUPERSEDED_LIMIT:]
        return response

    def _news_of(self, response: Response) -> dict[str, str]:
        """The names of a response that may be wrong, with their versions: not what the client had accepted."""
        accepted = self.acked_set.resources if self.acked_set is not None else {}
        versions = response.versions()
        news = {
            name: version
            for name, version in versions.items()
            if (held := accepted.get(name)) is None or held.version != version or name in self.asked
        }
        return news or versions

    def _doubt(self, response: Response) -> Response:
        self.known.doubt((*response.names, *response.removed))
        return response

    def _hold(self, released: ResourceSet, told: Response | None = None) -> None:
        """The client has this; of suspects it was not ``told`` of since, any may have been applied."""
        if self.refusals is None or not self.refusals.suspects:
            self.known.become(released)
            return
        known = frozenset((*told.names, *told.removed)) if told is not None else NOTHING
        doubted = [name for name in self.refusals.suspects if name in self.known.doubted and name not in known]
        self.known.become(released)
        self.known.doubt(doubted)

    def _answered(self, withheld: frozenset[str], released: ResourceSet) -> None:
        self.known.owed = NOTHING
        self.forced = NOTHING
        self.withheld, self.withheld_from = withheld, released if withheld else None

"""The engine of one discovery stream, with all its types.

The engine has no clock, no I/O and no tasks. Its inputs are requests, views and ticks; its outputs are events. The
caller must act on ``Send`` and ``TransitionAdvanced``. A `Watch` has the state of one type, `ClientState` has the
content that the client may be sent, ``content`` computes the content of a response, and the `Dialect` has the
differences between SotW and Delta. This module decides when responses are made:

1. A request is classified (first, ACK, NACK, repeat, stale, plain). Its interest is recorded whatever its nonce is
   (rules 17, 20, 51).
2. Each type is offered, in rank order: no response while one is in flight, and none with rejected content.
3. The transition of the client advances. Steps 2 and 3 repeat as long as it releases content.

``receive`` returns events or raises ``RemoteProtocolError``, which ends the stream. All checks come first, so an
invalid request changes no subscription and no response state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from xds.model.errors import LimitError
from xds.model.names import NO_NAMES
from xds.model.node import Node
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet
from xds.protocol.ack import RequestKind, ResponseState
from xds.protocol.answers import note_answer
from xds.protocol.client import ClientState
from xds.protocol.clients import ClientTable
from xds.protocol.cluster_parts import PARTS
from xds.protocol.decode import node_prefix
from xds.protocol.dialect import Dialect
from xds.protocol.events import (
    AckRepeated,
    AckWaitTimedOut,
    Event,
    Identified,
    NodeMismatch,
    Send,
    Subscribed,
    Synced,
    TransitionAdvanced,
    ViewChanged,
)
from xds.protocol.group_logs import LeftGroup
from xds.protocol.known_names import check_unread, known_sets, unknown_among
from xds.protocol.name_budget import NameBudgets, cost_of
from xds.protocol.offers import Offers
from xds.protocol.parked_requests import ParkedRequests
from xds.protocol.requests import (
    Request,
    StreamLimits,
    check_node_id,
    check_type,
)
from xds.protocol.subscription import InterestChange
from xds.protocol.type_status import TypeStatus, is_in_step, status_of
from xds.protocol.watch import Watch
from xds.snapshots.cache import SnapshotCache, View
from xds.snapshots.lines import GroupLine
from xds.wire.node import decode_node

Authorize = Callable[[Node, str], None]  # raises ``RemoteProtocolError`` if the node may not follow the group
ENCODED_AT_ONCE = 256 * 1024  # bytes of new responses in one call; with more, the other types wait for the next call
_ROUNDS_LIMIT = 256  # each round releases content of some type; no client needs so many at once


class DiscoveryStream:
    """The engine of one gRPC stream.

    * ``type_url``: the type of a per-type service; empty on ADS;
    * ``dialect``: `SOTW` or `DELTA`;
    * ``api_version``: the version of the resource API: ``v2`` on the v2 transport, else empty;
    * ``authorize``: called when the node is known, and before it follows another group; the group is empty while none
      matches;
    * ``may_return``: whether the node may still use content of a group that it followed before;
    * ``budgets``: those of connections for names that no resource has; by default the stream has one of its own.
    """

    __slots__ = (
        "_authorize", "_budgets", "_cache", "_client", "_clients", "_dialect", "_limits",
        "_matched_epoch", "_matched_group", "_matched_line", "_may_return", "_node_prefix", "_offers", "_parked",
        "_peer", "_remaining_since_s", "_type_url", "api_version", "client_key", "node", "view",
    )  # fmt: skip

    def __init__(
        self,
        *,
        cache: SnapshotCache,
        clients: ClientTable,
        dialect: Dialect,
        peer: str,
        type_url: str = "",
        limits: StreamLimits = StreamLimits(),
        api_version: str = "",
        authorize: Authorize | None = None,
        may_return: Callable[[Node, str], bool] | None = None,
        budgets: NameBudgets | None = None,
    ) -> None:
        self.api_version = api_version
        self.node: Node | None = None
        self.view: View | None = None
        # Set when the node is known: (peer address and node fingerprint, node id). The streams of a client share its
        # state.
        self.client_key: tuple[str, str] | None = None
        self._authorize = authorize
        self._may_return = may_return
        self._cache = cache
        self._clients = clients
        self._dialect = dialect
        self._peer = peer
        self._type_url = type_url
        self._limits = limits
        self._budgets = budgets if budgets is not None else NameBudgets(limits.unknown_name_bytes)
        self._client: ClientState | None = None
        self._node_prefix = b""
        self._matched_group = ""
        self._matched_line, self._matched_epoch = GroupLine.HEAD, -1
        self._offers = Offers(cache, dialect, limits.offer_timeout_s)
        self._remaining_since_s: float | None = None  # since when types wait for the next call
        self._parked: ParkedRequests | None = None

    # -- inputs -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, now_s: float) -> list[Event]:
        """Handle a request. Raises ``RemoteProtocolError`` for an invalid one, and then changes nothing."""
        type_url = check_type(request.type_url, self._type_url, self._limits)
        watch = self._offers.watches.get(type_url)
        subscribed = watch.subscription.interest.names if watch is not None else NO_NAMES
        after = self._dialect.names_after(request, subscribed)
        names_others = after is not subscribed and after != subscribed
        names_others = names_others or bool(request.unsubscribe or request.initial_versions)
        if watch is None or names_others:
            self._check_request(type_url, request, subscribed, after)
        events: list[Event] = []
        self._identify(request, events, now_s)
        if names_others:
            self._spend_names(type_url, request, subscribed)
        if self.view is None:
            self._park(type_url, request)
            return events
        self._handle_request(type_url, request, events, now_s)
        self._advance_and_offer(events, now_s)
        return events

    def offer(self, view: View | None, now_s: float) -> list[Event]:
        """Handle a push, a change of groups, or an advance of the client's transition by another of its streams.

        Raises ``RemoteProtocolError`` for a group that the node may not follow, and then changes nothing.
        """
        events: list[Event] = []
        if self._authorize is not None and view is not None and view.group != self.group and self.node is not None:
            self._authorize(self.node, view.group)
        if view is None:
            # No group matches the node any more: it keeps its content and is sent nothing.
            if self.view is not None and self.view.group:
                events.append(ViewChanged(""))
                self._require_client().become_orphaned(now_s)
                self.view = View("", self.view.snapshot, self.view.log, self.view.api_version)
            return events
        before = self.view
        self._follow_view(view, now_s)
        if before is None or before.group != view.group:
            events.append(ViewChanged(view.group))
        if before is None:
            self._unpark(events, now_s)
        self._advance_and_offer(events, now_s)
        return events

    def tick(self, now_s: float) -> list[Event]:
        """Handle a deadline that has passed, or offer the types that the last call left."""
        events: list[Event] = []
        if self._client is None:
            return events
        events += [AckWaitTimedOut(type_url) for type_url in self._client.expire(now_s)]
        self._offers.send_heartbeats(events, now_s)
        self._advance_and_offer(events, now_s)
        return events

    def end_lingering(self, now_s: float) -> list[Event]:
        """As `ClientState.end_lingering`."""
        events: list[Event] = []
        if self._client is not None and self._client.end_lingering(now_s):
            self._advance_and_offer(events, now_s)
        return events

    def deadline(self) -> float | None:
        """When `tick` is due; None if it is not needed."""
        if self._client is None:
            return None
        due = self._client.deadline_s() if self._remaining_since_s is None else self._remaining_since_s
        for watch in self._offers.watches.values():
            dirty_since_s, heartbeats = watch.ack.dirty_since_s, watch.heartbeats
            if dirty_since_s is not None and (due is None or dirty_since_s + self._limits.offer_timeout_s < due):
                due = dirty_since_s + self._limits.offer_timeout_s
            if heartbeats is not None and heartbeats.due_s < (math.inf if due is None else due):
                due = heartbeats.due_s
        return due

    def close(self, now_s: float) -> bool:
        """The stream ended: its state is dropped (rule 80). A second call has no effect.

        Returns whether the client is in a transition: its other streams may have waited for this one.
        """
        was_in_transition = self._client is not None and self._client.transition is not None
        if self._client is not None and self.client_key is not None:
            for watch in self._offers.watches.values() if self._client.streams > 1 else ():
                self._client.remove_watch(watch, now_s)
            self._clients.exit(self.client_key)
        self._budgets.leave(self._peer, self)
        self._client = None
        self._authorize = self._may_return = None  # they may refer to the owner of the stream
        self._offers.watches = {}
        self._parked = None
        return was_in_transition

    # -- the group of the node --------------------------------------------------------------------------------------

    @property
    def matched_group(self) -> str:
        """The group that the node belongs to now, even if the stream does not follow it yet; empty if none matches.

        It is matched again only if groups, their selectors or their lines changed, so a push costs no match.
        """
        if self.node is not None and self._matched_epoch != self._cache.epoch:
            match = self._cache.match(self.node)
            self._matched_group = match.group if match is not None else ""
            self._matched_line = self._cache.line(self._matched_group, self.node)
            self._matched_epoch = self._cache.epoch
        return self._matched_group

    def resolve(self) -> View | None:
        """The view that the stream should follow now; None while no group matches."""
        group, locality = self.matched_group, self.node.locality if self.node is not None else None
        return self._cache.view(group, self.api_version, locality, self._matched_line)

    # -- state for operators ----------------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        """The group that the stream follows; empty if none matches."""
        return self.view.group if self.view is not None else ""

    @property
    def is_at_rest(self) -> bool:
        """Whether the client has answered every response, at least one, and nothing waits for it."""
        acks = [watch.ack for watch in self._offers.watches.values()]
        is_waiting = self._client is None or self._client.transition is not None
        return not is_waiting and any(ack.nonce for ack in acks) and all(ack.in_flight is None for ack in acks)

    def status(self) -> list[TypeStatus]:
        """The state of each type."""
        client = self._client
        return [status_of(watch, client) for watch in self._offers.watches.values()] if client is not None else []

    def _check_request(
        self, type_url: str, request: Request, subscribed: frozenset[str], after: frozenset[str]
    ) -> None:
        """Raises ``LimitError`` for too many types or names, before anything changes."""
        parked = self._parked.types if self._parked is not None else ()
        if (
            type_url not in self._offers.watches
            and len({*self._offers.watches, *parked}) >= self._limits.types_per_stream
        ):
            raise LimitError("types_per_stream", "too many resource types on one stream")
        named = (*request.names, *request.unsubscribe) if request.unsubscribe else request.names
        self._limits.check_names(named, subscribed, after, partial(self._unknown_names, type_url, request.node))

    def check_count(self, type_url: str, node: bytes | memoryview, names: int, versions: int, size: int) -> None:
        """Refuse a request for more or longer names than any may have, before these are read. Raises ``LimitError``."""
        if self._limits.may_be_too_much(names, versions, size):
            watch = self._offers.watches.get(type_url or self._type_url)
            subscribed = watch.subscription.interest.names if watch is not None else NO_NAMES
            sets = list(self._known_sets(type_url or self._type_url, node))
            check_unread(self._limits, names, versions, size - len(node), subscribed, sets)

    def _known_sets(self, type_url: str, node: bytes | memoryview) -> Iterator[ResourceSet]:
        """As `known_sets`. ``node`` is that of the request; only the first request of a stream needs it."""
        view = self.view
        if view is None and self.node is None:
            view = self._cache.resolve(decode_node(node, self._limits.node_bytes), self.api_version)
        return known_sets(type_url, view, self._client)

    def _unknown_names(self, type_url: str, node: bytes | memoryview, names: frozenset[str]) -> frozenset[str]:
        return unknown_among(names, self._known_sets(type_url, node), self._cache.diffs)

    def _spend_names(self, type_url: str, request: Request, subscribed: frozenset[str]) -> frozenset[str]:
        """Count the newly requested names that no resource has, and return them. Raises ``LimitError``."""
        stated = request.stated
        unknown = self._unknown_names(type_url, request.node, stated - subscribed if subscribed else stated)
        self._budgets.spend(self._peer, self, unknown)
        self._limits.check_unknown(unknown)
        return unknown

    def unknown_names_cost(self) -> int:
        """As `NameHolder.unknown_names_cost`."""
        cost = cost_of(tuple(self._parked.names())) if self._parked is not None else 0
        for type_url, watch in self._offers.watches.items():
            known = watch.known.base
            names = watch.subscription.interest.names
            names |= self._cache.releases.leftovers(known) if known is not None else NO_NAMES
            cost += cost_of(self._unknown_names(type_url, b"", names))
        return cost

    # -- node and view ----------------------------------------------------------------------------------------------

    def _identify(self, request: Request, events: list[Event], now_s: float) -> None:
        """Rule 2: "Only the first request of a stream is sure to carry `node`"; the first node counts."""
        if self.node is not None:
            # Envoy may send a node of 61 kB with every ACK, so only its beginning is compared.
            if request.node and request.node[: len(self._node_prefix)] != self._node_prefix:
                other = decode_node(request.node, self._limits.node_bytes)
                if other.id != self.node.id:
                    events.append(NodeMismatch(other))
            return
        node = decode_node(request.node, self._limits.node_bytes)
        check_node_id(node.id)
        match = self._cache.match(node)
        matched_group = match.group if match is not None else ""
        if self._authorize is not None:
            self._authorize(node, matched_group)
        self.node, self._matched_epoch = node, self._cache.epoch
        self._matched_group, self._matched_line = matched_group, self._cache.line(matched_group, node)
        self._node_prefix = node_prefix(node.id)
        view = self.resolve()
        events.append(Identified(node, view.group if view is not None else ""))
        # Nodes with the same id that differ otherwise may have two views, which would alternate for ever in one client.
        self.client_key = (f"{self._peer}{self.api_version}{node.fingerprint}", node.id)
        self._client = self._clients.enter(self.client_key, view)
        if not self._type_url:
            self._client.is_aggregated = True
        if view is not None:
            self._follow_view(view, now_s)

    def _follow_view(self, view: View, now_s: float) -> None:
        client, node = self._require_client(), self.node
        assert node is not None, "the node is identified before anything else"
        is_other_group = self.view is None or self.view.group != view.group
        if is_other_group:
            self._clients.note_followed(node.id, view.group, client.goal)
        self.view = view
        if is_other_group or client.former_groups:
            client.former_groups = self._former_groups(node, view.group)
        client.follow(view, now_s)

    def _former_groups(self, node: Node, group: str) -> tuple[LeftGroup, ...]:
        """The other groups that the node followed, and whose content it may still use."""
        others = (each for each in self._clients.followed(node.id) if each.group != group)
        return tuple(each for each in others if self._may_return is None or self._may_return(node, each.group))

    def _park(self, type_url: str, request: Request) -> None:
        """Rule 9: a client is not answered while "its group is unknown"; its requests wait until a group matches."""
        if self._parked is None:
            self._parked = ParkedRequests(self._dialect, self._limits)
        self._parked.park(type_url, request)

    def _unpark(self, events: list[Event], now_s: float) -> None:
        parked, self._parked = self._parked, None
        for type_url, request in parked.requests() if parked is not None else ():
            self._handle_request(type_url, request, events, now_s)

    # -- a request --------------------------------------------------------------------------------------------------

    def _handle_request(self, type_url: str, request: Request, events: list[Event], now_s: float) -> None:
        client = self._require_client()
        watch = self._offers.watches.get(type_url)
        if watch is not None and watch.heartbeats is not None and request.nonce:
            heartbeat_names = watch.heartbeats.pop_answered(request.nonce)
            if heartbeat_names is not None:
                self._heartbeat_answered(watch, heartbeat_names, request, now_s)
                return
        if watch is None:
            watch = self._add_watch(type_url, request, now_s)
        kind = watch.ack.classify(request.nonce, request.error is not None)
        if request.error is not None and kind is not RequestKind.FIRST:
            watch.begin_search(client.watches.refused_of(type_url))
        event = note_answer(watch, kind, request, self._dialect, self._offers.watches.values(), self._cache.releases)
        if event is not None:
            events.append(event)
            self._note_for_others(watch, client)
        before = watch.subscription.interest
        change = self._dialect.change_interest(watch.subscription, request, self._cache.interests)
        has_changed = bool(change)
        if has_changed:
            self._note_interest_change(watch, change, kind)
        if kind is RequestKind.FIRST and (watch.known.base is not None or watch.known.uncertain):
            self._note_parents_sent(watch, now_s)
        if watch.subscription.interest is not before or kind is RequestKind.FIRST:
            events.append(self._subscribed(watch))
        is_repeat = kind is RequestKind.REPEAT and not has_changed
        if is_repeat and not self._dialect.note_repeated_ack(watch, self._offers.watches):
            events.append(AckRepeated(type_url))
        client.update(watch, now_s)
        if kind is RequestKind.FIRST and watch.ack.state is ResponseState.SETTLED and is_in_step(watch, client):
            events.append(Synced(type_url, client.release_of(type_url)))  # it is in step without a response

    def _note_parents_sent(self, watch: Watch, now_s: float) -> None:
        """A reconnected client may show its content of a child type after the changed parent was sent."""
        for parent in self._offers.watches.values():
            if parent.offered is not None:
                sent = parent.offered.resource_set
                self._offers.note_sent_before(parent, watch, sent, self._require_client(), now_s)

    def _note_for_others(self, watch: Watch, client: ClientState) -> None:
        """Note what an answer shows to be accepted or rejected, for other connections of the node and other nodes."""
        if watch.type.full_state and watch.known.base is not None:
            client.view.log.note_accepted(watch.known.base)
        refused = client.watches.refused.get(watch.type.type_url)
        if refused and self.node is not None:
            self._cache.note_refused(watch.type.type_url, refused)
            self._clients.note_rejected(self.node.id, watch.type.type_url, refused)

    def _heartbeat_answered(self, watch: Watch, names: tuple[str, ...], request: Request, now_s: float) -> None:
        """Handle the answer to a heartbeat. It may also change the interest.

        docs/protocol.md#ttls: "A client that rejects a heartbeat has dropped the resource, so the whole resource is
        sent again".
        """
        if request.error is not None:
            watch.known.mark_uncertain(names)
            watch.known.mark_unanswered(names)
        change = self._dialect.change_interest(watch.subscription, request, self._cache.interests)
        if change:
            self._note_interest_change(watch, change, RequestKind.PLAIN)
        self._require_client().update(watch, now_s)

    def _add_watch(self, type_url: str, request: Request, now_s: float) -> Watch:
        client = self._require_client()
        type = resource_type(type_url)
        watch = Watch(type, reads_errors=self.node is not None and self.node.reads_errors)
        in_rank_order = sorted((*self._offers.watches.values(), watch), key=lambda watch: watch.type.rank)
        self._offers.watches = {watch.type.type_url: watch for watch in in_rank_order}
        watch.note_label(request.version_info)
        client.add_watch(watch, request.names, request.shown, now_s)
        if watch.known.base is not None:  # the TTLs of the shown versions have run since the last connection
            self._dialect.plan_heartbeat(watch, now_s, None)
        return watch

    def _note_interest_change(self, watch: Watch, change: InterestChange, kind: RequestKind) -> None:
        """Rules 25 and 53: requested names need an answer, even if the client holds them."""
        if change.dropped:
            watch.forget_names(change.dropped)
        if change.everything and kind is not RequestKind.FIRST:
            watch.forget_all()
        unanswered = change.unanswered
        if unanswered:
            self._dialect.note_subscribed(watch, unanswered, is_first=kind is RequestKind.FIRST)
        if kind is RequestKind.FIRST and watch.type.alias not in PARTS:
            released = self._require_client().release_of(watch.type.type_url)
            unanswered = self._dialect.unanswered_at_first(watch, unanswered, released, self._cache.diffs)
        watch.known.mark_unanswered(unanswered)

    def _subscribed(self, watch: Watch) -> Subscribed:
        interest = watch.subscription.interest
        released = self._require_client().release_of(watch.type.type_url)
        missing = self._cache.diffs.missing(interest, released)
        return Subscribed(watch.type.type_url, interest.wildcard, interest.names, missing)

    # -- offers -----------------------------------------------------------------------------------------------------

    def _advance_and_offer(self, events: list[Event], now_s: float) -> None:
        client = self._client
        if client is None or self.view is None:
            return
        encoded_limit = self._cache.responses.encoded_bytes + ENCODED_AT_ONCE
        may_send, has_remaining = client.advance(now_s), False
        for _ in range(_ROUNDS_LIMIT):
            before = (len(events), len(client.watches.pending_types)) if client.transition is not None else None
            has_remaining = self._offers.offer_all(client, events, now_s, encoded_limit)
            if (before is not None and not _may_advance(client, events, *before)) or not client.advance(now_s):
                break
            may_send = True
        self._remaining_since_s = now_s if has_remaining else None
        if may_send and client.streams > 1:
            events.append(TransitionAdvanced())
        if client.transition is not None or client.reports.has_untold(client.lingering):
            client.reports.tell(events, client.lingering, client.transition, client.facts)

    def _require_client(self) -> ClientState:
        assert self._client is not None, "the node is identified before anything else"
        return self._client


def _may_advance(client: ClientState, events: list[Event], events_n: int, pending_n: int) -> bool:
    """Whether a transition may release more after an offer: not after a response that is not answered yet."""
    others = [event for event in events[events_n:] if type(event) is not Send]
    return client.may_advance(has_settled=bool(others) or len(client.watches.pending_types) != pending_n)

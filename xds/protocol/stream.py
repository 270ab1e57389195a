"""The engine of one discovery stream, with all its types.

It has no clock, no I/O and no tasks. Requests, views and ticks go in, and events come out; the caller must act on
``Send`` and ``TransitionAdvanced``. The state of a type is in its `Watch`, what the client may see in its
`ClientState`, what a response contains in ``content``, what SotW and Delta do differently in the `Dialect`. This
module says when responses are made:

1. A request is classified (first, ACK, NACK, repeat, stale, plain), and its interest is recorded whatever its nonce is
   (rules 17, 20, 51).
2. Each type gets its response, in rank order: none while a response is in flight, and none with rejected content.
3. The transition of the client advances. As long as it releases something, 2 and 3 repeat.

``receive`` returns events or raises ``RemoteProtocolError``, which ends the stream. All checks come first, so that a
request that is an error has changed no subscription and no response state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy

from xds.model.errors import LimitError
from xds.model.node import Node
from xds.model.resource_type import resource_type
from xds.protocol.ack import RequestKind, ResponseState
from xds.protocol.awaited import takes_clusters
from xds.protocol.cache import SnapshotCache, View
from xds.protocol.client import ClientState
from xds.protocol.clients import ClientTable
from xds.protocol.decode import node_prefix
from xds.protocol.dialect import AnyDialect
from xds.protocol.events import (
    AckRepeated,
    AckWaitTimedOut,
    Event,
    HoldChanged,
    Identified,
    LingerChanged,
    LingerCut,
    NodeMismatch,
    Subscribed,
    TransitionAdvanced,
    ViewChanged,
)
from xds.protocol.offers import Offers, note_answer
from xds.protocol.origin import Origin, origin_of
from xds.protocol.requests import (
    ParkedRequests,
    Request,
    StreamLimits,
    check_node_id,
    check_type,
)
from xds.protocol.returning import decide_early
from xds.protocol.subscription import InterestChange
from xds.protocol.watch import TypeStatus, Watch, status_of
from xds.wire.node import decode_node

READS_ERRORS = "gRPC"  # user agents that act on resource_errors (A88); Envoy uses its own timers
Authorize = Callable[[Node, str], None]  # raises ``RemoteProtocolError`` if the node may not follow the group
ENCODED_AT_ONCE = 256 * 1024  # bytes of new responses; above it the other types wait for the next call
_ROUNDS_AT_MOST = 256  # each releases content of a type; no client has so many releases at once


class DiscoveryStream:
    """The engine of one gRPC stream.

    * ``type_url``: the type of a per-type service; empty on ADS;
    * ``dialect``: `SOTW` or `DELTA`;
    * ``api_version``: the version of the resource API: ``v2`` on the v2 transport, else empty;
    * ``authorize``: called when the node is known and before it follows another group; the group is empty while none
      matches;
    * ``may_return``: whether the node may still use content of a group that it followed before.
    """

    __slots__ = (
        "_authorize",
        "_cache",
        "_client",
        "_clients",
        "_dialect",
        "_former",
        "_home",
        "_home_epoch",
        "_limits",
        "_may_return",
        "_node_prefix",
        "_offers",
        "_peer",
        "_rest_at_s",
        "_type_url",
        "_waiting",
        "_watches",
        "api_version",
        "client_key",
        "node",
        "view",
    )

    def __init__(
        self,
        *,
        cache: SnapshotCache,
        clients: ClientTable,
        dialect: AnyDialect,
        peer: str,
        type_url: str = "",
        limits: StreamLimits = StreamLimits(),
        api_version: str = "",
        authorize: Authorize | None = None,
        may_return: Callable[[Node, str], bool] | None = None,
    ) -> None:
        self.api_version = api_version
        self.node: Node | None = None
        self.view: View | None = None
        # The client, once its node is known: (peer address and node fingerprint, node id). Its streams share a
        # transition.
        self.client_key: tuple[str, str] | None = None
        self._authorize = authorize
        self._may_return = may_return
        self._cache = cache
        self._clients = clients
        self._dialect = dialect
        self._peer = peer
        self._type_url = type_url
        self._limits = limits
        self._client: ClientState | None = None
        self._node_prefix = b""
        self._home = ""
        self._home_epoch = -1
        self._former: tuple[str, ...] = ()  # the groups that its node followed before
        self._offers = Offers(cache, dialect, limits.offer_timeout_s)
        self._watches: Mapping[str, Watch] = self._offers.watches
        self._rest_at_s: float | None = None  # since when types wait for the next call
        self._waiting: ParkedRequests | None = None

    def copy(self, clients: ClientTable, watches: Mapping[Watch, Watch]) -> DiscoveryStream:
        """A stream in the same state that continues on its own, with a copy of its client (`ClientTable.copy`).

        Who the stream belongs to, its rules and the cache are shared; events go to whoever calls the copy.
        """
        made = copy(self)
        made._clients = clients
        made._client = clients.state(self.client_key) if self.client_key is not None else None
        made._offers = self._offers.copy(watches)
        made._watches = made._offers.watches
        if self._waiting is not None:
            made._waiting = self._waiting.copy()
        return made

    # -- inputs -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, now: float) -> list[Event]:
        """Handle a request. Raises ``RemoteProtocolError`` for one that breaks a rule; nothing changed then."""
        type_url = self._checked_type(request)
        events: list[Event] = []
        self._identify(request, events, now)
        if self.view is None:
            self._park(type_url, request)
            return events
        self._apply(type_url, request, events, now)
        self._run(events, now)
        return events

    def offer(self, view: View | None, now: float) -> list[Event]:
        """Handle a push, a change of groups, or an advance of the client's transition by another of its streams.

        Raises ``RemoteProtocolError`` for a group that the node may not follow; nothing changed then.
        """
        events: list[Event] = []
        if self._authorize is not None and view is not None and view.group != self.group and self.node is not None:
            self._authorize(self.node, view.group)
        if view is None:
            # No group matches the node any more: it keeps what it has and is sent nothing.
            if self.view is not None and self.view.group:
                events.append(ViewChanged(""))
                self._require_client().strand(now)
                self.view = View("", self.view.snapshot, self.view.api_version)
            return events
        before = self.view
        self._follow(view, now)
        if before is None or before.group != view.group:
            events.append(ViewChanged(view.group))
        if before is None:
            self._unpark(events, now)
        self._run(events, now)
        return events

    def tick(self, now: float) -> list[Event]:
        """Handle a deadline that passed, or what the call before left to do."""
        events: list[Event] = []
        if self._client is None:
            return events
        events += [AckWaitTimedOut(type_url) for type_url in self._client.expire(now)]
        self._offers.beat(events, now)
        self._run(events, now)
        return events

    def let_go(self, now: float) -> list[Event]:
        """End what lingers for the client, on the order of an operator (`xds release`)."""
        events: list[Event] = []
        if self._client is not None and self._client.let_go(now):
            self._run(events, now)
        return events

    def deadline(self) -> float | None:
        """When ``tick`` is due; None while it is not needed."""
        if self._client is None:
            return None
        due = self._client.deadline_s() if self._rest_at_s is None else self._rest_at_s
        for watch in self._watches.values():
            dirty_since, heartbeats = watch.ack.dirty_since, watch.heartbeats
            if dirty_since is not None and (due is None or dirty_since + self._limits.offer_timeout_s < due):
                due = dirty_since + self._limits.offer_timeout_s
            if heartbeats is not None and heartbeats.due_s < (math.inf if due is None else due):
                due = heartbeats.due_s
        return due

    def close(self, now: float) -> bool:
        """The stream ended: its state is dropped (rule 80). Closing twice is harmless.

        Returns whether the client is in a transition: its other streams may have waited for this one.
        """
        amid = self._client is not None and not self._client.is_idle
        if self._client is not None and self.client_key is not None:
            for watch in self._watches.values():
                self._client.leave(watch, now)
            self._client.untell()
            self._clients.exit(self.client_key, now)
        self._client = None
        self._authorize = self._may_return = None  # they may refer to the owner of the stream
        self._watches = self._offers.watches = {}
        self._waiting = None
        return amid

    # -- where the node belongs -------------------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """The group that the node belongs to now, even if it does not follow it yet; empty when none matches.

        Matched again only when groups or their selectors changed, so that a push costs no match.
        """
        if self.node is not None and self._home_epoch != self._cache.epoch:
            match = self._cache.match(self.node)
            self._home = match.group if match is not None else ""
            self._home_epoch = self._cache.epoch
        return self._home

    def resolve(self) -> View | None:
        """What the stream is to follow now; None while no group matches."""
        return self._cache.view(self.home, self.api_version, self.node.locality if self.node is not None else None)

    # -- outputs for people -----------------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        """The group that the stream follows; empty when none matches."""
        return self.view.group if self.view is not None else ""

    def status(self) -> list[TypeStatus]:
        """The state of each type."""
        client = self._client
        return [status_of(watch, client) for watch in self._watches.values()] if client is not None else []

    def _checked_type(self, request: Request) -> str:
        """The type URL of a request. All errors are raised here, before anything changes."""
        type_url = check_type(request.type_url, self._type_url)
        watch = self._watches.get(type_url)
        waiting = self._waiting.types if self._waiting is not None else ()
        if watch is None and len({*self._watches, *waiting}) >= self._limits.types_per_stream:
            raise LimitError("types_per_stream", "too many resource types on one stream")
        subscribed = len(watch.subscription.interest.names) if watch is not None else 0
        self._dialect.check_names(request, subscribed, self._limits)
        return type_url

    # -- node and view ----------------------------------------------------------------------------------------------

    def _identify(self, request: Request, events: list[Event], now: float) -> None:
        """Rule 2: "Only the first request of a stream is sure to carry `node`"; the first node counts."""
        if self.node is not None:
            # Envoy may send a node of 61 kB with every ACK: only its beginning is compared.
            if request.node and request.node[: len(self._node_prefix)] != self._node_prefix:
                other = decode_node(request.node, self._limits.node_bytes)
                if other.id != self.node.id:
                    events.append(NodeMismatch(other))
            return
        node = decode_node(request.node, self._limits.node_bytes)
        check_node_id(node.id)
        match = self._cache.match(node)
        home = match.group if match is not None else ""
        if self._authorize is not None:
            self._authorize(node, home)
        self.node, self._home, self._home_epoch = node, home, self._cache.epoch
        self._node_prefix = node_prefix(node.id)
        view = self.resolve()
        events.append(Identified(node, view.group if view is not None else ""))
        # Nodes with one id that differ otherwise may have two views; in one client these would alternate for ever.
        self.client_key = (f"{self._peer}{self.api_version}{node.fingerprint}", node.id)
        self._client = self._clients.enter(self.client_key, view, now)
        if not self._type_url:
            self._client.is_aggregated = True
        self._former = self._cache.history.followed(node.id)
        if self._may_return is not None:
            allowed = tuple(group for group in self._former if self._may_return(node, group))
            if allowed != self._former:
                self._former = allowed
                self._client.past.forget()  # its content may be of groups that it may not use
        if view is not None:
            self._follow(view, now)

    def _follow(self, view: View, now: float) -> None:
        if self.node is not None and (self.view is None or self.view.group != view.group):
            self._cache.history.note_followed(self.node.id, view.group)
        self.view = view
        client = self._require_client()
        client.follow(view, now)

    def _park(self, type_url: str, request: Request) -> None:
        """Rule 9: a client is not answered while "its group is unknown"; its requests wait until a group matches."""
        if self._waiting is None:
            self._waiting = ParkedRequests(self._dialect, self._limits)
        self._waiting.park(type_url, request)

    def _unpark(self, events: list[Event], now: float) -> None:
        waiting, self._waiting = self._waiting, None
        for type_url, request in waiting.requests() if waiting is not None else ():
            self._apply(type_url, request, events, now)

    # -- a request --------------------------------------------------------------------------------------------------

    def _apply(self, type_url: str, request: Request, events: list[Event], now: float) -> None:
        client = self._require_client()
        watch = self._watches.get(type_url)
        if watch is not None and watch.heartbeats is not None and request.nonce:
            beaten = watch.heartbeats.pop_answered(request.nonce)
            if beaten is not None:
                self._heartbeat_answered(watch, beaten, request, now)
                return
        if watch is None:
            watch = self._add_watch(type_url, request, now)
        answer = watch.ack.classify(request.nonce, request.error is not None)
        said = note_answer(watch, answer, request, self._dialect, self._offers, self._cache.releases)
        if said is not None:
            events.append(said)
        before = watch.subscription.interest
        shift = self._dialect.change_interest(watch.subscription, request, self._cache.interests)
        if shift:
            self._shifted(watch, shift, answer)
        if watch.subscription.interest is not before or answer is RequestKind.FIRST:
            events.append(self._subscribed(watch))
        if answer is RequestKind.REPEAT and not shift:
            if not self._dialect.answers_repeat(watch, self._watches):
                events.append(AckRepeated(type_url))
        elif shift and answer is not RequestKind.FIRST:
            self._dialect.note_names_added(watch, self._watches, client.release_of, self._cache)
        client.update(watch, now)

    def _heartbeat_answered(self, watch: Watch, names: tuple[str, ...], request: Request, now: float) -> None:
        """Handle the answer to a heartbeat, which may also change the interest.

        docs/protocol.md#ttls: "A client that rejects a heartbeat has dropped the resource, so the whole resource is
        sent again".
        """
        if request.error is not None:
            watch.known.mark_uncertain(names)
            watch.known.mark_unanswered(names)
        shift = self._dialect.change_interest(watch.subscription, request, self._cache.interests)
        if shift:
            self._shifted(watch, shift, RequestKind.PLAIN)
        self._require_client().update(watch, now)

    def _add_watch(self, type_url: str, request: Request, now: float) -> Watch:
        client = self._require_client()
        type = resource_type(type_url)
        watch = Watch(type, client.next_position())
        watch.reads_errors = self.node is not None and self.node.user_agent_name.startswith(READS_ERRORS)
        in_rank_order = sorted((*self._watches.values(), watch), key=lambda watch: watch.type.rank)
        self._watches = self._offers.watches = {watch.type.type_url: watch for watch in in_rank_order}
        shown = self._dialect.shown_by(watch, request, self._cache, self._origin(type_url))
        client.join(watch, self._dialect.names_asked(request), shown, now)
        if client.undecided and type.is_route_target:
            decide_early(client, self._cache, self._origin, now)
        if watch.known.base is not None:  # it shows versions: their TTLs have run since the last connection
            self._dialect.plan_heartbeat(watch, now, None)
        if shown is not None:
            # A returning client may show what it holds of a child type after its changed parent was sent.
            for parent in self._watches.values():
                if parent.ack.offered is not None:
                    self._offers.warm(parent, watch, parent.ack.offered.resource_set, client, now)
        return watch

    def _origin(self, type_url: str) -> Origin:
        groups = self._former, self.group, self.api_version
        return origin_of(self._require_client(), self._cache, type_url, *groups)

    def _shifted(self, watch: Watch, shift: InterestChange, answer: RequestKind) -> None:
        """Rules 25 and 53: requested names need an answer, even if the client holds them."""
        known = watch.known
        known.forget(shift.dropped)
        if shift.dropped:
            watch.shown = None
        if shift.dropped and watch.refusals is not None:
            self._require_client().watches.note_dropped(watch, shift.dropped)
            watch.refusals.forgive(shift.dropped)
        if watch.told_missing:
            watch.told_missing -= shift.dropped
        if shift.everything and answer is not RequestKind.FIRST:
            known.forget_all()
            watch.interest_replaced = watch.ack.state is ResponseState.IN_FLIGHT
        unanswered = shift.unanswered
        if unanswered:
            self._dialect.note_subscribed(watch, unanswered, is_first=answer is RequestKind.FIRST)
        if answer is RequestKind.FIRST and not self._may_warm(watch):
            released = self._require_client().release_of(watch.type.type_url)
            unanswered = self._dialect.unanswered_at_first(watch, unanswered, released, self._cache)
        known.mark_unanswered(unanswered)

    def _may_warm(self, watch: Watch) -> bool:
        """Whether the client may wait for assignments although it shows their newest versions.

        docs/protocol.md#coming-back: "Envoy sends no CDS request on a new stream while a cluster warms". That cluster
        needs its assignment after it, even if the client has the assignment already.
        """
        client = self._require_client()
        return watch.type.alias == "endpoints" and not client.has_clusters and takes_clusters(client)

    def _subscribed(self, watch: Watch) -> Subscribed:
        interest = watch.subscription.interest
        released = self._require_client().release_of(watch.type.type_url)
        missing = self._cache.diffs.missing(interest, released)
        return Subscribed(watch.type.type_url, interest.wildcard, interest.names, missing)

    # -- offers -----------------------------------------------------------------------------------------------------

    def _run(self, events: list[Event], now: float) -> None:
        client = self._client
        if client is None or self.view is None:
            return
        enough = self._cache.responses.encoded_bytes + ENCODED_AT_ONCE
        moved, rest = client.advance(now), False
        for _ in range(_ROUNDS_AT_MOST):
            rest = self._offers.offer_all(client, events, now, enough)
            if not client.advance(now):
                break
            moved = True
        self._rest_at_s = now if rest else None
        if moved and client.streams > 1:
            events.append(TransitionAdvanced())
        if client.cut:
            events.append(LingerCut(client.cut))
            client.cut = ()
        if client.lingering is not client.told_lingering:
            client.told_lingering = client.lingering
            events.append(LingerChanged(client.lingering))
        if client.transition is not None or client.told_held:
            self._tell_held(client, events)

    def _tell_held(self, client: ClientState, events: list[Event]) -> None:
        held = client.held()
        if held != client.told_held:
            client.told_held = held
            events.append(HoldChanged(held))

    def _require_client(self) -> ClientState:
        assert self._client is not None, "the node is identified before anything else"
        return self._client

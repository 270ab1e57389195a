"""One discovery stream, all its types: the rules file.

House rules: no clock, no I/O, no tasks. Requests, views and ticks go in; events come out, and ``Send`` is the only one
the shell must act on besides ``Moved``. What a type is at is in its ``Watch``; what the client may see is in its
``ClientState``; what a response contains is in ``draft``. Here is when something is offered:

1. a request is classified (first, ACK, NACK, repeat, stale, plain) and its interest is recorded, always, whatever its
   nonce says (rules 17, 20, 51);
2. every type that may have something to say is pumped, in rank order: nothing is offered while a response is in
   flight, and nothing whose content equals a refused one;
3. the client's transition advances; as long as it releases something, 2 and 3 repeat.

``receive`` either returns events or raises ``RemoteProtocolError``, which ends the stream; its checks come
first, so that a refused request has changed no subscription and no ack state.
"""

from __future__ import annotations

from collections.abc import Callable

from xds.model.errors import LimitError
from xds.model.node import Node
from xds.model.resource_type import resource_type
from xds.model.snapshot import empty_set
from xds.protocol import warming, wire
from xds.protocol.ack import Answer, State
from xds.protocol.arrival import decide_early
from xds.protocol.cache import SnapshotCache, View
from xds.protocol.client import ClientState
from xds.protocol.clients import ClientTable
from xds.protocol.draft import Variant
from xds.protocol.events import (
    Acked,
    DeltaRequest,
    Event,
    HoldChanged,
    Identified,
    LingerChanged,
    LingerCut,
    Moved,
    Nacked,
    NodeMismatch,
    Repeated,
    Request,
    SotwRequest,
    Stale,
    Subscribed,
    ViewChanged,
    WaitEnded,
)
from xds.protocol.limits import Limits, check_names, check_node_id, check_type, names_in
from xds.protocol.offers import Offers
from xds.protocol.returning import Origin, names_asked, origin_of, owed_at_first, shown_by
from xds.protocol.status import TypeStatus, status_of
from xds.protocol.subscription import Shift
from xds.protocol.watch import Watch
from xds.wire.node import decode_node

READS_ERRORS = "gRPC"  # user agents that heed resource_errors (A88); Envoy goes by its own timers
Authorize = Callable[[Node, str], None]  # raises ``RemoteProtocolError`` where the node may not follow the group
ENCODED_AT_ONCE = 256 * 1024  # bytes of new responses after which the other types wait for the next call
_ROUNDS_AT_MOST = 256  # each releases something of a type; a client has no more than this to go through at once


class DiscoveryStream:
    """The engine of one gRPC stream.

    ``type_url`` is that of a per-type service; empty on ADS. ``variant`` tells SotW from Delta; ``api`` is the variant
    of the resource API (``v2`` on the v2 transport).

    ``authorize`` is asked when the node is named and before it follows another group, with the group, empty while none
    matches; ``may_return`` whether it may still have content of a group that it followed before.
    """

    __slots__ = (
        "_authorize",
        "_cache",
        "_client",
        "_clients",
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
        "_variant",
        "_waiting",
        "_watches",
        "api",
        "client_key",
        "node",
        "view",
    )

    def __init__(
        self,
        *,
        cache: SnapshotCache,
        clients: ClientTable,
        variant: Variant,
        peer: str,
        type_url: str = "",
        limits: Limits = Limits(),
        api: str = "",
        authorize: Authorize | None = None,
        may_return: Callable[[Node, str], bool] | None = None,
    ) -> None:
        self.api = api
        self.node: Node | None = None
        self.view: View | None = None
        # Identifies the client, once it named itself: (peer address and what it says of itself, node id). Its streams
        # share a transition.
        self.client_key: tuple[str, str] | None = None
        self._authorize = authorize
        self._may_return = may_return
        self._cache = cache
        self._clients = clients
        self._variant = variant
        self._peer = peer
        self._type_url = type_url
        self._limits = limits
        self._client: ClientState | None = None
        self._node_prefix = b""
        self._home = ""
        self._home_epoch = -1
        self._former: tuple[str, ...] = ()  # the groups its client holds something of, when it comes back
        self._watches: dict[str, Watch] = {}
        self._offers = Offers(cache, variant, limits.offer_timeout_s)
        self._rest_at_s: float | None = None  # types still to be looked at: since when
        self._waiting: dict[str, list[Request]] | None = None  # requests of a node that no group matches yet

    # -- inputs -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, now: float) -> list[Event]:
        """A request arrived. Raises ``RemoteProtocolError`` for one that breaks a rule; nothing changed then."""
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
        """A push happened, the groups changed, or another stream of the client moved its transition on.

        Raises ``RemoteProtocolError`` for a group that the node may not follow; nothing changed then.
        """
        events: list[Event] = []
        if view is not None and view.group != self.group and self._authorize is not None and self.node is not None:
            self._authorize(self.node, view.group)
        if view is None:
            # The node vanished from every group: it keeps its last answer and is sent nothing (DESIGN 3.1).
            if self.view is not None and self.view.group:
                events.append(ViewChanged(""))
                self._require_client().strand(now)
                self.view = View("", self.view.snapshot, self.view.variant)
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
        """A deadline passed, or the call before left work for this one."""
        events: list[Event] = []
        if self._client is None:
            return events
        events += [WaitEnded(type_url) for type_url in self._client.expire(now)]
        self._offers.beat(events, now)
        self._run(events, now)
        return events

    def let_go(self, now: float) -> list[Event]:
        """An operator ends what lingers for the client (`xds release`)."""
        events: list[Event] = []
        if self._client is not None and self._client.let_go(now):
            self._run(events, now)
        return events

    def deadline(self) -> float | None:
        """When ``tick`` is due; None while nothing is awaited."""
        if self._client is None:
            return None
        due = self._client.deadline_s() if self._rest_at_s is None else self._rest_at_s
        for watch in self._in_rank_order:
            dirty_since, heartbeats = watch.ack.dirty_since, watch.heartbeats
            if dirty_since is not None and (due is None or dirty_since + self._limits.offer_timeout_s < due):
                due = dirty_since + self._limits.offer_timeout_s
            if heartbeats is not None and (due is None or heartbeats.due_s < due):
                due = heartbeats.due_s
        return due

    def close(self, now: float) -> bool:
        """The stream ended: its state goes with it (rule 80). Closing twice is harmless.

        True when the client is amid a transition: its other streams may have waited for this one.
        """
        amid = self._client is not None and not self._client.is_idle
        if self._client is not None and self.client_key is not None:
            for watch in self._in_rank_order:
                self._client.leave(watch)
            self._client.untell()
            self._clients.exit(self.client_key, now)
        self._client = None
        self._authorize = self._may_return = None  # they may refer to who holds the stream
        self._watches, self._offers.watches = {}, ()
        self._waiting = None
        return amid

    # -- where the node belongs -------------------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """The group that the node belongs to now, whatever it follows still; empty when none matches.

        Found anew only when groups or their selectors changed: a push costs no match.
        """
        if self.node is not None and self._home_epoch != self._cache.epoch:
            match = self._cache.match(self.node)
            self._home = match.group if match is not None else ""
            self._home_epoch = self._cache.epoch
        return self._home

    def resolve(self) -> View | None:
        """What the stream is to be offered now; None while no group matches."""
        return self._cache.view(self.home, self.api, self.node.locality if self.node is not None else None)

    # -- outputs for people -----------------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        """The group followed; empty when none matches."""
        return self.view.group if self.view is not None else ""

    def status(self) -> list[TypeStatus]:
        """Where each type stands."""
        client = self._client
        return [status_of(watch, client) for watch in self._in_rank_order] if client is not None else []

    def _checked_type(self, request: Request) -> str:
        """Everything that is refused is refused here, before anything changes."""
        type_url = check_type(request.type_url, self._type_url)
        watch = self._watches.get(type_url)
        if watch is None and len({*self._watches, *(self._waiting or ())}) >= self._limits.types_per_stream:
            raise LimitError("types_per_stream", "too many resource types on one stream")
        check_names(request, len(watch.subscription.interest.names) if watch is not None else 0, self._limits)
        return type_url

    # -- node and view ----------------------------------------------------------------------------------------------

    def _identify(self, request: Request, events: list[Event], now: float) -> None:
        """Rule 2: "Only the first request of a STREAM is guaranteed to carry node"; the first one is kept."""
        if self.node is not None:
            # Of a node of 61 KB in every ACK, no more is looked at than what it begins with.
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
        self._node_prefix = wire.node_prefix(node.id)
        view = self.resolve()
        events.append(Identified(node, view.group if view is not None else ""))
        # Streams that name one node in two ways may have two views, which would take turns in one transition for ever.
        self.client_key = (f"{self._peer}{self.api}{node.fingerprint}", node.id)
        self._client = self._clients.enter(self.client_key, view, now)
        if not self._type_url:
            self._client.is_aggregated = True
        self._former = self._cache.former(node.id)
        if self._may_return is not None:
            allowed = tuple(group for group in self._former if self._may_return(node, group))
            if allowed != self._former:
                self._former = allowed
                self._client.past.forget()  # what it had is of groups that are not for it
        if view is not None:
            self._follow(view, now)

    def _follow(self, view: View, now: float) -> None:
        if self.node is not None and (self.view is None or self.view.group != view.group):
            self._cache.followed(self.node.id, view.group)
        self.view = view
        client = self._require_client()
        client.follow(view, now)

    def _park(self, type_url: str, request: Request) -> None:
        """Rule 9: "an unknown node with no snapshot: leave the watch open and answer when a snapshot appears"."""
        if self._waiting is None:
            self._waiting = {}
        parked = self._waiting.setdefault(type_url, [])
        if isinstance(request, SotwRequest):
            parked.clear()  # the newest request states the whole interest
        if sum(map(names_in, parked)) + names_in(request) > self._limits.names_per_subscription or len(parked) > 1000:
            raise LimitError("parked_requests", "too many requests while no group matches")
        parked.append(request)

    def _unpark(self, events: list[Event], now: float) -> None:
        waiting, self._waiting = self._waiting, None
        for type_url, requests in (waiting or {}).items():
            for request in requests:
                self._apply(type_url, request, events, now)

    # -- a request --------------------------------------------------------------------------------------------------

    def _apply(self, type_url: str, request: Request, events: list[Event], now: float) -> None:
        client = self._require_client()
        watch = self._watches.get(type_url)
        if watch is not None and watch.heartbeats is not None and request.nonce:
            beaten = watch.heartbeats.take_answer(request.nonce)
            if beaten is not None:
                self._heartbeat_answered(watch, beaten, request, now)
                return
        if watch is None:
            watch = self._add_watch(type_url, request, now)
        answer = watch.ack.classify(request.nonce, request.error is not None)
        self._answer(watch, client, answer, request, events)
        before = watch.subscription.interest
        shift = self._shift(watch, request)
        if shift:
            self._shifted(watch, shift, request, answer)
        if watch.subscription.interest is not before or answer is Answer.FIRST:
            events.append(self._subscribed(watch))
        is_sotw = isinstance(request, SotwRequest)
        if answer is Answer.REPEAT and not shift:
            if not is_sotw or not warming.repeat(watch, self._watches):
                events.append(Repeated(type_url))
        elif shift and answer is not Answer.FIRST and is_sotw:
            warming.warm_doubted(watch, self._watches, client.release_of, self._cache)
        client.update(watch, now)

    def _heartbeat_answered(self, watch: Watch, names: tuple[str, ...], request: Request, now: float) -> None:
        """Only Delta has heartbeats, whose answer may change the interest as any other.

        A NACK says that the client has dropped what expired: it is doubted, and sent whole.
        """
        if request.error is not None:
            watch.known.doubt(names)
            watch.known.owe(names)
        shift = self._shift(watch, request)
        if shift:
            self._shifted(watch, shift, request, Answer.PLAIN)
        self._require_client().update(watch, now)

    def _add_watch(self, type_url: str, request: Request, now: float) -> Watch:
        client = self._require_client()
        type = resource_type(type_url)
        watch = self._watches[type.type_url] = Watch(type, client.next_position())
        watch.reads_errors = self.node is not None and self.node.user_agent_name.startswith(READS_ERRORS)
        self._offers.watches = tuple(sorted(self._watches.values(), key=lambda watch: watch.type.rank))
        shown = shown_by(watch, request, self._cache, self._origin(type_url))
        client.join(watch, names_asked(request), shown, now)
        if client.undecided and type.is_route_target:
            decide_early(client, self._cache, self._origin, now)
        if shown is not None:
            # A reconnecting client shows what it holds of a child when its changed parent is already on the way.
            for parent in self._in_rank_order:
                if parent.ack.offered is not None:
                    self._offers.warm(parent, watch, parent.ack.offered.resource_set, client, now)
        return watch

    def _origin(self, type_url: str) -> Origin:
        groups = self._former, self.group, self.api
        return origin_of(self._require_client(), self._cache, type_url, *groups)

    def _answer(self, watch: Watch, client: ClientState, answer: Answer, request: Request, events: list[Event]) -> None:
        type_url = watch.type.type_url
        if answer is Answer.ACK or (answer is Answer.NACK and _is_of_earlier(watch, request)):
            self._note_read(watch)
            events.append(Acked(type_url, request.nonce, watch.accept()))
        elif answer is Answer.NACK and request.error is not None:
            self._note_read(watch)
            asked = watch.asked
            is_whole = watch.type.full_state and isinstance(request, SotwRequest)
            response, guilty = watch.refuse(request.error.message, is_whole=is_whole)
            self._offers.lose_removed(watch, response)
            if asked and watch.acked_set is not None:
                # What it asked for, it did not have, whatever it had ACKed of others.
                held = self._cache.releases.mixed(watch.acked_set, empty_set(type_url), asked)
                watch.acked_set = watch.known.base = held
            if watch.type.full_state and guilty and not (watch.refusals and watch.refusals.suspects):
                # Rule 18: of CDS and LDS clients take what is good.
                held = watch.acked_set or empty_set(type_url)
                watch.acked_set = self._cache.releases.mixed(response.resource_set, held, frozenset(guilty))
            events.append(Nacked(type_url, request.nonce, response, request.error, guilty))
        elif answer is Answer.STALE:
            events.append(Stale(type_url, request.nonce))

    def _note_read(self, answered: Watch) -> None:
        """What was sent before a response that is answered was read by the client, whose answer it may withhold."""
        for watch in self._in_rank_order:
            if watch.ack.offered is not None and watch.sent < answered.sent:
                watch.is_read = True

    def _shift(self, watch: Watch, request: Request) -> Shift:
        if isinstance(request, SotwRequest):
            return watch.subscription.replace(request.names)
        return watch.subscription.change(request.subscribe, request.unsubscribe)

    def _shifted(self, watch: Watch, shift: Shift, request: Request, answer: Answer) -> None:
        """Rules 24, 25, 53: what is asked for is owed an answer, even if it was sent before."""
        known = watch.known
        known.forget(shift.dropped)
        if shift.dropped and watch.refusals is not None:
            watch.refusals.forgive(shift.dropped)
        if watch.told_missing:
            watch.told_missing -= shift.dropped
        if shift.everything and answer is not Answer.FIRST:
            known.forget_all()
            watch.outlived = watch.ack.state is State.IN_FLIGHT
        owed = shift.owed
        if isinstance(request, DeltaRequest) and owed:
            watch.ack.rejected = b""  # rule 53: an explicit subscribe is answered, whatever was refused
            if watch.refusals is not None and answer is not Answer.FIRST:
                watch.refusals.forgive(owed)
        if isinstance(request, DeltaRequest) and answer is Answer.FIRST and not self._may_warm(watch):
            owed = owed_at_first(watch, owed, self._require_client().release_of(watch.type.type_url), self._cache)
        known.owe(owed)

    def _may_warm(self, watch: Watch) -> bool:
        """Does the client wait for assignments of which it shows the newest?

        "On a new stream Envoy asks for no clusters while one warms"; and that one needs its assignment after the
        cluster, though another cluster has it already.
        """
        client = self._require_client()
        return watch.type.alias == "endpoints" and not client.has_clusters and client.takes_clusters

    def _subscribed(self, watch: Watch) -> Subscribed:
        interest = watch.subscription.interest
        released = self._require_client().release_of(watch.type.type_url)
        missing = self._cache.missing(interest, released)
        return Subscribed(watch.type.type_url, interest.wildcard, interest.names, missing)

    # -- offers -----------------------------------------------------------------------------------------------------

    def _run(self, events: list[Event], now: float) -> None:
        client = self._client
        if client is None or self.view is None:
            return
        enough = self._cache.responses.encoded_bytes + ENCODED_AT_ONCE
        moved = client.advance(now)
        rest = self._offers.offer_all(client, events, now, enough)
        for _ in range(_ROUNDS_AT_MOST):
            if not client.advance(now):
                break
            moved = True
            rest = self._offers.offer_all(client, events, now, enough)
        self._rest_at_s = now if rest else None
        if moved and client.streams > 1:
            events.append(Moved())
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

    @property
    def _in_rank_order(self) -> tuple[Watch, ...]:
        return self._offers.watches

    def _require_client(self) -> ClientState:
        assert self._client is not None, "the node is identified before anything else"
        return self._client


def _is_of_earlier(watch: Watch, request: Request) -> bool:
    label = request.version_info if isinstance(request, SotwRequest) else ""
    return request.error is not None and watch.is_of_earlier(request.error.message, label)

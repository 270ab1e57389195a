"""One discovery stream, all its types: the rules file.

House rules: no clock, no I/O, no tasks. Requests, views and ticks go in; events come out, and ``Send`` is the only one
the shell must act on besides ``Moved``. What a type is at is in its ``Track``; what the client may see is in its
``Gate``; what a response contains is in ``draft``. Here is when something is offered:

1. a request is classified (first, ACK, NACK, repeat, stale, plain) and its interest is recorded, always, whatever its
   nonce says (rules 17, 20, 51);
2. every type that may have something to say is pumped, in rank order: nothing is offered while a response is in
   flight, and nothing whose content equals a refused one;
3. the gate advances; as long as it releases something, 2 and 3 repeat.

``receive`` either returns events or raises ``RemoteProtocolError``, which ends the stream; its checks come
first, so that a refused request has changed no subscription and no ack state.
"""

from __future__ import annotations

from xds.model.errors import LimitError
from xds.model.node import Node
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet
from xds.protocol import delta, sotw, warming, wire
from xds.protocol.ack import Answer, State
from xds.protocol.cache import SnapshotCache, View
from xds.protocol.clients import ClientTable
from xds.protocol.draft import NOTHING, Demand, Variant
from xds.protocol.events import (
    Acked,
    DeltaRequest,
    Event,
    Identified,
    InStep,
    Moved,
    Nacked,
    NodeMismatch,
    OfferTimedOut,
    Repeated,
    Request,
    Send,
    SotwRequest,
    Stale,
    Subscribed,
    ViewChanged,
    WaitEnded,
)
from xds.protocol.heartbeat import beating, plan_heartbeat
from xds.protocol.limits import Limits, check_names, check_node_id, check_type, names_in
from xds.protocol.order import Gate
from xds.protocol.response import Response
from xds.protocol.status import TypeStatus, status_of
from xds.protocol.subscription import Shift
from xds.protocol.track import Track

ENCODED_AT_ONCE = 256 * 1024  # bytes of new responses after which the other types wait for the next call
_ROUNDS_AT_MOST = 256  # each releases something of a type; a client has no more than this to go through at once


class DiscoveryStream:
    """The engine of one gRPC stream.

    ``type_url`` is that of a per-type service; empty on ADS. ``variant`` tells SotW from Delta; ``api`` is the variant
    of the resource API (``v2`` on the v2 transport).
    """

    __slots__ = (
        "_cache",
        "_clients",
        "_former",
        "_gate",
        "_home",
        "_home_epoch",
        "_in_rank_order",
        "_limits",
        "_node_prefix",
        "_peer",
        "_rest_at_s",
        "_tracks",
        "_type_url",
        "_variant",
        "_waiting",
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
    ) -> None:
        self.api = api
        self.node: Node | None = None
        self.view: View | None = None
        # Identifies the client, once it named itself: (peer address and what it says of itself, node id). Its streams
        # share a transition.
        self.client_key: tuple[str, str] | None = None
        self._cache = cache
        self._clients = clients
        self._variant = variant
        self._peer = peer
        self._type_url = type_url
        self._limits = limits
        self._gate: Gate | None = None
        self._node_prefix = b""
        self._home = ""
        self._home_epoch = -1
        self._former: tuple[str, ...] = ()  # the groups its client holds something of, when it comes back
        self._tracks: dict[str, Track] = {}
        self._in_rank_order: tuple[Track, ...] = ()
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
        """A push happened, the groups changed, or another stream of the client moved its transition on."""
        events: list[Event] = []
        if view is None:
            # The node vanished from every group: it keeps its last answer and is sent nothing (DESIGN 3.1).
            if self.view is not None and self.view.group:
                events.append(ViewChanged(""))
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
        if self._gate is None:
            return events
        events += [WaitEnded(type_url) for type_url in self._gate.expire(now)]
        self._beat(events, now)
        self._run(events, now)
        return events

    def deadline(self) -> float | None:
        """When ``tick`` is due; None while nothing is awaited."""
        if self._gate is None:
            return None
        due = self._gate.deadline_s() if self._rest_at_s is None else self._rest_at_s
        for track in self._in_rank_order:
            dirty_since, beat = track.ack.dirty_since, track.heartbeat_at_s
            if dirty_since is not None and (due is None or dirty_since + self._limits.offer_timeout_s < due):
                due = dirty_since + self._limits.offer_timeout_s
            if beat is not None and (due is None or beat < due):
                due = beat
        return due

    def close(self) -> bool:
        """The stream ended: its state goes with it (rule 80). Closing twice is harmless.

        True when the client is amid a transition: its other streams may have waited for this one.
        """
        amid = self._gate is not None and not self._gate.is_idle
        if self._gate is not None and self.client_key is not None:
            for track in self._in_rank_order:
                self._gate.leave(track)
            self._clients.exit(self.client_key)
        self._gate = None
        self._tracks, self._in_rank_order = {}, ()
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
        gate = self._gate
        return [status_of(track, gate) for track in self._in_rank_order] if gate is not None else []

    def _checked_type(self, request: Request) -> str:
        """Everything that is refused is refused here, before anything changes."""
        type_url = check_type(request.type_url, self._type_url)
        track = self._tracks.get(type_url)
        if track is None and len({*self._tracks, *(self._waiting or ())}) >= self._limits.types_per_stream:
            raise LimitError("types_per_stream", "too many resource types on one stream")
        check_names(request, len(track.subscription.interest.names) if track is not None else 0, self._limits)
        return type_url

    # -- node and view ----------------------------------------------------------------------------------------------

    def _identify(self, request: Request, events: list[Event], now: float) -> None:
        """Rule 2: "Only the first request of a STREAM is guaranteed to carry node"; the first one is kept."""
        if self.node is not None:
            # Of a node of 61 KB in every ACK, no more is looked at than what it begins with.
            if request.node and request.node[: len(self._node_prefix)] != self._node_prefix:
                other = wire.decode_node(request.node)
                if other.id != self.node.id:
                    events.append(NodeMismatch(other))
            return
        node = wire.decode_node(request.node)
        check_node_id(node.id)
        self.node = node
        self._node_prefix = wire.node_prefix(node.id)
        view = self.resolve()
        events.append(Identified(node, view.group if view is not None else ""))
        # Streams that name one node in two ways may have two views, which would take turns in one transition for ever.
        self.client_key = (f"{self._peer}{self.api}{node.fingerprint}", node.id)
        self._gate = self._clients.enter(self.client_key)
        self._former = self._cache.former(node.id)
        if view is not None:
            self._follow(view, now)

    def _follow(self, view: View, now: float) -> None:
        if self.node is not None and (self.view is None or self.view.group != view.group):
            self._cache.followed(self.node.id, view.group)
        self.view = view
        gate = self._require_gate()
        gate.proceed_on_nack = view.proceed_on_nack
        gate.follow(view.snapshot, now)

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
        gate = self._require_gate()
        track = self._tracks.get(type_url) or self._add_track(type_url, request, now)
        answer = track.ack.classify(request.nonce, request.error is not None)
        self._answer(track, gate, answer, request, events)
        before = track.subscription.interest
        shift = self._shift(track, request)
        if shift:
            self._shifted(track, shift, request, answer)
        if track.subscription.interest is not before or answer is Answer.FIRST:
            events.append(self._subscribed(track))
        is_sotw = isinstance(request, SotwRequest)
        if answer is Answer.REPEAT and not shift:
            if not is_sotw or not warming.repeat(track, self._tracks):
                events.append(Repeated(type_url))
        elif shift and answer is not Answer.FIRST and is_sotw:
            warming.warm_doubted(track, self._tracks, gate.release_of, self._cache)
        gate.update(track, now)

    def _add_track(self, type_url: str, request: Request, now: float) -> Track:
        gate = self._require_gate()
        type = resource_type(type_url)
        track = self._tracks[type.type_url] = Track(type, position=gate.next_position())
        self._in_rank_order = tuple(sorted(self._tracks.values(), key=lambda track: track.type.rank))
        gate.join(track, self._remember(track, request), now)
        if track.known.base is not None or track.known.doubted:
            # A reconnecting client shows what it holds of a child when its changed parent is already on the way.
            for parent in self._in_rank_order:
                if parent.ack.offered is not None:
                    self._warm(parent, track, parent.ack.offered.resource_set, now)
        return track

    def _remember(self, track: Track, request: Request) -> ResourceSet | None:
        """What the client holds from an earlier stream, as far as it is retained (DESIGN 3.2, reconnect)."""
        if isinstance(request, DeltaRequest):
            return delta.remember(track, request, self._cache, self.group, self.api, self._former)
        return sotw.remember(track, request, self._cache, self.group, self.api, self._former)

    def _answer(self, track: Track, gate: Gate, answer: Answer, request: Request, events: list[Event]) -> None:
        type_url = track.type.type_url
        if answer is Answer.ACK:
            events.append(Acked(type_url, request.nonce, track.accept()))
            gate.heard(track)
        elif answer is Answer.NACK and request.error is not None:
            events.append(Nacked(type_url, request.nonce, track.refuse(), request.error))
        elif answer is Answer.STALE:
            events.append(Stale(type_url, request.nonce))

    def _shift(self, track: Track, request: Request) -> Shift:
        if isinstance(request, SotwRequest):
            return track.subscription.replace(request.names)
        return track.subscription.change(request.subscribe, request.unsubscribe)

    def _shifted(self, track: Track, shift: Shift, request: Request, answer: Answer) -> None:
        """Rules 24, 25, 53: what is asked for is owed an answer, even if it was sent before."""
        track.changed = self._require_gate().next_position()
        known = track.known
        known.forget(shift.dropped)
        if shift.everything and answer is not Answer.FIRST:
            known.forget_all()
            track.outlived = track.ack.state is State.IN_FLIGHT
        owed = shift.owed
        if isinstance(request, DeltaRequest) and owed:
            track.ack.rejected = b""  # rule 53: an explicit subscribe is answered, whatever was refused
        if isinstance(request, DeltaRequest) and answer is Answer.FIRST:
            owed = delta.owed_at_first(track, owed, self._require_gate().release_of(track.type.type_url), self._cache)
        known.owe(owed)

    def _subscribed(self, track: Track) -> Subscribed:
        interest = track.subscription.interest
        released = self._require_gate().release_of(track.type.type_url)
        missing = self._cache.missing(interest, released)
        return Subscribed(track.type.type_url, interest.wildcard, interest.names, missing)

    # -- offers -----------------------------------------------------------------------------------------------------

    def _run(self, events: list[Event], now: float) -> None:
        gate = self._gate
        if gate is None or self.view is None:
            return
        self._rest_at_s = None
        enough = self._cache.responses.encoded_bytes + ENCODED_AT_ONCE
        moved = gate.advance(now)
        self._pump_all(gate, events, now, enough)
        for _ in range(_ROUNDS_AT_MOST):
            if not gate.advance(now):
                break
            moved = True
            self._pump_all(gate, events, now, enough)
        if moved and gate.streams > 1:
            events.append(Moved())

    def _pump_all(self, gate: Gate, events: list[Event], now: float, enough: int) -> None:
        """Offer type by type; what is left when so many bytes are encoded is due at once, in a call of its own.

        The first stream of a group pays for all: 10,000 new resources in one call held up everybody for 25 ms.
        """
        responses = self._cache.responses
        for track in self._in_rank_order:
            if track.lags or track.type.narrowed_by:
                if responses.encoded_bytes > enough:
                    self._rest_at_s = now
                    return
                self._pump(track, gate, events, now)

    def _pump(self, track: Track, gate: Gate, events: list[Event], now: float) -> None:
        """Offer what differs, if the state lets us."""
        released = gate.release_of(track.type.type_url)
        ack = track.ack
        if track.withheld:
            track.collect_withheld(released)
        if track.type.narrowed_by:
            self._narrow(track, gate)
            if track.in_step_with(released):
                return
        if ack.state is State.IN_FLIGHT and not self._may_supersede(track, released, events, now):
            return
        demand = self._demand(track, gate, released)
        built = self._cache.responses.build(demand, track.known.doubted)
        if built is None or built.response is None:
            self._settle(track, released, built.draft.withheld if built is not None else NOTHING, events)
            gate.update(track, now)
            return
        if built.response.digest == ack.rejected:
            ack.become_held()  # rule 16: "After a NACK do NOT resend the same content"
        else:
            nonce, body = self._sign(track, built.response)
            if track.type.nack_holds:
                for child in self._in_rank_order:
                    self._warm(track, child, released, now)
            track.offer(built.response, nonce, built.draft, gate.next_position())
            events.append(Send(track.type.type_url, nonce, body, built.response))
            if self._variant is Variant.DELTA:
                plan_heartbeat(track, now)
        if not track.lags:
            gate.update(track, now)

    def _may_supersede(self, track: Track, released: ResourceSet, events: list[Event], now: float) -> bool:
        """Rule 20: one response in flight, later changes coalesce; after ``offer_timeout`` the newest goes out."""
        ack = track.ack
        if not track.has_news(released):
            ack.dirty_since = None
            return False
        if ack.dirty_since is None:
            ack.dirty_since = now
        if now - ack.dirty_since < self._limits.offer_timeout_s:
            return False
        events.append(OfferTimedOut(track.type.type_url, ack.nonce))
        track.supersede()
        return True

    def _demand(self, track: Track, gate: Gate, released: ResourceSet) -> Demand:
        known = track.known
        return Demand(
            self._variant,
            known.base,
            released,
            track.subscription.interest,
            gate.coming(track.type.type_url),
            known.owed,
            track.forced,
            track.ack.state is State.NEW,
            track.placeholders,
        )

    def _settle(self, track: Track, released: ResourceSet, withheld: frozenset[str], events: list[Event]) -> None:
        changed = track.acked_set is not released
        track.settle(released, withheld)
        if changed:
            events.append(InStep(track.type.type_url, released))

    def _sign(self, track: Track, response: Response) -> tuple[str, bytes]:
        """The nonce must be unique on the stream: a body that may have been sent here before gets a fresh one."""
        if response.number > track.ack.number:
            return response.nonce, response.body
        body, nonce = self._cache.responses.respliced(response)
        return nonce, body

    def _warm(self, parent: Track, child: Track, released: ResourceSet, now: float) -> None:
        if warming.warm(parent, child, released, self._variant, self._cache):
            self._require_gate().update(child, now)

    def _narrow(self, track: Track, gate: Gate) -> None:
        """Rule 29: a VHDS wildcard means the hosts under the route names the client subscribed to.

        A route without hosts is answered as well: Envoy holds its listener until VHDS says something that concerns the
        route (measured: an empty response does not, and 15 s pass).
        """
        routes = gate.names_wanted(track.type.narrowed_by)
        before = track.subscription.interest
        if not routes or not track.subscription.narrow(routes):
            return
        interest, resources = track.subscription.interest, gate.release_of(track.type.type_url).resources
        track.known.owe(
            n for n, resource in resources.items() if interest.wants(resource) and not before.wants(resource)
        )
        empty = routes - {name.rpartition("/")[0] for name in resources} - (before.routes or NOTHING)
        track.known.owe(f"{route}/*" for route in empty)

    def _beat(self, events: list[Event], now: float) -> None:
        for track in self._in_rank_order:
            if track.heartbeat_at_s is None or track.heartbeat_at_s > now:
                continue
            plan_heartbeat(track, now)
            names, held = beating(track), track.acked_set
            if names and held is not None:
                response = self._cache.responses.heartbeat(held, names)
                track.beat(response)
                events.append(Send(track.type.type_url, response.nonce, response.body, response))

    def _require_gate(self) -> Gate:
        assert self._gate is not None, "the node is identified before anything else"
        return self._gate

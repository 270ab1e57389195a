"""The shell of a discovery stream: bytes in, engine, bytes out. Both variants, all services.

It lives as every stream does (`xds.server.shell`). What the engine does, it does in turns with all others: take a
request from the inbox, or offer what pushes, moves and deadlines brought. Nothing is offered before all that came
earlier is written, and nothing is read while the outbox is full, so a client that does not read costs itself alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any

import grpc

from xds.control.access import Identity
from xds.fleet.fleet import Fleet
from xds.model.errors import RemoteProtocolError
from xds.model.node import Node
from xds.protocol.cache import SnapshotCache
from xds.protocol.clients import ClientTable
from xds.protocol.decode import RequestDecoder
from xds.protocol.dialect import AnyDialect
from xds.protocol.events import (
    Event,
    Identified,
    Send,
    TransitionAdvanced,
    ViewChanged,
)
from xds.protocol.stream import DiscoveryStream
from xds.server import limits
from xds.server.admission import Place
from xds.server.metrics import Metrics
from xds.server.node_door import NodeDoor
from xds.server.observation import StreamObserver
from xds.server.options import ServerOptions
from xds.server.pacing import SMALL_BYTES, Pacer
from xds.server.rate import RateLimit
from xds.server.registry import ClientKey, StreamRegistry
from xds.server.services import DiscoveryService
from xds.server.shell import BROKEN, COPY_S_PER_BYTE, GONE, Context, Shell, never, status_of
from xds.server.wakeup import Wakeup

OUTBOX_LIMIT = 64  # responses not yet written; above it the stream is not read
INBOX_LIMIT = 2  # requests read that wait for their turn
TIMER_RESOLUTION_S = 0.001


@dataclass(slots=True)
class Discovery:
    """What the streams of a server share."""

    cache: SnapshotCache
    fleet: Fleet
    metrics: Metrics
    registry: StreamRegistry
    options: ServerOptions
    clients: ClientTable
    pacer: Pacer
    door: NodeDoor
    decoder: RequestDecoder
    ids: count[int] = field(default_factory=lambda: count(1))


class StreamShell(Shell):
    """One gRPC stream."""

    __slots__ = (
        "_consumed",
        "_decode",
        "_delay_s",
        "_drained",
        "_engine",
        "_inbox",
        "_is_letting_go",
        "_is_listening",
        "_late",
        "_notified",
        "_notified_at",
        "_observer",
        "_outbox",
        "_queued",
        "_rate",
        "_service",
        "_shared",
        "_timer",
        "_timer_at",
    )

    def __init__(
        self,
        shared: Discovery,
        service: DiscoveryService,
        dialect: AnyDialect,
        context: Context,
        place: Place,
        identity: Identity,
    ) -> None:
        super().__init__(context, place, shared.registry.turns, self._take_request, identity)
        self._shared = shared
        self._service = service
        self._decode = dialect.decoder(shared.decoder)
        self._rate = RateLimit(shared.options.requests_per_s, shared.options.requests_burst)
        self._engine = DiscoveryStream(
            cache=shared.cache,
            clients=shared.clients,
            dialect=dialect,
            peer=self._peer,
            type_url=service.type_url,
            limits=shared.options.limits,
            api=service.api,
            authorize=self._authorize,
            may_return=self._may_return,
        )
        self._observer = StreamObserver(
            next(shared.ids),
            self._peer,
            service.label,
            dialect.variant,
            engine=self._engine,
            fleet=shared.fleet,
            metrics=shared.metrics,
            principal=identity.principal,
        )
        self._outbox: list[bytes] = []  # both short: an empty list has a tenth of the size of an empty deque
        self._inbox: list[bytes] = []
        self._drained = Wakeup()
        self._consumed = Wakeup()
        self._is_listening = False  # the reader waits for a request, and none before it waits for anything
        self._delay_s = 0.0  # of the next request, when that is known already
        self._queued = False
        self._is_letting_go = False
        self._notified = False
        self._notified_at = 0.0
        self._late = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # As the registry sees it

    @property
    def node(self) -> Node | None:
        return self._engine.node

    @property
    def group(self) -> str:
        return self._engine.group

    @property
    def home(self) -> str:
        return self._engine.home

    @property
    def client_key(self) -> ClientKey | None:
        return self._engine.client_key

    def notify(self) -> None:
        """There may be something to offer: after a push, or because the client's transition moved on."""
        if self._notified:
            self._shared.metrics.coalesced += 1
        else:
            self._notified = True
            self._notified_at = monotonic()
            self._ask_for_turn()

    def let_go(self) -> None:
        """An operator ends what lingers for the client."""
        self._is_letting_go = True
        self._ask_for_turn()

    # Who it may be

    def recheck(self) -> None:
        if self.node is not None:
            try:
                self._authorize(self.node, self.group)
            except RemoteProtocolError as error:
                self.finish(status_of(error))

    def _authorize(self, node: Node, group: str) -> None:
        self._shared.door.check(self.identity, node, group, self._service.label, self._peer)

    def _may_return(self, node: Node, group: str) -> bool:
        """May it have content of a group again that it followed before? Without rules, its node id may."""
        return self._shared.door.allows(self.identity, node, group)

    # Life

    def _enter(self) -> None:
        self._shared.registry.add(self)
        self._observer.opened()

    def _close(self, lasted_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        registry, client_key = self._shared.registry, self.client_key
        amid_transition = self._engine.close(monotonic())
        registry.remove(self)
        if amid_transition and client_key is not None:
            registry.wake_client(client_key)
        code, message = self._status
        is_untold = self._observer.closed(lasted_s, code.name, message)
        if is_untold and client_key is not None and not amid_transition:
            registry.wake_one(client_key)

    def _log_failure(self) -> None:
        self._observer.failed()

    # Reading

    async def _read(self) -> None:
        """Put what comes into the inbox until the client ends its side, no faster than the limits allow."""
        read, inbox = self._context.read, self._inbox
        try:
            self._is_listening = True
            while (data := await read()) is not grpc.aio.EOF:
                self._is_listening = False
                delay_s, self._delay_s = self._delay_s or self._rate.take(monotonic()), 0.0
                if delay_s > 0 or len(self._outbox) >= OUTBOX_LIMIT:
                    await self._hold_back(delay_s)
                self._put(data)
                del data  # the first has Envoy's node of 61 kB, and what comes next may not come this way
                while len(inbox) >= INBOX_LIMIT:
                    await self._until_consumed()
                self._is_listening = True
            self._is_listening = False
            while inbox:
                await self._until_consumed()
            self.finish()
        except BROKEN:
            self.finish(GONE)
        except Exception:
            self._fail()

    def _take_request(self, data: bytes) -> bool:
        """A request has come: True if it need not wait for the reader."""
        if not self._is_listening or len(self._inbox) >= INBOX_LIMIT or len(self._outbox) >= OUTBOX_LIMIT:
            return False
        self._delay_s = self._rate.take(monotonic())
        if self._delay_s > 0:
            return False
        self._put(data)
        return True

    def _put(self, data: bytes) -> None:
        if self._place is not None:
            self._place.hear()
        self._inbox.append(data)
        self._turns.take(self._consume)

    async def _hold_back(self, delay_s: float) -> None:
        """Do not read meanwhile: HTTP/2 flow control passes it on to the client."""
        if delay_s > 0:
            self._shared.metrics.limit_hits["requests_per_second"] += 1
            await asyncio.sleep(delay_s)
        while len(self._outbox) >= OUTBOX_LIMIT:
            self._shared.metrics.limit_hits["outbox"] += 1
            self._drained.clear()
            await self._drained.wait()

    async def _until_consumed(self) -> None:
        self._consumed.clear()
        await self._consumed.wait()

    def _consume(self) -> None:
        """A turn: feed a request to the engine; a broken rule ends the stream."""
        data = self._inbox.pop(0)
        self._consumed.set()
        if self._ending:
            return
        try:
            self._receive(data)
        except RemoteProtocolError as error:
            limits.count(error, self._shared.metrics)
            self.finish(status_of(error))
        except Exception:
            self._fail()
        if self._place is not None:
            self._leave_admission()

    def _receive(self, data: bytes) -> None:
        limits.check_size(data, self._shared.options.max_receive_bytes)
        request = self._decode(data)
        now = monotonic()
        events = self._engine.receive(request, now)
        self._observer.requested(request, request.type_url or self._service.type_url, events)
        self._act(events, now)

    # Writing

    async def _write(self) -> None:
        """Write what comes into the outbox, until the stream ends."""
        outbox, write = self._outbox, self._context.write
        while not self._ending or outbox:
            await self._wake.wait()
            self._wake.clear()
            while outbox:
                body = outbox[0]
                if len(body) <= SMALL_BYTES:
                    await write(body)
                else:
                    if self._write_now is never:
                        await self._turns.come(len(body) * COPY_S_PER_BYTE)
                    await self._shared.pacer.write(body, write, self._client_name(), self._peer)
                del outbox[0]
                self._drained.set()
            if self._notified or self._late or self._is_letting_go:
                self._ask_for_turn()

    def _client_name(self) -> str:
        return self.node.id if self.node is not None else ""

    def _ask_for_turn(self) -> None:
        """There is something to offer; the writer asks again when it has written what came before."""
        if not self._queued and not self._outbox:
            self._queued = True
            self._turns.take(self._take_turn)

    def _take_turn(self) -> None:
        self._queued = False
        if self._ending or self._outbox:
            return
        try:
            self._offer()
        except RemoteProtocolError as error:  # it would follow a group that it may not
            self.finish(status_of(error))
        except Exception:
            self._fail()

    def _offer(self) -> None:
        """Let the engine offer what differs, and look at its deadlines."""
        now = monotonic()
        if self._notified and self._engine.node is not None:
            self._notified = False
            events = self._engine.offer(self._engine.resolve(), now)
            self._shared.metrics.offered(now - self._notified_at, monotonic() - now)
            self._act(events, now)
        if self._is_letting_go:
            self._is_letting_go = False
            self._act(self._engine.let_go(now), now)
        if self._late:
            self._late = False
            due = self._engine.deadline()
            self._act(self._engine.tick(now) if due is not None and due <= now else [], now)

    # What the engine did

    def _act(self, events: list[Event], now: float) -> None:
        if events:
            for event in events:
                act = _ACTIONS.get(type(event))
                if act is not None:
                    act(self, event)
            self._observer.observe(events, now)
        self._arm(now)

    def _send(self, event: Send) -> None:
        body = event.body
        if self._outbox or len(body) > SMALL_BYTES or not self._write_now(body):
            self._outbox.append(body)
            self._wake.set()

    def _identified(self, event: Identified) -> None:
        self._shared.registry.identify(self)

    def _view_changed(self, event: ViewChanged) -> None:
        self._shared.registry.regroup(self)

    def _client_moved(self, event: TransitionAdvanced) -> None:
        if self.client_key is not None:
            self._shared.registry.wake_client(self.client_key, besides=self)

    def _arm(self, now: float) -> None:
        """One timer at most: a later deadline waits for the earlier one to fire and look again."""
        due = self._engine.deadline()
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        delay_s = max(due - now, TIMER_RESOLUTION_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._timer = None
        self._late = True
        self._ask_for_turn()


_ACTIONS: Mapping[type, Callable[[StreamShell, Any], None]] = {
    Send: StreamShell._send,
    Identified: StreamShell._identified,
    ViewChanged: StreamShell._view_changed,
    TransitionAdvanced: StreamShell._client_moved,
}

"""The discovery stream in the asyncio shell: bytes in, engine, bytes out. Both variants, all services.

The engine runs in work items. One kind handles a request of the inbox, the other offers changes after a push, a change
of group or a deadline. Nothing is read while the outbox is full, so a client that does not read costs bounded memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from xds.access.authorisation import Identity
from xds.fleet.fleet import Fleet
from xds.model.errors import RemoteProtocolError
from xds.model.node import Node
from xds.protocol.clients import ClientTable
from xds.protocol.cohort import Cohorts, CohortStream, Outcome
from xds.protocol.decode import RequestDecoder
from xds.protocol.dialect import Dialect
from xds.protocol.events import (
    Event,
    Identified,
    Send,
    TransitionAdvanced,
    ViewChanged,
)
from xds.protocol.name_budget import NameBudgets
from xds.server.flow.admission import AdmissionSlot
from xds.server.flow.work_queue import wake
from xds.server.observer import SharedObservations, StreamObserver
from xds.server.registry import ClientKey, StreamRegistry
from xds.server.services import DiscoveryService
from xds.server.stream import CallContext, StreamDependencies, StreamHandler, check_size
from xds.server.version_guard import VersionGuard
from xds.snapshots.cache import SnapshotCache

TIMER_RESOLUTION_S = 0.001
SHARED_BYTES = 1 << 17  # a longer request is decoded in its turn


@dataclass(slots=True)
class DiscoveryDependencies(StreamDependencies):
    """What the discovery streams of a server share."""

    cache: SnapshotCache
    fleet: Fleet
    registry: StreamRegistry
    clients: ClientTable
    decoder: RequestDecoder
    budgets: NameBudgets
    cohorts: Cohorts
    observations: SharedObservations
    guard: VersionGuard


class DiscoveryHandler(StreamHandler):
    """One discovery stream."""

    __slots__ = (
        "_deadline_due", "_decode", "_delay_s", "_engine", "_flow", "_guard", "_inbox", "_is_ending_linger",
        "_notified", "_notified_at", "_observer", "_registry", "_service", "_timer", "_timer_at",
    )  # fmt: skip

    def __init__(
        self,
        deps: DiscoveryDependencies,
        service: DiscoveryService,
        dialect: Dialect,
        context: CallContext,
        slot: AdmissionSlot,
        identity: Identity,
    ) -> None:
        super().__init__(deps, context, slot, service.label, identity)
        self._flow = deps.options.flow
        self._guard = deps.guard
        self._registry = deps.registry
        self._service = service
        self._decode = dialect.decoder(deps.decoder)
        self._engine = CohortStream(
            cohorts=deps.cohorts,
            cache=deps.cache,
            clients=deps.clients,
            dialect=dialect,
            peer=self._peer,
            type_url=service.type_url,
            limits=deps.options.limits,
            api_version=service.api,
            authorize=self._authorize,
            may_return=self._may_return,
            budgets=deps.budgets,
        )
        self._observer = StreamObserver(
            self.id,
            self._peer,
            service.label,
            dialect.variant,
            engine=self._engine,
            fleet=deps.fleet,
            metrics=deps.metrics,
            shared=deps.observations,
            principal=identity.principal,
        )
        self._inbox: list[bytes] = []
        self._delay_s = 0.0  # how long the next request must wait, if that is reserved already
        self._is_ending_linger = False
        self._notified = False
        self._notified_at = 0.0
        self._deadline_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # For the registry

    @property
    def node(self) -> Node | None:
        return self._engine.node

    @property
    def group(self) -> str:
        return self._engine.group

    @property
    def home(self) -> str:
        """The group that the node belongs to by the current selectors; empty for none."""
        return self._engine.matched_group

    @property
    def client_key(self) -> ClientKey | None:
        """The client, which all its streams share; None before the node is known."""
        return self._engine.client_key

    @property
    def is_at_rest(self) -> bool:
        return not self._inbox and not self._outbox and self._engine.is_at_rest

    def notify(self) -> None:
        """There may be something to offer: after a push, or because the client's transition advanced."""
        if self._notified:
            self._deps.metrics.coalesced += 1
        elif not self._offer_shared():
            self._notified = True
            self._notified_at = monotonic()
            self._submit_work()

    def end_lingering(self) -> None:
        """End the lingering of removed resources for the client, on the order of an operator."""
        self._is_ending_linger = True
        self._submit_work()

    def _may_return(self, node: Node, group: str) -> bool:
        """Whether the client may be sent content of a group that it followed before. True if there are no rules."""
        return self._deps.node_auth.allows(self.identity, node, group)

    # Lifecycle

    def _on_open(self) -> None:
        self._registry.add(self)
        self._observer.opened()

    def _on_close(self, lasted_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        registry, client_key = self._registry, self.client_key
        in_transition = self._engine.close(monotonic())
        registry.remove(self)
        if in_transition and client_key is not None:
            registry.wake_client(client_key)
        code, message = self._status
        must_report_again = self._observer.closed(lasted_s, code.name, message)
        if must_report_again and client_key is not None and not in_transition:
            registry.wake_one(client_key)

    def _log_failure(self) -> None:
        self._observer.failed()

    # Reading

    def take(self, data: bytes) -> bool:
        """Put a request into the inbox, or handle it at once if others have sent the same; False if it has to wait."""
        flow = self._flow
        if len(self._inbox) >= flow.inbox_requests or len(self._outbox) >= flow.outbox_responses:
            return False
        now = monotonic()
        self._delay_s = self._rate.reserve(now)
        if self._delay_s > 0:
            return False
        if self._inbox or not self._receive_shared(data, now):
            self._put(data)
        return True

    async def _receive(self, data: bytes) -> None:
        """Put a request into the inbox, no faster than the limits allow."""
        delay_s, self._delay_s = self._delay_s or self._rate.reserve(monotonic()), 0.0
        if delay_s > 0 or len(self._outbox) >= self._flow.outbox_responses:
            await self._hold_back(delay_s)
        self._put(data)
        while len(self._inbox) >= self._flow.inbox_requests:
            await self._until_progress()

    async def end_requests(self) -> None:
        while self._inbox:
            await self._until_progress()
        self.finish()

    def _receive_shared(self, data: bytes, now: float) -> bool:
        """Handle an ACK that others have sent before in the same state; False for any other request.

        It takes less time than a work item, and needs no response.
        """
        if self._ending or self._slot is not None or len(data) > SHARED_BYTES:
            return False
        try:
            outcome = self._engine.take_request(data, self._decode, now)
            if outcome is None:
                return False
            self._take(outcome, now)
        except RemoteProtocolError:
            return False  # `_consume` ends the stream
        except Exception:
            self._fail()
        return True

    def _put(self, data: bytes) -> None:
        if self._slot is not None:
            self._slot.extend()
        self._inbox.append(data)
        self._work_queue.run_first(self._consume)

    async def _hold_back(self, delay_s: float) -> None:
        """Wait ``delay_s``, and for room in the outbox. HTTP/2 flow control slows the client down meanwhile."""
        if delay_s > 0:
            self._deps.metrics.limit_hits["requests_per_second"] += 1
            await asyncio.sleep(delay_s)
        while len(self._outbox) >= self._flow.outbox_responses:
            self._deps.metrics.limit_hits["outbox"] += 1
            await self._until_progress()

    def _consume(self) -> None:
        """A work item: pass a request to the engine. A request that breaks a rule ends the stream."""
        data = self._inbox.pop(0)
        wake(self._progress)
        if self._ending:
            return
        try:
            self._handle(data)
        except RemoteProtocolError as error:
            self._refuse(error)
        except Exception:
            self._fail()
        if self._slot is not None:
            self._release_slot()

    def _handle(self, data: bytes) -> None:
        check_size(data, self._deps.options.max_receive_bytes)
        request = self._decode(data, self._engine.check_count)
        type_url = request.type_url or self._service.type_url
        self._guard.check(request, type_url, self._engine.node, self._engine.api_version)
        now = monotonic()
        events = self._engine.receive(request, now)
        self._observer.requested(request, type_url, events)
        self._act(events, now)

    # Offering

    def _has_work(self) -> bool:
        return self._notified or self._deadline_due or self._is_ending_linger

    def _offer_shared(self) -> bool:
        """Offer at once what others in the same state were offered just now; False if it needs a work item."""
        if self._work_queued or self._inbox or self._outbox or self._ending or self._slot is not None:
            return False
        now = monotonic()
        try:
            outcome = self._engine.take_view(now)
            if outcome is not None:
                self._take(outcome, now)
        except Exception:
            self._fail()
            return True
        return outcome is not None

    def _offer(self) -> None:
        """Let the engine offer what differs, and check its deadlines."""
        now = monotonic()
        if self._notified and self._engine.node is not None:
            self._notified = False
            events = self._engine.offer(self._engine.resolve(), now)
            self._deps.metrics.offered(now - self._notified_at, monotonic() - now)
            self._act(events, now)
        if self._is_ending_linger:
            self._is_ending_linger = False
            self._act(self._engine.end_lingering(now), now)
        if self._deadline_due:
            self._deadline_due = False
            due = self._engine.deadline()
            self._act(self._engine.tick(now) if due is not None and due <= now else [], now)

    # Events of the engine

    def _act(self, events: list[Event], now: float) -> None:
        if events:
            for event in events:
                act = _ACTIONS.get(type(event))
                if act is not None:
                    act(self, event)
            self._observer.observe(events, now)
        due = self._engine.deadline()
        if due is not None:
            self._set_timer(due, now)

    def _take(self, outcome: Outcome, now: float) -> None:
        """Act on an outcome that others in the same state have had."""
        for event in outcome.responses:
            self._write_body(event.body)
        observer = self._observer
        observer.shared.add(outcome, observer, now)
        due = outcome.to.due_s
        if due is not None:
            self._set_timer(due, now)

    def _send(self, event: Send) -> None:
        self._write_body(event.body)

    def _identified(self, event: Identified) -> None:
        self._registry.identify(self)

    def _view_changed(self, event: ViewChanged) -> None:
        self._registry.regroup(self)

    def _transition_advanced(self, event: TransitionAdvanced) -> None:
        if self.client_key is not None:
            self._registry.wake_client(self.client_key, except_for=self)

    def _set_timer(self, due: float, now: float) -> None:
        """One timer at most: a later deadline waits until the earlier one fires and is set again then."""
        if self._timer is not None and self._timer_at <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        delay_s = max(due - now, TIMER_RESOLUTION_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._timer = None
        self._deadline_due = True
        self._submit_work()


_ACTIONS: Mapping[type, Callable[[DiscoveryHandler, Any], None]] = {
    Send: DiscoveryHandler._send,
    Identified: DiscoveryHandler._identified,
    ViewChanged: DiscoveryHandler._view_changed,
    TransitionAdvanced: DiscoveryHandler._transition_advanced,
}

"""The gRPC server: all discovery services on the running loop, from start to drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from itertools import count
from time import monotonic, time
from typing import Any
from urllib.parse import unquote

import grpc

from xds.codec import schema
from xds.control.access import Access, Identity
from xds.control.lifecycle import Phase
from xds.control.threads import run_sized
from xds.fleet.fleet import Fleet
from xds.load.book import LoadBook
from xds.model.errors import RemoteProtocolError
from xds.protocol.cache import SnapshotCache
from xds.protocol.clients import ClientTable
from xds.protocol.draft import Variant
from xds.protocol.wire import decode_node, decode_sotw
from xds.server import limits
from xds.server.admission import Admission, Place
from xds.server.discovery import Discovery, StreamShell
from xds.server.expiry import expire
from xds.server.gate import Gate
from xds.server.introspection import Introspection
from xds.server.load_metrics import LoadMetrics
from xds.server.load_streams import LoadStreams
from xds.server.logs import get_logger
from xds.server.lrs import LoadShell
from xds.server.metrics import Metrics
from xds.server.node_door import Authorize, NodeDoor
from xds.server.options import ServerOptions
from xds.server.pacing import Pacer
from xds.server.registry import StreamRegistry
from xds.server.services import LOAD_METHOD, LOAD_SERVICES, SERVICES, DiscoveryService, LoadService
from xds.server.shell import Shell, status_of
from xds.server.tls import pem_files
from xds.server.transport import Transport, open_transport
from xds.server.tuning import Tide, release_memory
from xds.server.unary import answer

OBSERVE_EVERY_S = 0.5
RELEASE_EVERY_S = 20.0
CONVERGENCE_LIMIT_S = 600.0
STOP_GRACE_S = 0.5
RECHECKED_AT_ONCE = 100  # streams, in a turn

_log = get_logger("xds.server")


class XdsServer:
    """The xDS port. Everything happens on the loop that calls ``start``. Load reports go into ``book``.

    The server refuses streams until ``set_ready``; ``wake`` tells it that the cache has something new for groups.
    """

    def __init__(
        self,
        cache: SnapshotCache,
        fleet: Fleet,
        options: ServerOptions,
        metrics: Metrics,
        book: LoadBook | None = None,
    ) -> None:
        self.registry = StreamRegistry(cache, metrics)
        self.clients = ClientTable(cache, options.order)
        self.port = 0
        self._cache = cache
        self._fleet = fleet
        self._options = options
        self._metrics = metrics
        self._seen_changes = -1
        self.access = options.access if options.access is not None else Access(options.tokens)
        self.door = NodeDoor(self.access, fleet.events, metrics)
        self._gate = Gate(self.access, metrics, wants_certificates=options.client_ca is not None)
        self._introspection = Introspection(
            [*(service.service for service in SERVICES), *(service.service for service in LOAD_SERVICES)]
        )
        self._transport: Transport | None = None
        self._shared: Discovery | None = None
        self._shells: dict[Shell, None] = {}
        self._pushes: dict[str, float] = {}  # group -> epoch time of a push that is not yet everywhere
        self._chores: list[asyncio.Task[None]] = []
        self._admission = Admission(metrics)
        self._pacer = Pacer(options.in_flight_bytes, self._cut)
        self._ids = count(1)
        self.load = LoadStreams(
            cache,
            book if book is not None else LoadBook(options.load.interval_s),
            fleet.events,
            metrics,
            options,
            self.registry.turns,
            self._pacer,
            self._ids,
            self.door,
        )
        metrics.registry.register(LoadMetrics(self.load))
        metrics.attach(cache, fleet, options.nodes_shown)
        metrics.attach_in_flight(self._pacer.in_flight)

    async def start(self) -> int:
        """Listen; returns the bound port. Raises ``OSError`` when the address cannot be bound, ``ValueError`` for
        settings that contradict each other."""
        self._shared = Discovery(
            self._cache,
            self._fleet,
            self._metrics,
            self.registry,
            self._options,
            self.clients,
            self._pacer,
            self.door,
            self._ids,
        )
        self._transport = transport = open_transport(self._options, (self._gate,))
        self.registry.turns.pieces = transport.pieces
        for service in SERVICES:
            transport.add_generic_rpc_handlers((self._handlers(service),))
        for load_service in LOAD_SERVICES:
            transport.add_generic_rpc_handlers((self._load_handlers(load_service),))
        self._introspection.register(transport, schema.pool())
        await self._introspection.starting()
        self.port = await transport.listen(pem_files(self._options))
        chores = [self._observe(), self._tidy()]
        if self._options.client_ca is not None:
            chores.append(expire(self._shells, self._options.expiry_spread_s, transport.cut))
        self._chores = [asyncio.create_task(chore) for chore in chores]
        _log.info("grpc.listening", address=self._options.address, port=self.port)
        return self.port

    @property
    def phase(self) -> Phase:
        return self._gate.phase

    async def set_ready(self) -> None:
        """The stored state is in the cache: streams are answered from now on."""
        self._gate.phase = Phase.READY
        await self._introspection.serving()

    def wake(self, groups: Collection[str]) -> None:
        """These groups have a new snapshot, are new, or are gone."""
        now = time()
        self._pushes.update(dict.fromkeys(groups, now))
        self.registry.wake(groups)
        self.load.wake()

    def disconnect(self, node_id: str) -> int:
        """End the streams of a node, once what is on its way to it is written; how many. It may come back at once."""
        shells = [shell for shell in self._shells if shell.node is not None and shell.node.id == node_id]
        for shell in shells:
            shell.finish()
        return len(shells)

    async def reauthorize(self) -> int:
        """The rules have changed: streams that would not be let in now are ended; how many."""
        ended = 0
        for number, shell in enumerate(list(self._shells), 1):
            shell.identity, turned = self._gate.refusal_now(shell.identity)
            if turned is not None:
                self._metrics.refused[turned.reason] += 1
                shell.finish((turned.code, turned.message))
            else:
                shell.recheck()
            ended += shell.is_ending
            if number % RECHECKED_AT_ONCE == 0:
                await self.registry.turns.come()
        return ended

    async def let_go(self, node_ids: Collection[str]) -> None:
        """What lingers for these nodes ends, each client's in a turn of one of its streams."""
        self.registry.let_go(node_ids)
        await self.registry.turns.come()  # behind them

    async def drain(self, grace_s: float | None = None) -> None:
        """Leave without disturbance: NOT_SERVING, no new streams, existing ones closed spread over ``grace_s``.

        Harmless when repeated, or when the server never started.
        """
        transport = self._transport
        if transport is None:
            return
        over_s = self._options.drain_s if grace_s is None else grace_s
        self._gate.phase = Phase.DRAINING
        await self._introspection.draining()
        # GOAWAY at once: a client that comes back opens another connection, which may lead to another replica.
        stopping = asyncio.create_task(transport.stop(over_s + STOP_GRACE_S))
        await self._close_streams(over_s)
        for chore in self._chores:
            chore.cancel()
        await transport.stop(STOP_GRACE_S)
        await stopping
        await self.registry.turns.come_last()  # behind what is left of the streams

    async def _close_streams(self, over_s: float) -> None:
        """Rule 10: "a server draining should close streams after at least one response, and spread the closes"."""
        shells = list(self._shells)
        ends_at = monotonic() + over_s
        for left in range(len(shells) - 1, -1, -1):
            shells[-left - 1].finish()
            if left:
                await asyncio.sleep(max(0.0, ends_at - monotonic()) / left)

    async def _cut(self, peers: Collection[str]) -> None:
        assert self._transport is not None
        await self._transport.cut(peers)

    # Handlers

    def _handlers(self, service: DiscoveryService) -> Any:
        methods = {service.delta_method: self._stream_handler(service, Variant.DELTA)}
        if service.stream_method:
            methods[service.stream_method] = self._stream_handler(service, Variant.SOTW)
        if service.fetch_method:
            methods[service.fetch_method] = self._fetch_handler(service)
        return grpc.method_handlers_generic_handler(service.service, methods)

    def _stream_handler(self, service: DiscoveryService, variant: Variant) -> Any:
        def shell(context: Any, place: Place, identity: Identity) -> Shell:
            assert self._shared is not None
            return StreamShell(self._shared, service, variant, context, place, identity)

        return self._handler(shell)

    def _load_handlers(self, service: LoadService) -> Any:
        handler = self._handler(lambda context, place, who: LoadShell(self.load, service, context, place, who))
        return grpc.method_handlers_generic_handler(service.service, {LOAD_METHOD: handler})

    def _handler(self, shell: Callable[[Any, Place, Identity], Shell]) -> Any:
        async def handle(_requests: Any, context: Any) -> None:
            assert self._transport is not None
            identity = await self._gate.enter(context)
            self._transport.make_way(self.registry.turns)
            place = await self._admission.enter()
            try:
                refusal = self._gate.late_refusal()
                if refusal is not None:
                    await context.abort(*refusal)
                await self._run(shell(context, place, identity))
            finally:
                place.leave()

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _run(self, shell: Shell) -> None:
        self._shells[shell] = None
        try:
            await shell.run()
        finally:
            del self._shells[shell]

    def _fetch_handler(self, service: DiscoveryService) -> Any:
        async def handle(data: bytes, context: Any) -> bytes:
            identity = await self._gate.enter(context)
            try:
                return self._fetch(service, data, self.door.of(identity, service.label, unquote(context.peer())))
            except RemoteProtocolError as error:
                limits.count(error, self._metrics)
                await context.abort(*status_of(error))
                raise

        return grpc.unary_unary_rpc_method_handler(handle)

    def _fetch(self, service: DiscoveryService, data: bytes, authorize: Authorize) -> bytes:
        limits.check_size(data, self._options.max_receive_bytes)
        request = decode_sotw(data)
        self._metrics.type(service.type_url).kinds["poll"] += 1
        node = decode_node(request.node, self._options.limits.node_bytes)
        found = answer(self._cache, self._options.limits, node, request, service.type_url, authorize, service.api)
        # There is no "not modified" on this transport: whoever asks gets the answer.
        return found.encode()

    # Watching ourselves

    async def _observe(self) -> None:
        """Measure how late the loop is, and when pushes have reached everybody."""
        while True:
            due = monotonic() + OBSERVE_EVERY_S
            await asyncio.sleep(OBSERVE_EVERY_S)
            self._metrics.loop_lag_s = max(0.0, monotonic() - due)
            if self._pushes and self._seen_changes != self._fleet.changes:
                self._seen_changes = self._fleet.changes
                await self._observe_pushes(time())

    async def _tidy(self) -> None:
        """Give back what streams have left that came, or closed."""
        tide = Tide()
        while True:
            await asyncio.sleep(RELEASE_EVERY_S)
            if tide.turns(self._metrics.closed.total() + sum(self._metrics.admission_seconds.counts)):
                await asyncio.to_thread(release_memory)

    async def _observe_pushes(self, now: float) -> None:
        for group, pushed_at in list(self._pushes.items()):
            snapshot = self._cache.get(group)
            if snapshot is None or now - pushed_at > CONVERGENCE_LIMIT_S:
                del self._pushes[group]
                continue
            last_ack = await run_sized(self._fleet.converged_at, group, snapshot.sets, resources=len(self._shells))
            if last_ack is not None and self._pushes.get(group) == pushed_at:
                del self._pushes[group]
                if last_ack >= pushed_at:
                    self._metrics.converged(group, last_ack - pushed_at)

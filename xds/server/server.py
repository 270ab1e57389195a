"""The gRPC server, from start to drain: discovery, load reporting, client status and the services of features."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count, groupby
from time import monotonic, time
from typing import Any
from urllib.parse import unquote

import grpc

from xds.access.authorisation import Access, Identity
from xds.codec import schema
from xds.fleet.fleet import Fleet
from xds.lrs.aggregates import LoadAggregates
from xds.model.errors import RemoteProtocolError
from xds.protocol.clients import ClientTable
from xds.protocol.cohort import Cohorts
from xds.protocol.decode import RequestDecoder
from xds.protocol.delta import DELTA
from xds.protocol.dialect import Dialect
from xds.protocol.name_budget import NameBudgets
from xds.protocol.sotw import SOTW
from xds.push.progress import converged_at
from xds.server.aging import end_old
from xds.server.auth import AuthInterceptor, expire
from xds.server.client_status import STATUS_SERVICE, ClientStatusService
from xds.server.counters import Metrics
from xds.server.discovery import DiscoveryDependencies, DiscoveryHandler
from xds.server.flow.admission import Admission, AdmissionSlot
from xds.server.flow.write_limiter import WriteLimiter
from xds.server.identity import Authorize, NodeAuthorizer
from xds.server.introspection import Introspection
from xds.server.load_reports import LoadReportHandler
from xds.server.load_streams import LoadStreams
from xds.server.logs import get_logger
from xds.server.metrics.collectors import FleetMetrics, LoadMetrics, WriteMetrics
from xds.server.observer import SharedObservations
from xds.server.options import ServerOptions
from xds.server.process import ChurnDetector, release_memory
from xds.server.refusals import RefusalRecorder
from xds.server.registry import StreamRegistry
from xds.server.rest import fetch_for
from xds.server.services import (
    LOAD_LABEL,
    LOAD_METHOD,
    LOAD_SERVICES,
    SERVICES,
    DiscoveryService,
    LoadService,
)
from xds.server.stream import CallContext, StreamHandler, StreamMethod, check_size, status_of
from xds.server.tls import pem_files
from xds.server.transport import Transport, open_transport
from xds.server.version_guard import VersionGuard
from xds.snapshots.cache import SnapshotCache
from xds.tasks.lifecycle import Phase
from xds.wire.node import decode_node

OBSERVE_EVERY_S = 0.5
RELEASE_EVERY_S = 20.0
CONVERGENCE_LIMIT_S = 600.0  # a push that has not reached every client after this time is no longer observed
STOP_GRACE_S = 0.5

_log = get_logger("xds.server")


class XdsServer:
    """The server of the xDS port. It runs on the event loop that calls ``start``. Load reports go into ``aggregates``.

    ``is_cut_off`` says whether other servers may serve newer content than this one.

    Streams are refused until ``set_ready``. Call ``wake`` after the cache has new snapshots of groups.
    """

    def __init__(
        self,
        cache: SnapshotCache,
        fleet: Fleet,
        options: ServerOptions,
        metrics: Metrics,
        aggregates: LoadAggregates | None = None,
        is_cut_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self.access = options.access if options.access is not None else Access(options.tokens)
        self.clients = ClientTable(cache, options.order)
        self.refusals = RefusalRecorder(fleet.events, metrics)
        self.node_auth = NodeAuthorizer(self.access, fleet.events, metrics, self.refusals)
        self.port = 0
        self.registry = StreamRegistry(cache, metrics, options.flow)
        self._admission = Admission(metrics, options.flow)
        wants_certificates = options.client_ca is not None
        self._auth = AuthInterceptor(self.access, metrics, self.refusals, wants_certificates=wants_certificates)
        self._cache = cache
        self._fleet = fleet
        self._status = ClientStatusService(
            fleet, self._auth.authenticate_reader, metrics.count_limit, flow=options.flow
        )
        self._introspection = Introspection(
            [*(each.service for each in SERVICES), *(each.service for each in LOAD_SERVICES), STATUS_SERVICE]
        )
        self._metrics = metrics
        self._options = options
        self._pushes: dict[str, float] = {}  # group -> epoch time of a push that has not reached all its clients
        self._observed_changes = -1
        self._streams: dict[StreamHandler, None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._transport: Transport | None = None
        self._write_limiter = WriteLimiter(options.in_flight_bytes, self._disconnect_peers, options.flow)
        self.deps = DiscoveryDependencies(
            self.registry.work_queue,
            self._write_limiter,
            self.node_auth,
            self.refusals,
            metrics,
            options,
            count(1),
            self._streams,
            cache=cache,
            fleet=fleet,
            registry=self.registry,
            clients=self.clients,
            decoder=RequestDecoder(),
            budgets=NameBudgets(options.limits.unknown_name_bytes),
            cohorts=Cohorts(),
            observations=SharedObservations(fleet, metrics),
            guard=VersionGuard(cache, self.clients, is_cut_off),
        )
        aggregates = aggregates if aggregates is not None else LoadAggregates(options.load.interval_s)
        self.load = LoadStreams(cache, aggregates, fleet, self.deps)
        self._methods: tuple[StreamMethod, ...] = ()
        metrics.registry.register(FleetMetrics(metrics, cache, fleet, options.nodes_shown))
        metrics.registry.register(LoadMetrics(self.load))
        metrics.registry.register(WriteMetrics(self._write_limiter.lanes))

    def serve(self, methods: Iterable[StreamMethod]) -> None:
        """Serve these methods of services for proxies as well. Call it before ``start``."""
        added = tuple(methods)
        services = tuple(dict.fromkeys(each.service for each in added))
        self._methods += added
        self._introspection.add(services)
        self._auth.add(services)

    async def start(self) -> int:
        """Listen; returns the bound port. Raises ``OSError`` when the address cannot be bound, ``ValueError`` for
        settings that contradict each other."""
        self._transport = transport = open_transport(
            self._options, self._auth, self.refusals.record, self._metrics.limit_hits
        )
        for service in SERVICES:
            transport.add_generic_rpc_handlers((self._handlers(service),))
        for load_service in LOAD_SERVICES:
            transport.add_generic_rpc_handlers((self._load_handlers(load_service),))
        for name, methods in _by_service(self._methods):
            handlers = {each.method: self._stream_handler(each.label, each.handle) for each in methods}
            transport.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        transport.add_generic_rpc_handlers((self._status.handlers(),))
        self._introspection.register(transport, schema.pool())
        await self._introspection.set_starting()
        self.port = await transport.listen(pem_files(self._options))
        work = [self._observe(), self._release_memory()]
        if self._options.max_stream_age_s > 0:
            work.append(end_old(self._streams, self._options.max_stream_age_s, transport.go_away))
        if self._options.client_ca is not None:
            work.append(expire(self._streams, self._options.expiry_spread_s, transport.disconnect))
        self._tasks = [asyncio.create_task(each) for each in work]
        _log.info("grpc.listening", address=self._options.address, port=self.port)
        return self.port

    @property
    def phase(self) -> Phase:
        """The phase of the server: discovery is refused while it starts, and while it drains."""
        return self._auth.phase

    async def set_ready(self) -> None:
        """Accept streams from now on. Call it when the stored state is in the cache."""
        self._auth.phase = Phase.READY
        await self._introspection.set_serving()

    def wake(self, groups: Collection[str]) -> None:
        """Wake the streams of groups with a new snapshot, new groups and deleted groups."""
        now = time()
        self._pushes.update(dict.fromkeys(groups, now))
        self.registry.wake(groups)
        self.load.wake()

    def disconnect(self, node_id: str) -> int:
        """End the streams of a node once their outboxes are written; returns their number. It may reconnect at once."""
        streams = [stream for stream in self._streams if stream.node is not None and stream.node.id == node_id]
        for stream in streams:
            stream.finish()
        return len(streams)

    async def reauthorize(self) -> int:
        """Check all streams against changed rules, and end those that they refuse; returns their number."""
        ended = 0
        for number, stream in enumerate(list(self._streams), 1):
            stream.identity, refusal = self._auth.recheck(stream.identity)
            if refusal is not None:
                self._auth.record(refusal, stream.peer, stream.service_label, stream.identity)
                stream.finish((refusal.code, refusal.message))
            else:
                stream.recheck()
            ended += stream.is_ending
            if number % self._options.flow.recheck_batch == 0:
                await self.registry.work_queue.barrier()
        return ended

    async def end_lingering(self, node_ids: Collection[str], group: str = "") -> None:
        """End the lingering of removed resources for these nodes, and for those of a whole group that return later."""
        if group:
            self._cache.end_removals(group, monotonic())
        self.registry.end_lingering(node_ids)
        await self.registry.work_queue.barrier()  # behind the work items of those streams

    async def drain(self, grace_s: float | None = None) -> None:
        """Stop gracefully: NOT_SERVING, no new streams, existing ones closed spread over ``grace_s``.

        Harmless when repeated after its end, or when the server never started.
        """
        transport = self._transport
        if transport is None:
            return
        self._auth.phase = Phase.DRAINING
        await self._introspection.set_draining()
        streams = list(self._streams)
        grace_s = self._options.drain_s if grace_s is None else grace_s
        spread_s = grace_s if len(streams) > 1 else 0.0  # one alone is closed at once
        # GOAWAY at once: a client that reconnects opens a new connection, which may reach another replica.
        stopping = asyncio.create_task(transport.stop(spread_s + STOP_GRACE_S))
        await self._close_streams(streams, spread_s)
        for task in self._tasks:
            task.cancel()
        await stopping
        await self.registry.work_queue.barrier_low()  # behind the last work items of the streams

    async def _close_streams(self, streams: Collection[StreamHandler], spread_s: float) -> None:
        """Rule 10: "A draining server closes streams after at least one response, and spreads the closes"."""
        ends_at = monotonic() + spread_s
        for remaining, stream in zip(range(len(streams) - 1, -1, -1), streams, strict=True):
            stream.finish()
            if remaining:
                await asyncio.sleep(max(0.0, ends_at - monotonic()) / remaining)

    async def _disconnect_peers(self, peers: Collection[str]) -> None:
        assert self._transport is not None
        await self._transport.disconnect(peers)

    # Handlers

    def _handlers(self, service: DiscoveryService) -> Any:
        methods = {service.delta_method: self._discovery_handler(service, DELTA)}
        if service.stream_method:
            methods[service.stream_method] = self._discovery_handler(service, SOTW)
        if service.fetch_method:
            methods[service.fetch_method] = self._fetch_handler(service)
        return grpc.method_handlers_generic_handler(service.service, methods)

    def _discovery_handler(self, service: DiscoveryService, dialect: Dialect) -> Any:
        deps = self.deps
        return self._stream_handler(service.label, lambda *call: DiscoveryHandler(deps, service, dialect, *call))

    def _load_handlers(self, service: LoadService) -> Any:
        handler = self._stream_handler(LOAD_LABEL, lambda *call: LoadReportHandler(self.load, service, *call))
        return grpc.method_handlers_generic_handler(service.service, {LOAD_METHOD: handler})

    def _stream_handler(self, label: str, make: Callable[[CallContext, AdmissionSlot, Identity], StreamHandler]) -> Any:
        async def handle(_requests: Any, context: Any) -> None:
            identity = await self._auth.authenticate(context, label)
            slot = await self._admission.acquire(context.peer())
            try:
                refusal = self._auth.unavailable()
                if refusal is not None:
                    await context.abort(*refusal)
                stream = make(context, slot, identity)
            except BaseException:
                slot.release()
                raise
            await stream.run()  # it releases its slot

        return grpc.stream_stream_rpc_method_handler(handle)

    def _fetch_handler(self, service: DiscoveryService) -> Any:
        async def handle(data: bytes, context: Any) -> bytes:
            identity = await self._auth.authenticate(context, service.label)
            peer = unquote(context.peer())
            authorize = self.node_auth.for_request(identity, service.label, peer)
            try:
                return self._fetch(service, data, authorize)
            except RemoteProtocolError as error:
                self._metrics.count_limit(error)
                self.refusals.record_request(error, peer, service.label, identity)
                await context.abort(*status_of(error))
                raise

        return grpc.unary_unary_rpc_method_handler(handle)

    def _fetch(self, service: DiscoveryService, data: bytes, authorize: Authorize) -> bytes:
        check_size(data, self._options.max_receive_bytes)
        request = self.deps.decoder.decode_sotw(data)
        self.deps.guard.check(request, service.type_url, None, service.api)
        self._metrics.type(service.type_url).kinds["poll"] += 1
        limits = self._options.limits
        node = decode_node(request.node, limits.node_bytes)
        fetched = fetch_for(self._cache, self._fleet, limits, node, request, service.type_url, authorize, service.api)
        return fetched.encode()  # in full: gRPC has no "not modified"

    # Measurements of the server itself

    async def _observe(self) -> None:
        """Measure how late the loop is, and when pushes have reached every client."""
        while True:
            due = monotonic() + OBSERVE_EVERY_S
            await asyncio.sleep(OBSERVE_EVERY_S)
            self._metrics.loop_lag_s = max(0.0, monotonic() - due)
            self.deps.cohorts.forget_outcomes(monotonic())
            if self._pushes and self._observed_changes != self._fleet.changes:
                self._observed_changes = self._fleet.changes
                await self._observe_pushes(time())

    async def _release_memory(self) -> None:
        """Return the memory of streams that were opened or closed to the system."""
        churn = ChurnDetector()
        while True:
            await asyncio.sleep(RELEASE_EVERY_S)
            if churn.update(self._metrics.closed.total() + sum(self._metrics.admission_seconds.counts)):
                await asyncio.to_thread(release_memory)

    async def _observe_pushes(self, now: float) -> None:
        for group, pushed_at in list(self._pushes.items()):
            if self._cache.get(group) is None or now - pushed_at > CONVERGENCE_LIMIT_S:
                del self._pushes[group]
                continue
            last_ack = await converged_at(self._cache, self._fleet, group)
            if last_ack is not None and self._pushes.get(group) == pushed_at:
                del self._pushes[group]
                if last_ack >= pushed_at:
                    self._metrics.converged(group, last_ack - pushed_at)


def _by_service(methods: Iterable[StreamMethod]) -> Iterator[tuple[str, list[StreamMethod]]]:
    """The methods of each service."""
    for name, methods_of_service in groupby(sorted(methods, key=_service), _service):
        yield name, list(methods_of_service)


def _service(method: StreamMethod) -> str:
    return method.service

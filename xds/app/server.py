"""One server. One idea: its parts are made, joined, started and stopped here, in the order that their needs give."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import TypeVar

import structlog
from fastapi import FastAPI

from xds.access.authorisation import Access
from xds.access.caller import SERVER, Caller
from xds.admin.dependencies import ApiOptions, Dependencies
from xds.admin.fleet_progress import NodesElsewhere
from xds.admin.load_view import LoadView
from xds.admin.rollout_facts import FactsOfAll
from xds.app.admin import create_app
from xds.app.features import FEATURES
from xds.app.ports import (
    advertised,
    asks_certificates,
    browser_rules,
    grpc_options,
    http_server,
    listen,
    reachable,
    server_trust,
    stream_limits,
    unencrypted,
    warnings_of,
)
from xds.backup.backups import Backups
from xds.cluster.fan_out import FanOut
from xds.cluster.members import members_of
from xds.cluster.metrics import MemberMetrics
from xds.codec.resources import ResourceDecoder
from xds.envoy.translation import V2, translate_to_v2
from xds.feature import Feature, Kernel, ServedFeature
from xds.fleet.event_log import EventLog
from xds.fleet.fleet import Fleet
from xds.live.by_hand import HandAssignments
from xds.live.owners import LiveEndpoints
from xds.lrs.aggregates import LoadAggregates
from xds.push.collector import Collector
from xds.push.directory import WatchedDirectory
from xds.push.publisher import Publisher
from xds.push.rollout_runner import RolloutRunner
from xds.server.counters import Metrics
from xds.server.engine_persistence import EnginePersistence
from xds.server.metrics.collectors import (
    AuditMetrics,
    BackupMetrics,
    CertificateMetrics,
    EncryptionMetrics,
    FollowingMetrics,
    OwnCertificateMetrics,
    RolloutMetrics,
    StoreMetrics,
    WatchMetrics,
)
from xds.server.metrics.live_metrics import LiveMetrics
from xds.server.nack_persistence import NackPersistence
from xds.server.nacks_elsewhere import NacksElsewhere, Numbers
from xds.server.process import OpenFiles, collect_young, paused_gc, raise_file_limit, tune_gc, tune_threads
from xds.server.rest import rest_routes
from xds.server.server import XdsServer
from xds.server.tls import PemFiles, follow
from xds.services.served import ServedServices
from xds.services.settings import source_table
from xds.services.source_builders import build_sources
from xds.settings.settings import Settings, shown_settings
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT, kept_s
from xds.store.audit_entries import AuditNote
from xds.store.base import SilentError, Store, StoreError
from xds.store.copy.copy_rows import Kept
from xds.store.engines import open_store
from xds.store.member_register import NUMBER_BITS
from xds.tasks.lifecycle import Phase
from xds.version import __version__

NONCE_PREFIX_BYTES = 4
STORE_RETRY_S = 1.0
F = TypeVar("F")

_log = structlog.get_logger(logger_name="xds.serve")


def new_fleet() -> Fleet:
    """An empty fleet.

    Ids of events grow across restarts, so that a reader can resume after the last event that it read: they start from
    the clock, above all ids of an earlier process.
    """
    return Fleet(events=EventLog(first_id=time_ns() // 1_000_000))


def new_cache(rules: OrderRules) -> SnapshotCache:
    """An empty snapshot cache. The random nonce prefix keeps nonces of processes apart."""
    prefix = secrets.token_hex(NONCE_PREFIX_BYTES)
    return SnapshotCache(
        f"xds-server/{__version__}", nonce_prefix=prefix, translations={V2: translate_to_v2}, rules=rules
    )


@dataclass(frozen=True, slots=True)
class Hosting:
    """What a server does to its process.

    ``tunes_process``: it tunes garbage collection, threads and the limit of open files. ``opens_http``: it opens the
    admin port.
    """

    tunes_process: bool = True
    opens_http: bool = True
    features: Sequence[Feature] = FEATURES


OWN_PROCESS = Hosting()


class Server:
    """All parts of one server."""

    def __init__(self, settings: Settings, hosting: Hosting = OWN_PROCESS) -> None:
        self._hosting = hosting
        self.settings = settings
        self.access: Access = settings.auth.access()
        self._shown = shown_settings(settings)
        self.phase = Phase.STARTING
        self.decoder = ResourceDecoder(settings.limits.resource_bytes)
        storage = settings.store
        kept = self._kept_in_copy if storage.keep_copy else None
        self.store: Store = open_store(storage.kind, storage.data, storage.max_bytes, storage.url, kept)
        self.members = members_of(self.store)
        self.fan_out = FanOut(lambda: self.members.me, self.members.others, self.members.secret, server_trust(settings))
        self.fleet = new_fleet()
        self.metrics = Metrics(settings.metrics.kept_s)
        self.cache = new_cache(settings.order.rules())
        self.aggregates = LoadAggregates(settings.load.interval_s)
        self.grpc = XdsServer(
            self.cache,
            self.fleet,
            grpc_options(settings, self.access),
            self.metrics,
            self.aggregates,
            self._is_cut_off,
        )
        self.publisher = self._publisher()
        self.publisher.undo.elsewhere = NodesElsewhere(self.fan_out).refusals
        self.rollout_runner = self._rollout_runner()
        self.by_hand = self._hand_assignments()
        rejected, note_refused, numbers = self.grpc.clients.rejected, self.cache.note_refused, self._numbers()
        self.nacks = NackPersistence(self.store, self.fleet, rejected, note_refused, numbers.is_mine)
        self.nacks_elsewhere = NacksElsewhere(self.store, self.fleet, rejected, note_refused, numbers)
        self.engine = EnginePersistence(self.store, self.cache, self.grpc.clients)
        self.collector = Collector(
            self.store,
            self.cache,
            storage.retention(),
            storage.collect_every_s,
            self.members.holds_lease,
            self.publisher.rollouts.pinned,
        )
        self.watched = self._watched()
        self.publisher.documents.append(self.by_hand)
        self.features = self._features(hosting.features)
        self.backups = Backups(self.store, self.publisher, self._reload_features, self.watched)
        self._register_metrics()
        self._files = OpenFiles(self.metrics)
        self.application = self._application()
        self._http = http_server(settings, self.application, self.metrics, self._files, self.grpc.refusals.record)
        self._http_port = 0
        self._http_task: asyncio.Task[None] | None = None
        self._background_tasks: list[asyncio.Task[None]] = []

    def _numbers(self) -> Numbers:
        """The numbers of the servers of the store, for the ids of NACKs."""
        members = self.members
        return Numbers(
            members.known().is_shared,
            lambda: members.me.number,
            lambda: frozenset(each.number for each in (members.me, *members.others())),
            members.holds_lease,
        )

    def _is_cut_off(self) -> bool:
        return self.publisher.following.is_cut_off()

    def _publisher(self) -> Publisher:
        server = self.settings.server
        return Publisher(
            self.store,
            self.cache,
            self.fleet,
            self.grpc.wake,
            server.on_nack,
            server.undo_refused_share,
            # Live changes are not pushes: they wake streams without the measurement of convergence.
            LiveEndpoints(self.cache, self.grpc.registry.wake),
            self.settings.limits.grpc_receive_bytes,
        )

    def _rollout_runner(self) -> RolloutRunner:
        publisher, facts = self.publisher, self.publisher.rollout_facts
        facts.requests_of, facts.recent_requests = self.aggregates.requests_of, self.aggregates.recent_requests
        gather = FactsOfAll(facts, self.fan_out).gather
        publisher.rollout_pushes.gather = gather
        publisher.rollout_pushes.reports_s = lambda: self.aggregates.interval_s
        return RolloutRunner(publisher.rollouts, self.fleet, gather, self.members.holds_lease)

    def _hand_assignments(self) -> HandAssignments:
        return HandAssignments(
            self.store,
            self.cache,
            self.publisher.live,
            self.publisher.locks,
            self.publisher.groups.is_group,
            self.fleet.events,
            self.settings.order.endpoint_drain_s,
            holds_lease=self.members.holds_lease,
        )

    def _features(self, features: Sequence[Feature]) -> Sequence[ServedFeature]:
        """The features of this server, with what they show to the publisher and to the gRPC port."""
        served: list[ServedFeature] = []
        kernel = Kernel(
            self.settings,
            self.store,
            self.cache,
            self.fleet,
            self.aggregates,
            self.publisher,
            self.by_hand,
            self.grpc.registry,
            self.grpc.deps,
            self.members,
            self.fan_out,
            served,
        )
        for feature in features:
            each = feature.serve(kernel)
            served.append(each)
            self.publisher.derived.sources += each.derived()
            self.publisher.documents += each.documents()
            self.publisher.reviews.append(each.review)
            self.grpc.serve(each.stream_methods())
        return served

    def feature(self, kind: type[F]) -> F:
        """The feature of this class."""
        return next(each for each in self.features if isinstance(each, kind))

    async def _reload_features(self) -> None:
        for feature in self.features:
            await feature.reload()
        if self.watched is not None and self.members.known().is_shared:
            self.watched.apply_again()  # over what another server has restored

    def _watched(self) -> WatchedDirectory | None:
        watch = self.settings.watch
        if watch.directory is None:
            return None
        return WatchedDirectory(
            self.publisher,
            watch.directory,
            prune=watch.prune,
            decoder=self.decoder,
            holds_lease=self.members.holds_lease,
        )

    def _register_metrics(self) -> None:
        """Register the metrics of all parts for ``/metrics``."""
        journal = self.publisher.journal
        self.metrics.attach_pushes(journal.commits, journal.triggers, journal.rollbacks)
        for collector in (
            StoreMetrics(self.collector, self.store.condition),
            FollowingMetrics(self.publisher.following),
            LiveMetrics(self.metrics, self.publisher.live, self.by_hand, self.fleet.connected_groups),
            RolloutMetrics(self.publisher.rollouts, journal.rollouts, self.cache, self.fleet, self.metrics),
            CertificateMetrics(self.publisher.certificates, self.metrics),
            OwnCertificateMetrics(self._certificate_files()),
            EncryptionMetrics(unencrypted(self.settings)),
            AuditMetrics(self.publisher.audit.refusals),
            BackupMetrics(self.backups),
            WatchMetrics(self.watched.refused if self.watched is not None else ()),
            MemberMetrics(self.members, self.fan_out),
            *(collector for feature in self.features for collector in feature.collectors()),
        ):
            self.metrics.registry.register(collector)

    def _certificate_files(self) -> dict[str, Path]:
        """The file of each port's certificate, by port."""
        ports = {"grpc": self.settings.server.grpc.tls, "http": self.settings.server.http.tls}
        return {port: tls.certificate for port, tls in ports.items() if tls is not None}

    async def start(self) -> None:
        """Open both ports.

        The gRPC port opens only after the stored state is loaded: an empty answer deletes the configuration of a fleet.
        """
        if self._hosting.tunes_process:
            raise_file_limit()
        self._background_tasks.append(asyncio.create_task(self._files.watch()))
        if self._hosting.opens_http:
            self._start_http()
        with paused_gc() if self._hosting.tunes_process else nullcontext():
            await self._load()
        if self._hosting.tunes_process:
            tune_gc()
            tune_threads()
            self._background_tasks.append(asyncio.create_task(collect_young()))
        self._background_tasks.append(asyncio.create_task(self.publisher.undo.watch_refusals()))
        for feature in self.features:
            feature.start()
        await self.grpc.start()
        await self.grpc.set_ready()
        self.publisher.following.start(self._reload_features)
        for part in (self.collector, self.nacks, self.nacks_elsewhere, self.engine, self.by_hand, self.rollout_runner):
            part.start()
        self.phase = Phase.READY
        for feature in self.features:
            feature.ready()
        self._log_ready()

    def _start_http(self) -> None:
        """Open the HTTP port. It answers that the server is starting until the server is ready."""
        http = self.settings.server.http
        listening = listen(http.host, http.port)
        self._http_port = listening.getsockname()[1]
        self._http.config.load()
        if self._http.config.ssl is not None and http.tls is not None:
            files = PemFiles(http.tls.certificate, http.tls.private_key, http.tls.client_ca)
            self._background_tasks.append(asyncio.create_task(follow(self._http.config.ssl, files)))
        self._http_task = asyncio.create_task(self._http.serve([listening]))

    def _kept_in_copy(self) -> Kept:
        """How far back the copy of a shared database goes: as far as the removal logs, and the bases of rollouts."""
        rules = [self.settings.order.rules(), *map(self.cache.rules_of, self.cache.groups())]
        pinned = self.publisher.rollouts.pinned()
        return Kept(PUSHES_KEPT, max(map(kept_s, rules)), max(each.linger_max for each in rules), pinned)

    async def _open_store(self) -> None:
        """Open the store; wait for one that is silent and has no copy. Raises ``StoreError``."""
        is_told = False
        while True:
            try:
                await self.store.open()
                return
            except SilentError as error:
                if error.is_refusal:
                    raise
                if not is_told:
                    _log.error("store.awaited", error_message=str(error))
                is_told = True
            await asyncio.sleep(STORE_RETRY_S)

    async def _load(self) -> None:
        """Load the stored state and the watched directory. Raises ``StoreError``."""
        await self._open_store()
        await self.members.start(advertised(self.settings, self._http_port))
        self.fleet.nack_log.number((time_ns() // 1_000_000 << NUMBER_BITS) + self.members.me.number, 1 << NUMBER_BITS)
        await self.engine.load()
        await self.nacks.load()
        await self.publisher.load()
        for feature in self.features:
            await feature.load()
        if self.watched is not None:
            await self.watched.start()

    def _log_ready(self) -> None:
        for message in self.settings.moved:
            _log.warning("settings.moved", error_message=message)
        for warning in warnings_of(self.settings):
            _log.warning("auth.exposed", error_message=warning)
        groups_n = len(self.cache.groups())
        _log.info("server.ready", groups_n=groups_n, grpc_port=self.grpc.port, http_port=self._http_port)

    def addresses(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Host and port of the gRPC port and of the HTTP port, as they are bound."""
        return self._grpc_address(), self._http_address()

    async def apply(self, settings: Settings) -> int:
        """Apply the settings of ``auth`` and ``sources``.

        Returns the number of streams that were ended because the new rules do not admit them. Raises ``SettingsError``
        for a source that cannot be built; nothing is changed then.
        """
        before, after = source_table(self.settings), source_table(settings)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        built = list(build_sources(settings, changed))
        audited = [
            Caller(SERVER).note(
                "auth.reloaded", old=self.settings.auth.audit_summary(), new=settings.auth.audit_summary()
            )
        ]
        if changed:
            shown = (shown_settings(each)["sources"] for each in (self.settings, settings))
            old, new = ({name: each[name] for name in changed if name in each} for each in shown)
            audited.append(Caller(SERVER).note("sources.reloaded", old=old, new=new))
        self.access.assign(settings.auth.access())
        self.settings = settings
        self._shown.update(shown_settings(settings))
        ended = await self.grpc.reauthorize()
        await self.feature(ServedServices).replace_sources(changed, built)
        if changed:
            _log.info("sources.reloaded", sources=sorted(changed))
        await self._audit(audited)
        return ended

    async def _audit(self, notes: Iterable[AuditNote]) -> None:
        for note in notes:
            try:
                await self.publisher.audit.record(note)
            except StoreError as error:  # the new settings apply nevertheless
                _log.warning("audit.later", error_message=str(error))

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then drain. Raises if the HTTP server ends by itself."""
        assert self._http_task is not None
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((stopping, self._http_task), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._http_task.done() and not stop.is_set():
            self._http_task.result()
            raise OSError("the HTTP server ended")
        await self.drain()

    async def close(self) -> None:
        """Release all resources, in any state of the server."""
        self._http.should_exit = True
        if self._http_task is not None:
            await asyncio.wait((self._http_task,))
        for chore in self._background_tasks:
            chore.cancel()
        self._files.close()
        for feature in reversed(self.features):
            await feature.close()
        await self.by_hand.close()
        await self.rollout_runner.close()
        await self.publisher.close()
        await self.collector.close()
        await self.nacks_elsewhere.close()
        await self.nacks.close()
        await self.engine.close()
        await self.fan_out.close()
        await self.members.close()
        await self.store.close()

    async def drain(self) -> None:
        """NOT_SERVING, no new streams; existing streams are closed spread over ``drain_s``."""
        _log.info("server.draining", drain_s=self.settings.server.drain_s)
        self.phase = Phase.DRAINING
        for feature in self.features:
            await feature.drain()
        self.fleet.events.close()
        await self.grpc.drain(self.settings.server.drain_s)

    def _application(self) -> FastAPI:
        settings = self.settings
        options = ApiOptions(
            body_bytes=settings.limits.body_bytes,
            decoder=self.decoder,
            tokens=self.access.tokens,
            access=self.access,
            wants_certificates=asks_certificates(settings.server.http.tls),
            browser=browser_rules(settings),
            require_if_match=settings.server.require_if_match,
            envoy=settings.codec.envoy,
            archive_bytes=settings.limits.archive_bytes,
            spool=settings.store.data if settings.store.kind == "sqlite" else None,
            config=self._shown,
            grpc_address=self._grpc_address,
            http_address=self._http_address,
        )
        services = Dependencies(
            self.publisher,
            self.fleet,
            self.metrics.text,
            lambda: self.phase,
            options,
            self.metrics.limit_hits,
            self.grpc.disconnect,
            self.grpc.end_lingering,
            LoadView(self.aggregates, self.grpc.load.of_node, reporting=self.grpc.load.reporting),
            lambda: self.watched,
            backups=self.backups,
            condition=self.store.condition,
            foreign_refused=self.metrics.foreign_refused,
            by_hand=self.by_hand,
            features=self.features,
            refused=self.grpc.refusals.table,
            refuse=self.grpc.refusals.record,
            others=self.fan_out,
            accepts=self.members.accepts,
            members=self.members.known,
        )
        polls = rest_routes(
            self.cache, self.fleet, self.metrics, self.grpc.node_auth, stream_limits(settings), self.grpc.deps.guard
        )
        return create_app(services, polls)

    def _grpc_address(self) -> tuple[str, int]:
        return reachable(self.settings.server.grpc.host), self.grpc.port

    def _http_address(self) -> tuple[str, int]:
        return reachable(self.settings.server.http.host), self._http_port

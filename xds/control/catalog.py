"""The catalog of services: sources put instances into sinks, and listeners are notified of the changes soon after.

Changes are collected for ``TICK_S`` and taken over together, so that a service that changes a thousand times a second
is looked at twenty times a second; less often where that takes long. Nothing wakes the catalog while nothing changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace

import structlog

from xds.catalog.holding import HoldRule
from xds.catalog.service_index import CatalogLimits, ServiceIndex, ServiceInstance, SourceHoldings
from xds.catalog.source import Instances, Sink
from xds.control.audit_log import UNKNOWN_CALLER, Caller
from xds.control.catalog_persistence import CatalogWriter, read_catalog
from xds.control.lifecycle import BackgroundTask
from xds.control.source_events import SourceEvents
from xds.control.source_feed import CONSUL, SourceFeed, SourceStatus, WantedServices, encodable
from xds.fleet.event_log import EventLog
from xds.model.errors import NotFoundError, Violation
from xds.store.base import Store

TICK_S = 0.05
LONGEST_PAUSE_S = 1.0
SLICE_INSTANCES = 2_000  # that are taken over before other tasks run
SETTLED_SERVICES = 100  # at most this many are taken over at once for a reader

# Called with the names of services whose instances may have changed.
Listener = Callable[[Collection[str]], Awaitable[None]]

_log = structlog.get_logger(logger_name="xds.control.catalog")


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """How a source is, and how much it has shown. ``kept_n`` are the instances that are kept though it lost them."""

    status: SourceStatus
    services_n: int
    instances_n: int
    held_n: int
    kept_n: int
    findings_n: int


class ServiceCatalog:
    """All services with their instances, from all sources. To be used in one event loop."""

    def __init__(
        self,
        rule: HoldRule | None = None,
        limits: CatalogLimits | None = None,
        clock: Callable[[], float] = time.time,
        *,
        store: Store | None = None,
        events: EventLog | None = None,
    ) -> None:
        self.failures = 0
        self.is_started = False  # sources are observed: what none of them shows may be taken for unknown
        self._rule = rule if rule is not None else HoldRule()
        self._clock = clock
        first_revision = int(clock() * 1000)  # above those of an earlier process
        self._index = ServiceIndex(limits if limits is not None else CatalogLimits(), first_revision)
        self._feeds: dict[str, SourceFeed] = {}
        self._listeners: list[Listener] = []
        self._is_telling = False
        self._wanted = WantedServices(self._use)
        self._pending = asyncio.Event()
        self._changed = asyncio.Event()  # set and replaced at each change
        self._events = SourceEvents(events, clock)
        self._store = store
        self._writer = CatalogWriter(store, self._index, self.statuses) if store is not None else None
        self._task, self._writing = BackgroundTask(), BackgroundTask()
        self._took_s = 0.0  # the last tick

    # Start and stop

    async def load(self) -> None:
        """Load the last good sets. Call it before any stream is answered. Raises ``StoreError``."""
        if self._store is None:
            return
        found = await read_catalog(self._store)
        for stored in found.sources:
            self.sink(stored.name, stored.kind)
            self._feeds[stored.name].status.read_at = stored.read_at
        for name, service, holding in found.holdings:
            self._index.restore(self._feeds[name].source, service, holding)
        self._index.end_drains(self._clock())
        self._index.unsaved = set(found.unreadable)
        await self._tell_changed()
        if found.holdings:
            _log.info("catalog.loaded", sources_n=len(found.sources), services_n=len(self._index))

    def start(self) -> None:
        """Start to take over what sources show, and to store it."""
        self.is_started = True
        self._pending.set()
        self._task.start(self._run())
        if self._writer is not None:
            self._writing.start(self._writer.run())

    async def close(self) -> None:
        """Apply the pending changes of sources, stop, and store the rest."""
        await self._writing.stop()
        if await self._task.stop():
            await self.tick()
            await self.save()

    async def save(self) -> None:
        """Store the changes now instead of within a second. Returns also if the store refuses them."""
        if self._writer is not None:
            await self._writer.finish()

    # For sources

    def sink(self, name: str, kind: str, hold_share: float | None = None) -> Sink:
        """The sink of a source. ``hold_share`` replaces the one of the settings; 1 holds no loss."""
        share = hold_share if hold_share is not None else self._rule.share
        source = self._index.add_source(name, replace(self._rule, share=share))
        feed = self._feeds.get(name)
        if feed is None:
            feed = self._feeds[name] = SourceFeed(
                SourceStatus(name, kind),
                source,
                self._wanted,
                self._clock,
                self._pending.set,
                self._events.tell_state,
                2 * self._index.limits.services,
            )
        feed.status.kind = kind
        return feed

    def retain_sources(self, names: Collection[str]) -> None:
        """Forget all sources but these: they were taken out of the settings. Their instances drain and go."""
        for name in self._feeds.keys() - set(names):
            del self._feeds[name]
            self._events.forget(name)
            self._index.forget_source(name, self._clock())
            self._pending.set()

    def statuses(self) -> list[SourceStatus]:
        """How each source is, by name."""
        return [self._feeds[name].status for name in sorted(self._feeds)]

    def source_counts(self) -> list[SourceCounts]:
        """How much each source has shown, by name. May be called in another thread."""
        return [_counts(feed) for _, feed in sorted(self._feeds.copy().items())]

    def holdings(self) -> list[SourceHoldings]:
        """What each source has shown, by name."""
        return self._index.sources()

    def held(self, source: str, service: str = "") -> dict[str, int]:
        """How many instances are kept though the source lost them, by service: of one service, or of all.

        Raises ``NotFoundError`` for an unknown source.
        """
        feed = self._feed(source)
        services = feed.source.held_services.intersection((service,)) if service else feed.source.held_services
        return {each: len(feed.source.by_service[each].lost) for each in sorted(services)}

    def accept(self, source: str, service: str = "", by: Caller = UNKNOWN_CALLER) -> dict[str, int]:
        """Accept the losses of a source that are held, of one service or all; the removed instances, by service.

        Raises ``NotFoundError`` for an unknown source.
        """
        feed = self._feed(source)
        accepted = self._index.accept(feed.source, list(self.held(source, service)), self._clock())
        if accepted:
            self._events.tell_accepted(feed.status, accepted, sum(accepted.values()), by.names())
            self._pending.set()
        return accepted

    def findings(self, source: str) -> list[Violation]:
        """What cannot be used of a source, at present. Raises ``NotFoundError``."""
        feed = self._feed(source)
        by_service = ((encodable(name), found) for name, found in sorted(feed.source.findings.items()))
        return [*feed.status.rejected, *(replace(each, resource=name) for name, found in by_service for each in found)]

    def _feed(self, source: str) -> SourceFeed:
        found = self._feeds.get(source)
        if found is None:
            raise NotFoundError(f"there is no source {source!r}")
        return found

    # For those who use services

    def use(self, user: str, services: Iterable[str]) -> None:
        """Set the services that a user of the catalog uses; ``user`` is a name of its own. Sources observe these."""
        self._wanted.assign(user, services)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` soon after instances of services change. Several changes are one notification."""
        self._listeners.append(listener)

    @property
    def drain_s(self) -> float:
        """How long an instance that goes drains."""
        return self._rule.drain_s

    @property
    def services_n(self) -> int:
        """The number of services."""
        return len(self._index)

    def names(self) -> list[str]:
        """The names of all services, ordered."""
        self._settle()
        return sorted(self._index)

    def instances(self, service: str) -> tuple[ServiceInstance, ...]:
        """The instances of a service as they are served, by address and port; none for an unknown service.

        What a source has shown before the call is contained.
        """
        for feed in self._feeds.values():
            is_there, instances = feed.take(service)
            if is_there:
                self._take_over(feed, service, instances)
                self._pending.set()
        return self._index.served(service)

    def is_known(self, service: str) -> bool:
        """Whether a source has ever shown an instance of a service, so that having none means that all are gone."""
        return self._index.is_known(service)

    def is_shown(self, service: str) -> bool:
        """Whether a source shows a service at present, with instances or without.

        Consul has no service without instances: its answer for an unknown service does not show a service.
        """
        self.instances(service)  # what a source has shown before the call is contained
        for feed in self._feeds.values():
            holding = feed.source.by_service.get(service)
            if holding is None:
                continue
            if len(holding) or not (holding.is_gone or (feed.status.kind == CONSUL and not holding.was_shown)):
                return True
        return False

    @property
    def is_read(self) -> bool:
        """Whether every source was read at least once, now or before a restart, and listeners know what was read."""
        if self._is_telling or self._index.changed:
            return False
        return all(feed.status.read_at and not feed.pending_n for feed in self._feeds.values())

    def is_unread(self, service: str) -> bool:
        """Whether a source that may have a service was not read yet, in all or for this service."""
        return any(
            not feed.status.read_at or (feed.status.kind == CONSUL and service not in feed.source.by_service)
            for feed in self._feeds.values()
        )

    @property
    def wanted(self) -> frozenset[str]:
        """The services that something here uses."""
        return self._wanted.names

    # For blocking queries

    @property
    def revision(self) -> int:
        """Grows with each change of an instance, across restarts as well."""
        return self._index.revision

    def revision_of(self, service: str) -> int:
        """The revision of the last change of a service; for an unknown one, of the last service that went."""
        return self._index.revision_of(service)

    async def wait_for_change(self) -> None:
        """Wait until instances change; at most some 50 ms later."""
        await self._changed.wait()

    # Taking over

    async def _run(self) -> None:
        while True:
            await self._wait()
            began_s = time.monotonic()
            try:
                await self.tick()
            except Exception:
                # A bug must not end the loop. What is served stays.
                self.failures += 1
                _log.exception("catalog.failed")
            self._took_s = time.monotonic() - began_s

    async def _wait(self) -> None:
        """Wait until something changes or an instance has drained; then for what changes with it."""
        ends = self._index.next_end
        left_s = max(ends - self._clock(), 0.0) if ends is not None else None
        try:
            async with asyncio.timeout(left_s):
                await self._pending.wait()
        except TimeoutError:
            pass
        # A flood that takes long to take over leaves half of the time to others.
        await asyncio.sleep(max(TICK_S, min(self._took_s, LONGEST_PAUSE_S)))

    async def tick(self) -> None:
        """Take over what sources have shown, end what has drained, and tell what has changed."""
        self._pending.clear()
        self._index.end_drains(self._clock())
        for feed in list(self._feeds.values()):
            await self._drain(feed)
            self._events.tell_findings(feed)
        await self._tell_changed()

    async def _tell_changed(self) -> None:
        changed, self._index.changed = self._index.changed, set()
        if changed:
            self._changed.set()
            self._changed = asyncio.Event()
            self._is_telling = True
            try:
                for listener in self._listeners:
                    await self._call(listener, changed)
            finally:
                self._is_telling = False
        again_s = max((self._events.tell_held(feed) for feed in self._feeds.values()), default=0.0)
        if again_s > 0:
            asyncio.get_running_loop().call_later(again_s, self._pending.set)

    async def _call(self, listener: Listener, changed: Collection[str]) -> None:
        try:
            await listener(changed)
        except Exception:
            # A bug in one listener must not keep changes from the others.
            self.failures += 1
            _log.exception("catalog.listener_failed")

    async def _drain(self, feed: SourceFeed) -> None:
        taken = 0
        for _ in range(feed.pending_n):  # what is put meanwhile is for the next time
            found = feed.take_next()
            if found is None:
                break
            self._take_over(feed, *found)
            taken += 1 + len(found[1] or ())
            if taken >= SLICE_INSTANCES:
                taken = 0
                await asyncio.sleep(0)
        if feed.pending_n:
            self._pending.set()

    def _settle(self) -> None:
        """Take over what a reader would miss, if it is little."""
        for feed in self._feeds.values():
            for _ in range(SETTLED_SERVICES):
                found = feed.take_next()
                if found is None:
                    break
                self._take_over(feed, *found)
                self._pending.set()

    def _take_over(self, feed: SourceFeed, service: str, instances: Instances | None) -> None:
        if instances is None:
            self._index.drop(feed.source, service, self._clock())
        else:
            self._index.show(feed.source, service, instances, self._clock())

    def _use(self, wanted: frozenset[str]) -> None:
        self._index.set_wanted(wanted)
        self._pending.set()


def _counts(feed: SourceFeed) -> SourceCounts:
    source, held = feed.source, list(feed.source.held_services)
    kept = sum(len(source.by_service[service].lost) for service in held if service in source.by_service)
    findings = len(feed.status.rejected) + sum(map(len, list(source.findings.values())))
    return SourceCounts(feed.status, len(source.by_service), source.instances_n, len(held), kept, findings)

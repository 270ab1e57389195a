"""The catalog of services: sources put instances into sinks, and listeners are notified of the changes soon after.

Changes are collected for ``TICK_S`` and taken over together. So a service that changes a thousand times a second is
looked at twenty times a second, or less often if taking over takes long. The catalog sleeps while nothing changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

import structlog

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.fleet.event_log import EventLog
from xds.model.compared_name import ComparedName, compared
from xds.model.errors import NotFoundError, Violation
from xds.services.catalog_persistence import CatalogWriter, read_catalog
from xds.services.core.holding import HoldRule
from xds.services.core.index import CatalogLimits, ServiceIndex, ServiceInstance, SourceHoldings
from xds.services.source_events import SourceEvents
from xds.services.source_feed import CONSUL, Changes, SourceFeed, SourceStatus, WantedServices, encodable
from xds.store.base import Store
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone

TICK_S = 0.05
LONGEST_PAUSE_S = 1.0
SLICE_INSTANCES = 2_000  # taken over before other tasks run
SERVICES_PER_READ = 100  # pending services of each source that a reader takes over itself

# Called with the compared names of services whose instances may have changed.
Listener = Callable[[Collection[ComparedName]], Awaitable[None]]

_log = structlog.get_logger(logger_name="xds.services.catalog")


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
        holds_lease: HoldsLease = alone,
    ) -> None:
        self.failures = 0
        self.is_started = False  # the sources run: from then on, a service that none of them shows is unknown
        self._rule = rule if rule is not None else HoldRule()
        self._clock = clock
        self._index = ServiceIndex(limits if limits is not None else CatalogLimits())
        self._feeds: dict[str, SourceFeed] = {}
        self._listeners: list[Listener] = []
        self._notifying: Collection[ComparedName] = ()  # the changes of which listeners are notified now
        self._wanted = WantedServices(self._use)
        self._pending = asyncio.Event()
        self._events = SourceEvents(events, clock)
        self._store = store
        self._writer = CatalogWriter(store, self._index, self.statuses, holds_lease) if store is not None else None
        self._task = BackgroundTask()
        self._tick_took_s = 0.0  # the duration of the last tick

    # Start and stop

    async def load(self) -> None:
        """Load the last good sets. Call it before any stream is answered. Raises ``StoreError``."""
        if self._store is None:
            return
        stored = await read_catalog(self._store)
        for source in stored.sources:
            self.sink(source.name, source.kind)
            self._feeds[source.name].status.read_at = source.read_at
        for name, service, holding in stored.holdings:
            self._index.restore(self._feeds[name].source, service, holding)
        self._index.end_drains(self._clock())
        self._index.unsaved = set(stored.unreadable)
        await self._notify_listeners()
        if stored.holdings:
            _log.info("catalog.loaded", sources_n=len(stored.sources), services_n=len(self._index))

    def start(self) -> None:
        """Start to take over the changes of sources, and to store them."""
        self.is_started = True
        self._recheck_unknown()
        self._task.start(self._run())
        if self._writer is not None:
            self._writer.start()

    async def close(self) -> None:
        """Stop. Pending changes of sources are taken over and stored first."""
        if await self._task.stop():
            await self.tick()
            await self.save()

    async def save(self) -> None:
        """Store the changes now instead of within a second. Raises nothing if the store refuses them."""
        if self._writer is not None:
            await self._writer.finish()

    # For sources

    def sink(self, name: str, kind: str, hold_share: float | None = None) -> SourceFeed:
        """The sink of a source. ``hold_share`` replaces that of the settings; 1 holds no loss."""
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
                self._events.record_state,
                self._recheck_unknown,
                2 * self._index.limits.services,
            )
        feed.status.kind = kind
        feed.begin()
        return feed

    def retain_sources(self, names: Collection[str]) -> None:
        """Forget all other sources: they were removed from the settings. Their instances drain."""
        for name in self._feeds.keys() - set(names):
            del self._feeds[name]
            self._events.forget(name)
            self._index.forget_source(name, self._clock())
            self._recheck_unknown()

    def statuses(self) -> list[SourceStatus]:
        """The status of each source, by name."""
        return [self._feeds[name].status for name in sorted(self._feeds)]

    def feeds(self) -> list[SourceFeed]:
        """The feed of each source, by name. May be called in another thread."""
        return [feed for _, feed in sorted(self._feeds.copy().items())]

    def holdings(self) -> list[SourceHoldings]:
        """The instances that each source has shown, by name of the source."""
        return self._index.sources()

    def held_losses(self, source: str, service: str = "") -> dict[str, int]:
        """The held losses of a source: the number of lost instances by service. Empty ``service`` means all services.

        Raises ``NotFoundError`` for an unknown source.
        """
        feed = self._feed(source)
        held, name = feed.source.held_services, compared(service)
        return {each: len(feed.source.by_service[each].lost) for each in sorted(held) if name in ("", compared(each))}

    def accept(self, source: str, service: str = "", by: Caller = UNKNOWN_CALLER) -> dict[str, int]:
        """Accept the held losses of a source, for one service or all. Returns the removed instances by service.

        Raises ``NotFoundError`` for an unknown source.
        """
        feed = self._feed(source)
        accepted = self._index.accept(feed.source, list(self.held_losses(source, service)), self._clock())
        if accepted:
            self._events.record_accepted(feed.status, accepted, sum(accepted.values()), by.names())
            self._pending.set()
        return accepted

    def findings(self, source: str) -> list[Violation]:
        """The present findings: items of a source that cannot be used. Raises ``NotFoundError``."""
        feed = self._feed(source)
        by_service = ((encodable(name), findings) for name, findings in sorted(feed.source.findings.items()))
        of_services = (replace(each, resource=name) for name, findings in by_service for each in findings)
        return [*feed.status.rejected, *of_services]

    def _feed(self, source: str) -> SourceFeed:
        feed = self._feeds.get(source)
        if feed is None:
            raise NotFoundError(f"there is no source {source!r}")
        return feed

    # For the users of services

    def use(self, user: str, services: Iterable[str]) -> None:
        """Set the services that a user of the catalog uses, so that sources observe them. ``user`` is a unique name."""
        self._wanted.assign(user, services)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` soon after instances of services change, once for all services that changed meanwhile."""
        self._listeners.append(listener)

    @property
    def drain_s(self) -> float:
        """How long a removed instance drains."""
        return self._rule.drain_s

    @property
    def services_n(self) -> int:
        """The number of services."""
        return len(self._index)

    def names(self) -> list[str]:
        """The names of all services, ordered; of names that differ in case only, one (`ServiceIndex.written_name`)."""
        return sorted(map(self._index.written_name, self.compared_names()))

    def compared_names(self) -> list[ComparedName]:
        """The names of all services as they are compared, in no order.

        Of pending changes, all are included that were offered, and ``SERVICES_PER_READ`` others of each source.
        """
        for feed in self._feeds.values():
            for _ in range(feed.pending_n if feed.offers else SERVICES_PER_READ):
                changes = feed.take_next()
                if not changes:
                    break
                self._take_over(feed, changes)
                self._pending.set()
        return list(self._index)

    def unannounced(self) -> set[ComparedName]:
        """The services that may have changed, and of which listeners are not notified yet."""
        return self._index.changed.union(self._notifying)

    def written_name(self, service: str) -> str:
        """As `ServiceIndex.written_name`."""
        return self._index.written_name(service)

    def instances(self, service: str) -> tuple[ServiceInstance, ...]:
        """The served instances of a service, by address and port; empty for an unknown service.

        All changes that sources made before the call are included.
        """
        for feed in self._feeds.values():
            changes = feed.take(service)
            if changes:
                self._take_over(feed, changes)
                self._pending.set()
        return self._index.served(service)

    def is_known(self, service: str) -> bool:
        """Whether a source has ever shown an instance of a service. If so, no instance means that all were removed."""
        return self._index.is_known(service)

    def is_shown(self, service: str) -> bool:
        """Whether a source shows a service at present, with instances or without.

        Consul has no service without instances: its answer for an unknown service does not show a service.
        """
        self.instances(service)  # takes over pending changes of the service
        for source, holding in self._index.holdings(service):
            feed = self._feeds.get(source)
            if feed is None:
                continue
            if len(holding) or not (holding.is_gone or (feed.status.kind == CONSUL and not holding.was_shown)):
                return True
        return False

    @property
    def is_read(self) -> bool:
        """Whether every source was read at least once, now or before a restart, and listeners were notified of it."""
        if self._notifying or self._index.changed:
            return False
        return all(feed.status.read_at and not feed.pending_n for feed in self._feeds.values())

    def unread(self, services: Iterable[str]) -> list[str]:
        """Those of the services that no source has shown, and that some source has not said to lack.

        A service may have been known before a restart.
        """
        return sorted(name for name in services if not self.is_known(name) and self.is_unread(name))

    def is_unread(self, service: str) -> bool:
        """Whether a source has not said yet whether it has the service."""
        having = {source for source, _ in self._index.holdings(service)}
        return any(name not in having and not feed.is_whole for name, feed in self._feeds.items())

    @property
    def wanted(self) -> frozenset[str]:
        """The services that at least one user uses."""
        return self._wanted.names

    # Taking over

    async def _run(self) -> None:
        while True:
            await self._wait()
            began_s = time.monotonic()
            try:
                await self.tick()
            except Exception:
                # A bug must not end the loop. The served instances stay.
                self.failures += 1
                _log.exception("catalog.failed")
            self._tick_took_s = time.monotonic() - began_s

    async def _wait(self) -> None:
        """Wait until a source shows a change or an instance has drained, then ``TICK_S`` for further changes."""
        ends = self._index.next_end
        left_s = max(ends - self._clock(), 0.0) if ends is not None else None
        try:
            async with asyncio.timeout(left_s):
                await self._pending.wait()
        except TimeoutError:
            pass
        # Taking over a flood of changes uses half of the time at most.
        await asyncio.sleep(max(TICK_S, min(self._tick_took_s, LONGEST_PAUSE_S)))

    async def tick(self) -> None:
        """Take over the changes of sources, remove drained instances, and notify listeners."""
        self._pending.clear()
        self._index.end_drains(self._clock())
        for feed in list(self._feeds.values()):
            await self._take_over_all(feed)
            self._events.record_findings(feed)
        await self._notify_listeners()

    async def _notify_listeners(self) -> None:
        changed, self._index.changed = self._index.changed, set()
        if changed:
            self._notifying = changed
            try:
                for listener in self._listeners:
                    await self._call(listener, changed)
            finally:
                self._notifying = ()
        again_s = max((self._events.record_held(feed) for feed in self._feeds.values()), default=0.0)
        if again_s > 0:
            asyncio.get_running_loop().call_later(again_s, self._pending.set)

    async def _call(self, listener: Listener, changed: Collection[ComparedName]) -> None:
        try:
            await listener(changed)
        except Exception:
            # A bug in one listener must not keep changes from the others.
            self.failures += 1
            _log.exception("catalog.listener_failed")

    async def _take_over_all(self, feed: SourceFeed) -> None:
        slice_n = 0
        for _ in range(feed.pending_n):  # changes that are put meanwhile wait for the next tick
            changes = feed.take_next()
            if not changes:
                break
            self._take_over(feed, changes)
            slice_n += sum(1 + len(instances or ()) for instances in changes.values())
            if slice_n >= SLICE_INSTANCES:
                slice_n = 0
                await asyncio.sleep(0)
        if feed.pending_n:
            self._pending.set()

    def _take_over(self, feed: SourceFeed, changes: Changes) -> None:
        for service, instances in changes.items():
            if instances is None:
                self._index.drop(feed.source, service, self._clock())
            else:
                self._index.show(feed.source, service, instances, self._clock())

    def _recheck_unknown(self) -> None:
        """Notify listeners about the services in use that no source has shown: it may be known now that none will."""
        self._index.changed.update(compared(name) for name in self.wanted if not self.is_known(name))
        self._pending.set()

    def _use(self, wanted: frozenset[str]) -> None:
        self._index.set_wanted(wanted)
        self._pending.set()

"""The catalog of services: sources put what they observe into sinks, and what follows from it is told soon after.

Changes are collected for ``TICK_S`` and taken over together, so that a service that changes a thousand times a second
is looked at twenty times a second. Nothing wakes the catalog while nothing changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

import structlog

from xds.catalog.holding import HoldRule
from xds.catalog.service_index import CatalogLimits, ServiceIndex, ServiceInstance, SourceHoldings
from xds.catalog.source import Instances, Sink
from xds.control.lifecycle import BackgroundTask
from xds.control.source_feed import SourceFeed, SourceStatus
from xds.control.wanted_services import WantedServices
from xds.model.errors import NotFoundError

TICK_S = 0.05
SLICE_INSTANCES = 2_000  # that are taken over before other tasks run
SETTLED_SERVICES = 100  # at most so many are taken over at once for a reader

# Called with the names of services whose instances may have changed.
Listener = Callable[[Collection[str]], Awaitable[None]]

_log = structlog.get_logger(logger_name="xds.control.catalog")


class ServiceCatalog:
    """All services with their instances, from all sources. To be used in one event loop."""

    def __init__(
        self,
        rule: HoldRule | None = None,
        limits: CatalogLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.failures = 0
        self._rule = rule if rule is not None else HoldRule()
        self._clock = clock
        self._index = ServiceIndex(limits if limits is not None else CatalogLimits())
        self._feeds: dict[str, SourceFeed] = {}
        self._listeners: list[Listener] = []
        self._wanted = WantedServices(self._use)
        self._pending = asyncio.Event()
        self._task = BackgroundTask()

    # Start and stop

    def start(self) -> None:
        """Start to take over what sources show."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop."""
        await self._task.stop()

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
                self._tell,
                2 * self._index.limits.services,
            )
        feed.status.kind = kind
        return feed

    def forget_source(self, name: str) -> None:
        """A source was taken out of the settings: its instances drain and go."""
        self._feeds.pop(name, None)
        self._index.forget_source(name, self._clock())
        self._pending.set()

    def statuses(self) -> list[SourceStatus]:
        """How each source is, by name."""
        return [self._feeds[name].status for name in sorted(self._feeds)]

    def holdings(self) -> list[SourceHoldings]:
        """What each source has shown, by name."""
        return self._index.sources()

    def accept(self, source: str, service: str = "") -> dict[str, int]:
        """Accept the losses of a source that are held, of one service or all; the instances that go, by service.

        Raises ``NotFoundError`` for an unknown source.
        """
        found = self._index.of_source(source)
        if found is None:
            raise NotFoundError(f"there is no source {source!r}")
        accepted = self._index.accept(found, (service,) if service else set(found.held), self._clock())
        self._pending.set()
        return accepted

    # For those who use services

    def use(self, user: str, services: Iterable[str]) -> None:
        """Set the services that a user of the catalog uses; ``user`` is a name of its own. Sources observe these."""
        self._wanted.assign(user, services)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` soon after instances of services change. Several changes are told together."""
        self._listeners.append(listener)

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
        """Whether it is known which instances a service has, be it none."""
        return self._index.is_known(service)

    # Taking over

    async def _run(self) -> None:
        while True:
            await self._wait()
            try:
                await self.tick()
            except Exception:
                # A bug must not end the loop. What is served stays.
                self.failures += 1
                _log.exception("catalog.failed")

    async def _wait(self) -> None:
        """Wait until something changes or an instance has drained; then for what changes with it."""
        ends = self._index.next_end
        left_s = max(ends - self._clock(), 0.0) if ends is not None else None
        try:
            async with asyncio.timeout(left_s):
                await self._pending.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(TICK_S)

    async def tick(self) -> None:
        """Take over what sources have shown, end what has drained, and tell what has changed."""
        self._pending.clear()
        self._index.end_drains(self._clock())
        for feed in list(self._feeds.values()):
            await self._drain(feed)
        changed, self._index.changed = self._index.changed, set()
        if changed:
            for listener in self._listeners:
                await listener(changed)

    async def _drain(self, feed: SourceFeed) -> None:
        taken = 0
        while (found := feed.take_next()) is not None:
            self._take_over(feed, *found)
            taken += 1 + len(found[1] or ())
            if taken >= SLICE_INSTANCES:
                taken = 0
                await asyncio.sleep(0)
        if feed.take_all_shown():
            self._index.show_all(feed.source)

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
        self._index.use(wanted)
        self._pending.set()

    def _tell(self, status: SourceStatus, is_failing: bool) -> None:
        what = {"source": status.name, "kind": status.kind}
        if is_failing:
            _log.warning("source.failed", error_message=status.message, **what)
        else:
            _log.info("source.recovered", **what)

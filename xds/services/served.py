"""The parts of a server for services and their instances: catalog, sources, registrations, bindings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from prometheus_client.registry import Collector

from xds.control.hand_assignments import HandAssignments
from xds.control.lowered_endpoints import USER as UPSTREAMS
from xds.control.lowered_endpoints import LoweredEndpoints
from xds.control.publisher import Publisher
from xds.control.settings import Settings
from xds.fleet.event_log import EventLog
from xds.server.metrics.service_metrics import CatalogMetrics, RegistrationMetrics, SourceMetrics
from xds.services.bindings import USER as BINDINGS
from xds.services.bindings import Bindings
from xds.services.catalog import ServiceCatalog
from xds.services.core.registered_instance import SOURCE_NAME
from xds.services.core.source import Source
from xds.services.drain_persistence import DrainPersistence
from xds.services.registration import KIND, Registrations
from xds.services.source_builders import build_sources
from xds.services.source_runs import Sources
from xds.services.source_settings import SourceSettings
from xds.services.view import ServiceView
from xds.store.base import Store


class ServiceLayer:
    """The service layer of one server. Call ``load_catalog`` and ``load_registrations``, then ``start``.

    ``sources`` are added to those of the settings.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        publisher: Publisher,
        by_hand: HandAssignments,
        events: EventLog,
        sources: tuple[tuple[Source, SourceSettings], ...] = (),
    ) -> None:
        rule = settings.services.rule(settings.order.endpoint_drain_s)
        limits = settings.services.limits()
        live, locks, is_group = publisher.live, publisher.locks, publisher.is_group
        self.catalog = ServiceCatalog(rule, limits, store=store, events=events)
        self.bindings = Bindings(store, self.catalog, live, locks, by_hand, is_group, settings.chains.datacenter)
        self._lowered = publisher.lowered
        lowered = LoweredEndpoints(self.catalog, live, settings.chains.datacenter)
        self._lowered.endpoints = lowered
        self.drains = DrainPersistence(store, {BINDINGS: self.bindings.followed, UPSTREAMS: lowered.followed})
        self.view = ServiceView(self.catalog)
        self.registrations = Registrations(store, limits, on_shown=self.view.mark_maybe_changed)
        self.sources = Sources((*build_sources(settings), *sources), self.catalog.sink)

    def collectors(self) -> Iterator[Collector]:
        """The metrics of these parts."""
        yield CatalogMetrics(self.catalog, self.bindings, self._lowered)
        yield RegistrationMetrics(self.registrations)
        yield SourceMetrics(self.sources)

    async def load_catalog(self) -> None:
        """Load the last good set of each configured source, and draining endpoints. Raises ``StoreError``."""
        await self.drains.load()
        await self.catalog.load()
        self.catalog.retain_sources({*self.sources.runs(), SOURCE_NAME})

    async def load_registrations(self) -> None:
        """Load the registrations, so that the first response has them. Raises ``StoreError``."""
        await self.registrations.load(self.catalog.sink(SOURCE_NAME, KIND, hold_share=1))
        await self.catalog.tick()

    def start(self) -> None:
        """Follow the sources."""
        self.catalog.start()
        self.drains.start()
        self.bindings.start()
        if self._lowered.endpoints is not None:
            self._lowered.endpoints.start()
        self.sources.start()

    async def replace_sources(self, changed: Collection[str], built: Iterable[tuple[Source, SourceSettings]]) -> None:
        """Run the sources ``built`` instead of those named ``changed``. The instances of removed sources drain."""
        await self.sources.replace(changed, built)
        self.catalog.retain_sources({*self.sources.runs(), SOURCE_NAME})

    def start_clocks(self) -> None:
        """Start the TTLs of checks: from now on, heartbeats reach the server."""
        self.registrations.start()

    async def close(self) -> None:
        """Stop all parts, and store unsaved state."""
        await self.registrations.close()
        await self.sources.close()
        await self.drains.close()
        await self.catalog.close()

"""Dependencies on one server: the catalog, sources, registrations and bindings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from prometheus_client.registry import Collector

from xds.admin.dependencies import Dependencies, ServerCheck
from xds.feature import Kernel, ServedFeature
from xds.live.owners import EndpointOrigin
from xds.push.documents import GroupDocuments
from xds.services.bindings import BINDING, Bindings
from xds.services.bindings import USER as BINDINGS
from xds.services.catalog import ServiceCatalog
from xds.services.core.registered_instance import SOURCE_NAME
from xds.services.core.source import Source
from xds.services.drain_persistence import DrainPersistence
from xds.services.followed_target import origins_of
from xds.services.heartbeats_elsewhere import remaining_elsewhere
from xds.services.metrics import CatalogMetrics, RegistrationMetrics, SourceMetrics
from xds.services.registration import KIND, Registrations
from xds.services.registration_follower import RegistrationFollower
from xds.services.settings import ServiceSettings
from xds.services.source_builders import build_sources
from xds.services.source_runs import Sources
from xds.services.source_settings import SourceSettings
from xds.services.source_states import check_sources
from xds.services.view import ServiceView
from xds.store.base import Store
from xds.store.document_keys import Key
from xds.tasks.lifecycle import HoldsLease, alone


class ServedServices(ServedFeature):
    """The services of one server, and the assignments that follow them.

    ``followed`` has all assignments that follow services, by owner. ``datacenter`` is that of this server.
    """

    def __init__(
        self,
        store: Store,
        catalog: ServiceCatalog,
        bindings: Bindings,
        sources: Sources,
        registrations: Registrations,
        datacenter: str = "dc1",
        holds_lease: HoldsLease = alone,
        follower: RegistrationFollower | None = None,
    ) -> None:
        """``follower`` follows what other servers of the store register."""
        self.datacenter = datacenter
        self.catalog = catalog
        self.bindings = bindings
        self.followed = {BINDINGS: bindings.followed}
        self.view = ServiceView(catalog)
        self.registrations = registrations
        self.sources = sources
        self._follower = follower
        self._drains = DrainPersistence(store, self.followed, holds_lease=holds_lease)

    @classmethod
    def of(cls, kernel: Kernel, added: Sequence[tuple[Source, SourceSettings]]) -> ServedServices:
        """The services of a server. The sources ``added`` run with those of the settings."""
        settings, store, publisher = kernel.settings, kernel.store, kernel.publisher
        section, datacenter = settings.section(ServiceSettings), settings.chains.datacenter
        rule, limits = section.rule(settings.order.endpoint_drain_s), section.limits()
        holds_lease, is_shared = kernel.members.holds_lease, kernel.members.known().is_shared
        catalog = ServiceCatalog(rule, limits, store=store, events=kernel.fleet.events, holds_lease=holds_lease)
        bindings = Bindings(
            store,
            catalog,
            publisher.live,
            publisher.locks,
            kernel.by_hand,
            publisher.groups.is_group,
            datacenter,
        )
        sources = Sources((*build_sources(settings), *added), catalog.sink)
        registrations = Registrations(
            store,
            limits,
            holds_lease=holds_lease,
            heard_elsewhere=partial(remaining_elsewhere, kernel.others),
            is_shared=is_shared,
        )
        follower = RegistrationFollower(store, registrations) if is_shared else None
        return cls(store, catalog, bindings, sources, registrations, datacenter, holds_lease, follower)

    # What the kernel asks

    def documents(self) -> Sequence[GroupDocuments]:
        return (self.bindings,)

    def endpoint_origins(self, key: Key, owner: str) -> Sequence[EndpointOrigin] | None:
        """The instances that a binding selects."""
        bound = self.bindings.find(key) if owner == BINDING else None
        return origins_of(self.bindings.selected(bound)) if bound is not None else None

    def checks(self) -> Iterator[ServerCheck]:
        """Whether all sources can be read, completely and without held losses."""
        yield ServerCheck("sources", lambda: check_sources(self.catalog, self.sources), "xds sources")

    def collectors(self) -> Iterator[Collector]:
        yield CatalogMetrics(self.catalog, self.bindings, self.followed)
        yield RegistrationMetrics(self.registrations)
        yield SourceMetrics(self.sources)

    # The life of the server

    async def load(self) -> None:
        """Load draining endpoints, the last good set of each configured source, and the registrations.

        So the first response has them. Raises ``StoreError``.
        """
        if self._follower is not None:
            await self._follower.begin()
        await self._drains.load()
        await self.catalog.load()
        self.catalog.retain_sources({*self.sources.runs(), SOURCE_NAME})
        await self.registrations.load(self.catalog.sink(SOURCE_NAME, KIND, hold_share=1))
        await self.catalog.tick()

    def start(self) -> None:
        self.catalog.start()
        self._drains.start()
        for followed in self.followed.values():
            followed.start()
        self.sources.start()

    async def replace_sources(self, changed: Collection[str], built: Iterable[tuple[Source, SourceSettings]]) -> None:
        """Run the sources ``built`` instead of those named ``changed``. The instances of removed sources drain."""
        await self.sources.replace(changed, built)
        self.catalog.retain_sources({*self.sources.runs(), SOURCE_NAME})

    def ready(self) -> None:
        """Start the TTLs of checks: from now on, heartbeats reach the server."""
        self.registrations.start()
        if self._follower is not None:
            self._follower.start()

    async def drain(self) -> None:
        self.view.waiters.end()

    async def close(self) -> None:
        """Stop all parts, and store unsaved state."""
        if self._follower is not None:
            await self._follower.close()
        await self.registrations.close()
        await self.sources.close()
        await self._drains.close()
        await self.catalog.close()


def served(deps: Dependencies) -> ServedServices:
    """The services of a server, for its routes."""
    return deps.feature(ServedServices, "the catalog of services")

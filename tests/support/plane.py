"""A publisher with the real memory store, cache and fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from xds.envoy.translation import V2, translate_to_v2
from xds.fleet.fleet import Fleet
from xds.live.by_hand import HandAssignments
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.lowered_endpoints import LoweredEndpoints
from xds.mesh.served import ServedMesh
from xds.mesh.settings import chain_context
from xds.push.publisher import Publisher
from xds.services.bindings import Bindings
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.settings.sections import ChainSettings
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.order import OrderRules
from xds.store.base import Store
from xds.store.sqlite.memory import MemoryStore


@dataclass
class Plane:
    """One control plane; ``woken`` lists the groups whose streams were woken, in order."""

    store: Store = field(default_factory=MemoryStore)
    rules: OrderRules = field(default_factory=OrderRules)
    cache: SnapshotCache = field(init=False)
    fleet: Fleet = field(default_factory=Fleet)
    woken: list[str] = field(default_factory=list)
    now_s: float = 1_000_000.0  # of live endpoints
    chain_context: ChainContext = field(default_factory=lambda: chain_context(ChainSettings()))

    def __post_init__(self) -> None:
        self.cache = SnapshotCache(translations={V2: translate_to_v2}, rules=self.rules)
        self.publisher = Publisher(self.store, self.cache, self.fleet, self.woken.extend)
        publisher = self.publisher
        self.mesh = ServedMesh(self.store, publisher, self.chain_context, self.fleet.events)
        publisher.derived.sources += self.mesh.derived()
        self.by_hand = HandAssignments(
            self.store,
            self.cache,
            publisher.live,
            publisher.locks,
            publisher.groups.is_group,
            self.fleet.events,
            clock=lambda: self.now_s,
        )
        self.catalog = ServiceCatalog(HoldRule(), clock=lambda: self.now_s, store=self.store, events=self.fleet.events)
        self.bindings = Bindings(
            self.store,
            self.catalog,
            publisher.live,
            publisher.locks,
            self.by_hand,
            publisher.groups.is_group,
            "dc1",
            lambda: self.now_s,
        )
        publisher.documents += [self.by_hand, self.bindings]
        self.mesh.lowered.endpoints = LoweredEndpoints(self.catalog, publisher.live, "dc1", lambda: self.now_s)

    def restarted(self) -> Plane:
        """Another process on the same store."""
        return Plane(self.store, now_s=self.now_s, rules=self.rules)

    async def reloaded(self) -> Plane:
        """Another process on the same store, which has loaded it."""
        again = self.restarted()
        await again.publisher.load()
        return again


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    made = Plane()
    await made.store.open()
    yield made
    await made.mesh.close()
    await made.publisher.close()
    await made.store.close()

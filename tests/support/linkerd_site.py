"""A server of the Linkerd API in this process, on a loop in a thread: real parts, a real port, and quick edits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tests.support.background import Background
from tests.support.linkerd_client import LinkerdClient
from tests.support.process import free_port, wait_until
from xds.codec.resources import decode_resource
from xds.fleet.fleet import Fleet
from xds.linkerd.served import ServedLinkerd
from xds.linkerd.settings import DestinationSettings
from xds.live.by_hand import HandAssignments
from xds.live.owners import LiveEndpoints
from xds.mesh.core.entries.entry import entry_from_json
from xds.mesh.entry_records import DeleteEntry, EntryWrite, PutEntry
from xds.mesh.served import ServedMesh
from xds.mesh.settings import chain_context
from xds.model.node import Locality
from xds.push.publisher import Publisher
from xds.push.request import PushOptions
from xds.server.counters import Metrics
from xds.server.options import ASYNCIO, ServerOptions
from xds.server.server import XdsServer
from xds.services.bindings import Bindings
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.instance import Check, Health, Instance
from xds.services.core.source import Sink
from xds.settings.sections import ChainSettings
from xds.snapshots.cache import SnapshotCache
from xds.store.sqlite.memory import MemoryStore

HOST = "web.default.svc.cluster.local"
SOURCE = "test"


def instance(address: str, port: int = 8080, **fields: Any) -> Instance:
    """An instance; ``health``, ``zone`` and ``meta`` in short."""
    health, zone = fields.pop("health", None), fields.pop("zone", "")
    checks = (Check("c", Health(health)),) if health else ()
    locality = Locality(zone=zone)
    return Instance(fields.pop("id", f"i-{address}:{port}"), address, port, checks=checks, locality=locality, **fields)


class LinkerdSite:
    """The server. Edits return once the catalog has announced them."""

    def __init__(
        self,
        settings: DestinationSettings | None = None,
        options: ServerOptions | None = None,
        *,
        is_read: bool = True,
    ) -> None:
        self.open = ExitStack()
        self.background = self.open.enter_context(Background())
        self.settings = settings if settings is not None else DestinationSettings()
        self.options = options if options is not None else ServerOptions(transport=ASYNCIO)
        self.options = replace(self.options, port=free_port())
        self.store = MemoryStore()
        self.now_s = 1_000_000.0
        self.background.run(self._start(is_read))
        self.open.callback(lambda: self.background.run(self._stop()))

    async def _start(self, is_read: bool = True) -> None:
        self.cache = SnapshotCache()
        self.fleet = Fleet()
        self.metrics = Metrics(0.0)
        self.server = XdsServer(self.cache, self.fleet, self.options, self.metrics)
        live = LiveEndpoints(self.cache, self.server.registry.wake)
        self.publisher = Publisher(self.store, self.cache, self.fleet, self.server.wake, live=live)
        self.mesh = ServedMesh(self.store, self.publisher, chain_context(ChainSettings()), self.fleet.events)
        self.publisher.derived.sources += self.mesh.derived()
        self.catalog = ServiceCatalog(HoldRule(1.0), clock=lambda: self.now_s, store=self.store)
        held = self.publisher
        by_hand = HandAssignments(
            self.store, self.cache, live, held.locks, held.groups.is_group, self.fleet.events, 1.0
        )
        self.bindings = Bindings(self.store, self.catalog, live, held.locks, by_hand, held.groups.is_group, "dc1")
        held.documents += [by_hand, self.bindings]
        await self.store.open()
        await held.load()
        await self.catalog.load()
        self.sink: Sink = self.catalog.sink(SOURCE, "files", 1.0)
        if is_read:
            self.sink.alive()
        api = ServedLinkerd(self.settings, "dc1", self.cache, self.catalog, self.mesh.entries, self.server.deps)
        self.destinations = api.destinations
        self.server.serve(api.stream_methods())
        for collector in api.collectors():
            self.metrics.registry.register(collector)
        await api.load()
        await self.server.start()
        await self.server.set_ready()

    async def _stop(self) -> None:
        await self.server.drain(0.0)
        await self.catalog.close()
        await self.publisher.close()

    def restart(self) -> None:
        """Another server on the same store and port."""
        self.background.run(self._stop())
        self.background.run(self._start())

    def drain(self) -> None:
        """End the server gracefully."""
        self.background.run(self.server.drain(0.0))

    def close(self) -> None:
        """End everything."""
        self.open.close()

    # Clients

    def client(self, **options: int) -> LinkerdClient:
        """A client with a connection of its own."""
        made = LinkerdClient(self.options.port, **options)
        self.open.callback(made.close)
        return made

    # Edits

    def put(self, service: str, *instances: Instance) -> None:
        """Set the instances of a service in the source."""
        self.edit(lambda: self.sink.put(service, instances))

    def remove(self, service: str) -> None:
        """Remove a service from the source."""
        self.edit(lambda: self.sink.remove(service))

    def edit(self, *changes: Callable[[], None]) -> None:
        """Several changes at once."""

        async def run() -> None:
            for change in changes:
                change()
            await self.catalog.tick()

        self.background.run(run())

    def write(self, *entries: dict[str, Any]) -> None:
        """Write config entries."""
        found: list[EntryWrite] = [PutEntry(entry_from_json(each)) for each in entries]
        self.background.run(self.mesh.entries.apply(found))

    def delete(self, kind: str, name: str) -> None:
        """Delete a config entry."""
        self.background.run(self.mesh.entries.apply([DeleteEntry(kind, name)]))

    def push(self, resources: Sequence[dict[str, Any]], group: str = "default") -> None:
        """Replace the snapshot of a group."""
        decoded = [decode_resource(each) for each in resources]
        self.background.run(self.publisher.push(group, decoded, options=PushOptions(allow_empty=True)))

    def run(self, work: Any) -> Any:
        """Run a coroutine on the loop of the server."""
        return self.background.run(work)

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds."""
        wait_until(condition, what)

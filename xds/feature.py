"""What a feature shows to the kernel, and what it is made from. `xds.app.features` names all features.

No room of the kernel imports a feature. The program asks each feature for its routes, settings, metrics and so on, and
hands them to the rooms that serve them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.registry import Collector

    from xds.api.shapes.fleet import LinkerdItem
    from xds.control.auth_settings import Section
    from xds.control.config_entries import EntryPublisher
    from xds.control.push import PlannedChange
    from xds.control.serving import GroupDocuments
    from xds.control.settings import Settings
    from xds.fleet.fleet import Fleet
    from xds.lrs.aggregates import LoadAggregates
    from xds.model.errors import Violation
    from xds.server.discovery import DiscoveryDependencies
    from xds.server.registry import StreamRegistry
    from xds.server.stream import StreamMethod
    from xds.services.catalog import ServiceCatalog
    from xds.snapshots.cache import SnapshotCache
    from xds.store.base import Store

_NO_SECTIONS: Mapping[str, Section] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Kernel:
    """The objects of one server that features are made from.

    ``load`` has the load reports, ``registry`` wakes streams. ``streams`` is what the handlers of all streams share.
    """

    settings: Settings
    store: Store
    cache: SnapshotCache
    fleet: Fleet
    load: LoadAggregates
    catalog: ServiceCatalog
    entries: EntryPublisher
    registry: StreamRegistry
    streams: DiscoveryDependencies


class ServedFeature:
    """A feature of one server. What it does not have stays as it is here."""

    def documents(self) -> Sequence[GroupDocuments]:
        """Its documents that belong to groups. They are loaded, backed up and deleted with the groups."""
        return ()

    def review(self, planned: PlannedChange) -> list[Violation]:
        """Warnings about a planned change of a group."""
        return []

    def stream_methods(self) -> Iterable[StreamMethod]:
        """The gRPC methods that it serves to proxies."""
        return ()

    def stream_answers(self, node_id: str) -> Mapping[int, LinkerdItem]:
        """The last answers on the streams of a node that it serves, by the id of the stream."""
        return {}

    def collectors(self) -> Iterable[Collector]:
        """Its metrics."""
        return ()

    async def load(self) -> None:
        """Replace its state by the stored one: at the start, before any stream is served, and after a restore.

        The groups and the documents of all features are loaded. Raises ``StoreError``.
        """

    def start(self) -> None:
        """Start its tasks: the server serves."""

    async def drain(self) -> None:
        """The server drains: all clients will leave."""

    async def close(self) -> None:
        """Stop its tasks, and store what is not stored yet."""


class Feature(Protocol):
    """A feature of the program. Its methods import what they need: commands that do not need it start without it."""

    def add_commands(self) -> None:
        """Register its commands on `xds.cli.app.app`."""

    def settings(self) -> Mapping[str, Section]:
        """The defaults of its sections of the settings, by name."""
        return _NO_SECTIONS

    def routers(self) -> Sequence[APIRouter]:
        """Its routes of the admin API."""
        return ()

    def serve(self, kernel: Kernel) -> ServedFeature:
        """This feature of a server."""
        ...

"""What a feature shows to the kernel, and what it is made from. `xds.app.features` names all features.

No room of the kernel imports a feature. The program asks each feature for its routes, settings, metrics and so on, and
hands them to the rooms that serve them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter
from prometheus_client.registry import Collector

from xds.api.services import StreamAnswers
from xds.control.auth_settings import Section
from xds.control.catalog import ServiceCatalog
from xds.control.config_entries import EntryPublisher
from xds.control.settings import Settings
from xds.server.discovery import DiscoveryDependencies
from xds.server.stream import StreamMethod
from xds.snapshots.cache import SnapshotCache


@dataclass(frozen=True, slots=True)
class Kernel:
    """The objects of one server that features are made from. ``streams``: what all streams share."""

    settings: Settings
    cache: SnapshotCache
    catalog: ServiceCatalog
    entries: EntryPublisher
    streams: DiscoveryDependencies


class ServedFeature(StreamAnswers, Protocol):
    """A feature of one server."""

    def stream_methods(self) -> Iterable[StreamMethod]:
        """The gRPC methods that it serves to proxies."""

    def collectors(self) -> Iterable[Collector]:
        """Its metrics."""

    async def load(self) -> None:
        """Load its state, when that of the kernel is loaded, and before any stream is served. Raises ``StoreError``."""


class Feature(Protocol):
    """A feature of the program. Its methods import what they need: commands that do not need it start without it."""

    def add_commands(self) -> None:
        """Register its commands on `xds.cli.app.app`."""

    def settings(self) -> Mapping[str, Section]:
        """The defaults of its sections of the settings, by name."""

    def routers(self) -> Sequence[APIRouter]:
        """Its routes of the admin API."""

    def serve(self, kernel: Kernel) -> ServedFeature:
        """This feature of a server."""

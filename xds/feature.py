"""What a feature shows to the kernel, and what it is made from. `xds.app.features` names all features.

No room of the kernel imports a feature. The program asks each feature for its routes, settings, metrics and so on, and
hands them to the rooms that serve them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.registry import Collector

    from xds.admin.dependencies import ServerCheck
    from xds.admin.examples import ApiTexts
    from xds.admin.foreign_apis import ForeignApi
    from xds.admin.models.nodes import StreamAnswer
    from xds.admin.other_servers import OtherServers
    from xds.cluster.members import Members
    from xds.fleet.fleet import Fleet
    from xds.live.by_hand import HandAssignments
    from xds.live.owners import EndpointOrigin
    from xds.lrs.aggregates import LoadAggregates
    from xds.model.errors import Violation
    from xds.push.derived import Derived
    from xds.push.documents import GroupDocuments
    from xds.push.publisher import Publisher
    from xds.push.request import PlannedChange
    from xds.server.discovery import DiscoveryDependencies
    from xds.server.registry import StreamRegistry
    from xds.server.stream import StreamMethod
    from xds.settings.settings import Settings
    from xds.snapshots.cache import SnapshotCache
    from xds.store.base import Store
    from xds.store.document_keys import Key

_NO_SECTIONS: Mapping[str, tuple[Any, Any]] = MappingProxyType({})

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Kernel:
    """The objects of one server that features are made from.

    ``load`` has the load reports, ``registry`` wakes streams. ``streams`` is what the handlers of all streams share.
    ``members`` are the servers of the store; what only one of them does, it does while ``members.holds_lease()``.
    ``others`` asks them.
    ``features`` are those that are served already: a feature may use those before it.
    """

    settings: Settings
    store: Store
    cache: SnapshotCache
    fleet: Fleet
    load: LoadAggregates
    publisher: Publisher
    by_hand: HandAssignments
    registry: StreamRegistry
    streams: DiscoveryDependencies
    members: Members
    others: OtherServers
    features: list[ServedFeature]

    def feature(self, kind: type[F]) -> F:
        """The feature of this class."""
        return next(each for each in self.features if isinstance(each, kind))


class ServedFeature:
    """A feature of one server. What it does not have stays as it is here."""

    def documents(self) -> Sequence[GroupDocuments]:
        """Its documents that belong to groups. They are loaded, backed up and deleted with the groups."""
        return ()

    def derived(self) -> Sequence[Derived]:
        """The sources of its derived resources of groups. Their documents are loaded before all others."""
        return ()

    def review(self, planned: PlannedChange) -> list[Violation]:
        """Warnings about a planned change of a group."""
        return []

    def stream_methods(self) -> Iterable[StreamMethod]:
        """The gRPC methods that it serves to proxies."""
        return ()

    def stream_answers(self, node_id: str) -> Mapping[int, StreamAnswer]:
        """The last answers on the streams of a node that it serves, by the id of the stream."""
        return {}

    def endpoint_origins(self, key: Key, owner: str) -> Sequence[EndpointOrigin] | None:
        """Where the endpoints of a live assignment come from; None if it is not one of this feature."""
        return None

    def checks(self) -> Iterable[ServerCheck]:
        """Its rows of a check of the server."""
        return ()

    def collectors(self) -> Iterable[Collector]:
        """Its metrics."""
        return ()

    async def load(self) -> None:
        """Load its state. Groups and the documents of all features are loaded. Raises ``StoreError``."""

    async def reload(self) -> None:
        """Load what a restore of the store has replaced, except for its documents. Raises ``StoreError``."""

    def start(self) -> None:
        """Start its tasks: all is loaded, and the server is about to serve proxies."""

    def ready(self) -> None:
        """Start what needs clients: the server serves."""

    async def drain(self) -> None:
        """The server drains: all clients will leave."""

    async def close(self) -> None:
        """Stop its tasks, and store what is not stored yet."""


class Feature(Protocol):
    """A feature of the program. Its methods import what they need: commands that do not need it start without it."""

    def add_commands(self) -> None:
        """Register its commands on `xds.cli.app.app`."""

    def settings(self) -> Mapping[str, tuple[Any, Any]]:
        """Its sections of the settings by name: the type and the default of each."""
        return _NO_SECTIONS

    def routers(self) -> Sequence[APIRouter]:
        """Its routes of the admin API."""
        return ()

    def foreign_apis(self) -> Sequence[ForeignApi]:
        """The APIs of other products that its routes belong to."""
        return ()

    def texts(self) -> Sequence[ApiTexts]:
        """What it adds to the description of the admin API."""
        return ()

    def serve(self, kernel: Kernel) -> ServedFeature:
        """This feature of a server."""
        ...

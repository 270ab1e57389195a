"""The API of Linkerd on one server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client.registry import Collector

from xds.admin.models.nodes import StreamAnswer
from xds.feature import ServedFeature
from xds.linkerd.destinations import Destinations
from xds.linkerd.methods import LABEL, METHODS
from xds.linkerd.metrics import LinkerdMetrics
from xds.linkerd.settings import DestinationSettings
from xds.linkerd.streams import LinkerdHandler, LinkerdServing
from xds.mesh.config_entries import EntryTable
from xds.server.discovery import DiscoveryDependencies
from xds.server.stream import StreamMethod
from xds.services.catalog import ServiceCatalog
from xds.snapshots.cache import SnapshotCache


class ServedLinkerd(ServedFeature):
    """The API of one server."""

    def __init__(
        self,
        settings: DestinationSettings,
        datacenter: str,
        cache: SnapshotCache,
        catalog: ServiceCatalog,
        entries: EntryTable,
        streams: DiscoveryDependencies,
    ) -> None:
        self.destinations = Destinations(catalog, entries, cache, settings.rules(datacenter))
        self._serving = LinkerdServing(streams, self.destinations, settings)

    def stream_methods(self) -> Iterator[StreamMethod]:
        """The methods for proxies of today and of 2018."""
        for each in METHODS:
            yield StreamMethod(each.service, each.method, LABEL, partial(LinkerdHandler, self._serving, each))

    def collectors(self) -> Iterator[Collector]:
        yield LinkerdMetrics(self.destinations)

    async def load(self) -> None:
        self.destinations.load()

    def stream_answers(self, node_id: str) -> Mapping[int, StreamAnswer]:
        """The last answers on the open streams of a node."""
        return self.destinations.of_node(node_id)

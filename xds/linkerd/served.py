"""The API of Linkerd on one server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client.registry import Collector

from xds.api.shapes.fleet import LinkerdItem
from xds.feature import Kernel, ServedFeature
from xds.linkerd.destinations import Destinations
from xds.linkerd.methods import LABEL, METHODS
from xds.linkerd.metrics import LinkerdMetrics
from xds.linkerd.models import linkerd_item
from xds.linkerd.settings import DestinationSettings
from xds.linkerd.streams import LinkerdHandler, LinkerdServing
from xds.server.stream import StreamMethod


class ServedLinkerd(ServedFeature):
    """The API of one server."""

    def __init__(self, kernel: Kernel) -> None:
        section = kernel.settings.section(DestinationSettings)
        rules = section.rules(kernel.settings.chains.datacenter)
        self.destinations = Destinations(kernel.catalog, kernel.entries, kernel.cache, rules)
        self._serving = LinkerdServing(
            kernel.streams,
            self.destinations,
            section.periodic_update_s,
            section.periodic_update_today_s,
            section.settle_s,
            section.start_s,
        )

    def stream_methods(self) -> Iterator[StreamMethod]:
        """The methods for proxies of today and of 2018."""
        for each in METHODS:
            yield StreamMethod(each.service, each.method, LABEL, partial(LinkerdHandler, self._serving, each))

    def collectors(self) -> Iterator[Collector]:
        """The metrics of all streams."""
        yield LinkerdMetrics(self.destinations)

    async def load(self) -> None:
        """Index the addresses of all services."""
        self.destinations.load()

    def stream_answers(self, node_id: str) -> Mapping[int, LinkerdItem]:
        """The last answers on the open streams of a node."""
        return {stream.id: linkerd_item(stream) for stream in self.destinations.of_node(node_id)}

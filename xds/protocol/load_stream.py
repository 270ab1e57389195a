"""One LRS stream: requests in, events and demands for reports out. Sans-io; the rules are those of spec/lrs.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.load_report import ClusterLoad
from xds.model.node import Node
from xds.protocol.load_wire import LoadDemand, LoadRequest
from xds.wire.node import NODE_BYTES, decode_node

INTERVAL_S = 10.0
LEAST_INTERVAL_S = 1.0
SENDS_ALL = "envoy.lrs.supports_send_all_clusters"
# Rule 5: an empty list without ``send_all_clusters`` means all clusters to grpc-go and none to Envoy.
NO_CLUSTER = "xds.no-cluster"
# Rule 3: "grpc-go reads exactly ONE response per stream".
READ_ONE_RESPONSE = frozenset({"gRPC Go"})


class LoadSettings(NamedTuple):
    """What is asked of all clients. ``by_endpoint``: endpoints are told apart where a client can."""

    interval_s: float = INTERVAL_S
    by_endpoint: bool = False


DEFAULT_SETTINGS = LoadSettings()


@dataclass(frozen=True, slots=True)
class LoadIdentified:
    """The stream's client named itself."""

    node: Node


@dataclass(frozen=True, slots=True)
class LoadReported:
    """A report came, of no cluster maybe: that the client lives."""

    report: LoadRequest

    @property
    def loads(self) -> tuple[ClusterLoad, ...]:
        """All of it as values: to look at, not for counting (`LoadRequest.tallies`)."""
        return self.report.loads

    @property
    def refused(self) -> int:
        """The clusters' reports that cannot be."""
        return self.report.refused


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """This is to be sent."""

    body: bytes


@dataclass(frozen=True, slots=True)
class LoadRestart:
    """The stream is to be ended, so that the client comes back and is told anew."""


LoadEvent = LoadIdentified | LoadReported | LoadAsked | LoadRestart
ClustersOf = Callable[[Node], Iterable[str]]


class LoadReportStream:
    """The engine of one stream. ``clusters_of`` names the clusters of a node's snapshot."""

    __slots__ = ("_clusters_of", "_demand", "_node_bytes", "_settings", "node")

    def __init__(
        self, clusters_of: ClustersOf, settings: LoadSettings = DEFAULT_SETTINGS, node_bytes: int = NODE_BYTES
    ) -> None:
        self.node: Node | None = None
        self._clusters_of = clusters_of
        self._settings = settings
        self._node_bytes = node_bytes
        self._demand: LoadDemand | None = None

    def receive(self, request: LoadRequest) -> list[LoadEvent]:
        """A request arrived. Raises ``RemoteProtocolError`` for a first one that does not say who asks."""
        events: list[LoadEvent] = []
        if self.node is None:
            self._identify(request, events)
            # Rule 1: on a reconnect the first message has "all that gathered meanwhile".
            if request.reports:
                events.append(LoadReported(request))
            events += self.offer(self._settings)
            return events
        # Rule 2: the node was bound by the first message; later ones may repeat it, leave it out or have it empty.
        events.append(LoadReported(request))
        return events

    def offer(self, settings: LoadSettings) -> list[LoadEvent]:
        """Settings or snapshots may have changed. Rule 8: sent anew only what differs."""
        self._settings = settings
        if self.node is None:
            return []
        demand = self._wanted(self.node)
        before, self._demand = self._demand, demand
        if demand == before:
            return []
        if before is not None and self.node.user_agent_name in READ_ONE_RESPONSE:
            return [LoadRestart()]
        return [LoadAsked(demand.encode())]

    def _identify(self, request: LoadRequest, events: list[LoadEvent]) -> None:
        node = decode_node(request.node, self._node_bytes)
        if not node.id:
            raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "the first message names no node")
        self.node = node
        events.append(LoadIdentified(node))

    def _wanted(self, node: Node) -> LoadDemand:
        # Rule 7: "must be valid and > 0".
        interval_s = max(LEAST_INTERVAL_S, self._settings.interval_s)
        by_endpoint = self._settings.by_endpoint
        # Rule 4: "honoured only by clients whose node has" the feature.
        if SENDS_ALL in node.client_features:
            return LoadDemand(interval_s, every=True, by_endpoint=by_endpoint)
        clusters = tuple(sorted(self._clusters_of(node))) or (NO_CLUSTER,)
        return LoadDemand(interval_s, clusters, by_endpoint=by_endpoint)

"""One LRS stream: LoadStatsRequests in, events out. Sans-io. The rules are those of docs/protocol.md#load-reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xds.lrs.load_stats import LoadStatsRequest, LoadStatsResponse
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.load_report import ClusterLoad
from xds.model.node import NODE_BYTES, Node
from xds.wire.node import decode_node

INTERVAL_S = 10.0
MINIMUM_INTERVAL_S = 1.0
SEND_ALL_CLUSTERS = "envoy.lrs.supports_send_all_clusters"
# Rule 5: an empty list without ``send_all_clusters`` means all clusters to grpc-go and none to Envoy.
NO_CLUSTER = "xds.no-cluster"
# Rule 3: "grpc-go reads exactly ONE response per stream".
READS_ONE_RESPONSE = frozenset({"gRPC Go"})


class LoadSettings(NamedTuple):
    """What all clients are asked for. ``by_endpoint``: report endpoints separately, where a client can.

    ``longest_interval_s``: while reading takes too much CPU, clients are asked for longer intervals, up to this one
    (`xds.lrs.interval`); not if it is no longer than ``interval_s``.
    """

    interval_s: float = INTERVAL_S
    by_endpoint: bool = False
    longest_interval_s: float = 0.0


DEFAULT_SETTINGS = LoadSettings()


@dataclass(frozen=True, slots=True)
class LoadNodeIdentified:
    """The first request came: the client's node is known."""

    node: Node


@dataclass(frozen=True, slots=True)
class LoadReported:
    """A report came. One without any cluster shows that the client is alive."""

    report: LoadStatsRequest

    @property
    def loads(self) -> tuple[ClusterLoad, ...]:
        """The whole report as values: for display and tests. `xds.lrs.ingest` counts without them."""
        return self.report.loads

    @property
    def refused(self) -> int:
        """How many clusters' reports are invalid."""
        return self.report.refused


@dataclass(frozen=True, slots=True)
class SendLoadResponse:
    """A serialized LoadStatsResponse is to be sent."""

    body: bytes


@dataclass(frozen=True, slots=True)
class EndLoadStream:
    """The stream is to be ended, so that the client reconnects and reads a new response."""


LoadEvent = LoadNodeIdentified | LoadReported | SendLoadResponse | EndLoadStream
ClustersOf = Callable[[Node], Iterable[str]]


class LoadReportStream:
    """The engine of one stream. ``clusters_of`` returns the names of the clusters in a node's snapshot."""

    __slots__ = ("_clusters_of", "_node_bytes", "_response", "_settings", "node")

    def __init__(
        self, clusters_of: ClustersOf, settings: LoadSettings = DEFAULT_SETTINGS, node_bytes: int = NODE_BYTES
    ) -> None:
        self.node: Node | None = None
        self._clusters_of = clusters_of
        self._settings = settings
        self._node_bytes = node_bytes
        self._response: LoadStatsResponse | None = None  # the latest one sent

    def receive(self, request: LoadStatsRequest) -> list[LoadEvent]:
        """Handle a request. Raises ``RemoteProtocolError`` for a first one without a valid node."""
        events: list[LoadEvent] = []
        if self.node is None:
            self._identify(request, events)
            # Rule 1: after a reconnect the first message reports what gathered meanwhile.
            if request.reports:
                events.append(LoadReported(request))
            events += self.offer(self._settings)
            return events
        # Rule 2: the first message fixed the node; later ones may repeat it, omit it, or have an empty one.
        events.append(LoadReported(request))
        return events

    def offer(self, settings: LoadSettings) -> list[LoadEvent]:
        """Settings or snapshots may have changed. Rule 8: a response is sent only if it differs from the last one."""
        self._settings = settings
        if self.node is None:
            return []
        response = self._response_for(self.node)
        before, self._response = self._response, response
        if response == before:
            return []
        if before is not None and self.node.user_agent_name in READS_ONE_RESPONSE:
            return [EndLoadStream()]
        return [SendLoadResponse(response.encode())]

    def _identify(self, request: LoadStatsRequest, events: list[LoadEvent]) -> None:
        node = decode_node(request.node, self._node_bytes)
        if not node.id:
            raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "the first message names no node")
        self.node = node
        events.append(LoadNodeIdentified(node))

    def _response_for(self, node: Node) -> LoadStatsResponse:
        # Rule 7: "must be valid and > 0".
        interval_s = max(MINIMUM_INTERVAL_S, self._settings.interval_s)
        by_endpoint = self._settings.by_endpoint
        # Rule 4: "honoured only by clients whose node has" the feature.
        if SEND_ALL_CLUSTERS in node.client_features:
            return LoadStatsResponse(interval_s, all_clusters=True, by_endpoint=by_endpoint)
        clusters = tuple(sorted(self._clusters_of(node))) or (NO_CLUSTER,)
        return LoadStatsResponse(interval_s, clusters, by_endpoint=by_endpoint)

"""One LRS stream: LoadStatsRequests in, events out. Sans-io. The rules are those of docs/protocol.md#load-reports.

`ReportInterval` is the reporting interval that the server requests: longer while reading reports takes too much of a
core.
"""

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
# LRS rule 3: "Some clients read one response only".
READS_ONE_RESPONSE = frozenset({"gRPC Go"})


class LoadSettings(NamedTuple):
    """What the server requests of all clients. ``by_endpoint``: report endpoints separately, if a client can.

    ``longest_interval_s``: while reading takes too much CPU, the server requests longer intervals, up to this one
    (`ReportInterval`). A value of at most ``interval_s`` turns that off.
    """

    interval_s: float = INTERVAL_S
    by_endpoint: bool = False
    longest_interval_s: float = 0.0


DEFAULT_SETTINGS = LoadSettings()


@dataclass(frozen=True, slots=True)
class LoadNodeIdentified:
    """The first request arrived: the client's node is known."""

    node: Node


@dataclass(frozen=True, slots=True)
class LoadReported:
    """A report arrived. A report without clusters shows that the client is connected."""

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
    """The caller must send this serialized LoadStatsResponse."""

    body: bytes


@dataclass(frozen=True, slots=True)
class EndLoadStream:
    """The caller must end the stream, so that the client reconnects and reads a new response."""


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
        self._response: LoadStatsResponse | None = None  # the latest response that was sent

    def receive(self, request: LoadStatsRequest) -> list[LoadEvent]:
        """Handle a request. Raises ``RemoteProtocolError`` if the first request has no valid node."""
        events: list[LoadEvent] = []
        if self.node is None:
            self._identify(request, events)
            # Rule 1: after a reconnect the first message reports what the client counted since its last report.
            if request.reports:
                events.append(LoadReported(request))
            events += self.offer(self._settings)
            return events
        # Rule 2: the first message fixes the node. Later ones may repeat the node, omit it, or have an empty node.
        events.append(LoadReported(request))
        return events

    def offer(self, settings: LoadSettings) -> list[LoadEvent]:
        """Handle new settings or snapshots. Rule 8: a response is sent only if it differs from the last one."""
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
        # LRS rule 7: "The reporting interval is at least 1 s".
        interval_s = max(MINIMUM_INTERVAL_S, self._settings.interval_s)
        by_endpoint = self._settings.by_endpoint
        # LRS rule 4: "All clusters for clients that support it, else clusters by name".
        if SEND_ALL_CLUSTERS in node.client_features:
            return LoadStatsResponse(interval_s, all_clusters=True, by_endpoint=by_endpoint)
        clusters = tuple(sorted(self._clusters_of(node))) or (NO_CLUSTER,)
        return LoadStatsResponse(interval_s, clusters, by_endpoint=by_endpoint)


WORK_SHARE = 0.3  # of a core, for reading reports
RETURN_SHARE = (
    0.2  # the interval is shortened only if the share then stays below this: it would be lengthened again at once else
)
STEP = 2.0  # the interval is doubled and halved: each change reconnects the clients that read one response only
MEASURED_INTERVALS = 2.0  # intervals over which work is measured, so that all clients follow a change before the next
MEASURED_MINIMUM_S = 20.0


class IntervalChange(NamedTuple):
    """The requested interval changed. ``share``: the share of a core that reading took at the interval ``before_s``."""

    before_s: float
    interval_s: float
    share: float


class ReportInterval:
    """The interval that the server requests, ``interval_s``: from the setting ``set_s`` up to ``longest_s``.

    Equal limits turn lengthening off. ``share`` is the share of a core that reading took when it was last measured.
    """

    __slots__ = ("_measured_since", "_work_s", "interval_s", "longest_s", "set_s", "share")

    def __init__(self, set_s: float, longest_s: float) -> None:
        self.set_s = set_s
        self.longest_s = max(set_s, longest_s)
        self.interval_s = set_s
        self.share = 0.0
        self._measured_since: float | None = None
        self._work_s = 0.0

    def add(self, work_s: float, now: float) -> IntervalChange | None:
        """Add the CPU seconds that reading a report took, until ``now``. Returns a change of the interval, if any."""
        if self._measured_since is None or now < self._measured_since:  # the clock may be set back
            self._measured_since, self._work_s = now, 0.0
        self._work_s += work_s
        lasted_s = now - self._measured_since
        if lasted_s < max(MEASURED_MINIMUM_S, MEASURED_INTERVALS * self.interval_s):
            return None
        self.share, self._measured_since, self._work_s = self._work_s / lasted_s, now, 0.0
        before_s, self.interval_s = self.interval_s, self._next_s()
        return IntervalChange(before_s, self.interval_s, self.share) if self.interval_s != before_s else None

    def _next_s(self) -> float:
        """The next interval. The cost is proportional to the number of reports: half as much at twice the interval."""
        if self.share > WORK_SHARE:
            return min(self.longest_s, self.interval_s * STEP)
        shorter_s = max(self.set_s, self.interval_s / STEP)
        if self.share * self.interval_s / shorter_s <= RETURN_SHARE:
            return shorter_s
        return self.interval_s

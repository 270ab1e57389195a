"""LoadStatsRequest and LoadStatsResponse: bytes to values and back. v2 and v3 have the same fields.

A LoadStatsRequest may be megabytes long, so it can be split into pieces, each a message of its own. A protobuf message
may be cut between any two of its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite

from google.protobuf.message import DecodeError

from xds.lrs.cluster_counters import COUNTER_LIMIT, INTERVAL_LIMIT_S, LOCALITIES_LIMIT, NAME_LIMIT, PRIORITY_LIMIT
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.ip_address import address_text
from xds.model.load_report import (
    NO_METRICS,
    UTILISATIONS,
    ClusterLoad,
    EndpointLoad,
    LocalityLoad,
    Metric,
    Traffic,
)
from xds.proto import wire_pb2
from xds.wire.fields import WireFormatError, bytes_field, decode_varint, duration_of, seconds_of, skip_field
from xds.wire.node import shared_locality

PIECE_BYTES = 256 * 1024
PIECE_FIELDS = 4096
CLUSTER_STATS_TAG = 0x12  # the first byte of each cluster's report
NODE_TAG = b"\x0a"

# Limits of one cluster's report. Endpoints beyond the limit are counted in their locality only; a report with more
# drop categories is invalid.
ENDPOINTS_LIMIT = 2_048
CATEGORIES_LIMIT = 1_024


@dataclass(frozen=True, slots=True)
class LoadStatsResponse:
    """What the server requests of a client: which clusters to report, every ``interval_s``.

    With ``all_clusters`` the client reports all of its clusters, and ``clusters`` is empty. With
    ``by_endpoint`` the client also reports each endpoint.
    """

    interval_s: float
    clusters: tuple[str, ...] = ()
    all_clusters: bool = False
    by_endpoint: bool = False

    def encode(self) -> bytes:
        """The serialized message."""
        message = wire_pb2.LoadStatsResponse(
            clusters=self.clusters, report_endpoint_granularity=self.by_endpoint, send_all_clusters=self.all_clusters
        )
        interval = message.load_reporting_interval
        interval.seconds, interval.nanos = duration_of(self.interval_s)
        return message.SerializeToString()


class LoadStatsRequest:
    """A LoadStatsRequest, or a further piece of one (``continues``). ``node`` is serialized.

    The constructor only separates the clusters. It does not parse the node: Envoy repeats its 61 kB in each report.
    Counting reads ``clusters`` (`xds.lrs.cluster_counters`), which takes a tenth of the time of ``loads``, the whole
    report as values. Both find the same reports invalid: a cluster's report is accepted whole or not at all.
    """

    __slots__ = ("_loads", "_message", "_node_field", "continues", "data")

    def __init__(self, data: bytes, continues: bool = False) -> None:
        """Raises ``RemoteProtocolError`` for bytes that are not a LoadStatsRequest."""
        begin, end = _first_node(data)
        self._node_field = data[begin:end]
        self.continues = continues
        self.data = data[end:] if end else data  # without the node
        self._message = _parse(self.data)
        self._loads: list[ClusterLoad | None] | None = None

    @property
    def node(self) -> bytes:
        """The serialized node; empty if the request has none."""
        # A client may serialize its node after its clusters. That node counts: in protobuf the last one wins.
        return self._message.node or self._node_field

    @property
    def reports(self) -> int:
        """The number of clusters' reports, including invalid ones."""
        return len(self._message.cluster_stats)

    @property
    def clusters(self) -> Sequence[bytes]:
        """The serialized ClusterStats, in order."""
        return self._message.cluster_stats

    @property
    def loads(self) -> tuple[ClusterLoad, ...]:
        """The valid clusters' reports as values."""
        return tuple(load for load in self._decoded() if load is not None)

    @property
    def refused(self) -> int:
        """The number of invalid clusters' reports."""
        return self._decoded().count(None)

    def _decoded(self) -> list[ClusterLoad | None]:
        if self._loads is None:
            self._loads = list(map(decode_cluster_stats, self._message.cluster_stats))
        return self._loads


def _first_node(data: bytes) -> tuple[int, int]:
    """Begin and end of the node, if the request begins with a node; else 0 and 0."""
    if not data.startswith(NODE_TAG):
        return 0, 0
    try:
        length, begin = decode_varint(data, len(NODE_TAG))
    except WireFormatError:
        raise _malformed() from None
    if begin + length > len(data):
        raise _malformed()
    return begin, begin + length


def split_request(data: bytes) -> Iterator[bytes]:
    """A serialized LoadStatsRequest in pieces of at most ``PIECE_BYTES`` and ``PIECE_FIELDS``, each a LoadStatsRequest.

    A longer field is a piece of its own. The node at the beginning does not count towards the limits. The contents of
    fields are not read.
    Raises ``RemoteProtocolError`` for bytes that are not a message.
    """
    _, position = _first_node(data)
    if len(data) - position <= PIECE_BYTES:
        yield data
        return
    begin = fields = 0
    room_to = position + PIECE_BYTES
    while position < len(data):
        try:
            end = skip_field(data, position)
        except WireFormatError:
            raise _malformed() from None
        if end > room_to or fields == PIECE_FIELDS:
            if position > begin:
                yield data[begin:position]
            begin, fields, room_to = position, 0, position + PIECE_BYTES
        position, fields = end, fields + 1
    yield data[begin:]


def find_cluster_stats(data: bytes, cluster: str, service_name: str) -> ClusterLoad | None:
    """One cluster's report of a serialized LoadStatsRequest; None without a valid one. The others are not parsed."""
    head = bytes_field(1, cluster.encode())
    clusters = _parse(data).cluster_stats
    usual = (stats for stats in clusters if stats.startswith(head))
    unusual = (stats for stats in clusters if not stats.startswith(NODE_TAG))  # the name, field 1 too, is not the first
    for stats in chain(usual, unusual):
        load = decode_cluster_stats(stats)
        if load is not None and (load.cluster, load.service_name) == (cluster, service_name):
            return load
    return None


def decode_cluster_stats(stats: bytes) -> ClusterLoad | None:
    """A serialized ClusterStats as values; None if it is invalid."""
    try:
        return _cluster(wire_pb2.ClusterStats.FromString(stats))
    except DecodeError:
        return None


def _parse(data: bytes) -> wire_pb2.LoadTally:
    """The request with its clusters' reports still serialized."""
    try:
        return wire_pb2.LoadTally.FromString(data)
    except DecodeError:
        raise _malformed() from None


def _malformed() -> RemoteProtocolError:
    return RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "not a LoadStatsRequest")


# One cluster's report. Each function returns None for an invalid value, and the whole report is refused.


def _cluster(stats: wire_pb2.ClusterStats) -> ClusterLoad | None:
    if len(stats.upstream_locality_stats) > LOCALITIES_LIMIT or len(stats.dropped_requests) > CATEGORIES_LIMIT:
        return None
    interval_s = seconds_of(stats.load_report_interval.seconds, stats.load_report_interval.nanos)
    endpoints_left = ENDPOINTS_LIMIT
    rows: list[LocalityLoad | None] = []
    for row in stats.upstream_locality_stats:
        rows.append(_locality(row, endpoints_left))
        endpoints_left = max(0, endpoints_left - len(row.upstream_endpoint_stats))
    drops: dict[str, int] = {}
    for each in stats.dropped_requests:
        drops[each.category] = drops.get(each.category, 0) + each.dropped_count
    is_valid = (
        stats.cluster_name
        and 0 < interval_s <= INTERVAL_LIMIT_S
        and max((stats.total_dropped_requests, *drops.values())) <= COUNTER_LIMIT
        and None not in rows
        and _are_names(stats.cluster_name, stats.cluster_service_name, *drops)
    )
    if not is_valid:
        return None
    localities = tuple(row for row in rows if row is not None)
    # LRS rule 12: "categories need not sum up to the total". No more than the total was dropped, though.
    dropped = max(stats.total_dropped_requests, sum(drops.values()))
    return ClusterLoad(stats.cluster_name, interval_s, stats.cluster_service_name, localities, dropped, drops)


def _locality(stats: wire_pb2.UpstreamLocalityStats, endpoints_limit: int) -> LocalityLoad | None:
    traffic = _traffic(stats)
    metrics = _metrics(stats.load_metric_stats)
    utilisations = _utilisations(stats)
    rows = [_endpoint(each) for each in stats.upstream_endpoint_stats[:endpoints_limit]]
    if traffic is None or metrics is None or utilisations is None or None in rows or stats.priority > PRIORITY_LIMIT:
        return None
    parts = stats.locality
    if not _are_names(parts.region, parts.zone, parts.sub_zone, *metrics):
        return None
    endpoints = tuple(row for row in rows if row is not None) if rows else ()
    both = {**metrics, **utilisations} if utilisations else metrics
    locality = shared_locality(parts.region, parts.zone, parts.sub_zone)
    return LocalityLoad(locality, traffic, stats.priority, both, endpoints)


def _endpoint(stats: wire_pb2.UpstreamEndpointStats) -> EndpointLoad | None:
    traffic, metrics, address = _traffic(stats), _metrics(stats.load_metric_stats), _address(stats.address)
    if traffic is None or metrics is None or not _are_names(address, *metrics):
        return None
    return EndpointLoad(address, traffic, metrics)


def _are_names(*texts: str) -> bool:
    """Whether no name is too long. Names are keys that stay in memory."""
    return max(map(len, texts), default=0) <= NAME_LIMIT


def _traffic(stats: wire_pb2.UpstreamLocalityStats | wire_pb2.UpstreamEndpointStats) -> Traffic | None:
    traffic = Traffic(
        stats.total_successful_requests,
        stats.total_error_requests,
        stats.total_issued_requests,
        stats.total_requests_in_progress,
    )
    return traffic if max(traffic) <= COUNTER_LIMIT else None


def _metrics(stats: Sequence[wire_pb2.EndpointLoadMetricStats]) -> Mapping[str, Metric] | None:
    if not stats:
        return NO_METRICS
    return _valid_metrics(
        (one.metric_name, Metric(one.num_requests_finished_with_metric, one.total_metric_value)) for one in stats
    )


def _utilisations(stats: wire_pb2.UpstreamLocalityStats) -> Mapping[str, Metric] | None:
    """The ORCA utilisations of backends. Few clients report them; without any, no dictionary is built."""
    reported = [(name, getattr(stats, name)) for name in UTILISATIONS if stats.HasField(name)]
    if not reported:
        return NO_METRICS
    return _valid_metrics(
        (name, Metric(one.num_requests_finished_with_metric, one.total_metric_value)) for name, one in reported
    )


def _valid_metrics(metrics: Iterable[tuple[str, Metric]]) -> Mapping[str, Metric] | None:
    by_name = dict(metrics)
    if not all(metric.requests <= COUNTER_LIMIT and isfinite(metric.total) for metric in by_name.values()):
        return None
    return by_name


def _address(address: wire_pb2.Address) -> str:
    if address.HasField("pipe"):
        return address.pipe.path
    return address_text(address.socket_address.address, address.socket_address.port_value)

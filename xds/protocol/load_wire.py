"""Load reports and what is asked of them: bytes to values and back. v2 and v3 have the same fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from google.protobuf.message import DecodeError

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.load_report import (
    NO_METRICS,
    UTILISATIONS,
    ClusterLoad,
    EndpointLoad,
    LocalityLoad,
    Metric,
    Traffic,
)
from xds.model.node import Locality
from xds.proto import wire_pb2
from xds.protocol.load_tally import (
    COUNTER_LIMIT,
    INTERVAL_LIMIT_S,
    LOCALITIES_LIMIT,
    NAME_LIMIT,
    NANOS,
    PRIORITY_LIMIT,
)
from xds.wire.node import shared_locality

# Of one cluster's report. What is beyond the first endpoints is not told apart, what is beyond the others is refused.
ENDPOINTS_LIMIT = 2_048
CATEGORIES_LIMIT = 1_024


@dataclass(frozen=True, slots=True)
class LoadDemand:
    """A LoadStatsResponse: what a client is to report. ``every``: all of its clusters, and ``clusters`` is empty."""

    interval_s: float
    clusters: tuple[str, ...] = ()
    every: bool = False
    by_endpoint: bool = False

    def encode(self) -> bytes:
        message = wire_pb2.LoadStatsResponse(
            clusters=self.clusters, report_endpoint_granularity=self.by_endpoint, send_all_clusters=self.every
        )
        nanos = round(self.interval_s * NANOS)
        message.load_reporting_interval.seconds, message.load_reporting_interval.nanos = divmod(nanos, NANOS)
        return message.SerializeToString()


class LoadRequest:
    """A LoadStatsRequest, read as far as somebody asks. ``node`` is still serialized.

    Three readings of the same bytes: of tallies for counting, a tenth of the time; ``loads`` and `load_at` as values.
    All refuse the same: a cluster's report is believed as a whole or not at all.
    """

    __slots__ = ("_decoded", "_message", "data")

    def __init__(self, data: bytes) -> None:
        """Raises ``RemoteProtocolError`` for bytes that are no LoadStatsRequest."""
        self.data = data
        self._message = _read(data)
        self._decoded: list[ClusterLoad | None] | None = None

    @property
    def node(self) -> bytes:
        return self._message.node

    @property
    def reports(self) -> int:
        """How many clusters' reports there are, those that cannot be included."""
        return len(self._message.cluster_stats)

    @property
    def loads(self) -> tuple[ClusterLoad, ...]:
        return tuple(load for load in self._all() if load is not None)

    @property
    def refused(self) -> int:
        """The cluster reports that cannot be."""
        return self._all().count(None)

    def _all(self) -> list[ClusterLoad | None]:
        if self._decoded is None:
            self._decoded = list(map(load_of, self._message.cluster_stats))
        return self._decoded

    @property
    def clusters(self) -> Sequence[bytes]:
        """The clusters' reports, serialized, in order: for `read_tallies`, and `load_of`."""
        return self._message.cluster_stats

    def bare(self) -> bytes:
        """The bytes without the node: Envoy's is 61 kB, and comes with every report."""
        node = self._message.node
        prefix = wire_pb2.LoadTally(node=node).SerializeToString() if node else b""
        return self.data.removeprefix(prefix)


def decode_load_request(data: bytes) -> LoadRequest:
    """Raises ``RemoteProtocolError`` for bytes that are none."""
    return LoadRequest(data)


def load_at(data: bytes, index: int) -> ClusterLoad | None:
    """One cluster's report, without the time to read the others; None for one that cannot be."""
    return load_of(_read(data).cluster_stats[index])


def locality_of(data: bytes) -> Locality:
    """The locality of a tally."""
    where = wire_pb2.Locality.FromString(data)
    return shared_locality(where.region, where.zone, where.sub_zone)


def _read(data: bytes) -> wire_pb2.LoadTally:
    """As far as to where one cluster's report ends and the next begins."""
    try:
        return wire_pb2.LoadTally.FromString(data)
    except DecodeError:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "not a LoadStatsRequest") from None


def load_of(stats: bytes) -> ClusterLoad | None:
    """A ClusterStats as values; None for one that cannot be."""
    try:
        return _cluster(wire_pb2.ClusterStats.FromString(stats))
    except DecodeError:
        return None


def _cluster(stats: wire_pb2.ClusterStats) -> ClusterLoad | None:
    """None for a report with a value that cannot be: then nothing in it can be believed."""
    if len(stats.upstream_locality_stats) > LOCALITIES_LIMIT or len(stats.dropped_requests) > CATEGORIES_LIMIT:
        return None
    interval_s = stats.load_report_interval.seconds + stats.load_report_interval.nanos / NANOS
    room = ENDPOINTS_LIMIT
    localities: list[LocalityLoad | None] = []
    for row in stats.upstream_locality_stats:
        localities.append(_locality(row, room))
        room = max(0, room - len(row.upstream_endpoint_stats))
    drops: dict[str, int] = {}
    for each in stats.dropped_requests:
        drops[each.category] = drops.get(each.category, 0) + each.dropped_count
    believable = (
        stats.cluster_name
        and 0 < interval_s <= INTERVAL_LIMIT_S
        and max((stats.total_dropped_requests, *drops.values())) <= COUNTER_LIMIT
        and None not in localities
        and _are_names(stats.cluster_name, stats.cluster_service_name, *drops)
    )
    if not believable:
        return None
    told = tuple(each for each in localities if each is not None)
    # "category totals need not sum to the total" (spec/lrs.md 12), but no more than the total can be dropped.
    dropped = max(stats.total_dropped_requests, sum(drops.values()))
    return ClusterLoad(stats.cluster_name, interval_s, stats.cluster_service_name, told, dropped, drops)


def _locality(stats: wire_pb2.UpstreamLocalityStats, room: int) -> LocalityLoad | None:
    """With as many endpoints as there is ``room`` for."""
    traffic = _traffic(stats)
    metrics = _metrics(stats.load_metric_stats)
    own = _utilisations(stats)
    endpoints = [_endpoint(each) for each in stats.upstream_endpoint_stats[:room]]
    if traffic is None or metrics is None or own is None or None in endpoints or stats.priority > PRIORITY_LIMIT:
        return None
    where = stats.locality
    if not _are_names(where.region, where.zone, where.sub_zone, *metrics):
        return None
    told = tuple(each for each in endpoints if each is not None) if endpoints else ()
    both = {**metrics, **own} if own else metrics
    return LocalityLoad(shared_locality(where.region, where.zone, where.sub_zone), traffic, stats.priority, both, told)


def _endpoint(stats: wire_pb2.UpstreamEndpointStats) -> EndpointLoad | None:
    traffic, metrics, address = _traffic(stats), _metrics(stats.load_metric_stats), _address(stats.address)
    if traffic is None or metrics is None or not _are_names(address, *metrics):
        return None
    return EndpointLoad(address, traffic, metrics)


def _are_names(*texts: str) -> bool:
    """Whether none is too long: what is kept under a name takes its length in memory, again and again."""
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
    return _checked(
        (one.metric_name, Metric(one.num_requests_finished_with_metric, one.total_metric_value)) for one in stats
    )


def _utilisations(stats: wire_pb2.UpstreamLocalityStats) -> Mapping[str, Metric] | None:
    """Told by backends (ORCA), and asked for by few: three looks, and nothing made where there is nothing."""
    told = [(name, getattr(stats, name)) for name in UTILISATIONS if stats.HasField(name)]
    if not told:
        return NO_METRICS
    return _checked((name, Metric(one.num_requests_finished_with_metric, one.total_metric_value)) for name, one in told)


def _checked(metrics: Iterable[tuple[str, Metric]]) -> Mapping[str, Metric] | None:
    found = dict(metrics)
    if not all(metric.requests <= COUNTER_LIMIT and isfinite(metric.total) for metric in found.values()):
        return None
    return found


def _address(address: wire_pb2.Address) -> str:
    if address.HasField("pipe"):
        return address.pipe.path
    host, port = address.socket_address.address, address.socket_address.port_value
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

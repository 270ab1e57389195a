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
from xds.proto import wire_pb2
from xds.protocol.wire import shared_locality

# A counter above this is one that went below zero, or was made up: no client sends so much in an interval.
COUNTER_LIMIT = 1 << 53
INTERVAL_LIMIT_S = 86_400.0
PRIORITY_LIMIT = 128  # Envoy's
_NANOS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A LoadStatsRequest. ``node`` is still serialized. ``refused`` counts the cluster reports that cannot be."""

    node: bytes
    loads: tuple[ClusterLoad, ...]
    refused: int = 0


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
        nanos = round(self.interval_s * _NANOS)
        message.load_reporting_interval.seconds, message.load_reporting_interval.nanos = divmod(nanos, _NANOS)
        return message.SerializeToString()


def decode_load_request(data: bytes) -> LoadRequest:
    """Raises ``RemoteProtocolError`` for bytes that are none."""
    message = wire_pb2.LoadStatsRequest()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "not a LoadStatsRequest") from None
    loads = [_cluster(stats) for stats in message.cluster_stats]
    found = tuple(load for load in loads if load is not None)
    return LoadRequest(message.node, found, len(loads) - len(found))


def _cluster(stats: wire_pb2.ClusterStats) -> ClusterLoad | None:
    """None for a report with a value that cannot be: then nothing in it can be believed."""
    interval_s = stats.load_report_interval.seconds + stats.load_report_interval.nanos / _NANOS
    localities = [_locality(each) for each in stats.upstream_locality_stats]
    drops: dict[str, int] = {}
    for each in stats.dropped_requests:
        drops[each.category] = drops.get(each.category, 0) + each.dropped_count
    believable = (
        stats.cluster_name
        and 0 < interval_s <= INTERVAL_LIMIT_S
        and max((stats.total_dropped_requests, *drops.values())) <= COUNTER_LIMIT
        and None not in localities
    )
    if not believable:
        return None
    told = tuple(each for each in localities if each is not None)
    # "category totals need not sum to the total" (spec/lrs.md 12), but no more than the total can be dropped.
    dropped = max(stats.total_dropped_requests, sum(drops.values()))
    return ClusterLoad(stats.cluster_name, interval_s, stats.cluster_service_name, told, dropped, drops)


def _locality(stats: wire_pb2.UpstreamLocalityStats) -> LocalityLoad | None:
    traffic = _traffic(stats)
    metrics = _metrics(stats.load_metric_stats)
    own = _utilisations(stats)
    endpoints = [_endpoint(each) for each in stats.upstream_endpoint_stats]
    if traffic is None or metrics is None or own is None or None in endpoints or stats.priority > PRIORITY_LIMIT:
        return None
    where = stats.locality
    told = tuple(each for each in endpoints if each is not None) if endpoints else ()
    both = {**metrics, **own} if own else metrics
    return LocalityLoad(shared_locality(where.region, where.zone, where.sub_zone), traffic, stats.priority, both, told)


def _endpoint(stats: wire_pb2.UpstreamEndpointStats) -> EndpointLoad | None:
    traffic, metrics = _traffic(stats), _metrics(stats.load_metric_stats)
    return None if traffic is None or metrics is None else EndpointLoad(_address(stats.address), traffic, metrics)


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

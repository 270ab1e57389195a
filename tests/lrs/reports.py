"""Reports in real bytes, and books that they go to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import IngestResult
from xds.lrs.load_stats import LoadStatsRequest
from xds.lrs.series_index import Bounds
from xds.model.node import Locality, Node
from xds.proto import wire_pb2

T0 = 1_800_000_000.0
HERE, THERE = Locality("r", "a"), Locality("r", "b")


def row(
    where: Locality = HERE, successes: int = 0, errors: int = 0, issued: int = 0, in_progress: int = 0, **fields: Any
) -> wire_pb2.UpstreamLocalityStats:
    return wire_pb2.UpstreamLocalityStats(
        locality=wire_pb2.Locality(region=where.region, zone=where.zone, sub_zone=where.sub_zone),
        total_successful_requests=successes,
        total_error_requests=errors,
        total_issued_requests=issued,
        total_requests_in_progress=in_progress,
        **fields,
    )


def stats(
    cluster: str = "web",
    *rows: wire_pb2.UpstreamLocalityStats,
    interval_s: float = 10.0,
    dropped: int = 0,
    drops: Mapping[str, int] | None = None,
    service_name: str = "",
) -> wire_pb2.ClusterStats:
    made = wire_pb2.ClusterStats(
        cluster_name=cluster,
        cluster_service_name=service_name,
        upstream_locality_stats=rows,
        total_dropped_requests=dropped,
        dropped_requests=[
            wire_pb2.ClusterStats.DroppedRequests(category=category, dropped_count=count)
            for category, count in (drops or {}).items()
        ],
    )
    made.load_report_interval.FromNanoseconds(round(interval_s * 1e9))
    return made


def encode(*clusters: wire_pb2.ClusterStats, node: bytes = b"") -> bytes:
    return wire_pb2.LoadStatsRequest(node=node, cluster_stats=clusters).SerializeToString()


class Books(LoadAggregates):
    """A book with shorter ways in. ``at`` is seconds after ``T0``."""

    def __init__(self, **bounds: int) -> None:
        super().__init__(10.0, Bounds(**bounds))

    def open(self, stream: int, at: float = 0.0, locality: Locality = HERE, node: str = "") -> None:
        self.open_stream(stream, Node(node or f"node-{stream}", locality=locality), T0 + at)

    def close(self, stream: int, at: float) -> None:
        self.close_stream(stream, T0 + at)

    def tell(self, stream: int, at: float, *clusters: wire_pb2.ClusterStats) -> IngestResult:
        return self.add(stream, LoadStatsRequest(encode(*clusters)), T0 + at)

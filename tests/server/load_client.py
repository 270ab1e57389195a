"""Raw clients of load report streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.server.conftest import Harness, RawStream, within
from tests.support.grpc_stream import STREAM_DEADLINE_S, GrpcStream
from xds.lrs.report_stream import SEND_ALL_CLUSTERS
from xds.proto import wire_pb2

V3 = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
V2 = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats"
ZONE = wire_pb2.Locality(region="r", zone="z1")


def reporter(
    node_id: str = "n1", features: Sequence[str] = (SEND_ALL_CLUSTERS,), user_agent: str = "envoy", zone: str = "z1"
) -> bytes:
    """The node of a client that reports."""
    locality = wire_pb2.Locality(region="r", zone=zone)
    node = wire_pb2.Node(id=node_id, user_agent_name=user_agent, client_features=features, locality=locality)
    return node.SerializeToString()


def told(cluster: str = "c1", interval_s: float = 1.0, zone: wire_pb2.Locality = ZONE, **traffic: int) -> Any:
    """A cluster's report; ``traffic`` are fields of its one locality, such as ``total_successful_requests``."""
    stats = wire_pb2.ClusterStats(cluster_name=cluster)
    stats.load_report_interval.FromMilliseconds(round(interval_s * 1000))
    if traffic:
        stats.upstream_locality_stats.add(locality=zone, **traffic)
    return stats


def report(*stats: Any, node: bytes = b"") -> bytes:
    """A LoadStatsRequest."""
    return wire_pb2.LoadStatsRequest(node=node, cluster_stats=stats).SerializeToString()


@contextmanager
def reporting(port: int, node_id: str, *stats: Any, deadline_s: float = STREAM_DEADLINE_S) -> Iterator[GrpcStream]:
    """An open stream of a node that has reported these clusters, on a connection of its own."""
    with GrpcStream(port, V3, deadline_s=deadline_s) as stream:
        stream.send(report(*stats, node=reporter(node_id))).receive()
        yield stream


class Reporter(RawStream):
    """One load report stream."""

    async def begin(self, *stats: Any, **node: Any) -> wire_pb2.LoadStatsResponse:
        """The first message, and its answer."""
        await self.send(report(*stats, node=reporter(**node)))
        return await self.asked()

    async def tell(self, *stats: Any) -> None:
        """A later message: without a node, as gRPC's are."""
        await self.send(report(*stats))

    async def asked(self) -> wire_pb2.LoadStatsResponse:
        """The next demand."""
        return wire_pb2.LoadStatsResponse.FromString(await within(self.call.read()))

    async def end(self) -> None:
        """Half-close."""
        await within(self.call.done_writing())


async def connect(server: Harness, method: str = V3) -> Reporter:
    """A stream on a connection of its own."""
    return Reporter(await server.channel(), method)

"""Simulated nodes for pages: each follows its group on a stream of its own. And the load that a node reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Self

from tests.browser.world import STREAM_S, first_request, identity, refusal
from tests.server.load_client import V3, report
from tests.support import resources as r
from tests.support.grpc_stream import SOTW, GrpcStream, sotw_ack
from xds.proto import wire_pb2


class FollowingNode:
    """Takes ``types`` and ACKs each response; one that has a name in ``refuses`` it NACKs with that message."""

    def __init__(
        self,
        port: int,
        node: wire_pb2.Node,
        refuses: Mapping[str, str] | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        types: Sequence[str] = (r.CLUSTER_TYPE,),
    ) -> None:
        self._stream = GrpcStream(port, SOTW, metadata=metadata, deadline_s=STREAM_S)
        self._refuses = dict(refuses or {})
        for type_url in types:
            self._stream.send(first_request(node, type_url))
        self._thread = Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        for response in self._stream.responses():
            content = response.SerializeToString()
            why = next((message for name, message in self._refuses.items() if name.encode() in content), "")
            self._stream.send(refusal(response, why) if why else sotw_ack(response))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()
        self._thread.join(10)


class ReportedLoad:
    """Reports each second the load of a cluster: requests and errors, by the zone of the endpoints."""

    def __init__(
        self, port: int, node_id: str, group: str, cluster: str, by_zone: Mapping[str, tuple[int, int]]
    ) -> None:
        node = identity(node_id, group)
        node.client_features.append("envoy.lrs.supports_send_all_clusters")
        stats = wire_pb2.ClusterStats(cluster_name=cluster)
        stats.load_report_interval.FromSeconds(1)
        for zone, (requests, errors) in by_zone.items():
            stats.upstream_locality_stats.add(
                locality=wire_pb2.Locality(region="eu", zone=zone),
                total_issued_requests=requests,
                total_successful_requests=requests - errors,
                total_error_requests=errors,
            )
        self._report = report(stats)
        self._stream = GrpcStream(port, V3, deadline_s=STREAM_S).send(report(node=node.SerializeToString()))
        self._ended = Event()
        self._thread = Thread(target=self._tell, daemon=True)

    def _tell(self) -> None:
        self._stream.receive()
        while not self._ended.is_set():
            self._stream.send(self._report)
            self._ended.wait(1)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(10)
        self._stream.close()

"""A proxy for tests of commands: one SotW stream for clusters, answered as the test says."""

from __future__ import annotations

from tests.support.grpc_stream import SOTW, GrpcStream
from tests.support.labels import stem_of
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.proto import wire_pb2

STREAM_DEADLINE_S = 200.0


class Proxy(GrpcStream):
    """Subscribes to all clusters of the group named like its node cluster; with ``nack`` it answers with NACKs.

    ``api`` is the transport that it speaks, ``v3`` or ``v2``; ``zone`` is one of region ``r``.
    """

    def __init__(self, port: int, node_id: str, cluster: str, api: str = "v3", zone: str = "") -> None:
        super().__init__(port, SOTW.replace("v3", api), deadline_s=STREAM_DEADLINE_S)
        self.nack = ""
        self._type_url = V2_URLS[CLUSTER] if api == "v2" else CLUSTER
        locality = wire_pb2.Locality(region="r", zone=zone) if zone else None
        node = wire_pb2.Node(id=node_id, cluster=cluster, locality=locality).SerializeToString()
        self.send(wire_pb2.DiscoveryRequest(node=node, type_url=self._type_url).SerializeToString())

    def answer(self) -> str:
        """Read the next response and ACK it, or NACK it with the message ``nack``; its version."""
        response = self.receive()
        request = wire_pb2.DiscoveryRequest(type_url=self._type_url, response_nonce=response.nonce)
        if self.nack:
            request.error_detail.message = self.nack
        else:
            request.version_info = response.version_info
        self.send(request.SerializeToString())
        return str(response.version_info)

    def answer_until(self, version: str) -> None:
        """ACK responses up to the one with this version, whatever the hash after it."""
        label = self.answer()
        while stem_of(label) != version:
            label = self.answer()

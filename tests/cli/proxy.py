"""A proxy for tests of commands: one SotW stream for clusters, answered as the test says."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc

from tests.support.labels import stem_of
from tests.support.process import LOOPBACK
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.proto import wire_pb2

METHOD = "/envoy.service.discovery.{}.AggregatedDiscoveryService/StreamAggregatedResources"
STREAM_DEADLINE_S = 200.0


class Proxy:
    """Subscribes to all clusters of the group named like its node cluster; ``refusal`` answers with NACKs.

    ``api`` is the transport that it speaks, ``v3`` or ``v2``; ``zone`` is one of region ``r``.
    """

    def __init__(self, port: int, node_id: str, cluster: str, api: str = "v3", zone: str = "") -> None:
        self.refusal = ""
        self._method = METHOD.format(api)
        self._type_url = V2_URLS[CLUSTER] if api == "v2" else CLUSTER
        locality = wire_pb2.Locality(region="r", zone=zone) if zone else None
        self._node = wire_pb2.Node(id=node_id, cluster=cluster, locality=locality).SerializeToString()
        self._channel = grpc.insecure_channel(f"{LOOPBACK}:{port}")
        self._requests: SimpleQueue[Any] = SimpleQueue()

    def __enter__(self) -> Self:
        method = self._channel.stream_stream(
            self._method,
            request_serializer=wire_pb2.DiscoveryRequest.SerializeToString,
            response_deserializer=wire_pb2.DiscoveryResponse.FromString,
        )
        self._requests.put(wire_pb2.DiscoveryRequest(node=self._node, type_url=self._type_url))
        self._responses: Iterator[Any] = method(iter(self._requests.get, None), timeout=STREAM_DEADLINE_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._requests.put(None)
        self._channel.close()

    def answer(self) -> str:
        """Read the next response and ACK it, or NACK it with ``refusal``; its version."""
        response = next(self._responses)
        request = wire_pb2.DiscoveryRequest(type_url=self._type_url, response_nonce=response.nonce)
        if self.refusal:
            request.error_detail.message = self.refusal
        else:
            request.version_info = response.version_info
        self._requests.put(request)
        return str(response.version_info)

    def answer_until(self, version: str) -> None:
        """ACK responses up to the one with this version, whatever the hash after it."""
        label = self.answer()
        while stem_of(label) != version:
            label = self.answer()

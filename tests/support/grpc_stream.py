"""One raw gRPC stream, for behaviour that no real client has: requests as bytes, responses when the test reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc

from tests.support.process import LOOPBACK
from xds.proto import wire_pb2

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
SOTW = ADS + "StreamAggregatedResources"
DELTA = ADS + "DeltaAggregatedResources"
STREAM_DEADLINE_S = 110.0
# Without these options it would share the connection of another stream, and refuse a large message itself.
CHANNEL_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


def open_channel(port: int) -> Any:
    """A channel with its own connection."""
    return grpc.insecure_channel(f"{LOOPBACK}:{port}", CHANNEL_OPTIONS)


def sotw(type_url: str, names: Iterable[str] = (), node_id: str = "raw", cluster: str = "test") -> bytes:
    """A first DiscoveryRequest."""
    node = wire_pb2.Node(id=node_id, cluster=cluster).SerializeToString()
    return wire_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, node=node).SerializeToString()


def delta(type_url: str, names: Iterable[str] = (), node_id: str = "raw", cluster: str = "test") -> bytes:
    """A first DeltaDiscoveryRequest."""
    node = wire_pb2.Node(id=node_id, cluster=cluster).SerializeToString()
    request = wire_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names, node=node)
    return request.SerializeToString()


def sotw_ack(response: Any, names: Iterable[str] = ()) -> bytes:
    """The ACK of a DiscoveryResponse."""
    request = wire_pb2.DiscoveryRequest(
        type_url=response.type_url,
        version_info=response.version_info,
        response_nonce=response.nonce,
        resource_names=names,
    )
    return request.SerializeToString()


def _answer_of(method: str) -> Any:
    if method.endswith("/StreamLoadStats"):
        return wire_pb2.LoadStatsResponse
    return wire_pb2.DeltaDiscoveryResponse if "/Delta" in method else wire_pb2.DiscoveryResponse


class GrpcStream:
    """A stream on its own channel, or on ``channel``. Nothing is read until the test asks for it."""

    def __init__(
        self,
        port: int,
        method: str = SOTW,
        channel: Any = None,
        metadata: Sequence[tuple[str, str]] = (),
        deadline_s: float = STREAM_DEADLINE_S,
    ) -> None:
        self._own = channel is None
        self._channel = open_channel(port) if channel is None else channel
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        call = self._channel.stream_stream(method)
        self._call = call(iter(self._requests.get, None), timeout=deadline_s, metadata=metadata)
        self._parse = _answer_of(method).FromString

    def send(self, *requests: bytes) -> Self:
        """Queue requests. They are sent in order, after this call."""
        for request in requests:
            self._requests.put(request)
        return self

    def receive(self) -> Any:
        """Wait for the next response; raises ``grpc.RpcError`` when the stream has ended with a status."""
        return self._parse(next(self._call))

    def responses(self) -> Iterator[Any]:
        """All responses until the stream ends, with any status."""
        try:
            yield from map(self._parse, self._call)
        except grpc.RpcError:
            return

    def refusal(self) -> tuple[grpc.StatusCode, str]:
        """Read to the end; the final status with its message."""
        for _ in self.responses():
            continue
        return self._call.code(), self._call.details()

    def close(self) -> None:
        """Cancel the stream, as a client that disappears."""
        self._call.cancel()
        self._requests.put(None)
        if self._own:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

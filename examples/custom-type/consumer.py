"""Follows feature flags over Delta ADS and prints every change: ``python consumer.py HOST:PORT DESCRIPTOR_SET``.

Each response is read, answered (an ACK has only the nonce, a NACK also an error), and then printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
from envoy_data_plane.envoy.config.core.v3 import Node
from envoy_data_plane.envoy.service.discovery.v3 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from envoy_data_plane.google.rpc import Status
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
TYPE_NAME = "example.flags.v1.FeatureFlag"
TYPE_URL = f"type.googleapis.com/{TYPE_NAME}"
INVALID_ARGUMENT = 3


def message_class(descriptor_set: Path) -> Any:
    """The class of a flag, from the file that protoc wrote."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(TYPE_NAME))


def follow(address: str, flag: Any) -> Iterator[str]:
    """One line per change, until the stream ends."""
    requests: SimpleQueue[bytes] = SimpleQueue()
    # A first request without names subscribes to everything of this type.
    requests.put(bytes(DeltaDiscoveryRequest(node=Node(id="flags-1", cluster="flags"), type_url=TYPE_URL)))
    with grpc.insecure_channel(address) as channel:
        for body in channel.stream_stream(METHOD)(iter(requests.get, None)):
            response = DeltaDiscoveryResponse.parse(body)
            answer = DeltaDiscoveryRequest(type_url=TYPE_URL, response_nonce=response.nonce)
            try:
                lines = [_changed(flag.FromString(resource.resource.value)) for resource in response.resources]
            except DecodeError as error:
                answer.error_detail = Status(code=INVALID_ARGUMENT, message=str(error))
                lines = []
            requests.put(bytes(answer))
            yield from lines
            yield from (f"{name} is gone" for name in response.removed_resources)


def _changed(flag: Any) -> str:
    return f"{flag.name} is {'on' if flag.enabled else 'off'} for {flag.percent} %"


def main(address: str, descriptor_set: str) -> None:
    """Print changes until the process is ended."""
    for line in follow(address, message_class(Path(descriptor_set))):
        print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The engine alone, no sockets: how many events a second, and what a push and its ACK cost a stream.

    python -m bench.engine [--streams 1000] [--rounds 5]

Every stream follows CDS by wildcard on ADS. A round is one push, offered to all streams, and all their ACKs, decoded
from bytes. Printed: microseconds of CPU per push and ACK and stream, the median of the rounds, building the snapshot
included; and the same as a ratio to the cheapest row, which is what compares between machines.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from xds.model.resource import Reference, Resource, content_version
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.model.snapshot import Snapshot, build_snapshot
from xds.proto import wire_pb2
from xds.protocol import wire
from xds.protocol.cache import SnapshotCache
from xds.protocol.clients import ClientTable
from xds.protocol.draft import Variant
from xds.protocol.events import Request, Send
from xds.protocol.order import OrderRules
from xds.protocol.stream import DiscoveryStream

BODY_BYTES = 120


@dataclass(frozen=True, slots=True)
class Row:
    variant: Variant
    clusters: int
    changed: str
    cpu_us: float
    events_per_s: float


def make_cluster(index: int, text: str) -> Resource:
    """A cluster of realistic size; the engine does not look into it."""
    name = f"cluster-{index}"
    body = f"{name}:{text}".ljust(BODY_BYTES).encode()
    return Resource(CLUSTER, name, body, content_version(body), references=(Reference(ENDPOINT, name, "ads"),))


class Fleet:
    """Streams in step with one group."""

    def __init__(self, variant: Variant, streams: int, clusters: int) -> None:
        self.variant = variant
        self.cache = SnapshotCache("bench", nonce_prefix="b")
        self.clients = ClientTable(OrderRules(), self.cache.union, self.cache.separate_assignments)
        self.resources = [make_cluster(index, "0") for index in range(clusters)]
        self.revision = 0
        self.publish()
        self.streams = [self._connect(index) for index in range(streams)]

    def publish(self) -> Snapshot:
        """A snapshot of the resources as they are now."""
        self.revision += 1
        versions = {CLUSTER: str(self.revision)}
        snapshot = build_snapshot("default", self.revision, self.resources, versions, self.cache.get("default"))
        self.cache.set(snapshot)
        return snapshot

    def change(self, changed: str) -> None:
        """Give one cluster, or all of them, a new body."""
        text = str(self.revision)
        last = 1 if changed == "one" else len(self.resources)
        self.resources[:last] = [make_cluster(index, text) for index in range(last)]

    def push(self) -> int:
        """Publish and let every stream offer and ACK; returns the number of events."""
        self.publish()
        return sum(self._converge(stream) for stream in self.streams)

    def _connect(self, index: int) -> DiscoveryStream:
        stream = DiscoveryStream(cache=self.cache, clients=self.clients, variant=self.variant, peer=f"peer-{index}")
        node = wire_pb2.Node(id=f"node-{index}").SerializeToString()
        request = wire_pb2.DiscoveryRequest if self.variant is Variant.SOTW else wire_pb2.DeltaDiscoveryRequest
        first = request(type_url=CLUSTER, node=node).SerializeToString()
        self._answer(stream, self._decode(first))
        return stream

    def _converge(self, stream: DiscoveryStream) -> int:
        assert stream.node is not None
        events = stream.offer(self.cache.resolve(stream.node), 0.0)
        return len(events) + sum(self._ack(stream, event) for event in events if isinstance(event, Send))

    def _ack(self, stream: DiscoveryStream, send: Send) -> int:
        request = wire_pb2.DiscoveryRequest if self.variant is Variant.SOTW else wire_pb2.DeltaDiscoveryRequest
        return self._answer(
            stream, self._decode(request(type_url=CLUSTER, response_nonce=send.nonce).SerializeToString())
        )

    def _answer(self, stream: DiscoveryStream, request: Request) -> int:
        events = stream.receive(request, 0.0)
        return len(events) + sum(self._ack(stream, event) for event in events if isinstance(event, Send))

    def _decode(self, data: bytes) -> Request:
        return wire.decode_sotw(data) if self.variant is Variant.SOTW else wire.decode_delta(data)


def measure(variant: Variant, streams: int, clusters: int, changed: str, rounds: int) -> Row:
    """One cell: the median of ``rounds`` pushes."""
    fleet = Fleet(variant, streams, clusters)
    cpu_us, rates = [], []
    for _ in range(rounds):
        fleet.change(changed)
        start = time.process_time()
        events = fleet.push()
        spent = time.process_time() - start
        cpu_us.append(spent / streams * 1e6)
        rates.append(events / spent)
    return Row(variant, clusters, changed, statistics.median(cpu_us), statistics.median(rates))


def cells(streams: int, rounds: int) -> Iterator[Row]:
    """Every combination worth a look."""
    for clusters in (10, 1_000, 10_000):
        for changed in ("one", "all"):
            for variant in Variant:
                yield measure(variant, streams, clusters, changed, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = list(cells(arguments.streams, arguments.rounds))
    cheapest = min(row.cpu_us for row in rows)
    print(f"{arguments.streams} streams, median of {arguments.rounds} pushes, building the snapshot included")
    print(f"{'variant':8} {'clusters':>8} {'changed':>7} {'us/push+ACK':>12} {'events/s':>10} {'ratio':>6}")
    for row in rows:
        figures = f"{row.cpu_us:12.1f} {row.events_per_s:10.0f} {row.cpu_us / cheapest:6.2f}"
        print(f"{row.variant.value:8} {row.clusters:8} {row.changed:>7} {figures}")


if __name__ == "__main__":
    main()

"""The engine alone, without sockets: the cost of pushes, reconnects, large requests and idle streams.

    python -m bench.engine [--streams 1000] [--rounds 5] [--only pushes,storm,nodes,memory,garbage]

Times are microseconds of CPU per stream, medians of the rounds. The work of clients (writing requests) is not counted.
The ratio is to the first row of the part; compare ratios between machines, not times.

* pushes: one push, offered to all streams, and all ACKs, decoded from bytes and folded into the state of the fleet.
  ``clusters`` streams subscribe to CDS by wildcard, ``named`` ones to EDS by name, ``envoy`` ones to CDS, EDS, LDS and
  RDS;
* storm: all streams are new, and show what they had before a push that changed one resource. Those of ``alone`` each
  have ten clusters of their own, so none takes the steps of another;
* nodes: decoding an ACK that repeats Envoy's node of 61 KB;
* memory: bytes of an idle stream in sync, with its node in the state of the fleet;
* garbage: objects that only the cyclic collector can free, after all streams are closed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from xds.fleet.fleet import Fleet as FleetState
from xds.model.resource import Reference, Resource, content_version
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import Snapshot, build_snapshot
from xds.proto import wire_pb2
from xds.protocol.clients import ClientTable
from xds.protocol.cohort import Cohorts, CohortStream
from xds.protocol.decode import RequestDecoder
from xds.protocol.delta import DELTA
from xds.protocol.dialect import Dialect, Variant
from xds.protocol.events import Event, Send
from xds.protocol.sotw import SOTW
from xds.protocol.stream import DiscoveryStream
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.order import OrderRules

BODY_BYTES = 120
ENVOY_NODE_BYTES = 61_084
NODES_REPEATS = 2_000

DIALECTS: Mapping[Variant, Dialect] = {Variant.SOTW: SOTW, Variant.DELTA: DELTA}
DECODER = RequestDecoder()  # a server has one

Message = wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest
# What clients of a workload subscribe to, in order; True: by wildcard, else by all names.
WORKLOADS: Mapping[str, Mapping[str, bool]] = {
    "clusters": {CLUSTER: True},
    "named": {ENDPOINT: False},
    "envoy": {CLUSTER: True, ENDPOINT: False, LISTENER: True, ROUTE: False},
    "alone": {CLUSTER: False, ENDPOINT: False, LISTENER: True, ROUTE: False},
}
OWN_NAMES = 10  # clusters of a client that has some of its own


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; ``figure`` is in the unit of its part of the bench."""

    part: str
    workload: str
    variant: str
    clusters: int
    changed: str
    figure: float


def make_resource(type_url: str, index: int, text: str) -> Resource:
    """A resource of realistic size; the engine does not look into it."""
    name = f"{'route' if type_url == ROUTE else 'cluster'}-{index}"
    body = f"{name}:{text}".ljust(BODY_BYTES).encode()
    references = (Reference(ENDPOINT, name, "ads"),) if type_url == CLUSTER else ()
    return Resource(type_url, name, body, content_version(body), references=references)


class Fleet:
    """Clients of one workload, in step with one group unless ``connected`` is False."""

    def __init__(
        self, variant: Variant, streams: int, clusters: int, workload: str = "clusters", connected: bool = True
    ) -> None:
        self.variant = variant
        self.types = WORKLOADS[workload]
        self.is_alone = workload == "alone"
        self.cache = SnapshotCache("bench", nonce_prefix="b")
        self.clients = ClientTable(self.cache, OrderRules())
        self.cohorts = Cohorts()
        self.state = FleetState()
        counts = {url: clusters if url in (CLUSTER, ENDPOINT) else 10 for url in self.types}
        self.content = {url: [make_resource(url, index, "0") for index in range(n)] for url, n in counts.items()}
        self._names_of = {url: tuple(resource.name for resource in members) for url, members in self.content.items()}
        self.versions = dict.fromkeys(self.types, "1")
        self.revision = 0
        self.publish()
        self.streams: dict[int, DiscoveryStream] = {}
        self._acks: dict[tuple[str, str, int], bytes] = {}
        self._decode = DIALECTS[variant].decoder(DECODER)
        self.known: dict[str, dict[str, str]] = {}
        self.open(range(streams))
        if connected:
            self.connect()

    def publish(self) -> Snapshot:
        """A snapshot of the resources as they are now."""
        self.revision += 1
        everything = [resource for members in self.content.values() for resource in members]
        snapshot = build_snapshot("default", self.revision, everything, self.versions, self.cache.get("default"))
        self.cache.set(snapshot)
        self.state.published(snapshot)
        return snapshot

    def change(self, changed: str) -> None:
        """Give one resource of the first type, or all of them, a new body."""
        url, members = next(iter(self.content.items()))
        last = 1 if changed == "one" else len(members)
        self.versions[url] = str(self.revision + 1)
        members[:last] = [make_resource(url, index, str(self.revision)) for index in range(last)]

    def open(self, indexes: range) -> None:
        """Streams that nothing was asked on yet, in the place of those that were open."""
        self.close()
        for index in indexes:
            peer = f"10.0.{index >> 8}.{index & 255}:4000"
            self.state.stream_opened(index, peer, "ADS", self.variant.value, 0.0)
            self.streams[index] = CohortStream(
                cohorts=self.cohorts, cache=self.cache, clients=self.clients, dialect=DIALECTS[self.variant], peer=peer
            )

    def connect(self) -> float:
        """All streams ask for what the workload says, naming what they know; returns the CPU it took."""
        spent = 0.0
        for place, (url, wildcard) in enumerate(self.types.items()):
            nodes = {index: b"" if place else self._node(index) for index in self.streams}
            requests = [(index, node + self._first(index, url, wildcard)) for index, node in nodes.items()]
            start = time.thread_time()
            answers = [(index, self._receive(index, data)) for index, data in requests]
            spent += time.thread_time() - start + self.settle(answers)
        return spent

    def push(self) -> float:
        """Publish and let every stream offer and ACK; returns the CPU it took, that of publishing included."""
        start = time.thread_time()
        self.publish()
        answers = [(index, self.offer(index, stream)) for index, stream in self.streams.items()]
        spent = time.thread_time() - start
        return spent + self.settle(answers)

    def close(self) -> None:
        """All streams end."""
        for index, stream in self.streams.items():
            stream.close(0.0)
            self.state.stream_closed(index, 0.0)
        self.streams.clear()

    def settle(self, answers: list[tuple[int, list[Event]]]) -> float:
        """ACK whatever was sent until nothing more comes; returns the engine's CPU."""
        spent = 0.0
        while any(isinstance(event, Send) for _, events in answers for event in events):
            sent = [(index, event) for index, events in answers for event in events if type(event) is Send]
            acks = [(index, self._ack(index, event)) for index, event in sent]
            start = time.thread_time()
            answers = [(index, self._receive(index, data)) for index, data in acks]
            spent += time.thread_time() - start
        return spent

    def offer(self, index: int, stream: DiscoveryStream) -> list[Event]:
        """Let a stream offer what it lacks."""
        events = stream.offer(stream.resolve(), 0.0)
        self.state.apply_events(index, events, 0.0)
        stream.deadline()
        return events

    def _receive(self, index: int, data: bytes) -> list[Event]:
        stream = self.streams[index]
        events = stream.receive(self._decode(data), 0.0)
        self.state.apply_events(index, events, 0.0)
        stream.deadline()
        return events

    def _names(self, index: int, url: str) -> tuple[str, ...]:
        """The names that a stream has of a type."""
        names = self._names_of[url]
        if not self.is_alone or url not in (CLUSTER, ENDPOINT):
            return names
        return tuple(names[(index + 97 * n) % len(names)] for n in range(OWN_NAMES))

    def _first(self, index: int, url: str, wildcard: bool) -> bytes:
        versions, names = self.known.get(url, {}), self._names(index, url)
        subscribed = () if wildcard else names
        if self.variant is Variant.SOTW:
            version = self.versions[url] if versions else ""
            return wire_pb2.DiscoveryRequest(
                type_url=url, resource_names=subscribed, version_info=version
            ).SerializeToString()
        known = {name: versions[name] for name in names if name in versions}
        return wire_pb2.DeltaDiscoveryRequest(
            type_url=url, resource_names_subscribe=subscribed, initial_resource_versions=known
        ).SerializeToString()

    def _node(self, index: int) -> bytes:
        node = wire_pb2.Node(id=f"node-{index}", cluster="bench", user_agent_name="envoy").SerializeToString()
        return self._message(node=node).SerializeToString()

    def _ack(self, index: int, send: Send) -> bytes:
        named = self.variant is Variant.SOTW and not self.types[send.type_url]
        names = self._names(index, send.type_url) if named else ()
        key = send.type_url, send.nonce, index if self.is_alone else 0
        if key not in self._acks:
            ack = self._message(type_url=send.type_url, response_nonce=send.nonce)
            if isinstance(ack, wire_pb2.DiscoveryRequest):
                ack.resource_names.extend(names)
            self._acks[key] = ack.SerializeToString()
        return self._acks[key]

    def _message(self, type_url: str = "", node: bytes = b"", response_nonce: str = "") -> Message:
        made = wire_pb2.DiscoveryRequest if self.variant is Variant.SOTW else wire_pb2.DeltaDiscoveryRequest
        return made(type_url=type_url, node=node, response_nonce=response_nonce)


def pushes(streams: int, rounds: int) -> Iterator[Row]:
    """Every combination worth a look."""
    for workload, sizes in (("clusters", (10, 1_000, 10_000)), ("named", (1_000,)), ("envoy", (10, 1_000))):
        for clusters in sizes:
            for changed in ("one", "all"):
                for variant in Variant:
                    fleet = Fleet(variant, streams, clusters, workload)
                    spent = [_push(fleet, changed) for _ in range(rounds)]
                    cpu_us = statistics.median(spent) / streams * 1e6
                    yield Row("pushes", workload, variant.value, clusters, changed, cpu_us)


def _push(fleet: Fleet, changed: str) -> float:
    fleet.change(changed)
    return fleet.push()


def storm(streams: int, rounds: int) -> Iterator[Row]:
    """Connect, as clients that were away while one resource changed."""
    for workload in WORKLOADS:
        for variant in Variant:
            spent = [_return(variant, streams, workload) for _ in range(rounds)]
            yield Row("storm", workload, variant.value, 1_000, "one", statistics.median(spent) / streams * 1e6)


def _return(variant: Variant, streams: int, workload: str) -> float:
    fleet = Fleet(variant, streams, 1_000, workload, connected=False)
    fleet.known = {url: {each.name: each.version for each in members} for url, members in fleet.content.items()}
    before = dict(fleet.versions)
    fleet.change("one")
    fleet.publish()
    fleet.versions = before
    return fleet.connect()


def nodes() -> Iterator[Row]:
    """Decode ACKs that repeat a long node."""
    node = wire_pb2.Node(id="node-1", cluster="x" * (ENVOY_NODE_BYTES - 16)).SerializeToString()
    sotw = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node, response_nonce="b1", version_info="1")
    delta = wire_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, node=node, response_nonce="b1")
    yield Row("nodes", "ack", "sotw", 0, "-", _repeated_us(DECODER.decode_sotw, sotw.SerializeToString()))
    yield Row("nodes", "ack", "delta", 0, "-", _repeated_us(DECODER.decode_delta, delta.SerializeToString()))


def _repeated_us(decode: Callable[[bytes], object], data: bytes) -> float:
    start = time.thread_time()
    for _ in range(NODES_REPEATS):
        decode(data)
    return (time.thread_time() - start) / NODES_REPEATS * 1e6


def memory(streams: int) -> Iterator[Row]:
    """Bytes per idle stream."""
    for workload, sizes in (("clusters", (10, 10_000)), ("named", (1_000,)), ("envoy", (1_000,))):
        for clusters in sizes:
            for variant in Variant:
                size = bytes_per_stream(variant, streams, clusters, workload)
                yield Row("memory", workload, variant.value, clusters, "one", size)


def bytes_per_stream(variant: Variant, streams: int, clusters: int, workload: str) -> float:
    """Bytes per idle stream, from two fleets of different sizes: what is made once for all streams does not count."""
    few, many = (_bytes_of(variant, count, clusters, workload) for count in (streams, 3 * streams))
    return (many - few) / (2 * streams)


def _bytes_of(variant: Variant, streams: int, clusters: int, workload: str) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        fleet = Fleet(variant, streams, clusters, workload)
        _push(fleet, "one")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def garbage(streams: int) -> Iterator[Row]:
    """Objects in cycles once all streams are closed."""
    for variant in Variant:
        fleet = Fleet(variant, streams, 10, "envoy")
        _push(fleet, "all")
        gc.collect()
        gc.disable()
        try:
            fleet.close()
            found = gc.collect()
        finally:
            gc.enable()
        yield Row("garbage", "envoy", variant.value, 10, "all", found)


def run(parts: list[str], streams: int, rounds: int) -> Iterator[Row]:
    """The parts asked for, one after the other."""
    made: dict[str, Callable[[], Iterator[Row]]] = {
        "pushes": lambda: pushes(streams, rounds),
        "storm": lambda: storm(streams, rounds),
        "nodes": nodes,
        "memory": lambda: memory(streams),
        "garbage": lambda: garbage(streams),
    }
    for part in parts:
        yield from made[part]()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="pushes,storm,nodes,memory,garbage")
    arguments = parser.parse_args()
    units = {"memory": "bytes/stream", "garbage": "objects"}
    first: dict[str, float] = {}
    print(f"{arguments.streams} streams, median of {arguments.rounds} rounds, building the snapshot included")
    columns = f"{'variant':8} {'part':8} {'workload':9} {'clusters':>8} {'changed':>7}"
    print(f"{columns} {'figure':>10} {'unit':12} {'ratio':>6}")
    for row in run(arguments.only.split(","), arguments.streams, arguments.rounds):
        base = first.setdefault(row.part, row.figure or 1.0)
        told = f"{row.variant:8} {row.part:8} {row.workload:9} {row.clusters:8} {row.changed:>7}"
        print(f"{told} {row.figure:10.1f} {units.get(row.part, 'us/stream'):12} {row.figure / base:6.2f}", flush=True)


if __name__ == "__main__":
    main()

"""Attacks that go on until they are told to stop: tests look at what they do to the server, a bench measures it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from itertools import count, takewhile
from typing import NamedTuple, Protocol

import grpc
import hpack

from tests.attack.raw_http import connect, is_closed, send_until_closed
from tests.attack.raw_http2 import HELLO, RawHttp2, head
from tests.support import resources as r
from tests.support.grpc_stream import SOTW, GrpcStream, open_channel, sotw
from tests.wire.http2.talk import message
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2
from xds.wire.http2 import frames as f
from xds.wire.http2.frames import ErrorCode

KIB, MIB = 1 << 10, 1 << 20
BATCH = 1_000
HEAVY = "heavy"  # a group of some 6 MB
HEAVY_CLUSTERS, HEAVY_TEXT = 600, "x" * 10_000
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
WHOLE = f.END_HEADERS
INITIAL_WINDOW = 4  # SETTINGS_INITIAL_WINDOW_SIZE
LARGEST_WINDOW = (1 << 31) - 1
CLUSTERS_PER_REPORT = 20_000
BEGINNING = b"GET /api/v1/groups HTTP/1.1\r\nHost: localhost\r\n"
SLOW_POST = (
    b"POST /api/v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)


class Ports(NamedTuple):
    """Of the server that is attacked."""

    grpc: int
    http: int


class Over(Protocol):
    """Set when the attack is to end: an event of threads, or of processes."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


Attack = Callable[[Ports, Over], None]


def heavy_resources() -> list[r.Json]:
    """What the group `HEAVY` holds, for attacks by not reading it."""
    return [r.static_cluster(f"heavy-{number}", 80, alt_stat_name=HEAVY_TEXT) for number in range(HEAVY_CLUSTERS)]


# Frames without end


def opening(stream_id: int, flags: int = WHOLE) -> bytes:
    return f.frame(f.HEADERS, flags, stream_id, head())


FLOODS: Mapping[str, Callable[[int], bytes]] = {
    "PING": lambda number: f.frame(f.PING, 0, 0, bytes(8)),
    "PING ACK": lambda number: f.frame(f.PING, f.ACK, 0, bytes(8)),
    "SETTINGS": lambda number: f.frame(f.SETTINGS, 0, 0),
    "a window that flips": lambda number: f.frame(
        f.SETTINGS, 0, 0, f.SETTING.pack(INITIAL_WINDOW, 65_535 - number % 2)
    ),
    "WINDOW_UPDATE": lambda number: f.frame(f.WINDOW_UPDATE, 0, 0, f.NUMBER.pack(1)),
    "unknown frames": lambda number: f.frame(0xF0, 0, 0, b"x"),
    "PRIORITY": lambda number: f.frame(f.PRIORITY, 0, 1, bytes((0, 0, 0, 3, 0))),
    "rapid reset": lambda number: (
        opening(2 * number + 1) + f.frame(f.RST_STREAM, 0, 2 * number + 1, f.NUMBER.pack(ErrorCode.CANCEL))
    ),
    "malformed HEADERS": lambda number: f.frame(f.HEADERS, WHOLE, 2 * number + 1, b"\x00\x01X\x01y"),
}


def batches(frame: Callable[[int], bytes], frames_n: int = 200_000) -> Iterator[bytes]:
    """The frames of a flood, many at once."""
    return (b"".join(map(frame, range(at, at + BATCH))) for at in range(0, frames_n, BATCH))


def flood(frame: Callable[[int], bytes]) -> Attack:
    """One connection after the other, each until it is cut."""

    def run(ports: Ports, over: Over) -> None:
        while not over.is_set():
            with RawHttp2(ports.grpc) as attacker:
                attacker.flood(takewhile(lambda _: not over.is_set(), batches(frame)))

    return run


def continuations(ports: Ports, over: Over) -> None:
    """A head that never ends."""
    while not over.is_set():
        with RawHttp2(ports.grpc) as attacker:
            attacker.send(f.frame(f.HEADERS, 0, 1, head()))
            attacker.flood(f.frame(f.CONTINUATION, 0, 1, b"") * BATCH for _ in range(10))


def hpack_bombs(ports: Ports, over: Over) -> None:
    """A few bytes that stand for megabytes of headers."""
    block = hpack.Encoder().encode([("x", "v" * 3_900)]) + b"\xbe" * 10_000
    while not over.is_set():
        with RawHttp2(ports.grpc) as attacker:
            attacker.flood(f.frame(f.HEADERS, WHOLE, 2 * number + 1, block) for number in range(100))


# Clients that do not read


def deaf(clients: int) -> Attack:
    """So many clients with the largest windows that ask for 6 MB each and read none of it."""

    def run(ports: Ports, over: Over) -> None:
        hello = HELLO.replace(f.frame(f.SETTINGS, 0, 0), f.frame(f.SETTINGS, 0, 0, _window(LARGEST_WINDOW)))
        hello += f.frame(f.WINDOW_UPDATE, 0, 0, f.NUMBER.pack(LARGEST_WINDOW - 65_535))
        with ExitStack() as stack:
            for number in range(clients):
                client = stack.enter_context(RawHttp2(ports.grpc, hello, reads=False))
                client.send(_ask(f"deaf-{number}"))
            over.wait()

    return run


def one_byte_windows(clients: int) -> Attack:
    """So many clients that take 6 MB byte by byte; one that is cut comes back."""

    def run(ports: Ports, over: Over) -> None:
        hello = HELLO.replace(f.frame(f.SETTINGS, 0, 0), f.frame(f.SETTINGS, 0, 0, _window(1)))
        more = f.frame(f.WINDOW_UPDATE, 0, 1, f.NUMBER.pack(1))
        with ExitStack() as stack:
            held: dict[int, RawHttp2] = {}
            while not over.is_set():
                for number in range(clients):
                    if number not in held or held[number].is_over:
                        held[number] = stack.enter_context(RawHttp2(ports.grpc, hello))
                        held[number].send(_ask(f"sip-{number}"))
                    held[number].send(more)

    return run


def silent_connections(clients: int) -> Attack:
    """Connections that say nothing, half a preface, a preface, or the head of a call."""

    def run(ports: Ports, over: Over) -> None:
        with ExitStack() as stack:
            for number in range(clients):
                said = (b"", HELLO[:10], HELLO, HELLO + opening(1))[number % 4]
                stack.enter_context(RawHttp2(ports.grpc, said, reads=False))
            over.wait()

    return run


def silent_streams(ports: Ports, over: Over) -> None:
    """60,000 streams of a connection, on which nothing is said."""
    with RawHttp2(ports.grpc) as attacker:
        attacker.flood(takewhile(lambda _: not over.is_set(), batches(lambda number: opening(2 * number + 1), 60_000)))
        over.wait()


# Messages


@cache
def large_node(keys: int) -> bytes:
    """Members that differ, as one large template makes them."""
    node = wire_pb2.Node(id="large")
    for number in range(keys):
        node.metadata[f"key-{number}"] = number
    return node.SerializeToString()


def large_nodes(ports: Ports, over: Over) -> None:
    """6 MB of node in the first request of each stream."""
    data = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=large_node(200_000)).SerializeToString()
    _streams(ports, over, lambda _: data)


def many_names(ports: Ports, over: Over) -> None:
    """100,000 names in the first request of each stream."""
    data = sotw(ENDPOINT, map(str, range(100_000)))
    _streams(ports, over, lambda _: data)


def invented_nodes(ports: Ports, over: Over) -> None:
    """A node id that nobody had before on each stream, and its answer."""
    with open_channel(ports.grpc) as channel:
        for number in takewhile(lambda _: not over.is_set(), count()):
            with GrpcStream(ports.grpc, channel=channel) as stream, suppress(grpc.RpcError):
                stream.send(sotw(CLUSTER, node_id=f"invented-{number}")).receive()


def gzip_bombs(ports: Ports, over: Over) -> None:
    """200 kB that stand for 200 MB."""
    bomb = gzip.compress(bytes(200 * MIB), 1)
    framed = b"\x01" + len(bomb).to_bytes(4, "big") + bomb
    data = [f.frame(f.DATA, 0, 1, framed[at : at + 16_000]) for at in range(0, len(framed), 16_000)]
    while not over.is_set():
        with RawHttp2(ports.grpc) as attacker:
            attacker.send(f.frame(f.HEADERS, WHOLE, 1, head(SOTW, ("grpc-encoding", "gzip"))))
            attacker.flood(data)


def nacks(size: int, most: int = 0) -> Attack:
    """A NACK of so many bytes on each stream, from the same few nodes; ``most`` of them, 0: until it is over."""

    def run(ports: Ports, over: Over) -> None:
        text = "n" * size
        with open_channel(ports.grpc) as channel:
            for number in takewhile(lambda number: not over.is_set() and not 0 < most <= number, count()):
                with GrpcStream(ports.grpc, channel=channel) as stream, suppress(grpc.RpcError):
                    response = stream.send(sotw(CLUSTER, node_id=f"nacking-{number % 20}")).receive()
                    nack = wire_pb2.DiscoveryRequest(
                        type_url=CLUSTER,
                        response_nonce=response.nonce,
                        error_detail=wire_pb2.Status(code=13, message=text),
                    )
                    # What comes behind it is answered only once it was read.
                    stream.send(nack.SerializeToString(), sotw(ENDPOINT, ["served"])).receive()

    return run


def load_reports(clusters: int) -> Attack:
    """Reports of clusters that nobody has, on one stream: so many, then others."""

    def run(ports: Ports, over: Over) -> None:
        for turn in takewhile(lambda _: not over.is_set(), count()):
            with GrpcStream(ports.grpc, LRS) as stream, suppress(grpc.RpcError):
                stream.send(wire_pb2.LoadStatsRequest(node=_node("reporter")).SerializeToString()).receive()
                for at in range(0, clusters, CLUSTERS_PER_REPORT):
                    stream.send(_report(turn, at, min(CLUSTERS_PER_REPORT, clusters - at)))
                stream.send(b"\xff")  # ends the stream once all before it was read
                stream.refusal()

    return run


# The HTTP port


def endless_heads(ports: Ports, over: Over) -> None:
    """A header that does not end, on one connection after the other."""
    while not over.is_set():
        with connect(ports.http) as connection:
            send_until_closed(connection, [BEGINNING, b"x: ", *[b"x" * 64 * KIB] * 100])


def half_heads(clients: int) -> Attack:
    """Half of a head on so many connections; one that is closed comes back."""
    return _slow(clients, BEGINNING)


def half_bodies(clients: int) -> Attack:
    """The first byte of a body on so many connections; one that is closed comes back."""
    return _slow(clients, SLOW_POST)


def _slow(clients: int, said: bytes) -> Attack:
    def run(ports: Ports, over: Over) -> None:
        with ExitStack() as stack:
            held = [stack.enter_context(connect(ports.http)) for _ in range(clients)]
            for connection in held:
                send_until_closed(connection, [said])
            while not over.is_set():
                for number, connection in enumerate(held):
                    if is_closed(connection):
                        connection.close()
                        held[number] = stack.enter_context(connect(ports.http))
                        send_until_closed(held[number], [said])
                over.wait(0.1)

    return run


ATTACKS: Mapping[str, Attack] = {
    **{name.replace(" ", "-"): flood(frame) for name, frame in FLOODS.items()},
    "continuation": continuations,
    "hpack-bombs": hpack_bombs,
    "200-deaf": deaf(200),
    "100-windows-of-a-byte": one_byte_windows(100),
    "1000-silent-connections": silent_connections(1_000),
    "60000-silent-streams": silent_streams,
    "large-nodes": large_nodes,
    "100000-names": many_names,
    "invented-nodes": invented_nodes,
    "gzip-bombs": gzip_bombs,
    "nacks-of-6-MB": nacks(6 * MIB),
    "lrs-of-100000-clusters": load_reports(100_000),
    "http-endless-heads": endless_heads,
    "http-half-heads": half_heads(200),
    "http-half-bodies": half_bodies(200),
}


def _streams(ports: Ports, over: Over, request: Callable[[int], bytes]) -> None:
    """One stream after the other with a first request that is refused."""
    for number in takewhile(lambda _: not over.is_set(), count()):
        with GrpcStream(ports.grpc) as stream:
            stream.send(request(number)).refusal()


def _ask(node_id: str) -> bytes:
    """A call on stream 1 that asks for all of `HEAVY`."""
    return opening(1) + f.frame(f.DATA, 0, 1, message(sotw(CLUSTER, node_id=node_id, cluster=HEAVY)))


def _window(size: int) -> bytes:
    return f.SETTING.pack(INITIAL_WINDOW, size)


def _node(node_id: str) -> bytes:
    return wire_pb2.Node(id=node_id).SerializeToString()


def _report(turn: int, first: int, clusters: int) -> bytes:
    report = wire_pb2.LoadStatsRequest()
    for number in range(first, first + clusters):
        stats = report.cluster_stats.add(cluster_name=f"invented-{turn}-{number}")
        stats.load_report_interval.seconds = 1
        row = stats.upstream_locality_stats.add(total_successful_requests=1, total_issued_requests=1)
        row.locality.zone = "z"
    return report.SerializeToString()

"""The load generator's HTTP/2 and gRPC parts, which have no I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.encode import grpc_message
from bench.load.frames import GENEROUS_WINDOW, Data, Ended, Event, GoneAway, Headers, Http2Error
from bench.load.http2 import Connection
from bench.load.messages import Layouts, MessageError, MessageReader, Response, WholeReader
from xds.proto import wire_pb2
from xds.wire.http2 import frames as f
from xds.wire.http2.frames import frame
from xds.wire.http2.headers import encode

REQUEST = encode([(":method", "POST"), (":path", "/" + "p" * 200)])
URL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def fresh(streams: int = 1, window: int = GENEROUS_WINDOW) -> Connection:
    """A connection with open streams 1, 3 ... whose first bytes were written."""
    connection = Connection(window)
    for _ in range(streams):
        connection.open(REQUEST)
    connection.outgoing()
    return connection


def written(connection: Connection) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of the frames that are to be written."""
    return list(parsed(connection.outgoing()))


def parsed(data: bytes) -> Iterable[tuple[int, int, int, bytes]]:
    at = 0
    while at < len(data):
        length_and_kind, flags, stream_id = struct.unpack_from(">IBI", data, at)
        at += 9 + (length_and_kind >> 8)
        yield length_and_kind & 0xFF, flags, stream_id, data[at - (length_and_kind >> 8) : at]


def settings(**values: int) -> bytes:
    return frame(
        f.SETTINGS, 0, 0, b"".join(struct.pack(">HI", getattr(f, name), value) for name, value in values.items())
    )


def number(kind: int, stream_id: int, value: int) -> bytes:
    return frame(kind, 0, stream_id, struct.pack(">I", value))


def events(connection: Connection, chunks: Iterable[bytes]) -> list[object]:
    """What happened, with the bodies of each stream put together: they come in other pieces as the bytes are cut."""
    bodies: dict[int, bytes] = {}
    others: list[Event] = []
    for chunk in chunks:
        for event in connection.receive(chunk):
            if isinstance(event, Data):
                bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data[event.start : event.end]
            else:
                others.append(event)
    return [*others, bodies]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


def conversation() -> bytes:
    """All that a server may say, to a connection with streams 1, 3 and 5."""
    block = hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])
    padded = bytes((7,)) + b"tail" + bytes(7)
    return b"".join(
        (
            settings(INITIAL_WINDOW_SIZE=70_000, MAX_FRAME_SIZE=20_000, MAX_CONCURRENT_STREAMS=100),
            frame(f.SETTINGS, f.ACK, 0, b""),
            frame(f.HEADERS, 0, 1, block[:3]),
            frame(f.CONTINUATION, 0, 1, block[3:4]),
            frame(f.CONTINUATION, f.END_HEADERS, 1, block[4:]),
            frame(f.DATA, 0, 1, b"x" * 3_000),
            frame(f.PING, 0, 0, b"12345678"),
            frame(f.DATA, 0, 3, b"y"),
            frame(f.DATA, f.PADDED, 1, padded),
            frame(f.DATA, 0, 1, b""),
            frame(0xF0, 0, 0, b"a kind that nobody knows"),
            number(f.WINDOW_UPDATE, 0, 1_000),
            number(f.WINDOW_UPDATE, 3, 1_000),
            number(f.RST_STREAM, 3, 7),
            frame(f.DATA, 0, 3, b"late"),
            frame(f.GOAWAY, 0, 0, struct.pack(">II", 5, 2) + b"bye"),
            frame(f.DATA, f.END_STREAM, 5, b"z"),
            frame(
                f.HEADERS,
                f.END_STREAM | f.END_HEADERS | f.PADDED | f.PRIORITY_GIVEN,
                1,
                bytes((2,)) + bytes(5) + hpack.Encoder().encode([("grpc-status", "14")]) + bytes(2),
            ),
        )
    )


EXPECTED = [
    Headers(1, {":status": "200", "content-type": "application/grpc"}),
    Ended(3, 7),
    GoneAway(5, 2, b"bye"),
    Ended(5, None),
    Headers(1, {"grpc-status": "14"}),
    Ended(1, None),
    {1: b"x" * 3_000 + b"tail", 3: b"y", 5: b"z"},
]


@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_bytes_cut_anywhere_are_parsed_alike(places: list[int]) -> None:
    connection = fresh(streams=3)
    assert events(connection, cut(conversation(), places)) == EXPECTED
    assert [(kind, flags) for kind, flags, _, _ in written(connection)] == [(f.SETTINGS, f.ACK), (f.PING, f.ACK)]
    assert connection.max_concurrent_streams == 100


def test_single_bytes_are_parsed_alike() -> None:
    assert events(fresh(streams=3), (bytes((byte,)) for byte in conversation())) == EXPECTED


def test_ping_is_answered_with_its_payload() -> None:
    connection = fresh()
    connection.receive(frame(f.PING, 0, 0, b"12345678") + frame(f.PING, f.ACK, 0, b"87654321"))
    assert written(connection) == [(f.PING, f.ACK, 0, b"12345678")]


def test_request_headers_are_read_by_any_decoder() -> None:
    fields = hpack.Decoder().decode(REQUEST)
    assert [(str(name), str(value)) for name, value in fields] == [(":method", "POST"), (":path", "/" + "p" * 200)]


@given(
    st.lists(st.tuples(st.sampled_from([1, 3]), st.binary(max_size=90_000)), max_size=6),
    st.lists(st.tuples(st.sampled_from(["stream", "connection", "settings"]), st.integers(1, 60_000)), max_size=20),
)
def test_windows_of_the_peer_are_obeyed(bodies: list[tuple[int, bytes]], grants: list[tuple[str, int]]) -> None:
    connection = fresh(streams=2)
    windows = {0: f.DEFAULT_WINDOW, 1: f.DEFAULT_WINDOW, 3: f.DEFAULT_WINDOW}
    sent = {1: b"", 3: b""}
    wanted = {1: b"", 3: b""}

    def take() -> None:
        for kind, _, stream_id, payload in parsed(connection.outgoing()):
            if kind == f.DATA:
                windows[0] -= len(payload)
                windows[stream_id] -= len(payload)
                sent[stream_id] += payload
                assert len(payload) <= f.DEFAULT_MAX_FRAME
                assert min(windows[0], windows[stream_id]) >= 0

    for stream_id, body in bodies:
        connection.send(stream_id, body)
        wanted[stream_id] += body
        take()
    initial = f.DEFAULT_WINDOW
    for what, size in grants:
        if what == "settings":
            for stream_id in (1, 3):
                windows[stream_id] += size - initial
            initial = size
            connection.receive(settings(INITIAL_WINDOW_SIZE=size))
        else:
            stream_id = 0 if what == "connection" else 1
            windows[stream_id] += size
            connection.receive(number(f.WINDOW_UPDATE, stream_id, size))
        take()
    for stream_id in (1, 3):
        # What is left waits for a window, and for nothing else.
        assert sent[stream_id] == wanted[stream_id] or min(windows[0], windows[stream_id]) <= 0
    for stream_id in windows:
        windows[stream_id] += 1_000_000
        connection.receive(number(f.WINDOW_UPDATE, stream_id, 1_000_000))
    take()
    assert sent == wanted


def test_larger_frames_are_sent_to_a_peer_that_allows_them() -> None:
    connection = fresh()
    connection.receive(settings(MAX_FRAME_SIZE=50_000))
    connection.outgoing()
    connection.send(1, b"n" * 40_000)
    assert [len(payload) for _, _, _, payload in written(connection)] == [40_000]


def test_windows_are_given_back_for_all_that_was_received() -> None:
    connection = fresh(streams=2, window=100_000)
    given = {0: 0, 1: 0, 3: 0}
    received = {0: 0, 1: 0, 3: 0}
    for round_number in range(200):
        stream_id = 1 if round_number % 3 else 3
        padded = bytes((4,)) + b"b" * 9_000 + bytes(4)
        connection.receive(frame(f.DATA, f.PADDED, stream_id, padded))
        received[0] += len(padded)
        received[stream_id] += len(padded)
        for kind, _, updated, payload in written(connection):
            assert kind == f.WINDOW_UPDATE
            given[updated] += int.from_bytes(payload, "big")
        for each, size in received.items():
            assert 0 <= size - given[each] <= 50_000


def test_first_bytes_grant_the_window_on_the_connection_too() -> None:
    first = Connection(window=1_000_000).outgoing()
    assert first.startswith(f.PREFACE)
    kinds = {kind: payload for kind, _, _, payload in parsed(first[len(f.PREFACE) :])}
    assert struct.pack(">HI", f.INITIAL_WINDOW_SIZE, 1_000_000) in kinds[f.SETTINGS]
    assert int.from_bytes(kinds[f.WINDOW_UPDATE], "big") == 1_000_000 - f.DEFAULT_WINDOW


@pytest.mark.parametrize(
    "data",
    [
        frame(f.PUSH_PROMISE, f.END_HEADERS, 1, bytes(8)),
        frame(f.CONTINUATION, f.END_HEADERS, 1, b""),
        frame(f.HEADERS, 0, 1, b"") + frame(f.DATA, 0, 1, b"x"),
        frame(f.HEADERS, 0, 1, b"") + frame(f.CONTINUATION, f.END_HEADERS, 3, b""),
        frame(f.HEADERS, f.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        frame(f.DATA, f.PADDED, 1, bytes((9,)) + b"short"),
        frame(f.DATA, f.PADDED, 1, b""),
        frame(f.RST_STREAM, 0, 1, b"no"),
        frame(f.SETTINGS, 0, 0, b"odd"),
        frame(f.WINDOW_UPDATE, 0, 0, b"odd"),
        frame(f.DATA, 0, 1, bytes(f.DEFAULT_MAX_FRAME + 1)),
    ],
)
def test_broken_frames_are_refused(data: bytes) -> None:
    with pytest.raises(Http2Error):
        fresh(streams=2).receive(data)


# gRPC messages


def sotw_body(edition: int, resources: int, size: int = 60, nonce: str = "7") -> bytes:
    message = wire_pb2.DiscoveryResponse(version_info=f"v{edition}", type_url=URL, nonce=nonce)
    for index in range(resources):
        message.resources.add(type_url=URL, value=b"%d" % index * size)
    message.control_plane.identifier = "test"
    return bytes(message.SerializeToString())


def delta_body(edition: int, resources: int, removed: int) -> bytes:
    message = wire_pb2.DeltaDiscoveryResponse(system_version_info=f"v{edition}", type_url=URL, nonce=f"n{edition}")
    for index in range(resources):
        resource = message.resources.add(name=f"cluster-{index}", version="1")
        resource.resource.value = b"c" * 100
    message.removed_resources.extend(f"cluster-{index}" for index in range(removed))
    return bytes(message.SerializeToString())


def answer(message: wire_pb2.DiscoveryResponse | wire_pb2.DeltaDiscoveryResponse, body: bytes) -> Response:
    message.ParseFromString(body)
    is_sotw = isinstance(message, wire_pb2.DiscoveryResponse)
    version: str = getattr(message, "version_info" if is_sotw else "system_version_info")
    return Response(version.encode(), message.type_url.encode(), message.nonce.encode(), len(body))


sotw_bodies = st.builds(
    sotw_body, st.integers(0, 2), st.integers(0, 30), st.integers(1, 60), st.sampled_from(["", "7"])
).map(lambda body: (body, answer(wire_pb2.DiscoveryResponse(), body)))
delta_bodies = st.builds(delta_body, st.integers(0, 2), st.integers(0, 20), st.integers(0, 40)).map(
    lambda body: (body, answer(wire_pb2.DeltaDiscoveryResponse(), body))
)
no_body = st.just((b"", Response(b"", b"", b"", 0)))
# A stream has responses of one variant. With both, some of the same length begin alike.
streams = st.one_of(
    st.lists(st.one_of(sotw_bodies, no_body), max_size=8), st.lists(st.one_of(delta_bodies, no_body), max_size=8)
)


@given(streams, st.lists(st.integers(0, 20_000), max_size=20))
def test_messages_cut_anywhere_are_read_alike(messages: list[tuple[bytes, Response]], places: list[int]) -> None:
    bodies = [body for body, _ in messages]
    data = b"".join(map(grpc_message, bodies))
    layouts = Layouts()
    kept: list[bytes] = []
    # The second one knows what the first one learnt; the third one is cut nowhere.
    for reader, chunks in (
        (MessageReader(layouts), cut(data, places)),
        (MessageReader(layouts), cut(data, places)),
        (MessageReader(layouts), [data]),
        (WholeReader(layouts, kept.append), cut(data, places)),
    ):
        found = [response for chunk in chunks for response in reader.feed(b"__" + chunk + b"\xff", 2, 2 + len(chunk))]
        assert found == [response for _, response in messages]
    assert kept == bodies


def test_fields_that_stand_between_resources_are_not_skipped() -> None:
    resource = b"\x12\x64" + b"r" * 100
    body = b"\x0a\x011" + resource * 8 + b"\x18\x01\x2a\x01a" + resource + b"\x22\x01t\x2a\x01b\x30\x96\x01"
    layouts = Layouts()
    for _ in range(3):
        assert MessageReader(layouts).feed(grpc_message(body), 0, len(body) + 5) == [
            Response(b"1", b"t", b"b", len(body))
        ]


def test_responses_with_equal_beginnings_are_distinguished() -> None:
    """The same length and the same first bytes, but the nonce is elsewhere: never a wrong nonce."""
    resource = b"\x12\x64" + b"r" * 100
    head = b"\x0a\x011" + resource * 6
    one = head + resource + b"\x22\x01t\x2a\x01a"
    other = head + b"\x22\x01t\x2a\x65" + b"n" * 101 + b"\x18\x00"
    assert len(one) == len(other)
    layouts = Layouts()
    MessageReader(layouts).feed(grpc_message(one), 0, len(one) + 5)
    try:
        found = MessageReader(layouts).feed(grpc_message(other), 0, len(other) + 5)
    except MessageError:
        return
    assert found == [Response(b"1", b"t", b"n" * 101, len(other))]


@pytest.mark.parametrize(
    "message",
    [
        b"\x01" + struct.pack(">I", 2) + b"\x0a\x00",
        grpc_message(b"\x0a\x05abc"),
        grpc_message(b"\x12\x05abc"),
        grpc_message(b"\x0f"),
        grpc_message(b"\x22\xff\xff\xff\x7f" + bytes(20)),
        grpc_message(b"\xff" * 30),
    ],
)
def test_malformed_messages_are_refused(message: bytes) -> None:
    with pytest.raises(MessageError):
        MessageReader(Layouts()).feed(message, 0, len(message))

"""Whole conversations: bytes cut anywhere, messages of any size both ways, under any windows and frame sizes."""

from __future__ import annotations

from itertools import cycle, pairwise

import h2.events
import hpack
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.wire.http2.talk import HEAD, REQUEST, Talk, bodies, data, frames_of, message, number, outgoing
from tests.wire.http2.talk import settings as settings_frame
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.messages import GrpcMessage
from xds.wire.http2.stream import (
    Http2Event,
    MalformedMessage,
    MessageReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WriteDrained,
)

PADDING = bytes(7)
EXAMPLES = 40


def conversation() -> bytes:
    """All that a client may say."""
    encoder = hpack.Encoder()
    first = encoder.encode([*REQUEST, ("x-long", "v" * 300)])
    second = encoder.encode([*REQUEST, ("grpc-timeout", "3S")])
    trailers = encoder.encode([("x-trailer", "t")])
    dependent = bytes((0, 0, 0, 1, 16))
    whole = message(b"m" * 3_000)
    return b"".join(
        (
            f.PREFACE,
            settings_frame((f.INITIAL_WINDOW_SIZE, 70_000), (f.MAX_FRAME_SIZE, 20_000), (0x7777, 1)),
            f.frame(f.SETTINGS, f.ACK, 0),
            f.frame(f.HEADERS, 0, 1, first[:7]),
            f.frame(f.CONTINUATION, 0, 1, first[7:8]),
            f.frame(f.CONTINUATION, f.END_HEADERS, 1, first[8:]),
            data(1, whole),
            f.frame(f.PING, 0, 0, b"12345678"),
            f.frame(
                f.HEADERS,
                f.END_HEADERS | f.PADDED | f.PRIORITY_GIVEN,
                3,
                bytes((7,)) + dependent + second + PADDING,
            ),
            data(1, whole[:2]),
            data(3, message(b"") + message(b"two") + message(b"three")[:4]),
            f.frame(f.PRIORITY, 0, 5, dependent),
            f.frame(f.DATA, f.PADDED, 1, bytes((7,)) + whole[2:2_000] + PADDING),
            f.frame(0xF0, 0xFF, 0, b"a kind that nobody knows"),
            data(1, b""),
            data(1, whole[2_000:]),
            number(f.WINDOW_UPDATE, 0, 1_000),
            number(f.WINDOW_UPDATE, 1, 1_000),
            number(f.RST_STREAM, 3, 8),
            data(3, b"late"),
            f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 1, trailers),
            f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 7, HEAD),
            f.frame(f.HEADERS, f.END_HEADERS, 9, HEAD),
            data(9, b"\x07nonsense"),
            data(9, b"more nonsense"),
            f.frame(f.GOAWAY, 0, 0, f.LAST_AND_CODE.pack(0, 0) + b"bye"),
        )
    )


EXPECTED = [
    ("opened", 1, "/s/M", None),
    ("message", 1, GrpcMessage(False, b"m" * 3_000)),
    ("opened", 3, "/s/M", 3.0),
    ("message", 3, GrpcMessage(False, b"")),
    ("message", 3, GrpcMessage(False, b"two")),
    ("message", 1, GrpcMessage(False, b"m" * 3_000)),
    ("closed", 3, 8),
    ("half closed", 1),
    ("opened", 7, "/s/M", None),
    ("half closed", 7),
    ("opened", 9, "/s/M", None),
    ("broken", 9),
]


def told(event: Http2Event) -> tuple[object, ...]:
    """An event by its values."""
    match event:
        case RequestReceived(stream, head):
            return ("opened", stream.id, head.path, head.timeout_s)
        case MessageReceived(stream, piece):
            return ("message", stream.id, piece)
        case StreamEnded(stream):
            return ("half closed", stream.id)
        case MalformedMessage(stream, _):
            return ("broken", stream.id)
        case StreamReset(stream, code):
            return ("closed", stream.id, code)
        case WriteDrained(stream):
            return ("written", stream.id)


def said(chunks: list[bytes]) -> tuple[list[tuple[object, ...]], bytes]:
    """What the chunks bring, and what is answered."""
    server = ServerConnection()
    server.trust()
    events = [told(event) for chunk in chunks for event in server.receive(chunk)]
    return events, outgoing(server)


def test_messages_that_a_client_may_send() -> None:
    events, answer = said([conversation()])
    assert events == EXPECTED
    kinds = [(frame.kind, frame.flags) for frame in frames_of(answer)]
    assert kinds == [(f.SETTINGS, 0), (f.WINDOW_UPDATE, 0), (f.SETTINGS, f.ACK), (f.PING, f.ACK)]


@examples(EXAMPLES)
@given(st.lists(st.integers(0, 10_000), max_size=60))
def test_bytes_cut_anywhere_are_parsed_alike(places: list[int]) -> None:
    whole = conversation()
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    assert said([whole[begin:end] for begin, end in pairwise(edges)]) == said([whole])


def test_single_bytes_are_parsed_alike() -> None:
    whole = conversation()
    assert said([bytes((byte,)) for byte in whole]) == said([whole])


sizes = st.one_of(st.integers(0, 300), st.integers(0, 150_000))


@examples(EXAMPLES)
@given(
    st.lists(sizes, max_size=5),
    st.lists(
        st.tuples(st.integers(700, f.DEFAULT_MAX_FRAME), st.sampled_from([None, 0, 9, 255])), min_size=1, max_size=9
    ),
    st.lists(st.booleans(), min_size=1, max_size=9),
)
def test_requests_arrive_whole(wanted: list[int], cuts: list[tuple[int, int | None]], reading: list[bool]) -> None:
    """However they are cut and padded, and whenever they are taken."""
    talk = Talk()
    stream = talk.open()
    sent = [bytes((number_ % 251,)) * size for number_, size in enumerate(wanted)]
    left = b"".join(map(message, sent))
    ways, takes, taken = cycle(cuts), cycle(reading), 0
    while left:
        size, pad = next(ways)
        room = min(talk.client.local_flow_control_window(1), f.DEFAULT_MAX_FRAME)
        assert room or stream.unread, "nobody can go on"
        if pad is not None and room <= pad + 1:
            pad = None
        size = min(size, room if pad is None else room - pad - 1)
        talk.send(1, left[:size], pad=pad)
        left = left[size:]
        if stream.unread and (next(takes) or not room):
            talk.server.consumed(stream)
            talk.exchange()
            taken += 1
    talk.send(1, b"", ends=True)
    assert bodies(talk.heard) == sent
    assert stream.unread == len(sent) - taken
    assert told(talk.heard[-1]) == ("half closed", 1)


grants = st.lists(
    st.tuples(st.sampled_from(["connection", "stream", "settings"]), st.integers(0, 2), st.integers(1, 120_000)),
    max_size=30,
)


@examples(EXAMPLES)
@given(
    st.lists(st.tuples(st.integers(0, 2), sizes), max_size=8),
    grants,
    st.integers(0, 100_000),
    st.sampled_from([f.DEFAULT_MAX_FRAME, 20_001, f.LARGEST_MAX_FRAME]),
)
def test_responses_arrive_whole(
    wanted: list[tuple[int, int]], given_: list[tuple[str, int, int]], window: int, frame: int
) -> None:
    """However little the client allows at a time; h2 raises when it is sent more than that."""
    talk = Talk(INITIAL_WINDOW_SIZE=window, MAX_FRAME_SIZE=frame)
    streams = [talk.open(stream_id, ends=True) for stream_id in (1, 3, 5)]
    sent = {1: b"", 3: b"", 5: b""}
    waits = set()
    for index, size in wanted:
        stream, body = streams[index], bytes((len(sent) + size % 7,)) * size
        sent[stream.id] += message(body)
        if not talk.server.send_message(stream, body):
            waits.add(stream.id)
        talk.exchange()
    for stream in streams:
        talk.server.end(stream, 0)
    for what, index, size in given_:
        grant(talk, what, streams[index].id, size)
    for stream in streams:
        if stream.id in talk.server.streams:
            talk.client.increment_flow_control_window(2**29, stream.id)
    talk.client.increment_flow_control_window(2**29)
    talk.exchange()
    got = {1: b"", 3: b"", 5: b""}
    for event in talk.received(h2.events.DataReceived):
        got[event.stream_id] += event.data
    assert got == sent
    assert not talk.server.streams
    assert {event.stream_id for event in talk.received(h2.events.StreamEnded)} == {1, 3, 5}
    assert {event.stream.id for event in talk.heard if isinstance(event, WriteDrained)} == waits


def grant(talk: Talk, what: str, stream_id: int, size: int) -> None:
    if what == "settings":
        talk.client.update_settings({f.INITIAL_WINDOW_SIZE: size})
    elif what == "connection":
        talk.client.increment_flow_control_window(size)
    elif stream_id in talk.server.streams:
        talk.client.increment_flow_control_window(size, stream_id)
    talk.exchange()

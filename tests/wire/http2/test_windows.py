"""Flow control: what was not read holds up its sender; what is held for clients has bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable

import h2.events
import pytest

from tests.wire.http2.talk import (
    Talk,
    bodies,
    closed,
    data,
    greeted,
    in_frames,
    message,
    number,
    opened,
    opening,
    settings,
    written,
)
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.frames import ErrorCode
from xds.wire.http2.receive_window import CONNECTION_WINDOW, PRECREDIT_MESSAGES
from xds.wire.http2.stream import (
    DEFAULT_LIMITS,
    STREAM_WINDOW,
    TRUSTED_WINDOW,
    Http2Event,
    Http2Limits,
    MalformedMessage,
    MessageReceived,
    Stream,
    WriteDrained,
)


def grown(server: ServerConnection) -> dict[int, int]:
    """By how much windows were let grow, by stream; 0: the connection's."""
    found: dict[int, int] = {}
    for frame in written(server):
        if frame.kind == f.WINDOW_UPDATE:
            found[frame.stream_id] = found.get(frame.stream_id, 0) + frame.number
    return found


def fill(server: ServerConnection, stream_id: int, body: bytes) -> list[Http2Event]:
    return [event for each in in_frames(stream_id, body) for event in server.receive(each)]


def test_a_message_that_nobody_takes_stops_the_window() -> None:
    server = greeted()
    (stream,) = opened(server, 1)
    whole = message(b"m" * 20_000)
    fill(server, 1, whole * 3)
    assert stream.unread == 3
    assert grown(server) == {}
    for _ in range(2):
        server.consumed(stream)
        assert grown(server) == {}
    server.consumed(stream)
    assert grown(server) == {1: 3 * len(whole) + TRUSTED_WINDOW - STREAM_WINDOW}
    assert stream.window == TRUSTED_WINDOW


def test_the_window_of_a_trusted_client_is_extended_for_several_long_requests() -> None:
    """Envoy repeats its node of 61 kB in each ACK."""
    server = greeted()
    (stream,) = opened(server, 1)
    extended = []
    for _ in range(9):
        fill(server, 1, message(bytes(61_000)))
        server.consumed(stream)
        extended.append(1 in grown(server))
    assert extended == [True, *[False] * 3, True, *[False] * 3, True]


def test_a_client_without_a_credential_never_has_more_than_the_first_window() -> None:
    server = ServerConnection()
    server.receive(f.PREFACE + settings())
    (stream,) = opened(server, 1)
    for _ in range(3):
        fill(server, 1, message(bytes(61_000)))
        server.consumed(stream)
        assert stream.window == STREAM_WINDOW


def test_a_message_longer_than_the_window_comes_in() -> None:
    talk = Talk(Http2Limits(message_bytes=4 << 20))
    stream = talk.open()
    left = message(b"l" * (3 << 20))
    while left:
        room = min(talk.client.local_flow_control_window(1), f.DEFAULT_MAX_FRAME)
        assert room
        talk.send(1, left[:room])
        left = left[room:]
    assert bodies(talk.heard) == [b"l" * (3 << 20)]
    talk.server.consumed(stream)
    talk.exchange()
    assert talk.client.local_flow_control_window(1) > STREAM_WINDOW // 2


def test_streams_share_the_window_of_the_connection() -> None:
    server = greeted()
    whole = message(b"m" * 15_995)
    each = 4 * len(whole)
    ids = range(1, 2 * (CONNECTION_WINDOW // each), 2)
    streams = opened(server, *ids)
    for stream_id in ids:
        server.receive(data(stream_id, whole) * 4)
    assert grown(server) == {}
    for stream in streams:
        for _ in range(4):
            server.consumed(stream)
    found = grown(server)
    assert found.pop(0) >= CONNECTION_WINDOW // 2
    assert found == dict.fromkeys(ids, each + TRUSTED_WINDOW - STREAM_WINDOW)


def test_more_than_the_window_of_the_connection_is_an_error() -> None:
    server = greeted()
    whole = message(b"m" * 15_995)
    opened(server, *range(1, 40, 2))
    with pytest.raises(f.Http2Error, match="FLOW_CONTROL_ERROR"):
        for stream_id in range(1, 40, 2):
            server.receive(data(stream_id, whole) * 4)


@pytest.mark.parametrize("ending", ["end", "refuse", "reset", "client resets", "broken", "over"])
def test_unread_bytes_of_an_ended_stream_are_credited(ending: str) -> None:
    """Or calls that are refused unread would use up the window of the connection."""
    server = greeted()
    whole = message(b"m" * 10_000)
    given = 0
    for stream_id in range(1, 2 * 300, 2):
        (stream,) = opened(server, stream_id)
        server.receive(data(stream_id, whole))
        if ending == "client resets":
            server.receive(number(f.RST_STREAM, stream_id, 8))
        elif ending == "broken":
            server.receive(data(stream_id, b"\x09nonsense"))
        elif ending == "over":
            server.send_message(stream, bytes(100_000))
            server.end(stream, 0)  # waits for the client's window
            server.receive(data(stream_id, whole))
        else:
            end(server, stream, ending)
            server.receive(data(stream_id, whole))
        given += grown(server).get(0, 0)
    assert given > 300 * 10_000 - CONNECTION_WINDOW


def end(server: ServerConnection, stream: Stream, ending: str) -> None:
    if ending == "end":
        server.end(stream, 7, "no")
    elif ending == "refuse":
        server.refuse(stream, 415)
    else:
        server.reset(stream, ErrorCode.CANCEL)


def test_messages_that_nobody_takes_are_bounded_over_all_streams() -> None:
    """Whole or not: the window moved on for them."""
    limit = 1 << 20
    server = greeted(Http2Limits(message_bytes=limit))
    ids = range(1, 2 * PRECREDIT_MESSAGES + 4, 2)
    opened(server, *ids)
    body = message(b"m" * (limit - 5))
    events: list[Http2Event] = []
    for stream_id in ids:
        for frame in in_frames(stream_id, body):
            if stream_id not in server.streams:
                break
            events += server.receive(frame)
    assert len(bodies(events)) == 1
    assert len([event for event in events if isinstance(event, MessageReceived)]) == PRECREDIT_MESSAGES
    assert closed(events) == [(stream_id, ErrorCode.ENHANCE_YOUR_CALM) for stream_id in ids[-2:]]
    for stream in list(server.streams.values()):
        server.consumed(stream)
    opened(server, 99)
    assert bodies(fill(server, 99, body), 99) == [b"m" * (limit - 5)]


@pytest.mark.parametrize("size", [20_000, 60_000])
def test_many_messages_that_come_in_turns_do_not_lock_each_other_out(size: int) -> None:
    """As from an Envoy with split streams: a frame of each in turns. None is whole when the connection's window is
    used up by all of them."""
    talk = Talk(Http2Limits(message_bytes=16 << 20))
    left = {stream_id: message(bytes(size)) for stream_id in range(1, 801, 2)}
    for stream_id in left:
        talk.open(stream_id)
    while left:
        sent = 0
        for stream_id in list(left):
            room = min(talk.client.local_flow_control_window(stream_id), 4_000)
            if room:
                talk.send(stream_id, left[stream_id][:room])
                left[stream_id] = left[stream_id][room:]
                sent += room
            if not left[stream_id]:
                del left[stream_id]
        if not sent:
            unread = [stream for stream in talk.server.streams.values() if stream.unread]
            assert unread, "all are stuck"
            for stream in unread:
                talk.server.consumed(stream)
            talk.exchange()
    assert len([event for event in talk.heard if isinstance(event, MessageReceived)]) == 400


def test_a_message_that_the_window_holds_is_lent_nothing() -> None:
    server = greeted()
    opened(server, 1)
    fill(server, 1, message(b"m" * 65_530))
    assert grown(server) == {}


def test_a_message_that_is_too_large_is_refused_before_it_arrives() -> None:
    server = greeted(Http2Limits(message_bytes=100))
    opened(server, 1)
    (event,) = server.receive(data(1, message(b"x" * 101)[:5]))
    assert isinstance(event, MalformedMessage)
    assert event.error.too_large
    assert server.receive(data(1, message(b"never mind"))) == []


def test_a_truncated_message_is_an_error() -> None:
    server = greeted()
    opened(server, 1)
    (event,) = server.receive(data(1, message(b"half")[:7], ends=True))
    assert isinstance(event, MalformedMessage)


def test_streams_beyond_the_limit_are_refused() -> None:
    server = greeted(Http2Limits(streams=2))
    opened(server, 1, 3)
    assert server.receive(opening(5)) == []
    assert written(server) == [(f.RST_STREAM, 0, 5, f.NUMBER.pack(ErrorCode.REFUSED_STREAM))]
    server.receive(number(f.RST_STREAM, 1, 8))
    opened(server, 7)


def test_streams_that_race_with_goaway_are_passed_over() -> None:
    """The client may have sent a call before it hears; those in progress go on."""
    server = greeted()
    (stream,) = opened(server, 1)
    server.go_away()
    (frame,) = written(server)
    assert f.LAST_AND_CODE.unpack(frame.payload) == (1, 0)
    late = opening(3) + data(3, message(b"late")) + number(f.WINDOW_UPDATE, 3, 9) + number(f.RST_STREAM, 3, 8)
    assert server.receive(late) == []
    assert bodies(server.receive(data(1, message(b"in progress")))) == [b"in progress"]
    server.go_away()
    assert server.send_message(stream, b"answered")
    server.end(stream, 0)
    assert [frame.stream_id for frame in written(server)] == [1, 1, 1, 1]


# The other way


def test_a_message_waits_for_the_stream_and_for_the_connection() -> None:
    talk = Talk(INITIAL_WINDOW_SIZE=10)
    first, second = talk.open(1), talk.open(3)
    assert not talk.server.send_message(first, b"f" * 70_000)
    assert talk.server.send_message(second, b"small")
    talk.exchange()
    talk.client.increment_flow_control_window(100_000, 1)
    talk.exchange()
    assert not [event for event in talk.heard if isinstance(event, WriteDrained)]
    talk.client.increment_flow_control_window(100_000)
    talk.exchange()
    assert [event.stream.id for event in talk.heard if isinstance(event, WriteDrained)] == [1]
    got = b"".join(e.data for e in talk.received(h2.events.DataReceived) if e.stream_id == 1)
    assert got == message(b"f" * 70_000)


def test_a_long_message_is_not_copied() -> None:
    """Many streams are sent the very same bytes; clients of gRPC's C core take frames of megabytes."""
    server = greeted(DEFAULT_LIMITS, (f.MAX_FRAME_SIZE, 2**24 - 1), (f.INITIAL_WINDOW_SIZE, 2**30))
    server.receive(number(f.WINDOW_UPDATE, 0, 2**30))
    (stream,) = opened(server, 1)
    server.outgoing()
    body = bytes(1 << 20)
    assert server.send_message(stream, body)
    out = server.outgoing()
    shared = [len(each) for each in out if isinstance(each, memoryview) and each.obj is body]
    assert len(body) - f.DEFAULT_MAX_FRAME <= sum(shared) < len(body)
    assert sum(map(len, out)) - sum(shared) < 2 * f.DEFAULT_MAX_FRAME


def test_an_initial_window_that_shrinks_below_nothing() -> None:
    talk = Talk()
    stream = talk.open()
    assert talk.server.send_message(stream, b"a" * 16_000)
    talk.exchange()
    talk.client.update_settings({f.INITIAL_WINDOW_SIZE: 0})
    talk.exchange()
    assert stream.send_window == -16_005
    assert not talk.server.send_message(stream, b"b")
    talk.client.increment_flow_control_window(16_005, 1)
    talk.exchange()
    assert stream.pending
    talk.client.increment_flow_control_window(6, 1)
    talk.exchange()
    assert not stream.pending


def test_trailers_wait_for_data_sent_before() -> None:
    talk = Talk(INITIAL_WINDOW_SIZE=0)
    stream = talk.open(ends=True)
    talk.server.send_message(stream, b"first")
    talk.server.end(stream, 5, "not found")
    talk.exchange()
    assert not talk.received(h2.events.TrailersReceived)
    talk.client.increment_flow_control_window(10, 1)
    talk.exchange()
    (trailers,) = talk.received(h2.events.TrailersReceived)
    assert dict(trailers.headers) == {"grpc-status": "5", "grpc-message": "not found"}


def test_an_answer_before_the_request_has_ended_says_so() -> None:
    """RFC 9113 8.1: RST_STREAM with NO_ERROR behind a complete response."""
    talk = Talk()
    stream = talk.open()
    talk.server.end(stream, 0)
    talk.exchange()
    assert talk.received(h2.events.StreamEnded)
    (reset,) = talk.received(h2.events.StreamReset)
    assert reset.error_code == ErrorCode.NO_ERROR


def test_waiting_data_is_dropped_with_its_stream() -> None:
    server = greeted()
    (stream,) = opened(server, 1)
    server.send_message(stream, bytes(1_000_000))
    server.outgoing()
    assert closed(server.receive(number(f.RST_STREAM, 1, 8))) == [(1, 8)]
    assert not stream.pending
    server.receive(number(f.WINDOW_UPDATE, 0, 1_000_000) + settings((f.INITIAL_WINDOW_SIZE, 2**30)))
    assert [frame.kind for frame in written(server)] == [f.SETTINGS]


def steps(work: Callable[[], object]) -> int:
    """How many of our functions are called."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_few_bytes_cost_little_whatever_waits() -> None:
    """A window that grows by one byte, or an initial window that changes often in one frame, among many streams."""
    server = greeted()
    streams = opened(server, *range(1, 4_001, 2))
    for stream in streams:
        server.send_message(stream, bytes(100))
    server.outgoing()
    one = number(f.WINDOW_UPDATE, 0, 1)
    assert steps(lambda: [server.receive(one) for _ in range(1_000)]) < 20_000
    noise = server.abuse_score
    changes = settings(*((f.INITIAL_WINDOW_SIZE, 70_000 + index) for index in range(1_000)))
    assert steps(lambda: server.receive(changes)) < 20_000
    assert server.abuse_score > noise + len(streams) // 100
    assert sum(len(frame.payload) for frame in written(server) if frame.kind == f.DATA) == 1_000

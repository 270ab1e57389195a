"""Floods of frames that serve no call are counted, each kind of them; what real clients say is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.wire.http2.talk import HEAD, data, greeted, message, number, opened, opening, receive, settings, written
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.frames import ErrorCode, Http2Error
from xds.wire.http2.stream import DEFAULT_LIMITS, RequestReceived

FRAMES = 1_000
AT_ONCE = DEFAULT_LIMITS.frames_at_once
STREAMS_AT_ONCE = DEFAULT_LIMITS.streams_at_once
PADDING = bytes((8,)) + bytes(8)


def half_closed(server: ServerConnection) -> None:
    opened(server, 1)
    server.receive(data(1, b"", ends=True))


def ended(server: ServerConnection) -> None:
    (stream,) = opened(server, 1)
    server.end(stream, 0)


def ended_behind_what_waits(server: ServerConnection) -> None:
    (stream,) = opened(server, 1)
    server.send_message(stream, bytes(1_000_000))
    server.end(stream, 0)
    assert stream.id in server.streams


def sending(server: ServerConnection) -> None:
    (stream,) = opened(server, 1)
    server.send_message(stream, bytes(1_000_000))
    server.receive(number(f.WINDOW_UPDATE, 0, 1_000_000))


def sending_on_both(server: ServerConnection) -> None:
    (stream,) = opened(server, 1)
    server.send_message(stream, bytes(1_000_000))
    server.receive(number(f.WINDOW_UPDATE, 1, 1_000_000))


def going_away(server: ServerConnection) -> None:
    server.go_away()


def amid_a_block(server: ServerConnection) -> None:
    server.receive(f.frame(f.HEADERS, 0, 1, HEAD))


def open_stream(server: ServerConnection) -> None:
    opened(server, 1)


def on(frame: bytes) -> Callable[[], Iterator[bytes]]:
    """The same one again and again."""
    return lambda: iter(lambda: frame, None)


FLOODS: dict[str, tuple[Callable[[ServerConnection], None], Callable[[], Iterator[bytes]]]] = {
    "pings": (open_stream, on(f.frame(f.PING, 0, 0, bytes(8)))),
    "answers to pings": (open_stream, on(f.frame(f.PING, f.ACK, 0, bytes(8)))),
    "settings": (open_stream, on(settings())),
    "priorities": (open_stream, on(f.frame(f.PRIORITY, 0, 9, bytes(5)))),
    "unknown frames": (open_stream, on(f.frame(0xF0, 0, 0))),
    "empty data": (open_stream, on(data(1, b""))),
    "padding": (open_stream, on(f.frame(f.DATA, f.PADDED, 1, PADDING))),
    "empty data behind the end of a request": (half_closed, on(data(1, b""))),
    "empty data of a stream that has ended": (ended, on(data(1, b""))),
    "ends of a stream that has ended": (ended, on(data(1, b"", ends=True))),
    "single bytes of a stream that has ended": (ended, on(data(1, b"x"))),
    "empty data of a call that has ended": (ended_behind_what_waits, on(data(1, b""))),
    "resets of a stream that has ended": (ended, on(number(f.RST_STREAM, 1, 8))),
    "windows of a stream that has ended": (ended, on(number(f.WINDOW_UPDATE, 1, 1))),
    "a stream's window that grows by one": (sending, on(number(f.WINDOW_UPDATE, 1, 1))),
    "the connection's window that grows by one": (sending_on_both, on(number(f.WINDOW_UPDATE, 0, 1))),
    "a window that nothing was sent for": (open_stream, on(number(f.WINDOW_UPDATE, 1, 1_000))),
    "a connection's window that nothing was sent for": (open_stream, on(number(f.WINDOW_UPDATE, 0, 1_000))),
    "headers of a stream that has ended": (ended, on(opening(1))),
    "streams behind GOAWAY": (going_away, lambda: map(opening, range(1, 1 << 20, 2))),
    "headers byte by byte": (amid_a_block, on(f.frame(f.CONTINUATION, 0, 1, b"x"))),
}  # fmt: skip


@pytest.mark.parametrize(("begin", "flood"), FLOODS.values(), ids=FLOODS)
def test_each_frame_of_a_flood_is_noise(
    begin: Callable[[ServerConnection], None], flood: Callable[[], Iterator[bytes]]
) -> None:
    """From where on all that an honest client may have to say is said."""
    server = greeted()
    begin(server)
    frames = flood()
    receive(server, b"".join(next(frames) for _ in range(FRAMES)))
    before = server.abuse_score
    receive(server, b"".join(next(frames) for _ in range(FRAMES)))
    assert server.abuse_score == before + FRAMES


def test_a_reset_is_noise_and_the_call_before_it_is_not() -> None:
    server = greeted()
    before = server.abuse_score
    opened(server, 1, 3)
    server.receive(data(1, message(b"x")) + data(1, b"\0") + data(3, b"", ends=True))
    assert server.abuse_score == before
    server.receive(number(f.RST_STREAM, 1, 8))
    assert server.abuse_score == before + 1


def test_calls_are_no_noise() -> None:
    """gRPC's C core tells of the windows of each stream it opens, and of both windows for each message that it
    reads, of many streams at once."""
    server = greeted()
    before = server.abuse_score
    ids = range(1, 2_001, 2)
    streams = opened(server, *ids)
    receive(server, b"".join(number(f.WINDOW_UPDATE, stream_id, 5) for stream_id in ids))
    for _ in range(5):
        receive(server, b"".join(data(stream_id, message(b"ask")) for stream_id in ids))
        for stream in streams:
            assert server.send_now(stream, b"tell")
        grown = (number(f.WINDOW_UPDATE, each, 9) + number(f.WINDOW_UPDATE, 0, 9) for each in ids)
        receive(server, b"".join(grown))
    receive(server, b"".join(data(stream_id, b"", ends=True) for stream_id in ids))
    assert server.abuse_score == before


def test_a_long_message_through_small_windows_is_no_noise() -> None:
    server = greeted()
    before = server.abuse_score
    (stream,) = opened(server, 1)
    server.send_message(stream, bytes(1_000_000))
    while stream.pending:
        sent = sum(len(frame.payload) for frame in written(server) if frame.kind == f.DATA)
        assert sent
        for at in range(0, sent, 1_000):
            size = min(1_000, sent - at)
            server.receive(number(f.WINDOW_UPDATE, 1, size) + number(f.WINDOW_UPDATE, 0, size))
    assert server.abuse_score == before


def test_many_frames_are_read_some_at_a_time() -> None:
    server = greeted()
    pings = [f.frame(f.PING, 0, 0, index.to_bytes(8)) for index in range(3 * AT_ONCE)]
    answers = [f.frame(f.PING, f.ACK, 0, index.to_bytes(8)) for index in range(3 * AT_ONCE + 1)]
    server.receive(b"".join(pings) + f.frame(f.PING, 0, 0, len(pings).to_bytes(8))[:-1])
    for turn in range(3):
        assert server.is_behind
        assert b"".join(server.outgoing()) == b"".join(answers[turn * AT_ONCE : (turn + 1) * AT_ONCE])
        server.receive(b"")
    assert not server.is_behind
    assert server.outgoing() == []
    server.receive(bytes((len(pings) & 0xFF,)))
    assert server.outgoing() == answers[-1:]


def test_many_streams_are_opened_some_at_a_time() -> None:
    server = greeted()
    ids = range(1, 2 * (2 * STREAMS_AT_ONCE + 1), 2)
    first = server.receive(b"".join(map(opening, ids)))
    assert [event.stream.id for event in first if isinstance(event, RequestReceived)] == [*ids[:STREAMS_AT_ONCE]]
    assert server.is_behind
    assert len(server.receive(b"")) == STREAMS_AT_ONCE
    assert server.is_behind
    assert len(server.receive(b"")) == 1
    assert not server.is_behind
    assert [*server.streams] == [*ids]


def test_an_error_behind_many_frames_is_found_in_its_turn() -> None:
    server = greeted()
    server.receive(f.frame(f.PING, 0, 0, bytes(8)) * AT_ONCE + data(0, b"x"))
    assert server.is_behind
    with pytest.raises(Http2Error) as caught:
        server.receive(b"")
    assert caught.value.code is ErrorCode.PROTOCOL_ERROR

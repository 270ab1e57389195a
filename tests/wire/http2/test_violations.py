"""What a client may not do, and what it is told: an error of the connection, or of one stream."""

from __future__ import annotations

from contextlib import suppress

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.http2.talk import (
    HEAD,
    HELLO,
    REQUEST,
    closed,
    data,
    frames_of,
    greeted,
    message,
    number,
    opened,
    opening,
    settings,
    written,
)
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.frames import ErrorCode, Http2Error
from xds.wire.http2.headers import HEADER_BLOCK_LIMIT, encode
from xds.wire.http2.stream import SKIPPED_RANGES_KEPT, RequestReceived

E = ErrorCode
WHOLE = f.END_HEADERS | f.END_STREAM


def head(*changes: tuple[str, str], without: str = "") -> bytes:
    """A request's head with fields more, or one less."""
    return encode([field for field in REQUEST if field[0] != without] + list(changes))


def announced(content_length: int, *, ends: bool = False) -> bytes:
    """The head of a request on stream 5 that says how long it is."""
    return opening(5, ends=ends, head=head(("content-length", str(content_length))))


CONNECTION_ERRORS = {
    "DATA on the connection": (data(0, b"x"), E.PROTOCOL_ERROR),
    "DATA on a stream that was never opened": (data(9, b"x"), E.PROTOCOL_ERROR),
    "DATA on a stream of the server": (data(2, b"x"), E.PROTOCOL_ERROR),
    "DATA that is all padding": (f.frame(f.DATA, f.PADDED, 1, bytes((5,)) + bytes(4)), E.PROTOCOL_ERROR),
    "DATA padded by nothing": (f.frame(f.DATA, f.PADDED, 1, b""), E.FRAME_SIZE_ERROR),
    "HEADERS on the connection": (opening(0), E.PROTOCOL_ERROR),
    "HEADERS on a stream of the server": (opening(2), E.PROTOCOL_ERROR),
    "HEADERS of a stream that depends on itself": (
        f.frame(f.HEADERS, f.END_HEADERS | f.PRIORITY_GIVEN, 5, bytes((0, 0, 0, 5, 0)) + HEAD),
        E.PROTOCOL_ERROR,
    ),
    "HEADERS with half a priority": (
        f.frame(f.HEADERS, f.END_HEADERS | f.PRIORITY_GIVEN, 5, bytes(4)),
        E.FRAME_SIZE_ERROR,
    ),
    "HEADERS with more padding than payload": (
        f.frame(f.HEADERS, f.END_HEADERS | f.PADDED, 5, b"\xff" + HEAD),
        E.PROTOCOL_ERROR,
    ),
    "HEADERS that are not HPACK": (f.frame(f.HEADERS, f.END_HEADERS, 5, b"\xff" * 6), E.COMPRESSION_ERROR),
    "HEADERS of an unknown index": (f.frame(f.HEADERS, f.END_HEADERS, 5, b"\x80"), E.COMPRESSION_ERROR),
    "HEADERS with a table that is too large": (opening(5, head=b"\x3f\xe2\x1f" + HEAD), E.COMPRESSION_ERROR),
    "HEADERS of nothing but table sizes": (opening(5, head=b"\x20\x3f\xe1\x1f" * 3_000), E.COMPRESSION_ERROR),
    "PRIORITY on the connection": (f.frame(f.PRIORITY, 0, 0, bytes(5)), E.PROTOCOL_ERROR),
    "PRIORITY of a wrong size": (f.frame(f.PRIORITY, 0, 1, bytes(4)), E.FRAME_SIZE_ERROR),
    "RST_STREAM on the connection": (number(f.RST_STREAM, 0, 8), E.PROTOCOL_ERROR),
    "RST_STREAM of a stream that was never opened": (number(f.RST_STREAM, 9, 8), E.PROTOCOL_ERROR),
    "RST_STREAM of a wrong size": (f.frame(f.RST_STREAM, 0, 1, b"123"), E.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (f.frame(f.SETTINGS, 0, 1), E.PROTOCOL_ERROR),
    "SETTINGS of a wrong size": (f.frame(f.SETTINGS, 0, 0, b"12345"), E.FRAME_SIZE_ERROR),
    "SETTINGS ACK with content": (f.frame(f.SETTINGS, f.ACK, 0, bytes(6)), E.FRAME_SIZE_ERROR),
    "too large an initial window": (settings((f.INITIAL_WINDOW_SIZE, 2**31)), E.FLOW_CONTROL_ERROR),
    "too large an initial window, taken back": (
        settings((f.INITIAL_WINDOW_SIZE, 2**31), (f.INITIAL_WINDOW_SIZE, 1)),
        E.FLOW_CONTROL_ERROR,
    ),
    "an initial window that makes another too large": (
        number(f.WINDOW_UPDATE, 1, 2**30) + settings((f.INITIAL_WINDOW_SIZE, 2**31 - 1)),
        E.FLOW_CONTROL_ERROR,
    ),
    "too small a frame size": (settings((f.MAX_FRAME_SIZE, 16_383)), E.PROTOCOL_ERROR),
    "too large a frame size": (settings((f.MAX_FRAME_SIZE, 2**24)), E.PROTOCOL_ERROR),
    "ENABLE_PUSH 2": (settings((f.ENABLE_PUSH, 2)), E.PROTOCOL_ERROR),
    "PUSH_PROMISE": (f.frame(f.PUSH_PROMISE, f.END_HEADERS, 1, bytes(4) + HEAD), E.PROTOCOL_ERROR),
    "PING on a stream": (f.frame(f.PING, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    "PING of a wrong size": (f.frame(f.PING, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (f.frame(f.GOAWAY, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    "GOAWAY of a wrong size": (f.frame(f.GOAWAY, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of nothing": (number(f.WINDOW_UPDATE, 0, 0), E.PROTOCOL_ERROR),
    "WINDOW_UPDATE of too much": (number(f.WINDOW_UPDATE, 0, 2**31 - 1), E.FLOW_CONTROL_ERROR),
    "WINDOW_UPDATE of a wrong size": (f.frame(f.WINDOW_UPDATE, 0, 0, bytes(3)), E.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of a stream that was never opened": (number(f.WINDOW_UPDATE, 9, 1), E.PROTOCOL_ERROR),
    "CONTINUATION of nothing": (f.frame(f.CONTINUATION, f.END_HEADERS, 1, HEAD), E.PROTOCOL_ERROR),
    "CONTINUATION of another stream": (
        f.frame(f.HEADERS, 0, 5, HEAD) + f.frame(f.CONTINUATION, f.END_HEADERS, 7, b""),
        E.PROTOCOL_ERROR,
    ),
    "CONTINUATION without end or content": (
        f.frame(f.HEADERS, 0, 5, HEAD) + f.frame(f.CONTINUATION, 0, 5, b""),
        E.ENHANCE_YOUR_CALM,
    ),
    "DATA amid headers": (f.frame(f.HEADERS, 0, 5, HEAD) + data(1, b"x"), E.PROTOCOL_ERROR),
    "WINDOW_UPDATE amid headers": (f.frame(f.HEADERS, 0, 5, HEAD) + number(f.WINDOW_UPDATE, 0, 1), E.PROTOCOL_ERROR),
    "an unknown frame amid headers": (f.frame(f.HEADERS, 0, 5, HEAD) + f.frame(0xF0, 0, 0), E.PROTOCOL_ERROR),
    "headers without end": (
        f.frame(f.HEADERS, 0, 5, HEAD) + f.frame(f.CONTINUATION, 0, 5, bytes(1_000)) * 20,
        E.ENHANCE_YOUR_CALM,
    ),
    "few bytes that stand for many headers": (
        f.frame(f.HEADERS, f.END_HEADERS, 5, hpack.Encoder().encode([("x", "v" * 4_000)]) + b"\xbe" * 8_000),
        E.ENHANCE_YOUR_CALM,
    ),
    "HEADERS of a stream that was passed over": (opening(9) + opening(5), E.PROTOCOL_ERROR),
    "HEADERS of an older one": (opening(9) + opening(25) + opening(7), E.PROTOCOL_ERROR),
    "too large a frame": (data(1, bytes(f.DEFAULT_MAX_FRAME + 1)), E.FRAME_SIZE_ERROR),
    "too large a frame of no known kind": (f.frame(0xF0, 0, 0, bytes(20_000)), E.FRAME_SIZE_ERROR),
}  # fmt: skip


@pytest.mark.parametrize(("said", "code"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS)
def test_the_connection_ends(said: bytes, code: ErrorCode) -> None:
    server = greeted()
    opened(server, 1, 3)
    with pytest.raises(Http2Error) as caught:
        server.receive(said)
    assert caught.value.code is code
    server.outgoing()
    server.go_away(caught.value.code, caught.value.message)
    (last,) = written(server)
    assert (last.kind, f.LAST_AND_CODE.unpack_from(last.payload)[1]) == (f.GOAWAY, code)


STREAM_ERRORS = {
    "more data than the window allows": (1, data(1, bytes(16_000)) * 5, E.FLOW_CONTROL_ERROR),
    "data behind the end": (1, data(1, message(b"x"), ends=True) + data(1, message(b"y")), E.STREAM_CLOSED),
    "headers behind the end": (1, data(1, b"", ends=True) + f.frame(f.HEADERS, WHOLE, 1, HEAD), E.STREAM_CLOSED),
    "trailers that do not end": (1, f.frame(f.HEADERS, f.END_HEADERS, 1, encode([("x", "y")])), E.PROTOCOL_ERROR),
    "trailers with pseudo headers": (1, f.frame(f.HEADERS, WHOLE, 1, encode([(":path", "/")])), E.PROTOCOL_ERROR),
    "trailers with an odd name": (1, f.frame(f.HEADERS, WHOLE, 1, encode([("X", "y")])), E.PROTOCOL_ERROR),
    "a window that grows by nothing": (1, number(f.WINDOW_UPDATE, 1, 0), E.PROTOCOL_ERROR),
    "too large a window": (1, number(f.WINDOW_UPDATE, 1, 2**31 - 1), E.FLOW_CONTROL_ERROR),
    "a stream that depends on itself": (1, f.frame(f.PRIORITY, 0, 1, bytes((0, 0, 0, 1, 0))), E.PROTOCOL_ERROR),
    "a new stream that depends on itself": (9, f.frame(f.PRIORITY, 0, 9, bytes((0, 0, 0, 9, 0))), E.PROTOCOL_ERROR),
    "no path": (5, opening(5, head=head(without=":path")), E.PROTOCOL_ERROR),
    "an empty path": (5, opening(5, head=head((":path", ""), without=":path")), E.PROTOCOL_ERROR),
    "no method": (5, opening(5, head=head(without=":method")), E.PROTOCOL_ERROR),
    "no scheme": (5, opening(5, head=head(without=":scheme")), E.PROTOCOL_ERROR),
    "a pseudo header twice": (5, opening(5, head=encode([(":path", "/"), *REQUEST])), E.PROTOCOL_ERROR),
    "a pseudo header behind others": (5, opening(5, head=head((":path", "/"), without=":path")), E.PROTOCOL_ERROR),
    "a pseudo header of responses": (5, opening(5, head=encode([(":status", "200"), *REQUEST])), E.PROTOCOL_ERROR),
    "an unknown pseudo header": (5, opening(5, head=encode([(":x", "y"), *REQUEST])), E.PROTOCOL_ERROR),
    "a name in capitals": (5, opening(5, head=head(("X-A", "b"))), E.PROTOCOL_ERROR),
    "an empty name": (5, opening(5, head=head(("", "b"))), E.PROTOCOL_ERROR),
    "a name with a space": (5, opening(5, head=head(("x a", "b"))), E.PROTOCOL_ERROR),
    "a name with a colon": (5, opening(5, head=head(("x:a", "b"))), E.PROTOCOL_ERROR),
    "a name beyond ASCII": (5, opening(5, head=head(("x\xe4", "b"))), E.PROTOCOL_ERROR),
    "a value with a line's end": (5, opening(5, head=head(("x", "a\r\nb: c"))), E.PROTOCOL_ERROR),
    "a value with a zero": (5, opening(5, head=head(("x", "a\0"))), E.PROTOCOL_ERROR),
    "connection: close": (5, opening(5, head=head(("connection", "close"))), E.PROTOCOL_ERROR),
    "te: gzip": (5, opening(5, head=head(("te", "gzip"))), E.PROTOCOL_ERROR),
    "a malformed timeout": (5, opening(5, head=head(("grpc-timeout", "5"))), E.PROTOCOL_ERROR),
    "a timeout without a number": (5, opening(5, head=head(("grpc-timeout", "S"))), E.PROTOCOL_ERROR),
    "a timeout of too many digits": (5, opening(5, head=head(("grpc-timeout", "123456789S"))), E.PROTOCOL_ERROR),
    "a malformed content-length": (5, opening(5, head=head(("content-length", "1x"))), E.PROTOCOL_ERROR),
    "an endless content-length": (5, opening(5, head=head(("content-length", "1" * 40))), E.PROTOCOL_ERROR),
    "two content-lengths": (
        5,
        opening(5, head=head(("content-length", "1"), ("content-length", "2"))),
        E.PROTOCOL_ERROR,
    ),
    "less data than announced": (5, announced(9) + data(5, message(b"x"), ends=True), E.PROTOCOL_ERROR),
    "more data than announced": (5, announced(5) + data(5, message(b"x")), E.PROTOCOL_ERROR),
    "no data although it was announced": (5, announced(6, ends=True), E.PROTOCOL_ERROR),
    "trailers before all that was announced": (
        5,
        announced(7) + data(5, message(b"x")) + f.frame(f.HEADERS, WHOLE, 5, encode([("x", "y")])),
        E.PROTOCOL_ERROR,
    ),
    "a negative timeout": (5, opening(5, head=head(("grpc-timeout", "-1S"))), E.PROTOCOL_ERROR),
}  # fmt: skip


@pytest.mark.parametrize(("stream_id", "said", "code"), STREAM_ERRORS.values(), ids=STREAM_ERRORS)
def test_one_stream_ends_and_the_others_continue(stream_id: int, said: bytes, code: ErrorCode) -> None:
    server = greeted()
    opened(server, 1, 3)
    events = server.receive(said)
    was_open = stream_id == 1 or any(isinstance(event, RequestReceived) for event in events)
    assert closed(events) == ([(stream_id, code)] if was_open else [])
    resets = [(each.stream_id, each.number) for each in written(server) if each.kind == f.RST_STREAM]
    assert resets == [(stream_id, code)]
    assert server.abuse_score > 0
    events = server.receive(data(3, message(b"as before")) + opening(11))
    assert [type(event).__name__ for event in events] == ["MessageReceived", "RequestReceived"]
    server.receive(f.frame(f.PING, 0, 0, b"12345678"))
    assert written(server) == [(f.PING, f.ACK, 0, b"12345678")]


GREETINGS = {
    "HTTP/1.1": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", E.PROTOCOL_ERROR),
    "TLS": (b"\x16\x03\x01\x02\x00\x01", E.PROTOCOL_ERROR),
    "a wrong preface": (f.PREFACE[:-1] + b"x", E.PROTOCOL_ERROR),
    "another frame before SETTINGS": (f.PREFACE + f.frame(f.PING, 0, 0, bytes(8)), E.PROTOCOL_ERROR),
    "DATA before SETTINGS": (f.PREFACE + data(1, b"x"), E.PROTOCOL_ERROR),
    "WINDOW_UPDATE before SETTINGS": (f.PREFACE + number(f.WINDOW_UPDATE, 0, 1), E.PROTOCOL_ERROR),
    "an unknown frame before SETTINGS": (f.PREFACE + f.frame(0xF0, 0, 0), E.PROTOCOL_ERROR),
}


@pytest.mark.parametrize(("said", "code"), GREETINGS.values(), ids=GREETINGS)
def test_malformed_prefaces(said: bytes, code: ErrorCode) -> None:
    with pytest.raises(Http2Error) as caught:
        ServerConnection().receive(said)
    assert caught.value.code is code


def test_unusual_frames_that_are_valid_are_accepted() -> None:
    """The client could not know that the stream has ended; and what it may send at any time."""
    server = greeted()
    (stream,) = opened(server, 1)
    server.end(stream, 0)
    server.outgoing()
    late = data(1, b"x" * 100) + number(f.WINDOW_UPDATE, 1, 5) + number(f.RST_STREAM, 1, 0)
    always = f.frame(f.PRIORITY, 0, 9, bytes(5)) + f.frame(f.PING, f.ACK, 0, bytes(8)) + f.frame(f.SETTINGS, f.ACK, 0)
    assert server.receive(late + always) == []
    assert written(server) == []
    server.receive(f.frame(f.HEADERS, WHOLE, 1, encode([("x", "late trailers")])))
    assert [(each.kind, each.number) for each in written(server)] == [(f.RST_STREAM, E.STREAM_CLOSED)]


def test_a_content_length_that_is_true_is_allowed() -> None:
    """Padding counts for the windows, not for the content."""
    server = greeted()
    padded = f.frame(f.DATA, f.PADDED, 5, bytes((3,)) + message(b"x") + bytes(3))
    events = server.receive(announced(18) + data(5, message(b"x")) + padded + data(5, message(b"z"), ends=True))
    assert [type(event).__name__ for event in events] == [
        "RequestReceived",
        "MessageReceived",
        "MessageReceived",
        "MessageReceived",
        "StreamEnded",
    ]
    assert not [each for each in written(server) if each.kind == f.RST_STREAM]


def test_only_so_many_gaps_between_streams_are_remembered() -> None:
    server = greeted()
    numbers = range(1, 4 * SKIPPED_RANGES_KEPT + 9, 4)
    opened(server, *numbers)
    server.receive(opening(3))  # forgotten: it counts as one that has ended
    assert [each.number for each in written(server) if each.kind == f.RST_STREAM] == [E.STREAM_CLOSED]
    with pytest.raises(Http2Error):
        server.receive(opening(numbers[-1] - 2))


def test_the_preface_is_sent_before_anything_is_received() -> None:
    server = ServerConnection()
    server.trust()
    first, second = frames_of(b"".join(server.outgoing()))
    assert (first.kind, second.kind) == (f.SETTINGS, f.WINDOW_UPDATE)
    told = dict(f.SETTING.iter_unpack(first.payload))
    assert told == {f.MAX_CONCURRENT_STREAMS: 100_000, f.MAX_HEADER_LIST_SIZE: HEADER_BLOCK_LIMIT}
    assert server.receive(HELLO) == []
    assert written(server) == [(f.SETTINGS, f.ACK, 0, b"")]


def test_events_before_an_error_are_returned() -> None:
    """A stream that was reset is in no list any more: its call would go on for ever."""
    server = greeted()
    opened(server, 1)
    with pytest.raises(Http2Error) as caught:
        server.receive(number(f.RST_STREAM, 1, 8) + data(0, b"x"))
    assert closed(caught.value.events) == [(1, 8)]


def test_an_error_does_not_repeat_received_text() -> None:
    server = greeted()
    with pytest.raises(Http2Error) as caught:
        server.receive(opening(1, head=b"\x00\x7f" + b"\xff" * 10_000))
    assert len(str(caught.value)) < 200


frames = st.builds(
    f.frame,
    st.sampled_from([*range(11), 0xF0]),
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1, 2**32 - 1]),
    st.one_of(st.binary(max_size=40), st.just(HEAD), st.builds(message, st.binary(max_size=20))),
)


@given(
    st.lists(st.one_of(frames, st.binary(max_size=20), st.builds(opening, st.sampled_from([1, 3, 5, 7]))), max_size=30)
)
def test_any_bytes_are_parsed_or_refused(said: list[bytes]) -> None:
    server = greeted()
    opened(server, 1)
    try:
        for each in said:
            server.receive(each)
    except Http2Error as error:
        server.go_away(error.code, error.message)
    for frame in written(server):
        assert len(frame.payload) <= f.DEFAULT_MAX_FRAME


@given(st.binary(max_size=200))
def test_any_header_block_is_parsed_or_refused(block: bytes) -> None:
    server = greeted()
    with suppress(Http2Error):
        server.receive(opening(1, head=block))

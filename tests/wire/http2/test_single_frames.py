"""A read that is one frame with one message, and a message that is written as one frame, take a way of their own.

Whatever the client says in whatever pieces, and whatever the server does meanwhile, both ways come to the same: two
connections are told the same, and one of them never takes the short way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.http2.talk import HEAD, HELLO, REQUEST, data, greeted, in_frames, message, number, opened, opening
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.frames import ErrorCode, Http2Error
from xds.wire.http2.headers import encode
from xds.wire.http2.messages import GrpcMessage
from xds.wire.http2.stream import Http2Event, Http2Limits, MessageReceived, Stream

LIMITS = Http2Limits(
    streams=3,
    message_bytes=20_000,
    frames_at_once=8,
    streams_at_once=2,
    small_paths=("/small/",),
    small_message_bytes=2,
)
IDS = (1, 1, 1, 3, 5)
SMALL_MESSAGES = encode((*REQUEST[:2], (":path", "/small/M"), *REQUEST[3:]))
WITH_LENGTH = HEAD + encode((("content-length", "25"),))


def setting(window: int) -> bytes:
    """SETTINGS with this initial window."""
    return f.frame(f.SETTINGS, 0, 0, f.SETTING.pack(f.INITIAL_WINDOW_SIZE, window))


class Side:
    """A connection, and what it told so far."""

    def __init__(self, *, is_short: bool) -> None:
        self.server = ServerConnection(LIMITS)
        self.streams: dict[int, Stream] = {}
        self.told: list[object] = []
        self.short_reads = self.short_writes = 0
        self._is_short = is_short

    def receive(self, read: bytes) -> None:
        try:
            events = self._events(read)
        except Http2Error as error:
            self._tell(error.events)
            self.told.append((error.code, error.message))
            self.server.go_away(error.code, error.message)
        else:
            self._tell(events)

    def _events(self, read: bytes) -> list[Http2Event]:
        single = self.server.receive_message(read) if self._is_short else None
        if single is None:
            return self.server.receive(read)
        self.short_reads += 1
        stream, body = single
        return [MessageReceived(stream, GrpcMessage(False, body))]

    def _tell(self, events: object) -> None:
        for event in events if isinstance(events, list) else ():
            self.streams[event.stream.id] = event.stream
            self.told.append((type(event), event.stream.id, [repr(each) for each in event[1:]]))

    def send(self, stream: Stream, body: bytes) -> bool:
        frame = self.server.take_frames(stream, body) if self._is_short else None
        if frame is None:
            return self.server.send_now(stream, body)
        assert not self.server.outgoing()
        self.short_writes += 1
        self.told.append(frame)
        return True

    def flush(self) -> None:
        self.told += [bytes(each) for each in self.server.outgoing()]

    def state(self) -> object:
        server = self.server
        streams = [
            (each.id, each.window, each.send_window, each.uncredited, each.precredited, each.unread, each.half_closed)
            for each in server.streams.values()
        ]
        return streams, server.abuse_score, server.is_behind, server.is_going_away


def on(side: Side, stream_id: int, act: Callable[[Stream], object]) -> object:
    """Act on a stream, if it is open."""
    stream = side.server.streams.get(stream_id)
    return act(stream) if stream is not None else None


def consume(side: Side, stream_id: int) -> None:
    on(side, stream_id, lambda stream: side.server.consumed(stream) if stream.unread else None)


SMALL, LARGEST = message(b"ack"), message(bytes(f.DEFAULT_MAX_FRAME - 5))
READS = (
    data(1, SMALL),
    data(1, message(b"")),
    data(1, LARGEST),
    data(1, LARGEST[:5] + LARGEST[6:]),
    f.frame(f.DATA, 0, 1, message(bytes(f.DEFAULT_MAX_FRAME - 4))),
    data(1, SMALL, ends=True),
    data(1, b"\1" + SMALL[1:]),
    data(1, b"\2" + SMALL[1:]),
    data(1, SMALL[:-1]),
    data(1, SMALL + b"x"),
    data(1, SMALL[:5]),
    data(1, SMALL * 2),
    data(1, SMALL)[:-1],
    data(1, SMALL) + b"\0",
    data(1, SMALL) * 2,
    data(0, SMALL),
    data(2, SMALL),
    data(3, SMALL),
    data(9, SMALL),
    f.frame(f.DATA, 0, 1 << 31 | 1, SMALL),
    f.frame(f.DATA, f.PADDED, 1, b"\2" + SMALL + b"\0\0"),
    f.frame(f.HEADERS, 0, 1, SMALL),
    f.frame(0xF0, 0, 1, SMALL),
)
Step = tuple[str, object]
OPEN: tuple[Step, ...] = (("read", HELLO + opening(1)), ("flush", None), ("send", (1, b"first")), ("flush", None))
FULL = data(1, LARGEST) * 3
STATES: dict[str, tuple[Step, ...]] = {
    "open": OPEN,
    "no settings": (("read", f.PREFACE),),
    "nothing flushed": (("read", HELLO + opening(1)),),
    "half closed": (*OPEN, ("read", data(1, b"", ends=True))),
    "ended with data that waits": (*OPEN, ("send long", 1), ("send long", 1), ("end", 1), ("flush", None)),
    "reset": (*OPEN, ("reset", 1), ("flush", None)),
    "within a message": (*OPEN, ("read", data(1, SMALL[:3]))),
    "within a long message": (*OPEN, ("read", data(1, LARGEST[:9]))),
    "within a frame": (*OPEN, ("read", data(1, SMALL)[:4])),
    "within headers": (*OPEN, ("read", f.frame(f.HEADERS, 0, 3, HEAD))),
    "a content length": (("read", HELLO + opening(1, head=WITH_LENGTH)), ("flush", None)),
    "a smaller limit": (("read", HELLO + opening(1, head=SMALL_MESSAGES)), ("flush", None)),
    "a message waits": (*OPEN, ("read", data(1, SMALL))),
    "a small window": (*OPEN, ("trust", None), ("flush", None), ("read", FULL)),
    "a used window": (*OPEN, ("trust", None), ("flush", None), ("read", FULL + data(1, LARGEST[:5] + bytes(16_374)))),
    "a small window of all": (*OPEN, ("read", opening(3)), ("flush", None), ("read", data(3, LARGEST) * 3)),
    "small windows of the client": (("read", HELLO + opening(1) + setting(6)), ("send", (1, b"")), ("flush", None)),
    "a blocked response": (*OPEN, ("send long", 1), ("flush", None), ("send long", 1), ("flush", None)),
    "going away": (*OPEN, ("go away", None), ("flush", None)),
}  # fmt: skip
SHORT_STATES = {
    "a smaller limit",
    "open", "nothing flushed", "a message waits", "a small window", "a small window of all",
    "small windows of the client", "a blocked response", "going away",
}  # fmt: skip

bodies = st.one_of(st.binary(max_size=30), st.integers(0, 21_000).map(bytes))
ids = st.sampled_from(IDS)
said = st.one_of(
    st.sampled_from(READS),
    st.builds(lambda stream_id, body, ends: data(stream_id, message(body), ends=ends), ids, bodies, st.booleans()),
    st.builds(data, ids, st.binary(max_size=12)),
    st.builds(opening, ids),
    st.builds(lambda stream_id: opening(stream_id, head=WITH_LENGTH), ids),
    st.builds(lambda stream_id: f.frame(f.CONTINUATION, f.END_HEADERS, stream_id), ids),
    st.builds(
        lambda stream_id, size: number(f.WINDOW_UPDATE, stream_id, size),
        st.sampled_from((0, *IDS)),
        st.integers(0, 70_000),
    ),
    st.builds(partial(number, f.RST_STREAM), ids, st.just(8)),
    st.builds(setting, st.integers(0, 70_000)),
    st.just(f.frame(f.PING, 0, 0, bytes(8))),
    st.binary(max_size=20),
)
steps = st.one_of(
    st.tuples(st.just("read"), st.builds(lambda stream_id, body: data(stream_id, message(body)), ids, bodies)),
    st.tuples(st.just("read"), st.lists(said, min_size=1, max_size=3).map(b"".join)),
    st.tuples(st.just("halves"), st.tuples(said, st.integers(1, 40))),
    st.tuples(st.just("consume"), ids),
    st.tuples(st.just("send"), st.tuples(ids, bodies)),
    st.tuples(st.sampled_from(("send long", "end", "reset")), ids),
    st.tuples(st.sampled_from(("flush", "trust", "go away")), st.none()),
)


def take(side: Side, kind: str, what: object) -> None:
    """One step of a connection."""
    server = side.server
    match kind, what:
        case "read", bytes(read):
            side.receive(read)
        case "halves", (bytes(read), int(size)):
            side.receive(read[:size])
            side.receive(read[size:])
        case "consume", int(stream_id):
            consume(side, stream_id)
        case "send", (int(stream_id), bytes(body)):
            side.told.append(on(side, stream_id, lambda stream: side.send(stream, body)))
        case "send long", int(stream_id):
            on(side, stream_id, lambda stream: server.send_message(stream, bytes(40_000)))
        case "end", int(stream_id):
            on(side, stream_id, lambda stream: server.end(stream, 0))
        case "reset", int(stream_id):
            on(side, stream_id, lambda stream: server.reset(stream, ErrorCode.CANCEL))
        case "trust", _ if not server.is_trusted:
            side._tell(server.trust())
        case "go away", _:
            server.go_away()
        case "flush", _:
            side.flush()


def take_all(*scripts: Iterable[Step]) -> Side:
    """Both ways of these steps; the side of the short one."""
    short, long = Side(is_short=True), Side(is_short=False)
    for kind, what in chain(*scripts):
        if not any(isinstance(each, tuple) and isinstance(each[0], ErrorCode) for each in short.told):
            take(short, kind, what)
            take(long, kind, what)
            assert short.state() == long.state()
    short.flush()
    long.flush()
    for of in (bytes, (tuple, bool, type(None))):  # a frame that is taken is not behind later events
        assert _of(short, of) == _of(long, of)
    assert not long.short_reads and not long.short_writes
    return short


def _of(side: Side, types: Any) -> object:
    told = [each for each in side.told if isinstance(each, types)]
    return b"".join(told) if types is bytes else told


@pytest.mark.parametrize("state", STATES)
def test_each_read_has_the_same_effect_in_each_state(state: str) -> None:
    after: list[Step] = [("send", (1, b"answer")), ("consume", 1), ("flush", None), ("consume", 1), ("send", (1, b""))]
    sides = [take_all(STATES[state], [("read", read)], after) for read in READS]
    assert any(side.short_reads for side in sides) is (state in SHORT_STATES)


@settings(max_examples=300)
@given(st.sampled_from(list(STATES)), st.lists(steps, max_size=30))
def test_the_short_way_has_the_same_effect(state: str, script: list[Step]) -> None:
    take_all(STATES[state], script)


def test_an_ack_and_a_small_response_take_the_short_way() -> None:
    """And what the short way did not take is left for the long one."""
    server = greeted()
    (stream,) = opened(server, 1)
    assert server.take_frames(stream, b"first") is None, "the headers come first"
    assert server.send_now(stream, b"first")
    assert server.take_frames(stream, b"second") is None, "another frame waits to be written"
    server.outgoing()
    assert server.take_frames(stream, b"third") == data(1, message(b"third"))
    assert server.receive_message(data(1, message(b"ack"))) == (stream, b"ack")
    assert server.receive_message(data(1, message(b"ack")) * 2) is None
    assert server.receive_message(data(1, message(b"ack"), ends=True)) is None
    assert server.receive_message(data(3, message(b"ack"))) is None
    assert stream.unread == 1


@pytest.mark.parametrize("size", [f.DEFAULT_MAX_FRAME - 5, f.DEFAULT_MAX_FRAME - 4, 60_000])
def test_a_long_message_is_framed_once_for_all_streams(size: int) -> None:
    """As it is framed where it waits for the window of the client."""
    body = bytes(size)
    framed = []
    for _ in range(2):
        server = greeted()
        (stream,) = opened(server, 1)
        server.send_head(stream)
        server.outgoing()
        framed.append(server.take_frames(stream, body))
        assert stream.send_window == f.DEFAULT_WINDOW - len(message(body))
        assert server.take_frames(stream, bytes(stream.send_window - 4)) is None, "longer than the window"
    assert framed[0] == b"".join(in_frames(1, message(body)))
    assert framed[0] is framed[1] or size < f.DEFAULT_MAX_FRAME - 4

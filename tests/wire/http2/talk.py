"""What the tests say to a `ServerConnection`, and how they read what it says: frame by frame, or through hyper-h2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.headers import encode
from xds.wire.http2.messages import prefix
from xds.wire.http2.stream import (
    DEFAULT_LIMITS,
    Http2Event,
    Http2Limits,
    MessageReceived,
    RequestReceived,
    Stream,
    StreamReset,
)

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/M"),
    (":authority", "a"),
    ("content-type", "application/grpc"),
)
HEAD = encode(REQUEST)
HELLO = f.PREFACE + f.frame(f.SETTINGS, 0, 0)


class Frame(NamedTuple):
    """A frame that was sent."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def number(self) -> int:
        """Of WINDOW_UPDATE and RST_STREAM."""
        return int.from_bytes(self.payload[:4], "big")


def frames_of(data: bytes) -> Iterator[Frame]:
    """The frames in bytes that end with a frame."""
    at = 0
    while at < len(data):
        length_and_kind, flags, stream_id = f.HEADER.unpack_from(data, at)
        at += f.FRAME_HEADER_BYTES + (length_and_kind >> 8)
        assert at <= len(data), "half a frame"
        yield Frame(length_and_kind & 0xFF, flags, stream_id, data[at - (length_and_kind >> 8) : at])


def outgoing(server: ServerConnection) -> bytes:
    return b"".join(server.outgoing())


def written(server: ServerConnection) -> list[Frame]:
    """The frames that are to be written."""
    return list(frames_of(outgoing(server)))


def settings(*pairs: tuple[int, int]) -> bytes:
    return f.frame(f.SETTINGS, 0, 0, b"".join(f.SETTING.pack(*pair) for pair in pairs))


def number(kind: int, stream_id: int, value: int) -> bytes:
    """WINDOW_UPDATE or RST_STREAM."""
    return f.frame(kind, 0, stream_id, f.NUMBER.pack(value))


def opening(stream_id: int = 1, *, ends: bool = False, head: bytes = HEAD) -> bytes:
    """The head of a request."""
    return f.frame(f.HEADERS, f.END_HEADERS | (f.END_STREAM if ends else 0), stream_id, head)


def data(stream_id: int, payload: bytes, *, ends: bool = False) -> bytes:
    return f.frame(f.DATA, f.END_STREAM if ends else 0, stream_id, payload)


def message(body: bytes) -> bytes:
    """As it stands in DATA."""
    return prefix(len(body)) + body


def in_frames(stream_id: int, body: bytes, size: int = f.DEFAULT_MAX_FRAME) -> Iterator[bytes]:
    """DATA frames that carry the bytes."""
    for at in range(0, len(body), size):
        yield data(stream_id, body[at : at + size])


def greeted(limits: Http2Limits = DEFAULT_LIMITS, *pairs: tuple[int, int]) -> ServerConnection:
    """A connection whose greetings are exchanged."""
    server = ServerConnection(limits)
    server.trust()
    server.receive(f.PREFACE + settings(*pairs))
    server.outgoing()
    return server


def receive(server: ServerConnection, said: bytes) -> list[Http2Event]:
    """What these bytes bring, however many frames they are."""
    events = server.receive(said)
    while server.is_behind:
        events += server.receive(b"")
    return events


def opened(server: ServerConnection, *stream_ids: int) -> list[Stream]:
    """Open these streams."""
    events = receive(server, b"".join(map(opening, stream_ids)))
    assert [type(event) for event in events] == [RequestReceived] * len(stream_ids)
    return [event.stream for event in events]


def bodies(events: Iterable[Http2Event], stream_id: int = 1) -> list[bytes]:
    """The messages of a stream among events."""
    return [
        event.message.data for event in events if isinstance(event, MessageReceived) and event.stream.id == stream_id
    ]


def closed(events: Iterable[Http2Event]) -> list[tuple[int, int]]:
    """Streams that are closed, and with which code."""
    return [(event.stream.id, event.code) for event in events if isinstance(event, StreamReset)]


class Talk:
    """hyper-h2 as the client of a server in memory; it raises for whatever the server may not do."""

    def __init__(self, limits: Http2Limits = DEFAULT_LIMITS, **values: int) -> None:
        self.server = ServerConnection(limits)
        self.server.trust()
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.heard: list[Http2Event] = []
        self.answered: list[Any] = []
        self.client.initiate_connection()
        if values:
            self.client.update_settings({SettingCodes[name]: value for name, value in values.items()})
        self.exchange()

    def exchange(self) -> None:
        """Carry all bytes there and back until nobody has more to say."""
        while True:
            there = self.client.data_to_send()
            if there:
                self.heard += self.server.receive(there)
            back = outgoing(self.server)
            if back:
                self.answered += self.client.receive_data(back)
            if not there and not back:
                return

    def open(self, stream_id: int = 1, *more: tuple[str, str], ends: bool = False) -> Stream:
        """Open a stream; as the server sees it."""
        self.client.send_headers(stream_id, [*REQUEST, *more], end_stream=ends)
        self.exchange()
        return next(
            event.stream for event in self.heard if isinstance(event, RequestReceived) and event.stream.id == stream_id
        )

    def send(self, stream_id: int, payload: bytes, *, ends: bool = False, pad: int | None = None) -> None:
        """As much as h2 may send at once."""
        self.client.send_data(stream_id, payload, end_stream=ends, pad_length=pad)
        self.exchange()

    def received(self, kind: type) -> list[Any]:
        """What the client was told."""
        return [event for event in self.answered if isinstance(event, kind)]

"""The events of a client's connection, and its limits; the bytes of frames are those of `xds.wire.http2.frames`."""

from __future__ import annotations

from typing import NamedTuple

# What Envoy grants its peers: initial_stream_window_size and initial_connection_window_size.
GENEROUS_WINDOW = 256 << 20
MAX_HEADER_BLOCK = 256 << 10


class Http2Error(Exception):
    """The peer broke the protocol; the connection is of no use any more."""


class Data(NamedTuple):
    """``data[start:end]`` belongs to the body of the stream."""

    stream_id: int
    data: bytes
    start: int
    end: int


class Headers(NamedTuple):
    """Response headers or trailers."""

    stream_id: int
    fields: dict[str, str]


class Ended(NamedTuple):
    """No more comes on this stream: ``reset`` is None after END_STREAM, else the error code of RST_STREAM."""

    stream_id: int
    reset: int | None


class GoneAway(NamedTuple):
    """The peer takes no further streams, and has not touched those above ``last_stream_id``."""

    last_stream_id: int
    code: int
    reason: bytes


Event = Data | Headers | Ended | GoneAway


def unpadded(payload: bytes) -> bytes:
    """The payload of a frame with the PADDED flag without its padding."""
    if payload[0] >= len(payload):
        raise Http2Error("more padding than payload")
    return payload[1 : len(payload) - payload[0]]

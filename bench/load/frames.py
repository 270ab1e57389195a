"""HTTP/2 as bytes and values: frames, header blocks of requests, and what a connection tells (RFC 9113, RFC 7541)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW = 65_535
DEFAULT_MAX_FRAME = 16_384
# What Envoy grants its peers: initial_stream_window_size and initial_connection_window_size.
GENEROUS_WINDOW = 256 << 20
MAX_HEADER_BLOCK = 256 << 10
MAX_WINDOW = 2**31 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_GIVEN = 0x1, 0x1, 0x4, 0x8, 0x20
ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 0x2, 0x3, 0x4, 0x5

HEADER = struct.Struct(">IBI")  # length and type, flags, stream
SETTING = struct.Struct(">HI")
NUMBER = struct.Struct(">I")


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


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """A whole frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def header_block(fields: Iterable[tuple[str, str]]) -> bytes:
    """Header fields as literals that enter no table, so that one block serves every connection."""
    block = bytearray()
    for pair in fields:
        block.append(0)
        for part in pair:
            block += _string(part.encode())
    return bytes(block)


def _string(data: bytes) -> bytes:
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    size -= 127
    length = bytearray((127,))
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*length, size)) + data


def unpadded(payload: bytes) -> bytes:
    """The payload of a frame with the PADDED flag without its padding."""
    if payload[0] >= len(payload):
        raise Http2Error("more padding than payload")
    return payload[1 : len(payload) - payload[0]]

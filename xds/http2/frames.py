"""HTTP/2 frames as bytes (RFC 9113, sections 4, 6 and 7)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW = 65_535
DEFAULT_MAX_FRAME = 16_384
DEFAULT_HEADER_TABLE = 4_096
LARGEST_MAX_FRAME = 2**24 - 1
MAX_WINDOW = 2**31 - 1
UNRESERVED = 2**31 - 1  # the bits of a stream's number, or of what a window grows by: the first one is reserved
PRIORITY_BYTES = 5

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_GIVEN = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE = 0x6

HEADER = struct.Struct(">IBI")  # length and type, flags, stream
SETTING = struct.Struct(">HI")
NUMBER = struct.Struct(">I")
LAST_AND_CODE = struct.Struct(">II")


class ErrorCode(IntEnum):
    """RFC 9113, section 7."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Http2Error(Exception):
    """The peer broke the protocol: the connection is of no use any more."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.events: Sequence[Any] = ()  # what the bytes before it brought


class StreamError(Exception):
    """The peer broke the protocol on one stream, which is to be reset; the connection goes on."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def check_stream(stream_id: int) -> None:
    """Of frames that belong to a stream."""
    if not stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame of a stream on the connection")


def check_connection(stream_id: int) -> None:
    """Of frames that belong to the connection."""
    if stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame of the connection on stream {stream_id}")


def check_size(payload: bytes, size: int) -> None:
    """Of frames that have one size."""
    if len(payload) != size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"{len(payload)} bytes where {size} must be")


def parent_of(priority: bytes) -> int:
    """The stream that one is said to depend on, by the payload of PRIORITY or what HEADERS have of it."""
    return int(NUMBER.unpack_from(priority)[0]) & UNRESERVED


def unpadded(payload: bytes) -> bytes:
    """The payload of a frame with the PADDED flag without its padding."""
    if not payload:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
    if payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]

"""HTTP/2 frames as bytes: constants, errors, encoding and checks (RFC 9113, sections 4, 6 and 7)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TLS_HANDSHAKE = b"\x16"  # the content type of the first TLS record (RFC 8446 5.1)
SPEAKS_TLS = "the client speaks TLS, and this port does not"
FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW = 65_535
DEFAULT_MAX_FRAME = 16_384
DEFAULT_HEADER_TABLE = 4_096
LARGEST_MAX_FRAME = 2**24 - 1
MAX_WINDOW = 2**31 - 1
UNRESERVED = 2**31 - 1  # mask of a stream id or a window increment: the first bit is reserved
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
    """The peer violated the protocol: the connection must be closed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.events: Sequence[Any] = ()  # events of the bytes before the error


class StreamError(Exception):
    """The peer violated the protocol on one stream: the stream must be reset, the connection continues."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def check_stream(stream_id: int) -> None:
    """Check the id of a frame that must belong to a stream. Raises ``Http2Error``."""
    if not stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a stream frame on stream 0")


def check_connection(stream_id: int) -> None:
    """Check the id of a frame that must belong to the connection. Raises ``Http2Error``."""
    if stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a connection frame on stream {stream_id}")


def check_size(payload: bytes, size: int) -> None:
    """Check the payload of a frame of fixed size. Raises ``Http2Error``."""
    if len(payload) != size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a payload of {len(payload)} bytes instead of {size}")


def parent_of(priority: bytes) -> int:
    """The id of the parent stream in the priority fields of a PRIORITY or HEADERS frame."""
    return int(NUMBER.unpack_from(priority)[0]) & UNRESERVED


def unpadded(payload: bytes) -> bytes:
    """The payload of a padded frame without its padding. Raises ``Http2Error``."""
    if not payload:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
    if payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]

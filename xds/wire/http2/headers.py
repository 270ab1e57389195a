"""Header fields and header blocks of requests and responses (RFC 9113 section 8, RFC 7541, gRPC over HTTP/2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from sys import intern
from typing import NamedTuple
from urllib.parse import quote

from hpack import Decoder, HPACKError, OversizedHeaderListError

from xds.wire.http2 import frames
from xds.wire.http2.frames import ErrorCode, Http2Error, StreamError

Fields = Sequence[tuple[str, str]]

CONTENT_TYPE = "application/grpc"
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
# RFC 9113 8.2.2: "connection-specific header fields".
_FORBIDDEN = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"})
# Fields of the gRPC transport, which are not passed to handlers.
_OWN = frozenset({"content-type", "te", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding"})
# RFC 9113 8.2.1.
_NAME = re.compile(r"[!-9;-@\[-~]+")
_NOT_IN_VALUES = re.compile(r"[\0\r\n]")
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT_DIGITS = 8
_LENGTH_DIGITS = 18
# Characters that gRPC's percent-encoding leaves as they are: printable ASCII except "%".
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class RequestHead(NamedTuple):
    """The head of a request. ``metadata`` are the fields that are neither HTTP/2's nor gRPC's own."""

    method: str
    path: str
    content_type: str
    timeout_s: float | None
    encoding: str
    metadata: tuple[tuple[str, str], ...]
    content_length: int | None = None


def read_request(fields: Iterable[tuple[str, str]]) -> RequestHead:
    """Raises ``StreamError`` for a malformed request (RFC 9113 8.1.1)."""
    pseudo: dict[str, str] = {}
    regular: list[tuple[str, str]] = []
    for name, value in fields:
        if name.startswith(":"):
            if regular or name in pseudo or name not in _PSEUDO:
                raise _malformed(f"the pseudo header {name}")
            pseudo[name] = value
        else:
            _check_field(name, value)
            regular.append((name, value))
    if not (pseudo.get(":method") and pseudo.get(":scheme") and pseudo.get(":path")):
        raise _malformed("a pseudo header is missing")
    by_name = dict(regular)
    timeout = by_name.get("grpc-timeout")
    return RequestHead(
        pseudo[":method"],
        intern(pseudo[":path"]),  # many streams have it for as long as they are open
        by_name.get("content-type", ""),
        read_timeout(timeout) if timeout is not None else None,
        by_name.get("grpc-encoding", "identity"),
        tuple(field for field in regular if field[0] not in _OWN),
        _content_length(regular) if "content-length" in by_name else None,
    )


def _content_length(fields: Iterable[tuple[str, str]]) -> int:
    """The content-length, in which repeated fields must agree (RFC 9110 8.6). Raises ``StreamError``."""
    values = {value for name, value in fields if name == "content-length"}
    value = values.pop()
    if values or not value.isascii() or not value.isdigit() or len(value) > _LENGTH_DIGITS:
        raise _malformed("the content-length")
    return int(value)


def check_trailers(fields: Iterable[tuple[str, str]]) -> None:
    """Raises ``StreamError`` for malformed trailers: pseudo headers, or fields that no header may have."""
    for name, value in fields:
        if name.startswith(":"):
            raise _malformed(f"the pseudo header {name} in trailers")
        _check_field(name, value)


def _check_field(name: str, value: str) -> None:
    if name in _FORBIDDEN or (name == "te" and value != "trailers"):
        raise _malformed(f"the header {name}")
    if not _NAME.fullmatch(name):
        raise _malformed(f"the header name {name!r}")
    if _NOT_IN_VALUES.search(value):
        raise _malformed(f"the value of the header {name}")


def _malformed(part: str) -> StreamError:
    return StreamError(ErrorCode.PROTOCOL_ERROR, f"malformed request: {part}")


def read_timeout(value: str) -> float:
    """The seconds of a ``grpc-timeout``. Raises ``StreamError``."""
    digits, unit = value[:-1], value[-1:]
    if unit not in _SECONDS or not digits.isascii() or not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS:
        raise _malformed(f"grpc-timeout {value!r}")
    return int(digits) * _SECONDS[unit]


def encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """Encode header fields as literals without the dynamic table: the bytes are the same for every connection."""
    block = bytearray()
    for pair in fields:
        block.append(0)  # RFC 7541 6.2.2: "Literal Header Field without Indexing", its name a literal too
        for part in pair:
            block += _string(part.encode())
    return bytes(block)


def trailers(status: int, message: str, metadata: Fields = (), *, only: bool) -> bytes:
    """The header block that ends a call. ``only``: no headers were sent before ("Trailers-Only")."""
    fields: list[tuple[str, str]] = [("grpc-status", str(status))]
    if message:
        fields.append(("grpc-message", quote(message, safe=_PLAIN, errors="replace")))
    fields += metadata
    return (RESPONSE_HEAD if only else b"") + encode(fields)


class HeaderTable(NamedTuple):
    """The dynamic table of a connection between two header blocks (RFC 7541 2.3.2): its entries, the newest first.

    It is kept instead of a decoder, because connections of a fleet have equal tables, which can be shared.
    """

    entries: tuple[tuple[bytes, bytes], ...] = ()
    size: int = frames.DEFAULT_HEADER_TABLE


EMPTY_TABLE = HeaderTable()
ShareTable = Callable[[HeaderTable], HeaderTable]  # returns an equal table


def keep_table(table: HeaderTable) -> HeaderTable:
    """The table itself: a `ShareTable` that shares nothing."""
    return table


def decode(table: HeaderTable, block: bytes) -> tuple[list[tuple[str, str]], HeaderTable]:
    """The fields of a header block, and the table after it. Raises ``Http2Error``."""
    _check_updates(block)
    decoder = _decoder(table)
    try:
        decoded = decoder.decode(block, raw=True)
    except OversizedHeaderListError as error:
        raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "the header list is too long") from error
    except HPACKError as error:
        # The error message may contain everything that the client sent.
        raise Http2Error(ErrorCode.COMPRESSION_ERROR, type(error).__name__) from error
    fields = [(str(name, "latin-1"), str(value, "latin-1")) for name, value in decoded]
    return fields, HeaderTable(tuple(decoder.header_table.dynamic_entries), decoder.header_table_size)


def _decoder(table: HeaderTable) -> Decoder:
    decoder = Decoder(HEADER_BLOCK_LIMIT)
    decoder.header_table_size = table.size
    for name, value in reversed(table.entries):
        decoder.header_table.add(name, value)
    return decoder


def _check_updates(block: bytes) -> None:
    """A header block begins with at most two table size updates (RFC 7541 4.2). Raises ``Http2Error`` for more."""
    at = updates = 0
    while at < len(block) and block[at] & 0xE0 == 0x20:  # 001, and five bits of the size
        updates += 1
        if updates > 2:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, "too many table size updates in a header block")
        continues = block[at] & 0x1F == 0x1F
        at += 1
        while continues and at < len(block):
            continues = block[at] >= 0x80
            at += 1


def _string(data: bytes) -> bytes:
    """A string literal without Huffman coding (RFC 7541 5.2), behind its length with a 7-bit prefix (5.1)."""
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    size -= 127
    length = bytearray((127,))
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*length, size)) + data


RESPONSE_HEAD = encode(
    ((":status", "200"), ("content-type", CONTENT_TYPE), ("grpc-accept-encoding", "identity,deflate,gzip"))
)
"""The header block of a gRPC response, without metadata."""


HEADER_BLOCK_LIMIT = 16 << 10  # the limit of gRPC's C core; decoding this much takes some 10 ms


class HeaderBlock:
    """A header block: a HEADERS frame and its CONTINUATION frames. ``data`` can be decoded when it ``is_complete``."""

    __slots__ = ("data", "ends_stream", "is_complete", "stream_id")

    def __init__(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The payload of a HEADERS frame. Raises ``Http2Error``."""
        if not stream_id % 2:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"headers on stream {stream_id}")
        self.stream_id = stream_id
        self.ends_stream = bool(flags & frames.END_STREAM)
        self.is_complete = bool(flags & frames.END_HEADERS)
        payload = frames.unpadded(payload) if flags & frames.PADDED else payload
        self.data = bytearray(_without_priority(stream_id, payload) if flags & frames.PRIORITY_GIVEN else payload)

    def extend(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Add the payload of a CONTINUATION frame. Raises ``Http2Error``."""
        if stream_id != self.stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"CONTINUATION on stream {stream_id}")
        self.is_complete = bool(flags & frames.END_HEADERS)
        if not payload and not self.is_complete:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "an empty CONTINUATION")
        self.data += payload
        if len(self.data) > HEADER_BLOCK_LIMIT:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "the header block is too long")


def _without_priority(stream_id: int, payload: bytes) -> bytes:
    if len(payload) < frames.PRIORITY_BYTES:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "headers without their announced priority")
    if frames.parent_of(payload) == stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")
    return payload[frames.PRIORITY_BYTES :]

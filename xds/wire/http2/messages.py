"""gRPC messages in the DATA of a stream: a flag, a length, and this many bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

PREFIX_BYTES = 5
FRAMED_MESSAGE = struct.Struct(">IBIBI")  # the header of a frame, and the prefix of the message in it
_PREFIX = struct.Struct(">BI")
_GZIP, _DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
_WINDOW_BITS = {"gzip": _GZIP, "deflate": _DEFLATE}


class MessageError(Exception):
    """The data is not a valid gRPC message, is ``too_large``, or has an ``unsupported`` encoding."""

    def __init__(self, text: str, *, too_large: bool = False, unsupported: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large
        self.unsupported = unsupported


class GrpcMessage(NamedTuple):
    """One message as it was received."""

    compressed: bool
    data: bytes


def prefix(size: int) -> bytes:
    """The prefix of an uncompressed message of ``size`` bytes."""
    return _PREFIX.pack(0, size)


class MessageAssembler:
    """Assembles the messages of one stream. ``limit``: bytes of one message."""

    __slots__ = ("limit", "partial")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.partial: bytearray | None = None  # the received part of an incomplete message

    @property
    def is_incomplete(self) -> bool:
        """Whether the received data ends within a message."""
        return self.partial is not None

    @property
    def missing(self) -> int:
        """Bytes that an incomplete message lacks, of its prefix while that is incomplete."""
        partial = self.partial
        if partial is None:
            return 0
        if len(partial) < PREFIX_BYTES:
            return PREFIX_BYTES - len(partial)
        return PREFIX_BYTES + int(_PREFIX.unpack_from(partial)[1]) - len(partial)

    def feed(self, data: bytes, start: int, end: int) -> list[GrpcMessage]:
        """The messages that ``data[start:end]`` completes. Raises ``MessageError``."""
        if self.partial is None and end - start >= PREFIX_BYTES:
            flag, size = _PREFIX.unpack_from(data, start)
            if not flag and start + PREFIX_BYTES + size == end:
                self._check(flag, size)
                return [GrpcMessage(False, data[start + PREFIX_BYTES : end])]
        partial = self.partial if self.partial is not None else bytearray()
        partial += memoryview(data)[start:end]  # the only copy: a load report may have megabytes
        messages = list(self._complete(partial))
        self.partial = partial or None
        return messages

    def _complete(self, partial: bytearray) -> Iterator[GrpcMessage]:
        while len(partial) >= PREFIX_BYTES:
            flag, size = _PREFIX.unpack_from(partial)
            self._check(flag, size)
            end = PREFIX_BYTES + size
            if end > len(partial):
                return
            with memoryview(partial) as view:
                message = bytes(view[PREFIX_BYTES:end])
            del partial[:end]
            yield GrpcMessage(bool(flag), message)

    def _check(self, flag: int, size: int) -> None:
        if flag > 1:
            raise MessageError(f"a message with the flag {flag}")
        if size > self.limit:
            raise MessageError(f"a message of {size} bytes is larger than {self.limit}", too_large=True)


def decompress(data: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a message. Raises ``MessageError``: unknown encoding, corrupt, or larger than ``limit``."""
    if encoding == "identity":
        raise MessageError("a compressed message in a request with the encoding identity")
    if encoding not in _WINDOW_BITS:
        raise MessageError(f"the encoding {encoding} is not supported", unsupported=True)
    reader = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        plain = reader.decompress(data, limit + 1)
    except zlib.error as error:
        raise MessageError(f"a message that is not valid {encoding}: {error}") from error
    if len(plain) > limit:
        raise MessageError(f"a message that is larger than {limit} bytes when decompressed", too_large=True)
    if not reader.eof:
        raise MessageError(f"a message whose {encoding} data is truncated")
    return plain

"""gRPC's messages in the DATA of a stream: a flag, a length, and as many bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

PREFIX_BYTES = 5
_PREFIX = struct.Struct(">BI")
_GZIP, _DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
_WINDOW_BITS = {"gzip": _GZIP, "deflate": _DEFLATE}


class MessageError(Exception):
    """What came is no message; ``too_large`` when it is one that nobody wants."""

    def __init__(self, text: str, *, too_large: bool = False, unsupported: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large
        self.unsupported = unsupported


class Piece(NamedTuple):
    """One message as it came."""

    compressed: bool
    data: bytes


def prefix(size: int) -> bytes:
    """What stands before a message of ``size`` bytes."""
    return _PREFIX.pack(0, size)


class Assembler:
    """Puts the messages of one stream together. ``limit``: bytes of one message."""

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: bytearray | None = None  # what came of a message that is not whole yet

    @property
    def is_amid(self) -> bool:
        """A message has begun and is not whole yet."""
        return self._held is not None

    @property
    def missing(self) -> int:
        """Bytes that a message which has begun still wants, as far as is known."""
        held = self._held
        if held is None:
            return 0
        if len(held) < PREFIX_BYTES:
            return PREFIX_BYTES - len(held)
        return PREFIX_BYTES + int(_PREFIX.unpack_from(held)[1]) - len(held)

    def feed(self, data: bytes, start: int, end: int) -> list[Piece]:
        """The messages that ``data[start:end]`` completes. Raises ``MessageError``."""
        if self._held is None and end - start >= PREFIX_BYTES:
            flag, size = _PREFIX.unpack_from(data, start)
            if not flag and start + PREFIX_BYTES + size == end:
                self._check(flag, size)
                return [Piece(False, data[start + PREFIX_BYTES : end])]
        held = self._held if self._held is not None else bytearray()
        held += memoryview(data)[start:end]  # no copy but this one: a load report may have megabytes
        found = list(self._whole(held))
        self._held = held or None
        return found

    def _whole(self, held: bytearray) -> Iterator[Piece]:
        while len(held) >= PREFIX_BYTES:
            flag, size = _PREFIX.unpack_from(held)
            self._check(flag, size)
            behind = PREFIX_BYTES + size
            if behind > len(held):
                return
            with memoryview(held) as whole:
                message = bytes(whole[PREFIX_BYTES:behind])
            del held[:behind]
            yield Piece(bool(flag), message)

    def _check(self, flag: int, size: int) -> None:
        if flag > 1:
            raise MessageError(f"a message with the flag {flag}")
        if size > self._limit:
            raise MessageError(f"a message of {size} bytes is larger than {self._limit}", too_large=True)


def decompress(data: bytes, encoding: str, limit: int) -> bytes:
    """A message that came compressed. Raises ``MessageError``: unknown encoding, broken, or larger than ``limit``."""
    if encoding == "identity":
        raise MessageError("a message that says to be compressed, in a request that says it is not")
    if encoding not in _WINDOW_BITS:
        raise MessageError(f"messages are not understood in the encoding {encoding}", unsupported=True)
    reader = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        plain = reader.decompress(data, limit + 1)
    except zlib.error as error:
        raise MessageError(f"a message that is not {encoding}: {error}") from error
    if len(plain) > limit:
        raise MessageError(f"a message that is larger than {limit} bytes when decompressed", too_large=True)
    if not reader.eof:
        raise MessageError(f"a message whose {encoding} ends too early")
    return plain

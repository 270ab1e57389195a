"""Protobuf fields and gRPC messages as bytes: as far as requests need them."""

from __future__ import annotations

import struct

GRPC_PREFIX_BYTES = 5
_GRPC_PREFIX = struct.Struct(">BI")


def varint(value: int) -> bytes:
    """A base-128 varint of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field: text, bytes or a message, even when it is empty."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def text(number: int, value: bytes) -> bytes:
    """A text field, left out when it is empty as protobuf does."""
    return field(number, value) if value else b""


def number_field(number: int, value: int) -> bytes:
    """A varint field, left out when it is zero."""
    return varint(number << 3) + varint(value) if value else b""


def grpc_message(*pieces: bytes) -> bytes:
    """One uncompressed gRPC message made of ``pieces``."""
    return b"".join((_GRPC_PREFIX.pack(0, sum(map(len, pieces))), *pieces))

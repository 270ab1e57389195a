"""What requests repeat: a long node, and thousands of names with every ACK, found in their bytes without reading them.

A message's serialization is a sequence of fields, and may be cut between any two of them. A client that restates its
names sends the same bytes for them each time, between the few that differ: ``split`` cuts them out, so that whoever
reads the request can look up what they mean.
"""

from __future__ import annotations

from xds.wire.fields import WireFormatError, decode_varint

WORTHWHILE_BYTES = 4096  # below this, reading the names is as quick

SOTW_NODE_TAG = 0x12
DELTA_NODE_TAG = 0x0A

_LEADING_TAGS = (0x0A, 0x12)  # SotW: version_info and node stand before the names; Delta: node and type_url
_NAMES_TAG = 0x1A
_TYPE_URL_TAG = 0x22  # behind them, as every client writes its fields in order of their numbers
_TYPE_PREFIX = b"type.googleapis.com/"


def split(data: bytes) -> tuple[bytes, bytes] | None:
    """The bytes of all names, and those of the rest of the request; None where they do not stand as expected.

    Both are made of whole fields if ``data`` is; whether the first holds names alone is for the caller to check, once
    for each such bytes.
    """
    start = _behind_leading_fields(data)
    if data[start : start + 1] != bytes((_NAMES_TAG,)):
        return None
    end = data.rfind(_TYPE_PREFIX, start) - 2
    if end <= start or data[end] != _TYPE_URL_TAG:
        return None
    return data[start:end], data[:start] + data[end:]


def cut_node(data: bytes, tag: int) -> tuple[memoryview, bytes] | None:
    """The node where it stands, and a copy of the rest of the request; None where it is not among the first fields."""
    position = 0
    while position < len(data) and data[position] in _LEADING_TAGS:
        begin, end = _sized(data, position + 1)
        if data[position] == tag:
            return (memoryview(data)[begin:end], data[:position] + data[end:]) if end <= len(data) else None
        position = end
    return None


def _behind_leading_fields(data: bytes) -> int:
    position = 0
    while position < len(data) and data[position] in _LEADING_TAGS:
        _, position = _sized(data, position + 1)
    return position


def _sized(data: bytes, position: int) -> tuple[int, int]:
    """Where the value of a length-delimited field begins and ends; behind the end of ``data`` if it is malformed."""
    try:
        size, begin = decode_varint(data, position)
    except WireFormatError:
        return len(data), len(data) + 1
    return begin, begin + size

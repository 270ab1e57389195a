"""A serialized LoadStatsRequest in pieces, each again one: so that a long report is not read in one go.

A protobuf message may be cut between its fields. Nothing within a field is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from xds.model.errors import RemoteProtocolError, StatusCode

PIECE_BYTES = 256 * 1024
PIECE_FIELDS = 4096
CLUSTER_STATS = 0x12  # the tag of a cluster's report, which each one begins with
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


def divide(data: bytes) -> Iterator[bytes]:
    """Pieces of at most ``PIECE_BYTES`` and ``PIECE_FIELDS``; a field that is longer is a piece of its own.

    Raises ``RemoteProtocolError`` for bytes that are no message.
    """
    if len(data) <= PIECE_BYTES:
        yield data
        return
    begin = at = fields = 0
    while at < len(data):
        behind = _behind(data, at)
        if behind - begin > PIECE_BYTES or fields == PIECE_FIELDS:
            if at > begin:
                yield data[begin:at]
            begin, fields = at, 0
        at, fields = behind, fields + 1
    yield data[begin:]


def _behind(data: bytes, at: int) -> int:
    """Where the field that begins at ``at`` ends."""
    tag, value_at = _varint(data, at)
    kind = tag & 7
    if kind == _LENGTH:
        length, value_at = _varint(data, value_at)
        end = value_at + length
    elif kind == _VARINT:
        _, end = _varint(data, value_at)
    elif kind in _FIXED_BYTES:
        end = value_at + _FIXED_BYTES[kind]
    else:
        raise _malformed()
    if end > len(data):
        raise _malformed()
    return end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _malformed()


def _malformed() -> RemoteProtocolError:
    return RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "not a LoadStatsRequest")

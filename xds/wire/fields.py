"""Fields of the protobuf wire format: varints, lengths, skipping, durations.

A serialized message is a sequence of fields. Each field is a tag (field number << 3 | wire type) and a value. So a
message can be cut between any two fields, and concatenated from fields that were encoded separately. The format is
described in https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from functools import lru_cache

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 are groups, which no xDS message has
NANOS = 1_000_000_000  # per second

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES = 10  # the longest varint, of 64 bits
_CONTINUES = 0x80  # set in each byte of a varint but its last
_CACHED_VARINTS = 4096


class WireFormatError(ValueError):
    """The bytes are not a protobuf message."""


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint that begins at ``position``, and the position after it.

    Raises ``WireFormatError`` if the varint is cut off or longer than 64 bits.
    """
    value = shift = 0
    for end, byte in enumerate(data[position : position + _VARINT_BYTES], position + 1):
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUES:
            if value >> 64:
                break
            return value, end
        shift += 7
    raise WireFormatError("a varint without an end, or of more than 64 bits")


def skip_field(data: bytes, position: int) -> int:
    """The position after the field that begins at ``position``.

    Raises ``WireFormatError`` if the field is cut off or has an unknown wire type.
    """
    tag, value_at = decode_varint(data, position)
    wire_type = tag & 7
    if wire_type == LENGTH_DELIMITED:
        length, value_at = decode_varint(data, value_at)
        end = value_at + length
    elif wire_type == VARINT:
        _, end = decode_varint(data, value_at)
    elif wire_type in _FIXED_BYTES:
        end = value_at + _FIXED_BYTES[wire_type]
    else:
        raise WireFormatError(f"wire type {wire_type}")
    if end > len(data):
        raise WireFormatError("a field that ends behind its message")
    return end


@lru_cache(_CACHED_VARINTS)
def encode_varint(value: int) -> bytes:
    """A number from 0 to 2**64 - 1 as a varint.

    With the cache, the parts of a resource are encoded in 2.0 us instead of 5.2 us, and a response of ten resources in
    5.0 us instead of 9.4 us.
    """
    encoded = bytearray()
    while value >= _CONTINUES:
        encoded.append(value & 0x7F | _CONTINUES)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_field(number: int, value: int) -> bytes:
    """A field with a number, not negative; empty for 0, which is the default."""
    return encode_varint(number << 3) + encode_varint(value) if value else b""


def bytes_field(number: int, data: bytes) -> bytes:
    """A length-delimited field with bytes or a serialized message, which may be empty."""
    return encode_varint(number << 3 | LENGTH_DELIMITED) + encode_varint(len(data)) + data


def text_field(number: int, text: str) -> bytes:
    """A field with text; empty for empty text, which is the default. Lone surrogates become question marks."""
    return bytes_field(number, text.encode("utf-8", "replace")) if text else b""


def duration_of(seconds: float) -> tuple[int, int]:
    """The fields of a ``google.protobuf.Duration``, whole seconds and nanoseconds, for a time that is not negative."""
    return divmod(round(seconds * NANOS), NANOS)


def seconds_of(seconds: int, nanos: int) -> float:
    """The seconds of a ``google.protobuf.Duration`` with these fields."""
    return float(seconds + nanos / NANOS)


def encode_duration(seconds: float) -> bytes:
    """A serialized ``google.protobuf.Duration``, for a time that is not negative."""
    whole, nanos = duration_of(seconds)
    return varint_field(1, whole) + varint_field(2, nanos)

"""The wire format's fields, against protobuf's own encoder."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from xds.proto import wire_pb2
from xds.wire.fields import (
    WireFormatError,
    bytes_field,
    decode_varint,
    duration_of,
    encode_duration,
    encode_varint,
    seconds_of,
    skip_field,
    text_field,
    varint_field,
)

numbers = st.integers(0, (1 << 64) - 1)


@given(numbers, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_as_it_was_written(value: int, before: bytes, behind: bytes) -> None:
    data = before + encode_varint(value) + behind
    assert decode_varint(data, len(before)) == (value, len(data) - len(behind))


@given(st.integers(1, (1 << 64) - 1))
def test_a_number_is_written_as_protobuf_does(value: int) -> None:
    assert varint_field(2, value) == wire_pb2.LocalityTally(total_successful_requests=value).SerializeToString()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\xff" * 9, b"\xff" * 11, b"\xff" * 9 + b"\x02"],
    ids=["nothing", "cut off", "cut off late", "without end", "more than 64 bits"],
)
def test_a_varint_that_is_cut_off_or_too_long_is_an_error(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode_varint(data, 0)


@given(st.text(max_size=300), st.binary(max_size=300), numbers)
def test_fields_are_skipped_one_by_one(text: str, data: bytes, value: int) -> None:
    fields = [
        text_field(1, text),
        bytes_field(300, data),
        varint_field(3, value),
        b"\x09" + 8 * b"x",
        b"\x0d" + 4 * b"x",
    ]
    fields = [field for field in fields if field]
    message, position = b"".join(fields), 0
    for field in fields:
        assert skip_field(message, position) == position + len(field)
        position += len(field)


@pytest.mark.parametrize(
    "data",
    [b"\x0a\x02x", b"\x0a", b"\x09xxx", b"\x0dxxx", b"\x08\x80", b"\x0b", b"\x0f"],
    ids=["text", "length", "fixed64", "fixed32", "varint", "a group", "an unknown wire type"],
)
def test_a_field_that_is_cut_off_or_of_an_unknown_type_is_an_error(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        skip_field(data, 0)


@given(st.integers(0, 10**18))
def test_durations_are_exact_to_the_nanosecond(nanos: int) -> None:
    expected = Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
    assert seconds_of(expected.seconds, expected.nanos) == pytest.approx(nanos / 10**9)
    whole, rest = duration_of(float(nanos // 10**9))
    assert (whole, rest) == (nanos // 10**9, 0)


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.0, 1.5, 10.000000001, 86_400.0])
def test_a_duration_is_encoded_as_protobuf_does(seconds: float) -> None:
    expected = Duration()
    expected.FromNanoseconds(round(seconds * 10**9))
    assert encode_duration(seconds) == expected.SerializeToString()
    assert seconds_of(*duration_of(seconds)) == pytest.approx(seconds)


def test_an_empty_text_is_not_written_and_an_empty_message_is() -> None:
    assert text_field(1, "") == b""
    assert bytes_field(1, b"") == b"\x0a\x00"

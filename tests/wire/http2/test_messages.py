"""Messages in DATA: cut anywhere, compressed, too large."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.http2.talk import message
from xds.wire.http2.messages import GrpcMessage, MessageAssembler, MessageError, decompress, prefix

LIMIT = 1_000


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=60)), max_size=10),
    st.lists(st.integers(0, 1_000), max_size=30),
)
def test_messages_cut_anywhere_are_put_together(sent: list[tuple[bool, bytes]], places: list[int]) -> None:
    parts = [bytes((flag,)) + prefix(len(body))[1:] + body for flag, body in sent]
    whole = b"".join(parts)
    ends = {0, *accumulate(map(len, parts))}
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    assembler = MessageAssembler(LIMIT)
    found: list[GrpcMessage] = []
    for begin, end in pairwise(edges):
        found += assembler.feed(b"__" + whole[begin:end] + b"\xff", 2, 2 + end - begin)
        assert assembler.is_incomplete is (end not in ends)
    assert found == [GrpcMessage(flag, body) for flag, body in sent]


def test_an_assembler_gives_the_missing_bytes_of_a_message() -> None:
    assembler = MessageAssembler(LIMIT)
    whole = message(b"12345")
    wanting = []
    for byte in whole:
        wanting.append((assembler.is_incomplete, assembler.missing))
        found = assembler.feed(bytes((byte,)), 0, 1)
    assert wanting == [(False, 0), *((True, size) for size in (4, 3, 2, 1, 5, 4, 3, 2, 1))]
    assert found == [GrpcMessage(False, b"12345")]
    assert (assembler.is_incomplete, assembler.missing) == (False, 0)


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 500])
def test_a_message_beyond_the_limit_is_refused_by_its_prefix(cut: int) -> None:
    whole = message(b"x" * (LIMIT + 1))
    assembler = MessageAssembler(LIMIT)
    with pytest.raises(MessageError) as caught:
        for begin, end in ((0, cut), (cut, 600)):
            assembler.feed(whole[begin:end], 0, end - begin)
    assert caught.value.too_large
    assert MessageAssembler(LIMIT).feed(message(b"x" * LIMIT), 0, LIMIT + 5) == [GrpcMessage(False, b"x" * LIMIT)]


@pytest.mark.parametrize("flag", [2, 0x80, 0xFF])
def test_an_unknown_flag_is_refused(flag: int) -> None:
    with pytest.raises(MessageError, match="flag"):
        MessageAssembler(LIMIT).feed(bytes((flag,)) + prefix(1)[1:] + b"x", 0, 6)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", COMPRESSORS)
@pytest.mark.parametrize("body", [b"", b"short", b"z" * LIMIT])
def test_compressed_messages(encoding: str, body: bytes) -> None:
    assert decompress(COMPRESSORS[encoding](body), encoding, LIMIT) == body


@pytest.mark.parametrize("encoding", COMPRESSORS)
def test_bombs_are_refused_without_being_blown_up(encoding: str) -> None:
    bomb = COMPRESSORS[encoding](bytes(20 << 20))
    with pytest.raises(MessageError) as caught:
        decompress(bomb, encoding, LIMIT)
    assert caught.value.too_large


@pytest.mark.parametrize("encoding", COMPRESSORS)
def test_unknown_compression_is_refused(encoding: str) -> None:
    for broken in (b"", b"nonsense", COMPRESSORS[encoding](b"whole")[:-3]):
        with pytest.raises(MessageError) as caught:
            decompress(broken, encoding, LIMIT)
        assert not caught.value.too_large
        assert not caught.value.unsupported


def test_encodings_that_are_not_known() -> None:
    with pytest.raises(MessageError) as caught:
        decompress(b"", "snappy", LIMIT)
    assert caught.value.unsupported
    with pytest.raises(MessageError) as caught:
        decompress(b"", "identity", LIMIT)
    assert not caught.value.unsupported

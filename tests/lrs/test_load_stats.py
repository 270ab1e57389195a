"""Long reports in pieces: `xds.lrs.load_stats`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.lrs.load_stats import PIECE_BYTES, PIECE_FIELDS, split_request
from xds.model.errors import RemoteProtocolError
from xds.proto import wire_pb2


def request(*names: str, node: bytes = b"") -> bytes:
    message = wire_pb2.LoadStatsRequest(node=node)
    for name in names:
        message.cluster_stats.add(cluster_name=name)
    return message.SerializeToString()


def names(data: bytes) -> list[str]:
    return [stats.cluster_name for stats in wire_pb2.LoadStatsRequest.FromString(data).cluster_stats]


@given(st.lists(st.integers(0, PIECE_BYTES + 100), max_size=12), st.integers(0, PIECE_BYTES))
def test_the_pieces_are_messages_that_together_say_the_same(sizes: list[int], node_bytes: int) -> None:
    data = request(*(f"{index}:{'x' * size}" for index, size in enumerate(sizes)), node=b"n" * node_bytes)
    pieces = list(split_request(data))
    assert b"".join(pieces) == data
    assert [name for piece in pieces for name in names(piece)] == names(data)
    for piece in pieces:
        assert (
            len(piece) <= PIECE_BYTES or len(names(piece)) + bool(wire_pb2.LoadStatsRequest.FromString(piece).node) == 1
        )


def test_many_short_fields_are_divided_by_their_number() -> None:
    data = request(*[""] * (PIECE_BYTES // 2 + 1))
    assert max(len(names(piece)) for piece in split_request(data)) == PIECE_FIELDS


@pytest.mark.parametrize("end", [b"\x12", b"\x12\x05ab", b"\x12" + b"\xff" * 11, b"\x0b", b"\x09abc", b"\xff" * 20])
def test_what_is_no_message_is_refused(end: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a LoadStatsRequest"):
        list(split_request(request("x" * PIECE_BYTES) + end))


def test_fields_that_are_unknown_go_along() -> None:
    unknown = b"\x18\x05" + b"\x21" + b"12345678" + b"\x2d" + b"1234"
    data = request("x" * PIECE_BYTES) + unknown + request("b")
    assert b"".join(split_request(data)) == data

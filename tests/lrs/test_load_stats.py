"""Long reports in pieces: `xds.lrs.load_stats`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lrs.reports import encode, row, stats
from xds.lrs.load_stats import PIECE_BYTES, PIECE_FIELDS, LoadStatsRequest, find_cluster_stats, split_request
from xds.model.errors import RemoteProtocolError
from xds.proto import wire_pb2
from xds.wire.fields import bytes_field


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
        node_bytes = len(wire_pb2.LoadStatsRequest.FromString(piece).node)
        room = PIECE_BYTES + node_bytes + 5 if node_bytes else PIECE_BYTES  # tag and length of the node
        assert len(piece) <= room or len(names(piece)) == 1


@pytest.mark.parametrize("node", [b"", b"n" * 61_000], ids=["without", "with"])
def test_the_node_that_is_repeated_is_not_parsed(node: bytes) -> None:
    """Envoy's comes with each report."""
    read = LoadStatsRequest(request("web", node=node))
    assert read.data == request("web")
    assert (read.node, names(read.data), read.reports) == (node, ["web"], 1)


def test_a_node_behind_the_clusters_is_the_node() -> None:
    read = LoadStatsRequest(request("web") + request(node=b"n"))
    assert (read.node, read.reports) == (b"n", 1)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0a" + b"\xff" * 11])
def test_a_node_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a LoadStatsRequest"):
        LoadStatsRequest(data)


def test_one_cluster_of_a_request_is_found_by_its_names() -> None:
    clusters = [
        stats("web", row(issued=1), service_name="a"),
        stats("web", row(issued=2), service_name="b"),
        stats("web.other", row(issued=3)),
    ]
    turned = b"".join(bytes_field(number, data) for number, data in ((4, b"\x08\x0a"), (1, b"late")))
    data = encode(*clusters) + bytes_field(2, turned)
    for load in LoadStatsRequest(data).loads:
        assert find_cluster_stats(data, load.cluster, load.service_name) == load
    assert find_cluster_stats(data, "web", "") is None
    assert find_cluster_stats(data, "late", "") is not None


def test_many_short_fields_are_divided_by_their_number() -> None:
    data = request(*[""] * (PIECE_BYTES // 2 + 1))
    assert max(len(names(piece)) for piece in split_request(data)) == PIECE_FIELDS


@pytest.mark.parametrize("end", [b"\x12", b"\x12\x05ab", b"\x12" + b"\xff" * 11, b"\x0b", b"\x09abc", b"\xff" * 20])
def test_bytes_that_are_no_message_are_refused(end: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a LoadStatsRequest"):
        list(split_request(request("x" * PIECE_BYTES) + end))


def test_fields_that_are_unknown_go_along() -> None:
    unknown = b"\x18\x05" + b"\x21" + b"12345678" + b"\x2d" + b"1234"
    data = request("x" * PIECE_BYTES) + unknown + request("b")
    assert b"".join(split_request(data)) == data

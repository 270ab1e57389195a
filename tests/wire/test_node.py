"""A client's Node, as `xds.wire.node` reads it."""

from __future__ import annotations

import pytest

from xds.model.errors import LimitError, RemoteProtocolError
from xds.model.node import NODE_BYTES, Locality
from xds.proto import wire_pb2
from xds.wire.node import decode_node, shared_locality


def test_nodes_that_say_the_same_share_their_texts() -> None:
    data = wire_pb2.Node(id="a", cluster="edge" * 8, locality=wire_pb2.Locality(region="eu", zone="eu-1"))
    one, other = decode_node(data.SerializeToString(), NODE_BYTES), decode_node(data.SerializeToString(), NODE_BYTES)
    assert one.cluster is other.cluster
    assert one.locality is other.locality
    assert one.locality == Locality("eu", "eu-1", "")


def test_long_names_are_not_shared() -> None:
    assert shared_locality("r" * 300, "", "") == Locality("r" * 300, "", "")
    assert shared_locality("r" * 300, "", "") is not shared_locality("r" * 300, "", "")


def test_a_node_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(LimitError, match="a node of 11 bytes; at most 10 are accepted"):
        decode_node(b"\xff" * 11, 10)


def test_bytes_that_are_no_node_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="cannot decode Node"):
        decode_node(b"\xff\xff", NODE_BYTES)


def test_the_user_agent_is_name_and_version() -> None:
    version = wire_pb2.BuildVersion(version=wire_pb2.SemanticVersion(major_number=1, minor_number=30, patch=2))
    node = wire_pb2.Node(id="a", user_agent_name="envoy", user_agent_build_version=version)
    decoded = decode_node(node.SerializeToString(), NODE_BYTES)
    assert (decoded.user_agent, decoded.user_agent_name, decoded.user_agent_version) == (
        "envoy 1.30.2",
        "envoy",
        "1.30.2",
    )
    old = decode_node(wire_pb2.Node(id="a", build_version="abc/1.14").SerializeToString(), NODE_BYTES)
    assert old.user_agent == "abc/1.14"

"""Fields of protobuf messages, and the Node message.

Fields are written by hand: that is several times as fast as filling a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Locality, Node
from xds.proto import wire_pb2
from xds.protocol.requests import NO_NAMES, check_node_bytes

NO_METADATA: Mapping[str, Any] = {}
_SHARED_VALUES = 4096
_SHARED_CHARACTERS = 256
_NANOS = 1_000_000_000


def decode_node(data: bytes | memoryview, limit_bytes: int) -> Node:
    """A Node, v2 or v3, without its list of extensions.

    Raises ``RemoteProtocolError`` for bytes that are none, and for more of them than ``limit_bytes``.
    """
    check_node_bytes(len(data), limit_bytes)
    message = wire_pb2.Node()
    parse_message(message, bytes(data))
    locality = message.locality
    version = _user_agent_version(message)
    user_agent = f"{message.user_agent_name} {version}".strip() or message.build_version
    return Node(
        id=message.id,
        cluster=_shared(message.cluster),
        locality=shared_locality(_shared(locality.region), _shared(locality.zone), _shared(locality.sub_zone)),
        metadata=MessageToDict(message.metadata) if message.HasField("metadata") else NO_METADATA,
        user_agent=_shared(user_agent),
        client_features=frozenset(map(_shared, message.client_features)) if message.client_features else NO_NAMES,
        user_agent_name=_shared(message.user_agent_name),
        user_agent_version=_shared(version),
    )


def _shared(text: str) -> str:
    """One object for all nodes that say the same, if it is short."""
    return _one(text) if len(text) <= _SHARED_CHARACTERS else text


@lru_cache(maxsize=_SHARED_VALUES)
def _one(text: str) -> str:
    return text


def shared_locality(*parts: str) -> Locality:
    """One object for all who say the same, if it is short: clients choose the names."""
    return _one_locality(*parts) if max(map(len, parts)) <= _SHARED_CHARACTERS else Locality(*parts)


_one_locality = lru_cache(maxsize=_SHARED_VALUES)(Locality)


def node_prefix(node_id: str) -> bytes:
    """How a serialized Node with this id begins: enough to see that a later node is the same one."""
    return field(1, node_id.encode())


def parse_message(
    message: wire_pb2.Node | wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest, data: bytes
) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, f"cannot decode {message.DESCRIPTOR.name}") from error


def _user_agent_version(message: wire_pb2.Node) -> str:
    if not message.HasField("user_agent_build_version"):
        return message.user_agent_version
    number = message.user_agent_build_version.version
    return f"{number.major_number}.{number.minor_number}.{number.patch}"


def duration(seconds: float) -> bytes:
    whole, nanos = divmod(round(seconds * _NANOS), _NANOS)
    return varint_field(1, whole) + varint_field(2, nanos)


def field(number: int, data: bytes) -> bytes:
    return _tag(number) + varint(len(data)) + data


def optional_field(number: int, data: bytes) -> bytes:
    return field(number, data) if data else b""


def text_field(number: int, text: str) -> bytes:
    return field(number, text.encode("utf-8", "replace")) if text else b""


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value) if value else b""


def _tag(number: int) -> bytes:
    return bytes((number << 3 | 2,))


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

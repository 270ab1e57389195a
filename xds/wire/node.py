"""Decodes the Node message of a client, once per stream.

Equal names of many nodes (cluster, locality, user agent) become one object, so the memory of a fleet does not grow with
their length.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from xds.model.errors import LimitError, RemoteProtocolError, StatusCode
from xds.model.node import Locality, Node
from xds.proto import wire_pb2

_NO_METADATA: Mapping[str, Any] = {}
_NO_FEATURES: frozenset[str] = frozenset()
_SHARED_VALUES = 4096
_SHARED_CHARACTERS = 256  # longer values are not shared, because clients choose them


def check_node_bytes(size: int, limit_bytes: int) -> None:
    """Raise ``LimitError`` for a node of more than ``limit_bytes``. To be called before the node is parsed."""
    if size > limit_bytes:
        raise LimitError("node_bytes", f"a node of {size} bytes; at most {limit_bytes} are accepted")


def decode_node(data: bytes | memoryview, limit_bytes: int) -> Node:
    """Decode a v2 or v3 Node, without its list of extensions.

    Raises ``LimitError`` for more than ``limit_bytes``, and ``RemoteProtocolError`` for bytes that are not a Node.
    """
    check_node_bytes(len(data), limit_bytes)
    message = wire_pb2.Node()
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "cannot decode Node") from error
    locality = message.locality
    version = _user_agent_version(message)
    user_agent = f"{message.user_agent_name} {version}".strip() or message.build_version
    return Node(
        id=message.id,
        cluster=_shared(message.cluster),
        locality=shared_locality(_shared(locality.region), _shared(locality.zone), _shared(locality.sub_zone)),
        metadata=MessageToDict(message.metadata) if message.HasField("metadata") else _NO_METADATA,
        user_agent=_shared(user_agent),
        client_features=frozenset(map(_shared, message.client_features)) if message.client_features else _NO_FEATURES,
        user_agent_name=_shared(message.user_agent_name),
        user_agent_version=_shared(version),
    )


def shared_locality(region: str, zone: str, sub_zone: str) -> Locality:
    """The locality with these parts. Equal localities are one object, unless a part is long."""
    if max(len(region), len(zone), len(sub_zone)) > _SHARED_CHARACTERS:
        return Locality(region, zone, sub_zone)
    return _one_locality(region, zone, sub_zone)


_one_locality = lru_cache(_SHARED_VALUES)(Locality)


def _shared(text: str) -> str:
    """An equal text. Equal texts are one object, unless they are long."""
    return _one_text(text) if len(text) <= _SHARED_CHARACTERS else text


@lru_cache(_SHARED_VALUES)
def _one_text(text: str) -> str:
    return text


def _user_agent_version(message: wire_pb2.Node) -> str:
    if not message.HasField("user_agent_build_version"):
        return message.user_agent_version
    number = message.user_agent_build_version.version
    return f"{number.major_number}.{number.minor_number}.{number.patch}"

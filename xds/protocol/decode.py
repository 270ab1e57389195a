"""Decodes serialized requests.

Requests repeat each other. The streams of a group are sent the same nonces, so their ACKs are equal bytes. The first
requests of clients that reconnect together are equal too. So `RequestDecoder` looks up whole requests by their bytes:
0.2 us for an ACK instead of 2.7 us. A long request is first cut between its fields: a long node stays serialized, and
the names that a SotW client sends with every ACK are looked up by their own bytes. This takes 10 us for an ACK with
1,000 names, instead of 390 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from google.protobuf.message import DecodeError

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.names import NO_NAMES, canonical_name, canonical_names
from xds.proto import wire_pb2
from xds.protocol.requests import NO_VERSIONS, ErrorDetail, Request
from xds.snapshots.memo import Memo
from xds.wire.fields import WireFormatError, bytes_field, decode_varint

CUT_FROM_BYTES = 4096  # a shorter request is decoded as quickly without cutting
_MEMO_ENTRIES = 1024
_MEMO_BYTES = 8 << 20  # of each memo
_REQUEST_OVERHEAD = 512  # bytes
_NAME_COST = 4  # bytes in memory for each byte of a name in a request
KEPT_BYTES = _MEMO_BYTES // _NAME_COST  # nothing of a longer request is kept, so it is neither cut nor looked up

SOTW_NODE_TAG = 0x12
DELTA_NODE_TAG = 0x0A
_LEADING_TAGS = (0x0A, 0x12)  # the fields before the names. SotW: version_info and node; Delta: node and type_url
_NAMES_TAG = 0x1A
_TYPE_URL_TAG = 0x22  # the field after the names: every client writes its fields in the order of their numbers
_TYPE_PREFIX = b"type.googleapis.com/"


# Called with the type URL, the node, the numbers of names and of shown versions, and the size in bytes of a request
# that is not known already, before its names are read: hundreds of thousands of strings take ten times as long to read
# as the request takes to parse.
CheckCount = Callable[[str, bytes | memoryview, int, int, int], None]  # `DiscoveryStream.check_count`
Read = Callable[[bytes, bytes | memoryview, CheckCount], Request]


def accept_any_count(type_url: str, node: bytes | memoryview, names: int, versions: int, size: int) -> None:
    """Whatever the numbers are."""


class RequestDecoder:
    """Decodes the requests of all streams of a server, and remembers the latest ones."""

    __slots__ = ("_delta", "_names", "_sotw", "_versions")

    def __init__(self) -> None:
        self._sotw: Memo[bytes, Request] = Memo(_MEMO_ENTRIES, _MEMO_BYTES, _request_cost)
        self._delta: Memo[bytes, Request] = Memo(_MEMO_ENTRIES, _MEMO_BYTES, _request_cost)
        # Names by their bytes: all streams that request the same thousands of names share one set.
        self._names: Memo[bytes, frozenset[str] | None] = Memo(
            _MEMO_ENTRIES, _MEMO_BYTES, lambda region, names: _NAME_COST * len(region)
        )
        # Versions by their hash: requests that are not cut are not equal bytes, because each has a node of its own.
        self._versions: Memo[int, Mapping[str, str]] = Memo(_MEMO_ENTRIES // 4)

    # Each client has a node of its own, and the rest of its request in common with others. The node is cut off a long
    # request, and off one that begins with it, as the first ones of streams do.

    def decode_sotw(self, data: bytes, check: CheckCount = accept_any_count) -> Request:
        """Decode a DiscoveryRequest. Raises ``RemoteProtocolError`` for invalid bytes, and what ``check`` raises."""
        return _decode(data, self._sotw, SOTW_NODE_TAG, self._read_sotw, check)

    def decode_delta(self, data: bytes, check: CheckCount = accept_any_count) -> Request:
        """Decode a DeltaDiscoveryRequest; raises as ``decode_sotw``."""
        return _decode(data, self._delta, DELTA_NODE_TAG, self._read_delta, check)

    def _read_sotw(self, data: bytes, node: bytes | memoryview, check: CheckCount) -> Request:
        names: frozenset[str] | None = None
        if CUT_FROM_BYTES <= len(data) <= KEPT_BYTES:
            names, data = self._restated_names(data, node, check) or (names, data)
        message = wire_pb2.DiscoveryRequest()
        _parse(message, data)
        count = len(message.resource_names) + len(message.resource_locators)
        check(message.type_url, node or message.node, count, 0, _size_of_names(message, data))
        if message.resource_names:
            # Names may be on both sides of the cut.
            named = canonical_names(message.resource_names)
            names = named | names if names else named
        elif names is None:
            names = _locator_names(message.resource_locators) if message.resource_locators else NO_NAMES
        error = _error(message) if message.HasField("error_detail") else None
        return Request(message.type_url, names, message.version_info, message.response_nonce, error, message.node)

    def _read_delta(self, data: bytes, cut_off: bytes | memoryview, check: CheckCount) -> Request:
        message = wire_pb2.DeltaDiscoveryRequest()
        _parse(message, data)
        count = len(message.resource_names_subscribe) + len(message.resource_names_unsubscribe)
        count += len(message.resource_locators_subscribe) + len(message.resource_locators_unsubscribe)
        size = _size_of_names(message, data)
        check(message.type_url, cut_off or message.node, count, len(message.initial_resource_versions), size)
        subscribe, unsubscribe, versions = NO_NAMES, NO_NAMES, NO_VERSIONS
        if message.resource_names_subscribe or message.resource_locators_subscribe:
            subscribe = canonical_names(message.resource_names_subscribe)
            subscribe |= _locator_names(message.resource_locators_subscribe)
        if message.resource_names_unsubscribe or message.resource_locators_unsubscribe:
            unsubscribe = canonical_names(message.resource_names_unsubscribe)
            unsubscribe |= _locator_names(message.resource_locators_unsubscribe)
        if message.initial_resource_versions:
            versions = MappingProxyType(dict(message.initial_resource_versions))
            versions = self._shared_versions(versions) if len(data) < CUT_FROM_BYTES else versions
        error = _error(message) if message.HasField("error_detail") else None
        nonce, node = message.response_nonce, message.node
        return Request(message.type_url, subscribe, "", nonce, error, node, unsubscribe, versions)

    def _shared_versions(self, versions: Mapping[str, str]) -> Mapping[str, str]:
        """These versions; equal ones are one object, so that clients which show them share what follows from them."""
        shared = self._versions.get(hash(frozenset(versions.items())), lambda: versions)
        return shared if shared == versions else versions

    def _restated_names(
        self, data: bytes, node: bytes | memoryview, check: CheckCount
    ) -> tuple[frozenset[str], bytes] | None:
        """The names of a long request, and its bytes without the names; None if the names cannot be cut out."""
        parts = cut_names(data)
        if parts is None:
            return None
        region, rest = parts
        names = self._names.get(region, lambda: _names_alone(region, rest, node, check))
        return (names, rest) if names is not None else None


def _decode(data: bytes, known: Memo[bytes, Request], node_tag: int, read: Read, check: CheckCount) -> Request:
    if len(data) > KEPT_BYTES:
        return read(data, b"", check)
    node: memoryview | None = None
    if len(data) >= CUT_FROM_BYTES or (data and data[0] == node_tag):
        node, data = cut_node(data, node_tag) or (node, data)
    request = known.get(data, read, data, node or b"", check)
    return request if node is None or request.node else request.with_node(node)


def _request_cost(data: bytes, request: Request) -> int:
    return _REQUEST_OVERHEAD + 8 * len(data)


def _names_alone(region: bytes, rest: bytes, node: bytes | memoryview, check: CheckCount) -> frozenset[str] | None:
    """The names in ``region``; None if it contains other fields. ``rest`` has the other fields of the request."""
    message, other = wire_pb2.DiscoveryRequest(), wire_pb2.DiscoveryRequest()
    try:
        message.ParseFromString(region)
        other.ParseFromString(rest)
    except DecodeError:
        return None
    check(other.type_url, node or other.node, len(message.resource_names), 0, len(region))
    only_names = wire_pb2.DiscoveryRequest(resource_names=message.resource_names)
    return canonical_names(message.resource_names) if only_names.SerializeToString() == region else None


def _parse(message: wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, f"cannot decode {message.DESCRIPTOR.name}") from error


def _size_of_names(message: wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest, data: bytes) -> int:
    """The bytes of a request, without the error of a NACK, which may be long as well."""
    return len(data) - message.error_detail.ByteSize() if message.HasField("error_detail") else len(data)


def _error(message: wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest) -> ErrorDetail:
    # Rule 15: "A NACK is recognised by `error_detail` alone", whatever its code.
    return ErrorDetail(message.error_detail.code, message.error_detail.message)


def _locator_names(locators: Iterable[wire_pb2.ResourceLocator]) -> frozenset[str]:
    # Rule 67: "a locator is treated as its name; dynamic parameters are ignored, because no client sends them".
    return frozenset(canonical_name(locator.name) for locator in locators)


def node_prefix(node_id: str) -> bytes:
    """The first bytes of a serialized Node with this id. A later node that begins with them is the same one."""
    return bytes_field(1, node_id.encode())


def cut_names(data: bytes) -> tuple[bytes, bytes] | None:
    """The bytes of all names of a DiscoveryRequest, and its other bytes; None if its fields are in another order.

    Both consist of whole fields if ``data`` does. The caller must check that the first contains only names.
    """
    start = _end_of_leading_fields(data)
    if data[start : start + 1] != bytes((_NAMES_TAG,)):
        return None
    end = data.rfind(_TYPE_PREFIX, start) - 2
    if end <= start or data[end] != _TYPE_URL_TAG:
        return None
    return data[start:end], data[:start] + data[end:]


def cut_node(data: bytes, tag: int) -> tuple[memoryview, bytes] | None:
    """The node within the request, and a copy of the other bytes; None if it is not among the first fields."""
    position = 0
    while position < len(data) and data[position] in _LEADING_TAGS:
        begin, end = _value_range(data, position + 1)
        if data[position] == tag:
            return (memoryview(data)[begin:end], data[:position] + data[end:]) if end <= len(data) else None
        position = end
    return None


def _end_of_leading_fields(data: bytes) -> int:
    position = 0
    while position < len(data) and data[position] in _LEADING_TAGS:
        _, position = _value_range(data, position + 1)
    return position


def _value_range(data: bytes, position: int) -> tuple[int, int]:
    """The begin and end of the value of a length-delimited field; beyond the end of ``data`` if it is malformed."""
    try:
        size, begin = decode_varint(data, position)
    except WireFormatError:
        return len(data), len(data) + 1
    return begin, begin + size

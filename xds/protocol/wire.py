"""Bytes to requests, and resources to response bodies. The only module of the engine that knows protobuf.

Responses are put together from ready pieces: fields of one message may be concatenated in any order and a repeated
scalar field keeps its last value, so a body is built once, and a nonce spliced in behind it where it must differ
(push_path 2 and 6.2). Field numbers are those of envoy/service/discovery/v3/discovery.proto, which v2 shares.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from google.protobuf.message import DecodeError

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.names import canonical_name, canonical_names
from xds.model.resource import Resource
from xds.model.snapshot import Frame
from xds.proto import wire_pb2
from xds.protocol import restated
from xds.protocol.events import NO_NAMES, NO_VERSIONS, DeltaRequest, ErrorDetail, SotwRequest
from xds.protocol.memo import Memo
from xds.wire.fields import bytes_field, encode_duration, encode_varint, text_field, varint_field

KNOWN_REQUESTS = 1024
KNOWN_BYTES = 8 << 20  # of each sort


def decode_sotw(data: bytes) -> SotwRequest:
    """A DiscoveryRequest. Raises ``RemoteProtocolError`` for bytes that are none."""
    node: memoryview | None = None
    if len(data) >= restated.WORTHWHILE_BYTES:
        node, data = restated.cut_node(data, restated.SOTW_NODE_TAG) or (node, data)
    request = _known_sotw.get(data, lambda: _read_sotw(data))
    if node is None or request.node:
        return request
    return SotwRequest(request.type_url, request.names, request.version_info, request.nonce, request.error, node)


def _read_sotw(data: bytes) -> SotwRequest:
    names: frozenset[str] | None = None
    if len(data) >= restated.WORTHWHILE_BYTES:
        names, data = _restated_names(data) or (names, data)
    message = wire_pb2.DiscoveryRequest()
    _parse(message, data)
    if message.resource_names:
        # Where names stand on both sides of the cut, they are those of the whole message.
        names = canonical_names(message.resource_names) | (names or NO_NAMES)
    elif names is None:
        names = _locator_names(message.resource_locators) if message.resource_locators else NO_NAMES
    error = _error(message) if message.HasField("error_detail") else None
    return SotwRequest(message.type_url, names, message.version_info, message.response_nonce, error, message.node)


def _restated_names(data: bytes) -> tuple[frozenset[str], bytes] | None:
    """The names of a long request, and its bytes without them; None where they must be read with the rest."""
    parts = restated.split(data) if len(data) >= restated.WORTHWHILE_BYTES else None
    if parts is None:
        return None
    region, rest = parts
    names = _known_names.get(region, lambda: _names_alone(region))
    return (names, rest) if names is not None else None


def _names_alone(region: bytes) -> frozenset[str] | None:
    """The names in bytes that hold nothing else."""
    message = wire_pb2.DiscoveryRequest()
    try:
        message.ParseFromString(region)
    except DecodeError:
        return None
    only_names = wire_pb2.DiscoveryRequest(resource_names=message.resource_names)
    return canonical_names(message.resource_names) if only_names.SerializeToString() == region else None


# By their bytes: all streams that ask for the same thousands of names share one set of them.
_known_names: Memo[bytes, frozenset[str] | None] = Memo(
    KNOWN_REQUESTS, KNOWN_BYTES, lambda region, names: 4 * len(region)
)


def decode_delta(data: bytes) -> DeltaRequest:
    """A DeltaDiscoveryRequest. Raises ``RemoteProtocolError`` for bytes that are none."""
    node: memoryview | None = None
    if len(data) >= restated.WORTHWHILE_BYTES:
        node, data = restated.cut_node(data, restated.DELTA_NODE_TAG) or (node, data)
    request = _known_delta.get(data, lambda: _read_delta(data))
    if node is None or request.node:
        return request
    subscribe, unsubscribe, versions = request.subscribe, request.unsubscribe, request.initial_versions
    return DeltaRequest(request.type_url, subscribe, unsubscribe, versions, request.nonce, request.error, node)


def _read_delta(data: bytes) -> DeltaRequest:
    message = wire_pb2.DeltaDiscoveryRequest()
    _parse(message, data)
    subscribe, unsubscribe, versions = NO_NAMES, NO_NAMES, NO_VERSIONS
    if message.resource_names_subscribe or message.resource_locators_subscribe:
        subscribe = canonical_names(message.resource_names_subscribe)
        subscribe |= _locator_names(message.resource_locators_subscribe)
    if message.resource_names_unsubscribe or message.resource_locators_unsubscribe:
        unsubscribe = canonical_names(message.resource_names_unsubscribe)
        unsubscribe |= _locator_names(message.resource_locators_unsubscribe)
    if message.initial_resource_versions:
        versions = MappingProxyType(dict(message.initial_resource_versions))
    error = _error(message) if message.HasField("error_detail") else None
    nonce, node = message.response_nonce, message.node
    return DeltaRequest(message.type_url, subscribe, unsubscribe, versions, nonce, error, node)


# By the bytes of what they say, without a long node: the streams of a group are sent the very same nonces, so that
# their ACKs are the same, and what clients say that come back after a cut is the same, too.
_known_sotw: Memo[bytes, SotwRequest] = Memo(KNOWN_REQUESTS, KNOWN_BYTES, lambda data, request: 512 + 8 * len(data))
_known_delta: Memo[bytes, DeltaRequest] = Memo(KNOWN_REQUESTS, KNOWN_BYTES, lambda data, request: 512 + 8 * len(data))


def node_prefix(node_id: str) -> bytes:
    """How a serialized Node with this id begins: enough to see that a later node is the same one."""
    return bytes_field(1, node_id.encode())


def encode_sotw(
    type_url: str,
    version_info: str,
    nonce: str,
    frames: Iterable[Frame],
    control_plane: bytes,
    errors: bytes = b"",
) -> bytes:
    """A DiscoveryResponse. ``control_plane`` and ``errors`` are encoded fields or nothing."""
    pieces = [text_field(1, version_info)]
    pieces += [piece for resource, before, any_at, _ in frames for piece in (before[any_at:], resource.body)]
    pieces += (
        text_field(4, type_url),
        text_field(5, nonce),
        bytes_field(6, control_plane) if control_plane else b"",
        errors,
    )
    return b"".join(pieces)


def encode_delta(
    type_url: str,
    version_info: str,
    nonce: str,
    frames: Iterable[Frame],
    removed: Iterable[str],
    control_plane: bytes,
    bodiless: Iterable[bytes] = (),
) -> bytes:
    """A DeltaDiscoveryResponse. ``bodiless`` are made by ``delta_heartbeat`` or ``delta_alias_only``."""
    pieces = [text_field(1, version_info)]
    pieces += [piece for resource, before, _, behind in frames for piece in (before, resource.body, behind)]
    pieces += [bytes_field(2, one) for one in bodiless]
    pieces += (text_field(4, type_url), text_field(5, nonce))
    pieces += [text_field(6, name) for name in removed]
    pieces.append(bytes_field(7, control_plane) if control_plane else b"")
    return b"".join(pieces)


def frame(resource: Resource) -> Frame:
    """What stands around a resource's body in a Delta response: version, type, name, aliases and TTL.

    In a SotW response it is the type alone: the end of what stands before. Both call that field 2.
    """
    body, version, name = resource.body, resource.version.encode(), resource.name.encode("utf-8", "replace")
    lead = text_field(1, resource.type_url)
    if body:
        lead += b"\x12" + encode_varint(len(body))
    size = encode_varint(len(lead) + len(body))
    field_any = b"\x12" + size + lead
    before = b"\x0a" + encode_varint(len(version)) + version + field_any
    behind = b"\x1a" + encode_varint(len(name)) + name
    if resource.aliases or resource.ttl_s is not None:
        behind += _further_fields(resource)
    before = b"\x12" + encode_varint(len(before) + len(body) + len(behind)) + before
    return resource, before, len(before) - len(field_any), behind


def _further_fields(resource: Resource) -> bytes:
    aliases = b"".join(text_field(4, alias) for alias in resource.aliases)
    return aliases + (bytes_field(6, encode_duration(resource.ttl_s)) if resource.ttl_s is not None else b"")


def delta_heartbeat(resource: Resource) -> bytes:
    """Rule 72: "Resource with name, TTL, SAME version, no body"."""
    return (
        text_field(1, resource.version)
        + text_field(3, resource.name)
        + bytes_field(6, encode_duration(resource.ttl_s or 0.0))
    )


def delta_alias_only(name: str) -> bytes:
    """How a VHDS client is told that a host does not exist: name and alias, no body (real_clients 2)."""
    return text_field(3, name) + text_field(4, name)


def empty_assignment(cluster_name: str) -> bytes:
    """The body of a ClusterLoadAssignment without endpoints; v2 and v3 agree on the field."""
    return text_field(1, cluster_name)


def control_plane_field(identifier: str) -> bytes:
    """The encoded ControlPlane message, to be placed at the field number of its response."""
    return text_field(1, identifier)


def resource_errors(names: Iterable[str], code: StatusCode, message: str, field_number: int) -> bytes:
    """xRFC TP3: encoded ``resource_errors`` telling that these names do not exist (rule 39)."""
    status = varint_field(1, code.value) + text_field(2, message)
    return b"".join(
        bytes_field(field_number, bytes_field(1, text_field(1, name)) + bytes_field(2, status)) for name in names
    )


def splice_nonce(body: bytes, nonce: str) -> bytes:
    """The same response under another nonce: the last value of a scalar field wins."""
    return body + text_field(5, nonce)


def _parse(message: wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, f"cannot decode {message.DESCRIPTOR.name}") from error


def _error(message: wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest) -> ErrorDetail:
    # Rule 15: a NACK is known by the presence of error_detail alone, whatever its code.
    return ErrorDetail(message.error_detail.code, message.error_detail.message)


def _locator_names(locators: Iterable[wire_pb2.ResourceLocator]) -> frozenset[str]:
    # Rule 67: a locator without dynamic parameters is a name; no client sends others.
    return frozenset(canonical_name(locator.name) for locator in locators)

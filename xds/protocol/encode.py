"""Resources to serialized responses.

Responses are put together from encoded parts: the fields of a message may be concatenated in any order, and the last
value of a repeated scalar field counts. So the parts of a resource are encoded once, and a response gets another nonce
by appending it. Field numbers are those of envoy/service/discovery/v3/discovery.proto, which v2 shares.
"""

from __future__ import annotations

from collections.abc import Iterable

from xds.model.errors import StatusCode
from xds.model.resource import Resource
from xds.wire.fields import bytes_field, encode_duration, encode_varint, text_field, varint_field

# A resource, what precedes and what follows its body in a Delta response; and the position in what precedes it from
# which on it precedes the body in a SotW response.
EncodedParts = tuple[Resource, bytes, int, bytes]

SOTW_ERRORS_FIELD = 7


def encode_parts(resource: Resource) -> EncodedParts:
    """What surrounds a resource's body in a Delta response: version, type, name, aliases and TTL.

    In a SotW response it is the type alone, which is the end of what precedes the body: both call that field 2.
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
        behind += _aliases_and_ttl(resource)
    before = b"\x12" + encode_varint(len(before) + len(body) + len(behind)) + before
    return resource, before, len(before) - len(field_any), behind


def _aliases_and_ttl(resource: Resource) -> bytes:
    aliases = b"".join(text_field(4, alias) for alias in resource.aliases)
    return aliases + (bytes_field(6, encode_duration(resource.ttl_s)) if resource.ttl_s is not None else b"")


def encode_sotw(
    type_url: str,
    version_info: str,
    nonce: str,
    parts: Iterable[EncodedParts],
    control_plane: bytes,
    errors: bytes = b"",
) -> bytes:
    """A DiscoveryResponse. ``control_plane`` is from `encode_control_plane`, ``errors`` from `encode_errors`."""
    pieces = [text_field(1, version_info)]
    pieces += [piece for resource, before, any_at, _ in parts for piece in (before[any_at:], resource.body)]
    pieces += (text_field(4, type_url), text_field(5, nonce), _control_plane(6, control_plane), errors)
    return b"".join(pieces)


def encode_delta(
    type_url: str,
    version_info: str,
    nonce: str,
    parts: Iterable[EncodedParts],
    removed: Iterable[str],
    control_plane: bytes,
    bodiless: Iterable[bytes] = (),
) -> bytes:
    """A DeltaDiscoveryResponse. ``bodiless`` are from `encode_heartbeat` or `encode_alias_only`."""
    pieces = [text_field(1, version_info)]
    pieces += [piece for resource, before, _, behind in parts for piece in (before, resource.body, behind)]
    pieces += [bytes_field(2, one) for one in bodiless]
    pieces += (text_field(4, type_url), text_field(5, nonce))
    pieces += [text_field(6, name) for name in removed]
    pieces.append(_control_plane(7, control_plane))
    return b"".join(pieces)


def encode_heartbeat(resource: Resource) -> bytes:
    """Rule 72: "A heartbeat has the same version and no body"."""
    return (
        text_field(1, resource.version)
        + text_field(3, resource.name)
        + bytes_field(6, encode_duration(resource.ttl_s or 0.0))
    )


def encode_alias_only(name: str) -> bytes:
    """A virtual host that does not exist. Rule 57: "VHDS: name and alias without a body" (docs/clients.md#vhds)."""
    return text_field(3, name) + text_field(4, name)


def encode_empty_assignment(cluster_name: str) -> bytes:
    """The body of a ClusterLoadAssignment without endpoints; the field is the same in v2 and v3."""
    return text_field(1, cluster_name)


def encode_control_plane(identifier: str) -> bytes:
    """A ControlPlane message."""
    return text_field(1, identifier)


def _control_plane(number: int, message: bytes) -> bytes:
    return bytes_field(number, message) if message else b""


def encode_errors(names: Iterable[str], code: StatusCode, message: str) -> bytes:
    """The resource_errors fields of a DiscoveryResponse: these names do not exist (xRFC TP3, rule 39)."""
    status = varint_field(1, code.value) + text_field(2, message)
    return b"".join(
        bytes_field(SOTW_ERRORS_FIELD, bytes_field(1, text_field(1, name)) + bytes_field(2, status)) for name in names
    )


def append_nonce(body: bytes, nonce: str) -> bytes:
    """The same response under another nonce: the last value of a scalar field counts."""
    return body + text_field(5, nonce)

"""The messages for a stream whose destination changes: the difference between two states, for either generation.

The rules: the first message is sent at once and contains everything; additions come before removals; when the last
endpoint is removed, the message says whether the service still exists; unchanged endpoints are not sent again. Messages
are small enough for every client.

Endpoints are serialized one by one and cached, so that a service of many streams is serialized once. They are written
field by field, because 10,000 protobuf messages would block the event loop for half a second. The bytes are canonical
for the messages of `xds.linkerd.proto`. Messages of 2018 are a subset of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from xds.codec.naming import to_duration
from xds.linkerd.core.authority import ProtocolGeneration
from xds.linkerd.core.endpoint import (
    DestinationEndpoint,
    DestinationState,
    EndpointAddress,
    Hint,
    Http2Params,
    Labels,
    MeshRole,
    ZoneLocality,
)
from xds.linkerd.proto import destination_pb2 as pb
from xds.wire.fields import FIXED32, FIXED64, bytes_field, varint_field

# The limit of a message. Clients accept 4 MiB. The first message replaces everything that a client has, so it should be
# large.
MESSAGE_BYTES = 3 << 20
SPIFFE = "spiffe://"
_ENDPOINTS_CACHED = 131_072
_ADD, _REMOVE, _NO_ENDPOINTS = 1, 2, 3  # fields of Update
_LABELS_2018 = {"pod": "k8s_pod"}
_LAST = 2**64 - 1
_IPV4 = bytes((1 << 3 | FIXED32,))
_FIRST, _SECOND = bytes((1 << 3 | FIXED64,)), bytes((2 << 3 | FIXED64,))
_EMPTY_ADD = bytes_field(_ADD, b"")


@dataclass(frozen=True, slots=True)
class Add:
    """New and changed endpoints. The first `Add` on a stream replaces everything that the client has."""

    endpoints: tuple[DestinationEndpoint, ...]
    labels: Labels
    zone: str


@dataclass(frozen=True, slots=True)
class Remove:
    """The addresses of removed endpoints."""

    addresses: tuple[EndpointAddress, ...]


@dataclass(frozen=True, slots=True)
class NoEndpoints:
    """There are no endpoints, whatever the client has."""

    exists: bool


Update = Add | Remove | NoEndpoints


def updates(sent: DestinationState | None, now: DestinationState) -> list[Update]:
    """The messages that lead from the sent state to the present one; ``sent`` is None before the first message."""
    return [] if sent is now else list(_updates(sent, now))


def _updates(sent: DestinationState | None, now: DestinationState) -> Iterator[Update]:
    if not now.endpoints:
        if sent is None or sent.endpoints or sent.exists is not now.exists:
            yield NoEndpoints(now.exists)
        return
    if sent is None or not sent.endpoints:
        yield Add(now.endpoints, now.labels, now.zone)
        return
    changed = _changed(sent, now)
    if changed:
        yield Add(changed, now.labels, now.zone)
    present = {one.numeric_address for one in now.endpoints}
    removed = tuple(one.numeric_address for one in sent.endpoints if one.numeric_address not in present)
    if removed:
        yield Remove(removed)


def _changed(sent: DestinationState, now: DestinationState) -> tuple[DestinationEndpoint, ...]:
    """The new and changed endpoints. A change of the common labels or of the zone locality counts, too."""
    if sent.labels != now.labels:
        return now.endpoints
    previous = {one.numeric_address: one for one in sent.endpoints}
    has_moved = sent.zone != now.zone
    changed = []
    for one in now.endpoints:
        before = previous.get(one.numeric_address)
        is_other = before is not one and before != one
        if is_other or (has_moved and one.zone_locality(sent.zone) is not one.zone_locality(now.zone)):
            changed.append(one)
    return tuple(changed)


# Messages


def encode_updates(changes: Iterable[Update], generation: ProtocolGeneration) -> list[bytes]:
    """The messages for these updates, in their order."""
    return [message for update in changes for message in _encode(update, generation)]


def heartbeat(is_empty: bool, exists: bool) -> bytes:
    """A message that changes nothing for a client in the given state.

    An empty ``add`` would tell a client of 2018 that a service without endpoints exists.
    """
    return _no_endpoints(exists) if is_empty else _EMPTY_ADD


def _encode(update: Update, generation: ProtocolGeneration) -> Iterator[bytes]:
    match update:
        case Add(endpoints, labels, zone):
            members = [encoded_endpoint(one, one.zone_locality(zone), generation) for one in endpoints]
            common = _labels_field(2, sorted(labels))
            yield from (bytes_field(_ADD, body + common) for body in _parts(members, MESSAGE_BYTES - len(common)))
        case Remove(addresses):
            yield from (
                bytes_field(_REMOVE, body)
                for body in _parts([_address_field(each) for each in addresses], MESSAGE_BYTES)
            )
        case NoEndpoints(exists):
            yield _no_endpoints(exists)


def _no_endpoints(exists: bool) -> bytes:
    return bytes_field(_NO_ENDPOINTS, varint_field(1, int(exists)))


def _parts(members: Sequence[bytes], limit: int) -> Iterator[bytes]:
    """The members, joined into parts up to the limit. A larger member is a part of its own."""
    size = 0
    part: list[bytes] = []
    for member in members:
        if part and size + len(member) > limit:
            yield b"".join(part)
            size, part = 0, []
        part.append(member)
        size += len(member)
    yield b"".join(part)


def _labels_field(number: int, labels: Iterable[tuple[str, str]]) -> bytes:
    """A map of strings, in the order given. Lone surrogates become question marks."""
    encoded = ((key.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for key, value in labels)
    return b"".join(bytes_field(number, bytes_field(1, key) + bytes_field(2, value)) for key, value in encoded)


@lru_cache(_ENDPOINTS_CACHED)
def _address_field(address: EndpointAddress) -> bytes:
    return bytes_field(1, _address(address))


@lru_cache(_ENDPOINTS_CACHED)
def encoded_endpoint(one: DestinationEndpoint, zone_locality: ZoneLocality, generation: ProtocolGeneration) -> bytes:
    """A field ``addrs`` of a WeightedAddrSet."""
    if generation is ProtocolGeneration.CONDUIT:
        named = tuple((_LABELS_2018[name], value) for name, value in one.labels if name in _LABELS_2018)
        address = bytes_field(1, _address(one.numeric_address))
        return bytes_field(1, address + varint_field(3, one.share) + _labels_field(4, named))
    return bytes_field(1, encoded_address(one, zone_locality=zone_locality.value))


def encoded_address(one: DestinationEndpoint, **more_labels: str) -> bytes:
    """A WeightedAddr of today's generation."""
    labels = {**dict(one.labels), **({"zone": one.zone} if one.zone else {}), **more_labels}
    address = bytes_field(1, _address(one.numeric_address)) + varint_field(3, one.weight)
    return address + _labels_field(4, sorted(labels.items())) + _mesh_fields(one.mesh)


def _address(address: EndpointAddress) -> bytes:
    """A TcpAddress: big-endian numbers in fields that are little-endian."""
    version, number, port = address
    if version == 4:
        ip = _IPV4 + number.to_bytes(4, "little")
    else:
        first, last = number >> 64, number & _LAST
        parts = ((_FIRST, first), (_SECOND, last))  # a number that is 0 is left out
        ip = bytes_field(2, b"".join(tag + part.to_bytes(8, "little") for tag, part in parts if part))
    return bytes_field(1, ip) + varint_field(2, port)


@lru_cache(4096)
def _mesh_fields(mesh: MeshRole) -> bytes:
    """The fields of a WeightedAddr about the mesh, which endpoints of one workload share."""
    message = pb.WeightedAddr(
        tls_identity=_identity(mesh),
        protocol_hint=_hint(mesh),
        authority_override=pb.AuthorityOverride(authority_override=mesh.authority_override)
        if mesh.authority_override
        else None,
        http2=_http2(mesh.http2) if mesh.http2 is not None else None,
    )
    return message.SerializeToString(deterministic=True)


def _identity(mesh: MeshRole) -> pb.TlsIdentity | None:
    if not mesh.identity:
        return None
    server_name = pb.TlsIdentity.DnsLikeIdentity(name=mesh.server_name) if mesh.server_name else None
    if mesh.identity.startswith(SPIFFE):
        uri = pb.TlsIdentity.UriLikeIdentity(uri=mesh.identity)
        return pb.TlsIdentity(uri_like_identity=uri, server_name=server_name)
    name = pb.TlsIdentity.DnsLikeIdentity(name=mesh.identity)
    return pb.TlsIdentity(dns_like_identity=name, server_name=server_name)


def _hint(mesh: MeshRole) -> pb.ProtocolHint | None:
    transport = pb.ProtocolHint.OpaqueTransport(inbound_port=mesh.inbound_port) if mesh.inbound_port else None
    if mesh.hint is Hint.H2:
        return pb.ProtocolHint(h2=pb.ProtocolHint.H2(), opaque_transport=transport)
    if mesh.hint is Hint.OPAQUE:
        return pb.ProtocolHint(opaque=pb.ProtocolHint.Opaque(), opaque_transport=transport)
    return None


def _http2(params: Http2Params) -> pb.Http2ClientParams:
    client_params = pb.Http2ClientParams()
    if params.has_windows:
        client_params.flow_control.initial_connection_window_size = params.connection_window_bytes
        client_params.flow_control.initial_stream_window_size = params.stream_window_bytes
        client_params.flow_control.adaptive_flow_control = params.adaptive_windows
    if params.has_keep_alive:
        client_params.keep_alive.interval.CopyFrom(to_duration(params.keep_alive_s))
        client_params.keep_alive.timeout.CopyFrom(to_duration(params.keep_alive_timeout_s))
        client_params.keep_alive.while_idle = params.keep_alive_while_idle
    if params.has_internals:
        client_params.internals.max_concurrent_reset_streams = params.reset_streams
        client_params.internals.max_frame_size = params.frame_bytes
        client_params.internals.max_send_buf_size = params.send_buffer_bytes
    return client_params


def context_labels(service: str, namespace: str) -> Labels:
    """The labels of all endpoints of a service, for today's generation."""
    return tuple((name, value) for name, value in (("service", service), ("namespace", namespace)) if value)


def context_labels_2018(authority: str, namespace: str) -> Labels:
    """The same for 2018's: the authority with its port."""
    pairs = (("k8s_service", authority), ("k8s_namespace", namespace))
    return tuple((name, value) for name, value in pairs if value)


# Messages that streams share


CACHE_BYTES = 32 << 20
_ENTRY_BYTES, _REFERENCE_BYTES = 1_024, 8  # of an entry, and of an endpoint in a state that it holds


class _Entry(NamedTuple):
    """The messages between two states. The references to the states keep their ids unique."""

    sent: DestinationState | None
    now: DestinationState
    bodies: list[bytes]
    size_bytes: int


class SharedMessages:
    """A cache of the messages used last, up to ``limit_bytes``. The newest messages are cached whatever their size."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._entries: dict[tuple[ProtocolGeneration, int, int], _Entry] = {}
        self.cached_bytes = 0

    def between(
        self, sent: DestinationState | None, now: DestinationState, generation: ProtocolGeneration
    ) -> list[bytes]:
        """The messages from one state to the other. Callers must not change the list."""
        key = generation, id(sent), id(now)
        entry = self._entries.pop(key, None)
        if entry is None:
            bodies = encode_updates(updates(sent, now), generation)
            entry = _Entry(sent, now, bodies, _size(sent, now, bodies))
            self.cached_bytes += entry.size_bytes
        self._entries[key] = entry  # the last used entry is at the end
        while self.cached_bytes > self._limit_bytes and len(self._entries) > 1:
            self.cached_bytes -= self._entries.pop(next(iter(self._entries))).size_bytes
        return entry.bodies


def _size(sent: DestinationState | None, now: DestinationState, bodies: list[bytes]) -> int:
    references = len(now.endpoints) + (len(sent.endpoints) if sent is not None else 0)
    return sum(map(len, bodies)) + references * _REFERENCE_BYTES + _ENTRY_BYTES

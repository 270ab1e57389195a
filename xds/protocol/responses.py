"""Encoded responses, each built once and shared by all streams in the same situation.

The nonce is a prefix of the process and the number of the build, so that every stream is sent the very same bytes
object. What is encoded of large sets is kept beside the sets, which are values: `ResponseBuilder.keep_parts`.

Responses are put together from encoded parts: the fields of a message may be concatenated in any order, and the last
value of a repeated scalar field counts. So the parts of a resource are encoded once, and a response gets another nonce
by appending it. Field numbers are those of envoy/service/discovery/v3/discovery.proto, which v2 shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from xds.model.errors import StatusCode
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.content import ResponseContent, ResponseKey, missing_content
from xds.protocol.diffs import ChangeOf
from xds.protocol.memo import Memo
from xds.wire.fields import bytes_field, encode_duration, encode_varint, text_field, varint_field

# A resource, what precedes and what follows its body in a Delta response; and the position in what precedes it from
# which on it precedes the body in a SotW response.
EncodedParts = tuple[Resource, bytes, int, bytes]

SOTW_ERRORS_FIELD = 7

PREPARED_FROM = 256  # resources of a set: fewer are encoded quickly when the first stream asks for them
_MEMO_ENTRIES = 8192
_TYPES_REMEMBERED = 64
_ENTRY_OVERHEAD = 512
_NAME_BYTES = 150  # of a name in the sets and tuples of a key and its content

Parts = Mapping[str, EncodedParts]  # by name
NO_PARTS: Parts = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """One encoded response.

    ``body`` is the serialized message, ``nonce`` included. ``number`` grows with every build in the process, so that
    a number above the last one sent on a stream was never sent there. ``digest`` is the hash of the content (names,
    resource versions, removals), whatever its version_info: rejected content is recognised by it.
    """

    body: bytes
    nonce: str
    number: int
    resource_set: ResourceSet
    names: tuple[str, ...]
    removed: tuple[str, ...]
    digest: bytes
    heartbeat: bool = False

    def versions(self) -> dict[str, str]:
        """Name to resource version of all resources in it."""
        resources = self.resource_set.resources
        return {name: resources[name].version for name in self.names}

    @property
    def version_info(self) -> str:
        """That of the set it was made from."""
        return self.resource_set.version_info


class Built(NamedTuple):
    """The content that was found, and its response; None while all of it waits for a transition."""

    content: ResponseContent
    response: Response | None


class ResponseBuilder:
    """Builds responses and keeps them, at most ``bytes_limit`` bytes."""

    def __init__(self, identifier: str, nonce_prefix: str, change_of: ChangeOf, bytes_limit: int) -> None:
        self._control_plane = encode_control_plane(identifier)
        self._nonce_prefix = nonce_prefix
        self._change_of = change_of
        self._numbers = count(1)
        self.encoded_bytes = 0  # of all responses so far
        self._built: Memo[ResponseKey, Built | None] = Memo(_MEMO_ENTRIES, bytes_limit, _built_cost)
        # By lineage: a set that was amended a little shares the parts of its predecessor. One entry for each large set
        # that is served.
        self._parts: dict[int, Parts] = {}

    def build(self, key: ResponseKey, uncertain: Mapping[str, str]) -> Built | None:
        """The response for a key; None when the client holds all it wants. ``uncertain``: see `missing_content`."""
        if uncertain:  # a client's own mixture of versions: of no use to others
            return self._build(key, uncertain)
        return self._built.get(key, self._build, key, uncertain)

    def begin_age(self) -> None:
        """Drop the responses that were not used since the age before began.

        Each refers to the sets between which it is the difference: after many small pushes to a large group, the
        responses would keep all earlier sets of the group in memory.
        """
        self._built.begin_age()

    def heartbeat(self, resource_set: ResourceSet, resources: Mapping[str, Resource]) -> Response:
        """A heartbeat (rule 72): it restarts the TTLs of these resources and changes nothing else."""
        bodiless = [encode_heartbeat(resource) for resource in resources.values()]
        nonce, number = self._next_nonce()
        url, version = resource_set.type.type_url, resource_set.version_info
        body = encode_delta(url, version, nonce, (), (), self._control_plane, bodiless)
        return Response(body, nonce, number, resource_set, tuple(resources), (), b"", heartbeat=True)

    def with_fresh_nonce(self, response: Response) -> tuple[bytes, str]:
        """The body with a fresh nonce, and the nonce, for a stream that was sent the response before (rule 12)."""
        nonce, _ = self._next_nonce()
        return append_nonce(response.body, nonce), nonce

    def parts_of(self, resource_set: ResourceSet) -> Parts:
        """What is kept of the resources of a set or its predecessors, by name. May run in another thread.

        Parts of another resource than the set has under the name are void.
        """
        return self._parts.get(resource_set.lineage_id, NO_PARTS)

    def keep_parts(self, parts: Mapping[int, Parts]) -> None:
        """Keep what `prepare_parts` made of sets that are served from now on, by lineage."""
        self._parts.update(parts)

    def drop_parts(self, old: Snapshot, new: Snapshot | None) -> None:
        """Drop the encoded parts of sets that are replaced, because few clients will need them."""
        for type_url, resource_set in old.sets.items():
            successor = new.sets.get(type_url) if new is not None else None
            if successor is None or successor.lineage_id != resource_set.lineage_id:
                self._parts.pop(resource_set.lineage_id, None)

    @property
    def prepared_sets(self) -> int:
        """The number of large sets of which parts are kept."""
        return len(self._parts)

    def _build(self, key: ResponseKey, uncertain: Mapping[str, str]) -> Built | None:
        content = missing_content(key, uncertain, self._change_of)
        if content is None:
            return None
        if content == ResponseContent(pending_release=content.pending_release) and content.pending_release:
            return Built(content, None)
        return Built(content, self._encode(key, content))

    def _encode(self, key: ResponseKey, content: ResponseContent) -> Response:
        goal = key.goal
        nonce, number = self._next_nonce()
        parts = encode_all(goal, content.names, self.parts_of(goal))
        body = key.dialect.encode(goal, content, nonce, self._control_plane, parts)
        self.encoded_bytes += len(body)
        return Response(body, nonce, number, goal, content.names, content.removed, content.digest(goal))

    def _next_nonce(self) -> tuple[str, int]:
        number = next(self._numbers)
        return f"{self._nonce_prefix}{number:x}", number


def prepare_parts(resource_set: ResourceSet, before: Parts) -> Parts:
    """Encode all resources of a large set; those that its predecessor shares with it are taken from ``before``.

    Pure: it may run in another thread than the streams.
    """
    names = list(resource_set.resources)
    return dict(zip(names, encode_all(resource_set, names, before), strict=True))


def encode_all(goal: ResourceSet, names: Sequence[str], prepared: Parts) -> list[EncodedParts]:
    """The parts of some of a set's resources; ``prepared`` ones are used as far as they are of the same resources."""
    resources = goal.resources
    if not prepared:
        return [encode_parts(resources[name]) for name in names]
    members, made = map(resources.__getitem__, names), map(prepared.get, names)
    return [
        parts if parts is not None and parts[0] is resource else encode_parts(resource)
        for resource, parts in zip(members, made, strict=True)
    ]


def _built_cost(key: ResponseKey, built: Built | None) -> int:
    names = len(key.interest.names) + len(key.unanswered) + len(key.resend)
    if built is not None:
        names += len(built.content.names) + len(built.content.removed) + len(built.content.absent)
    body = built.response.body if built is not None and built.response is not None else b""
    return _ENTRY_OVERHEAD + names * _NAME_BYTES + len(body)


def encode_parts(resource: Resource) -> EncodedParts:
    """What surrounds a resource's body in a Delta response: version, type, name, aliases and TTL.

    In a SotW response it is the type alone, which is the end of what precedes the body: both call that field 2.
    """
    body, version, name = resource.body, resource.version.encode(), resource.name.encode("utf-8", "replace")
    lead = _type_field(resource.type_url)
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


@lru_cache(_TYPES_REMEMBERED)
def _type_field(type_url: str) -> bytes:
    """The type URL in the ``Any`` around a body: the same for all resources of a type."""
    return text_field(1, type_url)


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
    """A virtual host that does not exist. Rule 57: "VHDS: name and alias without a body"; see docs/clients.md#vhds."""
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

"""Encoded responses. Each is built once, and shared by all streams with the same `ResponseKey`.

The nonce is a prefix of the process and the number of the build, so all streams are sent the same bytes object. The
encoded parts of large sets are kept beside the sets (`ResponseBuilder.keep_parts`).

A response is concatenated from encoded parts, because the fields of a protobuf message may be in any order. The parts
of a resource are encoded once. If a scalar field occurs twice, its last value counts, so a response gets another nonce
by appending one. Field numbers are those of envoy/service/discovery/v3/discovery.proto, which v2 shares.
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
from xds.snapshots.content import EncodedParts, ResponseContent, ResponseKey, missing_content
from xds.snapshots.diffs import ChangeOf
from xds.snapshots.memo import Memo
from xds.wire.fields import bytes_field, encode_duration, encode_varint, text_field, varint_field

SOTW_ERRORS_FIELD = 7

PREPARED_FROM = 256  # resources of a set; a smaller set is encoded quickly when the first stream needs it
_MEMO_ENTRIES = 8192
_TYPES_REMEMBERED = 64
_ENTRY_OVERHEAD = 512
_NAME_BYTES = 150  # of one name in a key and its content

PartsByName = Mapping[str, EncodedParts]  # by name
NO_PARTS: PartsByName = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """One encoded response.

    * ``body``: the serialized message with ``nonce``;
    * ``number``: grows with every build in the process; a response with a higher number than the last one on a stream
      was never sent there;
    * ``digest``: the hash of the content (names, resource versions, removals) without version_info. It identifies
      rejected content.
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
        """Name to resource version of all resources in the response."""
        resources = self.resource_set.resources
        return {name: resources[name].version for name in self.names}

    @property
    def version_info(self) -> str:
        """The version_info of the set that the response was made from."""
        return self.resource_set.version_info


class Built(NamedTuple):
    """The content of a response, and the response; None if all requested names wait for a transition."""

    content: ResponseContent
    response: Response | None


class ResponseBuilder:
    """Builds responses, and keeps at most ``bytes_limit`` bytes of them."""

    def __init__(self, identifier: str, nonce_prefix: str, change_of: ChangeOf, bytes_limit: int) -> None:
        self._control_plane = encode_control_plane(identifier)
        self._nonce_prefix = nonce_prefix
        self._change_of = change_of
        self._numbers = count(1)
        self.encoded_bytes = 0  # of all responses that were built so far
        self._built: Memo[ResponseKey, Built | None] = Memo(_MEMO_ENTRIES, bytes_limit, _built_cost)
        # By lineage: an amended set shares the parts of its predecessor. There is one entry for each large served set.
        self._parts: dict[int, PartsByName] = {}

    def build(self, key: ResponseKey, uncertain: Mapping[str, str]) -> Built | None:
        """The response for a key; None if the client holds all it wants. ``uncertain`` is as in `missing_content`."""
        if uncertain:  # only this client has this mixture of versions, so the response is not kept
            return self._build(key, uncertain)
        return self._built.get(key, self._build, key, uncertain)

    def begin_age(self) -> None:
        """Begin an age: drop the responses that were not used in the last one (`Memo.begin_age`).

        Each response refers to two sets. After many small pushes to a large group, the responses would keep all earlier
        sets of the group in memory.
        """
        self._built.begin_age()

    def heartbeat(self, resource_set: ResourceSet, resources: Mapping[str, Resource]) -> Response:
        """A heartbeat: it restarts the TTLs of these resources, and changes nothing else (rule 72)."""
        bodiless = [encode_heartbeat(resource) for resource in resources.values()]
        nonce, number = self._next_nonce()
        url, version = resource_set.type.type_url, resource_set.version_info
        body = encode_delta(url, version, nonce, (), (), self._control_plane, bodiless)
        return Response(body, nonce, number, resource_set, tuple(resources), (), b"", heartbeat=True)

    def with_fresh_nonce(self, response: Response) -> tuple[bytes, str]:
        """The body with a fresh nonce, and the nonce, for a stream on which the response was sent before (rule 12)."""
        nonce, _ = self._next_nonce()
        return append_nonce(response.body, nonce), nonce

    def parts_of(self, resource_set: ResourceSet) -> PartsByName:
        """The kept parts of a set or of its predecessors, by name. May run in another thread.

        Parts of a resource that the set does not have must not be used (`encode_all` checks this).
        """
        return self._parts.get(resource_set.lineage_id, NO_PARTS)

    def keep_parts(self, parts: Mapping[int, PartsByName]) -> None:
        """Keep results of `prepare_parts` for sets that are served from now on, by lineage."""
        self._parts.update(parts)

    def drop_parts(self, old: Iterable[Snapshot], new: Iterable[Snapshot] = ()) -> None:
        """Drop the parts of replaced sets, because few clients will need them."""
        kept = {resource_set.lineage_id for snapshot in new for resource_set in snapshot}
        for snapshot in old:
            for resource_set in snapshot:
                if resource_set.lineage_id not in kept:
                    self._parts.pop(resource_set.lineage_id, None)

    @property
    def prepared_sets(self) -> int:
        """The number of large sets whose parts are kept."""
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


def prepare_parts(resource_set: ResourceSet, before: PartsByName) -> PartsByName:
    """The parts of all resources of a large set. ``before`` has those of its predecessor, which may be reused.

    Pure, so it may run in another thread than the streams.
    """
    names = list(resource_set.resources)
    return dict(zip(names, encode_all(resource_set, names, before), strict=True))


def encode_all(goal: ResourceSet, names: Sequence[str], prepared: PartsByName) -> list[EncodedParts]:
    """The parts of some resources of a set. ``prepared`` parts are used if they are of the same resource."""
    resources = goal.resources
    if not prepared:
        return [encode_parts(resources[name]) for name in names]
    members, kept = map(resources.__getitem__, names), map(prepared.get, names)
    return [
        parts if parts is not None and parts[0] is resource else encode_parts(resource)
        for resource, parts in zip(members, kept, strict=True)
    ]


def _built_cost(key: ResponseKey, built: Built | None) -> int:
    names = len(key.interest.names) + len(key.unanswered) + len(key.resend_names)
    if built is not None:
        names += len(built.content.names) + len(built.content.removed) + len(built.content.absent)
    body = built.response.body if built is not None and built.response is not None else b""
    return _ENTRY_OVERHEAD + names * _NAME_BYTES + len(body)


def encode_parts(resource: Resource) -> EncodedParts:
    """The bytes around a resource's body: version, name, aliases, TTL and type in a Delta response.

    In a SotW response only the type precedes the body. Its bytes are the end of those that precede the body in Delta,
    because both responses have the resource in field 2.
    """
    body, version, name = resource.body, resource.version.encode(), resource.name.encode("utf-8", "replace")
    lead = _type_field(resource.type_url)
    if body:
        lead += b"\x12" + encode_varint(len(body))
    size = encode_varint(len(lead) + len(body))
    field_any = b"\x12" + size + lead
    before = b"\x0a" + encode_varint(len(version)) + version + field_any
    after = b"\x1a" + encode_varint(len(name)) + name
    if resource.aliases or resource.ttl_s is not None:
        after += _aliases_and_ttl(resource)
    before = b"\x12" + encode_varint(len(before) + len(body) + len(after)) + before
    return resource, before, len(before) - len(field_any), after


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
    """A DeltaDiscoveryResponse. ``bodiless`` resources are from `encode_heartbeat` or `encode_alias_only`."""
    pieces = [text_field(1, version_info)]
    pieces += [piece for resource, before, _, after in parts for piece in (before, resource.body, after)]
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
    """A virtual host that does not exist. Rule 57: "VHDS: name and alias without a body".

    See docs/internals/clients.md#vhds.
    """
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
    """The resource_errors fields of a DiscoveryResponse, one for each missing name (xRFC TP3, rule 39)."""
    status = varint_field(1, code.value) + text_field(2, message)
    return b"".join(
        bytes_field(SOTW_ERRORS_FIELD, bytes_field(1, text_field(1, name)) + bytes_field(2, status)) for name in names
    )


def append_nonce(body: bytes, nonce: str) -> bytes:
    """The same response with another nonce: the last value of a scalar field counts."""
    return body + text_field(5, nonce)

"""The messages of one xDS stream: its first requests, an ACK for each response, and its versions after a reconnect.

Responses are identical on all streams of a fleet, or nearly so: an ACK is made once, and used for all.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.load.encode import field, grpc_message, number_field, text, varint
from bench.load.messages import Response
from bench.load.spec import FleetSpec
from xds.proto import wire_pb2

MAX_PREPARED = 1024
MAX_PREPARED_BYTES = 16 << 20
# How many system versions of a type a worker can say the resources of: a fleet that is cut amid a push holds two.
HELD_VERSIONS = 4

_EXTENSION_TYPE = b"envoy.extensions.filters.http.example.v3.Example"


class UnexpectedResponseError(Exception):
    """A response of a type that was not asked for, or without a nonce."""


class KnownResources:
    """Name to version of all resources that Delta responses brought, by type and system version.

    Read on one stream and told by all: streams of a fleet at the same system version hold the same.
    """

    def __init__(self) -> None:
        self._held: dict[bytes, dict[bytes, dict[str, str]]] = {}
        self._encoded: dict[tuple[bytes, bytes], bytes] = {}

    def note(self, body: bytes) -> None:
        """Fold in a DeltaDiscoveryResponse."""
        message = wire_pb2.DeltaDiscoveryResponse.FromString(body)
        by_version = self._held.setdefault(message.type_url.encode(), {})
        held = dict(next(reversed(by_version.values()), {}))
        held.update((resource.name, resource.version) for resource in message.resources)
        for name in message.removed_resources:
            held.pop(name, None)
        version = message.system_version_info.encode()
        by_version.pop(version, None)
        by_version[version] = held
        if len(by_version) > HELD_VERSIONS:
            del by_version[next(iter(by_version))]
        self._encoded.clear()

    def encoded(self, type_url: bytes, version: bytes) -> bytes:
        """``initial_resource_versions`` at a system version, or at the newest where that one is not known any more."""
        key = type_url, version
        if key not in self._encoded:
            by_version = self._held.get(type_url, {})
            held = by_version.get(version) or next(reversed(by_version.values()), {})
            entries = (field(1, name.encode()) + field(2, held[name].encode()) for name in held)
            self._encoded[key] = b"".join(field(5, entry) for entry in entries)
        return self._encoded[key]


class Prepared(NamedTuple):
    """Which subscription a response is for, its version, and the ACK without a node."""

    subscription: int
    version: bytes
    ack: bytes


class Requests:
    """The requests of all streams of a worker."""

    def __init__(self, spec: FleetSpec, known: KnownResources) -> None:
        self.subscriptions = len(spec.subscriptions)
        self.node_every_request = spec.node_every_request
        self._known = known
        self._is_sotw = spec.variant == "sotw"
        self._types = [subscription.type_url.encode() for subscription in spec.subscriptions]
        self._names = [
            b"".join(field(3, name.encode()) for name in subscription.names or ())
            for subscription in spec.subscriptions
        ]
        self._node_rest = node_rest(spec.node_bytes)
        # The ids are equally long, so that all nodes begin alike.
        id_head = field(1, node_id(0))[: -len(node_id(0))]
        node_size = len(id_head) + len(node_id(0)) + len(self._node_rest)
        self._node_head = varint((2 if self._is_sotw else 1) << 3 | 2) + varint(node_size) + id_head
        self._prepared: dict[Response, Prepared] = {}
        self._prepared_bytes = 0

    def with_node(self, index: int, request: bytes) -> bytes:
        """The gRPC message of a request by the stream with this number, node and all."""
        return grpc_message(self._node_head, node_id(index), self._node_rest, request)

    def first(self, subscription: int, version: bytes | None) -> bytes:
        """The first request for a type without a node, by a client that holds ``version`` (None: nothing)."""
        url, names = self._types[subscription], self._names[subscription]
        if self._is_sotw:
            return text(1, version or b"") + names + field(4, url)
        return field(2, url) + names + (b"" if version is None else self._known.encoded(url, version))

    def is_always_answered(self, subscription: int) -> bool:
        """Whether the first request for a type is answered though the client holds all there is.

        That are subscriptions by name in SotW, and wildcards in Delta.
        """
        return self._is_sotw == bool(self._names[subscription])

    def prepare(self, response: Response) -> Prepared:
        """The ACK of a response. Raises `UnexpectedResponseError`."""
        prepared = self._prepared.get(response)
        if prepared is None:
            prepared = self._prepare(response)
            self._prepared_bytes += len(prepared.ack)
            if len(self._prepared) >= MAX_PREPARED or self._prepared_bytes > MAX_PREPARED_BYTES:
                self._prepared.clear()
                self._prepared_bytes = len(prepared.ack)
            self._prepared[response] = prepared
        return prepared

    def _prepare(self, response: Response) -> Prepared:
        if response.type_url not in self._types or not response.nonce:
            raise UnexpectedResponseError(
                f"type {response.type_url!r}, nonce {response.nonce!r}, {response.size} bytes"
            )
        index = self._types.index(response.type_url)
        if self._is_sotw:
            ack = text(1, response.version) + self._names[index] + field(4, response.type_url)
            ack += field(5, response.nonce)
        else:
            ack = field(2, response.type_url) + field(6, response.nonce)
        return Prepared(index, response.version, ack if self.node_every_request else grpc_message(ack))


class XdsStream:
    """One client, over all its streams: ``first_requests`` when one opens, ``answer`` to each response."""

    __slots__ = ("_index", "_requests", "_unanswered", "_versions")

    def __init__(self, requests: Requests, index: int) -> None:
        self._requests = requests
        self._index = index
        self._versions: list[bytes | None] = [None] * requests.subscriptions
        self._unanswered = 0

    @property
    def index(self) -> int:
        """The stream's number, which its node is named by."""
        return self._index

    @property
    def is_answered(self) -> bool:
        """Whether each subscription was answered since the stream opened, of those that must be.

        In Delta a subscription by name, and in SotW a wildcard, whose resources the client holds is answered when
        something changes, if ever.
        """
        return not self._unanswered

    def first_requests(self) -> list[bytes]:
        """gRPC messages, one per subscription, saying what the client holds."""
        requests = self._requests
        self._unanswered = sum(
            1 << subscription
            for subscription, version in enumerate(self._versions)
            if version is None or requests.is_always_answered(subscription)
        )
        bodies = [requests.first(subscription, version) for subscription, version in enumerate(self._versions)]
        return [
            requests.with_node(self._index, body) if requests.node_every_request or not place else grpc_message(body)
            for place, body in enumerate(bodies)
        ]

    def forget(self) -> None:
        """Hold nothing, like a client that was restarted."""
        self._versions = [None] * len(self._versions)

    def answer(self, response: Response) -> bytes:
        """The ACK as a gRPC message. Raises `UnexpectedResponseError`."""
        requests = self._requests
        subscription, version, ack = requests.prepare(response)
        self._versions[subscription] = version
        self._unanswered &= ~(1 << subscription)
        return requests.with_node(self._index, ack) if requests.node_every_request else ack


def node_id(index: int) -> bytes:
    """The id of the stream with this number in its fleet."""
    return b"node-%06d" % index


def node_rest(size: int) -> bytes:
    """A Node without its id: cluster, user agent, and as many extensions like Envoy's as make up ``size`` bytes."""
    build = field(1, number_field(1, 1) + number_field(2, 40))  # 1.40.0
    node = field(2, b"bench") + field(6, b"envoy") + field(8, build)
    extensions = []
    length, count = len(node), 0
    while length < size:
        extension = field(1, b"envoy.filters.http.example_%03d" % count) + field(2, b"envoy.filters.http")
        extensions.append(field(9, extension + field(6, _EXTENSION_TYPE)))
        length += len(extensions[-1])
        count += 1
    return node + b"".join(extensions)

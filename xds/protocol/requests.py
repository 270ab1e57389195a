"""Decoded requests, and the limits of one stream.

Every check of a request runs before it changes anything, so an invalid request leaves the state of the stream
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from xds.model.errors import LimitError, RemoteProtocolError, StatusCode
from xds.model.names import NO_NAMES
from xds.model.node import NODE_BYTES
from xds.protocol.name_budget import REQUEST_SHARE

NODE_ID_LIMIT = 4096  # characters
# NACKs are stored with node id and type URL, and PostgreSQL stores no NUL.
_NUL = "{} cannot have the character NUL"

UnknownOf = Callable[[frozenset[str]], frozenset[str]]
NO_VERSIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """The ``error_detail`` of a NACK: a gRPC status number, and the client's message."""

    code: int
    message: str


class Shown(NamedTuple):
    """What the first request of a type shows: the version_info (SotW), or resource versions by name (Delta)."""

    label: str = ""
    versions: Mapping[str, str] = NO_VERSIONS

    def __bool__(self) -> bool:
        return bool(self.label or self.versions)


# Requests are never changed. They are not frozen because each ACK creates one, and a frozen one takes three times as
# long.
@dataclass(slots=True)
class Request:
    """A DiscoveryRequest (SotW), or a DeltaDiscoveryRequest.

    * ``names``: all names that the client requests (SotW), or those that it subscribes to (Delta), canonical;
    * ``unsubscribe``: the canonical names that it gives up (Delta);
    * ``version_info``: that of the last response that the client ACKed (SotW);
    * ``initial_versions``: the resources that it holds from an earlier stream, name to resource version (Delta);
    * ``node`` is still serialized, because only the first node of a stream is decoded.
    """

    type_url: str
    names: frozenset[str] = NO_NAMES
    version_info: str = ""
    nonce: str = ""
    error: ErrorDetail | None = None
    node: bytes | memoryview = b""
    unsubscribe: frozenset[str] = NO_NAMES
    initial_versions: Mapping[str, str] = field(default_factory=lambda: NO_VERSIONS)
    _stated: frozenset[str] | None = field(default=None, compare=False)

    @property
    def stated(self) -> frozenset[str]:
        """All names that it subscribes to, or that its client holds; the streams with equal requests share them."""
        if self._stated is None:
            self._stated = self.names.union(self.initial_versions) if self.initial_versions else self.names
        return self._stated

    @property
    def shown(self) -> Shown:
        """What it shows of an earlier connection, if it is the first one of a type."""
        return Shown(self.version_info, self.initial_versions)

    def with_node(self, node: bytes | memoryview) -> Request:
        """The request with this node."""
        versions, stated = self.initial_versions, self.stated
        fields = (self.type_url, self.names, self.version_info, self.nonce, self.error, node, self.unsubscribe)
        return Request(*fields, versions, stated)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of one stream.

    * ``names_per_request``, ``names_per_subscription``: names without a resource: a client may request all that it is
      served;
    * ``offer_timeout_s``: how long newer content waits for the answer to an older response;
    * ``name_characters``: of a name that no resource has, and of a type URL;
    * ``unknown_name_bytes``: names that no resource has, over all streams of a connection (`xds.protocol.name_budget`).
    """

    names_per_request: int = 20_000
    names_per_subscription: int = 100_000
    types_per_stream: int = 64
    offer_timeout_s: float = 5.0
    node_bytes: int = NODE_BYTES
    name_characters: int = 16_384
    unknown_name_bytes: int = 16 << 20

    def check_unknown(self, names: Collection[str]) -> None:
        """Raises ``LimitError`` if one of these names, which no resource has, is too long."""
        longest = max(map(len, names), default=0)
        if longest > self.name_characters:
            message = (
                f"a name of {longest} characters that no resource has; at most {self.name_characters} are accepted"
            )
            raise LimitError("name_characters", message)

    def may_be_too_much(self, names: int, versions: int, size: int) -> bool:
        """Whether a request of ``size`` bytes with so many names and versions is too much if its client knows none."""
        is_long = size > self.unknown_name_bytes // REQUEST_SHARE
        return is_long or names > self.names_per_request or versions > self.names_per_subscription

    def check_count(self, names: int, versions: int) -> None:
        """Raises ``LimitError`` for a request with at least so many names, or versions, without a resource."""
        if names > self.names_per_request or versions > self.names_per_subscription:
            most = self.names_per_request if names > self.names_per_request else self.names_per_subscription
            message = f"{max(names, versions)} names without a resource in one request; at most {most} are accepted"
            raise LimitError("names_per_request", message)

    def check_names(
        self, requested: Collection[str], subscribed: frozenset[str], after: frozenset[str], unknown_of: UnknownOf
    ) -> None:
        """Raise ``LimitError`` for too many names without a resource.

        * ``requested``: the names in the request;
        * ``subscribed``, ``after``: the names of the subscription before and after the request;
        * ``unknown_of``: finds the names that have no resource; called only for a request with many names.
        """
        if len(requested) > self.names_per_request and requested is not subscribed:
            names = len(unknown_of(frozenset(requested) - subscribed))
            if names > self.names_per_request:
                message = (
                    f"{names} names without a resource in one request; at most {self.names_per_request} are accepted"
                )
                raise LimitError("names_per_request", message)
        if after is subscribed or len(after) <= self.names_per_subscription:
            return
        if len(unknown_of(after)) > self.names_per_subscription:
            message = f"more than {self.names_per_subscription} names without a resource in one subscription"
            raise LimitError("names_per_subscription", message)


def check_node_id(node_id: str) -> None:
    """Raise ``RemoteProtocolError`` for a node without an id (rule 3), or with one that is too long or has a NUL."""
    if not node_id:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "the (first) request must carry a node with an id")
    if "\0" in node_id:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, _NUL.format("a node id"))
    if len(node_id) > NODE_ID_LIMIT:
        message = f"a node id of {len(node_id)} characters; at most {NODE_ID_LIMIT} are accepted"
        raise LimitError("node_id", message)


def check_type(requested: str, served: str, limits: StreamLimits) -> str:
    """The type URL of a request. ``served`` is the type of the stream's service, empty on ADS.

    Raises ``RemoteProtocolError``. Rule 4: "An absent `type_url` means the type of the service; on ADS it is an error.
    A per-type stream refuses other types".
    """
    if not requested and not served:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "type_url is required on an aggregated stream")
    if requested and served and requested != served:
        message = f"this service serves {served}, not {requested[:200]}"
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, message)
    if len(requested) > limits.name_characters:
        message = f"a type URL of {len(requested)} characters; at most {limits.name_characters} are accepted"
        raise LimitError("name_characters", message)
    if "\0" in requested:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, _NUL.format("a type URL"))
    return requested or served

"""Decoded requests, and the limits of one stream.

Every check of a request runs before it changes anything, so an invalid request leaves the state of the stream
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from xds.model.errors import LimitError, RemoteProtocolError, StatusCode
from xds.model.names import NO_NAMES
from xds.model.node import NODE_BYTES
from xds.protocol.name_budget import REQUEST_SHARE

if TYPE_CHECKING:
    from xds.protocol.dialect import AnyDialect

PARKED_REQUESTS_LIMIT = 1000  # of a type
NODE_ID_LIMIT = 4096  # characters

UnknownOf = Callable[[frozenset[str]], frozenset[str]]
NO_VERSIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """The ``error_detail`` of a NACK: a gRPC status number, and the client's message."""

    code: int
    message: str


# Requests are never changed. They are not frozen because each ACK creates one, and a frozen one takes three times as
# long.
@dataclass(slots=True)
class SotwRequest:
    """A DiscoveryRequest.

    ``names`` are canonical. ``node`` is still serialized, because only the first node of a stream is decoded.
    """

    type_url: str
    names: frozenset[str] = NO_NAMES
    version_info: str = ""
    nonce: str = ""
    error: ErrorDetail | None = None
    node: bytes | memoryview = b""


@dataclass(slots=True)
class DeltaRequest:
    """A DeltaDiscoveryRequest.

    ``subscribe`` and ``unsubscribe`` are canonical names. ``initial_versions`` has the resources that the client holds
    from an earlier stream, name to resource version. ``node`` is still serialized.
    """

    type_url: str
    subscribe: frozenset[str] = NO_NAMES
    unsubscribe: frozenset[str] = NO_NAMES
    initial_versions: Mapping[str, str] = field(default_factory=lambda: NO_VERSIONS)
    nonce: str = ""
    error: ErrorDetail | None = None
    node: bytes | memoryview = b""


Request = SotwRequest | DeltaRequest


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
    """Raise ``RemoteProtocolError`` for a node without an id (rule 3), or with an id that is too long."""
    if not node_id:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "the (first) request must carry a node with an id")
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
    return requested or served


class ParkedRequests:
    """The requests of a stream that wait because no group matches its node."""

    __slots__ = ("_by_type", "_dialect", "_limits")

    def __init__(self, dialect: AnyDialect, limits: StreamLimits) -> None:
        self._dialect = dialect
        self._limits = limits
        self._by_type: dict[str, list[Request]] = {}

    @property
    def types(self) -> Collection[str]:
        """The requested type URLs."""
        return self._by_type.keys()

    def park(self, type_url: str, request: Request) -> None:
        """Keep a request. Raises ``LimitError`` for too many requests or names."""
        parked = self._by_type.setdefault(type_url, [])
        if self._dialect.states_whole_interest:
            parked.clear()
        names = sum(map(self._dialect.count_names, (*parked, request)))
        if names > self._limits.names_per_subscription or len(parked) > PARKED_REQUESTS_LIMIT:
            raise LimitError("parked_requests", "too many requests while no group matches")
        parked.append(request)

    def names(self) -> Iterator[str]:
        """The names of all requests."""
        for _, request in self.requests():
            yield from self._dialect.stated_names(request)

    def requests(self) -> Iterator[tuple[str, Request]]:
        """All requests with their type URLs, grouped by type in the order of the first requests."""
        for type_url, requests in self._by_type.items():
            for request in requests:
                yield type_url, request

    def copy(self) -> ParkedRequests:
        """An independent object with the same requests."""
        clone = ParkedRequests(self._dialect, self._limits)
        clone._by_type = {type_url: list(requests) for type_url, requests in self._by_type.items()}
        return clone

"""The endpoints of a destination, and the state of a destination that is sent on a stream.

Values here do not depend on the client. Its zone is passed where the locality relative to the client is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

WEIGHT_ONE = 10_000  # of an endpoint without a weight of its own
WEIGHT_MAX = 2**32 - 1

EndpointAddress = tuple[int, int, int]  # IP version, address as a number, port
Labels = tuple[tuple[str, str], ...]


class Hint(StrEnum):
    """The protocol of an endpoint, if it is known.

    ``H2``: it is a Linkerd proxy that accepts HTTP/1 in HTTP/2. ``OPAQUE``: connections are streams of bytes.
    """

    NONE = ""
    H2 = "h2"
    OPAQUE = "opaque"


class ZoneLocality(StrEnum):
    """Whether an endpoint is in the zone of the client. Values are those of the metric label ``zone_locality``."""

    LOCAL = "local"
    REMOTE = "remote"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Http2Params:
    """HTTP/2 settings for meshed endpoints; 0 means the proxy's own values.

    A keep-alive needs both times, and fixed windows both sizes; adaptive windows replace fixed ones.
    """

    connection_window_bytes: int = 0
    stream_window_bytes: int = 0
    adaptive_windows: bool = False
    keep_alive_s: float = 0.0
    keep_alive_timeout_s: float = 0.0
    keep_alive_while_idle: bool = False
    reset_streams: int = 0
    frame_bytes: int = 0
    send_buffer_bytes: int = 0

    @property
    def has_keep_alive(self) -> bool:
        """Whether there is a keep-alive."""
        return self.keep_alive_s > 0 and self.keep_alive_timeout_s > 0

    @property
    def has_windows(self) -> bool:
        """Whether there is flow control of its own."""
        return self.adaptive_windows or (self.connection_window_bytes > 0 and self.stream_window_bytes > 0)

    @property
    def has_internals(self) -> bool:
        """Whether a limit of the client's HTTP/2 library is set."""
        return any((self.reset_streams, self.frame_bytes, self.send_buffer_bytes))

    @property
    def is_set(self) -> bool:
        """Whether anything is sent."""
        return self.has_keep_alive or self.has_windows or self.has_internals


@dataclass(frozen=True, slots=True)
class MeshRole:
    """The role of an endpoint in a Linkerd mesh; all fields are empty for an endpoint outside of it.

    ``identity`` is DNS-like, or a SPIFFE URI, which needs a ``server_name``. ``inbound_port`` is the port at which its
    proxy accepts connections of any protocol; 0 for none.
    """

    identity: str = ""
    server_name: str = ""
    hint: Hint = Hint.NONE
    inbound_port: int = 0
    authority_override: str = ""
    http2: Http2Params | None = None


NO_MESH = MeshRole()


@dataclass(frozen=True)
class DestinationEndpoint:
    """One endpoint. ``share`` is its weight for clients of 2018.

    ``node``, ``names`` (host names and ids of the instance) and ``hinted_zones`` (zones that are to use it) are not
    sent. They decide which clients get the endpoint.
    """

    address: str
    port: int
    weight: int = WEIGHT_ONE
    share: int = 1
    labels: Labels = ()
    mesh: MeshRole = NO_MESH
    zone: str = ""
    node: str = ""
    names: frozenset[str] = frozenset()
    hinted_zones: frozenset[str] = frozenset()

    @cached_property
    def numeric_address(self) -> EndpointAddress:
        """The identity of the endpoint, as numbers, so that endpoints are ordered by address and port."""
        address = parse_address(self.address)
        return address.version, int(address), self.port

    def zone_locality(self, zone: str) -> ZoneLocality:
        """The locality relative to a client in ``zone``, which is empty if it is unknown."""
        if not zone or not self.zone:
            return ZoneLocality.UNKNOWN
        return ZoneLocality.LOCAL if zone == self.zone else ZoneLocality.REMOTE


@lru_cache(65_536)
def parse_address(text: str) -> IPv4Address | IPv6Address:
    """An IP address. Raises ``ValueError``."""
    return ip_address(text)


def shortest(address: str) -> str:
    """An IP address in its shortest form, which an IPv4 address always has. Raises ``ValueError``."""
    return str(parse_address(address)) if ":" in address else address


def ordered(endpoints: Iterable[DestinationEndpoint]) -> tuple[DestinationEndpoint, ...]:
    """The endpoints ordered by address and port. Of several with the same ones the first one counts."""
    by_address: dict[EndpointAddress, DestinationEndpoint] = {}
    for one in endpoints:
        by_address.setdefault(one.numeric_address, one)
    return tuple(by_address[numeric_address] for numeric_address in sorted(by_address))


@dataclass(frozen=True, slots=True)
class FoundEndpoints:
    """The endpoints behind a name by address and port, and the services that they depend on.

    ``skipped`` lists the parts that Linkerd's API cannot express. ``is_settled`` is False while data that was not read
    yet may bring endpoints.
    """

    endpoints: tuple[DestinationEndpoint, ...] = ()
    skipped: tuple[str, ...] = ()
    is_settled: bool = True
    services: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class DestinationState:
    """The state of a destination for clients with the same filter. It is compared by identity, since it is shared.

    ``exists`` is sent when there are no endpoints. ``labels`` are common to all endpoints, ``zone`` is the client's.
    """

    exists: bool
    endpoints: tuple[DestinationEndpoint, ...] = ()
    labels: Labels = ()
    zone: str = ""


# The endpoints for a client: by zone, node, name of an instance, and IP version


@dataclass(frozen=True, slots=True)
class EndpointFilter:
    """The properties of a client that select its endpoints. ``zone`` and ``node`` are empty if unknown.

    ``instance``: only endpoints with this name. ``node_only``: only endpoints on the client's node, even if there are
    none. ``has_ipv6``: the client reaches IPv6 addresses.
    """

    zone: str = ""
    node: str = ""
    instance: str = ""
    node_only: bool = False
    has_ipv6: bool = True


def select_endpoints(
    endpoints: tuple[DestinationEndpoint, ...], client: EndpointFilter
) -> tuple[DestinationEndpoint, ...]:
    """The endpoints for a client. Zone hints count only if every endpoint has some, one of them for the zone."""
    selected = endpoints
    if client.instance:
        selected = tuple(one for one in selected if client.instance in one.names)
    if client.node_only:
        selected = tuple(one for one in selected if client.node and one.node == client.node)
    elif selected and all(one.hinted_zones for one in selected):
        near = tuple(one for one in selected if client.zone in one.hinted_zones)
        selected = near or selected
    if not client.has_ipv6:
        selected = tuple(one for one in selected if one.numeric_address[0] == 4)
    return selected if len(selected) != len(endpoints) else endpoints

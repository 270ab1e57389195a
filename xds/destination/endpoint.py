"""The endpoints of a destination as values, and the state of a destination that is sent on a stream.

Everything here is independent of the client, except the locality of an endpoint relative to the client, which is passed
separately.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

WEIGHT_ONE = 10_000  # of an endpoint without a weight of its own
WEIGHT_MAX = 2**32 - 1

Place = tuple[int, int, int]  # IP version, address as a number, port
Labels = tuple[tuple[str, str], ...]


class Hint(StrEnum):
    """The protocol of an endpoint, if it is known.

    ``H2``: it is a Linkerd proxy that takes HTTP/1 in HTTP/2. ``OPAQUE``: connections are streams of bytes.
    """

    NONE = ""
    H2 = "h2"
    OPAQUE = "opaque"


class Nearness(StrEnum):
    """Where an endpoint is, seen from the client."""

    LOCAL = "local"
    REMOTE = "remote"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Http2Params:
    """How a proxy speaks HTTP/2 with meshed endpoints; 0 for its own values. A keep-alive needs both of its times."""

    connection_window_bytes: int = 0
    stream_window_bytes: int = 0
    adaptive_windows: bool = False
    keep_alive_s: float = 0.0
    keep_alive_timeout_s: float = 0.0
    keep_alive_while_idle: bool = False


@dataclass(frozen=True, slots=True)
class MeshRole:
    """What an endpoint is in a Linkerd mesh; all empty for one outside of it.

    ``identity``: DNS-like, or a SPIFFE URI, which needs a ``server_name``. ``inbound_port``: the port at which its
    proxy takes connections of any protocol; 0 for none.
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
    """One endpoint. ``share`` is its weight as the client of 2018 gets it.

    These are not sent, and decide which clients get the endpoint: ``node``, ``names`` (host names and ids of the
    instance), and ``hinted_zones``, the zones that are to use it.
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
    def place(self) -> Place:
        """What identifies it: the address as a number, so that places are ordered by address and port."""
        address = parse_address(self.address)
        return address.version, int(address), self.port

    def nearness(self, zone: str) -> Nearness:
        """Its locality relative to a client in a zone; empty for a client without a known zone."""
        if not zone or not self.zone:
            return Nearness.UNKNOWN
        return Nearness.LOCAL if zone == self.zone else Nearness.REMOTE


@lru_cache(65_536)
def parse_address(text: str) -> IPv4Address | IPv6Address:
    """An IP address. Raises ``ValueError``."""
    return ip_address(text)


def shortest(address: str) -> str:
    """An IP address in its shortest form, which an IPv4 address always has. Raises ``ValueError``."""
    return str(parse_address(address)) if ":" in address else address


def ordered(endpoints: Iterable[DestinationEndpoint]) -> tuple[DestinationEndpoint, ...]:
    """The endpoints by address and port, each place once: the first one counts."""
    found: dict[Place, DestinationEndpoint] = {}
    for one in endpoints:
        found.setdefault(one.place, one)
    return tuple(found[place] for place in sorted(found))


@dataclass(frozen=True, eq=False)
class DestinationState:
    """What a destination is for one kind of client; compared by identity, since equal ones are shared.

    ``exists`` is sent when there are no endpoints. ``labels`` are those of all endpoints, ``zone`` is
    the client's.
    """

    exists: bool
    endpoints: tuple[DestinationEndpoint, ...] = ()
    labels: Labels = ()
    zone: str = ""

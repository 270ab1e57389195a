"""What answers are made of: services and chains as the server sees them, and the client with its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from xds.catalog.resolver import ServiceResolver
from xds.catalog.service_index import ServiceInstance
from xds.chain.chain import DiscoveryChain
from xds.destination.authority import DEFAULT_NAMING, NamingRules
from xds.destination.inbound_policy import InboundDefault
from xds.destination.mesh_role import MeshRules
from xds.model.snapshot import Snapshot

MEMO_ENTRIES = 8_192

T = TypeVar("T")


class Presence(StrEnum):
    """Whether there is a service. ``UNREAD``: nobody can say it yet."""

    HERE = "here"
    ABSENT = "absent"
    UNREAD = "unread"


class World(Protocol):
    """Services, config entries and chains at present."""

    def presence(self, service: str) -> Presence:
        """Whether a source shows a service."""

    def instances(self, service: str) -> tuple[ServiceInstance, ...]:
        """The instances of a service; the same object while nothing changes."""

    def chain(self, service: str) -> DiscoveryChain | None:
        """The chain of a service; None where its entries contradict each other."""

    def own_chain(self, service: str, subset: str, datacenter: str) -> DiscoveryChain | None:
        """The chain of a service without its router and its splitter, for a subset and seen from a datacenter."""

    def is_starting(self) -> bool:
        """Whether a source was never read, so that any service may turn up."""

    def is_configured(self, service: str) -> bool:
        """Whether a service has a router, a splitter or a resolver."""

    def resolver(self, service: str) -> ServiceResolver | None:
        """The resolver of a service."""

    def service_meta(self, service: str) -> Mapping[str, str]:
        """The metadata of the service-defaults."""

    def services_with_virtual(self, address: str) -> tuple[str, ...]:
        """The services whose virtual address this is, by name."""

    def services_at(self, address: str) -> tuple[str, ...]:
        """The services with an instance at an address, by name."""


@dataclass(frozen=True, slots=True)
class DestinationRules:
    """What is the same for all clients. ``has_ipv6``: clients reach IPv6 addresses. ``datacenter``: of this server.

    ``profiles_route``: profiles have routes and overrides, by which proxies go if there are any; else policies alone.
    """

    naming: NamingRules = DEFAULT_NAMING
    mesh: MeshRules = field(default_factory=MeshRules)
    has_ipv6: bool = True
    datacenter: str = "dc1"
    inbound: InboundDefault = InboundDefault.ALL_UNAUTHENTICATED
    profiles_route: bool = True


@dataclass(frozen=True, slots=True)
class DestinationClient:
    """Who asks: its zone and node, where known, and the snapshot of its group. ``waits``: it can still wait for what is
    not known yet. ``starts``: the server has just started, so that sources that were never read will be. ``was_told``:
    it has an answer, so a name that leads nowhere now is not foreign.
    """

    zone: str = ""
    node: str = ""
    snapshot: Snapshot | None = None
    waits: bool = True
    starts: bool = True
    was_told: bool = False


class Remembered:
    """Results by a key, each valid as long as the objects that it was made of are the same ones.

    So equal requests share one result, and a result that is the same object says that nothing has changed.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int = MEMO_ENTRIES) -> None:
        self._limit = limit
        self._entries: dict[object, tuple[tuple[object, ...], Any]] = {}

    def get(self, key: object, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result for a key; ``make`` is called where there is none of the same ``inputs``."""
        found = self._entries.pop(key, None)
        if found is None or any(one is not other for one, other in zip(found[0], inputs, strict=True)):
            found = (inputs, make())
        self._entries[key] = found  # the latest one is the last
        while len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]
        result: T = found[1]
        return result

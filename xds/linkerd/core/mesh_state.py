"""The inputs of answers: services and chains of the server, its settings, and the client with its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from xds.linkerd.core.authority import DEFAULT_NAMING, NamingRules
from xds.linkerd.core.inbound_policy import InboundDefault
from xds.linkerd.core.mesh_role import MeshRules
from xds.linkerd.core.profile import RetryBudget
from xds.mesh.core.chain.chain import DiscoveryChain
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.model.snapshot import Snapshot
from xds.services.core.index import ServiceInstance

MEMO_ENTRIES = 8_192

T = TypeVar("T")


class Presence(StrEnum):
    """Whether a service exists. ``UNREAD``: it may be in a source that was not read yet."""

    PRESENT = "present"
    ABSENT = "absent"
    UNREAD = "unread"


class MeshState(Protocol):
    """The present services, config entries and chains."""

    def presence(self, service: str) -> Presence:
        """Whether a source shows a service."""

    def instances(self, service: str) -> tuple[ServiceInstance, ...]:
        """The instances of a service; the same object while none changes."""

    def chain(self, service: str) -> DiscoveryChain | None:
        """The chain of a service; None if its entries contradict each other."""

    def own_chain(self, service: str, subset: str, datacenter: str) -> DiscoveryChain | None:
        """The chain of a service without its router and splitter, for a subset and compiled in a datacenter."""

    def is_starting(self) -> bool:
        """Whether a source was never read, so that any service may exist."""

    def is_configured(self, service: str) -> bool:
        """Whether a service has a router, a splitter or a resolver."""

    def resolver(self, service: str) -> ServiceResolver | None:
        """The resolver of a service."""

    def service_meta(self, service: str) -> Mapping[str, str]:
        """The metadata of the service-defaults."""

    def services_with_virtual(self, address: str) -> tuple[str, ...]:
        """The services with this virtual address, by name."""

    def services_at(self, address: str) -> tuple[str, ...]:
        """The services with an instance at an address, by name."""


@dataclass(frozen=True, slots=True)
class DestinationRules:
    """Settings that are the same for all clients. ``has_ipv6``: clients reach IPv6 addresses.

    ``datacenter`` is that of this server. ``profiles_route``: profiles have routes and overrides, which proxies prefer
    to policies; otherwise only policies have them. ``budget`` limits the retries of a client.
    """

    naming: NamingRules = DEFAULT_NAMING
    mesh: MeshRules = field(default_factory=MeshRules)
    has_ipv6: bool = True
    datacenter: str = "dc1"
    inbound: InboundDefault = InboundDefault.ALL_UNAUTHENTICATED
    profiles_route: bool = True
    budget: RetryBudget = field(default_factory=RetryBudget)


@dataclass(frozen=True, slots=True)
class DestinationClient:
    """A client: its zone and node, where known, and the snapshot of its group.

    ``waits``: it can wait for an answer that is not known yet. ``starts``: the server has just started, so sources that
    were never read will be read soon. ``has_answer``: it got an answer before, so a name that leads nowhere now is not
    foreign.
    """

    zone: str = ""
    node: str = ""
    snapshot: Snapshot | None = None
    waits: bool = True
    starts: bool = True
    has_answer: bool = False


class IdentityCache:
    """Results by key. A result is valid while its inputs are the same objects.

    Equal requests share one result, and the same result object means that nothing has changed.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int = MEMO_ENTRIES) -> None:
        self._limit = limit
        self._entries: dict[object, tuple[tuple[object, ...], Any]] = {}

    def get(self, key: object, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result for a key; ``make`` is called if there is none with the same ``inputs``."""
        entry = self._entries.pop(key, None)
        if entry is None or any(one is not other for one, other in zip(entry[0], inputs, strict=True)):
            entry = (inputs, make())
        self._entries[key] = entry  # the last used entry is at the end
        while len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]
        result: T = entry[1]
        return result

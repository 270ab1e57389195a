"""Destinations of Linkerd proxies: the services and chains behind the answers, and notification of changes.

A follower is notified of changes that its answer depends on: a service, an address, config entries. The registry of
streams notifies it of changes of its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from xds.admin.models.nodes import StreamAnswer
from xds.linkerd.address_index import AddressChanges, AddressIndex
from xds.linkerd.core.conversation import Conversations
from xds.linkerd.core.mesh_state import DestinationRules, IdentityCache, MeshState, Presence
from xds.linkerd.core.resolver import DestinationResolver
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.chain import ChainError, DiscoveryChain
from xds.mesh.core.chain.compile import compile_recorded
from xds.mesh.core.chain.request import CompileRequestError
from xds.mesh.core.entries.defaults import ServiceDefaults
from xds.mesh.core.entries.entry import entry_key, key_of
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.mesh.core.entries.router import ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter
from xds.model.compared_name import ComparedName, compared
from xds.services.catalog import ServiceCatalog
from xds.services.core.index import ServiceInstance
from xds.snapshots.cache import SnapshotCache

USER = "destinations"  # of the catalog
NO_META: Mapping[str, str] = MappingProxyType({})

K = TypeVar("K", bound=Hashable)


class DestinationFollower(Protocol):
    """A stream whose answer depends on services and on an address."""

    @property
    def id(self) -> int:
        """The id of the stream in the fleet."""

    @property
    def node_id(self) -> str:
        """The id of the node; empty before the first request. It does not change after that."""

    @property
    def machine(self) -> str:
        """The machine whose zone is that of the client; empty for none. It never changes."""

    def state(self) -> StreamAnswer:
        """Its last answer, as the admin API shows it."""

    def notify(self) -> None:
        """The answer may have changed."""


class ServiceMeshState(MeshState):
    """The present services and chains, from the catalog and the config entries."""

    def __init__(self, catalog: ServiceCatalog, entries: EntryTable, addresses: AddressIndex) -> None:
        self._catalog = catalog
        self._entries = entries
        self._addresses = addresses
        self._entries_of_chains: ConfigEntries | None = None
        self._cache = IdentityCache()

    @property
    def _chains(self) -> IdentityCache:
        """The chains of the present entries. Earlier chains are forgotten at once: each would keep a set of entries."""
        if self._entries_of_chains is not self._entries.index.entries:
            self._entries_of_chains = self._entries.index.entries
            self._cache = IdentityCache()
        return self._cache

    def presence(self, service: str) -> Presence:
        if self._catalog.is_shown(service):
            return Presence.PRESENT
        return Presence.UNREAD if self._catalog.is_unread(service) else Presence.ABSENT

    def instances(self, service: str) -> tuple[ServiceInstance, ...]:
        return self._catalog.instances(service)

    def chain(self, service: str) -> DiscoveryChain | None:
        return self._chains.get(("chain", service), (), lambda: self._compiled(service))

    def _compiled(self, service: str) -> DiscoveryChain | None:
        try:
            return self._entries.index.chain(service)
        except (ChainError, CompileRequestError):
            return None

    def own_chain(self, service: str, subset: str, datacenter: str) -> DiscoveryChain | None:
        key = ("own", service, subset, datacenter)
        return self._chains.get(key, (), lambda: self._compiled_alone(service, subset, datacenter))

    def _compiled_alone(self, service: str, subset: str, datacenter: str) -> DiscoveryChain | None:
        index = self._entries.index
        resolver = index.entries.find(ServiceResolver, service)
        changes = {entry_key(kind, service): None for kind in (ServiceRouter.kind, ServiceSplitter.kind)}
        entries = index.entries.with_changes(changes)
        if resolver is not None and subset:
            entries = entries.with_changes({key_of(resolver): replace(resolver, default_subset=subset)})
        try:
            context = replace(index.context, datacenter=datacenter)
            return compile_recorded(context.request(service, entries)).chain
        except CompileRequestError:
            return None

    def is_starting(self) -> bool:
        return not self._catalog.is_read

    def is_configured(self, service: str) -> bool:
        entries = self._entries.index.entries
        kinds = (ServiceResolver.kind, ServiceRouter.kind, ServiceSplitter.kind)
        return any(entries.get(entry_key(kind, service)) is not None for kind in kinds)

    def resolver(self, service: str) -> ServiceResolver | None:
        return self._entries.index.entries.find(ServiceResolver, service)

    def service_meta(self, service: str) -> Mapping[str, str]:
        defaults = self._entries.index.entries.find(ServiceDefaults, service)
        return defaults.meta if defaults is not None else NO_META

    def services_with_virtual(self, address: str) -> tuple[str, ...]:
        return tuple(map(self._catalog.written_name, self._addresses.services_with_virtual(address)))

    def services_at(self, address: str) -> tuple[str, ...]:
        return tuple(map(self._catalog.written_name, self._addresses.services_at(address)))


class Destinations:
    """The destinations of one server, and the streams that follow them. To be used in one event loop."""

    def __init__(
        self, catalog: ServiceCatalog, entries: EntryTable, cache: SnapshotCache, rules: DestinationRules
    ) -> None:
        self.cache = cache
        self.addresses = AddressIndex()
        self.resolver = DestinationResolver(ServiceMeshState(catalog, entries, self.addresses), rules)
        self.conversations = Conversations(self.resolver)
        self.messages: Counter[tuple[str, str]] = Counter()  # that were sent, by service and method
        self._catalog = catalog
        self._by_service: dict[str, dict[DestinationFollower, None]] = {}  # by name as the followers write it
        self._names: dict[ComparedName, dict[str, None]] = {}  # the names in ``_by_service``
        self._by_address: dict[str, dict[DestinationFollower, None]] = {}
        self._by_node: dict[str, dict[DestinationFollower, None]] = {}
        self._by_machine: dict[str, dict[DestinationFollower, None]] = {}
        self._depends: dict[DestinationFollower, tuple[frozenset[str], str]] = {}
        catalog.listen(self._services_changed)
        entries.listen(self._entries_changed)

    def __len__(self) -> int:
        return len(self._depends)

    def load(self) -> None:
        """Index the addresses of all services. Call it before any stream is answered."""
        self._index(self._catalog.compared_names())

    def zone_of(self, node: str) -> str:
        """The zone of a machine, as its instances say it; empty if it is not known."""
        return self.addresses.zone_of(node)

    def of_node(self, node_id: str) -> dict[int, StreamAnswer]:
        """The last answers on the open streams of a node, by the id of the stream."""
        return {follower.id: follower.state() for follower in self._by_node.get(node_id, ())}

    def states(self) -> list[StreamAnswer]:
        """The last answers on all open streams."""
        return [follower.state() for follower in self._depends]

    # Followers

    def follow(self, follower: DestinationFollower, services: frozenset[str], address: str) -> None:
        """Notify ``follower`` when one of ``services`` or ``address`` changes. They replace those of earlier calls."""
        before = self._depends.get(follower, (frozenset[str](), ""))
        if before == (services, address) and follower in self._depends:
            return
        if follower not in self._depends:
            _enter(self._by_node, follower.node_id, follower)
            if follower.machine:
                _enter(self._by_machine, follower.machine, follower)
        self._depends[follower] = services, address
        is_changed = self._enter_services(services - before[0], follower)
        is_changed |= self._leave_services(before[0] - services, follower)
        if address != before[1]:
            _leave(self._by_address, before[1], follower)
            if address:
                _enter(self._by_address, address, follower)
        if is_changed:
            self._use()

    def forget(self, follower: DestinationFollower) -> None:
        """End to notify ``follower``: its stream has ended."""
        services, address = self._depends.pop(follower, (frozenset[str](), ""))
        is_changed = self._leave_services(services, follower)
        _leave(self._by_address, address, follower)
        _leave(self._by_node, follower.node_id, follower)
        _leave(self._by_machine, follower.machine, follower)
        if is_changed:
            self._use()

    def _enter_services(self, services: Iterable[str], follower: DestinationFollower) -> bool:
        new = [one for one in services if _enter(self._by_service, one, follower)]
        for one in new:
            self._names.setdefault(compared(one), {})[one] = None
        return bool(new)

    def _leave_services(self, services: Iterable[str], follower: DestinationFollower) -> bool:
        old = [one for one in services if _leave(self._by_service, one, follower)]
        for one in old:
            names = self._names[compared(one)]
            del names[one]
            if not names:
                del self._names[compared(one)]
        return bool(old)

    def _use(self) -> None:
        self._catalog.use(USER, self._by_service)

    # Changes

    async def _services_changed(self, services: Collection[ComparedName]) -> None:
        changes = self._index(services)
        names = [name for service in services for name in self._names.get(service, ())]
        self._notify([each for name in names for each in self._by_service[name]])
        self._notify([each for address in changes.addresses for each in self._by_address.get(address, ())])
        self._notify([each for machine in changes.machines for each in self._by_machine.get(machine, ())])

    def _index(self, services: Iterable[ComparedName]) -> AddressChanges:
        """Index the addresses of these services again."""
        changes = AddressChanges(set(), set())
        for service in services:
            changed = self.addresses.assign(service, self._catalog.instances(service))
            changes.addresses.update(changed.addresses)
            changes.machines.update(changed.machines)
        return changes

    def _entries_changed(self) -> None:
        self._notify(self._depends)

    def _notify(self, followers: Iterable[DestinationFollower]) -> None:
        for follower in dict.fromkeys(followers):
            follower.notify()


def _enter(index: dict[K, dict[DestinationFollower, None]], key: K, follower: DestinationFollower) -> bool:
    """Add a follower of a key. Returns whether it is the first one."""
    members = index.setdefault(key, {})
    members[follower] = None
    return len(members) == 1


def _leave(index: dict[K, dict[DestinationFollower, None]], key: K, follower: DestinationFollower) -> bool:
    """Remove a follower of a key. Returns whether it was the last one."""
    members = index.get(key)
    if members is None or members.pop(follower, follower) is follower or members:
        return False
    del index[key]
    return True

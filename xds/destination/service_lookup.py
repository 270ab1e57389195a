"""Destinations among the services of the catalog: names, endpoints by the resolver of a service, and its rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from xds.catalog.binding import Binding, InstanceSelection
from xds.catalog.draining import ObservedInstance
from xds.catalog.service_index import ServiceInstance
from xds.chain.chain import ChainTarget, DiscoveryChain, ResolverNode, TargetKey
from xds.destination.authority import Authority, Grammar, NameReading, read_authority, written
from xds.destination.chain_policy import chain_policy
from xds.destination.chain_profile import chain_rules
from xds.destination.endpoint import DestinationEndpoint, ordered
from xds.destination.instance_endpoints import endpoint_of, endpoints_of
from xds.destination.mesh_role import is_opaque_port, linkerd_values
from xds.destination.mesh_state import DestinationRules, Presence, Remembered, World
from xds.destination.omission import resolver_omissions
from xds.destination.policy_routes import PolicyRules
from xds.destination.route_terms import ProfileRules

_READ_SERVICES = 4_096  # with all of their instances
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NODE_ONLY = ("internal_traffic_policy", "local")
_NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class FoundService:
    """A service that a name means. ``instance``: only the one of this name; ``subset`` of its resolver."""

    reading: NameReading
    subset: str = ""
    instance: str = ""

    @property
    def service(self) -> str:
        """Its name in the catalog."""
        return self.reading.service


@dataclass(frozen=True, slots=True)
class ServiceEndpoints:
    """The endpoints of a service, and the services that they depend on. ``is_settled``: False while they may come."""

    endpoints: tuple[DestinationEndpoint, ...] = ()
    services: frozenset[str] = frozenset()
    is_settled: bool = True
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceEndpoint:
    """A single endpoint, the namespace of its workload, and where it comes from."""

    endpoint: DestinationEndpoint
    namespace: str = ""
    source: str = ""


class _ReadInstance(NamedTuple):
    """An instance as it was read, with the endpoint that it became, if any. While it is held, its id is its own."""

    seen: ObservedInstance
    drains_until: float | None
    defaults: Mapping[str, str]
    endpoints: tuple[DestinationEndpoint, ...]


class ServiceLookup:
    """Services as destinations."""

    def __init__(self, world: World, rules: DestinationRules) -> None:
        self._world = world
        self._rules = rules
        self._remembered = Remembered()
        self._read_before = Remembered(_READ_SERVICES)

    def find(self, authority: Authority) -> FoundService | None:
        """The service that a name means: the first that a source shows or a config entry names."""
        for reading in authority.readings:
            if self._is_there(reading.service):
                return self._found(reading)
        return None

    def _is_there(self, service: str) -> bool:
        return self._world.presence(service) is Presence.HERE or self._world.is_configured(service)

    def named(self, service: str) -> FoundService:
        """A service by its name in the catalog."""
        return FoundService(NameReading(service))

    def name(self, reading: NameReading, grammar: Grammar) -> str:
        """The name of a service by which clients reach it; empty where no grammar can say it.

        Consul's grammar says it where the name of the wanted one means another service first.
        """
        naming = self._rules.naming
        name = written(reading, grammar, naming)
        if not self._is_other(reading, name):
            return name
        name = written(reading, Grammar.CONSUL, naming)
        return "" if self._is_other(reading, name) else name

    def _is_other(self, reading: NameReading, name: str) -> bool:
        """Whether a name of a service that is there leads to another one."""
        if not name or not self._is_there(reading.service):
            return False
        found = self.find(read_authority(name, self._rules.naming))
        return found is not None and found.service != reading.service

    def alike(self, service: str) -> tuple[str, ...]:
        """The services that have a name in common with this one, itself included."""
        base, dot, namespace = service.partition(".")
        if not dot:
            return service, f"{service}.{self._rules.naming.namespace}"
        return (service, base) if namespace == self._rules.naming.namespace else (service,)

    def is_unread(self, authority: Authority) -> bool:
        """Whether a service that a name may mean can still turn up: it was not read yet."""
        return any(self._world.presence(one.service) is Presence.UNREAD for one in authority.readings)

    def is_starting(self) -> bool:
        """Whether any service may still turn up."""
        return self._world.is_starting()

    def _found(self, reading: NameReading) -> FoundService:
        """A label is a subset where the resolver has it, else the name of an instance."""
        resolver = self._world.resolver(reading.service)
        is_subset = resolver is not None and reading.label in resolver.subsets
        return FoundService(reading, reading.label if is_subset else "", "" if is_subset else reading.label)

    def is_node_only(self, found: FoundService) -> bool:
        """Whether clients reach only instances on their own node."""
        key, value = _NODE_ONLY
        return self._values(found.service).get(key, "").lower() == value

    def is_opaque(self, service: str, port: int) -> bool:
        """Whether connections to a port of a service are streams of bytes: as it declares, or one of its instances."""
        values = self._values(service)
        if "opaque_ports" not in values:
            declared = (linkerd_values(one.instance.meta) for one in self._world.instances(service))
            values = next((each for each in declared if "opaque_ports" in each), values)
        return is_opaque_port(values, port, self._rules.mesh)

    def _values(self, service: str) -> Mapping[str, str]:
        meta = self._world.service_meta(service)
        return linkerd_values(meta) if meta else _NOTHING

    # Endpoints

    def endpoints(self, found: FoundService, port: int) -> ServiceEndpoints:
        """The endpoints by the resolver of a service: redirects, subsets, and the first failover target with any."""
        reading = found.reading
        chain = self._world.own_chain(found.service, found.subset, reading.datacenter or self._rules.datacenter)
        node = chain.start if chain is not None else None
        if chain is None or not isinstance(node, ResolverNode):
            return self._plain(found, port)
        resolver = self._world.resolver(chain.targets[node.target].key.service)
        services, skipped = {found.service}, [*(resolver_omissions(resolver) if resolver is not None else ())]
        for target in (chain.targets[key] for key in (node.target, *node.failover)):
            if target.key.peer:
                skipped.append(f"target {target.id}: peers are not served")
                continue
            services.add(target.key.service)
            endpoints = self._of_target(target, port)
            if endpoints:
                return ServiceEndpoints(endpoints, frozenset(services), skipped=tuple(skipped))
        return ServiceEndpoints((), frozenset(services), self._is_settled(chain, node), tuple(skipped))

    def _is_settled(self, chain: DiscoveryChain, node: ResolverNode) -> bool:
        return self._world.presence(chain.targets[node.target].key.service) is not Presence.UNREAD

    def _plain(self, found: FoundService, port: int) -> ServiceEndpoints:
        """Without a usable chain: all instances."""
        endpoints = self._selected(Binding(found.service), port)
        return ServiceEndpoints(endpoints, skipped=("its config entries contradict each other",))

    def _of_target(self, target: ChainTarget, port: int) -> tuple[DestinationEndpoint, ...]:
        place, subset = target.key, target.subset
        binding = Binding(place.service, subset.filter, "", place.datacenter, subset.only_passing)
        return self._selected(binding, port)

    def _selected(self, binding: Binding, port: int) -> tuple[DestinationEndpoint, ...]:
        instances, meta = self._world.instances(binding.service), self._world.service_meta(binding.service)
        # A port that no instance has is as good as any other such: clients may ask for all of them.
        ports = self._remembered.get(binding.service, (instances,), partial(_ports, instances))
        port = port if port in ports else 0
        make = partial(self._read, binding, port, instances)
        return self._remembered.get((binding, port), (instances, meta), make)

    def _read(
        self, binding: Binding, port: int, instances: tuple[ServiceInstance, ...]
    ) -> tuple[DestinationEndpoint, ...]:
        """The endpoints of what is selected. An instance that is as before is not looked at again."""
        defaults = self._values(binding.service)
        before = self._read_before.get((binding, port), (), dict[int, _ReadInstance])
        selection = InstanceSelection(binding, self._rules.datacenter)
        now: dict[int, _ReadInstance] = {}
        for one in instances:
            found = before.get(id(one.observed))
            if found is None or (found.drains_until, found.defaults) != (one.drains_until, defaults):
                selected = selection.select((one,))
                made = endpoints_of(
                    selected, port, self._rules.mesh, defaults=defaults, only_passing=binding.only_passing
                )
                found = _ReadInstance(one.observed, one.drains_until, defaults, made)
            now[id(one.observed)] = found
        before.clear()
        before.update(now)
        return ordered(endpoint for each in now.values() for endpoint in each.endpoints)

    def instance_endpoint(self, found: FoundService, port: int) -> InstanceEndpoint | None:
        """One instance of a service, whatever its health; None where there is none of this name."""
        for one in self._world.instances(found.service):
            if one.drains_until is not None:
                continue
            endpoint = endpoint_of(one.instance, port, 1, self._rules.mesh, self._values(found.service))
            if found.instance in endpoint.names:
                endpoint = replace(endpoint, names=frozenset(), hinted_zones=frozenset())
                return InstanceEndpoint(endpoint, namespace_of(found.service, one.instance.meta))
        return None

    # Profiles

    def rules(self, found: FoundService, authority: Authority, own: str) -> ProfileRules:
        """The routes and overrides of a service. A subset has none: its name leads past router and splitter."""
        if found.subset or found.reading.datacenter not in ("", self._rules.datacenter):
            return ProfileRules()
        chain = self._world.chain(found.service)
        if chain is None:
            return ProfileRules(skipped=("its config entries contradict each other",))
        key = (found, authority.grammar, authority.port, own)
        name = partial(self._name, authority.grammar, authority.port, own, found.service)
        return self._remembered.get(key, (chain, *self._there(chain)), lambda: chain_rules(chain, own, name))

    def policy(self, found: FoundService, authority: Authority, own: str) -> PolicyRules | None:
        """The routes of a service; None where it has none of its own, as for ``rules``."""
        chain = self._world.chain(found.service)
        if found.subset or found.reading.datacenter not in ("", self._rules.datacenter) or chain is None:
            return None
        key = ("policy", found, authority.grammar, authority.port, own)
        name = partial(self._name, authority.grammar, authority.port, own, found.service)
        return self._remembered.get(key, (chain, *self._there(chain)), lambda: chain_policy(chain, own, name))

    def _there(self, chain: DiscoveryChain) -> Iterator[bool]:
        """What the names of the targets depend on: which services are there that have a name in common with one."""
        services = (other for target in chain.targets.values() for other in self.alike(target.key.service))
        return map(self._is_there, services)

    def _name(self, grammar: Grammar, port: int, own: str, service: str, place: TargetKey) -> str:
        """The authority of a target; for the service itself the one that the client has asked for."""
        if place.peer:
            return ""
        is_here = place.datacenter == self._rules.datacenter
        if is_here and place.service == service and not place.subset:
            return own
        reading = NameReading(place.service, place.subset, "" if is_here else place.datacenter)
        name = self.name(reading, Grammar.KUBERNETES if grammar is Grammar.IP else grammar)
        return f"{name}:{port}" if name else ""


def _ports(instances: tuple[ServiceInstance, ...]) -> frozenset[int]:
    """The ports that instances have besides their first one."""
    return frozenset(port for one in instances for port in one.instance.ports.values())


def namespace_of(service: str, meta: Mapping[str, str]) -> str:
    """The namespace of a workload, as far as its source says it."""
    return meta.get(_NAMESPACE) or service.partition(".")[2]

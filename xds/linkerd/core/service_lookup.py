"""Destinations among the services of the catalog: names, endpoints by the resolver of a service, and its rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from xds.linkerd.core.authority import Authority, Grammar, ServiceCandidate, read_authority, service_host
from xds.linkerd.core.chain_policy import chain_policy
from xds.linkerd.core.chain_profile import chain_rules
from xds.linkerd.core.endpoint import DestinationEndpoint, FoundEndpoints, ordered
from xds.linkerd.core.instance_endpoints import endpoint_of, endpoints_of
from xds.linkerd.core.mesh_role import is_opaque_port, linkerd_values
from xds.linkerd.core.mesh_state import DestinationRules, IdentityCache, MeshState, Presence
from xds.linkerd.core.omission import resolver_omissions
from xds.linkerd.core.outbound_policy import PolicyRules
from xds.linkerd.core.route_terms import ProfileRules
from xds.mesh.core.chain.chain import ChainTarget, DiscoveryChain, ResolverNode, TargetKey
from xds.model.compared_name import compared
from xds.services.core.binding import Binding, InstanceSelection
from xds.services.core.draining import ObservedInstance
from xds.services.core.index import ServiceInstance

_READ_CACHED = 4_096  # with all of their instances
_NO_VALUES: Mapping[str, str] = MappingProxyType({})
_NODE_ONLY = ("internal_traffic_policy", "local")
_NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class FoundService:
    """A service that a name means. ``subset`` is one of its resolver; ``instance`` is the name of a single instance."""

    candidate: ServiceCandidate
    subset: str = ""
    instance: str = ""

    @property
    def service(self) -> str:
        """The name in the catalog."""
        return self.candidate.service


@dataclass(frozen=True, slots=True)
class InstanceEndpoint:
    """A single endpoint, the namespace of its workload, and where it comes from."""

    endpoint: DestinationEndpoint
    namespace: str = ""
    source: str = ""


class _ReadInstance(NamedTuple):
    """An instance with its endpoint, if any. The reference keeps the id of ``observed`` unique."""

    observed: ObservedInstance
    drains_until: float | None
    defaults: Mapping[str, str]
    endpoints: tuple[DestinationEndpoint, ...]


class ServiceLookup:
    """Services as destinations."""

    def __init__(self, mesh_state: MeshState, rules: DestinationRules) -> None:
        self._mesh_state = mesh_state
        self._rules = rules
        self._cache = IdentityCache()
        self._read_instances = IdentityCache(_READ_CACHED)

    def find(self, authority: Authority) -> FoundService | None:
        """The service that a name means: the first candidate that a source shows or a config entry names."""
        for candidate in authority.candidates:
            if self._exists(candidate.service):
                return self._find_candidate(candidate)
        return None

    def _exists(self, service: str) -> bool:
        return self._mesh_state.presence(service) is Presence.PRESENT or self._mesh_state.is_configured(service)

    def named(self, service: str) -> FoundService:
        """A service by its name in the catalog."""
        return FoundService(ServiceCandidate(service))

    def name(self, candidate: ServiceCandidate, grammar: Grammar) -> str:
        """The host name by which clients reach a service; empty if no grammar can express it.

        If the name in the wanted grammar means another service first, the name is in Consul's grammar.
        """
        naming = self._rules.naming
        name = service_host(candidate, grammar, naming)
        if not self._is_other(candidate, name):
            return name
        name = service_host(candidate, Grammar.CONSUL, naming)
        return "" if self._is_other(candidate, name) else name

    def _is_other(self, candidate: ServiceCandidate, name: str) -> bool:
        """Whether the service exists, and the name leads to another one."""
        if not name or not self._exists(candidate.service):
            return False
        service = self.find(read_authority(name, self._rules.naming))
        return service is not None and compared(service.service) != compared(candidate.service)

    def alike(self, service: str) -> tuple[str, ...]:
        """The services that have a name in common with this one, itself included."""
        base, dot, namespace = service.partition(".")
        if not dot:
            return service, f"{service}.{self._rules.naming.namespace}"
        return (service, base) if namespace == self._rules.naming.namespace else (service,)

    def is_unread(self, authority: Authority) -> bool:
        """Whether a candidate of a name was not read yet, so that it may exist."""
        return any(self._mesh_state.presence(one.service) is Presence.UNREAD for one in authority.candidates)

    def is_starting(self) -> bool:
        """Whether a source was never read, so that any service may exist."""
        return self._mesh_state.is_starting()

    def _find_candidate(self, candidate: ServiceCandidate) -> FoundService:
        """The service of a candidate. Its label is a subset if the resolver has it, else the name of an instance."""
        resolver = self._mesh_state.resolver(candidate.service)
        is_subset = resolver is not None and candidate.label in resolver.subsets
        return FoundService(candidate, candidate.label if is_subset else "", "" if is_subset else candidate.label)

    def is_node_only(self, service: FoundService) -> bool:
        """Whether clients reach only instances on their own node."""
        key, value = _NODE_ONLY
        return self._values(service.service).get(key, "").lower() == value

    def is_opaque(self, service: str, port: int) -> bool:
        """Whether connections to a port are streams of bytes, as the service or one of its instances declares."""
        values = self._values(service)
        if "opaque_ports" not in values:
            declared = (linkerd_values(one.instance.meta) for one in self._mesh_state.instances(service))
            values = next((each for each in declared if "opaque_ports" in each), values)
        return is_opaque_port(values, port, self._rules.mesh)

    def _values(self, service: str) -> Mapping[str, str]:
        meta = self._mesh_state.service_meta(service)
        return linkerd_values(meta) if meta else _NO_VALUES

    # Endpoints

    def endpoints(self, service: FoundService, port: int) -> FoundEndpoints:
        """The endpoints by the resolver of a service: redirects, subsets, and the first failover target with any."""
        candidate = service.candidate
        chain = self._mesh_state.own_chain(
            service.service, service.subset, candidate.datacenter or self._rules.datacenter
        )
        node = chain.start if chain is not None else None
        if chain is None or not isinstance(node, ResolverNode):
            return self._all_endpoints(service, port)
        resolver = self._mesh_state.resolver(chain.targets[node.target].key.service)
        services, skipped = {service.service}, [*(resolver_omissions(resolver) if resolver is not None else ())]
        for target in (chain.targets[key] for key in (node.target, *node.failover)):
            if target.key.peer:
                skipped.append(f"target {target.id}: peers are not served")
                continue
            services.add(target.key.service)
            endpoints = self._target_endpoints(target, port)
            if endpoints:
                return FoundEndpoints(endpoints, tuple(skipped), services=frozenset(services))
        return FoundEndpoints((), tuple(skipped), self._is_settled(chain, node), frozenset(services))

    def _is_settled(self, chain: DiscoveryChain, node: ResolverNode) -> bool:
        return self._mesh_state.presence(chain.targets[node.target].key.service) is not Presence.UNREAD

    def _all_endpoints(self, service: FoundService, port: int) -> FoundEndpoints:
        """The endpoints of all instances, for a service without a usable chain."""
        endpoints = self._selected_endpoints(Binding(service.service), port)
        return FoundEndpoints(endpoints, skipped=("its config entries contradict each other",))

    def _target_endpoints(self, target: ChainTarget, port: int) -> tuple[DestinationEndpoint, ...]:
        key, subset = target.key, target.subset
        binding = Binding(key.service, subset.filter, "", key.datacenter, subset.only_passing)
        return self._selected_endpoints(binding, port)

    def _selected_endpoints(self, binding: Binding, port: int) -> tuple[DestinationEndpoint, ...]:
        instances, meta = self._mesh_state.instances(binding.service), self._mesh_state.service_meta(binding.service)
        # All ports that no instance has share a result, because clients may request any number of them.
        ports = self._cache.get(binding.service, (instances,), partial(_ports, instances))
        port = port if port in ports else 0
        make = partial(self._read, binding, port, instances)
        return self._cache.get((binding, port), (instances, meta), make)

    def _read(
        self, binding: Binding, port: int, instances: tuple[ServiceInstance, ...]
    ) -> tuple[DestinationEndpoint, ...]:
        """The endpoints of the selected instances. Endpoints of unchanged instances are reused."""
        defaults = self._values(binding.service)
        previous = self._read_instances.get((binding, port), (), dict[int, _ReadInstance])
        selection = InstanceSelection(binding, self._rules.datacenter)
        current: dict[int, _ReadInstance] = {}
        for one in instances:
            instance = previous.get(id(one.observed))
            if instance is None or (instance.drains_until, instance.defaults) != (one.drains_until, defaults):
                selected = ((each.instance, each.health) for each in selection.select((one,)))
                endpoints = endpoints_of(
                    selected, port, self._rules.mesh, defaults=defaults, only_passing=binding.only_passing
                )
                instance = _ReadInstance(one.observed, one.drains_until, defaults, endpoints)
            current[id(one.observed)] = instance
        previous.clear()
        previous.update(current)
        return ordered(endpoint for each in current.values() for endpoint in each.endpoints)

    def instance_endpoint(self, service: FoundService, port: int) -> InstanceEndpoint | None:
        """The endpoint of the named instance, whatever its health; None if there is no such instance."""
        for one in self._mesh_state.instances(service.service):
            if one.drains_until is not None:
                continue
            endpoint = endpoint_of(one.instance, port, 1, self._rules.mesh, self._values(service.service))
            if service.instance in endpoint.names:
                endpoint = replace(endpoint, names=frozenset(), hinted_zones=frozenset())
                return InstanceEndpoint(endpoint, namespace_of(service.service, one.instance.meta))
        return None

    # Profiles

    def rules(self, service: FoundService, authority: Authority, own: str) -> ProfileRules:
        """The routes and overrides of a service. A subset has none: its name bypasses router and splitter."""
        if service.subset or service.candidate.datacenter not in ("", self._rules.datacenter):
            return ProfileRules()
        chain = self._mesh_state.chain(service.service)
        if chain is None:
            return ProfileRules(skipped=("its config entries contradict each other",))
        key = (service, authority.grammar, authority.port, own)
        name = partial(self._name, authority.grammar, authority.port, own, service.service)
        return self._cache.get(key, (chain, *self._existing_names(chain)), lambda: chain_rules(chain, own, name))

    def policy(self, service: FoundService, authority: Authority, own: str) -> PolicyRules | None:
        """The routes of a service for an outbound policy; None for a subset, another datacenter, or a broken chain."""
        chain = self._mesh_state.chain(service.service)
        if service.subset or service.candidate.datacenter not in ("", self._rules.datacenter) or chain is None:
            return None
        key = ("policy", service, authority.grammar, authority.port, own)
        name = partial(self._name, authority.grammar, authority.port, own, service.service)
        return self._cache.get(key, (chain, *self._existing_names(chain)), lambda: chain_policy(chain, own, name))

    def _existing_names(self, chain: DiscoveryChain) -> Iterator[bool]:
        """Whether each service exists that shares a name with a target. The names of targets depend on it."""
        services = (other for target in chain.targets.values() for other in self.alike(target.key.service))
        return map(self._exists, services)

    def _name(self, grammar: Grammar, port: int, own: str, service: str, key: TargetKey) -> str:
        """The authority of a target. That of the service itself is the one that the client requested."""
        if key.peer:
            return ""
        is_here = key.datacenter == self._rules.datacenter
        if is_here and compared(key.service) == compared(service) and not key.subset:
            return own
        candidate = ServiceCandidate(key.service, key.subset, "" if is_here else key.datacenter)
        name = self.name(candidate, Grammar.KUBERNETES if grammar is Grammar.IP else grammar)
        return f"{name}:{port}" if name else ""


def _ports(instances: tuple[ServiceInstance, ...]) -> frozenset[int]:
    """The named ports of instances."""
    return frozenset(port for one in instances for port in one.instance.ports.values())


def namespace_of(service: str, meta: Mapping[str, str]) -> str:
    """The namespace of a workload, from its metadata or the name of its service; may be empty."""
    return meta.get(_NAMESPACE) or service.partition(".")[2]

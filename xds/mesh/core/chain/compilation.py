"""The state of one compilation. Only the passes change it (``assembling``, ``compile``).

``ConsultedEntries`` records the entries that were looked up. They are the chain's invalidation set: changes of other
entries do not change the chain. A missing entry counts as well, because it may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xds.consul.shared import DEFAULT, EnvoyExtension
from xds.mesh.core.chain.chain import (
    RESOLVER,
    ROUTER,
    SPLITTER,
    ChainError,
    ChainRoute,
    ChainSplit,
    Flaw,
    Naming,
    TargetKey,
    node_key,
    path_text,
)
from xds.mesh.core.chain.request import CompileRequest, PeerLocality
from xds.mesh.core.entries.defaults import GLOBAL, ProxyDefaults, ServiceDefaults
from xds.mesh.core.entries.entry import Key, entry_key
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.entries.resolver import LoadBalancer, ServiceResolver, Subset
from xds.mesh.core.entries.router import ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter
from xds.model.compared_name import ComparedName, compared

PROXY_DEFAULTS: Key = entry_key(ProxyDefaults.kind, GLOBAL)

TCP = "tcp"
HTTP_LIKE = frozenset(("http", "http2", "grpc"))

# The depth of redirects and splitters. Real chains have a handful; a deep chain costs every chain that leads to it.
DEPTH_LIMIT = 100
_NO_SUBSET = Subset()


class ConsultedEntries:
    """The lookups of one compilation. ``keys`` grows with each of them."""

    __slots__ = ("_defaults", "_names", "_proxy_defaults", "_resolvers", "_routers", "_splitters", "keys")

    def __init__(self, entries: ConfigEntries) -> None:
        # These lookups occur many times in one compilation, so the methods are resolved once.
        self._routers: Mapping[ComparedName, ServiceRouter] = entries.by_kind.get(ServiceRouter.kind, {})
        self._splitters: Mapping[ComparedName, ServiceSplitter] = entries.by_kind.get(ServiceSplitter.kind, {})
        self._resolvers: Mapping[ComparedName, ServiceResolver] = entries.by_kind.get(ServiceResolver.kind, {})
        self._defaults: Mapping[ComparedName, ServiceDefaults] = entries.by_kind.get(ServiceDefaults.kind, {})
        self._proxy_defaults = entries.proxy_defaults()
        self._names: dict[str, ComparedName] = {}
        self.keys: set[Key] = {PROXY_DEFAULTS}

    def router(self, service: str) -> ServiceRouter | None:
        """The router of a service."""
        name = self._names.get(service) or self._compared(service)
        self.keys.add((ServiceRouter.kind, name))
        return self._routers.get(name)

    def splitter(self, service: str) -> ServiceSplitter | None:
        """The splitter of a service."""
        name = self._names.get(service) or self._compared(service)
        self.keys.add((ServiceSplitter.kind, name))
        return self._splitters.get(name)

    def resolver(self, service: str) -> ServiceResolver | None:
        """The resolver of a service."""
        name = self._names.get(service) or self._compared(service)
        self.keys.add((ServiceResolver.kind, name))
        return self._resolvers.get(name)

    def defaults(self, service: str) -> ServiceDefaults | None:
        """The defaults of a service."""
        name = self._names.get(service) or self._compared(service)
        self.keys.add((ServiceDefaults.kind, name))
        return self._defaults.get(name)

    def _compared(self, service: str) -> ComparedName:
        name = self._names[service] = compared(service)
        return name

    def proxy_defaults(self) -> ProxyDefaults | None:
        """The proxy-defaults, which every chain looks up."""
        return self._proxy_defaults


def service_protocol(defaults: ServiceDefaults | None, proxy_defaults: ProxyDefaults | None) -> str:
    """The protocol of a service.

    service-defaults without a protocol mean tcp, and override proxy-defaults, as in Consul.
    """
    if defaults is not None:
        return defaults.protocol.lower() or TCP
    return (proxy_defaults.protocol.lower() if proxy_defaults is not None else "") or TCP


@dataclass(slots=True, eq=False)
class TargetDraft:
    """A target while its settings are looked up."""

    id: str
    key: TargetKey
    name: str
    sni: str
    subset: Subset = _NO_SUBSET
    connect_timeout_ns: int = 0
    mesh_gateway_mode: str = ""
    is_dialed_directly: bool = False
    outbound_listener_port: int = 0
    is_external: bool = False
    locality: PeerLocality | None = None


@dataclass(slots=True, eq=False)
class RouterDraft:
    """A router while its routes are followed."""

    name: str
    routes: list[ChainRoute] = field(default_factory=list)
    kind = ROUTER

    def next_nodes(self) -> list[str]:
        """The keys of the nodes that it leads to, in order."""
        return [route.next_node for route in self.routes]


@dataclass(slots=True, eq=False)
class SplitterDraft:
    """A splitter while its legs are followed."""

    name: str
    splits: list[ChainSplit] = field(default_factory=list)
    load_balancer: LoadBalancer | None = None
    kind = SPLITTER

    def next_nodes(self) -> list[str]:
        """The keys of the nodes that it leads to, in order."""
        return [split.next_node for split in self.splits]


@dataclass(slots=True, eq=False)
class ResolverDraft:
    """A resolver while its failover is looked up."""

    name: str
    target: TargetDraft
    is_default: bool
    connect_timeout_ns: int
    request_timeout_ns: int
    load_balancer: LoadBalancer | None
    failover: list[str] = field(default_factory=list)
    kind = RESOLVER

    def next_nodes(self) -> list[str]:
        """Empty: no node follows."""
        return []


NodeDraft = RouterDraft | SplitterDraft | ResolverDraft


@dataclass(slots=True)
class Customized:
    """The overrides that had an effect."""

    protocol: bool = False
    connect_timeout: bool = False
    mesh_gateway: bool = False


class Compilation:
    """The nodes, targets and protocol that are known so far."""

    def __init__(self, request: CompileRequest, entries: ConfigEntries) -> None:
        self.request = request
        self.entries = ConsultedEntries(entries)
        self.naming = Naming(request.trust_domain, request.has_partitions)
        self.nodes: dict[str, NodeDraft] = {}
        self.resolvers: dict[str, ResolverDraft] = {}  # by target ID
        self.targets: dict[str, TargetDraft] = {}
        self.resolved_targets: set[str] = set()  # IDs of the targets that the chain contains
        self.path: list[str] = []  # the nodes from the start to the one that is being followed
        self.protocol = ""
        self.start_node = ""
        self.uses_http = False
        self.customized = Customized()
        self.service_meta: dict[str, str] = {}
        self.envoy_extensions: tuple[EnvoyExtension, ...] = ()
        self.override_protocol = request.overrides.protocol.lower()
        self.ignores_http = self.override_protocol not in ("", *HTTP_LIKE)

    def error(self, flaw: Flaw, detail: str) -> ChainError:
        """The error for the node that is being followed."""
        return ChainError(flaw, detail, self.request.service, tuple(self.path))

    def enter(self, key: str) -> None:
        """Follow a node: errors from here on have it in their path. Raises ``ChainError`` if the path is too deep."""
        self.path.append(key)
        if len(self.path) > DEPTH_LIMIT:
            detail = f"more than {DEPTH_LIMIT} redirects and splits behind each other: [{path_text(tuple(self.path))}]"
            raise self.error(Flaw.TOO_LARGE, detail)

    def leave(self, depth: int) -> None:
        """Return to the first ``depth`` nodes of the path."""
        del self.path[depth:]

    def record(self, node: NodeDraft) -> None:
        """Record a node; a resolver also by its target."""
        self.nodes[node_key(node.kind, node.name)] = node
        if isinstance(node, ResolverDraft):
            self.resolvers[node.target.id] = node

    def record_protocol(self, service: str) -> None:
        """Record the protocol of a service. Raises ``ChainError`` if an earlier service has a different one."""
        protocol = service_protocol(self.entries.defaults(service), self.entries.proxy_defaults())
        if not self.protocol:
            self.protocol = protocol
        elif self.protocol != protocol:
            detail = (
                f'discovery chain "{self.request.service}" uses inconsistent protocols; '
                f'service "{service}" has "{protocol}" which is not "{self.protocol}"'
            )
            raise self.error(Flaw.PROTOCOL_MISMATCH, detail)

    # Targets

    def target(self, service: str, subset: str = "") -> TargetDraft:
        """The target of a service in the own datacenter."""
        request = self.request
        return self.target_at(TargetKey(service, subset, request.namespace, request.partition, request.datacenter, ""))

    def target_at(self, key: TargetKey) -> TargetDraft:
        """The target with this key; one object for each ID."""
        id = self.naming.target(key)
        draft = self.targets.get(id)
        if draft is None:
            sni = self.naming.sni(key)
            draft = self.targets[id] = TargetDraft(id, key, sni, sni)
            draft.locality = self.request.peers.get(key.peer) if key.peer else None
        return draft

    def rewrite(
        self,
        target: TargetDraft,
        service: str = "",
        subset: str = "",
        namespace: str = "",
        datacenter: str = "",
        peer: str = "",
    ) -> TargetDraft:
        """The target with the given parts replaced.

        Another service starts without a subset, and without a peer it is local.
        """
        request, key = self.request, target.key
        if not service or service == key.service:
            service, subset = key.service, subset or key.subset
        if peer:
            # A target of a peer has no datacenter, and is seen from the own partition.
            return self.target_at(TargetKey(service, subset, namespace or DEFAULT, request.partition, "", peer))
        datacenter = datacenter or key.datacenter or request.datacenter
        return self.target_at(TargetKey(service, subset, namespace or key.namespace, key.partition, datacenter, peer))

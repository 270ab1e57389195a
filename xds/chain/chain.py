"""The compiled discovery chain of one service: its nodes and targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xds.catalog.resolver import LoadBalancer, Subset
from xds.catalog.router import Route
from xds.catalog.shared import EnvoyExtension
from xds.catalog.splitter import Split
from xds.chain.node_names import RESOLVER, ROUTER, SPLITTER, TargetKey, node_key
from xds.chain.request import PeerLocality


@dataclass(frozen=True, slots=True)
class ChainRoute:
    """A route and the node that it leads to. The last route of a router matches everything."""

    definition: Route
    next_node: str


@dataclass(frozen=True, slots=True)
class RouterNode:
    """The start of a chain with a router."""

    name: str
    routes: tuple[ChainRoute, ...]

    @property
    def key(self) -> str:
        """The key of the node in the chain."""
        return node_key(ROUTER, self.name)

    @property
    def next_nodes(self) -> tuple[str, ...]:
        """The keys of the nodes that it leads to, in order."""
        return tuple(route.next_node for route in self.routes)


@dataclass(frozen=True, slots=True)
class ChainSplit:
    """A leg. ``weight`` is the effective one, in basis points; the definition keeps its own."""

    definition: Split
    weight: int
    next_node: str


@dataclass(frozen=True, slots=True)
class SplitterNode:
    """Legs that share the requests. ``load_balancer`` is that of the first leg with a hash-based one."""

    name: str
    splits: tuple[ChainSplit, ...]
    load_balancer: LoadBalancer | None = None

    @property
    def key(self) -> str:
        """The key of the node in the chain."""
        return node_key(SPLITTER, self.name)

    @property
    def next_nodes(self) -> tuple[str, ...]:
        """The keys of the nodes that it leads to, in order."""
        return tuple(split.next_node for split in self.splits)


@dataclass(frozen=True, slots=True)
class ResolverNode:
    """The end of a path: a target and its failover targets in order, by their IDs."""

    name: str
    target: str
    is_default: bool
    connect_timeout_ns: int
    request_timeout_ns: int = 0
    failover: tuple[str, ...] = ()
    load_balancer: LoadBalancer | None = None

    @property
    def key(self) -> str:
        """The key of the node in the chain."""
        return node_key(RESOLVER, self.name)

    @property
    def next_nodes(self) -> tuple[str, ...]:
        """Empty: no node follows."""
        return ()


Node = RouterNode | SplitterNode | ResolverNode


@dataclass(frozen=True, slots=True)
class ChainTarget:
    """A set of instances. ``name`` is the opaque name; ``sni`` may be set by the service."""

    id: str
    place: TargetKey
    name: str
    sni: str
    subset: Subset
    connect_timeout_ns: int
    mesh_gateway_mode: str = ""
    is_dialed_directly: bool = False
    outbound_listener_port: int = 0
    is_external: bool = False
    locality: PeerLocality | None = None


@dataclass(frozen=True, slots=True)
class DiscoveryChain:
    """The result of a compilation. ``has_partitions`` decides the form of names and JSON."""

    service: str
    namespace: str
    partition: str
    datacenter: str
    protocol: str
    start_node: str
    nodes: Mapping[str, Node]
    targets: Mapping[str, ChainTarget]
    is_default: bool = False
    customization_hash: str = ""
    service_meta: Mapping[str, str] = field(default_factory=dict)
    envoy_extensions: tuple[EnvoyExtension, ...] = ()
    auto_virtual_ips: tuple[str, ...] = ()
    manual_virtual_ips: tuple[str, ...] = ()
    has_partitions: bool = True

    @property
    def start(self) -> Node:
        """The node where every request begins."""
        return self.nodes[self.start_node]

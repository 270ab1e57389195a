"""The compiled discovery chain of one service: its nodes, its targets, their names, and the errors of compilation.

Names of nodes and targets are opaque to clients, and equal to Consul's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from xds.consul.shared import DEFAULT, EnvoyExtension
from xds.mesh.core.entries.resolver import LoadBalancer, Subset
from xds.mesh.core.entries.router import Route
from xds.mesh.core.entries.splitter import Split
from xds.model.errors import XdsError

ROUTER, SPLITTER, RESOLVER = "router", "splitter", "resolver"


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
    """A leg. ``weight`` is the effective weight in basis points; the weight in ``definition`` is unchanged."""

    definition: Split
    weight: int
    next_node: str


@dataclass(frozen=True, slots=True)
class SplitterNode:
    """Legs that share the requests. ``load_balancer`` is that of the first leg with a hash-based load balancer."""

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
    """A set of instances. ``name`` is opaque, and empty for a peer's. ``ExternalSNI`` replaces it as ``sni``."""

    id: str
    key: TargetKey
    name: str
    sni: str
    subset: Subset
    connect_timeout_ns: int
    mesh_gateway_mode: str = ""
    is_dialed_directly: bool = False
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class DiscoveryChain:
    """The result of a compilation. ``has_partitions`` decides the form of names and JSON."""

    service: str
    datacenter: str
    protocol: str
    start_node: str
    nodes: Mapping[str, Node]
    targets: Mapping[str, ChainTarget]
    is_default: bool = False
    customization_hash: str = ""
    service_meta: Mapping[str, str] = field(default_factory=dict)
    envoy_extensions: tuple[EnvoyExtension, ...] = ()
    has_partitions: bool = True

    @property
    def start(self) -> Node:
        """The node where every request begins."""
        return self.nodes[self.start_node]


class TargetKey(NamedTuple):
    """The identity of a target: service, subset, and where the instances are: a datacenter, or a peer."""

    service: str
    subset: str
    datacenter: str
    peer: str = ""


def node_key(kind: str, name: str) -> str:
    """The key of a node in a chain."""
    return f"{kind}:{name}"


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one compilation; ``has_partitions`` as in the request."""

    trust_domain: str
    has_partitions: bool

    def service(self, name: str) -> str:
        """The name of a router or splitter."""
        return f"{name}.{DEFAULT}.{DEFAULT}" if self.has_partitions else f"{name}.{DEFAULT}"

    def target(self, key: TargetKey) -> str:
        """The ID of a target. A target of a peer has no subset and no datacenter."""
        if key.peer:
            return f"{self.service(key.service)}.external.{key.peer}"
        subset = f"{key.subset}." if key.subset else ""
        return f"{subset}{self.service(key.service)}.{key.datacenter}"

    def sni(self, key: TargetKey) -> str:
        """The TLS server name of a target; empty for a target of a peer."""
        if key.peer:
            return ""
        subset = f"{key.subset}." if key.subset else ""
        return f"{subset}{key.service}.{DEFAULT}.{key.datacenter}.internal.{self.trust_domain}"


class Flaw(Enum):
    """The kinds of contradictions between config entries."""

    PROTOCOL_MISMATCH = "protocol_mismatch"
    PROTOCOL_NOT_HTTP = "protocol_not_http"
    CIRCULAR_REDIRECT = "circular_redirect"
    CIRCULAR_REFERENCE = "circular_reference"
    UNKNOWN_SUBSET = "unknown_subset"
    EXTERNAL_REDIRECT = "external_redirect"
    EXTERNAL_SUBSETS = "external_subsets"
    EXTERNAL_FAILOVER = "external_failover"
    TOO_LARGE = "too_large"


class ChainError(XdsError):
    """Config entries contradict each other; Consul calls this a graph error.

    ``chain`` is the service whose chain fails, ``path`` the nodes from its start to the error.
    """

    def __init__(self, flaw: Flaw, detail: str, chain: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.flaw = flaw
        self.detail = detail
        self.chain = chain
        self.path = path


PATH_NODES_LIMIT = 20  # a message shows at most this many nodes of a path


def path_text(path: tuple[str, ...]) -> str:
    """``a -> b -> c``; a long path is shortened in the middle."""
    shown = path
    if len(path) > PATH_NODES_LIMIT:
        half = PATH_NODES_LIMIT // 2
        shown = (*path[:half], f"... {len(path) - PATH_NODES_LIMIT} more ...", *path[-half:])
    return " -> ".join(shown)

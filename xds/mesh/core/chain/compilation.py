"""The state of one compilation. Only the passes change it (``assembling``, ``compile``).

``ConsultedEntries`` records the entries that were looked up. They are the chain's invalidation set: changes of other
entries do not change the chain. A missing entry counts as well, because it may be added.
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.consul.shared import EnvoyExtension
from xds.mesh.core.chain.chain import (
    ChainError,
    ChainTarget,
    Flaw,
    Naming,
    Node,
    ResolverNode,
    TargetKey,
    path_text,
)
from xds.mesh.core.chain.request import CompileRequest
from xds.mesh.core.entries.defaults import GLOBAL, ProxyDefaults, ServiceDefaults
from xds.mesh.core.entries.entry import Key, entry_key
from xds.mesh.core.entries.entry_set import ConfigEntries, E
from xds.model.compared_name import ComparedName, compared

PROXY_DEFAULTS: Key = entry_key(ProxyDefaults.kind, GLOBAL)

TCP = "tcp"
HTTP_LIKE = frozenset(("http", "http2", "grpc"))

# The depth of redirects and splitters. Real chains have a handful; a deep chain costs every chain that leads to it.
DEPTH_LIMIT = 100


class ConsultedEntries:
    """The lookups of one compilation. ``keys`` grows with each of them; every chain looks up the proxy-defaults."""

    __slots__ = ("_by_kind", "_names", "keys", "proxy_defaults")

    def __init__(self, entries: ConfigEntries) -> None:
        self._by_kind = entries.by_kind
        self._names: dict[str, ComparedName] = {}  # a service is looked up many times in one compilation
        self.proxy_defaults = entries.find(ProxyDefaults, GLOBAL)
        self.keys: set[Key] = {PROXY_DEFAULTS}

    def find(self, kind: type[E], service: str) -> E | None:
        """The entry of a kind for a service."""
        name = self._names.get(service)
        if name is None:
            name = self._names[service] = compared(service)
        self.keys.add((kind.kind, name))
        entries = self._by_kind.get(kind.kind)
        entry: E | None = entries.get(name) if entries is not None else None
        return entry


def service_protocol(defaults: ServiceDefaults | None, proxy_defaults: ProxyDefaults | None) -> str:
    """The protocol of a service.

    service-defaults without a protocol mean tcp, and override proxy-defaults, as in Consul.
    """
    if defaults is not None:
        return defaults.protocol.lower() or TCP
    return (proxy_defaults.protocol.lower() if proxy_defaults is not None else "") or TCP


@dataclass(slots=True)
class Customized:
    """The overrides that had an effect."""

    protocol: bool = False
    connect_timeout: bool = False
    mesh_gateway: bool = False


class Compilation:
    """The nodes, targets and protocol that are known so far."""

    def __init__(self, request: CompileRequest) -> None:
        self.request = request
        self.entries = ConsultedEntries(request.entries)
        self.naming = Naming(request.trust_domain, request.has_partitions)
        self.nodes: dict[str, Node] = {}
        self.resolvers: dict[str, ResolverNode] = {}  # by target ID
        self.keys: dict[str, TargetKey] = {}  # by target ID
        self.targets: dict[str, ChainTarget] = {}
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

    def record(self, node: Node) -> None:
        """Record a node, which replaces one of its name; a resolver also by its target."""
        self.nodes[node.key] = node
        if isinstance(node, ResolverNode):
            self.resolvers[node.target] = node

    def record_protocol(self, service: str) -> None:
        """Record the protocol of a service. Raises ``ChainError`` if an earlier service has a different one."""
        protocol = service_protocol(self.entries.find(ServiceDefaults, service), self.entries.proxy_defaults)
        if not self.protocol:
            self.protocol = protocol
        elif self.protocol != protocol:
            detail = (
                f'discovery chain "{self.request.service}" uses inconsistent protocols; '
                f'service "{service}" has "{protocol}" which is not "{self.protocol}"'
            )
            raise self.error(Flaw.PROTOCOL_MISMATCH, detail)

    def target(self, service: str, subset: str = "") -> TargetKey:
        """The target of a service in the own datacenter."""
        return self._first(TargetKey(service, subset, self.request.datacenter))

    def rewrite(
        self, target: TargetKey, service: str = "", subset: str = "", datacenter: str = "", peer: str = ""
    ) -> TargetKey:
        """The target with the given parts replaced.

        Another service starts without a subset, and without a peer it is local.
        """
        if not service or service == target.service:
            service, subset = target.service, subset or target.subset
        if peer:
            return self._first(TargetKey(service, subset, "", peer))
        return self._first(TargetKey(service, subset, datacenter or target.datacenter or self.request.datacenter))

    def _first(self, key: TargetKey) -> TargetKey:
        """The first target with the ID of this one, as in Consul: all subsets of a peer's service have the same."""
        return self.keys.setdefault(self.naming.target(key), key)

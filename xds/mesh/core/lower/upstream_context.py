"""The context of lowering one upstream: its chain, the settings, and the findings. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from xds.codec.findings import FieldPath, json_pointer
from xds.mesh.core.chain.chain import ChainTarget, DiscoveryChain, ResolverNode
from xds.mesh.core.entries.defaults import GLOBAL, ProxyDefaults, ServiceDefaults
from xds.mesh.core.entries.entry import WrittenKey, entry_key
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.mesh.core.lower.lowered import UPSTREAM, Json
from xds.mesh.core.lower.upstreams import AGGREGATE, ProxySettings, Upstream
from xds.model.errors import WARNING, Violation

_GATEWAY_MODES = ("local", "remote")
_TCP = "tcp"


@dataclass(frozen=True, slots=True)
class UpstreamChain:
    """The chain of an upstream, compiled in its datacenter with its overrides.

    ``entries`` has the existing config entries that the compiler looked up.
    """

    chain: DiscoveryChain
    entries: frozenset[WrittenKey] = frozenset()


@dataclass(slots=True)
class UpstreamContext:
    """The values that an upstream is lowered from, and the findings. ``datacenter`` is that of the proxies.

    ``violations`` refuse the upstream, ``warnings`` do not.
    """

    upstream: Upstream
    compiled: UpstreamChain
    proxies: ProxySettings
    datacenter: str
    violations: list[Violation] = field(default_factory=list)
    warnings: list[Violation] = field(default_factory=list)

    @property
    def chain(self) -> DiscoveryChain:
        """The chain of the upstream."""
        return self.compiled.chain

    @property
    def protocol(self) -> str:
        """The protocol that proxies speak: that of the upstream, else that of the chain, else tcp."""
        return self.upstream.protocol or self.chain.protocol or _TCP

    @property
    def is_http(self) -> bool:
        """Whether proxies read requests, not only connections."""
        return self.protocol != _TCP

    @property
    def has_routes(self) -> bool:
        """Whether the upstream has a route configuration. A default chain has its one route in the listener."""
        return self.is_http and not self.chain.is_default

    @property
    def has_aggregates(self) -> bool:
        """Whether a failover makes an aggregate cluster.

        gRPC rejects the load balancing policy that Envoy needs for one (measured, C core 1.85).
        """
        return self.upstream.is_proxied and self.proxies.failover == AGGREGATE

    def target(self, node: ResolverNode) -> ChainTarget:
        """The first target of a resolver."""
        return self.chain.targets[node.target]

    def refuse(self, code: str, detail: str, kind: str, name: str, path: FieldPath = (), hint: str = "") -> None:
        """Add a violation: the upstream cannot be lowered, because of a part of an entry."""
        resource = f"{kind}/{name}"
        hint = f"{hint}; upstream {self.upstream.name!r} needs it" if hint else f"upstream {self.upstream.name!r}"
        self.violations.append(Violation(code, detail, resource, json_pointer(path), hint=hint))

    def warn(self, code: str, detail: str, hint: str = "") -> None:
        """Add a warning: a part of the upstream is left out or has no effect."""
        resource = f"{UPSTREAM}/{self.upstream.name}"
        self.warnings.append(Violation(code, detail, resource, severity=WARNING, hint=hint))

    def escape_hatch(self, field: str, noun: str, name: str) -> Json | None:
        """What the user wrote in place of a resource of a default chain, under the same name; None without it."""
        own: Json | None = getattr(self.upstream, field)
        if own is None or not self.chain.is_default:
            return None
        given_name = own.get("name", name)
        if given_name != name:
            detail = f"the {noun} is called {name!r}, not {given_name!r:.80}"
            self.refuse("wrong_name", detail, UPSTREAM, self.upstream.name, (field, "name"))
        return {**{key: value for key, value in own.items() if key != "@type"}, "name": name}

    def obstacle(self, target: ChainTarget) -> str:
        """Why a target cannot be reached; empty where it can."""
        key = target.key
        if key.peer:
            return f"{key.service!r} of the peer {key.peer!r}: there are no peers here"
        if target.mesh_gateway_mode in _GATEWAY_MODES and key.datacenter != self.datacenter:
            mode = target.mesh_gateway_mode
            return f"{target.id!r} is behind a mesh gateway (mode {mode}): there are no mesh gateways here"
        return ""

    def all_entries(self) -> tuple[WrittenKey, ...]:
        """All entries behind the chain, ordered."""
        return tuple(sorted(self.compiled.entries))

    def entries_of(self, *targets: ChainTarget) -> tuple[WrittenKey, ...]:
        """The entries that shape the clusters of targets: those of their services, and proxy-defaults."""
        services = {one.key.service for one in targets}
        kinds = (ServiceResolver.kind, ServiceDefaults.kind)
        keys = {entry_key(kind, service) for kind in kinds for service in services}
        keys.add(entry_key(ProxyDefaults.kind, GLOBAL))
        return tuple(sorted(one for one in self.compiled.entries if entry_key(*one) in keys))


def resolvers_of(chain: DiscoveryChain) -> tuple[ResolverNode, ...]:
    """The resolvers of a chain, by key."""
    return tuple(node for _, node in sorted(chain.nodes.items()) if isinstance(node, ResolverNode))

"""The first pass of a compilation: from the service's router or splitter down to the resolvers.

At resolvers, the pass follows redirects and default subsets, looks up settings, and lists failover targets. Redirects
are followed in a loop, and failover is one level deep, so nothing recurses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xds.consul.quantities import SECOND_NS
from xds.consul.shared import DEFAULT
from xds.mesh.core.chain.chain import (
    RESOLVER,
    ROUTER,
    SPLITTER,
    ChainRoute,
    ChainSplit,
    ChainTarget,
    Flaw,
    ResolverNode,
    RouterNode,
    SplitterNode,
    TargetKey,
    node_key,
    path_text,
)
from xds.mesh.core.chain.compilation import Compilation
from xds.mesh.core.entries.defaults import ServiceDefaults
from xds.mesh.core.entries.resolver import WILDCARD, Failover, LoadBalancer, ServiceResolver, Subset
from xds.mesh.core.entries.router import HttpMatch, Route, RouteDestination, RouteMatch, ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter, Split

CONNECT_TIMEOUT_NS = 5 * SECOND_NS
_NO_SUBSET = Subset()


def assemble(compilation: Compilation) -> None:
    """Create all nodes that the service's chain may reach. Raises ``ChainError``."""
    service = compilation.request.service
    _describe(compilation, service)
    router = compilation.entries.find(ServiceRouter, service)
    if router is not None and compilation.ignores_http:
        router = None
        compilation.customized.protocol = True
    if router is None:
        compilation.start_node = _splitter_or_resolver(compilation, service)
    else:
        compilation.start_node = _route(compilation, router)


def _describe(compilation: Compilation, service: str) -> None:
    """Record the properties of the chain's own service that are not nodes."""
    defaults, proxy_defaults = compilation.entries.find(ServiceDefaults, service), compilation.entries.proxy_defaults
    if defaults is not None:
        compilation.service_meta = dict(defaults.meta)
    compilation.envoy_extensions = (
        *(proxy_defaults.envoy_extensions if proxy_defaults is not None else ()),
        *(defaults.envoy_extensions if defaults is not None else ()),
    )


# Routers


def _route(compilation: Compilation, router: ServiceRouter) -> str:
    name = compilation.naming.service(router.name)
    compilation.enter(node_key(ROUTER, name))
    compilation.uses_http = True
    compilation.record_protocol(router.name)
    routes = []
    for route in (*router.routes, _catch_all(router.name, compilation.request.has_partitions)):
        destination = route.destination
        service = (destination.service if destination is not None else "") or compilation.request.service
        subset = destination.service_subset if destination is not None else ""
        next_node = (
            _resolver_key(compilation, service, subset) if subset else _splitter_or_resolver(compilation, service)
        )
        routes.append(ChainRoute(route, next_node))
    compilation.leave(0)
    node = RouterNode(name, tuple(routes))
    compilation.record(node)
    return node.key


def _catch_all(service: str, has_partitions: bool) -> Route:
    """The last route of every router. It matches all requests."""
    match = RouteMatch(HttpMatch(path_prefix="/"))
    partition = DEFAULT if has_partitions else ""
    return Route(match, RouteDestination(service=service, namespace=DEFAULT, partition=partition))


def _resolver_key(compilation: Compilation, service: str, subset: str = "") -> str:
    return resolve(compilation, compilation.target(service, subset)).key


def _splitter_or_resolver(compilation: Compilation, service: str) -> str:
    return _split(compilation, service) or _resolver_key(compilation, service)


# Splitters


@dataclass(slots=True)
class _Frame:
    """A splitter whose legs are being followed; ``next_leg`` is the index of the next one.

    ``service`` is the name by which it was looked up: a leg without a service is one to that name, as in Consul.
    """

    name: str
    service: str
    entry: ServiceSplitter
    next_leg: int = 0
    splits: list[ChainSplit] = field(default_factory=list)
    load_balancer: LoadBalancer | None = None


def _split(compilation: Compilation, service: str) -> str:
    """The key of the service's splitter node; empty if it has none."""
    key = node_key(SPLITTER, compilation.naming.service(service))
    if key in compilation.nodes:
        return key
    first = _frame(compilation, service)
    if first is None:
        return ""
    stack = [first]
    while stack:
        _advance(compilation, stack)
    compilation.uses_http = True
    return key


def _frame(compilation: Compilation, service: str) -> _Frame | None:
    """Begin a splitter. Its node is recorded before its legs are followed, so that a cycle ends here."""
    entry = compilation.entries.find(ServiceSplitter, service)
    if entry is None:
        return None
    if compilation.ignores_http:
        compilation.customized.protocol = True
        return None
    node = SplitterNode(compilation.naming.service(service), ())
    compilation.record(node)
    compilation.enter(node.key)
    return _Frame(node.name, service, entry)


def _advance(compilation: Compilation, stack: list[_Frame]) -> None:
    """Follow the next leg of the topmost splitter, or finish the splitter."""
    frame = stack[-1]
    if frame.next_leg == len(frame.entry.splits):
        stack.pop()
        compilation.record(SplitterNode(frame.name, tuple(frame.splits), frame.load_balancer))
        compilation.leave(len(compilation.path) - 1)
        return
    leg = frame.entry.splits[frame.next_leg]
    frame.next_leg += 1
    service = leg.service or frame.service
    key = ""
    if service != frame.service and not leg.service_subset:  # a leg to its own service is not split again
        key = node_key(SPLITTER, compilation.naming.service(service))
        if key not in compilation.nodes:
            below = _frame(compilation, service)
            if below is None:
                key = ""
            else:
                stack.append(below)
    frame.splits.append(ChainSplit(leg, leg.weight, key or _leg_resolver(compilation, frame, leg, service)))


def _leg_resolver(compilation: Compilation, frame: _Frame, leg: Split, service: str) -> str:
    """The resolver of a leg. As in Consul, the first hash-based load balancer becomes that of the splitter."""
    resolver = resolve(compilation, compilation.target(service, leg.service_subset))
    if frame.load_balancer is None and resolver.load_balancer is not None and resolver.load_balancer.is_hash_based:
        frame.load_balancer = resolver.load_balancer
    return resolver.key


def resolve(compilation: Compilation, target: TargetKey) -> ResolverNode:
    """The resolver node of a target, recorded with its failover. Raises ``ChainError``."""
    known = compilation.resolvers.get(compilation.naming.target(target))
    if known is not None:
        return known
    depth = len(compilation.path)
    try:
        node, entry = _follow(compilation, target)
        if entry is None:
            return node
        compilation.record(node)
        # The redirects that lead to the node stay in the path: a failover may fail as well.
        others = _failover_targets(compilation, compilation.targets[node.target].key, entry)
        if others:
            failover = tuple(_resolve_redirects(compilation, other) for other in others)
            node = replace(node, failover=failover)
            compilation.record(node)
    finally:
        compilation.leave(depth)
    return node


def _resolve_redirects(compilation: Compilation, target: TargetKey) -> str:
    """The ID of the target where redirects end."""
    depth = len(compilation.path)
    try:
        node, _ = _follow(compilation, target)
        return node.target
    finally:
        compilation.leave(depth)


def _follow(compilation: Compilation, target: TargetKey) -> tuple[ResolverNode, ServiceResolver | None]:
    """The node where redirects end, and its entry; None instead of the entry if the node was recorded before."""
    visited: dict[str, None] = {}
    while True:
        id = compilation.naming.target(target)
        known = compilation.resolvers.get(id)
        if known is not None:
            return known, None
        compilation.enter(node_key(RESOLVER, id))
        if not target.peer:
            compilation.record_protocol(target.service)
        entry = compilation.entries.find(ServiceResolver, target.service) or ServiceResolver(target.service)
        if id in visited:
            detail = f"detected circular resolver redirect: [{path_text((*visited, id))}]"
            raise compilation.error(Flaw.CIRCULAR_REDIRECT, detail)
        visited[id] = None
        next_target = _redirect(compilation, target, entry)
        if next_target is None:
            return _node(compilation, id, target, entry), entry
        target = next_target


def _redirect(compilation: Compilation, target: TargetKey, entry: ServiceResolver) -> TargetKey | None:
    """The target that the entry redirects to; None if there is no redirect, or one to the same target."""
    one = entry.redirect
    if one is not None:
        redirected = compilation.rewrite(target, one.service, one.service_subset, one.datacenter, one.peer)
        if compilation.naming.target(redirected) != compilation.naming.target(target):
            return redirected
    if not target.subset and entry.default_subset:
        return compilation.rewrite(target, subset=entry.default_subset)
    return None


def _node(compilation: Compilation, id: str, target: TargetKey, entry: ServiceResolver) -> ResolverNode:
    """The node of a target, which is recorded with its settings."""
    service, subset = target.service, target.subset
    if subset and subset not in entry.subsets:
        detail = f'service "{service}" does not have a subset named "{subset}"'
        raise compilation.error(Flaw.UNKNOWN_SUBSET, detail)
    timeout_ns = _connect_timeout_ns(compilation, entry)
    defaults, name = compilation.entries.find(ServiceDefaults, service), compilation.naming.sni(target)
    is_external, mode, is_dialed_directly = defaults is not None and bool(defaults.external_sni), "", False
    if is_external:
        _check_external(compilation, service, entry)
    else:
        mode, is_dialed_directly = _proxy_settings(compilation, defaults)
    compilation.targets[id] = ChainTarget(
        id,
        target,
        name,
        defaults.external_sni if defaults is not None and is_external else name,
        entry.subsets.get(subset, _NO_SUBSET),
        timeout_ns,
        mode,
        is_dialed_directly,
        is_external,
    )
    return ResolverNode(
        id, id, entry.is_default, timeout_ns, entry.request_timeout_ns, load_balancer=entry.load_balancer
    )


def _connect_timeout_ns(compilation: Compilation, entry: ServiceResolver) -> int:
    timeout_ns = entry.connect_timeout_ns if entry.connect_timeout_ns > 0 else CONNECT_TIMEOUT_NS
    override_ns = compilation.request.overrides.connect_timeout_ns
    if override_ns > 0 and override_ns != timeout_ns:
        compilation.customized.connect_timeout = True
        return override_ns
    return timeout_ns


def _check_external(compilation: Compilation, service: str, entry: ServiceResolver) -> None:
    """Check that a service outside the mesh has no redirect, subset or failover."""
    for flaw, is_set, setting in (
        (Flaw.EXTERNAL_REDIRECT, entry.redirect is not None, "redirects"),
        (Flaw.EXTERNAL_SUBSETS, bool(entry.subsets), "subsets"),
        (Flaw.EXTERNAL_FAILOVER, bool(entry.failover), "failover"),
    ):
        if is_set:
            detail = f'service "{service}" has an external SNI set; cannot define {setting} for external services'
            raise compilation.error(flaw, detail)


def _proxy_settings(compilation: Compilation, defaults: ServiceDefaults | None) -> tuple[str, bool]:
    """Mesh gateway and transparent proxy: of the service, else of all proxies. An override counts most."""
    mode, is_dialed_directly, override = "", False, compilation.request.overrides.mesh_gateway_mode
    for settings in (defaults, compilation.entries.proxy_defaults):
        if settings is not None:
            mode = mode or settings.mesh_gateway.mode
            is_dialed_directly = is_dialed_directly or settings.transparent_proxy.dialed_directly
    if override and override != mode:
        mode = override
        compilation.customized.mesh_gateway = True
    return mode, is_dialed_directly


# Failover


def _failover_targets(compilation: Compilation, target: TargetKey, entry: ServiceResolver) -> list[TargetKey]:
    """The failover targets before their own redirects are followed. The target itself is left out."""
    failover = entry.failover.get(target.subset) or entry.failover.get(WILDCARD)
    if failover is None:
        return []
    id_of = compilation.naming.target
    return [one for one in _named_targets(compilation, target, failover) if id_of(one) != id_of(target)]


def _named_targets(compilation: Compilation, target: TargetKey, failover: Failover) -> list[TargetKey]:
    service, subset = failover.service, failover.service_subset
    if failover.datacenters:
        return [compilation.rewrite(target, service, subset, one) for one in failover.datacenters]
    if failover.targets:
        return [
            compilation.rewrite(target, one.service, one.service_subset, one.datacenter, one.peer)
            for one in failover.targets
        ]
    return [compilation.rewrite(target, service, subset)]

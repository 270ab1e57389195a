"""The first pass of a compilation: from the service's router or splitter down to the resolvers.

At resolvers, the pass follows redirects and default subsets, looks up settings, and lists failover targets. Redirects
are followed in a loop, and failover is one level deep, so nothing recurses.
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.consul.quantities import SECOND_NS
from xds.consul.shared import DEFAULT
from xds.mesh.core.chain.chain import RESOLVER, ROUTER, SPLITTER, ChainRoute, ChainSplit, Flaw, node_key, path_text
from xds.mesh.core.chain.compilation import Compilation, ResolverDraft, RouterDraft, SplitterDraft, TargetDraft
from xds.mesh.core.entries.resolver import WILDCARD, Failover, Redirect, ServiceResolver, Subset
from xds.mesh.core.entries.router import HttpMatch, Route, RouteDestination, RouteMatch, ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter, Split

CONNECT_TIMEOUT_NS = 5 * SECOND_NS
_NO_SUBSET = Subset()


def assemble(compilation: Compilation) -> None:
    """Create all nodes that the service's chain may reach. Raises ``ChainError``."""
    service = compilation.request.service
    _describe(compilation, service)
    router = compilation.entries.router(service)
    if router is not None and compilation.ignores_http:
        router = None
        compilation.customized.protocol = True
    if router is None:
        compilation.start_node = _splitter_or_resolver(compilation, service)
    else:
        compilation.start_node = _route(compilation, router)


def _describe(compilation: Compilation, service: str) -> None:
    """Record the properties of the chain's own service that are not nodes."""
    defaults, proxy_defaults = compilation.entries.defaults(service), compilation.entries.proxy_defaults()
    if defaults is not None:
        compilation.service_meta = dict(defaults.meta)
    compilation.envoy_extensions = (
        *(proxy_defaults.envoy_extensions if proxy_defaults is not None else ()),
        *(defaults.envoy_extensions if defaults is not None else ()),
    )


# Routers


def _route(compilation: Compilation, router: ServiceRouter) -> str:
    node = RouterDraft(compilation.naming.service(router.name))
    key = node_key(ROUTER, node.name)
    compilation.enter(key)
    compilation.uses_http = True
    compilation.record_protocol(router.name)
    for route in (*router.routes, _catch_all(router.name, compilation.request.has_partitions)):
        destination = route.destination
        service = (destination.service if destination is not None else "") or compilation.request.service
        subset = destination.service_subset if destination is not None else ""
        next_node = (
            _resolver_key(compilation, service, subset) if subset else _splitter_or_resolver(compilation, service)
        )
        node.routes.append(ChainRoute(route, next_node))
    compilation.leave(0)
    compilation.record(node)
    return key


def _catch_all(service: str, has_partitions: bool) -> Route:
    """The last route of every router. It matches all requests."""
    match = RouteMatch(HttpMatch(path_prefix="/"))
    partition = DEFAULT if has_partitions else ""
    return Route(match, RouteDestination(service=service, namespace=DEFAULT, partition=partition))


def _resolver_key(compilation: Compilation, service: str, subset: str = "") -> str:
    return node_key(RESOLVER, resolve(compilation, compilation.target(service, subset)).name)


def _splitter_or_resolver(compilation: Compilation, service: str) -> str:
    return _split(compilation, service) or _resolver_key(compilation, service)


# Splitters


@dataclass(slots=True)
class _Frame:
    """A splitter whose legs are being followed; ``next_leg`` is the index of the next one.

    ``service`` is the name by which it was looked up: a leg without a service is one to that name, as in Consul.
    """

    node: SplitterDraft
    service: str
    entry: ServiceSplitter
    next_leg: int = 0


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
    entry = compilation.entries.splitter(service)
    if entry is None:
        return None
    if compilation.ignores_http:
        compilation.customized.protocol = True
        return None
    frame = _Frame(SplitterDraft(compilation.naming.service(service)), service, entry)
    compilation.record(frame.node)
    compilation.enter(node_key(SPLITTER, frame.node.name))
    return frame


def _advance(compilation: Compilation, stack: list[_Frame]) -> None:
    """Follow the next leg of the topmost splitter, or finish the splitter."""
    frame = stack[-1]
    if frame.next_leg == len(frame.entry.splits):
        stack.pop()
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
    frame.node.splits.append(ChainSplit(leg, leg.weight, key or _leg_resolver(compilation, frame.node, leg, service)))


def _leg_resolver(compilation: Compilation, node: SplitterDraft, leg: Split, service: str) -> str:
    """The resolver of a leg. As in Consul, the first hash-based load balancer becomes that of the splitter."""
    resolver = resolve(compilation, compilation.target(service, leg.service_subset))
    if node.load_balancer is None and resolver.load_balancer is not None and resolver.load_balancer.is_hash_based:
        node.load_balancer = resolver.load_balancer
    return node_key(RESOLVER, resolver.name)


def resolve(compilation: Compilation, target: TargetDraft) -> ResolverDraft:
    """The resolver node of a target, recorded with its failover. Raises ``ChainError``."""
    known = compilation.resolvers.get(target.id)
    if known is not None:
        return known
    depth = len(compilation.path)
    try:
        node, entry = _follow(compilation, target)
        if entry is None:
            return node
        compilation.record(node)
        # The redirects that lead to the node stay in the path: a failover may fail as well.
        for other in _failover_targets(compilation, node.target, entry):
            failover, _ = _resolve_redirects(compilation, other)
            node.failover.append(failover.target.id)
    finally:
        compilation.leave(depth)
    return node


def _resolve_redirects(compilation: Compilation, target: TargetDraft) -> tuple[ResolverDraft, ServiceResolver | None]:
    """The node where redirects end, and its entry; None instead of the entry if the node was recorded before."""
    depth = len(compilation.path)
    try:
        return _follow(compilation, target)
    finally:
        compilation.leave(depth)


def _follow(compilation: Compilation, target: TargetDraft) -> tuple[ResolverDraft, ServiceResolver | None]:
    visited: dict[str, None] = {}
    while True:
        known = compilation.resolvers.get(target.id)
        if known is not None:
            return known, None
        service = target.key.service
        compilation.enter(node_key(RESOLVER, target.id))
        if not target.key.peer:
            compilation.record_protocol(service)
        entry = compilation.entries.resolver(service) or ServiceResolver(service)
        if target.id in visited:
            detail = f"detected circular resolver redirect: [{path_text((*visited, target.id))}]"
            raise compilation.error(Flaw.CIRCULAR_REDIRECT, detail)
        visited[target.id] = None
        next_target = _redirect(compilation, target, entry)
        if next_target is None:
            return _node(compilation, target, entry), entry
        target = next_target


def _redirect(compilation: Compilation, target: TargetDraft, entry: ServiceResolver) -> TargetDraft | None:
    """The target that the entry redirects to; None if there is no redirect, or one to the same target."""
    if entry.redirect is not None:
        redirected = _apply_redirect(compilation, target, entry.redirect)
        if redirected.id != target.id:
            return redirected
    if not target.key.subset and entry.default_subset:
        return compilation.rewrite(target, subset=entry.default_subset)
    return None


def _apply_redirect(compilation: Compilation, target: TargetDraft, redirect: Redirect) -> TargetDraft:
    return compilation.rewrite(
        target,
        redirect.service,
        redirect.service_subset,
        redirect.namespace,
        redirect.datacenter,
        redirect.peer,
    )


def _node(compilation: Compilation, target: TargetDraft, entry: ServiceResolver) -> ResolverDraft:
    service, subset = target.key.service, target.key.subset
    if subset and subset not in entry.subsets:
        detail = f'service "{service}" does not have a subset named "{subset}"'
        raise compilation.error(Flaw.UNKNOWN_SUBSET, detail)
    timeout_ns = _connect_timeout_ns(compilation, entry)
    node = ResolverDraft(target.id, target, entry.is_default, timeout_ns, entry.request_timeout_ns, entry.load_balancer)
    target.connect_timeout_ns = timeout_ns
    target.subset = entry.subsets.get(subset, _NO_SUBSET)
    defaults = compilation.entries.defaults(service)
    if defaults is not None and defaults.external_sni:
        target.sni, target.is_external = defaults.external_sni, True
    if target.is_external:
        _check_external(compilation, service, entry)
    else:
        _look_up_proxy_settings(compilation, target)
    compilation.resolved_targets.add(target.id)
    return node


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


def _look_up_proxy_settings(compilation: Compilation, target: TargetDraft) -> None:
    """Look up mesh gateway and transparent proxy: of the service, else of all proxies. An override counts most."""
    defaults, proxy_defaults = compilation.entries.defaults(target.key.service), compilation.entries.proxy_defaults()
    if defaults is not None:
        target.mesh_gateway_mode = defaults.mesh_gateway.mode
        target.is_dialed_directly = defaults.transparent_proxy.dialed_directly
    if proxy_defaults is not None:
        target.mesh_gateway_mode = target.mesh_gateway_mode or proxy_defaults.mesh_gateway.mode
        target.is_dialed_directly = target.is_dialed_directly or proxy_defaults.transparent_proxy.dialed_directly
    override = compilation.request.overrides.mesh_gateway_mode
    if override and override != target.mesh_gateway_mode:
        target.mesh_gateway_mode = override
        compilation.customized.mesh_gateway = True


# Failover


def _failover_targets(compilation: Compilation, target: TargetDraft, entry: ServiceResolver) -> list[TargetDraft]:
    """The failover targets before their own redirects are followed. The target itself is left out."""
    failover = entry.failover.get(target.key.subset) or entry.failover.get(WILDCARD)
    if failover is None:
        return []
    return [one for one in _failover_drafts(compilation, target, failover) if one.id != target.id]


def _failover_drafts(compilation: Compilation, target: TargetDraft, failover: Failover) -> list[TargetDraft]:
    service, subset, namespace = failover.service, failover.service_subset, failover.namespace
    if failover.datacenters:
        return [compilation.rewrite(target, service, subset, namespace, one) for one in failover.datacenters]
    if failover.targets:
        return [
            compilation.rewrite(target, one.service, one.service_subset, one.namespace, one.datacenter, one.peer)
            for one in failover.targets
        ]
    return [compilation.rewrite(target, service, subset, namespace)]

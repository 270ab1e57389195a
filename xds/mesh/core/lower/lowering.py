"""Lowering: turns the upstreams of a group and their discovery chains into resources for clients. Pure.

Equal documents and chains give equal resources. Endpoints are not decided here: an assignment is lowered to a selection
of instances (`xds.mesh.core.lower.assignments` makes its endpoints).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xds.mesh.core.chain.chain import ResolverNode
from xds.mesh.core.entries.entry import entry_key
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.mesh.core.lower.clusters import INVALID_FILTER, ResolverClusters, lower_resolver
from xds.mesh.core.lower.listeners import lower_listener
from xds.mesh.core.lower.lowered import Lowered, LoweredAssignment, LoweredResource, merge_lowered
from xds.mesh.core.lower.route_checks import check_routes
from xds.mesh.core.lower.routes import lower_routes
from xds.mesh.core.lower.upstream_context import UpstreamChain, UpstreamContext, resolvers_of
from xds.mesh.core.lower.upstreams import LOOPBACK, ProxySettings, Upstream
from xds.model.errors import ValidationError, Violation


@dataclass(frozen=True, slots=True)
class ListenerBackend:
    """The routes, clusters and assignments behind the listener of an upstream. They do not depend on its address.

    ``cluster`` is the cluster of the listener: empty if it has routes, None if there can be no listener. An upstream
    with ``violations`` is refused.
    """

    lowered: Lowered
    cluster: str | None
    violations: tuple[Violation, ...] = ()


def without_address(upstream: Upstream) -> Upstream:
    """The upstream with a fixed address and port. Equal results have equal backends."""
    return replace(upstream, bind_address=LOOPBACK, bind_port=int(upstream.is_proxied))


def lower_upstream(upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, datacenter: str) -> Lowered:
    """Lower one upstream for proxies in ``datacenter``: a target in another one may be behind a mesh gateway.

    The result depends on these values only. Raises ``ValidationError``.
    """
    backend = lower_backend(without_address(upstream), compiled, proxies, datacenter)
    return add_listener(upstream, compiled, proxies, datacenter, backend)


def lower_backend(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, datacenter: str
) -> ListenerBackend:
    """Lower what is behind the listener of an upstream, which must come from `without_address`."""
    context = UpstreamContext(upstream, compiled, proxies, datacenter)
    by_node = {node.key: lower_resolver(context, node) for node in resolvers_of(context.chain)}
    clusters_of = {key: one for key, one in by_node.items() if one is not None}
    cluster = _listener_cluster(context, clusters_of)
    routes = _routes(context, clusters_of) if cluster is not None else []
    clusters = [each for one in clusters_of.values() for each in one.clusters]
    assignments = {each.name: each for one in clusters_of.values() for each in one.assignments}
    violations = tuple(dict.fromkeys(context.violations))
    if violations:  # refused parts may not be valid enough to be merged
        return ListenerBackend(Lowered(), cluster, violations)
    return ListenerBackend(
        merge_lowered([Lowered((*routes, *clusters), assignments, tuple(context.warnings))]), cluster
    )


def add_listener(
    upstream: Upstream,
    compiled: UpstreamChain,
    proxies: ProxySettings,
    datacenter: str,
    backend: ListenerBackend,
) -> Lowered:
    """The listener of an upstream and what is behind it. Raises ``ValidationError`` with the findings of both."""
    context = UpstreamContext(upstream, compiled, proxies, datacenter)
    listener = [lower_listener(context, backend.cluster)] if backend.cluster is not None else []
    violations = dict.fromkeys((*backend.violations, *context.violations))
    if violations:
        raise ValidationError(list(violations))
    ordered = sorted((*backend.lowered.resources, *listener), key=lambda one: (one.type_url, one.name))
    warnings = dict.fromkeys((*backend.lowered.warnings, *context.warnings))
    return Lowered(tuple(ordered), backend.lowered.assignments, tuple(warnings))


def lower_assignments(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, datacenter: str
) -> dict[str, LoweredAssignment]:
    """The assignments of an upstream, even if another part of it is refused.

    A resolver with a filter that cannot be evaluated has no assignment.
    """
    context = UpstreamContext(upstream, compiled, proxies, datacenter)
    lowered: dict[str, LoweredAssignment] = {}
    for node in resolvers_of(context.chain):
        context.violations.clear()
        clusters = lower_resolver(context, node)
        if clusters is not None and not any(one.code == INVALID_FILTER for one in context.violations):
            lowered.update((one.name, one) for one in clusters.assignments)
    return lowered


def _listener_cluster(context: UpstreamContext, clusters_of: dict[str, ResolverClusters]) -> str | None:
    """The cluster of the listener; empty if it has routes; None if no cluster can be reached."""
    start = context.chain.start
    if not clusters_of:
        _refuse_unreachable(context)
        return None
    if context.has_routes:
        return ""
    if not isinstance(start, ResolverNode):
        detail = f"the chain of {context.chain.service!r} has routes or splits, but its protocol is {context.protocol}"
        context.refuse("protocol_not_http", detail, "upstream", context.upstream.name, ("protocol",))
        return None
    return clusters_of[start.key].name


def _routes(context: UpstreamContext, clusters_of: dict[str, ResolverClusters]) -> list[LoweredResource]:
    if not context.has_routes:
        return []
    check_routes(context)
    return [lower_routes(context, {key: one.name for key, one in clusters_of.items()})]


def _refuse_unreachable(context: UpstreamContext) -> None:
    for node in resolvers_of(context.chain):
        target = context.target(node)
        detail = f"no instance of {context.chain.service!r} can be reached: {context.obstacle(target)}"
        context.refuse("unreachable", detail, ServiceResolver.kind, _unreachable_service(context, target.key.service))


def _unreachable_service(context: UpstreamContext, service: str) -> str:
    """The service to report as unreachable: that of the chain if its own resolver redirects, else the target's."""
    own = entry_key(ServiceResolver.kind, context.chain.service)
    return context.chain.service if any(entry_key(*one) == own for one in context.compiled.entries) else service

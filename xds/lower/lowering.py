"""Lowering: the upstreams of a group, by their discovery chains, as the resources that their clients run. Pure.

Equal documents and chains give equal resources. Which endpoints a cluster has is not decided here: an assignment is
lowered to a selection of instances, which the catalog follows (`xds.lower.assignments`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xds.catalog.entry import Key
from xds.catalog.resolver import ServiceResolver
from xds.chain.chain import ChainError, DiscoveryChain, ResolverNode
from xds.chain.index import refused
from xds.lower.clusters import INVALID_FILTER, ResolverClusters, lower_resolver
from xds.lower.listeners import lower_listener
from xds.lower.lowered import Lowered, LoweredAssignment, LoweredResource, unite
from xds.lower.route_checks import check_routes
from xds.lower.routes import lower_routes
from xds.lower.upstream_context import UpstreamContext, resolvers_of
from xds.lower.upstreams import ProxySettings, Upstream, UpstreamsDocument
from xds.model.errors import ValidationError, Violation


@dataclass(frozen=True, slots=True)
class UpstreamChain:
    """The chain of an upstream, compiled in its datacenter with its overrides.

    ``entries``: the existing config entries among those that the compiler looked up.
    """

    chain: DiscoveryChain
    entries: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class LoweringSettings:
    """``datacenter`` is that of the proxies: a target elsewhere may be behind a mesh gateway."""

    datacenter: str


ChainOf = Callable[[Upstream], UpstreamChain]


def lower(document: UpstreamsDocument, chain_of: ChainOf, settings: LoweringSettings) -> Lowered:
    """What all upstreams of a document are lowered to.

    ``chain_of`` may raise ``ChainError``. Raises ``ValidationError`` with the findings of all upstreams: chains that do
    not compile, what cannot be lowered, and names that two upstreams use for different content.
    """
    parts: list[Lowered] = []
    found: list[Violation] = []
    for upstream in document.upstreams:
        try:
            parts.append(lower_upstream(upstream, chain_of(upstream), document.proxies, settings))
        except ChainError as error:
            found.append(refused(error, "does not compile"))
        except ValidationError as error:
            found += error.violations
    if found:
        raise ValidationError(list(dict.fromkeys(found)))
    return unite(parts)


def lower_upstream(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, settings: LoweringSettings
) -> Lowered:
    """What one upstream is lowered to: it depends on these values only. Raises ``ValidationError``."""
    context = UpstreamContext(upstream, compiled.chain, compiled.entries, proxies, settings.datacenter)
    by_node = {node.key: lower_resolver(context, node) for node in resolvers_of(context.chain)}
    made = {key: one for key, one in by_node.items() if one is not None}
    resources = _listener_and_routes(context, made)
    if context.violations:
        raise ValidationError(list(dict.fromkeys(context.violations)))
    clusters = [cluster for one in made.values() for cluster in one.clusters]
    assignments = {each.name: each for one in made.values() for each in one.assignments}
    return unite([Lowered((*resources, *clusters), assignments, tuple(context.warnings))])


def lower_assignments(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, settings: LoweringSettings
) -> dict[str, LoweredAssignment]:
    """The assignments of an upstream, also where something else of it is refused.

    Those of a resolver whose filters have no answer for instances are left out.
    """
    context = UpstreamContext(upstream, compiled.chain, compiled.entries, proxies, settings.datacenter)
    found: dict[str, LoweredAssignment] = {}
    for node in resolvers_of(context.chain):
        context.violations.clear()
        made = lower_resolver(context, node)
        if made is not None and not any(one.code == INVALID_FILTER for one in context.violations):
            found.update((one.name, one) for one in made.assignments)
    return found


def _listener_and_routes(context: UpstreamContext, made: dict[str, ResolverClusters]) -> list[LoweredResource]:
    start = context.chain.start
    if not made:
        _refuse_unreachable(context)
        return []
    if context.has_routes:
        check_routes(context)
        names = {key: one.name for key, one in made.items()}
        return [lower_listener(context, ""), lower_routes(context, names)]
    if not isinstance(start, ResolverNode):
        told = f"the chain of {context.chain.service!r} has routes or splits, but its protocol is {context.protocol}"
        context.refuse("protocol_not_http", told, "upstream", context.upstream.name, ("protocol",))
        return []
    return [lower_listener(context, made[start.key].name)]


def _refuse_unreachable(context: UpstreamContext) -> None:
    for node in resolvers_of(context.chain):
        target = context.target(node)
        told = f"no instance of {context.chain.service!r} can be reached: {context.obstacle(target)}"
        context.refuse("unreachable", told, ServiceResolver.kind, _redirecting(context, target.place.service))


def _redirecting(context: UpstreamContext, service: str) -> str:
    """The service whose resolver leads to an unreachable one: its own, or that of the chain, which redirects."""
    own = (ServiceResolver.kind, context.chain.service)
    return context.chain.service if own in context.entries else service

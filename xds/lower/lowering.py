"""Lowering: the upstreams of a group, by their discovery chains, as the resources that their clients run. Pure.

Equal documents and chains give equal resources. Which endpoints a cluster has is not decided here: an assignment is
lowered to a selection of instances, which the catalog follows (`xds.lower.assignments`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
from xds.lower.upstreams import LOOPBACK, ProxySettings, Upstream, UpstreamsDocument
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


@dataclass(frozen=True, slots=True)
class BehindListener:
    """What is behind the listener of an upstream: the same for every address and port where proxies accept it.

    ``cluster`` is where the listener leads to, empty with routes; None where there can be no listener. An upstream with
    ``violations`` is refused.
    """

    lowered: Lowered
    cluster: str | None
    violations: tuple[Violation, ...] = ()


def without_address(upstream: Upstream) -> Upstream:
    """The upstream with one address and port for all: what is behind its listener depends on nothing more."""
    return replace(upstream, bind_address=LOOPBACK, bind_port=int(upstream.is_proxied))


def lower_upstream(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, settings: LoweringSettings
) -> Lowered:
    """What one upstream is lowered to: it depends on these values only. Raises ``ValidationError``."""
    behind = lower_behind(without_address(upstream), compiled, proxies, settings)
    return add_listener(upstream, compiled, proxies, settings, behind)


def lower_behind(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, settings: LoweringSettings
) -> BehindListener:
    """What is behind the listener of an upstream, as `without_address` has it."""
    context = _context(upstream, compiled, proxies, settings)
    by_node = {node.key: lower_resolver(context, node) for node in resolvers_of(context.chain)}
    made = {key: one for key, one in by_node.items() if one is not None}
    cluster = _entrance(context, made)
    routes = _routes(context, made) if cluster is not None else []
    clusters = [each for one in made.values() for each in one.clusters]
    assignments = {each.name: each for one in made.values() for each in one.assignments}
    found = tuple(dict.fromkeys(context.violations))
    if found:  # what is refused may be no resources that can be united
        return BehindListener(Lowered(), cluster, found)
    return BehindListener(unite([Lowered((*routes, *clusters), assignments, tuple(context.warnings))]), cluster)


def add_listener(
    upstream: Upstream,
    compiled: UpstreamChain,
    proxies: ProxySettings,
    settings: LoweringSettings,
    behind: BehindListener,
) -> Lowered:
    """The listener of an upstream and what is behind it. Raises ``ValidationError`` with the findings of both."""
    context = _context(upstream, compiled, proxies, settings)
    listener = [lower_listener(context, behind.cluster)] if behind.cluster is not None else []
    found = dict.fromkeys((*behind.violations, *context.violations))
    if found:
        raise ValidationError(list(found))
    ordered = sorted((*behind.lowered.resources, *listener), key=lambda one: (one.type_url, one.name))
    warnings = dict.fromkeys((*behind.lowered.warnings, *context.warnings))
    return Lowered(tuple(ordered), behind.lowered.assignments, tuple(warnings))


def _context(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, settings: LoweringSettings
) -> UpstreamContext:
    return UpstreamContext(upstream, compiled.chain, compiled.entries, proxies, settings.datacenter)


def lower_assignments(
    upstream: Upstream, compiled: UpstreamChain, proxies: ProxySettings, settings: LoweringSettings
) -> dict[str, LoweredAssignment]:
    """The assignments of an upstream, also where something else of it is refused.

    Targets of a resolver with a filter that cannot be evaluated are left out.
    """
    context = _context(upstream, compiled, proxies, settings)
    found: dict[str, LoweredAssignment] = {}
    for node in resolvers_of(context.chain):
        context.violations.clear()
        made = lower_resolver(context, node)
        if made is not None and not any(one.code == INVALID_FILTER for one in context.violations):
            found.update((one.name, one) for one in made.assignments)
    return found


def _entrance(context: UpstreamContext, made: dict[str, ResolverClusters]) -> str | None:
    """Where the listener leads to: a cluster, or empty for routes. None where it can lead nowhere."""
    start = context.chain.start
    if not made:
        _refuse_unreachable(context)
        return None
    if context.has_routes:
        return ""
    if not isinstance(start, ResolverNode):
        told = f"the chain of {context.chain.service!r} has routes or splits, but its protocol is {context.protocol}"
        context.refuse("protocol_not_http", told, "upstream", context.upstream.name, ("protocol",))
        return None
    return made[start.key].name


def _routes(context: UpstreamContext, made: dict[str, ResolverClusters]) -> list[LoweredResource]:
    if not context.has_routes:
        return []
    check_routes(context)
    return [lower_routes(context, {key: one.name for key, one in made.items()})]


def _refuse_unreachable(context: UpstreamContext) -> None:
    for node in resolvers_of(context.chain):
        target = context.target(node)
        told = f"no instance of {context.chain.service!r} can be reached: {context.obstacle(target)}"
        context.refuse("unreachable", told, ServiceResolver.kind, _redirecting(context, target.place.service))


def _redirecting(context: UpstreamContext, service: str) -> str:
    """The service whose resolver leads to an unreachable one: its own, or that of the chain, which redirects."""
    own = (ServiceResolver.kind, context.chain.service)
    return context.chain.service if own in context.entries else service

"""The first pass: from the service's router or splitter down to the resolvers.

Splitters may lead to splitters to any depth, so they are followed with an explicit stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.catalog.router import HttpMatch, Route, RouteDestination, RouteMatch, ServiceRouter
from xds.catalog.shared import DEFAULT
from xds.catalog.splitter import ServiceSplitter, Split
from xds.chain.chain import ChainRoute, ChainSplit
from xds.chain.compilation import Compilation, RouterDraft, SplitterDraft
from xds.chain.node_names import RESOLVER, ROUTER, SPLITTER, node_key
from xds.chain.resolving import resolve


def assemble(compilation: Compilation) -> None:
    """Make all nodes that the service's chain may reach. Raises ``ChainError``."""
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
        service = (destination.service if destination is not None else "") or router.name
        subset = destination.service_subset if destination is not None else ""
        next_node = _resolver(compilation, service, subset) if subset else _splitter_or_resolver(compilation, service)
        node.routes.append(ChainRoute(route, next_node))
    compilation.leave(0)
    compilation.record(node)
    return key


def _catch_all(service: str, has_partitions: bool) -> Route:
    """The last route of every router, which matches whatever the others do not."""
    match = RouteMatch(HttpMatch(path_prefix="/"))
    partition = DEFAULT if has_partitions else ""
    return Route(match, RouteDestination(service=service, namespace=DEFAULT, partition=partition))


def _resolver(compilation: Compilation, service: str, subset: str = "") -> str:
    return node_key(RESOLVER, resolve(compilation, compilation.target(service, subset)).name)


def _splitter_or_resolver(compilation: Compilation, service: str) -> str:
    return _split(compilation, service) or _resolver(compilation, service)


# Splitters


@dataclass(slots=True)
class _Frame:
    """A splitter whose legs are being followed; ``at`` is the index of the next one."""

    node: SplitterDraft
    entry: ServiceSplitter
    at: int = 0


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
    frame = _Frame(SplitterDraft(compilation.naming.service(service)), entry)
    compilation.record(frame.node)
    compilation.enter(node_key(SPLITTER, frame.node.name))
    return frame


def _advance(compilation: Compilation, stack: list[_Frame]) -> None:
    """Follow the next leg of the topmost splitter, or finish the splitter."""
    frame = stack[-1]
    if frame.at == len(frame.entry.splits):
        stack.pop()
        compilation.leave(len(compilation.path) - 1)
        return
    leg = frame.entry.splits[frame.at]
    frame.at += 1
    service = leg.service or frame.entry.name
    key = ""
    if service != frame.entry.name and not leg.service_subset:  # a leg to its own service is not split again
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
    found = resolve(compilation, compilation.target(service, leg.service_subset))
    if node.load_balancer is None and found.load_balancer is not None and found.load_balancer.is_hash_based:
        node.load_balancer = found.load_balancer
    return node_key(RESOLVER, found.name)

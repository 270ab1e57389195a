"""The first pass: from the service's own router, or splitter, down to the resolvers.

Splitters lead to splitters, as deep as people write them: they are followed with a stack of our own.
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.catalog.router import HttpMatch, Route, RouteDestination, RouteMatch, ServiceRouter
from xds.catalog.rules import DEFAULT
from xds.catalog.splitter import ServiceSplitter, Split
from xds.chain.chain import ChainRoute, ChainSplit
from xds.chain.naming import RESOLVER, ROUTER, SPLITTER, node_key
from xds.chain.resolving import resolve
from xds.chain.state import RouterDraft, SplitterDraft, State


def assemble(state: State) -> None:
    """Make all nodes that the service's chain may reach. Raises ``ChainError``."""
    service = state.request.service
    _describe(state, service)
    router = state.entries.router(service)
    if router is not None and state.ignores_http:
        router = None
        state.customized.protocol = True
    if router is None:
        state.start_node = _splitter_or_resolver(state, service)
    else:
        state.start_node = _route(state, router)


def _describe(state: State, service: str) -> None:
    """What of the chain's own service stands beside its nodes."""
    defaults, proxy_defaults = state.entries.defaults(service), state.entries.proxy_defaults()
    if defaults is not None:
        state.service_meta = dict(defaults.meta)
    state.envoy_extensions = (
        *(proxy_defaults.envoy_extensions if proxy_defaults is not None else ()),
        *(defaults.envoy_extensions if defaults is not None else ()),
    )


# Routers


def _route(state: State, router: ServiceRouter) -> str:
    node = RouterDraft(state.naming.service(router.name))
    key = node_key(ROUTER, node.name)
    state.enter(key)
    state.uses_http = True
    state.record_protocol(router.name)
    for route in (*router.routes, _catch_all(router.name, state.request.has_partitions)):
        destination = route.destination
        service = (destination.service if destination is not None else "") or router.name
        subset = destination.service_subset if destination is not None else ""
        next_node = _resolver(state, service, subset) if subset else _splitter_or_resolver(state, service)
        node.routes.append(ChainRoute(route, next_node))
    state.leave(0)
    state.record(node)
    return key


def _catch_all(service: str, has_partitions: bool) -> Route:
    """The route that every router ends with, whatever the others match."""
    match = RouteMatch(HttpMatch(path_prefix="/"))
    partition = DEFAULT if has_partitions else ""
    return Route(match, RouteDestination(service=service, namespace=DEFAULT, partition=partition))


def _resolver(state: State, service: str, subset: str = "") -> str:
    return node_key(RESOLVER, resolve(state, state.target(service, subset)).name)


def _splitter_or_resolver(state: State, service: str) -> str:
    return _split(state, service) or _resolver(state, service)


# Splitters


@dataclass(slots=True)
class _Frame:
    """A splitter whose legs are being followed: ``at`` is the next one."""

    node: SplitterDraft
    entry: ServiceSplitter
    at: int = 0


def _split(state: State, service: str) -> str:
    """The key of the service's splitter node; empty where it has none."""
    key = node_key(SPLITTER, state.naming.service(service))
    if key in state.nodes:
        return key
    first = _frame(state, service)
    if first is None:
        return ""
    stack = [first]
    while stack:
        _advance(state, stack)
    state.uses_http = True
    return key


def _frame(state: State, service: str) -> _Frame | None:
    """Begin a splitter: its node is kept before its legs are followed, so that a cycle ends here."""
    entry = state.entries.splitter(service)
    if entry is None:
        return None
    if state.ignores_http:
        state.customized.protocol = True
        return None
    frame = _Frame(SplitterDraft(state.naming.service(service)), entry)
    state.record(frame.node)
    state.enter(node_key(SPLITTER, frame.node.name))
    return frame


def _advance(state: State, stack: list[_Frame]) -> None:
    """Follow the next leg of the uppermost splitter, or end it."""
    frame = stack[-1]
    if frame.at == len(frame.entry.splits):
        stack.pop()
        state.leave(len(state.path) - 1)
        return
    leg = frame.entry.splits[frame.at]
    frame.at += 1
    service = leg.service or frame.entry.name
    key = ""
    if service != frame.entry.name and not leg.service_subset:  # a leg to its own service never splits again
        key = node_key(SPLITTER, state.naming.service(service))
        if key not in state.nodes:
            below = _frame(state, service)
            if below is None:
                key = ""
            else:
                stack.append(below)
    frame.node.splits.append(ChainSplit(leg, leg.weight, key or _leg_resolver(state, frame.node, leg, service)))


def _leg_resolver(state: State, node: SplitterDraft, leg: Split, service: str) -> str:
    """The resolver of a leg. The first hash-based load balancer becomes the splitter's, as in Consul."""
    found = resolve(state, state.target(service, leg.service_subset))
    if node.load_balancer is None and found.load_balancer is not None and found.load_balancer.is_hash_based:
        node.load_balancer = found.load_balancer
    return node_key(RESOLVER, found.name)

"""A discovery chain as the rules of a profile: routes from its router, overrides from the splitter on the default path.

A route of a profile has no destination, so routes to other destinations than the default one cannot be expressed.
Requests are routed as if such routes did not exist, and the omissions are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xds.consul.quantities import SECOND_NS
from xds.linkerd.core.profile import WEIGHT_WHOLE, ProfileRoute, RequestCondition, StatusRange, WeightedAuthority
from xds.linkerd.core.route_terms import ROUTES_LIMIT, SKIPPED_LIMIT, ProfileRules, path_regex, status_ranges
from xds.linkerd.core.rust_regex import is_readable
from xds.mesh.core.chain.chain import (
    ChainRoute,
    DiscoveryChain,
    Node,
    ResolverNode,
    RouterNode,
    SplitterNode,
    TargetKey,
)
from xds.mesh.core.entries.router import HttpMatch, RouteDestination
from xds.model.compared_name import compared

# The authority by which a client requests the endpoints of a target; empty if no name can express it.
NameTarget = Callable[[TargetKey], str]


def chain_rules(chain: DiscoveryChain, own: str, name: NameTarget) -> ProfileRules:
    """The rules for the clients of a chain. ``own`` is the authority that they requested."""
    start, skipped = chain.start, list[str]()
    reached = reached_routes(start) if isinstance(start, RouterNode) else ()
    default = chain.nodes[reached[-1].next_node] if reached else start
    routes = list(_routes(reached, default, skipped))
    if isinstance(start, ResolverNode) and start.request_timeout_ns > 0:
        routes.append(ProfileRoute("default", RequestCondition(), timeout_s=start.request_timeout_ns / SECOND_NS))
    is_other_service = bool(reached) and is_elsewhere(chain, reached[-1].definition.destination)
    overrides = _overrides(_legs(chain, default, is_other_service), own, name, skipped)
    return ProfileRules(tuple(routes[:ROUTES_LIMIT]), overrides, tuple(skipped[:SKIPPED_LIMIT]))


def reached_routes(router: RouterNode) -> tuple[ChainRoute, ...]:
    """The routes up to the first that matches every request: the default one."""
    for number, route in enumerate(router.routes, 1):
        if is_catch_all(route):
            return router.routes[:number]
    return router.routes


def is_catch_all(route: ChainRoute) -> bool:
    """Whether a route matches every request."""
    match = route.definition.match
    return match is None or match.http is None or match.http in (HttpMatch(), HttpMatch(path_prefix="/"))


def is_elsewhere(chain: DiscoveryChain, to: RouteDestination | None) -> bool:
    """Whether a route names another service than the chain's own, or a subset."""
    if to is None:
        return False
    return bool(to.service_subset) or compared(to.service) not in ("", compared(chain.service))


def _routes(routes: tuple[ChainRoute, ...], default: Node, skipped: list[str]) -> Iterator[ProfileRoute]:
    for number, route in enumerate(routes, 1):
        definition, match = route.definition, route.definition.match
        http = match.http if match is not None else None
        destination = definition.destination
        problem = _problem(route, http, default)
        if problem:
            skipped.append(f"route {number}: {problem}")
        elif not is_catch_all(route) or (destination is not None and _has_effect(destination)):
            skipped.extend(f"route {number}: {each}" for each in _omissions(destination))
            yield _route(number, http or HttpMatch(), destination or RouteDestination())


def _problem(route: ChainRoute, http: HttpMatch | None, default: Node) -> str:
    """Why a route cannot be expressed; empty if it can."""
    if route.next_node != default.key:
        return "it leads to another destination than the default one, which a profile cannot express"
    if http is not None and http.header:
        return "it matches headers, which a profile cannot express"
    if http is not None and http.query_param:
        return "it matches query parameters, which a profile cannot express"
    if http is not None and not is_readable(http.path_regex):
        return "the proxy may read the regular expression of the path otherwise"
    return ""


def _omissions(destination: RouteDestination | None) -> Iterator[str]:
    """The actions of a route that a profile cannot express."""
    if destination is None:
        return
    settings = {
        "PrefixRewrite": destination.prefix_rewrite,
        "IdleTimeout": destination.idle_timeout_ns,
        "NumRetries": destination.num_retries,
        "RequestHeaders": destination.request_headers,
        "ResponseHeaders": destination.response_headers,
    }
    yield from (f"{name} has no meaning in a profile" for name, value in settings.items() if value)
    _, unsupported = _retried(destination)
    if unsupported:
        yield f"a profile has no retries on {', '.join(unsupported)}"


def _has_effect(destination: RouteDestination) -> bool:
    return bool(destination.request_timeout_ns > 0 or _retried(destination)[0])


def _retried(to: RouteDestination) -> tuple[tuple[StatusRange, ...], tuple[str, ...]]:
    """The statuses that are retried, and the conditions that cannot be expressed.

    As in Consul, a number of retries without a condition retries nothing.
    """
    return status_ranges(retry_conditions(to), to.retry_on_status_codes)


def _route(number: int, http: HttpMatch, to: RouteDestination) -> ProfileRoute:
    statuses, _ = _retried(to)
    return ProfileRoute(
        route_name(number, http),
        RequestCondition(_path(http), tuple(http.methods)),
        max(to.request_timeout_ns, 0) / SECOND_NS,
        statuses,
    )


def retry_conditions(to: RouteDestination) -> tuple[str, ...]:
    """The conditions of retries of a route, by their names in Envoy."""
    return (*to.retry_on, *(("connect-failure",) if to.retry_on_connect_failure else ()))


def route_name(number: int, http: HttpMatch) -> str:
    """The name of a route in metrics, from its conditions."""
    path = http.path_exact or (f"{http.path_prefix}*" if http.path_prefix else http.path_regex)
    return " ".join(filter(None, (",".join(http.methods), path))) or f"route {number}"


def _path(http: HttpMatch) -> str:
    for kind, text in (("exact", http.path_exact), ("prefix", http.path_prefix), ("regex", http.path_regex)):
        if text:
            return path_regex(kind, text, http.case_insensitive)
    return ""


def _overrides(
    legs: Iterator[tuple[TargetKey, int]], own: str, name: NameTarget, skipped: list[str]
) -> tuple[WeightedAuthority, ...]:
    """The legs, merged by their authority; empty if all requests go to the requested destination itself."""
    weights: dict[str, int] = {}
    for key, weight in legs:
        authority = name(key)
        if not authority:
            skipped.append(f"splitter: {key.service!r} has no name that a client can request")
            return ()  # the other legs must not get its requests
        weights[authority] = weights.get(authority, 0) + weight
    overrides = tuple(WeightedAuthority(authority, weight) for authority, weight in weights.items() if weight > 0)
    return () if [each.authority for each in overrides] == [own] else overrides


def _legs(chain: DiscoveryChain, node: Node, is_other_service: bool) -> Iterator[tuple[TargetKey, int]]:
    """The targets of requests in the order of the legs, with their basis points.

    ``is_other_service``: the default route leads to another resolver than the service's own, which needs no override.
    """
    if isinstance(node, SplitterNode):
        for split in node.splits:
            leg = chain.nodes[split.next_node]
            assert isinstance(leg, ResolverNode)  # splitters are flattened
            yield chain.targets[leg.target].key, split.weight
    elif isinstance(node, ResolverNode) and is_other_service:
        yield chain.targets[node.target].key, WEIGHT_WHOLE

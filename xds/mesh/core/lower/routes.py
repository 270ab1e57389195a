"""Route configurations of chains: a route for each route of a router, weighted clusters for splits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xds.codec.findings import FieldPath
from xds.consul.shared import HeaderModifiers
from xds.mesh.core.chain.chain import ChainRoute, ChainSplit, Node, ResolverNode, RouterNode, SplitterNode
from xds.mesh.core.entries.resolver import HashPolicy, LoadBalancer, ServiceResolver
from xds.mesh.core.entries.router import Route, RouteDestination, ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter
from xds.mesh.core.lower.envoy_fields import Json, duration, non_empty, timeout
from xds.mesh.core.lower.lowered import EntryPlace, LoweredResource
from xds.mesh.core.lower.mesh_names import route_name, service_of
from xds.mesh.core.lower.route_matches import lower_match, match_places, root_rewrite
from xds.mesh.core.lower.upstream_context import UpstreamContext
from xds.model.resource_type import ROUTE

_ROUTES: FieldPath = ("virtual_hosts", 0, "routes")
_ANY_PATH: Json = {"prefix": "/"}
_OVERWRITE = "OVERWRITE_IF_EXISTS_OR_ADD"

ClusterNames = Mapping[str, str]  # the cluster of each resolver that has one, by the key of its node


def route_configuration(context: UpstreamContext, routes: Sequence[Json]) -> Json:
    """A route configuration with one virtual host for all domains."""
    name = route_name(context.upstream)
    validates = {"validate_clusters": True} if context.proxies.validate_clusters else {}
    return {"name": name, "virtual_hosts": [{"name": name, "domains": ["*"], "routes": list(routes)}], **validates}


def lower_routes(context: UpstreamContext, clusters: ClusterNames) -> LoweredResource:
    """The route configuration of a chain that is not a default one.

    A route to a resolver that cannot be reached is left out, with a warning.
    """
    start = context.chain.start
    routes: list[Json] = []
    places: list[EntryPlace] = []
    if isinstance(start, RouterNode):
        for index, route in enumerate(start.routes):
            if _is_unreachable(context, clusters, route):
                context.warn("unreachable", f"route {index + 1} of {context.chain.service!r} is left out")
                continue
            places += _router_places(context, route, index, len(routes), is_last=index + 1 == len(start.routes))
            routes.append(_route(context, clusters, route))
    else:
        places += _node_places(context, start, 0)
        own = start.request_timeout_ns if isinstance(start, ResolverNode) else 0
        action = {**_action(context, clusters, start), **_timeouts(context, own)}
        routes.append({"match": _ANY_PATH, "route": action})
    content, name = route_configuration(context, routes), context.upstream.name
    return LoweredResource(ROUTE, content["name"], content, (name,), context.all_entries(), tuple(places))


# Routes


def _is_unreachable(context: UpstreamContext, clusters: ClusterNames, route: ChainRoute) -> bool:
    """Whether a route leads to a resolver without a cluster. A splitter without reachable legs is refused."""
    return isinstance(context.chain.nodes[route.next_node], ResolverNode) and route.next_node not in clusters


def _route(context: UpstreamContext, clusters: ClusterNames, route: ChainRoute) -> Json:
    http = route.definition.match.http if route.definition.match is not None else None
    destination = route.definition.destination or RouteDestination()
    action = _action(context, clusters, context.chain.nodes[route.next_node])
    action |= non_empty(
        **_timeouts(context, destination.request_timeout_ns, destination.idle_timeout_ns),
        retry_policy=_retry_policy(destination),
        **_rewrite(route.definition),
    )
    changes = _header_changes(destination.request_headers, destination.response_headers)
    return {"match": lower_match(http), "route": action, **changes}


def _timeouts(context: UpstreamContext, request_ns: int, idle_ns: int = 0) -> Json:
    """The timeouts of a route. gRPC clients without a proxy read the request timeout from another field than Envoy."""
    whole = timeout(request_ns)
    in_grpc = None if context.upstream.is_proxied or whole is None else {"max_stream_duration": whole}
    return non_empty(timeout=whole, idle_timeout=timeout(idle_ns), max_stream_duration=in_grpc)


def _rewrite(route: Route) -> Json:
    """The rewrite of a route. A prefix is replaced as text."""
    to_root = root_rewrite(route)
    if to_root:
        return {"regex_rewrite": to_root}
    return non_empty(prefix_rewrite=route.destination.prefix_rewrite if route.destination is not None else "")


def _retry_policy(destination: RouteDestination) -> Json | None:
    """The retry policy. As in Consul, a number of retries without conditions makes a policy that retries nothing."""
    codes = list(destination.retry_on_status_codes)
    flag = destination.retry_on_connect_failure
    if not (destination.num_retries or flag or codes or destination.retry_on):
        return None
    conditions = dict.fromkeys(destination.retry_on)
    if flag:
        conditions["connect-failure"] = None
    if codes:
        conditions["retriable-status-codes"] = None
    return non_empty(
        retry_on=",".join(conditions), num_retries=destination.num_retries or None, retriable_status_codes=codes
    )


# Actions


def _action(context: UpstreamContext, clusters: ClusterNames, node: Node) -> Json:
    """The cluster or clusters behind a node, and the hash policies of its load balancer."""
    if isinstance(node, ResolverNode):
        return {"cluster": clusters[node.key], **_hashing(node.load_balancer)}
    assert isinstance(node, SplitterNode), "a router is the start of a chain, not behind a route"
    return {"weighted_clusters": {"clusters": _legs(context, clusters, node)}, **_hashing(node.load_balancer)}


def _legs(context: UpstreamContext, clusters: ClusterNames, node: SplitterNode) -> list[Json]:
    """The legs in order, in basis points, also those of weight 0. A leg that cannot be reached is left out."""
    legs = []
    for split in node.splits:
        if split.next_node in clusters:
            legs.append(_leg(clusters[split.next_node], split))
        else:
            context.warn("unreachable", f"a leg of {node.name!r} with {split.weight / 100:g} % is left out")
    if not any(leg["weight"] for leg in legs):
        detail = f"no leg of {node.name!r} that can be reached gets any requests"
        context.refuse("no_weight", detail, ServiceSplitter.kind, service_of(context.chain, node), ("Splits",))
    return legs


def _leg(cluster: str, split: ChainSplit) -> Json:
    definition = split.definition
    changes = _header_changes(definition.request_headers, definition.response_headers)
    return {"name": cluster, "weight": split.weight, **changes}


def _header_changes(request: HeaderModifiers | None, response: HeaderModifiers | None) -> Json:
    return {**_changes("request", request), **_changes("response", response)}


def _changes(side: str, changes: HeaderModifiers | None) -> Json:
    if changes is None:
        return {}
    added: list[Json] = [{"header": {"key": key, "value": value}} for key, value in sorted(changes.add.items())]
    added += [
        {"header": {"key": key, "value": value}, "append_action": _OVERWRITE}
        for key, value in sorted(changes.set.items())
    ]
    return non_empty(**{f"{side}_headers_to_add": added, f"{side}_headers_to_remove": list(changes.remove)})


def _hashing(balancer: LoadBalancer | None) -> Json:
    if balancer is None or not balancer.is_hash_based:
        return {}
    return non_empty(hash_policy=[_hash_policy(one) for one in balancer.hash_policies])


def _hash_policy(policy: HashPolicy) -> Json:
    terminal = {"terminal": True} if policy.terminal else {}
    if policy.source_ip:
        return {"connection_properties": {"source_ip": True}, **terminal}
    if policy.field == "header":
        return {"header": {"header_name": policy.field_value}, **terminal}
    if policy.field == "query_parameter":
        return {"query_parameter": {"name": policy.field_value}, **terminal}
    return {"cookie": _cookie(policy), **terminal}


def _cookie(policy: HashPolicy) -> Json:
    """The cookie of a hash policy. Envoy sets it if it has a TTL; a TTL of 0 means a session cookie."""
    config = policy.cookie_config
    if config is None:
        return {"name": policy.field_value}
    ttl = "0s" if config.session else duration(config.ttl_ns) if config.ttl_ns else None
    return non_empty(name=policy.field_value, path=config.path, ttl=ttl)


# Places


def _router_places(
    context: UpstreamContext, route: ChainRoute, index: int, at: int, *, is_last: bool
) -> Iterator[EntryPlace]:
    """The places of the parts of a route. The last route of a chain is not in an entry."""
    service, path = context.chain.service, (*_ROUTES, at)
    where: FieldPath = () if is_last else ("Routes", index)
    yield EntryPlace(path, ServiceRouter.kind, service, where)
    if not is_last:
        yield from match_places(route.definition, path, service, where)
        yield EntryPlace((*path, "route"), ServiceRouter.kind, service, (*where, "Destination"))
        for field, own in _DESTINATION_FIELDS.items():
            yield EntryPlace((*path, "route", field), ServiceRouter.kind, service, (*where, "Destination", own))
        for field, own in _CHANGES.items():
            yield EntryPlace((*path, field), ServiceRouter.kind, service, (*where, "Destination", own))
    yield from _node_places(context, context.chain.nodes[route.next_node], at)


_CHANGES = {
    "request_headers_to_add": "RequestHeaders",
    "request_headers_to_remove": "RequestHeaders",
    "response_headers_to_add": "ResponseHeaders",
    "response_headers_to_remove": "ResponseHeaders",
}
_DESTINATION_FIELDS = {
    "timeout": "RequestTimeout",
    "idle_timeout": "IdleTimeout",
    "retry_policy": "RetryOn",
    "prefix_rewrite": "PrefixRewrite",
    "regex_rewrite": "PrefixRewrite",
}


def _node_places(context: UpstreamContext, node: Node, at: int) -> Iterator[EntryPlace]:
    """The places of the parts of an action that come from splitters and resolvers."""
    action = (*_ROUTES, at, "route")
    if isinstance(node, SplitterNode):
        name = service_of(context.chain, node)
        yield EntryPlace((*action, "weighted_clusters"), ServiceSplitter.kind, name, ("Splits",))
        resolved: Any = next(
            (context.chain.nodes[one.next_node] for one in node.splits if _is_hash_balanced(context, one.next_node)),
            None,
        )
    else:
        resolved = node
    if isinstance(resolved, ResolverNode):
        service = context.target(resolved).key.service
        path = ("LoadBalancer", "HashPolicies")
        yield EntryPlace((*action, "hash_policy"), ServiceResolver.kind, service, path)


def _is_hash_balanced(context: UpstreamContext, key: str) -> bool:
    node = context.chain.nodes[key]
    return isinstance(node, ResolverNode) and node.load_balancer is not None and node.load_balancer.is_hash_based

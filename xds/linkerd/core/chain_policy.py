"""A discovery chain as the routes of an outbound policy, with destinations and conditions on headers and parameters.

Parts that a policy cannot express are left out and reported. Requests are then routed as if they did not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xds.consul.quantities import SECOND_NS
from xds.consul.shared import HeaderModifiers
from xds.linkerd.core.chain_profile import (
    NameTarget,
    is_elsewhere,
    reached_routes,
    retry_conditions,
    route_name,
)
from xds.linkerd.core.outbound_policy import (
    ANY_PATH,
    NO_CHANGES,
    HeaderChanges,
    PathCondition,
    PolicyBackend,
    PolicyMatch,
    PolicyRetry,
    PolicyRoute,
    PolicyRules,
    TextMatch,
)
from xds.linkerd.core.route_precedence import order_routes
from xds.linkerd.core.route_terms import ROUTES_LIMIT, SKIPPED_LIMIT, escaped, status_ranges
from xds.linkerd.core.rust_regex import is_readable
from xds.mesh.core.chain.chain import DiscoveryChain, Node, ResolverNode, RouterNode, SplitterNode
from xds.mesh.core.entries.router import HeaderMatch, HttpMatch, QueryParamMatch, RouteDestination

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")  # of a header
_ANY_VALUE = ".*"
_DEFAULT = "default"


class NotExpressibleError(Exception):
    """A policy cannot express a part of a chain; the message names the part."""


def chain_policy(chain: DiscoveryChain, own: str, name: NameTarget) -> PolicyRules:
    """The routes for the clients of a chain. ``own`` is the authority that they requested."""
    return _ChainPolicy(chain, own, name).rules()


class _ChainPolicy:
    """One chain. ``skipped`` collects the omissions."""

    def __init__(self, chain: DiscoveryChain, own: str, name: NameTarget) -> None:
        self._chain = chain
        self._own = own
        self._name = name
        self._skipped: list[str] = []

    def rules(self) -> PolicyRules:
        start = self._chain.start
        if isinstance(start, RouterNode):
            routes = list(self._routes(start))
        else:
            own_ns = start.request_timeout_ns if isinstance(start, ResolverNode) else 0
            to = RouteDestination(request_timeout_ns=own_ns)
            routes = [self._route(_DEFAULT, (), to, self._default_backends(start, to))]
        ordered = order_routes(routes, self._skipped)
        return PolicyRules(ordered, tuple(self._skipped[:SKIPPED_LIMIT]))

    def _routes(self, router: RouterNode) -> Iterator[PolicyRoute]:
        """The routes, up to and including the first that matches every request."""
        reached = reached_routes(router)
        for number, route in enumerate(reached[:-1][:ROUTES_LIMIT], 1):
            match = route.definition.match
            http = match.http if match is not None and match.http is not None else HttpMatch()
            to = route.definition.destination or RouteDestination()
            try:
                matches = tuple(_matches(http))
                backends = self._backends(self._chain.nodes[route.next_node])
            except NotExpressibleError as reason:
                self._skipped.append(f"route {number}: {reason}, which a policy cannot express")
                continue
            yield self._route(route_name(number, http), matches, to, backends)
        last = reached[-1]  # a compiled router ends with a route that matches every request
        to = last.definition.destination or RouteDestination()
        yield self._route(_DEFAULT, (), to, self._default_backends(self._chain.nodes[last.next_node], to))

    def _route(
        self, name: str, matches: tuple[PolicyMatch, ...], to: RouteDestination, backends: tuple[PolicyBackend, ...]
    ) -> PolicyRoute:
        if to.prefix_rewrite:
            self._skipped.append(f"route {name!r}: a policy has no PrefixRewrite")
        return PolicyRoute(
            name,
            matches or (PolicyMatch(),),
            backends,
            max(to.request_timeout_ns, 0) / SECOND_NS,
            max(to.idle_timeout_ns, 0) / SECOND_NS,
            self._retry(name, to),
            self._changes(name, to.request_headers),
            self._changes(name, to.response_headers),
        )

    # Destinations

    def _default_backends(self, node: Node, to: RouteDestination) -> tuple[PolicyBackend, ...]:
        """The backends of the default route; the requested destination itself if they cannot be expressed."""
        if isinstance(node, ResolverNode) and not is_elsewhere(self._chain, to):
            return (PolicyBackend(self._own),)
        try:
            return self._backends(node)
        except NotExpressibleError as reason:
            self._skipped.append(f"default route: {reason}, which a policy cannot express")
            return (PolicyBackend(self._own),)

    def _backends(self, node: Node) -> tuple[PolicyBackend, ...]:
        """The backends of a node. Raises ``NotExpressibleError`` for a target without a name."""
        if isinstance(node, ResolverNode):
            return (PolicyBackend(self._authority(node)),)
        assert isinstance(node, SplitterNode)
        weights: dict[tuple[str, HeaderChanges, HeaderChanges], int] = {}
        for split in node.splits:
            leg = self._chain.nodes[split.next_node]
            assert isinstance(leg, ResolverNode)  # splitters are flattened
            if split.weight > 0:
                request = self._changes(node.name, split.definition.request_headers)
                response = self._changes(node.name, split.definition.response_headers)
                key = self._authority(leg), request, response
                weights[key] = weights.get(key, 0) + split.weight
        return tuple(PolicyBackend(key[0], weight, *key[1:]) for key, weight in weights.items())

    def _authority(self, node: ResolverNode) -> str:
        key = self._chain.targets[node.target].key
        authority = self._name(key)
        if not authority:
            raise NotExpressibleError(f"{key.service!r} has no name that a client can request")
        return authority

    # Retries and headers

    def _retry(self, name: str, to: RouteDestination) -> PolicyRetry | None:
        """As in Consul, a number of retries without a condition retries nothing."""
        statuses, unsupported = status_ranges(retry_conditions(to), to.retry_on_status_codes)
        if unsupported:
            self._skipped.append(f"route {name!r}: a policy has no retries on {', '.join(unsupported)}")
        return PolicyRetry(min(to.num_retries or 1, 2**16 - 1), statuses) if statuses else None

    def _changes(self, name: str, changes: HeaderModifiers | None) -> HeaderChanges:
        """The header changes. Envoy removes first, the proxy last: a header that is added and removed is set."""
        if changes is None:
            return NO_CHANGES
        removed = {each.lower() for each in changes.remove}
        added = {key.lower(): value for key, value in changes.add.items()}
        set_values = {key: value for key, value in added.items() if key in removed}
        set_values |= {key.lower(): value for key, value in changes.set.items()}
        added = {key: value for key, value in added.items() if key not in removed}
        unusable = {key for key, value in [*added.items(), *set_values.items()] if not _is_header(key, value)}
        unusable |= {key for key in removed if not _NAME.fullmatch(key)}
        if unusable:
            self._skipped.append(f"route {name!r}: a policy cannot change the headers {', '.join(sorted(unusable))}")
        return HeaderChanges(
            tuple(sorted((key, value) for key, value in added.items() if key not in unusable)),
            tuple(sorted((key, value) for key, value in set_values.items() if key not in unusable)),
            tuple(sorted(removed - unusable - set(set_values))),
        )


def _is_header(name: str, value: str) -> bool:
    """Whether Linkerd's API can express a header. A percent sign begins a command of Envoy."""
    return bool(_NAME.fullmatch(name)) and name != "host" and _is_value(value) and "%" not in value


def _is_value(value: str) -> bool:
    return value.isascii() and value.isprintable()


# Matches


def _matches(http: HttpMatch) -> Iterator[PolicyMatch]:
    """The matches of a route, one for each method. Raises ``NotExpressibleError``."""
    path = _path(http)
    headers = tuple(_header(each) for each in http.header)
    queries = tuple(_query(each) for each in http.query_param)
    for method in http.methods or ("",):
        yield PolicyMatch(path, headers, queries, method)


def _path(http: HttpMatch) -> PathCondition:
    for kind, text in (("exact", http.path_exact), ("prefix", http.path_prefix), ("regex", http.path_regex)):
        if text:
            if kind == "regex" and not is_readable(text):
                raise NotExpressibleError("its regular expression of the path may mean something else to the proxy")
            return PathCondition(kind, text, http.case_insensitive)
    return ANY_PATH


def _header(match: HeaderMatch) -> TextMatch:
    if match.invert:
        raise NotExpressibleError(f"it matches what the header {match.name!r} is not")
    if not _NAME.fullmatch(match.name):
        raise NotExpressibleError(f"it matches {match.name!r}")
    name = match.name.lower()
    if match.exact and _is_value(match.exact):
        return TextMatch(name, "exact", match.exact)
    return TextMatch(name, "regex", _value_regex(match.present, match.regex, match.prefix, match.suffix))


def _query(match: QueryParamMatch) -> TextMatch:
    if match.exact:
        return TextMatch(match.name, "exact", match.exact)
    return TextMatch(match.name, "regex", _value_regex(match.present, match.regex))


def _value_regex(is_present: bool, regex: str, prefix: str = "", suffix: str = "") -> str:
    if is_present:
        return _ANY_VALUE
    if regex and is_readable(regex):
        return regex
    if prefix and _is_value(prefix):
        return f"{escaped(prefix)}.*"
    if suffix and _is_value(suffix):
        return f".*{escaped(suffix)}"
    raise NotExpressibleError("its condition on a value may mean something else to the proxy")

"""The outbound policy of an address: its routes, and how a proxy balances over the endpoints of `Destination.Get`.

In its normal mode a proxy requests the policy, and balances nothing without it. It uses the routes of a policy only if
the profile has neither routes nor overrides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from xds.codec.naming import to_duration
from xds.linkerd.core.profile import StatusRange, Subject, WeightedAuthority, metadata_of, method_of
from xds.linkerd.core.route_terms import path_regex
from xds.linkerd.core.rust_regex import full_match
from xds.linkerd.proto import http_route_pb2, http_types_pb2, meta_pb2
from xds.linkerd.proto import outbound_pb2 as pb

_POLICIES_CACHED = 4096
# The values of Linkerd's own controller.
DETECT_TIMEOUT_S = 10.0
_QUEUE_CAPACITY, _FAIL_FAST_S = 100, 3.0
_DEFAULT_RTT_S, _DECAY_S = 0.03, 10.0
_RETRY_BODY_BYTES = 64 << 10  # requests with larger bodies are not retried


Pairs = tuple[tuple[str, str], ...]


class TextMatch(NamedTuple):
    """A condition on a header or a query parameter. ``kind``: ``exact`` or ``regex``, over the whole value."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PathCondition:
    """``kind``: ``exact``, ``prefix`` (of the text) or ``regex`` (over the whole path)."""

    kind: str = "prefix"
    text: str = "/"
    ignores_case: bool = False

    @property
    def is_any(self) -> bool:
        """Whether every path matches."""
        return (self.kind, self.text) in (("prefix", "/"), ("prefix", ""))


ANY_PATH = PathCondition()


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """A match of requests that meet all conditions. An empty ``method`` means any."""

    path: PathCondition = ANY_PATH
    headers: tuple[TextMatch, ...] = ()
    queries: tuple[TextMatch, ...] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """Changes of the headers of a message: additions, replacements and removals, in this order."""

    add: Pairs = ()
    set: Pairs = ()
    remove: tuple[str, ...] = ()


NO_CHANGES = HeaderChanges()


@dataclass(frozen=True, slots=True)
class PolicyBackend:
    """A destination that gets requests in proportion to its weight."""

    authority: str
    weight: int = 1
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES


@dataclass(frozen=True, slots=True)
class PolicyRetry:
    """``count`` further attempts after one of the statuses."""

    count: int
    statuses: tuple[StatusRange, ...]


@dataclass(frozen=True, slots=True)
class PolicyRoute:
    """A route. Without matches it is for every request. A timeout of 0 means none."""

    name: str
    matches: tuple[PolicyMatch, ...]
    backends: tuple[PolicyBackend, ...]
    timeout_s: float = 0.0
    idle_s: float = 0.0
    retry: PolicyRetry | None = None
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The routes of a service, the last one for every request. ``skipped`` lists inexpressible parts, with reasons."""

    routes: tuple[PolicyRoute, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboundRule:
    """The routes of an address. The last one matches every request; connections without requests go to its backends.

    ``is_opaque``: no connection is read as requests.
    """

    routes: tuple[PolicyRoute, ...]
    subject: Subject
    is_opaque: bool = False


def plain_route(authority: str, overrides: Sequence[WeightedAuthority]) -> PolicyRoute:
    """The overrides of a profile as a route; without any, a route to the destination itself."""
    backends = tuple(PolicyBackend(one.authority, one.weight) for one in overrides) or (PolicyBackend(authority),)
    return PolicyRoute("default", (PolicyMatch(),), backends)


@lru_cache(_POLICIES_CACHED)
def encode_outbound(rule: OutboundRule) -> bytes:
    """The serialized ``OutboundPolicy``. Equal rules have equal bytes."""
    opaque = pb.ProxyProtocol.Opaque(routes=[_opaque_route(rule)])
    if rule.is_opaque:
        protocol = pb.ProxyProtocol(opaque=opaque)
    else:
        routes = [_http_route(rule, route) for route in rule.routes]
        detect = pb.ProxyProtocol.Detect(
            timeout=to_duration(DETECT_TIMEOUT_S),
            opaque=opaque,
            http1=pb.ProxyProtocol.Http1(routes=routes),
            http2=pb.ProxyProtocol.Http2(routes=routes),
        )
        protocol = pb.ProxyProtocol(detect=detect)
    policy = pb.OutboundPolicy(protocol=protocol, metadata=metadata_of(rule.subject))
    return policy.SerializeToString(deterministic=True)


def _http_route(rule: OutboundRule, route: PolicyRoute) -> pb.HttpRoute:
    backends = [_route_backend(rule, one) for one in route.backends]
    message = pb.HttpRoute.Rule(
        matches=[_match(one) for one in route.matches],
        filters=_filters(route.request, route.response),
        backends=_distribution(pb.HttpRoute, backends, route.backends),
        timeouts=_timeouts(route),
        retry=_retry(route.retry) if route.retry is not None else None,
    )
    return pb.HttpRoute(metadata=meta_pb2.Metadata(default=route.name), rules=[message])


def _route_backend(rule: OutboundRule, one: PolicyBackend) -> pb.HttpRoute.RouteBackend:
    return pb.HttpRoute.RouteBackend(backend=_backend(rule, one), filters=_filters(one.request, one.response))


def _timeouts(route: PolicyRoute) -> http_route_pb2.Timeouts | None:
    if not (route.timeout_s or route.idle_s):
        return None
    return http_route_pb2.Timeouts(
        request=to_duration(route.timeout_s) if route.timeout_s else None,
        idle=to_duration(route.idle_s) if route.idle_s else None,
    )


def _retry(retry: PolicyRetry) -> pb.HttpRoute.Retry:
    ranges = [pb.HttpRoute.Retry.Conditions.StatusRange(start=low, end=high) for low, high in retry.statuses]
    conditions = pb.HttpRoute.Retry.Conditions(status_ranges=ranges)
    return pb.HttpRoute.Retry(max_retries=retry.count, max_request_bytes=_RETRY_BODY_BYTES, conditions=conditions)


# Matches and filters


def _match(match: PolicyMatch) -> http_route_pb2.HttpRouteMatch:
    return http_route_pb2.HttpRouteMatch(
        path=_path(match),
        headers=[_header(one) for one in match.headers],
        query_params=[_query(one) for one in match.queries],
        method=method_of(match.method) if match.method else None,
    )


def _path(match: PolicyMatch) -> http_route_pb2.PathMatch:
    """The path as a regular expression, so that paths of all routes are equally specific to the proxy.

    A prefix of the proxy's own kind would have to end at a slash.
    """
    path: PathCondition = match.path
    if match == PolicyMatch():
        return http_route_pb2.PathMatch(prefix=ANY_PATH.text)
    if path.is_any:
        return http_route_pb2.PathMatch(regex=".*")
    if path.kind == "exact" and not path.ignores_case:
        return http_route_pb2.PathMatch(exact=path.text)
    return http_route_pb2.PathMatch(regex=full_match(path_regex(path.kind, path.text, path.ignores_case)))


def _header(one: TextMatch) -> http_route_pb2.HeaderMatch:
    if one.kind == "exact":
        return http_route_pb2.HeaderMatch(name=one.name, exact=one.text.encode())
    return http_route_pb2.HeaderMatch(name=one.name, regex=full_match(one.text))


def _query(one: TextMatch) -> http_route_pb2.QueryParamMatch:
    if one.kind == "exact":
        return http_route_pb2.QueryParamMatch(name=one.name, exact=one.text)
    return http_route_pb2.QueryParamMatch(name=one.name, regex=full_match(one.text))


def _filters(request: HeaderChanges, response: HeaderChanges) -> Iterator[pb.HttpRoute.Filter]:
    if request != NO_CHANGES:
        changes = http_route_pb2.RequestHeaderModifier(**_changes(request))
        yield pb.HttpRoute.Filter(request_header_modifier=changes)
    if response != NO_CHANGES:
        changed = http_route_pb2.ResponseHeaderModifier(**_changes(response))
        yield pb.HttpRoute.Filter(response_header_modifier=changed)


def _changes(changes: HeaderChanges) -> dict[str, Any]:
    return {"add": _headers(changes.add), "set": _headers(changes.set), "remove": changes.remove}


def _headers(pairs: Pairs) -> http_types_pb2.Headers | None:
    if not pairs:
        return None
    return http_types_pb2.Headers(
        headers=[http_types_pb2.Headers.Header(name=name, value=value.encode()) for name, value in pairs]
    )


# Backends


def _opaque_route(rule: OutboundRule) -> pb.OpaqueRoute:
    shares = rule.routes[-1].backends
    backends = [pb.OpaqueRoute.RouteBackend(backend=_backend(rule, one)) for one in shares]
    rules = [pb.OpaqueRoute.Rule(backends=_distribution(pb.OpaqueRoute, backends, shares))]
    return pb.OpaqueRoute(metadata=meta_pb2.Metadata(default="opaque"), rules=rules)


def _distribution(kind: Any, backends: Sequence[Any], shares: Sequence[PolicyBackend]) -> Any:
    """The backends of a route of this kind: the only one, or several by weight."""
    if len(backends) == 1:
        return kind.Distribution(first_available=kind.Distribution.FirstAvailable(backends=backends))
    weighted = [
        kind.WeightedRouteBackend(backend=backend, weight=one.weight)
        for backend, one in zip(backends, shares, strict=True)
    ]
    return kind.Distribution(random_available=kind.Distribution.RandomAvailable(backends=weighted))


def _backend(rule: OutboundRule, one: PolicyBackend) -> pb.Backend:
    """A balancer over the endpoints that `Destination.Get` returns. The proxy requires all of its parts."""
    balancer = pb.Backend.BalanceP2c(
        discovery=pb.Backend.EndpointDiscovery(dst=pb.Backend.EndpointDiscovery.DestinationGet(path=one.authority)),
        peak_ewma=pb.Backend.BalanceP2c.PeakEwma(default_rtt=to_duration(_DEFAULT_RTT_S), decay=to_duration(_DECAY_S)),
    )
    queue = pb.Queue(capacity=_QUEUE_CAPACITY, failfast_timeout=to_duration(_FAIL_FAST_S))
    return pb.Backend(metadata=metadata_of(rule.subject), balancer=balancer, queue=queue)

"""How a linkerd2-proxy reads an outbound policy: which route it selects for a request, and its backends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from xds.filter.values import Pattern
from xds.linkerd.proto import meta_pb2, outbound_pb2


@dataclass(frozen=True)
class Request:
    """A request, as far as routes match it."""

    path: str = "/"
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)


def route_taken(policy: outbound_pb2.OutboundPolicy, request: Request) -> outbound_pb2.HttpRoute:
    """The route that linkerd2-proxy selects (``linkerd/http/route/src/lib.rs``): the first of the most specific."""
    best: tuple[Any, outbound_pb2.HttpRoute] | None = None
    for route in policy.protocol.detect.http1.routes:
        (rule,) = route.rules
        ranks = [found for one in rule.matches if (found := _rank(one, request)) is not None]
        if ranks and (best is None or max(ranks) > best[0]):
            best = max(ranks), route
    assert best is not None
    return best[1]


def _rank(match: Any, request: Request) -> tuple[int, int, int, bool] | None:
    has_method = match.HasField("method")
    if has_method and match.method.Registered.Name(match.method.registered) != request.method:
        return None
    length = _length(match.path, request.path)
    if length is None:
        return None
    for one, held in ((match.headers, request.headers), (match.query_params, request.queries)):
        if not all(_holds(each, held) for each in one):
            return None
    return length, len(match.headers), len(match.query_params), has_method


def _length(path: Any, given: str) -> int | None:
    match path.WhichOneof("kind"):
        case "exact":
            return len(given) if path.exact == given else None
        case "regex":
            return len(given) if Pattern(path.regex).search(given) else None
    assert path.prefix == "/"
    return 1


def _holds(one: Any, held: dict[str, str]) -> bool:
    if one.name not in held:
        return False
    if one.WhichOneof("value") == "exact":
        exact = one.exact.decode() if isinstance(one.exact, bytes) else one.exact
        return bool(exact == held[one.name])
    return Pattern(one.regex).search(held[one.name])


def backends_of(route: outbound_pb2.HttpRoute) -> dict[str, int]:
    """The authorities that a proxy asks for, with their weights."""
    (rule,) = route.rules
    if rule.backends.WhichOneof("kind") == "first_available":
        return {one.backend.balancer.discovery.dst.path: 1 for one in rule.backends.first_available.backends}
    found: dict[str, int] = {}
    for one in rule.backends.random_available.backends:
        path = one.backend.backend.balancer.discovery.dst.path
        found[path] = found.get(path, 0) + one.weight
    return found


def check_metadata(message: Message) -> None:
    """Check that no part of a resource is empty: a proxy would reject the whole policy, and so every request."""
    if isinstance(message, meta_pb2.Resource):
        empty = [name for name in ("group", "kind", "name", "namespace") if not getattr(message, name)]
        assert not empty, f"{message} has no {', '.join(empty)}"
    for _, value in message.ListFields():
        for one in [value] if isinstance(value, Message) else value if isinstance(value, Iterable) else ():
            if isinstance(one, Message):
                check_metadata(one)

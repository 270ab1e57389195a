"""The walk of a request through a chain, with the reasons, for ``xds chain --path``.

Requests are matched as Envoy does: a prefix is a prefix of the text, regular expressions match the whole text, and
names of headers are case-insensitive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from xds.consul.quantities import WHOLE
from xds.filter.regular_expressions import compile_regex
from xds.mesh.core.chain.chain import ChainSplit, DiscoveryChain, Node, ResolverNode, RouterNode, SplitterNode
from xds.mesh.core.entries.router import HeaderMatch, HttpMatch, QueryParamMatch, Route

_PATTERNS_CACHED = 256


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. ``path`` has no query; names of headers may be in any case."""

    path: str = "/"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, target: str, method: str = "GET", headers: Iterable[tuple[str, str]] = ()) -> HttpRequest:
        """The request for ``target``, a path with or without a query."""
        path, _, query = target.partition("?")
        return cls(path or "/", method.upper(), tuple(headers), tuple(parse_qsl(query, keep_blank_values=True)))

    def with_query(self, pairs: Iterable[tuple[str, str]]) -> HttpRequest:
        """The same with more query parameters at the end."""
        return replace(self, query=(*self.query, *pairs))


@dataclass(frozen=True, slots=True)
class TriedRoute:
    """A route that was tried. ``mismatch`` names the condition that did not match; empty for a match."""

    index: int
    route: Route
    mismatch: str

    @property
    def matches(self) -> bool:
        """Whether the route matches. Only the last tried route does."""
        return not self.mismatch


@dataclass(frozen=True, slots=True)
class Way:
    """A resolver where requests may end; it gets ``weight`` basis points of them. ``split`` is the leg, if any."""

    weight: int
    split: ChainSplit | None
    resolver: ResolverNode


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of `walk`.

    ``tried`` has the routes in order, up to the one that matches; it is empty without a router. ``node`` is the key of
    the node that the router leads to, or of the start. ``path`` is the path that the service receives.
    """

    tried: tuple[TriedRoute, ...]
    node: str
    ways: tuple[Way, ...]
    path: str


def walk(chain: DiscoveryChain, request: HttpRequest) -> Walk:
    """Follow a request from the start. Regular expressions that RE2 cannot compile match nothing."""
    tried: list[TriedRoute] = []
    node, path = chain.start, request.path
    if isinstance(node, RouterNode):
        for index, route in enumerate(node.routes):
            tried.append(TriedRoute(index, route.definition, _mismatch(route.definition, request)))
            if tried[-1].matches:
                path = _rewrite(route.definition, path)
                node = chain.nodes[route.next_node]
                break
    return Walk(tuple(tried), node.key, tuple(_ways(chain, node)), path)


def _ways(chain: DiscoveryChain, node: Node) -> Iterable[Way]:
    if isinstance(node, ResolverNode):
        yield Way(WHOLE, None, node)
    elif isinstance(node, SplitterNode):
        for split in node.splits:
            resolver = chain.nodes[split.next_node]
            assert isinstance(resolver, ResolverNode), "splitters are flattened"
            yield Way(split.weight, split, resolver)


def _rewrite(route: Route, path: str) -> str:
    rewrite = route.destination.prefix_rewrite if route.destination is not None else ""
    http = route.match.http if route.match is not None else None
    if not rewrite or http is None:
        return path
    if http.path_exact:
        return rewrite
    rest = path[len(http.path_prefix) :]
    # As in the lowered routes: /api/users without /api is /users, not //users.
    return rewrite + (rest.removeprefix("/") if rewrite == "/" and not http.path_prefix.endswith("/") else rest)


# Matching


def _mismatch(route: Route, request: HttpRequest) -> str:
    """The first condition of the route that the request does not meet; empty if it meets all."""
    http = route.match.http if route.match is not None else None
    if http is None:
        return ""
    mismatch = _path_mismatch(http, request.path)
    if mismatch:
        return mismatch
    for header in http.header:
        if not _header_matches(header, request):
            return f"header {header.name} {_wanted(header)}"
    if http.methods and request.method not in http.methods:
        return f"method {request.method} is not one of {', '.join(http.methods)}"
    for parameter in http.query_param:
        if not _parameter_matches(parameter, request):
            return f"query parameter {parameter.name} {_wanted(parameter)}"
    return ""


def _path_mismatch(http: HttpMatch, path: str) -> str:
    fold = str.lower if http.case_insensitive else str
    if http.path_exact and fold(path) != fold(http.path_exact):
        return f"path is not {http.path_exact}"
    if http.path_prefix and not fold(path).startswith(fold(http.path_prefix)):
        return f"path does not begin with {http.path_prefix}"
    if http.path_regex and not _is_match(http.path_regex, path):
        return f"path does not match {http.path_regex}"
    return ""


def _header_matches(match: HeaderMatch, request: HttpRequest) -> bool:
    values = [value for name, value in request.headers if name.lower() == match.name.lower()]
    if match.present:
        return bool(values) is not match.invert
    if not values:
        return False  # Envoy inverts a match only if the header is present
    value = ",".join(values)
    if match.exact:
        holds = value == match.exact
    elif match.prefix:
        holds = value.startswith(match.prefix)
    elif match.suffix:
        holds = value.endswith(match.suffix)
    else:
        holds = _is_match(match.regex, value)
    return holds is not match.invert


def _parameter_matches(match: QueryParamMatch, request: HttpRequest) -> bool:
    value = next((value for name, value in request.query if name == match.name), None)
    if value is None:
        return False
    if match.present:
        return True
    return value == match.exact if match.exact else _is_match(match.regex, value)


def _wanted(match: HeaderMatch | QueryParamMatch) -> str:
    inverted = isinstance(match, HeaderMatch) and match.invert
    for kind in ("exact", "prefix", "suffix", "regex"):
        wanted = getattr(match, kind, "")
        if wanted:
            return f"is not {'other than ' if inverted else ''}{kind} {wanted}"
    return "is there" if inverted else "is not there"


def _is_match(regex: str, text: str) -> bool:
    pattern = _pattern(regex)
    return pattern is not None and pattern.search(text.encode("utf-8", "replace")) is not None


@lru_cache(maxsize=_PATTERNS_CACHED)
def _pattern(regex: str) -> Any:
    """The pattern that matches a whole text; None if RE2 cannot compile it. No proxy is sent such a route."""
    try:
        return compile_regex(rf"\A(?:{regex})\z")
    except ValueError:
        return None

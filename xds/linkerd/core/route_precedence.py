"""Rewrites routes whose first match counts for a proxy that uses the most specific match.

A linkerd2-proxy compares the matches of a request: by the length of the matched path, then by the number of headers and
of query parameters, then by whether they name a method. The earlier of equal matches counts. A path that is a regular
expression counts as the length of the request's path. So all paths are sent as regular expressions, and the other
conditions decide. If a later route is more specific,

- an earlier route with headers repeats one of them until it has as many;
- an earlier route without headers gets further matches, with the conditions of both routes.

Neither changes which requests a route matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from xds.linkerd.core.outbound_policy import PathCondition, PolicyMatch, PolicyRoute

MATCHES_LIMIT = 256  # of one route
HEADERS_LIMIT = 64  # of one match
Rank = tuple[int, int, bool]


def order_routes(routes: Sequence[PolicyRoute], skipped: list[str]) -> tuple[PolicyRoute, ...]:
    """The same routes, with matches that make the first one count. A route that would need too many is left out."""
    later: dict[PolicyMatch, None] = {}
    ordered: list[PolicyRoute] = []
    for route in reversed(_reachable(routes)):
        matches = _raise_ranks(route.matches, tuple(later))
        if len(matches) > MATCHES_LIMIT or any(len(one.headers) > HEADERS_LIMIT for one in matches):
            skipped.append(f"route {route.name!r}: its order among the later ones cannot be expressed in a policy")
            continue
        later |= dict.fromkeys(matches)
        ordered.append(replace(route, matches=matches))
    return tuple(reversed(ordered))


def _reachable(routes: Sequence[PolicyRoute]) -> Sequence[PolicyRoute]:
    """The routes up to the first that matches every request."""
    ends = (number for number, route in enumerate(routes, 1) if PolicyMatch() in route.matches)
    return routes[: next(ends, len(routes))]


def rank(match: PolicyMatch) -> Rank:
    """How specific a match is to the proxy, if paths are equal."""
    return len(match.headers), len(match.queries), bool(match.method)


def _raise_ranks(own: Iterable[PolicyMatch], later: Sequence[PolicyMatch]) -> tuple[PolicyMatch, ...]:
    """Matches for the same requests. For each request one is at least as specific as every later match."""
    raised: dict[PolicyMatch, None] = {}
    for match in own:
        conflicts = [other for other in later if rank(other) > rank(match) and may_overlap(match, other)]
        if conflicts and match.headers:
            raised[_repeat_header(match, conflicts)] = None
        else:
            raised[match] = None
            raised |= dict.fromkeys(_combine(match, other) for other in conflicts[: MATCHES_LIMIT + 1])
    return tuple(raised)


def _repeat_header(match: PolicyMatch, conflicts: Iterable[PolicyMatch]) -> PolicyMatch:
    wanted = max(len(other.headers) + (rank(other)[1:] > rank(match)[1:]) for other in conflicts)
    return replace(match, headers=match.headers + match.headers[-1:] * (wanted - len(match.headers)))


def _combine(match: PolicyMatch, other: PolicyMatch) -> PolicyMatch:
    return PolicyMatch(
        match.path, match.headers + other.headers, match.queries + other.queries, match.method or other.method
    )


def may_overlap(one: PolicyMatch, other: PolicyMatch) -> bool:
    """Whether a request may meet both. Never False if there is such a request."""
    if one.method and other.method and one.method != other.method:
        return False
    return _paths_overlap(one.path, other.path)


def _paths_overlap(one: PathCondition, other: PathCondition) -> bool:
    if "regex" in (one.kind, other.kind):
        return True
    ignores_case = one.ignores_case or other.ignores_case
    first, second = (path.text.lower() if ignores_case else path.text for path in (one, other))
    if one.kind == "prefix" and second.startswith(first):
        return True
    return first == second or (other.kind == "prefix" and first.startswith(second))

"""Policies route as chains do, though a proxy takes the most specific match and a router the first."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.linkerd_policy import Request, route_taken
from xds.linkerd.core.outbound_policy import (
    OutboundRule,
    PathCondition,
    PolicyBackend,
    PolicyMatch,
    PolicyRoute,
    TextMatch,
    encode_outbound,
)
from xds.linkerd.core.profile import Subject
from xds.linkerd.core.route_precedence import MATCHES_LIMIT, order_routes
from xds.linkerd.proto import outbound_pb2

SUBJECT = Subject("core", "Service", "web", "default")


def first(routes: list[PolicyRoute], request: Request) -> str:
    """The route that the router takes."""
    return next(route.name for route in routes if any(_fulfils(one, request) for one in route.matches))


def _fulfils(match: PolicyMatch, request: Request) -> bool:
    path, text = match.path, request.path
    wanted = path.text
    if path.ignores_case and path.kind != "regex":
        text, wanted = text.lower(), wanted.lower()
    if path.kind == "regex":
        fits = re.fullmatch(wanted, text, re.IGNORECASE if path.ignores_case else 0) is not None
    else:
        fits = text == wanted if path.kind == "exact" else text.startswith(wanted)
    pairs = ((match.headers, request.headers), (match.queries, request.queries))
    return (
        fits
        and match.method in ("", request.method)
        and all(one.name in held and re.fullmatch(one.text, held[one.name]) for group, held in pairs for one in group)
    )


PATHS = ["/", "/a", "/a/b", "/A", "/ab", "/b"]
NAMES, VALUES, METHODS = ["x", "y"], ["1", "2"], ["GET", "POST"]
texts = st.tuples(
    st.builds(TextMatch, st.sampled_from(NAMES), st.just("regex"), st.sampled_from([".*", "1"])),
)
some = st.one_of(st.just(()), texts, st.tuples(texts, texts).map(lambda two: two[0] + two[1]))
paths = st.builds(PathCondition, st.sampled_from(["exact", "prefix"]), st.sampled_from(PATHS), st.booleans())
regexes = st.builds(PathCondition, st.just("regex"), st.sampled_from(["/a.*", "/[ab]", "/(a|ab)"]), st.booleans())
matches = st.builds(
    PolicyMatch,
    st.one_of(st.just(PathCondition()), paths, regexes),
    some,
    some,
    st.sampled_from(["", "", *METHODS]),
)
values = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES))
requests = st.builds(Request, st.sampled_from(PATHS), st.sampled_from(METHODS), values, values)


def _routes(each: list[list[PolicyMatch]]) -> list[PolicyRoute]:
    backends = (PolicyBackend("web:80"),)
    found = [PolicyRoute(str(number), tuple(one), backends) for number, one in enumerate(each)]
    return [*found, PolicyRoute("last", (PolicyMatch(),), backends)]


X, Y = TextMatch("x", "regex", ".*"), TextMatch("y", "regex", ".*")


@given(st.lists(st.lists(matches, min_size=1, max_size=2), max_size=5), st.lists(requests, min_size=1, max_size=8))
@example(
    [[PolicyMatch(method="GET")], [PolicyMatch(queries=(Y,))], [PolicyMatch(headers=(X,))]],
    [Request(headers={"x": "1"}, queries={"y": "1"})],
)
@example([[PolicyMatch()], [PolicyMatch(PathCondition("exact", "/a/b"), (X, X))]], [Request("/a/b", headers={"x": ""})])
def test_a_proxy_takes_the_route_that_the_router_takes(each: list[list[PolicyMatch]], asked: list[Request]) -> None:
    routes, skipped = _routes(each), list[str]()
    told = order_routes(routes, skipped)
    assert not skipped
    policy = outbound_pb2.OutboundPolicy.FromString(encode_outbound(OutboundRule(told, SUBJECT)))
    for request in asked:
        assert route_taken(policy, request).metadata.default == first(routes, request)


def test_routes_whose_order_would_need_too_many_matches_are_left_out_and_reported() -> None:
    one = [TextMatch(f"q{number}", "exact", "1") for number in range(MATCHES_LIMIT + 10)]
    routes, skipped = (
        _routes([[PolicyMatch(PathCondition("prefix", "/a"))], *([PolicyMatch(headers=(each,))] for each in one)]),
        list[str](),
    )
    told = order_routes(routes, skipped)
    assert len(told) == len(routes) - 1 and told[0].name == "1"
    (reason,) = skipped
    assert "'0'" in reason

"""Which way a request goes: routes are tried in order, and what did not match is told."""

from __future__ import annotations

import pytest

from tests.support.chains import request_of
from xds.mesh.core.chain.chain import DiscoveryChain
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.request_walk import HttpRequest, Walk, walk

HTTP = "- {Kind: proxy-defaults, Config: {protocol: http}}\n"


def chain_of(*routes: str) -> DiscoveryChain:
    text = f"- {{Kind: service-router, Name: web, Routes: [{', '.join(routes)}]}}\n"
    return compile_chain(request_of(HTTP + text))


def route(match: str, destination: str = "{Service: api}") -> str:
    return f"{{Match: {{HTTP: {match}}}, Destination: {destination}}}"


def targets(found: Walk) -> list[tuple[int, str]]:
    return [(way.weight, way.resolver.target.partition(".")[0]) for way in found.ways]


MATCHES = [
    ("{PathExact: /a}", "/a", True),
    ("{PathExact: /a}", "/a/", False),
    ("{PathExact: /a}", "/A", False),
    ("{PathExact: /a, CaseInsensitive: true}", "/A", True),
    ("{PathPrefix: /a}", "/ab", True),
    ("{PathPrefix: /a}", "/b", False),
    ("{PathPrefix: /a, CaseInsensitive: true}", "/Ab", True),
    ("{PathRegex: '/[0-9]+'}", "/12", True),
    ("{PathRegex: '/[0-9]+'}", "/12x", False),
    ("{PathRegex: '/a|/b'}", "/bc", False),
    (f"{{PathRegex: '/{'a' * 600}'}}", f"/{'a' * 600}", True),
    ("{PathRegex: '/a{1,900}'}", f"/{'a' * 900}", True),
    ("{PathRegex: '('}", "/", False),
    ("{Methods: [get]}", "/", True),
    ("{Methods: [PUT, POST]}", "/", False),
    ("{Header: [{Name: X-A, Present: true}]}", "/", True),
    ("{Header: [{Name: x-b, Present: true}]}", "/", False),
    ("{Header: [{Name: x-b, Present: true, Invert: true}]}", "/", True),
    ("{Header: [{Name: x-a, Exact: one}]}", "/", True),
    ("{Header: [{Name: x-a, Exact: One}]}", "/", False),
    ("{Header: [{Name: x-a, Exact: two, Invert: true}]}", "/", True),
    ("{Header: [{Name: x-b, Exact: two, Invert: true}]}", "/", False),
    ("{Header: [{Name: x-a, Prefix: on}]}", "/", True),
    ("{Header: [{Name: x-a, Suffix: ne}]}", "/", True),
    ("{Header: [{Name: x-a, Suffix: on}]}", "/", False),
    ("{Header: [{Name: x-a, Regex: 'o.*'}]}", "/", True),
    ("{Header: [{Name: x-a, Regex: 'o'}]}", "/", False),
    ("{Header: [{Name: x-a, Prefix: o}, {Name: x-b, Present: true}]}", "/", False),
    ("{QueryParam: [{Name: q, Present: true}]}", "/?q", True),
    ("{QueryParam: [{Name: q, Exact: v}]}", "/?p=1&q=v", True),
    ("{QueryParam: [{Name: q, Exact: v}]}", "/?q=w", False),
    ("{QueryParam: [{Name: q, Regex: '[a-z]'}]}", "/?q=w", True),
    ("{QueryParam: [{Name: q, Regex: '[a-z]'}]}", "/?q=ww", False),
    ("{QueryParam: [{Name: q, Exact: v}]}", "/", False),
    ("{}", "/anything", True),
]


@pytest.mark.parametrize(("match", "path", "matches"), MATCHES)
def test_a_route_matches(match: str, path: str, matches: bool) -> None:
    found = walk(chain_of(route(match)), HttpRequest.of(path, headers=[("x-a", "one")]))
    assert found.tried[0].matches is matches
    assert targets(found) == [(10_000, "api" if matches else "web")]
    assert len(found.tried) == (1 if matches else 2)


def test_routes_that_did_not_match_are_shown() -> None:
    chain = chain_of(
        route("{PathPrefix: /a}"),
        route("{Methods: [PUT]}"),
        route("{Header: [{Name: x-a, Exact: one}]}"),
        route("{Header: [{Name: x-a, Present: true, Invert: true}]}"),
        route("{QueryParam: [{Name: q, Regex: v}]}"),
    )
    found = walk(chain, HttpRequest.of("/b", headers=[("X-A", "two")]))
    assert [one.mismatch for one in found.tried] == [
        "path does not begin with /a",
        "method GET is not one of PUT",
        "header x-a is not exact one",
        "header x-a is there",
        "query parameter q is not regex v",
        "",
    ]


def test_a_header_that_comes_twice_is_one_value() -> None:
    chain = chain_of(route("{Header: [{Name: x-a, Exact: 'one,two'}]}"))
    assert walk(chain, HttpRequest(headers=(("x-a", "one"), ("X-A", "two")))).tried[0].matches


@pytest.mark.parametrize(
    ("match", "path", "sent"),
    [("{PathPrefix: /a}", "/a/b", "/x/b"), ("{PathExact: /a}", "/a", "/x"), ("{PathPrefix: /}", "/b", "/xb")],
)
def test_a_path_is_rewritten(match: str, path: str, sent: str) -> None:
    assert walk(chain_of(route(match, "{PrefixRewrite: /x}")), HttpRequest.of(path)).path == sent


@pytest.mark.parametrize(
    ("prefix", "path", "sent"),
    [
        ("/api", "/api/users", "/users"),
        ("/api", "/apix", "/x"),
        ("/api", "/api", "/"),
        ("/api", "/api//x", "//x"),
        ("/api/", "/api/users", "/users"),
        ("/", "/users", "/users"),
    ],
)
def test_a_prefix_that_is_taken_off_leaves_no_second_slash(prefix: str, path: str, sent: str) -> None:
    """As what proxies are told does, since Consul 1.22."""
    chain = chain_of(route(f"{{PathPrefix: {prefix}}}", "{PrefixRewrite: /}"))
    assert walk(chain, HttpRequest.of(path)).path == sent


def test_all_legs_of_a_split_are_shown_with_their_shares() -> None:
    text = """
- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /a}}, Destination: {Service: api}}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 10, Service: alt}, {Weight: 90}]}
"""
    found = walk(compile_chain(request_of(HTTP + text)), HttpRequest("/a"))
    assert targets(found) == [(1_000, "alt"), (9_000, "api")]


def test_a_chain_without_a_router_tries_nothing() -> None:
    found = walk(compile_chain(request_of("")), HttpRequest("/a"))
    assert (found.tried, targets(found), found.path) == ((), [(10_000, "web")], "/a")

"""What outbound policies say of routers and splitters: matches, destinations, retries, timeouts, headers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.linkerd_client import LinkerdClient
from tests.support.linkerd_policy import backends_of
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from xds.linkerd.settings import DestinationSettings

HTTP = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
API, NEW = "api.default.svc.cluster.local:80", "new.default.svc.cluster.local:80"
OWN = f"{HOST}:80"


@pytest.fixture
def site() -> Iterator[LinkerdSite]:
    made = LinkerdSite()
    made.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.10",)))
    yield made
    made.close()


def router(*routes: dict[str, Any]) -> dict[str, Any]:
    return {"Kind": "service-router", "Name": "web", "Routes": list(routes)}


def routes(client: LinkerdClient) -> list[Any]:
    """The routes of the policy, which are the same for both versions of HTTP."""
    detect = client.watch("10.96.0.10", 80).next().protocol.detect
    assert detect.http1.routes == detect.http2.routes
    assert all(len(route.rules) == 1 for route in detect.http1.routes)
    return list(detect.http1.routes)


def skipped(site: LinkerdSite) -> str:
    return "\n".join(reason for state in site.destinations.states() for reason in state.skipped)


def test_routes_match_headers_parameters_and_methods_and_have_destinations(site: LinkerdSite) -> None:
    header = [
        {"Name": "X-A", "Exact": "1"},
        {"Name": "x-b", "Present": True},
        {"Name": "x-c", "Prefix": "a.b"},
        {"Name": "x-d", "Suffix": "z"},
        {"Name": "x-e", "Regex": "a|b"},
    ]
    query = [{"Name": "q", "Exact": "1"}, {"Name": "r", "Regex": "[0-9]+"}, {"Name": "s", "Present": True}]
    matches = {"PathPrefix": "/admin", "Header": header, "QueryParam": query, "Methods": ["PUT", "POST"]}
    splitter = {
        "Kind": "service-splitter",
        "Name": "web",
        "Splits": [{"Weight": 75, "Service": "web"}, {"Weight": 25, "Service": "new"}],
    }
    site.write(
        HTTP,
        router(
            {"Match": {"HTTP": matches}, "Destination": {"Service": "api"}},
            {"Match": {"HTTP": {"PathExact": "/exact"}}, "Destination": {"Service": "new"}},
            {"Match": {"HTTP": {"PathRegex": "/r[0-9]", "CaseInsensitive": True}}, "Destination": {"Service": "api"}},
        ),
        splitter,
    )
    conditional, exact, regex, default = routes(site.client())
    assert [backends_of(one) for one in (conditional, exact, regex)] == [{API: 1}, {NEW: 1}, {API: 1}]
    assert backends_of(default) == {OWN: 7500, NEW: 2500}
    put, post = conditional.rules[0].matches
    assert [one.method.Registered.Name(one.method.registered) for one in (put, post)] == ["PUT", "POST"]
    assert put.path.regex == "^(?:/admin.*)$"
    assert [(one.name, one.exact, one.regex) for one in put.headers] == [
        ("x-a", b"1", ""),
        ("x-b", b"", "^(?:.*)$"),
        ("x-c", b"", r"^(?:a\.b.*)$"),
        ("x-d", b"", "^(?:.*z)$"),
        ("x-e", b"", "^(?:a|b)$"),
    ]
    assert [(one.name, one.exact, one.regex) for one in put.query_params] == [
        ("q", "1", ""),
        ("r", "", "^(?:[0-9]+)$"),
        ("s", "", "^(?:.*)$"),
    ]
    assert exact.rules[0].matches[0].path.exact == "/exact"
    assert regex.rules[0].matches[0].path.regex == "^(?:(?i)/r[0-9])$"
    assert default.rules[0].matches[0].path.prefix == "/"
    assert not skipped(site)


def test_timeouts_retries_and_changes_of_headers_are_said(site: LinkerdSite) -> None:
    changes = {"Add": {"x-add": "1", "x-both": "2"}, "Set": {"x-set": "3"}, "Remove": ["x-gone", "x-both"]}
    to = {
        "RequestTimeout": "1500ms",
        "IdleTimeout": "3s",
        "NumRetries": 4,
        "RetryOn": ["gateway-error"],
        "RetryOnStatusCodes": [429],
        "RequestHeaders": changes,
        "ResponseHeaders": {"Set": {"x-version": "1"}},
    }
    site.write(HTTP, router({"Match": {"HTTP": {"PathPrefix": "/a"}}, "Destination": to}))
    rule = routes(site.client())[0].rules[0]
    assert (rule.timeouts.request.ToMilliseconds(), rule.timeouts.idle.seconds) == (1500, 3)
    assert rule.retry.max_retries == 4 and rule.retry.max_request_bytes
    assert [(one.start, one.end) for one in rule.retry.conditions.status_ranges] == [(429, 429), (502, 504)]
    request, response = rule.filters
    told = request.request_header_modifier
    assert [(one.name, one.value) for one in told.add.headers] == [("x-add", b"1")]
    # Envoy removes first, a proxy last: what is added after it was removed is set.
    assert [(one.name, one.value) for one in told.set.headers] == [("x-both", b"2"), ("x-set", b"3")]
    assert list(told.remove) == ["x-gone"]
    assert response.response_header_modifier.set.headers[0].name == "x-version"


def test_the_legs_of_a_splitter_change_headers(site: LinkerdSite) -> None:
    legs = [
        {"Weight": 90, "Service": "web", "ResponseHeaders": {"Set": {"x-leg": "old"}}},
        {"Weight": 10, "Service": "new"},
    ]
    site.write(HTTP, {"Kind": "service-splitter", "Name": "web", "Splits": legs})
    (route,) = routes(site.client())
    old, new = route.rules[0].backends.random_available.backends
    assert old.backend.filters[0].response_header_modifier.set.headers[0].value == b"old"
    assert not new.backend.filters


@pytest.mark.parametrize(
    ("http", "to", "word"),
    [
        ({"Header": [{"Name": "x", "Exact": "1", "Invert": True}]}, {"Service": "api"}, "is not"),
        ({"Header": [{"Name": ":authority", "Exact": "a"}]}, {"Service": "api"}, ":authority"),
        ({"Header": [{"Name": "x", "Regex": r"\pN"}]}, {"Service": "api"}, "condition on a value"),
        ({"PathRegex": "/[[:alpha:]]"}, {"Service": "api"}, "regular expression of the path"),
    ],
)
def test_a_route_whose_match_cannot_be_said_is_left_out_and_reported(
    site: LinkerdSite, http: dict[str, Any], to: dict[str, Any], word: str
) -> None:
    site.write(HTTP, router({"Match": {"HTTP": http}, "Destination": to}))
    (default,) = routes(site.client())
    assert backends_of(default) == {OWN: 1}
    assert word in skipped(site)


def test_other_inexpressible_parts_of_a_route_are_reported(site: LinkerdSite) -> None:
    to = {
        "Service": "api",
        "PrefixRewrite": "/b",
        "NumRetries": 2,
        "RetryOn": ["reset"],
        "RetryOnConnectFailure": True,
        "RequestHeaders": {"Set": {"x-from": "%DOWNSTREAM_REMOTE_ADDRESS%"}},
    }
    site.write(HTTP, router({"Match": {"HTTP": {"PathPrefix": "/a"}}, "Destination": to}))
    route, _ = routes(site.client())
    assert backends_of(route) == {API: 1}
    assert not route.rules[0].HasField("retry") and not route.rules[0].filters
    told = skipped(site)
    for word in ("PrefixRewrite", "reset, connect-failure", "x-from"):
        assert word in told


def test_profiles_leave_routing_to_policies_where_set() -> None:
    """A proxy goes by the profile if that has any routes or overrides."""
    with closing(LinkerdSite(DestinationSettings(routing="policies"))) as site:
        site.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.10",)))
        leg = {"Weight": 50, "Service": "web"}, {"Weight": 50, "Service": "new"}
        timed = {"Match": {"HTTP": {"PathPrefix": "/a"}}, "Destination": {"RequestTimeout": "1s"}}
        site.write(HTTP, {"Kind": "service-splitter", "Name": "web", "Splits": list(leg)}, router(timed))
        profile = site.client().profile(f"{HOST}:80").next()
        assert profile.fully_qualified_name == HOST and profile.HasField("retry_budget")
        assert not profile.routes and not profile.dst_overrides
        timed_route, default = routes(site.client())
        assert timed_route.rules[0].timeouts.request.seconds == 1
        assert backends_of(default) == {OWN: 5000, NEW: 5000}


def test_the_policy_of_a_name_that_leads_nowhere_is_one_that_a_proxy_takes(site: LinkerdSite) -> None:
    """In ingress mode a proxy asks for policies by name."""
    (route,) = site.client().watch(authority="nobody:81").next().protocol.detect.http1.routes
    assert backends_of(route) == {"nobody:81": 1}

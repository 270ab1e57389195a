"""Virtual hosts as profiles: what each part of a route becomes, and what is left out and reported."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from xds.codec import schema
from xds.linkerd.core.omission import cluster_omissions
from xds.linkerd.core.profile import Profile, RequestCondition, RetryBudget, encode_profile
from xds.linkerd.core.route_profile import cluster_budget, host_rules
from xds.linkerd.core.route_terms import ProfileRules, escaped
from xds.linkerd.core.virtual_hosts import NamedHost, find_host
from xds.linkerd.proto import destination_pb2 as pb
from xds.model.resource_type import CLUSTER, VIRTUAL_HOST

Json = dict[str, Any]
DEFAULT: Json = {"match": {"prefix": "/"}, "route": {"cluster": "web"}}


def rules(*routes: Json, **host: Any) -> ProfileRules:
    document = {"name": "h", "domains": ["*"], "routes": [*routes, DEFAULT], **host}
    message = ParseDict(document, schema.require(VIRTUAL_HOST)())
    return host_rules(message, "web:80", lambda name: f"{name}:80" if "|" not in name else "")


def route(match: Json, **action: Any) -> Json:
    return {"match": match, "route": {"cluster": "web", **action}}


@pytest.mark.parametrize(
    ("match", "condition"),
    [
        ({"path": "/a.b"}, RequestCondition(r"/a\.b")),
        ({"prefix": "/a"}, RequestCondition("/a.*")),
        ({"path_separated_prefix": "/a"}, RequestCondition("/a(/.*)?")),
        ({"safe_regex": {"regex": "/a+"}}, RequestCondition("/a+")),
        ({"path": "/a", "case_sensitive": False}, RequestCondition("(?i)/a")),
        (
            {"path": "/a", "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]},
            RequestCondition("/a", ("GET",)),
        ),
        (
            {"path": "/a", "headers": [{"name": ":method", "string_match": {"safe_regex": {"regex": "GET|PUT"}}}]},
            RequestCondition("/a", ("GET", "PUT")),
        ),
        (
            {"path": "/a", "headers": [{"name": ":method", "exact_match": "GET", "invert_match": True}]},
            RequestCondition("/a", ("GET",), inverted=True),
        ),
    ],
)
def test_conditions_of_a_route_are_translated(match: Json, condition: RequestCondition) -> None:
    (found,) = rules(route(match)).routes
    assert found.condition == condition


@pytest.mark.parametrize(
    ("unsayable", "word"),
    [
        (route({"path": "/a", "headers": [{"name": "x", "present_match": True}]}), "headers"),
        (route({"path": "/a", "query_parameters": [{"name": "q", "present_match": True}]}), "query_parameters"),
        (route({"path": "/a", "runtime_fraction": {"default_value": {"numerator": 5}}}), "runtime_fraction"),
        (route({"prefix": "/a", "grpc": {}}), "grpc"),
        (route({"connect_matcher": {}}), "connect_matcher"),
        (route({"safe_regex": {"regex": "(?<x"}}), "regular expression"),
        (route({"safe_regex": {"regex": r"/[[:alpha:]]+"}}), "regular expression"),
        ({"match": {"prefix": "/a"}, "route": {"cluster": "other"}}, "other clusters"),
        ({"match": {"prefix": "/a"}, "route": {"cluster_header": "x"}}, "other clusters"),
        ({"match": {"prefix": "/a"}, "redirect": {"host_redirect": "x"}}, "redirect"),
        ({"match": {"prefix": "/a"}, "direct_response": {"status": 200}}, "direct_response"),
    ],
)
def test_inexpressible_routes_are_skipped_and_reported(unsayable: Json, word: str) -> None:
    found = rules(unsayable)
    assert not found.routes and not found.overrides
    assert any(word in each for each in found.skipped), found.skipped


def test_timeouts_and_retries() -> None:
    retry = {"retry_on": "5xx,retriable-status-codes", "retriable_status_codes": [409, 410], "num_retries": 3}
    found = rules(
        route({"path": "/a"}, timeout="2s", retry_policy=retry),
        route({"path": "/b"}, timeout="0s", max_stream_duration={"max_stream_duration": "9s"}),
        route({"path": "/c"}, max_stream_duration={"max_stream_duration": "9s"}),
        retry_policy={"retry_on": "connect-failure"},
    ).routes
    assert [each.timeout_s for each in found] == [2.0, 0.0, 9.0], "the default route has no effect"
    assert [each.failures for each in found] == [((409, 410), (500, 599)), (), ()]


# Of Envoy's retry policy: what is retried, and the word of the report.
RETRIES: dict[str, tuple[Json, tuple[tuple[int, int], ...], str]] = {
    **{
        name: ({"retry_on": name}, (), name)
        for name in (
            "connect-failure",
            "reset",
            "reset-before-request",
            "refused-stream",
            "http3-post-connect-failure",
            "envoy-ratelimited",
            "retriable-headers",
            "cancelled",
            "deadline-exceeded",
            "internal",
            "resource-exhausted",
            "unavailable",
        )
    },
    "number alone": ({"num_retries": 3}, (), ""),
    "codes without their condition": ({"retry_on": "reset", "retriable_status_codes": [503]}, (), "reset"),
    "no retries": ({"retry_on": "5xx", "num_retries": 0}, (), ""),
    "some requests": (
        {"retry_on": "5xx", "retriable_request_headers": [{"name": "x"}]},
        (),
        "retriable_request_headers",
    ),
    "one of both": ({"retry_on": "connect-failure, gateway-error"}, ((502, 504),), "connect-failure"),
    "gateway errors": ({"retry_on": "gateway-error"}, ((502, 504),), ""),
    "conflicts": ({"retry_on": "retriable-4xx"}, ((409, 409),), ""),
}


@pytest.mark.parametrize("case", RETRIES)
@pytest.mark.parametrize("is_of_host", [False, True])
def test_only_retries_on_statuses_are_expressed(case: str, is_of_host: bool) -> None:
    """A request that may be repeated only before an upstream had it is never repeated on a 500."""
    retry, failures, word = RETRIES[case]
    own = {} if is_of_host else {"retry_policy": retry}
    found = rules(route({"path": "/pay"}, **own), **({"retry_policy": retry} if is_of_host else {}))
    assert found.routes[0].failures == failures
    assert any(word in each for each in found.skipped) if word else not found.skipped


def test_a_server_error_that_is_not_retried_is_no_failure() -> None:
    """A client takes 500 for a failure unless a class says otherwise, and repeats failures."""
    retried = rules(route({"path": "/a"}, retry_policy={"retry_on": "gateway-error"})).routes
    told = pb.DestinationProfile.FromString(encode_profile(Profile(routes=retried))).routes[0]
    classes = [(one.condition.status.min, one.condition.status.max, one.is_failure) for one in told.response_classes]
    assert told.is_retryable and classes == [(502, 504, True), (500, 599, False)]


def test_unsupported_actions_are_reported_and_the_route_is_sent() -> None:
    found = rules(route({"path": "/a"}, prefix_rewrite="/b", hash_policy=[{"header": {"header_name": "x"}}]))
    assert len(found.routes) == 1
    assert {"rewrites", "hash policies"} <= {
        word for each in found.skipped for word in ("rewrites", "hash policies") if word in each
    }


def test_unsupported_settings_of_hosts_legs_and_clusters_are_reported() -> None:
    header = [{"header": {"key": "x", "value": "1"}}]
    legs = [{"name": "web", "weight": 1, "response_headers_to_add": header, "metadata_match": {}}]
    found = rules(
        {
            "match": {"path": "/a"},
            "route": {"cluster": "web", "auto_host_rewrite": True},
            "request_headers_to_add": header,
        },
        {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": legs}}},
        rate_limits=[{"actions": [{"remote_address": {}}]}],
    )
    told = "\n".join(found.skipped)
    for word in (
        "virtual host 'h': rate limits", "route 1: it leads to other clusters", "route 2: changes of headers",
        "route 2: subsets of clusters",
    ):  # fmt: skip
        assert word in told
    document = {
        "name": "web",
        "lb_policy": "RING_HASH",
        "circuit_breakers": {"thresholds": [{"max_requests": 5, "retry_budget": {}}]},
        "outlier_detection": {},
        "transport_socket": {"name": "envoy.transport_sockets.tls"},
    }
    told = "\n".join(cluster_omissions(ParseDict(document, schema.require(CLUSTER)())))
    for word in ("lb_policy", "circuit_breakers", "outlier_detection", "transport_socket"):
        assert word in told
    plain = {"name": "web", "circuit_breakers": {"thresholds": [{"retry_budget": {}}]}}
    assert cluster_omissions(ParseDict(plain, schema.require(CLUSTER)())) == ()


def test_weighted_clusters_of_the_default_route_are_overrides_or_nothing() -> None:
    def split(*clusters: tuple[str, int]) -> ProfileRules:
        legs = [{"name": name, "weight": weight} for name, weight in clusters]
        default = {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": legs}}}
        return host_rules(
            ParseDict({"name": "h", "domains": ["*"], "routes": [default]}, schema.require(VIRTUAL_HOST)()),
            "web:80",
            lambda name: f"{name}:80" if "|" not in name else "",
        )

    assert [(one.authority, one.weight) for one in split(("v1", 90), ("v2", 10), ("v3", 0)).overrides] == [
        ("v1:80", 90),
        ("v2:80", 10),
    ]
    assert split(("web", 100)).overrides == ()
    unnamed = split(("v1", 50), ("out|v2", 50))
    assert unnamed.overrides == () and "out|v2" in unnamed.skipped[0]


def test_a_budget_is_within_what_clients_accept() -> None:
    def budget(percent: float) -> RetryBudget:
        thresholds = [{"retry_budget": {"budget_percent": {"value": percent}}}]
        document = {"name": "web", "circuit_breakers": {"thresholds": thresholds}}
        return cluster_budget(ParseDict(document, schema.require(CLUSTER)()), RetryBudget(0.1, 7, 30))

    assert budget(50) == RetryBudget(0.5, 7, 30)
    assert RetryBudget(5_000, -1, 3_600).clamped() == RetryBudget(1_000, 0, 60)


def test_texts_are_escaped_in_regular_expressions() -> None:
    assert escaped("/a+b?c") == r"/a\+b\?c"


def test_the_best_domain_counts() -> None:
    def named(*domains: str) -> NamedHost:
        return NamedHost("r", ParseDict({"name": domains[0], "domains": list(domains)}, schema.require(VIRTUAL_HOST)()))

    hosts = [named("*"), named("*.shop"), named("*.a.shop"), named("x.*"), named("x.a.shop"), named("x.a.shop:81")]

    def found(name: str, port: int = 80, or_any: bool = True) -> list[str]:
        return [each.host.name for each in find_host(hosts, name, port, or_any=or_any)]

    assert found("x.a.shop", 81) == ["x.a.shop:81"]
    assert found("X.A.SHOP") == ["x.a.shop"]
    assert found("y.a.shop") == ["*.a.shop"]
    assert found("x.example") == ["x.*"]
    assert found("nobody") == ["*"] and found("nobody", or_any=False) == []

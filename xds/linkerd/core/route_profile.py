"""A virtual host as the rules of a profile: its routes in order, and the weighted clusters of its default route.

As for chains, routes to other clusters than the default one cannot be expressed. Omissions are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from xds.linkerd.core.omission import host_omissions, route_omissions
from xds.linkerd.core.profile import (
    ProfileRoute,
    RequestCondition,
    RetryBudget,
    StatusRange,
    WeightedAuthority,
)
from xds.linkerd.core.route_terms import ROUTES_LIMIT, SKIPPED_LIMIT, ProfileRules, path_regex, status_ranges
from xds.linkerd.core.rust_regex import is_readable
from xds.linkerd.core.virtual_hosts import default_route, is_catch_all

# The authority by which a client requests the endpoints of a cluster; empty if no name can express it.
NameCluster = Callable[[str], str]

_PATHS = {"path": "exact", "prefix": "prefix", "path_separated_prefix": "separated_prefix"}
_METHOD = ":method"
_ALTERNATIVES = 16


def host_rules(host: Any, own: str, name: NameCluster) -> ProfileRules:
    """The rules for the clients of a virtual host. ``own`` is the authority that they requested."""
    skipped = [
        f"virtual host {host.name!r:.80}: {word} cannot be expressed in a profile" for word in host_omissions(host)
    ]
    default = default_route(host)
    routes = list(_routes(host, default, skipped))
    overrides = _overrides(default, own, name, skipped) if default is not None else ()
    return ProfileRules(tuple(routes[:ROUTES_LIMIT]), overrides, tuple(skipped[:SKIPPED_LIMIT]))


def default_cluster(host: Any) -> str:
    """The cluster of the default route, or the first of several; empty if there is none."""
    route = default_route(host)
    if route is None:
        return ""
    action = route.route
    if action.WhichOneof("cluster_specifier") == "weighted_clusters":
        return next((one.name for one in action.weighted_clusters.clusters), "")
    return str(action.cluster)


def cluster_budget(cluster: Any, default: RetryBudget) -> RetryBudget:
    """The retry budget of a cluster's circuit breakers, as far as Linkerd supports it, over the default one."""
    for threshold in cluster.circuit_breakers.thresholds:
        if threshold.HasField("retry_budget"):
            budget = threshold.retry_budget
            percent = budget.budget_percent.value if budget.HasField("budget_percent") else 20.0
            return replace(default, ratio=percent / 100).clamped()
    return default


def _routes(host: Any, default: Any, skipped: list[str]) -> Iterator[ProfileRoute]:
    for number, route in enumerate(host.routes, 1):
        problem = _problem(route, default)
        condition = _condition(route.match, skipped, number) if not problem else None
        if problem:
            skipped.append(f"route {number}: {problem}")
        elif condition is not None:
            skipped.extend(
                f"route {number}: {word} cannot be expressed in a profile" for word in route_omissions(route)
            )
            profile_route = _route(host, route, number, condition, skipped)
            if not is_catch_all(route.match) or profile_route.failures or profile_route.timeout_s:
                yield profile_route
        if is_catch_all(route.match):
            return


def _problem(route: Any, default: Any) -> str:
    action = route.WhichOneof("action")
    if action != "route":
        return f"a profile has no {action or 'action'}"
    if default is None:
        return "no route matches every request, so there is no default destination"
    if route is not default and not _is_same_target(route.route, default.route):
        return "it leads to other clusters than the default route, which a profile cannot express"
    return ""


def _is_same_target(one: Any, other: Any) -> bool:
    kind = one.WhichOneof("cluster_specifier")
    if kind != other.WhichOneof("cluster_specifier"):
        return False
    if kind == "cluster":
        return bool(one.cluster == other.cluster)
    return bool(kind == "weighted_clusters" and one.weighted_clusters == other.weighted_clusters)


def _condition(match: Any, skipped: list[str], number: int) -> RequestCondition | None:
    """The condition of a route in the terms of a profile; None, with an omission, if a profile cannot express it."""
    kind = match.WhichOneof("path_specifier")
    methods: tuple[str, ...] = ()
    inverted = False
    if kind not in (*_PATHS, "safe_regex"):
        skipped.append(f"route {number}: {kind or 'no path'} cannot be expressed in a profile")
        return None
    for header in match.headers:
        by_methods = _methods(header)
        if not by_methods or methods:
            skipped.append(f"route {number}: it matches headers, which a profile cannot express")
            return None
        methods, inverted = by_methods, header.invert_match
    for field in ("query_parameters", "dynamic_metadata"):
        if getattr(match, field):
            skipped.append(f"route {number}: {field} cannot be expressed in a profile")
            return None
    for field in ("runtime_fraction", "grpc", "tls_context"):
        if match.HasField(field):
            skipped.append(f"route {number}: {field} cannot be expressed in a profile")
            return None
    regex = _regex(match, kind)
    if regex is None:
        skipped.append(f"route {number}: the proxy may read the regular expression otherwise")
        return None
    return RequestCondition(regex, methods, inverted)


def _regex(match: Any, kind: str) -> str | None:
    ignores_case = match.HasField("case_sensitive") and not match.case_sensitive.value
    if kind != "safe_regex":
        return path_regex(_PATHS[kind], getattr(match, kind), ignores_case)
    text = str(match.safe_regex.regex)
    return path_regex("regex", text, ignores_case) if is_readable(text) else None


def _methods(header: Any) -> tuple[str, ...]:
    """The methods that a match of ``:method`` names; empty for any other match."""
    if header.name != _METHOD:
        return ()
    kind = header.WhichOneof("header_match_specifier")
    if kind == "exact_match":
        return (header.exact_match,)
    if kind == "string_match" and header.string_match.WhichOneof("match_pattern") == "exact":
        return (header.string_match.exact,)
    regex = header.string_match.safe_regex.regex if kind == "string_match" else ""
    regex = regex or (header.safe_regex_match.regex if kind == "safe_regex_match" else "")
    names = tuple(regex.strip("^$").removeprefix("(").removesuffix(")").split("|"))
    return names if all(name.isalpha() for name in names) and len(names) <= _ALTERNATIVES else ()


def _route(host: Any, route: Any, number: int, condition: RequestCondition, skipped: list[str]) -> ProfileRoute:
    action = route.route
    retry = action.retry_policy if action.HasField("retry_policy") else host.retry_policy
    statuses, unsupported = _retried(retry)
    if unsupported:
        skipped.append(f"route {number}: a profile has no retries on {', '.join(unsupported)}")
    return ProfileRoute(route.name or f"{host.name} {number}", condition, _timeout_s(action), statuses)


def _retried(retry: Any) -> tuple[tuple[StatusRange, ...], tuple[str, ...]]:
    """The statuses that are retried, and the conditions that cannot be expressed."""
    if retry.HasField("num_retries") and not retry.num_retries.value:
        return (), ()
    conditions = [each.strip() for each in retry.retry_on.split(",") if each.strip()]
    codes = retry.retriable_status_codes if "retriable-status-codes" in conditions else ()
    statuses, unsupported = status_ranges(conditions, codes)
    if statuses and retry.retriable_request_headers:  # only some of the requests may be repeated
        return (), ("retriable_request_headers", *unsupported)
    return statuses, unsupported


def _timeout_s(action: Any) -> float:
    """The explicit timeout; 0 if it is disabled. Envoy's default of 15 s is left out."""
    if action.HasField("timeout"):
        return float(max(action.timeout.seconds + action.timeout.nanos / 1e9, 0.0))
    limit = action.max_stream_duration.max_stream_duration
    return float(max(limit.seconds + limit.nanos / 1e9, 0.0))


def _overrides(default: Any, own: str, name: NameCluster, skipped: list[str]) -> tuple[WeightedAuthority, ...]:
    action = default.route
    kind = action.WhichOneof("cluster_specifier")
    if kind != "weighted_clusters":
        if kind != "cluster":
            skipped.append(f"default route: {kind} cannot be expressed in a profile")
        return ()
    overrides = []
    for one in action.weighted_clusters.clusters:
        authority = name(one.name)
        if not authority:
            skipped.append(f"weighted clusters: {one.name!r} is not a name that a client can request")
            return ()
        if one.weight.value > 0:
            overrides.append(WeightedAuthority(authority, one.weight.value))
    return () if [each.authority for each in overrides] == [own] else tuple(overrides)

"""service-router: routes for the requests of a service; the first that matches wins. Its rules are VR1 to VR10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.codec.findings import Findings, short_repr
from xds.consul.shape import COUNT, COUNTS, FLAG, SPAN, TEXT, TEXT_MAP, TEXTS, ListOf, Message, Path, TextShape, member
from xds.consul.shared import HeaderModifiers, check_choice, check_tenancy

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE")
RETRY_CONDITIONS = (
    "5xx",
    "gateway-error",
    "reset",
    "connect-failure",
    "envoy-ratelimited",
    "retriable-4xx",
    "refused-stream",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
)
_HEADER_KINDS = ("Present", "Exact", "Prefix", "Suffix", "Regex")
_QUERY_KINDS = ("Present", "Exact", "Regex")


@dataclass(frozen=True, slots=True)
class HeaderMatch:
    """Exactly one of ``present``, ``exact``, ``prefix``, ``suffix``, ``regex`` is set: the condition on the header."""

    name: str = member("Name", TEXT, always=True)
    present: bool = member("Present", FLAG)
    exact: str = member("Exact", TEXT)
    prefix: str = member("Prefix", TEXT)
    suffix: str = member("Suffix", TEXT)
    regex: str = member("Regex", TEXT)
    invert: bool = member("Invert", FLAG)


@dataclass(frozen=True, slots=True)
class QueryParamMatch:
    """Exactly one of ``present``, ``exact``, ``regex`` is set."""

    name: str = member("Name", TEXT, always=True)
    present: bool = member("Present", FLAG)
    exact: str = member("Exact", TEXT)
    regex: str = member("Regex", TEXT)


@dataclass(frozen=True, slots=True)
class HttpMatch:
    """All given conditions must hold; at most one of the three kinds of path is given."""

    path_exact: str = member("PathExact", TEXT)
    path_prefix: str = member("PathPrefix", TEXT)
    path_regex: str = member("PathRegex", TEXT)
    case_insensitive: bool = member("CaseInsensitive", FLAG)
    header: tuple[HeaderMatch, ...] = member("Header", ListOf(Message(HeaderMatch)))
    query_param: tuple[QueryParamMatch, ...] = member("QueryParam", ListOf(Message(QueryParamMatch)))
    methods: tuple[str, ...] = member("Methods", ListOf(TextShape(str.upper)))


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The condition of a route. Without ``http`` it matches every request."""

    http: HttpMatch | None = member("HTTP", Message(HttpMatch))


@dataclass(frozen=True, slots=True)
class RouteDestination:
    """Where matching requests go (empty: the router's own service), and how they are changed."""

    service: str = member("Service", TEXT)
    service_subset: str = member("ServiceSubset", TEXT)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)
    prefix_rewrite: str = member("PrefixRewrite", TEXT)
    request_timeout_ns: int = member("RequestTimeout", SPAN)
    idle_timeout_ns: int = member("IdleTimeout", SPAN)
    num_retries: int = member("NumRetries", COUNT)
    retry_on_connect_failure: bool = member("RetryOnConnectFailure", FLAG)
    retry_on: tuple[str, ...] = member("RetryOn", TEXTS)
    retry_on_status_codes: tuple[int, ...] = member("RetryOnStatusCodes", COUNTS)
    request_headers: HeaderModifiers | None = member("RequestHeaders", Message(HeaderModifiers))
    response_headers: HeaderModifiers | None = member("ResponseHeaders", Message(HeaderModifiers))


@dataclass(frozen=True, slots=True)
class Route:
    """One route. ``match`` and ``destination`` may both be left out."""

    match: RouteMatch | None = member("Match", Message(RouteMatch))
    destination: RouteDestination | None = member("Destination", Message(RouteDestination))


@dataclass(frozen=True, slots=True)
class ServiceRouter:
    """The router of the service with its name."""

    kind: ClassVar[str] = "service-router"

    name: str = member("Name", TEXT, always=True)
    routes: tuple[Route, ...] = member("Routes", ListOf(Message(Route)), always=True)
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)


def check_router(entry: ServiceRouter, findings: Findings) -> None:
    """Check every rule that concerns the entry alone. Services and subsets are looked up when chains are compiled."""
    for index, route in enumerate(entry.routes):
        _check_route(route, index, findings)


def _check_route(route: Route, index: int, findings: Findings) -> None:
    http = route.match.http if route.match is not None else None
    if http is not None:
        path = ("Routes", index, "Match", "HTTP")
        _check_paths(http, index, findings, path)
        for at, header in enumerate(http.header):
            _check_header(header, f"Route[{index}] Header[{at}]", findings, (*path, "Header", at))
        for at, parameter in enumerate(http.query_param):
            _check_parameter(parameter, f"Route[{index}] QueryParam[{at}]", findings, (*path, "QueryParam", at))
        _check_methods(http.methods, index, findings, (*path, "Methods"))
    if route.destination is not None:
        _check_destination(route.destination, http, index, findings)


def _check_paths(http: HttpMatch, index: int, findings: Findings, path: Path) -> None:
    for field, value in (("PathExact", http.path_exact), ("PathPrefix", http.path_prefix)):
        if value and not value.startswith("/"):
            detail = f"Route[{index}] {field} doesn't start with '/': {short_repr(value)}"
            findings.add("bad_path", detail, (*path, field), hint=f'write "/{value[:80]}"')
    if sum(map(bool, (http.path_exact, http.path_prefix, http.path_regex))) > 1:
        detail = f"Route[{index}] should only contain at most one of PathExact, PathPrefix, or PathRegex"
        findings.add("conflict", detail, path)


def _check_header(header: HeaderMatch, label: str, findings: Findings, path: Path) -> None:
    if not header.name:
        findings.add("missing_name", f"{label} missing required Name field", (*path, "Name"))
    given = (header.present, header.exact, header.prefix, header.suffix, header.regex)
    if sum(map(bool, given)) != 1:
        detail = f"{label} should only contain one of Present, Exact, Prefix, Suffix, or Regex"
        findings.add("not_one", detail, path, hint=_which(_HEADER_KINDS, given))


def _check_parameter(parameter: QueryParamMatch, label: str, findings: Findings, path: Path) -> None:
    if not parameter.name:
        findings.add("missing_name", f"{label} missing required Name field", (*path, "Name"))
    given = (parameter.present, parameter.exact, parameter.regex)
    if sum(map(bool, given)) != 1:
        detail = f"{label} should only contain one of Present, Exact, or Regex"
        findings.add("not_one", detail, path, hint=_which(_QUERY_KINDS, given))


def _which(kinds: tuple[str, ...], given: tuple[object, ...]) -> str:
    named = [kind for kind, value in zip(kinds, given, strict=True) if value]
    return f"it has {' and '.join(named)}" if named else "it has none of them"


def _check_methods(methods: tuple[str, ...], index: int, findings: Findings, path: Path) -> None:
    seen = set()
    for at, method in enumerate(methods):
        if method not in METHODS:
            detail = f"Route[{index}] Methods contains an invalid method {short_repr(method)}"
            findings.add("bad_method", detail, (*path, at), hint=f"one of {', '.join(METHODS)}")
        if method in seen:
            detail = f"Route[{index}] Methods contains {short_repr(method)} more than once"
            findings.add("duplicate_method", detail, (*path, at))
        seen.add(method)


def _check_destination(one: RouteDestination, http: HttpMatch | None, index: int, findings: Findings) -> None:
    path = ("Routes", index, "Destination")
    check_tenancy(one.namespace, one.partition, findings, path)
    if one.prefix_rewrite and not (http is not None and (http.path_exact or http.path_prefix)):
        detail = f"Route[{index}] cannot make use of PrefixRewrite without configuring either PathExact or PathPrefix"
        findings.add("rewrite_without_path", detail, (*path, "PrefixRewrite"))
    for at, condition in enumerate(one.retry_on):
        check_choice(condition, RETRY_CONDITIONS, "retry condition", findings, (*path, "RetryOn", at))

"""service-router: routes for the requests of a service. The first route that matches wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.catalog.header_modifiers import HeaderModifiers
from xds.catalog.shape import (
    COUNT,
    COUNTS,
    FLAG,
    SPAN,
    TEXT,
    TEXT_MAP,
    TEXTS,
    ListOf,
    Message,
    TextShape,
    member,
)


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
    """Where matching requests go (empty: the router's own service), and how they are changed on the way."""

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

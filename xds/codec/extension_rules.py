"""Rules on single extensions, measured with Envoy 1.40: scripts, users, and required configuration.

Inline data is checked; data in files is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.filter_rules import is_empty, unknown_config
from xds.codec.inline_data import inline_content, specifier
from xds.codec.rules import MessageRule, Problem, nanoseconds

_HTTP = "envoy.extensions.filters.http"
_NETWORK = "envoy.extensions.filters.network"
_GENERIC_ROUTER = f"{_NETWORK}.generic_proxy.router.v3.Router"
_ROUTE_FUNCTION = "envoy_on_route"
_SHA1 = "{SHA}"
_SHA1_LENGTH = 28  # in base64
_LINES_LIMIT = 10_000
_FILL_MIN_NS = 50_000_000


# Lua


def _check_lua(config: Any) -> list[Problem]:
    """Check a ``Lua`` filter. The syntax of its scripts is not checked: Envoy's validation and NACK tell it."""
    if not (config.inline_code and config.HasField("default_source_code")):
        return []
    detail = "only one of inline_code and default_source_code can be set"
    return [Problem(("inline_code",), "not_allowed", detail, "leave inline_code out")]


def _check_route_script(config: Any) -> list[Problem]:
    """Check the script of a cluster specifier: it must have the function that Envoy calls."""
    text = inline_content(config, "source_code")
    if text is None or _ROUTE_FUNCTION in text:
        return []
    path = ("source_code", specifier(config.source_code))
    detail = f"the script has no function {_ROUTE_FUNCTION}"
    return [Problem(path, "bad_script", detail, f"function {_ROUTE_FUNCTION}(route_handle) return ... end")]


# Users


def _check_users(config: Any) -> list[Problem]:
    """Check a ``BasicAuth``: lines of ``user:{SHA}hash``, each user once."""
    text = inline_content(config, "users")
    fault = "" if text is None else _users_fault(text)
    if not fault:
        return []
    return [Problem(("users", specifier(config.users)), "bad_users", f"users {fault}", "one user:{SHA}hash a line")]


def _check_route_users(config: Any) -> list[Problem]:
    """Check a ``BasicAuthPerRoute``: Envoy accepts an empty text there, which means no users."""
    return _check_users(config) if inline_content(config, "users") else []


def _users_fault(text: str) -> str:
    """What is wrong with the users; empty if nothing is. The text of a line is not shown."""
    if not text:
        return "are not in htpasswd format"
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n", _LINES_LIMIT)[:_LINES_LIMIT], 1):
        if not line or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not (user and colon and password):
            return f"are not in htpasswd format: line {number}"
        if not password.startswith(_SHA1) or len(password) != len(_SHA1) + _SHA1_LENGTH:
            return f"have no {_SHA1} hash of {_SHA1_LENGTH} characters in line {number}"
        if user in seen:
            return f"have a user twice: line {number}"
        seen.add(user)
    return ""


# Required configuration


def _check_cache(config: Any) -> list[Problem]:
    if config.HasField("typed_config") or config.disabled.value:
        return []
    detail = "a cache needs its typed_config, or disabled: true"
    return [Problem(("typed_config",), "missing_field", detail, is_absence=True)]


def _check_zipkin(config: Any) -> list[Problem]:
    if config.HasField("collector_service"):
        return []
    detail = "Zipkin needs a collector: collector_cluster and collector_endpoint, or collector_service"
    return [
        Problem((field,), "missing_field", detail, is_absence=True)
        for field in ("collector_cluster", "collector_endpoint")
        if not getattr(config, field)
    ][:1]


_EXPORTERS = ("grpc_service", "http_service", "exporter")


def _check_open_telemetry(config: Any) -> list[Problem]:
    given = [field for field in _EXPORTERS if config.HasField(field)]
    if len(given) > 1:
        return [Problem((given[1],), "not_allowed", f"only one of {', '.join(_EXPORTERS)} can be set")]
    if given:
        return []
    detail = f"OpenTelemetry needs one of {', '.join(_EXPORTERS)}"
    return [Problem((_EXPORTERS[0],), "missing_field", detail, is_absence=True)]


def _check_extension(one: Any) -> list[Problem]:
    """Check a ``TypedExtensionConfig`` where Envoy finds the extension by type alone."""
    return [unknown_config(one)] if is_empty(one) else []


def _check_extensions(listed: Any) -> list[Problem]:
    return [
        problem._replace(path=(index, *problem.path))
        for index, one in enumerate(listed)
        for problem in _check_extension(one)
    ]


def _check_filter_action(action: Any) -> list[Problem]:
    """Check an ``ExecuteFilterAction`` of the composite filter."""
    if any(field.name != "sample_percent" for field, _ in action.ListFields()):
        return []
    detail = "an action needs the filter that it executes"
    return [Problem(("typed_config",), "missing_field", detail, is_absence=True)]


def _check_redis(config: Any) -> list[Problem]:
    """Check a ``RedisProxy``: it has a route, and no prefix has two."""
    routes = config.prefix_routes
    if not routes.routes and not routes.HasField("catch_all_route"):
        detail = "a Redis proxy needs a route or a catch_all_route"
        return [Problem(("prefix_routes",), "missing_field", detail, is_absence=True)]
    return [*_repeated_prefixes(routes)]


def _repeated_prefixes(routes: Any) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, route in enumerate(routes.routes):
        prefix = route.prefix.lower() if routes.case_insensitive else route.prefix
        if prefix in seen:
            detail = f"an earlier route has the prefix {route.prefix[:80]!r}"
            yield Problem(("prefix_routes", "routes", index, "prefix"), "duplicate_item", detail)
        seen.add(prefix)


def _check_generic_proxy(config: Any) -> list[Problem]:
    """Check a ``GenericProxy``: the router is the last of its filters."""
    filters = list(config.filters)
    if not filters:
        detail = "a generic proxy needs a terminal filter: envoy.filters.generic.router"
        return [Problem(("filters",), "missing_field", detail, is_absence=True)]
    detail = "the router of a generic proxy must be the last of its filters"
    return [
        Problem(("filters", index), "filter_order", detail, "move it to the end, once")
        for index, one in enumerate(filters[:-1])
        if one.typed_config.type_url.rpartition("/")[2] == _GENERIC_ROUTER
    ]


EXTENSION_RULES: Mapping[str, MessageRule] = {
    f"{_HTTP}.basic_auth.v3.BasicAuth": _check_users,
    f"{_HTTP}.basic_auth.v3.BasicAuthPerRoute": _check_route_users,
    f"{_HTTP}.cache.v3.CacheConfig": _check_cache,
    f"{_HTTP}.cache_v2.v3.CacheV2Config": _check_cache,
    f"{_HTTP}.lua.v3.Lua": _check_lua,
    f"{_NETWORK}.generic_proxy.v3.GenericProxy": _check_generic_proxy,
    f"{_NETWORK}.redis_proxy.v3.RedisProxy": _check_redis,
    f"{_HTTP}.composite.v3.ExecuteFilterAction": _check_filter_action,
    "envoy.config.trace.v3.OpenTelemetryConfig": _check_open_telemetry,
    "envoy.config.trace.v3.ZipkinConfig": _check_zipkin,
    "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig": _check_route_script,
}


def _check_bucket(bucket: Any) -> list[Problem]:
    """Check the ``token_bucket`` of a local rate limit."""
    if nanoseconds(bucket.fill_interval) >= _FILL_MIN_NS:
        return []
    return [Problem(("fill_interval",), "out_of_range", "fill_interval must be at least 50 ms", "0.05s")]


EXTENSION_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    f"{_HTTP}.composite.v3.ExecuteFilterAction": {"typed_config": _check_extension},
    f"{_HTTP}.local_ratelimit.v3.LocalRateLimit": {"token_bucket": _check_bucket},
    f"{_NETWORK}.local_ratelimit.v3.LocalRateLimit": {"token_bucket": _check_bucket},
    f"{_NETWORK}.generic_proxy.v3.GenericProxy": {"codec_config": _check_extension},
    f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager": dict.fromkeys(
        ("early_header_mutation_extensions", "original_ip_detection_extensions"), _check_extensions
    ),
    "envoy.config.route.v3.RouteMatch": {"path_match_policy": _check_extension},
    "xds.type.matcher.v3.Matcher.OnMatch": {"action": _check_extension},
}

"""Rules on single extensions, measured with Envoy 1.40: scripts, users, required configuration, metadata, JWT.

Inline data is checked; data in files is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.filter_rules import is_empty, unknown_config
from xds.codec.findings import FieldPath
from xds.codec.inline_data import inline_content, specifier
from xds.codec.rules import MessageRule, Problem, missing, nanoseconds

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
    return [missing(("typed_config",), "a cache needs its typed_config, or disabled: true")]


def _check_zipkin(config: Any) -> list[Problem]:
    if config.HasField("collector_service"):
        return []
    detail = "Zipkin needs a collector: collector_cluster and collector_endpoint, or collector_service"
    return [
        missing((field,), detail) for field in ("collector_cluster", "collector_endpoint") if not getattr(config, field)
    ][:1]


_EXPORTERS = ("grpc_service", "http_service", "exporter")


def _check_open_telemetry(config: Any) -> list[Problem]:
    given = [field for field in _EXPORTERS if config.HasField(field)]
    if len(given) > 1:
        return [Problem((given[1],), "not_allowed", f"only one of {', '.join(_EXPORTERS)} can be set")]
    if given:
        return []
    return [missing((_EXPORTERS[0],), f"OpenTelemetry needs one of {', '.join(_EXPORTERS)}")]


def _check_extension(one: Any) -> list[Problem]:
    """Check a ``TypedExtensionConfig`` where Envoy finds the extension by type alone."""
    return [unknown_config(one)] if is_empty(one) else []


def _check_extensions(listed: Any) -> list[Problem]:
    return [problem.below(index) for index, one in enumerate(listed) for problem in _check_extension(one)]


def _check_filter_action(action: Any) -> list[Problem]:
    """Check an ``ExecuteFilterAction`` of the composite filter."""
    if any(field.name != "sample_percent" for field, _ in action.ListFields()):
        return []
    return [missing(("typed_config",), "an action needs the filter that it executes")]


def _check_redis(config: Any) -> list[Problem]:
    """Check a ``RedisProxy``: it has a route, and no prefix has two."""
    routes = config.prefix_routes
    if not routes.routes and not routes.HasField("catch_all_route"):
        return [missing(("prefix_routes",), "a Redis proxy needs a route or a catch_all_route")]
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
        return [missing(("filters",), "a generic proxy needs a terminal filter: envoy.filters.generic.router")]
    detail = "the router of a generic proxy must be the last of its filters"
    return [
        Problem(("filters", index), "filter_order", detail, "move it to the end, once")
        for index, one in enumerate(filters[:-1])
        if one.typed_config.type_url.rpartition("/")[2] == _GENERIC_ROUTER
    ]


# Filters that write metadata from headers, JSON and Thrift


_THRIFT = "envoy.extensions.filters.network.thrift_proxy.filters"


def _check_header_rule(rule: Any) -> list[Problem]:
    """Check a ``Config.Rule``: the source of the metadata, and what is written."""
    if bool(rule.header) == bool(rule.cookie):
        code, words = ("not_allowed", "only") if rule.header else ("missing_field", "exactly")
        detail = f"a rule has {words} one of header and cookie"
        return [Problem(("header",), code, detail, is_absence=not rule.header)]
    if not rule.HasField("on_header_present") and not rule.HasField("on_header_missing"):
        return [missing(("on_header_present",), "a rule needs one of on_header_present and on_header_missing")]
    return [*_metadata_values(rule)]


def _metadata_values(rule: Any) -> Iterator[Problem]:
    present = rule.on_header_present
    if present.value and present.HasField("regex_value_rewrite"):
        detail = "only one of value and regex_value_rewrite can be set"
        yield Problem(("on_header_present", "value"), "not_allowed", detail)
    if rule.HasField("on_header_missing") and not rule.on_header_missing.value:
        yield missing(("on_header_missing", "value"), "a header that is missing needs a value in its place")
    if rule.cookie and rule.remove:
        yield Problem(("remove",), "not_allowed", "a cookie cannot be removed")


def _check_content_rule(rule: Any) -> list[Problem]:
    """Check a rule that says what to write if a value is present, and if it is missing."""
    if not rule.HasField("on_present") and not rule.HasField("on_missing"):
        return [missing(("on_present",), "a rule needs one of on_present and on_missing")]
    return [*_empty_values(rule)]


def _empty_values(rule: Any) -> Iterator[Problem]:
    """Check that the rule has the value to write if the source has none."""
    for field in ("on_missing", "on_error"):
        if field in rule.DESCRIPTOR.fields_by_name and rule.HasField(field) and not _has_value(getattr(rule, field)):
            yield missing((field, "value"), f"{field} needs the value that it writes")


def _has_value(pair: Any) -> bool:
    """The value is a ``google.protobuf.Value``, which may be empty, or a string, which may not."""
    kind = pair.DESCRIPTOR.fields_by_name["value"].message_type
    return bool(pair.value) if kind is None else bool(pair.HasField("value"))


def _check_thrift_filter(config: Any) -> list[Problem]:
    if config.request_rules or config.response_rules:
        return []
    return [missing(("request_rules",), "the filter needs one of request_rules and response_rules")]


# JWT: key sets, and the providers and requirements that the filter names


_JWT = "envoy.extensions.filters.http.jwt_authn.v3"
_SHOWN = 80


def _check_provider(provider: Any) -> list[Problem]:
    """Check a ``JwtProvider``: an inline key set is JSON with at least one key. Envoy ignores an empty text."""
    text = inline_content(provider, "local_jwks")
    fault = _key_set_fault(text) if text else ""
    if not fault:
        return []
    path = ("local_jwks", specifier(provider.local_jwks))
    return [Problem(path, "bad_jwks", f"local_jwks {fault}", '{"keys": [...]}')]


def _key_set_fault(text: str) -> str:
    """What is wrong with a key set; empty if nothing is.

    Envoy's JSON parser accepts line ends within strings, single quotes and bare keys. So a text that Python cannot
    parse passes if it begins like JSON or PEM.
    """
    try:
        keys = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return "" if text.lstrip().startswith(("{", "-----BEGIN")) else "is not a JSON Web Key Set"
    if not isinstance(keys, dict):
        return "is not a JSON Web Key Set"
    if "keys" not in keys and any(_is_certificate(one) for one in keys.values()):
        return ""
    listed = keys.get("keys")
    if not isinstance(listed, list):
        return "has no list 'keys'"
    if not any(isinstance(key, dict) and key.get("kty") for key in listed):
        return "has no key with its type ('kty')"
    return ""


def _is_certificate(value: object) -> bool:
    """A key set may hold certificates by the ids of their keys."""
    return isinstance(value, str) and "-----BEGIN CERTIFICATE-----" in value


def _check_authentication(config: Any) -> list[Problem]:
    """Check a ``JwtAuthentication``: requirements name known providers, and rules known requirements."""
    problems: list[Problem] = []
    for index, rule in enumerate(config.rules):
        if rule.WhichOneof("requirement_type") == "requires":
            problems += _unknown_providers(rule.requires, config.providers, ("rules", index, "requires"))
        elif rule.requirement_name and rule.requirement_name not in config.requirement_map:
            path = ("rules", index, "requirement_name")
            problems.append(_unknown(path, "requirement", rule.requirement_name, config.requirement_map))
    for name, requirement in config.requirement_map.items():
        problems += _unknown_providers(requirement, config.providers, ("requirement_map", name))
    for key, requirement in config.filter_state_rules.requires.items():
        problems += _unknown_providers(requirement, config.providers, ("filter_state_rules", "requires", key))
    return problems


def _unknown_providers(requirement: Any, known: Mapping[str, object], path: FieldPath) -> Iterator[Problem]:
    """Problems for unknown providers in a ``JwtRequirement``, which may be a tree."""
    match requirement.WhichOneof("requires_type"):
        case "provider_name":
            yield from _named(requirement, known, path)
        case "provider_and_audiences":
            yield from _named(requirement.provider_and_audiences, known, (*path, "provider_and_audiences"))
        case "requires_any" | "requires_all" as field:
            for index, one in enumerate(getattr(requirement, field).requirements):
                yield from _unknown_providers(one, known, (*path, field, "requirements", index))


def _named(holder: Any, known: Mapping[str, object], path: FieldPath) -> Iterator[Problem]:
    if holder.provider_name not in known:
        yield _unknown((*path, "provider_name"), "provider", holder.provider_name, known)


def _unknown(path: FieldPath, noun: str, name: str, known: Mapping[str, object]) -> Problem:
    names = ", ".join(sorted(known))[:_SHOWN]
    hint = f"one of {names}" if names else f"there are no {noun}s"
    return Problem(path, "unknown_name", f"the filter has no {noun} {name[:_SHOWN]!r}", hint)


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
    f"{_HTTP}.header_to_metadata.v3.Config.Rule": _check_header_rule,
    f"{_HTTP}.json_to_metadata.v3.JsonToMetadata.Rule": _check_content_rule,
    f"{_HTTP}.thrift_to_metadata.v3.Rule": _check_content_rule,
    f"{_HTTP}.thrift_to_metadata.v3.ThriftToMetadata": _check_thrift_filter,
    f"{_THRIFT}.header_to_metadata.v3.HeaderToMetadata.Rule": _check_content_rule,
    f"{_THRIFT}.payload_to_metadata.v3.PayloadToMetadata.Rule": _check_content_rule,
    f"{_JWT}.JwtAuthentication": _check_authentication,
    f"{_JWT}.JwtProvider": _check_provider,
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

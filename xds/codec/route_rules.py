"""Rules on routes and on format strings, such as those of headers and access logs, measured with Envoy 1.40."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.findings import FieldPath
from xds.codec.rules import MessageRule, Problem, nanoseconds

_ROUTE = "envoy.config.route.v3"
_LOGGERS = "envoy.extensions.access_loggers"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_CONNECT = ("connect", "connect-udp")
_BODY_LIMIT_BYTES = 4096  # Envoy's default of max_direct_response_body_size_bytes
FORMAT_CODE = "bad_format"
_FORMAT_HINT = "a command is %NAME%, %NAME(argument)% or %NAME(argument):LENGTH%; a percent sign is %%"
_COMMAND = re.compile(r"%%|%[A-Z0-9_]+(?:\(.*?\))?(?::[0-9]+)?%")
_NOTHING: list[Problem] = []
_WEIGHTS_MAX = 2**32 - 1
_PATH_REWRITES = ("prefix_rewrite", "regex_rewrite", "path_rewrite_policy")


# Routes


def _check_weights(weighted: Any) -> list[Problem]:
    """Check a route's ``WeightedCluster``. Envoy adds the weights up in 32 bits."""
    if sum(one.weight.value for one in weighted.clusters) > _WEIGHTS_MAX:
        return [Problem(("clusters",), "out_of_range", f"the sum of the weights must be at most {_WEIGHTS_MAX}")]
    if any(one.weight.value for one in weighted.clusters) or not weighted.clusters:
        return []
    return [Problem(("clusters",), "out_of_range", "the sum of the weights must be above zero", is_absence=True)]


def _check_weighted_cluster(one: Any) -> list[Problem]:
    """Check one cluster of a ``WeightedCluster``."""
    if not (one.name and one.cluster_header):
        return _NOTHING
    return [Problem(("cluster_header",), "not_allowed", "only one of name and cluster_header can be set")]


def _check_rewrites(action: Any) -> list[Problem]:
    """Check a ``RouteAction``: it rewrites the path in one way only."""
    given = [name for name in _PATH_REWRITES if _is_set(action, name)]
    detail = f"only one of {', '.join(_PATH_REWRITES)} can be set"
    return [Problem((name,), "not_allowed", detail) for name in given[1:2]]


def _is_set(message: Any, name: str) -> bool:
    return any(field.name == name for field, _ in message.ListFields())


def _check_added_headers(options: Any) -> list[Problem]:
    """Check the ``*_headers_to_add`` of a route, and of what contains it."""
    return [
        Problem((index, "header", "key"), "not_allowed", _fixed_header_detail(option.header.key))
        for index, option in enumerate(options)
        if _is_fixed(option.header.key)
    ]


def _check_removed_headers(names: Any) -> list[Problem]:
    """Check the ``*_headers_to_remove`` of a route, and of what contains it."""
    return [
        Problem((index,), "not_allowed", _fixed_header_detail(name))
        for index, name in enumerate(names)
        if _is_fixed(name)
    ]


def _is_fixed(header: str) -> bool:
    return header.startswith(":") or header.lower() == "host"


def _fixed_header_detail(header: str) -> str:
    return f"Envoy neither sets nor removes {header[:80]!r} here: rewrites of host and path are fields of the route"


def _check_back_off(one: Any) -> list[Problem]:
    if not one.HasField("max_interval") or nanoseconds(one.max_interval) >= nanoseconds(one.base_interval):
        return []
    return [Problem(("max_interval",), "out_of_range", "max_interval must be at least base_interval")]


def _check_mirror(policy: Any) -> list[Problem]:
    """Check a ``RequestMirrorPolicy``: it has one of two fields."""
    if bool(policy.cluster) != bool(policy.cluster_header):
        return []
    if policy.cluster:
        return [Problem(("cluster_header",), "not_allowed", "only one of cluster and cluster_header can be set")]
    detail = "a mirror policy needs one of cluster and cluster_header"
    return [Problem(("cluster",), "missing_field", detail, is_absence=True)]


def _check_upgrades(upgrades: Any) -> list[Problem]:
    """Check the upgrades of a connection manager or route: a type occurs once in any case; only CONNECT has options."""
    found = []
    seen: set[str] = set()
    for index, one in enumerate(upgrades):
        kind = one.upgrade_type.lower()
        if kind in seen:
            detail = f"an earlier entry has the upgrade type {one.upgrade_type[:80]!r}"
            found.append(Problem((index, "upgrade_type"), "duplicate_item", detail))
        seen.add(kind)
        if (
            kind not in _CONNECT
            and "connect_config" in one.DESCRIPTOR.fields_by_name
            and one.HasField("connect_config")
        ):
            detail = f"connect_config is for upgrades of type CONNECT and CONNECT-UDP; not {one.upgrade_type[:80]!r}"
            found.append(Problem((index, "connect_config"), "not_allowed", detail))
    return found


def _check_per_filter(configs: Any) -> list[Problem]:
    """Check the ``typed_per_filter_config`` of a route, and of what contains it: Envoy finds each by its type."""
    return [
        Problem((name,), "missing_config", f"{name[:80]!r} has no configuration", 'write {"@type": ...}')
        for name, config in configs.items()
        if not config.type_url
    ]


def _check_filter_config(config: Any) -> list[Problem]:
    """Check a ``FilterConfig``, which has the configuration of a filter, or disables the filter."""
    if config.HasField("config") or config.disabled or config.is_optional:
        return _NOTHING
    detail = "a filter needs its configuration here, or disabled: true"
    return [Problem(("config",), "missing_config", detail, is_absence=True)]


def _check_rds(rds: Any) -> list[Problem]:
    """Check an ``Rds``: it needs a config source, unless the name is an ``xdstp`` name."""
    if rds.HasField("config_source") or rds.route_config_name.startswith("xdstp:"):
        return _NOTHING
    detail = "rds needs the config_source of its routes"
    hint = "config_source: {ads: {}, resource_api_version: V3}"
    return [Problem(("config_source",), "missing_field", detail, hint, is_absence=True)]


def _check_bodies(routes: Any) -> list[Problem]:
    """Check the inline bodies of direct responses in a ``RouteConfiguration``: Envoy keeps them in memory."""
    limit_bytes = _BODY_LIMIT_BYTES
    if routes.HasField("max_direct_response_body_size_bytes"):
        limit_bytes = routes.max_direct_response_body_size_bytes.value
    if not limit_bytes or routes.ByteSize() <= limit_bytes:  # Envoy takes a limit of zero as none
        return _NOTHING
    return list(_long_bodies(routes, limit_bytes))


def _long_bodies(routes: Any, limit_bytes: int) -> Iterator[Problem]:
    for place, host in enumerate(routes.virtual_hosts):
        for index, route in enumerate(host.routes):
            if not route.HasField("direct_response"):
                continue
            body = route.direct_response.body
            size_bytes = len(body.inline_bytes) or len(body.inline_string.encode())
            if size_bytes > limit_bytes:
                path = ("virtual_hosts", place, "routes", index, "direct_response", "body")
                detail = f"the body has {size_bytes} bytes, and the limit is {limit_bytes}"
                hint = "max_direct_response_body_size_bytes of the route configuration raises it"
                yield Problem((*path, str(body.WhichOneof("specifier"))), "too_long", detail, hint)


# Format strings


def _fault(text: str) -> str:
    """What is wrong with a format string; empty if every percent sign begins a command.

    The names of commands are not checked: extensions add more.
    """
    at = text.find("%")
    while at >= 0:
        command = _COMMAND.match(text, at)
        if command is None:
            return f"has no command after the percent sign at {at}: {text[at : at + 40]!r}"
        at = text.find("%", command.end())
    return ""


def _format(text: str, path: FieldPath) -> list[Problem]:
    fault = _fault(text) if "%" in text else ""
    return [Problem(path, FORMAT_CODE, f"{path[-1]} {fault}", _FORMAT_HINT)] if fault else _NOTHING


def _check_header(option: Any) -> list[Problem]:
    """Check a ``HeaderValueOption``; the headers of gRPC calls are not format strings."""
    return _format(option.header.value, ("header", "value"))


def _check_headers(headers: Any) -> list[Problem]:
    """Check a list of ``HeaderValue`` of an HTTP call."""
    return [one for index, header in enumerate(headers) for one in _format(header.value, (index, "value"))]


def _check_parameters(mutations: Any) -> list[Problem]:
    """Check the ``query_parameter_mutations`` of a filter."""
    return [
        problem
        for index, one in enumerate(mutations)
        for problem in _value(one.append.record.value, (index, "append", "record", "value"))
    ]


def _check_substitution(form: Any) -> list[Problem]:
    """Check a ``SubstitutionFormatString``."""
    match form.WhichOneof("format"):
        case "text_format":
            return _format(form.text_format, ("text_format",))
        case "text_format_source":
            return _format(form.text_format_source.inline_string, ("text_format_source", "inline_string"))
        case "json_format":
            return [*_of_struct(form.json_format.fields, ("json_format",))]
    return []


def _check_record(record: Any) -> list[Problem]:
    """Check a ``Struct`` of format strings."""
    return [*_of_struct(record.fields, ())]


def _of_struct(fields: Any, path: FieldPath) -> Iterator[Problem]:
    for key, value in fields.items():
        yield from _value(value, (*path, key))


def _value(value: Any, path: FieldPath) -> Iterator[Problem]:
    match value.WhichOneof("kind"):
        case "string_value":
            yield from _format(value.string_value, path)
        case "struct_value":
            yield from _of_struct(value.struct_value.fields, path)
        case "list_value":
            for index, one in enumerate(value.list_value.values):
                yield from _value(one, (*path, index))


def _check_log_value(value: Any) -> list[Problem]:
    """Check an ``AnyValue`` of OpenTelemetry."""
    return [*_of_log_value(value, ())]


def _check_log_list(listed: Any) -> list[Problem]:
    """Check a ``KeyValueList`` of OpenTelemetry."""
    return [*_of_log_list(listed, ())]


def _of_log_value(value: Any, path: FieldPath) -> Iterator[Problem]:
    match value.WhichOneof("value"):
        case "string_value":
            yield from _format(value.string_value, (*path, "string_value"))
        case "kvlist_value":
            yield from _of_log_list(value.kvlist_value, (*path, "kvlist_value"))
        case "array_value":
            for index, one in enumerate(value.array_value.values):
                yield from _of_log_value(one, (*path, "array_value", "values", index))


def _of_log_list(listed: Any, path: FieldPath) -> Iterator[Problem]:
    for index, one in enumerate(listed.values):
        yield from _of_log_value(one.value, (*path, "values", index, "value"))


def _texts(*fields: str) -> MessageRule:
    """The rule for a message whose fields ``fields`` are format strings."""
    return lambda message: [one for field in fields for one in _format(getattr(message, field), (field,))]


def _string(name: str) -> MessageRule:
    """The rule for a field that is a format string."""
    return lambda text: [one._replace(path=()) for one in _format(text, (name,))]


_HEADER_CHANGES: Mapping[str, MessageRule] = {
    f"{side}_headers_to_{change}": rule
    for side in ("request", "response")
    for change, rule in (("add", _check_added_headers), ("remove", _check_removed_headers))
}
_UPGRADE_CONFIGS: Mapping[str, MessageRule] = {"upgrade_configs": _check_upgrades}
ROUTE_RULES: Mapping[str, MessageRule] = {
    f"{_ROUTE}.FilterConfig": _check_filter_config,
    f"{_ROUTE}.RouteAction.RequestMirrorPolicy": _check_mirror,
    f"{_ROUTE}.RouteAction": _check_rewrites,
    f"{_ROUTE}.RouteConfiguration": _check_bodies,
    f"{_ROUTE}.WeightedCluster": _check_weights,
    f"{_ROUTE}.WeightedCluster.ClusterWeight": _check_weighted_cluster,
    f"{_ROUTE}.RetryPolicy.RetryBackOff": _check_back_off,
    "envoy.config.core.v3.HeaderValueOption": _check_header,
    "envoy.config.core.v3.SubstitutionFormatString": _check_substitution,
    f"{_ROUTE}.RedirectAction": _texts("path_rewrite"),
    f"{_ROUTE}.Tracing": _texts("operation", "upstream_operation"),
    f"{_LOGGERS}.file.v3.FileAccessLog": _texts("format"),
    f"{_LOGGERS}.stats.v3.Config.Tag": _texts("value_format"),
    "envoy.extensions.filters.http.oauth2.v3.OAuth2Config": _texts("redirect_uri"),
    f"{_MANAGER}.Tracing": _texts("operation", "upstream_operation"),
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig": _texts("proxy_host", "target_host"),
    "envoy.extensions.filters.network.http_connection_manager.v3.Rds": _check_rds,
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig": _texts("hostname"),
}
ROUTE_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    f"{_ROUTE}.RouteAction": {
        **_UPGRADE_CONFIGS,
        **{name: _string(name) for name in ("host_rewrite", "path_rewrite")},
    },
    **{
        f"{_ROUTE}.{holder}": {"typed_per_filter_config": _check_per_filter, **_HEADER_CHANGES}
        for holder in ("Route", "RouteConfiguration", "VirtualHost", "WeightedCluster.ClusterWeight")
    },
    _MANAGER: _UPGRADE_CONFIGS,
    "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest": {"headers_to_add": _check_headers},
    f"{_LOGGERS}.file.v3.FileAccessLog": {"json_format": _check_record, "typed_json_format": _check_record},
    f"{_LOGGERS}.fluentd.v3.FluentdAccessLogConfig": {"record": _check_record},
    f"{_LOGGERS}.open_telemetry.v3.OpenTelemetryAccessLogConfig": {
        "body": _check_log_value,
        "attributes": _check_log_list,
    },
    "envoy.extensions.filters.http.header_mutation.v3.Mutations": {"query_parameter_mutations": _check_parameters},
    "envoy.type.tracing.v3.CustomTag": {"value": _string("value")},
}
# Fields with headers that Envoy sends unchanged, although headers of these types are format strings elsewhere.
LITERAL_FIELDS: Mapping[str, str] = {
    "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig": (
        "request_headers_to_add_when_not_enforced"
    ),
    "envoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfig": "http_service",
}

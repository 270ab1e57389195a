"""Rules on format strings, such as those of headers and access logs, measured with Envoy 1.40.

A fault of syntax has the code ``bad_format``. An unknown command, or one with wrong parameters, has ``bad_command``:
extensions that are configured beside the format string (``formatters``) add commands, and some filters have commands
of their own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from xds.codec.findings import FieldPath
from xds.codec.format_commands import command_fault
from xds.codec.rules import MessageRule, Problem

_ROUTE = "envoy.config.route.v3"
_LOGGERS = "envoy.extensions.access_loggers"
_FORMATTERS = "envoy.extensions.formatter"
_NETWORK = "envoy.extensions.filters.network"
_MUTATIONS = "envoy.extensions.filters.http.header_mutation.v3.Mutations"
_TCP_TUNNEL = f"{_NETWORK}.tcp_proxy.v3.TcpProxy.TunnelingConfig"
_UDP_TUNNEL = "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.UdpTunnelingConfig"
FORMAT_CODE = "bad_format"
COMMAND_CODE = "bad_command"
_FORMAT_HINT = "a command is %NAME%, %NAME(argument)% or %NAME(argument):LENGTH%; a percent sign is %%"
_NOTHING: list[Problem] = []


class _Everything(Container[str]):
    """The commands of an extension that may add any."""

    def __contains__(self, name: object) -> bool:
        return True


_ANY_COMMAND = _Everything()
# Commands that an extension adds to those that every format string has.
_ADDED: Mapping[str, frozenset[str]] = {
    f"{_FORMATTERS}.cel.v3.Cel": frozenset(("CEL", "TYPED_CEL")),
    f"{_FORMATTERS}.metadata.v3.Metadata": frozenset(("METADATA",)),
    f"{_FORMATTERS}.req_without_query.v3.ReqWithoutQuery": frozenset(("REQ_WITHOUT_QUERY",)),
}


def _commands(formatters: Iterable[Any]) -> Container[str]:
    """The commands that ``formatters`` add; any if one of them is not known."""
    added: set[str] = set()
    for one in formatters:
        own = _ADDED.get(one.typed_config.type_url.rpartition("/")[2])
        if own is None:
            return _ANY_COMMAND
        added |= own
    return added


def _format(text: str, path: FieldPath, added: Container[str] = ()) -> list[Problem]:
    fault = command_fault(text, added) if "%" in text else None
    if fault is None:
        return _NOTHING
    code = COMMAND_CODE if fault.is_of_command else FORMAT_CODE
    return [Problem(path, code, f"{path[-1]} {fault.detail}", "" if fault.is_of_command else _FORMAT_HINT)]


def _check_header(option: Any) -> list[Problem]:
    """Check a ``HeaderValueOption``; the headers of gRPC calls are not format strings."""
    return _format(option.header.value, ("header", "value"))


def _check_headers(headers: Any) -> list[Problem]:
    """Check a list of ``HeaderValue`` of an HTTP call."""
    return [one for index, header in enumerate(headers) for one in _format(header.value, (index, "value"))]


def _with_formatters(headers: str, *texts: str) -> MessageRule:
    """The rule for a message with ``formatters``: the field ``headers`` has headers to add, ``texts`` are formats."""

    def rule(message: Any) -> list[Problem]:
        added = _commands(message.formatters)
        problems = [one for field in texts for one in _format(getattr(message, field), (field,), added)]
        for index, option in enumerate(getattr(message, headers)):
            problems += _format(option.header.value, (headers, index, "header", "value"), added)
        return problems

    return rule


_LISTS_OF_MUTATIONS = tuple(f"{side}_{what}mutations" for side in ("request", "response") for what in ("", "trailers_"))


def _check_mutations(mutations: Any) -> list[Problem]:
    """Check the ``Mutations`` of a filter: headers, and parameters of the query."""
    added = _commands(mutations.formatters)
    problems = []
    for name in _LISTS_OF_MUTATIONS:
        for index, one in enumerate(getattr(mutations, name)):
            path = (name, index, "append", "header", "value")
            problems += _format(one.append.header.value, path, added)
    for index, one in enumerate(mutations.query_parameter_mutations):
        path = ("query_parameter_mutations", index, "append", "record", "value")
        problems += _value(one.append.record.value, path, added)
    return problems


def _check_substitution(form: Any) -> list[Problem]:
    """Check a ``SubstitutionFormatString``."""
    added = _commands(form.formatters)
    match form.WhichOneof("format"):
        case "text_format":
            return _format(form.text_format, ("text_format",), added)
        case "text_format_source":
            return _format(form.text_format_source.inline_string, ("text_format_source", "inline_string"), added)
        case "json_format":
            return [*_of_struct(form.json_format.fields, ("json_format",), added)]
    return []


def _check_record(record: Any) -> list[Problem]:
    """Check a ``Struct`` of format strings."""
    return [*_of_struct(record.fields, ())]


def _of_struct(fields: Any, path: FieldPath, added: Container[str] = ()) -> Iterator[Problem]:
    for key, value in fields.items():
        yield from _value(value, (*path, key), added)


def _value(value: Any, path: FieldPath, added: Container[str]) -> Iterator[Problem]:
    match value.WhichOneof("kind"):
        case "string_value":
            yield from _format(value.string_value, path, added)
        case "struct_value":
            yield from _of_struct(value.struct_value.fields, path, added)
        case "list_value":
            for index, one in enumerate(value.list_value.values):
                yield from _value(one, (*path, index), added)


def _check_fluentd(config: Any) -> list[Problem]:
    """Check the record of a ``FluentdAccessLogConfig``."""
    return [*_of_struct(config.record.fields, ("record",), _commands(config.formatters))]


def _check_open_telemetry(config: Any) -> list[Problem]:
    """Check the ``AnyValue`` and the ``KeyValueList`` of an ``OpenTelemetryAccessLogConfig``."""
    added = _commands(config.formatters)
    return [
        *_of_log_value(config.body, ("body",), added),
        *_of_log_list(config.attributes, ("attributes",), added),
    ]


def _of_log_value(value: Any, path: FieldPath, added: Container[str]) -> Iterator[Problem]:
    match value.WhichOneof("value"):
        case "string_value":
            yield from _format(value.string_value, (*path, "string_value"), added)
        case "kvlist_value":
            yield from _of_log_list(value.kvlist_value, (*path, "kvlist_value"), added)
        case "array_value":
            for index, one in enumerate(value.array_value.values):
                yield from _of_log_value(one, (*path, "array_value", "values", index), added)


def _of_log_list(listed: Any, path: FieldPath, added: Container[str]) -> Iterator[Problem]:
    for index, one in enumerate(listed.values):
        yield from _of_log_value(one.value, (*path, "values", index, "value"), added)


def _texts(*fields: str) -> MessageRule:
    """The rule for a message whose fields ``fields`` are format strings."""
    return lambda message: [one for field in fields for one in _format(getattr(message, field), (field,))]


def _string(name: str) -> MessageRule:
    """The rule for a field that is a format string."""
    return lambda text: [one._replace(path=()) for one in _format(text, (name,))]


FORMAT_RULES: Mapping[str, MessageRule] = {
    "envoy.config.core.v3.HeaderValueOption": _check_header,
    "envoy.config.core.v3.HttpService": _with_formatters("request_headers_to_add"),
    "envoy.config.core.v3.SubstitutionFormatString": _check_substitution,
    f"{_ROUTE}.RedirectAction": _texts("path_rewrite"),
    f"{_ROUTE}.Tracing": _texts("operation", "upstream_operation"),
    f"{_LOGGERS}.file.v3.FileAccessLog": _texts("format"),
    f"{_LOGGERS}.fluentd.v3.FluentdAccessLogConfig": _check_fluentd,
    f"{_LOGGERS}.open_telemetry.v3.OpenTelemetryAccessLogConfig": _check_open_telemetry,
    **{f"{_LOGGERS}.stats.v3.Config.{one}": _texts("value_format") for one in ("Tag", "Counter", "Gauge", "Histogram")},
    _MUTATIONS: _check_mutations,
    "envoy.extensions.clusters.reverse_connection.v3.ReverseConnectionClusterConfig": _texts(
        "host_id_format", "tenant_id_format"
    ),
    "envoy.extensions.filters.http.oauth2.v3.OAuth2Config": _texts("redirect_uri"),
    f"{_NETWORK}.http_connection_manager.v3.HttpConnectionManager.Tracing": _texts("operation", "upstream_operation"),
    f"{_NETWORK}.reverse_tunnel.v3.Validation": _texts("node_id_format", "cluster_id_format", "tenant_id_format"),
    _TCP_TUNNEL: _with_formatters("headers_to_add", "hostname"),
    _UDP_TUNNEL: _with_formatters("headers_to_add", "proxy_host", "target_host"),
}
FORMAT_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    f"{_ROUTE}.RouteAction": {name: _string(name) for name in ("host_rewrite", "path_rewrite")},
    "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest": {"headers_to_add": _check_headers},
    f"{_LOGGERS}.file.v3.FileAccessLog": {"json_format": _check_record, "typed_json_format": _check_record},
    "envoy.type.tracing.v3.CustomTag": {"value": _string("value")},
}
_LITERAL = frozenset((FORMAT_CODE, COMMAND_CODE))
_CHECKED_ABOVE = frozenset((FORMAT_CODE, COMMAND_CODE))  # with the commands of the formatters beside
_OWN_COMMANDS = frozenset((COMMAND_CODE,))
# The codes of the findings within fields whose headers Envoy sends unchanged, although they are format strings
# elsewhere, or whose commands the rule of the message knows, or no rule.
IGNORED_CODES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "envoy.config.core.v3.HttpService": {"request_headers_to_add": _CHECKED_ABOVE},
    _TCP_TUNNEL: {"headers_to_add": _CHECKED_ABOVE},
    _UDP_TUNNEL: {"headers_to_add": _CHECKED_ABOVE},
    _MUTATIONS: dict.fromkeys(_LISTS_OF_MUTATIONS, _CHECKED_ABOVE),
    "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig": {
        "request_headers_to_add_when_not_enforced": _LITERAL
    },
    "envoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfig": {"http_service": _LITERAL},
    "envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig": {"access_log": _OWN_COMMANDS},
    f"{_NETWORK}.generic_proxy.v3.GenericProxy": {"access_log": _OWN_COMMANDS, "tracing": _OWN_COMMANDS},
}

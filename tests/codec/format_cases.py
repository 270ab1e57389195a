"""Format strings with commands that Envoy does not know, wherever it takes one, and the commands of extensions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import FILTER, ROUTER, TCP, Case, Json, cluster_case, http_case, manager, network_case
from tests.codec.extension_cases import REFUSED_EXTENSIONS
from tests.codec.filter_cases import REFUSED_FILTERS
from tests.codec.route_cases import REFUSED_ROUTES
from tests.support.resources import LISTENER_TYPE, TYPE

_LOGS = f"{TYPE}envoy.extensions.access_loggers"
_HTTP = f"{TYPE}envoy.extensions.filters.http"
_NETWORK = f"{TYPE}envoy.extensions.filters.network"
_UDP = f"{TYPE}envoy.extensions.filters.udp"
_MALFORMED = re.compile(r"5% x|5%")
NOPE = "%NOPE%"
REWRITTEN = "%REQ_WITHOUT_QUERY(x)%"
_FORMATTER = "envoy.extensions.formatter"
_WITHOUT_QUERY = [
    {"name": "a", "typed_config": {"@type": f"{TYPE}{_FORMATTER}.req_without_query.v3.ReqWithoutQuery"}},
    {"name": "b", "typed_config": {"@type": f"{TYPE}{_FORMATTER}.cel.v3.Cel"}},
]


def _with_unknown_command(case: Case) -> Case:
    """A case of a malformed format, with an unknown command in place of what is malformed."""
    text = _MALFORMED.sub(NOPE, json.dumps(case.resource))
    return Case(case.kind, json.loads(text), "bad_command", case.pointer)


_MALFORMED_FORMATS = {
    name: case
    for name, case in {**REFUSED_ROUTES, **REFUSED_FILTERS, **REFUSED_EXTENSIONS}.items()
    if case.code == "bad_format" and _MALFORMED.search(json.dumps(case.resource))
}


def _file_log(text: str, **fields: Any) -> Json:
    form: Json = {"text_format_source": {"inline_string": text}, **fields}
    return {
        "name": "log",
        "typed_config": {"@type": f"{_LOGS}.file.v3.FileAccessLog", "path": "/dev/null", "log_format": form},
    }


_TEXT = "typed_config/log_format/text_format_source/inline_string"


def _log(code: str, text: str, **fields: Any) -> Case:
    return network_case(
        code, f"{FILTER}/access_log/0/{_TEXT}" if code else "", manager(access_log=[_file_log(text, **fields)])
    )


def _tcp(code: str, pointer: str, **fields: Any) -> Case:
    config: Json = TCP["typed_config"]  # type: ignore[assignment]
    return network_case(code, FILTER + pointer if code else "", {"name": "tcp", "typed_config": {**config, **fields}})


def _of_listener(code: str, text: str) -> Case:
    case = network_case(code, f"/access_log/0/{_TEXT}", TCP)
    return case._replace(resource={**case.resource, "access_log": [_file_log(text)]})


def _replied(code: str, pointer: str, **config: Any) -> Case:
    return network_case(
        code, f"{FILTER}/local_reply_config{pointer}" if code else "", manager(local_reply_config=config)
    )


def _filter(code: str, pointer: str, kind: str, **config: Any) -> Case:
    one = {"name": "f", "typed_config": {"@type": f"{_HTTP}.{kind}", **config}}
    return http_case(code, f"/http_filters/0/typed_config{pointer}" if code else "", one, ROUTER)


def _mutated(code: str, text: str, **fields: Any) -> Case:
    mutations: Json = {"request_mutations": [{"append": {"header": {"key": "a", "value": text}}}], **fields}
    pointer = "/mutations/request_mutations/0/append/header/value"
    return _filter(code, pointer, "header_mutation.v3.HeaderMutation", mutations=mutations)


def _fluentd(code: str, text: str, **fields: Any) -> Case:
    kind = f"{_LOGS}.fluentd.v3.FluentdAccessLogConfig"
    one: Json = {"@type": kind, "cluster": "c", "tag": "t", "stat_prefix": "x", "record": {"a": text}, **fields}
    log = {"name": "log", "typed_config": one}
    return network_case(code, f"{FILTER}/access_log/0/typed_config/record/a" if code else "", manager(access_log=[log]))


def _telemetry(code: str, text: str, **fields: Any) -> Case:
    common = {"log_name": "x", "grpc_service": {"envoy_grpc": {"cluster_name": "c"}}, "transport_api_version": "V3"}
    kind = f"{_LOGS}.open_telemetry.v3.OpenTelemetryAccessLogConfig"
    one = {"@type": kind, "common_config": common, "body": {"string_value": text}, **fields}
    log = {"name": "log", "typed_config": one}
    pointer = f"{FILTER}/access_log/0/typed_config/body/string_value"
    return network_case(code, pointer if code else "", manager(access_log=[log]))


def _counted(code: str, text: str) -> Case:
    counter = {"stat": {"name": "c"}, "value_format": text}
    one = {"@type": f"{_LOGS}.stats.v3.Config", "stat_prefix": "x", "counters": [counter]}
    pointer = f"{FILTER}/access_log/0/typed_config/counters/0/value_format"
    return network_case(code, pointer, manager(access_log=[{"name": "log", "typed_config": one}]))


def _collected(code: str, text: str, **fields: Any) -> Case:
    uri = {"uri": "http://c/x", "cluster": "c", "timeout": "1s"}
    service: Json = {"http_uri": uri, "request_headers_to_add": [{"header": {"key": "a", "value": text}}], **fields}
    kind = f"{TYPE}envoy.config.trace.v3.OpenTelemetryConfig"
    provider = {"name": "o", "typed_config": {"@type": kind, "service_name": "x", "http_service": service}}
    pointer = f"{FILTER}/tracing/provider/typed_config/http_service/request_headers_to_add/0/header/value"
    return network_case(code, pointer if code else "", manager(tracing={"provider": provider}))


def _state(code: str, text: str) -> Case:
    value = {"object_key": "envoy.tcp_proxy.cluster", "format_string": {"text_format_source": {"inline_string": text}}}
    one = {"@type": f"{_NETWORK}.set_filter_state.v3.Config", "on_new_connection": [value]}
    pointer = f"{FILTER}/on_new_connection/0/format_string/text_format_source/inline_string"
    return network_case(code, pointer, {"name": "state", "typed_config": one}, TCP)


def _generic(text: str) -> Case:
    """The generic proxy has commands of its own in its access logs."""
    codec = {"@type": f"{_NETWORK}.generic_proxy.codecs.http1.v3.Http1CodecConfig"}
    one = {
        "@type": f"{_NETWORK}.generic_proxy.v3.GenericProxy",
        "stat_prefix": "x",
        "codec_config": {"name": "http1", "typed_config": codec},
        "route_config": {"name": "r", "virtual_hosts": []},
        "filters": [{"name": "r", "typed_config": {"@type": f"{_NETWORK}.generic_proxy.router.v3.Router"}}],
        "access_log": [_file_log(text)],
    }
    return network_case("", "", {"name": "generic", "typed_config": one})


def _dns(text: str) -> Case:
    """The DNS filter has commands of its own, and no others."""
    one = {"stat_prefix": "x", "server_config": {"inline_dns_table": {}}, "access_log": [_file_log(text)]}
    listener = {
        "@type": LISTENER_TYPE,
        "name": "x",
        "address": {"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": 0}},
        "listener_filters": [
            {"name": "dns", "typed_config": {"@type": f"{_UDP}.dns_filter.v3.DnsFilterConfig", **one}}
        ],
    }
    return Case("listeners", listener)


def _reversed(code: str, text: str) -> Case:
    kind = f"{TYPE}envoy.extensions.clusters.reverse_connection.v3.ReverseConnectionClusterConfig"
    kind_of = {"name": "r", "typed_config": {"@type": kind, "host_id_format": text}}
    return cluster_case(
        code, "/cluster_type/typed_config/host_id_format", lb_policy="CLUSTER_PROVIDED", cluster_type=kind_of
    )


_BODY: Json = {"text_format_source": {"inline_string": NOPE}}
_MAPPED: Json = {"filter": {"response_flag_filter": {}}}

REFUSED_FORMATS: Mapping[str, Case] = {
    **{f"{name}, with an unknown command": _with_unknown_command(case) for name, case in _MALFORMED_FORMATS.items()},
    "an unknown command in a log of TCP": _tcp("bad_command", f"/access_log/0/{_TEXT}", access_log=[_file_log(NOPE)]),
    "an unknown command in a log of a listener": _of_listener("bad_command", NOPE),
    "an unknown command in a local reply": _replied(
        "bad_command", "/body_format/text_format_source/inline_string", body_format=_BODY
    ),
    "an unknown command in JSON of a local reply": _replied(
        "bad_command", "/body_format/json_format/a", body_format={"json_format": {"a": NOPE}}
    ),
    "an unknown command in a mapped reply": _replied(
        "bad_command",
        "/mappers/0/body_format_override/text_format_source/inline_string",
        mappers=[{**_MAPPED, "body_format_override": _BODY}],
    ),
    "an unknown command in a mutation": _mutated("bad_command", NOPE),
    "a malformed mutation": _mutated("bad_format", "5%"),
    "an unknown command in a counter": _counted("bad_command", NOPE),
    "an unknown command in the state of a connection": _state("bad_command", NOPE),
    "an unknown command in the id of a host": _reversed("bad_command", NOPE),
    "an unknown command in a header to a collector": _collected("bad_command", NOPE),
    # Commands of extensions that are not configured, or of others
    "a command of an extension in a log": _log("bad_command", REWRITTEN),
    "a command of no extension in a log": _log("bad_command", NOPE, formatters=_WITHOUT_QUERY),
    "a command of an extension in a mutation": _mutated("bad_command", REWRITTEN),
    "a command of no extension in a mutation": _mutated("bad_command", NOPE, formatters=_WITHOUT_QUERY),
    "a malformed format beside extensions": _mutated("bad_format", "5%", formatters=_WITHOUT_QUERY),
    "a command of an extension in Fluentd": _fluentd("bad_command", REWRITTEN),
    "a command of an extension in OpenTelemetry": _telemetry("bad_command", REWRITTEN),
    # Parameters
    "a command without its parameters in a log": _log("bad_command", "%REQ%"),
    "a command with parameters that it has not in a log": _log("bad_command", "%PROTOCOL(x)%"),
}
TAKEN_FORMATS: Mapping[str, Case] = {
    "a command of an extension in a log beside it": _log("", REWRITTEN, formatters=_WITHOUT_QUERY),
    "a command of an extension in a mutation beside it": _mutated("", REWRITTEN, formatters=_WITHOUT_QUERY),
    "a command of an extension in Fluentd beside it": _fluentd("", REWRITTEN, formatters=_WITHOUT_QUERY),
    "a command of an extension in OpenTelemetry beside it": _telemetry("", REWRITTEN, formatters=_WITHOUT_QUERY),
    "a command of an extension in a header to a collector": _collected("", REWRITTEN, formatters=_WITHOUT_QUERY),
    "commands that every format has": _log(
        "", "%METADATA(DYNAMIC:a)% %CEL(has(request.path))% %TYPED_CEL(request.path)%"
    ),
    "parentheses within parameters": _log("", "%CEL(size(request.path))%:3 %START_TIME(%Y(%m))%"),
    "names that were added of late": _log("", "%LISTENER_NAME% %PACKETS_RETRANSMITTED% %UPSTREAM_CLUSTER_RAW%"),
    "a command of the generic proxy": _generic("%METHOD% %HOST%"),
    "a command of the DNS filter": _dns("%QUERY_NAME%"),
}

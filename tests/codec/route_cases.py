"""Routes and format strings that Envoy refuses, and their like that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import (
    ADS,
    FILTER,
    ROUTER,
    Case,
    Json,
    cluster_case,
    http_case,
    manager,
    network_case,
    route_case,
)
from tests.support.resources import ROUTE_TYPE, TCP_PROXY_TYPE, TYPE

_LOGS = "envoy.extensions.access_loggers"
_BODY_LIMIT = 4096


def _header(code: str, value: str) -> Case:
    headers = [{"header": {"key": "a", "value": value}}]
    return route_case(code, "/request_headers_to_add/0/header/value", request_headers_to_add=headers)


def _rds(code: str, pointer: str, **rds: Any) -> Case:
    one = manager(rds=rds)
    del one["typed_config"]["route_config"]
    return network_case(code, f"{FILTER}/rds{pointer}", one)


def _mirror(code: str, pointer: str, **policy: Any) -> Case:
    route = {"cluster": "c", "request_mirror_policies": [policy]}
    return route_case(code, f"/route/request_mirror_policies/0{pointer}", route=route)


def _upgrade(code: str, pointer: str, kind: str) -> Case:
    route = {"cluster": "c", "upgrade_configs": [{"upgrade_type": kind, "connect_config": {}}]}
    return route_case(code, f"/route/upgrade_configs/0{pointer}", route=route)


def _body(code: str, text: str, limit_bytes: int | None = None) -> Case:
    body = {"status": 200, "body": {"inline_string": text}}
    case = route_case(code, "/direct_response/body/inline_string", direct_response=body)
    limit = {} if limit_bytes is None else {"max_direct_response_body_size_bytes": limit_bytes}
    return case._replace(resource={**case.resource, **limit})


def _log(code: str, pointer: str, **form: Any) -> Case:
    config = {"@type": f"{TYPE}{_LOGS}.stream.v3.StdoutAccessLog", "log_format": form}
    place = f"{FILTER}/access_log/0/typed_config/log_format{pointer}"
    return network_case(code, place, manager(access_log=[{"name": "log", "typed_config": config}]))


def _file_log(code: str, text: str) -> Case:
    config = {"@type": f"{TYPE}{_LOGS}.file.v3.FileAccessLog", "path": "/dev/null", "format": text}
    place = f"{FILTER}/access_log/0/typed_config/format"
    return network_case(code, place, manager(access_log=[{"name": "log", "typed_config": config}]))


def _authorized(code: str, value: str) -> Case:
    service: Json = {
        "server_uri": {"uri": "http://c", "cluster": "c", "timeout": "1s"},
        "authorization_request": {"headers_to_add": [{"key": "a", "value": value}]},
    }
    kind = f"{TYPE}envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
    one = {"name": "ask", "typed_config": {"@type": kind, "transport_api_version": "V3", "http_service": service}}
    place = "/http_filters/0/typed_config/http_service/authorization_request/headers_to_add/0/value"
    return http_case(code, place, one, ROUTER)


def _called(value: str) -> Case:
    """The headers of gRPC calls are not format strings."""
    service: Json = {"envoy_grpc": {"cluster_name": "c"}, "initial_metadata": [{"key": "a", "value": value}]}
    kind = f"{TYPE}envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
    one = {"name": "ask", "typed_config": {"@type": kind, "transport_api_version": "V3", "grpc_service": service}}
    return http_case("", "", one, ROUTER)


def _parameter(code: str, value: str) -> Case:
    kind = f"{TYPE}envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"
    mutation = {"append": {"record": {"key": "a", "value": value}}}
    config = {"@type": kind, "mutations": {"query_parameter_mutations": [mutation]}}
    place = "/http_filters/0/typed_config/mutations/query_parameter_mutations/0/append/record/value"
    return http_case(code, place, {"name": "mutation", "typed_config": config}, ROUTER)


def _fluentd(code: str, value: str) -> Case:
    kind = f"{TYPE}{_LOGS}.fluentd.v3.FluentdAccessLogConfig"
    config = {"@type": kind, "cluster": "c", "tag": "x", "stat_prefix": "x", "record": {"a": {"b": value}}}
    place = f"{FILTER}/access_log/0/typed_config/record/a/b"
    return network_case(code, place, manager(access_log=[{"name": "log", "typed_config": config}]))


def _tag(code: str, value: str) -> Case:
    tags = [{"tag": "a", "value": value}]
    return network_case(code, f"{FILTER}/tracing/custom_tags/0/value", manager(tracing={"custom_tags": tags}))


def _rewrite(code: str, field: str, value: str) -> Case:
    return route_case(code, f"/route/{field}", route={"cluster": "c", field: value})


def _tunnel(code: str, hostname: str) -> Case:
    config = {"@type": TCP_PROXY_TYPE, "stat_prefix": "x", "cluster": "c", "tunneling_config": {"hostname": hostname}}
    return network_case(code, f"{FILTER}/tunneling_config/hostname", {"name": "tcp", "typed_config": config})


_CHECKED = {"path": "/", "request_headers_to_add": [{"header": {"key": "a", "value": "5%"}}]}
_HEALTH_CHECK = {
    "timeout": "1s",
    "interval": "1s",
    "healthy_threshold": 1,
    "unhealthy_threshold": 1,
    "http_health_check": _CHECKED,
}


def _per_filter(code: str, pointer: str, config: Json) -> Case:
    return route_case(code, f"/typed_per_filter_config/a{pointer}", typed_per_filter_config={"a": config})


_FILTER_CONFIG = {"@type": f"{TYPE}envoy.config.route.v3.FilterConfig"}


def _changed(code: str, pointer: str, **headers: Any) -> Case:
    return route_case(code, pointer, **headers)


def _set(key: str) -> list[Json]:
    return [{"header": {"key": key, "value": "x"}}]


def _rewritten(code: str, pointer: str, **rewrites: Any) -> Case:
    return route_case(code, f"/route{pointer}", route={"cluster": "c", **rewrites})


def _split(code: str, pointer: str, *legs: Json) -> Case:
    return route_case(
        code, f"/route/weighted_clusters/clusters{pointer}", route={"weighted_clusters": {"clusters": list(legs)}}
    )


_REGEX = {"pattern": {"regex": "a"}, "substitution": "b"}

REFUSED_ROUTES: Mapping[str, Case] = {
    # Headers that a route cannot change
    "a request with another host": _changed(
        "not_allowed", "/request_headers_to_add/0/header/key", request_headers_to_add=_set("Host")
    ),
    "a request with another path": _changed(
        "not_allowed", "/request_headers_to_add/0/header/key", request_headers_to_add=_set(":path")
    ),
    "a response with another status": _changed(
        "not_allowed", "/response_headers_to_add/0/header/key", response_headers_to_add=_set(":status")
    ),
    "a request without a host": _changed(
        "not_allowed", "/request_headers_to_remove/1", request_headers_to_remove=["a", "host"]
    ),
    "a response without a status": _changed(
        "not_allowed", "/response_headers_to_remove/0", response_headers_to_remove=[":status"]
    ),
    "two rewrites of a path": _rewritten("not_allowed", "/regex_rewrite", prefix_rewrite="/a", regex_rewrite=_REGEX),
    # Legs
    "a leg by name and by header": _split(
        "not_allowed", "/0/cluster_header", {"name": "c", "cluster_header": "x", "weight": 1}
    ),
    "weights beyond 32 bits": _split(
        "out_of_range", "", {"name": "c", "weight": 2**32 - 1}, {"name": "c", "weight": 1}
    ),
    "no configuration for a filter": _per_filter("missing_config", "", {}),
    "nothing for a filter": _per_filter("missing_config", "/config", _FILTER_CONFIG),
    "a mirror without a cluster": _mirror("missing_field", "/cluster"),
    "a mirror of two clusters": _mirror("not_allowed", "/cluster_header", cluster="c", cluster_header="x"),
    "options of CONNECT for another upgrade": _upgrade("not_allowed", "/connect_config", "websocket"),
    "routes by RDS without a source": _rds("missing_field", "/config_source", route_config_name="r"),
    "a body that is too long": _body("too_long", "x" * (_BODY_LIMIT + 1)),
    "a body that is too long in bytes": _body("too_long", "ü" * (_BODY_LIMIT // 2 + 1)),
    "a body beyond its own limit": _body("too_long", "x" * 11, 10),
    "a percent sign in a header": _header("bad_format", "50% off"),
    "a percent sign at the end": _header("bad_format", "100%"),
    "a command without its end": _header("bad_format", "%REQ(x"),
    "a command in small letters": _header("bad_format", "%req(x)%"),
    "a length that is not a number": _header("bad_format", "%REQ(a):x%"),
    "a percent sign behind a command": _header("bad_format", "%PROTOCOL%%"),
    "a format of a whole route configuration": Case(
        "routes",
        {
            "@type": ROUTE_TYPE,
            "name": "x",
            "response_headers_to_add": [{"header": {"key": "a", "value": "5%"}}],
        },
        "bad_format",
        "/response_headers_to_add/0/header/value",
    ),
    "a format of a health check": cluster_case(
        "bad_format",
        "/health_checks/0/http_health_check/request_headers_to_add/0/header/value",
        health_checks=[_HEALTH_CHECK],
    ),
    "a format of a request for authorization": _authorized("bad_format", "5%"),
    "a format of an access log": _log(
        "bad_format", "/text_format_source/inline_string", text_format_source={"inline_string": "5% x"}
    ),
    "an old format of an access log": _log("bad_format", "/text_format", text_format="5% x"),
    "a format within JSON": _log("bad_format", "/json_format/a/b", json_format={"a": {"b": "5%"}, "c": 1}),
    "a format in a list within JSON": _log("bad_format", "/json_format/a/1", json_format={"a": ["b", "5%"]}),
    "a format of a parameter of a query": _parameter("bad_format", "5%"),
    "a format of a record of Fluentd": _fluentd("bad_format", "5%"),
    "a format of a tag of a span": _tag("bad_format", "5%"),
    "a format of a rewritten path": _rewrite("bad_format", "path_rewrite", "/5%"),
    "a format of a rewritten host": _rewrite("bad_format", "host_rewrite", "5%"),
    "a format of a log in a file": _file_log("bad_format", "5% x"),
    "a format of the name of a host": _tunnel("bad_format", "5% x"),
}

TAKEN_ROUTES: Mapping[str, Case] = {
    "a header that begins like host": _changed("", "", request_headers_to_add=_set("hostname")),
    "one rewrite of a path and one of a host": _rewritten("", "", regex_rewrite=_REGEX, host_rewrite_literal="a"),
    "weights of 32 bits": _split("", "", {"name": "c", "weight": 2**32 - 2}, {"name": "c", "weight": 1}),
    "a filter that is disabled": _per_filter("", "", {**_FILTER_CONFIG, "disabled": True}),
    "an empty configuration for a filter": _per_filter("", "", {**_FILTER_CONFIG, "config": {}}),
    "a mirror": _mirror("", "", cluster="c"),
    "a mirror by a header": _mirror("", "", cluster_header="x"),
    "routes by RDS": _rds("", "", route_config_name="r", config_source=ADS),
    "options of CONNECT": _upgrade("", "", "connect"),
    "options of CONNECT-UDP": _upgrade("", "", "CONNECT-UDP"),
    "a body as long as it may be": _body("", "x" * _BODY_LIMIT),
    "a body within its own limit": _body("", "x" * 5000, 5000),
    "a body with a limit of zero": _body("", "x" * 5000, 0),
    "a parameter of a query": _parameter("", "%REQ(a)%"),
    "a record of Fluentd": _fluentd("", "%PROTOCOL%"),
    "a tag of a span": _tag("", "%REQ(a)%"),
    "a rewritten path": _rewrite("", "path_rewrite", "/%REQ(a)%"),
    "a rewritten host": _rewrite("", "host_rewrite", "%REQ(a)%"),
    "a percent sign in a body": _body("", "5%"),
    "a percent sign that is escaped": _header("", "100%%"),
    "commands without and with an argument": _header("", "a%PROTOCOL%%REQ(x?y):10%%%b"),
    "a time with its own percent signs": _header("", "%START_TIME(%Y-%m-%d)%"),
    "metadata as JSON": _header("", '%UPSTREAM_METADATA(["ns", "key"])%'),
    "a format for authorization": _authorized("", "%PROTOCOL%"),
    "a percent sign in a call": _called("5%"),
    "formats of an access log": _log("", "", json_format={"a": {"b": "%PROTOCOL%"}, "c": 1}),
    "a format of the name of a host that is right": _tunnel("", "%REQ(x)%:443"),
}

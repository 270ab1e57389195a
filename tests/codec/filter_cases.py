"""Filters and loggers that Envoy refuses for what they name, write or format, and their like that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import (
    FILTER,
    TCP,
    Case,
    Json,
    configured,
    first_case,
    listener_case,
    manager,
    network_case,
    route_case,
)

_HTTP = "envoy.extensions.filters.http"
_THRIFT = "envoy.extensions.filters.network.thrift_proxy"
_LOGGERS = "envoy.extensions.access_loggers"
_BAD, _GOOD = "5% x", "%PROTOCOL%"
_ANY, _ALL = "requires_any", "requires_all"


def _jwt(code: str, pointer: str, **fields: Any) -> Case:
    """A JWT filter with the one provider ``p``."""
    keys = {"http_uri": {"uri": "http://a/b", "cluster": "c", "timeout": "1s"}}
    providers = {"p": {"issuer": "x", "remote_jwks": keys}}
    return first_case(code, pointer, f"{_HTTP}.jwt_authn.v3.JwtAuthentication", providers=providers, **fields)


def _rule(code: str, pointer: str, requires: Json) -> Case:
    return _jwt(code, f"/rules/0/requires{pointer}", rules=[{"match": {"prefix": "/"}, "requires": requires}])


def _named(name: str, **fields: Any) -> Case:
    rules = [{"match": {"prefix": "/"}, "requirement_name": name}]
    code = "" if "requirement_map" in fields else "unknown_name"
    return _jwt(code, "/rules/0/requirement_name", rules=rules, **fields)


def _either(*names: str) -> Json:
    return {"requirements": [{"provider_name": name} for name in names]}


_PAIR = {"metadata_namespace": "a", "key": "b"}


def _json(code: str, pointer: str, **rule: Any) -> Case:
    rules = {"rules": [{"selectors": [{"key": "a"}], **rule}]}
    kind = f"{_HTTP}.json_to_metadata.v3.JsonToMetadata"
    return first_case(code, f"/request_rules/rules/0{pointer}", kind, request_rules=rules)


def _thrift(code: str, pointer: str, **rule: Any) -> Case:
    rules = [{"field": "PROTOCOL", **rule}]
    kind = f"{_HTTP}.thrift_to_metadata.v3.ThriftToMetadata"
    return first_case(code, f"/response_rules/0{pointer}", kind, response_rules=rules)


def _thrift_filter(code: str, pointer: str, kind: str, rule: Json) -> Case:
    """A filter of a Thrift proxy."""
    one = configured("first", f"{_THRIFT}.filters.{kind}", request_rules=[rule])
    router = configured("envoy.filters.thrift.router", f"{_THRIFT}.router.v3.Router")
    fields = {"stat_prefix": "x", "route_config": {"name": "r"}, "thrift_filters": [one, router]}
    place = f"{FILTER}/thrift_filters/0/typed_config/request_rules/0{pointer}"
    return network_case(code, place, configured("thrift", f"{_THRIFT}.v3.ThriftProxy", **fields))


_PAYLOAD = "payload_to_metadata.v3.PayloadToMetadata"
_HEADER = "header_to_metadata.v3.HeaderToMetadata"
_FIELD = {"method_name": "m", "field_selector": {"name": "a", "id": 1}}


def _log(code: str, pointer: str, kind: str, **fields: Any) -> Case:
    logger = configured("log", f"{_LOGGERS}.{kind}", **fields)
    return network_case(code, f"{FILTER}/access_log/0/typed_config{pointer}", manager(access_log=[logger]))


def _telemetry(code: str, pointer: str, **fields: Any) -> Case:
    service = {"envoy_grpc": {"cluster_name": "c"}}
    kind = "open_telemetry.v3.OpenTelemetryAccessLogConfig"
    return _log(code, pointer, kind, grpc_service=service, stat_prefix="x", **fields)


def _file(code: str, pointer: str, **fields: Any) -> Case:
    return _log(code, pointer, "file.v3.FileAccessLog", path="/dev/null", **fields)


def _statistic(code: str, value: str) -> Case:
    counter = {"stat": {"name": "a", "tags": [{"name": "t", "value_format": value}]}, "value_fixed": 1}
    return _log(code, "/counters/0/stat/tags/0/value_format", "stats.v3.Config", stat_prefix="x", counters=[counter])


def _spans(code: str, field: str, value: str) -> Case:
    return network_case(code, f"{FILTER}/tracing/{field}", manager(tracing={field: value}))


def _route_spans(code: str, field: str, value: str) -> Case:
    return route_case(code, f"/tracing/{field}", tracing={field: value})


def _redirect(code: str, value: str) -> Case:
    return route_case(code, "/redirect/path_rewrite", redirect={"path_rewrite": value}, direct_response=None)


def _secret(name: str) -> Json:
    return {"name": name, "sds_config": {"path_config_source": {"path": "/dev/null"}}}


def _oauth(code: str, redirect_uri: str) -> Case:
    config = {
        "token_endpoint": {"cluster": "c", "uri": "http://a/b", "timeout": "1s"},
        "authorization_endpoint": "http://a/c",
        "redirect_uri": redirect_uri,
        "redirect_path_matcher": {"path": {"exact": "/callback"}},
        "signout_path": {"path": {"exact": "/signout"}},
        "credentials": {"client_id": "i", "token_secret": _secret("t"), "hmac_secret": _secret("h")},
    }
    return first_case(code, "/config/redirect_uri", f"{_HTTP}.oauth2.v3.OAuth2", config=config)


def _tunnel(code: str, field: str, value: str) -> Case:
    udp = "envoy.extensions.filters.udp.udp_proxy.v3"
    action = configured("route", f"{udp}.Route", cluster="c")
    tunnel = {"proxy_host": "a", "target_host": "b", "default_target_port": 1, field: value}
    fields = {"stat_prefix": "x", "matcher": {"on_no_match": {"action": action}}, "tunneling_config": tunnel}
    proxy = configured("udp", f"{udp}.UdpProxyConfig", **fields)
    address = {"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": 0}}
    place = f"/listener_filters/0/typed_config/tunneling_config/{field}"
    return listener_case(code, place, address=address, filter_chains=None, listener_filters=[proxy])


def _chains(code: str, pointer: str, *names: str) -> Case:
    """A listener with a matcher that names its chains; an empty name is left out."""
    chains = [{"filters": [TCP], **({"name": name} if name else {})} for name in names]
    chosen = {
        "name": "chain",
        "typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "a"},
    }
    matcher = {"on_no_match": {"action": chosen}}
    return listener_case(code, f"/filter_chains{pointer}", filter_chains=chains, filter_chain_matcher=matcher)


def _detected(code: str, pointer: str, **fields: Any) -> Case:
    kind = "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig"
    found = [configured("xff", kind, xff_num_trusted_hops=1)]
    one = manager(original_ip_detection_extensions=found, **fields)
    return network_case(code, FILTER + pointer if code else "", one)


def _over_udp(code: str, pointer: str, one: Json, **fields: Any) -> Case:
    case = network_case(code, pointer, one)
    address = {"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": 0}}
    return case._replace(resource={**case.resource, "address": address, **fields})


def _with_options(one: Json) -> Case:
    case = network_case("", "", one)
    return case._replace(resource={**case.resource, "udp_listener_config": {"quic_options": {}}})


REFUSED_FILTERS: Mapping[str, Case] = {
    "trusted hops twice": _detected("not_allowed", "/xff_num_trusted_hops", xff_num_trusted_hops=1),
    "an extension and the address of the peer": _detected(
        "not_allowed", "/use_remote_address", use_remote_address=True
    ),
    # What the JWT filter names
    "a provider that there is not": _rule("unknown_name", "/provider_name", {"provider_name": "q"}),
    "a provider without a name": _rule("unknown_name", "/provider_name", {"provider_name": ""}),
    "one of two providers": _rule("unknown_name", f"/{_ANY}/requirements/1/provider_name", {_ANY: _either("p", "q")}),
    "a provider in a tree": _rule(
        "unknown_name",
        f"/{_ALL}/requirements/1/{_ANY}/requirements/0/provider_name",
        {_ALL: {"requirements": [{"provider_name": "p"}, {_ANY: _either("q", "p")}]}},
    ),
    "a provider with audiences": _rule(
        "unknown_name",
        "/provider_and_audiences/provider_name",
        {"provider_and_audiences": {"provider_name": "q", "audiences": ["a"]}},
    ),
    "a provider of a requirement that nothing uses": _jwt(
        "unknown_name", "/requirement_map/r/provider_name", requirement_map={"r": {"provider_name": "q"}}
    ),
    "a provider by filter state": _jwt(
        "unknown_name",
        "/filter_state_rules/requires/a/provider_name",
        filter_state_rules={"name": "n", "requires": {"a": {"provider_name": "q"}}},
    ),
    "a requirement that there is not": _named("r"),
    # Metadata
    "nothing to write from JSON": _json("missing_field", "/on_present"),
    "nothing to write but for errors": _json("missing_field", "/on_present", on_error={**_PAIR, "value": "x"}),
    "no value for JSON that is missing": _json("missing_field", "/on_missing/value", on_missing=_PAIR),
    "no value for invalid JSON": _json("missing_field", "/on_error/value", on_present=_PAIR, on_error=_PAIR),
    "nothing to write from Thrift": _thrift("missing_field", "/on_present"),
    "no value for Thrift that is missing": _thrift("missing_field", "/on_missing/value", on_missing=_PAIR),
    "no rule for Thrift": first_case(
        "missing_field", "/request_rules", f"{_HTTP}.thrift_to_metadata.v3.ThriftToMetadata"
    ),
    "nothing to write from a payload": _thrift_filter("missing_field", "/on_present", _PAYLOAD, _FIELD),
    "no value for a payload that is missing": _thrift_filter(
        "missing_field", "/on_missing/value", _PAYLOAD, {**_FIELD, "on_missing": _PAIR}
    ),
    "nothing to write from a header of Thrift": _thrift_filter(
        "missing_field", "/on_present", _HEADER, {"header": "m"}
    ),
    "no value for a header of Thrift that is missing": _thrift_filter(
        "missing_field", "/on_missing/value", _HEADER, {"header": "m", "on_missing": _PAIR}
    ),
    # Formats
    "a format of a body of OpenTelemetry": _telemetry("bad_format", "/body/string_value", body={"string_value": _BAD}),
    "a format deep in a body of OpenTelemetry": _telemetry(
        "bad_format",
        "/body/kvlist_value/values/0/value/array_value/values/0/string_value",
        body={
            "kvlist_value": {"values": [{"key": "a", "value": {"array_value": {"values": [{"string_value": _BAD}]}}}]}
        },
    ),
    "a format of an attribute": _telemetry(
        "bad_format",
        "/attributes/values/0/value/string_value",
        attributes={"values": [{"key": "a", "value": {"string_value": _BAD}}]},
    ),
    "a format in JSON of a file": _file("bad_format", "/json_format/a", json_format={"a": _BAD}),
    "a format in typed JSON of a file": _file("bad_format", "/typed_json_format/a", typed_json_format={"a": _BAD}),
    "a format of a tag of a statistic": _statistic("bad_format", _BAD),
    "a format of a span": _spans("bad_format", "operation", _BAD),
    "a format of a span upstream": _spans("bad_format", "upstream_operation", _BAD),
    "a format of a span of a route": _route_spans("bad_format", "operation", _BAD),
    "a format of a span upstream of a route": _route_spans("bad_format", "upstream_operation", _BAD),
    "a format of a redirect": _redirect("bad_format", f"/{_BAD}"),
    "a format of a redirect of OAuth": _oauth("bad_format", "http://a/5%"),
    "a format of the proxy of a UDP tunnel": _tunnel("bad_format", "proxy_host", _BAD),
    "a format of the target of a UDP tunnel": _tunnel("bad_format", "target_host", _BAD),
    # Chains
    "a chain over UDP": _over_udp("not_allowed", "/filter_chains/0", TCP),
    "an HTTP connection manager over UDP": _over_udp("not_allowed", "/filter_chains/0", manager()),
    "QUIC without its socket": _over_udp(
        "missing_field",
        "/filter_chains/0/transport_socket",
        manager(codec_type="HTTP3"),
        udp_listener_config={"quic_options": {}},
    ),
    "HTTP/3 over TCP": network_case("not_allowed", f"{FILTER}/codec_type", manager(codec_type="HTTP3")),
    "a chain without a name beside a matcher": _chains("missing_field", "/1/name", "a", ""),
    "two chains of a name": _chains("duplicate_item", "/1/name", "a", "a"),
}

TAKEN_FILTERS: Mapping[str, Case] = {
    "an extension for the address of the client": _detected("", "", use_remote_address=False),
    "a provider or none": _rule("", "", {_ANY: {"requirements": [{"provider_name": "p"}, {"allow_missing": {}}]}}),
    "a requirement by its name": _named("r", requirement_map={"r": {"provider_name": "p"}}),
    "a rule that requires nothing": _jwt("", "", rules=[{"match": {"prefix": "/"}}]),
    "a value from JSON": _json("", "", on_present=_PAIR),
    "an empty value for JSON that is missing": _json("", "", on_missing={**_PAIR, "value": ""}),
    "a number for Thrift that is missing": _thrift("", "", on_missing={**_PAIR, "value": 0}),
    "no rule for JSON": first_case("", "", f"{_HTTP}.json_to_metadata.v3.JsonToMetadata"),
    "a value from a payload": _thrift_filter("", "", _PAYLOAD, {**_FIELD, "on_present": _PAIR}),
    "a body of OpenTelemetry": _telemetry("", "", body={"string_value": _GOOD}),
    "a percent sign of a resource of OpenTelemetry": _telemetry(
        "", "", resource_attributes={"values": [{"key": "a", "value": {"string_value": _BAD}}]}
    ),
    "JSON of a file": _file("", "", json_format={"a": _GOOD}),
    "a tag of a statistic": _statistic("", _GOOD),
    "a name of a span": _spans("", "operation", _GOOD),
    "a redirect with a command": _redirect("", "/%REQ(a)%"),
    "a redirect of OAuth": _oauth("", "%REQ(x)%://a/callback"),
    "a target of a UDP tunnel": _tunnel("", "target_host", "%REQ(a)%"),
    "options of QUIC over TCP": _with_options(TCP),
    "chains with names": _chains("", "", "a", "b"),
}

"""Configurations of single extensions that Envoy refuses, and their like that it takes: scripts, key sets, users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import (
    FILTER,
    TCP,
    Case,
    Json,
    configured,
    first_case,
    manager,
    network_case,
    route_case,
    upstream_tls_case,
)
from tests.support.resources import TYPE

_LUA = "envoy.extensions.filters.http.lua.v3.Lua"
_CACHE = "envoy.extensions.filters.http.cache.v3.CacheConfig"
_CACHE_V2 = "envoy.extensions.filters.http.cache_v2.v3.CacheV2Config"
_GENERIC = "envoy.extensions.filters.network.generic_proxy"
_HASH = "{SHA}2kuSN7rMzfGcB2DKt67EqDWQELA="
_KEY = (
    '{"kty":"RSA","alg":"RS256","use":"sig","e":"AQAB","n":"'
    "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs"
    "tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5ha"
    "jrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
    '"}'
)
_CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIC+DCCAeCgAwIBAgIURrQ+SHp+rH1WUsWFNmqQBNMlHRcwDQYJKoZIhvcNAQEL
BQAwDDEKMAgGA1UEAwwBYTAgFw0yNjExMjQwNDEyNTBaGA8yMTI2MTAzMTA0MTI1
MFowDDEKMAgGA1UEAwwBYTCCASIwDQYJKoZIhvcNAQEBBQADggEPADCCAQoCggEB
AJ04pxhQouC/1WJGzq7VDDQ3hFwlSKlPjEOC7i2CeoLRZ+juzhSaO9jUEzvkxfDC
npee6H22+hzqhkQzomHnVfMGiMkrpK7QvQGQocLfoVJ3zcRdTRPUhcMWy8qa3tuU
H9a4lQ+UrafILcqhohrh0rUPMO2jIkbkhfUCmbkK7WbKN2rem9a6cJl07cGlDZfl
uKLLZCjk3g+NyQD1LPeHs/t/vpIyp4mwrckVS0O/s39GXpumRIe9mP2a5iMbQVvi
GyNqQxxj8d9+MQo7JQBWfh/pYo0hcztTQIVP36BP/zomjzfAmb/Nf86mjWFxqIYn
V+jAkh4ehhOCAuiB6r1okyUCAwEAAaNQME4wHQYDVR0OBBYEFFqwlqXbCN5cGp+I
a2CSjl1w6KhyMB8GA1UdIwQYMBaAFFqwlqXbCN5cGp+Ia2CSjl1w6KhyMAwGA1Ud
EwQFMAMBAf8wDQYJKoZIhvcNAQELBQADggEBAGYWEFbuiRXxDJWZSbxgBvpKVJon
7aotx1+l9MNrL6dLukQi12lPzSFiR9Di4Hvc7IU17LUBV9OPGPUZhdsDU20Rk8y3
exq1KNQ1xgj8tv1qbQAdtMGvNjsgevF02HrgPH4hTxza7eYW5AXXAhWChQ8LcVkB
gnVk3JiogzDOUPe/IP1NoTiaLdlj4cK0MBC65oV3VkLs9fFnMAHypM5EX2Glv6ei
Rn1m5WqwI5Fqdq2oo4iBTdf9a0V8czx9XpCk+ArMHIe8kcKE673ytFXdCRA29H+C
vV3m//PLgeR2amLKTcXF+N2xEIL/OiHKbSuhtmt9hpCjKRLGYUIAcZBZLgc=
-----END CERTIFICATE-----
"""


def _script(code: str, text: str) -> Case:
    return first_case(code, "/default_source_code/inline_string", _LUA, default_source_code={"inline_string": text})


def _key_set(code: str, text: str) -> Case:
    provider = {"issuer": "x", "local_jwks": {"inline_string": text}}
    rules = [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]
    kind = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
    return first_case(code, "/providers/p/local_jwks/inline_string", kind, providers={"p": provider}, rules=rules)


def users(code: str, text: str) -> Case:
    kind = "envoy.extensions.filters.http.basic_auth.v3.BasicAuth"
    return first_case(code, "/users/inline_string", kind, users={"inline_string": text})


def _route_users(code: str, text: str) -> Case:
    kind = f"{TYPE}envoy.extensions.filters.http.basic_auth.v3.BasicAuthPerRoute"
    config = {"a": {"@type": kind, "users": {"inline_string": text}}}
    return route_case(code, "/typed_per_filter_config/a/users/inline_string", typed_per_filter_config=config)


def _specifier(code: str, text: str) -> Case:
    kind = "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig"
    plugin = {"extension": configured("lua", kind, source_code={"inline_string": text})}
    place = "/route/inline_cluster_specifier_plugin/extension/typed_config/source_code/inline_string"
    return route_case(code, place, route={"inline_cluster_specifier_plugin": plugin})


def _tracer(code: str, pointer: str, **fields: Any) -> Case:
    kind = "envoy.config.trace.v3.ZipkinConfig"
    tracer = configured("zipkin", kind, collector_endpoint_version="HTTP_JSON", **fields)
    return network_case(code, f"{FILTER}/tracing/provider/typed_config{pointer}", manager(tracing={"provider": tracer}))


def _redis(code: str, pointer: str, **fields: Any) -> Case:
    kind = "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy"
    one = configured("redis", kind, stat_prefix="x", **{"settings": {"op_timeout": "1s"}, **fields})
    return network_case(code, FILTER + pointer, one)


_CODEC = configured("dubbo", f"{_GENERIC}.codecs.dubbo.v3.DubboCodecConfig")


def _generic(*filters: Json, codec: Json = _CODEC) -> Json:
    fields = {"stat_prefix": "x", "codec_config": codec, "route_config": {"name": "r"}, "filters": list(filters)}
    return configured("generic", f"{_GENERIC}.v3.GenericProxy", **fields)


def _metadata(code: str, pointer: str, **rule: Any) -> Case:
    kind = "envoy.extensions.filters.http.header_to_metadata.v3.Config"
    return first_case(code, f"/request_rules/0{pointer}", kind, request_rules=[rule])


def _action(code: str, pointer: str, action: Json) -> Case:
    """An action of the composite filter, chosen by a header."""
    header = configured("header", "envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name="a")
    predicate = {"single_predicate": {"input": header, "value_match": {"exact": "b"}}}
    matcher = {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": {"action": action}}]}}
    kind = "envoy.extensions.common.matching.v3.ExtensionWithMatcher"
    composite = configured("composite", "envoy.extensions.filters.http.composite.v3.Composite")
    place = f"/xds_matcher/matcher_list/matchers/0/on_match/action{pointer}"
    return first_case(code, place, kind, extension_config=composite, xds_matcher=matcher)


def _traced(code: str, pointer: str, **fields: Any) -> Case:
    tracer = configured("otel", "envoy.config.trace.v3.OpenTelemetryConfig", **fields)
    return network_case(code, f"{FILTER}/tracing/provider/typed_config{pointer}", manager(tracing={"provider": tracer}))


_EXECUTE = "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction"
_GRPC = {"envoy_grpc": {"cluster_name": "c"}}
_NO_TYPE: Json = {"name": "x", "typed_config": {}}
_KEY_VALUE = {"metadata_namespace": "a", "key": "b"}
_REWRITE = {"pattern": {"regex": "a"}, "substitution": "b"}
_GENERIC_ROUTER = configured("router", f"{_GENERIC}.router.v3.Router")
_COLLECTOR = {"http_uri": {"uri": "http://x/a", "cluster": "c", "timeout": "1s"}}
_RATE_LIMIT = "envoy.extensions.filters.http.rate_limit_quota.v3"
_REPORTING = {"reporting_interval": "1s"}
_PERCENT = {"header": {"key": "a", "value": "5%"}}
_A, _UPPER_A = {"prefix": "a", "cluster": "c"}, {"prefix": "A", "cluster": "c"}


def _bucket(code: str, fill_interval: str) -> Case:
    kind = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
    bucket = {"max_tokens": 1, "fill_interval": fill_interval}
    return first_case(code, "/token_bucket/fill_interval", kind, stat_prefix="x", token_bucket=bucket)


REFUSED_EXTENSIONS: Mapping[str, Case] = {
    "a bucket that fills too often": _bucket("out_of_range", "0.049s"),
    "two default scripts": first_case(
        "not_allowed",
        "/inline_code",
        _LUA,
        inline_code="local a = 1",
        default_source_code={"inline_string": "local a = 1"},
    ),
    "a cluster specifier without its function": _specifier("bad_script", "function route() end"),
    "a key set that is a text": _key_set("bad_jwks", "oops"),
    "a key set that is a list": _key_set("bad_jwks", "[]"),
    "a key set without keys": _key_set("bad_jwks", "{}"),
    "a key set of no keys": _key_set("bad_jwks", '{"keys": []}'),
    "a key set of a text": _key_set("bad_jwks", '{"id": "oops"}'),
    "a key without its type": _key_set("bad_jwks", '{"keys": [{}]}'),
    "users that are a text": users("bad_users", "oops"),
    "no users": users("bad_users", ""),
    "users of a route that are a text": _route_users("bad_users", "oops"),
    "a password in clear": users("bad_users", "a:b"),
    "a hash that is too short": users("bad_users", "a:{SHA}x"),
    "a user without a name": users("bad_users", f":{_HASH}"),
    "a user twice": users("bad_users", f"a:{_HASH}\na:{_HASH}"),
    "a line end of Windows": users("bad_users", f"a:{_HASH}\r\n"),
    "a cache without its storage": first_case("missing_field", "/typed_config", _CACHE),
    "a cache that is not disabled": first_case("missing_field", "/typed_config", _CACHE_V2, disabled=False),
    "Zipkin without a collector": _tracer("missing_field", "/collector_cluster"),
    "Zipkin without a path": _tracer("missing_field", "/collector_endpoint", collector_cluster="c"),
    "Redis without routes": _redis("missing_field", "/prefix_routes"),
    "Redis with an empty list of routes": _redis("missing_field", "/prefix_routes", prefix_routes={"routes": []}),
    "a prefix of Redis twice": _redis(
        "duplicate_item", "/prefix_routes/routes/1/prefix", prefix_routes={"routes": [_A, _A]}
    ),
    "a prefix of Redis twice in any case": _redis(
        "duplicate_item",
        "/prefix_routes/routes/1/prefix",
        prefix_routes={"routes": [_A, _UPPER_A], "case_insensitive": True},
    ),
    "a generic proxy with two routers": network_case(
        "filter_order", f"{FILTER}/filters/0", _generic(_GENERIC_ROUTER, _GENERIC_ROUTER)
    ),
    "a generic proxy without a router": network_case("missing_field", f"{FILTER}/filters", _generic()),
    "a generic proxy without the type of its codec": network_case(
        "missing_config", f"{FILTER}/codec_config/typed_config", _generic(_GENERIC_ROUTER, codec=_NO_TYPE)
    ),
    "OpenTelemetry without an exporter": _traced("missing_field", "/grpc_service"),
    "OpenTelemetry with two exporters": _traced(
        "not_allowed", "/http_service", grpc_service=_GRPC, http_service=_COLLECTOR
    ),
    "a percent sign in a header to a collector": _traced(
        "bad_format",
        "/http_service/request_headers_to_add/0/header/value",
        http_service={**_COLLECTOR, "request_headers_to_add": [_PERCENT]},
    ),
    "metadata of nothing": _metadata("missing_field", "/header", on_header_present=_KEY_VALUE),
    "metadata of a header and a cookie": _metadata(
        "not_allowed", "/header", header="a", cookie="a", on_header_present=_KEY_VALUE
    ),
    "metadata of a header for nothing": _metadata("missing_field", "/on_header_present", header="a"),
    "metadata of a value and a rewrite": _metadata(
        "not_allowed",
        "/on_header_present/value",
        header="a",
        on_header_present={**_KEY_VALUE, "value": "x", "regex_value_rewrite": _REWRITE},
    ),
    "metadata of a missing header without a value": _metadata(
        "missing_field", "/on_header_missing/value", header="a", on_header_missing=_KEY_VALUE
    ),
    "a cookie that is removed": _metadata(
        "not_allowed", "/remove", cookie="a", remove=True, on_header_present=_KEY_VALUE
    ),
    "an action without a type": _action("missing_config", "/typed_config", _NO_TYPE),
    "an action without a filter": _action("missing_field", "/typed_config/typed_config", configured("x", _EXECUTE)),
    "an action whose filter has no type": _action(
        "missing_config", "/typed_config/typed_config/typed_config", configured("x", _EXECUTE, typed_config=_NO_TYPE)
    ),
    "a mutation of headers without a type": network_case(
        "missing_config",
        f"{FILTER}/early_header_mutation_extensions/0/typed_config",
        manager(early_header_mutation_extensions=[_NO_TYPE]),
    ),
    "a detection of addresses without a type": network_case(
        "missing_config",
        f"{FILTER}/original_ip_detection_extensions/0/typed_config",
        manager(original_ip_detection_extensions=[_NO_TYPE]),
    ),
    "a match of paths without a type": route_case(
        "missing_config", "/match/path_match_policy/typed_config", match={"path_match_policy": _NO_TYPE}
    ),
    "a negative timeout of Redis": _redis(
        "out_of_range",
        "/settings/op_timeout",
        settings={"op_timeout": "-5s"},
        prefix_routes={"catch_all_route": {"cluster": "c"}},
    ),
    "a filter behind a generic proxy": network_case(
        "filter_order", "/filter_chains/0/filters/0", _generic(_GENERIC_ROUTER), TCP
    ),
}

TAKEN_EXTENSIONS: Mapping[str, Case] = {
    "a bucket that fills as often as it can": _bucket("", "0.05s"),
    "no script": _script("", ""),
    "a script of LuaJIT": _script("", "local x = 0b11 goto done ::done:: function envoy_on_request(handle) end"),
    "a cluster specifier": _specifier("", "function envoy_on_route(handle) return 'c' end"),
    "a key set": _key_set("", f'{{"keys": [{_KEY}]}}'),
    "a key set with a line end within a string": _key_set("", f'{{"keys": [{_KEY}]}}'.replace("tVT86z", "tVT86z\n  ")),
    "a key set with bare keys": _key_set("", f"{{keys: [{_KEY}],}}"),
    "a key set of certificates": _key_set("", json.dumps({"id": _CERTIFICATE})),
    "an empty key set": _key_set("", ""),
    "users": users("", f"# a comment\n\na:{_HASH}\n  b:{_HASH}\n"),
    "no users of a route": _route_users("", ""),
    "a cache that is disabled": first_case("", "", _CACHE, disabled=True),
    "Zipkin with a collector": _tracer("", "", collector_cluster="c", collector_endpoint="/a"),
    "Zipkin with the service of a collector": _tracer("", "", collector_service=_COLLECTOR),
    "two prefixes of Redis": _redis("", "", prefix_routes={"routes": [_A, _UPPER_A]}),
    "Redis with a route for all": _redis("", "", prefix_routes={"catch_all_route": {"cluster": "c"}}),
    "OpenTelemetry by gRPC": _traced("", "", grpc_service=_GRPC),
    "OpenTelemetry by HTTP": _traced("", "", http_service=_COLLECTOR),
    "metadata of a header": _metadata("", "", header="a", on_header_present={**_KEY_VALUE, "value": "x"}),
    "metadata of a cookie": _metadata("", "", cookie="a", on_header_present={"key": "b"}),
    "metadata of a missing header": _metadata("", "", header="a", on_header_missing={**_KEY_VALUE, "value": "x"}),
    "an action": _action("", "", configured("x", _EXECUTE, typed_config=configured("lua", _LUA))),
    "no timeout of Redis": _redis(
        "", "", settings={"op_timeout": "0s"}, prefix_routes={"catch_all_route": {"cluster": "c"}}
    ),
    "a generic proxy": network_case("", "", _generic(_GENERIC_ROUTER)),
    "an empty list of revoked certificates": upstream_tls_case(
        "", "", validation_context={"trusted_ca": {"inline_string": _CERTIFICATE}, "crl": {"inline_bytes": ""}}
    ),
    "a percent sign in a header to a quota": first_case(
        "",
        "",
        f"{_RATE_LIMIT}.RateLimitQuotaFilterConfig",
        rlqs_server=_GRPC,
        domain="d",
        bucket_matchers={
            "on_no_match": {"action": configured("x", f"{_RATE_LIMIT}.RateLimitQuotaBucketSettings", **_REPORTING)}
        },
        request_headers_to_add_when_not_enforced=[_PERCENT],
    ),
    "a percent sign in a header to a sampler's service": _traced(
        "",
        "",
        grpc_service=_GRPC,
        sampler=configured(
            "dynatrace",
            "envoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfig",
            tenant="a",
            cluster_id=1,
            http_service={**_COLLECTOR, "request_headers_to_add": [_PERCENT]},
        ),
    ),
}

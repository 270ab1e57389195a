"""Configurations of single extensions that Envoy refuses, and their like that it takes: scripts, key sets, users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import FILTER, ROUTER, TCP, Case, Json, http_case, manager, network_case, route_case
from tests.support.resources import TYPE

_LUA = "envoy.extensions.filters.http.lua.v3.Lua"
_CACHE = "envoy.extensions.filters.http.cache.v3.CacheConfig"
_CACHE_V2 = "envoy.extensions.filters.http.cache_v2.v3.CacheV2Config"
_GENERIC = "envoy.extensions.filters.network.generic_proxy"
_FIRST = "/http_filters/0/typed_config"
_HASH = "{SHA}2kuSN7rMzfGcB2DKt67EqDWQELA="
_KEY = (
    '{"kty":"RSA","alg":"RS256","use":"sig","e":"AQAB","n":"'
    "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs"
    "tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5ha"
    "jrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
    '"}'
)
_LONG_SCRIPT = """#!/usr/bin/lua
-- a comment
local t = {1, 'a'; x = [[y]], [2] = function(...) return ... end,}
local function f(a, b)
  if a and not b then return -a ^ 2 elseif a == b then return #t else return nil end
end
for i = 1, 3 do t[i] = f(i, nil) .. '' end
for k, v in pairs(t) do t.k, t.v = k, v break end
repeat local n = 0x1p4 + .5 + 3e-2 until n > 1
while false do goto out end ::out:: ;;
function t.z() end
function t:m() return self end
(t):m():m{}
local s = ('a'):rep(2) .. 'b\\
c'
--[==[ ]] ]==]
function envoy_on_request(handle) handle:headers():add('a', "b\\n") end
"""


def _configured(name: str, kind: str, **fields: Any) -> Json:
    return {"name": name, "typed_config": {"@type": f"{TYPE}{kind}", **fields}}


def _first(code: str, pointer: str, kind: str, **fields: Any) -> Case:
    """An HTTP filter before the router."""
    return http_case(code, _FIRST + pointer, _configured("first", kind, **fields), ROUTER)


def _script(code: str, text: str) -> Case:
    return _first(code, "/default_source_code/inline_string", _LUA, default_source_code={"inline_string": text})


def _key_set(code: str, text: str) -> Case:
    provider = {"issuer": "x", "local_jwks": {"inline_string": text}}
    rules = [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]
    kind = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
    return _first(code, "/providers/p/local_jwks/inline_string", kind, providers={"p": provider}, rules=rules)


def users(code: str, text: str) -> Case:
    kind = "envoy.extensions.filters.http.basic_auth.v3.BasicAuth"
    return _first(code, "/users/inline_string", kind, users={"inline_string": text})


def _specifier(code: str, text: str) -> Case:
    kind = "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig"
    plugin = {"extension": _configured("lua", kind, source_code={"inline_string": text})}
    place = "/route/inline_cluster_specifier_plugin/extension/typed_config/source_code/inline_string"
    return route_case(code, place, route={"inline_cluster_specifier_plugin": plugin})


def _tracer(code: str, pointer: str, **fields: Any) -> Case:
    kind = "envoy.config.trace.v3.ZipkinConfig"
    tracer = _configured("zipkin", kind, collector_endpoint_version="HTTP_JSON", **fields)
    return network_case(code, f"{FILTER}/tracing/provider/typed_config{pointer}", manager(tracing={"provider": tracer}))


def _redis(code: str, pointer: str, **routes: Any) -> Case:
    kind = "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy"
    one = _configured("redis", kind, stat_prefix="x", settings={"op_timeout": "1s"}, **routes)
    return network_case(code, FILTER + pointer, one)


def _generic(*filters: Json) -> Json:
    codec = _configured("dubbo", f"{_GENERIC}.codecs.dubbo.v3.DubboCodecConfig")
    fields = {"stat_prefix": "x", "codec_config": codec, "route_config": {"name": "r"}, "filters": list(filters)}
    return _configured("generic", f"{_GENERIC}.v3.GenericProxy", **fields)


_GENERIC_ROUTER = _configured("router", f"{_GENERIC}.router.v3.Router")
_COLLECTOR = {"http_uri": {"uri": "http://x/a", "cluster": "c", "timeout": "1s"}}
_A, _UPPER_A = {"prefix": "a", "cluster": "c"}, {"prefix": "A", "cluster": "c"}

REFUSED_EXTENSIONS: Mapping[str, Case] = {
    "a script that is no Lua": _script("bad_script", "oops"),
    "a script without its end": _script("bad_script", "function envoy_on_request(handle)\n  handle:logInfo('x')\n"),
    "an operator of Lua 5.3": _script("bad_script", "local a = 3 // 2"),
    "an operator of another language": _script("bad_script", "local a = 1 != 2"),
    "an assignment to a call": _script("bad_script", "f() = 1"),
    "an expression alone": _script("bad_script", "a.b"),
    "a statement behind the last one": _script("bad_script", "return 1 local a"),
    "a method of a bare string": _script("bad_script", "'x':rep(3)"),
    "a string without its end": _script("bad_script", "local a = 'x\n'"),
    "a comment without its end": _script("bad_script", "--[[ x"),
    "a keyword as a name": _script("bad_script", "local goto = 1"),
    "a named script that is no Lua": _first(
        "bad_script", "/source_codes/a/inline_string", _LUA, source_codes={"a": {"inline_string": "x ="}}
    ),
    "two default scripts": _first(
        "not_allowed",
        "/inline_code",
        _LUA,
        inline_code="local a = 1",
        default_source_code={"inline_string": "local a = 1"},
    ),
    "a cluster specifier without its function": _specifier("bad_script", "function route() end"),
    "a cluster specifier that is no Lua": _specifier("bad_script", "function envoy_on_route(handle) return 'c'"),
    "a key set that is a text": _key_set("bad_jwks", "oops"),
    "a key set that is a list": _key_set("bad_jwks", "[]"),
    "a key set without keys": _key_set("bad_jwks", "{}"),
    "a key set of no keys": _key_set("bad_jwks", '{"keys": []}'),
    "a key without its type": _key_set("bad_jwks", '{"keys": [{}]}'),
    "users that are a text": users("bad_users", "oops"),
    "no users": users("bad_users", ""),
    "a password in clear": users("bad_users", "a:b"),
    "a hash that is too short": users("bad_users", "a:{SHA}x"),
    "a user without a name": users("bad_users", f":{_HASH}"),
    "a user twice": users("bad_users", f"a:{_HASH}\na:{_HASH}"),
    "a line end of Windows": users("bad_users", f"a:{_HASH}\r\n"),
    "a cache without its storage": _first("missing_field", "/typed_config", _CACHE),
    "a cache that is not disabled": _first("missing_field", "/typed_config", _CACHE_V2, disabled=False),
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
    "a filter behind a generic proxy": network_case(
        "filter_order", "/filter_chains/0/filters/0", _generic(_GENERIC_ROUTER), TCP
    ),
}

TAKEN_EXTENSIONS: Mapping[str, Case] = {
    "no script": _script("", ""),
    "a script of many statements": _script("", _LONG_SCRIPT),
    "what LuaJIT adds": _script("", "local é, x = 0b11, 1LL local y = '\\z  \\x41'"),
    "a cluster specifier": _specifier("", "function envoy_on_route(handle) return 'c' end"),
    "a key set": _key_set("", f'{{"keys": [{_KEY}]}}'),
    "a key set with a line end within a string": _key_set("", f'{{"keys": [{_KEY}]}}'.replace("tVT86z", "tVT86z\n  ")),
    "a key set with bare keys": _key_set("", f"{{keys: [{_KEY}],}}"),
    "an empty key set": _key_set("", ""),
    "users": users("", f"# a comment\n\na:{_HASH}\n  b:{_HASH}\n"),
    "a cache that is disabled": _first("", "", _CACHE, disabled=True),
    "Zipkin with a collector": _tracer("", "", collector_cluster="c", collector_endpoint="/a"),
    "Zipkin with the service of a collector": _tracer("", "", collector_service=_COLLECTOR),
    "two prefixes of Redis": _redis("", "", prefix_routes={"routes": [_A, _UPPER_A]}),
    "Redis with a route for all": _redis("", "", prefix_routes={"catch_all_route": {"cluster": "c"}}),
    "a generic proxy": network_case("", "", _generic(_GENERIC_ROUTER)),
}

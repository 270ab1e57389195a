"""How the cases of rules on values are written: a resource, and the finding that is expected of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.resources import (
    CLUSTER_TYPE,
    DOWNSTREAM_TLS_TYPE,
    ENDPOINT_TYPE,
    HCM_TYPE,
    LISTENER_TYPE,
    ROUTE_TYPE,
    ROUTER_TYPE,
    TCP_PROXY_TYPE,
    TYPE,
    UPSTREAM_TLS_TYPE,
)

Json = dict[str, Any]

CORS = {"name": "cors", "typed_config": {"@type": f"{TYPE}envoy.extensions.filters.http.cors.v3.Cors"}}
ROUTER = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER_TYPE}}
TCP = {"name": "tcp", "typed_config": {"@type": TCP_PROXY_TYPE, "stat_prefix": "x", "cluster": "c"}}
RBAC = {
    "name": "rbac",
    "typed_config": {"@type": f"{TYPE}envoy.extensions.filters.network.rbac.v3.RBAC", "stat_prefix": "x"},
}
UPSTREAM_CODEC = {
    "name": "codec",
    "typed_config": {"@type": f"{TYPE}envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"},
}
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
POLICIES = f"{TYPE}envoy.extensions.load_balancing_policies"
ADS = {"ads": {}, "resource_api_version": "V3"}
ANY_PORT = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
V2_MANAGER = f"{TYPE}envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
FILTER = "/filter_chains/0/filters/0/typed_config"
FIRST = "/http_filters/0/typed_config"
COMMON_TLS = "/transport_socket/typed_config/common_tls_context"


class Case(NamedTuple):
    """A resource, and the code and pointer of the finding; ``code`` is empty for a resource that Envoy takes."""

    kind: str
    resource: Json
    code: str = ""
    pointer: str = ""


def cluster_case(code: str = "", pointer: str = "", **fields: Any) -> Case:
    return Case("clusters", {"@type": CLUSTER_TYPE, "name": "x", **fields}, code, pointer)


def members(*addresses: Json) -> Json:
    members = [{"endpoint": {"address": {"socket_address": {"port_value": 80, **one}}}} for one in addresses]
    return {"cluster_name": "x", "endpoints": [{"lb_endpoints": members}]}


def static_case(code: str = "", pointer: str = "", **address: Any) -> Case:
    place = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address"
    return cluster_case(code, place + pointer if code else "", type="STATIC", load_assignment=members(address))


def assignment_case(code: str = "", pointer: str = "", **fields: Any) -> Case:
    return Case("endpoints", {"@type": ENDPOINT_TYPE, "cluster_name": "x", **fields}, code, pointer)


def listener_case(code: str = "", pointer: str = "", **fields: Any) -> Case:
    given = {"address": ANY_PORT, "filter_chains": [{"filters": [TCP]}], **fields}
    kept = {key: value for key, value in given.items() if value is not None}
    return Case("listeners", {"@type": LISTENER_TYPE, "name": "x", **kept}, code, pointer)


def network_case(code: str, pointer: str, *filters: Json) -> Case:
    return listener_case(code, pointer, filter_chains=[{"filters": list(filters)}])


def manager(**fields: Any) -> Json:
    config = {"@type": HCM_TYPE, "stat_prefix": "x", "route_config": {"name": "r"}, "http_filters": [ROUTER], **fields}
    return {"name": "manager", "typed_config": config}


def http_case(code: str, pointer: str, *filters: Json) -> Case:
    return network_case(code, FILTER + pointer if code else "", manager(http_filters=list(filters)))


def configured(name: str, kind: str, **fields: Any) -> Json:
    """An extension by the type of its configuration."""
    return {"name": name, "typed_config": {"@type": f"{TYPE}{kind}", **fields}}


def first_case(code: str, pointer: str, kind: str, **fields: Any) -> Case:
    """An HTTP filter before the router."""
    return http_case(code, FIRST + pointer, configured("first", kind, **fields), ROUTER)


def chains_case(code: str, *matches: Json | None) -> Case:
    chains = [{"filters": [TCP], **({} if one is None else {"filter_chain_match": one})} for one in matches]
    return listener_case(code, f"/filter_chains/{len(chains) - 1}" if code else "", filter_chains=chains)


def route_case(code: str, pointer: str, **route: Any) -> Case:
    given = {"match": {"prefix": "/"}, "direct_response": {"status": 200}, **route}
    if "route" in given:
        del given["direct_response"]
    hosts = [{"name": "v", "domains": ["*"], "routes": [given]}]
    resource = {"@type": ROUTE_TYPE, "name": "x", "virtual_hosts": hosts}
    return Case("routes", resource, code, f"/virtual_hosts/0/routes/0{pointer}" if code else "")


def regex_case(code: str, text: str) -> Case:
    return route_case(code, "/match/safe_regex/regex", match={"safe_regex": {"regex": text}})


def upstream_tls_case(code: str, pointer: str, **common: Any) -> Case:
    config = {"@type": UPSTREAM_TLS_TYPE, "common_tls_context": common}
    return cluster_case(
        code, COMMON_TLS + pointer if code else "", transport_socket={"name": "tls", "typed_config": config}
    )


def downstream_tls_case(code: str, **common: Any) -> Case:
    config = {"@type": DOWNSTREAM_TLS_TYPE, "common_tls_context": common}
    chain = {"filters": [TCP], "transport_socket": {"name": "tls", "typed_config": config}}
    return listener_case(code, f"/filter_chains/0{COMMON_TLS}" if code else "", filter_chains=[chain])


def sds_secret(name: str) -> Json:
    return {"name": name, "sds_config": ADS}


def upstream_filters_case(code: str, pointer: str, *filters: Json) -> Case:
    options = {
        "@type": TYPE + HTTP_OPTIONS,
        "explicit_http_config": {"http_protocol_options": {}},
        "http_filters": list(filters),
    }
    place = f"/typed_extension_protocol_options/{HTTP_OPTIONS}/http_filters{pointer}" if code else ""
    return cluster_case(code, place, typed_extension_protocol_options={HTTP_OPTIONS: options})


def policy(name: str, kind: str, **fields: Any) -> Json:
    typed = {"@type": f"{POLICIES}.{name}.v3.{kind}", **fields}
    return {"typed_extension_config": {"name": name, "typed_config": typed}}


MEMBER = "/endpoints/0/lb_endpoints/0"
HEALTH_CHECK = {
    "timeout": "1s",
    "interval": "1s",
    "healthy_threshold": 1,
    "unhealthy_threshold": 1,
    "tcp_health_check": {},
}

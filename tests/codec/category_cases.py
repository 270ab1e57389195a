"""Extensions of another category than that of their place, which Envoy refuses; and those that fit in several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import (
    CORS,
    FILTER,
    RBAC,
    ROUTER,
    TCP,
    Case,
    Json,
    cluster_case,
    http_case,
    manager,
    network_case,
    route_case,
)
from tests.support.resources import DOWNSTREAM_TLS_TYPE, LISTENER_TYPE, TYPE, UPSTREAM_TLS_TYPE

_HTTP = f"{TYPE}envoy.extensions.filters.http"
_CODE = "wrong_extension"
_TLS_OF_CLUSTERS = {"name": "tls", "typed_config": {"@type": UPSTREAM_TLS_TYPE}}
_TLS_OF_LISTENERS = {"name": "tls", "typed_config": {"@type": DOWNSTREAM_TLS_TYPE, "common_tls_context": {}}}
_RAW = {"name": "raw", "typed_config": {"@type": f"{TYPE}envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}
_LISTENER = {"name": "l", "typed_config": {"@type": LISTENER_TYPE, "name": "l"}}
_STDOUT = {"name": "log", "typed_config": {"@type": f"{TYPE}envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"}}
_BUFFER = {"name": "b", "typed_config": {"@type": f"{_HTTP}.buffer.v3.Buffer", "max_request_bytes": 1}}
_TCP_PROXY: Json = TCP["typed_config"]  # type: ignore[assignment]
_SOCKETS = f"{TYPE}envoy.extensions.transport_sockets"


def _filter(code: str, *filters: Json) -> Case:
    return http_case(code, "/http_filters/0/typed_config" if code else "", *filters)


def _chained(socket: Json) -> Case:
    case = network_case(_CODE, "/filter_chains/0/transport_socket/typed_config", TCP)
    (chain,) = case.resource["filter_chains"]
    return case._replace(resource={**case.resource, "filter_chains": [{**chain, "transport_socket": socket}]})


def _listened(one: Json) -> Case:
    case = network_case(_CODE, "/listener_filters/0/typed_config", TCP)
    return case._replace(resource={**case.resource, "listener_filters": [one]})


def _managed(pointer: str, **fields: Any) -> Case:
    return network_case(_CODE, FILTER + pointer, manager(**fields))


def _routed(code: str, pointer: str, config: Json) -> Case:
    return route_case(code, f"/typed_per_filter_config/a{pointer}", typed_per_filter_config={"a": config})


def _proxied(socket: Json) -> Case:
    kind = f"{_SOCKETS}.proxy_protocol.v3.ProxyProtocolUpstreamTransport"
    outer = {"name": "p", "typed_config": {"@type": kind, "config": {}, "transport_socket": socket}}
    pointer = "/transport_socket/typed_config/transport_socket/typed_config"
    return cluster_case(_CODE, pointer, transport_socket=outer)


def _of_form(formatter: Json) -> Json:
    """A log in a file with a formatter."""
    form = {"text_format_source": {"inline_string": "x"}, "formatters": [formatter]}
    kind = f"{TYPE}envoy.extensions.access_loggers.file.v3.FileAccessLog"
    return {"name": "log", "typed_config": {"@type": kind, "path": "/dev/null", "log_format": form}}


_FILTER_CONFIG = {"@type": f"{TYPE}envoy.config.route.v3.FilterConfig"}

REFUSED_CATEGORIES: Mapping[str, Case] = {
    "a network filter among those of HTTP": _filter(_CODE, RBAC, ROUTER),
    "a listener among the filters of HTTP": _filter(_CODE, _LISTENER, ROUTER),
    "an access log among the filters of HTTP": _filter(_CODE, _STDOUT, ROUTER),
    "a filter of HTTP in a chain": network_case(_CODE, FILTER, CORS, TCP),
    "an access log in a chain": network_case(_CODE, FILTER, _STDOUT, TCP),
    "a filter of HTTP as access log": _managed("/access_log/0/typed_config", access_log=[CORS]),
    "a filter of HTTP as access log of TCP": network_case(
        _CODE,
        f"{FILTER}/access_log/0/typed_config",
        {"name": "tcp", "typed_config": {**_TCP_PROXY, "access_log": [CORS]}},
    ),
    "a network filter before the chains": _listened(RBAC),
    "the TLS of clusters in a listener": _chained(_TLS_OF_CLUSTERS),
    "a filter as the TLS of a listener": _chained(CORS),
    "the TLS of listeners in a cluster": cluster_case(
        _CODE, "/transport_socket/typed_config", transport_socket=_TLS_OF_LISTENERS
    ),
    "the TLS of listeners for some endpoints": cluster_case(
        _CODE,
        "/transport_socket_matches/0/transport_socket/typed_config",
        transport_socket_matches=[{"name": "m", "match": {}, "transport_socket": _TLS_OF_LISTENERS}],
    ),
    "the TLS of listeners within the PROXY protocol": _proxied(_TLS_OF_LISTENERS),
    "an access log for a filter of a route": _routed(_CODE, "", _STDOUT["typed_config"]),  # type: ignore[arg-type]
    "an access log in a FilterConfig": _routed(_CODE, "/config", {**_FILTER_CONFIG, "config": _STDOUT["typed_config"]}),
    "an access log as formatter": _managed(
        "/access_log/0/typed_config/log_format/formatters/0/typed_config", access_log=[_of_form(_STDOUT)]
    ),
    "a filter as detection of addresses": _managed(
        "/original_ip_detection_extensions/0/typed_config", original_ip_detection_extensions=[CORS]
    ),
    "a filter as tracer": _managed("/tracing/provider/typed_config", tracing={"provider": CORS}),
    "a filter as match of a path": route_case(
        _CODE, "/match/path_match_policy/typed_config", match={"path_match_policy": CORS}
    ),
}
TAKEN_CATEGORIES: Mapping[str, Case] = {
    "an optional filter of another category": _filter("", {**RBAC, "is_optional": True}, ROUTER),
    "a filter that works on both sides of the router": _filter("", _BUFFER, ROUTER),
    "a socket of both sides": cluster_case(transport_socket=_RAW),
    "the PROXY protocol around a socket": _proxied(_RAW)._replace(code="", pointer=""),
}

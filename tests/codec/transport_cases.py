"""Clusters whose transport socket does not do what their HTTP options need, paths of sockets, sources of endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import (
    HTTP_OPTIONS,
    Case,
    Json,
    assignment_case,
    cluster_case,
    configured,
    listener_case,
    sds_secret,
    upstream_tls_case,
)
from tests.support.resources import TYPE

_SOCKETS = "envoy.extensions.transport_sockets"
_QUIC_TYPE = f"{_SOCKETS}.quic.v3.QuicUpstreamTransport"
_PATH_BYTES = 107

_QUIC = configured("envoy.transport_sockets.quic", _QUIC_TYPE, upstream_tls_context={"sni": "a"})
_TLS = configured("envoy.transport_sockets.tls", f"{_SOCKETS}.tls.v3.UpstreamTlsContext", sni="a")
_PLAIN = configured("envoy.transport_sockets.raw_buffer", f"{_SOCKETS}.raw_buffer.v3.RawBuffer")


def _through_proxy(inner: Json) -> Json:
    kind = f"{_SOCKETS}.http_11_proxy.v3.Http11ProxyUpstreamTransport"
    return configured("envoy.transport_sockets.http_11_proxy", kind, transport_socket=inner)


_HTTP3: Json = {"explicit_http_config": {"http3_protocol_options": {}}}
_FOLLOWED: Json = {"use_downstream_protocol_config": {"http3_protocol_options": {}}}
_CACHE = {"name": "d"}
_AUTO_HTTP3: Json = {"auto_config": {"http3_protocol_options": {}, "alternate_protocols_cache_options": _CACHE}}
_AUTO: Json = {"auto_config": {}}


def _socket(code: str, options: Json, socket: Json | None, pointer: str = "/transport_socket", **fields: Any) -> Case:
    if socket is not None:
        fields["transport_socket"] = socket
    given = {HTTP_OPTIONS: {"@type": TYPE + HTTP_OPTIONS, **options}}
    return cluster_case(code, pointer if code else "", typed_extension_protocol_options=given, **fields)


def _member(path: str) -> Json:
    return {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": path}}}}]}]}


_PIPE = "/endpoints/0/lb_endpoints/0/endpoint/address/pipe/path"


def _static(code: str, path: str, kind: str = "STATIC") -> Case:
    return cluster_case(
        code, f"/load_assignment{_PIPE}", type=kind, load_assignment={"cluster_name": "x", **_member(path)}
    )


def _bound(code: str, size_bytes: int) -> Case:
    path = "/tmp/".ljust(size_bytes, "x")
    return listener_case(code, "/address/pipe/path", address={"pipe": {"path": path}})


_SERVICE = {"envoy_grpc": {"cluster_name": "c"}}


def _source(code: str, field: str, kind: str, **fields: Any) -> Case:
    """Endpoints of another server."""
    source = {"api_type": kind, "transport_api_version": "V3", **fields}
    place = f"/eds_cluster_config/eds_config/api_config_source/{field}"
    given = {"eds_config": {"resource_api_version": "V3", "api_config_source": source}}
    return cluster_case(code, place if code else "", type="EDS", eds_cluster_config=given)


_NAMES: list[Json] = [{"san_type": "DNS", "matcher": {"exact": "a"}}]


def _verified(code: str, pointer: str, **validation: Any) -> Case:
    return upstream_tls_case(code, f"/validation_context{pointer}", validation_context=validation)


def _internal(code: str, **fields: Any) -> Case:
    return listener_case(code, "/address", internal_listener={}, **fields)


REFUSED_TRANSPORTS: Mapping[str, Case] = {
    "names of a peer without an authority": _verified(
        "missing_field", "/match_typed_subject_alt_names", match_typed_subject_alt_names=_NAMES
    ),
    "an internal listener with an address": _internal("not_allowed"),
    "a source of two services": _source("too_many", "grpc_services", "GRPC", grpc_services=[_SERVICE, _SERVICE]),
    "a source of two services of deltas": _source(
        "too_many", "grpc_services", "DELTA_GRPC", grpc_services=[_SERVICE, _SERVICE]
    ),
    "a source of no service": _source("missing_field", "grpc_services", "GRPC"),
    "a source of gRPC with a cluster": _source("not_allowed", "cluster_names", "GRPC", cluster_names=["c"]),
    "a source of gRPC with both": _source(
        "not_allowed", "cluster_names", "GRPC", cluster_names=["c"], grpc_services=[_SERVICE]
    ),
    "a source by REST of no cluster": _source("missing_field", "cluster_names", "REST", refresh_delay="1s"),
    "a source by REST of two clusters": _source(
        "too_many", "cluster_names", "REST", cluster_names=["c", "c"], refresh_delay="1s"
    ),
    "a source by REST of a service": _source(
        "not_allowed", "grpc_services", "REST", grpc_services=[_SERVICE], refresh_delay="1s"
    ),
    "a source by REST without an interval": _source("missing_field", "refresh_delay", "REST", cluster_names=["c"]),
    "a source by the v2 transport": _source(
        "not_allowed", "transport_api_version", "GRPC", grpc_services=[_SERVICE], transport_api_version="V2"
    ),
    "HTTP/3 without a socket": _socket("cluster_conflict", _HTTP3, None),
    "HTTP/3 over TLS": _socket("cluster_conflict", _HTTP3, _TLS),
    "HTTP/3 over QUIC by another name": _socket("cluster_conflict", _HTTP3, {**_QUIC, "name": "quic"}),
    "HTTP/3 over TLS through a proxy": _socket("cluster_conflict", _HTTP3, _through_proxy(_TLS)),
    "HTTP/3 where another socket may match": _socket(
        "cluster_conflict",
        _HTTP3,
        None,
        transport_socket_matches=[{"name": "a", "match": {}, "transport_socket": _QUIC}],
    ),
    "HTTP/3 as downstream over TLS": _socket("cluster_conflict", _FOLLOWED, _TLS),
    "HTTP/3 if it can be over TLS": _socket("cluster_conflict", _AUTO_HTTP3, _TLS),
    "HTTP/3 if it can be without a cache": _socket(
        "missing_field",
        {"auto_config": {"http3_protocol_options": {}}},
        _QUIC,
        f"/typed_extension_protocol_options/{HTTP_OPTIONS}/auto_config/alternate_protocols_cache_options",
    ),
    "a protocol by negotiation without a socket": _socket("cluster_conflict", _AUTO, None),
    "a protocol by negotiation over plain text": _socket("cluster_conflict", _AUTO, _PLAIN),
    "a path of a socket that is too long": _static("too_long", "x" * (_PATH_BYTES + 1)),
    "an abstract path that is too long": _static("too_long", "@" + "x" * _PATH_BYTES),
    "a path in an assignment that is too long": assignment_case("too_long", _PIPE, **_member("x" * (_PATH_BYTES + 1))),
    "a path of a listener that is too long": _bound("too_long", _PATH_BYTES + 1),
}

TAKEN_TRANSPORTS: Mapping[str, Case] = {
    "names of a peer whose authority comes by SDS": upstream_tls_case(
        "",
        "",
        combined_validation_context={
            "default_validation_context": {"match_typed_subject_alt_names": _NAMES},
            "validation_context_sds_secret_config": sds_secret("v"),
        },
    ),
    "an internal listener": _internal("", address=None),
    "a source of a service": _source("", "", "DELTA_GRPC", grpc_services=[_SERVICE]),
    "a source by REST": _source("", "", "REST", cluster_names=["c"], refresh_delay="1s"),
    "HTTP/3 over QUIC": _socket("", _HTTP3, _QUIC),
    "HTTP/3 over QUIC through a proxy": _socket("", _HTTP3, _through_proxy(_QUIC)),
    "HTTP/3 by the name alone": _socket("", _HTTP3, {**_TLS, "name": "envoy.transport_sockets.quic"}),
    "HTTP/3 as downstream over QUIC": _socket("", _FOLLOWED, _QUIC),
    "HTTP/3 if it can be over QUIC": _socket("", _AUTO_HTTP3, _QUIC),
    "a protocol by negotiation over TLS": _socket("", _AUTO, {**_TLS, "name": "any"}),
    "a protocol by negotiation through a proxy": _socket("", _AUTO, _through_proxy(_TLS)),
    "HTTP/2 over plain text": _socket("", {"explicit_http_config": {"http2_protocol_options": {}}}, None),
    "a path of a socket as long as it may be": _static("", "x" * _PATH_BYTES),
    "a path of a listener as long as it may be": _bound("", _PATH_BYTES),
    "a long path where names are resolved": _static("", "x" * (_PATH_BYTES + 1), "STRICT_DNS"),
}

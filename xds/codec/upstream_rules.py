"""Rules that join a cluster's HTTP options with its transport socket, measured with Envoy 1.40.

HTTP/3 needs QUIC, and ``auto_config`` a socket that negotiates the protocol (ALPN). Envoy knows QUIC by the name of
the transport socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec import schema
from xds.codec.rules import MessageRule, Problem
from xds.model.resource_type import TYPE_PREFIX

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_SOCKETS = "envoy.extensions.transport_sockets"
_PROXY = f"{_SOCKETS}.http_11_proxy.v3.Http11ProxyUpstreamTransport"
_PLAIN = f"{_SOCKETS}.raw_buffer.v3.RawBuffer"
_QUIC_NAME = "envoy.transport_sockets.quic"
_PROXY_NAME = "envoy.transport_sockets.http_11_proxy"
_CODE = "cluster_conflict"


def transport_problems(cluster: Any) -> Iterator[Problem]:
    """The problems of the transport socket of a cluster that has HTTP options."""
    options = _read(HTTP_OPTIONS, cluster.typed_extension_protocol_options[HTTP_OPTIONS])
    if options is None:
        return
    if _speaks_http3(options):
        if not _is_quic(cluster.transport_socket):
            detail = f"HTTP/3 needs a transport socket named {_QUIC_NAME}"
            hint = f'typed_config: {{"@type": {TYPE_PREFIX}{_SOCKETS}.quic.v3.QuicUpstreamTransport}}'
            yield Problem(("transport_socket",), _CODE, detail, hint, is_absence=True)
    elif options.HasField("auto_config") and _is_plain(cluster.transport_socket):
        detail = "auto_config needs a transport socket that negotiates the protocol (ALPN)"
        hint = "set a transport_socket for TLS, or explicit_http_config"
        yield Problem(("transport_socket",), _CODE, detail, hint, is_absence=True)


def _speaks_http3(options: Any) -> bool:
    chosen = options.WhichOneof("upstream_protocol_options")
    return chosen is not None and getattr(options, chosen).HasField("http3_protocol_options")


def _is_quic(socket: Any) -> bool:
    """QUIC itself, or QUIC through a proxy."""
    if socket.name != _PROXY_NAME:
        return bool(socket.name == _QUIC_NAME)
    proxied = _read(_PROXY, socket.typed_config)
    return proxied is None or bool(proxied.transport_socket.name == _QUIC_NAME)


def _is_plain(socket: Any) -> bool:
    return not socket.name or socket.typed_config.type_url.rpartition("/")[2] == _PLAIN


def _read(kind: str, packed: Any) -> Any:
    """The message in an ``Any``; None for another type, and for bytes that do not parse (reported elsewhere)."""
    return schema.parsed(kind, packed.value) if packed.type_url.rpartition("/")[2] == kind else None


def _check_auto_config(config: Any) -> list[Problem]:
    """Check an ``AutoHttpConfig``: its cache is where Envoy remembers which servers speak HTTP/3."""
    if not config.HasField("http3_protocol_options") or config.HasField("alternate_protocols_cache_options"):
        return []
    detail = "auto_config with HTTP/3 needs alternate_protocols_cache_options"
    return [Problem(("alternate_protocols_cache_options",), "missing_field", detail, is_absence=True)]


UPSTREAM_RULES: Mapping[str, MessageRule] = {f"{HTTP_OPTIONS}.AutoHttpConfig": _check_auto_config}

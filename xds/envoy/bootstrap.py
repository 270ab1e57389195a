"""Bootstrap documents that connect a client to this server: for Envoy in each transport, and for gRPC libraries.

Sources: docs/internals/clients.md#envoy and docs/internals/clients.md#grpc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Any

from xds.model.node import Locality

Json = dict[str, Any]

XDS_CLUSTER = "xds_cluster"
ADMIN_HOST = "127.0.0.1"
ADMIN_KEY = "admin_address"  # in the node's metadata: the address of the proxy's admin interface, for operators
# Without HTTP/2 pings only TCP notices a silently broken connection, minutes later.
KEEPALIVE_INTERVAL = "30s"
KEEPALIVE_TIMEOUT = "5s"
CONNECT_TIMEOUT = "1s"
# By default Envoy's backoff grows to 30 s, so a fleet would reconnect that late after a restart of some seconds.
RECONNECT_BASE = "0.5s"
RECONNECT_MAX = "5s"
REST_REFRESH = "1s"
REST_TIMEOUT = "5s"
GRPC_SERVER_TEMPLATE = "grpc/server?xds.resource.listening_address=%s"

ADMIN_CLUSTER = "xds_admin"
READY_LISTENER = "xds_ready"
READY_PATHS = ("/ready", "/stats/prometheus")
TOKEN_SECRET = "xds_token"  # noqa: S105 - the name of the secret within the bootstrap

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_HTTP_FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
_NETWORK_FILTERS = "type.googleapis.com/envoy.extensions.filters.network"
_INJECTED_CREDENTIAL = "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic"
_TLS_CONTEXT = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
NO_LOCALITY = Locality()

_ADS: Json = {"ads": {}, "resource_api_version": "V3"}


class BootstrapMode(StrEnum):
    """How a client gets its configuration.

    ``ads-delta`` and ``ads``: all types on one stream, Delta or SotW. ``split-delta`` and ``split``: a stream for each
    type. ``rest``: polling over HTTP. ``grpc``: a bootstrap for gRPC libraries (``GRPC_XDS_BOOTSTRAP``).
    """

    ADS_DELTA = "ads-delta"
    ADS = "ads"
    SPLIT = "split"
    SPLIT_DELTA = "split-delta"
    REST = "rest"
    GRPC = "grpc"

    @property
    def api_type(self) -> str:
        """Envoy's ``ApiConfigSource.ApiType``."""
        if self is BootstrapMode.REST:
            return "REST"
        return "DELTA_GRPC" if self in {BootstrapMode.ADS_DELTA, BootstrapMode.SPLIT_DELTA} else "GRPC"

    @property
    def is_ads(self) -> bool:
        """True when all types share one stream."""
        return self in {BootstrapMode.ADS, BootstrapMode.ADS_DELTA}


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS files by their paths on the client's machine. ``certificate`` and ``private_key`` are for mutual TLS."""

    ca: str
    certificate: str = ""
    private_key: str = ""
    server_name: str = ""

    @classmethod
    def of(cls, ca: str, certificate: str, private_key: str) -> ClientTls | None:
        """The TLS files; None without ``ca``: the proxy then connects without TLS.

        Raises ``ValueError`` for a certificate or key that would not be used.
        """
        if bool(certificate) != bool(private_key):
            raise ValueError("the certificate of a proxy needs its key, and the key its certificate")
        if certificate and not ca:
            raise ValueError("the certificate of a proxy needs the trusted certificate authorities, which turn TLS on")
        return cls(ca, certificate, private_key) if ca else None


@dataclass(frozen=True, slots=True)
class BootstrapOptions:
    """The parameters of a bootstrap. ``host`` and ``port`` are the gRPC address of the server; for REST, the HTTP one.

    An empty ``node_id`` or ``node_cluster`` is left to Envoy's own flags, ``--service-node`` and ``--service-cluster``.
    With ``admin_port`` 0 Envoy chooses a free port. Any other port is also in the node's metadata (`ADMIN_KEY`), so
    that operators see it. ``load_reports`` lets Envoy open a load report stream over gRPC; not with REST. gRPC
    libraries report the load of clusters with ``lrs_server``, whatever the bootstrap says.

    ``token_path`` is a file on the proxy's machine with the token, which Envoy reads when it starts; ``token`` is the
    token itself. ``ready`` is an address where Envoy answers GET of `READY_PATHS` of its admin interface, and nothing
    else of it: for probes and scrapes from other machines.
    """

    node_id: str
    node_cluster: str
    host: str
    port: int
    mode: BootstrapMode = BootstrapMode.ADS_DELTA
    admin_port: int = 0
    locality: Locality = NO_LOCALITY
    tls: ClientTls | None = None
    token: str = ""
    load_reports: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    token_path: str = ""
    ready: tuple[str, int] | None = None


def bootstrap(options: BootstrapOptions) -> Json:
    """The bootstrap as a JSON value."""
    return _grpc_library(options) if options.mode is BootstrapMode.GRPC else _envoy(options)


def _envoy(options: BootstrapOptions) -> Json:
    document: Json = {
        "node": _node(options),
        "admin": {"address": _address(ADMIN_HOST, options.admin_port)},
        "static_resources": _static_resources(options),
        "dynamic_resources": _dynamic_resources(options),
    }
    if options.load_reports and options.mode is not BootstrapMode.REST:
        document["cluster_manager"] = {"load_stats_config": _grpc_source(options, "GRPC")}
    return document


def _node(options: BootstrapOptions) -> Json:
    locality = options.locality
    parts = {"region": locality.region, "zone": locality.zone, "sub_zone": locality.sub_zone}
    named = {"id": options.node_id, "cluster": options.node_cluster}
    node: Json = {key: value for key, value in named.items() if value}
    if any(parts.values()):
        node["locality"] = {key: value for key, value in parts.items() if value}
    metadata = dict(options.metadata)
    if options.admin_port and options.mode is not BootstrapMode.GRPC:
        metadata.setdefault(ADMIN_KEY, f"{ADMIN_HOST}:{options.admin_port}")
    if metadata:
        node["metadata"] = metadata
    return node


def _static_resources(options: BootstrapOptions) -> Json:
    resources: Json = {"clusters": [_xds_cluster(options)]}
    if options.token_path:
        secret = {"secret": {"filename": options.token_path}}
        resources["secrets"] = [{"name": TOKEN_SECRET, "generic_secret": secret}]
    if options.ready is not None:
        resources["clusters"].append(_static_cluster(ADMIN_CLUSTER, ADMIN_HOST, options.admin_port))
        resources["listeners"] = [_ready_listener(*options.ready)]
    return resources


def _dynamic_resources(options: BootstrapOptions) -> Json:
    if options.mode.is_ads:
        return {"ads_config": _api_source(options), "cds_config": _ADS, "lds_config": _ADS}
    source = {"api_config_source": _api_source(options), "resource_api_version": "V3"}
    return {"cds_config": source, "lds_config": source}


def _api_source(options: BootstrapOptions) -> Json:
    if options.mode is BootstrapMode.REST:
        return {
            "api_type": "REST",
            "transport_api_version": "V3",
            "cluster_names": [XDS_CLUSTER],
            "refresh_delay": REST_REFRESH,
            "request_timeout": REST_TIMEOUT,
        }
    # Envoy's node has 61 KB and would be sent with every ACK.
    return {**_grpc_source(options, options.mode.api_type), "set_node_on_first_message_only": True}


def _grpc_source(options: BootstrapOptions, api_type: str) -> Json:
    back_off = {"base_interval": RECONNECT_BASE, "max_interval": RECONNECT_MAX}
    service: Json = {"envoy_grpc": {"cluster_name": XDS_CLUSTER, "retry_policy": {"retry_back_off": back_off}}}
    if options.token:
        service["initial_metadata"] = [{"key": "authorization", "value": f"Bearer {options.token}"}]
    return {"api_type": api_type, "transport_api_version": "V3", "grpc_services": [service]}


def _xds_cluster(options: BootstrapOptions) -> Json:
    cluster = _static_cluster(XDS_CLUSTER, options.host, options.port)
    if options.mode is not BootstrapMode.REST:
        filters = _token_filters() if options.token_path else {}
        cluster["typed_extension_protocol_options"] = {_HTTP_OPTIONS: {**_http2_options(), **filters}}
    if options.tls is not None:
        cluster["transport_socket"] = _transport_socket(options.tls, options.host)
    return cluster


def _static_cluster(name: str, host: str, port: int) -> Json:
    endpoint = {"endpoint": {"address": _address(host, port)}}
    return {
        "name": name,
        **_discovery(host),
        "connect_timeout": CONNECT_TIMEOUT,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _token_filters() -> Json:
    """Initial metadata cannot come from a file, so a filter of the cluster adds the token to each request."""
    credential = {
        "@type": _INJECTED_CREDENTIAL,
        "credential": {"name": TOKEN_SECRET},
        "header": "authorization",
        "header_value_prefix": "Bearer ",
    }
    injector = {
        "@type": f"{_HTTP_FILTERS}.credential_injector.v3.CredentialInjector",
        "credential": {"name": "envoy.http.injected_credentials.generic", "typed_config": credential},
    }
    codec = {"@type": f"{_HTTP_FILTERS}.upstream_codec.v3.UpstreamCodec"}
    return {
        "http_filters": [
            {"name": "envoy.filters.http.credential_injector", "typed_config": injector},
            {"name": "envoy.filters.http.upstream_codec", "typed_config": codec},
        ]
    }


def _ready_listener(host: str, port: int) -> Json:
    """The rest of the admin interface stops the proxy, and shows keys: it stays on the loopback."""
    is_get = {"name": ":method", "string_match": {"exact": "GET"}}
    routes = [
        {"match": {"path": path, "headers": [is_get]}, "route": {"cluster": ADMIN_CLUSTER}} for path in READY_PATHS
    ]
    manager = {
        "@type": f"{_NETWORK_FILTERS}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": READY_LISTENER,
        "route_config": {"virtual_hosts": [{"name": READY_LISTENER, "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_HTTP_FILTERS}.router.v3.Router"}}
        ],
    }
    connections = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {"name": READY_LISTENER, "address": _address(host, port), "filter_chains": [{"filters": [connections]}]}


def _discovery(host: str) -> Json:
    """How Envoy finds the addresses of the host: all of them, for a server may listen on one family only."""
    return {"type": "STATIC"} if _is_address(host) else {"type": "STRICT_DNS", "dns_lookup_family": "ALL"}


def _http2_options() -> Json:
    keepalive = {"connection_keepalive": {"interval": KEEPALIVE_INTERVAL, "timeout": KEEPALIVE_TIMEOUT}}
    return {
        "@type": f"type.googleapis.com/{_HTTP_OPTIONS}",
        "explicit_http_config": {"http2_protocol_options": keepalive},
    }


def _transport_socket(tls: ClientTls, host: str) -> Json:
    validation: Json = {"trusted_ca": {"filename": tls.ca}}
    context: Json = {"validation_context": validation}
    if tls.certificate:
        pair = {"certificate_chain": {"filename": tls.certificate}, "private_key": {"filename": tls.private_key}}
        context["tls_certificates"] = [pair]
    name = tls.server_name or host
    if _is_address(name):
        validation["match_typed_subject_alt_names"] = [{"san_type": "IP_ADDRESS", "matcher": {"exact": name}}]
        config: Json = {"@type": _TLS_CONTEXT, "common_tls_context": context}
    else:
        validation["match_typed_subject_alt_names"] = [{"san_type": "DNS", "matcher": {"exact": name}}]
        config = {"@type": _TLS_CONTEXT, "sni": name, "common_tls_context": context}
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def _grpc_library(options: BootstrapOptions) -> Json:
    server = {
        "server_uri": f"{_bracketed(options.host)}:{options.port}",
        "channel_creds": [_channel_credentials(options.tls)],
        "server_features": ["xds_v3"],
    }
    return {
        "xds_servers": [server],
        "node": _node(options),
        "server_listener_resource_name_template": GRPC_SERVER_TEMPLATE,
    }


def _channel_credentials(tls: ClientTls | None) -> Json:
    if tls is None:
        return {"type": "insecure"}
    config = {"ca_certificate_file": tls.ca}
    if tls.certificate:
        config |= {"certificate_file": tls.certificate, "private_key_file": tls.private_key}
    return {"type": "tls", "config": config}


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

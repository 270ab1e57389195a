"""The two ports as the settings define them: rules, limits and addresses; warnings for the operator."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from xds.access.authorisation import Access, NodeAuthMode
from xds.admin.browser_rules import ANY, BrowserRules, is_address
from xds.cluster.fan_out import Trust
from xds.fleet.refused_streams import RecordRefusal
from xds.lrs.report_stream import LoadSettings
from xds.model.ip_address import address_text
from xds.protocol.requests import StreamLimits
from xds.server.counters import Metrics
from xds.server.flow.anonymous import AnonymousLimits
from xds.server.http_server import HttpLimits, HttpServer
from xds.server.options import ServerOptions
from xds.server.process import OpenFiles
from xds.settings.sections import GRPC_PORT, HTTP_PORT, LOOPBACK, TlsSettings
from xds.settings.settings import Settings, is_loopback

HTTP_KEEP_ALIVE_S = 75
HTTP_BACKLOG = 2048


def browser_rules(settings: Settings) -> BrowserRules:
    """The rules for requests of browsers, with the host names of this server.

    On an address that other machines can reach, any name is accepted unless names are set. The name that it advertises
    to other servers is one of its own.
    """
    http, tokens = settings.server.http, bool(settings.auth.accepted())
    has_certificates = http.tls is not None and http.tls.client_ca is not None
    own_names = () if is_loopback(http.host) or is_address(http.host.strip("[]")) else (http.host.lower(),)
    hosts = http.hosts or own_names or (() if is_loopback(http.host) else (ANY,))
    if advertised := urlsplit(settings.server.advertise).hostname:
        hosts = (*hosts, advertised)
    return BrowserRules(hosts, tokens and not has_certificates, tokens and has_certificates)


def unencrypted(settings: Settings) -> dict[str, bool]:
    """By port, whether other machines can reach it and send tokens and keys in clear text."""
    grpc, http = settings.server.grpc, settings.server.http
    return {
        "grpc": grpc.tls is None and not is_loopback(grpc.host),
        "http": http.tls is None and not is_loopback(http.host),
    }


def warnings_of(settings: Settings) -> Iterator[str]:
    """Warnings about access for the operator."""
    server, auth = settings.server, settings.auth
    exposed = [name for name, host in (("grpc", server.grpc.host), ("http", server.http.host)) if not is_loopback(host)]
    if exposed and auth.nodes.node_rules().mode is NodeAuthMode.OFF:
        where = " and ".join(f"server.{name}.host" for name in exposed)
        yield (
            f"auth.nodes: {where} is reachable from other machines, and no rule limits which node a client may be:"
            " every authenticated client can read the secrets of every group"
        )
    if asks_certificates(server.grpc.tls) and not asks_certificates(server.http.tls) and not auth.accepted():
        yield (
            "server.http: the gRPC port asks for certificates, but every process that reaches"
            f" {place(server.http.host, server.http.port)} may read and push everything; set auth.tokens"
        )


def asks_certificates(tls: TlsSettings | None) -> bool:
    """Whether a port asks clients for certificates."""
    return tls is not None and tls.client_ca is not None


def grpc_options(settings: Settings, access: Access) -> ServerOptions:
    """The gRPC server's options from the settings."""
    grpc, limits = settings.server.grpc, settings.limits
    tls = grpc.tls
    return ServerOptions(
        host=grpc.host,
        port=grpc.port,
        transport=grpc.transport,
        tls_certificate=tls.certificate if tls is not None else None,
        tls_key=tls.private_key if tls is not None else None,
        client_ca=tls.client_ca if tls is not None else None,
        client_cert_optional=tls is not None and tls.client_cert == "optional",
        access=access,
        limits=stream_limits(settings),
        order=settings.order.rules(),
        max_receive_bytes=limits.grpc_receive_bytes,
        requests_per_s=limits.requests_per_s,
        requests_burst=limits.requests_burst,
        in_flight_bytes=limits.in_flight_bytes,
        anonymous=AnonymousLimits(limits.anonymous_s, limits.anonymous_connections),
        nodes_shown=settings.metrics.per_node_limit if settings.metrics.per_node else 0,
        drain_s=settings.server.drain_s,
        max_stream_age_s=settings.server.max_stream_age_s,
        reuse_port=grpc.reuse_port,
        load=LoadSettings(settings.load.interval_s, settings.load.by_endpoint, settings.load.longest_interval_s),
    )


def stream_limits(settings: Settings) -> StreamLimits:
    """The limits of one stream."""
    limits = settings.limits
    return StreamLimits(
        names_per_request=limits.names_per_request,
        names_per_subscription=limits.names_per_subscription,
        types_per_stream=limits.types_per_stream,
        offer_timeout_s=settings.order.offer_timeout_s,
        node_bytes=limits.node_bytes,
        name_characters=limits.name_characters,
        unknown_name_bytes=limits.unknown_name_bytes,
    )


def server_trust(settings: Settings) -> Trust:
    """How this server trusts the others of its store, and what it shows them."""
    server, tls = settings.server, settings.server.http.tls
    if tls is None:
        return Trust(server.members_ca, allows_plain=server.insecure)
    return Trust(server.members_ca or tls.client_ca, tls.certificate, tls.private_key, server.insecure)


def http_server(
    settings: Settings, app: FastAPI, metrics: Metrics, files: OpenFiles, refuse: RecordRefusal
) -> HttpServer:
    """The server of the HTTP port, with its limits."""
    limits = settings.limits
    bounds = HttpLimits(limits.http_head_bytes, limits.http_head_s, limits.http_body_s, limits.http_body_bytes_per_s)
    config, connections = http_config(settings, app), limits.http_connections
    return HttpServer(config, bounds, metrics.limit_hits, files, connections, refuse)


def http_config(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """uvicorn's configuration."""
    tls = settings.server.http.tls
    client_ca = tls.client_ca if tls is not None else None
    return uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=HTTP_KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        ssl_certfile=tls.certificate if tls is not None else None,
        ssl_keyfile=tls.private_key if tls is not None else None,
        ssl_ca_certs=str(client_ca) if client_ca is not None else None,
        ssl_cert_reqs=_certificate_mode(tls),
    )


def _certificate_mode(tls: TlsSettings | None) -> ssl.VerifyMode:
    if tls is None or tls.client_ca is None:
        return ssl.CERT_NONE
    return ssl.CERT_OPTIONAL if tls.client_cert == "optional" else ssl.CERT_REQUIRED


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ``OSError`` that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=HTTP_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {place(host, port)}: {error.strerror or error}") from error


def reachable(host: str) -> str:
    """The address with which a client on this machine connects to a bound address."""
    bare = host.strip("[]")
    try:
        address = ip_address(bare)
    except ValueError:
        return bare
    return ("::1" if address.version == 6 else LOOPBACK) if address.is_unspecified else bare


def advertised(settings: Settings, http_port: int) -> str:
    """Where the other servers reach the admin port, which has this port (0: it is closed); empty where they do not."""
    server = settings.server
    if server.advertise or not http_port:
        return server.advertise
    return f"{'https' if server.http.tls is not None else 'http'}://{place(reachable(server.http.host), http_port)}"


def place(host: str, port: int) -> str:
    """``HOST:PORT``, IPv6 hosts in brackets."""
    return address_text(host.strip("[]"), port)


def welcome(grpc: tuple[str, int], http: tuple[str, int], *, is_https: bool = False) -> str:
    """Both addresses, and the next commands to run."""
    scheme = "https" if is_https else "http"
    client = "" if http == (LOOPBACK, HTTP_PORT) and not is_https else f" --server {scheme}://{place(*http)}"
    proxy = "" if grpc == (LOOPBACK, GRPC_PORT) else f" --xds-addr {place(*grpc)}"
    return (
        f"xDS   {place(*grpc)}\n"
        f"admin {place(*http)}\n"
        "next:\n"
        f"  xds envoy --node-id edge-1{proxy}\n"
        f"  xds init hello && xds apply -g default -f hello.yaml --wait{client}\n"
        f"  xds nodes{client}\n"
    )

"""The protocol of a service, and the kinds of protocols."""

from __future__ import annotations

from xds.catalog.defaults import ProxyDefaults, ServiceDefaults

TCP = "tcp"
HTTP_LIKE = frozenset(("http", "http2", "grpc"))


def service_protocol(defaults: ServiceDefaults | None, proxy_defaults: ProxyDefaults | None) -> str:
    """The protocol of a service.

    service-defaults without a protocol mean tcp, and override proxy-defaults, as in Consul.
    """
    if defaults is not None:
        return defaults.protocol.lower() or TCP
    return (proxy_defaults.protocol.lower() if proxy_defaults is not None else "") or TCP

"""service-defaults: the protocol of a service, and settings of its proxies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.catalog.proxy import EnvoyExtension, Expose, MeshGateway, TransparentProxy
from xds.catalog.shape import (
    COUNT,
    INT64,
    INTEGER,
    LOWER,
    SPAN,
    TEXT,
    TEXT_MAP,
    TEXTS,
    UINT32,
    Integer,
    ListOf,
    Message,
    Span,
    member,
    message,
)


def _not_negative(value: int) -> int:
    return max(value, 0)


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Circuit breakers; None means Envoy's default."""

    max_connections: int | None = member("MaxConnections", Integer(optional=True))
    max_pending_requests: int | None = member("MaxPendingRequests", Integer(optional=True))
    max_concurrent_requests: int | None = member("MaxConcurrentRequests", Integer(optional=True))


@dataclass(frozen=True, slots=True)
class PassiveHealthCheck:
    """Outlier detection; None and 0 mean Envoy's default, except that an enforcement of 0 is a value."""

    interval_ns: int = member("Interval", SPAN)
    max_failures: int = member("MaxFailures", COUNT)
    enforcing_consecutive_5xx: int | None = member("EnforcingConsecutive5xx", Integer(UINT32, optional=True))
    max_ejection_percent: int | None = member("MaxEjectionPercent", Integer(UINT32, optional=True))
    base_ejection_time_ns: int | None = member("BaseEjectionTime", Span(optional=True))


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """How a service, as downstream, calls one upstream (``name``) or, as defaults, all upstreams."""

    name: str = member("Name", TEXT)
    peer: str = member("Peer", TEXT)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)
    envoy_listener_json: str = member("EnvoyListenerJSON", TEXT)
    envoy_cluster_json: str = member("EnvoyClusterJSON", TEXT)
    protocol: str = member("Protocol", LOWER)
    connect_timeout_ms: int = member("ConnectTimeoutMs", Integer(INT64, normal=_not_negative))
    limits: UpstreamLimits | None = member("Limits", Message(UpstreamLimits))
    passive_health_check: PassiveHealthCheck | None = member("PassiveHealthCheck", Message(PassiveHealthCheck))
    mesh_gateway: MeshGateway = message("MeshGateway", MeshGateway)
    balance_outbound_connections: str = member("BalanceOutboundConnections", TEXT)


@dataclass(frozen=True, slots=True)
class UpstreamConfiguration:
    """``defaults`` apply to all upstreams, ``overrides`` to single ones."""

    overrides: tuple[UpstreamConfig, ...] = member("Overrides", ListOf(Message(UpstreamConfig)))
    defaults: UpstreamConfig | None = member("Defaults", Message(UpstreamConfig))


@dataclass(frozen=True, slots=True)
class Destination:
    """A service outside the mesh, by address and port."""

    addresses: tuple[str, ...] = member("Addresses", TEXTS)
    port: int = member("Port", INTEGER)


@dataclass(frozen=True, slots=True)
class RouteRateLimit:
    """A rate limit of requests to a path."""

    path_exact: str = member("PathExact", TEXT)
    path_prefix: str = member("PathPrefix", TEXT)
    path_regex: str = member("PathRegex", TEXT)
    requests_per_second: int = member("RequestsPerSecond", INTEGER)
    requests_max_burst: int = member("RequestsMaxBurst", INTEGER)


@dataclass(frozen=True, slots=True)
class InstanceRateLimits:
    """Rate limits of each instance."""

    requests_per_second: int = member("RequestsPerSecond", INTEGER)
    requests_max_burst: int = member("RequestsMaxBurst", INTEGER)
    routes: tuple[RouteRateLimit, ...] = member("Routes", ListOf(Message(RouteRateLimit)))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Rate limits of the inbound side."""

    instance_level: InstanceRateLimits = message("InstanceLevel", InstanceRateLimits)


@dataclass(frozen=True, slots=True)
class ServiceDefaults:
    """The defaults of the service with its name. An empty ``protocol`` means tcp, whatever proxy-defaults say."""

    kind: ClassVar[str] = "service-defaults"

    name: str = member("Name", TEXT, always=True)
    protocol: str = member("Protocol", LOWER, always=True)
    mode: str = member("Mode", TEXT)
    transparent_proxy: TransparentProxy = message("TransparentProxy", TransparentProxy)
    mutual_tls_mode: str = member("MutualTLSMode", TEXT)
    mesh_gateway: MeshGateway = message("MeshGateway", MeshGateway)
    expose: Expose = message("Expose", Expose)
    external_sni: str = member("ExternalSNI", TEXT)
    upstream_config: UpstreamConfiguration | None = member("UpstreamConfig", Message(UpstreamConfiguration))
    destination: Destination | None = member("Destination", Message(Destination))
    max_inbound_connections: int = member("MaxInboundConnections", INTEGER)
    local_connect_timeout_ms: int = member("LocalConnectTimeoutMs", INTEGER)
    local_request_timeout_ms: int = member("LocalRequestTimeoutMs", INTEGER)
    balance_inbound_connections: str = member("BalanceInboundConnections", TEXT)
    rate_limits: RateLimits | None = member("RateLimits", Message(RateLimits))
    envoy_extensions: tuple[EnvoyExtension, ...] = member("EnvoyExtensions", ListOf(Message(EnvoyExtension)))
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)

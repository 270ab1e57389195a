"""service-defaults: the protocol of a service, and settings of its proxies. proxy-defaults: settings of all proxies.

There is one entry of proxy-defaults, ``global``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.codec.findings import Findings, short_repr
from xds.consul.shape import (
    COUNT,
    FLAG,
    INT64,
    INTEGER,
    LOWER,
    OPAQUE,
    SPAN,
    TEXT,
    TEXT_MAP,
    TEXTS,
    UINT32,
    Integer,
    ListOf,
    Message,
    Path,
    Span,
    TextShape,
    member,
    message,
    named_values,
)
from xds.consul.shared import (
    EnvoyExtension,
    Expose,
    MeshGateway,
    TransparentProxy,
    check_choice,
    check_gateway,
    check_proxy,
    check_tenancy,
)
from xds.mesh.core.entries.resolver import WILDCARD, FailoverPolicy, LocalityPriority, check_locality, check_policy_mode

GLOBAL = "global"
_PROTOCOL = "protocol"

PROTOCOLS = ("", "tcp", "http", "http2", "grpc")
PORTS = range(1, 65_536)
PERCENT_LIMIT = 100
_BALANCES = ("", "exact_balance")
_NAME_LIMIT = 253  # of a host name
_LABEL = re.compile(r"[^.*\s/:]{1,63}")


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


def _name_or_global(name: str) -> str:
    return name or GLOBAL


@dataclass(frozen=True, slots=True)
class AccessLogs:
    """Access logs of the proxies."""

    enabled: bool = member("Enabled", FLAG)
    disable_listener_logs: bool = member("DisableListenerLogs", FLAG)
    type: str = member("Type", TEXT)
    path: str = member("Path", TEXT)
    json_format: str = member("JSONFormat", TEXT)
    text_format: str = member("TextFormat", TEXT)


@dataclass(frozen=True, slots=True)
class ProxyDefaults:
    """``config`` is an opaque map; the chain reads only the protocol from it."""

    kind: ClassVar[str] = "proxy-defaults"

    name: str = member("Name", TextShape(_name_or_global), always=True, default=GLOBAL)
    config: Mapping[str, object] = member("Config", OPAQUE, always=True)
    mode: str = member("Mode", TEXT)
    transparent_proxy: TransparentProxy = message("TransparentProxy", TransparentProxy)
    mutual_tls_mode: str = member("MutualTLSMode", TEXT)
    mesh_gateway: MeshGateway = message("MeshGateway", MeshGateway)
    expose: Expose = message("Expose", Expose)
    access_logs: AccessLogs | None = member("AccessLogs", Message(AccessLogs))
    envoy_extensions: tuple[EnvoyExtension, ...] = member("EnvoyExtensions", ListOf(Message(EnvoyExtension)))
    failover_policy: FailoverPolicy | None = member("FailoverPolicy", Message(FailoverPolicy))
    prioritize_by_locality: LocalityPriority | None = member("PrioritizeByLocality", Message(LocalityPriority))
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)

    @property
    def protocol(self) -> str:
        """``protocol`` of the config. Its key may be in any case: the lower-case key counts first, else the lowest."""
        keys = (
            [_PROTOCOL] if _PROTOCOL in self.config else sorted(key for key in self.config if key.lower() == _PROTOCOL)
        )
        value = self.config[keys[0]] if keys else ""
        return value if isinstance(value, str) else ""


def check_service_defaults(entry: ServiceDefaults, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    if entry.name == WILDCARD:
        detail = "service-defaults name must be the name of a service, and not a wildcard"
        findings.add("bad_name", detail, ("Name",))
    check_choice(entry.protocol, PROTOCOLS, "protocol", findings, ("Protocol",))
    check_proxy(entry.mode, entry.mutual_tls_mode, entry.mesh_gateway, entry.envoy_extensions, findings)
    _check_balance(entry.balance_inbound_connections, findings, ("BalanceInboundConnections",))
    if entry.upstream_config is not None and entry.destination is not None:
        detail = "UpstreamConfig and Destination are mutually exclusive for service defaults"
        findings.add("conflict", detail, ("Destination",))
    if entry.upstream_config is not None:
        for index, override in enumerate(entry.upstream_config.overrides):
            _check_override(override, findings, ("UpstreamConfig", "Overrides", index))
        if entry.upstream_config.defaults is not None:
            _check_upstream_defaults(entry.upstream_config.defaults, findings)
    if entry.destination is not None:
        _check_destination(entry.destination, findings)


def check_proxy_defaults(entry: ProxyDefaults, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    if entry.name != GLOBAL:
        detail = f"invalid name ({short_repr(entry.name)}), only {GLOBAL!r} is supported"
        findings.add("bad_name", detail, ("Name",))
    check_proxy(entry.mode, entry.mutual_tls_mode, entry.mesh_gateway, entry.envoy_extensions, findings)
    check_locality(entry.prioritize_by_locality, findings)
    if entry.failover_policy is not None:
        check_policy_mode(entry.failover_policy.mode, entry.failover_policy.regions, findings, ("FailoverPolicy",))


# Upstreams


def _check_override(override: UpstreamConfig, findings: Findings, path: Path) -> None:
    if not override.name:
        findings.add("missing_name", "an upstream override needs a Name", (*path, "Name"))
    if override.name == WILDCARD:
        findings.add("bad_name", "wildcard name is not supported", (*path, "Name"))
    check_tenancy(override.namespace, override.partition, findings, path)
    _check_upstream(override, findings, path)


def _check_upstream_defaults(defaults: UpstreamConfig, findings: Findings) -> None:
    path = ("UpstreamConfig", "Defaults")
    values = named_values(defaults)
    for field in ("Name", "Namespace", "Partition", "Peer"):
        if values[field]:
            findings.add("not_allowed", f"{field} must be empty in the defaults of upstreams", (*path, field))
    _check_upstream(defaults, findings, path)


def _check_upstream(config: UpstreamConfig, findings: Findings, path: Path) -> None:
    check_choice(config.protocol, PROTOCOLS, "protocol", findings, (*path, "Protocol"))
    check_gateway(config.mesh_gateway, findings, path)
    _check_balance(config.balance_outbound_connections, findings, (*path, "BalanceOutboundConnections"))
    if config.limits is not None:
        check_upstream_limits(config.limits, findings, (*path, "Limits"))
    if config.passive_health_check is not None:
        check_passive_health_check(config.passive_health_check, findings, (*path, "PassiveHealthCheck"))


def check_upstream_limits(limits: UpstreamLimits, findings: Findings, path: Path) -> None:
    """Check that no limit is negative."""
    for field, value in named_values(limits).items():
        if value is not None and value < 0:
            findings.add("negative", f"{field} cannot be negative", (*path, field))


def check_passive_health_check(check: PassiveHealthCheck, findings: Findings, path: Path) -> None:
    """Check that no interval is negative, and that percentages are at most 100."""
    values = named_values(check)
    for field in ("Interval", "BaseEjectionTime"):
        if values[field] is not None and values[field] < 0:
            findings.add("negative", f"{field} cannot be negative", (*path, field))
    for field in ("EnforcingConsecutive5xx", "MaxEjectionPercent"):
        if values[field] is not None and values[field] > PERCENT_LIMIT:
            findings.add("out_of_range", f"{field} must be a percentage between 0 and 100", (*path, field))


def _check_balance(value: str, findings: Findings, path: Path) -> None:
    check_choice(value, _BALANCES, "balance of connections", findings, path)


# Destinations outside the mesh


def _check_destination(destination: Destination, findings: Findings) -> None:
    path = ("Destination",)
    if not destination.addresses:
        findings.add("missing_field", "Destination must contain at least one valid address", (*path, "Addresses"))
    addresses = set()
    for index, address in enumerate(destination.addresses):
        if address in addresses:
            findings.add("duplicate_address", f"duplicate address {short_repr(address)}", (*path, "Addresses", index))
        elif not _is_address(address):
            detail = f"{short_repr(address)} is neither an IP address nor a host name"
            findings.add("bad_address", detail, (*path, "Addresses", index))
        addresses.add(address)
    if destination.port not in PORTS:
        findings.add("out_of_range", f"invalid Port number {destination.port}", (*path, "Port"))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        host = text.removesuffix(".")
        return 0 < len(host) <= _NAME_LIMIT and all(_LABEL.fullmatch(label) for label in host.split("."))
    return True

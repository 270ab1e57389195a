"""Rules for service-defaults and proxy-defaults."""

from __future__ import annotations

import ipaddress
import re

from xds.catalog.proxy_defaults import GLOBAL, ProxyDefaults
from xds.catalog.resolver import WILDCARD
from xds.catalog.resolver_rules import check_locality, check_policy_mode
from xds.catalog.service_defaults import Destination, PassiveHealthCheck, ServiceDefaults, UpstreamConfig
from xds.catalog.shape import Path
from xds.catalog.shared_rules import check_choice, check_common, check_gateway, check_place, check_proxy
from xds.codec.findings import Findings, short_repr

PROTOCOLS = ("", "tcp", "http", "http2", "grpc")
PORTS = range(1, 65_536)
PERCENT_LIMIT = 100
_BALANCES = ("", "exact_balance")
_NAME_LIMIT = 253  # of a host name
_LABEL = re.compile(r"[^.*\s/:]{1,63}")


def check_service_defaults(entry: ServiceDefaults, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    check_common(entry.name, entry.meta, entry.namespace, entry.partition, findings)
    if entry.name == WILDCARD:
        told = "service-defaults name must be the name of a service, and not a wildcard"
        findings.add("bad_name", told, ("Name",))
    check_choice(entry.protocol, PROTOCOLS, "protocol", findings, ("Protocol",))
    check_proxy(entry.mode, entry.mutual_tls_mode, entry.mesh_gateway, entry.envoy_extensions, findings)
    _check_balance(entry.balance_inbound_connections, findings, ("BalanceInboundConnections",))
    if entry.upstream_config is not None and entry.destination is not None:
        told = "UpstreamConfig and Destination are mutually exclusive for service defaults"
        findings.add("conflict", told, ("Destination",))
    if entry.upstream_config is not None:
        for index, override in enumerate(entry.upstream_config.overrides):
            _check_override(override, findings, ("UpstreamConfig", "Overrides", index))
        if entry.upstream_config.defaults is not None:
            _check_upstream_defaults(entry.upstream_config.defaults, findings)
    if entry.destination is not None:
        _check_destination(entry.destination, findings)


def check_proxy_defaults(entry: ProxyDefaults, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    check_common(entry.name, entry.meta, entry.namespace, entry.partition, findings)
    if entry.name != GLOBAL:
        told = f"invalid name ({short_repr(entry.name)}), only {GLOBAL!r} is supported"
        findings.add("bad_name", told, ("Name",))
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
    check_place(override.namespace, override.partition, findings, path)
    _check_upstream(override, findings, path)


def _check_upstream_defaults(defaults: UpstreamConfig, findings: Findings) -> None:
    path = ("UpstreamConfig", "Defaults")
    for field, value in (
        ("Name", defaults.name),
        ("Namespace", defaults.namespace),
        ("Partition", defaults.partition),
        ("Peer", defaults.peer),
    ):
        if value:
            findings.add("not_allowed", f"{field} must be empty in the defaults of upstreams", (*path, field))
    _check_upstream(defaults, findings, path)


def _check_upstream(config: UpstreamConfig, findings: Findings, path: Path) -> None:
    check_choice(config.protocol, PROTOCOLS, "protocol", findings, (*path, "Protocol"))
    check_gateway(config.mesh_gateway, findings, path)
    _check_balance(config.balance_outbound_connections, findings, (*path, "BalanceOutboundConnections"))
    if config.limits is not None:
        for field, value in (
            ("MaxConnections", config.limits.max_connections),
            ("MaxPendingRequests", config.limits.max_pending_requests),
            ("MaxConcurrentRequests", config.limits.max_concurrent_requests),
        ):
            if value is not None and value < 0:
                findings.add("negative", f"{field} cannot be negative", (*path, "Limits", field))
    if config.passive_health_check is not None:
        _check_passive(config.passive_health_check, findings, (*path, "PassiveHealthCheck"))


def _check_passive(check: PassiveHealthCheck, findings: Findings, path: Path) -> None:
    for field, value_ns in (("Interval", check.interval_ns), ("BaseEjectionTime", check.base_ejection_time_ns)):
        if value_ns is not None and value_ns < 0:
            findings.add("negative", f"{field} cannot be negative", (*path, field))
    for field, percent in (
        ("EnforcingConsecutive5xx", check.enforcing_consecutive_5xx),
        ("MaxEjectionPercent", check.max_ejection_percent),
    ):
        if percent is not None and percent > PERCENT_LIMIT:
            findings.add("out_of_range", f"{field} must be a percentage between 0 and 100", (*path, field))


def _check_balance(value: str, findings: Findings, path: Path) -> None:
    check_choice(value, _BALANCES, "balance of connections", findings, path)


# Destinations outside the mesh


def _check_destination(destination: Destination, findings: Findings) -> None:
    path = ("Destination",)
    if not destination.addresses:
        findings.add("missing_field", "Destination must contain at least one valid address", (*path, "Addresses"))
    seen = set()
    for index, address in enumerate(destination.addresses):
        if address in seen:
            findings.add("duplicate_address", f"duplicate address {short_repr(address)}", (*path, "Addresses", index))
        elif not _is_address(address):
            told = f"{short_repr(address)} is no IP address and no host name"
            findings.add("bad_address", told, (*path, "Addresses", index))
        seen.add(address)
    if destination.port not in PORTS:
        findings.add("out_of_range", f"invalid Port number {destination.port}", (*path, "Port"))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        host = text.removesuffix(".")
        return 0 < len(host) <= _NAME_LIMIT and all(_LABEL.fullmatch(label) for label in host.split("."))
    return True

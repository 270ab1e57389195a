"""Upstreams documents: the services that the proxies of a group call, and how. Pure.

An upstream is a service that the proxies reach at a local address, or that gRPC clients reach without a proxy. The
discovery chain of the service decides where their requests go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import reduce
from ipaddress import ip_address
from typing import Any

from xds.codec.findings import Findings, json_pointer, normalized_name, parse_pointer, short_repr
from xds.consul.quantities import MILLISECOND_NS, duration_text
from xds.consul.shape import (
    COUNT,
    FLAG,
    LOWER,
    SPAN,
    TEXT,
    Integer,
    ListOf,
    Message,
    Path,
    Shape,
    member,
    read_message,
    write_message,
)
from xds.consul.shared import check_choice
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.defaults import (
    PROTOCOLS,
    PassiveHealthCheck,
    ServiceDefaults,
    UpstreamConfig,
    UpstreamLimits,
    check_passive_health_check,
    check_upstream_limits,
)
from xds.model.errors import ValidationError, Violation
from xds.model.ip_address import is_ip_address
from xds.services.core.instance import NAME_CHARACTERS, check_service_name

Json = dict[str, Any]

UPSTREAMS_LIMIT = 1_000  # of one document
ESCAPE_CHARACTERS = 64 * 1024  # of a listener or cluster that a user wrote
REGEX_PROGRAM_SIZE = 100  # Envoy's default
AGGREGATE, PRIORITY = "aggregate", "priority"
FAILOVERS = (AGGREGATE, PRIORITY)
BALANCES = ("", "exact_balance")
LOOPBACK = "127.0.0.1"
_PORTS = range(65_536)
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z0-9])")
# Consul's names of fields, where ours differ.
_CONSUL_NAMES: Mapping[str, str] = {
    "destinationname": "service",
    "localbindaddress": "bind_address",
    "localbindport": "bind_port",
    "connecttimeoutms": "connect_timeout",
    "config": "write its fields into the upstream itself: protocol, connect_timeout, limits, passive_health_check",
}


class JsonObject(Shape):
    """An object, or its JSON as a string, as in Consul. Stored as the object."""

    def read(self, value: object, findings: Findings, path: Path) -> Mapping[str, object] | None:
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text) > ESCAPE_CHARACTERS:
            findings.add("too_large", f"{len(text)} characters; {ESCAPE_CHARACTERS} are allowed", path)
            return None
        try:
            document = json.loads(text)
        except ValueError as error:
            findings.add("bad_json", f"not JSON: {error}", path)
            return None
        if not isinstance(document, dict):
            findings.add("wrong_type", "expected a JSON object", path)
            return None
        return document


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service that proxies call.

    * ``datacenter``: the datacenter in which its chain is compiled; empty for that of the proxies;
    * ``bind_port``: the local port of the proxies; 0 for gRPC clients without a proxy, which get an ``api_listener``
      with the name of the upstream;
    * ``protocol`` and ``connect_timeout_ns`` override those of the chain; empty and 0 override nothing;
    * ``envoy_listener_json`` and ``envoy_cluster_json`` replace the lowered listener and cluster of a default chain.
      They have no effect on any other chain.
    """

    service: str = member("service", TEXT, always=True)
    datacenter: str = member("datacenter", TEXT)
    bind_address: str = member("bind_address", TEXT, default=LOOPBACK)
    bind_port: int = member("bind_port", Integer(_PORTS))
    protocol: str = member("protocol", LOWER)
    connect_timeout_ns: int = member("connect_timeout", SPAN)
    limits: UpstreamLimits | None = member("limits", Message(UpstreamLimits))
    passive_health_check: PassiveHealthCheck | None = member("passive_health_check", Message(PassiveHealthCheck))
    balance_outbound_connections: str = member("balance_outbound_connections", TEXT)
    envoy_listener_json: Mapping[str, object] | None = member("envoy_listener_json", JsonObject())
    envoy_cluster_json: Mapping[str, object] | None = member("envoy_cluster_json", JsonObject())

    @property
    def name(self) -> str:
        """The name of the upstream in names of resources: ``web``, or ``web?dc=dc2``. Unique in a document."""
        return f"{self.service}?dc={self.datacenter}" if self.datacenter else self.service

    @property
    def is_proxied(self) -> bool:
        """Whether a proxy accepts its connections. Other upstreams are for gRPC clients without a proxy."""
        return self.bind_port != 0

    @property
    def overrides(self) -> Overrides:
        """The overrides with which the chain is compiled."""
        return Overrides(self.protocol, self.connect_timeout_ns)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The settings for all upstreams of a document.

    * ``failover``: ``aggregate`` makes an aggregate cluster with one cluster per target; ``priority`` makes one cluster
      whose assignment has a priority per target. gRPC clients without a proxy always get the latter;
    * ``validate_clusters``: Envoy rejects routes to clusters that it does not have;
    * ``locality_aware``: requests are shared by the weights of localities. Traffic assignment needs this;
    * ``external_ca_file``: a file on the proxies with the certificates that verify external services
      (``ExternalSNI``); without it they are not verified;
    * ``regex_program_size``: the largest RE2 program that the proxies accept (``re2.max_program_size.error_level``).
    """

    failover: str = AGGREGATE
    validate_clusters: bool = False
    locality_aware: bool = False
    external_ca_file: str = ""
    regex_program_size: int = REGEX_PROGRAM_SIZE


@dataclass(frozen=True, slots=True)
class UpstreamsDocument:
    """The upstreams of the proxies of a group.

    ``service`` is the service of the proxies themselves. The ``UpstreamConfig`` of its service-defaults configures the
    upstreams where the document does not (``with_upstream_config``).
    """

    upstreams: tuple[Upstream, ...] = member("upstreams", ListOf(Message(Upstream)), always=True)
    service: str = member("service", TEXT)
    failover: str = member("failover", TEXT, default=AGGREGATE)
    validate_clusters: bool = member("validate_clusters", FLAG)
    locality_aware: bool = member("locality_aware", FLAG)
    external_ca_file: str = member("external_ca_file", TEXT)
    regex_program_size: int = member("regex_program_size", COUNT, default=REGEX_PROGRAM_SIZE)

    @property
    def proxies(self) -> ProxySettings:
        """The settings of the document without the upstreams."""
        return ProxySettings(**{one.name: getattr(self, one.name) for one in fields(ProxySettings)})

    def document(self) -> Json:
        """The document as JSON, without defaults. ``read_upstreams`` reads it."""
        written: Json = _in_snake_case(write_message(self))
        _drop_defaults(written, {"failover": AGGREGATE, "regex_program_size": REGEX_PROGRAM_SIZE})
        for upstream in written["upstreams"]:
            _drop_defaults(upstream, {"bind_address": LOOPBACK})
        return written


def read_upstreams(document: object) -> UpstreamsDocument:
    """A document from JSON; names are in snake_case or CamelCase. Raises ``ValidationError`` with every finding."""
    if not isinstance(document, dict):
        raise ValidationError([Violation("wrong_type", "an upstreams document must be an object with upstreams")])
    findings = Findings()
    read: UpstreamsDocument = read_message(UpstreamsDocument, document, findings, ())
    _check_document(read, findings)
    if findings:
        raise ValidationError([_as_written(_with_consul_name(one), document) for one in findings.violations])
    return read


def with_upstream_config(document: UpstreamsDocument, defaults: ServiceDefaults | None) -> UpstreamsDocument:
    """The document, completed by the ``UpstreamConfig`` of ``defaults``, the service-defaults of its own service.

    Values of the document count most, then the override of an upstream, then the defaults of all upstreams, as in
    Consul. A value is used as a whole: limits of two sources are not mixed. Raises ``ValidationError`` for an escape
    hatch that is not JSON, which is not checked when the entry is written.
    """
    config = None if defaults is None else defaults.upstream_config
    if defaults is None or config is None:
        return document
    findings = Findings()
    findings.name_resource(defaults.kind, defaults.name)
    common = [(config.defaults, ("UpstreamConfig", "Defaults"))] if config.defaults is not None else []
    own = {
        one.name: (one, ("UpstreamConfig", "Overrides", index))
        for index, one in enumerate(config.overrides)
        if not one.peer
    }
    upstreams = tuple(
        reduce(
            lambda upstream, source: _configured(upstream, source, findings),
            [*([own[one.service]] if one.service in own else []), *common],
            one,
        )
        for one in document.upstreams
    )
    if findings:
        raise ValidationError(list(dict.fromkeys(findings.violations)))
    return replace(document, upstreams=upstreams)


def _configured(upstream: Upstream, source: tuple[UpstreamConfig, Path], findings: Findings) -> Upstream:
    config, path = source
    return replace(
        upstream,
        protocol=upstream.protocol or config.protocol,
        connect_timeout_ns=upstream.connect_timeout_ns or config.connect_timeout_ms * MILLISECOND_NS,
        limits=upstream.limits or config.limits,
        passive_health_check=upstream.passive_health_check or config.passive_health_check,
        balance_outbound_connections=upstream.balance_outbound_connections or config.balance_outbound_connections,
        envoy_listener_json=upstream.envoy_listener_json
        or _parsed(config.envoy_listener_json, findings, (*path, "EnvoyListenerJSON")),
        envoy_cluster_json=upstream.envoy_cluster_json
        or _parsed(config.envoy_cluster_json, findings, (*path, "EnvoyClusterJSON")),
    )


def _parsed(text: str, findings: Findings, path: Path) -> Mapping[str, object] | None:
    return JsonObject().read(text, findings, path) if text else None


# Rules


def _check_document(document: UpstreamsDocument, findings: Findings) -> None:
    if len(document.upstreams) > UPSTREAMS_LIMIT:
        detail = f"{len(document.upstreams)} upstreams; {UPSTREAMS_LIMIT} are allowed"
        findings.add("too_many", detail, ("upstreams",))
        return
    check_choice(document.failover, FAILOVERS, "kind of failover", findings, ("failover",))
    if document.service:
        _check_name(document.service, findings, ("service",))
    for index, upstream in enumerate(document.upstreams):
        _check_upstream(upstream, findings, ("upstreams", index))
    _check_unique(document, findings)


def _check_upstream(upstream: Upstream, findings: Findings, path: Path) -> None:
    _check_name(upstream.service, findings, (*path, "service"))
    if upstream.datacenter:
        _check_name(upstream.datacenter, findings, (*path, "datacenter"), "datacenter")
    if not is_ip_address(upstream.bind_address):
        detail = f"{short_repr(upstream.bind_address)} is not an IP address"
        findings.add("bad_address", detail, (*path, "bind_address"))
    check_choice(upstream.protocol, PROTOCOLS, "protocol", findings, (*path, "protocol"))
    if upstream.connect_timeout_ns < 0:
        detail = f"a connect timeout of {duration_text(upstream.connect_timeout_ns)} is below 0"
        findings.add("negative", detail, (*path, "connect_timeout"))
    if upstream.limits is not None:
        check_upstream_limits(upstream.limits, findings, (*path, "limits"))
    if upstream.passive_health_check is not None:
        check_passive_health_check(upstream.passive_health_check, findings, (*path, "passive_health_check"))
    balance = upstream.balance_outbound_connections
    check_choice(balance, BALANCES, "balance of connections", findings, (*path, "balance_outbound_connections"))


def _check_name(name: str, findings: Findings, path: Path, noun: str = "service") -> None:
    if not name:
        findings.add("missing_field", f"the name of the {noun} is missing", path)
    elif check_service_name(name):
        detail = f"{short_repr(name)} is not a valid {noun} name"
        hint = f"letters, digits, '_', '-', '.', '~' and ':', at most {NAME_CHARACTERS}"
        findings.add("bad_name", detail, path, hint=hint)


def _check_unique(document: UpstreamsDocument, findings: Findings) -> None:
    """Check that no upstream and no local address occurs twice."""
    names: dict[str, int] = {}
    addresses: dict[tuple[str, int], int] = {}
    for index, one in enumerate(document.upstreams):
        path = ("upstreams", index)
        first = names.setdefault(one.name, index)
        if first != index and one.service:
            detail = f"upstream {short_repr(one.name)} occurs more than once"
            findings.add("duplicate_upstream", detail, path, hint=f"the other one is upstreams[{first}]")
        if not one.is_proxied or not is_ip_address(one.bind_address):
            continue
        first = addresses.setdefault((str(ip_address(one.bind_address)), one.bind_port), index)
        if first != index:
            detail = f"address {one.bind_address} with port {one.bind_port} occurs more than once"
            findings.add("duplicate_address", detail, (*path, "bind_port"), hint=f"upstreams[{first}] has it as well")


def _with_consul_name(finding: Violation) -> Violation:
    """A finding about an unknown field that has Consul's name, with a hint at our name."""
    if finding.code != "unknown_field":
        return finding
    ours = _CONSUL_NAMES.get(normalized_name(finding.pointer.rpartition("/")[2]), "")
    if not ours:
        return finding
    return replace(finding, hint=ours if " " in ours else f'did you mean "{ours}"?')


def _as_written(finding: Violation, document: object) -> Violation:
    """The finding with the names of fields in its pointer as the document writes them, in snake_case or CamelCase."""
    pointer: list[str] = []
    value = document
    for part in parse_pointer(finding.pointer):
        name = part
        if isinstance(value, dict):
            name = next((key for key in value if normalized_name(key) == normalized_name(part)), part)
            value = value.get(name)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = None  # the finding is about a missing field in a value of another type
        pointer.append(name)
    return replace(finding, pointer=json_pointer(tuple(pointer)))


# Writing


def _drop_defaults(document: Json, defaults: Mapping[str, object]) -> None:
    for name, default in defaults.items():
        if document.get(name) == default:
            del document[name]


def _in_snake_case(value: Any) -> Any:
    """Values by our field names in snake_case. JSON that users wrote is not changed."""
    if isinstance(value, dict):
        return dict(_snake_case_items(value))
    return [_in_snake_case(one) for one in value] if isinstance(value, list) else value


def _snake_case_items(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, one in value.items():
        name = _WORD.sub("_", key).lower()
        yield name, one if name.startswith("envoy_") else _in_snake_case(one)

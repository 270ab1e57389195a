"""The forms in which services are registered: those of Consul's agent and catalog, in JSON.

This module reads shapes only; `xds.services.core.registration_rules` checks the values. `IGNORED` lists the fields that
Consul's clients send and that have no effect here, so that they are not reported as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from xds.codec.findings import Findings
from xds.codec.scalar import json_kind
from xds.consul.shape import (
    FLAG,
    INTEGER,
    OPAQUE,
    SPAN,
    TEXT,
    TEXT_MAP,
    TEXTS,
    ListOf,
    MapOf,
    Message,
    Path,
    member,
    read_message,
)
from xds.services.core.registered_instance import NamedPort, ServiceAddress

# Without effect here: tokens, indices of answers, and details of checks that are refused by their kind.
_OF_CHECKS = """
    header method body disableredirects timeout shell tlsservername tlsskipverify grpcusetls h2pingusetls tcpusetls
    successbeforepassing failuresbeforewarning failuresbeforecritical outputmaxsize proxyhttp proxygrpc exposedport
"""
IGNORED = frozenset(("token", "createindex", "modifyindex", "contenthash", "peername", *_OF_CHECKS.split()))


@dataclass(frozen=True, slots=True)
class FormMessage(Message):
    """An object in a form. Fields without effect are skipped."""

    def read(self, value: object, findings: Findings, path: Path) -> Any:
        if isinstance(value, dict):
            return read_message(self.kind, value, findings, path, IGNORED)
        findings.add("wrong_type", f"expected an object, not {json_kind(value)}", path)
        return self.empty()


@dataclass(frozen=True, slots=True)
class WeightsForm:
    """The weights of an instance."""

    passing: int = member("Passing", INTEGER)
    warning: int = member("Warning", INTEGER)


@dataclass(frozen=True, slots=True)
class LocalityForm:
    """Where an instance runs."""

    region: str = member("Region", TEXT)
    zone: str = member("Zone", TEXT)
    sub_zone: str = member("SubZone", TEXT)


@dataclass(frozen=True, slots=True)
class CheckForm:
    """A check. Only TTL checks are supported; the fields of other kinds are read so that errors can name the kind."""

    check_id: str = member("CheckID", TEXT)
    id: str = member("ID", TEXT)
    name: str = member("Name", TEXT)
    status: str = member("Status", TEXT)
    notes: str = member("Notes", TEXT)
    service_id: str = member("ServiceID", TEXT)
    ttl_ns: int = member("TTL", SPAN)
    interval_ns: int = member("Interval", SPAN)
    deregister_after_ns: int = member("DeregisterCriticalServiceAfter", SPAN)
    http: str = member("HTTP", TEXT)
    h2ping: str = member("H2PING", TEXT)
    tcp: str = member("TCP", TEXT)
    udp: str = member("UDP", TEXT)
    grpc: str = member("GRPC", TEXT)
    args: tuple[str, ...] = member("Args", TEXTS)
    script_args: tuple[str, ...] = member("ScriptArgs", TEXTS)
    docker: str = member("DockerContainerID", TEXT)
    alias_node: str = member("AliasNode", TEXT)
    alias_service: str = member("AliasService", TEXT)
    os_service: str = member("OSService", TEXT)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)

    @property
    def kind(self) -> str:
        """Consul's name for the type of the check; empty for a TTL check."""
        for kind, field in (
            ("grpc", self.grpc),
            ("http", self.http),
            ("tcp", self.tcp),
            ("udp", self.udp),
            ("alias", self.alias_node or self.alias_service),
            ("docker", self.docker),
            ("script", self.args or self.script_args),
            ("h2ping", self.h2ping),
            ("os_service", self.os_service),
        ):
            if field:
                return kind
        return ""


@dataclass(frozen=True, slots=True)
class ServiceForm:
    """A service as it registers itself. In the forms of the catalog, ``service`` has its name."""

    id: str = member("ID", TEXT)
    name: str = member("Name", TEXT)
    service: str = member("Service", TEXT)
    tags: tuple[str, ...] = member("Tags", TEXTS)
    address: str = member("Address", TEXT)
    tagged_addresses: Mapping[str, ServiceAddress] = member("TaggedAddresses", MapOf(Message(ServiceAddress)))
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    port: int = member("Port", INTEGER)
    ports: tuple[NamedPort, ...] = member("Ports", ListOf(FormMessage(NamedPort)))
    weights: WeightsForm | None = member("Weights", FormMessage(WeightsForm))
    locality: LocalityForm | None = member("Locality", FormMessage(LocalityForm))
    enable_tag_override: bool = member("EnableTagOverride", FLAG)
    check: CheckForm | None = member("Check", FormMessage(CheckForm))
    checks: tuple[CheckForm, ...] = member("Checks", ListOf(FormMessage(CheckForm)))
    kind: str = member("Kind", TEXT)
    socket_path: str = member("SocketPath", TEXT)
    proxy: Mapping[str, object] = member("Proxy", OPAQUE)
    connect: Mapping[str, object] = member("Connect", OPAQUE)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)


@dataclass(frozen=True, slots=True)
class CatalogCheckForm:
    """A check in the catalog: a status that another program maintains. ``definition`` says how that program checks."""

    node: str = member("Node", TEXT)
    check_id: str = member("CheckID", TEXT)
    name: str = member("Name", TEXT)
    status: str = member("Status", TEXT)
    notes: str = member("Notes", TEXT)
    output: str = member("Output", TEXT)
    service_id: str = member("ServiceID", TEXT)
    service_name: str = member("ServiceName", TEXT)
    service_tags: tuple[str, ...] = member("ServiceTags", TEXTS)
    kind: str = member("Type", TEXT)
    definition: CheckForm | None = member("Definition", FormMessage(CheckForm))
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)


@dataclass(frozen=True, slots=True)
class CatalogForm:
    """A registration in the catalog: a node, with a service and checks on it."""

    node: str = member("Node", TEXT)
    id: str = member("ID", TEXT)
    address: str = member("Address", TEXT)
    datacenter: str = member("Datacenter", TEXT)
    tagged_addresses: Mapping[str, str] = member("TaggedAddresses", TEXT_MAP)
    node_meta: Mapping[str, str] = member("NodeMeta", TEXT_MAP)
    service: ServiceForm | None = member("Service", FormMessage(ServiceForm))
    check: CatalogCheckForm | None = member("Check", FormMessage(CatalogCheckForm))
    checks: tuple[CatalogCheckForm, ...] = member("Checks", ListOf(FormMessage(CatalogCheckForm)))
    skip_node_update: bool = member("SkipNodeUpdate", FLAG)
    locality: LocalityForm | None = member("Locality", FormMessage(LocalityForm))
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)


@dataclass(frozen=True, slots=True)
class DeregistrationForm:
    """A removal from the catalog: of an instance, a check, or a node with all its instances."""

    node: str = member("Node", TEXT)
    address: str = member("Address", TEXT)
    datacenter: str = member("Datacenter", TEXT)
    service_id: str = member("ServiceID", TEXT)
    check_id: str = member("CheckID", TEXT)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)


F = TypeVar("F", ServiceForm, CheckForm, CatalogForm, DeregistrationForm)


def read_form(kind: type[F], value: object, findings: Findings) -> F:
    """Read one form. Errors in its shape become findings."""
    form: F | None = FormMessage(kind).read(value, findings, ())
    return form if form is not None else kind()

"""Registered instances, nodes and checks, and their stored form. Pure.

An instance is registered on a node, under an id that is unique there. Instances that register themselves (Consul's
``/v1/agent`` paths) are all on `AGENT_NODE`; those that another program registers (``/v1/catalog``) are on nodes with a
name, an address and checks of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from xds.codec.findings import Findings
from xds.consul.quantities import SECOND_NS
from xds.consul.shape import (
    FLAG,
    INTEGER,
    SPAN,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Integer,
    ListOf,
    MapOf,
    Message,
    member,
    read_message,
    write_message,
)
from xds.model.ip_address import is_ip_address
from xds.model.node import Locality
from xds.services.core.instance import NOWHERE, VIRTUAL_TAGS, Check, Health, Instance

AGENT_NODE = "xds-server"
SOURCE_NAME = "registration"
MAINTENANCE = "_service_maintenance:"  # with the id of the instance: the id of the check
MAINTENANCE_NAME = "Service Maintenance Mode"
MAINTENANCE_KIND = "maintenance"
TTL_KIND = "ttl"
_STATUSES = frozenset(Health)


class Key(NamedTuple):
    """Where an instance is registered; an empty ``id`` stands for the node itself."""

    node: str
    id: str


class CheckKey(NamedTuple):
    """A check. Its id is unique on its node."""

    node: str
    id: str


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """One of the tagged addresses of an instance."""

    address: str = member("Address", TEXT, always=True)
    port: int = member("Port", INTEGER, always=True)


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A further port of an instance."""

    name: str = member("Name", TEXT, always=True)
    port: int = member("Port", INTEGER, always=True)


@dataclass(frozen=True, slots=True)
class RegisteredCheck:
    """A check, and its last reported status.

    With ``ttl_ns`` the status must be reported again within that time. An instance whose check has been critical for
    longer than ``deregister_after_ns`` is deregistered. 0 means no such limit.
    """

    id: str = member("CheckID", TEXT, always=True)
    name: str = member("Name", TEXT)
    status: str = member("Status", TEXT, always=True, default=Health.CRITICAL.value)
    kind: str = member("Type", TEXT)
    notes: str = member("Notes", TEXT)
    output: str = member("Output", TEXT)
    ttl_ns: int = member("TTL", SPAN)
    deregister_after_ns: int = member("DeregisterCriticalServiceAfter", SPAN)

    @property
    def health(self) -> Health:
        """The status."""
        return Health(self.status)

    @property
    def ttl_s(self) -> float:
        """The TTL in seconds."""
        return self.ttl_ns / SECOND_NS

    @property
    def deregister_after_s(self) -> float:
        """``deregister_after_ns`` in seconds."""
        return self.deregister_after_ns / SECOND_NS

    def check(self) -> Check:
        """The check as the catalog has it."""
        return Check(self.id, self.health, self.name, self.kind, self.output, self.notes)


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered instance.

    ``address`` is the registered address, which may be empty. ``host`` is the IP address where the instance is reached:
    ``address``, else that of its node, or the one that it registered from. ``actor`` registered it, at ``registered_s``
    (epoch seconds).
    """

    node: str = member("Node", TEXT, always=True)
    id: str = member("ID", TEXT, always=True)
    service: str = member("Service", TEXT, always=True)
    host: str = member("Host", TEXT)
    address: str = member("Address", TEXT)
    port: int = member("Port", INTEGER)
    ports: tuple[NamedPort, ...] = member("Ports", ListOf(Message(NamedPort)))
    tagged_addresses: Mapping[str, ServiceAddress] = member("TaggedAddresses", MapOf(Message(ServiceAddress)))
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    tags: tuple[str, ...] = member("Tags", TEXTS)
    weight: int = member("Weight", Integer(), always=True, default=1)
    warning_weight: int = member("WarningWeight", Integer(), always=True, default=1)
    region: str = member("Region", TEXT)
    zone: str = member("Zone", TEXT)
    sub_zone: str = member("SubZone", TEXT)
    enable_tag_override: bool = member("EnableTagOverride", FLAG)
    checks: tuple[RegisteredCheck, ...] = member("Checks", ListOf(Message(RegisteredCheck)))
    actor: str = member("Actor", TEXT)
    registered_s: int = member("RegisteredAt", INTEGER)

    @property
    def key(self) -> Key:
        """The node and id under which it is registered."""
        return Key(self.node, self.id)

    @property
    def instance_id(self) -> str:
        """The id of its instance in the catalog, unique over all nodes."""
        return self.id if self.node == AGENT_NODE else f"{self.node}/{self.id}"

    @property
    def locality(self) -> Locality:
        """Where it runs."""
        return Locality(self.region, self.zone, self.sub_zone) if self.region or self.zone or self.sub_zone else NOWHERE

    def instance(self, node: RegisteredNode | None = None) -> Instance:
        """The instance for the catalog, with the checks of its node."""
        checks = (*self.checks, *(node.checks if node is not None else ()))
        return Instance(
            self.instance_id,
            self.host,
            self.port,
            {each.name: each.port for each in self.ports},
            self.meta,
            self.tags,
            self.weight,
            self.warning_weight,
            self.locality,
            node=self.node,
            node_meta=node.meta if node is not None else {},
            checks=tuple(check.check() for check in checks),
            virtual_addresses=self._virtual_addresses(),
        )

    def _virtual_addresses(self) -> tuple[str, ...]:
        """The tagged addresses of clients. Host names are left out, because a proxy cannot use them."""
        tagged = (self.tagged_addresses.get(tag) for tag in VIRTUAL_TAGS)
        addresses = (one.address for one in tagged if one is not None)
        return tuple(dict.fromkeys(address for address in addresses if is_ip_address(address)))


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node that another program registered instances on. Its checks are checks of all of its instances."""

    name: str = member("Node", TEXT, always=True)
    address: str = member("Address", TEXT)
    id: str = member("ID", TEXT)
    tagged_addresses: Mapping[str, str] = member("TaggedAddresses", TEXT_MAP)
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    checks: tuple[RegisteredCheck, ...] = member("Checks", ListOf(Message(RegisteredCheck)))

    @property
    def key(self) -> Key:
        """The key of the node."""
        return Key(self.name, "")


Registered = Registration | RegisteredNode
R = TypeVar("R", bound=Registered)


def find_check(one: Registered, id: str) -> RegisteredCheck | None:
    """The check with this id."""
    return next((check for check in one.checks if check.id == id), None)


def with_check(one: R, check: RegisteredCheck) -> R:
    """The same with a check, which replaces one with the same id."""
    if find_check(one, check.id) is None:
        return replace(one, checks=(*one.checks, check))
    return replace(one, checks=tuple(check if each.id == check.id else each for each in one.checks))


def without_check(one: R, id: str) -> R:
    """The same without a check."""
    return replace(one, checks=tuple(check for check in one.checks if check.id != id))


def encode(one: Registered) -> bytes:
    """A registration or node as it is stored."""
    return json.dumps(write_message(one), separators=(",", ":"), ensure_ascii=False).encode()


def decode(body: bytes) -> Registered:
    """The registration or node of a stored form. Raises ``ValueError``."""
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    findings = Findings()
    kind: type[Registered] = Registration if "Service" in value else RegisteredNode
    registered: Registered = read_message(kind, value, findings, ())
    if findings:
        raise ValueError(str(findings.violations[0]))
    if not all(check.status in _STATUSES for check in registered.checks):
        raise ValueError("a check with an unknown status")
    return registered

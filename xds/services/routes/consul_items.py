"""Instances and checks in the JSON of Consul's catalog, health and agent API. Filters are evaluated on this JSON.

Objects are fixed records: a filter that names an unknown field is an error. Maps with keys of users are plain
dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from xds.filter.values import FixedRecord
from xds.services.core.index import ServiceInstance
from xds.services.core.instance import Check, Health, Instance
from xds.services.core.registered_instance import (
    AGENT_NODE,
    SOURCE_NAME,
    Key,
    RegisteredCheck,
    RegisteredNode,
    Registration,
    ServiceAddress,
)
from xds.services.core.registration_table import RegistrationTable

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShownInstance:
    """An instance of a service with its registration and node; both are None if it comes from another source."""

    service: str
    instance: Instance
    datacenter: str
    index: int
    registration: Registration | None = None
    node: RegisteredNode | None = None

    @property
    def id(self) -> str:
        """The id of the registration; without one, that of the instance."""
        return self.registration.id if self.registration is not None else self.instance.id

    @property
    def node_name(self) -> str:
        """The name of its node; without one, its address."""
        return self.instance.node or self.instance.address

    @property
    def node_address(self) -> str:
        """The address of its node; that of the instance where it is not known."""
        return self.node.address if self.node is not None else self.instance.address

    @property
    def address(self) -> str:
        """The address of the instance; empty if it has the address of its node."""
        return self.registration.address if self.registration is not None else self.instance.address


def shown_instances(
    instances: Iterable[ServiceInstance], table: RegistrationTable, datacenter: str, index: int
) -> list[ShownInstance]:
    """The instances of a service with their registrations, each with the name of the service that its source writes."""
    return [_shown(one, table, datacenter, index) for one in instances]


def _shown(one: ServiceInstance, table: RegistrationTable, datacenter: str, index: int) -> ShownInstance:
    instance, service = one.instance, one.service
    if one.source != SOURCE_NAME:
        return ShownInstance(service, instance, datacenter, index)
    id = instance.id if instance.node == AGENT_NODE else instance.id.removeprefix(f"{instance.node}/")
    registration = table.get(Key(instance.node, id))
    return ShownInstance(service, instance, datacenter, index, registration, table.node(instance.node))


# Catalog and health


def catalog_item(one: ShownInstance) -> FixedRecord:
    """An instance in the answer of ``/v1/catalog/service``."""
    return FixedRecord(
        **_node_fields(one),
        NodeMeta=dict(one.instance.node_meta),
        ServiceKind="",
        ServiceID=one.id,
        ServiceName=one.service,
        ServiceTags=list(one.instance.tags),
        ServiceAddress=one.address,
        ServiceTaggedAddresses=tagged_addresses(one.registration),
        ServiceWeights=_weights(one.instance),
        ServiceMeta=dict(one.instance.meta),
        ServicePort=one.instance.port,
        ServiceSocketPath="",
        ServiceEnableTagOverride=_is_overridable(one.registration),
        ServiceProxy=_no_proxy(),
        ServiceConnect=FixedRecord(),
        CreateIndex=one.index,
        ModifyIndex=one.index,
    )


def health_item(one: ShownInstance) -> FixedRecord:
    """An instance in the answer of ``/v1/health/service``."""
    return FixedRecord(
        Node=FixedRecord(
            **_node_fields(one),
            Meta=dict(one.instance.node_meta),
            CreateIndex=one.index,
            ModifyIndex=one.index,
        ),
        Service=_service(one),
        Checks=[check_item(one, check) for check in one.instance.checks],
    )


def check_item(one: ShownInstance, check: Check) -> FixedRecord:
    """A check of an instance, or of its node."""
    is_of_node = one.node is not None and any(each.id == check.id for each in one.node.checks)
    return _check(
        one.node_name,
        check,
        "" if is_of_node else one.id,
        "" if is_of_node else one.service,
        () if is_of_node else one.instance.tags,
        one.index,
    )


def is_of_service(item: Mapping[str, Any]) -> bool:
    """Whether a check is one of an instance, not of its node."""
    return bool(item["ServiceID"])


def _node_fields(one: ShownInstance) -> Json:
    return {
        "ID": one.node.id if one.node is not None else "",
        "Node": one.node_name,
        "Address": one.node_address,
        "Datacenter": one.instance.datacenter or one.datacenter,
        "TaggedAddresses": dict(one.node.tagged_addresses) or None if one.node is not None else None,
    }


def _service(one: ShownInstance) -> FixedRecord:
    return FixedRecord(
        ID=one.id,
        Service=one.service,
        Tags=list(one.instance.tags),
        Address=one.address,
        TaggedAddresses=tagged_addresses(one.registration),
        Meta=dict(one.instance.meta) or None,
        Port=one.instance.port,
        Weights=_weights(one.instance),
        EnableTagOverride=_is_overridable(one.registration),
        Proxy=_no_proxy(),
        Connect=FixedRecord(),
        CreateIndex=one.index,
        ModifyIndex=one.index,
    )


def _weights(instance: Instance) -> FixedRecord:
    return FixedRecord(Passing=instance.weight, Warning=instance.warning_weight)


def _is_overridable(one: Registration | None) -> bool:
    return one is not None and one.enable_tag_override


def _no_proxy() -> FixedRecord:
    return FixedRecord(Mode="", MeshGateway=FixedRecord(), Expose=FixedRecord())


def tagged_addresses(one: Registration | None) -> dict[str, FixedRecord]:
    """The tagged addresses of an instance. Those of an instance that registered itself include its own address."""
    if one is None:
        return {}
    addresses = dict(one.tagged_addresses)
    if one.node == AGENT_NODE and one.address:
        version = ip_address(one.address).version
        for side in ("lan", "wan"):
            addresses.setdefault(f"{side}_ipv{version}", ServiceAddress(one.address, one.port))
    return {tag: FixedRecord(Address=each.address, Port=each.port) for tag, each in sorted(addresses.items())}


def _check(node: str, check: Check, service_id: str, service: str, tags: Sequence[str], index: int) -> FixedRecord:
    return FixedRecord(
        Node=node,
        CheckID=check.id,
        Name=check.name,
        # Consul has no status for draining. A draining instance gets no new requests, so it is critical.
        Status=(Health.CRITICAL if check.status is Health.DRAINING else check.status).value,
        Notes=check.notes,
        Output=check.output,
        ServiceID=service_id,
        ServiceName=service,
        ServiceTags=list(tags),
        Type=check.kind,
        Interval="",
        Timeout="",
        ExposedPort=0,
        Definition=FixedRecord(),
        CreateIndex=index,
        ModifyIndex=index,
    )


# The agent


def agent_service(one: Registration, datacenter: str) -> FixedRecord:
    """An instance in the answer of ``/v1/agent/services``."""
    return FixedRecord(
        ID=one.id,
        Service=one.service,
        Tags=list(one.tags),
        Meta=dict(one.meta),
        Port=one.port,
        Address=one.address,
        TaggedAddresses=tagged_addresses(one),
        Weights=FixedRecord(Passing=one.weight, Warning=one.warning_weight),
        EnableTagOverride=one.enable_tag_override,
        Datacenter=datacenter,
    )


def agent_check(one: Registration, check: RegisteredCheck) -> FixedRecord:
    """A check in the answer of ``/v1/agent/checks``."""
    return _check(one.node, check.check(), one.id, one.service, one.tags, 0)


# Shapes for filters, and fields that are left out when they are empty

_SAMPLE = ShownInstance("", Instance("", "", 0, checks=(Check("", Health.PASSING),)), "", 0, Registration("", "", ""))
CATALOG_SHAPE = catalog_item(_SAMPLE)
HEALTH_SHAPE = health_item(_SAMPLE)
CHECK_SHAPE = check_item(_SAMPLE, _SAMPLE.instance.checks[0])
AGENT_SERVICE_SHAPE = agent_service(Registration("", "", ""), "")


def trimmed(item: FixedRecord) -> FixedRecord:
    """An item without the fields that Consul leaves out when they are empty."""
    for holder, field in (
        (item, "TaggedAddresses"),
        (item, "ServiceTaggedAddresses"),
        (item.get("Service"), "TaggedAddresses"),
    ):
        if isinstance(holder, FixedRecord) and holder.get(field) == {}:
            del holder[field]
    return item

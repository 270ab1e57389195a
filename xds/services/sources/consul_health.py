"""Answers of Consul's `/v1/health/service/NAME` as instances. Pure.

The answer lists, for each instance, the node, the service and the checks of both (docs/services.md#consul).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from xds.model.ip_address import is_ip_address
from xds.model.node import Locality
from xds.services.core.instance import OUTPUT_CHARACTERS, VIRTUAL_TAGS, Check, Health, Instance
from xds.services.core.source import SourceError
from xds.services.sources.json_members import Json, MemberError, object_of, objects, scalar, text, texts, texts_by_name

_STATUSES = {status.value: status for status in (Health.PASSING, Health.WARNING, Health.CRITICAL)}
_TEXT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """How instances are read.

    * ``own_datacenter``: instances in other datacenters are reached at the addresses tagged ``wan``, if they have any;
    * ``region_meta``, ``zone_meta``: keys of the metadata of services and nodes, for registrations without locality.
    """

    own_datacenter: str = "dc1"
    region_meta: str = ""
    zone_meta: str = ""


def read_instances(body: bytes, options: InstanceOptions) -> list[Instance]:
    """The instances of an answer. Raises ``SourceError`` for an answer that is not of Consul's form.

    Addresses and ports are not checked here: the sink leaves out unusable instances, and reports them.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"the answer is not valid JSON: {error}") from error
    try:
        return [_instance(entry, options) for entry in objects({"the answer": answer}, "the answer")]
    except MemberError as error:
        raise SourceError(str(error)) from error


def _instance(entry: Json, options: InstanceOptions) -> Instance:
    node, service = object_of(entry, "Node"), object_of(entry, "Service")
    name = text(node, "Node")
    datacenter = text(node, "Datacenter")
    is_own = datacenter in ("", options.own_datacenter)
    address, port = _address(node, service, is_own=is_own)
    weights = object_of(service, "Weights")
    return Instance(
        id=f"{name}/{text(service, 'ID') or text(service, 'Service')}",
        address=address,
        port=port,
        meta=texts_by_name(service, "Meta"),
        tags=tuple(texts(service, "Tags")),
        weight=scalar(weights, "Passing", 1),
        warning_weight=scalar(weights, "Warning", 1),
        locality=_locality(node, service, options),
        datacenter="" if is_own else datacenter,
        node=name,
        node_meta=texts_by_name(node, "Meta"),
        checks=tuple(_check(check) for check in objects(entry, "Checks")),
        virtual_addresses=_virtual_addresses(service),
    )


def _virtual_addresses(service: Json) -> tuple[str, ...]:
    """The virtual addresses among the tagged ones. Host names are left out, because proxies cannot use them."""
    tagged = object_of(service, "TaggedAddresses")
    addresses = (text(object_of(tagged, tag), "Address") for tag in VIRTUAL_TAGS)
    return tuple(dict.fromkeys(address for address in addresses if is_ip_address(address)))


def _address(node: Json, service: Json, *, is_own: bool) -> tuple[str, int]:
    """Address and port: of the service, else of its node. In another datacenter the ``wan`` ones count first."""
    port = scalar(service, "Port", 0)
    if not is_own:
        wan = object_of(object_of(service, "TaggedAddresses"), "wan")
        if text(wan, "Address"):
            return text(wan, "Address"), scalar(wan, "Port", 0) or port
    service_address = text(service, "Address")
    if service_address:
        return service_address, port
    if not is_own and (node_address := text(object_of(node, "TaggedAddresses"), "wan")):
        return node_address, port
    return text(node, "Address"), port


def _locality(node: Json, service: Json, options: InstanceOptions) -> Locality:
    """The locality of the service, else of the node, else that in the metadata."""
    for place in (object_of(service, "Locality"), object_of(node, "Locality")):
        if text(place, "Region") or text(place, "Zone"):
            return Locality(text(place, "Region"), text(place, "Zone"))
    meta = {**texts_by_name(node, "Meta"), **texts_by_name(service, "Meta")}
    return Locality(meta.get(options.region_meta, ""), meta.get(options.zone_meta, ""))


def _check(check: Json) -> Check:
    status = text(check, "Status")
    if status not in _STATUSES:
        raise SourceError(f"the status of a check is {status[:_TEXT_CHARACTERS]!r}, not one of {', '.join(_STATUSES)}")
    return Check(
        text(check, "CheckID"),
        _STATUSES[status],
        name=text(check, "Name"),
        kind=text(check, "Type"),
        output=text(check, "Output")[:OUTPUT_CHARACTERS],
        notes=text(check, "Notes")[:OUTPUT_CHARACTERS],
    )

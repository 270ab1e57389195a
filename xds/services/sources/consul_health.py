"""Answers of Consul's `/v1/health/service/NAME` as instances. Pure.

The answer lists, for each instance, the node, the service and the checks of both (docs/services.md#consul).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xds.model.ip_address import is_ip_address
from xds.model.node import Locality
from xds.services.core.instance import OUTPUT_CHARACTERS, VIRTUAL_TAGS, Check, Health, Instance
from xds.services.core.source import SourceError

Json = Mapping[str, Any]

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
    return [_instance(entry, options) for entry in _objects(answer, "the answer")]


def _instance(entry: Json, options: InstanceOptions) -> Instance:
    node, service = _object(entry, "Node"), _object(entry, "Service")
    name = _text(node, "Node")
    datacenter = _text(node, "Datacenter")
    is_own = datacenter in ("", options.own_datacenter)
    address, port = _address(node, service, is_own=is_own)
    weights = _object(service, "Weights")
    return Instance(
        id=f"{name}/{_text(service, 'ID') or _text(service, 'Service')}",
        address=address,
        port=port,
        meta=_texts(service, "Meta"),
        tags=tuple(_strings(service, "Tags")),
        weight=_number(weights, "Passing", 1),
        warning_weight=_number(weights, "Warning", 1),
        locality=_locality(node, service, options),
        datacenter="" if is_own else datacenter,
        node=name,
        node_meta=_texts(node, "Meta"),
        checks=tuple(_check(check) for check in _objects(entry.get("Checks"), "Checks")),
        virtual_addresses=_virtual_addresses(service),
    )


def _virtual_addresses(service: Json) -> tuple[str, ...]:
    """The virtual addresses among the tagged ones. Host names are left out, because proxies cannot use them."""
    tagged = _object(service, "TaggedAddresses")
    addresses = (_text(_object(tagged, tag), "Address") for tag in VIRTUAL_TAGS)
    return tuple(dict.fromkeys(address for address in addresses if is_ip_address(address)))


def _address(node: Json, service: Json, *, is_own: bool) -> tuple[str, int]:
    """Address and port: of the service, else of its node. In another datacenter the ``wan`` ones count first."""
    port = _number(service, "Port", 0)
    if not is_own:
        wan = _object(_object(service, "TaggedAddresses"), "wan")
        if _text(wan, "Address"):
            return _text(wan, "Address"), _number(wan, "Port", 0) or port
    service_address = _text(service, "Address")
    if service_address:
        return service_address, port
    if not is_own and (node_address := _text(_object(node, "TaggedAddresses"), "wan")):
        return node_address, port
    return _text(node, "Address"), port


def _locality(node: Json, service: Json, options: InstanceOptions) -> Locality:
    """The locality of the service, else of the node, else that in the metadata."""
    for place in (_object(service, "Locality"), _object(node, "Locality")):
        if _text(place, "Region") or _text(place, "Zone"):
            return Locality(_text(place, "Region"), _text(place, "Zone"))
    meta = {**_texts(node, "Meta"), **_texts(service, "Meta")}
    return Locality(meta.get(options.region_meta, ""), meta.get(options.zone_meta, ""))


def _check(check: Json) -> Check:
    status = _text(check, "Status")
    if status not in _STATUSES:
        raise SourceError(f"the status of a check is {status[:_TEXT_CHARACTERS]!r}, not one of {', '.join(_STATUSES)}")
    return Check(
        _text(check, "CheckID"),
        _STATUSES[status],
        name=_text(check, "Name"),
        kind=_text(check, "Type"),
        output=_text(check, "Output")[:OUTPUT_CHARACTERS],
        notes=_text(check, "Notes")[:OUTPUT_CHARACTERS],
    )


# Values are checked while they are read. Consul writes null for an empty list or object.


def _objects(value: Any, place: str) -> Iterator[Json]:
    if not isinstance(value, list | None):
        raise SourceError(f"{place} must be a list, not {_short_json(value)}")
    for one in value or ():
        if not isinstance(one, dict):
            raise SourceError(f"an element of {place} must be an object, not {_short_json(one)}")
        yield one


def _object(parent: Json, key: str) -> Json:
    value = parent.get(key)
    if not isinstance(value, dict | None):
        raise SourceError(f"{key} must be an object, not {_short_json(value)}")
    return value or {}


def _text(parent: Json, key: str) -> str:
    value = parent.get(key)
    if not isinstance(value, str | None):
        raise SourceError(f"{key} must be a string, not {_short_json(value)}")
    return value or ""


def _number(parent: Json, key: str, default: int) -> int:
    value = parent.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise SourceError(f"{key} must be an integer, not {_short_json(value)}")
    return value


def _strings(parent: Json, key: str) -> list[str]:
    value = parent.get(key)
    if not isinstance(value, list | None) or not all(isinstance(one, str) for one in value or ()):
        raise SourceError(f"{key} must be a list of strings, not {_short_json(value)}")
    return value or []


def _texts(parent: Json, key: str) -> Mapping[str, str]:
    texts = _object(parent, key)
    if not all(isinstance(value, str) for value in texts.values()):
        raise SourceError(f"a value of {key} must be a string, not {_short_json(texts)}")
    return texts


def _short_json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}..."

"""Instances of services: where a service can be reached, with its health.

Sources observe instances (`xds.services.core.source`); proxies get them as endpoints. Instances are observed state:
they make no revision and are never rolled back (docs/services.md). Filters see them as records, in the names of Consul
(`instance_record`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from xds.filter.values import FixedRecord
from xds.model.errors import Violation
from xds.model.ip_address import canonical_ipv6, is_ip_address
from xds.model.node import Locality

NAME_CHARACTERS = 255
META_PAIRS = 64
META_KEY_CHARACTERS = 128
META_VALUE_CHARACTERS = 512
TAGS = 1024  # Consul bounds metadata, but not tags: proxies that are configured by tags have hundreds
NAMED_PORTS = 64
CHECKS = 64
VIRTUAL_ADDRESSES = 8
WEIGHT_LIMIT = 65_535
OUTPUT_CHARACTERS = 4096  # of a check; longer output is cut
VIRTUAL_TAGS = ("virtual", "consul-virtual")  # of Consul's tagged addresses

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~:-]*")
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_NO_PORTS: Mapping[str, int] = MappingProxyType({})
NOWHERE = Locality()


class Health(StrEnum):
    """The status of a check and of an instance, in Consul's words. ``DRAINING``: the instance is about to end."""

    PASSING = "passing"
    WARNING = "warning"
    CRITICAL = "critical"
    DRAINING = "draining"


_WORST_LAST = (Health.PASSING, Health.WARNING, Health.DRAINING, Health.CRITICAL)


@dataclass(frozen=True, slots=True)
class Check:
    """One health check of an instance. ``kind`` says who checks (``ttl``, ``http``, ``kubernetes`` ...)."""

    id: str
    status: Health
    name: str = ""
    kind: str = ""
    output: str = ""
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a service, as a source observes it.

    * ``id``: unique among the instances that the source shows of the service;
    * ``address``: an IP address, since Envoy resolves no names in assignments. IPv6 addresses are stored in their
      canonical spelling (RFC 5952): Envoy takes two spellings for one endpoint, and keeps the first;
    * ``ports``: further ports by name; ``port`` is the port without a name;
    * ``weight`` counts while the instance is passing, ``warning_weight`` while a check warns;
    * ``datacenter``: empty for that of this server;
    * ``node``: the machine or pod that runs the instance;
    * ``virtual_addresses``: IP addresses that stand for the service as a whole.
    """

    id: str
    address: str
    port: int
    ports: Mapping[str, int] = field(default_factory=lambda: _NO_PORTS, hash=False)
    meta: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS, hash=False)
    tags: tuple[str, ...] = ()
    weight: int = 1
    warning_weight: int = 1
    locality: Locality = NOWHERE
    datacenter: str = ""
    node: str = ""
    node_meta: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS, hash=False)
    checks: tuple[Check, ...] = ()
    virtual_addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if ":" in self.address:
            object.__setattr__(self, "address", canonical_ipv6(self.address))

    @property
    def health(self) -> Health:
        """The worst status of the checks; passing if there are none."""
        if len(self.checks) == 1:
            return self.checks[0].status
        return worst(check.status for check in self.checks)


def worst(statuses: Iterable[Health]) -> Health:
    """The worst of these statuses; passing if there are none."""
    return max(statuses, key=_WORST_LAST.index, default=Health.PASSING)


def check_service_name(name: str, pointer: str = "") -> list[Violation]:
    """The findings in the name of a service."""
    if len(name) <= NAME_CHARACTERS and _NAME.fullmatch(name):
        return []
    detail = (
        f"{name!r} is not a valid service name: letters, digits, '_', '-', '.', '~' and ':', at most {NAME_CHARACTERS}"
    )
    return [Violation("invalid_service_name", detail, pointer=pointer)]


def check_instance(one: Instance, pointer: str = "") -> list[Violation]:
    """The findings in an instance. The catalog leaves out an instance with findings, and reports them."""
    if not _has_plain_values(one) and (wrong := list(_check_values(one, pointer))):
        return wrong
    violations = [*_check_addresses(one, pointer), *_check_sizes(one, pointer)]
    for label, weight in (("weight", one.weight), ("warning_weight", one.warning_weight)):
        if not 0 <= weight <= WEIGHT_LIMIT:
            detail = f"{label} is {weight}, not in 0..{WEIGHT_LIMIT}"
            violations.append(Violation("invalid_weight", detail, pointer=f"{pointer}/{label}"))
    return violations


# A source may be foreign code: its values may have wrong types, or texts that cannot be encoded.


def _has_plain_values(one: Instance) -> bool:
    """Whether all values have their types and all texts are ASCII. A fast check; False proves nothing."""
    try:
        where = one.locality
        texts = [one.id, one.address, one.datacenter, one.node, where.region, where.zone, where.sub_zone]
        texts += (*one.tags, *one.meta, *one.meta.values(), *one.node_meta, *one.node_meta.values())
        texts += (*one.ports, *one.virtual_addresses)
        kinds = {int, type(one.port), type(one.weight), type(one.warning_weight), *map(type, one.ports.values())}
        for check in one.checks:
            texts += (check.id, check.name, check.kind, check.output, check.notes)
            kinds.add(int if type(check.status) is Health else str)
        return "".join(texts).isascii() and len(kinds) == 1
    except (TypeError, AttributeError):
        return False


def _check_values(one: Instance, pointer: str) -> Iterator[Violation]:
    """The findings in the types of values, and in texts."""
    for name, is_valid in _VALUE_CHECKS.items():
        try:
            wrong = "" if is_valid(getattr(one, name)) else "a value of another type"
        except UnicodeEncodeError:
            wrong = "a text with half a surrogate pair"
        except (TypeError, AttributeError):
            wrong = "a value of another type"
        if wrong:
            yield Violation("invalid_value", f"{name} has {wrong}", pointer=f"{pointer}/{name}")


def _are_texts(*values: str) -> bool:
    """True for texts. Raises ``TypeError`` for other values, ``UnicodeEncodeError`` for unencodable text."""
    return "".join(values).encode() is not None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text_map(value: Mapping[str, str]) -> bool:
    return _are_texts(*value, *value.values())


def _are_checks(checks: Iterable[Check]) -> bool:
    return all(
        _are_texts(one.id, one.name, one.kind, one.output, one.notes) and isinstance(one.status, Health)
        for one in checks
    )


_VALUE_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("id", "address", "datacenter", "node"), _are_texts),
    **dict.fromkeys(("port", "weight", "warning_weight"), _is_integer),
    **dict.fromkeys(("tags", "virtual_addresses"), lambda texts: _are_texts(*texts)),
    **dict.fromkeys(("meta", "node_meta"), _is_text_map),
    "ports": lambda ports: _are_texts(*ports) and all(map(_is_integer, ports.values())),
    "locality": lambda where: _are_texts(where.region, where.zone, where.sub_zone),
    "checks": _are_checks,
}


def _check_addresses(one: Instance, pointer: str) -> list[Violation]:
    violations = []
    if not one.id or len(one.id) > NAME_CHARACTERS:
        violations.append(
            Violation("invalid_id", f"an id has 1 to {NAME_CHARACTERS} characters", pointer=f"{pointer}/id")
        )
    if not is_ip_address(one.address):
        detail = f"{one.address!r} is not an IP address: Envoy resolves no names in endpoints"
        violations.append(Violation("invalid_address", detail, pointer=f"{pointer}/address"))
    for index, address in enumerate(one.virtual_addresses):
        if not is_ip_address(address):
            pointer_to = f"{pointer}/virtual_addresses/{index}"
            violations.append(Violation("invalid_address", f"{address!r} is not an IP address", pointer=pointer_to))
    ports = {f"{pointer}/port": one.port, **{f"{pointer}/ports/{name}": port for name, port in one.ports.items()}}
    for port_pointer, port in ports.items():
        if not 0 < port <= 65_535:
            violations.append(Violation("invalid_port", f"port {port} is not in 1..65535", pointer=port_pointer))
    return violations


def _check_sizes(one: Instance, pointer: str) -> list[Violation]:
    violations = []
    for label, count, limit in (
        ("meta", len(one.meta), META_PAIRS),
        ("tags", len(one.tags), TAGS),
        ("checks", len(one.checks), CHECKS),
        ("ports", len(one.ports), NAMED_PORTS),
        ("virtual_addresses", len(one.virtual_addresses), VIRTUAL_ADDRESSES),
    ):
        if count > limit:
            violations.append(Violation("too_many", f"{count} {label}, at most {limit}", pointer=f"{pointer}/{label}"))
    for key, value in one.meta.items():
        if not key or len(key) > META_KEY_CHARACTERS or len(value) > META_VALUE_CHARACTERS:
            detail = f"a key has 1 to {META_KEY_CHARACTERS} characters, a value at most {META_VALUE_CHARACTERS}"
            violations.append(Violation("invalid_meta", detail, pointer=f"{pointer}/meta/{key[:META_KEY_CHARACTERS]}"))
    return violations


def instance_record(service: str, one: Instance, health: Health | None = None) -> FixedRecord:
    """``Node.*``, ``Service.*`` and ``Checks.*``, as selectors name them.

    ``Meta`` and ``Ports`` are plain maps, whose keys may be missing. ``Service.Health`` is the worst status of the
    checks, or the given one.
    """
    where = one.locality
    return FixedRecord(
        Node=FixedRecord(Node=one.node, Datacenter=one.datacenter, Meta=dict(one.node_meta)),
        Service=FixedRecord(
            ID=one.id,
            Service=service,
            Address=one.address,
            Port=one.port,
            Ports=dict(one.ports),
            Tags=one.tags,
            Meta=dict(one.meta),
            Weights=FixedRecord(Passing=one.weight, Warning=one.warning_weight),
            Locality=FixedRecord(Region=where.region, Zone=where.zone, SubZone=where.sub_zone),
            Health=(health if health is not None else one.health).value,
        ),
        Checks=[FixedRecord(CheckID=check.id, Name=check.name, Status=check.status.value) for check in one.checks],
    )


INSTANCE_SHAPE = instance_record("", Instance("", "", 0))

"""Target files: services with their instances, as JSON or YAML, in the server's own form or in Prometheus'.

The server's own form maps services to instances; an instance is an object, or ``ADDRESS:PORT``. Prometheus' form
(``file_sd_configs``) is a list of groups of targets with labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from xds.codec.document import malformed, read_values
from xds.codec.findings import NAME_LIMIT, Findings, short_repr
from xds.codec.positions import locate
from xds.model.errors import ValidationError, Violation
from xds.model.ip_address import address_text
from xds.model.node import Locality
from xds.services.core.instance import Check, Health, Instance, check_instance, check_service_name

FILE_LIMIT_BYTES = 16 << 20
CHECK = "file"  # the id and kind of the check that carries the health of a file

Content = Mapping[str, tuple[Instance, ...]]  # the instances of each service
Path = tuple[str | int, ...]

_INSTANCE_KEYS = (
    "id",
    "address",
    "port",
    "ports",
    "virtual_addresses",
    "meta",
    "tags",
    "weight",
    "warning_weight",
    "locality",
    "datacenter",
    "node",
    "node_meta",
    "health",
)
_LOCALITY_KEYS = ("region", "zone", "sub_zone")
_GROUP_KEYS = ("targets", "labels")
_SOCKET_ADDRESS = re.compile(r"\[([^\[\]]+)\]:(\d{1,5})|([^\[\]:]+):(\d{1,5})")


def read_targets(data: bytes, source: str, stem: str, service_label: str) -> Content:
    """The services of a file. Raises ``ValidationError`` with all findings and their places; the file is then not used.

    ``source`` names the file in findings. In Prometheus' form, ``service_label`` is the label with the service of a
    group; groups without it belong to the service ``stem``.
    """
    if len(data) > FILE_LIMIT_BYTES:
        raise malformed(f"larger than {FILE_LIMIT_BYTES} bytes", code="too_large", source=source)
    values = read_values(data, source=source)
    if len(values.documents) != 1:
        hint = "an empty file: write 'services: {}' for a file without services"
        problem = "two documents" if values.documents else hint
        raise malformed(problem, source=source)
    ((number, value),) = values.documents.items()
    findings = Findings()
    content = _groups(value, stem, service_label, findings) if isinstance(value, list) else _services(value, findings)
    if findings:
        raise ValidationError(locate(values.layout, findings.violations, number))
    return content


def split_socket_address(text: str) -> tuple[str, int] | None:
    """Address and port of ``10.0.0.1:80`` or ``[2001:db8::1]:80``; None for anything else."""
    match = _SOCKET_ADDRESS.fullmatch(text)
    return (match[1] or match[3], int(match[2] or match[4])) if match is not None else None


# The server's own form


def _services(value: object, findings: Findings) -> Content:
    document = _object(value, ("services",), findings, ())
    if not findings and "services" not in document:
        findings.add("missing_field", "expected 'services:', or a list of Prometheus' target groups", ())
    given = _object(document.get("services", {}), None, findings, ("services",))
    content = {}
    for service, instances in given.items():
        path = ("services", service)
        _check(check_service_name(service), findings, path)
        content[service] = _instances(instances, findings, path)
    return content


def _instances(value: object, findings: Findings, path: Path) -> tuple[Instance, ...]:
    instances: dict[str, Instance] = {}
    for index, each in enumerate(_list(value, findings, path)):
        one = _instance(each, findings, (*path, index))
        if one is not None and instances.setdefault(one.id, one) is not one:
            findings.add("duplicate_id", f"two instances have the id {one.id!r}", (*path, index))
    return tuple(instances.values())


def _instance(value: object, findings: Findings, path: Path) -> Instance | None:
    """One instance; None if there are findings."""
    before_n = len(findings)
    one = _from_address(value, findings, path) if isinstance(value, str) else _from_object(value, findings, path)
    if one is not None and len(findings) == before_n:
        _check(check_instance(one), findings, path)
    return one if len(findings) == before_n else None


def _from_address(text: str, findings: Findings, path: Path) -> Instance | None:
    parts = split_socket_address(text)
    if parts is None:
        findings.add("invalid_address", f"expected ADDRESS:PORT, not {short_repr(text)}", path)
        return None
    return Instance(address_text(*parts), *parts)


def _from_object(value: object, findings: Findings, path: Path) -> Instance | None:
    given = _object(value, _INSTANCE_KEYS, findings, path)
    read = _Reader(given, findings, path)
    address, port = read.text("address"), read.number("port")
    for name in ("address", "port"):
        if isinstance(value, dict) and name not in given:
            findings.add("missing_field", f"{name} is required", path)
    health = read.one_of("health", tuple(Health))
    locality = _Reader(
        _object(given.get("locality", {}), _LOCALITY_KEYS, findings, (*path, "locality")), findings, path
    )
    return Instance(
        id=read.text("id") or address_text(address, port),
        address=address,
        port=port,
        ports=read.map("ports", int),
        meta=read.map("meta", str),
        tags=read.texts("tags"),
        weight=read.number("weight", 1),
        warning_weight=read.number("warning_weight", 1),
        locality=Locality(*(locality.text(name) for name in _LOCALITY_KEYS)),
        datacenter=read.text("datacenter"),
        node=read.text("node"),
        node_meta=read.map("node_meta", str),
        checks=(Check(CHECK, Health(health), kind=CHECK),) if health else (),
        virtual_addresses=read.texts("virtual_addresses"),
    )


# Prometheus' form


def _groups(groups: list[Any], stem: str, service_label: str, findings: Findings) -> Content:
    by_service: dict[str, dict[str, Instance]] = {}
    for index, each in enumerate(groups):
        path: Path = (index,)
        group = _object(each, _GROUP_KEYS, findings, path)
        labels = _Reader(group, findings, path).map("labels", str)
        service = labels.get(service_label) or stem
        _check(check_service_name(service), findings, path)
        by_id = by_service.setdefault(service, {})
        for number, target in enumerate(_list(group.get("targets", []), findings, (*path, "targets"))):
            one = _target(target, labels, findings, (*path, "targets", number))
            if one is not None:
                by_id.setdefault(one.id, one)  # Prometheus allows a target twice
    return {service: tuple(by_id.values()) for service, by_id in by_service.items()}


def _target(value: object, labels: Mapping[str, str], findings: Findings, path: Path) -> Instance | None:
    """A target with the labels of its group, as meta. Labels that begin with ``__`` are Prometheus' own."""
    if not isinstance(value, str):
        findings.add("wrong_type", f"expected ADDRESS:PORT, not {short_repr(value)}", path)
        return None
    before_n = len(findings)
    one = _from_address(value, findings, path)
    if one is None:
        return None
    meta = {name: label for name, label in labels.items() if not name.startswith("__")}
    locality = Locality(*(meta.get(name, "") for name in _LOCALITY_KEYS))
    one = replace(one, meta=meta, locality=locality, datacenter=meta.get("datacenter", ""))
    _check(check_instance(one), findings, path)
    return one if len(findings) == before_n else None


# Values


class _Reader:
    """The members of an object, each with a finding if it has another type."""

    def __init__(self, given: Mapping[str, Any], findings: Findings, path: Path) -> None:
        self._given = given
        self._findings = findings
        self._path = path

    def text(self, name: str) -> str:
        """A string; empty without one."""
        return str(self._member(name, str, ""))

    def number(self, name: str, default: int = 0) -> int:
        """An integer."""
        return int(self._member(name, int, default))

    def one_of(self, name: str, words: tuple[str, ...]) -> str:
        """One of these words; empty without one."""
        chosen = self.text(name)
        if chosen and chosen not in words:
            self._findings.add("invalid_value", f"{chosen!r} is not one of {', '.join(words)}", (*self._path, name))
            return ""
        return chosen

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        path = (*self._path, name)
        given = _list(self._given.get(name, []), self._findings, path)
        return tuple(_typed(each, str, "", self._findings, (*path, index)) for index, each in enumerate(given))

    def map(self, name: str, kind: type[Any]) -> dict[str, Any]:
        """An object whose members are all of one type."""
        path = (*self._path, name)
        given = _object(self._given.get(name, {}), None, self._findings, path)
        return {key: _typed(value, kind, kind(), self._findings, (*path, key)) for key, value in given.items()}

    def _member(self, name: str, kind: type[Any], default: Any) -> Any:
        if name not in self._given:
            return default
        return _typed(self._given[name], kind, default, self._findings, (*self._path, name))


_TYPE_NAMES: Mapping[type[Any], str] = {str: "a string", int: "an integer"}


def _typed(value: object, kind: type[Any], default: Any, findings: Findings, path: Path) -> Any:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    hint = f'write "{value}"' if kind is str and isinstance(value, int | float) else ""
    findings.add("wrong_type", f"expected {_TYPE_NAMES[kind]}, not {short_repr(value)}", path, hint=hint)
    return default


def _object(value: object, keys: Sequence[str] | None, findings: Findings, path: Path) -> Mapping[str, Any]:
    """An object with these keys, or with any; empty with a finding for anything else."""
    if not isinstance(value, dict):
        findings.add("wrong_type", f"expected an object, not {short_repr(value)}", path)
        return {}
    for key in value if keys is not None else ():
        if keys is not None and key not in keys:
            close = get_close_matches(key[:NAME_LIMIT], keys, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(keys)}"
            findings.add("unknown_field", f"unknown field {short_repr(key)}", (*path, key), hint=hint)
    return value


def _list(value: object, findings: Findings, path: Path) -> list[Any]:
    if isinstance(value, list):
        return value
    findings.add("wrong_type", f"expected a list, not {short_repr(value)}", path)
    return []


def _check(violations: list[Violation], findings: Findings, path: Path) -> None:
    """Add the findings about an instance or a name, at its place in the file."""
    for each in violations:
        findings.add(each.code, each.detail, (*path, *each.pointer.split("/")[1:]))

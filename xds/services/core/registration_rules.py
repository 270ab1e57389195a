"""The rules of registrations, and how forms become registrations (docs/services.md#registration). Pure.

The rules are those of Consul. In addition an instance needs an IP address and a port, because it becomes an endpoint.
Checks that Consul's agent would run itself (HTTP, TCP, gRPC, scripts ...) are refused, because Envoy checks health.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from xds.codec.findings import Findings, short_repr
from xds.consul.shape import Path
from xds.consul.shared import check_meta, check_tenancy
from xds.model.errors import ValidationError
from xds.model.ip_address import is_ip_address
from xds.services.core.instance import (
    CHECKS,
    NAME_CHARACTERS,
    NAMED_PORTS,
    OUTPUT_CHARACTERS,
    TAGS,
    WEIGHT_LIMIT,
    Health,
    check_service_name,
)
from xds.services.core.registered_instance import AGENT_NODE, TTL_KIND, RegisteredCheck, RegisteredNode, Registration
from xds.services.core.registration_forms import (
    CatalogCheckForm,
    CatalogForm,
    CheckForm,
    DeregistrationForm,
    ServiceForm,
    WeightsForm,
    read_form,
)

F = TypeVar("F", CheckForm, CatalogCheckForm)

LEAST_TTL_NS = 1_000_000_000
LEAST_DEREGISTER_NS = 60_000_000_000
PORTS = range(1, 65_536)
STATUSES = (Health.PASSING.value, Health.WARNING.value, Health.CRITICAL.value)
ENVOY_CHECKS = "Envoy checks health (health_checks of the cluster): register a check with a TTL, or none"

_META_KEY = re.compile(r"[A-Za-z0-9_-]+")
_RESERVED = "consul-"
_ANY_ADDRESS = frozenset(("0.0.0.0", "::", "[::]"))  # noqa: S104 - they are refused


@dataclass(frozen=True, slots=True)
class CatalogRegistration:
    """A registration in the catalog: a node, and perhaps an instance and checks on it.

    ``checks`` has pairs of an instance id (empty for a check of the node) and a check. With ``keeps_node``, an existing
    node is not changed.
    """

    node: RegisteredNode
    registration: Registration | None
    checks: tuple[tuple[str, RegisteredCheck], ...] = ()
    keeps_node: bool = False


def read_service(value: object, id: str = "") -> Registration:
    """The registration of an instance that registers itself. Its ``host`` is not set yet.

    ``id`` comes from the path of the request: the value may leave it out, and must not differ. Raises
    ``ValidationError``.
    """
    findings = Findings()
    form = read_form(ServiceForm, value, findings)
    _raise_if_any(findings)
    if id and form.id not in ("", id):
        findings.add("conflict", f"ID is {short_repr(form.id)}, not {short_repr(id)}", ("ID",))
    form = replace(form, id=id or form.id)
    registration = _registration(form, AGENT_NODE, findings, ())
    checks = tuple(_service_checks(form, registration, findings))
    _raise_if_any(findings)
    return replace(registration, checks=checks)


def read_check(value: object) -> tuple[str, RegisteredCheck]:
    """A check that is registered by itself, and the id of its instance. Raises ``ValidationError``."""
    findings = Findings()
    form = read_form(CheckForm, value, findings)
    _raise_if_any(findings)
    if not form.name:
        findings.add("missing_name", "Missing check name", ("Name",))
    if not form.service_id:
        detail = "checks of an agent's node are not supported: name the instance"
        findings.add("missing_field", detail, ("ServiceID",))
    check_tenancy(form.namespace, form.partition, findings, ())
    check = _ttl_check(form, form.check_id or form.id or form.name, form.name, findings, ())
    _raise_if_any(findings)
    return form.service_id, check


def read_catalog_registration(value: object) -> CatalogRegistration:
    """A registration in the catalog. Raises ``ValidationError``."""
    findings = Findings()
    form = read_form(CatalogForm, value, findings)
    _raise_if_any(findings)
    _check_node(form, findings)
    registration = None
    if form.service is not None:
        registration = _registration(form.service, form.node, findings, ("Service",))
        if form.service.check is not None or form.service.checks:
            detail = "write checks of the catalog into the field Checks beside Service"
            findings.add("unknown_field", detail, ("Service", "Checks"))
        if form.locality is not None and form.service.locality is None:
            where = form.locality
            registration = replace(registration, region=where.region, zone=where.zone, sub_zone=where.sub_zone)
    checks = tuple(_catalog_checks(form, findings))
    _raise_if_any(findings)
    node = RegisteredNode(form.node, form.address, form.id, form.tagged_addresses, form.node_meta)
    return CatalogRegistration(node, registration, checks, form.skip_node_update)


def read_deregistration(value: object) -> DeregistrationForm:
    """A removal from the catalog. Raises ``ValidationError``."""
    findings = Findings()
    form = read_form(DeregistrationForm, value, findings)
    if not form.node and not findings:
        findings.add("missing_field", "Must provide node", ("Node",))
    check_tenancy(form.namespace, form.partition, findings, ())
    _raise_if_any(findings)
    return form


def cut_output(text: str) -> str:
    """The output of a check, cut to ``OUTPUT_CHARACTERS``."""
    if len(text) <= OUTPUT_CHARACTERS:
        return text
    return f"{text[:OUTPUT_CHARACTERS]} ... (captured {OUTPUT_CHARACTERS} of {len(text)} characters)"


def _raise_if_any(findings: Findings) -> None:
    if findings:
        raise ValidationError(findings.violations)


# Instances


def _registration(form: ServiceForm, node: str, findings: Findings, path: Path) -> Registration:
    name = form.name or form.service
    _check_name(form, name, findings, path)
    _check_kind(form, findings, path)
    check_tenancy(form.namespace, form.partition, findings, path)
    _check_address(form.address, findings, (*path, "Address"))
    _check_ports(form, findings, path)
    _check_meta_keys(form.meta, findings, (*path, "Meta"))
    check_meta(form.meta, findings)
    if len(form.tags) > TAGS:
        findings.add("too_many", f"{len(form.tags)} tags, at most {TAGS}", (*path, "Tags"))
    least = 0 if path else 1  # the catalog accepts 0, which Consul's clients send for a missing weight
    weight, warning_weight = _weights(form, least, findings, (*path, "Weights"))
    where = form.locality
    return Registration(
        node,
        form.id or name,
        name,
        address=form.address,
        port=form.port,
        ports=form.ports,
        tagged_addresses=form.tagged_addresses,
        meta=form.meta,
        tags=form.tags,
        weight=weight,
        warning_weight=warning_weight,
        region=where.region if where is not None else "",
        zone=where.zone if where is not None else "",
        sub_zone=where.sub_zone if where is not None else "",
        enable_tag_override=form.enable_tag_override,
    )


def _check_name(form: ServiceForm, name: str, findings: Findings, path: Path) -> None:
    name_path = (*path, "Service" if path else "Name")
    if form.name and form.service and form.name != form.service:
        findings.add("conflict", f"Name {short_repr(form.name)} and Service {short_repr(form.service)}", name_path)
    if not name:
        findings.add("missing_name", "Missing service name", name_path)
    elif check_service_name(name):
        findings.add("invalid_service_name", check_service_name(name)[0].detail, name_path)
    if len(form.id) > NAME_CHARACTERS:
        findings.add("invalid_id", f"an ID has at most {NAME_CHARACTERS} characters", (*path, "ID"))


def _check_kind(form: ServiceForm, findings: Findings, path: Path) -> None:
    """Refuse sidecars and gateways of Consul's mesh: requests do not go to them."""
    for field, value in (("Kind", form.kind), ("Proxy", form.proxy), ("Connect", form.connect)):
        if value and any(value.values() if isinstance(value, Mapping) else value):
            detail = f"{field} belongs to Consul's mesh, which is not supported"
            findings.add("not_allowed", detail, (*path, field), hint="register the service itself")
    if form.socket_path:
        findings.add("not_allowed", "sockets are not supported: register an address and a port", (*path, "SocketPath"))


def _check_address(address: str, findings: Findings, path: Path) -> None:
    if address in _ANY_ADDRESS:
        findings.add("invalid_address", f"Invalid service address: {address} is a wildcard address", path)
    elif address and not is_ip_address(address):
        detail = f"{short_repr(address)} is not an IP address: Envoy resolves no names in endpoints"
        findings.add("invalid_address", detail, path)


def _check_ports(form: ServiceForm, findings: Findings, path: Path) -> None:
    ports = [(form.port, (*path, "Port")), *((each.port, (*path, "Ports", at)) for at, each in enumerate(form.ports))]
    for port, port_path in ports:
        if port not in PORTS:
            findings.add("invalid_port", f"port {port} is not in 1..65535", port_path, hint="an endpoint needs a port")
    names = [each.name for each in form.ports]
    if len(set(names)) < len(names) or "" in names:
        findings.add("duplicate_name", "each of Ports needs a name of its own", (*path, "Ports"))


def _check_meta_keys(meta: Mapping[str, str], findings: Findings, path: Path) -> None:
    for key in meta:
        if not _META_KEY.fullmatch(key):
            findings.add("bad_meta", f"Key {short_repr(key)} is empty or contains invalid characters", path)
        elif key.startswith(_RESERVED):
            findings.add("bad_meta", f"Key prefix {_RESERVED!r} is reserved for internal use", (*path, key))


def _weights(form: ServiceForm, least: int, findings: Findings, path: Path) -> tuple[int, int]:
    given = form.weights
    if given is None or (given == WeightsForm() and not least):
        return 1, 1
    for field, weight, lowest in (("Passing", given.passing, least), ("Warning", given.warning, 0)):
        if not lowest <= weight <= WEIGHT_LIMIT:
            findings.add("invalid_weight", f"{field} is {weight}, not in {lowest}..{WEIGHT_LIMIT}", (*path, field))
    return given.passing, given.warning


# Checks


def _service_checks(form: ServiceForm, of: Registration, findings: Findings) -> Iterator[RegisteredCheck]:
    """The checks of an instance. A check without an id is named after the instance, with a number if it has several."""
    listed = _listed(form.check if form.check != CheckForm() else None, form.checks, findings)
    ids: set[str] = set()
    for number, (one, path) in enumerate(listed, 1):
        default = f"service:{of.id}:{number}" if len(listed) > 1 else f"service:{of.id}"
        check = _ttl_check(
            one, one.check_id or one.id or default, one.name or f"Service '{of.service}' check", findings, path
        )
        if check.id in ids:
            findings.add("duplicate_id", f"a second check with the id {short_repr(check.id)}", path)
        ids.add(check.id)
        yield check


def _listed(check: F | None, checks: Sequence[F], findings: Findings) -> list[tuple[F, Path]]:
    """The check of the field Check and those of the field Checks, each with its place."""
    listed: list[tuple[F, Path]] = []
    if check is not None:
        listed.append((check, ("Check",)))
    for at, one in enumerate(checks):
        listed.append((one, ("Checks", at)))
    if len(listed) > CHECKS:
        findings.add("too_many", f"{len(listed)} checks, at most {CHECKS}", ("Checks",))
    return listed


def _ttl_check(form: CheckForm, id: str, name: str, findings: Findings, path: Path) -> RegisteredCheck:
    """A check that needs heartbeats. Other kinds are refused with an error that names the kind."""
    if form.kind:
        detail = f"checks of the type {form.kind} are not supported"
        findings.add("unsupported_check", detail, path, hint=ENVOY_CHECKS)
    elif form.ttl_ns > 0 and form.interval_ns > 0:
        findings.add("conflict", "Interval and TTL cannot both be specified", path)
    elif form.ttl_ns <= 0:
        findings.add("missing_field", "TTL must be > 0 for TTL checks", (*path, "TTL"))
    elif form.ttl_ns < LEAST_TTL_NS:
        findings.add("out_of_range", "a TTL of less than a second", (*path, "TTL"))
    _check_texts(id, name, form.notes, findings, path)
    status = _status(form.status, findings, path)
    after_ns = max(LEAST_DEREGISTER_NS, form.deregister_after_ns) if form.deregister_after_ns > 0 else 0
    return RegisteredCheck(id, name, status, TTL_KIND, form.notes, "", form.ttl_ns, after_ns)


def _status(status: str, findings: Findings, path: Path) -> str:
    if status and status not in STATUSES:
        detail = f"{short_repr(status)} is not a valid status: {', '.join(STATUSES)}"
        findings.add("bad_choice", detail, (*path, "Status"))
        return Health.CRITICAL.value
    return status or Health.CRITICAL.value


def _check_texts(id: str, name: str, notes: str, findings: Findings, path: Path) -> None:
    for field, text, limit in (
        ("CheckID", id, NAME_CHARACTERS + 32),
        ("Name", name, NAME_CHARACTERS + 32),
        ("Notes", notes, OUTPUT_CHARACTERS),
    ):
        if len(text) > limit:
            findings.add("too_large", f"{len(text)} characters; {limit} are allowed", (*path, field))


# The catalog


def _check_node(form: CatalogForm, findings: Findings) -> None:
    if not form.node:
        findings.add("missing_field", "Must provide node", ("Node",))
    if not form.address and not form.skip_node_update:
        findings.add("missing_field", "Must provide address if SkipNodeUpdate is not set", ("Address",))
    for field, text in (("Node", form.node), ("Address", form.address), ("ID", form.id)):
        if len(text) > NAME_CHARACTERS or "/" in text:
            findings.add("bad_name", f"{short_repr(text)} is too long, or has a slash", (field,))
    if len(form.tagged_addresses) > NAMED_PORTS:
        findings.add("too_many", f"{len(form.tagged_addresses)} addresses, at most {NAMED_PORTS}", ("TaggedAddresses",))
    check_tenancy(form.namespace, form.partition, findings, ())
    _check_meta_keys(form.node_meta, findings, ("NodeMeta",))
    check_meta(form.node_meta, findings)


def _catalog_checks(form: CatalogForm, findings: Findings) -> Iterator[tuple[str, RegisteredCheck]]:
    for one, path in _listed(form.check, form.checks, findings):
        if one.node not in ("", form.node):
            findings.add("conflict", f"Node is {short_repr(one.node)}, not that of the registration", path)
        if not (one.check_id or one.name):
            findings.add("missing_name", "a check needs a CheckID or a Name", path)
        made_by = one.definition.kind if one.definition is not None else ""
        if made_by:
            detail = f"checks of the type {made_by} are not supported"
            findings.add("unsupported_check", detail, (*path, "Definition"), hint=ENVOY_CHECKS)
        id, name = one.check_id or one.name, one.name
        _check_texts(id, name, one.notes, findings, path)
        check_tenancy(one.namespace, one.partition, findings, path)
        status = _status(one.status, findings, path)
        yield one.service_id, RegisteredCheck(id, name, status, one.kind[:64], one.notes, cut_output(one.output))

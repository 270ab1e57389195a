"""Services and EndpointSlices of Kubernetes, from the JSON of its API to values. Pure.

Objects are checked although the API server validates them: an object that has not the shape of its kind raises
``ObjectError``, and an unusable endpoint is left out with a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from xds.model.errors import Violation, XdsError
from xds.model.ip_address import is_ip_address
from xds.services.core.instance import VIRTUAL_ADDRESSES

Json = Mapping[str, Any]

NAME_CHARACTERS = 253
ENDPOINTS_PER_SLICE = 1_000  # the API server's limit
PORTS_PER_SLICE = 100  # likewise
SERVICE_LABEL = "kubernetes.io/service-name"
EXTERNAL_NAME = "ExternalName"
IPV4, IPV6 = "IPv4", "IPv6"
TCP, SCTP = "TCP", "SCTP"
_FAMILIES = (IPV4, IPV6)
_NO_LABELS: Mapping[str, str] = MappingProxyType({})

T_co = TypeVar("T_co", covariant=True)


class ObjectError(XdsError):
    """An object has not the shape of its kind. The message names the place within it."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """The identity of an object among those of its kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Service:
    """A Service. ``families`` and the names of its ``ports`` are in the Service's own order.

    ``virtual_addresses`` are its cluster IPs; a headless one has none.
    """

    key: ObjectKey
    type: str = "ClusterIP"
    families: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    findings: tuple[Violation, ...] = ()
    virtual_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlicePort:
    """One port of a slice; its name may be empty."""

    name: str
    number: int
    protocol: str = TCP


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of a slice. ``pod`` and ``uid`` are those of its target; ``hints`` are zones that are to use it."""

    address: str
    is_ready: bool = True
    is_serving: bool = True
    is_terminating: bool = False
    pod: str = ""
    uid: str = ""
    node: str = ""
    zone: str = ""
    hostname: str = ""
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """A slice of a Service's endpoints. ``service`` is empty if it names none; ``family`` is its address type."""

    key: ObjectKey
    service: str
    family: str
    ports: tuple[SlicePort, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    findings: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class Collection(Generic[T_co]):
    """A kind of object, with its place in the API; ``read`` raises ``ObjectError``."""

    kind: str
    api: str  # the path of its group and version
    plural: str
    read: Callable[[Json], T_co]

    @property
    def list_kind(self) -> str:
        """The kind of a list of them."""
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects: ``v1``, ``discovery.k8s.io/v1``."""
        return self.api.partition("/")[2]

    def path(self, namespace: str) -> str:
        """The path of the objects of a namespace; of all namespaces if it is empty."""
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"/{self.api}{inside}/{self.plural}"


def read_key(document: Json) -> ObjectKey:
    """Namespace and name. Raises ``ObjectError``."""
    metadata = _object(document, "metadata")
    return ObjectKey(_name(metadata, "namespace"), _name(metadata, "name"))


def read_service(document: Json) -> Service:
    """A Service from JSON. Raises ``ObjectError``."""
    key = read_key(document)
    spec = _object(document, "spec")
    kind = _text(spec, "type") or "ClusterIP"
    findings: tuple[Violation, ...] = ()
    if kind == EXTERNAL_NAME:
        detail = f"an ExternalName Service has no endpoints, only the name {_text(spec, 'externalName')!r}"
        hint = "use a cluster of the type STRICT_DNS, or a source of the kind dns"
        findings = (Violation("external_name", detail, pointer=f"/services/{key}/spec/externalName", hint=hint),)
    families = tuple(each for each in _texts(spec, "ipFamilies") if each in _FAMILIES)
    ports = tuple(_text(each, "name") for each in _objects(spec, "ports", PORTS_PER_SLICE))
    addresses = _texts(spec, "clusterIPs") or (_text(spec, "clusterIP"),)
    virtual = tuple(one for one in addresses if is_ip_address(one))[:VIRTUAL_ADDRESSES]
    return Service(key, kind, families, ports, findings, virtual)


def read_slice(document: Json) -> EndpointSlice:
    """An EndpointSlice from JSON. Raises ``ObjectError``."""
    key = read_key(document)
    pointer = f"/endpointslices/{key}"
    labels = _labels(_object(document, "metadata"))
    service = labels.get(SERVICE_LABEL, "")
    family = _text(document, "addressType")
    violations = _slice_findings(service, family, pointer)
    if violations:
        return EndpointSlice(key, service, family, findings=tuple(violations))
    ports = _read_ports(document, pointer, violations)
    endpoints = _read_endpoints(document, family, pointer, violations)
    return EndpointSlice(key, service, family, ports, endpoints, labels, tuple(violations))


SERVICES = Collection("Service", "api/v1", "services", read_service)
SLICES = Collection("EndpointSlice", "apis/discovery.k8s.io/v1", "endpointslices", read_slice)


# Parts of a slice


def _slice_findings(service: str, family: str, pointer: str) -> list[Violation]:
    if not service:
        detail = f"the slice belongs to no Service: it has no label {SERVICE_LABEL}"
        return [Violation("no_service", detail, pointer=f"{pointer}/metadata/labels")]
    if family not in _FAMILIES:
        detail = f"Envoy has no endpoints with addresses of the type {family!r}, only {IPV4} and {IPV6}"
        return [Violation("invalid_address_type", detail, pointer=f"{pointer}/addressType")]
    return []


def _read_ports(document: Json, pointer: str, violations: list[Violation]) -> tuple[SlicePort, ...]:
    ports = []
    for index, each in enumerate(_objects(document, "ports", PORTS_PER_SLICE)):
        number, protocol = each.get("port"), _text(each, "protocol") or TCP
        if protocol == SCTP:
            detail = "Envoy speaks no SCTP: the port is left out"
            violations.append(Violation("invalid_protocol", detail, pointer=f"{pointer}/ports/{index}/protocol"))
        elif type(number) is not int or not 0 < number <= 65_535:
            detail = f"{number!r} is not a port in 1..65535: the port is left out"
            violations.append(Violation("invalid_port", detail, pointer=f"{pointer}/ports/{index}/port"))
        else:
            ports.append(SlicePort(_text(each, "name"), number, protocol))
    return tuple(ports)


def _read_endpoints(document: Json, family: str, pointer: str, violations: list[Violation]) -> tuple[Endpoint, ...]:
    endpoints = []
    for index, each in enumerate(_objects(document, "endpoints", ENDPOINTS_PER_SLICE)):
        addresses = _texts(each, "addresses")
        # Kubernetes defines no meaning of further addresses.
        address = addresses[0] if addresses else ""
        if not is_ip_address(address) or (":" in address) is not (family == IPV6):
            detail = f"{address!r} is not an {family} address: the endpoint is left out"
            violations.append(Violation("invalid_address", detail, pointer=f"{pointer}/endpoints/{index}/addresses"))
        else:
            endpoints.append(_read_endpoint(each, address))
    return tuple(endpoints)


def _read_endpoint(document: Json, address: str) -> Endpoint:
    conditions = _object(document, "conditions", is_required=False)
    # Unknown readiness counts as ready, unknown serving as readiness.
    is_ready = _flag(conditions, "ready", True)
    target = _object(document, "targetRef", is_required=False)
    hints = _objects(_object(document, "hints", is_required=False), "forZones", PORTS_PER_SLICE)
    is_pod = _text(target, "kind") == "Pod"
    return Endpoint(
        address,
        is_ready,
        _flag(conditions, "serving", is_ready),
        _flag(conditions, "terminating", False),
        _text(target, "name") if is_pod else "",
        _text(target, "uid"),
        _text(document, "nodeName"),
        _text(document, "zone"),
        _text(document, "hostname"),
        tuple(name for name in (_text(each, "name") for each in hints) if name),
    )


# Members of objects. ``null`` means that a member is not given.


def _object(document: Json, member: str, is_required: bool = True) -> Json:
    value = document.get(member)
    if value is None and not is_required:
        return {}
    if not isinstance(value, dict):
        raise ObjectError(f"/{member}: expected an object")
    return value


def _objects(document: Json, member: str, limit: int) -> Sequence[Json]:
    value = document.get(member)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ObjectError(f"/{member}: expected an array of objects")
    if len(value) > limit:
        raise ObjectError(f"/{member}: {len(value)} values, at most {limit}")
    return value


def _texts(document: Json, member: str) -> Sequence[str]:
    value = document.get(member)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ObjectError(f"/{member}: expected an array of strings")
    return value


def _text(document: Json, member: str) -> str:
    value = document.get(member)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS:
        raise ObjectError(f"/{member}: expected a string of at most {NAME_CHARACTERS} characters")
    return value


def _name(metadata: Json, member: str) -> str:
    value = _text(metadata, member)
    if not value:
        raise ObjectError(f"/metadata/{member}: the object has none")
    return value


def _flag(conditions: Json, member: str, default: bool) -> bool:
    value = conditions.get(member)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ObjectError(f"/conditions/{member}: expected true or false")
    return value


def _labels(metadata: Json) -> Mapping[str, str]:
    value = _object(metadata, "labels", is_required=False)
    if not all(isinstance(each, str) for each in value.values()):
        raise ObjectError("/metadata/labels: expected strings")
    return value

"""Services and EndpointSlices of Kubernetes, from the JSON of its API to values. Pure.

Objects are checked although the API server validates them: an object that has not the shape of its kind raises
``MemberError``, and an unusable endpoint is left out with a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from xds.model.errors import Violation
from xds.model.ip_address import is_ip_address
from xds.services.core.instance import VIRTUAL_ADDRESSES
from xds.services.sources.json_members import Json, MemberError, object_of, objects, scalar, text, texts, texts_by_name

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
    """A kind of object, with its place in the API; ``read`` raises ``MemberError``."""

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
    """Namespace and name. Raises ``MemberError``."""
    metadata = object_of(document, "metadata")
    return ObjectKey(_name(metadata, "namespace"), _name(metadata, "name"))


def read_service(document: Json) -> Service:
    """A Service from JSON. Raises ``MemberError``."""
    key = read_key(document)
    spec = object_of(document, "spec")
    kind = _text(spec, "type") or "ClusterIP"
    findings: tuple[Violation, ...] = ()
    if kind == EXTERNAL_NAME:
        detail = f"an ExternalName Service has no endpoints, only the name {_text(spec, 'externalName')!r}"
        hint = "use a cluster of the type STRICT_DNS, or a source of the kind dns"
        findings = (Violation("external_name", detail, pointer=f"/services/{key}/spec/externalName", hint=hint),)
    families = tuple(each for each in texts(spec, "ipFamilies") if each in _FAMILIES)
    ports = tuple(_text(each, "name") for each in _objects(spec, "ports", PORTS_PER_SLICE))
    addresses = texts(spec, "clusterIPs") or (_text(spec, "clusterIP"),)
    virtual = tuple(one for one in addresses if is_ip_address(one))[:VIRTUAL_ADDRESSES]
    return Service(key, kind, families, ports, findings, virtual)


def read_slice(document: Json) -> EndpointSlice:
    """An EndpointSlice from JSON. Raises ``MemberError``."""
    key = read_key(document)
    pointer = f"/endpointslices/{key}"
    labels = texts_by_name(object_of(document, "metadata"), "labels")
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
        addresses = texts(each, "addresses")
        # Kubernetes defines no meaning of further addresses.
        address = addresses[0] if addresses else ""
        if not is_ip_address(address) or (":" in address) is not (family == IPV6):
            detail = f"{address!r} is not an {family} address: the endpoint is left out"
            violations.append(Violation("invalid_address", detail, pointer=f"{pointer}/endpoints/{index}/addresses"))
        else:
            endpoints.append(_read_endpoint(each, address))
    return tuple(endpoints)


def _read_endpoint(document: Json, address: str) -> Endpoint:
    conditions = object_of(document, "conditions")
    # Unknown readiness counts as ready, unknown serving as readiness.
    is_ready = scalar(conditions, "ready", True)
    target = object_of(document, "targetRef")
    hints = _objects(object_of(document, "hints"), "forZones", PORTS_PER_SLICE)
    is_pod = _text(target, "kind") == "Pod"
    return Endpoint(
        address,
        is_ready,
        scalar(conditions, "serving", is_ready),
        scalar(conditions, "terminating", False),
        _text(target, "name") if is_pod else "",
        _text(target, "uid"),
        _text(document, "nodeName"),
        _text(document, "zone"),
        _text(document, "hostname"),
        tuple(name for name in (_text(each, "name") for each in hints) if name),
    )


# Members of objects


def _objects(document: Json, member: str, limit: int) -> Sequence[Json]:
    values = objects(document, member)
    if len(values) > limit:
        raise MemberError(f"{member} has {len(values)} values, at most {limit}")
    return values


def _text(document: Json, member: str) -> str:
    value = text(document, member)
    if len(value) > NAME_CHARACTERS:
        raise MemberError(f"{member} has {len(value)} characters, at most {NAME_CHARACTERS}")
    return value


def _name(metadata: Json, member: str) -> str:
    value = _text(metadata, member)
    if not value:
        raise MemberError(f"the object has no {member}")
    return value

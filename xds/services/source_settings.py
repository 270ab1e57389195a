"""Settings of sources: ``sources`` maps the name of each source to a section with its ``kind``.

The program builds the sources: `xds.services.source_builders`.
"""

from __future__ import annotations

import re
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainSerializer, SecretStr, field_validator, model_validator

from xds.access.auth_settings import Section
from xds.services.core.instance import check_service_name

REGISTRATION = "registration"  # the source of registrations over HTTP; no section may have its name
HIDDEN_VALUE = "[redacted]"
SERVICES_LIMIT = 20_000
DNS_PORT = 53

_OBJECT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

Secret = Annotated[SecretStr, PlainSerializer(lambda value: HIDDEN_VALUE if value else "", when_used="json")]
"""A value that neither errors nor ``GET /config`` show."""

Options = Annotated[dict[str, Any], PlainSerializer(lambda value: dict.fromkeys(value, HIDDEN_VALUE), when_used="json")]
"""Options of a user's own source. Some may be secret, so none is shown."""


def _check_source_name(value: str) -> str:
    if value == REGISTRATION:
        raise ValueError(f"{REGISTRATION!r} is the source of what registers itself")
    return value


SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=63), AfterValidator(_check_source_name)]


def _check_service(value: str) -> str:
    for finding in check_service_name(value):
        raise ValueError(finding.detail)
    return value


ServiceName = Annotated[str, AfterValidator(_check_service)]


class SourceSettings(Section):
    """The settings that sources of all kinds have.

    ``changes_per_s`` bounds how many services a second the source may put into the catalog. Beyond it changes wait, and
    only the latest state of each service is put. A source that ends is run again after ``retry_s``, doubled each time
    up to ``longest_retry_s``. ``hold_share`` replaces that of ``services``.
    """

    kind: str
    changes_per_s: float = Field(1_000.0, gt=0, le=1_000_000)
    retry_s: float = Field(1.0, gt=0, le=600)
    longest_retry_s: float = Field(60.0, gt=0, le=3_600)
    hold_share: float | None = Field(None, ge=0, le=1)

    @model_validator(mode="after")
    def _grows(self) -> SourceSettings:
        if self.longest_retry_s < self.retry_s:
            raise ValueError("longest_retry_s must be at least retry_s")
        return self


class FilesSettings(SourceSettings):
    """Target files: files, directories, and globs (``/etc/targets/*.json``).

    Targets in Prometheus' form belong to the service in their label ``service_label``, else to the one named as the
    file.
    """

    kind: Literal["files"]
    paths: tuple[Path, ...] = Field(min_length=1, max_length=1_000)
    service_label: str = Field("job", min_length=1, max_length=128)
    rescan_s: float = Field(2.0, ge=0.1, le=600)


class DnsServiceSettings(Section):
    """The DNS name of one service. ``type: address`` queries addresses and needs ``port``.

    ``family`` says which addresses are used, for the targets of SRV records too.
    """

    name: str = Field(min_length=1, max_length=255)
    type: Literal["srv", "address"] = "srv"
    family: Literal["ipv4", "ipv6", "both"] = "ipv4"
    port: int | None = Field(None, ge=1, le=65535)

    @model_validator(mode="after")
    def _has_port(self) -> DnsServiceSettings:
        if (self.port is None) != (self.type == "srv"):
            raise ValueError("SRV records have ports of their own" if self.type == "srv" else "address needs a port")
        return self


def _check_server(value: str) -> str:
    host, port = split_server(value)
    try:
        ip_address(host)
    except ValueError:  # its message quotes the value
        raise ValueError("expected the IP address of a DNS server, with or without :PORT") from None
    if not 0 < port <= 65535:
        raise ValueError("a port is in 1..65535")
    return value


def split_server(text: str) -> tuple[str, int]:
    """Address and port of a DNS server: ``10.0.0.2``, ``10.0.0.2:5353``, ``2001:db8::1``, ``[2001:db8::1]:5353``."""
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?|([^:]+)(?::(\d{1,5}))?", text)
    if match is None:
        return text, DNS_PORT
    return match[1] or match[3], int(match[2] or match[4] or DNS_PORT)


class DnsSettings(SourceSettings):
    """DNS: a name per service. Without ``servers`` those of ``/etc/resolv.conf`` are used.

    A name is queried again after the TTL of its records, at least ``shortest_s`` and at most ``longest_s``.
    """

    kind: Literal["dns"]
    services: dict[ServiceName, DnsServiceSettings] = Field(min_length=1, max_length=SERVICES_LIMIT)
    servers: tuple[Annotated[str, AfterValidator(_check_server)], ...] = Field((), max_length=10)
    timeout_s: float = Field(2.0, gt=0, le=60)
    shortest_s: float = Field(1.0, ge=0.1, le=3_600)
    longest_s: float = Field(300.0, ge=0.1, le=86_400)
    queries_at_once: int = Field(20, ge=1, le=1_000)

    @model_validator(mode="after")
    def _ordered(self) -> DnsSettings:
        if self.longest_s < self.shortest_s:
            raise ValueError("longest_s must be at least shortest_s")
        return self


class PythonSettings(SourceSettings):
    """A user's own source: ``object`` is ``module:factory``, called with the source's name and ``options``.

    ``directory`` is searched for the module as well.
    """

    kind: Literal["python"]
    object: str
    directory: Path | None = None
    options: Options = Field(default_factory=dict)

    @field_validator("object")
    @classmethod
    def _names_an_object(cls, value: str) -> str:
        if not _OBJECT.fullmatch(value):
            raise ValueError("expected module:factory, such as 'mine.sources:inventory'")
        return value


CONSUL_LIMIT = 200  # connections of one address that Consul accepts (`limits.http_max_conns_per_client`)


class ConsulSettings(SourceSettings):
    """A Consul: the instances of one datacenter, for the services that this server uses.

    The default ``datacenter`` is that of the agent. The token may be in a file, which is read again when it changes.
    More services than ``connections`` are queried in rotation. ``wait_s`` is the wait of a blocking query; ``every_s``
    is the least time between two queries of one service. With ``stale`` any Consul server may answer. ``region_meta``
    and ``zone_meta`` are the keys of region and zone in the metadata of services and nodes.
    """

    kind: Literal["consul"]
    address: str = "http://127.0.0.1:8500"
    datacenter: str | None = Field(None, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    token: Secret | None = None
    token_path: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    connections: int = Field(100, ge=2, le=CONSUL_LIMIT)
    queries_per_s: float = Field(100.0, gt=0, le=10_000)
    every_s: float = Field(0.25, ge=0.01, le=60)
    wait_s: float = Field(15.0, ge=1, le=600)
    stale: bool = False
    region_meta: str | None = Field(None, max_length=128)
    zone_meta: str | None = Field(None, max_length=128)

    @field_validator("address")
    @classmethod
    def _is_url(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
            raise ValueError("expected http://HOST:PORT or https://HOST:PORT")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _fits(self) -> ConsulSettings:
        if self.token is not None and self.token_path is not None:
            raise ValueError("either token or token_path")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if not self.address.startswith("https") and (self.ca or self.certificate):
            raise ValueError("ca and certificate need an https address")
        return self

    def tls_context(self) -> ssl.SSLContext | None:
        """The context of an https address; None otherwise. Raises ``OSError`` for files that cannot be read."""
        if not self.address.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.private_key)
        return context


NAMESPACES_LIMIT = 100  # each takes two connections

Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
Place = Annotated[str, Field(max_length=253)]


class KubernetesSettings(SourceSettings):
    """A Kubernetes cluster: the endpoints of its Services.

    Without ``kubeconfig``, the server runs in a pod of the cluster and has the rights of the pod's service account.
    ``namespaces`` and ``labels`` (a label selector for Services and their slices) choose what is read. ``family`` is
    the address family for Services that have both; ``service`` means the first one of the Service. EndpointSlices have
    the zone of an endpoint but no region: ``regions`` has the region by zone, ``region`` is that of all other zones. If
    all endpoints of a Service have topology hints, ``zone_hints`` takes the zone of the hint. A watch on which nothing
    arrives for ``silence_s`` is started again; everything is listed again every ``relist_s``.
    """

    kind: Literal["kubernetes"]
    kubeconfig: Path | None = None
    context: str = Field("", max_length=253)
    namespaces: tuple[Namespace, ...] = Field((), max_length=NAMESPACES_LIMIT)
    labels: str = Field("", max_length=1_000)
    family: Literal["service", "ipv4", "ipv6"] = "service"
    region: Place = ""
    regions: dict[Place, Place] = Field(default_factory=dict, max_length=1_000)
    zone_hints: bool = True
    datacenter: str = Field("", max_length=64)
    page_size: int = Field(100, ge=1, le=10_000)
    watch_s: float = Field(300.0, ge=5, le=3_600)
    silence_s: float = Field(75.0, ge=1, le=3_600)
    relist_s: float = Field(3_600.0, ge=10, le=86_400)
    events_per_s: float = Field(2_000.0, gt=0, le=1_000_000)
    services_limit: int = Field(20_000, ge=1, le=1_000_000)
    endpoints_limit: int = Field(400_000, ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _fits(self) -> KubernetesSettings:
        if self.context and self.kubeconfig is None:
            raise ValueError("context is one of a kubeconfig: set kubeconfig")
        if len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("a namespace is named twice")
        return self


AnySourceSettings = Annotated[
    FilesSettings | DnsSettings | ConsulSettings | KubernetesSettings | PythonSettings, Field(discriminator="kind")
]
SourceTable = dict[SourceName, AnySourceSettings]

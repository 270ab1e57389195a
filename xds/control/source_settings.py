"""Settings of sources: ``sources`` maps the name of each source to a section, whose ``kind`` says what is read.

This module has the section that all kinds share, and the kinds that need no server: ``files``, ``dns`` and ``python``.
`source_kinds` lists all kinds.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, SecretStr, field_validator, model_validator

from xds.catalog.instance import check_service_name
from xds.control.auth_settings import Section

REGISTRATION = "registration"  # the source of what registers itself; no section may have its name
HIDDEN_VALUE = "[redacted]"
SERVICES_LIMIT = 20_000
DNS_PORT = 53

_OBJECT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

Secret = Annotated[SecretStr, PlainSerializer(lambda value: HIDDEN_VALUE if value else "", when_used="json")]
"""A value that neither errors nor ``GET /config`` show."""

Options = Annotated[dict[str, Any], PlainSerializer(lambda value: dict.fromkeys(value, HIDDEN_VALUE), when_used="json")]
"""Values for a source of one's own. Some may be secret, so none is shown."""


def _check_source_name(value: str) -> str:
    if value == REGISTRATION:
        raise ValueError(f"{REGISTRATION!r} is the source of what registers itself")
    return value


SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=63), AfterValidator(_check_source_name)]


def _check_service(value: str) -> str:
    for found in check_service_name(value):
        raise ValueError(found.detail)
    return value


ServiceName = Annotated[str, AfterValidator(_check_service)]


class SourceSettings(Section):
    """What every source has, whatever its kind.

    ``changes_per_s`` bounds how many services a second the source may put into the catalog; of more, the latest state
    of each service is put. A source that fails is run again after ``retry_s``, doubled each time up to
    ``longest_retry_s``. ``hold_share`` replaces that of ``services``.
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

    Targets in Prometheus' form belong to the service that ``service_label`` names, else to that of the file's name.
    """

    kind: Literal["files"]
    paths: tuple[Path, ...] = Field(min_length=1, max_length=1_000)
    service_label: str = Field("job", min_length=1, max_length=128)
    rescan_s: float = Field(2.0, ge=0.1, le=600)


class DnsServiceSettings(Section):
    """The name that is asked for one service. ``type: address`` asks for addresses and needs ``port``.

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
    ip_address(host)
    if not 0 < port <= 65535:
        raise ValueError("a port is in 1..65535")
    return value


def split_server(text: str) -> tuple[str, int]:
    """Address and port of a DNS server: ``10.0.0.2``, ``10.0.0.2:5353``, ``2001:db8::1``, ``[2001:db8::1]:5353``."""
    found = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?|([^:]+)(?::(\d{1,5}))?", text)
    if found is None:
        return text, DNS_PORT
    return found[1] or found[3], int(found[2] or found[4] or DNS_PORT)


class DnsSettings(SourceSettings):
    """DNS: a name per service. Without ``servers`` those of ``/etc/resolv.conf`` are asked.

    A name is asked again after the TTL of its records, at least ``shortest_s`` and at most ``longest_s``.
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
    """A source of one's own: ``object`` is ``module:factory``, called with the source's name and ``options``.

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

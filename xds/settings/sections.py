"""The sections of the settings, with defaults and limits (docs/configuration.md). ``auth`` has a module of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import pydantic
from pydantic import AfterValidator, Field, field_validator

from xds.access.auth_settings import Section
from xds.model.node import NODE_BYTES
from xds.model.units import KIB, MIB
from xds.snapshots.order import OrderRules
from xds.store.retention import DAY_S, Retention

GRPC_PORT = 18000
HTTP_PORT = 18080
LOOPBACK = "127.0.0.1"
DATABASE_SCHEMES = ("postgresql://", "postgres://")
_HOST_NAME = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def _check_host(value: str) -> str:
    if not _HOST_NAME.fullmatch(value):
        raise ValueError("expected a name without scheme and port: 'xds.example.org', '*.example.org' or '*'")
    return value.lower()


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    is_place = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    if value and not (is_place and parts.path in ("", "/") and not parts.query and not parts.fragment):
        raise ValueError("expected http://HOST:PORT or https://HOST:PORT")
    return value.rstrip("/")


HostName = Annotated[str, AfterValidator(_check_host)]


class TlsSettings(Section):
    """TLS of a listener, with PEM files. With ``client_ca`` each client must present a certificate of that authority.

    With ``client_cert: optional`` a client may present a token instead.
    """

    certificate: Path
    private_key: Path
    client_ca: Path | None = None
    client_cert: Literal["required", "optional"] = "required"


class GrpcSettings(Section):
    """The gRPC listener for xDS clients. Port 0 means any free port. ``transport``: our gRPC on asyncio, or grpcio.

    With ``reuse_port`` other servers of this user may listen on the same port of this machine.
    """

    host: str = LOOPBACK
    port: int = Field(GRPC_PORT, ge=0, le=65535)
    transport: Literal["asyncio", "grpcio"] = "asyncio"
    reuse_port: bool = False
    tls: TlsSettings | None = None


class HttpSettings(Section):
    """The HTTP listener for the admin API, REST xDS, health and metrics. Port 0 means any free port.

    ``hosts`` are the host names that requests may use while no tokens are configured.
    """

    host: str = LOOPBACK
    port: int = Field(HTTP_PORT, ge=0, le=65535)
    hosts: tuple[HostName, ...] = ()
    tls: TlsSettings | None = None


class ServerSettings(Section):
    """The listeners, and rules for pushes.

    ``on_nack`` is the default of groups (docs/internals/design.md#order-of-updates). ``require_if_match`` rejects
    writes without ``If-Match``. ``undo`` never goes back to a revision that more than ``undo_refused_share`` of its
    nodes rejected. With ``max_stream_age_s`` streams are closed at that age; 0: never. ``advertise`` is the URL
    at which the other servers of the same database reach the HTTP listener; empty for its own address. ``members_ca``
    has the authorities (PEM) that the certificates of those servers are verified by.
    """

    grpc: GrpcSettings = GrpcSettings()
    http: HttpSettings = HttpSettings()
    on_nack: Literal["hold", "proceed"] = "hold"
    undo_refused_share: float = Field(0.1, ge=0, le=1)
    drain_s: float = Field(5.0, ge=0, le=600)
    max_stream_age_s: float = Field(0.0, ge=0, le=30 * DAY_S)
    require_if_match: bool = False
    insecure: bool = False
    advertise: Annotated[str, AfterValidator(_check_url)] = ""
    members_ca: Path | None = None


class OrderSettings(Section):
    """Make before break: what new resources wait for, and how long removed ones linger.

    With ``enabled: false`` everything is sent and removed at once, which loses requests; it exists for comparison.
    ``removal_delay_s`` and ``listener_drain_s`` are the defaults of groups. `OrderRules` explains each setting except
    ``endpoint_drain_s`` (docs/services.md#draining). See docs/internals/design.md#order-of-updates.
    """

    enabled: bool = True
    removal_delay_s: float = Field(15.0, ge=0, le=DAY_S)
    listener_drain_s: float = Field(600.0, ge=0, le=DAY_S)
    endpoint_drain_s: float = Field(15.0, ge=0, le=DAY_S)
    linger_max: int = Field(100, ge=1, le=10_000)
    order_timeout_s: float = Field(30.0, gt=0, le=DAY_S)
    offer_timeout_s: float = Field(5.0, gt=0, le=DAY_S)

    def rules(self) -> OrderRules:
        """The rules as the engine uses them."""
        return OrderRules(
            ordered=self.enabled,
            removal_delay_s=self.removal_delay_s,
            listener_drain_s=self.listener_drain_s,
            linger_max=self.linger_max,
            order_timeout_s=self.order_timeout_s,
            offer_timeout_s=self.offer_timeout_s,
        )


class StoreSettings(Section):
    """Where desired state is stored, how large it may grow, and how much history is kept.

    ``url`` is that of the database where ``kind`` is ``postgres``.

    The last ``keep_revisions`` revisions of a group, and all that are newer than ``keep_days``, can be read and
    restored, at most ``keep_revisions_limit``. The history (who pushed what, and when) is kept for
    ``keep_history_days``. A deleted group can be restored for ``keep_days``. Pushes of endpoints alone are counted
    separately: the last ``keep_endpoint_revisions`` of them can be read. The audit list is kept for
    ``keep_audit_days``, and its entries of changes take at most ``audit_max_bytes``. ``keep_copy``: of a database, a
    copy of the newest state is kept in ``data``.
    """

    kind: Literal["memory", "sqlite", "postgres"] = "sqlite"
    url: str = Field("", validate_default=True)
    data: Path = Path("xds-data")
    max_bytes: int | None = Field(None, ge=MIB)
    keep_revisions: int = Field(20, ge=1)
    keep_days: float = Field(7, ge=0)
    keep_revisions_limit: int = Field(10_000, ge=1)
    keep_history_days: float = Field(365, ge=0)
    keep_endpoint_revisions: int = Field(100, ge=1)
    keep_audit_days: float = Field(365, ge=0)
    keep_copy: bool = True
    audit_max_bytes: int = Field(64 * MIB, ge=MIB)
    collect_every_s: float = Field(300, gt=0)

    @field_validator("keep_revisions_limit")
    @classmethod
    def _no_less_than_kept(cls, value: int, info: pydantic.ValidationInfo) -> int:
        if value < info.data.get("keep_revisions", 1):
            raise ValueError("must be at least keep_revisions")
        return value

    @field_validator("url")
    @classmethod
    def _url_of_postgres(cls, value: str, info: pydantic.ValidationInfo) -> str:
        if (info.data.get("kind") == "postgres") != value.startswith(DATABASE_SCHEMES):
            raise ValueError("store.kind postgres, and no other, needs postgresql://USER@HOST/DATABASE")
        return value

    def retention(self) -> Retention:
        """The retention policy as the store uses it."""
        return Retention(
            revisions=self.keep_revisions,
            age_s=self.keep_days * DAY_S,
            revisions_limit=self.keep_revisions_limit,
            history_s=self.keep_history_days * DAY_S,
            endpoint_revisions=self.keep_endpoint_revisions,
            audit_s=self.keep_audit_days * DAY_S,
            audit_bytes=self.audit_max_bytes,
        )


class CodecSettings(Section):
    """How pushed configuration is parsed. ``descriptor_sets`` are files with additional message types.

    ``protoc --include_imports --descriptor_set_out`` or ``buf build`` writes them, for contrib and private extensions.
    ``envoy`` is the Envoy binary that ``POST /validate?envoy=true`` runs.
    """

    descriptor_sets: tuple[Path, ...] = ()
    envoy: Path | None = None

    @field_validator("envoy")
    @classmethod
    def _runs(cls, value: Path | None) -> Path | None:
        if value is not None and not (value.is_file() and os.access(value, os.X_OK)):
            raise ValueError("not an executable file")
        return value


class LimitSettings(Section):
    """Limits on requests, streams and resources (docs/configuration.md)."""

    body_bytes: int = Field(64 * MIB, gt=0)
    resource_bytes: int = Field(4 * MIB, gt=0)
    grpc_receive_bytes: int = Field(8 * MIB, gt=0)
    node_bytes: int = Field(NODE_BYTES, gt=0)
    names_per_request: int = Field(20_000, gt=0)
    names_per_subscription: int = Field(100_000, gt=0)
    types_per_stream: int = Field(64, gt=0)
    name_characters: int = Field(16_384, gt=0)
    unknown_name_bytes: int = Field(16 * MIB, gt=0)
    requests_per_s: float = Field(100.0, gt=0)
    requests_burst: int = Field(1_000, gt=0)
    in_flight_bytes: int = Field(256 * MIB, ge=MIB)
    archive_bytes: int = Field(4096 * MIB, gt=0)
    http_head_bytes: int = Field(64 * KIB, ge=KIB)
    http_head_s: float = Field(10.0, gt=0)
    http_body_s: float = Field(30.0, gt=0)
    http_body_bytes_per_s: int = Field(64 * KIB, gt=0)
    http_connections: int | None = Field(None, gt=0)
    anonymous_s: float = Field(15.0, gt=0)
    anonymous_connections: int = Field(1_000, gt=0)


class WatchSettings(Section):
    """A directory of snapshot files whose changes are pushed. With ``prune`` a group is deleted with its files."""

    directory: Path | None = None
    prune: bool = False


class LoadReportSettings(Section):
    """Load reports (LRS): how often clients report, and whether they report each endpoint.

    While reading reports takes too much CPU, the interval is longer, at most ``longest_interval_s``; 0 never makes it
    longer.
    """

    interval_s: float = Field(10.0, ge=1, le=600)
    longest_interval_s: float = Field(40.0, ge=0, le=600)
    by_endpoint: bool = False


class MetricsSettings(Section):
    """Metrics. ``per_node`` adds a series per node and type, for the first ``per_node_limit`` nodes.

    A rendered page is reused for further scrapes within ``kept_s`` seconds.
    """

    per_node: bool = False
    per_node_limit: int = Field(1_000, gt=0, le=20_000)
    kept_s: float = Field(1.0, ge=0, le=60)


class LogSettings(Section):
    """Logs. Format ``auto`` writes JSON unless standard error is a terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class ChainSettings(Section):
    """Discovery chains. ``datacenter`` and ``trust_domain`` are the server's own; they are parts of names and SNI.

    Without ``partitions``, names and JSON are those of Consul before 1.11. At most ``upstream_groups`` groups can have
    upstreams: each has lowered resources of its own.
    """

    datacenter: str = Field("dc1", pattern=r"^[a-z0-9_][a-z0-9_-]*$", max_length=64)
    trust_domain: str = Field("consul", pattern=r"^[a-z0-9_-]+(\.[a-z0-9_-]+)*$", max_length=255)
    partitions: bool = True
    upstream_groups: int = Field(1_000, ge=0, le=100_000)

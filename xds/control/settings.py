"""Settings of the server, from a file, the environment and flags, in rising precedence (docs/configuration.md).

The file is YAML with the sections below. Environment variables spell the path of a setting with double underscores
(``XDS_SERVER__GRPC__PORT=18000``). With the suffix ``_FILE`` they name a file that contains the value
(``XDS_AUTH__TOKENS_FILE=/run/secrets/tokens``). An unknown key is an error with a hint, because otherwise a typo would
leave a default in force.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pydantic_settings
import yaml
from pydantic import AfterValidator, Field, PrivateAttr, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from xds.control.auth_settings import AuthSettings, Section
from xds.control.chain_settings import ChainSettings
from xds.control.moved_settings import move_settings, moved_names
from xds.control.service_settings import ServiceSettings
from xds.control.setting_errors import explain_setting, name_hint
from xds.control.source_kinds import SourceTable
from xds.model.errors import XdsError
from xds.model.node import NODE_BYTES
from xds.protocol.order import OrderRules
from xds.store.retention import DAY_S, Retention

Json = dict[str, Any]

GRPC_PORT = 18000
HTTP_PORT = 18080
LOOPBACK = "127.0.0.1"
ENV_PREFIX = "XDS_"
ENV_DELIMITER = "__"
_FILE_SUFFIX = "_FILE"
_HOST_NAME = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
HIDDEN = "[redacted]"
KIB, MIB = 1 << 10, 1 << 20
_FILE_LIMIT_BYTES = MIB


class SettingsError(XdsError):
    """The settings are invalid. The message names each key and the expected value."""


def _check_host(value: str) -> str:
    if not _HOST_NAME.fullmatch(value):
        raise ValueError("expected a name without scheme and port: 'xds.example.org', '*.example.org' or '*'")
    return value.lower()


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
    """The gRPC listener for xDS clients. Port 0 takes a free port. ``transport``: our gRPC on asyncio, or grpcio."""

    host: str = LOOPBACK
    port: int = Field(GRPC_PORT, ge=0, le=65535)
    transport: Literal["asyncio", "grpcio"] = "asyncio"
    tls: TlsSettings | None = None


class HttpSettings(Section):
    """The HTTP listener for the admin API, REST xDS, health and metrics. Port 0 takes a free port.

    ``hosts`` are the host names that requests may use while no tokens are configured.
    """

    host: str = LOOPBACK
    port: int = Field(HTTP_PORT, ge=0, le=65535)
    hosts: tuple[HostName, ...] = ()
    tls: TlsSettings | None = None


class ServerSettings(Section):
    """The listeners, and rules for pushes.

    ``on_nack`` is the default of groups (docs/design.md#order-of-updates). ``require_if_match`` rejects writes without
    ``If-Match``. ``undo`` never goes back to a revision that more than ``undo_refused_share`` of its nodes rejected.
    """

    grpc: GrpcSettings = GrpcSettings()
    http: HttpSettings = HttpSettings()
    on_nack: Literal["hold", "proceed"] = "hold"
    undo_refused_share: float = Field(0.1, ge=0, le=1)
    drain_s: float = Field(5.0, ge=0, le=600)
    require_if_match: bool = False
    insecure: bool = False


class OrderSettings(Section):
    """Make before break: what new resources wait for, and how long removed ones linger.

    With ``enabled: false`` everything is sent and removed at once, which loses requests; it exists for comparison.
    ``removal_delay_s`` and ``listener_drain_s`` are the defaults of groups. `OrderRules` explains each setting. See
    docs/design.md#order-of-updates.
    """

    enabled: bool = True
    removal_delay_s: float = Field(15.0, ge=0, le=DAY_S)
    listener_drain_s: float = Field(600.0, ge=0, le=DAY_S)
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

    The last ``keep_revisions`` revisions of a group and all younger than ``keep_days`` can be read and restored, at
    most ``keep_revisions_limit``. The history (who pushed what, and when) is kept for ``keep_history_days``. A deleted
    group can be restored for ``keep_days``. Pushes of endpoints alone are counted separately: the last
    ``keep_endpoint_revisions`` of them can be read. The audit list is kept for ``keep_audit_days``, and its entries of
    changes take at most ``audit_max_bytes``.
    """

    kind: Literal["memory", "sqlite"] = "sqlite"
    data: Path = Path("xds-data")
    max_bytes: int | None = Field(None, ge=MIB)
    keep_revisions: int = Field(20, ge=1)
    keep_days: float = Field(7, ge=0)
    keep_revisions_limit: int = Field(10_000, ge=1)
    keep_history_days: float = Field(365, ge=0)
    keep_endpoint_revisions: int = Field(100, ge=1)
    keep_audit_days: float = Field(365, ge=0)
    audit_max_bytes: int = Field(64 * MIB, ge=MIB)
    collect_every_s: float = Field(300, gt=0)

    @field_validator("keep_revisions_limit")
    @classmethod
    def _no_less_than_kept(cls, value: int, info: pydantic.ValidationInfo) -> int:
        if value < info.data.get("keep_revisions", 1):
            raise ValueError("must be at least keep_revisions")
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
    requests_per_s: float = Field(100.0, gt=0)
    requests_burst: int = Field(1_000, gt=0)
    in_flight_bytes: int = Field(256 * MIB, ge=MIB)
    archive_bytes: int = Field(4096 * MIB, gt=0)
    http_head_bytes: int = Field(64 * KIB, ge=KIB)
    http_head_s: float = Field(10.0, gt=0)
    http_body_s: float = Field(30.0, gt=0)
    http_body_bytes_per_s: int = Field(64 * KIB, gt=0)
    http_connections: int | None = Field(None, gt=0)


class WatchSettings(Section):
    """A directory of snapshot files that is kept applied. With ``prune`` a group is deleted with its files."""

    directory: Path | None = None
    prune: bool = False


class LoadReportSettings(Section):
    """Load reports (LRS): how often clients report, and whether they report each endpoint.

    While reading reports takes too much CPU, the interval is longer: at most ``longest_interval_s``; 0 turns it off.
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


class Settings(BaseSettings):
    """All settings with their defaults; build with ``load_settings``."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER
    )

    server: ServerSettings = ServerSettings()
    order: OrderSettings = OrderSettings()
    store: StoreSettings = StoreSettings()
    codec: CodecSettings = CodecSettings()
    limits: LimitSettings = LimitSettings()
    auth: AuthSettings = AuthSettings()
    load: LoadReportSettings = LoadReportSettings()
    chains: ChainSettings = ChainSettings()
    services: ServiceSettings = ServiceSettings()
    sources: SourceTable = {}
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    watch: WatchSettings = WatchSettings()
    _moved: tuple[str, ...] = PrivateAttr(())

    @property
    def moved(self) -> tuple[str, ...]:
        """A sentence for each setting that was given by a name of an earlier release."""
        return self._moved

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use the arguments alone: ``load_settings`` merges the other sources."""
        return (init_settings,)


def load_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Read ``file``, the environment and ``flags`` (nested like the file). Raises ``SettingsError``."""
    _check_environment(os.environ)
    document = _read_document(file) if file is not None else {}
    try:
        environment = merge(_from_variables(), _from_files(os.environ))
        given = merge(merge(document, environment), dict(flags or {}))
        settings = Settings(**move_settings(given))
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join(explain_setting(detail, Settings) for detail in error.errors())) from None
    settings._moved = tuple(moved_names(given))
    _check_exposure(settings)
    return settings


def auth_files(file: Path | None) -> tuple[Path, ...]:
    """The files with settings of ``auth``: ``file``, and those that environment variables name."""
    begins = f"{ENV_PREFIX}AUTH{ENV_DELIMITER}"
    named = (Path(value) for name, value in os.environ.items() if _is_file_of(name.upper(), begins))
    return (*((file,) if file is not None else ()), *named)


def _is_file_of(name: str, begins: str) -> bool:
    return name.startswith(begins) and name.endswith(_FILE_SUFFIX)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """``base`` overridden by ``over``, section by section."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def shown_settings(settings: Settings) -> Json:
    """The effective settings as JSON, without token hashes."""
    document = settings.model_dump(mode="json")
    auth = document["auth"]
    auth["token_sha256"] = [HIDDEN for _ in auth["token_sha256"]]
    auth["tokens"] = [{**token, "sha256": HIDDEN, "scopes": sorted(token["scopes"])} for token in auth["tokens"]]
    auth["certificates"] = [{**each, "scopes": sorted(each["scopes"])} for each in auth["certificates"]]
    return document


def is_loopback(host: str) -> bool:
    """Whether ``host`` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_document(file: Path) -> Json:
    try:
        with file.open("rb") as stream:
            text = stream.read(_FILE_LIMIT_BYTES + 1)
        document = yaml.safe_load(text) if len(text) <= _FILE_LIMIT_BYTES else None
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from None
    if len(text) > _FILE_LIMIT_BYTES:
        raise SettingsError(f"{file}: larger than {_FILE_LIMIT_BYTES} bytes")
    if document is not None and not isinstance(document, dict):
        raise SettingsError(f"{file}: expected sections, such as 'server:'")
    return document or {}


def _check_environment(environment: Mapping[str, str]) -> None:
    """Raises ``SettingsError`` for a variable with the path of an unknown section."""
    for name in environment:
        section, delimiter, _ = name.upper().removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        if name.upper().startswith(ENV_PREFIX) and delimiter and section not in Settings.model_fields:
            raise SettingsError(f"{name}: unknown section{name_hint(section, list(Settings.model_fields))}")


def _from_variables() -> Json:
    source = EnvSettingsSource(Settings)
    suffix = _FILE_SUFFIX.lower()
    source.env_vars = {name: value for name, value in source.env_vars.items() if not name.lower().endswith(suffix)}
    try:
        return source()
    except pydantic_settings.SettingsError as error:  # its message names the section only
        raise SettingsError(_unreadable(source) or str(error)) from None


def _unreadable(source: EnvSettingsSource) -> str:
    """The variables that should be JSON and are not. Their values are left out, since they may be secret."""
    found: list[str] = []
    for name, value in dict(source.env_vars).items():
        source.env_vars = {name: value}
        try:
            source()
        except pydantic_settings.SettingsError as error:
            found.append(f"{name.upper()}: expected JSON of a list or a section: {error.__cause__}")
    return "\n".join(found)


def _from_files(environment: Mapping[str, str]) -> Json:
    """Values from files: ``XDS_AUTH__TOKENS_FILE=/run/secrets/tokens`` sets ``auth.tokens`` to the content."""
    found: Json = {}
    for name, file in environment.items():
        upper = name.upper()
        path = upper.removeprefix(ENV_PREFIX).removesuffix(_FILE_SUFFIX).lower().split(ENV_DELIMITER)
        if upper.startswith(ENV_PREFIX) and upper.endswith(_FILE_SUFFIX) and len(path) > 1:
            nested: Any = _read_value(name, Path(file))
            for part in reversed(path):
                nested = {part: nested}
            found = merge(found, nested)
    return found


def _read_value(name: str, file: Path) -> object:
    try:
        text = file.read_text().strip()
        return json.loads(text) if text[:1] in ("[", "{") else text
    except (OSError, ValueError) as error:
        raise SettingsError(f"{name}: {file}: {error}") from None


_ADMINISTRATOR = """\
server.http.tls.client_ca: client certificates are the only credentials, and none of them has the scope admin.
A certificate without an entry may be an xDS client only. Add an entry for those who push, by a name in it:
  auth:
    certificates:
      - {uri: "spiffe://corp.example/operators/*", name: operators, scopes: [admin]}
      - {dns: "admin.corp.example", name: operators, scopes: [admin]}
      - {cn: "admin", name: operators, scopes: [admin]}
or a token:
  auth:
    tokens:
      - {name: operators, sha256: "<printf %s TOKEN | sha256sum>", scopes: [admin]}"""


def _check_administrator(settings: Settings) -> None:
    """Certificates authenticate, they do not authorise: the certificate of a proxy must not allow pushes."""
    tls, auth = settings.server.http.tls, settings.auth
    if tls is not None and tls.client_ca is not None and not auth.accepted() and not auth.has_administrator():
        raise SettingsError(_ADMINISTRATOR)


def _check_optional(settings: Settings, name: str, tls: TlsSettings) -> None:
    """Optional client certificates need a ``client_ca``. grpcio's transport can only require certificates."""
    if tls.client_ca is None:
        raise SettingsError(f"server.{name}.tls.client_cert: optional needs server.{name}.tls.client_ca")
    if name == "grpc" and settings.server.grpc.transport == "grpcio":
        raise SettingsError("server.grpc.tls.client_cert: grpcio's transport supports only required; use asyncio's")


def _check_exposure(settings: Settings) -> None:
    """A listener beyond the loopback needs TLS and credentials, or ``--insecure``. One credential must allow pushes."""
    _check_administrator(settings)
    for name, listener in (("grpc", settings.server.grpc), ("http", settings.server.http)):
        if listener.tls is not None and listener.tls.client_cert == "optional":
            _check_optional(settings, name, listener.tls)
    if settings.server.insecure:
        return
    for name, listener in (("grpc", settings.server.grpc), ("http", settings.server.http)):
        if is_loopback(listener.host):
            continue
        credentials = settings.auth.accepted() or (listener.tls is not None and listener.tls.client_ca is not None)
        if listener.tls is None or not credentials:
            raise SettingsError(
                f"server.{name}.host: {listener.host} is reachable from other machines; set server.{name}.tls and"
                " credentials (auth.tokens, auth.token_sha256 or tls.client_ca), or pass --insecure"
            )

"""Settings of the server, from a file, the environment and flags, in rising precedence (docs/configuration.md).

The file is YAML with the sections of `Settings`. Environment variables spell the path of a setting with double
underscores (``XDS_SERVER__GRPC__PORT=18000``). With the suffix ``_FILE`` they name a file that contains the value
(``XDS_AUTH__TOKENS_FILE=/run/secrets/tokens``). An unknown key is an error with a hint, because otherwise a typo would
leave a default in effect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pydantic
import pydantic_settings
import yaml
from pydantic import PrivateAttr
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from xds.access.auth_settings import AuthSettings, Section
from xds.codec.regular_file import read_regular
from xds.codec.text import yaml_fault
from xds.model.errors import XdsError
from xds.model.units import MIB
from xds.settings.sections import (
    ChainSettings,
    CodecSettings,
    LimitSettings,
    LoadReportSettings,
    LogSettings,
    MetricsSettings,
    OrderSettings,
    ServerSettings,
    StoreSettings,
    TlsSettings,
    WatchSettings,
)
from xds.settings.setting_errors import explain_setting, name_hint

Json = dict[str, Any]
S = TypeVar("S", bound=Section)

ENV_PREFIX = "XDS_"
ENV_DELIMITER = "__"
_FILE_SUFFIX = "_FILE"
HIDDEN = "[redacted]"
_FILE_LIMIT_BYTES = MIB
MOVED: Mapping[str, str] = {"server.order": "order.enabled"}
"""Renamed settings: old path to new path, as ``section.name``."""


class SettingsError(XdsError):
    """The settings are invalid. The message names each key and the expected value."""


class ExposedListenerError(SettingsError):
    """Other machines would reach a listener without TLS and credentials, and ``server.insecure`` is not set."""


class Settings(BaseSettings):
    """The settings of the kernel with their defaults. `with_sections` adds those of features."""

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
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    watch: WatchSettings = WatchSettings()
    _moved: tuple[str, ...] = PrivateAttr(())

    def value(self, name: str) -> Any:
        """The value of a section that a feature has added."""
        return getattr(self, name)

    def section(self, kind: type[S]) -> S:
        """The section of this class, which a feature has added."""
        return next(value for name in type(self).model_fields if isinstance(value := getattr(self, name), kind))

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


def with_sections(*sections: Mapping[str, tuple[Any, Any]]) -> type[Settings]:
    """The settings with more sections: the type and the default of each by its name."""
    fields: dict[str, Any] = {name: section for each in sections for name, section in each.items()}
    return pydantic.create_model("Settings", __base__=Settings, **fields)


def load_settings(kind: type[Settings], file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Read ``file``, the environment and ``flags`` (nested like the file). Raises ``SettingsError``."""
    _check_environment(kind, os.environ)
    document = _read_document(file) if file is not None else {}
    environment = merge(_from_variables(kind), _from_files(os.environ))
    return make_settings(kind, merge(merge(document, environment), dict(flags or {})))


def make_settings(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Settings from a document with the sections of the file alone. Raises ``SettingsError``."""
    try:
        settings = kind(**move_settings(given))
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join(explain_setting(detail, kind) for detail in error.errors())) from None
    settings._moved = tuple(moved_names(given))
    _check_exposure(settings)
    return settings


def auth_files(file: Path | None) -> tuple[Path, ...]:
    """The files with settings of ``auth``: ``file``, and those that environment variables name."""
    prefix = f"{ENV_PREFIX}AUTH{ENV_DELIMITER}"
    named = (Path(value) for name, value in os.environ.items() if _names_file(name.upper(), prefix))
    return (*((file,) if file is not None else ()), *named)


def move_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with renamed settings under their new paths. A value that has the new path already wins."""
    moved = dict(document)
    for old, new in MOVED.items():
        old_section, old_name = old.split(".")
        new_section, new_name = new.split(".")
        section = moved.get(old_section)
        if not isinstance(section, Mapping) or old_name not in section:
            continue
        moved[old_section] = {name: value for name, value in section.items() if name != old_name}
        target = moved.get(new_section)
        if target is None or isinstance(target, Mapping):  # otherwise the check of the settings reports the error
            moved[new_section] = {new_name: section[old_name], **(target or {})}
    return moved


def moved_names(document: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each renamed setting that the document has under its old path."""
    for old, new in MOVED.items():
        section, name = old.split(".")
        if isinstance(document.get(section), Mapping) and name in document[section]:
            yield f"{old}: this setting is now {new!r}; the old name still works"


def _names_file(variable: str, prefix: str) -> bool:
    return variable.startswith(prefix) and variable.endswith(_FILE_SUFFIX)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """``base`` overridden by ``over``, section by section."""
    merged = dict(base)
    for key, value in over.items():
        section = merged.get(key)
        merged[key] = merge(section, value) if isinstance(section, Mapping) and isinstance(value, Mapping) else value
    return merged


def shown_settings(settings: Settings) -> Json:
    """The effective settings as JSON, without token hashes and what the URL of a database may contain."""
    document = settings.model_dump(mode="json")
    document["store"]["url"] = HIDDEN if settings.store.url else ""
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


def is_unspecified(host: str) -> bool:
    """Whether ``host`` means every address of this machine."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def _read_document(file: Path) -> Json:
    try:
        document = yaml.safe_load(read_regular(file, _FILE_LIMIT_BYTES).data)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    except yaml.YAMLError as error:
        fault = yaml_fault(error)
        raise SettingsError(f"{file}:{fault.line}:{fault.column}: {fault.detail}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: {error}") from None
    if document is not None and not isinstance(document, dict):
        raise SettingsError(f"{file}: expected sections, such as 'server:'")
    return document or {}


def _check_environment(kind: type[Settings], environment: Mapping[str, str]) -> None:
    """Raises ``SettingsError`` for a variable with the path of an unknown section."""
    for name in environment:
        section, delimiter, _ = name.upper().removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        if name.upper().startswith(ENV_PREFIX) and delimiter and section not in kind.model_fields:
            raise SettingsError(f"{name}: unknown section{name_hint(section, list(kind.model_fields))}")


def _from_variables(kind: type[Settings]) -> Json:
    source = EnvSettingsSource(kind)
    suffix = _FILE_SUFFIX.lower()
    source.env_vars = {name: value for name, value in source.env_vars.items() if not name.lower().endswith(suffix)}
    try:
        return source()
    except pydantic_settings.SettingsError as error:  # its message names the section only
        raise SettingsError(_unreadable(source) or str(error)) from None


def _unreadable(source: EnvSettingsSource) -> str:
    """An error for each variable that should be JSON and is not. The values are left out: they may be secret."""
    errors: list[str] = []
    for name, value in dict(source.env_vars).items():
        source.env_vars = {name: value}
        try:
            source()
        except pydantic_settings.SettingsError as error:
            errors.append(f"{name.upper()}: expected JSON of a list or a section: {error.__cause__}")
    return "\n".join(errors)


def _from_files(environment: Mapping[str, str]) -> Json:
    """Values from files: ``XDS_AUTH__TOKENS_FILE=/run/secrets/tokens`` sets ``auth.tokens`` to the content."""
    document: Json = {}
    for name, file in environment.items():
        upper = name.upper()
        path = upper.removeprefix(ENV_PREFIX).removesuffix(_FILE_SUFFIX).lower().split(ENV_DELIMITER)
        if upper.startswith(ENV_PREFIX) and upper.endswith(_FILE_SUFFIX) and len(path) > 1:
            nested: Any = _read_value(name, Path(file))
            for part in reversed(path):
                nested = {part: nested}
            document = merge(document, nested)
    return document


def _read_value(name: str, file: Path) -> object:
    try:
        text = read_regular(file, _FILE_LIMIT_BYTES).data.decode().strip()
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


def _check_advertise(settings: Settings) -> None:
    """Servers of one database must reach each other, and their secret must not be readable on the way."""
    server = settings.server
    if settings.store.kind == "postgres" and not server.advertise and is_unspecified(server.http.host):
        raise SettingsError(
            f"server.advertise: server.http.host {server.http.host} is no address that the other servers of the"
            " database can use; set the URL at which they reach this server, such as https://10.0.0.5:18080"
        )
    advertised = urlsplit(server.advertise)
    if advertised.scheme == "http" and not is_loopback(advertised.hostname or "") and not server.insecure:
        raise SettingsError(
            "server.advertise: the servers send each other a secret, which others can read on the way without TLS;"
            " use https, or server.insecure: true"
        )


def _check_exposure(settings: Settings) -> None:
    """A listener beyond the loopback needs TLS and credentials. One credential must allow pushes."""
    _check_administrator(settings)
    _check_advertise(settings)
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
            raise ExposedListenerError(
                f"server.{name}.host: {listener.host} is reachable from other machines; set server.{name}.tls and"
                " credentials (auth.tokens, auth.token_sha256 or tls.client_ca), or"
                " server.insecure: true"
            )

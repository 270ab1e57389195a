"""Fields and rules that several kinds of entries share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from xds.codec.findings import Findings, short_repr
from xds.consul.shape import FLAG, INTEGER, KEY_LIMIT, OPAQUE, TEXT, TEXT_MAP, TEXTS, ListOf, Message, Path, member

META_PAIRS_LIMIT = 64
META_KEY_LIMIT = 128  # characters, as bytes of UTF-8
META_VALUE_LIMIT = 512
DEFAULT = "default"

_GATEWAY_MODES = ("", "none", "local", "remote")
_PROXY_MODES = ("", "transparent", "direct")
_MUTUAL_TLS_MODES = ("", "strict", "permissive")
_ENTERPRISE = "there is one namespace and one partition here, both called default: leave it out"


@dataclass(frozen=True, slots=True)
class HeaderModifiers:
    """``add`` appends, ``set`` overwrites, ``remove`` strips."""

    add: Mapping[str, str] = member("Add", TEXT_MAP)
    set: Mapping[str, str] = member("Set", TEXT_MAP)
    remove: tuple[str, ...] = member("Remove", TEXTS)

    @property
    def is_empty(self) -> bool:
        """Whether no header is changed."""
        return not (self.add or self.set or self.remove)


def merge_headers(base: HeaderModifiers | None, override: HeaderModifiers | None) -> HeaderModifiers | None:
    """Both changes in one: on equal keys ``override`` wins; removals of ``base`` come first, without duplicates."""
    if base is None or base.is_empty:
        return override
    if override is None or override.is_empty:
        return base
    removed = dict.fromkeys(base.remove + override.remove)
    return HeaderModifiers({**base.add, **override.add}, {**base.set, **override.set}, tuple(removed))


@dataclass(frozen=True, slots=True)
class MeshGateway:
    """``mode``: empty, ``none``, ``local`` or ``remote``."""

    mode: str = member("Mode", TEXT)


@dataclass(frozen=True, slots=True)
class TransparentProxy:
    """``dialed_directly``: clients reach instances by their own addresses."""

    outbound_listener_port: int = member("OutboundListenerPort", INTEGER)
    dialed_directly: bool = member("DialedDirectly", FLAG)


@dataclass(frozen=True, slots=True)
class EnvoyExtension:
    """An Envoy extension. It is stored and shown, but has no effect."""

    name: str = member("Name", TEXT, always=True)
    required: bool = member("Required", FLAG)
    arguments: Mapping[str, object] = member("Arguments", OPAQUE)
    consul_version: str = member("ConsulVersion", TEXT)
    envoy_version: str = member("EnvoyVersion", TEXT)


@dataclass(frozen=True, slots=True)
class ExposedPath:
    """A path that is open to clients without a certificate."""

    listener_port: int = member("ListenerPort", INTEGER)
    path: str = member("Path", TEXT)
    local_path_port: int = member("LocalPathPort", INTEGER)
    protocol: str = member("Protocol", TEXT)
    parsed_from_check: bool = member("ParsedFromCheck", FLAG)


@dataclass(frozen=True, slots=True)
class Expose:
    """The paths that the inbound side opens."""

    checks: bool = member("Checks", FLAG)
    paths: tuple[ExposedPath, ...] = member("Paths", ListOf(Message(ExposedPath)))


def check_common(name: str, meta: Mapping[str, str], namespace: str, partition: str, findings: Findings) -> None:
    """Check the rules of every entry: a name, bounded meta, only the default namespace and partition."""
    if not name:
        findings.add("missing_name", "Name is required", ("Name",))
    if len(name) > KEY_LIMIT:
        findings.add("bad_name", f"a name of {len(name)} characters; {KEY_LIMIT} are allowed", ("Name",))
    check_meta(meta, findings)
    check_tenancy(namespace, partition, findings, ())


def check_meta(meta: Mapping[str, str], findings: Findings) -> None:
    """Check the limits of Meta."""
    if len(meta) > META_PAIRS_LIMIT:
        findings.add("bad_meta", f"Meta has {len(meta)} pairs; {META_PAIRS_LIMIT} are allowed", ("Meta",))
    for key, value in meta.items():
        if len(key.encode()) > META_KEY_LIMIT:
            findings.add("bad_meta", f"Meta key {short_repr(key)} is longer than {META_KEY_LIMIT}", ("Meta", key))
        if len(value.encode()) > META_VALUE_LIMIT:
            detail = f"the Meta value of {short_repr(key)} is longer than {META_VALUE_LIMIT}"
            findings.add("bad_meta", detail, ("Meta", key))


def check_tenancy(namespace: str, partition: str, findings: Findings, path: Path) -> None:
    """Check that namespace and partition are empty or ``default``; others need Consul Enterprise."""
    for field, value in (("Namespace", namespace), ("Partition", partition)):
        if value not in ("", DEFAULT):
            detail = f"{field} {short_repr(value)} requires Consul Enterprise"
            findings.add("enterprise", detail, (*path, field), hint=_ENTERPRISE)


def check_enterprise(field: str, is_set: bool, findings: Findings, path: Path) -> None:
    """Refuse a field that only Consul Enterprise has."""
    if is_set:
        findings.add("enterprise", f"{field} requires Consul Enterprise", path)


def check_choice(value: str, choices: tuple[str, ...], field: str, findings: Findings, path: Path) -> bool:
    """Check that the value is one of the choices. The message leaves out the empty choice."""
    if value in choices:
        return True
    named = [choice for choice in choices if choice]
    close = get_close_matches(value[:80].lower(), named, n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"one of {', '.join(named)}"
    findings.add("bad_choice", f"{short_repr(value)} is not a valid {field}", path, hint=hint)
    return False


def check_proxy(
    mode: str,
    mutual_tls_mode: str,
    gateway: MeshGateway,
    extensions: tuple[EnvoyExtension, ...],
    findings: Findings,
) -> None:
    """Check the fields that service-defaults and proxy-defaults share."""
    check_choice(mode, _PROXY_MODES, "proxy mode", findings, ("Mode",))
    check_choice(mutual_tls_mode, _MUTUAL_TLS_MODES, "mode of mutual TLS", findings, ("MutualTLSMode",))
    check_gateway(gateway, findings, ())
    for index, extension in enumerate(extensions):
        if not extension.name:
            path = ("EnvoyExtensions", index, "Name")
            findings.add("missing_name", f"EnvoyExtensions[{index}] has no Name", path)


def check_gateway(gateway: MeshGateway, findings: Findings, path: Path) -> None:
    """Check the mode of mesh gateways."""
    check_choice(gateway.mode, _GATEWAY_MODES, "mesh gateway mode", findings, (*path, "MeshGateway", "Mode"))

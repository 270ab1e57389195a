"""The settings that service-defaults and proxy-defaults share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xds.catalog.shape import FLAG, INTEGER, OPAQUE, TEXT, ListOf, Message, member


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

"""proxy-defaults: settings of all proxies. There is one entry, ``global``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.catalog.proxy import EnvoyExtension, Expose, MeshGateway, TransparentProxy
from xds.catalog.resolver import FailoverPolicy, LocalityPriority
from xds.catalog.shape import FLAG, OPAQUE, TEXT, TEXT_MAP, ListOf, Message, TextShape, member, message

GLOBAL = "global"
_PROTOCOL = "protocol"


def _named(name: str) -> str:
    return name or GLOBAL


@dataclass(frozen=True, slots=True)
class AccessLogs:
    """Access logs of the proxies."""

    enabled: bool = member("Enabled", FLAG)
    disable_listener_logs: bool = member("DisableListenerLogs", FLAG)
    type: str = member("Type", TEXT)
    path: str = member("Path", TEXT)
    json_format: str = member("JSONFormat", TEXT)
    text_format: str = member("TextFormat", TEXT)


@dataclass(frozen=True, slots=True)
class ProxyDefaults:
    """``config`` is an opaque map; the chain reads only the protocol from it."""

    kind: ClassVar[str] = "proxy-defaults"

    name: str = member("Name", TextShape(_named), always=True, default=GLOBAL)
    config: Mapping[str, object] = member("Config", OPAQUE, always=True)
    mode: str = member("Mode", TEXT)
    transparent_proxy: TransparentProxy = message("TransparentProxy", TransparentProxy)
    mutual_tls_mode: str = member("MutualTLSMode", TEXT)
    mesh_gateway: MeshGateway = message("MeshGateway", MeshGateway)
    expose: Expose = message("Expose", Expose)
    access_logs: AccessLogs | None = member("AccessLogs", Message(AccessLogs))
    envoy_extensions: tuple[EnvoyExtension, ...] = member("EnvoyExtensions", ListOf(Message(EnvoyExtension)))
    failover_policy: FailoverPolicy | None = member("FailoverPolicy", Message(FailoverPolicy))
    prioritize_by_locality: LocalityPriority | None = member("PrioritizeByLocality", Message(LocalityPriority))
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)

    @property
    def protocol(self) -> str:
        """``protocol`` of the config, its key in any case:

        exactly this spelling first, else the alphabetically first one.
        """
        keys = (
            [_PROTOCOL] if _PROTOCOL in self.config else sorted(key for key in self.config if key.lower() == _PROTOCOL)
        )
        found = self.config[keys[0]] if keys else ""
        return found if isinstance(found, str) else ""

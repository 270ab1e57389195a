"""Config entries for one compilation, with a record of the entries that it looked up.

The record is the chain's invalidation set: changes of other entries do not change the chain. A missing entry counts as
well, because it may be added.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.catalog.defaults import GLOBAL, ProxyDefaults, ServiceDefaults
from xds.catalog.entry import Key
from xds.catalog.entry_set import ConfigEntries
from xds.catalog.resolver import ServiceResolver
from xds.catalog.router import ServiceRouter
from xds.catalog.splitter import ServiceSplitter

PROXY_DEFAULTS: Key = (ProxyDefaults.kind, GLOBAL)


class ConsultedEntries:
    """The lookups of one compilation. ``keys`` grows with each of them."""

    __slots__ = ("_defaults", "_proxy_defaults", "_resolvers", "_routers", "_splitters", "keys")

    def __init__(self, entries: ConfigEntries) -> None:
        # These lookups occur many times in one compilation, so the methods are resolved once.
        self._routers: Mapping[str, ServiceRouter] = entries.by_kind.get(ServiceRouter.kind, {})
        self._splitters: Mapping[str, ServiceSplitter] = entries.by_kind.get(ServiceSplitter.kind, {})
        self._resolvers: Mapping[str, ServiceResolver] = entries.by_kind.get(ServiceResolver.kind, {})
        self._defaults: Mapping[str, ServiceDefaults] = entries.by_kind.get(ServiceDefaults.kind, {})
        self._proxy_defaults = entries.proxy_defaults()
        self.keys: set[Key] = {PROXY_DEFAULTS}

    def router(self, service: str) -> ServiceRouter | None:
        """The router of a service."""
        self.keys.add((ServiceRouter.kind, service))
        return self._routers.get(service)

    def splitter(self, service: str) -> ServiceSplitter | None:
        """The splitter of a service."""
        self.keys.add((ServiceSplitter.kind, service))
        return self._splitters.get(service)

    def resolver(self, service: str) -> ServiceResolver | None:
        """The resolver of a service."""
        self.keys.add((ServiceResolver.kind, service))
        return self._resolvers.get(service)

    def defaults(self, service: str) -> ServiceDefaults | None:
        """The defaults of a service."""
        self.keys.add((ServiceDefaults.kind, service))
        return self._defaults.get(service)

    def proxy_defaults(self) -> ProxyDefaults | None:
        """The proxy-defaults, which every chain looks up."""
        return self._proxy_defaults

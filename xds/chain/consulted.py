"""Config entries as one compilation asks for them, with a record of what it asked for.

The record is the chain's invalidation set: whatever happens to other entries, the chain comes out the same. What is
not there counts as well, for it may appear.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.catalog.entry import Key
from xds.catalog.entry_set import ConfigEntries
from xds.catalog.proxy_defaults import GLOBAL, ProxyDefaults
from xds.catalog.resolver import ServiceResolver
from xds.catalog.router import ServiceRouter
from xds.catalog.service_defaults import ServiceDefaults
from xds.catalog.splitter import ServiceSplitter

PROXY_DEFAULTS: Key = (ProxyDefaults.kind, GLOBAL)


class ConsultedEntries:
    """``keys`` grows with every question."""

    __slots__ = ("_defaults", "_proxy_defaults", "_resolvers", "_routers", "_splitters", "keys")

    def __init__(self, entries: ConfigEntries) -> None:
        # Asked many times in one compilation: the ways to them are gone once.
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
        """The one entry of its kind, which every chain asks for."""
        return self._proxy_defaults

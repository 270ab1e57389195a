"""Config entries as one compilation asks for them, with a record of what it asked for.

The record is the chain's invalidation set: whatever happens to other entries, the chain comes out the same. What is
not there counts as well, for it may appear.
"""

from __future__ import annotations

from xds.catalog.entries import ConfigEntries
from xds.catalog.entry import Key
from xds.catalog.proxy_defaults import GLOBAL, ProxyDefaults
from xds.catalog.resolver import ServiceResolver
from xds.catalog.router import ServiceRouter
from xds.catalog.service_defaults import ServiceDefaults
from xds.catalog.splitter import ServiceSplitter

PROXY_DEFAULTS: Key = (ProxyDefaults.kind, GLOBAL)


class ConsultedEntries:
    """``keys`` grows with every question."""

    __slots__ = ("_entries", "keys")

    def __init__(self, entries: ConfigEntries) -> None:
        self._entries = entries
        self.keys: set[Key] = {PROXY_DEFAULTS}

    def router(self, service: str) -> ServiceRouter | None:
        """The router of a service."""
        self.keys.add((ServiceRouter.kind, service))
        return self._entries.router(service)

    def splitter(self, service: str) -> ServiceSplitter | None:
        """The splitter of a service."""
        self.keys.add((ServiceSplitter.kind, service))
        return self._entries.splitter(service)

    def resolver(self, service: str) -> ServiceResolver | None:
        """The resolver of a service."""
        self.keys.add((ServiceResolver.kind, service))
        return self._entries.resolver(service)

    def defaults(self, service: str) -> ServiceDefaults | None:
        """The defaults of a service."""
        self.keys.add((ServiceDefaults.kind, service))
        return self._entries.defaults(service)

    def proxy_defaults(self) -> ProxyDefaults | None:
        """The one entry of its kind, which every chain asks for."""
        return self._entries.proxy_defaults()

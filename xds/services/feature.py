"""What the kernel sees of services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xds.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from xds.admin.examples import ApiTexts
    from xds.admin.foreign_apis import ForeignApi
    from xds.feature import Kernel
    from xds.services.core.source import Source
    from xds.services.served import ServedServices
    from xds.services.source_settings import SourceSettings


class ServicesFeature(Feature):
    """Services and their instances. ``sources`` are added to those of the settings."""

    def __init__(self, sources: Sequence[tuple[Source, SourceSettings]] = ()) -> None:
        self._sources = sources

    def add_commands(self) -> None:
        """``xds services``, ``service``, ``sources``, ``source``, and endpoints that follow a service."""
        from xds.cli.help_layout import place
        from xds.services.commands import bindings, registrations, services, sources  # noqa: F401

        place("Services and traffic", "services", "service", "sources", "source", is_first=True)

    def settings(self) -> Mapping[str, tuple[Any, Any]]:
        """The sections ``services`` and ``sources``."""
        from xds.services.settings import ServiceSettings
        from xds.services.source_settings import SourceTable

        return {"services": (ServiceSettings, ServiceSettings()), "sources": (SourceTable, {})}

    def routers(self) -> Sequence[APIRouter]:
        """The routes of services, sources, registrations and bindings, and Consul's paths for them."""
        from xds.services.routes import bindings, catalog, consul_agent, consul_catalog, registrations, sources

        # The agent's first: routes are tried in order, and there may be thousands of heartbeats per second.
        modules = (consul_agent, bindings, catalog, registrations, sources, consul_catalog)
        return [registrations.internal, *(module.router for module in modules)]

    def foreign_apis(self) -> Sequence[ForeignApi]:
        """Consul's."""
        from xds.consul.routing import CONSUL_API

        return (CONSUL_API,)

    def texts(self) -> Sequence[ApiTexts]:
        from xds.services.texts import TEXTS

        return (TEXTS,)

    def serve(self, kernel: Kernel) -> ServedServices:
        from xds.services.served import ServedServices

        return ServedServices.of(kernel, self._sources)

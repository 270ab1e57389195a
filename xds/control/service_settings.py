"""Settings of the catalog of services (docs/services.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from xds.control.auth_settings import Section

if TYPE_CHECKING:
    from xds.catalog.holding import HoldRule
    from xds.catalog.service_index import CatalogLimits


class ServiceSettings(Section):
    """Services of the catalog.

    A source that loses more than ``hold_share`` of the instances of a service within ``hold_window_s`` is held at the
    last good set; with 1 nothing is held. The limits bound what is kept: the rest is left out and reported.
    """

    hold_share: float = Field(0.5, ge=0, le=1)
    hold_window_s: float = Field(10.0, ge=0, le=3600)
    services_limit: int = Field(20_000, ge=1, le=1_000_000)
    instances_per_service: int = Field(10_000, ge=1, le=100_000)
    instances_per_source: int = Field(200_000, ge=1, le=10_000_000)

    def rule(self, drain_s: float) -> HoldRule:
        """What is held, and how long instances drain. Imported here, since light commands read settings too."""
        from xds.catalog.holding import HoldRule

        return HoldRule(self.hold_share, self.hold_window_s, drain_s)

    def limits(self) -> CatalogLimits:
        """The bounds of the catalog."""
        from xds.catalog.service_index import CatalogLimits

        return CatalogLimits(self.services_limit, self.instances_per_service, self.instances_per_source)

"""Settings of the catalog of services (docs/configuration.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from xds.access.auth_settings import Section
from xds.services.source_settings import SourceTable
from xds.settings.settings import Settings

if TYPE_CHECKING:
    from xds.services.core.holding import HoldRule
    from xds.services.core.index import CatalogLimits


def source_table(settings: Settings) -> SourceTable:
    """The section ``sources``."""
    table: SourceTable = settings.value("sources")
    return table


class ServiceSettings(Section):
    """Services of the catalog.

    If a source loses more than ``hold_share`` of the instances of a service within ``hold_window_s``, its last good set
    is served on; with 1 no loss is held. Services and instances beyond the limits are left out and reported.
    """

    hold_share: float = Field(0.5, ge=0, le=1)
    hold_window_s: float = Field(10.0, ge=0, le=3600)
    services_limit: int = Field(20_000, ge=1, le=1_000_000)
    instances_per_service: int = Field(10_000, ge=1, le=100_000)
    instances_per_source: int = Field(200_000, ge=1, le=10_000_000)

    def rule(self, drain_s: float) -> HoldRule:
        """The rule for held losses and draining. Imported here, since light commands read settings too."""
        from xds.services.core.holding import HoldRule

        return HoldRule(self.hold_share, self.hold_window_s, drain_s)

    def limits(self) -> CatalogLimits:
        """The bounds of the catalog."""
        from xds.services.core.index import CatalogLimits

        return CatalogLimits(self.services_limit, self.instances_per_service, self.instances_per_source)

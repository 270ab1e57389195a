"""All features of the program. Each may use those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xds.linkerd.feature import LinkerdFeature
from xds.mesh.feature import MeshFeature
from xds.services.feature import ServicesFeature
from xds.steering.feature import SteeringFeature

if TYPE_CHECKING:
    from xds.feature import Feature
    from xds.services.core.source import Source
    from xds.services.source_settings import SourceSettings


def with_sources(sources: Sequence[tuple[Source, SourceSettings]]) -> tuple[Feature, ...]:
    """All features; these sources are added to those of the settings."""
    return ServicesFeature(sources), SteeringFeature(), MeshFeature(), LinkerdFeature()


FEATURES = with_sources(())

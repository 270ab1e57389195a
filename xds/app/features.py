"""All features of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xds.linkerd.feature import Linkerd
from xds.steering.feature import Steering

if TYPE_CHECKING:
    from xds.feature import Feature

FEATURES: tuple[Feature, ...] = (Steering(), Linkerd())

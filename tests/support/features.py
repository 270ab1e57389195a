"""The rooms of the features."""

from __future__ import annotations

from xds.app.features import FEATURES

FEATURE_ROOMS = tuple(type(each).__module__.removesuffix(".feature") for each in FEATURES)

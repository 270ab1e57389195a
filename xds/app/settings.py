"""The settings of a server: those of the kernel and those of all features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xds.app.features import FEATURES
from xds.settings import settings
from xds.settings.settings import Settings

SETTINGS = settings.with_sections(*(feature.settings() for feature in FEATURES))


def load_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Read ``file``, the environment and ``flags`` (nested like the file). Raises ``SettingsError``."""
    return settings.load_settings(SETTINGS, file, flags)


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Settings from a document with the sections of the file alone. Raises ``SettingsError``."""
    return settings.make_settings(SETTINGS, given)

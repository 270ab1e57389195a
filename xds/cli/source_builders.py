"""Builds the sources of the settings. Each kind is imported only if there is such a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from xds.catalog.source import Source
from xds.control.settings import Settings, SettingsError
from xds.control.source_settings import PythonSettings, SourceSettings
from xds.model.errors import XdsError


def build_sources(settings: Settings) -> Iterator[tuple[Source, SourceSettings]]:
    """Each source with its section, by name. Raises ``SettingsError`` for a source that cannot be built."""
    for name, section in sorted(settings.sources.items()):
        try:
            yield _BUILDERS[section.kind](name, section), section
        except (XdsError, OSError, ValueError) as error:
            raise SettingsError(f"sources.{name}: {error}") from error


def _build_python(name: str, section: PythonSettings) -> Source:
    from xds.sources.own import load_source

    return load_source(name, section.object, section.options, section.directory)


_BUILDERS: dict[str, Callable[[str, Any], Source]] = {
    "python": _build_python,
}

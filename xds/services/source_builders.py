"""Builds the sources of the settings. Each kind is imported only if there is such a source.

`load_source` loads a source that the user wrote in Python (docs/services.md#a-source-of-your-own).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from xds.model.errors import XdsError
from xds.services.core.source import Source, SourceError
from xds.services.settings import source_table
from xds.services.source_settings import (
    ConsulSettings,
    DnsSettings,
    FilesSettings,
    KubernetesSettings,
    PythonSettings,
    SourceSettings,
    split_server,
)
from xds.settings.settings import Settings, SettingsError


def build_sources(settings: Settings, names: Collection[str] | None = None) -> Iterator[tuple[Source, SourceSettings]]:
    """The sources with their sections, by name; only ``names`` if given.

    Raises ``SettingsError`` for a source that cannot be built.
    """
    for name, section in sorted(source_table(settings).items()):
        if names is not None and name not in names:
            continue
        try:
            yield _BUILDERS[section.kind](name, section, settings), section
        except (XdsError, OSError, ValueError) as error:
            raise SettingsError(f"sources.{name}: {error}") from error


def _build_files(name: str, section: FilesSettings, settings: Settings) -> Source:
    from xds.services.sources.file_source import FilesSource

    return FilesSource(name, section.paths, service_label=section.service_label, rescan_s=section.rescan_s)


def _build_dns(name: str, section: DnsSettings, settings: Settings) -> Source:
    from xds.services.sources.dns_cache import FAMILIES, QueryIntervals
    from xds.services.sources.dns_client import DnsClient
    from xds.services.sources.dns_source import DnsSource, service_name

    services = {
        service: service_name(each.name, each.port, FAMILIES[each.family]) for service, each in section.services.items()
    }
    client = DnsClient(tuple(map(split_server, section.servers)), section.timeout_s)
    pace = QueryIntervals(section.shortest_s, section.longest_s, section.retry_s, section.longest_retry_s)
    return DnsSource(name, services, client, pace, section.queries_at_once)


def _build_kubernetes(name: str, section: KubernetesSettings, settings: Settings) -> Source:
    from xds.services.sources.kubernetes import KubernetesSource

    return KubernetesSource(name, section)


def _build_python(name: str, section: PythonSettings, settings: Settings) -> Source:
    return load_source(name, section.object, section.options, section.directory)


def _build_consul(name: str, section: ConsulSettings, settings: Settings) -> Source:
    from xds.services.sources.consul_source import ConsulSource

    return ConsulSource(name, section, settings.chains.datacenter)


_BUILDERS: dict[str, Callable[[str, Any, Settings], Source]] = {
    "consul": _build_consul,
    "files": _build_files,
    "dns": _build_dns,
    "kubernetes": _build_kubernetes,
    "python": _build_python,
}


def load_source(name: str, object_path: str, options: Mapping[str, Any], directory: Path | None = None) -> Source:
    """Call ``module:factory`` with the source's name and ``options``.

    ``directory`` is searched for the module as well. Raises ``SourceError`` for any failure, and for an object with
    another name or without the members of `Source`.
    """
    module_name, _, attribute = object_path.partition(":")
    if directory is not None and str(directory.resolve()) not in sys.path:
        sys.path.append(str(directory.resolve()))
    try:
        source = getattr(import_module(module_name), attribute)(name, dict(options))
    except Exception as error:  # the module may have any bug
        raise SourceError(f"{object_path}: {type(error).__name__}: {error}") from error
    missing = [member for member in ("name", "kind", "run") if not hasattr(source, member)]
    if missing:
        raise SourceError(f"{object_path} made {type(source).__name__!r}, which has no {', '.join(missing)}")
    if source.name != name:
        raise SourceError(f"{object_path} made a source named {source.name!r}, not {name!r}")
    loaded: Source = source
    return loaded

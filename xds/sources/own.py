"""Sources that users write in Python: ``module:factory`` makes the source (docs/services.md#a-source-of-your-own)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from xds.catalog.source import Source, SourceError


def load_source(name: str, object_path: str, options: Mapping[str, Any], directory: Path | None = None) -> Source:
    """Call ``module:factory`` with the source's name and ``options``.

    ``directory`` is searched for the module as well. Raises ``SourceError`` for whatever goes wrong, and for what is no
    source: it has the members of `Source`, and ``name`` as its name.
    """
    module_name, _, attribute = object_path.partition(":")
    if directory is not None and str(directory.resolve()) not in sys.path:
        sys.path.append(str(directory.resolve()))
    try:
        made = getattr(import_module(module_name), attribute)(name, dict(options))
    except Exception as error:  # the module may have any bug
        raise SourceError(f"{object_path}: {type(error).__name__}: {error}") from error
    missing = [member for member in ("name", "kind", "run") if not hasattr(made, member)]
    if missing:
        raise SourceError(f"{object_path} made {type(made).__name__!r}, which has no {', '.join(missing)}")
    if made.name != name:
        raise SourceError(f"{object_path} made a source named {made.name!r}, not {name!r}")
    found: Source = made
    return found

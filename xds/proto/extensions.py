"""The extensions of Envoy: the types that configure them, by category, as a running Envoy lists them.

A type may belong to several categories: most HTTP filters work before and behind the router. Extensions of contrib and
of other builds are not among them. ``python -m tools.proto.generate extensions`` generates the file, which names the
release.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

PATH = Path(__file__).parent / "envoy_extensions.json"
_NONE: frozenset[str] = frozenset()


def categories_of(message: str) -> frozenset[str]:
    """The categories of the extensions that a message configures, such as ``envoy.filters.http``; often none."""
    return _by_type().get(message, _NONE)


def categories() -> frozenset[str]:
    """All categories."""
    return frozenset(_load())


@cache
def _by_type() -> Mapping[str, frozenset[str]]:
    categories: dict[str, set[str]] = {}
    for category, types in _load().items():
        for one in types:
            categories.setdefault(one, set()).add(category)
    return {name: frozenset(named) for name, named in categories.items()}


@cache
def _load() -> Mapping[str, list[str]]:
    categories: Mapping[str, list[str]] = json.loads(PATH.read_text())["categories"]
    return categories


def encode(source: str, types: Mapping[str, Iterable[str]]) -> bytes:
    """The content of the file: one category a line, all sorted."""
    lines = (f"{json.dumps(one)}:{json.dumps(sorted(types[one]), separators=(',', ':'))}" for one in sorted(types))
    return f'{{"source":{json.dumps(source)},"categories":{{\n{",".join(lines)}\n}}}}\n'.replace("],", "],\n").encode()

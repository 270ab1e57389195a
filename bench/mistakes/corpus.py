"""Resources from configuration files of any form: bootstraps, snapshots, config dumps, lists of resources.

Every object with the ``@type`` of a resource counts, wherever it is, and everything in ``static_resources``. A list
in a file such as ``name.clusters.yaml`` holds resources of that type without ``@type``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xds.codec.document import parse_values
from xds.codec.naming import TYPE_KEY
from xds.model.errors import XdsError
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET

Json = dict[str, Any]

KINDS = {"listeners": LISTENER, "clusters": CLUSTER, "routes": ROUTE, "endpoints": ENDPOINT, "secrets": SECRET}
_SUFFIXES = frozenset((".yaml", ".yml", ".json"))
_FILE_LIMIT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One resource with the file that it comes from."""

    kind: str
    value: Json
    file: Path


def samples(folders: Iterable[Path]) -> list[Sample]:
    """The distinct resources of all files below the folders, in the order of their paths."""
    found: dict[str, Sample] = {}
    for folder in folders:
        for file in _files(folder):
            for one in _of_file(file):
                found.setdefault(json.dumps(one.value, sort_keys=True, default=str), one)
    return list(found.values())


def _files(folder: Path) -> list[Path]:
    every = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    return [
        one for one in every if one.suffix in _SUFFIXES and one.is_file() and one.stat().st_size < _FILE_LIMIT_BYTES
    ]


def _of_file(file: Path) -> Iterator[Sample]:
    try:
        documents = parse_values(file.read_bytes())
    except XdsError:
        return
    kind = file.name.split(".")[-2] if file.name.count(".") > 1 else ""
    for document in documents:
        typed: object = document
        if kind in KINDS and isinstance(document, list):
            typed = [{TYPE_KEY: KINDS[kind], **one} for one in document if isinstance(one, dict)]
        for found_kind, value in _within(typed):
            yield Sample(found_kind, value, file)


def _within(value: object) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        kind = next((kind for kind, url in KINDS.items() if value.get(TYPE_KEY) == url), "")
        if kind:
            yield kind, value
            return
        for key, below in value.items():
            if key == "static_resources" and isinstance(below, dict):
                yield from _static(below)
            else:
                yield from _within(below)
    elif isinstance(value, list):
        for one in value:
            yield from _within(one)


def _static(static: Json) -> Iterator[tuple[str, Json]]:
    for kind in ("listeners", "clusters", "secrets"):
        listed = static.get(kind) or []
        for index, one in enumerate(listed if isinstance(listed, list) else [listed]):
            if isinstance(one, dict):
                yield kind, {TYPE_KEY: KINDS[kind], "name": f"unnamed-{index}", **one}

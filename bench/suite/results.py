"""The results, cell by cell, in one JSON file; later runs are merged into it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

SCHEMA = 1

# By peer, by figure: one value a round (or all values of a distribution), in the order of the rounds.
Figures = dict[str, dict[str, list[float]]]


@dataclass(slots=True)
class Cell:
    """One comparison under the same conditions. The key is ``workload/...``, the same in every run."""

    key: str
    conditions: dict[str, Any]
    figures: Figures
    scale: str = "all"
    measured_at: str = ""
    commit: str = ""
    load: float = 0.0

    @property
    def workload(self) -> str:
        """The letter in front."""
        return self.key.partition("/")[0]

    def values(self, peer: str, figure: str) -> list[float]:
        """All rounds; empty where it was not measured."""
        return self.figures.get(peer, {}).get(figure, [])

    def median(self, peer: str, figure: str) -> float | None:
        """None where it was not measured."""
        values = self.values(peer, figure)
        return statistics.median(values) if values else None

    def worst(self, peer: str, figure: str) -> float | None:
        """The largest of the rounds; None where it was not measured."""
        return max(self.values(peer, figure), default=None)


@dataclass(slots=True)
class Results:
    """The machine and the cells, by key, in the order in which they were first measured."""

    machine: dict[str, Any] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Those of a file, none when there is no such file. Raises ``ValueError`` for a file of another schema."""
        if not path.exists():
            return cls()
        document = json.loads(path.read_text())
        if document.get("schema") != SCHEMA:
            raise ValueError(f"{path}: schema {document.get('schema')}, not {SCHEMA}: measure again")
        return cls(document["machine"], {cell["key"]: Cell(**cell) for cell in document["cells"]})

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"schema": SCHEMA, "machine": self.machine, "cells": [asdict(cell) for cell in self.cells.values()]}
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(_rounded(document), separators=(",", ":")).replace('{"key"', '\n{"key"') + "\n")
        partial.replace(path)

    def put(self, cell: Cell) -> None:
        """Add a cell, or replace the one of the same key."""
        self.cells[cell.key] = cell

    def matching(self, pattern: str) -> Iterator[Cell]:
        """The cells whose keys match, with ``*`` for anything."""
        return (cell for key, cell in self.cells.items() if fnmatchcase(key, pattern))


def merge(rounds: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    """One value a round of each figure."""
    figures: dict[str, list[float]] = {}
    for found in rounds:
        for name, value in found.items():
            figures.setdefault(name, []).append(value)
    return figures


def _rounded(value: Any) -> Any:
    """Six significant digits are more than any of this is good for."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(member) for key, member in value.items()}
    return [_rounded(member) for member in value] if isinstance(value, list) else value

"""The revision in labels that the server chose: ``5+1f3a9c07`` belongs to revision 5."""

from __future__ import annotations

from collections.abc import Mapping


def stem_of(label: str) -> str:
    """A label up to the first ``+``; a caller's own label without one is returned whole."""
    return label.partition("+")[0]


def stems(versions: Mapping[str, str]) -> dict[str, str]:
    """The labels of types, each up to the first ``+``."""
    return {type: stem_of(label) for type, label in versions.items()}

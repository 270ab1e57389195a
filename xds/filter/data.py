"""What filters are asked about: mappings, lists, texts, numbers, booleans, and None for what is not there.

There are two kinds of mapping. In a plain one a key may be missing, and every operator has an answer for that. A
``Record`` has a fixed set of fields; asking it for another one is a mistake in the filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any


class Record(dict[str, Any]):
    """A mapping whose keys are all there are."""


def kind_of(value: object) -> str:
    """How a value is called in messages."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, Mapping):
        return "a map"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def closest(name: str, known: Mapping[str, object]) -> str:
    """A hint that names what may have been meant."""
    found = get_close_matches(name, known, n=1)
    return f'did you mean "{found[0]}"?' if found else f"there are: {', '.join(sorted(known))}" if known else ""

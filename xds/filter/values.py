"""The values on which filters are evaluated: nodes as records. Also the regular expressions of filters.

A value is a mapping, list, string, number or boolean; None if it is absent. A plain mapping may lack a key, and every
operator has a result for an absent value. A `FixedRecord` has a fixed set of fields, and a selector of another field is
an error.

Regular expressions are those of RE2 (`xds.filter.regular_expressions`), with limits of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from xds.filter.regular_expressions import compile_regex
from xds.model.node import Node


class FixedRecord(dict[str, Any]):
    """A mapping with a fixed set of keys. Another key in a filter is an error."""


def type_name(value: object) -> str:
    """The type of a value, for messages."""
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
    """A hint with the key that was probably meant, or with all keys. ``user_agent_version`` is near a key of a key."""
    meant = {key: key for key in known}
    for key, value in known.items():
        if isinstance(value, FixedRecord):
            meant |= {f"{key}_{below}": f"{key}.{below}" for below in value}
    matches = get_close_matches(name, meant, n=1)
    return (
        f'did you mean "{meant[matches[0]]}"?' if matches else f"there are: {', '.join(sorted(known))}" if known else ""
    )


def node_record(node: Node) -> FixedRecord:
    """The record of a node, on which selectors are evaluated.

    Its fields are ``node.id``, ``node.cluster``, ``node.locality.*``, ``node.metadata.*`` and ``node.user_agent.*``.
    Only ``metadata`` is a plain map, which may lack keys. The other fields may be empty.
    """
    locality = node.locality
    return FixedRecord(
        node=FixedRecord(
            id=node.id,
            cluster=node.cluster,
            locality=FixedRecord(region=locality.region, zone=locality.zone, sub_zone=locality.sub_zone),
            metadata=node.metadata,
            user_agent=FixedRecord(name=node.user_agent_name, version=node.user_agent_version),
        )
    )


NODE_SHAPE = node_record(Node(""))


PATTERN_LIMIT = 512  # characters
INSTRUCTIONS_LIMIT = 1_000  # of a compiled pattern; a search costs at most this number times the length of the text
CACHE_BYTES = 1 << 20  # RE2 is ten times slower if its automaton exceeds this
SEARCHED_LIMIT = 1024  # characters of a value


class Pattern:
    """A compiled pattern. Raises ``ValueError`` for an invalid pattern and for one that is too large."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LIMIT:
            raise ValueError(f"the pattern has {len(text)} characters, {PATTERN_LIMIT} are allowed")
        self.text = text
        self._compiled = _compile(text)

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def _compile(text: str) -> Any:
    compiled = compile_regex(text, CACHE_BYTES)
    if compiled.programsize > INSTRUCTIONS_LIMIT:
        raise ValueError(f"the pattern is too large: it needs {compiled.programsize} steps of {INSTRUCTIONS_LIMIT}")
    return compiled

"""What filters are asked about: mappings, lists, texts, numbers, booleans, and None for what is not there.

There are two kinds of mapping. In a plain one a key may be missing, and every operator has an answer for that. A
``FixedRecord`` has a fixed set of fields; asking it for another one is a mistake in the filter.

A node as selectors see it.

Regular expressions that cannot hang: RE2, whose time grows with the length of the text only.

Python's own ``re`` backtracks: ``(a+)+$`` takes it centuries over forty letters, and both the pattern and the text come
from outside. RE2 is also the dialect that Envoy and the language's other users know.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from xds.model.node import Node


class FixedRecord(dict[str, Any]):
    """A mapping whose keys are all there are."""


def type_name(value: object) -> str:
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


def node_record(node: Node) -> FixedRecord:
    """``node.id``, ``node.cluster``, ``node.locality.*``, ``node.metadata.*`` and ``node.user_agent.*`` (DESIGN 4.1).

    Only ``metadata`` is a plain map: its keys may be missing, the other fields may be empty.
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
INSTRUCTIONS_LIMIT = 1_000  # of the compiled pattern: what a search costs at worst, times the length of the text
CACHE_BYTES = 1 << 20  # RE2 is ten times slower where its automaton does not fit
SEARCHED_LIMIT = 1024  # characters of a value


class Pattern:
    """A compiled pattern. Raises ``ValueError`` for a text that is no pattern or needs too much memory."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LIMIT:
            raise ValueError(f"the pattern has {len(text)} characters, {PATTERN_LIMIT} are allowed")
        self.text = text
        self._compiled = _compile(text)

    def search(self, text: str) -> bool:
        """True when the pattern matches anywhere in the text."""
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def _compile(text: str) -> Any:
    import re2  # here: a command that filters nothing should not wait for it

    options = re2.Options()
    options.max_mem = CACHE_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(text.encode(), options)
    except re2.error as error:
        raise ValueError(_told(error)) from None
    except UnicodeEncodeError:
        raise ValueError("the pattern is not valid Unicode") from None
    if compiled.programsize > INSTRUCTIONS_LIMIT:
        raise ValueError(f"the pattern is too large: it needs {compiled.programsize} steps of {INSTRUCTIONS_LIMIT}")
    return compiled


def _told(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)

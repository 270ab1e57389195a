"""Texts that not every store can hold, which are refused where they enter: half of a surrogate pair, and NUL.

The first has no encoding, and PostgreSQL stores no NUL. Only escapes of JSON and YAML, ``%00`` in a URL, and binary
messages can express them. What a resource contains may have NUL: Envoy takes it, and it is stored as bytes. Its name
and its type may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

CODE = "encoding"  # of a finding
NUL, HALF_PAIR = "a text with the character NUL", "a text with half a surrogate pair"
_ESCAPE = re.compile(r"\\(?:u(?:0000)?(?:d[89a-f]|0000)|x00|0)", re.IGNORECASE)


def flaw_of(text: str) -> str:
    """What is wrong with a text; empty if nothing is."""
    try:
        return NUL if b"\0" in text.encode() else ""
    except UnicodeEncodeError:
        return HALF_PAIR


# Which part of a document resources contain: nothing, each object with an ``@type``, or all.
ContentPart = Literal["none", "typed", "all"]


def may_be_flawed(written: str) -> bool:
    """Whether values that were read from a JSON or YAML text can have flaws: a quick search for escapes."""
    return "\\" in written and _ESCAPE.search(written) is not None


def find_flaws(document: object, content: ContentPart = "none") -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The path of each flawed text in a plain value, and what is wrong; for a key, the path of its object."""
    path: list[str | int] = []
    opened: list[tuple[bool, Iterator[tuple[str | int, object]]]] = [(content == "all", iter([(0, document)]))]
    while opened:  # nothing recurses, however deep it is
        is_content, items = opened[-1]
        for key, value in items:
            path[len(opened) - 1 :] = [key]
            if flaw := _flaw_of(str(key), is_content):
                yield tuple(path[1:-1]), flaw
            elif isinstance(value, str):
                if flaw := _flaw_of(value, is_content):
                    yield tuple(path[1:]), flaw
            elif isinstance(value, dict):
                opened.append((is_content or (content == "typed" and "@type" in value), iter(value.items())))
                break
            elif isinstance(value, list):
                opened.append((is_content, iter(enumerate(value))))
                break
        else:
            opened.pop()


def _flaw_of(text: str, is_content: bool) -> str:
    flaw = flaw_of(text)
    return "" if is_content and flaw == NUL else flaw

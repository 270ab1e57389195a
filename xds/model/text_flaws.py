"""Texts that not every store can hold, which are refused where they enter: half of a surrogate pair, and NUL.

The first has no encoding, and PostgreSQL stores no NUL. Only escapes of JSON and YAML, ``%00`` in a URL, and binary
messages can express them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

CODE = "encoding"  # of a finding
_NUL, _HALF_PAIR = "a text with the character NUL", "a text with half a surrogate pair"
_ESCAPE = re.compile(r"\\(?:u(?:0000)?(?:d[89a-f]|0000)|x00|0)", re.IGNORECASE)


def flaw_of(text: str) -> str:
    """What is wrong with a text; empty if nothing is."""
    try:
        return _NUL if b"\0" in text.encode() else ""
    except UnicodeEncodeError:
        return _HALF_PAIR


def may_be_flawed(written: str) -> bool:
    """Whether values that were read from a JSON or YAML text can have flaws: a quick search for escapes."""
    return "\\" in written and _ESCAPE.search(written) is not None


def find_flaws(document: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The path of each flawed text in a plain value, and what is wrong; for a key, the path of its object."""
    path: list[str | int] = []
    opened: list[Iterator[tuple[str | int, object]]] = [iter([(0, document)])]  # nothing recurses, however deep it is
    while opened:
        for key, value in opened[-1]:
            path[len(opened) - 1 :] = [key]
            if flaw := flaw_of(str(key)):
                yield tuple(path[1:-1]), flaw
            elif isinstance(value, str):
                if flaw := flaw_of(value):
                    yield tuple(path[1:]), flaw
            elif isinstance(value, dict | list):
                opened.append(iter(value.items()) if isinstance(value, dict) else enumerate(value))
                break
        else:
            opened.pop()
